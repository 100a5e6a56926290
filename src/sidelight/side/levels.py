"""The level that weights give to rewards where contexts have no intercept, with a variance of its own.

Features such as an age of 60 ± 10 have a mean ``c`` of several standard deviations ``s``.  Then weights
``y_j = s_jw_j`` do two things: they make rewards differ between contexts, and they make a *level* that all contexts
share,

    x·w = Σ_j y_j(x_j − c_j)/s_j + g·y,      g_j = c_j/s_j.

Independent weights of variances ``D`` would give it the variance ``gᵀDg``, which is rarely the one that levels have:
arms may pay about the same on average although their weights differ, or the reverse.  So the prior of the weights is
that of independent ones but for the level, whose variance is multiplied by ``ρ``,

    y = Ty',   y' ~ N(0, D),   T = I + (√ρ − 1)Dggᵀ/gᵀDg,      ρ = (1 + θω_level/ω̄)/(1 + |g|²),

with ``ω̄ = gᵀDg/|g|²`` and ``θ = |g|²/(1 + |g|²)``; the distribution of the weights given the level stays as it was.
Where means are large, levels have the variance ``ω_level + ω̄``.  Where they are small, a level is next to nothing, and
``ρ`` tends to 1.  The weights that arms have in common are expected where their level is the mean reward, and have a
variance of their level likewise: with an intercept rewards are centred, and it has variances of its own
(``side.prior``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sidelight.kernels.prior import level_root
from sidelight.linalg import Array, product
from sidelight.side.coordinates import Units

__all__ = ["Level", "Stretch"]


@dataclass(frozen=True)
class Stretch:
    """``T = I + u gᵀ``, which multiplies the level by ``root = √ρ = 1 + g·u``; further coordinates stay as they are.

    Attributes:
        u: (d,)   g: (d,)   root: a number.
    """

    u: Array
    g: Array
    root: float

    def vectors(self, y: Array) -> Array:
        """Weights with their level multiplied by ``√ρ``: ``Ty`` of every ``y``.  (…, d + q)"""
        u, g = self._of(y.shape[-1])
        return np.asarray(y + product(y, g)[..., None] * u)

    def linear(self, h: Array) -> Array:
        """The linear term of evidence, in terms of ``T⁻¹y``: ``Tᵀh``.  (…, d + q)"""
        u, g = self._of(h.shape[-1])
        return np.asarray(h + product(h, u)[..., None] * g)

    def quadratic(self, J: Array) -> Array:
        """The quadratic term of evidence, in terms of ``T⁻¹y``: ``TᵀJT`` of a symmetric ``J``.  (…, d + q, d + q)"""
        return _sandwich(J, *self._of(J.shape[-1]))

    def covariance(self, C: Array) -> Array:
        """``TCTᵀ`` of a symmetric ``C``.  (…, d + q, d + q)"""
        u, g = self._of(C.shape[-1])
        return _sandwich(C, g, u)

    def _of(self, n: int) -> tuple[Array, Array]:
        """``u`` and ``g``, with zeros for further coordinates.  (n,), (n,)"""
        more = np.zeros(n - len(self.g))
        return np.append(self.u, more), np.append(self.g, more)


def _sandwich(A: Array, u: Array, g: Array) -> Array:
    """``(I + g uᵀ)A(I + u gᵀ)`` of a symmetric ``A``.  (…, n, n)"""
    Au = product(A, u)
    across = Au[..., :, None] * g
    return np.asarray(A + (across + np.swapaxes(across, -1, -2)) + product(Au, u)[..., None, None] * (g[:, None] * g))


class Level:
    """The level of rewards that weights make where features have means and contexts no intercept.

    Attributes:
        g: (d,)  ``c/s``   size: ``|g|²``.
        origin: (d,)  ``y`` that all arms are expected around: its level is the mean reward, as far as means are large.
    """

    def __init__(self, units: Units, usual: Array) -> None:
        """usual: (d,)  variances that weights are expected to have, relative to each other"""
        self._spreads = units.spreads
        self.g = units.means / self._spreads
        self.size = float(product(self.g, self.g))
        part = usual * self.g
        self.origin = units.mean_reward / (1.0 + float(product(self.g, part))) * part

    def evidence(self, J: Array, h: Array) -> tuple[Array, Array]:
        """Evidence about ``y − origin`` of evidence about ``v = y/spread``.  J: (K, d, d)   h: (K, d)"""
        J, h = J / self._spreads[:, None] / self._spreads, h / self._spreads
        return J, h - product(J, self.origin)

    def expected(self, J: Array, h: Array) -> float:
        """``Σ_a(h·v − ½vᵀJv)`` at the origin: what evidence around it leaves out of ``log p``."""
        v = self.origin / self._spreads
        return float(np.cumsum(product(h - 0.5 * product(J, v), v))[-1])

    def stretch(self, variances: Array, level: float) -> Stretch:
        """``T`` for independent weights of these variances (d,); ``level`` is ``ω_level``."""
        own, root = self._root(variances, level)
        return Stretch((root - 1.0) / own * (variances * self.g), self.g, root)

    def excess(self, variances: Array, level: float) -> float:
        """``(ρ − 1)/gᵀDg``: weights have the covariance ``TDTᵀ = D + excess·Dg(Dg)ᵀ``; arguments as of ``stretch``."""
        own, root = self._root(variances, level)
        return (root * root - 1.0) / own

    def _root(self, variances: Array, level: float) -> tuple[float, float]:
        """``gᵀDg``, the variance of the level that independent weights make, and ``√ρ``, which stretches it."""
        own = float(product(self.g, variances * self.g))
        return own, level_root(own, self.size, level)

    def prior(self, own: Array, mean: Array, C: Array, arm: Stretch, common: Stretch) -> tuple[Array, Array, Array]:
        """Covariance of an arm's deviation (d, d), mean (d + q,) and its covariance (d + q, d + q), of ``v``.

        Args:
            own: (d, d)  of ``T⁻¹y``.
            mean: (d + q,)  likewise.
            C: (d + q, d + q)  likewise.
            arm: ``T`` of the deviations.
            common: ``T`` of the mean.
        """
        d = len(self.g)
        units = np.append(self._spreads, np.ones(len(mean) - d))
        mean = common.vectors(mean)
        mean[:d] += self.origin
        own = arm.covariance(own) / self._spreads[:, None] / self._spreads
        return own, mean / units, common.covariance(C) / units[:, None] / units
