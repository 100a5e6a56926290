"""Group commit: one worker thread writes the events of many requests, one transaction per commit group.

``Committer.step`` is one turn: take the waiting proposals, write them, hand the outcomes over. A thread that calls it
in a loop is all that runs beside the event loop; a test may call it instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from sidelight.errors import StoreError
from sidelight.linalg import Array
from sidelight.service.log.database import Rejected
from sidelight.service.log.events import OUTDATES, Decisions
from sidelight.service.log.numbering import Numbered, numbered
from sidelight.service.log.queue import Entry, Group, Queue
from sidelight.service.log.rows import Row, Unreadable
from sidelight.service.log.settling import MOST_DECIDED
from sidelight.service.log.snapshots import Snapshot
from sidelight.service.log.store import Diverged, Proposal, Store, Written
from sidelight.service.log.surroundings import Surroundings, Worker

__all__ = ["Committer", "Pace", "Spans", "Standing"]

logger = logging.getLogger("sidelight.service")

#: errors that reading the log again cannot cure
_NEVER_READ = (Unreadable, Rejected)
_ENDED = "the commit thread ended; restart the service."
_PROBE_SECONDS = 1.0
#: seconds between two checks whether another process asks for something that only the writer may do (a checkpoint)
_ERRANDS_SECONDS = 0.5


class Spans(Protocol):
    """Where transactions are traced."""

    def origin(self) -> Any:
        """The span of the request that is being answered."""

    def committed(self, origins: list[Any], seconds: float, others: int, failed: bool) -> None:
        """Record a transaction: its requests, its duration, how many unseen events it read, and whether it failed."""


@dataclass(frozen=True)
class Standing:
    """Up to where a server has folded the log.

    Attributes:
        number: the last event.
        chain: the chained digest after it.
        fold: the version of the server's fold.
        n_features: ``d``, to read contexts.
    """

    number: int
    chain: bytes | None
    fold: int
    n_features: int


@dataclass(frozen=True)
class Pace:
    """How long the worker waits, for what.

    Attributes:
        linger: the longest time, in seconds, to wait for further requests to share the transaction, while they keep
            coming; a transaction costs the same for one event as for thirty. After a group of one request, the next
            request does not wait.
        poll: with nothing to write, look every so many seconds for events that other servers wrote; 0: only when
            writing.
    """

    linger: float = 0.015
    poll: float = 0.0


@dataclass
class _Turn:
    """The entries that one turn took from the queue, and whether to stop after them."""

    entries: list[Entry] = field(default_factory=list)
    stopping: bool = False


class Committer:
    """Takes proposals from the event loop, writes them in groups, and hands the outcomes back in number order.

    Args:
        store: where to write.
        loop: the event loop that ``deliver`` is called in.
        known: up to where the log was folded.
        deliver: takes each group, in order, and answers its requests.
        refuse: tells the requests of entries that could not be written what went wrong.
        failed: takes the error of a group that could not be written, or None when writing works again.
        pace: how long to wait for what.
        spans: where transactions are traced.
        surroundings: the clock, and how to start the worker that calls ``step``.
    """

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        known: Standing,
        deliver: Callable[[Group], None],
        refuse: Callable[[list[Entry], Exception], None],
        failed: Callable[[StoreError | None], None],
        *,
        pace: Pace | None = None,
        spans: Spans | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._store, self._loop = store, loop
        self._seen, self._chain, self._fold = known.number, known.chain, known.fold
        self._n_features = known.n_features
        self._deliver, self._tell, self._failed = deliver, refuse, failed
        pace = Pace() if pace is None else pace
        self._poll = pace.poll
        self._spans = spans
        self._clock = Surroundings() if surroundings is None else surroundings
        self._queue = Queue(loop, self._clock, pace.linger)
        #: snapshots to write, each with an iterator over its remaining transactions
        self._shelving: deque[tuple[Snapshot, Iterator[None]]] = deque()
        #: the entries that were last taken out of the queue
        self._taken: list[Entry] = []
        self._broken = False
        self._diverged: Diverged | None = None
        self._configured = 0
        #: our last events with decisions, and the last one of another server
        self._decided: deque[int] = deque(maxlen=MOST_DECIDED)
        self._elsewhere = 0
        self._errands_at = 0.0
        self._ending = threading.Event()
        #: whether the worker has ended, so that nothing calls ``step`` any more
        self._dead = False
        self._worker: Worker | None = None

    def start(self) -> None:
        """Start the worker, which calls ``step`` until that returns False."""
        self._worker = self._clock.start(self.step, "sidelight-commit")

    def submit(self, proposal: Proposal, context: Array | None = None) -> asyncio.Future[Any]:
        """A future of the outcome of ``proposal``, set once the event is on disk.  Call it in the event loop.

        Args:
            proposal: what to write.
            context: (d,)  the context that it is about, for the fold; None where the fold needs none.
        """
        origin = None if self._spans is None else self._spans.origin()
        entry = Entry(proposal, self._loop.create_future(), self._clock.monotonic(), origin, context)
        self._queue.add(entry)
        if self._dead:
            # The worker may have emptied the queue before this entry was appended.
            self._refuse(self._queue.left(), StoreError(_ENDED))
        return entry.future

    def keep(self, snapshot: Snapshot) -> None:
        """Queue a snapshot; every turn writes one short transaction of it."""
        self._shelving.append((snapshot, self._store.keep_snapshot(snapshot)))
        self._queue.ring()

    @property
    def keeping(self) -> bool:
        """Whether a snapshot is being written."""
        return bool(self._shelving)

    def stop(self, timeout: float | None = None) -> bool:
        """Write what was accepted, then end; returns whether that was done within ``timeout`` seconds."""
        self._ending.set()
        self._queue.close()
        if self._worker is None:
            return True
        self._worker.join(timeout)
        return not self._worker.is_alive()

    @property
    def alive(self) -> bool:
        """Whether the worker still runs."""
        return self._worker is not None and self._worker.is_alive() and not self._dead

    @property
    def waiting(self) -> int:
        """Number of entries in the queue."""
        return len(self._queue)

    def oldest_wait(self) -> float:
        """For how many seconds the oldest proposal without an outcome has waited.  Call it in the event loop."""
        first = next((entry for entry in self._taken if not entry.finished), None) or self._queue.first()
        return 0.0 if first is None else self._clock.monotonic() - first.since

    # --------------------------------------------------------------------------------- one turn

    def step(self, block: bool = True) -> bool:
        """One turn: write what waits, or look for what others wrote.

        Args:
            block: wait until there is something to do, as a thread may.

        Returns:
            whether there may be more to do; False after ``stop``.
        """
        turn = _Turn()
        self._taken = turn.entries
        try:
            if block:
                self._queue.wait(0.0 if self._shelving else _PROBE_SECONDS if self._broken else (self._poll or None))
            turn.stopping = self._queue.take(turn.entries)
            self._queue.company = len(turn.entries)
            self._do(turn)
        except BaseException:
            # A bug here would leave every request waiting; better to say that nothing can be written any more.
            # The server is not ready before the first request hears of it.
            error = StoreError(_ENDED)
            self._dead = True
            self._loop.call_soon_threadsafe(self._failed, error)
            self._loop.call_soon_threadsafe(self._refuse, turn.entries + self._queue.left(), error)
            raise
        self._dead = turn.stopping
        return not turn.stopping

    def _do(self, turn: _Turn) -> None:
        if self._diverged is not None:
            self._shelving.clear()
            self._loop.call_soon_threadsafe(self._refuse, turn.entries, self._diverged)
            return
        if turn.entries:
            self._write(turn.entries)
        elif self._broken:
            self._probe()
        elif self._poll and not turn.stopping:
            self._catch_up()
        while self._shelving:
            self._keep_some()
            if not turn.stopping:
                break
        if (now := self._clock.monotonic()) > self._errands_at:
            self._errands_at = now + _ERRANDS_SECONDS
            with contextlib.suppress(StoreError):
                self._store.checkpoint_if_asked()

    def _write(self, entries: list[Entry]) -> None:
        started = self._clock.monotonic()
        try:
            others, outcomes = self._store.append(
                entries, self._seen, self._configured, self._chain, self._fold, self._decided, self._elsewhere
            )
        except Diverged as error:
            self._end_with(error, entries)
            return
        except Rejected as error:
            self._write_alone(entries, error)
            return
        except StoreError as error:
            # Whether a commit that failed half-way took effect is learned from the next group, which reads whatever
            # is in the log after `seen`; nothing here depends on guessing.
            self._report(error)
            self._trace(entries, started, 0, failed=True)
            self._loop.call_soon_threadsafe(self._refuse, entries, error)
            return
        except Exception as error:
            # A value that the driver cannot write, or a bug: nothing of the group was written.
            self._write_alone(entries, error)
            return
        self._report(None)
        seconds = self._trace(entries, started, len(others), failed=False)
        try:
            known = self._read_events(others)
        except _NEVER_READ as error:
            self._end_with(_cannot_follow(error), entries)
            return
        except StoreError as error:
            self._loop.call_soon_threadsafe(self._refuse, entries, error)
            return
        self._hand_over(Group(known, entries, outcomes, seconds))

    def _write_alone(self, entries: list[Entry], error: Exception) -> None:
        """Write the entries of a refused group one by one, so that only the one at fault fails."""
        if len(entries) > 1:
            for entry in entries:
                self._write([entry])
            return
        logger.error("a request cannot be written: %s", type(error).__name__, exc_info=error)
        self._loop.call_soon_threadsafe(self._refuse, entries, error)
        # not the request but an event of another server may be at fault: if that cannot be read, writing ends
        self._catch_up()

    def _end_with(self, error: Diverged, entries: list[Entry]) -> None:
        """End writing for good: this server cannot follow the log, so nothing of it may be written any more."""
        self._diverged = error
        self._loop.call_soon_threadsafe(self._failed, error)
        self._loop.call_soon_threadsafe(self._refuse, entries, error)

    def _trace(self, entries: list[Entry], started: float, others: int, *, failed: bool) -> float:
        """Trace a transaction; returns its duration in seconds."""
        seconds = self._clock.monotonic() - started
        if self._spans is not None:
            self._spans.committed([entry.origin for entry in entries], seconds, others, failed)
        return seconds

    def _read_events(self, rows: list[Row]) -> list[Numbered]:
        """Rows as events, retried until reading works: their order is settled, so none may be skipped.

        Raises:
            StoreError: one of ``_NEVER_READ``, or the server is being stopped.
        """
        while True:
            try:
                return list(numbered(self._store, rows, self._n_features)) if rows else []
            except _NEVER_READ:
                raise
            except StoreError as error:
                self._report(error)
                if self._ending.is_set():
                    raise
                self._clock.sleep(_PROBE_SECONDS)

    def _hand_over(self, group: Group) -> None:
        """Take note of the events of a transaction, then have its group delivered in the event loop."""
        for number, _, event, _, chain in group.others:
            self._seen, self._chain = number, chain
            if isinstance(event, Decisions):
                self._elsewhere = number
            elif isinstance(event, OUTDATES):
                self._configured = number
        for outcome in group.outcomes:
            if isinstance(outcome, Written):
                event = outcome.draft.event
                self._seen, self._chain = outcome.number, outcome.chain
                if isinstance(event, Decisions):
                    self._decided.append(outcome.number)
                elif isinstance(event, OUTDATES):
                    self._configured = outcome.number
        self._loop.call_soon_threadsafe(self._finish, group)

    def _finish(self, group: Group) -> None:
        """Deliver a group and mark its entries as finished.  Runs in the event loop."""
        for entry in group.entries:
            entry.finished = True
        self._deliver(group)

    def _refuse(self, entries: list[Entry], error: Exception) -> None:
        """Refuse the entries that have no outcome yet.  Runs in the event loop."""
        left = [entry for entry in entries if not entry.finished]
        for entry in left:
            entry.finished = True
        self._tell(left, error)

    def _probe(self) -> None:
        try:
            self._store.probe()
        except StoreError as error:
            self._report(error)
        else:
            self._report(None)

    def _catch_up(self) -> None:
        try:
            for rows in self._store.news(self._seen, self._chain, self._fold):
                self._hand_over(Group(self._read_events(rows), [], [], 0.0))
        except Diverged as error:
            self._end_with(error, [])
        except _NEVER_READ as error:
            self._end_with(_cannot_follow(error), [])
        except StoreError as error:
            self._report(error)

    def _keep_some(self) -> None:
        """Write the next transaction of the first queued snapshot."""
        snapshot, rest = self._shelving[0]
        try:
            next(rest)
        except StopIteration:
            self._shelving.popleft()
        except StoreError as error:
            # A snapshot only saves time at the next start, so failing to write one fails nothing else.
            logger.warning("snapshot after event %d was not kept: %s", snapshot.number, error)
            self._shelving.popleft()

    def _report(self, error: StoreError | None) -> None:
        if error is not None or self._broken:
            self._loop.call_soon_threadsafe(self._failed, error)
        self._broken = error is not None


def _cannot_follow(error: StoreError) -> Diverged:
    return Diverged(f"{error} This server cannot follow the log, so it decides no more.")
