"""How far the arms' regressions of hidden on recorded features may be off: ``A``, ``Σ_e`` and a bound from them.

The model and its letters are those of ``hidden.pooling``; what a regression errs by is ``(B − B̂)w_h``, with covariance
``τ²A⁻¹`` and ``τ² = w_hᵀΣ_ew_h``.
"""

from __future__ import annotations

import math

import numpy as np

from sidelight.hidden.frame import FADING, unitless_pseudo_inverse
from sidelight.hidden.framed_sums import Told
from sidelight.hidden.pooling import Fit, Pool
from sidelight.hidden.protocol import AS_EXPECTED, Differences, Scales
from sidelight.hidden.strengths import LEVEL_GRID, SLOPE_GRID, Strengths
from sidelight.hidden.sums import AnswerSums
from sidelight.hidden.unasked import leaning_of
from sidelight.kernels.answers import answers_precision
from sidelight.kernels.answers import residual_moments as residual_moments_of_arms
from sidelight.linalg import Array, eigenvalues, log, product, pseudo_inverse, solve, square, symmetrize
from sidelight.theory import episode_count

__all__ = [
    "asymptotic_bound",
    "cautious_precision",
    "differences",
    "level_moments",
    "pooled_precision",
    "residual_moments",
    "unpooled_precision",
]

#: the least pull, in answers, with which the answers that a regression has used up are counted
LEAST_PULL = 1e-8


def pooled_precision(told: Told, pool: Pool, fit: Fit, levels: float, scales: Scales = AS_EXPECTED) -> Array:
    """``A``: (K, L, L), the effective Gram matrix of the answers, of regressions that are pulled to the pooled one.

    ``A⁻¹ = Cov(B̂_a w_h)/τ² = EW⁻¹(S² + Q + F + Q Cov(θ_pool) Q)W⁻¹Eᵀ`` with ``W = S + Q``: sampling noise of the arm's
    own answers, its random effect, how its level fades (``_fading_error``), and the pooled regression, which enters
    with weight ``W⁻¹Q``.  ``E`` leads from slopes and level to ``B``.  Without a constant among the recorded features
    ``u_a`` errs by the log's rows, which ``level_moments`` accounts for.  Weighted answers count by
    ``A_p(Σω²xxᵀ)⁻¹A_p`` (see ``Told``).

    Args:
        told: the answers.
        pool: the regression over all arms.
        fit: those of the arms.
        levels: ``v``.
        scales: by how much more than expected arms differ, see ``differences``.
    """
    E = told.frame.projection
    K, L, n = E.shape
    A = np.empty((K, L, L))
    shared, middle = _shared_error(pool, fit), told.squared + _fading_error(told, fit, levels)
    if scales != AS_EXPECTED:
        slopes, level = _expected_differences(told, fit, levels)
        shared = shared + (scales.slopes - 1.0) * slopes + (scales.levels - 1.0) * level
    if not answers_precision(told.S, middle, fit.pull, shared, E, A):
        # collinear features, and so many answers that rounding errors exceed the prior: use pseudo-inverses
        for a in np.flatnonzero(np.isnan(A).any(axis=(1, 2))):
            H = product(pseudo_inverse(told.S[a, :n, :n] + fit.pull), E[a].T)
            C = symmetrize(product(H.T, product(middle[a] + shared, H)))
            A[a] = unitless_pseudo_inverse(C)
    return A


def differences(told: Told, pool: Pool, fit: Fit, at: Strengths, chances: Array) -> Differences | None:
    """The parts of ``A⁻¹`` that come from how much arms are expected to differ; None where rounding leaves none.

    How alike arms are, ``κ`` and ``v``, is hardly told by few answers, and then what is claimed is what their priors
    expect.  With ``κ`` and ``v`` for the pull, and slopes and levels that differ by ``c_s`` and ``c_l`` times as much,
    ``Q`` between ``W⁻¹`` and ``W⁻¹`` is ``c_sQ`` for slopes and ``c_lQ`` for the level; and so is what contexts without
    an answer err by (``Unasked``).

    Args:
        told: the answers.
        pool: the regression over all arms.
        fit: those of the arms.
        at: the strengths of pooling.
        chances: (p, q)  log posterior of every ``κ`` and ``v`` of their grids, ``strengths.find_strengths``.
    """
    E = told.frame.projection
    n = E.shape[2]
    try:
        H = solve(told.S[:, :n, :n] + fit.pull, np.swapaxes(E, 1, 2))
    except np.linalg.LinAlgError:
        return None
    Ht = np.swapaxes(H, 1, 2)
    slopes, level = _expected_differences(told, fit, at.levels)
    rest = told.squared + _fading_error(told, fit, at.levels) + (_shared_error(pool, fit) - slopes - level)
    of_level, of_levels = np.zeros(E.shape[:2]), np.ones(chances.shape[1])
    # estimators of older files may have 0, no level at all, of which there are no multiples
    if (c := told.frame.constant) is not None and at.levels > 0.0:
        of_level = math.sqrt(level[c, c]) * H[:, c]
        of_levels = LEVEL_GRID * leaning_of(len(told.unit)) / at.levels
    scales = np.asarray(at.slopes / SLOPE_GRID), of_levels
    return Differences(product(Ht, product(rest, H)), product(Ht, product(slopes, H)), of_level, scales, chances)


