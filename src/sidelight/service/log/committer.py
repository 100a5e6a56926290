"""Group commit: one thread writes what many requests want written, a group per transaction."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidelight.errors import StoreError
from sidelight.service.core.fold import Numbered, numbered
from sidelight.service.log.events import Configuration, Row
from sidelight.service.log.store import Proposal, Snapshot, Store, Written

if TYPE_CHECKING:
    from sidelight.service.telemetry import CommitSpans

__all__ = ["Committer", "Group", "refuse"]

logger = logging.getLogger("sidelight.service")

_LARGEST_GROUP = 512
_ENDED = "the commit thread ended; restart the service."
_PROBE_SECONDS = 1.0
#: while requests keep coming within this time of each other, they are waited for
_STEP_SECONDS = 0.002


@dataclass
class Entry:
    """A proposal, and the future of the request that waits for its outcome."""

    proposal: Proposal
    future: asyncio.Future[Any]
    origin: Any = None


@dataclass(frozen=True)
class Group:
    """What one transaction brought: events that others had written, then the outcomes of our entries in order."""

    others: list[Numbered]
    entries: list[Entry]
    outcomes: list[Any]
    seconds: float


class Committer:
    """Takes proposals from the event loop, writes them in groups, and hands the outcomes back in number order.

    Args:
        store: where to write.
        loop: the event loop that ``deliver`` is called in.
        seen: the last number that was folded.
        n_features: ``d``, to read what others wrote.
        deliver: takes each group, in order.
        failed: takes the error of a group that could not be written, or None when writing works again.
        linger: the longest time to wait for company, in seconds, while requests keep coming; a transaction costs the
            same for one event as for thirty, and who comes alone never waits.
        poll: look for events that other servers wrote every so many seconds; 0 never.
        spans: where transactions are traced.
    """

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        seen: int,
        n_features: int,
        deliver: Callable[[Group], None],
        failed: Callable[[StoreError | None], None],
        *,
        linger: float = 0.015,
        poll: float = 0.0,
        spans: CommitSpans | None = None,
    ) -> None:
        self._store, self._loop, self._seen = store, loop, seen
        self._n_features = n_features
        self._deliver, self._failed = deliver, failed
        self._linger, self._poll = linger, poll
        self._spans = spans
        self._queue: queue.SimpleQueue[Entry | Snapshot | None] = queue.SimpleQueue()
        self._broken = False
        self._configured = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sidelight-commit", daemon=True)
        self._thread.start()

    def submit(self, proposal: Proposal) -> asyncio.Future[Any]:
        """The outcome of ``proposal``, once it is on disk.  Call it in the event loop."""
        entry = Entry(proposal, self._loop.create_future(), None if self._spans is None else self._spans.origin())
        if self._thread.is_alive():
            self._queue.put(entry)
        else:
            entry.future.set_exception(StoreError(_ENDED))
        return entry.future

    def keep(self, snapshot: Snapshot) -> None:
        """Write a snapshot when there is time."""
        self._queue.put(snapshot)

    def stop(self) -> None:
        """Write what was accepted, then end the thread."""
        self._ending.set()
        self._queue.put(None)
        self._thread.join()

    @property
    def waiting(self) -> int:
        """How many entries wait."""
        return self._queue.qsize()

    # ------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            self._work()
        except BaseException:
            # A bug here would leave every request waiting; better to say that nothing can be written any more.
            error = StoreError(_ENDED)
            self._loop.call_soon_threadsafe(self._failed, error)
            self._loop.call_soon_threadsafe(refuse, self._left(), error)
            raise

    def _left(self) -> list[Entry]:
        """What still waits, taken out of the queue."""
        left: list[Entry] = []
        with contextlib.suppress(queue.Empty):
            while True:
                item = self._queue.get_nowait()
                if isinstance(item, Entry):
                    left.append(item)
        return left

    def _work(self) -> None:
        company = 0
        while True:
            entries, snapshots, stopping = self._collect(company)
            company = len(entries)
            if entries:
                self._write(entries)
            elif self._broken:
                self._probe()
            elif self._poll and not stopping:
                self._catch_up()
            for snapshot in snapshots:
                self._keep(snapshot)
            if stopping:
                return

    def _collect(self, company: int) -> tuple[list[Entry], list[Snapshot], bool]:
        entries: list[Entry] = []
        snapshots: list[Snapshot] = []
        idle = _PROBE_SECONDS if self._broken else (self._poll or None)
        try:
            item = self._queue.get(timeout=idle)
        except queue.Empty:
            return entries, snapshots, False
        if company > 1 and isinstance(item, Entry) and self._linger:
            self._wait_for_company()
        while True:
            if item is None:
                return entries, snapshots, True
            if isinstance(item, Snapshot):
                snapshots.append(item)
            else:
                entries.append(item)
                if len(entries) >= _LARGEST_GROUP:
                    return entries, snapshots, False
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return entries, snapshots, False

    def _wait_for_company(self) -> None:
        end, before = time.monotonic() + self._linger, -1
        while before < (waiting := self._queue.qsize()) < _LARGEST_GROUP and time.monotonic() < end:
            before = waiting
            time.sleep(_STEP_SECONDS)

    def _write(self, entries: list[Entry]) -> None:
        started = time.perf_counter()
        try:
            others, outcomes = self._store.append([entry.proposal for entry in entries], self._seen, self._configured)
        except StoreError as error:
            # Whether a commit that failed half-way took effect is learned from the next group, which reads whatever
            # is in the log after `seen`; nothing here depends on guessing.
            self._report(error)
            self._trace(entries, started, 0, failed=True)
            self._loop.call_soon_threadsafe(refuse, entries, error)
            return
        except BaseException:
            # A bug: nothing of the group was written, and the thread ends with it.
            self._loop.call_soon_threadsafe(refuse, entries, StoreError(_ENDED))
            raise
        self._report(None)
        seconds = self._trace(entries, started, len(others), failed=False)
        try:
            known = self._read_events(others)
        except StoreError as error:
            self._loop.call_soon_threadsafe(refuse, entries, error)
            return
        self._hand_over(Group(known, entries, outcomes, seconds))

    def _trace(self, entries: list[Entry], started: float, others: int, *, failed: bool) -> float:
        """How long a transaction took."""
        seconds = time.perf_counter() - started
        if self._spans is not None:
            self._spans.committed([entry.origin for entry in entries], seconds, others, failed)
        return seconds

    def _read_events(self, rows: list[Row]) -> list[Numbered]:
        """Rows as events; their order is settled, so there is nothing to do but to read until it works, or to end."""
        while True:
            try:
                return list(numbered(self._store, rows, self._n_features)) if rows else []
            except StoreError as error:
                self._report(error)
                if self._ending.wait(_PROBE_SECONDS):
                    raise

    def _hand_over(self, group: Group) -> None:
        written = [outcome for outcome in group.outcomes if isinstance(outcome, Written)]
        self._seen += len(group.others) + len(written)
        news = [(item.number, item.event) for item in group.others] + [(w.number, w.draft.event) for w in written]
        for number, event in news:
            if isinstance(event, Configuration):
                self._configured = number
        self._loop.call_soon_threadsafe(self._deliver, group)

    def _probe(self) -> None:
        try:
            self._store.probe()
        except StoreError as error:
            self._report(error)
        else:
            self._report(None)

    def _catch_up(self) -> None:
        try:
            for rows in self._store.follow(self._seen):
                self._hand_over(Group(self._read_events(rows), [], [], 0.0))
        except StoreError as error:
            self._report(error)

    def _keep(self, snapshot: Snapshot) -> None:
        try:
            self._store.put_snapshot(snapshot)
        except StoreError as error:
            # A snapshot only saves time at the next start, so failing to write one fails nothing else.
            logger.warning("snapshot after event %d was not kept: %s", snapshot.number, error)

    def _report(self, error: StoreError | None) -> None:
        if error is not None or self._broken:
            self._loop.call_soon_threadsafe(self._failed, error)
        self._broken = error is not None


def refuse(entries: list[Entry], error: StoreError) -> None:
    """Tell every request that still waits what went wrong.  Call it in the event loop."""
    for entry in entries:
        if not entry.future.done():
            entry.future.set_exception(error)
