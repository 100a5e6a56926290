"""The short value of a policy in each population, its sampling error, and populations combined.

The gain over the old policy is the mean of ``ψ = t + α_s ε`` with ``t = x_o·b_{π(x)} − r`` and ``ε = r − x_o·b_a``,
which also gives its variance, from the sums that ``judging.row_sums`` collects.  For a fixed arm ``t = −ε`` in the
arm's own rows, so the squared residuals ``Σ ε² z zᵀ`` are all that is needed, and where noise is constant they are
``s² I``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from sidelight.judging.population import Population, Weighting
from sidelight.judging.row_sums import Residuals, Sample, Tally
from sidelight.judging.sensitivity import quantile
from sidelight.linalg import Array

__all__ = [
    "Estimate",
    "combined",
    "cross_fitted",
    "disagreement",
    "of_fixed",
    "of_tally",
]


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