def _expected_differences(told: Told, fit: Fit, levels: float) -> tuple[Array, Array]:
    """The parts (n, n) of ``_shared_error`` that come from the arms' slopes and from their levels.  levels: ``v``"""
    slopes, level, c = fit.pull.copy(), np.zeros_like(fit.pull), told.frame.constant
    if c is not None:
        slopes[c], slopes[:, c] = 0.0, 0.0
        level[c, c] = fit.pull[c, c]
    if told.unasked is not None and c is not None:
        W, noise = told.unasked.by_differences(levels)
        slopes += symmetrize(product(product(fit.share.T, noise), fit.share))
        level[c, c] += W[c, c] * square(fit.share[c, c])
    return slopes, level


def _shared_error(pool: Pool, fit: Fit) -> Array:
    """``Q + Q Cov(θ_pool) Q``: (n, n)."""
    return np.asarray(fit.pull + symmetrize(product(product(fit.share.T, pool.noise + pool.pull), fit.share)))


def _fading_error(told: Told, fit: Fit, levels: float) -> Array:
    """(K, n, n)  ``f²v(Qp_a)(Qp_a)ᵀ``: the standard error of an arm's fading is taken to be ``f`` itself.

    A shift that fades by more or less is a difference of slopes along ``p_a`` that ``Q`` holds back.
    """
    held = FADING * product(told.frame.preferred, fit.pull)
    return np.asarray(levels * (held[:, :, None] * held[:, None, :]))


def unpooled_precision(sums: AnswerSums) -> Array:
    """``A_p(Σω²x_ox_oᵀ)⁺A_p`` with ``A_p = Σωx_ox_oᵀ``: (K, L, L), the Gram matrix itself if every weight is one."""
    gram = sums.S11
    return symmetrize(product(product(gram, unitless_pseudo_inverse(sums.S_squared)), gram))


def cautious_precision(sums: AnswerSums) -> Array:
    """``Σωx_ox_oᵀ/max ω``: (K, L, L), for regressions without pooling; see ``EstimatorDefaults``.

    ``E[ω²(e·w_h)²x_ox_oᵀ] ⪯ max ω · E[ω(e·w_h)²x_ox_oᵀ]``, and the latter is ``E[(e·w_h)²x_ox_oᵀ | a]`` for each of
    ``Σω`` answers.  ``unpooled_precision`` takes ``ω`` and ``e`` for unrelated, which they are not where the old policy
    looks at hidden features.
    """
    heaviest = sums.heaviest
    return np.asarray(sums.S11 / np.where(heaviest > 0.0, heaviest, 1.0)[:, None, None])


def level_moments(told: Told, fit: Fit) -> Array | None:
    """``E(1 − u_a·x_o)²c_ac_aᵀ``: (K, m, m), what ``x_o`` cannot tell of a level; None with a constant in ``x_o``.

    A logged reward has ``c_a·w_h`` in it, and ``b = G⁻¹Σx_or`` errs by ``(û_a − u_a)(c_a·w_h)``, ``û_a = G⁻¹Σx_o``.
    So does ``B̂_aw_h = F̂_aw_h + û_a(ĉ_a·w_h)``, and of the difference nothing is left.
    """
    if not told.frame.missing.any():
        return None
    levels = told.frame.levels(fit.plain, told.means) * told.unit
    return np.asarray(told.frame.missing[:, None, None] * (levels[:, :, None] * levels[:, None, :]))


def residual_moments(told: Told, pool: Pool, fit: Fit, strength: float, prior: float) -> Array:
    """``Σ_e``: (K, m, m), second moments of what the arms' regressions leave of the hidden features.

    Of an arm's residuals ``tr SW⁻¹`` are used up by its own regression, and ``tr SW⁻¹QT⁻¹`` by the pooled one
    (``T`` its Gram matrix).  Nothing is subtracted there, so that neither a strong nor a weak pull loses digits.

    Args:
        told: the answers.
        pool: the regression over all arms.
        fit: those of the arms.
        strength: ``κ``.
        prior: how many residuals of the pooled regression an arm's own start with.
    """
    m = len(told.unit)
    found = np.empty((len(told.S), m, m))
    pull, used = fit.pull + 1e-12 * told.D, np.array(fit.share.T, order="C")
    # without pooling fewer answers than features leave a singular matrix: rounding is small beside what is added
    np.einsum("ii->i", pull)[...] += max(LEAST_PULL - strength, 0.0) * np.diagonal(told.D)
    np.einsum("ii->i", used)[...] += 1.0
    residual_moments_of_arms(told.S, told.counts, fit.theta, pull, used, pool.residual, prior, found)
    found = np.asarray(found * told.unit[:, None] * told.unit)
    # without a constant among the recorded features the level is predicted by u_a·x_o, which errs
    level = level_moments(told, fit)
    return found if level is None else found + level


def asymptotic_bound(precision: Array, residual: Array, delta: float, horizon: int) -> Array:
    """``ΔM``: (K,)  ``‖A^{−1/2}‖‖Σ_e^{1/2}‖(√L + √m + √(2 log(2K·episodes/δ)))``, for which there is no proof.

    Args:
        precision: ``A`` (K, L, L).
        residual: ``Σ_e`` (K, m, m).
        delta: ``δ``: it is to hold for all arms and episodes with probability ``1 − δ/2``.
        horizon: number of rounds.
    """
    K, L, m = len(precision), precision.shape[-1], residual.shape[-1]
    spread = eigenvalues(residual)[:, -1]
    weakest = np.maximum(eigenvalues(precision)[:, 0], 1e-300)
    union = 2.0 * K * episode_count(horizon) / delta
    # two roots: the quotient may overflow, and whether there is a bound does not depend on the features' units
    ratio = np.sqrt(spread) / np.sqrt(weakest)
    return np.asarray(ratio * (math.sqrt(L) + math.sqrt(m) + math.sqrt(2.0 * log(union))))
