"""Parts of the fold that keep wild values out: what the learner was taught, and what waits for a person."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sidelight.learners.wild import Ranges
from sidelight.linalg import Array
from sidelight.side.coordinates import Tally, Units

__all__ = ["Quarantine", "Seen"]

#: ranges are taken anew when the values behind them have grown by this factor
_GROWTH = 1.1
#: the newest so many of what waits are listed; older ones can still be released by their number
_LISTED = 1_000


class Seen:
    """Every value that the learner was taught, as numbers, sums and sums of squares.

    Args:
        n_features: ``d``.
        constant: position of the intercept, or None.

    Attributes:
        ranges: beyond which a value is wild, by the definition that learners share.
    """

    def __init__(self, n_features: int, constant: int | None) -> None:
        self._tally = Tally.empty(n_features)
        self._constant = constant
        self._alike = np.zeros(n_features + 1)
        self._rows = self._renewed = 0
        self.ranges = self._renew()

    def add(self, x: Array, reward: float | None = None) -> None:
        """A context (d,) and perhaps its reward."""
        there = np.flatnonzero(~np.isnan(x))
        self._tally.add(there, 1.0, x[there], np.square(x[there]))
        if reward is not None:
            self._tally.add_rewards(1.0, reward, reward * reward)
        self._rows += 1
        if self._rows >= math.ceil(_GROWTH * self._renewed) + (self._renewed < 16):
            self.ranges = self._renew()

    def _renew(self) -> Ranges:
        self._renewed = self._rows
        units = Units.of(self._tally, self._constant)
        # As learners do: values before the first that differed tell nothing about a unit.
        self._alike[:-1] = np.where(units.known, self._alike[:-1], self._tally.rows)
        if not units.reward_known:
            self._alike[-1] = self._tally.rewards[0]
        return Ranges.of(units, np.arange(len(self._tally.rows)), self._alike)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; numbers come back to the bit."""
        t, r = self._tally, self.ranges
        return {
            "constant": self._constant,
            "rows": [self._rows, self._renewed],
            "tally": [t.rows.tolist(), t.sums.tolist(), t.squares.tolist(), t.rewards.tolist()],
            "alike": self._alike.tolist(),
            "ranges": [v.tolist() for v in (r.low, r.high, r.centres, r.scales, r.limits)],
        }

    @classmethod
    def from_dict(cls, body: dict[str, Any]) -> Seen:
        """The inverse of ``to_dict``."""
        arrays = [np.array(v) for v in body["tally"]]
        seen = cls(len(arrays[0]), body["constant"])
        seen._tally = Tally(*arrays)
        seen._rows, seen._renewed = body["rows"]
        seen._alike = np.array(body["alike"])
        seen.ranges = Ranges(*(np.array(v) for v in body["ranges"]))
        return seen


class Quarantine:
    """What was kept from the learner and waits for a person: where it stands in the log, and why."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], str] = {}

    def put(self, number: int, position: int, reason: str) -> None:
        """Note that an event, or the answer of one decision in it, waits for a person; keeps the newest ``_LISTED``."""
        self._waiting[number, position] = reason
        if len(self._waiting) > _LISTED:
            del self._waiting[next(iter(self._waiting))]

    def settle(self, number: int, position: int) -> None:
        """Remove an entry after a person released or discarded it."""
        self._waiting.pop((number, position), None)

    def copy(self) -> Quarantine:
        """An independent copy, for use in another thread."""
        return Quarantine.from_list(self.to_list())

    def __contains__(self, place: tuple[int, int]) -> bool:
        return place in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def newest(self, most: int) -> list[tuple[int, int, str]]:
        """Number, position and reason of the newest, the newest first."""
        return [(n, i, reason) for (n, i), reason in list(reversed(self._waiting.items()))[:most]]

    def to_list(self) -> list[list[Any]]:
        """JSON-safe."""
        return [[n, i, reason] for (n, i), reason in self._waiting.items()]

    @classmethod
    def from_list(cls, body: list[list[Any]]) -> Quarantine:
        """The inverse of ``to_list``."""
        made = cls()
        made._waiting = {(n, i): reason for n, i, reason in body}
        return made
