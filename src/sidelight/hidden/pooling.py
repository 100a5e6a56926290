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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sidelight.hidden.frame import CONSTANT, Frame, power_of_two
from sidelight.hidden.protocol import Contexts
from sidelight.hidden.sums import AnswerSums
from sidelight.hidden.unasked import SHIFT, Unasked, deviations_of, with_one
from sidelight.kernels.answers import SINGULAR, add_up, pooled_regression
from sidelight.kernels.answers import regress as regress_arms
from sidelight.kernels.spd import invert
from sidelight.linalg import Array, product, pseudo_inverse, symmetric_eigen, symmetrize

__all__ = ["FLAT", "Fit", "Pool", "Told", "bent_metric", "fit_arms", "regress", "slope_pull"]

#: relative to a feature's own sum of squares, what rounding may have done to its differences from other features
ROUNDING = 1e-11
#: precision of the pooled level's prior, in answers: so small that the prior is flat
FLAT = 1e-6


class Within(NamedTuple):
    """Sums of all arms' answers for the pooled regression.

    Attributes:
        total: (n + m, n + m)   noise: (n, n)  ``N`` with ``Cov(Σ zY) = N ⊗ Σ``.
    """

    total: Array
    noise: Array


@dataclass(frozen=True)
class Told:
    """Sums of answers in the coordinates of a frame, with weights scaled so that they count for what they tell.

    Scaled by ``Σω‖z‖²/Σω²‖z‖²``, so that ``Σω² ≈ Σω`` as for answers of weight one, for which nothing changes.  Weights
    ``π_b(a|x)`` add up to fewer answers than they are worth: ``(Σω)²/Σω²``.  Hidden features are scaled by powers of
    two and, where the frame has a constant, centred.

    Attributes:
        frame: the coordinates; the sums' level is faded   D: (n, n)  second moments of the coordinates.
        S: (K, n + m, n + m)   squared: (K, n, n)   counts: (K,)  of every arm.
        total: (n + m, n + m)   noise: (n, n)   answers: of all arms together.
        unit: (m,)  the hidden features' scales   means: (m,)  their centres, in these units.
        worth: (K,)  times which an arm's weights count in ``total``, relative to ``S``.
        straight: (m,)  whether a hidden feature is a column, not derived from columns.
        unasked: contexts without an answer; None for none.
    """

    frame: Frame
    D: Array
    S: Array
    squared: Array
    counts: Array
    total: Array
    noise: Array
    answers: float
    unit: Array
    means: Array
    worth: Array
    straight: NDArray[np.bool_]
    unasked: Unasked | None = None

    @classmethod
    def of(
        cls, sums: AnswerSums, frame: Frame, shared: bool, unasked: Contexts | None = None, slopes: float = 1.0
    ) -> Told:
        """What ``sums`` tell, and contexts without an answer.

        Args:
            sums: of the answers.
            frame: the coordinates.
            shared: if every answer is about all arms at once.
            unasked: contexts without an answer; a frame without a constant does not use them.
            slopes: ``κ``, for what they tell.
        """
        if frame.constant is None:
            unasked = None
        L, n = sums.L, frame.size
        K, m = len(sums.S), sums.S.shape[1] - L
        if n > L:
            S = np.empty((K, n + m, n + m))
            S[:, :L, :L], S[:, :L, n:] = sums.S[:, :L, :L], sums.S[:, :L, L:]
            S[:, n:, :L], S[:, n:, n:] = sums.S[:, L:, :L], sums.S[:, L:, L:]
            S[:, L, :L], S[:, L, L], S[:, L, n:] = sums.sums[:, :L], sums.counts, sums.sums[:, L:]
            S[:, :, L] = S[:, L]
            squared = sums.squares_with_one()
            whole = sums.whole_with_one() if shared else None
        else:
            S, squared, whole = sums.S, sums.S_squared, sums.whole if shared else None
        apart = _apart(sums, n)
        if apart is not None:
            S, squared = np.concatenate([S, apart[0]]), np.concatenate([squared, apart[1]])
        squares, first = np.sum(np.einsum("aii->ai", sums.S22), axis=0), np.sum(sums.sums[:, L:], axis=0)
        unit, means = np.ones(m), np.zeros(m)
        count = float(np.sum(sums.counts))
        rows = count
        if unasked is not None:
            squares, first = squares + np.diagonal(unasked.squares)[L:], first + unasked.sums[L:]
            rows += unasked.rows
        if rows > 0:
            unit = power_of_two(np.sqrt(squares / rows))
            if frame.constant is not None:
                means = first / unit / rows
        before = np.sum(np.einsum("aii->ai", S[:, :n, :n]) * frame.scale * frame.scale, axis=0)
        others = None
        if unasked is not None:
            wide = with_one(unasked, L, n)
            before = before + np.diagonal(wide)[:n] * frame.scale * frame.scale
            others = frame.moved(wide[None], unit, means, faded=False)[0]
        nothing = np.zeros(0)
        S, squared = frame.moved(S, unit, means), frame.moved(squared, nothing, nothing)
        # a hidden feature that did not vary among the answers: after centring only rounding errors are left, and a
        # likelihood in their scale would mean nothing
        own = np.sum(np.einsum("aii->ai", S[:K, n:, n:]), axis=0)
        if others is not None:
            own = own + np.diagonal(others)[n:]
        silent = n + np.flatnonzero(own <= CONSTANT * squares / (unit * unit))
        S[:, silent], S[:, :, silent] = 0.0, 0.0
        if others is not None:
            others[silent], others[:, silent] = 0.0, 0.0
        if apart is not None:
            (S, more), (squared, more_squared) = (S[:K], S[K]), (squared[:K], squared[K])
        seen = np.sum(np.einsum("aii->ai", S[:, :n, :n]), axis=0)
        if others is not None:
            seen = seen + np.diagonal(others)[:n]
        D, own = frame.D.copy(), np.diagonal(frame.D)
        # a feature that varied neither in the log nor in the contexts: after centring only rounding errors are left
        still = np.flatnonzero(np.isnan(own) & (seen <= CONSTANT * before))
        for sums_of in (S, squared):
            sums_of[:, still], sums_of[:, :, still] = 0.0, 0.0
        seen[still] = 0.0
        if others is not None and unasked is not None:
            others[still], others[:, still] = 0.0, 0.0
            c = frame.constant
            others[c], others[:, c] = 0.0, 0.0
            others[c, c] = min(1.0 / SHIFT, unasked.rows)
        # a feature that did not vary in the log is scaled by its variance in the contexts
        filled = np.where(seen > 0, seen / max(rows, 1e-300), 1.0)
        np.fill_diagonal(D, np.where(np.isnan(own), filled, own))
        total, noise, sizes, squares = np.empty((n + m, n + m)), np.empty((n, n)), np.empty(K + 1), np.empty(K + 1)
        units = 1.0 / np.diagonal(D)
        add_up(S, squared, units, total, noise, sizes, squares)
        if apart is not None and frame.constant is None:
            # with levels the pooled regression is one within arms, and made of their sums alone
            total, noise = total + more, noise + more_squared
            sizes[K] += float(np.sum(np.diagonal(more)[:n] * units))
            squares[K] += float(np.sum(np.diagonal(more_squared) * units))
        if whole is not None:
            noise = frame.moved(whole[None], nothing, nothing, faded=False)[0]
            noise[still], noise[:, still] = 0.0, 0.0
            squares[K] = float(np.sum(np.diagonal(noise) * units))
        # 1 for unweighted answers; also 1 if the total weight underflows
        counted = squares > 1e-280
        worth = np.where(counted, sizes / np.where(counted, squares, 1.0), 1.0)
        g, f = float(worth[K]), worth[:K]
        counts = sums.counts
        if (f != 1.0).any():
            f3 = f[:, None, None]
            S, squared, counts = f3 * S, f3 * (f3 * squared), f * counts
        noise = g * (g * noise)
        more_told = None
        if others is not None and unasked is not None:
            more_told = Unasked(unasked.rows, others, *deviations_of(frame, D, sums.shares, sums.log_rows, slopes))
        return cls(
            frame, D, S, squared, counts, g * total, noise, g * count, unit, means, g / f, sums.straight, more_told
        )

    def informative(self, levels: float) -> float:
        """As many answers would say as much about the slopes that arms have in common.  levels: ``v``"""
        slopes = np.arange(self.frame.size) != self.frame.constant
        if self.unasked is None or not slopes.any():
            return self.answers
        own = np.diagonal(self.unasked.within(levels))[: self.frame.size] / np.diagonal(self.D)
        return self.answers + float(np.cumsum(own[slopes])[-1]) / int(slopes.sum())

    @property
    def rows(self) -> float:
        """How many contexts there are, answered or not."""
        return self.answers + (0.0 if self.unasked is None else self.unasked.rows)

    def within(self, levels: float, whole: bool = False) -> Within:
        """Sums for the regression that arms have in common, their levels apart with the variance ``levels = v``.

        An arm's ``N`` answers are ``Y_a = Z_aθ_pool + l_ac_aᵀ + …`` with ``l_a`` the regressor of its level and ``c_a ~
        N(0, vΣ)``, so that ``Cov Y_a = (I + vl_al_aᵀ) ⊗ Σ`` and

            Z_aᵀ(I + vl_al_aᵀ)⁻¹Z_a = S_a − v s_as_aᵀ/(1 + v l_aᵀl_a),      s_a = Z_aᵀl_a,

        likewise for ``Y_a``.  As ``v`` grows the arms' means are taken out; ``v = 0`` is the regression over all
        contexts.  Without a constant there are no levels, and it is that one too.  The common level is 0, the mean over
        all contexts, from which these arms' levels differ: that is known as well as all answers together tell it.

        Args:
            levels: ``v``.
            whole: whether to take the regression over contexts without an answer for that within arms.
        """
        c, n = self.frame.constant, self.frame.size
        if c is None:
            return Within(self.total, self.noise)
        part = levels / (1.0 + levels * self.S[:, c, c])
        taken = product(self.worth * part * self.S[:, c].T, self.S[:, c])
        total = symmetrize(self.total - taken)
        total[c, c] = self.total[c, c]
        if self.unasked is not None:
            total += self.unasked.within(0.0 if whole else levels)
        # the noise is that of answers of weight one; others are scaled so that Σω² is about Σω
        return Within(total, total[:n, :n].copy())

    @property
    def hidden_scale(self) -> Array:
        """(m,)  mean squares of the hidden features, centred where the frame is; 0 where none is known to vary."""
        squares, rows = np.diagonal(self.total)[self.frame.size :], self.rows
        if self.unasked is not None:
            squares = squares + np.diagonal(self.unasked.sums)[self.frame.size :]
        # a feature that did not vary: after centring only rounding errors are left
        squares = np.where(squares > 1e-12 * (squares + rows * np.square(self.means)), squares, 0.0)
        return np.maximum(squares, 0.0) / max(rows, 1e-300) if rows > 0 else np.zeros(len(squares))


