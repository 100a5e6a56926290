"""Snapshots of the state, and the initial learners of logs: what a store keeps beside its events."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from sidelight.errors import StoreError
from sidelight.service.log import migrations as tables
from sidelight.service.log.lookups import Lookups

__all__ = ["Shelf", "Snapshot", "thinned"]

#: bytes of a learner that one transaction writes: every request waits for it
PIECE = 1 << 20


@dataclass(frozen=True)
class Snapshot:
    """The learner and the rails after event ``number``.

    Attributes:
        number: the last event that was folded in.
        at: when it was taken, in seconds since 1970.
        state: JSON of everything but the learner.
        learner: the learner, as a file has it.
        fold: the version of the fold that made it.
        chain: the log's chained digest after ``number``; None where it is not known.
    """

    number: int
    at: float
    state: str
    learner: bytes
    fold: int = 1
    chain: bytes | None = field(default=None, compare=False, repr=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything but the time and the version of the fold."""
        digest = hashlib.sha256()
        for part in (str(self.number).encode(), self.state.encode(), self.learner):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()


class Shelf(Lookups):
    """Keeps blobs and snapshots."""

    def put_blob(self, content: bytes) -> str:
        """Keep ``content``; returns its digest."""
        digest = hashlib.sha256(content).hexdigest()
        with self.writing() as connection:
            # Two servers may start on an empty database at once; the content is the same, so either will do.
            connection.execute(
                self._insert(tables.blobs).values(digest=digest, content=content).on_conflict_do_nothing()
            )
        return digest

    def blob(self, digest: str) -> bytes:
        """The content with this digest.

        Raises:
            StoreError: it is not there, or it was altered.
        """
        with self.reading() as connection:
            query = select(tables.blobs.c.content).where(tables.blobs.c.digest == digest)
            content = connection.execute(query).scalar_one_or_none()
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            what = "is missing" if content is None else "was altered"
            raise StoreError(f"the initial learner {digest[:12]}… {what} in the database: restore a back-up.")
        return bytes(content)

    def put_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and thin the older ones out; as ``keep_snapshot``, all of it at once."""
        for _ in self.keep_snapshot(snapshot):
            pass

    def keep_snapshot(self, snapshot: Snapshot) -> Iterator[None]:
        """Keep a snapshot, and thin the older ones out: every step is a transaction, short whatever the learner's size.

        A large learner is written in pieces, and its snapshot exists once the transaction after them is committed. One
        from before contexts were deleted is not kept: its difference from a later one would reveal them. Nor is one of
        a state that is not this log's.
        """
        p, learner = tables.pieces, snapshot.learner
        whole = len(learner) <= PIECE
        starts = range(0, 0 if whole else len(learner), PIECE)
        for position, start in enumerate(starts):
            values = {"digest": snapshot.digest, "position": position, "number": snapshot.number}
            with self.writing() as connection:
                if not self._is_wanted(connection, snapshot):
                    return
                insert = self._insert(p).values(content=learner[start : start + PIECE], **values)
                # Another server may keep the same state at once, or may have been stopped while it did.
                connection.execute(insert.on_conflict_do_nothing())
            yield
        with self.writing() as connection:
            if not self._is_wanted(connection, snapshot):
                return
            if not self._has_pieces(connection, snapshot.digest, len(starts)):
                raise StoreError("another server has kept a later one meanwhile, and deleted pieces of this one.")
            self._enter(connection, snapshot, learner if whole else b"")
        yield
        yield from self.sweep_pieces(snapshot.number)

    def _has_pieces(self, connection: Connection, digest: str, n: int) -> bool:
        query = select(sa.func.count()).select_from(tables.pieces).where(tables.pieces.c.digest == digest)
        return bool(connection.execute(query).scalar_one() == n)

    def _is_wanted(self, connection: Connection, snapshot: Snapshot) -> bool:
        """Whether a snapshot may be kept; under the lock, which whoever deletes contexts holds until they are gone."""
        head = self.lock(connection)
        base = connection.execute(select(sa.func.max(tables.bases.c.number))).scalar_one()
        if base is not None and snapshot.number < base:
            return False
        if snapshot.chain is not None and self.chain_within(connection, head, snapshot.number) != snapshot.chain:
            raise StoreError(
                f"the state after event {snapshot.number} is not one of this log: a snapshot of it was not kept."
            )
        return True

    def _enter(self, connection: Connection, snapshot: Snapshot, learner: bytes) -> None:
        s = tables.snapshots
        values = {
            "at": snapshot.at,
            "digest": snapshot.digest,
            "state": snapshot.state,
            "learner": learner,
            "fold": snapshot.fold,
        }
        # Two servers may keep the same snapshot at once; it is the same state, so either will do.
        insert = self._insert(s).values(number=snapshot.number, **values)
        connection.execute(insert.on_conflict_do_update(index_elements=[s.c.number], set_=values))
        query = select(s.c.number).where(s.c.fold == snapshot.fold).order_by(s.c.number.desc())
        numbers = list(connection.execute(query).scalars())
        connection.execute(s.delete().where(s.c.number.in_(thinned(numbers))))

    def _insert(self, table: sa.Table) -> Any:
        return (sqlite.insert if self.sqlite else postgresql.insert)(table)

    def sweep_pieces(self, before: int) -> Iterator[None]:
        """Delete the pieces of learners whose snapshots are gone or were never finished, one in a transaction.

        Args:
            before: snapshots from this event on may still be on their way.
        """
        p, s = tables.pieces, tables.snapshots
        query = (
            select(p.c.digest, p.c.position).where(p.c.number < before, p.c.digest.not_in(select(s.c.digest))).limit(1)
        )
        while True:
            with self.writing() as connection:
                self.lock(connection)
                found = connection.execute(query).one_or_none()
                if found is None:
                    return
                connection.execute(p.delete().where(p.c.digest == found.digest, p.c.position == found.position))
            yield

    def snapshot_numbers(self, fold: int | None = None) -> list[int]:
        """The numbers of the snapshots, newest first; those of one version of the fold, or all."""
        s = tables.snapshots
        query = select(s.c.number).order_by(s.c.number.desc())
        with self.reading() as connection:
            return list(connection.execute(query if fold is None else query.where(s.c.fold == fold)).scalars())

    def snapshot(self, number: int) -> Snapshot | None:
        """The snapshot after event ``number``, or None where it is damaged."""
        p = tables.pieces
        with self.reading(one_state=True) as connection:
            row = connection.execute(select(tables.snapshots).where(tables.snapshots.c.number == number)).one_or_none()
            if row is None or not isinstance(row.state, str) or not isinstance(row.learner, bytes):
                return None
            query = select(p.c.content).where(p.c.digest == row.digest).order_by(p.c.position)
            learner = row.learner or b"".join(connection.execute(query).scalars())
        found = Snapshot(row.number, row.at, row.state, learner, row.fold)
        return found if found.digest == row.digest else None

    def drop_snapshot(self, number: int) -> None:
        """Remove a snapshot."""
        with self.writing() as connection:
            connection.execute(tables.snapshots.delete().where(tables.snapshots.c.number == number))


def thinned(numbers: list[int], newest: int = 3) -> list[int]:
    """Which of the snapshots (newest first) to drop: the newest stay, of the older one per doubling of their age."""
    drop: list[int] = []
    octaves: set[int] = set()
    # The oldest of each doubling stays: when it ages into the next doubling, it is the only one there.
    for number in reversed(numbers[newest:]):
        octave = (numbers[0] - number).bit_length()
        if octave in octaves:
            drop.append(number)
        octaves.add(octave)
    return drop
