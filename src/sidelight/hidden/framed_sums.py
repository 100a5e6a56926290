"""Sums of answers in the coordinates of a frame, of which regressions of hidden on recorded features are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sidelight.hidden.frame import CONSTANT, Frame, power_of_two
from sidelight.hidden.protocol import Contexts
from sidelight.hidden.sums import AnswerSums
from sidelight.hidden.unasked import SHIFT, Unasked, deviations_of, with_one
from sidelight.kernels.answers import add_up
from sidelight.linalg import Array, product, symmetrize

__all__ = ["Told", "Within"]


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
        S, squared, whole = _with_constant(sums, n, shared)
        apart = _apart(sums, n)
        if apart is not None:
            S, squared = np.concatenate([S, apart[0]]), np.concatenate([squared, apart[1]])
        count = float(np.sum(sums.counts))
        rows = count if unasked is None else count + unasked.rows
        unit, means, squares = _of_hidden(sums, frame, unasked, rows)
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
        _leave_out(silent, S, others)
        if apart is not None:
            (S, more), (squared, more_squared) = (S[:K], S[K]), (squared[:K], squared[K])
        seen = np.sum(np.einsum("aii->ai", S[:, :n, :n]), axis=0)
        if others is not None:
            seen = seen + np.diagonal(others)[:n]
        D, own = frame.D.copy(), np.diagonal(frame.D)
        # a feature that varied neither in the log nor in the contexts: after centring only rounding errors are left
        still = np.flatnonzero(np.isnan(own) & (seen <= CONSTANT * before))
        _leave_out(still, S, squared, others)
        seen[still] = 0.0
        if others is not None and unasked is not None:
            c = frame.constant
            _leave_out(np.array([c]), others)
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
            _leave_out(still, noise)
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


def _with_constant(sums: AnswerSums, n: int, shared: bool) -> tuple[Array, Array, Array | None]:
    """``Σωvvᵀ`` (K, n + m, n + m) and ``Σω²v_ov_oᵀ`` (K, n, n), with a one after ``x_o`` if there are more than ``L``.

    And ``Σv_ov_oᵀ/q²`` (n, n) of answers that are about all arms at once; None if they are not ``shared``.
    """
    L, K, m = sums.L, len(sums.S), sums.S.shape[1] - sums.L
    if n == L:
        return sums.S, sums.S_squared, sums.whole if shared else None
    S = np.empty((K, n + m, n + m))
    S[:, :L, :L], S[:, :L, n:] = sums.S[:, :L, :L], sums.S[:, :L, L:]
    S[:, n:, :L], S[:, n:, n:] = sums.S[:, L:, :L], sums.S[:, L:, L:]
    S[:, L, :L], S[:, L, L], S[:, L, n:] = sums.sums[:, :L], sums.counts, sums.sums[:, L:]
    S[:, :, L] = S[:, L]
    return S, sums.squares_with_one(), sums.whole_with_one() if shared else None


def _of_hidden(sums: AnswerSums, frame: Frame, unasked: Contexts | None, rows: float) -> tuple[Array, Array, Array]:
    """Scales (m,), centres (m,) in these, and sums of squares (m,) of the hidden features over ``rows`` contexts."""
    L = sums.L
    squares, first = np.sum(np.einsum("aii->ai", sums.S22), axis=0), np.sum(sums.sums[:, L:], axis=0)
    unit, means = np.ones(len(squares)), np.zeros(len(squares))
    if unasked is not None:
        squares, first = squares + np.diagonal(unasked.squares)[L:], first + unasked.sums[L:]
    if rows > 0:
        unit = power_of_two(np.sqrt(squares / rows))
        if frame.constant is not None:
            means = first / unit / rows
    return unit, means, squares


def _leave_out(positions: NDArray[np.int64], *sums: Array | None) -> None:
    """Set rows and columns of sums (…, N, N) to zero, in place."""
    for S in sums:
        if S is not None:
            S[..., positions, :], S[..., :, positions] = 0.0, 0.0


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
