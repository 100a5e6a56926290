"""Start-up and replay: from the last good snapshot and the events after it, or from the first event.

Where contexts were deleted, or the fold has a new version, the newest base takes the place of the first event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sidelight.errors import FileFormatError, SidelightError, StoreError
from sidelight.learners.saving import learner_from_bytes
from sidelight.service.core.fold import FOLD, ContextsDeleted, OlderFold, State, Unlearned, numbered
from sidelight.service.core.teaching import RETRACTED
from sidelight.service.log.bases import Base, newest_base
from sidelight.service.log.events import (
    Action,
    Behavior,
    Configuration,
    Decisions,
    FoldChange,
    Release,
    Retraction,
    Reward,
)
from sidelight.service.log.numbering import Numbered
from sidelight.service.log.rows import event_from_row
from sidelight.service.log.store import Snapshot, Store
from sidelight.service.rails import Rails

__all__ = ["Recovered", "Retracted", "catch_up", "fold_at", "fold_began", "fold_tail", "initial_state", "recover"]

logger = logging.getLogger("sidelight.service")

Progress = Callable[[int, int], None]

#: what reading a state of another version may raise
_UNREADABLE = (SidelightError, ValueError, KeyError, TypeError, AttributeError, IndexError)


@dataclass
class Recovered:
    """A state, and how it was reached.

    Attributes:
        state: after event ``state.number``.
        start: the snapshot or base it started from; 0 for the first event.
        damaged: snapshots that failed their checksum and were skipped, and bases with a damaged copy.
        unreadable: snapshots whose checksum is right and that this version cannot read; they are kept.
    """

    state: State
    start: int
    damaged: list[int] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)


class Retracted:
    """Which events were retracted by which.

    Args:
        store: the log.
        upto: retractions after this event are left out of account.
    """

    def __init__(self, store: Store, upto: int) -> None:
        self._by: dict[tuple[int, int], int] = {}
        for row in store.of_kind(Retraction.kind):
            event = event_from_row(row, 0)
            if isinstance(event, Retraction) and row.number <= upto:
                self._by[event.event, event.position] = row.number

    def holds_for(self, number: int) -> bool:
        """Whether a state after event ``number`` is free of everything that was retracted later."""
        return not any(event <= number < retraction for (event, _), retraction in self._by.items())

    def without(self, item: Numbered) -> Numbered:
        """An event as the fold takes it: a retracted one is marked, so that the learner learns nothing from it."""
        if not self._by:
            return item
        event = item.event
        if isinstance(event, Decisions) and event.answers is not None:
            reasons = [RETRACTED if (item.number, i) in self._by else None for i in range(len(event))]
            if any(reasons):
                before = event.quarantine or [None] * len(event)
                merged = [old or new for new, old in zip(reasons, before, strict=True)]
                return item._replace(event=replace(event, quarantine=merged))
        place = (event.event, event.position) if isinstance(event, Release) else (item.number, 0)
        if place not in self._by or not isinstance(event, Reward | Action | Behavior | Release):
            return item
        # What waits in quarantine has taught nothing; it waits until the retraction.
        return item if event.quarantine is not None else item._replace(event=replace(event, quarantine=RETRACTED))


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
    rails = Rails(event.mode, event.share, event.fallback, event.killed, event.explore or 0.0)
    state = State(learner, rails, number=row.number)
    state.chain = row.chain
    return state


def recover(
    store: Store,
    *,
    upto: int | None = None,
    use_snapshots: bool = True,
    repair: bool = False,
    fold: int = FOLD,
    progress: Progress | None = None,
) -> Recovered:
    """The state after event ``upto`` (the last one by default).

    Args:
        store: the log.
        upto: the last event to fold in.
        use_snapshots: start from the newest good snapshot; otherwise from the first event, or from the newest base.
        repair: remove damaged snapshots, restore damaged copies of bases.
        fold: the version of the fold whose snapshots and bases to start from.
        progress: called with (events folded, the last one) after every chunk.

    Raises:
        ContextsDeleted: the state was before a deletion, and cannot be rebuilt any more.
        OlderFold: it was before the fold got its present version.
        StoreError: the log cannot be read, or it is folded by another version.
    """
    while True:
        head = store.end()
        if head.fold != fold and head.number > store.origin:
            raise StoreError(
                f"the event log is folded by version {head.fold}, and this Sidelight folds by version {fold}. "
                + ("Upgrade Sidelight." if head.fold > fold else "Start `sidelight serve` once, which takes it over.")
            )
        end = head.number if upto is None else upto
        base = newest_base(store, repair=repair)
        try:
            return _recover(store, end, base, use_snapshots, repair, fold, progress)
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
    fold: int,
    progress: Progress | None,
) -> Recovered:
    damaged: list[int] = []
    unreadable: list[int] = []
    if end < (began := fold_began(store, fold)):
        raise OlderFold(
            f"event {end} was folded by an older version than the present one, which began at event {began}: states "
            "before that cannot be rebuilt. A replay starts from the base that was kept then."
        )
    floor = base.snapshot.number if base is not None and base.snapshot.number <= end else 0
    retracted = Retracted(store, end)
    state: State | None = None
    for number in store.snapshot_numbers(fold) if use_snapshots else ():
        if not floor <= number <= end or not retracted.holds_for(number):
            continue
        state = _from_snapshot(store, number, damaged, unreadable)
        if state is not None:
            break
        if repair and number in damaged:
            store.drop_snapshot(number)
    if base is not None and base.damaged:
        damaged.append(base.snapshot.number)
    if state is None and floor and base is not None:
        state = _from_base(base.snapshot)
    start = 0 if state is None else state.number
    if state is None:
        state = initial_state(store)
    if state.chain is None:
        state.chain = store.chain_at(state.number)
    fold_tail(store, state, end, retracted, progress)
    return Recovered(state, start, damaged, unreadable)


def fold_began(store: Store, fold: int) -> int:
    """The event from which on the log is folded by this version; 0 where it was from the first event on."""
    for row in reversed(store.of_kind(FoldChange.kind)):
        event = event_from_row(row, 0)
        if isinstance(event, FoldChange) and event.fold == fold:
            return row.number
    return 0


def fold_at(store: Store, number: int) -> int:
    """The version of the fold by which the servers of the log decided when event ``number`` was written."""
    row = store.first()
    first = None if row is None else event_from_row(row, 0)
    version = int((first.file or {}).get("fold", 1)) if isinstance(first, Configuration) else 1
    for row in store.of_kind(FoldChange.kind):
        event = event_from_row(row, 0)
        if isinstance(event, FoldChange) and row.number < number:
            version = event.fold
    return version


def fold_tail(store: Store, state: State, end: int, retracted: Retracted, progress: Progress | None = None) -> None:
    """Fold the events after a state in, up to event ``end``."""
    d = state.learner.n_features
    for rows in store.follow(state.number, end):
        for item in numbered(store, rows, d):
            state.apply(retracted.without(item))
        if progress is not None:
            progress(state.number, end)


def catch_up(store: Store, state: State, end: int) -> None:
    """Fold in what others wrote since a state was made, up to event ``end``.

    Raises:
        Unlearned: something that the state may have learned was retracted since.
        ContextsDeleted: as ``State.apply`` does.
    """
    retracted = Retracted(store, end)
    if not retracted.holds_for(state.number):
        raise Unlearned(f"something up to event {state.number} was retracted later: the log is to be folded again.")
    fold_tail(store, state, end, retracted)


def _from_base(snapshot: Snapshot) -> State:
    try:
        return State.from_snapshot(snapshot)
    except _UNREADABLE as error:
        raise StoreError(
            f"the base after event {snapshot.number} is as it was written, and this version cannot read it: {error!r}. "
            "Go on with the Sidelight that wrote it, and report this."
        ) from error


def _from_snapshot(store: Store, number: int, damaged: list[int], unreadable: list[int]) -> State | None:
    """The state of a snapshot; None, with its number added to one of the lists, where it cannot be read."""
    snapshot = store.snapshot(number)
    if snapshot is None:
        damaged.append(number)
        logger.warning("the snapshot after event %d is damaged; replaying from an older state instead", number)
        return None
    try:
        return State.from_snapshot(snapshot)
    except _UNREADABLE as error:
        # Its checksum is right, so nothing is wrong with it: the version that wrote it can read it, and it is kept.
        unreadable.append(number)
        logger.warning(
            "the snapshot after event %d cannot be read by this version (%s); replaying from an older state instead",
            number,
            type(error).__name__,
        )
        return None
