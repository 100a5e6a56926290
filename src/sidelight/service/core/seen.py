"""Parts of the fold that keep outliers from the learner: ranges of the values it was taught, and the quarantine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sidelight.learners.wild import Ranges
from sidelight.linalg import Array
from sidelight.side.coordinates import Tally, Units

__all__ = ["Quarantine", "Seen", "Withheld"]

#: ranges are recomputed when the number of values behind them has grown by this factor
_GROWTH = 1.1
#: most quarantined entries that are listed, the newest; older ones can still be released by their number
_LISTED = 1_000
#: rewards in quarantine whose values are kept for the evidence
_WITHHELD = 100_000


class Seen:
    """Counts, sums and sums of squares of all values that the learner was taught.

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
        """Add a context (d,), and its reward where there is one."""
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
        """The sums and ranges as a JSON object; floats survive to the bit."""
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
    """The quarantine: events that were kept from the learner until a person has reviewed them, with the reasons."""

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

    def reason(self, number: int, position: int = 0) -> str | None:
        """Why an event, or the answer of one decision in it, waits; None where it does not."""
        return self._waiting.get((number, position))

    def newest(self, most: int) -> list[tuple[int, int, str]]:
        """Number, position and reason of the ``most`` newest entries, the newest first."""
        return [(n, i, reason) for (n, i), reason in list(reversed(self._waiting.items()))[:most]]

    def to_list(self) -> list[list[Any]]:
        """The entries as a JSON array."""
        return [[n, i, reason] for (n, i), reason in self._waiting.items()]

    @classmethod
    def from_list(cls, body: list[list[Any]]) -> Quarantine:
        """The same entries, from what ``to_list`` gave."""
        made = cls()
        made._waiting = {(n, i): reason for n, i, reason in body}
        return made


class Withheld:
    """Rewards in quarantine by the decision that they are of, until a person has looked at them.

    When its wait ends, such a reward counts in the evidence with its own value, and not as one that never came:
    otherwise losses out of bounds would count in a learner's favour. At most ``_WITHHELD`` are kept; for older ones the
    default reward counts.
    """

    def __init__(self) -> None:
        self._rewards: dict[tuple[int, int], tuple[int, float]] = {}

    def put(self, decision: tuple[int, int], number: int, reward: float) -> None:
        """Keep the quarantined reward of a decision, from event ``number``."""
        self._rewards[decision] = number, reward
        if len(self._rewards) > _WITHHELD:
            del self._rewards[next(iter(self._rewards))]

    def get(self, decision: tuple[int, int]) -> float | None:
        """The quarantined reward of a decision; None where there is none."""
        found = self._rewards.get(decision)
        return None if found is None else found[1]

    def pop(self, decision: tuple[int, int]) -> None:
        """Remove the reward of a decision: it was released, or the decision was forgotten."""
        self._rewards.pop(decision, None)

    def retracted(self, number: int) -> tuple[int, int] | None:
        """Remove the reward of event ``number``, which was retracted; returns its decision, or None."""
        found = next((decision for decision, (event, _) in self._rewards.items() if event == number), None)
        if found is not None:
            del self._rewards[found]
        return found

    def to_list(self) -> list[list[Any]]:
        """The entries as a JSON array; floats survive to the bit."""
        return [[*decision, *told] for decision, told in self._rewards.items()]

    @classmethod
    def from_list(cls, body: list[list[Any]]) -> Withheld:
        """The same entries, from what ``to_list`` gave."""
        made = cls()
        made._rewards = {(n, i): (event, reward) for n, i, event, reward in body}
        return made
