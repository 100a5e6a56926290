"""What the evidence of all arms says about their common mean, once each arm's own deviation from it is integrated out.

For any variances ``Ω`` of the deviations (``side.prior`` has the model and its letters): ``Σ_aX_aᵀS_aX_a``,
``Σ_aX_aᵀt_a`` and ``Σ_a[−½log det W_a + ½(Dh_a)ᵀW_a⁻¹(Dh_a)]``.  A search asks for many ``Ω``, and most of its work is
here, so it is done in three steps, of which the later ones cost little:

1. ``kernels.shrinking.shrink_first`` eliminates a first part of the weights.  What it leaves depends on the variances
   of these alone, and is kept for the last few of them.
2. ``shrink_rest`` eliminates the rest.
3. ``widen_levels`` takes another variance of levels, ``Ω + excess·(Ωg)(Ωg)ᵀ`` (``side.levels``): a change of rank one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sidelight.kernels.shrinking import shrink_first, shrink_rest, widen_levels
from sidelight.linalg import Array

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
        along: (K, d + q + 2)  of every arm, for other variances of levels (``kernels.shrinking.widen_levels``).
    """

    value: float
    S: Array
    t: Array
    along: Array


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
        #: variances of the first part → the value of ``shrink_first`` and what it leaves
        self._firsts: dict[bytes, tuple[float, tuple[Array, Array, Array]]] = {}
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
        plain = self._found[key]
        if excess == 0.0 or plain.value == -math.inf:
            return plain
        S, t = plain.S.copy(), plain.t.copy()
        return Shrunk(plain.value + widen_levels(excess, plain.along, S, t), S, t, plain.along)

    def _shrunk(self, omega: Array) -> Shrunk:
        K, _, width = self._evidence.shape
        p = len(self._order)
        value, left = self._first(omega[: self._n])
        out = Shrunk(value, np.zeros((p, p)), np.zeros(p), np.empty((K, width + 1)))
        if value > -math.inf:
            value += shrink_rest(self._evidence, omega, self._g, self._order, left, out.S, out.t, out.along)
        return Shrunk(value, out.S, out.t, out.along)

    def _first(self, omega: Array) -> tuple[float, tuple[Array, Array, Array]]:
        """The value of ``shrink_first`` and what it leaves: evidence about the others, and sums."""
        (K, d, width), key = self._evidence.shape, omega.tobytes()
        if key not in self._firsts:
            m = d - self._n
            left = np.empty((K, m, m + width + 1)), np.empty((K, width + 1)), np.empty((width, width))
            # the oldest is replaced, whose memory is no longer needed
            if len(self._firsts) >= KEPT:
                del self._firsts[next(iter(self._firsts))]
            self._firsts[key] = shrink_first(self._evidence, omega, self._g, *left), left
        # the last to be used is the last to go
        self._firsts[key] = self._firsts.pop(key)
        return self._firsts[key]
