"""Optimism under a bound on the log's bias: Hybrid LinUCB, Ellipsoidal-MINUCB and Anchor-TS.

* **Hybrid LinUCB** ("Regret Analysis of Hybrid Linear Bandits with Biased Offline Data", OpenReview NA4seLpkPd): two
  confidence ellipsoids, one from online rounds, one from all rows with the bias bound ``V`` added; an arm's index is
  the smaller of its two upper bounds. With a constant as the only feature it is MIN-UCB (Cheung, Lyu 2024, arXiv
  2405.02594), which has no contexts; a test compares the two. The bound is a number for the whole weight vector, in
  multiples of the log's residual deviation, so that it does not depend on the rewards' unit: tuned.
* **Ellipsoidal-MINUCB** (Han, Lin, Ding, Zhang 2026, arXiv 2604.24016): the same with a bound for each direction, the
  certificate ``ΔᵀM_bias Δ ≤ ρ²``, here in its form with an unknown certificate, learned at finitely many times. Chosen
  here: ``M_bias`` is diagonal and learned at rounds 2ᵏ as ``1/(Δ̂_j² + se_j²)``, with ``Δ̂`` the difference of the
  log's and the online estimate and ``se`` its deviation; ``ρ² = bias²·d``, ``bias`` tuned; no elimination of arms in
  stages (the paper's proof follows SupLinUCB), which would only add to the regret.
* **Anchor-TS** (Li, Fu, Chen, Kong 2026, arXiv 2605.10289), written for arms without contexts: an arm's index is the
  median of a draw from the online posterior, a draw from the posterior of all rows, and the online sample mean. Chosen
  here: means and posteriors of ``x·w_a``; every arm is played once first, since a sample mean needs a sample.

The log enters with zeros for what it did not record, which is how these methods see it: the hidden features' part of
the rewards is the bias.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

import sidelight as sl
from benchmarks.rivals.ridge import Rival, Sums, noise_of, prior_precision, times, zero_filled

Array = Any


@njit(cache=True)
def leverage(grams: Array, inverses: Array, x: Array) -> Array:
    """``grams_a inverses_a x`` (K, d)."""
    out = np.empty((len(grams), len(x)))
    for a in range(len(grams)):
        out[a] = times(grams[a], times(inverses[a], x))
    return out


class _TwoBranches(Rival):
    """Online sums, and the same with the log's rows added."""

    def __init__(self, summary: sl.LogSummary, alpha: float, regularization: float) -> None:
        super().__init__(summary)
        prior = prior_precision(summary, regularization)
        self.log_grams, moments = zero_filled(summary)
        self.online = Sums(prior, np.zeros_like(moments))
        self.pooled = Sums(prior + self.log_grams, moments)
        self.alpha = alpha * noise_of(summary)
        self.rounds = 0

    def _learn(self, a: int, x: Array, reward: float) -> None:
        self.online.add(a, x, reward)
        self.pooled.add(a, x, reward)
        self.rounds += 1

    def _leverage(self, x: Array) -> Array:
        """``G_a V_a⁻¹ x`` (K, d): how a bias of the log's weights moves the pooled estimate at ``x``."""
        return leverage(self.log_grams, self.pooled.inverses, x)


class HybridLinUCB(_TwoBranches):
    """The smaller of two upper bounds; ``bias``: how far the log's weights may be off, in Euclidean norm and multiples
    of the log's residual deviation."""

    def __init__(
        self, summary: sl.LogSummary, alpha: float = 1.0, regularization: float = 1.0, bias: float = 1.0
    ) -> None:
        super().__init__(summary, alpha, regularization)
        self.bias = bias * noise_of(summary)

    def _choose(self, x: Array, rng: np.random.Generator | None) -> int:
        online = self.online.estimates(x) + self.alpha * self.online.norms(x)
        pooled = self.pooled.estimates(x) + self.alpha * self.pooled.norms(x)
        return int(np.minimum(online, pooled + self.bias * np.linalg.norm(self._leverage(x), axis=1)).argmax())


class EllipsoidalMinUCB(_TwoBranches):
    """The smaller of two upper bounds, the log's bias bounded direction by direction and learned at rounds 2ᵏ."""

    def __init__(
        self, summary: sl.LogSummary, alpha: float = 1.0, regularization: float = 1.0, bias: float = 1.0
    ) -> None:
        super().__init__(summary, alpha, regularization)
        self.bias = bias
        self.log_only = Sums(prior_precision(summary, regularization) + self.log_grams, zero_filled(summary)[1])
        self.noise = noise_of(summary)
        self._certify()

    def _certify(self) -> None:
        """``√(ρ² M⁻¹)`` (K, d): the bound in each direction."""
        apart = self.log_only.weights - self.online.weights
        errors = self.noise**2 * np.diagonal(self.online.inverses + self.log_only.inverses, axis1=1, axis2=2)
        self.allowance = self.bias * np.sqrt(self.n_features) * np.sqrt(apart**2 + errors)

    def _choose(self, x: Array, rng: np.random.Generator | None) -> int:
        online = self.online.estimates(x) + self.alpha * self.online.norms(x)
        pooled = self.pooled.estimates(x) + self.alpha * self.pooled.norms(x)
        return int(np.minimum(online, pooled + np.linalg.norm(self.allowance * self._leverage(x), axis=1)).argmax())

    def _learn(self, a: int, x: Array, reward: float) -> None:
        super()._learn(a, x, reward)
        if self.rounds & (self.rounds - 1) == 0:
            self._certify()


class AnchorTS(_TwoBranches):
    """The median of two posterior draws and the online mean, once every arm has been played."""

    def __init__(self, summary: sl.LogSummary, alpha: float = 1.0, regularization: float = 1.0) -> None:
        super().__init__(summary, alpha, regularization)
        self.played = np.zeros(len(self.arms), dtype=bool)

    def _choose(self, x: Array, rng: np.random.Generator | None) -> int:
        draws = (rng or np.random.default_rng(0)).standard_normal((2, len(self.arms)))
        if not self.played.all():
            return int(self.played.argmin())
        mean = self.online.estimates(x)
        online = mean + self.alpha * self.online.norms(x) * draws[0]
        pooled = self.pooled.estimates(x) + self.alpha * self.pooled.norms(x) * draws[1]
        low, high = np.minimum(online, pooled), np.maximum(online, pooled)
        return int(np.clip(mean, low, high).argmax())  # the median of the three

    def _learn(self, a: int, x: Array, reward: float) -> None:
        super()._learn(a, x, reward)
        self.played[a] = True
