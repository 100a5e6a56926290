"""Copying a store into another while it is in use: back-ups, restores, and moving from SQLite to PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from sidelight.errors import StoreError
from sidelight.service.log import migrations as tables
from sidelight.service.log.store import COPY, Store

__all__ = ["copy_store"]

_ROWS = 500
#: properties that belong to the log, and not to the database that it is in
_OF_THE_LOG = ("origin", "identity", "sealed_after")


def copy_store(source: Store, target: Store, progress: Callable[[int, int], None] | None = None) -> int:
    """Copy everything into an empty store; returns the number of its last event.

    One transaction reads throughout, so the copy is the state at one moment, whatever is written meanwhile, and one
    transaction writes, so it is whole or empty. Who goes on from the copy gives other ids than who goes on from the
    original: its place is noted as that of a copy.

    Raises:
        StoreError: the target is not empty, or has tables of another version.
    """
    if source.version() != target.version():
        raise StoreError(
            f"the database has version {source.version()} and the copy would have {target.version()}: `sidelight "
            "migrate` brings the first one up to date."
        )
    with source.reading() as reading, target.writing(patience=600) as writing:
        if reading.dialect.name == "postgresql":
            reading.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            reading.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        if target.lock(writing).number != 0:
            raise StoreError("the target already holds events: copy into a new database.")
        properties = reading.execute(sa.select(tables.properties)).all()
        for name, value in properties:
            if name in _OF_THE_LOG:
                target.set_property(writing, name, value)
        end = source.end_within(reading)
        tables.allow_unsealed(writing)
        for table, order in (
            (tables.blobs, tables.blobs.c.digest),
            (tables.tokens, tables.tokens.c.id),
            (tables.snapshots, tables.snapshots.c.number),
            (tables.bases, tables.bases.c.copy),
            (tables.subjects, tables.subjects.c.number),
            (tables.events, tables.events.c.number),
        ):
            result = reading.execution_options(stream_results=True, yield_per=_ROWS).execute(
                sa.select(table).order_by(order)
            )
            copied = 0
            for part in result.partitions(_ROWS):
                rows: list[dict[str, Any]] = [dict(row._mapping) for row in part]
                writing.execute(table.insert(), rows)
                copied += len(rows)
                if progress is not None and table is tables.events:
                    progress(copied, end.number)
        tables.forbid_unsealed(writing)
        target.advance(writing, end._replace(place=COPY))
    target.reread()
    return end.number
