"""Radii of confidence sets, and the noise and errors that go into them.

Symbols are those of the package's docstring.
"""

from __future__ import annotations

import numpy as np

from sidelight.errors import InputError
from sidelight.kernels import ridge
from sidelight.linalg import apply, log, product, square
from sidelight.linalg import eigenvalues as symmetric_values
from sidelight.theory.quantiles import chi_square_quantile
from sidelight.theory.quantities import Floats, Numbers, probability

__all__ = [
    "anchor_error",
    "arm_radii",
    "bias_factor",
    "determinant_radius",
    "epoch_radius",
    "inflated_noise",
    "log_error_radius",
    "printed_epoch_radius",
    "printed_radius",
    "projected_estimate",
    "refresh_confidence",
]


def arm_radii(
    kind: int,
    *,
    counts: Numbers = 0.0,
    log_dets: Numbers = 0.0,
    dimensions: Numbers = 0.0,
    noises: Numbers = 1.0,
    prior_term: Numbers = 0.0,
    growth: Numbers = 0.0,
    union: Numbers = 0.0,
) -> Floats:
    """``√β`` for every entry of the broadcast arguments, by the compiled formula that the learners use.

    Args:
        kind: ``kernels.ridge.DETERMINANT`` (see :func:`determinant_radius`), ``PRINTED`` (see
            :func:`printed_radius`) or ``POSTERIOR`` (``σ``).
        counts: ``N_a``.
        log_dets: ``log det(Ṽ/λ)``.
        dimensions: ``m``.
        noises: ``σ_a``.
        prior_term: ``λS_w²``.
        growth: ``S_x²/λ``.
        union: ``log(1/δ_a)``; printed: ``log(K/δ)``.
    """
    parts = np.broadcast_arrays(counts, log_dets, dimensions, noises, prior_term, growth, union)
    table = np.array([np.asarray(part, dtype=np.float64).reshape(-1) for part in parts])
    out = np.empty(table.shape[1])
    ridge.radii_of(kind, table, out)
    return out.reshape(parts[0].shape)


def determinant_radius(log_det_ratio: Numbers, noise: Numbers, delta_per_arm: Numbers, prior_term: Numbers) -> Floats:
    """``√β = √(σ²(log det(Ṽ/λ) + 2 log(1/δ_a)) + λS_w²)``: the radius of ``‖Uᵀ(ŵ − w)‖_Ṽ``.

    With probability ``1 − δ_a``, for all rounds at once, if the noise is conditionally ``σ``-sub-Gaussian
    and ``‖Uᵀw‖ ≤ S_w``. Proof: the likelihood ratio of ``w̃`` against ``w``, mixed over ``w̃ ~ N(0,
    (σ²/λ)I)``, is a non-negative supermartingale that starts at 1, so by Ville's inequality it ever exceeds
    ``1/δ_a`` with probability at most ``δ_a``; its logarithm is ``(‖ŵ − w‖²_Ṽ − λ‖w‖²)/(2σ²) − ½ log
    det(Ṽ/λ)``.

    Differs from the print: the paper adds ``√λ S_w`` to a root whose argument is its bound on the
    determinant. That under-covers for ``m = 1`` with small ``√λ S_w`` and is loose otherwise; this covers
    for every ``m``.

    Args:
        log_det_ratio: ``log det(Ṽ/λ)``, scalar or ``(K,)``. With the kernel basis ``N = [−B; I]`` of ``[I,
            B]`` it is ``log det(NᵀVN) − log det(I + BᵀB) − m log λ``.
        noise: ``σ``.
        delta_per_arm: ``δ_a``, usually ``δ/K``.
        prior_term: ``λS_w²``.
    """
    union = -log(probability(delta_per_arm, "delta_per_arm"))
    return arm_radii(ridge.DETERMINANT, log_dets=log_det_ratio, noises=noise, prior_term=prior_term, union=union)


