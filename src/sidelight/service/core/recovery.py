"""Start-up and replay: the last good snapshot and the tail, or everything from the first event.

Where contexts were deleted, the newest base takes the place of the first event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from sidelight.errors import FileFormatError, StoreError
from sidelight.learners.saving import learner_from_bytes
from sidelight.service.core.fold import ContextsDeleted, State, numbered
from sidelight.service.log.bases import Base, newest_base
from sidelight.service.log.events import Configuration, event_from_row
from sidelight.service.log.store import Store
from sidelight.service.rails import Rails

__all__ = ["Recovered", "initial_state", "recover"]

logger = logging.getLogger("sidelight.service")


@dataclass
class Recovered:
    """A state, and how it was reached.

    Attributes:
        state: after event ``state.number``.
        start: the snapshot or base it started from; 0 for the first event.
        damaged: snapshots that failed their checksum and were passed over, and bases with a damaged copy.
    """

    state: State
    start: int
    damaged: list[int] = field(default_factory=list)


def initial_state(store: Store) -> State:
    """The state after the first event, which names the initial learner."""
    row = store.first()
    if row is None:
        raise StoreError("the event log is empty: start the service once, which writes its configuration.")
    event = event_from_row(row, 0)
    if not isinstance(event, Configuration) or event.learner is None:
        raise StoreError(f"the event log starts with {row.kind!r} and not with a configuration. Restore a back-up.")
    if event.mode is None or event.share is None or event.fallback is None or event.killed is None:
        raise StoreError("the first event does not say who acts: it was altered. Restore a back-up.")
    try:
        learner = learner_from_bytes(store.blob(event.learner))
    except (FileFormatError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"the initial learner cannot be read: {error!r}. The log was started by a Sidelight whose learners this "
            "one does not know: go on with that version, or export the events and start a new log from them."
        ) from error
    return State(learner, Rails(event.mode, event.share, event.fallback, event.killed), number=row.number)


def recover(
    store: Store,
    *,
    upto: int | None = None,
    use_snapshots: bool = True,
    repair: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Recovered:
    """The state after event ``upto`` (the last one by default).

    Args:
        store: the log.
        upto: the last event to fold in.
        use_snapshots: start from the newest good snapshot; otherwise from the first event, or from the newest base.
        repair: remove damaged snapshots, mend damaged bases.
        progress: called with (events folded, the last one) after every chunk.

    Raises:
        ContextsDeleted: the state was before a deletion, and cannot be rebuilt any more.
        StoreError: the log cannot be read.
    """
    while True:
        end = store.head() if upto is None else upto
        base = newest_base(store, repair=repair)
        try:
            return _recover(store, end, base, use_snapshots, repair, progress)
        except ContextsDeleted:
            # Contexts may have been deleted while we folded: then there is a newer base to start from.
            newer = newest_base(store)
            if newer is None or newer.snapshot.number > (upto or store.head()):
                raise
            if base is not None and newer.snapshot.number <= base.snapshot.number:
                raise


def _recover(
    store: Store,
    end: int,
    base: Base | None,
    use_snapshots: bool,
    repair: bool,
    progress: Callable[[int, int], None] | None,
) -> Recovered:
    damaged: list[int] = []
    floor = base.snapshot.number if base is not None and base.snapshot.number <= end else 0
    state: State | None = None
    for number in store.snapshot_numbers() if use_snapshots else ():
        if not floor <= number <= end:
            continue
        state = _from_snapshot(store, number)
        if state is not None:
            break
        damaged.append(number)
        logger.warning("the snapshot after event %d is damaged; replaying from an older state instead", number)
        if repair:
            store.drop_snapshot(number)
    if base is not None and base.damaged:
        damaged.append(base.snapshot.number)
    if state is None and floor and base is not None:
        state = State.from_snapshot(base.snapshot)
    start = 0 if state is None else state.number
    if state is None:
        state = initial_state(store)
    d = state.learner.n_features
    for rows in store.follow(state.number, end):
        for item in numbered(store, rows, d):
            state.apply(item)
        if progress is not None:
            progress(state.number, end)
    return Recovered(state, start, damaged)


def _from_snapshot(store: Store, number: int) -> State | None:
    snapshot = store.snapshot(number)
    if snapshot is None:
        return None
    try:
        return State.from_snapshot(snapshot)
    except (FileFormatError, ValueError, KeyError, TypeError):
        return None
