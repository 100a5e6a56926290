"""What one pass over a population's rows collects for the value of policies and its error.

Residuals are divided by one minus their leverage, which is known after the first pass, the one that fitted the
regressions.  ``judging.valuing`` makes estimates of these sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import solve_triangular

from sidelight.judging.population import ArmFit, Population, Weighting
from sidelight.judging.scarcity import NORMAL, least_share, usual_kurtosis
from sidelight.linalg import Array

__all__ = ["MOST_LEVERAGE", "Residuals", "Sample", "Tally", "collect"]

#: A row that alone determines its arm's regression has leverage 1 and no residual; larger leverages count as this.
MOST_LEVERAGE = 0.99


@dataclass
class Residuals:
    """``Σ ε² z zᵀ`` of every arm of one population, residuals divided by one minus their leverage.

    ``powers`` (K, 3) has ``n, Σ ε², Σ ε⁴``; if only sums of residuals are known, their kurtosis is ``assumed``.
    """

    population: Population
    meats: list[Array] = field(default_factory=list)
    powers: Array = field(default_factory=lambda: np.zeros((0, 3)))
    assumed: float = NORMAL

    def __post_init__(self) -> None:
        if len(self.powers) == 0:
            self.powers = np.tile([0.0, 0.0, 0.0], (len(self.population.arms), 1))
        if not self.meats:
            self.meats = [np.zeros((len(fit.columns), len(fit.columns))) for fit in self.population.fits]

    @classmethod
    def constant(cls, population: Population, kurtosis: float = NORMAL) -> Residuals:
        """The residual sums if the noise of each arm is constant: ``s² I``."""
        meats = [fit.variance * np.eye(len(fit.columns)) for fit in population.fits]
        return cls(population, meats, assumed=kurtosis)

    @classmethod
    def of_meat(cls, population: Population, meat: Array, kurtosis: float = NORMAL) -> Residuals:
        """The residual sums from ``Σ ε² x xᵀ`` (K, L, L) of a summary."""
        meats: list[Array] = []
        for fit, own in zip(population.fits, meat, strict=True):
            columns = population.columns[fit.columns]
            half = np.linalg.solve(fit.R.T, own[np.ix_(columns, columns)])
            meats.append(np.asarray(np.linalg.solve(fit.R.T, half.T)))
        return cls(population, meats, assumed=kurtosis)

    def add(self, a: int, z: Array, residuals: Array) -> None:
        """Add rows of arm ``a``: whitened contexts (n, k), residuals (n,) already divided."""
        scaled = z * residuals[:, None]
        self.meats[a] += scaled.T @ scaled
        squares = residuals * residuals
        self.powers[a] += (len(residuals), float(squares.sum()), float(squares @ squares))

    @property
    def kurtosis(self) -> Array:
        """(K,) kurtosis of each arm's residuals; :attr:`usual` where it has none, or all are 0."""
        n, squares, fourths = self.powers.T
        known = squares > 0.0
        return np.asarray(np.where(known, n * fourths / np.where(known, squares, 1.0) ** 2, self.usual))

    @property
    def usual(self) -> float:
        """The kurtosis of residuals within arms, averaged over arms by their rows; ``assumed`` if none is known."""
        return usual_kurtosis(self.powers, self.assumed)

    def least(self, a: int, q: Array, rows: float) -> float:
        """A lower bound on ``qᵀ(Σ ε² z zᵀ)q`` of arm ``a``.

        Args:
            a: position of the arm.
            q: (k,) how its rows are weighted.
            rows: their effective number.
        """
        share = float(least_share(self.usual, rows))
        return float(self.population.variances(self.usual)[a]) * share * float(q @ q)


