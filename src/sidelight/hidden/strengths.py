"""How much the arms' regressions of hidden on recorded features have in common, found by marginal likelihood.

``hidden.pooling`` has the model, in which ``κ₀`` says how little the hidden features go with the recorded ones, ``κ``
how alike the arms' slopes are (both in answers), ``v`` how far their levels are apart, and ``β`` how much less the
hidden features go with bends and products than with columns.  Each has a weak prior.

``1/κ`` is a variance, of arms' coefficients around what they have in common, and the error that is claimed for a
regression needs what it is expected to be: of prior and posterior ``1/E[1/κ]`` is taken.  (Thousands of answers hardly
tell a large ``κ`` from a larger one.)  Of ``κ₀`` the same is taken before answers tell, and then the least one that is
nearly as likely as the best.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sidelight.hidden.frame import Frame, power_of_two
from sidelight.hidden.framed_sums import Told
from sidelight.hidden.pooling import FLAT, Pool, bent_metric
from sidelight.hidden.unasked import leaning_of
from sidelight.kernels.answers import between_arms
from sidelight.kernels.answers import own_likelihoods as likelihoods_of_own
from sidelight.kernels.spd import invert
from sidelight.linalg import Array, exp, log, product

__all__ = [
    "BENT_GRID",
    "LEVEL_CENTRE",
    "LEVEL_GRID",
    "OWN_GRID",
    "SLOPE_CENTRE",
    "SLOPE_GRID",
    "Strengths",
    "find_common",
    "find_strengths",
    "first_own",
    "first_strengths",
    "own_guess",
    "unanswered_chances",
]

#: ``κ``: from "arms have nothing in common" to "all arms are alike"
SLOPE_GRID = 2.0 ** np.arange(-2, 21)
#: ``v``, in units of the hidden features' residual variance
LEVEL_GRID: Array = np.power(4.0, np.arange(-6, 4))
#: ``κ₀``
OWN_GRID = 2.0 ** np.arange(-4, 21)
#: ``β``, and its prior's centre
BENT_GRID, BENT_CENTRE = (1.0, 8.0, 64.0), 64.0
#: standard deviations of the priors of ``log κ₀``, ``log v`` and ``log β``, and of ``log κ``
WEAK, WEAKER = 1.5, 2.0
#: the prior's centre of ``v`` along the hidden weights, however many they are, and of ``κ`` for each recorded feature
LEVEL_CENTRE, SLOPE_CENTRE = 1.25, 512.0
#: ``κ₀`` to expect for each recorded feature where these tell nothing about it
UNTOLD_OWN = 16.0
#: the smallest ``κ₀``, and ``β``, within this many units of log posterior of the best one is taken: too strong a pull
#: is a bias that nothing accounts for, too weak a one costs some answers
SLACK = 2.0
#: so many answers for each coordinate halve it for ``κ₀``: the more there are, the less the prior decides, whose centre
#: is no more than a guess
MANY = 8.0
#: values of ``κ`` whose log posterior is this much below the best one do not count for what is expected
FAR = 7.0


class Strengths(NamedTuple):
    """``own = κ₀`` and ``slopes = κ``, in answers, ``levels = v``, in residual variances, and ``bent = β``."""

    own: float
    slopes: float
    levels: float
    bent: float = 1.0


def own_guess(frame: Frame) -> float:
    """Where to look for ``κ₀`` first, ``κ_log/4``: hidden features go with recorded ones as these with each other.

    ``κ_log = (p − 1)Σ(1 − R²_j)/ΣR²_j``, ``R²_j`` of recorded feature ``j`` on the ``p − 1`` others.
    """
    known = ~np.isnan(np.diagonal(frame.D))
    if frame.constant is not None:
        known[frame.constant] = False
    C = np.ascontiguousarray(frame.D[np.ix_(known, known)])
    p = len(C)
    inverse = np.empty_like(C)
    if p < 2 or math.isnan(invert(C, inverse)):
        return UNTOLD_OWN * max(p, 1)
    left = np.clip(1.0 / (np.diagonal(C) * np.diagonal(inverse)), 0.0, 1.0)
    ratio = (p - 1) * float(np.sum(left)) / max(float(np.sum(1.0 - left)), 1e-12)
    return float(np.clip(ratio / 4.0, OWN_GRID[0], OWN_GRID[-1]))


def _weakly(values: Any, centre: float, deviation: float = WEAK) -> Any:
    return -0.5 * np.square(log(np.asarray(values) / centre) / deviation)


def find_strengths(told: Told, start: Strengths, guess: float) -> tuple[Strengths, Array | None]:
    """``κ₀``, ``κ``, ``v`` and ``β`` as the answers tell them, ``v`` as it is along the arms' hidden weights.

    And the log posterior of every ``κ`` and ``v`` of their grids, see ``first_chances``; None if nothing was told,
    or if rounding leaves no likelihood finite.

    Args:
        told: the answers.
        start: as last found, where the search for ``κ`` begins.
        guess: the prior's centre of ``κ₀``.
    """
    if told.answers <= 0 or 0 in told.D.shape or told.S.shape[1] == told.frame.size:
        return start, None
    start = find_common(told, start, guess)
    slopes, levels, chances = _find_between(told, Pool.of(told, start.own, start.levels, start.bent), start)
    return start._replace(slopes=slopes, levels=levels), chances


def first_chances(frame: Frame, m: int, centre: float = LEVEL_CENTRE) -> Array:
    """Log prior of every ``κ`` (rows) and ``v`` (columns) of their grids, up to a constant.

    Args:
        frame: the coordinates.
        m: how many features are hidden.
        centre: of ``v``.
    """
    alike = _weakly(SLOPE_GRID, SLOPE_CENTRE * max(frame.size - (frame.constant is not None), 1), WEAKER)
    grid = LEVEL_GRID[:1] if frame.constant is None else LEVEL_GRID
    return np.asarray(alike[:, None] + _weakly(grid, centre / leaning_of(m)))


def find_common(told: Told, start: Strengths, guess: float) -> Strengths:
    """``κ₀`` and ``β`` as answers and contexts without one tell them, ``κ`` and ``v`` as they were; see above."""
    if told.rows <= 0 or 0 in told.D.shape or told.S.shape[1] == told.frame.size:
        return start
    bent = _find_bent(told, guess, start.levels) if told.frame.bent.any() else start.bent
    return start._replace(own=_find_own(told, guess, start.levels, bent), bent=bent)


def own_likelihoods(
    told: Told,
    guess: float,
    levels: float,
    bent: float = 1.0,
    looked_at: NDArray[np.int64] | None = None,
    whole: bool = False,
) -> Array:
    """Log posterior of every ``κ₀`` of the grid, up to a constant; hidden features one by one, their scales unknown.

    Args:
        told: the answers.
        guess: the prior's centre of ``κ₀``.
        levels: ``v``.
        bent: ``β``.
        looked_at: positions of the hidden features that count; ``None`` for all.
        whole: whether to take the regression over contexts without an answer for that within arms.
    """
    values, c, n = np.empty(len(OWN_GRID)), told.frame.constant, told.frame.size
    total = told.within(levels, whole).total
    if looked_at is not None:
        kept = np.concatenate([np.arange(n), n + looked_at])
        total = np.ascontiguousarray(total[np.ix_(kept, kept)])
    likelihoods_of_own(total, bent_metric(told, bent), (-1 if c is None else c, FLAT), OWN_GRID, told.rows, values)
    # log det D_β, for each hidden feature that varies
    varying = float(np.sum(np.diagonal(total)[n:] > 0.0))
    values += 0.5 * varying * float(np.sum(told.frame.bent)) * float(log(bent))
    return np.asarray(values + _weakly(OWN_GRID, guess))


def _find_own(told: Told, guess: float, levels: float, bent: float) -> float:
    """The least ``κ₀`` that is nearly as likely as the best.

    Where there are contexts without an answer, the lesser of two: slopes over all contexts may be the old policy's
    doing, while within arms there are none; or there are such within arms, while over all contexts they cancel.
    """
    slack = SLACK / (1.0 + told.informative(levels) / (MANY * told.frame.size))
    found = []
    for whole in (False, True) if told.unasked is not None else (False,):
        values = own_likelihoods(told, guess, levels, bent, whole=whole)
        found.append(float(OWN_GRID[int(np.argmax(values >= values.max() - slack))]))
    return min(found)


def _find_bent(told: Told, guess: float, levels: float) -> float:
    """The least ``β`` that is nearly as likely as the best, with the ``κ₀`` that goes with it.

    Found from hidden plain columns alone, if there are any: bends of hidden features do go with bends of recorded ones,
    but most of them have weights near zero.
    """
    columns = np.flatnonzero(told.straight) if told.straight.any() else None
    values = [
        float(own_likelihoods(told, guess, levels, bent, columns).max() + _weakly(bent, BENT_CENTRE))
        for bent in BENT_GRID
    ]
    return next(bent for bent, value in zip(BENT_GRID, values, strict=True) if value >= max(values) - SLACK)


def first_own(guess: float) -> float:
    """``κ₀`` before answers tell: ``1/E[1/κ₀]`` of its prior, since ``E[1/κ₀]`` is the coefficients' variance."""
    return guess * float(exp(-0.5 * WEAK * WEAK))


