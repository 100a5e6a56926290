"""The sums that the estimators from answers share: weighted second moments of full contexts, per arm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sidelight.errors import ContextError, InputError
from sidelight.kernels.sums import Answers, add_answer, add_answers
from sidelight.linalg import Array
from sidelight.logs.schema.naming import by_name
from sidelight.logs.summary import LogSummary

__all__ = ["AnswerSums", "chance", "chances_of_arms"]

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


def chances_of_arms(probabilities: ArrayLike, n_arms: int) -> Array:
    """The old policy's probabilities (K,) as numbers, checked to be at least 0 and to sum to 1."""
    try:
        p = np.asarray(probabilities, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"probabilities={probabilities!r:.200} must be numbers, one for each arm.") from None
    if p.shape != (n_arms,):
        raise InputError(f"probabilities of shape {p.shape}; this log has {n_arms} arms, so it must be ({n_arms},).")
    if not (np.isfinite(p).all() and (p >= 0).all() and abs(p.sum() - 1.0) < 1e-6):
        raise InputError(
            f"probabilities must be at least 0 and sum to 1; their smallest is {p.min()!r} and their sum {p.sum()!r}."
        )
    return p


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
        excess: (K, L + 1)  ``Σ (ω² − ω)(x_o, 1)``: what ``Σω²(x_o, 1)`` has beyond ``sums`` and ``counts``.
        whole_excess: (L + 1,)  ``Σ (1/q² − 1/q)(x_o, 1)`` of contexts that were answered by probabilities.
        heaviest: (K,)  the largest ``ω`` of every arm so far.
        rows: the first 10,000 answers as ``(x, arm position or probabilities, 1/q)``, from which a verdict takes
            fourth moments. Files, copies and answers that kernels add to the sums leave them out.
    """

    def __init__(self, summary: LogSummary) -> None:
        K, d, L = summary.n_arms, summary.n_features, summary.n_recorded
        self.L = L
        self.schema = summary.schema
        self.shares, self.log_rows = np.asarray(summary.shares), float(summary.n_rows)
        self.order = np.concatenate([summary.recorded, summary.hidden]).astype(np.int64)
        self.n_answers = 0
        self.total_weight = 0.0
        self.S = np.zeros((K, d, d))
        self.S_squared = np.zeros((K, L, L))
        self.sums = np.zeros((K, d))
        self.counts = np.zeros(K)
        self.whole = np.zeros((L, L))
        self.excess = np.zeros((K, L + 1))
        self.whole_excess = np.zeros(L + 1)
        self.heaviest = np.zeros(K)
        self.rows: list[tuple[Array, int | Array, float]] = []
        #: (d, d), (d,), (L, L) and (L + 1,)  what the sums over all arms of ``S``, ``sums``, ``S_squared`` and
        #: ``excess`` lack of those that the pooled regression is made of (see ``hidden.gap_answers``)
        self.apart = (np.zeros((d, d)), np.zeros(d), np.zeros((L, L)), np.zeros(L + 1))

    @property
    def arrays(self) -> Answers:
        """The sums as kernels take them.  After a kernel has added to them, ``took`` must count its answers."""
        return Answers(self.order, self.S, self.S_squared, self.sums, self.counts)

    @property
    def straight(self) -> NDArray[np.bool_]:
        """(m,)  Whether a hidden feature is a column, not derived from columns."""
        return ~np.isin(self.order[self.L :], self.schema.derived_index)

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
        """Check one full context: numbers in the schema's order, or anything that names its values."""
        named = by_name(x)
        if named is not None:
            return self.schema.encode(named)
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
        self.heaviest[index] = max(self.heaviest[index], weight)
        if weight != 1.0:
            self.excess[index] += weight * (weight - 1.0) * self._with_one(x)
        self._count(weight)
        self._keep(x, index, weight)

    def add_probabilities(self, x: Array, probabilities: Array, probability: float) -> None:
        """One answer "I would take arm ``a`` with probability ``p_a``"."""
        weight = 1.0 / probability
        named = np.flatnonzero(probabilities > 0.0)
        add_answers(self.arrays, x[None], named, weight * probabilities[named])
        y = self._with_one(x)
        weights = weight * probabilities
        self.heaviest = np.maximum(self.heaviest, weights)
        self.excess += (weights * (weights - 1.0))[:, None] * y
        self.whole_excess += weight * (weight - 1.0) * y
        y = weight * y[: self.L]
        self.whole += np.outer(y, y)
        self._count(weight)
        self._keep(x, probabilities.copy(), weight)

    def _with_one(self, x: Array) -> Array:
        """``(x_o, 1)``: (L + 1,)."""
        return np.append(x[self.order[: self.L]], 1.0)

    def effective_counts(self) -> Array:
        """``(Σω)²/Σω²``: (K,), how many answers of equal weight would be as precise; 0 where there are none."""
        squares = self.counts + self.excess[:, -1]
        return np.where(squares > 0.0, np.square(self.counts) / np.where(squares > 0.0, squares, 1.0), 0.0)

    def squares_with_one(self) -> Array:
        """``Σ ω²(x_o, 1)(x_o, 1)ᵀ``: (K, L + 1, L + 1)."""
        return _bordered(self.S_squared, np.column_stack([self.sums[:, : self.L], self.counts]) + self.excess)

    def whole_with_one(self) -> Array:
        """``Σ (x_o, 1)(x_o, 1)ᵀ/q²`` of contexts that were answered by probabilities: (L + 1, L + 1)."""
        first = np.sum(self.sums[:, : self.L], axis=0) + self.apart[1][: self.L]
        border = np.append(first, np.sum(self.counts))
        return np.asarray(_bordered(self.whole[None], (border + self.whole_excess)[None])[0])

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
            "excess": self.excess,
            "whole_excess": self.whole_excess,
            "heaviest": self.heaviest,
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
        else:  # files of older versions lack it: assume that every context was asked with the same probability
            self.whole = self.total_weight / max(self.n_answers, 1) * self.S11.sum(axis=0)
        if "heaviest" in arrays:
            self.heaviest = np.array(arrays["heaviest"], dtype=np.float64)
        else:  # also missing: every weight is at least 1, so the largest is at most 1 + Σ(ω − 1)
            self.heaviest = np.full(len(self.counts), max(self.total_weight - self.n_answers, 0.0) + 1.0)
        first = np.column_stack([self.sums[:, : self.L], self.counts])
        if "excess" in arrays:
            self.excess = np.array(arrays["excess"], dtype=np.float64)
            self.whole_excess = np.array(arrays["whole_excess"], dtype=np.float64)
        else:  # also missing: assume equal weights within an arm
            self.excess = (_typical_weight(self.S_squared, self.S11) - 1.0)[:, None] * first
            of_all = _typical_weight(self.whole[None], np.sum(self.S11, axis=0)[None])[0]
            self.whole_excess = (of_all - 1.0) * np.sum(first, axis=0)


def _bordered(inner: Array, border: Array) -> Array:
    """(n, L + 1, L + 1)  symmetric: ``inner`` (n, L, L) with ``border`` (n, L + 1) as last row and column."""
    n, L, _ = inner.shape
    out = np.empty((n, L + 1, L + 1))
    out[:, :L, :L] = inner
    out[:, L, :] = border
    out[:, :, L] = border
    return out


def _typical_weight(squared: Array, plain: Array) -> Array:
    """``Σω²‖x_o‖²/Σω‖x_o‖²``; 1 where there are no answers."""
    own, squares = np.einsum("aii->a", plain), np.einsum("aii->a", squared)
    return np.where(own > 0, squares / np.where(own > 0, own, 1.0), 1.0)
