"""The doubly robust value of any policy, of all features or a learner's, from rows that have every feature.

Nothing is hidden in a row that has every feature.  The score of a row under policy ``π`` is

    μ̂(x, π(x)) + 1{a = π(x)} (r − μ̂(x, a))/e(a|x),

``μ̂`` and, if it is not known, ``e`` fitted on other rows (five folds).  With a known ``e`` its mean is right whatever
``μ̂`` is.  With an estimated one it is right if the model of the old policy is, and the verdict says so.

Where the old policy rarely takes the arm that ``π`` wants, few rows show that arm's reward, and the scores do not show
how wrong ``μ̂`` is there.  So the variance of a value is at least that of ``μ̂``'s own regression, which is the larger
one where the value rests on extrapolation.  Where all weights are about equal (arms drawn at random) no arm is rarely
shown, and the variance of the scores alone is used.

Rows are read three times: to check them, for the sums of which ``μ̂`` is made, and to value policies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sidelight.errors import InputError
from sidelight.judging.choice import Tried
from sidelight.judging.complete_rows import CompleteRows
from sidelight.judging.fitted import Fitted
from sidelight.judging.policies import Requested
from sidelight.judging.population import Population
from sidelight.judging.scarcity import least_share, usual_kurtosis
from sidelight.linalg import Array
from sidelight.logs.schema.schema import Schema

__all__ = ["NEVER", "SMALLEST_CHANCE", "Doubly", "PolicyScores", "Valuation", "scores_of"]

#: a chance below this counts as never
NEVER = 0.01
#: chances below this count as this: else one row could outweigh all others
SMALLEST_CHANCE = 1e-3
# Weights of which the effective number is at least this part of their number count as equal.
_EVEN = 0.95


@dataclass
class PolicyScores:
    """Sums over rows of the weights and corrections in the scores of one policy.

    Attributes:
        wanted: (K,) rows in which the policy takes each arm   found: (K,) sum of their weights ``1{a = π(x)}/e(a|x)``
        squares: (K,) sum of the squared weights.
        matched: rows in which the arm taken is the policy's   largest: the largest weight.
        smallest: the smallest estimated chance of the policy's arm   never: (K,) rows with a chance below ``NEVER``.
        tried: the policy's arm in each row, its estimated chance, and whether it was taken.
        corrections: (K,) ``Σ (w(r − μ̂))²``: what the model of the old policy moves the value by.
        ell: (K, p) sum of the columns of ``μ̂`` where the policy takes each arm.
        problem: why the policy cannot be valued, or ``None``.
    """

    wanted: Array
    found: Array
    squares: Array
    never: Array
    corrections: Array
    ell: Array
    tried: Tried
    matched: int = 0
    largest: float = 0.0
    smallest: float = math.inf
    problem: str | None = None

    @classmethod
    def empty(cls, K: int, p: int) -> PolicyScores:
        """No rows yet, of K arms and p columns."""
        wanted, found, squares, never, corrections = np.zeros((5, K))
        return cls(wanted, found, squares, never, corrections, np.zeros((K, p)), Tried(K))

    def add(self, taken: np.ndarray, weights: Array, corrections: Array, chance: Array | None, columns: Array) -> None:
        """Add rows: what the policy takes, its weights, ``w(r − μ̂)``, how likely its arm is, and columns of ``μ̂``.

        chance: estimated; None where propensities are known, whose weights alone tell what was never tried
        """
        K = len(self.wanted)
        self.wanted += np.bincount(taken, minlength=K)
        self.found += np.bincount(taken, weights=weights, minlength=K)
        self.squares += np.bincount(taken, weights=weights * weights, minlength=K)
        self.matched += int((weights > 0).sum())
        self.largest = max(self.largest, float(weights.max()))
        if chance is not None:
            self.never += np.bincount(taken, weights=chance < NEVER, minlength=K)
            self.tried.add(taken, chance, weights > 0)
            self.smallest = min(self.smallest, float(chance.min()))
        self.corrections += np.bincount(taken, weights=corrections * corrections, minlength=K)
        for a in np.unique(taken).tolist():
            self.ell[a] += columns[taken == a].sum(axis=0)

    @property
    def effective(self) -> float:
        """How many rows of equal weight the matched ones are worth, ``(Σw)²/Σw²``."""
        return float(self.found.sum()) ** 2 / float(self.squares.sum()) if self.matched else 0.0

    def lacking(self, variance: float, kurtosis: float) -> float:
        """By how much ``Σ (w(r − μ̂))²`` is below its lower bound: few rows with large weights may vary too little.

        Args:
            variance: of ``r − μ̂`` over all rows.
            kurtosis: of ``r − μ̂`` within arms.
        """
        worth = np.divide(self.found**2, self.squares, out=np.zeros_like(self.found), where=self.squares > 0.0)
        least = variance * self.squares * least_share(kurtosis, worth)
        return float(np.maximum(least - self.corrections, 0.0).sum())


@dataclass
class Valuation:
    """Scores of several policies on the same rows.

    Attributes:
        names: the policies   scores: sums of their weights and corrections   fitted: ``μ̂`` and ``ê``.
        rows: how many   mean: (2P + 2,) of the policies' scores, the reward, the policies' ``μ̂(x, π(x))``, ``μ̂(x, a)``
        products: (2P + 2, 2P + 2) sums of products around the mean.
        powers: (K, 3) of each arm that was taken ``n, Σ (r − μ̂)², Σ (r − μ̂)⁴``
        twins: policy that a half of the log's own rows chose and the other half values → the name of the same, valued
            by the half that chose it.
        best: ``Σ max_a μ̂(x, a)``   mu, mu_squares: sums over rows and arms of ``μ̂`` around the mean reward, and of its
            square.
    """

    names: tuple[str, ...]
    scores: dict[str, PolicyScores]
    fitted: Fitted
    powers: Array
    twins: Mapping[str, str] = field(default_factory=dict)
    rows: int = 0
    mean: Array = field(default_factory=lambda: np.zeros(0))
    products: Array = field(default_factory=lambda: np.zeros((0, 0)))
    best: float = 0.0
    mu: float = 0.0
    mu_squares: float = 0.0

    def add(self, columns: Array) -> None:
        """Add (n, 2P + 2) columns in the order of ``mean``, by Chan's update: no sum of squares loses its digits."""
        n = len(columns)
        mean = columns.mean(axis=0)
        centred = columns - mean
        if self.rows == 0:
            self.mean, self.products = mean, centred.T @ centred
        else:
            moved, total = mean - self.mean, self.rows + n
            self.products += centred.T @ centred + np.outer(moved, moved) * (self.rows * n / total)
            self.mean = self.mean + moved * (n / total)
        self.rows += n

    def value(self, name: str) -> float:
        """The value of a policy: the mean over rows of its doubly robust scores, in units of the reward."""
        return float(self.mean[self.names.index(name)])

    def gain(self, name: str, over: str | None = None) -> tuple[float, float]:
        """The mean difference of a policy's scores and another's (the rewards if ``None``), and its variance."""
        i, j = self.names.index(name), len(self.names) if over is None else self.names.index(over)
        difference, variance = float(self.mean[i] - self.mean[j]), self._variance(i, j)
        if variance == 0.0:  # two policies that take the same arm everywhere
            return difference, 0.0
        lacking = self._lacking(name) + (0.0 if over is None else self._lacking(over))
        return difference, max(variance + lacking, self._of_model(name, over)) + self._between_halves(name)

    def _variance(self, i: int, j: int) -> float:
        """The variance of the mean difference of two columns, estimated from the rows (its squared standard error)."""
        P, n = self.products, self.rows
        return max(float(P[i, i] + P[j, j] - 2.0 * P[i, j]), 0.0) / max(n - 1, 1) / n

    def variance(self, name: str) -> float:
        """The variance of the mean score of a policy."""
        i = self.names.index(name)
        variance = float(self.products[i, i]) / max(self.rows - 1, 1) / self.rows + self._lacking(name)
        return max(variance, self._of_model(name, alone=True)) + self._between_halves(name)

    @property
    def residual(self) -> float:
        """The mean of ``(r − μ̂(x, a))²``."""
        return float(self.powers[:, 1].sum()) / self.rows

    def _lacking(self, name: str) -> float:
        """What is added to the variance of a policy's mean score: up to its lower bound, and for the error of ``μ̂``.

        A row of one fold fits ``μ̂`` for another fold and is itself valued by ``μ̂`` from that fold's rows, so the errors
        of folds are correlated: the error of ``μ̂``, ``p/(n_a + p)`` of an arm's ``Σ (w(r − μ̂))²``, counts twice.
        """
        own = self.scores[name]
        freedom = self.fitted.freedom()
        again = float(own.corrections @ (freedom / np.maximum(self.powers[:, 0] + freedom, 1.0)))
        return (own.lacking(self.residual, usual_kurtosis(self.powers)) + again) / self.rows**2

    def _of_model(self, name: str, over: str | None = None, alone: bool = False) -> float:
        """The variance of a gain if it came from the regression ``μ̂`` alone; 0 if the weights are about equal.

        ``Var(μ̂(x, π) − μ̂(x, a))`` over contexts, plus the error of the regressions; in a gain over the old policy both
        sides have the noise of the same rewards, so its variance is subtracted once.

        Args:
            name: the policy.
            over: another one; the rewards if ``None``.
            alone: the variance of the policy's value instead of a difference.
        """
        both = [self.scores[one] for one in (name, over) if one is not None]
        if all(own.effective >= _EVEN * own.matched for own in both):
            return 0.0
        P = len(self.names)
        i, j = P + 1 + self.names.index(name), P + 1 + (P if over is None else self.names.index(over))
        contexts = float(self.products[i, i]) / self.rows**2 if alone else self._variance(i, j)
        ell = self.scores[name].ell - (0.0 if over is None else self.scores[over].ell)
        n, squares, _ = self.powers.T
        least = self.residual * least_share(usual_kurtosis(self.powers), n)
        error = self.fitted.error(ell / self.rows, np.maximum(squares / np.maximum(n, 1.0), least))
        return contexts + error - (self.residual / self.rows if over is None and not alone else 0.0)

    def _between_halves(self, name: str) -> float:
        """The extra variance of a cross-fitted policy, because the errors of the two halves are not independent.

        A quarter of the variance of the difference between the two choices on a half of the rows, so half of that on
        all of them: see ``valuing.cross_fitted``.
        """
        if name not in self.twins:
            return 0.0
        return self._variance(self.names.index(name), self.names.index(self.twins[name])) / 2.0


