"""Snapshots of the state and the learners that logs began with: what a store keeps beside its events."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from sidelight.errors import StoreError
from sidelight.service.log import migrations as tables
from sidelight.service.log.database import Database
from sidelight.service.log.sealing import Head

__all__ = ["Shelf", "Snapshot", "thinned"]


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

    @property
    def digest(self) -> str:
        """SHA-256 over everything but the time and the version of the fold."""
        digest = hashlib.sha256()
        for part in (str(self.number).encode(), self.state.encode(), self.learner):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()


class Shelf(Database, ABC):
    """Keeps blobs and snapshots."""

    @abstractmethod
    def lock(self, connection: Connection) -> Head:
        """The end of the log; until the transaction ends, nobody else moves it."""

    @abstractmethod
    def chain_within(self, connection: Connection, head: Head, number: int) -> bytes | None:
        """The chained digest after event ``number``; None where the log has no such event."""

    def put_blob(self, content: bytes) -> str:
        """Keep ``content``; returns its digest."""
        digest = hashlib.sha256(content).hexdigest()
        insert = (sqlite.insert if self.sqlite else postgresql.insert)(tables.blobs)
        with self.writing() as connection:
            # Two servers may start on an empty database at once; the content is the same, so either will do.
            connection.execute(insert.values(digest=digest, content=content).on_conflict_do_nothing())
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
        """Keep a snapshot, and thin the older ones out.

        One from before contexts were deleted is not kept: beside a later one it would tell what they were. Nor is one
        of a state that is not this log's.
        """
        s = tables.snapshots
        values = {
            "at": snapshot.at,
            "digest": snapshot.digest,
            "state": snapshot.state,
            "learner": snapshot.learner,
            "fold": snapshot.fold,
        }
        with self.writing() as connection:
            # Whoever deletes contexts holds this lock until they and all older snapshots are gone.
            head = self.lock(connection)
            base = connection.execute(select(sa.func.max(tables.bases.c.number))).scalar_one()
            if base is not None and snapshot.number < base:
                return
            if snapshot.chain is not None and self.chain_within(connection, head, snapshot.number) != snapshot.chain:
                raise StoreError(
                    f"the state after event {snapshot.number} is not one of this log: a snapshot of it was not kept."
                )
            # Two servers may keep the same snapshot at once; it is the same state, so either will do.
            insert = (sqlite.insert if self.sqlite else postgresql.insert)(s).values(number=snapshot.number, **values)
            connection.execute(insert.on_conflict_do_update(index_elements=[s.c.number], set_=values))
            query = select(s.c.number).where(s.c.fold == snapshot.fold).order_by(s.c.number.desc())
            numbers = list(connection.execute(query).scalars())
            connection.execute(s.delete().where(s.c.number.in_(thinned(numbers))))

    def snapshot_numbers(self, fold: int | None = None) -> list[int]:
        """The numbers of the snapshots, newest first; those of one version of the fold, or all."""
        s = tables.snapshots
        query = select(s.c.number).order_by(s.c.number.desc())
        with self.reading() as connection:
            return list(connection.execute(query if fold is None else query.where(s.c.fold == fold)).scalars())

    def snapshot(self, number: int) -> Snapshot | None:
        """The snapshot after event ``number``, or None where it is damaged."""
        with self.reading() as connection:
            row = connection.execute(select(tables.snapshots).where(tables.snapshots.c.number == number)).one_or_none()
        if row is None or not isinstance(row.state, str) or not isinstance(row.learner, bytes):
            return None
        found = Snapshot(row.number, row.at, row.state, row.learner, row.fold)
        return found if found.digest == row.digest else None

    def drop_snapshot(self, number: int) -> None:
        """Remove a snapshot."""
        with self.writing() as connection:
            connection.execute(tables.snapshots.delete().where(tables.snapshots.c.number == number))


def thinned(numbers: list[int], newest: int = 3) -> list[int]:
    """Which of the snapshots (newest first) to drop: the newest stay, of the older one per doubling of their age."""
    drop: list[int] = []
    octaves: set[int] = set()
    # The oldest of each octave stays: it will be the only one of the next octave when its time comes.
    for number in reversed(numbers[newest:]):
        octave = (numbers[0] - number).bit_length()
        if octave in octaves:
            drop.append(number)
        octaves.add(octave)
    return drop
