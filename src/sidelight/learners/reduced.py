"""One ridge regression per arm in reduced coordinates: the state behind OFUL and Algorithm 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sidelight.errors import InputError
from sidelight.learners.base import BaseLearner
from sidelight.learners.settings import Settings
from sidelight.linalg import Array
from sidelight.side.constraint import Reduction

if TYPE_CHECKING:
    from sidelight.logs.schema import Schema

__all__ = ["ReducedLearner"]

RADIUS_KINDS = {"determinant": 0, "printed": 1, "posterior": 2}


class ReducedLearner(BaseLearner):
    """State: per arm the sums ``Σ z zᵀ`` and ``Σ z(r − x·anchor)``, and the caches derived from them.

    Attributes:
        reduction: ``w = anchor + Nθ``, ``z = Nᵀx`` (see ``side.constraint.Reduction``).
        grams: (K, m, m)   moments: (K, m)   the sums.
        covariances: (K, m, m)  ``(NᵀVN)⁻¹``   weights: (K, d)  ``ŵ``, internal order
        log_dets: (K,)  ``log det NᵀVN/det NᵀV₀N``   radii: (K,)  ``α√β``
    """

    def __init__(
        self,
        arms: Sequence[Any],
        reduction: Reduction,
        settings: Settings,
        schema: Schema | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        super().__init__(arms, reduction.n_features, settings, schema, rng)
        if len(self.arms) != reduction.n_arms:
            raise InputError(f"{len(self.arms)} arm labels for {reduction.n_arms} arms.")
        if settings.radius not in RADIUS_KINDS:
            raise InputError(
                f"radius={settings.radius!r} belongs to the fused learners; {type(self).__name__} takes "
                f"{', '.join(RADIUS_KINDS)}."
            )
        self._install(reduction)

    # ------------------------------------------------------------------------------------ state

    def _install(self, reduction: Reduction) -> None:
        """Start from nothing observed in the coordinates of ``reduction``."""
        K, d, m = reduction.n_arms, reduction.n_features, reduction.size
        self.reduction = reduction
        self.grams = np.zeros((K, m, m))
        self.moments = np.zeros((K, m))
        self.covariances = np.zeros((K, m, m))
        self.weights = np.zeros((K, d))
        self.log_dets = np.zeros(K)
        self.radii = np.zeros(K)
        self.updates = np.zeros(K, dtype=np.int64)
        self.counts = np.zeros(K, dtype=np.int64)
        self._set_prior()
        self.refresh()

    def _set_prior(self) -> None:
        """``NᵀV₀N`` and ``NᵀV₀(μ − anchor)`` for the prior ``V₀ = λI``, ``μ``."""
        r, s = self.reduction, self.settings
        precision, means = self._prior()
        K, m = r.n_arms, r.size
        self.prior_precisions = np.empty((K, m, m))
        self.prior_moments = np.empty((K, m))
        self.prior_log_dets = np.empty(K)
        for a in range(K):
            N = r.basis(a)
            self.prior_precisions[a] = N.T @ (precision[:, None] * N)
            # a padded dimension has no column in N; a one on the diagonal keeps the matrix invertible
            padded = np.arange(r.dimensions[a], m)
            self.prior_precisions[a, padded, padded] = 1.0
            self.prior_moments[a] = N.T @ (precision * (means[a] - r.anchors[a]))
            self.prior_log_dets[a] = np.linalg.slogdet(self.prior_precisions[a])[1]
        self._prior_term = float(precision.max()) * s.kernel_weight_bound**2 if precision.size else 0.0
        self._growth = s.kernel_context_bound**2 / float(precision.min()) if precision.size else 0.0

    def _prior(self) -> tuple[Array, Array]:
        """``V₀`` (its diagonal, (d,)) and ``μ`` (K, d), in internal order."""
        s, r = self.settings, self.reduction
        lam = float(s.regularization)
        means = s.prior_means(r.n_arms, r.n_features)[:, r.order]
        return np.full(r.n_features, lam), means

    @property
    def noise(self) -> float:
        """``σ``."""
        return float(self.settings.noise)

    def refresh(self) -> None:
        """Recompute every cache from the sums."""
        for a in range(self.n_arms):
            self._refresh_arm(a)

    def _refresh_arm(self, a: int) -> None:
        from sidelight.kernels.reduced import refresh_arm

        r = self.reduction
        self.log_dets[a] = refresh_arm(
            r.loadings[a],
            r.shifted,
            r.anchors[a],
            self.prior_precisions[a],
            self.prior_moments[a],
            self.prior_log_dets[a],
            self.grams[a],
            self.moments[a],
            self.covariances[a],
            self.weights[a],
        )
        self.updates[a] = 0
        self.radii[a] = self.settings.alpha * self._radius(a)

    def _radius(self, a: int) -> float:
        """``√β`` of one arm."""
        from sidelight.kernels.reduced import radius_of

        s = self.settings
        return float(
            radius_of(
                RADIUS_KINDS[s.radius],
                self.counts[a],
                self.log_dets[a],
                self.reduction.dimensions[a],
                self.noise,
                self._prior_term,
                self._growth,
                self.n_arms / s.delta,
            )
        )

    # --------------------------------------------------------------------------- decide, observe

    def _scores(self, x: Array) -> tuple[Array, Array]:
        from sidelight.kernels.reduced import score_arms

        r = self.reduction
        estimates, widths = np.empty(self.n_arms), np.empty(self.n_arms)
        score_arms(x, r.order, r.loadings, r.shifted, self.weights, self.covariances, self.radii, estimates, widths)
        return estimates, widths

    def _observe(self, x: Array, index: int, reward: float) -> None:
        from sidelight.kernels.reduced import REFRESH_EVERY, update_arm

        r = self.reduction
        a = index
        grown = update_arm(
            x,
            reward,
            r.order,
            r.loadings[a],
            r.shifted,
            r.anchors[a],
            self.grams[a],
            self.moments[a],
            self.covariances[a],
            self.weights[a],
        )
        self.counts[a] += 1
        self.updates[a] += 1
        if self.updates[a] >= REFRESH_EVERY:
            self._refresh_arm(a)
        else:
            self.log_dets[a] += grown
            self.radii[a] = self.settings.alpha * self._radius(a)

    def weights_of(self, arm: Any) -> Array:
        """``ŵ`` of one arm, in the context's order.  (d,)"""
        out = np.empty(self.n_features)
        out[self.reduction.order] = self.weights[self._arm(arm)]
        return out

    # ------------------------------------------------------------------------------------- files

    def state(self) -> dict[str, Any]:
        """Everything that observing changes, caches included, so that a copy continues bit for bit."""
        names = ("grams", "moments", "covariances", "weights", "log_dets", "radii", "updates", "counts")
        return {name: getattr(self, name) for name in names}

    def restore(self, arrays: dict[str, Any]) -> None:
        """The inverse of ``state``."""
        for name in self.state():
            current = getattr(self, name)
            setattr(self, name, np.array(arrays[name], dtype=current.dtype).reshape(current.shape))