class Doubly:
    """Doubly robust scores of complete rows, whatever the policy.

    Args:
        rows: the complete rows.

    Attributes:
        fitted: ``μ̂`` and ``ê`` of every fold.
        known: whether propensities were logged.
    """

    def __init__(self, rows: CompleteRows) -> None:
        self.rows, self.known = rows, rows.known
        self.fitted = Fitted(rows)

    def value(self, policies: Sequence[Requested], log: tuple[Schema, tuple[Population, ...]]) -> Valuation:
        """Value policies in one pass.

        Args:
            policies: to be valued; ``"best"`` gets a problem where the log does not say what it takes.
            log: the log's schema and population, which ``"best"`` needs; its two halves if these rows are the log's.
        """
        K = len(self.rows.arms)
        twins: dict[str, str] = {}
        if len(log[1]) == 2:
            twins = {policy.name: f"{policy.name} by its own half" for policy in policies if policy.kind == "best"}
            policies = [*policies, *(Requested(twin, "own half") for twin in twins.values())]
        names = tuple(policy.name for policy in policies)
        scores = {name: PolicyScores.empty(K, self.fitted.n_columns) for name in names}
        found = Valuation(names, scores, self.fitted, np.zeros((K, 3)), twins)
        for chunk in self.rows.chunks():
            mu, chance = self.fitted.predicted(chunk)
            z = self.fitted.columns(chunk)
            at = np.arange(len(chunk.codes))
            P = len(names)
            columns = np.zeros((len(at), 2 * P + 2))
            columns[:, P], columns[:, -1] = chunk.rewards, mu[at, chunk.codes]
            for i, policy in enumerate(policies):
                own = found.scores[policy.name]
                if own.problem is not None:
                    continue
                try:
                    taken = self.rows.taken(policy, chunk, log)
                except InputError as error:
                    if policy.kind not in ("best", "own half"):
                        raise
                    own.problem = str(error)
                    continue
                columns[:, P + 1 + i] = mu[at, taken]
                columns[:, i], weights, corrections = scores_of(chunk.codes, chunk.rewards, mu, chance, taken)
                own.add(taken, weights, corrections, None if self.known else chance[at, taken], z)
            found.add(columns)
            left, centred = chunk.rewards - mu[at, chunk.codes], mu - self.fitted.mean_reward
            squares = left * left
            for i, power in enumerate((None, squares, squares * squares)):
                found.powers[:, i] += np.bincount(chunk.codes, weights=power, minlength=K)
            found.best += float(mu.max(axis=1).sum())
            found.mu += float(centred.sum())
            found.mu_squares += float(np.square(centred).sum())
        return found


def scores_of(
    codes: np.ndarray, rewards: Array, mu: Array, chance: Array, taken: np.ndarray
) -> tuple[Array, Array, Array]:
    """Doubly robust scores of rows.

    Args:
        codes: (n,) positions of the arms that were taken.
        rewards: (n,).
        mu: (n, K) ``μ̂``.
        chance: (n, K) ``e(a|x)``; the logged arm's counts.
        taken: (n,) what the policy takes.

    Returns:
        The scores (n,), the weights ``w = 1{a = π(x)}/e(a|x)`` (n,), and ``w(r − μ̂)`` (n,).
    """
    at = np.arange(len(taken))
    weights = np.where(codes == taken, 1.0 / np.maximum(chance[at, codes], SMALLEST_CHANCE), 0.0)
    corrections = weights * (rewards - mu[at, codes])
    return mu[at, taken] + corrections, weights, corrections
