"""The hidden half is known: cross moments from elsewhere (a model of the old policy, a simulator)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sidelight.arrays import as_numbers
from sidelight.errors import InputError
from sidelight.hidden.frame import covariance_of, unitless_pseudo_inverse, unitless_regression
from sidelight.hidden.protocol import EstimatorDefaults, HiddenShift, Needs
from sidelight.linalg import Array, product, solve, symmetrize
from sidelight.logs.summary import LogSummary, hidden_blocks, one_summary

__all__ = ["KnownCrossMoments"]


class KnownCrossMoments(EstimatorDefaults):
    """``R12(a)`` given: ``B̂_a = R11(a)⁻¹R12(a)`` with ``R11`` from the log (proposition 1).

    ``R11`` is a mean over the log's rows, so ``B̂`` has an error although ``R12`` has none, and it goes with that of the
    log's own regression: ``b − M̂w = G⁻¹Σ[x_o(x_h·w_h + η) − R12w_h]``, the sum over an arm's ``n`` rows, so

        C = nG⁻¹(σ²R11 + E[(x_h·w_h)²x_ox_oᵀ] − R12w_hw_hᵀR12ᵀ)G⁻¹ ⪯ (σ² + S²)nG⁻¹R11G⁻¹,    −S ≤ x_h·w_h ≤ S.

    The bound holds for every distribution (in the limit of many rows) and is what ``radius="theory"`` counts.  The
    other fused learners count ``C`` itself as it is for normal ``x_o``, see ``log_error``; features far from normal
    (rare flags, heavy tails) err by more, and a summary has no fourth moments to tell by how much.

    A hidden feature whose mean is many of its deviations away from zero (a body temperature) makes this error large,
    so large that asking the old policy tells more.  Whoever knows ``R12`` from a model or a simulation knows ``R11``
    from it too: given both, ``B`` is exact, there is no such error, and neither units nor centres matter.

    Args:
        summary: the log.
        R12: (K, L, m)  ``E[x_o x_hᵀ | a]`` under the old policy, recorded features before hidden ones.
        R11: (K, L, L)  ``E[x_o x_oᵀ | a]`` from the same source; default the log's own.

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

    def __init__(self, summary: LogSummary, R12: ArrayLike, R11: ArrayLike | None = None) -> None:
        one_summary(summary, type(self).__name__)
        moments = hidden_blocks(summary, R12, "R12")
        K, L, m = moments.shape
        self.recorded_moments = None if R11 is None else as_numbers(R11, "R11")
        if self.recorded_moments is not None:
            if self.recorded_moments.shape != (K, L, L):
                raise InputError(f"R11 has shape {self.recorded_moments.shape}; for this log it must be {(K, L, L)}.")
            if not np.isfinite(self.recorded_moments).all():
                raise InputError("R11 has a value that is not finite.")
        self.summary = summary
        self.cross_moments = moments
        # an arm whose R11 is singular has no unique B; the fused learners give those directions no weight
        self._B = np.zeros((K, L, m))
        R11, k = summary.second_moments if R11 is None else self.recorded_moments, self._level()
        for a in range(K):
            if self.recorded_moments is None and summary.determined[a]:
                self._B[a] = solve(summary.second_moments[a], moments[a])
            elif L:
                self._B[a] = unitless_regression(np.asarray(R11)[a], moments[a], k)
        moments_o, means = np.asarray(summary.second_moments), np.asarray(summary.means)
        self._around = moments_o - means[:, :, None] * means[:, None, :]
        # with an intercept the hidden features' own units are deviations from their means
        explained = self._around if summary.schema.intercept else moments_o
        self._spread = symmetrize(product(product(np.swapaxes(self._B, 1, 2), explained), self._B))

    def _level(self) -> int | None:
        """The position of the intercept among recorded features; None without one."""
        if not self.summary.schema.intercept:
            return None
        return int(np.flatnonzero(np.asarray(self.summary.recorded) == 0)[0])

    def observe(self, x: ArrayLike, answer: Any, probability: float = 1.0) -> None:
        """Ignored: ``R12`` is known, so that answers add nothing."""

    def regression(self) -> Array:
        """``B̂``: (K, L, m)."""
        return self._B

    def precision(self) -> None:
        """``None``: there are no answers, and so no Gram matrix of them."""

    def residual_moments(self) -> Array:
        """``B̂ᵀR11B̂``: what recorded features explain of hidden ones (with an intercept, of their variances)."""
        return self._spread

    def log_error(self, second: Array) -> Array:
        """``n(E[(x_o·v)²x_ox_oᵀ] − R11vvᵀR11)`` with ``v = B̂w_h``: (K, L, L), for normal ``x_o``.

        With ``μ``, ``Σ`` the mean and covariance of ``x_o`` and ``Ψ = E[vvᵀ]``, as far as ``w_h`` is known, it is

            (μᵀΨμ)Σ + μμᵀΨΣ + ΣΨμμᵀ + tr(ΣΨ)R11 + ΣΨΣ

        for each of ``n`` rows: moments of fourth order of a normal variable, second ones where its mean takes part.
        Nothing where ``R11`` was given.
        """
        if self.recorded_moments is not None:
            return np.zeros_like(self._around)
        B, R11, around = self._B, np.asarray(self.summary.second_moments), self._around
        mean = np.asarray(self.summary.means)[:, :, None]
        spread = symmetrize(product(product(B, second), np.swapaxes(B, 1, 2)))
        both = product(around, spread)
        leaning = product(both, product(mean, np.swapaxes(mean, 1, 2)))
        levels = np.sum(mean * product(spread, mean), axis=(1, 2))
        total = levels[:, None, None] * around + leaning + np.swapaxes(leaning, 1, 2)
        total += np.einsum("aii->a", both)[:, None, None] * R11 + product(both, around)
        return symmetrize(np.asarray(self.summary.counts)[:, None, None] * total)

    def hidden_shift(self) -> HiddenShift | None:
        """From the rows of ``R11`` and ``R12`` that belong to the intercept, which are means; None without one."""
        summary = self.summary
        k = self._level()
        if k is None:
            return None
        R11 = np.asarray(summary.second_moments) if self.recorded_moments is None else self.recorded_moments
        shares = np.asarray(summary.shares)[:, None]
        moments = np.sum(shares[:, :, None] * R11, axis=0)
        cross = np.sum(shares[:, :, None] * self.cross_moments, axis=0)
        mean, hidden_mean = moments[k], cross[k]
        slopes = product(unitless_pseudo_inverse(covariance_of(moments, mean)), cross - mean[:, None] * hidden_mean)
        levels = self.cross_moments[:, k] - hidden_mean - product(R11[:, k] - mean, slopes)
        return HiddenShift(slopes, np.where(shares > 0.0, levels, 0.0), None)

    def bound(self, delta: float, horizon: int, context_bound: float = 1.0) -> Array:
        """``ΔM = 0``."""
        return np.zeros(self.summary.n_arms)

    def copy(self) -> KnownCrossMoments:
        """The object itself: it never changes, so that learners may share it."""
        return self

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """What a file needs to restore it."""
        arrays = {"cross_moments": self.cross_moments}
        if self.recorded_moments is not None:
            arrays["recorded_moments"] = self.recorded_moments
        return {"kind": "known"}, arrays

    @classmethod
    def from_state(cls, summary: LogSummary, meta: dict[str, Any], arrays: dict[str, Any]) -> KnownCrossMoments:
        """The inverse of ``state``."""
        return cls(summary, arrays["cross_moments"], arrays.get("recorded_moments"))

    def _repr_html_(self) -> str:
        from sidelight.hidden.cards import estimator_card

        return estimator_card(self, self.summary)

    def __repr__(self) -> str:
        s = self.summary
        return f"KnownCrossMoments({s.n_arms} arms, {s.n_features - s.n_recorded} of {s.n_features} features hidden)"
