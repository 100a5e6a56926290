"""The hidden half from the old policy's probabilities: every context informs every arm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from numpy.typing import ArrayLike

from sidelight.hidden.answers import AnswerEstimator
from sidelight.hidden.protocol import Needs
from sidelight.hidden.sums import chance, chances_of_arms
from sidelight.linalg import Array

if TYPE_CHECKING:
    from sidelight.logs.summary import LogSummary

__all__ = ["BehaviorProbabilities"]


class BehaviorProbabilities(AnswerEstimator):
    """Learns ``B_a`` from ``π_b(· | x)``: each context counts for arm ``a`` with weight ``π_b(a | x)``.

    Args:
        summary: the log whose hidden half is learned.
        estimator: ``"regression"`` (default) or ``"ipw"``: the weights ``π_b(a | x)/P(a)``, unbiased for ``R12``.
        pooling: pull of each arm's regression toward the pooled one, in answers, or ``"auto"``.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> schema = sl.Schema.for_arrays(3, recorded=2, n_arms=2)
        >>> rng = np.random.default_rng(0)
        >>> log = sl.LogSummary.from_arrays(rng.normal(size=(50, 2)), np.arange(50) % 2, rng.normal(size=50), schema)
        >>> known = sl.BehaviorProbabilities(log)
        >>> known.observe([0.3, 1.0, -0.2], [0.25, 0.75])
        >>> known.n_answers
        1
    """

    needs: Needs = "probabilities"
    estimators = ("regression", "ipw")

    def __init__(
        self,
        summary: LogSummary,
        estimator: Literal["regression", "ipw"] = "regression",
        pooling: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(summary, estimator, pooling)

    def observe(self, x: ArrayLike, probabilities: ArrayLike, probability: float = 1.0) -> None:
        """The old policy's probabilities at the full context ``x``, in the order of the log's arms."""
        self.sums.add_probabilities(
            self.sums.context(x), chances_of_arms(probabilities, self.summary.n_arms), chance(probability)
        )
        self._answered()

    def observe_gaps(self, x: Array, probabilities: ArrayLike, probability: float = 1.0) -> None:
        """As ``observe``, at a context ``x`` (d,) with gaps, NaN; only the regression learns from it."""
        self._observe_gaps(x, chances_of_arms(probabilities, self.summary.n_arms), chance(probability))

    #: arms share contexts, whose weights add up to 1/q over them
    _shared_answers = True
