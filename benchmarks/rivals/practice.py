"""What practitioners do with an incomplete log, and ARRoW-CB, which weighs it by what it turns out to be worth.

* **Zeros** and **imputed**: LinUCB that starts from the log's rows with zeros, or with the values that a linear
  regression on the recorded features predicts (an iterative imputer with one linear model for each column). The log has
  no value of a hidden column, so the regression is learned from online contexts, again at rounds 2ᵏ; with a linear
  model the imputed rows' sums are ``MᵀGM`` and ``Mᵀg``, ``M = [I, B]``.
* **Frozen**: a ridge regression for each arm from the log's recorded features, never updated.
* **ARRoW-CB** (Zhang, Agarwal, Daumé, Langford, Negahban 2019, arXiv 1901.00301): ε-greedy; for each weight ``λ`` in a
  grid a model of both sources, in which a round counts ``λ`` and a row of the log ``1 − λ``, and the model in use is
  the one whose choices have cost least by importance-weighted progressive validation. Checked against the authors' code
  (Vowpal Wabbit's ``warm_cb``, and the scripts of their experiments, ``zcc1307/warmcb_scripts``): the rule, the grid
  (eight values that halve the distance to 0 and to 1 from a central one, both ends among them), its centre
  ``ε/(K + ε)``, which their experiments have, or ½, the package's default, and the constant ``ε`` are theirs. Chosen
  here: a ridge for each arm as the model (theirs is Vowpal Wabbit's regression, a round weighted by one over its
  chance); the log's rows with zeros; costs counted from the mean reward so far; ``ε`` and the centre tuned, with
  ``t^(−1/3)`` beside the constant ``ε``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import sidelight as sl
from benchmarks.rivals.ridge import Rival, Sums, add_round, noise_of, prior_precision, zero_filled

Array = Any


class ZeroStart(Rival):
    """LinUCB from the log with zeros for what it lacks."""

    def __init__(self, summary: sl.LogSummary, alpha: float = 1.0, regularization: float = 1.0) -> None:
        super().__init__(summary)
        grams, moments = zero_filled(summary)
        self.sums = Sums(prior_precision(summary, regularization) + grams, moments)
        self.alpha = alpha * noise_of(summary)

    def _choose(self, x: Array, rng: np.random.Generator | None) -> int:
        return int((self.sums.estimates(x) + self.alpha * self.sums.norms(x)).argmax())

    def _learn(self, a: int, x: Array, reward: float) -> None:
        self.sums.add(a, x, reward)


class ImputedStart(Rival):
    """LinUCB from the log with imputed columns."""

    def __init__(self, summary: sl.LogSummary, alpha: float = 1.0, regularization: float = 1.0) -> None:
        super().__init__(summary)
        self.summary = summary
        self.recorded, self.hidden = np.asarray(summary.recorded), np.asarray(summary.hidden)
        self.prior = prior_precision(summary, regularization)
        d = self.n_features
        self.contexts = np.zeros((d, d))
        self.grams, self.moments = np.zeros((len(self.arms), d, d)), np.zeros((len(self.arms), d))
        self.alpha = alpha * noise_of(summary)
        self.rounds = 0
        self._impute()

    def _impute(self) -> None:
        """The log's rows completed by the regression of hidden on recorded features over all contexts so far."""
        L, d = len(self.recorded), self.n_features
        M = np.zeros((L, d))
        M[np.arange(L), self.recorded] = 1.0
        square = self.contexts[np.ix_(self.recorded, self.recorded)]
        if self.rounds and len(self.hidden):
            ridge = 1e-6 * np.trace(square) / max(L, 1) * np.eye(L)
            M[:, self.hidden] = np.linalg.solve(square + ridge, self.contexts[np.ix_(self.recorded, self.hidden)])
        grams = np.einsum("li,klm,mj->kij", M, self.summary.grams, M)
        self.sums = Sums(self.prior + grams + self.grams, self.summary.cross @ M + self.moments)

    def _choose(self, x: Array, rng: np.random.Generator | None) -> int:
        return int((self.sums.estimates(x) + self.alpha * self.sums.norms(x)).argmax())

    def _learn(self, a: int, x: Array, reward: float) -> None:
        self.contexts += np.outer(x, x)
        self.grams[a] += np.outer(x, x)
        self.moments[a] += reward * x
        self.rounds += 1
        self.sums.add(a, x, reward)
        if self.rounds & (self.rounds - 1) == 0:
            self._impute()


