"""Widths of the fused learner that are proven: ``radius="theory"``."""

from __future__ import annotations

import numpy as np

from sidelight.learners.fused.observing import Observing
from sidelight.learners.ridge_arms import RADIUS_KINDS
from sidelight.linalg import Array, apply, square
from sidelight.linalg import log as natural_log
from sidelight.side.trust import EFFECTIVE_ROWS
from sidelight.theory import log_error_radius, refresh_confidence

__all__ = ["Proven"]


class Proven(Observing):
    """The part of ``FusedOFUL`` that computes proven widths.

    Attributes:
        refreshes: how often logs and prior were learned, by which ``δ`` is spent.
        bias_bound: how far logs may be off: one number, or (d,) one for each feature.
    """

    refreshes: int
    bias_bound: float | Array

    def _kind_of_radius(self) -> tuple[int, float]:
        """For ``"theory"``: the determinant form with ``δ_k = δ/(2KJk(k + 1))`` in refresh ``k``."""
        if self.settings.radius != "theory":
            return super()._kind_of_radius()
        return RADIUS_KINDS["determinant"], -float(natural_log(self._refresh_delta()))

    def _refresh_delta(self) -> float:
        """``δ_k``; what an arm's logs may count for is chosen by the rewards, from ``J`` settings fixed in advance."""
        choices = len(EFFECTIVE_ROWS) ** len(self.logs) if self.safety else 1
        return refresh_confidence(self.settings.delta, self.n_arms, choices, max(self.refreshes, 1))

    def _scores(self, x: Array) -> tuple[Array, Array]:
        estimates, widths = super()._scores(x)
        return estimates, (widths if self.settings.radius != "theory" else widths + self._log_widths(x))

    def _log_widths(self, x: Array) -> Array:
        """``Σ_j γ_jσ²‖Λ_j^{1/2}M̂_jV⁻¹x‖``: what the error of the logs adds to a proven width."""
        s = self.settings
        v = apply(self.covariances, x)
        delta = self._refresh_delta() / len(self.logs)
        out = np.zeros(self.n_arms)
        for log in self.logs:
            gamma = float(log_error_radius(log.L, delta)) if log.L else 0.0
            if np.any(self.bias_bound):
                gamma += 1.0  # ‖Λ^{1/2}β‖ ≤ 1 for every bias β within the bound
            out[log.arms] += gamma * log.norms(v[log.arms])
        return np.asarray(s.alpha * square(self.noise) * out)
