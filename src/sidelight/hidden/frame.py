"""Coordinates in which hidden features are regressed on recorded ones: scaled, centred, with a constant.

A regression of ``x_h`` on ``(x_o, 1)`` under arm ``a``, with slopes ``F_a`` and level ``c_a``, says what the regression
on ``x_o`` alone is:

    B_a = R11(a)⁻¹E[x_ox_hᵀ | a] = F_a + u_ac_aᵀ,     u_a = R11(a)⁻¹E[x_o | a],

and the log knows ``u_a``.  Between arms mostly the levels differ, because a policy that prefers an arm where a hidden
feature is large shifts that feature's mean among the arm's contexts.  So levels are modelled apart from slopes.  Where
a recorded feature is constant (an intercept) ``(x_o, 1)`` says no more than ``x_o``, and ``u_a`` is its unit vector.

Slopes differ between arms mostly in one way.  One reason is enough to be given an arm: of its contexts those whose
recorded features speak for it have hidden features that are shifted less.  How strongly recorded features ``z`` speak
for the arm is ``p_a·z`` with ``p_a = D⁻¹E[z | a]``, which the log knows (for normal features and logits ``φ_a·x`` it is
the recorded part of ``φ_a``, up to what arms share).  So a level that differs by ``c_a`` is ``c_a(1 − f p_a·z)``, and
the regressor of an arm's level is ``1 − f p_a·z`` in place of 1.

Scales are powers of two and centres are the log's means: multiplying features by powers of two changes no bit of what
is computed in these coordinates, and shifting them, where there is a constant, nothing but rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sidelight.kernels.answers import move_sums
from sidelight.kernels.spd import invert
from sidelight.linalg import Array, apply, inverse, product, pseudo_inverse, symmetric_eigen, symmetrize
from sidelight.logs.summary import LogSummary

__all__ = ["CONSTANT", "Frame", "covariance_of", "power_of_two", "unitless_pseudo_inverse", "unitless_regression"]

#: a feature whose variance in the log is this small a part of its second moment counts as constant
CONSTANT = 1e-12
#: part of every feature's own second moment that is added to the metric, so that repeated features have one
RIDGE = 1e-9
#: the same for a feature that repeats others, so that rounding is small beside it: half of it where the others leave as
#: small a part of the feature's second moment
REPEATED = 1e-6
#: ``f``: by what part an arm's hidden features are shifted less for each unit of ``p_a·z``.  For normal features and
#: softmax policies, mild and sharp, 0.06 to 0.18 fits best; for skewed ones either sign may
FADING = 0.1
#: part of every feature's variance that is added to ``D`` in ``p_a``, so that features that nearly repeat each other do
#: not have huge preferences of opposite signs
SIMILAR = 1e-3
#: eigenvalues of a Gram matrix of features of scale one below this part of the largest are rounding
NOTHING = 1e-12


@dataclass(frozen=True)
class Frame:
    """The coordinates ``z = scale∘y − shift·y_c`` of one log, ``y = (x_o, 1)`` or, if ``x_o`` has a constant, ``x_o``.

    Attributes:
        scale: (n,)  powers of two, and for the constant one over its value   shift: (n,)  centres, in scaled units.
        constant: ``c``, the position of the constant in ``y``; None if there is none: then levels are not modelled.
        D: (n, n)  ``E[zzᵀ]`` over the log and a ridge; NaN on the diagonal where the log saw no variation.
        mean: (n,)  ``E[z]``: 1 for the constant, 0 elsewhere (without a constant the log's means).
        ones: (K, L)  ``u_a``, with ``u_a·x_o`` the best guess of 1 from ``x_o``.
        missing: (K,)  ``E(1 − u_a·x_o)²``, 0 if ``x_o`` has a constant.
        preferred: (K, n)  ``p_a``, what the old policy favoured among recorded features; 0 if there is no constant.
        bent: (n,)  whether a coordinate is a derived feature, a bend or a product; none is if there is no constant.
    """

    scale: Array
    shift: Array
    constant: int | None
    D: Array
    mean: Array
    ones: Array
    missing: Array
    preferred: Array
    bent: NDArray[np.bool_]

    @property
    def size(self) -> int:
        """``n``: the number of coordinates."""
        return len(self.scale)

    @classmethod
    def plain(cls, summary: LogSummary, old_ridge: bool = False) -> Frame:
        """The recorded features as they are, up to units: for a strength of pooling that was given.

        Args:
            summary: the log.
            old_ridge: with the ridge of version 0.1, the same for all features, for files that it wrote.
        """
        D, mean = _pooled(summary)
        scale = 1.0 / power_of_two(np.sqrt(np.diagonal(D)))
        if old_ridge:
            np.einsum("ii->i", D)[...] += RIDGE * float(np.sum(np.diagonal(D))) / max(len(D), 1)
            D *= scale[:, None] * scale
        else:
            D = _ridged(D, scale)
        nothing = np.zeros((summary.n_arms, len(mean)))
        straight, missing = np.zeros(len(mean), dtype=np.bool_), np.zeros(len(nothing))
        return cls(scale, np.zeros_like(mean), None, D, mean * scale, nothing, missing, nothing, straight)

    @classmethod
    def leveled(cls, summary: LogSummary) -> Frame:
        """Centred, with a constant, so that levels are apart from slopes."""
        D, mean = _pooled(summary)
        squares = np.diagonal(D)
        spread = squares - mean * mean
        spread = np.where(spread <= CONSTANT * squares, 0.0, spread)
        found = np.flatnonzero((spread == 0.0) & (squares > 0))
        L = len(mean)
        if len(found):
            c = int(found[0])
            ones = np.zeros((summary.n_arms, L))
            ones[:, c] = 1.0 / mean[c]
            missing = np.zeros(summary.n_arms)
        else:
            c = L
            D = np.block([[D, mean[:, None]], [mean[None, :], np.ones((1, 1))]])
            mean, spread = np.append(mean, 1.0), np.append(spread, 0.0)
            ones = _ones(summary)
            # the residual variance of u_a, the regression of 1 on x_o
            missing = np.clip(1.0 - np.sum(ones * np.asarray(summary.means), axis=1), 0.0, 1.0)
        # a feature that did not vary has no deviation: scale it by its size
        scale = 1.0 / power_of_two(np.where(spread > 0, np.sqrt(spread), np.abs(mean)))
        scale[c] = 1.0 / mean[c]
        shift = scale * mean
        shift[c] = 0.0
        centred = D - np.outer(mean, mean)
        still = spread == 0.0  # features that did not vary, the constant among them
        centred[still], centred[:, still] = 0.0, 0.0
        np.fill_diagonal(centred, spread)
        centred[c, c] = mean[c] * mean[c]
        D = _ridged(centred, scale)
        preferred = np.zeros((summary.n_arms, len(scale)))
        varies = np.flatnonzero(~still)
        if len(varies):
            moved = scale[varies] * np.asarray(summary.means)[:, varies] - shift[varies]
            preferred[:, varies] = _preferred(D[np.ix_(varies, varies)], moved, np.asarray(summary.counts))
        bent = np.zeros(len(scale), dtype=np.bool_)
        bent[:L] = np.isin(summary.schema.recorded_index, summary.schema.derived_index)
        return cls(scale, shift, c, D, np.eye(len(scale))[c], ones, missing, preferred, bent)

    def moved(self, S: Array, unit: Array, means: Array, faded: bool = True) -> Array:
        """Sums of products in these coordinates.

        Args:
            S: (K, N, N)  ``Σ ω v vᵀ`` with ``v`` the features ``y`` and whatever follows.
            unit: (N − n,)  scales of the features that follow.
            means: (N − n,)  what to subtract from them, in scaled units.
            faded: with ``1 − f p_a·z`` in place of the constant, for the arms of the log.
        """
        scale, shift = np.concatenate([self.scale, 1.0 / unit]), np.concatenate([self.shift, means])
        out, fading = np.empty_like(S), FADING * self.preferred if faded else np.zeros((0, self.size))
        move_sums(S, scale, shift, -1 if self.constant is None else self.constant, fading, out)
        return out

    def unfaded(self, theta: Array) -> Array:
        """Coefficients of the coordinates themselves, from those that go with faded sums.  theta: (K, n, m)"""
        if self.constant is None:
            return theta
        return np.asarray(theta - FADING * self.preferred[:, :, None] * theta[:, None, self.constant])

    def levels(self, theta: Array, means: Array) -> Array:
        """(K, m)  the level ``c_a`` of hidden features where all recorded ones are 0.  theta: (K, n, m)"""
        if self.constant is None:
            return np.zeros((len(theta), theta.shape[2]))
        return np.asarray(theta[:, self.constant] - np.sum(self.shift[:, None] * theta, axis=1) + means)

    def slopes(self, theta: Array) -> Array:
        """``F_a`` (K, L, m) of coefficients in these coordinates, 0 for the constant.  theta: (K, n, m)"""
        L = self.ones.shape[1]
        out = self.scale[:, None] * theta
        if self.constant is not None and self.constant < L:
            out[:, self.constant] = 0.0
        return np.asarray(out[:, :L])

    def coefficients(self, theta: Array, means: Array) -> Array:
        """``B_a = F_a + u_ac_aᵀ`` (K, L, m) of coefficients in these coordinates.  theta: (K, n, m)"""
        slopes = self.slopes(theta)
        if self.constant is None:
            return slopes
        return np.asarray(slopes + self.ones[:, :, None] * self.levels(theta, means)[:, None, :])

    @cached_property
    def projection(self) -> Array:
        """``E``: (K, L, n), with ``B_a = E_aθ_a`` up to the hidden features' means, ``θ_a`` of faded sums."""
        K, L = self.ones.shape
        E = np.zeros((K, L, self.size))
        for j in range(L):
            if j != self.constant:
                E[:, j, j] = self.scale[j]
        if self.constant is not None:
            level = np.eye(self.size)[self.constant] - self.shift
            E += self.ones[:, :, None] * level
            E[:, :, self.constant] -= FADING * apply(E, self.preferred)
        return E


def power_of_two(values: Array) -> Array:
    """The largest power of two at most each value; 1 where a value is 0."""
    exponents = np.frexp(np.where(values > 0, values, 1.0))[1]
    return np.asarray(np.ldexp(1.0, exponents - 1))


def unitless_pseudo_inverse(A: Array) -> Array:
    """``A⁺`` of Gram matrices ``A`` (…, n, n), computed after their diagonals are scaled to one.

    So neither the rank nor the choice among the inverses of a singular matrix depends on units.
    """
    own = np.einsum("...ii->...i", A)
    # beside a zero on the diagonal there is nothing but rounding
    scale = np.where(own > 0.0, 1.0 / np.sqrt(np.where(own > 0.0, own, 1.0)), 0.0)
    both = scale[..., :, None] * scale[..., None, :]
    return np.asarray(pseudo_inverse(symmetrize(A * both), NOTHING) * both)


def unitless_regression(R11: Array, R12: Array, level: int | None) -> Array:
    """``R11⁺R12`` (L, m); with an intercept around the means, so that it is the same wherever features have theirs.

    level: the position of the intercept, or None
    """
    if level is None or not R11[level, level] > 0.0:
        return product(unitless_pseudo_inverse(R11), R12)
    mean, hidden_mean = R11[level] / R11[level, level], R12[level] / R11[level, level]
    spread = covariance_of(R11 / R11[level, level], mean)
    B = product(unitless_pseudo_inverse(spread), R12 / R11[level, level] - mean[:, None] * hidden_mean)
    B[level] += hidden_mean - product(mean, B)
    return B


def covariance_of(moments: Array, mean: Array) -> Array:
    """Covariance (L, L) of second moments and means; 0 for what does not vary, of which rounding would be left."""
    spread = symmetrize(moments - mean[:, None] * mean)
    still = np.diagonal(spread) <= CONSTANT * np.diagonal(moments)
    spread[still], spread[:, still] = 0.0, 0.0
    return spread


def _pooled(summary: LogSummary) -> tuple[Array, Array]:
    """Second moments (L, L) and means (L,) of the recorded features over the whole log."""
    shares = np.asarray(summary.shares)[:, None]
    D = np.sum(shares[:, :, None] * np.asarray(summary.second_moments), axis=0)
    return D, np.sum(shares * np.asarray(summary.means), axis=0)


def _preferred(D: Array, means: Array, counts: Array) -> Array:
    """``p_a = D⁻¹E[z | a]``: (K, p), each arm's shrunk by what its number of rows leaves to chance.

    By James and Stein's factor ``1 − p/(n_a μᵀD⁻¹μ)``, or 0 where that is negative, ``μ = E[z | a]`` of ``p`` features.
    D: (p, p)   means: (K, p)   counts: (K,)
    """
    p, shift = len(D), np.where(counts[:, None] > 0, means, 0.0)
    moments = D.copy()
    np.einsum("ii->i", moments)[...] *= 1.0 + SIMILAR
    found = product(shift, inverse(moments))
    size = counts * np.sum(found * shift, axis=1)
    shrunk = np.where(size > p, 1.0 - p / np.where(size > 0.0, size, 1.0), 0.0)
    return np.asarray(shrunk[:, None] * found)


def _ridged(D: Array, scale: Array) -> Array:
    """``D`` in units of the scales, with the ridge; NaN on the diagonal where nothing varies."""
    D = D * scale[:, None] * scale
    own = np.diagonal(D).copy()
    np.fill_diagonal(D, np.where(own > 0, own * (1.0 + RIDGE), np.nan))
    varies = np.flatnonzero(own > 0)
    apart = np.ascontiguousarray(D[np.ix_(varies, varies)])
    found = np.empty_like(apart)
    if len(varies) > 1 and not np.isnan(invert(apart, found)):
        # what the others leave of a feature, as a part of its second moment
        left = 1.0 / (own[varies] * np.diagonal(found))
        D[varies, varies] += REPEATED * own[varies] * (REPEATED / (REPEATED + left))
    return D


def _ones(summary: LogSummary) -> Array:
    """``u_a = R11(a)⁺E[x_o | a]`` (K, L); 0 for an arm without rows."""
    G, sums = np.asarray(summary.grams), np.asarray(summary.means) * np.asarray(summary.counts)[:, None]
    own, total = np.einsum("aii->ai", G), np.einsum("aii->i", G)
    # a feature that was always zero has no unit, and takes no part
    seen = own > CONSTANT * total
    scale = np.where(seen, 1.0 / np.sqrt(np.where(seen, own, 1.0)), 0.0)
    both = scale[:, :, None] * scale[:, None, :]
    values, vectors = symmetric_eigen(symmetrize(G * both))
    # 1/λ, and 0 where nothing but rounding is left of λ: a ridge would divide rounding errors by itself
    values /= np.square(values) + RIDGE * RIDGE
    inverses = product(vectors * values[:, None, :], np.swapaxes(vectors, 1, 2)) * both
    return apply(inverses, sums)