def printed_radius(
    counts: Numbers,
    dimension: Numbers,
    noise: float,
    regularization: float,
    context_bound: float,
    weight_bound: float,
    delta: float,
    n_arms: int,
) -> Floats:
    """``√β = √λ S_w + σ√(m log(K(1 + N_a S_x²/λ)/δ))``, as printed.

    For reproduction only: at ``m = 1`` with small ``√λ S_w`` it misses 7 to 14 % of the time at δ = 5 %; for
    ``m ≥ 2`` it covers but is wider than :func:`determinant_radius`. One thing differs from the print:
    ``N_a``, the rounds of the arm, ``counts`` (scalar or ``(K,)``), stands for the global ``t``, which only
    makes it wider.
    """
    return arm_radii(
        ridge.PRINTED,
        counts=counts,
        dimensions=dimension,
        noises=noise,
        prior_term=regularization * square(weight_bound),
        growth=square(context_bound) / regularization,
        union=log(n_arms / float(probability(delta, "delta"))),
    )


def projected_estimate(V: Floats, Y: Floats, anchors: Floats, basis: Floats, covariances: Floats) -> Floats:
    """``ŵ = anchor + N(NᵀVN)⁻¹Nᵀ(Y − V anchor)``: Algorithm 1's estimate, lines 5 and 6, without a pseudo-inverse.

    ``kernels.ridge_updates.refresh`` computes the same from sums that are kept in the coordinates of ``N``.

    Args:
        V: ``λI + Σ x xᵀ`` ``(K, d, d)``.
        Y: ``λμ + Σ x r`` ``(K, d)``.
        anchors: a solution of ``M w = b`` ``(K, d)``.
        basis: ``N`` ``(K, d, m)``, any basis of the kernel of ``M``.
        covariances: ``(NᵀVN)⁻¹`` ``(K, m, m)``.
    """
    residual = Y - apply(V, anchors)
    theta = apply(covariances, apply(np.swapaxes(basis, -1, -2), residual))
    estimate: Floats = anchors + apply(basis, theta)
    return estimate


def bias_factor(visits: Floats, covariance: Floats) -> Floats:
    """``f = σ_max(Ṽ^{-1/2} Ûᵀ (V − λI) M̂†)``: how far an error of the constraint moves the estimate.

    If ``M̂w`` is wrong by ``Δb``, the projected estimate moves by at most ``f‖Δb‖`` in the norm of ``Ṽ``.
    Computed as ``√λ_max(CᵀS⁻¹C)``, which is the same for every basis ``N`` of the kernel.

    Differs from the print: the paper bounds it by ``S_x√t√(m log(1 + tS_x²/λ))``
    (:func:`printed_visitation_bound`); ``S_x√N_a`` suffices (:func:`visitation_bound`), and the number
    itself is far smaller for contexts without a common direction.

    Args:
        visits: ``C = Nᵀ(Σ x xᵀ)M̂†`` ``(..., m, L)``.
        covariance: ``S⁻¹``, ``S = Nᵀ(λI + Σ x xᵀ)N`` ``(..., m, m)``.
    """
    visits = np.asarray(visits, dtype=np.float64)
    if visits.shape[-1] == 0 or visits.shape[-2] == 0:
        return np.zeros(visits.shape[:-2])
    squared = product(product(np.swapaxes(visits, -1, -2), covariance), visits)
    factor: Floats = np.sqrt(np.maximum(symmetric_values(squared)[..., -1], 0.0))
    return factor


