"""The regressions of hidden on recorded features: one that the arms have in common, and every arm's, pulled to it.

In the coordinates ``z`` of ``hidden.frame`` (``n`` of them, the constant among them), with ``θ_a`` the coefficients of
arm ``a`` and ``Σ`` the second moments of what they leave:

    θ_pool ~ N(0, Σ ⊗ (κ₀D_β)⁻¹),  its level flat,      θ_a ~ N(θ_pool, Σ ⊗ Q⁻¹),   Q⁻¹ = (κD)⁻¹ + v·(level)(level)ᵀ.

``κ₀`` says how little the hidden features go with the recorded ones, ``κ`` how alike the arms' slopes are (both in
answers), and ``v`` how far their levels are apart; ``hidden.strengths`` finds them.  ``D_β`` is ``D`` with derived
features (bends, products) times ``√β``: hidden features go with recorded columns rather than with bends of these.  Were
``β`` 1, ``B̂`` of many bends would be little but error, which their rows of ``M̂w = b`` take for a reason to think that
hidden weights are small.

``θ_pool`` is what the arms have in common, and that is not the regression over all contexts whatever their arm: a
policy that looks at recorded and hidden features makes them go together otherwise among the contexts of an arm than
among all, and in the same way for every arm.  So the pooled regression is one *within* arms, see ``Told.within``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sidelight.hidden.framed_sums import Told
from sidelight.kernels.answers import SINGULAR, pooled_residuals
from sidelight.kernels.answers import regress as regress_arms
from sidelight.kernels.spd import invert
from sidelight.linalg import Array, product, pseudo_inverse, solve, symmetric_eigen, symmetrize

__all__ = ["FLAT", "Fit", "Pool", "bent_metric", "fit_arms", "regress", "slope_pull"]

#: relative to a feature's own sum of squares, what rounding may have done to its differences from other features
ROUNDING = 1e-11
#: precision of the pooled level's prior, in answers: so small that the prior is flat
FLAT = 1e-6


@dataclass(frozen=True)
class Pool:
    """The regression over all arms.

    Attributes:
        pull: (n, n)  ``κ₀D``, its entry for the level ``FLAT``.
        gram: (n, n)  ``T``, the Gram matrix over all arms and ``pull``   inverse: (n, n)  ``T⁻¹``.
        theta: (n, m)  ``θ_pool``.
        residual: (m, m)  second moments of what it leaves, started with one answer of the hidden features' own.
        noise: (n, n)  ``N`` with ``Cov(θ_pool) = T⁻¹(N + pull)T⁻¹ ⊗ Σ``.
    """

    pull: Array
    gram: Array
    inverse: Array
    theta: Array
    residual: Array
    noise: Array

    @classmethod
    def of(cls, told: Told, own: float, levels: float, bent: float) -> Pool:
        """The regression within arms, pulled to 0 with the weight of ``own = κ₀`` answers.

        levels: ``v``   bent: ``β``
        """
        n, m = told.frame.size, told.total.shape[0] - told.frame.size
        pull, within = own_pull(told, own, bent), told.within(levels)
        inverse, residual = np.empty((n, n)), np.empty((m, m))
        gram = within.total[:n, :n] + pull
        # collinear features: rounding errors must not decide which one gets the weight
        if told.frame.constant is not None:
            np.einsum("ii->i", gram)[...] *= 1.0 + ROUNDING
        if math.isnan(invert(gram, inverse)):
            # collinear features, and so many answers that rounding errors exceed the prior
            inverse[...] = pseudo_inverse(gram)
        theta = _solved(gram, inverse, within.total[:n, n:])
        pooled_residuals(within.total, theta, residual)
        scale, size = told.hidden_scale, np.square(told.means)
        # a feature that has not varied yet: its own square, so that no unit matters; 1 if it was always 0
        np.einsum("ii->i", residual)[...] += np.where(scale > 0, scale, np.where(size > 0, size, 1.0))
        used = n - float(np.sum(inverse * pull))
        residual /= max(told.rows - used, 0.0) + 1.0
        return cls(pull, gram, inverse, theta, residual, within.noise)

    def solved(self, right: Array) -> Array:
        """``T⁻¹`` times the columns of ``right`` (n, p)."""
        return _solved(self.gram, self.inverse, right)


@dataclass(frozen=True)
class Fit:
    """The regression of every arm, pulled toward the pooled one.

    Attributes:
        pull: (n, n)  ``Q``   share: (n, n)  ``T⁻¹Q``, ``T`` the Gram matrix of the pooled regression.
        theta: (K, n, m)  ``θ̂_a``   plain: (K, n, m)  the same where the level is not faded.
        B: (K, L, m)  ``B̂``, in the features' own units.
    """

    pull: Array
    share: Array
    theta: Array
    plain: Array
    B: Array


def own_pull(told: Told, own: float, bent: float) -> Array:
    """``κ₀D_β``, the prior of the pooled regression; its entry for the level is next to 0: levels are not shrunk."""
    pull, c = own * bent_metric(told, bent), told.frame.constant
    if c is not None:
        pull[c, c] = FLAT
    return pull


def bent_metric(told: Told, bent: float) -> Array:
    """``D_β`` (n, n): the metric ``D`` with the rows and columns of derived features multiplied by ``√β``."""
    root = np.where(told.frame.bent, math.sqrt(bent), 1.0)
    return np.asarray(told.D * root[:, None] * root)


def slope_pull(told: Told, slopes: float, levels: float) -> Array:
    """``Q`` (n, n): the precision of an arm's regression around the pooled one, ``slopes = κ`` and ``levels = v``."""
    pull, c = slopes * told.D, told.frame.constant
    if c is not None:
        pull[c, c] = slopes * told.D[c, c] / (1.0 + slopes * told.D[c, c] * levels)
    return pull


