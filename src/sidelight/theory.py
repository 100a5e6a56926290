"""The paper's radii and bounds as functions of numbers, corrected where the print is loose or wrong.

Symbols: ``d`` features, ``L`` of them recorded, ``m = d − L`` hidden (the dimension that is left to learn),
``K`` arms, ``σ`` noise, ``λ`` regularization, ``S_x`` and ``S_w`` bounds on ``‖x‖`` and ``‖w_a‖``, ``δ`` the
probability of failure, ``N_a`` the rounds in which arm ``a`` was played, ``T`` the horizon. ``U`` is an
orthonormal basis of the kernel of ``M_a`` (``P_a = UUᵀ``), ``Ṽ = Uᵀ(λI + Σ x xᵀ)U``. Hats mark what was
computed from an estimate.

Every function says what differs from the print and why. The order: radii; the error of the estimated
constraint (matrix Bernstein, ``C_B1``, ``C_B2``, ``ΔM_n``, error propagation); potentials; regret; what a
finite log is worth. Functions named ``printed_*`` are the paper's formulas as they stand, for comparison and
reproduction only.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import InputError
from sidelight.kernels import ridge
from sidelight.linalg import apply, log, log1p, log_det, product
from sidelight.linalg import eigenvalues as symmetric_values

Floats: TypeAlias = NDArray[np.float64]
Numbers: TypeAlias = float | NDArray[Any]
"""A number, or an array over arms or rounds; results have the same shape."""


# --------------------------------------------------------------------------------------------------- radii


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
    union = -log(_probability(delta_per_arm, "delta_per_arm"))
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
        prior_term=regularization * weight_bound**2,
        growth=context_bound**2 / regularization,
        union=log(n_arms / float(_probability(delta, "delta"))),
    )


def projected_estimate(V: Floats, Y: Floats, anchors: Floats, basis: Floats, covariances: Floats) -> Floats:
    """``ŵ = anchor + N(NᵀVN)⁻¹Nᵀ(Y − V anchor)``: Algorithm 1's estimate, lines 5 and 6, without a pseudo-inverse.

    ``kernels.ridge.refresh`` computes the same from sums that are kept in the coordinates of ``N``.

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
    return float(_probability(delta, "delta")) / (2.0 * n_arms * n_settings * refresh * (refresh + 1))


def log_error_radius(n_recorded: Numbers, delta: Numbers) -> Floats:
    """``γ = √χ²_L(1 − δ)``: ``‖Λ^{1/2}(b − M̂w)‖ ≤ γ`` with probability ``1 − δ``, for a large log. Ours.

    ``Λ`` is the inverse covariance of ``b − M̂w``, which is normal asymptotically in the rows of the log.
    """
    from scipy.special import chdtri

    quantile: Floats = np.sqrt(chdtri(np.asarray(n_recorded, dtype=np.float64), _probability(delta, "delta")))
    return np.where(np.asarray(n_recorded) > 0, quantile, 0.0)


# ------------------------------------------------------------------- the error of the estimated constraint


def matrix_bernstein(variance: Numbers, bound: Numbers, n_rows: int, n_columns: int, delta: float) -> Floats:
    """``√(2v log((d_1 + d_2)/δ)) + (2/3) S log((d_1 + d_2)/δ)``: matrix Bernstein (Tropp 2015, theorem
    6.1.1).

    With probability ``1 − δ`` it bounds ``‖Σ_k A_k‖`` for independent, centred ``A_k`` ``(d_1, d_2)`` with
    ``‖A_k‖ ≤ S`` and ``v = max(‖Σ E A_k A_kᵀ‖, ‖Σ E A_kᵀA_k‖)``. As printed.
    """
    logarithm = log((n_rows + n_columns) / _probability(delta, "delta"))
    deviation: Floats = np.sqrt(2.0 * np.asarray(variance) * logarithm) + 2.0 / 3.0 * np.asarray(bound) * logarithm
    return deviation


