"""The error of the estimated constraint: matrix Bernstein, ``C_B1``, ``C_B2``, ``ΔM_n``, and how it propagates.

Symbols are those of the package's docstring.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sidelight.errors import InputError
from sidelight.linalg import eigenvalues as symmetric_values
from sidelight.linalg import inverse, log, square
from sidelight.theory.episodes import episode_count
from sidelight.theory.quantities import Floats, Numbers, probability

__all__ = [
    "CrossMomentConstants",
    "ErrorPropagation",
    "cross_moment_constants",
    "delta_m",
    "error_propagation",
    "matrix_bernstein",
    "printed_cross_moment_constants",
]


def matrix_bernstein(variance: Numbers, bound: Numbers, n_rows: int, n_columns: int, delta: float) -> Floats:
    """``√(2v log((d_1 + d_2)/δ)) + (2/3) S log((d_1 + d_2)/δ)``: matrix Bernstein (Tropp 2015, theorem
    6.1.1).

    With probability ``1 − δ`` it bounds ``‖Σ_k A_k‖`` for independent, centred ``A_k`` ``(d_1, d_2)`` with
    ``‖A_k‖ ≤ S`` and ``v = max(‖Σ E A_k A_kᵀ‖, ‖Σ E A_kᵀA_k‖)``. As printed.
    """
    logarithm = log((n_rows + n_columns) / probability(delta, "delta"))
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
    recorded_moments, shares, inverses, traces = _moment_parts(recorded_moments, shares, hidden_bound, hidden_traces)
    n_arms = len(shares)
    union = 2.0 * n_features * n_arms * episode_count(horizon)
    logarithm = log(union / probability(delta, "delta"))
    spread = recorded_bound * hidden_bound
    leading: Floats = inverses * np.sqrt(2.0 * spread * traces * logarithm / shares)
    second: Floats = 4.0 / 3.0 * inverses * spread * logarithm / shares
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
    recorded_moments, shares, inverses, _ = _moment_parts(recorded_moments, shares, hidden_bound, hidden_traces)
    recorded_trace = shares @ np.trace(recorded_moments, axis1=1, axis2=2)
    hidden_trace = square(hidden_bound) if hidden_traces is None else shares @ np.asarray(hidden_traces)
    logarithm = log(n_features / probability(delta, "delta"))
    spread = recorded_bound * hidden_bound
    worst = np.max(inverses / shares)
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
    smallest = np.array([_smallest_eigenvalue(R11) for R11 in moments])
    if not (chances > 0).all() or not (smallest > 0).all():
        arm = int(np.argmin(np.minimum(chances, smallest)))
        raise InputError(
            f"arm {arm} has share {chances[arm]:g} and smallest eigenvalue of R11 {smallest[arm]:g}; both must "
            "be positive. Drop an arm that the log lacks, and recorded features that depend on others."
        )
    hidden = np.full(len(chances), square(hidden_bound)) if hidden_traces is None else np.asarray(hidden_traces)
    traces: Floats = np.sqrt(np.trace(moments, axis1=1, axis2=2) * hidden)
    inverses: Floats = np.reciprocal(smallest, dtype=np.float64)
    return moments, chances, inverses, traces


def _smallest_eigenvalue(R11: Floats) -> float:
    """``λ_min``, by the largest of ``R11⁻¹``; 0 if it has no inverse.

    Computed directly, it would be lost to rounding beside an eigenvalue 1e16 times larger (features in other units).
    """
    if not len(R11):
        return math.inf
    try:
        return float(1.0 / symmetric_values(inverse(R11))[-1])
    except np.linalg.LinAlgError:
        return 0.0


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
    """The errors that follow from ``‖M − M̂‖ ≤ ΔM``, for ``M = [I, B]``: :func:`error_propagation`."""

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
