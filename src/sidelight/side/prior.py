"""A prior over arms learned from the arms: common mean, and one variance for each block of features.

``w_a ~ N(μ, Ω)``, ``μ ~ N(0, κ²)``, evidence per arm ``J_a``, ``h_a``.  With ``D = Ω^{1/2}`` and ``W_a = I + DJ_aD``:

    S_a = (J_a⁻¹ + Ω)⁻¹ = D⁻¹(I − W_a⁻¹)D⁻¹,     t_a = (I + J_aΩ)⁻¹h_a = D⁻¹W_a⁻¹Dh_a,
    μ̂ = P⁻¹Σt_a,   P = κ⁻² + ΣS_a,
    log p = Σ_a[−½log det W_a + ½(Dh_a)ᵀW_a⁻¹(Dh_a)] + ½(Σt)ᵀP⁻¹(Σt) − ½log det(κ²P).

All of it in the features' and rewards' own units (``side.coordinates``): a block's ``ω`` is the variance of weights of
features of centre zero and scale one, so that it means the same for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sidelight.kernels.prior import common_mean, shrink_arms
from sidelight.kernels.spd import invert
from sidelight.linalg import Array, log
from sidelight.side.coordinates import Units

__all__ = ["Hyper", "Prior", "Shrunk", "estimate_prior", "log_marginal", "shrink"]

#: how strongly (in units of log variance) the blocks are held together until the data separate them
TIE = 1.5
#: the log₄ variances of the first two blocks searched at first, relative to the rewards' own scale
COARSE = np.arange(-8, 3, 2)
#: the log₄ variances of derived blocks searched at first, relative to that of the first block
DERIVED = (0.0, -6.0)
#: by what factors a variance is moved, one after the other while that helps: up to 4³ in all
STEPS = (2.0, 2.0, 4.0, 4.0)


@dataclass(frozen=True)
class Hyper:
    """Variances of the prior, per block, in scaled features.

    Attributes:
        variances: one ``ω`` for each block.
        mean_variance: ``κ²``; of derived features ``κ²`` times their ``ω`` over that of the first block.
    """

    variances: tuple[float, ...]
    mean_variance: float


@dataclass(frozen=True)
class Prior:
    """``w_a ~ N(mean, covariance)`` for every arm, in the features' own units.

    Attributes:
        mean: (d,)   covariance: (d, d)  ``Ω + Cov(μ̂)``   precision: its inverse.
        hyper: the variances it was made with.
        log_marginal: of the evidence it was learned from.
    """

    mean: Array
    covariance: Array
    precision: Array
    hyper: Hyper
    log_marginal: float


def _expand(values: Sequence[float], blocks: Sequence[NDArray[np.int64]], d: int) -> Array:
    """(d,)  One value for each block, at the positions of the block."""
    out = np.empty(d)
    for value, block in zip(values, blocks, strict=True):
        out[block] = value
    return out


def _mean_variances(hyper: Hyper, derived: int) -> list[float]:
    """``κ²`` of each block.

    A bend that no arm has has no mean either.  With one ``κ²`` for all, many such features, whose means are known to be
    zero, would make that of the columns themselves zero as well.
    """
    straight = len(hyper.variances) - derived
    bent = [hyper.mean_variance * (variance / hyper.variances[0]) for variance in hyper.variances[straight:]]
    return [hyper.mean_variance] * straight + bent


@dataclass(frozen=True)
class Shrunk:
    """What the evidence says once each arm's own deviation from the mean is integrated out.

    Attributes:
        value: ``Σ_a[−½log det W_a + ½(Dh_a)ᵀW_a⁻¹(Dh_a)]``.
        S: (d, d)  ``ΣS_a``   t: (d,)  ``Σt_a``.
    """

    value: float
    S: Array
    t: Array


def shrink(J: Array, h: Array, omega: Array) -> Shrunk:
    """Integrate the deviations out.  J: (K, d, d)   h: (K, d)   omega: (d,) diagonal of ``Ω``"""
    d = len(omega)
    S, t = np.empty((d, d)), np.empty(d)
    return Shrunk(shrink_arms(J, h, omega, S, t), S, t)


def log_marginal(shrunk: Shrunk, kappa2: Array) -> tuple[float, Array, Array]:
    """``log p``, ``μ̂`` and ``Cov(μ̂) = P⁻¹``.  kappa2: (d,) prior variances of the common mean"""
    mean, C = np.empty_like(shrunk.t), np.empty_like(shrunk.S)
    return shrunk.value + common_mean(shrunk.S, shrunk.t, kappa2, mean, C), mean, C


def estimate_prior(
    J: Array,
    h: Array,
    blocks: Sequence[NDArray[np.int64]],
    units: Units,
    previous: Hyper | None = None,
    *,
    search: bool = True,
    wide: bool = False,
    hidden: Callable[[float], float] | None = None,
    derived: int = 0,
) -> Prior:
    """The prior of highest marginal likelihood on a grid of factors of two, searched from the previous one.

    Args:
        J: (K, d, d)  evidence of every arm.
        h: (K, d)  evidence of every arm.
        blocks: the positions of each block; the last variance found is held near the first by a weak tie.
        units: of features and rewards; the rewards' variance sets where the first search looks.
        previous: where a later search starts.
        search: without it the variances stay as they were.
        wide: look everywhere, not only around the previous ones.
        hidden: log likelihood of the second block's variance from elsewhere (``side.spread``).
        derived: how many of the blocks, the last ones, are of derived features.
    """
    d = h.shape[1]
    reference = reference_variance(units, d)
    J, h = units.evidence(J, h)
    shrunk: dict[tuple[float, ...], Shrunk] = {}

    def evaluate(hyper: Hyper) -> tuple[float, Array, Array]:
        # the mean's variance leaves what the arms say about it as it is
        if hyper.variances not in shrunk:
            shrunk[hyper.variances] = shrink(J, h, _expand(hyper.variances, blocks, d))
        kappa2 = _expand(_mean_variances(hyper, derived), blocks, d)
        value, mean, C = log_marginal(shrunk[hyper.variances], kappa2)
        first, *others = (log(variance / reference) for variance in hyper.variances)
        # with long tails: once the data separate blocks, they are not held together by force
        tie = sum(2.0 * log(1.0 + 0.5 * ((other - first) / TIE) ** 2) for other in others)
        # a weak pull of the variance and of the mean's toward the rewards' own scale
        pull = (first / 4.0) ** 2 + (log(hyper.mean_variance / reference) / 4.0) ** 2
        if hidden is not None:
            value += hidden(hyper.variances[1])
        return value - 0.5 * (tie + pull), mean, C

    cache: dict[Hyper, tuple[float, Array, Array]] = {}

    def value_of(hyper: Hyper) -> float:
        if hyper not in cache:
            cache[hyper] = evaluate(hyper)
        return cache[hyper][0]

    best = previous
    if best is None or (search and wide):
        best = max(([] if best is None else [best]) + _coarse(len(blocks), derived, reference), key=value_of)
    if search:
        best = _climb(best, value_of)
    else:
        value_of(best)
    value, mean, C = cache[best]
    covariance = np.diag(_expand(best.variances, blocks, d)) + C
    precision = np.empty_like(covariance)
    if math.isnan(invert(covariance, precision)):
        raise np.linalg.LinAlgError("The prior's covariance is not positive definite.")
    return Prior(units.weights(mean), units.covariance(covariance), units.precision(precision), best, value)


def reference_variance(units: Units, d: int) -> float:
    """The variance of a weight if ``d`` features of scale one shared the rewards' variance."""
    return units.reward_variance / d