@dataclass
class Sample:
    """A bounded number of rows of a population, kept to estimate the variance of the size of the bias.

    Attributes:
        X: parts (n, L)   codes: (n,) logged arms   rewards: (n,)   residuals: (n,) divided by one minus leverage.
    """

    X: list[Array] = field(default_factory=list)
    codes: list[np.ndarray] = field(default_factory=list)
    rewards: list[Array] = field(default_factory=list)
    residuals: list[Array] = field(default_factory=list)

    def worth(self, fit: ArmFit, a: int, q: Array) -> float:
        """The effective number of rows of arm ``a`` if weighted by ``u = z·q``: ``(Σu²)²/Σu⁴``."""
        u = np.concatenate([X[codes == a] for X, codes in zip(self.X, self.codes, strict=True)] or [np.zeros((0, 0))])
        if len(u) == 0:
            return float(fit.freedom)
        u = np.square(u[:, fit.columns] @ solve_triangular(fit.R, q))
        fourths = float(u @ u)
        return float(u.sum()) ** 2 / fourths * fit.count / len(u) if fourths > 0.0 else float(fit.freedom)

    def size_moments(self, population: Population, weighting: Weighting, taken: np.ndarray) -> tuple[float, float]:
        """Variance of ``√(E ε² · E α_s²)`` over samples, and its covariance with the gain; (0, 0) without rows.

        The influence of ``E α_s²`` is ``2α_s(x, π(x)) − α_s² − E α_s²``, that of ``E ε²`` is ``ε² − E ε²``.
        """
        if not self.X or sum(map(len, self.X)) < 2:
            return 0.0, 0.0
        X, codes, rewards = np.concatenate(self.X), np.concatenate(self.codes), np.concatenate(self.rewards)
        residuals, n = np.concatenate(self.residuals), population.n_rows
        alpha, wanted, value = np.zeros(len(X)), np.zeros(len(X)), np.zeros(len(X))
        for a, (fit, q) in enumerate(zip(population.fits, weighting.q, strict=True)):
            if q is None:
                continue
            weights = n * (X[:, fit.columns] @ solve_triangular(fit.R, q))  # z·q = x·R⁻¹q
            alpha += np.where(codes == a, weights, 0.0)
            wanted += np.where(taken == a, weights, 0.0)
            value += np.where(taken == a, X @ fit.b, 0.0)
        gain = value - rewards + alpha * residuals
        squares, nu = population.epsilon_squares, weighting.alpha_squares
        if squares <= 0.0:
            return 0.0, 0.0
        size = math.sqrt(squares * nu)
        influence = 0.5 * size * (residuals**2 / squares + (2.0 * wanted - alpha**2) / nu)
        moments = np.cov(np.stack([gain, influence]))
        return float(moments[1, 1]) / n, float(moments[0, 1]) / n


class Tally:
    """Sums over the rows of a population for one policy.

    Args:
        population: its regressions are used.
        reference: the arm against which the policy is compared, ``None`` for the old policy.
    """

    def __init__(self, population: Population, reference: int | None = None) -> None:
        self.population, self.reference = population, reference
        self.ell = np.zeros((len(population.arms), len(population.names)))
        self.rows, self.total, self.squares = 0, 0.0, 0.0
        self.cross = [np.zeros(len(fit.columns)) for fit in population.fits]
        self.problem: str | None = None
        self.taken: list[np.ndarray] = []

    def differences(self, X: Array, rewards: Array, taken: np.ndarray) -> Array:
        """``t`` (n,) of these rows, and their sums; ``taken`` (n,) is what the policy takes there."""
        b = np.stack([fit.b for fit in self.population.fits])
        t = np.einsum("nl,nl->n", X, b[taken])
        t -= rewards if self.reference is None else X @ b[self.reference]
        for a in np.unique(taken).tolist():
            self.ell[a] += X[taken == a].sum(axis=0)
        self.rows += len(X)
        self.total += float(t.sum())
        self.squares += float(t @ t)
        return np.asarray(t)

    def add(self, a: int, z: Array, residuals: Array, t: Array) -> None:
        """``Σ t ε z`` of rows whose logged arm is ``a``."""
        self.cross[a] += z.T @ (t * residuals)


def collect(
    residuals: Residuals,
    sample: Sample,
    kept: np.ndarray,
    rows: tuple[Array, np.ndarray, Array],
    choices: Sequence[tuple[Sequence[Tally], np.ndarray]],
) -> None:
    """Add rows of a population to its sums.

    Args:
        residuals: of the population.
        sample: of its rows.
        kept: (n,) booleans: the rows that the sample keeps.
        rows: encoded recorded columns (n, L_schema), positions of the logged arms (n,), rewards (n,).
        choices: tallies, and what their policy takes in these rows (n,).
    """
    X, codes, rewards = rows
    population = residuals.population
    X = population.select(X)
    moved = [(tally, tally.differences(X, rewards, taken)) for tallies, taken in choices for tally in tallies]
    for tallies, taken in choices:
        for tally in tallies:
            tally.taken.append(taken[kept])
    left = np.zeros(len(X))
    for a in np.unique(codes).tolist():
        fit = population.fits[a]
        if not fit.enough:
            continue
        own = codes == a
        z = fit.whitened(X[own])
        e = leverage_corrected(fit, z, rewards[own] - X[own] @ fit.b)
        left[own] = e
        residuals.add(a, z, e)
        for tally, t in moved:
            tally.add(a, z, e, t[own])
    sample.X.append(X[kept])
    sample.codes.append(codes[kept])
    sample.rewards.append(rewards[kept])
    sample.residuals.append(left[kept])


def leverage_corrected(fit: ArmFit, z: Array, residuals: Array) -> Array:
    """Residuals (n,) of an arm's own rows divided by one minus their leverage ``‖z‖²``."""
    leverage = np.minimum(np.einsum("nk,nk->n", z, z), MOST_LEVERAGE)
    return np.asarray(residuals / (1.0 - leverage))