class CrossMomentConstants(NamedTuple):
    """``‖M_a − M̂_{t,a}‖ ≤ C_B1/√t + C_B2/t``; each ``(K,)``, or their maximum over the arms."""

    leading: Floats
    """``C_B1``."""
    second_order: Floats
    """``C_B2``."""


def cross_moment_constants(
    recorded_moments: Floats,
    shares: Numbers,
    recorded_bound: float,
    hidden_bound: float,
    n_features: int,
    delta: float,
    horizon: int,
    hidden_traces: Numbers | None = None,
) -> CrossMomentConstants:
    """``C_B1(a)`` and ``C_B2(a)`` of the importance-weighted ``R̂12``, for each arm.

    With probability ``1 − δ/2``, for all arms and all episodes of Algorithm 2 (:func:`delta_m`)::

        C_B1(a) = λ_min(R11(a))⁻¹ √(2 S_1 S_2 √(tr R11(a) tr R22(a)) ℓ / P(a))
        C_B2(a) = (4/3) λ_min(R11(a))⁻¹ S_1 S_2 ℓ / P(a),         ℓ = log(2dK·episodes/δ)

    Proof: ``A_i = 1{a_i = a}x_o x_hᵀ/P(a) − R12(a)`` has ``‖A_i‖ ≤ 2S_1S_2/P(a)`` and ``‖E A_iA_iᵀ‖ ≤
    E[‖x_o‖²‖x_h‖² | a]/P(a) ≤ S_1S_2√(tr R11(a) tr R22(a))/P(a)``; then :func:`matrix_bernstein`.

    Differs from the print: 4/3 (matrix Bernstein) where the paper has 3/4; the logarithm carries the union
    bounds over arms and episodes that the paper claims; ``1/√P(a)`` instead of ``1/P(a)`` in ``C_B1``, with
    traces that are conditional on the arm, since the indicator's second moment is ``P(a)``, not 1; a number
    for each arm instead of the maximum. The main text's ``f_B1``, ``f_B2`` are known up to logarithms only
    and cannot be computed.

    Args:
        recorded_moments: ``R11(a)`` ``(K, L, L)``.
        shares: ``P(a)`` ``(K,)``.
        recorded_bound: ``S_1 ≥ ‖x_o‖``.
        hidden_bound: ``S_2 ≥ ‖x_h‖``.
        n_features: ``d``.
        delta: ``δ`` of Algorithm 2; half of it is spent here.
        horizon: ``T``; sets the number of episodes, ``⌈log₂ T⌉``.
        hidden_traces: ``tr R22(a) = E[‖x_h‖² | a]`` ``(K,)``; ``S_2²``, which bounds it, if left out.
    """
    recorded_moments, shares, inverse, traces = _moment_parts(recorded_moments, shares, hidden_bound, hidden_traces)
    n_arms = len(shares)
    union = 2.0 * n_features * n_arms * episode_count(horizon)
    logarithm = log(union / _probability(delta, "delta"))
    spread = recorded_bound * hidden_bound
    leading: Floats = inverse * np.sqrt(2.0 * spread * traces * logarithm / shares)
    second: Floats = 4.0 / 3.0 * inverse * spread * logarithm / shares
    return CrossMomentConstants(leading, second)


def printed_cross_moment_constants(
    recorded_moments: Floats,
    shares: Numbers,
    recorded_bound: float,
    hidden_bound: float,
    n_features: int,
    delta: float,
    hidden_traces: Numbers | None = None,
) -> CrossMomentConstants:
    """``C_B1``, ``C_B2`` as printed, the maximum over arms; see :func:`cross_moment_constants` for what is
    wrong.

    The print's traces are not conditional on the arm: they are averaged here by ``P(a)``. Algorithm 2 calls
    it with ``delta = δ/(2 log T)``.
    """
    recorded_moments, shares, inverse, _ = _moment_parts(recorded_moments, shares, hidden_bound, hidden_traces)
    recorded_trace = shares @ np.trace(recorded_moments, axis1=1, axis2=2)
    hidden_trace = hidden_bound**2 if hidden_traces is None else shares @ np.asarray(hidden_traces)
    logarithm = log(n_features / _probability(delta, "delta"))
    spread = recorded_bound * hidden_bound
    worst = np.max(inverse / shares)
    leading: Floats = worst * np.sqrt(2.0 * spread * np.sqrt(recorded_trace * hidden_trace) * logarithm)
    return CrossMomentConstants(leading, np.asarray(0.75 * worst * spread * logarithm))


