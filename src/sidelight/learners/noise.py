"""The noise of rewards from what regressions leave: of all arms together, and of each arm.

``log σ_a² ~ N(log σ², v)`` around the noise of all arms together; ``v`` by the likelihood of the online residuals,
``R_a ~ σ_a²χ²_{ν_a}`` (a mean over a few of them).  The log's residual variances do not say more: what differs between
them is as well the hidden features' doing, and following them cost 5 to 10 % of regret where noise was alike.
"""

from __future__ import annotations

import numpy as np

from sidelight.kernels import variances
from sidelight.linalg import Array, apply, exp, log, product

__all__ = [
    "arm_noises",
    "learned_noises",
    "least_residuals",
    "own_residuals",
    "rate_noise",
    "residual_noise",
    "residuals",
    "rounds_likelihood",
    "variance_around_levels",
]

#: how many rounds of the log's (or the first rewards') guess the noise estimate starts with
NOISE_WEIGHT = 20.0
#: how many rounds of the variance of all rewards their variance around the arms' levels starts with
LEVEL_WEIGHT = 4.0
#: variances of ``log σ_a²`` over arms that compete, and the log of each one's prior weight
SPREADS = np.array([0.01, 0.04, 0.16, 0.64, 2.56])
SPREAD_WEIGHTS = np.array([0.0, -0.5, -1.0, -1.5, -2.0])
#: squares of less than this for each round, or as a part of what they are left of, are rounding: features that repeat
#: each other have a rank
ROUNDING = 1e-9
#: an arm's noise has at least this part of the variance of all arms' together
ARM_FLOOR = 1e-3
#: Newton steps to each arm's most probable noise, from which on it stands still
STEPS = 12


def residuals(squares: Array, moments: Array, grams: Array, weights: Array, covariances: Array) -> tuple[Array, Array]:
    """``R`` (K,), the squared residuals of each arm, and (K,) how many rounds its fit used up.

    Args:
        squares: (K,)  ``Σ r²``.
        moments: (K, d)  ``Σ x r``.
        grams: (K, d, d)  ``Σ x xᵀ``.
        weights: (K, d)  ``ŵ``.
        covariances: (K, d, d)  ``V⁻¹``.
    """
    fit = apply(grams, weights) - 2.0 * moments
    left = squares + (weights * fit).sum(axis=1)
    return np.maximum(left, 0.0), (grams * covariances).sum(axis=(1, 2))


def own_residuals(squares: Array, moments: Array, grams: Array, rounds: Array, left: Array, used: Array) -> None:
    """Replace ``left`` and ``used`` by those of an arm's own least squares where these leave less per free round.

    Residuals of weights that a prior shrinks hold what was shrunk away, so that noise which is taken from them and a
    narrow prior confirm each other; an arm's own regression does not know the prior.  It takes twice as many rounds as
    dimensions.
    """
    variances.own_residuals(squares, moments, grams, rounds, ROUNDING, left, used)


def least_residuals(squares: Array, moments: Array, grams: Array, rounds: Array) -> Array:
    """(K,)  The squared residuals of an arm's own least squares; 0 where it has too few rounds for them."""
    left = np.full(len(squares), np.inf)
    own_residuals(squares, moments, grams, rounds, left, np.zeros(len(squares)))
    return np.where(np.isfinite(left), left, 0.0)


def rounds_likelihood(rounds: Array, squares: Array, variances: Array) -> float:
    """``−½Σ_a(n_a log σ_a² + Σr²/σ_a²)``: what evidence ``J = G/σ²``, ``h = g/σ²`` leaves out of the rounds' density.

    Args:
        rounds: (K,)  ``n``, of each arm.
        squares: (K,)  ``Σ r²``.
        variances: (K,)  ``σ_a²``.
    """
    return float(-0.5 * (rounds * log(variances) + squares / variances).sum())