def epoch_radius(radius: Numbers, factor: Numbers, weight_bound: Numbers, matrix_error: Numbers) -> Floats:
    """Algorithm 2's ``√β_n``: :func:`determinant_radius` plus ``S_w·ΔM_n·f``.

    Covers ``Ûᵀw`` (not ``x·w``: :func:`anchor_error` is the rest) when ``‖M − M̂‖ ≤ ΔM_n``, within an
    episode whose ``M̂`` is fixed. The radius is taken at ``δ/(2K·episodes)``: half of ``δ`` pays for ``ΔM_n``.

    Differs from the print: the bias is ``f S_w ΔM_n`` with the computed factor ``f`` of :func:`bias_factor`
    (scalar or ``(K,)``) instead of ``S_x S_w ΔM_n √t √(m log(·))``; at 10⁴ rounds the factor is 1 to 76
    instead of 759.
    """
    total: Floats = radius + np.multiply(np.multiply(weight_bound, matrix_error), factor)
    return total


def inflated_noise(
    noise: Numbers, counts: Numbers, context_bound: Numbers, weight_bound: Numbers, matrix_error: Numbers
) -> Floats:
    """``σ + S_x S_w ΔM_n √t``: by what the printed ``√β_n`` replaces ``σ``; ``counts`` (``N_a``) stands for ``t``."""
    error = np.multiply(np.multiply(context_bound, weight_bound), matrix_error)
    total: Floats = noise + error * np.sqrt(np.asarray(counts, dtype=np.float64))
    return total


def printed_epoch_radius(
    rounds: Numbers,
    dimension: int,
    noise: float,
    regularization: float,
    context_bound: float,
    weight_bound: float,
    delta: float,
    n_arms: int,
    *,
    matrix_error: Numbers,
) -> Floats:
    """``√λ S_w + (σ + S_x S_w ΔM_n √t) √(m log(K(1 + tS_x²/λ)/δ'))``, as printed; ``δ'`` is ``delta``."""
    inflated = inflated_noise(noise, rounds, context_bound, weight_bound, matrix_error)
    plain = printed_radius(rounds, dimension, 1.0, regularization, context_bound, 0.0, delta, n_arms)
    radius: Floats = np.sqrt(regularization) * weight_bound + inflated * plain
    return radius


def anchor_error(context_bound: Numbers, weight_bound: Numbers, matrix_error: Numbers) -> Floats:
    """``S_x S_w ΔM ≥ ‖M̂†ᵀx‖ S_w ΔM ≥ |x·M̂†Δb|``: what Algorithm 2's index lacks to be an upper bound of ``x·w``.

    The paper's index omits it, which leaves the choice unchanged only where it is the same for all arms; its proof has
    twice this, since it does not use ``‖M̂†‖ ≤ 1`` of ``M̂ = [I, B̂]``.
    """
    error: Floats = np.multiply(np.multiply(context_bound, weight_bound), matrix_error)
    return error


def refresh_confidence(delta: float, n_arms: int, n_settings: int, refresh: int) -> float:
    """``δ_k = δ/(2KJk(k+1))`` of refresh ``k ≥ 1`` with ``J`` settings fixed in advance; ``Σ_k 2KJδ_k = δ``.

    Ours (``radius="theory"`` of the fused learners): a union over arms, settings, refreshes and the two
    events that the confidence interval rests on, the online noise and the log's error.
    """
    if refresh < 1:
        raise InputError(f"refresh={refresh}: refreshes are counted from 1.")
    return float(probability(delta, "delta")) / (2.0 * n_arms * n_settings * refresh * (refresh + 1))


def log_error_radius(n_recorded: Numbers, delta: Numbers) -> Floats:
    """``γ = √χ²_L(1 − δ)``: ``‖Λ^{1/2}(b − M̂w)‖ ≤ γ`` with probability ``1 − δ``, for a large log. Ours.

    ``Λ`` is the inverse covariance of ``b − M̂w``, which is normal asymptotically in the rows of the log.
    """
    sizes, tails = np.broadcast_arrays(np.asarray(n_recorded, dtype=np.float64), probability(delta, "delta"))
    pairs = zip(sizes.ravel().tolist(), tails.ravel().tolist(), strict=True)
    squares = [chi_square_quantile(L, tail) if L > 0 else 0.0 for L, tail in pairs]
    return np.asarray(np.sqrt(np.array(squares).reshape(sizes.shape)))