def _climb(start: Hyper, value_of: Callable[[Hyper], float]) -> Hyper:
    """Coordinate steps by factors of two and four, two sweeps at most, on a fixed lattice."""
    best, highest = start, value_of(start)
    for _ in range(2):
        before = best
        for i in range(len(start.variances) + 1):
            for up in (True, False):
                at = best
                for step in STEPS:
                    moved = _scaled(best, i, step if up else 1.0 / step)
                    value = value_of(moved)
                    if not value > highest + 1e-9:
                        break
                    best, highest = moved, value
                if best != at:
                    break
        if best == before:
            break
    return best


def _coarse(n_blocks: int, derived: int, reference: float) -> list[Hyper]:
    """Where the first search looks: the first two blocks in all combinations, the others with the first.

    Derived blocks once with the first and once far below it: a start at which many bends are expected that are not
    there is so unlikely that the search would settle on whatever makes up for it in the other blocks.
    """
    out = []
    straight = n_blocks - derived
    for k in COARSE:
        for second in COARSE if straight > 1 else COARSE[:1]:
            for below in DERIVED[: 1 + (derived > 0)]:
                own = [float(k), float(second), *[float(k)] * straight][:straight]
                variances = tuple(reference * 4.0**power for power in [*own, *[float(k) + below] * derived])
                out += [Hyper(variances, reference * 4.0**j) for j in (-4.0, -2.0, 0.0)]
    return out


def _scaled(hyper: Hyper, i: int, factor: float) -> Hyper:
    if i == len(hyper.variances):
        return replace(hyper, mean_variance=hyper.mean_variance * factor)
    values = list(hyper.variances)
    values[i] *= factor
    return replace(hyper, variances=tuple(values))
