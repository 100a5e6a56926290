"""The sums that the estimators from answers share: weighted second moments of full contexts, per arm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sidelight.errors import ContextError, InputError
from sidelight.kernels.sums import Answers, add_answer, add_probabilities
from sidelight.linalg import Array
from sidelight.logs.summary import LogSummary

__all__ = ["AnswerSums", "chance"]

# Answers kept one by one beside the sums: enough for fourth moments, a few megabytes at most.
_KEPT_ROWS = 10_000


def chance(probability: Any) -> float:
    """``q``, the probability with which a context was asked about."""
    try:
        q = float(probability)
    except (TypeError, ValueError):
        q = 0.0
    if not 0.0 < q <= 1.0:
        raise InputError(
            f"probability={probability!r}: the chance that this context was asked about must lie in (0, 1]."
        )
    return q


class AnswerSums:
    """Per arm ``Σ ω x xᵀ``, ``Σ ω² x_o x_oᵀ`` and ``Σ ω x`` over the contexts that were answered.

    The weight ``ω`` of a context for arm ``a`` is ``1{a^b = a}/q`` for an action that was asked with
    probability ``q``, and ``π_b(a|x)/q`` for probabilities.  Whoever adds to the arrays in place counts the answers
    too: estimators keep what they have worked out until ``n_answers`` or ``total_weight`` changes.

    Attributes:
        n_answers: number of answers.
        total_weight: ``Σ 1/q``; equal to ``n_answers`` where every context was asked.
        S: (K, d, d)   S_squared: (K, L, L)   sums: (K, d)   counts: (K,)  ``Σ ω``.
        whole: (L, L)  ``Σ x_o x_oᵀ/q²`` of contexts that were answered by probabilities, which all arms share.
        rows: the first 10,000 answers as ``(x, arm position or probabilities, 1/q)``, from which a verdict takes
            fourth moments. Files, copies and answers that kernels add to the sums leave them out.
    """

    def __init__(self, summary: LogSummary) -> None:
        K, d, L = summary.n_arms, summary.n_features, summary.n_recorded
        self.L = L
        self.schema = summary.schema
        self.order = np.concatenate([summary.recorded, summary.hidden]).astype(np.int64)
        self.n_answers = 0
        self.total_weight = 0.0
        self.S = np.zeros((K, d, d))
        self.S_squared = np.zeros((K, L, L))
        self.sums = np.zeros((K, d))
        self.counts = np.zeros(K)
        self.whole = np.zeros((L, L))
        self.rows: list[tuple[Array, int | Array, float]] = []

    @property
    def arrays(self) -> Answers:
        """The sums as kernels take them; whoever adds there counts the answers too."""
        return Answers(self.order, self.S, self.S_squared, self.sums, self.counts)

    @property
    def S11(self) -> Array:
        """``Σ ω x_o x_oᵀ``: (K, L, L)."""
        return self.S[:, : self.L, : self.L]

    @property
    def S12(self) -> Array:
        """``Σ ω x_o x_hᵀ``: (K, L, m)."""
        return self.S[:, : self.L, self.L :]

    @property
    def S22(self) -> Array:
        """``Σ ω x_h x_hᵀ``: (K, m, m)."""
        return self.S[:, self.L :, self.L :]

    def context(self, x: ArrayLike | Mapping[str, Any]) -> Array:
        """Check one full context, in the schema's order or by feature name."""
        if isinstance(x, Mapping):
            return self.schema.encode(x)
        try:
            x = np.asarray(x, dtype=np.float64)
        except (TypeError, ValueError):
            raise ContextError(f"A context must be {self.order.shape[0]} numbers; got {x!r:.200}.") from None
        if x.shape != self.order.shape:
            raise ContextError(
                f"A context of shape {x.shape}; the old policy's answers are learned from full contexts of "
                f"{self.order.shape[0]} features, recorded and hidden ones."
            )
        if not np.isfinite(x).all():
            raise ContextError(f"Feature {int(np.argmin(np.isfinite(x)))} of the context is not finite.")
        return x

    def add_action(self, x: Array, index: int, probability: float) -> None:
        """One answer "I would take arm ``index``", asked for with ``probability``."""
        weight = 1.0 / probability
        add_answer(self.arrays, x, index, weight)
        self._count(weight)
        self._keep(x, index, weight)

    def add_probabilities(self, x: Array, probabilities: Array, probability: float) -> None:
        """One answer "I would take arm ``a`` with probability ``p_a``"."""
        weight = 1.0 / probability
        add_probabilities(self.arrays, x, probabilities, weight)
        y = weight * x[self.order[: self.L]]
        self.whole += np.outer(y, y)
        self._count(weight)
        self._keep(x, probabilities.copy(), weight)

    def _keep(self, x: Array, answer: int | Array, weight: float) -> None:
        if len(self.rows) < _KEPT_ROWS:
            self.rows.append((x.copy(), answer, weight))

    def _count(self, weight: float) -> None:
        self.n_answers += 1
        self.total_weight += weight

    def state(self) -> dict[str, Any]:
        """Arrays to be saved."""
        return {
            "S": self.S,
            "S_squared": self.S_squared,
            "sums": self.sums,
            "counts": self.counts,
            "whole": self.whole,
            "totals": np.array([self.n_answers, self.total_weight]),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``."""
        for name in ("S", "S_squared", "sums", "counts"):
            setattr(self, name, np.array(arrays[name], dtype=np.float64))
        self.n_answers = int(arrays["totals"][0])
        self.total_weight = float(arrays["totals"][1])
        if "whole" in arrays:
            self.whole = np.array(arrays["whole"], dtype=np.float64)
        else:  # a file from before it was kept: as if every context had been asked with the same chance
            self.whole = self.total_weight / max(self.n_answers, 1) * self.S11.sum(axis=0)
