"""Bases: snapshots that a replay must start from, because the events before them no longer give the state.

Either contexts were deleted, or the fold has a new version that computes other numbers from the same events.

A base is a snapshot that nothing can replace, so it is kept twice, each copy with its checksum; a damaged copy is
restored from the other.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from sidelight.errors import StoreError
from sidelight.service.log.migrations import bases
from sidelight.service.log.snapshots import Snapshot
from sidelight.service.log.store import Store

__all__ = ["COPIES", "Base", "base_number", "newest_base", "put_base"]

logger = logging.getLogger("sidelight.service")

COPIES = 2


@dataclass(frozen=True)
class Base:
    """The newest base.

    Attributes:
        snapshot: the state.
        damaged: how many of its copies failed their checksum.
    """

    snapshot: Snapshot
    damaged: int


def put_base(connection: Connection, snapshot: Snapshot) -> None:
    """Write two copies of a base, read both back, and only then delete older bases; in the caller's transaction.

    Raises:
        StoreError: a copy does not read back as it was written.
    """
    connection.execute(
        bases.insert(),
        [
            {
                "number": snapshot.number,
                "copy": copy,
                "at": snapshot.at,
                "digest": snapshot.digest,
                "state": snapshot.state,
                "learner": snapshot.learner,
                "fold": snapshot.fold,
            }
            for copy in range(COPIES)
        ],
    )
    if _copies(connection, snapshot.number) != [snapshot] * COPIES:
        raise StoreError(
            f"the base after event {snapshot.number} does not read back as it was written: check the disk."
        )
    connection.execute(bases.delete().where(bases.c.number < snapshot.number))


def base_number(store: Store) -> int | None:
    """The event after which the newest base was kept; None where there is none."""
    with store.reading() as connection:
        found: int | None = connection.execute(select(func.max(bases.c.number))).scalar_one()
    return found


def newest_base(store: Store, *, repair: bool = False) -> Base | None:
    """The newest base, or None where a replay can start from the first event.

    Args:
        store: the event log.
        repair: write a damaged copy anew from the good one.

    Raises:
        StoreError: all of its copies are damaged.
    """
    with store.reading() as connection:
        number = connection.execute(
            select(bases.c.number).order_by(bases.c.number.desc()).limit(1)
        ).scalar_one_or_none()
        if number is None:
            return None
        copies = _copies(connection, number)
    good = [copy for copy in copies if copy is not None]
    damaged = COPIES - len(good)
    if not good:
        raise StoreError(
            f"both copies of the base after event {number} are damaged, and the events before it do not give the state "
            "any more, because contexts were deleted or the fold has a new version. Restore a back-up."
        )
    if damaged:
        logger.warning("one of two copies of the base after event %d is damaged; the other one is good", number)
        if repair:
            with store.writing() as connection:
                connection.execute(bases.delete().where(bases.c.number == number))
                put_base(connection, good[0])
    return Base(good[0], damaged)


def _copies(connection: Connection, number: int) -> list[Snapshot | None]:
    """Both copies of a base, None for one that is missing or fails its checksum."""
    found: list[Snapshot | None] = [None] * COPIES
    for row in connection.execute(select(bases).where(bases.c.number == number)):
        if isinstance(row.state, str) and isinstance(row.learner, bytes) and row.copy < COPIES:
            snapshot = Snapshot(row.number, row.at, row.state, row.learner, row.fold)
            found[row.copy] = snapshot if snapshot.digest == row.digest else None
    return found
