"""Does the log fit what is seen now?  Time-uniform tests, with and without rewards.

A log may be biased: ``b = Mw + β`` with ``β ~ N(0, Δ²R11⁻¹)``, which makes it count for at most ``s²/Δ²`` rows.  For
each arm a few sizes of ``Δ`` compete by the marginal likelihood of the online rewards.  Under an honest log and a
fixed prior the ratio of any of them to ``Δ = 0`` is a non-negative martingale that starts at one, so by Ville's
inequality it ever exceeds ``1/p`` with probability at most ``p``: the tests may be looked at after every round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sidelight.hidden.protocol import CompleteEstimator
from sidelight.linalg import Array, apply, chi_square_tail, log, log_gamma, symmetric_eigen

if TYPE_CHECKING:
    from sidelight.hidden.sums import AnswerSums
    from sidelight.logs.summary import LogSummary

__all__ = ["EFFECTIVE_ROWS", "AnswersTest", "Verdict", "verdict"]

#: what a log may count for, in rows of an arm: in full, less and less, not at all
EFFECTIVE_ROWS = (math.inf, 1000.0, 100.0, 10.0, 0.0)
#: the chance given beforehand that some arm's log is biased, and that the whole log is
ARM_PRIOR, LOG_PRIOR = 0.03, 0.02
#: … and that another arm's is, once one is
NEXT_PRIOR = 0.3
LOG_2 = 0.6931471805599453


@dataclass(frozen=True)
class Verdict:
    """Which size of bias each arm's log has.

    Attributes:
        levels: (K,)  positions in ``EFFECTIVE_ROWS``; 0 is full trust.
        strengths: (K,)  log likelihood ratio of that level against full trust.
        common: the whole log is judged as one.
    """

    levels: NDArray[np.int64]
    strengths: Array
    common: bool


def verdict(log_marginals: Array, suspicion: float = 0.0) -> Verdict:
    """The most probable sizes of bias.

    Args:
        log_marginals: (levels, K)  from ``LogGeometry.marginals``, full trust first.
        suspicion: log odds that the test without rewards adds against the log.
    """
    n_levels, K = log_marginals.shape
    gain = log_marginals - log_marginals[0]
    # however strong the suspicion, honesty keeps even odds until the rewards decide
    most = log(0.5 / (n_levels - 1))
    arm = min(log(ARM_PRIOR / K / (n_levels - 1)) + suspicion, most)
    single = gain + np.where(np.arange(n_levels) == 0, 0.0, arm)[:, None]
    alone = single.argmax(axis=0)
    if alone.any():
        # a log that is wrong about one arm has lost its credit with the others
        again = min(log(NEXT_PRIOR / (n_levels - 1)) + suspicion, most)
        others = gain + np.where(np.arange(n_levels) == 0, 0.0, max(arm, again))[:, None]
        alone = np.where(alone > 0, alone, others.argmax(axis=0))
    common_prior = min(log(LOG_PRIOR / (n_levels - 1)) + suspicion, most)
    together = gain.sum(axis=1) + np.where(np.arange(n_levels) == 0, 0.0, common_prior)
    best = int(together.argmax())
    if best > 0 and together[best] > float(single.max(axis=0).sum()):
        levels = np.full(K, best, dtype=np.int64)
        return Verdict(levels, gain[best], True)
    return Verdict(alone.astype(np.int64), gain[alone, np.arange(K)], False)


class AnswersTest:
    """Do the old policy's answers speak against the log, without any reward?

    The arms it names are compared with the log's shares (Dirichlet–multinomial against the shares with the log's own
    uncertainty), and the recorded features' means per arm with the log's (chi-square at each look, with the
    significance spent over looks at doubling numbers of answers).  Only unweighted actions are tested.

    Args:
        summary: the log; what the test needs of it is computed once.
    """

    def __init__(self, summary: LogSummary) -> None:
        self.rows = np.asarray(summary.counts, dtype=np.float64)
        self.means = np.asarray(summary.means)
        moments = np.asarray(summary.second_moments)
        L = summary.n_recorded
        scale = np.sqrt(np.maximum(np.einsum("aii->ai", moments), 1e-300))
        spread = moments - self.means[:, :, None] * self.means[:, None, :]
        values, vectors = symmetric_eigen(spread / (scale[:, :, None] * scale[:, None, :]))
        keep = values > 1e-9
        #: (K, L, L)  gaps of means become independent, of variance one for one answer and a log without end
        self.whiten = np.swapaxes(vectors, 1, 2) / scale[:, None, :]
        self.whiten *= np.where(keep, 1.0 / np.sqrt(np.where(keep, values, 1.0)), 0.0)[:, :, None]
        self.whiten = np.ascontiguousarray(self.whiten)
        self.freedom = np.where(self.rows >= 10 * L, keep.sum(axis=1), 0)
        null = self.rows + 0.5
        #: Dirichlet distributions of the arms' shares: as the log has them, and as uncertain as one answer per arm
        self.shares = [_Dirichlet(null), _Dirichlet(len(null) * null / null.sum())]

    def log_ratio(self, hidden: CompleteEstimator) -> float:
        """How strongly they do; 0 or less: not at all."""
        sums = hidden.sums
        if sums is None or hidden.needs != "action" or sums.n_answers < 50 or sums.total_weight != sums.n_answers:
            return 0.0
        log, other = (shares.log_marginal(sums.counts) for shares in self.shares)
        return max(other - log, self._means_ratio(sums))

    def _means_ratio(self, sums: AnswerSums) -> float:
        """``log(δ/p)`` of the pooled chi-square of per-arm means, with ``δ = 1 %`` spent over the doublings so far."""
        tested = (sums.counts >= 10) & (self.freedom > 0)
        freedom = int(self.freedom[tested].sum())
        if freedom == 0:
            return 0.0
        n = np.maximum(sums.counts, 1.0)
        gaps = sums.sums[:, : sums.L] / n[:, None] - self.means
        squares = np.square(apply(self.whiten, gaps)).sum(axis=1)
        statistic = float(np.sum((squares / (1.0 / n + 1.0 / np.maximum(self.rows, 1.0)))[tested]))
        looks = log(float(sums.n_answers)) / LOG_2
        p = max(chi_square_tail(statistic, float(freedom)), 1e-300)
        return float(log(0.01 / (looks * (looks + 1.0)) / p))


class _Dirichlet:
    """A Dirichlet distribution of shares; what does not depend on the answers is computed once.  alpha: (K,)"""

    def __init__(self, alpha: Array) -> None:
        self.alpha, self.total = alpha, float(alpha.sum())
        self.constant = float(log_gamma(self.total) - log_gamma(alpha).sum())

    def log_marginal(self, answers: Array) -> float:
        """Of so many answers for each arm, in one order of them.  answers: (K,)"""
        alone = float(log_gamma(self.alpha + answers).sum())
        return float(self.constant + alone - log_gamma(self.total + float(answers.sum())))