def _moment_parts(
    recorded_moments: Floats, shares: Numbers, hidden_bound: float, hidden_traces: Numbers | None
) -> tuple[Floats, Floats, Floats, Floats]:
    """``R11(a)``, ``P(a)``, ``λ_min(R11(a))⁻¹`` and ``√(tr R11(a) tr R22(a))``, the last three ``(K,)``."""
    moments = np.asarray(recorded_moments, dtype=np.float64)
    chances = np.asarray(shares, dtype=np.float64)
    if moments.ndim != 3 or moments.shape[1] != moments.shape[2] or chances.shape != moments.shape[:1]:
        raise InputError(
            f"recorded_moments has shape {moments.shape} and shares {chances.shape}; pass R11 (K, L, L) and P(a) (K,)."
        )
    smallest = symmetric_values(moments)[:, 0]
    if not (chances > 0).all() or not (smallest > 0).all():
        arm = int(np.argmin(np.minimum(chances, smallest)))
        raise InputError(
            f"arm {arm} has share {chances[arm]:g} and smallest eigenvalue of R11 {smallest[arm]:g}; both must "
            "be positive. Drop an arm that the log lacks, and recorded features that depend on others."
        )
    hidden = np.full(len(chances), hidden_bound**2) if hidden_traces is None else np.asarray(hidden_traces)
    traces: Floats = np.sqrt(np.trace(moments, axis1=1, axis2=2) * hidden)
    inverse: Floats = np.reciprocal(smallest, dtype=np.float64)
    return moments, chances, inverse, traces


def delta_m(constants: CrossMomentConstants, samples: Numbers) -> Floats:
    """``ΔM = C_B1/√t + C_B2/t ≥ ‖M_a − M̂_{t,a}‖`` after ``t`` answers; ``t = 2ⁿ`` in episode ``n``.

    Differs from the print: the constants are the corrected ones of :func:`cross_moment_constants` and one for each
    arm, where the print has the maximum over the arms (and the main text ``f_B1``, ``f_B2``, which cannot be
    computed); the union over arms and episodes is paid for in their logarithm, where the print evaluates them at
    ``δ/(2 log T)`` alone. The form of the sum, and ``t = 2ⁿ`` from ``n = 0``, are the appendix's.
    """
    samples = np.asarray(samples, dtype=np.float64)
    error: Floats = constants.leading / np.sqrt(samples) + constants.second_order / samples
    return error


class ErrorPropagation(NamedTuple):
    """What an error ``‖M − M̂‖ ≤ ΔM`` does, for ``M = [I, B]``: :func:`error_propagation`."""

    projection: Floats
    """``‖P − P̂‖ ≤ ΔM``."""
    pseudo_inverse: Floats
    """``‖M† − M̂†‖ ≤ ΔM``."""
    coefficients: Floats
    """``‖b − M̂w‖ ≤ S_w ΔM``."""


