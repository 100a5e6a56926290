"""What contexts without an answer tell: how hidden features go with recorded ones, whatever the old policy does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sidelight.hidden.frame import Frame, power_of_two, unitless_pseudo_inverse
from sidelight.hidden.protocol import Contexts
from sidelight.linalg import Array, product, solve, symmetric_eigen, symmetrize

__all__ = ["SHIFT", "Unasked", "deviations_of", "leaning_of", "with_one"]

#: variance, in residual variances, of a shift along their weights that hidden features of all arms' contexts have in
#: common, where contexts without an answer are all that tells levels
SHIFT = 16.0


@dataclass(frozen=True)
class Unasked:
    """Contexts at which the old policy was not asked: what their hidden features say whatever the arm.

    Over all contexts ``E[zx_hᵀ] = Σ_aP(a)E[zx_hᵀ | a]``.  With ``θ_a = θ_pool + δ_a`` and levels ``c_a`` whose mean
    over all contexts is 0 their regression has the coefficients ``θ_pool + η``,

        η = Σ_aP(a)(δ_a + p_ac_aᵀ),     Cov η = C ⊗ Σ,     C = (ΣP(a)²/κ)D⁻¹ + v(ΣP(a)²p_ap_aᵀ + D⁻¹/n).

    ``p_a`` are what the old policy favoured (``Frame.preferred``), known to ``D⁻¹/n_a`` from the log's ``n`` rows.

    The mean of the hidden features over all contexts is known, and still their level among an arm's contexts is told
    by no more than ``1/SHIFT`` answers.  A policy that gives each arm to those whom it suits, or whom it suits least,
    shifts every arm's level to the same side along the arm's own weights.  Claimed as independent errors of variance
    ``v``, such shifts would make all arms that are not played look equally bad.

    Attributes:
        rows: how many   sums: (n + m, n + m)  of products, in the frame's coordinates, the level not faded.
        slopes: (n, n)  ``(ΣP(a)²/κ)D⁻¹``   levels: (n, n)  the part of ``C`` that ``v`` multiplies; both 0 for the
            level itself.
    """

    rows: float
    sums: Array
    slopes: Array
    levels: Array

    def within(self, levels: float) -> Array:
        """Sums for the regression that arms have in common, ``η`` integrated out.  levels: ``v``

        With ``S`` the sums these are ``S − S_z(C⁻¹ + S_zz)⁻¹S_zᵀ``, which divides by neither ``C`` nor ``S``.  What a
        regression over all contexts leaves has the arms' levels in it, ``(1 + v̄)Σ``, so contexts count for less;
        ``v̄`` is the average of ``v`` over hidden features.
        """
        n = len(self.slopes)
        C, S = self._deviations(levels), self.sums[:, :n]
        # a feature that did not vary in the log has no scale in the frame: eigenvectors must not depend on its unit
        scales = power_of_two(np.sqrt(np.maximum(np.diagonal(C), 0.0)))
        values, vectors = symmetric_eigen(symmetrize(C / scales[:, None] / scales))
        root = scales[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))
        held = product(S, root)
        inner = np.eye(n) + product(root.T, product(self.sums[:n, :n], root))
        left = symmetrize(self.sums - product(held, solve(symmetrize(inner), np.ascontiguousarray(held.T))))
        return np.asarray(left / self._larger(levels))

    def by_differences(self, levels: float) -> tuple[Array, Array]:
        """``W`` (n, n), the Gram matrix of ``within``, and ``(1 + v̄)WCW``, the part of it that is noise from ``η``.

        levels: ``v``
        """
        n = len(self.slopes)
        W = np.ascontiguousarray(self.within(levels)[:n, :n])
        return W, symmetrize(product(product(W, self._larger(levels) * self._deviations(levels)), W))

    def _deviations(self, levels: float) -> Array:
        """``C`` (n, n).  levels: ``v``"""
        return np.asarray(self.slopes + levels * self.levels)

    def _larger(self, levels: float) -> float:
        """``1 + v̄``, the residual variance over all contexts relative to that within arms.  levels: ``v``"""
        return 1.0 + levels / leaning_of(len(self.sums) - len(self.slopes))


def with_one(contexts: Contexts, L: int, n: int) -> Array:
    """(n + m, n + m)  Sums of products of contexts, with a one after the recorded features if ``n`` is ``L + 1``."""
    if n == L:
        return contexts.squares
    at = np.r_[0:L, n : n + len(contexts.sums) - L]
    out = np.empty((len(at) + 1, len(at) + 1))
    out[at[:, None], at] = contexts.squares
    out[L, at] = out[at, L] = contexts.sums
    out[L, L] = contexts.rows
    return out


def deviations_of(frame: Frame, D: Array, shares: Array, rows: float, slopes: float) -> tuple[Array, Array]:
    """``(ΣP(a)²/κ)D⁻¹`` and ``ΣP(a)²p_ap_aᵀ + D⁻¹/n``: (n, n) each, 0 for the level.  slopes: ``κ``   rows: ``n``"""
    others = np.flatnonzero(np.arange(frame.size) != frame.constant)
    inverse_D, preferred = np.zeros_like(D), shares[:, None] * frame.preferred
    if len(others):
        inverse_D[np.ix_(others, others)] = unitless_pseudo_inverse(D[np.ix_(others, others)])
    favoured = product(np.ascontiguousarray(preferred.T), preferred)
    return (float(np.sum(np.square(shares))) / slopes) * inverse_D, favoured + inverse_D / max(rows, 1.0)


def leaning_of(m: int) -> float:
    """By how much levels differ more along ``w_h`` than on average over ``m`` directions.

    A policy that chooses by what it expects shifts the hidden features of an arm's contexts along ``w_h``, the one
    direction that matters here.  If it shifts them along nothing else, arms differ there by ``m`` times the average
    variance; half of that is counted.
    """
    return 0.5 * (1.0 + m)
