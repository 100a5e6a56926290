"""Decisions whose rewards a floor waits for: each is counted in the order of decisions, never in that of rewards.

A reward counts once the rewards of all decisions before it are in. So a reward's delay may depend on its value: what is
counted is always a prefix of the sequence of decisions, never a selection of them by their rewards.

A service names decisions by a key. Without one a reward belongs to the decision at the same context. Where decisions at
one context wait at the same time nobody knows whose reward it is, so they are a **group**: those with the same arm are
expected to bring the same, and none of them counts before all have their rewards. It does not matter then which is
whose.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sidelight.arrays import Array

__all__ = ["MOST", "NOTHING", "Awaited", "Awaiting", "Guess", "Key"]

#: most decisions that may wait; then no further ones enter, so that memory is bounded where rewards never come. Whether
#: a decision enters depends on the past alone, not on its reward.
MOST = 10_000

#: a decision's name: the number of its event and its position in it
Key = tuple[int, int]
#: ``m`` and ``s²``: what was expected of a mean reward when the decision was taken, and the variance of that
Guess = tuple[float, float]
#: the guess where nothing was expected
NOTHING: Guess = (0.0, math.inf)


class _Group:
    """Decisions at one context that were waiting at the same time."""

    def __init__(self) -> None:
        self.members: list[Awaited] = []
        self.open = 0


@dataclass
class Awaited:
    """One decision.

    Attributes:
        x: (d,)  its context; zeros once it was dropped.
        arm: position of the arm that was decided; −1 where nobody has said it yet.
        guess: what was expected of that arm.
        key: its name; None where it is found by its context.
        reward: what came; None while it waits.
        taken: position of the arm that was taken; −1 if the decision was dropped and counts for nothing.
        group: the decisions it may be mistaken for; None where it has a key, or came with its reward.
    """

    x: Array
    arm: int
    guess: Guess
    key: Key | None
    reward: float | None = None
    taken: int = -1
    group: _Group | None = None

    @property
    def expected(self) -> Guess:
        """What was expected of the arm that was taken: nothing, if it is not the one that was decided."""
        return self.guess if self.taken == self.arm else NOTHING

    @property
    def done(self) -> bool:
        """Whether its reward is known, and known to be its own or that of one it may be exchanged with."""
        return self.reward is not None and (self.group is None or not self.group.open)


class Awaiting:
    """The decisions that are not counted yet, in their order.

    Attributes:
        keyed: whether decisions have keys; then rewards without one are nobody's.
        left_out: how many decisions without a key did not enter and have had no reward yet, and how many ever.
    """

    def __init__(self) -> None:
        self._order: deque[Awaited] = deque()
        self._keys: dict[Key, Awaited] = {}
        self._groups: dict[bytes, _Group] = {}
        self.keyed = False
        self.left_out = [0, 0]

    def __len__(self) -> int:
        return len(self._order)

    @property
    def open(self) -> int:
        """How many of the decisions that are not counted yet have no reward; looks through all of them."""
        return sum(one.reward is None for one in self._order)

    def enter(self, x: Array, arm: int, guess: Guess, key: Key | None = None) -> None:
        """Put a decision that was just taken at the end of the queue; if ``MOST`` wait already it is left out."""
        self.keyed = self.keyed or key is not None
        if len(self._order) >= MOST:
            if key is None:
                self.left_out = [self.left_out[0] + 1, self.left_out[1] + 1]
            return
        one = Awaited(np.array(x, dtype=np.float64), arm, guess, key)
        if key is not None:
            self._keys[key] = one
        else:
            self._join(self._groups.setdefault(_name(one.x), _Group()), one)
        self._order.append(one)

    def _join(self, group: _Group, one: Awaited) -> None:
        alike = next((other for other in group.members if other.arm == one.arm), None)
        one.guess, one.group = one.guess if alike is None else alike.guess, group
        group.members.append(one)
        group.open += one.reward is None

    def settle(self, key: Key, taken: int, reward: float) -> None:
        """Note the reward of the decision ``key``, or the default at the end of its wait; the first of them counts."""
        one = self._keys.get(key)
        if one is not None and one.reward is None:
            one.reward, one.taken = reward, taken

    def drop(self, key: Key) -> None:
        """Drop the decision ``key``, so that it counts for nothing, and delete its context."""
        one = self._keys.get(key)
        if one is not None:
            one.x, one.reward, one.taken = np.zeros_like(one.x), 0.0, -1

    def abandon(self) -> None:
        """Drop every decision that has a key and no reward yet."""
        for key in [key for key, one in self._keys.items() if one.reward is None]:
            self.drop(key)

    def came(self, x: Array, taken: int, reward: float) -> None:
        """Note a reward that came without a key.

        If no waiting decision fits, it counts as decided now, unless it may belong to one that was left out.
        """
        name = _name(x)
        group = self._groups.get(name)
        if group is None:
            if self.left_out[0]:
                self.left_out[0] -= 1
            elif not self.keyed and len(self._order) < MOST:
                self._order.append(Awaited(np.array(x, dtype=np.float64), taken, NOTHING, None, reward, taken))
            return
        waiting = [one for one in group.members if one.reward is None]
        one = next((one for one in waiting if one.arm == taken), waiting[0])
        one.reward, one.taken = reward, taken
        group.open -= 1
        if not group.open:
            del self._groups[name]

    def replace(self, x: Array, taken: int, old: float, new: float | None) -> bool:
        """Correct the reward of a decision that is not counted yet; None drops it.  Whether there is such a one."""
        for one in self._order:
            if one.key is None and one.taken == taken and one.reward == old and np.array_equal(one.x, x):
                one.reward, one.taken = (0.0, -1) if new is None else (new, taken)
                return True
        return False

    def counted(self) -> Iterator[Awaited]:
        """Take decisions off the front, as far as all rewards are in; the dropped ones are passed over."""
        while self._order and self._order[0].done:
            one = self._order.popleft()
            if one.key is not None:
                del self._keys[one.key]
            if one.taken >= 0:
                yield one

    # ---------------------------------------------------------------------------------------- files

    def state(self) -> dict[str, Any]:
        """As arrays: contexts, then arms, keys and groups as whole numbers, then guesses and rewards."""
        groups: dict[int, int] = {}
        numbers = [
            (one.arm, one.taken, one.reward is not None, *(one.key or (-1, -1)), _number(groups, one.group))
            for one in self._order
        ]
        values = [(*one.guess, 0.0 if one.reward is None else one.reward) for one in self._order]
        return {
            "floor_awaited": np.array([one.x for one in self._order]),
            "floor_awaited_numbers": np.array(numbers, dtype=np.int64).reshape(-1, 6),
            "floor_awaited_values": np.array(values, dtype=np.float64).reshape(-1, 3),
            "floor_awaited_flags": np.array([self.keyed, *self.left_out], dtype=np.int64),
        }

    @classmethod
    def restored(cls, arrays: dict[str, Any]) -> Awaiting:
        """The inverse of ``state``; files of earlier versions have none, and nothing waits in them."""
        made = cls()
        if "floor_awaited_flags" not in arrays:
            return made
        keyed, *left_out = (int(value) for value in arrays["floor_awaited_flags"])
        made.keyed, made.left_out = bool(keyed), left_out
        groups: dict[int, _Group] = {}
        columns = (arrays[f"floor_awaited{name}"] for name in ("", "_numbers", "_values"))
        for x, numbers, (mean, variance, reward) in zip(*columns, strict=True):
            arm, taken, came, number, position, group = (int(value) for value in numbers)
            key = (number, position) if number >= 0 else None
            one = Awaited(np.array(x), arm, (float(mean), float(variance)), key, float(reward) if came else None, taken)
            made._order.append(one)
            if key is not None:
                made._keys[key] = one
            elif group >= 0:
                made._join(groups.setdefault(group, _Group()), one)
        for of_one in groups.values():
            if of_one.open:
                made._groups[_name(of_one.members[0].x)] = of_one
        return made


def _name(x: Array) -> bytes:
    """A context as a key: 0 and −0 are the same."""
    return (np.asarray(x, dtype=np.float64) + 0.0).tobytes()


def _number(groups: dict[int, int], group: _Group | None) -> int:
    """The number of a group among those that were met so far; −1 for none."""
    return -1 if group is None else groups.setdefault(id(group), len(groups))
