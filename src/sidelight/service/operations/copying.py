"""Copying a store into another while it is in use: back-ups, restores, and moving from SQLite to PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from sidelight.errors import StoreError
from sidelight.service.log import migrations as tables
from sidelight.service.log.store import Store

__all__ = ["copy_store"]

_ROWS = 500


def copy_store(source: Store, target: Store, progress: Callable[[int, int], None] | None = None) -> int:
    """Copy everything into an empty store; returns the number of its last event.

    One transaction reads throughout, so the copy is the state at one moment, whatever is written meanwhile, and one
    transaction writes, so it is whole or empty.

    Raises:
        StoreError: the target is not empty.
    """
    with source.reading() as reading, target.writing() as writing:
        if reading.dialect.name == "postgresql":
            reading.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        if writing.execute(sa.select(tables.head.c.number)).scalar_one() != 0:
            raise StoreError("the target already holds events: copy into a new database.")
        if source.origin:
            writing.execute(tables.properties.insert().values(name="origin", value=str(source.origin)))
        last = int(reading.execute(sa.select(tables.head.c.number)).scalar_one())
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
                    progress(copied, last)
        target.advance(writing, last)
    target.origin = source.origin
    return last