def error_propagation(matrix_error: Numbers, weight_bound: Numbers) -> ErrorPropagation:
    """The three claims of the error-propagation lemma, for ``M = [I, B]`` and ``M̂ = [I, B̂]`` only.

    Differs from the print: 1 instead of 2 in the first two. Proof of the second: with ``E = M̂ − M = [0,
    F]``, ``M̂† − M† = −M̂†EM† + P̂Eᵀ(MMᵀ)⁻¹``, whose terms have orthogonal ranges, so that for unit ``v``
    the squared norm is at most ``‖F‖²(‖Bᵀ(I + BBᵀ)⁻¹v‖² + ‖(I + BBᵀ)⁻¹v‖²) = ‖F‖² vᵀ(I + BBᵀ)⁻¹v ≤ ‖F‖²``.
    The first is Chen et al.'s ``min(‖M†‖, ‖M̂†‖)‖E‖`` with ``‖M†‖ ≤ 1``, which holds for ``[I, B]`` and not
    for every ``M``.
    """
    error = np.asarray(matrix_error, dtype=np.float64)
    return ErrorPropagation(error, error, np.asarray(weight_bound) * error)


# ---------------------------------------------------------------------------------------------- potentials


def elliptical_potential_bound(rounds: Numbers, dimension: int, context_bound: float, regularization: float) -> Floats:
    """``Σ_i min(‖x_i‖²_{V_{i−1}⁻¹}, 1) ≤ 2 log det(V_t/λ) ≤ 2m log(1 + tS_x²/(mλ))``.

    Differs from the print, which has ``2m log(λ + tS_x²/m)``: that forgets ``−2 log det(λI)``, and for λ < 1
    it can be less than the sum. Without the minimum and with ``V_i`` for ``V_{i−1}`` half of this bounds the
    sum.
    """
    if dimension == 0:
        return np.zeros(np.shape(rounds))
    growth = np.asarray(rounds, dtype=np.float64) * context_bound**2 / (dimension * regularization)
    bound: Floats = 2.0 * dimension * log1p(growth)
    return bound


def visitation_bound(counts: Numbers, context_bound: float) -> Floats:
    """``σ_max(Ṽ^{-1/2}X̃ᵀX) ≤ S_x√N_a`` (cumulative visitation).

    Differs from the print (:func:`printed_visitation_bound`): ``X̃ᵀX̃ ⪯ Ṽ`` makes ``‖Ṽ^{-1/2}X̃ᵀ‖ ≤ 1``, so
    neither ``m`` nor the logarithm is needed. The number itself is :func:`bias_factor` with ``M̂† = I``.
    """
    bound: Floats = context_bound * np.sqrt(np.asarray(counts, dtype=np.float64))
    return bound


def printed_visitation_bound(rounds: Numbers, dimension: int, context_bound: float, regularization: float) -> Floats:
    """``S_x√t√(m log(1 + tS_x²/λ))``, as printed: valid, and larger than needed but for very few rounds."""
    rounds = np.asarray(rounds, dtype=np.float64)
    bound: Floats = context_bound * np.sqrt(rounds * dimension * log1p(rounds * context_bound**2 / regularization))
    return bound


# -------------------------------------------------------------------------------------------------- regret


def largest_radius(
    rounds: Numbers,
    dimension: int,
    noise: float,
    regularization: float,
    context_bound: float,
    weight_bound: float,
    delta_per_arm: float,
) -> Floats:
    """The largest :func:`determinant_radius` of ``t`` rounds: ``log det(Ṽ/λ) ≤ m log(1 + tS_x²/(mλ))``.

    Differs from the print, whose regret bounds take its radius (:func:`printed_radius`) at ``t = T``: as in
    :func:`determinant_radius` the prior term stands under the root, and ``2 log(1/δ_a)`` replaces ``m log(1/δ_a)``; the
    determinant is bounded with ``mλ``, not ``λ``, under ``tS_x²``. All ``t`` rounds are counted as if they were the
    arm's own, so it bounds the radius of every arm.
    """
    ratio = 0.5 * elliptical_potential_bound(rounds, dimension, context_bound, regularization)
    return determinant_radius(ratio, noise, delta_per_arm, regularization * weight_bound**2)


