"""Folding events in while decisions go on.

A small learner is folded in the event loop, where groups are delivered: microseconds.  A large one may take a tenth of
a second for a refresh, so it has a twin: the twin is folded in a thread, takes the place of the one that decides by one
assignment, and the other one is brought up to date in its turn.  The one that decides is always the fold of a prefix of
the log, and no learner is read while it learns.  Folding the log again after a retraction, and snapshots, digests and
reads of a large learner, are done in a thread as well, beside the state that decides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, Protocol, TypeVar

from sidelight.errors import StoreError
from sidelight.service.core.fold import ContextsDeleted, State
from sidelight.service.core.recovery import recover
from sidelight.service.log.events import Action, Behavior, Decisions, DefaultReward, Event, Release, Retraction, Reward
from sidelight.service.log.numbering import Numbered
from sidelight.service.log.snapshots import Snapshot
from sidelight.service.log.store import Store

__all__ = ["Folding", "Follower"]

T = TypeVar("T")

#: smallest ``K·d²`` of a learner that has a twin
LARGE = 20_000
#: seconds between two tries to read the log
_AGAIN_SECONDS = 1.0


class Follower(Protocol):
    """Callbacks of ``Folding``, all called in the event loop."""

    def folded(self, news: Sequence[Numbered], failures: Sequence[Failure]) -> None:
        """These events are in the state that decides now; the learner failed at some."""

    def gave_up(self, error: Exception) -> None:
        """An event cannot be folded in: the state will not change any more."""

    def cannot_read(self, error: StoreError | None) -> None:
        """The log cannot be read for folding it again; None once it can."""

    def snapshot_due(self) -> bool:
        """Whether a snapshot is to be taken."""

    def keep(self, snapshot: Snapshot) -> None:
        """Hand a finished snapshot over to be written."""


class Failure(NamedTuple):
    """What the learner raised at an event."""

    number: int
    error: Exception


class _Unreadable(Exception):
    """The log cannot be read at present; to be retried."""

    def __init__(self, error: StoreError) -> None:
        self.error = error


class _Folded(NamedTuple):
    """The result of folding in a thread: the state to decide with, and a new twin where one was made."""

    state: State
    failures: list[Failure]
    twin: State | None
    fresh: bool


class Folding:
    """The state that decides, kept up to date.

    Args:
        state: the fold of the log so far.
        store: the log.
        follower: the callbacks.
        now: seconds since 1970.
        threads: the executor that folds large learners.

    Attributes:
        state: the one that decides.
        large: whether it has a twin.
    """

    def __init__(
        self, state: State, store: Store, follower: Follower, now: Callable[[], float], threads: Executor
    ) -> None:
        self.state = state
        self._store, self._follower, self._now, self._threads = store, follower, now, threads
        learner = state.learner
        # Under a floor a decision depends on those before it, so requests are answered only after these are folded in.
        self._waits = learner.ledger is not None
        self.large = not self._waits and len(learner.arms) * learner.n_features**2 >= LARGE
        self._twin = _twin_of(state) if self.large else None
        #: events that were folded into the state and not yet into its twin
        self._behind: list[Numbered] = []
        self._queue: deque[Sequence[Numbered]] = deque()
        self._looks: deque[tuple[Callable[[State], Any], asyncio.Future[Any]]] = deque()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._reload = False
        self._error: Exception | None = None
        self._task: asyncio.Task[None] | None = None
        self._last = state.number

    # ------------------------------------------------------------------------- in the event loop

    def take(self, news: Sequence[Numbered]) -> None:
        """Fold in events in order: at once, or in a thread if that may take long or others are being folded in."""
        if self._error is not None:
            return
        if news:
            self._last = max(self._last, news[-1].number)
        if self._task is None and not self._aside(news):
            self._fold_here(news)
        else:
            self._queue.append(news)
            self._begin()

    async def folded(self, number: int | None = None) -> None:
        """Wait until the state that decides has this event, or all that were delivered so far.

        Raises:
            StoreError: it never will.
        """
        number = self._last if number is None else number
        if self.state.number < number and self._error is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((number, future))
            await future

    async def look(self, function: Callable[[State], T]) -> T:
        """The result of a function of the state that decides; if the learner is large, in a thread on its twin.

        The function must change nothing.
        """
        if self._twin is None or self._error is not None:
            return function(self.state)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._looks.append((function, future))
        self._begin()
        return await future

    async def stop(self, timeout: float | None = None) -> None:
        """Wait for events that are being folded in, at most ``timeout`` seconds."""
        if self._task is not None:
            _, pending = await asyncio.wait([self._task], timeout=timeout)
            for task in pending:
                task.cancel()

    def _aside(self, news: Sequence[Numbered]) -> bool:
        """Whether folding these events in would block the event loop for long."""
        if self._waits:
            return False
        if self._twin is not None and (self._follower.snapshot_due() or any(_teaches(item.event) for item in news)):
            return True
        return self._reload or bool(self._unlearns(news))

    def _unlearns(self, news: Sequence[Numbered]) -> list[int]:
        """The events that call for folding the log again: retractions of what was taught.

        A quarantined event was not taught, unless the same batch releases it before it retracts it.
        """
        events = [(item.number, item.event) for item in news if isinstance(item.event, Retraction)]
        if not events:
            return []
        released = {(item.event.event, item.event.position) for item in news if isinstance(item.event, Release)}
        places = ((number, (event.event, event.position)) for number, event in events)
        return [number for number, place in places if place in released or place not in self.state.quarantine]

    def _fold_here(self, news: Sequence[Numbered]) -> None:
        """Fold in the event loop.

        Raises:
            Exception: an event cannot be folded in.
        """
        unlearns = self._unlearns(news)
        if self._reload or unlearns:  # under a floor
            made = self._fold_aside(news, unlearns[-1] if unlearns else None)
            self._reload = False
            self._publish(made, news)
            return
        failures = []
        for item in news:
            if item.number <= self.state.number:
                continue
            try:
                self.state.apply(item)
            except ContextsDeleted:
                # A person was forgotten while this server lagged behind: continue from the base that was written then.
                self._reload = True
                self.take(news)
                return
            if self.state.failure is not None:
                failures.append(Failure(item.number, self.state.failure))
        if self._twin is not None:
            self._behind += news
        self._tell(news, failures)
        if self._twin is None and self._follower.snapshot_due():
            self._follower.keep(self.state.snapshot(self._now()))

    def _tell(self, news: Sequence[Numbered], failures: Sequence[Failure]) -> None:
        self._follower.folded(news, failures)
        ready = [future for number, future in self._waiting if number <= self.state.number]
        self._waiting = [waits for waits in self._waiting if waits[0] > self.state.number]
        for future in ready:
            if not future.done():
                future.set_result(None)

    def _publish(self, made: _Folded, news: Sequence[Numbered]) -> None:
        """Replace the state that decides."""
        if made.fresh:
            self._twin, self._behind = made.twin, []
        else:
            self._twin, self._behind = self.state, list(news)
        self.state = made.state
        self._tell(news, made.failures)

    # --------------------------------------------------------------------------- beside the loop

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._queue or self._looks or self._reload or (self._twin is not None and self._due()):
                if self._queue or self._reload:
                    await self._fold_queue()
                if self._behind:
                    await self._run(self._catch_up)
                if self._due():
                    state = self.state if self._twin is None else self._twin
                    self._follower.keep(await self._run(_snapshot_of, state, self._now()))
                while self._looks:
                    await self._answer(*self._looks.popleft())
        except Exception as error:
            self._error = error
            self._follower.gave_up(error)
            for _, future in self._waiting:
                if not future.done():
                    future.set_exception(StoreError("this server cannot follow the log any more."))
            for function, looking in self._looks:
                if not looking.done():
                    looking.set_result(function(self.state))
        finally:
            self._task = None

    def _due(self) -> bool:
        return self._follower.snapshot_due()

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def _answer(self, function: Callable[[State], Any], future: asyncio.Future[Any]) -> None:
        try:
            found = await self._run(function, self.state if self._twin is None else self._twin)
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(found)

    async def _fold_queue(self) -> None:
        """Fold the queued events into the twin, and decide with the twin."""
        news = [item for group in self._queue for item in group]
        groups = len(self._queue)
        unlearns = self._unlearns(news)
        if self._twin is None and not unlearns and not self._reload:
            # events that were queued while the log was folded again
            self._queue.clear()
            self._fold_here(news)
            return
        try:
            made = await self._run(self._fold_aside, news, unlearns[-1] if unlearns else None)
        except _Unreadable as unreadable:
            self._follower.cannot_read(unreadable.error)
            self._reload = True
            await asyncio.sleep(_AGAIN_SECONDS)
            return
        for _ in range(groups):
            self._queue.popleft()
        if self._reload:
            self._reload = False
            self._follower.cannot_read(None)
        self._publish(made, news)

    def _fold_aside(self, news: Sequence[Numbered], unlearns: int | None) -> _Folded:
        """The state after ``news``, made without touching the one that decides.

        Args:
            news: what to fold in.
            unlearns: the last event that takes something back; the log is folded again up to there, without it.
        """
        fresh = self._reload or unlearns is not None or self._twin is None
        state = self._recover(None if self._reload else unlearns) if fresh else self._twin
        assert state is not None
        failures = []
        for item in [*(() if fresh else self._behind), *news]:
            if item.number <= state.number:
                continue
            try:
                state.apply(item)
            except ContextsDeleted:
                state, fresh = self._recover(None), True
            if state.failure is not None and (not news or item.number >= news[0].number):
                failures.append(Failure(item.number, state.failure))
        return _Folded(state, failures, _twin_of(state) if fresh and self.large else None, fresh)

    def _recover(self, upto: int | None) -> State:
        try:
            return recover(self._store, upto=upto).state
        except StoreError as error:
            raise _Unreadable(error) from error

    def _catch_up(self) -> None:
        """Fold into the twin the events that only the deciding state has."""
        assert self._twin is not None
        behind, self._behind = self._behind, []
        for item in behind:
            if item.number > self._twin.number:
                self._twin.apply(item)


def _teaches(event: Event) -> bool:
    """Whether a learner learns from an event, which may take long."""
    match event:
        case Decisions():
            return event.answers is not None
        case Action():
            return event.answer or event.replaces is not None
        case Reward() | Behavior() | DefaultReward() | Release():
            return True
    return False


def _snapshot_of(state: State, at: float) -> Snapshot:
    snapshot = state.snapshot(at)
    _ = snapshot.digest  # cached here, to save the commit thread the time
    return snapshot


def _twin_of(state: State) -> State:
    twin = State.from_snapshot(state.snapshot(0.0))
    twin.chain = state.chain
    return twin