def _apart(sums: AnswerSums, n: int) -> tuple[Array, Array] | None:
    """What the pooled regression has beyond the sums over arms, (1, n + m, n + m) and (1, n, n); None if nothing."""
    S, first, squared, excess = sums.apart
    if not S.any():
        return None
    L = sums.L
    if n > L:
        inner = np.r_[0:L, n : n + len(S) - L]
        wide, wide_squared = np.zeros((len(S) + 1, len(S) + 1)), np.zeros((n, n))
        wide[inner[:, None], inner] = S
        wide[L, inner], wide[inner, L] = first, first
        wide_squared[:L, :L] = squared
        wide_squared[L, :L] = wide_squared[:L, L] = first[:L] + excess[:L]
        S, squared = wide, wide_squared
    return S[None], squared[None]


@dataclass(frozen=True)
class Pool:
    """The regression over all arms.

    Attributes:
        pull: (n, n)  ``κ₀D``, its entry for the level ``FLAT``.
        inverse: (n, n)  ``T⁻¹``, ``T`` the Gram matrix over all arms and ``pull``.
        theta: (n, m)  ``θ_pool``.
        residual: (m, m)  second moments of what it leaves, started with one answer of the hidden features' own.
        noise: (n, n)  ``N`` with ``Cov(θ_pool) = T⁻¹(N + pull)T⁻¹ ⊗ Σ``.
    """

    pull: Array
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
        inverse, theta, residual = np.empty((n, n)), np.empty((n, m)), np.empty((m, m))
        gram = within.total[:n, :n] + pull
        # collinear features: rounding errors must not decide which one gets the weight
        if told.frame.constant is not None:
            np.einsum("ii->i", gram)[...] *= 1.0 + ROUNDING
        if math.isnan(invert(gram, inverse)):
            # collinear features, and so many answers that rounding errors exceed the prior
            inverse[...] = pseudo_inverse(gram)
        pooled_regression(within.total, inverse, theta, residual)
        scale, size = told.hidden_scale, np.square(told.means)
        # a feature that has not varied yet: its own square, so that no unit matters; 1 if it was always 0
        np.einsum("ii->i", residual)[...] += np.where(scale > 0, scale, np.where(size > 0, size, 1.0))
        used = n - float(np.sum(inverse * pull))
        residual /= max(told.rows - used, 0.0) + 1.0
        return cls(pull, inverse, theta, residual, within.noise)


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
    return Fit(pull, product(pool.inverse, pull), theta, plain, B)


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