def fit_arms(told: Told, pool: Pool, pull: Array) -> Fit:
    """Every arm's regression with the pull ``Q`` toward the pooled one."""
    theta = regress(told.S, pull, product(pull, pool.theta), fallback=pool.theta)
    plain = told.frame.unfaded(theta)
    B = told.frame.coefficients(plain, told.means) * told.unit
    # Cov(θ_pool) = T⁻¹NT⁻¹ may be huge for a tiny Q; only T⁻¹Q is needed, which is not
    return Fit(pull, pool.solved(pull), theta, plain, B)


def _solved(gram: Array, inverse: Array, right: Array) -> Array:
    """``T⁻¹`` times the columns of ``right`` (n, p), by elimination, or by ``inverse`` where there is none.

    Features that repeat each other make ``T⁻¹`` as large as the ridge is small, and a product with it loses as many
    digits of what these features say together; elimination loses them where they differ, which nothing depends on.
    """
    try:
        return solve(gram, right)
    except np.linalg.LinAlgError:
        return product(inverse, right)


def regress(S: Array, pull: Array, toward: Array, fallback: Array) -> Array:
    """``(S11(a) + pull)⁻¹(S12(a) + toward)`` per arm; an arm without anything on the left takes ``fallback``.

    Args:
        S: (K, n or more, n + m)  ``[S11 | S12]`` on top.
        pull: (n, n)  the same for all arms.
        toward: (n, m)  the same for all arms.
        fallback: (n, m)  for an arm about which nothing is known.
    """
    n, m = toward.shape
    B, solved = np.empty((len(S), n, m)), np.zeros(len(S), dtype=np.bool_)
    if n:
        regress_arms(S, pull, toward, B, solved)
    for a in np.flatnonzero(~solved):
        left, right = S[a, :n, :n] + pull, S[a, :n, n:] + toward
        if not left.any():
            B[a] = fallback
            continue
        scale = np.sqrt(np.maximum(np.diagonal(left), 0.0))
        # an arm says nothing about a feature that was always zero there, and has no unit of it
        seen = scale > 0
        scale, right = np.where(seen, scale, 1.0), np.where(seen[:, None], right, 0.0)
        values, vectors = symmetric_eigen(symmetrize(left / np.outer(scale, scale)))
        vectors = np.where(seen[:, None], vectors, 0.0)
        keep = values > SINGULAR * values[-1]
        inverse = np.where(keep, 1.0 / np.where(keep, values, 1.0), 0.0)
        B[a] = product(vectors * inverse, product(vectors.T, right / scale[:, None])) / scale[:, None]
    return B
