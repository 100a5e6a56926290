"""What a learner asks of an estimator of the hidden half (the paper's Assumption 1, as a protocol).

Anything with these members can be given to ``EpochOFUL``, ``RunningOFUL`` and the fused learners; the
estimators of Sidelight are four examples.  All arrays are in internal order: recorded features first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from sidelight.linalg import Array

if TYPE_CHECKING:
    from sidelight.logs.summary import LogSummary

__all__ = ["HiddenEstimator", "Needs"]

Needs = Literal["action", "probabilities"] | None


@runtime_checkable
class HiddenEstimator(Protocol):
    """Learns ``B_a = R11(a)⁻¹R12(a)``: how the hidden features go with the recorded ones, per arm."""

    summary: LogSummary
    """The log whose hidden half this learns."""
    needs: Needs
    """What it learns from: the old policy's action, its probabilities, or nothing more."""

    @property
    def n_answers(self) -> int:
        """How many contexts it has learned from (the paper's ``t``)."""

    def observe(self, x: ArrayLike, answer: Any, /, probability: float = 1.0) -> None:
        """Take what the old policy would do at the full context ``x``."""

    def regression(self) -> Array:
        """``B̂``: (K, L, m)."""

    def precision(self) -> Array | None:
        """``A``: (K, L, L), with ``Cov((B − B̂)w_h) = τ²A⁻¹``; None where no answers are behind it."""

    def residual_moments(self) -> Array:
        """``Σ``: (K, m, m), ``τ² = w_hᵀΣw_h``; for a regression ``Σ_e``, what it leaves of the hidden features."""

    def bound(self, delta: float, horizon: int, context_bound: float = 1.0) -> Array:
        """``ΔM``: (K,), with ``‖M̂_a − M_a‖ ≤ ΔM_a`` for all arms and episodes with probability ``1 − δ/2``."""

    def copy(self) -> HiddenEstimator:
        """An independent copy: a learner copies what it is given."""
