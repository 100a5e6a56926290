"""The statements of every transaction that writes events: the head row, new rows, rows of which a part was deleted.

PostgreSQL's go through SQLAlchemy. SQLite's go to its driver: SQLAlchemy takes three times as long for one of them as
SQLite does, and all requests of a commit group wait for it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy import Connection, select

from sidelight.service.log import migrations as tables
from sidelight.service.log.connections import driver_of
from sidelight.service.log.rows import Row
from sidelight.service.log.sealing import Head

__all__ = ["SQLALCHEMY", "SQLITE", "Statements"]

_EVENTS, _HEAD = tables.events, tables.head
_COLUMNS = Row._fields
#: most rows that one statement of SQLite inserts
_MOST_ROWS = 64


class Statements(Protocol):
    """What a transaction does with the head row and with events, by the means of one database."""

    def head(self, connection: Connection, *, lock: bool = False) -> Head | None:
        """The end of the log, None where there is no head row; with ``lock`` nobody else moves it until the end."""

    def advance(self, connection: Connection, head: Head) -> None:
        """Make this the end of the log."""

    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Insert events, which no transaction has written yet, as rows of the events' table."""

    def rewrite(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Replace payload, contexts, seal and chain of events, of which there is at least one."""


def _head(found: Any) -> Head | None:
    if found is None:
        return None
    number, chain, epoch, fold, place = found
    return Head(number, bytes(chain or b""), epoch, fold, place)


class _SQLAlchemy:
    """Statements that SQLAlchemy writes; made once, because making one costs more than running it."""

    _read = select(*(_HEAD.c[name] for name in Head._fields)).where(_HEAD.c.id == 1)
    _lock = _read.with_for_update()
    _advance = (
        _HEAD.update().where(_HEAD.c.id == 1).values({name: sa.bindparam(f"new_{name}") for name in Head._fields})
    )
    _insert = _EVENTS.insert()
    _changed = ("payload", "contexts", "seal", "chain")
    _rewrite = (
        _EVENTS.update()
        .where(_EVENTS.c.number == sa.bindparam("of"))
        .values({name: sa.bindparam(f"new_{name}") for name in _changed})
    )

    def head(self, connection: Connection, *, lock: bool = False) -> Head | None:
        return _head(connection.execute(self._lock if lock else self._read).one_or_none())

    def advance(self, connection: Connection, head: Head) -> None:
        connection.execute(self._advance, {f"new_{name}": value for name, value in head._asdict().items()})

    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        connection.execute(self._insert, [row._asdict() for row in rows])

    def rewrite(self, connection: Connection, rows: Sequence[Row]) -> None:
        values = [{"of": row.number} | {f"new_{name}": getattr(row, name) for name in self._changed} for row in rows]
        connection.execute(self._rewrite, values)


class _SQLite:
    """Statements for SQLite's driver.  A transaction that writes holds the lock of the whole file from its start."""

    _read = f"SELECT {', '.join(Head._fields)} FROM {_HEAD.name} WHERE id = 1"
    _advance = f"UPDATE {_HEAD.name} SET {', '.join(f'{name} = ?' for name in Head._fields)} WHERE id = 1"
    _rewrite = f"UPDATE {_EVENTS.name} SET payload = ?, contexts = ?, seal = ?, chain = ? WHERE number = ?"

    @staticmethod
    @functools.cache
    def _insert(size: int) -> str:
        row = "(" + ", ".join("?" * len(_COLUMNS)) + ")"
        return f"INSERT INTO {_EVENTS.name} ({', '.join(_COLUMNS)}) VALUES {', '.join([row] * size)}"

    def head(self, connection: Connection, *, lock: bool = False) -> Head | None:
        return _head(driver_of(connection).execute(self._read).fetchone())

    def advance(self, connection: Connection, head: Head) -> None:
        driver_of(connection).execute(self._advance, head)

    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        # The driver releases the interpreter lock (GIL) at every step of a statement (in an executemany: for every row)
        # and then competes with the event loop for it, so one step inserts many rows. There are as many statements as
        # numbers of rows, which is half of what the driver keeps prepared.
        for start in range(0, len(rows), _MOST_ROWS):
            values: list[Any] = []
            part = rows[start : start + _MOST_ROWS]
            for number, kind, at, key, payload, contexts, epoch, seal, chain in part:
                values += number, kind, at, key, payload, _blob(contexts), epoch, _blob(seal), _blob(chain)
            driver_of(connection).execute(self._insert(len(part)), values)

    def rewrite(self, connection: Connection, rows: Sequence[Row]) -> None:
        values = [(row.payload, row.contexts, row.seal, row.chain, row.number) for row in rows]
        driver_of(connection).executemany(self._rewrite, values)


def _blob(value: bytes | None) -> bytearray | None:
    """A value as the driver takes it most cheaply: for ``bytes`` it first looks for an adapter, in vain."""
    return None if value is None else bytearray(value)


SQLALCHEMY: Statements = _SQLAlchemy()
SQLITE: Statements = _SQLite()
