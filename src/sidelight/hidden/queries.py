"""The hidden half from queries: at full contexts, what would the old policy do?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from sidelight.errors import UnknownArmError
from sidelight.hidden.answers import AnswerEstimator, EstimatorName
from sidelight.hidden.protocol import Needs
from sidelight.hidden.sums import chance
from sidelight.labels import position_of
from sidelight.linalg import Array

if TYPE_CHECKING:
    from sidelight.logs.summary import LogSummary

__all__ = ["BehaviorQueries"]


class BehaviorQueries(AnswerEstimator):
    """Learns ``B_a`` from the actions that the old policy names when asked (the paper's case study).

    A query may be left out independently of the context without harm.  If whether to ask depends on the
    context, pass the ``probability`` with which it was asked: the answer then counts ``1/probability``.

    Args:
        summary: the log whose hidden half is learned.
        estimator: ``"regression"`` (default, least error), ``"ipw"`` (the paper's) or ``"control_variate"``.
        pooling: pull of each arm's regression toward the pooled one, in answers, or ``"auto"``.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> schema = sl.Schema.for_arrays(3, recorded=2, n_arms=2)
        >>> rng = np.random.default_rng(0)
        >>> log = sl.LogSummary.from_arrays(rng.normal(size=(50, 2)), np.arange(50) % 2, rng.normal(size=50), schema)
        >>> queries = sl.BehaviorQueries(log, estimator="ipw")
        >>> queries.observe([0.3, 1.0, -0.2], arm=1)
        >>> queries
        BehaviorQueries(ipw, 1 answers, 1 of 3 features hidden)
    """

    needs: Needs = "action"

    def __init__(
        self,
        summary: LogSummary,
        estimator: EstimatorName = "regression",
        pooling: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(summary, estimator, pooling)

    def _begin(self, summary: LogSummary, estimator: str, pooling: float | Literal["auto"]) -> None:
        super()._begin(summary, estimator, pooling)
        self._index = {arm: i for i, arm in enumerate(summary.arms)}
        # a subclass may observe in a way of its own
        self.takes_actions_by_sums = type(self).observe is BehaviorQueries.observe
        self.estimates_by_weighting = estimator == "ipw"

    def observe(self, x: ArrayLike, arm: Any, probability: float = 1.0) -> None:
        """The old policy would take ``arm`` at the full context ``x``; this was asked with ``probability``."""
        self.sums.add_action(self.sums.context(x), self._position(arm), chance(probability))
        self._answered()

    def observe_gaps(self, x: Array, arm: Any, probability: float = 1.0) -> None:
        """As ``observe``, at a context ``x`` (d,) with gaps, NaN; only the regression learns from it."""
        chances = np.zeros(self.summary.n_arms)
        chances[self._position(arm)] = 1.0
        self._observe_gaps(x, chances, chance(probability))

    def _position(self, arm: Any) -> int:
        index = position_of(arm, self._index)
        if index is None:
            raise UnknownArmError(
                f"The old policy answered {arm!r}, which is not an arm of this log "
                f"({', '.join(map(repr, self.summary.arms[:8]))}{' …' if len(self.summary.arms) > 8 else ''})."
            )
        return index
