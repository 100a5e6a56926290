"""Anything tabular → Arrow record batches with the wanted columns, in order.

:func:`open_source` looks at what it is given and returns a :class:`Source`: pieces of at most a few megabytes, each
with the name of where it came from, so that a message can name the file and the row.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sidelight.errors import SourceError
from sidelight.logs.sources.base import LogFile, Source, Wanted
from sidelight.logs.sources.frames import open_frame
from sidelight.logs.sources.paths import open_files, open_paths

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["as_batches", "open_source"]


def open_source(
    source: Any, columns: Sequence[str], labels: Sequence[str] = (), optional: Sequence[str] = ()
) -> Source:
    """A source that is open for reading, whatever kind it is of.

    Args:
        source: see :func:`sidelight.summarize_log`.
        columns: the columns to read, and no others.
        labels: those among them that hold labels rather than numbers.
        optional: those that may be missing from some or all of the files; they are null there.

    Raises:
        SourceError: it is nothing Sidelight can read.
        SchemaError: a column is not there.
    """
    wanted = Wanted(tuple(columns), tuple(labels), tuple(optional))
    if isinstance(source, str | os.PathLike) or _is_paths(source):
        return open_paths(source, wanted)
    if isinstance(source, LogFile):
        return open_files([source], wanted, source.path)
    opened = open_frame(source, wanted)
    if opened is not None:
        return opened
    raise SourceError(
        f"cannot read a log from {type(source).__module__}.{type(source).__name__}. A log is a path, list or glob of "
        "Parquet, CSV or Arrow files, a folder, a pandas, polars or Dask frame, an Arrow table, dataset or reader, "
        "a DuckDB relation, a mapping of arrays, a triple (X, arms, rewards), or an iterator of batches."
    )


def _is_paths(source: Any) -> bool:
    return (
        isinstance(source, list | tuple | set | frozenset)
        and len(source) > 0
        and all(isinstance(item, str | os.PathLike) for item in source)
    )


def as_batches(source: Any, columns: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """The wanted columns of a source, batch by batch, and whether its labels are text."""
    opened = open_source(source, columns)
    for piece in opened.pieces():
        yield piece.batch, opened.text_labels
