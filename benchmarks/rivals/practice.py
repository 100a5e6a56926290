"""What practitioners do with an incomplete log, and ARRoW-CB, which weighs it by what it turns out to be worth.

* **Zeros** and **imputed**: LinUCB that starts from the log's rows with zeros, or with the values that a linear
  regression on the recorded features predicts (an iterative imputer with one linear model for each column). The log has
  no value of a hidden column, so the regression is learned from online contexts, again at rounds 2ᵏ; with a linear
  model the imputed rows' sums are ``MᵀGM`` and ``Mᵀg``, ``M = [I, B]``.
* **Frozen**: a ridge regression for each arm from the log's recorded features, never updated.
* **ARRoW-CB** (Zhang, Agarwal, Daumé, Langford, Negahban 2019): ε-greedy; for each weight ``λ`` of the log in a grid a
  ridge model of both sources, and the model in use is the one whose weight has done best by progressive validation with
  importance weights. Chosen here: the grid 0, 1/8, 1/2, 1, 8 times (of rounds/rows), ``ε_t = alpha·t^(−1/3)``, tuned;
  the log's rows with zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import sidelight as sl
from benchmarks.rivals.ridge import Rival, Sums, noise_of, prior_precision, zero_filled

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


class ArrowCB(Rival):
    """ε-greedy over the weight of the log that has validated best."""

    WEIGHTS = (0.0, 0.125, 0.5, 1.0, 8.0)

    def __init__(self, summary: sl.LogSummary, alpha: float = 1.0, regularization: float = 1.0) -> None:
        super().__init__(summary)
        self.epsilon = alpha
        self.log_grams, self.log_moments = zero_filled(summary)
        self.rows = max(int(summary.n_rows), 1)
        self.prior = prior_precision(summary, regularization)
        K, d = len(self.arms), self.n_features
        self.grams, self.moments = np.zeros((K, d, d)), np.zeros((K, d))
        self.values = np.zeros(len(self.WEIGHTS))
        self.rounds = 0
        self._fit()

    def _fit(self) -> None:
        """A model for each weight: the log's rows together count for ``weight`` times the rounds (at least once)."""
        share = max(self.rounds, 1) / self.rows
        self.models = [
            Sums(
                self.prior + self.grams + weight * share * self.log_grams,
                self.moments + weight * share * self.log_moments,
            )
            for weight in self.WEIGHTS
        ]

    def _probability(self) -> float:
        return min(1.0, self.epsilon * (self.rounds + 1.0) ** (-1.0 / 3.0))

    def _best(self) -> int:
        """The validated model; before any round the log's own."""
        return int(self.values.argmax()) if self.rounds else len(self.WEIGHTS) - 1

    def _choose(self, x: Array, rng: np.random.Generator | None) -> int:
        rng = rng or np.random.default_rng(0)
        explore, arm = rng.random() < self._probability(), int(rng.integers(len(self.arms)))
        return arm if explore else int(self.models[self._best()].estimates(x).argmax())

    def _learn(self, a: int, x: Array, reward: float) -> None:
        greedy = int(self.models[self._best()].estimates(x).argmax())
        epsilon = self._probability()
        chance = epsilon / len(self.arms) + (1.0 - epsilon) * (a == greedy)
        for i, model in enumerate(self.models):
            if int(model.estimates(x).argmax()) == a:
                self.values[i] += reward / max(chance, 1e-12)
            model.add(a, x, reward)
        self.grams[a] += np.outer(x, x)
        self.moments[a] += reward * x
        self.rounds += 1
        if self.rounds & (self.rounds - 1) == 0:
            self._fit()