class FrozenRidge(Rival):
    """A ridge regression for each arm from the log, taken at its word."""

    def __init__(self, summary: sl.LogSummary, regularization: float = 1.0) -> None:
        super().__init__(summary)
        grams, moments = zero_filled(summary)
        self.sums = Sums(prior_precision(summary, regularization) + grams, moments)

    def _choose(self, x: Array, rng: np.random.Generator | None) -> int:
        return int(self.sums.estimates(x).argmax())

    def _learn(self, a: int, x: Array, reward: float) -> None:
        """Nothing: it is frozen."""


def mixes_around(centre: float) -> Array:
    """Eight values of ``λ``, increasing: a round counts ``λ``, a row of the log ``1 − λ``; 0 is the log alone.  (8,)"""
    below, above = centre * 0.5 ** np.arange(3, 0, -1), 1.0 - (1.0 - centre) * 0.5 ** np.arange(1, 3)
    return np.array([0.0, *below, centre, *above, 1.0])


class ArrowCB(Rival):
    """ε-greedy over the weight of the log that has validated best.

    Args:
        summary: the log.
        alpha: ``ε`` in the first round.
        regularization: ridge parameter of every model.
        decay: ``ε_t = alpha·t^(−decay)``; 0 is the authors' own.
        minimax: 1 for a grid around ``ε/(K + ε)``, as in the authors' experiments; 0 around ½.
    """

    def __init__(
        self,
        summary: sl.LogSummary,
        alpha: float = 0.05,
        regularization: float = 1.0,
        decay: float = 0.0,
        minimax: float = 0.0,
    ) -> None:
        super().__init__(summary)
        self.epsilon, self.decay = alpha, decay
        grams, moments = zero_filled(summary)
        prior = prior_precision(summary, regularization)
        self.mixes = mixes = mixes_around(alpha / (summary.n_arms + alpha) if minimax else 0.5)
        shares = (1.0 - mixes)[:, None, None, None]
        self.inverses = np.linalg.inv(prior + shares * grams)  # (models, K, d, d)
        self.weights = np.einsum("mkij,kj->mki", self.inverses, moments) * shares[:, :, 0]
        self.costs = np.zeros(len(mixes))
        self.rounds, self.mean = 0, 0.0

    def _probability(self) -> float:
        return min(1.0, self.epsilon * (self.rounds + 1.0) ** -self.decay)

    def _greedy(self, x: Array) -> Array:
        """The arm that each model would take.  (models,)"""
        return (self.weights @ x).argmax(axis=1)

    def _best(self) -> int:
        """The model whose choices have cost least so far; of equals the first, as in the authors' code."""
        return int(self.costs.argmin())

    def _choose(self, x: Array, rng: np.random.Generator | None) -> int:
        rng = rng or np.random.default_rng(0)
        explore, arm = rng.random() < self._probability(), int(rng.integers(len(self.arms)))
        return arm if explore else int(self._greedy(x)[self._best()])

    def _learn(self, a: int, x: Array, reward: float) -> None:
        greedy = self._greedy(x)
        epsilon = self._probability()
        chance = epsilon / len(self.arms) + (1.0 - epsilon) * (a == greedy[self._best()])
        # rewards have any unit and any zero here, the paper's costs lie in [0, 1]: count from the mean of those so far
        self.costs -= (greedy == a) * (reward - self.mean) / max(chance, 1e-12)
        self.rounds += 1
        self.mean += (reward - self.mean) / self.rounds
        for model, count in enumerate(self.mixes):
            add_round(self.inverses[model, a], self.weights[model, a], x, reward, count)