def first_strengths(frame: Frame, guess: float) -> Strengths:
    """Before answers tell: ``1/E[1/κ₀]`` and ``1/E[1/κ]`` of their priors, and the centre of that of ``v``.

    Args:
        frame: the coordinates.
        guess: the prior's centre of ``κ₀``.
    """
    p = max(frame.size - (frame.constant is not None), 1)
    slopes = SLOPE_CENTRE * p * float(exp(-0.5 * WEAKER * WEAKER))
    bent = BENT_GRID[1] if frame.bent.any() else 1.0
    return Strengths(first_own(guess), slopes, LEVEL_CENTRE, bent)


class Apart(NamedTuple):
    """Sums of the arms' residuals from the pooled regression, in coordinates of scale one but for a power of two.

    Feature by feature the log of the determinants is another one in other units, by as much as rounding then differs.

    Attributes:
        S: (K, n, n)  Gram matrices of the answers   D: (n, n)  second moments   mean: (n,)  of the coordinates.
        gap: (K, n, m)  ``U_a = Z_aᵀY_a = S12(a) − S11(a)θ_pool``.
        squares: (m, m)  ``Σ_aY_aᵀY_a``, and ``m + 1`` residuals of the pool.
        free: how many answers that is, less what the pool has used up.
    """

    S: Array
    D: Array
    mean: Array
    gap: Array
    squares: Array
    free: float

    @classmethod
    def of(cls, told: Told, pool: Pool) -> Apart:
        """The residuals of the arms' answers from the pooled regression, as sums."""
        n, m = pool.theta.shape
        gap = told.S[:, :n, n:] - product(told.S[:, :n, :n], pool.theta)
        leave = np.concatenate([-pool.theta, np.eye(m)])
        squares = product(leave.T, product(np.sum(told.S, axis=0), leave)) + (m + 1) * pool.residual
        used = n - float(np.sum(pool.inverse * pool.pull))
        free = max(float(np.sum(told.counts)) - used, 0.0) + m + 1
        S, D, mean = told.S[:, :n, :n], told.D, told.frame.mean
        # a feature that did not vary in the log has no scale in the frame
        if np.isnan(np.diagonal(told.frame.D)).any():
            scales = power_of_two(np.sqrt(np.diagonal(D)))
            both = scales[:, None] * scales
            S, D, mean, gap = S / both, D / both, mean / scales, gap / scales[:, None]
        return cls(np.ascontiguousarray(S), D, mean, gap, squares, free)


