"""Which decisions enter the evidence, and in which order: the first about each subject, once its wait is over.

A part of the fold, shared by the rungs of the ladder (``gate``) and the evidence below it (``shadowing``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["InOrder", "Waiting"]

#: most decisions that may wait for rewards; then no further ones enter, so that memory is bounded without rewards
MOST_WAITING = 100_000
#: most subjects that may enter, for the same reason. Whether a decision enters depends on the past alone, so the
#: evidence stays valid; decisions without a subject still enter.
MOST_SUBJECTS = 1_000_000


class Waiting(Protocol):
    """A decision that waits for its reward, by number and position."""

    number: int
    position: int

    @property
    def settled(self) -> bool:
        """Whether the wait is over."""


T = TypeVar("T", bound=Waiting)


class InOrder(Generic[T]):
    """A queue of decisions that have entered and wait for their rewards, the oldest first.

    Args:
        waiting: those that wait already.
        subjects: who has entered, and with which decision (number, position).
    """

    def __init__(self, waiting: Collection[T] = (), subjects: Mapping[str, tuple[int, int]] | None = None) -> None:
        self._order = deque(waiting)
        self._places: dict[tuple[int, int], T] = {(one.number, one.position): one for one in self._order}
        self._subjects = dict(subjects or {})

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[T]:
        return iter(self._order)

    def __getitem__(self, place: int) -> T:
        return self._order[place]

    @property
    def subjects(self) -> Mapping[str, tuple[int, int]]:
        """Who has entered, and with which decision."""
        return self._subjects

    def admits(self, subject: str | None) -> bool:
        """Whether one more decision may enter: there is room, and it is the first about its subject."""
        if len(self._order) >= MOST_WAITING:
            return False
        return subject is None or (subject not in self._subjects and len(self._subjects) < MOST_SUBJECTS)

    def enter(self, one: T, subject: str | None) -> None:
        """Append a decision that ``admits`` accepts."""
        if subject is not None:
            self._subjects[subject] = one.number, one.position
        self._order.append(one)
        self._places[one.number, one.position] = one

    def find(self, number: int, position: int) -> T | None:
        """The decision, while it is in the queue; else None."""
        return self._places.get((number, position))

    def leave(self) -> Iterator[T]:
        """Remove and yield the oldest decisions up to the first that still waits."""
        while self._order and self._order[0].settled:
            done = self._order.popleft()
            del self._places[done.number, done.position]
            yield done

    def abandon(self) -> None:
        """Drop all decisions that wait; their subjects count as entered all the same."""
        self._order.clear()
        self._places.clear()

    def forget(self, decisions: Collection[tuple[int, int]]) -> None:
        """Delete the subjects of these decisions (number, position); a subject that comes back enters again."""
        self._subjects = {subject: place for subject, place in self._subjects.items() if place not in decisions}

    def full(self) -> str | None:
        """Why no more units are accepted, and the remedy; None while they are."""
        if len(self._order) >= MOST_WAITING:
            return (
                f"{len(self._order):,} units wait behind one without a reward, and no more are taken: set [gate] "
                "reward_after, so that waits end"
            )
        if len(self._subjects) >= MOST_SUBJECTS:
            return (
                f"{len(self._subjects):,} subjects have entered, and no more are taken: what they told stands; take "
                "the step by hand, or enter the rung anew"
            )
        return None

    def subjects_to_list(self) -> list[list[Any]]:
        """``[subject, number, position]`` of every subject that has entered, as JSON."""
        return [[subject, *place] for subject, place in sorted(self._subjects.items())]

    @staticmethod
    def subjects_from(body: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
        """Subject → its decision, as saved under ``entered``; older states have only the subjects."""
        if "entered" not in body:
            return dict.fromkeys(body["subjects"], (0, 0))
        return {subject: (number, position) for subject, number, position in body["entered"]}
