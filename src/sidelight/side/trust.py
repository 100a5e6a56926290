"""Does the log fit what is seen now?  Time-uniform tests, with and without rewards.

A log may be biased: ``b = Mw + β`` with ``β ~ N(0, Δ²R11⁻¹)``, which makes it count for at most ``s²/Δ²`` rows.  For
each arm a few sizes of ``Δ`` compete by the marginal likelihood of the online rewards.  Under an honest log and a
fixed prior the ratio of any of them to ``Δ = 0`` is a non-negative martingale that starts at one, so by Ville's
inequality it ever exceeds ``1/p`` with probability at most ``p``: the tests may be looked at after every round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sidelight.hidden.protocol import HiddenEstimator
from sidelight.linalg import Array

__all__ = ["EFFECTIVE_ROWS", "Verdict", "answers_log_ratio", "marginal_of_rounds", "verdict"]

#: what a log may count for, in rows of an arm: in full, less and less, not at all
EFFECTIVE_ROWS = (math.inf, 1000.0, 100.0, 10.0, 0.0)
#: the chance given beforehand that some arm's log is biased, and that the whole log is
ARM_PRIOR, LOG_PRIOR = 0.03, 0.02


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


def marginal_of_rounds(J0: Array, h0: Array, J: Array, h: Array) -> Array:
    """(K,) ``log p(online rewards)`` when each arm's weights had precision ``J0`` and mean ``J0⁻¹h0`` before.

    Args:
        J0: (K, d, d)  before the rounds.
        h0: (K, d)  before the rounds.
        J: (K, d, d)  ``Σ x xᵀ/σ²`` of the rounds.
        h: (K, d)  ``Σ x r/σ²`` of the rounds.
    """
    from sidelight.kernels.spd import solve_stack

    K = len(h)
    before, after, log_det0, log_det1 = np.empty(K), np.empty(K), np.empty(K), np.empty(K)
    solve_stack(J0, h0, before, log_det0)
    solve_stack(J0 + J, h0 + h, after, log_det1)
    return np.asarray(0.5 * (log_det0 - log_det1) + 0.5 * (after - before))


def verdict(log_marginals: Array, suspicion: float = 0.0) -> Verdict:
    """The most probable sizes of bias.

    Args:
        log_marginals: (levels, K)  from ``marginal_of_rounds``, full trust first.
        suspicion: log odds that the test without rewards adds against the log.
    """
    n_levels, K = log_marginals.shape
    gain = log_marginals - log_marginals[0]
    # however strong the suspicion, honesty keeps even odds until the rewards decide
    most = math.log(0.5 / (n_levels - 1))
    arm = min(math.log(ARM_PRIOR / K / (n_levels - 1)) + suspicion, most)
    single = gain + np.where(np.arange(n_levels) == 0, 0.0, arm)[:, None]
    alone = single.argmax(axis=0)
    common_prior = min(math.log(LOG_PRIOR / (n_levels - 1)) + suspicion, most)
    together = gain.sum(axis=1) + np.where(np.arange(n_levels) == 0, 0.0, common_prior)
    best = int(together.argmax())
    if best > 0 and together[best] > float(single.max(axis=0).sum()):
        levels = np.full(K, best, dtype=np.int64)
        return Verdict(levels, gain[best], True)
    return Verdict(alone.astype(np.int64), gain[alone, np.arange(K)], False)


def answers_log_ratio(hidden: HiddenEstimator) -> float:
    """How strongly the old policy's answers speak against the log, without any reward; 0 or less: not at all.

    The arms it names are compared with the log's shares (Dirichlet–multinomial against the shares with the log's own
    uncertainty), and the recorded features' means per arm with the log's (chi-square at each look, with the
    significance spent over looks at doubling numbers of answers).  Only unweighted actions are tested.
    """
    sums = getattr(hidden, "sums", None)
    summary = hidden.summary
    if sums is None or hidden.needs != "action" or sums.n_answers < 50 or sums.total_weight != sums.n_answers:
        return 0.0
    return max(_shares_ratio(sums.counts, np.asarray(summary.counts)), _means_ratio(hidden))


def _shares_ratio(answers: Array, rows: Array) -> float:
    from scipy.special import gammaln

    def log_marginal(alpha: Array) -> float:
        total = gammaln(alpha.sum()) - gammaln(alpha.sum() + answers.sum())
        return float(total + np.sum(gammaln(alpha + answers) - gammaln(alpha)))

    K = len(rows)
    null = rows + 0.5
    return log_marginal(K * null / null.sum()) - log_marginal(null)


def _means_ratio(hidden: HiddenEstimator) -> float:
    """``log(δ/p)`` of the pooled chi-square of per-arm means, with ``δ = 1 %`` spent over the doublings so far."""
    from scipy.special import chdtrc

    summary, sums = hidden.summary, hidden.sums  # type: ignore[attr-defined]
    L = summary.n_recorded
    statistic, freedom = 0.0, 0
    for a in range(summary.n_arms):
        n, rows = float(sums.counts[a]), float(summary.counts[a])
        if n < 10 or rows < 10 * L:
            continue
        mean = np.asarray(summary.means[a])
        spread = np.asarray(summary.second_moments[a]) - np.outer(mean, mean)
        scale = np.sqrt(np.maximum(np.diag(np.asarray(summary.second_moments[a])), 1e-300))
        values, vectors = np.linalg.eigh(spread / np.outer(scale, scale))
        keep = values > 1e-9
        gap = vectors[:, keep].T @ ((sums.sums[a, :L] / n - mean) / scale)
        statistic += float(np.sum(gap**2 / values[keep])) / (1.0 / n + 1.0 / rows)
        freedom += int(keep.sum())
    if freedom == 0:
        return 0.0
    looks = math.log2(sums.n_answers)
    p = max(float(chdtrc(freedom, statistic)), 1e-300)
    return math.log(0.01 / (looks * (looks + 1.0)) / p)
