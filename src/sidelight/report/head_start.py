"""The measured worth of the log in rounds: how long the cold learner had to play before it did as well.

The learner with the log loses ``W`` in its first ``h`` rounds. The log was worth the ``n`` after which the learner
without it loses no more than ``W`` in ``h`` rounds: a head start of ``n`` rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sidelight.drawing.intervals import LEVEL

__all__ = ["HeadStart", "head_start"]

_REPEATS = 1_000


@dataclass(frozen=True)
class HeadStart:
    """A head start in rounds.

    Attributes:
        rounds: ``n``; infinite if the cold learner never got there.
        low, high: bootstrap interval over seeds.
        window: ``h``.
        limit: the largest ``n`` that these runs are long enough to show.
    """

    rounds: float
    low: float
    high: float
    window: int
    limit: int

    @property
    def sentence(self) -> str:
        """One sentence with the head start in rounds, its interval and what it means."""
        if math.isinf(self.rounds):
            found = f"more than {self.limit:,} rounds, the most that runs of this length can tell"
        elif self.rounds == 0:
            found = "no rounds at all"
        else:
            found = f"about {self.rounds:,.0f} rounds"
        return (
            f"As a head start the log was worth {found} ({self._interval}): that is how long the learner without it "
            f"has to play until it does as well in the next {self.window:,} rounds as the learner with the log did in "
            f"its first {self.window:,}."
        )

    @property
    def _interval(self) -> str:
        """The interval in words; an end beyond ``limit`` has no number."""
        if math.isinf(self.low):
            return f"the whole {LEVEL:.0%} interval lies above that"
        if math.isinf(self.high):
            return f"{LEVEL:.0%} interval from {self.low:,.0f} to more than {self.limit:,}"
        return f"{LEVEL:.0%} interval {self.low:,.0f} to {self.high:,.0f}"


def head_start(rounds: NDArray[np.int64], cold: NDArray[np.float64], warm: NDArray[np.float64]) -> HeadStart:
    """How many rounds the log was worth.

    Args:
        rounds: (n,)  the rounds at which losses are known, increasing.
        cold: (S, n)  cumulative loss of the learner without the log, seed by seed.
        warm: (S, n)  of the learner with it, on the same seeds.
    """
    horizon = int(rounds[-1])
    window = max(1, horizon // 4)
    starts = np.concatenate([[0], rounds[rounds <= horizon - window]])
    times = np.concatenate([[0], rounds])
    lost_cold = np.concatenate([np.zeros((len(cold), 1)), cold], axis=1)
    lost_warm = np.concatenate([np.zeros((len(warm), 1)), warm], axis=1)
    # (S, starts): what the cold learner loses in the window after each start
    ahead = _at(lost_cold, times, starts + window) - _at(lost_cold, times, starts)
    mine = _at(lost_warm, times, np.array([window]))[:, 0]

    def found(chosen: NDArray[np.int64]) -> float:
        enough = np.flatnonzero(ahead[chosen].mean(axis=0) <= mine[chosen].mean())
        return float(starts[enough[0]]) if len(enough) else math.inf

    everyone = np.arange(len(cold))
    rng = np.random.default_rng(0)
    drawn = np.sort([found(rng.integers(len(cold), size=len(cold))) for _ in range(_REPEATS)])
    tail = (1 - LEVEL) / 2
    low, high = drawn[math.floor(tail * _REPEATS)], drawn[min(_REPEATS - 1, math.ceil((1 - tail) * _REPEATS))]
    if len(cold) < 4:  # too few to resample
        low, high = 0.0, math.inf
    return HeadStart(found(everyone), float(low), float(high), window, horizon - window)


def _at(curves: NDArray[np.float64], times: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.float64]:
    """Curves ``(S, n)`` at other times ``(k,)``, by linear interpolation."""
    return np.stack([np.interp(wanted, times, curve) for curve in curves])
