"""How far the straight lines through a log's rewards of 0 and 1 leave the interval from 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sidelight.hidden.frame import unitless_regression
from sidelight.linalg import Array, product

if TYPE_CHECKING:
    from sidelight.logs.summary import LogSummary

__all__ = ["LineExcess"]


#: how many times the mean square by which lines leave the interval is taken for that of their bias: least squares make
#: up inside the interval for what a line has beyond it (for a step along a normal feature both together are 6.7 times)
INSIDE_AS_WELL = 2.0


class LineExcess:
    """The bias that lines through a log's rewards show by leaving the interval from 0 to 1.

    A rate lies between 0 and 1.  Where the line ``x_o·b_a`` of an arm does not, it is off by at least as much as it
    leaves the interval.  Rewards of classes, which follow features like a step, have such lines.  An arm whose own line
    stays inside is no better described by it: the middle of three classes along a feature has a flat line.  So the mean
    over arms is counted for every arm: with ``[·]₀¹`` the nearest rate,

        E[(x_o·β_a)²] = 2 E[Σ_a P(a)(x_o·b_a − [x_o·b_a]₀¹)²],   β_a ~ N(0, Δ²R11(a)⁻¹),   E[(x_o·β_a)²] = LΔ²,

    where ``β_a`` is the bias and the mean on the right is over the contexts of the rounds.

    Attributes:
        total: (2,)  sum of the squares over contexts, each counted as at most 1, and the number of contexts.
    """

    def __init__(self, summary: LogSummary, told: NDArray[np.bool_]) -> None:
        """Take the lines of a log.  told: (K,)  which arms have rows enough for the line not to be chance

        Lines through zero (no intercept) are not compared: those of the rounds leave the interval just as they do.
        """
        arms = np.flatnonzero(told & summary.schema.intercept)
        counts = np.asarray(summary.counts, dtype=np.float64)[arms]
        self._recorded = np.asarray(summary.recorded)
        self._lines = np.ascontiguousarray(_lines(summary, arms).T)
        self._shares = counts / max(float(counts.sum()), 1.0)
        self.total = np.zeros(2)

    def add(self, X: Array, sign: float = 1.0) -> None:
        """Take contexts in, or with ``sign=-1`` out.  X: (n, d)"""
        if not len(self._shares) or not len(self._recorded):
            return
        fits = product(X[:, self._recorded], self._lines)
        # no single context, however wild, says more than that a rate is off by one
        beyond = np.minimum(np.abs(fits - np.clip(fits, 0.0, 1.0)), 1.0)
        squares = np.cumsum(self._shares * np.square(beyond), axis=1)[:, -1]
        # in order, so that rows one by one and many at once have the same bits
        self.total[0] = np.cumsum(np.concatenate([self.total[:1], sign * squares]))[-1]
        self.total[1] += sign * len(X)

    @property
    def square(self) -> float:
        """``Δ²``; 0 before the first context."""
        squares, contexts = (float(v) for v in self.total)
        if not contexts > 0.0 or not len(self._recorded):
            return 0.0
        return INSIDE_AS_WELL * max(squares, 0.0) / contexts / len(self._recorded)


def _lines(summary: LogSummary, arms: NDArray[np.int64]) -> Array:
    """(n, L)  ``b_a`` of the arms at these positions, of a log with an intercept.

    Features that repeat each other have the same weight in standard deviations: contexts whose gaps were filled have
    them apart, and the order of features must not say which of them counts.
    """
    lines, n = summary.least_squares(arms), np.asarray(summary.counts, dtype=np.float64)
    for row, a in enumerate(arms):
        if not summary.determined[a]:
            rewards = np.asarray(summary.cross)[a] / n[a]
            lines[row] = unitless_regression(np.asarray(summary.second_moments)[a], rewards[:, None], 0)[:, 0]
    return lines