def projected_regret_bound(
    horizon: Numbers,
    n_arms: int,
    dimension: int,
    noise: float = 1.0,
    regularization: float = 1.0,
    context_bound: float = 1.0,
    weight_bound: float = 1.0,
    delta: float = 0.05,
) -> Floats:
    """Theorem 1: ``Regret(T) ≤ 2√2 max(√β_T, S_xS_w) √(T m K log(1 + TS_x²/(mKλ)))``, with probability ``1 −
    δ``.

    ``√β_T`` is :func:`largest_radius` at ``δ/K``; ``dimension`` is ``m = d − L`` (``d`` for OFUL; 0 gives 0:
    the log fixes everything). Assumes known ``M_a w_a = b_a`` (an infinite log), ``α = 1``, ``‖x‖ ≤ S_x``,
    ``‖w_a‖ ≤ S_w``.

    Differs from the print: the factor √2 that its last lines drop; the corrected elliptical potential
    (``log(1 + ·/λ)`` for ``log(λ + ·)``); and ``max(√β, S_xS_w)``, which replaces the silent assumptions
    ``√β ≥ 1`` and ``S_xS_w ≤ 1``: a round's regret is at most ``2√β‖Uᵀx‖`` and at most ``2S_xS_w``, hence at
    most ``2 max(√β, S_xS_w) min(‖Uᵀx‖, 1)``.
    """
    horizon = np.asarray(horizon, dtype=np.float64)
    settings = (dimension, noise, regularization, context_bound, weight_bound)
    radius = np.maximum(largest_radius(horizon, *settings, delta / n_arms), context_bound * weight_bound)
    bound: Floats = 2.0 * radius * np.sqrt(horizon * _potential_over_arms(horizon, n_arms, *settings))
    return bound


def _potential_over_arms(
    rounds: Numbers,
    n_arms: int,
    dimension: int,
    noise: float,
    regularization: float,
    context_bound: float,
    weight_bound: float,
) -> Floats:
    """``Σ_a 2m log(1 + N_aS_x²/(mλ)) ≤ 2mK log(1 + tS_x²/(mKλ))``, by concavity."""
    per_arm = np.asarray(rounds, dtype=np.float64) / n_arms
    potential: Floats = n_arms * elliptical_potential_bound(per_arm, dimension, context_bound, regularization)
    return potential


def printed_projected_regret_bound(
    horizon: Numbers,
    n_arms: int,
    dimension: int,
    noise: float = 1.0,
    regularization: float = 1.0,
    context_bound: float = 1.0,
    weight_bound: float = 1.0,
    delta: float = 0.05,
) -> Floats:
    """Theorem 1's last line as printed: a factor √2 too small, and with ``log(λ + ·)``. Not a bound.

    0 at ``m = 0``, its limit. NaN where the printed logarithm is negative (``λ < 1`` and few rounds), since it stands
    under a root.
    """
    horizon = np.asarray(horizon, dtype=np.float64)
    if dimension == 0:
        return np.zeros(horizon.shape)
    radius = printed_radius(horizon, dimension, noise, regularization, context_bound, weight_bound, delta, n_arms)
    potential = dimension * n_arms * log(regularization + horizon * context_bound**2 / (dimension * n_arms))
    bound: Floats = 2.0 * np.sqrt(horizon) * radius * np.sqrt(np.where(potential < 0, np.nan, potential))
    return bound


def episode_count(horizon: int) -> int:
    """``⌈log₂ T⌉``, at least 1: one initial round, then episodes of ``1, 2, 4, …`` rounds, the last cut at
    ``T``.

    The print starts at ``n = 0`` or ``n = 1`` and covers ``T − 1`` or ``T − 2`` rounds of a power of two.
    """
    if horizon < 1:
        raise InputError(f"horizon={horizon}: there must be at least one round.")
    return max(1, int(horizon - 1).bit_length())


