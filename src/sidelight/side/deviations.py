"""What the evidence of all arms says about their common mean, once each arm's own deviation from it is integrated out.

For any variances ``Ω`` of the deviations (``side.prior`` has the model and its letters): ``Σ_aX_aᵀS_aX_a``,
``Σ_aX_aᵀt_a`` and ``Σ_a[−½log det W_a + ½(Dh_a)ᵀW_a⁻¹(Dh_a)]``.  A search asks for many ``Ω``, and most of its work is
here, so it is done in three steps, of which the later ones cost little:

1. ``kernels.shrinking`` eliminates a first part of the weights.  What it leaves depends on the variances
   of these alone, and is kept for the last few of them.
2. It eliminates the rest.
3. ``with_levels`` takes another variance of levels, ``Ω + excess·(Ωg)(Ωg)ᵀ`` (``side.levels``): a change of rank one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sidelight.kernels.shrinking import shrink_arms
from sidelight.linalg import Array, log, product, symmetrize

__all__ = ["Deviations", "Shrunk"]

#: variances of the first part for which what is left is kept: the best ones, and those to either side
KEPT = 3


@dataclass(frozen=True)
class Shrunk:
    """What the evidence says once each arm's own deviation from the mean is integrated out.

    Attributes:
        value: ``Σ_a[−½log det W_a + ½(Dh_a)ᵀW_a⁻¹(Dh_a)]``; −∞ if rounding leaves a ``W_a`` that is not positive
            definite.
        S: (d + q, d + q)  ``ΣX_aᵀS_aX_a``   t: (d + q,)  ``ΣX_aᵀt_a``; zero where the value is −∞.
        along: (K, d + q + 2)  of every arm ``X_aᵀS_aΩg``, ``τ = (Ωg)ᵀt_a`` and ``σ = (Ωg)ᵀS_aΩg``, for ``with_levels``.
    """

    value: float
    S: Array
    t: Array
    along: Array

    def with_levels(self, excess: float) -> Shrunk:
        """The same with ``Ω + excess·(Ωg)(Ωg)ᵀ`` in place of ``Ω``, without reading the arms' evidence again.

        ``S_a`` loses ``w·S_aΩg(S_aΩg)ᵀ`` and ``t_a`` loses ``wτ·S_aΩg``, ``w = excess/(1 + excess·σ)``; the value of an
        arm grows by ``½(wτ² − log(1 + excess·σ))``.
        """
        p = len(self.t)
        tau, grown = self.along[:, p], 1.0 + excess * self.along[:, p + 1]
        if excess == 0.0 or self.value == -math.inf:
            return self
        if not (grown > 0.0).all():
            return replace(self, value=-math.inf)
        along, w = self.along[:, :p], excess / grown
        weighed = w[:, None] * along
        # added up in order, so that no processor adds in another one
        more = float(np.cumsum(0.5 * (w * tau * tau - log(grown)))[-1])
        S = self.S - symmetrize(product(weighed.T, along))
        return Shrunk(self.value + more, S, self.t - product(tau, weighed), self.along)


class Deviations:
    """The evidence of all arms, from which deviations of any variances can be integrated out.

    Args:
        J: (K, d, d)  evidence of every arm.
        h: (K, d)  evidence of every arm.
        preferences: (K, q, d)  ``z_{a,k}``; None if there are none.
        first: positions of the weights that are integrated out first, best those whose variances change least often,
            or most weights: the cost of another variance of the others grows with the number of these; None for all.
        g: (d,)  of the level whose variance may be another one; None if there is none.
    """

    def __init__(
        self,
        J: Array,
        h: Array,
        preferences: Array | None = None,
        first: NDArray[np.int64] | None = None,
        g: Array | None = None,
    ) -> None:
        K, d = h.shape
        q = 0 if preferences is None else preferences.shape[1]
        first = np.arange(d) if first is None else first
        #: (d + q,)  positions of the coefficients of ``β`` in the order of elimination
        self._order = np.concatenate([first, np.delete(np.arange(d + q), first)])
        own = self._order[:d]
        #: (K, d, d + q + 1)  ``[J | Zᵀ | h]``
        self._evidence = np.empty((K, d, d + q + 1))
        in_place = np.array_equal(own, np.arange(d))
        self._evidence[:, :, :d] = J if in_place else J[:, own[:, None], own]
        if preferences is not None:
            self._evidence[:, :, d:-1] = np.swapaxes(preferences, 1, 2)[:, own]
        self._evidence[:, :, -1] = h[:, own]
        self._n = len(first)
        self._g = np.zeros(d) if g is None else g[own]
        #: variances of the first part → the value of ``kernels.shrinking.shrink_first`` (1,), and what it leaves
        self._firsts: dict[bytes, tuple[Array, tuple[Array, Array, Array]]] = {}
        self._found: dict[bytes, Shrunk] = {}

    def shrunk(self, omega: Array, excess: float = 0.0) -> Shrunk:
        """Integrate the deviations out.

        Args:
            omega: (d,)  diagonal of ``Ω``.
            excess: their covariance is ``Ω + excess·(Ωg)(Ωg)ᵀ``.
        """
        ordered = omega[self._order[: len(omega)]]
        key = ordered.tobytes()
        if key not in self._found:
            self._found[key] = self._shrunk(ordered)
        return self._found[key].with_levels(excess)

    def _shrunk(self, omega: Array) -> Shrunk:
        K, _, width = self._evidence.shape
        p = len(self._order)
        first, left = self._first(omega[: self._n])
        out = np.zeros((p, p)), np.zeros(p), np.zeros((K, width + 1))
        return Shrunk(shrink_arms(self._evidence, omega, self._g, self._order, left, first, out), *out)

    def _first(self, omega: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        """Value of ``shrink_first``, NaN if it has yet to be done, and what it leaves: evidence of the others, sums."""
        (K, d, width), key = self._evidence.shape, omega.tobytes()
        if key not in self._firsts:
            m = d - self._n
            # the one that was used longest ago goes first, so that its memory can be used again
            if len(self._firsts) >= KEPT:
                del self._firsts[next(iter(self._firsts))]
            left = np.empty((K, m, m + width + 1)), np.empty((K, width + 1)), np.empty((width, width))
            self._firsts[key] = np.full(1, np.nan), left
        # to the end of the queue
        self._firsts[key] = self._firsts.pop(key)
        return self._firsts[key]
