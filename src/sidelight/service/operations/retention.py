"""Forgetting a person: their contexts and their key are deleted; what the learner learned from them stays in its sums.

Events before the deletion can then not be folded again, so the state is verified and kept as a base first, in the same
transaction: either there is a base and the contexts are gone, or nothing has happened.  Every server waits for it, so a
person with many decisions is forgotten in parts, each in a transaction of its own; repeat a call that was interrupted.
"""

from __future__ import annotations

import gc
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, select

from sidelight.errors import InputError, StoreError
from sidelight.service.core.fold import ContextsDeleted, Numbered, State, Unlearned
from sidelight.service.core.recovery import catch_up, recover
from sidelight.service.log import migrations as tables
from sidelight.service.log.bases import base_number, put_base
from sidelight.service.log.events import Forgotten
from sidelight.service.log.rows import Row
from sidelight.service.log.store import Draft, Store

__all__ = ["Forgetting", "forget"]

#: events that may be left to fold in while all servers wait
_FEW = 200
#: how many times, at most, new events are folded in without the lock before the rest is folded in under it
_TRIES = 8
#: events whose contexts are deleted in one transaction: takes about as long as writing the base
_AT_ONCE = 200
#: seconds allowed for folding in those few events, whatever the size of the learner
_PATIENCE = 60.0


@dataclass(frozen=True)
class Forgetting:
    """The result of forgetting a person.

    Attributes:
        decisions: how many contexts were deleted.
        event: the number of the event that says so, which is also the base's; None where there was nothing to delete.
        erased: whether nothing of it can be read in the database any more; see ``Database.erase_deleted``.
    """

    decisions: int
    event: int | None
    erased: bool


def forget(
    store: Store,
    subject: str,
    *,
    verify: bool = True,
    erase: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Forgetting:
    """Delete the contexts of every decision about ``subject`` in the log, and the key itself; servers may go on.

    Args:
        store: the event log.
        subject: the key that came with the decisions.
        verify: fold the events again and compare with the newest snapshot, which the servers run on; otherwise the
            snapshot is trusted.
        erase: remove what the database itself still keeps of it afterwards.
        progress: called with (events folded, the last one).

    Raises:
        InputError: no decision can be about ``subject``.
        StoreError: the state cannot be verified; nothing was deleted.
    """
    if not subject.isprintable():
        raise InputError(
            f"{subject[:40]!r} has characters that no subject has: give the key that came with a decision."
        )
    event, decisions, clock = None, 0, store.surroundings
    # What is decided about them from here on is left for the next call: this one would go on as long as more comes.
    end = store.head()
    while _first_about(store, subject, end):
        try:
            state = _verified(store, progress) if verify else recover(store).state
            _check_it_can_be_kept(state)
            while known := _first_about(store, subject, end):
                began = clock.monotonic()
                event, gone = _forget_some(store, subject, known, state)
                decisions += gone
                # The servers have their turn before the next part: SQLite's lock goes to whoever asks most often.
                clock.sleep(clock.monotonic() - began)
        except (ContextsDeleted, Unlearned):
            # Somebody else was forgotten meanwhile, so there is a newer base; or something was retracted.
            continue
    # the pieces of the deleted snapshots, also those left by a call that was interrupted here
    for _ in store.sweep_pieces(base_number(store) or 0):
        pass
    # erase even if nothing was deleted now: an interrupted call may have deleted without erasing
    return Forgetting(decisions, event, store.erase_deleted() if erase else False)


def _check_it_can_be_kept(state: State) -> None:
    """Check that a state survives saving and loading; done before the lock is taken, a few events early."""
    snapshot = state.snapshot(0.0)
    if State.from_snapshot(snapshot).snapshot(0.0) != snapshot:
        raise StoreError("the learner does not survive being saved and loaded; nothing was deleted. Report this.")


def _forget_some(store: Store, subject: str, known: dict[int, set[int]], state: State) -> tuple[int, int]:
    """Write base and event, delete contexts, in one transaction; returns the event's number and how many were deleted.

    Every server waits for the transaction, so whatever can be done before it is.

    Args:
        store: the event log.
        subject: whom to forget.
        known: number → positions of the first decisions about them.
        state: the fold of the log so far; brought up to the end of the log.
    """
    for _ in range(_TRIES):
        if (end := store.head()) - state.number <= _FEW:
            break
        catch_up(store, state, end)
    upto = max(known)
    found = {n: row for n, row in store.rows(known).items() if _is_about(row, known[n], subject)}
    prepared = _rewritten(store, found, known, state.learner.n_features)
    # If this process or its machine freezes in the middle, the servers wait until this time-out.
    with _without_collection(), store.writing(patience=_PATIENCE) as connection:
        head = store.lock(connection)
        catch_up(store, state, head.number)
        positions, seals = _positions(connection, subject, upto)
        ids = [[number, i] for number in sorted(positions) for i in sorted(positions[number])]
        event = Forgotten(ids)
        (row,), _ = store.write_drafts(connection, head, [Draft.of(event)])
        state.apply(Numbered(row.number, row.at, event, None, row.chain))
        put_base(connection, state.snapshot(row.at))
        # The difference of two snapshots around a reward tells the context that it was for.
        connection.execute(tables.snapshots.delete())
        # events that another deletion has changed meanwhile
        stale = [n for n, seal in seals.items() if n not in prepared or prepared[n][0] != seal]
        rows = store.rows_within(connection, stale)
        for n, changed in rows.items():
            if not _is_about(changed, positions[n], subject):
                raise StoreError(
                    f"the index of subjects names decisions of event {n} that are about somebody else: it was altered. "
                    "Nothing was deleted. Restore a back-up."
                )
        prepared |= _rewritten(store, rows, positions, state.learner.n_features)
        store.rewrite(connection, [prepared[n][1] for n in seals])
        s = tables.subjects
        connection.execute(s.delete().where(s.c.subject == subject, s.c.number <= upto))
    return row.number, len(ids)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Suspend the cyclic garbage collector: in a process with compiled kernels one run takes a tenth of a second."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _rewritten(
    store: Store, rows: Mapping[int, Row], positions: Mapping[int, set[int]], n_features: int
) -> dict[int, tuple[bytes | None, Row]]:
    """Number → the seal of a decisions event as it was, and the event without what is forgotten."""
    return {
        number: (row.seal, store.resealed(row, *_without(row, positions[number], n_features)))
        for number, row in rows.items()
    }


