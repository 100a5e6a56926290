"""The store: an append-only log of events in SQLite or PostgreSQL, and what hangs on it.

Numbers are gap-free and in commit order: a group of events is numbered and written in one transaction that holds the
lock on the head row, so a reader that has seen number ``n`` will never find a smaller one appear later.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from sidelight.errors import StoreError
from sidelight.service.log import migrations as tables
from sidelight.service.log.connections import connect, explain_failure
from sidelight.service.log.events import Configuration, Event, Row, event_content

__all__ = ["Draft", "Outdated", "Proposal", "Snapshot", "Store", "Written"]

logger = logging.getLogger("sidelight.service")

_CHUNK = 500

# Built once: making a statement costs more than running it.
_HEAD = select(tables.head.c.number).where(tables.head.c.id == 1)
_HEAD_LOCKED = _HEAD.with_for_update()
_ADVANCE = tables.head.update().where(tables.head.c.id == 1).values(number=sa.bindparam("to"))
_INSERT = tables.events.insert()
_COLUMNS = tuple(column.name for column in tables.events.columns)


@functools.cache
def _insert_sql(size: int) -> str:
    row = "(" + ", ".join("?" * len(_COLUMNS)) + ")"
    return f"INSERT INTO {tables.events.name} ({', '.join(_COLUMNS)}) VALUES {', '.join([row] * size)}"


@dataclass(frozen=True)
class Draft:
    """An event that is ready to be written but has no number yet.

    Attributes:
        key: names what may exist only once.
        chosen_at: the last event that was known when this was decided; it is not written if who acts was changed by a
            later one. None where that does not matter.
    """

    event: Event
    key: str | None
    payload: str
    contexts: bytes | None
    subjects: list[str | None] | None = None
    chosen_at: int | None = None

    @classmethod
    def of(cls, event: Event, key: str | None = None, chosen_at: int | None = None) -> Draft:
        """A draft of ``event``."""
        payload, contexts = event_content(event)
        return cls(event, key, payload, contexts, getattr(event, "subjects", None), chosen_at)


class Proposal(Protocol):
    """Something that wants to be written, if what the log already holds allows it."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys whose events, if there are any, ``settle`` wants to see."""

    def settle(self, found: Mapping[str, Row]) -> Draft | Any:
        """Decide under the lock: a draft is written; anything else is handed back as the outcome."""


@dataclass(frozen=True)
class Written:
    """The outcome of a proposal that was written."""

    number: int
    draft: Draft


class Outdated:
    """The outcome of a draft that was decided before a change of who acts: decide again."""


@dataclass(frozen=True)
class Snapshot:
    """The learner and the rails after event ``number``."""

    number: int
    at: float
    state: str
    learner: bytes

    @property
    def digest(self) -> str:
        """SHA-256 over everything but the time."""
        return _digest(str(self.number).encode(), self.state.encode(), self.learner)


