"""Gaps in contexts: what the values that are there say about those that are not, and how surely.

With ``x̂ = E[x | present]`` and ``Σ = Cov(x | present)`` a reward is ``x̂·w + (x − x̂)·w + η``, so a learner decides at
``x̂``, and a round with gaps has noise of the variance ``σ² + wᵀΣw``.  Both come from means and covariances of all
features, which begin with the log's and are learned by the EM algorithm for normal features, one context at a time:
values that are there count as they are, and products of those that are not in their expectation when the context came
(so values must not be missing *because* of what they are).  A correlation from ``n`` contexts that had both features
counts for ``n/(n + SHRINKAGE)`` of itself.

``x̂`` errs, because the regressions are learned: by ``Σ(1 + zᵀC⁻¹z)/n`` for present values ``z`` of correlations ``C``,
as any regression of ``n`` rows does at ``z``.  That goes into widths (``Completed.error``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.hidden.gap_answers import conditional
from sidelight.learners.wild import ENOUGH, LIMITS
from sidelight.linalg import Array, apply, inverse, product
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summary import LogSummary
from sidelight.side.coordinates import SAME

__all__ = ["Completed", "Gaps"]

#: how many contexts "features do not go together" counts for
SHRINKAGE = 4.0
#: the n-th expectation counts for this part of n, so that what was expected while little was known fades (as n⁻²)
LATEST = 2.0
#: the log counts for at most so many contexts, so that a population that has moved since is followed
LOG_ROWS = 1000.0
#: the regressions are learned anew when the contexts seen have grown by this factor
GROWTH = 1.1
#: a matrix of pairwise correlations need not be positive definite: it is shrunk to the identity by steps of this factor
STEP = 2.0


@dataclass(frozen=True)
class Completed:
    """A context whose gaps are filled.

    Attributes:
        x: (d,)  ``x̂``   gaps: (m,)  positions of what was missing.
        covariance: (m, m)  ``Σ`` of what was missing   error: (m, m)  covariance of the error of ``x̂`` itself.
        known: whether every feature that is missing has been seen to vary.
    """

    x: Array
    gaps: NDArray[np.int64]
    covariance: Array
    error: Array
    known: bool

    @property
    def filled(self) -> tuple[float, ...]:
        """What was put into the gaps, in order."""
        return tuple(self.x[self.gaps].tolist())

    def reward_variance(self, w: Array, spread: Array) -> float:
        """``E[wᵀΣw] = ŵᵀΣŵ + tr(Σ Cov w)``: what the gaps add to the noise of a reward.

        w: (m,)  weights of what is missing   spread: (m, m)  their covariance
        """
        return max(float((self.covariance * (w[:, None] * w + spread)).sum()), 0.0)

    def reward_error(self, w: Array) -> Array:
        """(K,)  ``wᵀEw``, where ``E`` is the covariance of the error of ``x̂`` itself.  w: (K, m)"""
        return np.asarray(np.maximum((product(w, self.error) * w).sum(axis=1), 0.0))


class Gaps:
    """Moments of contexts, and the regressions of what is missing on what is there.

    Attributes:
        may_miss: (d,)  the features that may be missing.
        rows: contexts learned from   due: their number when the regressions are learned anew.
        answers: contexts of answers seen   rounds: those of rounds.  Most come as both and are learned from once.
        origins: (d,)  what is subtracted before moments are taken: the log's mean, else the first value.
        counts: (d, d)   sums: (d, d)   products: (d, d)  over contexts that had features ``i`` and ``j``: their number,
            ``Σx_i`` and ``Σx_ix_j``.
        expected: (3, d, d)  over contexts that lacked one of the two: their number, and the averages of ``E[x_i]`` and
            ``E[x_ix_j]``.
        means: (d,)   scales: (d,)   precision: (d, d)  inverse of the correlations; as of the last time.
    """

    def __init__(self, may_miss: NDArray[np.bool_]) -> None:
        d = len(may_miss)
        self.may_miss = may_miss
        self.rows, self.due = 0.0, 1.0
        self.answers, self.rounds = 0.0, 0.0
        self.origins = np.full(d, np.nan)
        self.counts, self.sums, self.products = np.zeros((d, d)), np.zeros((d, d)), np.zeros((d, d))
        self.expected = np.zeros((3, d, d))
        self.means, self.scales, self.precision = np.zeros(d), np.zeros(d), np.eye(d)

    @classmethod
    def of(cls, schema: Schema | None) -> Gaps | None:
        """What to keep for a schema; None if it lets no feature be missing."""
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

    def answered(self, x: Array) -> Completed:
        """Learn from the context of an answer, and return it completed as it was before.  x: (d,), NaN for gaps"""
        self.answers += 1.0
        return self._take(x, self.answers)

    def played(self, x: Array) -> Completed:
        """Learn from the context of a round, and return it completed as it was before.  x: (d,), NaN for gaps"""
        self.rounds += 1.0
        return self._take(x, self.rounds)

    def _take(self, x: Array, number: float) -> Completed:
        """A context comes as an answer's and as a round's: the ``number``-th of a kind is new if it is the latest."""
        context = self.complete(x)
        if number > self.rows:
            self.learn(x, context)
        return context

    def learn(self, x: Array, context: Completed | None = None) -> None:
        """Learn from one more context, NaN where it has gaps.  x: (d,)   context: the same, completed"""
        if context is None:
            context = self.complete(x)
        present = ~np.isnan(x)
        first = present & np.isnan(self.origins)
        if first.any():
            self.origins[first] = x[first]
        known = ~np.isnan(self.origins)
        x = context.x
        if self.rows >= ENOUGH:
            # one wild value must not decide how features go together
            reach = np.where(self.scales > 0.0, LIMITS[0] * self.scales, np.inf)
            x = np.clip(x, self.means - reach, self.means + reach)
        v = np.where(known, x - self.origins, 0.0)
        there = present.astype(np.float64)
        both = there[:, None] * there
        self.counts += both
        self.sums += v[:, None] * both
        self.products += v[:, None] * v * both
        if len(context.gaps):
            self._expect(v, context, known[:, None] & known & (both == 0.0))
        self.rows += 1.0
        if self.rows >= self.due:
            self.due = math.ceil(GROWTH * self.rows)
            self._learn_regressions()

    def _expect(self, v: Array, context: Completed, lacking: NDArray[np.bool_]) -> None:
        """Count a context in its expectation for the pairs of features that it is ``lacking``.  lacking: (d, d)"""
        number, mean, second = self.expected
        number += lacking
        step = np.where(lacking, LATEST / (number + (LATEST - 1.0)), 0.0)
        products = v[:, None] * v
        products[np.ix_(context.gaps, context.gaps)] += context.covariance
        mean += step * (v[:, None] - mean)
        second += step * (products - second)

    def _learn_regressions(self) -> None:
        number, mean, second = self.expected
        n = np.maximum(self.counts + number, 1.0)
        means = (self.sums + number * mean) / n
        products = (self.products + number * second) / n
        covariances = products - means * means.T
        variances = np.diagonal(covariances)
        varied = variances > SAME * np.maximum(np.diagonal(products), np.square(np.nan_to_num(self.origins)))
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

    def complete(self, x: Array) -> Completed:
        """``x̂``, ``Σ`` and the error of ``x̂`` of a context.  x: (d,)"""
        if not np.isnan(x).any():
            nothing = np.zeros((0, 0))
            return Completed(x, np.zeros(0, dtype=np.int64), nothing, nothing, True)
        filled, gaps, covariance, distance = conditional(x, self.means, self.scales, self.precision)
        own = self.scales[gaps]
        covariance = own[:, None] * covariance * own
        error = np.sqrt((1.0 + distance) / self._contexts_of(gaps, ~np.isnan(x) & (self.scales > 0.0)))
        return Completed(filled, gaps, covariance, error[:, None] * covariance * error, bool((own > 0.0).all()))

    def _contexts_of(self, gaps: NDArray[np.int64], present: NDArray[np.bool_]) -> Array:
        """(m,)  From how many contexts the regression of each missing feature on the present ones is known.

        The harmonic mean over present features, since errors of their coefficients add up; less one for each of them.
        """
        if not present.any():
            return np.asarray(np.maximum(np.diagonal(self.counts)[gaps], 1.0))
        shares = 1.0 / np.maximum(self.counts[gaps][:, present], 1.0)
        p = shares.shape[1]
        return np.asarray(np.maximum(1.0 / apply(shares, np.full(p, 1.0 / p)) - (p + 1.0), 1.0))

    # --------------------------------------------------------------------------------------- files

    def state(self) -> dict[str, Any]:
        """The arrays that a file keeps of it, by name."""
        return {
            "gaps_rows": np.array([self.rows, self.due, self.answers, self.rounds]),
            "gaps_means": np.stack([self.origins, self.means, self.scales]),
            "gaps_moments": np.stack([self.counts, self.sums, self.products, self.precision]),
            "gaps_expected": self.expected,
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``; in files from before there were expectations, pairs that lacked one had none."""
        self.rows, self.due, *seen = (float(v) for v in arrays["gaps_rows"])
        self.answers, self.rounds = seen or (self.rows, self.rows)
        self.origins, self.means, self.scales = np.array(arrays["gaps_means"], dtype=np.float64)
        self.counts, self.sums, self.products, self.precision = np.array(arrays["gaps_moments"], dtype=np.float64)
        if "gaps_expected" in arrays:
            self.expected = np.array(arrays["gaps_expected"], dtype=np.float64)


def _inverse_of(correlations: Array) -> Array:
    """The inverse of a correlation matrix, shrunk to the identity as far as a well-conditioned inverse needs."""
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