def _is_about(row: Row, positions: set[int], subject: str) -> bool:
    """Whether these decisions of an event are about a subject: events are sealed, the index of subjects is not."""
    names = json.loads(row.payload).get("subjects", ())
    return all(i < len(names) and names[i] == subject for i in positions)


def _first_about(store: Store, subject: str, upto: int) -> dict[int, set[int]]:
    """Number → positions of the decisions about a subject, of the first few events up to ``upto`` that have any."""
    s = tables.subjects
    about = select(s.c.number).where(s.c.subject == subject, s.c.number <= upto)
    numbers = about.distinct().order_by(s.c.number).limit(_AT_ONCE)
    with store.reading() as connection:
        first = connection.execute(numbers).scalars().all()
        return _positions(connection, subject, first[-1])[0] if first else {}


def _positions(connection: Connection, subject: str, upto: int) -> tuple[dict[int, set[int]], dict[int, bytes | None]]:
    """Number → positions of the decisions about a subject up to an event, and number → the event's seal."""
    s, e = tables.subjects, tables.events
    query = (
        select(s.c.number, s.c.position, e.c.seal)
        .join(e, e.c.number == s.c.number)
        .where(s.c.subject == subject, s.c.number <= upto)
    )
    found: dict[int, set[int]] = defaultdict(set)
    seals: dict[int, bytes | None] = {}
    for number, position, seal in connection.execute(query):
        found[number].add(position)
        seals[number] = None if seal is None else bytes(seal)
    return found, seals


def _verified(store: Store, progress: Callable[[int, int], None] | None) -> State:
    """The state folded from the events alone, once it is known to equal what the servers run on."""
    whole = recover(store, use_snapshots=False, progress=progress).state
    quick = recover(store, upto=whole.number).state
    if whole.snapshot(0.0).digest != quick.snapshot(0.0).digest:
        raise StoreError(
            "the snapshots do not agree with the events, so nothing was deleted. Restore a back-up, and report this; "
            "--no-verify believes the snapshots, which is what the servers run on."
        )
    return whole


def _without(row: Row, positions: set[int], n_features: int) -> tuple[str, bytes | None]:
    """A decisions event without the contexts and keys of some decisions, and without values that would reveal them."""
    body = json.loads(row.payload)
    n = len(body["recommended"])
    subjects = [None if i in positions else name for i, name in enumerate(body.pop("subjects", [None] * n))]
    if any(name is not None for name in subjects):
        body["subjects"] = subjects
    # Whoever guesses the context could check the guess against a hash of the request; and whoever rebuilds the learner
    # could solve its estimate and width for the context.
    body.pop("fingerprint", None)
    for i in positions:
        body["estimates"][i] = body["widths"][i] = None
    payload = json.dumps(body, separators=(",", ":"), allow_nan=False)
    if row.contexts is None:
        return payload, None
    contexts = np.frombuffer(row.contexts, dtype="<f8").reshape(n, n_features).copy()
    contexts[sorted(positions)] = np.nan
    return payload, None if np.isnan(contexts).all() else contexts.tobytes()