class Store:
    """The event log and its companions.  One thread appends; any thread reads.

    Attributes:
        origin: the number before the first event's: 0, or where the log of the service before this one had ended, so
            that no decision of one has the id of a decision of the other.
    """

    def __init__(self, url: sa.URL, *, create: bool = True, migrate: bool = True) -> None:
        self.url = url
        self.sqlite = url.get_backend_name() == "sqlite"
        if self.sqlite and not create and not Path(str(url.database)).exists():
            raise StoreError(f"there is no database at {url.database}. `sidelight serve` makes one.")
        if self.sqlite and create and not url.query:
            # Contexts may be about people: whatever the umask, not for everybody on this machine. The files beside it
            # get the same rights; where the file cannot be made, opening it says why.
            with suppress(OSError):
                Path(str(url.database)).touch(mode=0o660)
        self._engine = connect(url)
        self._writer = self._engine.execution_options(sidelight_write=True)
        if migrate:
            with self._guard("open"), self._writer.begin() as connection:
                self.migrated = tables.migrate(connection)
                self.origin = self._origin(connection)

    def _origin(self, connection: Connection) -> int:
        query = select(tables.properties.c.value).where(tables.properties.c.name == "origin")
        return int(connection.execute(query).scalar_one_or_none() or 0)

    def start_after(self, number: int) -> None:
        """Let the first event of an empty log have the number after this one.

        Raises:
            StoreError: the log is not empty.
        """
        with self.writing() as connection:
            if self.lock(connection) != 0:
                raise StoreError("the event log has begun: its first number cannot be chosen any more.")
            connection.execute(tables.properties.insert().values(name="origin", value=str(number)))
            self.advance(connection, number)
        self.origin = number

    def close(self) -> None:
        """Give back every connection."""
        self._engine.dispose()

    @contextmanager
    def _guard(self, action: str) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, OSError) as error:
            raise StoreError(explain_failure(error, action, self.url)) from error

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees one state of the database throughout."""
        with self._guard("read"), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes; SQLite's write lock is taken at once."""
        with self._guard("write to"), self._writer.begin() as connection:
            yield connection

    # ------------------------------------------------------------------------------------- events

    def append(self, proposals: Sequence[Proposal], seen: int, configured: int = 0) -> tuple[list[Row], list[Any]]:
        """Settle and write a group in one transaction.

        Args:
            proposals: in the order in which they came.
            seen: the last number the caller knows.
            configured: the last of those that changed who acts.

        Returns:
            the rows that others wrote after ``seen``, and one outcome per proposal: ``Written``, ``Outdated``, or what
            ``settle`` returned. Written numbers follow on the others' rows without a gap.
        """
        outcomes: list[Any] = []
        fresh: list[tuple[Any, ...]] = []
        about: list[dict[str, Any]] = []
        with self.writing() as connection:
            number = start = self.lock(connection)
            others = self._rows(connection, seen, start) if start > seen else []
            configured = max((row.number for row in others if row.kind == Configuration.kind), default=configured)
            wanted = [key for proposal in proposals for key in proposal.keys]
            found = self._find(connection, wanted) if wanted else {}
            now = time.time()
            for proposal in proposals:
                draft = proposal.settle(found)
                if not isinstance(draft, Draft):
                    outcomes.append(draft)
                    continue
                if draft.chosen_at is not None and draft.chosen_at < configured:
                    outcomes.append(Outdated())
                    continue
                number += 1
                if isinstance(draft.event, Configuration):
                    configured = number
                outcomes.append(Written(number, draft))
                fresh.append((number, draft.event.kind, now, draft.key, draft.payload, draft.contexts))
                if draft.key is not None:
                    found[draft.key] = Row(*fresh[-1])
                if draft.subjects is not None:
                    about += [
                        {"number": number, "position": i, "subject": subject}
                        for i, subject in enumerate(draft.subjects)
                        if subject is not None
                    ]
            if fresh:
                self.insert(connection, fresh)
                if about:
                    connection.execute(tables.subjects.insert(), about)
                self.advance(connection, number)
        return others, outcomes

    def insert(self, connection: Connection, rows: list[tuple[Any, ...]]) -> None:
        """Write rows in the order of the table's columns, under the lock."""
        if not self.sqlite:
            connection.execute(_INSERT, [dict(zip(_COLUMNS, row, strict=True)) for row in rows])
            return
        # SQLite's driver gives the interpreter away at every step, and each time has to win it back from the event
        # loop. So many rows are one step; powers of two, so that the statements are few and stay prepared.
        start = 0
        while start < len(rows):
            size = min(64, 1 << ((len(rows) - start).bit_length() - 1))
            part = rows[start : start + size]
            connection.exec_driver_sql(_insert_sql(size), tuple(value for row in part for value in row))
            start += size

    def lock(self, connection: Connection) -> int:
        """The last number; until the transaction ends, nobody else gives numbers."""
        # SQLite's transaction holds the whole file's write lock already.
        return int(connection.execute(_HEAD if self.sqlite else _HEAD_LOCKED).scalar_one())

    def advance(self, connection: Connection, number: int) -> None:
        """Make ``number`` the last one, under the lock."""
        connection.execute(_ADVANCE, {"to": number})

    def probe(self) -> None:
        """Write without changing anything: raises where writing is impossible."""
        with self.writing() as connection:
            self.advance(connection, self.lock(connection))

    def head(self) -> int:
        """The number of the last event, ``origin`` where there is none."""
        with self.reading() as connection:
            return int(connection.execute(select(tables.head.c.number)).scalar_one())

    def read(self, after: int, upto: int) -> list[Row]:
        """The events ``after < number ≤ upto``, in order."""
        with self.reading() as connection:
            return self._rows(connection, after, upto)

    def follow(self, after: int, upto: int | None = None, chunk: int = 2000) -> Iterator[list[Row]]:
        """Chunks of events after ``after``, up to the head as it is now."""
        after = max(after, self.origin)
        end = self.head() if upto is None else upto
        while after < end:
            rows = self.read(after, min(after + chunk, end))
            if not rows or rows[0].number != after + 1 or rows[-1].number != after + len(rows):
                raise StoreError(
                    f"the event log has a gap after {after}: events were deleted from outside. Restore a back-up."
                )
            yield rows
            after = rows[-1].number

    def rows(self, numbers: Iterable[int]) -> dict[int, Row]:
        """The events with these numbers, as far as they exist."""
        with self.reading() as connection:
            return self.rows_within(connection, numbers)

    def rows_within(self, connection: Connection, numbers: Iterable[int]) -> dict[int, Row]:
        """``rows`` inside a transaction of the caller."""
        wanted = sorted(set(numbers))
        found: dict[int, Row] = {}
        for start in range(0, len(wanted), _CHUNK):
            part = wanted[start : start + _CHUNK]
            for row in connection.execute(select(tables.events).where(tables.events.c.number.in_(part))):
                found[row.number] = _row(row)
        return found

    def first(self) -> Row | None:
        """The first event, if there is one."""
        return next(iter(self.read(self.origin, self.origin + 1)), None)

    def configurations(self) -> list[Row]:
        """Every configuration event, in order."""
        with self.reading() as connection:
            query = select(tables.events).where(tables.events.c.kind == "configuration")
            return [_row(row) for row in connection.execute(query.order_by(tables.events.c.number))]

    def find(self, keys: Iterable[str]) -> dict[str, Row]:
        """The events with these keys, as far as they exist."""
        with self.reading() as connection:
            return self._find(connection, list(keys))

    def _find(self, connection: Connection, keys: list[str]) -> dict[str, Row]:
        found: dict[str, Row] = {}
        for start in range(0, len(keys), _CHUNK):
            part = keys[start : start + _CHUNK]
            for row in connection.execute(select(tables.events).where(tables.events.c.key.in_(part))):
                found[row.key] = _row(row)
        return found

    def _rows(self, connection: Connection, after: int, upto: int) -> list[Row]:
        number = tables.events.c.number
        query = select(tables.events).where(number > after, number <= upto).order_by(number)
        return [_row(row) for row in connection.execute(query)]

    # ---------------------------------------------------------------------------- blobs, snapshots

    def put_blob(self, content: bytes) -> str:
        """Keep ``content``; returns its digest."""
        digest = hashlib.sha256(content).hexdigest()
        with self.writing() as connection:
            if connection.execute(select(tables.blobs.c.digest).where(tables.blobs.c.digest == digest)).first() is None:
                connection.execute(tables.blobs.insert().values(digest=digest, content=content))
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

        One from before contexts were deleted is not kept: beside a later one it would tell what they were.
        """
        s = tables.snapshots
        values = {
            "at": snapshot.at,
            "digest": snapshot.digest,
            "state": snapshot.state,
            "learner": snapshot.learner,
        }
        with self.writing() as connection:
            # Whoever deletes contexts holds this lock until they and all older snapshots are gone.
            self.lock(connection)
            base = connection.execute(select(sa.func.max(tables.bases.c.number))).scalar_one()
            if base is not None and snapshot.number < base:
                return
            # Two servers may keep the same snapshot at once; it is the same state, so either will do.
            insert = (sqlite.insert if self.sqlite else postgresql.insert)(s).values(number=snapshot.number, **values)
            connection.execute(insert.on_conflict_do_update(index_elements=[s.c.number], set_=values))
            numbers = list(connection.execute(select(s.c.number).order_by(s.c.number.desc())).scalars())
            connection.execute(s.delete().where(s.c.number.in_(_thinned(numbers))))

    def snapshot_numbers(self) -> list[int]:
        """The numbers of the snapshots, newest first."""
        with self.reading() as connection:
            query = select(tables.snapshots.c.number).order_by(tables.snapshots.c.number.desc())
            return list(connection.execute(query).scalars())

    def snapshot(self, number: int) -> Snapshot | None:
        """The snapshot after event ``number``, or None where it is damaged."""
        with self.reading() as connection:
            row = connection.execute(select(tables.snapshots).where(tables.snapshots.c.number == number)).one_or_none()
        if row is None or not isinstance(row.state, str) or not isinstance(row.learner, bytes):
            return None
        found = Snapshot(row.number, row.at, row.state, row.learner)
        return found if found.digest == row.digest else None

    def drop_snapshot(self, number: int) -> None:
        """Remove a snapshot."""
        with self.writing() as connection:
            connection.execute(tables.snapshots.delete().where(tables.snapshots.c.number == number))

    # ---------------------------------------------------------------------------------- deleting

    def erase_deleted(self, patience: float = 10.0) -> bool:
        """Rewrite the database's files so that nothing deleted lingers in them; writers wait meanwhile.

        Returns:
            False where it did not work: somebody held a lock for too long, or there was no room.
        """
        try:
            with self._guard("rewrite"):
                return self._rewrite_file(patience) if self.sqlite else self._rewrite_tables()
        except StoreError as error:
            logger.warning("%s", error)
            return False

    def _rewrite_tables(self) -> bool:
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("SET statement_timeout = 0")
            try:
                for table in (tables.events, tables.subjects, tables.snapshots, tables.bases):
                    connection.exec_driver_sql(f"VACUUM (FULL) {table.name}")
            finally:
                # The next borrower of this connection has its settings as they were.
                connection.invalidate()
        return True

    def _rewrite_file(self, patience: float) -> bool:
        raw = self._engine.raw_connection()
        try:
            cursor = raw.cursor()
            cursor.execute("VACUUM")
            end = time.monotonic() + patience
            while cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                if time.monotonic() > end:
                    return False
                time.sleep(0.1)
        except sqlite3.Error as error:
            raise StoreError(explain_failure(error, "rewrite", self.url)) from error
        finally:
            raw.close()
        return True


def _thinned(numbers: list[int], newest: int = 3) -> list[int]:
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


def _row(row: Any) -> Row:
    contexts = row.contexts
    return Row(row.number, row.kind, row.at, row.key, row.payload, None if contexts is None else bytes(contexts))


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()
