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

from sidelight.theory.episodes import episode_count, episode_lengths
from sidelight.theory.log_worth import equivalent_rounds, finite_log_penalty
from sidelight.theory.matrix_error import (
    CrossMomentConstants,
    ErrorPropagation,
    cross_moment_constants,
    delta_m,
    error_propagation,
    matrix_bernstein,
    printed_cross_moment_constants,
)
from sidelight.theory.quantiles import chi_square_quantile, f_quantile, f_tail, scarcity_factor
from sidelight.theory.radii import (
    anchor_error,
    arm_radii,
    bias_factor,
    determinant_radius,
    epoch_radius,
    inflated_noise,
    log_error_radius,
    printed_epoch_radius,
    printed_radius,
    projected_estimate,
    refresh_confidence,
)
from sidelight.theory.regret_bounds import (
    elliptical_potential_bound,
    epoch_regret_bound,
    largest_radius,
    printed_projected_regret_bound,
    printed_visitation_bound,
    projected_regret_bound,
    visitation_bound,
)

__all__ = [
    "CrossMomentConstants",
    "ErrorPropagation",
    "anchor_error",
    "arm_radii",
    "bias_factor",
    "chi_square_quantile",
    "cross_moment_constants",
    "delta_m",
    "determinant_radius",
    "elliptical_potential_bound",
    "episode_count",
    "episode_lengths",
    "epoch_radius",
    "epoch_regret_bound",
    "equivalent_rounds",
    "error_propagation",
    "f_quantile",
    "f_tail",
    "finite_log_penalty",
    "inflated_noise",
    "largest_radius",
    "log_error_radius",
    "matrix_bernstein",
    "printed_cross_moment_constants",
    "printed_epoch_radius",
    "printed_projected_regret_bound",
    "printed_radius",
    "printed_visitation_bound",
    "projected_estimate",
    "projected_regret_bound",
    "refresh_confidence",
    "scarcity_factor",
    "visitation_bound",
]