def between_likelihoods(told: Told, apart: Apart, slopes: float, grid: Array) -> Array:
    """Log likelihood of ``κ`` with every ``v`` of the grid, up to a constant; NaN where rounding leaves none.

    With ``Z_a`` an arm's regressors and ``Y_a`` what the pool leaves of its ``N_a`` answers' hidden features,
    ``Y_a ~ N(0, (I + Z_aQ⁻¹Z_aᵀ) ⊗ Σ)``.  ``Σ`` is unknown and takes its most likely value, so it is

        −½(N + m + 1) log det[Σ_aY_aᵀY_a − U_aᵀ(S_a + Q)⁻¹U_a + (m + 1)Σ₀] − ½m Σ_a log det(S_a + Q)/det Q

    with ``N`` and ``U_a`` of ``Apart``, and ``m + 1`` residuals ``Σ₀`` of the pool to start with.  Were ``Σ`` that of
    the pool's residuals, what arms differ by would make them look alike; were it that of regressions of the arms' own,
    which leave too little, alike arms would look different.
    """
    c, levels, values = told.frame.constant, np.ones(len(grid)), np.empty(len(grid))
    own = 1.0 if c is None else float(apart.D[c, c])
    if c is not None:
        levels = 1.0 / (1.0 + slopes * own * grid)
    residuals = apart.squares, apart.free
    between_arms(apart.S, apart.D, apart.gap, apart.mean * math.sqrt(own), slopes, levels, residuals, values)
    return values