def episode_lengths(horizon: int) -> list[int]:
    """Rounds of each episode after the initial round; they sum to ``T − 1``.

    Differs from the print, whose episodes ``n = 0, …, log T − 1`` of ``2ⁿ`` rounds sum to ``T − 1`` only if ``T`` is a
    power of two and leave out the round whose answer the first episode needs (the appendix's listing starts at ``n =
    1`` and leaves out more): here that initial round comes first, the logarithm has base 2, and the last episode is
    cut at ``T``, whatever ``T`` is.

    Examples:
        >>> episode_lengths(16), episode_lengths(20)
        ([1, 2, 4, 8], [1, 2, 4, 8, 4])
    """
    return [min(2**n, horizon - 2**n) for n in range(episode_count(horizon)) if horizon > 2**n]


def epoch_regret_bound(
    horizon: int,
    n_arms: int,
    dimension: int,
    constants: CrossMomentConstants,
    noise: float = 1.0,
    regularization: float = 1.0,
    context_bound: float = 1.0,
    weight_bound: float = 1.0,
    *,
    delta: float = 0.05,
    closed_form: bool = False,
) -> float:
    """Theorem 2: a bound on the regret of Algorithm 2 that holds with probability ``1 − δ``.

    The sum over episodes ``n`` of ``τ ≤ 2ⁿ`` rounds, plus ``2S_xS_w`` for the initial round::

        2√2 max(√β(τ) + S_xS_wΔM_n√τ, S_xS_w) √(τ m K log(1 + τS_x²/(mKλ))) + 2 S_xS_w τ ΔM_n

    with ``√β(τ)`` of :func:`largest_radius` at ``δ/(2K·episodes)`` and ``ΔM_n`` of :func:`delta_m`. With
    ``closed_form`` the cruder closed form, whose leading term reads like the paper's::

        c√(TmK log(1 + TS_x²/(mKλ)))(max(√β(T), S_xS_w) + S_xS_wC_B1) + 2S_xS_w(c'√T C_B1 + E C_B2 + 1)
            + 2√2 E S_xS_w C_B2 √(mK log(1 + TS_x²/(mKλ))),     c' = √(4 + 2√2), c = 2√2 c' ≈ 7.39, E episodes

    (``c' = 1 + √2``, ``c ≈ 6.83`` where ``T`` is a power of two.)

    Differs from the print: its leading constant 3 is too small (``Σ2^{n/2} = (1+√2)(√T − 1)``, not
    √(2T), and √2 is lost as in theorem 1); the bias in the radius needs neither ``m`` nor a logarithm;
    ``2S_xS_wΔM`` per round instead of 3; the initial round is counted; no silent ``√β ≥ 1``, ``S_xS_w ≤ 1``.
    In the paper's own setting this bound is never below OFUL's (:func:`projected_regret_bound` with ``m =
    d``): the theorem shows a rate, not a gain.

    ``constants`` come from :func:`cross_moment_constants` with the same ``delta`` and ``horizon``; their
    maximum over the arms enters. Assumes a log so long that ``b_a``, ``R11(a)`` and ``P(a)`` are exact,
    ``M̂`` by importance weighting, ``α = 1``, one answer of the old policy in each round.
    """
    episodes = episode_count(horizon)
    settings = (dimension, noise, regularization, context_bound, weight_bound)
    delta_per_arm = delta / (2.0 * n_arms * episodes)
    scale = context_bound * weight_bound
    worst = CrossMomentConstants(*(np.asarray(np.max(constant)) for constant in constants))
    if closed_form:
        root_sum = 1.0 + np.sqrt(2.0) if horizon == 2**episodes else np.sqrt(4.0 + 2.0 * np.sqrt(2.0))
        potential = np.sqrt(_potential_over_arms(horizon, n_arms, *settings))
        radius = np.maximum(largest_radius(horizon, *settings, delta_per_arm), scale) + scale * worst.leading
        root_horizon = root_sum * np.sqrt(horizon)
        total = 2.0 * root_horizon * radius * potential
        total += 2.0 * scale * (root_horizon * worst.leading + episodes * worst.second_order + 1.0)
        total += 2.0 * episodes * scale * worst.second_order * potential
        return float(total)
    total = 2.0 * scale
    for n, rounds in enumerate(episode_lengths(horizon)):
        error = delta_m(worst, 2.0**n)
        radius = largest_radius(rounds, *settings, delta_per_arm) + scale * error * np.sqrt(rounds)
        potential = np.sqrt(rounds * _potential_over_arms(rounds, n_arms, *settings))
        total += 2.0 * np.maximum(radius, scale) * potential + 2.0 * scale * rounds * error
    return float(total)