def residual_noise(guess: float, left: Array, used: Array, rounds: float) -> float:
    """``σ²`` of all arms together, started with ``NOISE_WEIGHT`` rounds of a guess.

    Args:
        guess: what the log says, or the rewards' own variance.
        left: (K,)  from ``residuals``.
        used: (K,)  from ``residuals``.
        rounds: in all.
    """
    free = max(rounds - float(used.sum()), 0.0)
    return (NOISE_WEIGHT * guess + float(left.sum())) / (NOISE_WEIGHT + free)


def rate_noise(expected: float, least: float, left: Array, used: Array, rounds: float) -> float:
    """``σ²`` of all arms together where rewards are 0 or 1 and rounds are weighted by their rates.

    It is ``expected`` where rates are what they are taken for, and less where rewards follow the features more closely
    than any line does, so that most rates are 0 or 1 and the line keeps away from both (quasi-likelihood: the variance
    is a multiple of ``p(1 − p)``).  A squared error ``(r − p)²/p(1 − p)`` has the variance ``1/p(1 − p) − 4`` where one
    of normal noise has 2, so that so many times more rounds tell as much; of all rates the least is taken.

    Args:
        expected: the variance that rounds are weighted to have.
        least: the rate that is nearest to 0 or 1 of those by which rounds are weighted.
        left: (K,)  from ``residuals``.
        used: (K,)  from ``residuals``.
        rounds: in all.
    """
    weight = NOISE_WEIGHT * max(0.5 / (least * (1.0 - least)) - 2.0, 1.0)
    free = max(rounds - float(used.sum()), 0.0)
    return (weight * expected + float(left.sum())) / (weight + free)


def variance_around_levels(
    squares: Array, moments: Array, grams: Array, rounds: Array, level: Array, variance: float
) -> float:
    """The variance of rewards around each arm's own level, a first guess of ``σ²``.

    Where arms differ in what they pay on average, the variance of all rewards is that difference, and noise of that
    size would have every arm tried many times.

    Args:
        squares: (K,)  ``Σ r²``.
        moments: (K, d)  ``Σ x r``.
        grams: (K, d, d)  ``Σ x xᵀ``.
        rounds: (K,)  of each arm.
        level: (d,)  weights with which every mean context pays 1; zeros where there are none.
        variance: of all rewards.
    """
    length, along = product(product(grams, level), level), product(moments, level)
    told = (length > 0.0) & (rounds > 0.0)
    around = np.maximum(squares[told] - np.square(along[told]) / length[told], 0.0)
    free = float(np.maximum(rounds[told] - 1.0, 0.0).sum())
    return (LEVEL_WEIGHT * variance + float(around.sum())) / (LEVEL_WEIGHT + free)


def arm_noises(variance: float, left: Array, free: Array) -> Array:
    """``σ_a²`` (K,).

    Args:
        variance: ``σ²`` of all arms together.
        left: (K,)  ``R``.
        free: (K,)  ``ν``, rounds that the fit did not use up.
    """
    ratio = left / variance
    common = (NOISE_WEIGHT + float(ratio.sum())) / (NOISE_WEIGHT + float(free.sum()))
    mean = np.empty(len(left))
    variances.arm_noises(ratio, free, float(log(common)), SPREADS, SPREAD_WEIGHTS, STEPS, mean)
    return np.asarray(variance * exp(mean))


def learned_noises(guess: float, left: Array, used: Array, rounds: Array, floor: float) -> tuple[float, Array]:
    """``σ²`` of all arms together, and ``σ_a²`` (K,).

    Args:
        guess: what the log says, or the rewards' own variance.
        left: (K,)  from ``residuals``.
        used: (K,)  from ``residuals``.
        rounds: (K,)  of each arm.
        floor: the least that a variance can be.
    """
    variance = max(residual_noise(guess, left, used, float(rounds.sum())), floor)
    noises = arm_noises(variance, left, np.maximum(rounds - used, 0.0))
    # an arm whose rewards are all alike says less about the other arms' weights than its residuals claim
    return variance, np.maximum(noises, max(floor, ARM_FLOOR * variance))
