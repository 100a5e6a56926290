"""What a wild value is, in one place: a value so far from all that was seen of it that one row must not decide.

A feature's value is *wild* if it is more than ``T`` standard deviations from the mean (root second moments from zero if
there is no intercept) of ``n`` earlier ones, over log and rounds, where ``T = √n``, at least 20 and at most 100; a
reward likewise with three times that ``T``, since one reward does less harm than one context.  Values before the first
that differed from the others do not count for ``n``; where ``n`` is below 30 it takes 1,000 deviations, and below 4
nothing is wild.  Honest tails hardly ever get there: a flag that was seen once among ``n`` rows is off by ``√n`` at
most, and a log-normal value (σ = 0.75) beyond 20 comes once in 100,000 rows.  Learners with automatic settings take a
wild row in with a weight,

    (T/deviations)²,   of the worst of its values, times both context and reward,

so that a row just beyond the limit counts almost in full and a slip of a million next to nothing.  The range itself
learns 20 deviations from such a value, so that it follows a unit that really changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import WildValueWarning, calls_inside
from sidelight.kernels.ranges import first_outside, within
from sidelight.linalg import Array, square
from sidelight.side.coordinates import SAME, UNKNOWN, Units

__all__ = ["ENOUGH", "LIMITS", "Ranges", "WildValue"]

#: least and largest number of standard deviations from the mean beyond which a value is wild
LIMITS = (20.0, 100.0)
#: a reward's limit is so many times a feature's
REWARD_LIMIT = 3.0
#: how many earlier values it takes for these limits, and for one that only slips of many orders of magnitude exceed
ENOUGH, FEW = 30, 4
FEW_LIMIT = 1000.0


@dataclass(frozen=True)
class WildValue:
    """One value that is out of all proportion to those seen before.

    Attributes:
        position: of the feature, in the order of the ranges; None for a reward.
        value: as it came   low, high: what would not have been wild.
        deviations: how many standard deviations it is off   limit: how many would not have been wild.
    """

    position: int | None
    value: float
    low: float
    high: float
    deviations: float
    limit: float


@dataclass(frozen=True)
class Ranges:
    """The ranges of features and rewards beyond which a value is wild, or new.

    A value is new, not wild, where all earlier ones were the same: it is the first that tells a unit.

    Attributes:
        low: (d + 1,)   high: (d + 1,)   last those of the reward; infinite where too little was seen to tell.
        centres: (d + 1,)   scales: (d + 1,)   in which deviations are counted; ``UNKNOWN`` where all were the same.
        limits: (d + 1,)  ``T``.
    """

    low: Array
    high: Array
    centres: Array
    scales: Array
    limits: Array

    @classmethod
    def of(cls, units: Units, order: NDArray[np.int64], alike: Array | None = None) -> Ranges:
        """From what was seen, in the order of contexts.

        Args:
            units: in another order, in which feature ``i`` stands at ``order[i]`` of a context.
            order: (d,).
            alike: (d + 1,)  how many values came before the first that differed, in the order of contexts.
        """
        reward_scale = np.sqrt(units.reward_square) if units.reward_known else UNKNOWN
        centres = np.append(units.centres, units.reward_centre)
        scales = np.append(units.scales, reward_scale)
        rows = np.append(units.rows, units.reward_rows)
        place = np.argsort(np.append(order, len(order)))
        if alike is not None:
            before = alike[np.append(order, len(order))]
            scales = np.where(scales == UNKNOWN, UNKNOWN, scales * np.sqrt(rows / np.maximum(rows - before, 1.0)))
            rows = np.where(scales == UNKNOWN, rows, rows - before)
        limits = np.clip(np.sqrt(rows), *LIMITS)
        limits[-1] *= REWARD_LIMIT
        limits = np.where(rows >= ENOUGH, limits, FEW_LIMIT)
        reach = np.where(rows >= FEW, limits * scales, np.inf)
        # by so much a value must differ from n equal ones to be more than rounding
        reach = np.where(scales == UNKNOWN, np.sqrt(SAME * np.maximum(rows, 1.0)) * np.abs(centres), reach)
        if units.constant is not None:
            # the first value of all is new too, whatever it is: where features may be shifted, zero is a value as any
            reach = np.where((rows > 0.0) | (scales != UNKNOWN), reach, -np.inf)
        return cls(*(v[place] for v in (centres - reach, centres + reach, centres, scales, limits)))

    def wild(self, x: Array, reward: float | None = None) -> list[WildValue]:
        """The wild values among a context and perhaps its reward.  x: (d,)"""
        values = np.append(x, self.centres[-1] if reward is None else reward)
        out = np.flatnonzero(((values < self.low) | (values > self.high)) & (self.scales != UNKNOWN))
        return [
            WildValue(
                None if i == len(x) else int(i),
                float(values[i]),
                float(self.low[i]),
                float(self.high[i]),
                float(abs(values[i] - self.centres[i]) / self.scales[i]),
                float(self.limits[i]),
            )
            for i in out
        ]

    def usual(self, x: Array, reward: float) -> bool:
        """Whether no value is wild or new.  x: (d,)"""
        return bool(within(x, reward, self.low, self.high))

    def new(self, x: Array, reward: float) -> bool:
        """Whether a value differs from earlier ones that were all the same.  x: (d,)"""
        values = np.append(x, reward)
        return bool((((values < self.low) | (values > self.high)) & (self.scales == UNKNOWN)).any())

    def first_unusual(self, X: Array, rewards: Array) -> int:
        """The first row with a wild or new value, or their number.  X: (n, d)   rewards: (n,) or (n, K)"""
        return int(first_outside(X, rewards if rewards.ndim == 2 else rewards[:, None], self.low, self.high))


def weight_of(values: list[WildValue]) -> float:
    """What a row with these wild values is multiplied by: ``(T/deviations)²`` of the worst; 1 without any."""
    return min((square(min(v.limit / v.deviations, 1.0)) for v in values), default=1.0)


def warn_of(values: list[WildValue], name: Callable[[int], str], count: int) -> None:
    """Say which values are wild, for the 1st, 2nd, 4th, 8th … such row.

    Args:
        values: of one row.
        name: a feature's name by its position.
        count: how many rows had wild values, with this one.
    """
    if count & (count - 1):
        return
    told = "; ".join(
        f"{'the reward' if v.position is None else name(v.position)} is {v.value:g}, where {v.low:g} to {v.high:g} "
        "would be within reason"
        for v in values
    )
    warnings.warn(
        f"A wild value (row {count} of that kind): {told}. The row counts for next to nothing; if it is right, later "
        "ones like it will count. If it is a slip, correct it at its source.",
        WildValueWarning,
        stacklevel=calls_inside(),
    )
