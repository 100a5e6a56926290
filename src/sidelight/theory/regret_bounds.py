"""Elliptical potentials, and the bounds on regret that follow from them.

Symbols are those of the package's docstring.
"""

from __future__ import annotations

import numpy as np

from sidelight.linalg import log, log1p, square
from sidelight.theory.episodes import episode_count, episode_lengths
from sidelight.theory.matrix_error import CrossMomentConstants, delta_m
from sidelight.theory.quantities import Floats, Numbers
from sidelight.theory.radii import determinant_radius, printed_radius

__all__ = [
    "elliptical_potential_bound",
    "epoch_regret_bound",
    "largest_radius",
    "printed_projected_regret_bound",
    "printed_visitation_bound",
    "projected_regret_bound",
    "visitation_bound",
]


def elliptical_potential_bound(rounds: Numbers, dimension: int, context_bound: float, regularization: float) -> Floats:
    """``Σ_i min(‖x_i‖²_{V_{i−1}⁻¹}, 1) ≤ 2 log det(V_t/λ) ≤ 2m log(1 + tS_x²/(mλ))``.

    Differs from the print, which has ``2m log(λ + tS_x²/m)``: that forgets ``−2 log det(λI)``, and for λ < 1
    it can be less than the sum. Without the minimum and with ``V_i`` for ``V_{i−1}`` half of this bounds the
    sum.
    """
    if dimension == 0:
        return np.zeros(np.shape(rounds))
    growth = np.asarray(rounds, dtype=np.float64) * square(context_bound) / (dimension * regularization)
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
    """``S_x√t√(m log(1 + tS_x²/λ))``, as printed: valid, but larger than needed except for very few rounds."""
    rounds = np.asarray(rounds, dtype=np.float64)
    bound: Floats = context_bound * np.sqrt(rounds * dimension * log1p(rounds * square(context_bound) / regularization))
    return bound


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
    return determinant_radius(ratio, noise, delta_per_arm, regularization * square(weight_bound))


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
    potential = _potential_over_arms(horizon, n_arms, dimension, context_bound, regularization)
    bound: Floats = 2.0 * radius * np.sqrt(horizon * potential)
    return bound


def _potential_over_arms(
    rounds: Numbers, n_arms: int, dimension: int, context_bound: float, regularization: float
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
    potential = dimension * n_arms * log(regularization + horizon * square(context_bound) / (dimension * n_arms))
    bound: Floats = 2.0 * np.sqrt(horizon) * radius * np.sqrt(np.where(potential < 0, np.nan, potential))
    return bound


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
        potential = np.sqrt(_potential_over_arms(horizon, n_arms, dimension, context_bound, regularization))
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
        visits = _potential_over_arms(rounds, n_arms, dimension, context_bound, regularization)
        potential = np.sqrt(rounds * visits)
        total += 2.0 * np.maximum(radius, scale) * potential + 2.0 * scale * rounds * error
    return float(total)
