"""The short value of a policy in each population, its sampling error, and populations combined.

The gain over the old policy is the mean of ``ψ = t + α_s ε`` with ``t = x_o·b_{π(x)} − r`` and ``ε = r − x_o·b_a``,
which also gives its variance.  ``Tally`` collects in one pass over the rows what its variance needs; residuals are
divided by one minus their leverage, which is known after the first pass.  For a fixed arm ``t = −ε`` in the arm's own
rows, so the squared residuals ``Σ ε² z zᵀ`` are all that is needed, and where noise is constant they are ``s² I``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import solve_triangular

from sidelight.judging.population import ArmFit, Population, Weighting
from sidelight.judging.scarcity import NORMAL, least_share, usual_kurtosis
from sidelight.judging.sensitivity import quantile
from sidelight.linalg import Array

__all__ = [
    "Estimate",
    "Residuals",
    "Sample",
    "Tally",
    "collect",
    "combined",
    "cross_fitted",
    "disagreement",
    "of_fixed",
    "of_tally",
]

# A row that alone determines its arm's regression has leverage 1: its residual says nothing.
_MOST_LEVERAGE = 0.99


@dataclass(frozen=True)
class Estimate:
    """The value and gain of a policy by the short regression, which knows recorded features alone.

    Attributes:
        rows: how many rows of the log are behind it.
        value: ``V_s``   gain: ``V_s`` minus the reference's value.
        variance: of ``gain`` over samples.
        size: ``√(E ε² · E α_s²)``, summed over populations by their share of rows.
        alpha_squares: ``E α_s²``.
        freedom: degrees of freedom of ``variance`` (Satterthwaite), at most those of the scarcest arm that is taken.
        size_variance: of ``size`` over samples   size_covariance: of ``size`` and ``gain``.
        parts: the populations and how the policy weighs their rows.
        problem: why it cannot be told, or ``None``.
    """

    rows: int
    value: float
    gain: float
    variance: float
    size: float
    alpha_squares: float
    freedom: float
    parts: tuple[tuple[Population, Weighting], ...]
    problem: str | None = None
    size_variance: float = 0.0
    size_covariance: float = 0.0

    @property
    def error(self) -> float:
        """The standard error of the gain."""
        return math.sqrt(max(self.variance, 0.0))

    def half(self, level: float) -> float:
        """Half the width of the sampling interval."""
        return quantile(level, self.freedom) * self.error

    def bounds(self, level: float, strength: float) -> tuple[float, float]:
        """The interval of the gain where hidden features may move it by ``strength·size``, ``strength = C_Y C_D``.

        Both ends are estimates, the bias included, so each has an error of its own.
        """
        if not math.isfinite(strength):
            return -math.inf, math.inf
        t, square = quantile(level, self.freedom), strength * strength * self.size_variance
        low = max(self.variance + square - 2.0 * strength * self.size_covariance, 0.0)
        high = max(self.variance + square + 2.0 * strength * self.size_covariance, 0.0)
        bias = strength * self.size
        return self.gain - bias - t * math.sqrt(low), self.gain + bias + t * math.sqrt(high)


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
    leverage = np.minimum(np.einsum("nk,nk->n", z, z), _MOST_LEVERAGE)
    return np.asarray(residuals / (1.0 - leverage))


def of_fixed(population: Population, arm: int, residuals: Residuals, sample: Sample | None = None) -> Estimate:
    """The value of the policy that always takes the arm at this position, and its gain over the old policy."""
    weighting = population.fixed(arm)
    if weighting.problem is not None:
        return _unknown(population, weighting)
    n, fit, meat = population.n_rows, population.fits[arm], residuals.meats[arm]
    (q,) = (part for part in weighting.q if part is not None)
    # Σ ε² z = (Σ ε² z zᵀ)R₀ because the constant 1 = x₀ = R₀·z
    cross = -meat @ fit.R[:, 0]
    gain = weighting.value - population.value
    spread = population.fixed_squares(arm) / n + 2.0 * float(q @ cross) + n * float(q @ meat @ q) - gain * gain
    spread, freedom = _allowing_for_few(spread, residuals, weighting.q, sample)
    if sample is None:
        # as for normal residuals; weights vary by about their second moment, three times that where they are skewed
        squares = population.epsilon_squares * weighting.alpha_squares
        moments = (squares * (0.5 + 0.75 * weighting.alpha_squares) / n, 0.0)
    else:
        moments = sample.size_moments(population, weighting, np.full(sum(map(len, sample.X)), arm))
    return _estimate(population, weighting, gain, spread, freedom, moments)


def of_tally(tally: Tally, residuals: Residuals, sample: Sample) -> Estimate:
    """The value of a policy that looks at recorded columns, and its gain over the old policy or a fixed arm."""
    population, n = tally.population, tally.population.n_rows
    weighting = population.weigh(tally.ell / max(n, 1))
    problem = tally.problem or weighting.problem
    if problem is not None:
        return _unknown(population, Weighting(weighting.ell, (), math.nan, math.nan, problem))
    parts: list[Array | None] = list(weighting.q)
    if tally.reference is not None:
        against = population.fixed(tally.reference)
        if against.problem is not None:
            return _unknown(population, against)
        own, other = parts[tally.reference], against.q[tally.reference]
        assert other is not None
        parts[tally.reference] = -other if own is None else own - other
    gain = tally.total / n
    spread = tally.squares / n - gain * gain
    for q, cross, meat in zip(parts, tally.cross, residuals.meats, strict=True):
        if q is not None:
            spread += 2.0 * float(q @ cross) + n * float(q @ meat @ q)
    spread, freedom = _allowing_for_few(spread, residuals, parts, sample)
    taken = np.concatenate(tally.taken) if tally.taken else np.zeros(0, dtype=np.int64)
    moments = sample.size_moments(population, weighting, taken) if len(taken) else (0.0, 0.0)
    return _estimate(population, weighting, gain, spread, freedom, moments)


def _allowing_for_few(
    spread: float, residuals: Residuals, parts: Sequence[Array | None], sample: Sample | None
) -> tuple[float, float]:
    """The variance of ``ψ``, every arm's part raised to its lower bound, and its degrees of freedom (Satterthwaite).

    Args:
        spread: the variance of ``ψ`` as estimated from the rows.
        residuals: of the population.
        parts: (K,) ``q`` of every arm, ``None`` for arms that do not count.
        sample: rows that show how evenly an arm's rows are weighted; without them equal weights are assumed.
    """
    population = residuals.population
    n, total, squares, most = population.n_rows, 0.0, 0.0, math.inf
    for a, (fit, q, meat) in enumerate(zip(population.fits, parts, residuals.meats, strict=True)):
        if q is None:
            continue
        most = min(most, fit.freedom)
        worth = float(fit.freedom) if sample is None else sample.worth(fit, a, q)
        seen = float(q @ meat @ q)
        own = max(seen, residuals.least(a, q, worth))
        spread += n * (own - seen)
        total += n * own
        squares += (n * own) ** 2 / max(worth - 1.0, 1.0)
    return spread, min(most, max(spread, total) ** 2 / squares) if squares > 0.0 else most


def _estimate(
    population: Population,
    weighting: Weighting,
    gain: float,
    spread: float,
    freedom: float,
    moments: tuple[float, float],
) -> Estimate:
    n, squares = population.n_rows, weighting.alpha_squares
    size = math.sqrt(population.epsilon_squares * squares)
    parts = ((population, weighting),)
    return Estimate(
        n,
        weighting.value,
        gain,
        max(spread, 0.0) / n,
        size,
        squares,
        freedom,
        parts,
        size_variance=moments[0],
        size_covariance=moments[1],
    )


def _unknown(population: Population, weighting: Weighting) -> Estimate:
    nan = math.nan
    return Estimate(population.n_rows, nan, nan, nan, nan, nan, nan, ((population, weighting),), weighting.problem)


def combined(estimates: Sequence[Estimate]) -> Estimate:
    """Several populations as one, each with its share of the rows: halves, eras.

    Shares are as random as the rows are, so what differs between populations varies too.
    """
    if len(estimates) == 1:
        return estimates[0]
    rows = sum(estimate.rows for estimate in estimates)
    parts = tuple(part for estimate in estimates for part in estimate.parts)
    problem = next((estimate.problem for estimate in estimates if estimate.problem is not None), None)
    w = np.array([estimate.rows / rows for estimate in estimates])

    def each(name: str) -> Array:
        return np.array([getattr(estimate, name) for estimate in estimates])

    def between(one: str, other: str) -> float:
        return float(w @ ((each(one) - w @ each(one)) * (each(other) - w @ each(other)))) / rows

    variances = w**2 * each("variance")
    variance = float(variances.sum()) + between("gain", "gain")
    scarce = float((variances**2 / each("freedom")).sum())
    return Estimate(
        rows,
        float(w @ each("value")),
        float(w @ each("gain")),
        variance,
        float(w @ each("size")),
        float(w @ each("alpha_squares")),
        variance**2 / scarce if scarce > 0.0 else float(each("freedom").min()),
        parts,
        problem,
        float(w**2 @ each("size_variance")) + between("size", "size"),
        float(w**2 @ each("size_covariance")) + between("size", "gain"),
    )


def disagreement(residuals: Residuals, ell: Array, sample: Sample) -> float:
    """The variance over samples of the difference of two policies' short values in one population.

    Args:
        residuals: of the population.
        ell: (K, L) the difference of the policies' ``ℓ_a``.
        sample: of its rows.
    """
    total = 0.0
    for a, (fit, own, meat) in enumerate(zip(residuals.population.fits, ell, residuals.meats, strict=True)):
        if fit.enough and own.any():
            q = solve_triangular(fit.R, own[fit.columns], trans="T")
            total += max(float(q @ meat @ q), residuals.least(a, q, sample.worth(fit, a, q)))
    return total


def cross_fitted(first: Estimate, second: Estimate, difference: float) -> Estimate:
    """The gain of a policy that is chosen on one half and valued on the other, and the other way round.

    The errors of the halves are not independent.  With ``e_i`` the error of the regressions of half ``i`` and ``H``
    (symmetric) what it moves the choice ``ℓ`` by, half 1 errs by ``ℓ·e_1 + (He_2)·e_1`` and half 2 by ``ℓ·e_2 +
    (He_1)·e_2``: the second terms are the same number.  Its variance is half of that of ``(He_1 − He_2)·e``, which is
    what the choices of the two halves differ by.  Where arms pay alike nothing else is left, and the two halves err as
    one.

    Args:
        first: of one half.
        second: of the other.
        difference: the variance of the difference, on one half, between what the two choices gain.
    """
    found = combined([first, second])
    share = first.rows / found.rows
    return replace(found, variance=found.variance + share * (1.0 - share) * difference)
