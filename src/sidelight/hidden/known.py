"""The hidden half is known: cross moments from elsewhere (a model of the old policy, a simulator)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sidelight.errors import InputError
from sidelight.hidden.protocol import EstimatorDefaults, Needs
from sidelight.linalg import Array, product, pseudo_inverse, solve, symmetrize
from sidelight.logs.summary import LogSummary, one_summary

__all__ = ["KnownCrossMoments"]


class KnownCrossMoments(EstimatorDefaults):
    """``R12(a)`` given: ``B̂_a = R11(a)⁻¹R12(a)`` with ``R11`` from the log (proposition 1).

    ``R11`` is a mean over the log's rows, so ``B̂`` has an error although ``R12`` has none: with ``v = Bw_h``,
    ``(B̂ − B)w_h = G⁻¹Σ(E[x_ox_oᵀ] − x_ox_oᵀ)v``.  For normal ``x_o`` of mean zero its covariance is ``(vᵀR11v)G⁻¹ +
    vvᵀ/n``.  The fused learners count the first part, as if the log's rewards had that much more noise; the second, in
    one of ``L`` directions, is left out.  Features far from normal (rare flags, heavy tails) err by more than is
    counted: a summary has no fourth moments to tell by how much.

    Args:
        summary: the log.
        R12: (K, L, m)  ``E[x_o x_hᵀ | a]`` under the old policy, recorded features before hidden ones.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> schema = sl.Schema.for_arrays(3, recorded=2, n_arms=1)
        >>> rng = np.random.default_rng(0)
        >>> log = sl.LogSummary.from_arrays(rng.normal(size=(50, 2)), np.zeros(50, int), rng.normal(size=50), schema)
        >>> sl.KnownCrossMoments(log, np.zeros((1, 2, 1))).regression().shape
        (1, 2, 1)
    """

    needs: Needs = None
    n_answers = 0
    #: ``R11`` is a mean over the log's rows
    error_from_log = True

    def __init__(self, summary: LogSummary, R12: ArrayLike) -> None:
        one_summary(summary, type(self).__name__)
        K, L, m = summary.n_arms, summary.n_recorded, summary.n_features - summary.n_recorded
        moments = np.array(R12, dtype=np.float64)
        if moments.shape != (K, L, m):
            raise InputError(
                f"R12 has shape {moments.shape}; this log has K = {K} arms, L = {L} recorded and m = {m} "
                f"hidden features, so it must be {(K, L, m)}."
            )
        if not np.isfinite(moments).all():
            raise InputError("R12 has a value that is not finite.")
        self.summary = summary
        self.cross_moments = moments
        # an arm whose R11 is singular has no unique B; the fused learners give those directions no weight
        self._B = np.zeros((K, L, m))
        for a in range(K):
            R11 = summary.second_moments[a]
            if summary.determined[a]:
                self._B[a] = solve(R11, moments[a])
            elif L:
                self._B[a] = product(pseudo_inverse(R11), moments[a])
        self._spread = symmetrize(product(product(np.swapaxes(self._B, 1, 2), summary.second_moments), self._B))

    def observe(self, x: ArrayLike, answer: Any, probability: float = 1.0) -> None:
        """Answers add nothing to what is known."""

    def regression(self) -> Array:
        """``B̂``: (K, L, m)."""
        return self._B

    def precision(self) -> None:
        """None: nothing is learned from answers."""

    def residual_moments(self) -> Array:
        """``B̂ᵀR11B̂``, with which ``τ²`` is what the error of ``B̂`` adds to the log's own variance, ``(vᵀR11v)``."""
        return self._spread

    def bound(self, delta: float, horizon: int, context_bound: float = 1.0) -> Array:
        """``ΔM = 0``."""
        return np.zeros(self.summary.n_arms)

    def copy(self) -> KnownCrossMoments:
        """Nothing here ever changes."""
        return self

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """What a file needs to restore it."""
        return {"kind": "known"}, {"cross_moments": self.cross_moments}

    @classmethod
    def from_state(cls, summary: LogSummary, meta: dict[str, Any], arrays: dict[str, Any]) -> KnownCrossMoments:
        """The inverse of ``state``."""
        return cls(summary, arrays["cross_moments"])

    def _repr_html_(self) -> str:
        from sidelight.hidden.cards import estimator_card

        return estimator_card(self, self.summary)

    def __repr__(self) -> str:
        s = self.summary
        return f"KnownCrossMoments({s.n_arms} arms, {s.n_features - s.n_recorded} of {s.n_features} features hidden)"
