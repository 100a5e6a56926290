"""Proposals on their way to the commit thread: they wait in a queue until a group of them is written together."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sidelight.linalg import Array
from sidelight.service.log.numbering import Numbered
from sidelight.service.log.rows import Row
from sidelight.service.log.settling import Draft, Proposal
from sidelight.service.log.surroundings import Surroundings

__all__ = ["Entry", "Failed", "Group", "Queue"]

_LARGEST_GROUP = 512
#: seconds until the queue is checked again: while it grows, more requests are expected to join the commit group
_STEP_SECONDS = 0.002


@dataclass(frozen=True)
class Failed:
    """The outcome of a proposal that could not be settled or written; what others proposed is not affected."""

    error: Exception


@dataclass(slots=True)
class Entry:
    """A proposal, and the future of the request that waits for its outcome.

    ``since`` is when it came, by the monotonic clock; ``finished`` is whether there is an outcome, also where the
    request has given up waiting for it.
    """

    proposal: Proposal
    future: asyncio.Future[Any]
    since: float
    origin: Any = None
    context: Array | None = None
    finished: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The idempotency keys of the proposal inside."""
        return self.proposal.keys

    def settle(self, found: Mapping[str, Row]) -> Draft | Any:
        """What the proposal returns; an exception becomes the outcome of this proposal alone (``Failed``)."""
        try:
            return self.proposal.settle(found)
        except Exception as error:
            return Failed(error)


@dataclass(frozen=True)
class Group:
    """The result of one transaction: the events not seen before, then the outcomes of our entries in order."""

    others: list[Numbered]
    entries: list[Entry]
    outcomes: list[Any]
    seconds: float


class Queue:
    """The entries that wait to be written, in order, and when to wake the worker that writes them.

    The worker is woken once per commit group: one that is woken for every entry would compete with the event loop for
    the interpreter lock (GIL) meanwhile, which costs both more than writing the group.

    Args:
        loop: the event loop that entries come from.
        clock: tells the time.
        linger: the longest time, in seconds, that an entry waits for others while they keep coming.

    Attributes:
        company: how many entries the last group had; after a group of one the next entry does not wait for others.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Surroundings, linger: float) -> None:
        self._loop, self._clock, self._linger = loop, clock, linger
        #: None marks the end after ``close``
        self._items: deque[Entry | None] = deque()
        self._bell = threading.Event()
        self._gathering = False
        self.company = 0

    # ------------------------------------------------------------------------- in the event loop

    def add(self, entry: Entry) -> None:
        """Append an entry, and wake the worker: at once if the last one came alone, else when no more have come."""
        self._items.append(entry)
        if self._gathering:
            return
        if self.company > 1 and self._linger:
            self._gathering = True
            self._gather(0, self._clock.monotonic() + self._linger)
        else:
            self._bell.set()

    def _gather(self, before: int, end: float) -> None:
        waiting = len(self._items)
        if before < waiting < _LARGEST_GROUP and self._clock.monotonic() < end:
            # By then a busy event loop may hold requests that it has not handled yet, so check again behind those.
            again = functools.partial(self._gather, waiting, end)
            self._loop.call_later(_STEP_SECONDS, self._loop.call_soon, again)
        else:
            self._gathering = False
            self._bell.set()

    def __len__(self) -> int:
        return len(self._items)

    def first(self) -> Entry | None:
        """The entry that has waited longest."""
        return next(iter(self._items), None)

    # ------------------------------------------------------------------------------ in any thread

    def ring(self) -> None:
        """Wake the worker, which has something else to do."""
        self._bell.set()

    def close(self) -> None:
        """Mark the end: the group that reaches it is the last."""
        self._items.append(None)
        self._bell.set()

    def wait(self, seconds: float | None) -> None:
        """Wait until the worker is woken, at most ``seconds``; None waits without end."""
        self._bell.wait(seconds)

    def take(self, group: list[Entry]) -> bool:
        """Put the next group into ``group``; returns whether the end was reached."""
        # cleared before the queue is read: an entry that is appended later sets it again
        self._bell.clear()
        while self._items:
            if len(group) == _LARGEST_GROUP:
                self._bell.set()
                break
            item = self._items.popleft()
            if item is None:
                return True
            group.append(item)
        return False

    def left(self) -> list[Entry]:
        """Everything that still waits, taken out."""
        left: list[Entry] = []
        with contextlib.suppress(IndexError):
            while True:
                item = self._items.popleft()
                if item is not None:
                    left.append(item)
        return left
