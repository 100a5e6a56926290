"""The units in which a prior is stated: centre and scale of every feature, mean and variance of the rewards.

With ``z_j = (x_j − c_j)/s_j`` and an intercept ``z_k = 1`` the reward ``x·w`` is ``z·v`` for

    v_j = s_j w_j,   v_k = w_k + Σ_j c_j w_j,   that is   w = Av   with   A = I/s − e_k(c/s)ᵀ,

so evidence ``J, h`` about ``w`` is ``AᵀJA, Aᵀh`` about ``v`` (a shear and a scaling), and no sum has to be taken again
when a centre moves.  Multiplying features or rewards by powers of two changes nothing in ``z``, ``v`` but exponents.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sidelight.linalg import Array, product

__all__ = ["UNKNOWN", "Tally", "Units"]

#: the scale of a feature that has not varied yet: so large that its weight is zero to rounding in any unit. Priors of
#: such a feature are stated with the same number, so that it cancels
UNKNOWN = 2.0**150
#: a variance below this part of the second moment is rounding: the values are all the same
SAME = 1e-11
#: a mean counts as far as its square exceeds this multiple of its own sampling variance
SURE = 4.0
#: the square of a mean that is surely less, relative to the second moment, is none
NO_MEAN = 1e-9
#: the least that a feature's standard deviation is taken for, relative to its root second moment
LEAST_SPREAD = 2.0**-10
#: features that vary make levels of their own if the squares of their means, in standard deviations, add up to more
MAKES_LEVELS = math.sqrt(2.0)


@dataclass
class Tally:
    """How many values of each feature and of the rewards were seen, their sums and their sums of squares.

    Attributes:
        rows: (d,)   sums: (d,)   squares: (d,)   of the features.
        rewards: (3,)  number, sum and sum of squares of the rewards.
    """

    rows: Array
    sums: Array
    squares: Array
    rewards: Array

    @classmethod
    def empty(cls, d: int) -> Tally:
        """A tally of zero rows for ``d`` features."""
        return cls(np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(3))

    def add(self, positions: NDArray[np.int64] | slice, rows: float, sums: Array, squares: Array) -> None:
        """``rows`` more values of the features at ``positions``."""
        self.rows[positions] += rows
        self.sums[positions] += sums
        self.squares[positions] += squares

    def add_rewards(self, rows: float, total: float, squares: float) -> None:
        """Add ``rows`` rewards by their sum and their sum of squares."""
        self.rewards += (rows, total, squares)


@dataclass(frozen=True)
class Units:
    """Centres and scales, as ``Tally`` has them.

    With an intercept these are means and standard deviations, without one 0 and root second moments; what level they
    make then is ``means`` (``side.levels``).

    Attributes:
        centres: (d,)  ``c``   scales: (d,)  ``s``; ``UNKNOWN`` for a feature that never varied (without an intercept:
            that was never but zero), 0 and 1 for the intercept.
        rows: (d,)  how many values each rests on.
        constant: position of the intercept, or None.
        reward_centre: what is subtracted from rewards   reward_variance: of what is left, less ``mean_reward²``; the
            second moment while they are all alike, 1 while they are all zero.
        reward_rows: how many rewards that rests on   reward_known: whether they differ at all.
        means: (d,)  without an intercept the features' means relative to their scales, as far as these are sure
        mean_reward: and that of the rewards, as far as features can make a level; 0 with an intercept, which centres.
    """

    centres: Array
    scales: Array
    rows: Array
    constant: int | None
    reward_centre: float
    reward_variance: float
    reward_rows: float
    reward_known: bool
    means: Array = field(default_factory=lambda: np.zeros(1))
    mean_reward: float = 0.0

    @classmethod
    def of(cls, tally: Tally, constant: int | None) -> Units:
        """Centres and scales from the sums of a tally."""
        n = np.maximum(tally.rows, 1.0)
        second = tally.squares / n
        centres = np.zeros_like(second)
        variances = second
        if constant is not None:
            centres = tally.sums / n
            variances = second - centres * centres
        known = variances > SAME * second
        if constant is not None:
            variances = variances * n / np.maximum(n - 1.0, 1.0)
        scales = np.where(known, np.sqrt(np.where(known, variances, 1.0)), UNKNOWN)
        if constant is not None:
            centres[constant], scales[constant] = 0.0, 1.0
        rows, total, squares = (float(v) for v in tally.rewards)
        second_reward = squares / max(rows, 1.0)
        centre = 0.0 if constant is None else total / max(rows, 1.0)
        variance = second_reward - centre * centre
        reward_known = variance > SAME * second_reward
        if not reward_known:
            variance = second_reward if second_reward > 0.0 else 1.0
        means, mean_reward = np.zeros_like(second), 0.0
        if constant is None:
            means = _sure_means(tally.sums / n, second, n)
            size = float(product(means, means / (1.0 - means * means)))
            mean_reward = total / max(rows, 1.0) * math.sqrt(size / (1.0 + size))
            if reward_known:
                variance -= mean_reward * mean_reward
        return cls(centres, scales, tally.rows, constant, centre, variance, rows, reward_known, means, mean_reward)

    @classmethod
    def given(cls, scales: Array, reward_variance: float) -> Units:
        """Scales that are known beforehand, without centres."""
        s = np.asarray(scales, dtype=np.float64)
        rows = np.full(len(s), np.inf)
        return cls(np.zeros(len(s)), s, rows, None, 0.0, float(reward_variance), np.inf, True)

    @property
    def known(self) -> NDArray[np.bool_]:
        """(d,)  Whether a feature has varied."""
        return np.asarray(self.scales != UNKNOWN)

    @property
    def reward_square(self) -> float:
        """Mean square of centred rewards: their variance, and without an intercept what of their mean was taken off."""
        return self.reward_variance + self.mean_reward * self.mean_reward

    @property
    def spreads(self) -> Array:
        """(d,)  Standard deviations relative to the scales: 1 with an intercept, or where means are zero."""
        return np.asarray(np.sqrt(1.0 - self.means * self.means))

    @property
    def level(self) -> Array:
        """(d,)  ``v`` that pays 1 in the mean over contexts, shortest in standard deviations; 0 if there is none."""
        out = np.zeros(len(self.scales))
        if self.constant is not None:
            out[self.constant] = 1.0
        elif self.means.any():
            g = self.means / self.spreads
            out = g / (float(product(g, g)) * self.spreads)
        return np.asarray(out)

    def evidence(self, J: Array, h: Array) -> tuple[Array, Array]:
        """``AᵀJA`` and ``Aᵀ(h − Je_k r̄)``: what is said about ``v``, rewards centred.  J: (K, d, d)   h: (K, d)"""
        k, c, s = self.constant, self.centres, self.scales
        if k is None:
            J, h = J / s[:, None] / s, h / s
        else:
            h = h - J[:, :, k] * self.reward_centre
            h = (h - h[:, k, None] * c) / s
            J = (J - J[:, :, k, None] * c) / s
            J = (J - c[:, None] * J[:, k, None, :]) / s[:, None]
        # what is left of a feature that never varied is rounding
        silent = ~self.known
        if silent.any():
            J[:, silent, :] = 0.0
            J[:, :, silent] = 0.0
            h[:, silent] = 0.0
        return np.asarray(J), np.asarray(h)

    def rows_of(self, M: Array) -> Array:
        """``MA`` (n, d), so that ``Mw = MAv`` up to the rewards' centre.  M: (n, d)"""
        if self.constant is not None:
            M = M - M[:, self.constant, None] * self.centres
        return np.asarray(M / self.scales)

    def inverse_rows(self, rows: Array) -> Array:
        """``A⁻¹rows`` (d, n), so that ``x·rows = z·A⁻¹rows``.  rows: (d, n)"""
        out = self.scales[:, None] * rows
        if self.constant is not None:
            out[self.constant] += np.cumsum(self.centres[:, None] * rows, axis=0)[-1]
        return np.asarray(out)

    def first(self, n: int) -> Units:
        """Units of the first ``n`` features alone; without centres if the intercept is not among them."""
        constant = self.constant if self.constant is not None and self.constant < n else None
        own = {name: getattr(self, name)[:n] for name in ("centres", "scales", "rows", "means")}
        return replace(self, constant=constant, **own)

    def scaled_weights(self, w: Array) -> Array:
        """``v`` of centred rewards, the inverse of ``weights``.  (d,)"""
        v = self.scales * w
        if self.constant is not None:
            v[self.constant] += np.cumsum(self.centres * w)[-1] - self.reward_centre
        return np.asarray(v)

    def squares(self, squares: Array, moments: Array, grams: Array) -> Array:
        """(K,)  ``Σ(r − r̄)²`` of ``Σr²`` (K,), ``Σxr`` (K, d) and ``Σxxᵀ`` (K, d, d)."""
        k, centre = self.constant, self.reward_centre
        if k is None:
            return squares
        return np.asarray(squares - centre * (2.0 * moments[:, k] - centre * grams[:, k, k]))

    def covariance(self, C: Array) -> Array:
        """``ACAᵀ``, the covariance of ``w`` where that of ``v`` is ``C``.  (d, d)"""
        out = C / self.scales[:, None] / self.scales
        if self.constant is not None:
            k = self.constant
            out[k] -= np.cumsum(self.centres[:, None] * out, axis=0)[-1]
            out[:, k] -= np.cumsum(out * self.centres, axis=1)[:, -1]
        return np.asarray(out)

    def weights(self, v: Array) -> Array:
        """``w`` of centred rewards' ``v``.  (…, d)"""
        w = v / self.scales
        if self.constant is not None:
            # the products are added in order, so that they come out alike on every machine
            w[..., self.constant] += self.reward_centre - np.cumsum(w * self.centres, axis=-1)[..., -1]
        return np.asarray(w)

    def precision(self, P: Array) -> Array:
        """``A⁻ᵀPA⁻¹``, the precision of ``w`` where that of ``v`` is ``P``.  (…, d, d)"""
        k, c, s = self.constant, self.centres, self.scales
        out = P * s
        if k is not None:
            out = out + P[..., :, k, None] * c
        out = out * s[:, None] if k is None else out * s[:, None] + c[:, None] * out[..., k, None, :]
        return np.asarray(out)


def _sure_means(means: Array, second: Array, n: Array) -> Array:
    """Means relative to root second moments (d,), their squares less what chance may add to them.

    A sampling variance counts as at least ``1/n²``, since values that were alike so far need not be.

    second: (d,) second moments   n: (d,) numbers of values
    """
    squares = means * means / np.where(second > 0.0, second, 1.0)
    chance = SURE * np.maximum(1.0 - squares, 1.0 / n) / np.maximum(n - 1.0, 1.0)
    sure = np.clip(squares - chance, 0.0, 1.0 - LEAST_SPREAD * LEAST_SPREAD)
    # a flag that is set three times in nine is as sure as chance, and rounding must not decide whether there are levels
    sure = np.where(sure <= NO_MEAN, 0.0, sure)
    # a column of ones that is no declared intercept is a feature like any other, unless the others make levels too
    others = np.where(1.0 - squares <= SAME, 0.0, sure)
    if float(product(others, 1.0 / (1.0 - others))) <= MAKES_LEVELS:
        sure = others
    return np.asarray(np.copysign(np.sqrt(sure), means))
