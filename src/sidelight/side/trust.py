"""Does the log fit what is seen now?  Time-uniform tests, with and without rewards.

A log may be biased: ``b = Mw + β`` with ``β ~ N(0, Δ²R11⁻¹)``, so that it counts for at most ``s²/Δ²`` rows; or in one
recorded feature's slope alone.  A few sizes of ``Δ`` for each arm and for the whole log, and each feature for the whole
log, compete with an honest log by how well they predicted the rewards.

**One process.**  From one refresh to the next everything that a prediction rests on is fixed: the regression of hidden
on recorded features with its error, prior and noise, and what the rounds so far have taught.  The ratio ``p_Δ/p_0`` of
the rewards that follow has mean one if the log is honest and its error is what it was claimed to be, whatever was
learned before; so the product over refreshes is a martingale although all of these change from factor to factor.  By
Ville's inequality it ever exceeds ``1/p`` with probability at most ``p``: it may be looked at after every round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sidelight.hidden.protocol import CompleteEstimator
from sidelight.linalg import Array, apply, chi_square_tail, log, log_gamma, symmetric_eigen
from sidelight.side.misfit import NEVER, restarted

if TYPE_CHECKING:
    from sidelight.hidden.sums import AnswerSums
    from sidelight.logs.summary import LogSummary

__all__ = ["EFFECTIVE_ROWS", "FEATURE_ROWS", "HONEST_DOUBTED", "AnswersTest", "LogTest", "Verdict", "verdict"]

#: the number of rows of an arm that a log may count for: all, then steps down to none
EFFECTIVE_ROWS = (math.inf, 1000.0, 100.0, 10.0, 0.0)
#: the chance given beforehand that some arm's log is biased, that the whole log is, and that it is in one feature
ARM_PRIOR, LOG_PRIOR, FEATURE_PRIOR = 0.025, 0.015, 0.01
#: … whose sum bounds the chance that an honest log is ever doubted
HONEST_DOUBTED = ARM_PRIOR + LOG_PRIOR + FEATURE_PRIOR
#: log evidence of an arm from which on it agrees that the log is wrong about a feature; it takes two of them
AGREES = 4.0
#: a bias counts as leaving at least so many rows where that number is compared with ``excused``, even if it leaves none
FEWEST_ROWS = 3.0
#: how many rows a log that is wrong about one feature may count for there: a little wrong, and very wrong
FEATURE_ROWS = (10.0, 0.03)
#: the chance given beforehand that the log is biased about a further arm, once it is about one
NEXT_PRIOR = 0.3
LOG_2 = 0.6931471805599453
#: log odds against each further size of bias where an honest log is expected to fit a little badly: a tenth for a bias
#: of ten times the variance, a law without a scale
STEEP = 2.302585092994046
#: how much worse than no log such a log may predict rewards, in log likelihood per round, before it is dropped: as if
#: the noise's variance were a tenth larger, ``½ log 1.1``
TOLERATED = 0.047655089902162


@dataclass(frozen=True)
class Verdict:
    """Which size of bias each arm's log has.

    Attributes:
        levels: (K,)  positions in ``EFFECTIVE_ROWS``; 0 is full trust.
        strengths: (K,)  log likelihood ratio of that level against full trust.
        common: the whole log is judged as one.
        feature: ``size·L`` and the position of the recorded feature that the log is wrong about, or −1.
    """

    levels: NDArray[np.int64]
    strengths: Array
    common: bool
    feature: int = -1

    @property
    def doubted(self) -> NDArray[np.bool_]:
        """(K,)  Whether the log counts for less than in full."""
        return np.asarray((self.levels > 0) | (self.feature >= 0))


def verdict(
    gain: Array,
    suspicion: float = 0.0,
    whole: Array | None = None,
    features: Array | None = None,
    steep: bool = False,
    lenient: Array | None = None,
) -> Verdict:
    """The most probable sizes of bias.

    Args:
        gain: (levels, K)  log likelihood ratios against full trust, which comes first; a row's level is taken off.
        suspicion: log odds that the test without rewards adds against the log.
        whole: (levels,)  likewise for all arms together; default the sum over arms.
        features: (n,)  likewise for a bias in one recorded feature's slope, for each of ``FEATURE_ROWS``; default none.
        steep: whether larger biases are less likely beforehand (``STEEP``), not all alike.
        lenient: (K,)  rounds of every arm, given where even an honest log is expected to fit badly, so that its weight
            is in question and not its honesty; None otherwise.  A log is then dropped altogether only if it predicts
            these rounds worse than no log by more than ``TOLERATED`` each, and no single feature is blamed.
    """
    n_levels, K = gain.shape
    gain = gain - gain[0]
    honest = np.arange(n_levels) == 0
    larger, tolerated, tolerated_in_all = np.zeros(n_levels), np.zeros((n_levels, K)), np.zeros(n_levels)
    if steep:
        larger = -STEEP * np.maximum(np.arange(n_levels) - 1.0, 0.0)
    if lenient is not None:
        tolerated[-1], tolerated_in_all[-1] = TOLERATED * lenient, TOLERATED * float(lenient.sum())
        features = None
    # however strong the suspicion, a bias has a chance of at most one half beforehand: rewards decide
    most = log(0.5 / (n_levels - 1))
    arm = min(log(ARM_PRIOR / K / (n_levels - 1)) + suspicion, most)
    single = gain - tolerated + np.where(honest, 0.0, arm + larger)[:, None]
    alone = single.argmax(axis=0)
    if alone.any():
        # once the log is biased about one arm, a bias about a further one is more likely beforehand
        again = min(log(NEXT_PRIOR / (n_levels - 1)) + suspicion, most)
        others = gain - tolerated + np.where(honest, 0.0, max(arm, again) + larger)[:, None]
        alone = np.where(alone > 0, alone, others.argmax(axis=0))
    apart = float(single.max(axis=0).sum())
    common_prior = min(log(LOG_PRIOR / (n_levels - 1)) + suspicion, most)
    together = (gain.sum(axis=1) if whole is None else whole - whole[0]) - tolerated_in_all
    together += np.where(honest, 0.0, common_prior + larger)
    best = int(together.argmax())
    if features is not None and len(features):
        j = int(features.argmax())
        value = float(features[j]) + min(log(FEATURE_PRIOR / len(features)) + suspicion, log(0.5 / len(features)))
        if value > max(0.0, apart, float(together[best])):
            return Verdict(np.zeros(K, dtype=np.int64), np.full(K, float(features[j])), False, j)
    if best > 0 and together[best] > apart:
        return Verdict(np.full(K, best, dtype=np.int64), gain[best], True)
    return Verdict(alone.astype(np.int64), gain[alone, np.arange(K)], False)


class LogTest:
    """The evidence about one log so far: products of ratios, each from what was fixed before its rewards.

    Attributes:
        arms: (levels, K)   whole: (levels,)   features: (sizes · L,)   ``log A`` of ``restarted``; level 0 is 0.
        by_arm: (sizes · L, K)  the features' evidence arm by arm: a bias of one arm alone is no matter of a feature.
        steps: refreshes that the products have seen.
    """

    def __init__(self, K: int, L: int) -> None:
        n = len(EFFECTIVE_ROWS)
        self.arms, self.whole = np.full((n, K), NEVER), np.full(n, NEVER)
        self.features = np.full(len(FEATURE_ROWS) * L, NEVER)
        self.by_arm = np.full((len(FEATURE_ROWS) * L, K), NEVER)
        self.arms[0] = self.whole[0] = 0.0
        self.steps = 0

    def add(self, values: Array, gains: Array, judged: bool) -> None:
        """Take in one refresh's ratios, as evidence if ``judged``.  values: (levels, K)   gains: (sizes · L, K)"""
        # a ratio that rounding made NaN or infinite counts as no evidence
        ratios = values - values[0]
        ratios, gains = np.where(np.isfinite(ratios), ratios, 0.0), np.where(np.isfinite(gains), gains, 0.0)
        if judged:
            self.steps += 1
            self.arms[1:] = restarted(self.arms[1:], ratios[1:], self.steps)
            self.whole[1:] = restarted(self.whole[1:], ratios[1:].sum(axis=1), self.steps)
            self.features = restarted(self.features, gains.sum(axis=1), self.steps)
            self.by_arm = restarted(self.by_arm, gains, self.steps)

    def strongest(self) -> float:
        """The largest log evidence for any bias: of an arm, of the whole log, or of one feature."""
        return max(float(part.max(initial=NEVER)) for part in (self.arms[1:], self.whole[1:], self.features))

    def verdict(
        self, suspicion: float, excused: float = math.inf, steep: bool = False, lenient: Array | None = None
    ) -> Verdict:
        """``verdict`` on what an excused bias, one that leaves ``excused`` rows or more, does not explain."""
        arms, whole = self.arms.copy(), self.whole.copy()
        agreeing = (self.by_arm > AGREES).sum(axis=1)
        features = np.where(agreeing >= min(2, arms.shape[1]), self.features, NEVER)
        allowed = sum(max(rows, FEWEST_ROWS) >= excused for rows in EFFECTIVE_ROWS) - 1
        if allowed > 0:
            features = features - whole[: allowed + 1].max()
            rows = np.repeat(FEATURE_ROWS, len(features) // len(FEATURE_ROWS))
            features = np.where(np.maximum(rows, FEWEST_ROWS) >= excused, NEVER, features)
            for part in (arms, whole):
                part[0] = part[: allowed + 1].max(axis=0)
                part[1 : allowed + 1] = NEVER
        return verdict(arms, suspicion, whole, features, steep, lenient)

    def state(self) -> dict[str, Array]:
        """Arrays to be saved."""
        names = ("arms", "whole", "features", "by_arm")
        return {name: getattr(self, name) for name in names} | {"steps": np.array([float(self.steps)])}

    def restore(self, arrays: dict[str, Array]) -> None:
        """The inverse of ``state``."""
        self.arms, self.whole = np.array(arrays["arms"]), np.array(arrays["whole"])
        self.features, self.by_arm = np.array(arrays["features"]), np.array(arrays["by_arm"])
        self.steps = int(arrays["steps"][0])


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
        """Log odds, from the answers alone, that the log comes from another policy; 0 or less means no evidence."""
        sums = hidden.sums
        if sums is None or sums.n_answers < 50 or not _comparable(hidden, sums):
            return 0.0
        return max(self.shares_ratio(hidden), self._means_ratio(sums))

    def shares_ratio(self, hidden: CompleteEstimator) -> float:
        """Log odds, from the arms that answers name, against the log's shares.

        Where these still hold it ever exceeds ``log(1/p)`` with a chance of at most ``p``.
        """
        sums = hidden.sums
        if sums is None or not _comparable(hidden, sums):
            return 0.0
        log, other = (shares.log_marginal(sums.counts) for shares in self.shares)
        return float(other - log)

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


def _comparable(hidden: CompleteEstimator, sums: AnswerSums) -> bool:
    """Whether there are answers that can be compared with the log: actions, asked for with the same probability."""
    return hidden.needs == "action" and sums.total_weight == sums.n_answers


class _Dirichlet:
    """A Dirichlet distribution of shares; what does not depend on the answers is computed once.  alpha: (K,)"""

    def __init__(self, alpha: Array) -> None:
        self.alpha, self.total = alpha, float(alpha.sum())
        self.constant = float(log_gamma(self.total) - log_gamma(alpha).sum())

    def log_marginal(self, answers: Array) -> float:
        """Log probability of a sequence of answers with these counts per arm.  answers: (K,)"""
        alone = float(log_gamma(self.alpha + answers).sum())
        return float(self.constant + alone - log_gamma(self.total + float(answers.sum())))
