"""Sliding-window counters over slots of time, updated with every event, so that no push reads the event table."""

from __future__ import annotations

from typing import Final

__all__ = ["ACTORS", "ARMS", "LATE", "TOTALS", "Window", "lateness"]

#: who chose the arm that was taken, as far as it is known
ACTORS: Final = ("learner", "fallback", "old_policy", "person")

#: arms are counted as the service decided them, as the learner recommended them, and as rewards came for them
ARMS: Final = ("taken", "recommended", "rewarded")

#: classes of late rewards: up to how many seconds after the end of the wait they came
LATE: Final = {"an hour": 3_600.0, "a day": 86_400.0, "a week": 604_800.0, "more": float("inf")}

#: counters of every slot, beside the arms'; ``worth`` and ``sums`` are the number and the sum of the rewards in means
TOTALS: Final = (
    "decisions",
    "asked",
    "answers",
    "overrides",
    "failures",
    *(f"decided:{actor}" for actor in ACTORS),
    *(f"rewards:{actor}" for actor in ACTORS),
    *(f"worth:{actor}" for actor in ACTORS),
    *(f"sums:{actor}" for actor in ACTORS),
    "defaults",
    *(f"late:{name}" for name in LATE),
)
_PLACE: Final = {name: place for place, name in enumerate(TOTALS)}


def lateness(seconds: float) -> str:
    """The class of ``LATE`` of a reward that came this many seconds after the end of the wait."""
    return next(name for name, most in LATE.items() if seconds <= most)


class Window:
    """Counts in ``slots`` slots of ``step`` seconds each, the last of which is incomplete.

    Its memory is fixed: ``slots`` times the totals and three times the arms. What is older than all of it is not
    counted.

    Args:
        step: seconds of a slot.
        slots: how many slots are kept.
        n_arms: ``K``; more may come later.
    """

    def __init__(self, step: float, slots: int, n_arms: int) -> None:
        self.step, self.slots, self.n_arms = step, slots, n_arms
        self._newest: int | None = None
        # Lists, not arrays: the most frequent operation is adding 1 to one counter.
        self._totals = [[0.0] * len(TOTALS) for _ in range(slots)]
        self._arms = {kind: [[0] * n_arms for _ in range(slots)] for kind in ARMS}

    def grow(self, n_arms: int) -> None:
        """Add columns of zeros for arms that were added to the learner."""
        for rows in self._arms.values():
            for row in rows:
                row.extend([0] * (n_arms - self.n_arms))
        self.n_arms = n_arms

    # --------------------------------------------------------------------------------------- writing

    def slot(self, at: float) -> int | None:
        """The index of the slot of a time ``at``; None if it is older than the window."""
        number = int(at // self.step)
        if self._newest is None:
            self._newest = number
        elif number > self._newest:
            for passed in range(max(self._newest + 1, number - self.slots + 1), number + 1):
                self._clear(passed % self.slots)
            self._newest = number
        elif number <= self._newest - self.slots:
            return None
        return number % self.slots

    def _clear(self, slot: int) -> None:
        self._totals[slot] = [0.0] * len(TOTALS)
        for rows in self._arms.values():
            rows[slot] = [0] * self.n_arms

    def add(self, slot: int, name: str, amount: float = 1.0) -> None:
        """Add ``amount`` to one counter of a slot."""
        self._totals[slot][_PLACE[name]] += amount

    def add_arm(self, slot: int, kind: str, arm: int, times: int = 1) -> None:
        """Count an arm ``times`` times in a slot, in one of the roles of ``ARMS``."""
        self._arms[kind][slot][arm] += times

    # --------------------------------------------------------------------------------------- reading

    def _order(self, now: float) -> list[int]:
        """Indices of the slots, from the oldest to the current one."""
        self.slot(now)
        assert self._newest is not None
        return [(self._newest + 1 + i) % self.slots for i in range(self.slots)]

    def series(self, name: str, now: float) -> list[float]:
        """One counter in every slot, the oldest first, the current one last."""
        place = _PLACE[name]
        return [self._totals[slot][place] for slot in self._order(now)]

    def total(self, name: str, now: float) -> float:
        """The sum of a counter over all slots of the window."""
        return sum(self.series(name, now))

    def arms(self, now: float, kind: str = "taken") -> list[list[int]]:
        """Counts per arm in every slot, the oldest first."""
        rows = self._arms[kind]
        return [rows[slot] for slot in self._order(now)]

    def seconds(self, now: float) -> float:
        """Seconds that the window covers; the current slot is shorter than the others."""
        return (self.slots - 1) * self.step + now % self.step
