"""Gaps in contexts: what the values that are there say about those that are not, and how surely.

With ``x̂ = E[x | present]`` and ``Σ = Cov(x | present)`` a reward is ``x̂·w + (x − x̂)·w + η``, so a learner decides at
``x̂``, and a round with gaps has noise of the variance ``σ² + wᵀΣw``.  Both come from means and covariances of all
features, of pairs of them over the contexts that had both (so values must not be missing *because* of what they are),
which begin with the log's.  A correlation from ``n`` contexts counts for ``n/(n + SHRINKAGE)`` of itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.hidden.gap_answers import conditional
from sidelight.learners.wild import ENOUGH, LIMITS
from sidelight.linalg import Array, inverse
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summary import LogSummary
from sidelight.side.coordinates import SAME

__all__ = ["Completed", "Gaps"]

#: how many contexts "features do not go together" counts for
SHRINKAGE = 4.0
#: the log counts for at most so many contexts, so that a population that has moved since is followed
LOG_ROWS = 1000.0
#: the regressions are learned anew when the contexts seen have grown by this factor
GROWTH = 1.1
#: a correlation matrix of pairs need not be one of all: it is drawn toward the identity in steps of this factor
STEP = 2.0


@dataclass(frozen=True)
class Completed:
    """A context whose gaps are filled.

    Attributes:
        x: (d,)  ``x̂``   gaps: (m,)  positions of what was missing.
        covariance: (m, m)  ``Σ`` of what was missing.
        known: whether every feature that is missing has been seen to vary.
    """

    x: Array
    gaps: NDArray[np.int64]
    covariance: Array
    known: bool


class Gaps:
    """Moments of contexts, and the regressions of what is missing on what is there.

    Attributes:
        may_miss: (d,)  the features that may be missing.
        rows: contexts seen   due: their number when the regressions are learned anew.
        origins: (d,)  what is subtracted before moments are taken: the log's mean, else the first value.
        counts: (d, d)   sums: (d, d)   products: (d, d)  over contexts that had features ``i`` and ``j``: their number,
            ``Σx_i`` and ``Σx_ix_j``.
        means: (d,)   scales: (d,)   precision: (d, d)  inverse of the correlations; as of the last time.
    """

    def __init__(self, may_miss: NDArray[np.bool_]) -> None:
        d = len(may_miss)
        self.may_miss = may_miss
        self.rows, self.due = 0.0, 1.0
        self.origins = np.full(d, np.nan)
        self.counts, self.sums, self.products = np.zeros((d, d)), np.zeros((d, d)), np.zeros((d, d))
        self.means, self.scales, self.precision = np.zeros(d), np.zeros(d), np.eye(d)

    @classmethod
    def of(cls, schema: Schema | None) -> Gaps | None:
        """None where no feature may be missing."""
        if schema is None or not schema.imputed:
            return None
        may_miss = schema.may_miss
        return cls(may_miss) if may_miss.any() else None

    def start_from(self, summary: LogSummary) -> None:
        """Begin with what a log says about its recorded features."""
        n = float(summary.n_rows)
        if n < 1.0 or not summary.n_recorded:
            return
        at = np.asarray(summary.recorded)
        means = (summary.means * summary.counts[:, None]).sum(axis=0) / n
        second = np.cumsum(summary.shares[:, None, None] * summary.second_moments, axis=0)[-1]
        rows = min(n, LOG_ROWS)
        block = np.ix_(at, at)
        self.origins[at] = means
        self.counts[block] += rows
        self.products[block] += rows * (second - means[:, None] * means)
        self._learn_regressions()

    # ------------------------------------------------------------------------------------ learning

    def learn(self, x: Array) -> None:
        """One more context, NaN where it has gaps.  x: (d,)"""
        present = ~np.isnan(x)
        first = present & np.isnan(self.origins)
        if first.any():
            self.origins[first] = x[first]
        if self.rows >= ENOUGH:
            # one wild value must not decide how features go together
            reach = np.where(self.scales > 0.0, LIMITS[0] * self.scales, np.inf)
            x = np.clip(x, self.means - reach, self.means + reach)
        v = np.where(present, x - self.origins, 0.0)
        there = present.astype(np.float64)
        self.counts += there[:, None] * there
        self.sums += v[:, None] * there
        self.products += v[:, None] * v
        self.rows += 1.0
        if self.rows >= self.due:
            self.due = math.ceil(GROWTH * self.rows)
            self._learn_regressions()

    def _learn_regressions(self) -> None:
        n = np.maximum(self.counts, 1.0)
        means = self.sums / n
        covariances = self.products / n - means * means.T
        second = np.diagonal(self.products) / np.diagonal(n)
        variances = np.diagonal(covariances)
        varied = variances > SAME * np.maximum(second, np.square(np.nan_to_num(self.origins)))
        self.means = np.where(np.isnan(self.origins), 0.0, self.origins + np.diagonal(means))
        freedom = np.diagonal(n) / np.maximum(np.diagonal(n) - 1.0, 1.0)
        self.scales = np.where(varied, np.sqrt(np.where(varied, variances, 1.0) * freedom), 0.0)
        scale = np.sqrt(np.where(varied, variances, 1.0))
        correlations = covariances / scale[:, None] / scale
        both = varied[:, None] & varied
        correlations = np.where(both, np.clip(correlations, -1.0, 1.0) * self.counts / (self.counts + SHRINKAGE), 0.0)
        np.fill_diagonal(correlations, 1.0)
        self.precision = _inverse_of(correlations)

    # ------------------------------------------------------------------------------------- filling

    def fill(self, x: Array) -> Array:
        """``x̂`` of a context, which is returned as it is if it has no gaps.  x: (d,)"""
        return self.complete(x).x if np.isnan(x).any() else x

    def fill_rows(self, X: Array) -> Array:
        """``fill`` for every row of ``X`` (n, d)."""
        rows = np.flatnonzero(np.isnan(X).any(axis=1))
        if not len(rows):
            return X
        out = X.copy()
        for i in rows:
            out[i] = self.complete(X[i]).x
        return out

    def complete(self, x: Array) -> Completed:
        """``x̂`` and ``Σ`` of a context.  x: (d,)"""
        if not np.isnan(x).any():
            return Completed(x, np.zeros(0, dtype=np.int64), np.zeros((0, 0)), True)
        filled, gaps, covariance = conditional(x, self.means, self.scales, self.precision)
        own = self.scales[gaps]
        return Completed(filled, gaps, own[:, None] * covariance * own, bool((own > 0.0).all()))

    # --------------------------------------------------------------------------------------- files

    def state(self) -> dict[str, Any]:
        """The arrays that a file keeps of it, by name."""
        return {
            "gaps_rows": np.array([self.rows, self.due]),
            "gaps_means": np.stack([self.origins, self.means, self.scales]),
            "gaps_moments": np.stack([self.counts, self.sums, self.products, self.precision]),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``."""
        self.rows, self.due = (float(v) for v in arrays["gaps_rows"])
        self.origins, self.means, self.scales = np.array(arrays["gaps_means"], dtype=np.float64)
        self.counts, self.sums, self.products, self.precision = np.array(arrays["gaps_moments"], dtype=np.float64)


def _inverse_of(correlations: Array) -> Array:
    """The inverse, of a matrix drawn toward the identity as far as it takes to have one with digits."""
    off = correlations.copy()
    np.fill_diagonal(off, 0.0)
    pull = 1e-6
    while True:
        try:
            found = inverse(np.eye(len(off)) + (1.0 - pull) * off)
        except np.linalg.LinAlgError:
            found = None
        # at most 1/pull where the matrix is positive definite with a margin
        if found is not None and float(np.diagonal(found).max()) <= 1.0 / pull:
            return np.asarray(found)
        pull = min(STEP * pull, 1.0)
