"""Copying a store into another while it is in use: back-ups, restores, and moving from SQLite to PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sidelight.errors import InputError, StoreError
from sidelight.files import sync_folder
from sidelight.service.log import migrations as tables
from sidelight.service.log.store import COPY, Store

__all__ = ["Untouched", "back_up", "copy_store"]

_ROWS = 500
#: properties that belong to the log, and not to the database that it is in
_OF_THE_LOG = ("origin", "identity", "sealed_after")


def back_up(
    source: Store,
    url: sa.URL,
    progress: Callable[[int, int], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> int:
    """Copy everything into a new database; returns the number of its last event.  Arguments as of ``copy_store``.

    A file gets its name when it is whole and on disk: one that was left by an interrupted copy is neither taken for a
    back-up nor in the way of the next.

    Raises:
        InputError: there is such a file already.
        StoreError: the database is not empty, or the disk does not take the copy.
    """
    if url.get_backend_name() != "sqlite" or url.query:
        return _copy_into(source, url, progress, check)
    path = Path(str(url.database))
    _must_be_new(path)
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.partial")
    beside = [partial.with_name(partial.name + end) for end in ("-wal", "-shm")]
    try:
        last = _copy_into(source, url.set(database=str(partial)), progress, check)
        # Where SQLite cannot sync the file it keeps the write-ahead log, without an error.
        if beside[0].exists():
            raise StoreError(f"the copy could not be brought into one file: check the disk of {path.parent}.")
        _must_be_new(path)
        partial.rename(path)
        try:
            sync_folder(path.parent)
        except OSError as error:
            raise StoreError(
                f"{path} is whole, but whether its name is on disk is not known ({error}): check the disk of "
                f"{path.parent}, then copy again under another name."
            ) from error
    finally:
        for left in (partial, *beside):
            left.unlink(missing_ok=True)
    return last


def _must_be_new(path: Path) -> None:
    if path.exists():
        raise InputError(f"{path} is there already: copy into a new file.")


def _copy_into(
    source: Store, url: sa.URL, progress: Callable[[int, int], None] | None, check: Callable[[], None]
) -> int:
    target = Store(url)
    try:
        return copy_store(source, target, progress, check)
    finally:
        # Closing the last connection checkpoints the write-ahead log into the file.
        target.close()


class Untouched:
    """A SQLite file opened as immutable (reading it creates no files), which must not change meanwhile."""

    def __init__(self, url: sa.URL) -> None:
        self._path = Path(str(url.database)) if url.get_backend_name() == "sqlite" and not url.query else None
        self._before = self._look()

    def _look(self) -> tuple[int, int, bool] | None:
        if self._path is None or not self._path.exists():
            return None
        found = self._path.stat()
        return found.st_mtime_ns, found.st_size, self._path.with_name(self._path.name + "-wal").exists()

    def check(self) -> None:
        """Raises StoreError where somebody has opened it to write since this was made."""
        if self._before is not None and not self._before[2] and self._look() != self._before:
            raise StoreError(
                f"{self._path} was opened by something that writes while it was being read: stop that, and try again."
            )


def copy_store(
    source: Store,
    target: Store,
    progress: Callable[[int, int], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> int:
    """Copy everything into an empty store; returns the number of its last event.

    One transaction reads throughout, so the copy is the state at one moment, whatever is written meanwhile, and one
    transaction writes, so it is whole or empty. A service that continues from the copy gives other ids than one that
    continues from the original, because the copy is marked as such (``Head.place``).

    Args:
        source: what to copy.
        target: where to.
        progress: called with (events copied, the last one).
        check: called when everything was read and nothing is written for good yet; what it raises ends the copy.

    Raises:
        StoreError: the target is not empty, or has tables of another version.
    """
    if source.version() != target.version():
        raise StoreError(
            f"the database has version {source.version()} and the copy would have {target.version()}: `sidelight "
            "migrate` brings the first one up to date."
        )
    with source.reading(one_state=True) as reading, target.writing(patience=600) as writing:
        if reading.dialect.name == "postgresql":
            reading.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        if target.lock(writing).number != 0:
            raise StoreError("the target already holds events: copy into a new database.")
        properties = reading.execute(sa.select(tables.properties)).all()
        for name, value in properties:
            if name in _OF_THE_LOG:
                target.set_property(writing, name, value)
        end = source.end_within(reading)
        tables.allow_unsealed(writing)
        for table, order, at_once in (
            (tables.blobs, tables.blobs.c.digest, 1),
            (tables.tokens, tables.tokens.c.id, _ROWS),
            (tables.snapshots, tables.snapshots.c.number, 1),
            (tables.pieces, tables.pieces.c.position, 1),
            (tables.bases, tables.bases.c.copy, 1),
            (tables.subjects, tables.subjects.c.number, _ROWS),
            (tables.events, tables.events.c.number, _ROWS),
        ):
            query = sa.select(table).order_by(order)
            if table is tables.pieces:
                # The other pieces belong to snapshots that were deleted or are not finished.
                query = query.where(table.c.digest.in_(sa.select(tables.snapshots.c.digest)))
            result = reading.execution_options(stream_results=True, yield_per=at_once).execute(query)
            copied = 0
            for part in result.partitions(at_once):
                rows: list[dict[str, Any]] = [dict(row._mapping) for row in part]
                writing.execute(table.insert(), rows)
                copied += len(rows)
                if progress is not None and table is tables.events:
                    progress(copied, end.number)
        tables.forbid_unsealed(writing)
        check()
        target.advance(writing, end._replace(place=COPY))
    target.reread()
    return end.number