def unanswered_chances(frame: Frame, m: int) -> Array:
    """Log prior of every ``κ`` and ``v``, as ``first_chances``, where nobody answered.

    Its centre is such that the mean of ``v`` is ``LEVEL_CENTRE``, which is what is claimed then.
    """
    return first_chances(frame, m, LEVEL_CENTRE * float(exp(-0.5 * WEAK * WEAK)))


def _find_between(told: Told, pool: Pool, start: Strengths) -> tuple[float, float, Array | None]:
    """``1/E[1/κ]``, as the nearest value of its grid, and the most likely ``v``, along the hidden weights.

    And the log posterior of both on their grids, −∞ where it was not looked at.

    The most likely ``κ`` is looked for from the one found last, and from there the grid to either side until ``FAR``
    below it.
    """
    apart, last = Apart.of(told, pool), len(SLOPE_GRID) - 1
    m = apart.gap.shape[2]
    expected = first_chances(told.frame, m)
    grid = LEVEL_GRID[: expected.shape[1]]
    found: dict[int, Array] = {}

    def at(i: int) -> float:
        if i not in found:
            values = between_likelihoods(told, apart, float(SLOPE_GRID[i]), grid) + expected[i]
            found[i] = np.where(np.isnan(values), -math.inf, values)
        return float(found[i].max())

    best, before = int(np.argmin(np.abs(log(SLOPE_GRID / start.slopes)))), -1
    while best != before:
        before = best
        best = max((best, min(best + 1, last), max(best - 1, 0)), key=at)
    if not math.isfinite(at(best)):
        # collinear features, and so many answers that rounding errors leave no likelihood finite
        return start.slopes, start.levels, None
    looked_at = [best]
    for side in (range(best + 1, last + 1), range(best - 1, -1, -1)):
        for i in side:
            if at(i) < at(best) - FAR:
                break
            looked_at.append(i)
    values = np.stack([found[i] for i in looked_at])
    # added up in order, so that no processor adds in another one
    weights = np.cumsum(exp(values - values.max()), axis=1)[:, -1]
    variance = np.cumsum(weights / SLOPE_GRID[looked_at])[-1] / np.cumsum(weights)[-1]
    slopes = SLOPE_GRID[int(np.argmin(np.abs(log(SLOPE_GRID * variance))))]
    levels = LEVEL_GRID[int(values.max(axis=0).argmax())]
    chances = np.full(expected.shape, -math.inf)
    chances[looked_at] = values
    return float(slopes), float(levels) * leaning_of(m), chances