# ------------------------------------------------------------------------------------- what a log is worth


def finite_log_penalty(
    horizon: float,
    context_bound: float,
    pseudo_inverse: Floats,
    coefficient_error: Floats | None = None,
    covariance: Floats | None = None,
) -> Floats:
    """``T·S_x·‖M†δb‖`` for each arm: about what a hard constraint pays in ``T`` rounds for the error of a
    finite log.

    The paper's discussion names a linear penalty without computing it. ``M w = b + δb`` shifts the estimate
    by ``M†δb``, up to what the free directions can make good, so the reward of a round is off by up to
    ``S_x‖M†δb‖``, for ever. An order of magnitude, not a bound: the regret of a round involves two arms, and
    only errors that change the choice cost anything.

    Args:
        horizon: ``T``.
        context_bound: ``S_x``.
        pseudo_inverse: ``M†`` ``(..., d, L)``.
        coefficient_error: ``δb`` ``(..., L)``, where it is known (a simulation), or
        covariance: of ``b``, ``(..., L, L)``, as a log reports it (``s²G⁻¹``): ``‖M†δb‖`` is then its root
            mean square ``√tr(M† C M†ᵀ)``.
    """
    if coefficient_error is not None and covariance is None:
        shift = np.einsum("...dl,...l->...d", pseudo_inverse, coefficient_error)
        squared = (shift**2).sum(axis=-1)
    elif covariance is not None and coefficient_error is None:
        squared = ((pseudo_inverse @ covariance) * pseudo_inverse).sum(axis=(-1, -2))
    else:
        raise InputError("pass either coefficient_error (δb) or covariance (of b), not both and not neither.")
    penalty: Floats = horizon * context_bound * np.sqrt(squared)
    return penalty


def equivalent_rounds(information: Floats, context_moments: Floats, regularization: float) -> float:
    """How many online rounds of an arm hold as much information as the log does about it. Ours.

    The ``n`` with ``log det(I + nΣ/λ) = log det(I + J/λ)``, where ``J`` ``(d, d)`` is the log's precision in
    units of the online noise (``σ²MᵀΛM``) and ``Σ = E[xxᵀ]`` ``(d, d)``. A log knows nothing about its
    hidden directions, so the number is finite however long the log is, and small if those directions carry
    most of the weight.
    """
    information, context_moments = np.asarray(information), np.asarray(context_moments)
    identity = np.eye(len(information))
    target = float(log_det(identity + information / regularization))
    eigenvalues = np.maximum(symmetric_values(context_moments), 0.0) / regularization
    if target <= 0:
        return 0.0
    if eigenvalues[-1] == 0:
        raise InputError("context_moments is zero: no number of such rounds holds any information.")
    low, high = 0.0, 1.0
    while log1p(high * eigenvalues).sum() < target:
        high *= 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if log1p(middle * eigenvalues).sum() < target else (low, middle)
    return 0.5 * (low + high)


def _probability(value: Numbers, name: str) -> Floats:
    """``value`` as an array, checked to be a probability of failure in (0, 1]."""
    array = np.asarray(value, dtype=np.float64)
    if not ((array > 0) & (array <= 1)).all():
        raise InputError(f"{name}={array}: a probability of failure lies between 0 (excluded) and 1.")
    return array
