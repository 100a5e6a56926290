"""What every kind of source gives: Arrow record batches with the wanted columns, and where each row came from."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sidelight.errors import SchemaError
from sidelight.labels import did_you_mean, show_labels
from sidelight.logs.progress import counting_bar

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Bundle", "LogFile", "Piece", "Source", "Wanted", "check_columns", "is_text"]


# How many pieces are searched for the first value of a column.
_LOOKED_AT = 64


@dataclass(frozen=True)
class Piece:
    """Some rows with the wanted columns, and where they came from."""

    batch: pa.RecordBatch
    origin: str
    first_row: int


@dataclass(frozen=True)
class Bundle:
    """Several pieces as one batch."""

    batch: pa.RecordBatch
    pieces: tuple[tuple[int, str, int], ...]
    """for each piece: its first row among those that were read together, its origin, and that row's number there"""
    rows: np.ndarray | None = None
    """(n,) which of the rows that were read together these are; all of them if ``None``"""

    def origin(self, row: int) -> tuple[str, int]:
        """The origin of a row of the batch and its number there, counted from 0."""
        if self.rows is not None:
            row = int(self.rows[row])
        start, origin, first_row = max(piece for piece in self.pieces if piece[0] <= row)
        return origin, first_row + row - start

    def filtered(self, rows: np.ndarray) -> Bundle:
        """The rows where ``rows`` (n,) is true; messages still name where each came from."""
        import pyarrow as pa

        kept = np.flatnonzero(rows) if self.rows is None else self.rows[rows]
        return Bundle(self.batch.filter(pa.array(rows)), self.pieces, kept)


@dataclass
class Source:
    """Where a log comes from.

    Attributes:
        name: what messages call it.
        pieces: starts reading; called once per pass.
        columns: the wanted columns.
        total_rows: how many rows there are, if that is known beforehand.
        text_labels: the source knows nothing but text (CSV).
        rereadable: whether it can be read twice.
        fraction: how much of it has been read, between 0 and 1, where rows are not known beforehand.
    """

    name: str
    pieces: Callable[[], Iterator[Piece]]
    columns: tuple[str, ...]
    total_rows: int | None = None
    text_labels: bool = False
    rereadable: bool = True
    fraction: Callable[[], float] | None = None
    report: Callable[[int, int | None], None] | None = field(default=None, repr=False)
    _begin: Callable[[], Iterator[Piece]] | None = field(default=None, repr=False)

    def bundles(self, rows: int) -> Iterator[Bundle]:
        """The pieces, cut and joined to batches of about ``rows`` rows, as far as their columns have the same types."""
        waiting: list[Piece] = []
        n_waiting = done = 0
        types: list[pa.DataType] | None = None
        for piece in self.pieces():
            own = piece.batch.schema.types
            for first in range(0, piece.batch.num_rows, rows):
                part = piece.batch.slice(first, rows) if piece.batch.num_rows > rows else piece.batch
                types = own if types is None else _common_types(types, own)
                if n_waiting and (types is None or n_waiting + part.num_rows > rows):
                    yield _joined(waiting)
                    done = self._report(done + n_waiting)
                    waiting, n_waiting, types = [], 0, own
                waiting.append(Piece(part, piece.origin, piece.first_row + first))
                n_waiting += part.num_rows
        if n_waiting:
            yield _joined(waiting)
            self._report(done + n_waiting)

    def first_values(self, names: Sequence[str]) -> dict[str, pa.Array]:
        """The values of these columns in the first piece that has any; what is read for it is not lost.

        A column that has no value in the first few pieces is not among them.
        """
        again = self.pieces
        reading = again()
        read: list[Piece] = []
        found: dict[str, pa.Array] = {}
        for piece in itertools.islice(reading, _LOOKED_AT):
            read.append(piece)
            for name in names:
                column = piece.batch.column(name)
                if name not in found and column.null_count < len(column):
                    found[name] = column
            if len(found) == len(names):
                break

        def resumed() -> Iterator[Piece]:
            self.pieces = again
            return itertools.chain(read, reading)

        self.pieces, self._begin = resumed, again
        return found

    def rewind(self) -> None:
        """Drop what :meth:`first_values` began to read: a database may have only one open result at a time."""
        if self._begin is not None:
            self.pieces, self._begin = self._begin, None

    def _report(self, done: int) -> int:
        if self.report is not None:
            total = self.total_rows
            if total is None and self.fraction is not None and (share := self.fraction()) > 0:
                total = max(done, round(done / share))
            self.report(done, total)
        return done

    @contextlib.contextmanager
    def reporting(self, progress: Any, what: str) -> Iterator[None]:
        """Report to a function, or to a bar in the terminal, while reading."""
        if progress is False or progress is None:
            yield
            return
        if callable(progress):
            self.report = progress
            yield
            return
        # Paths differ at their ends, and the bar needs the room: show the end only.
        with counting_bar(f"{what} {os.path.basename(self.name.rstrip(os.sep)) or self.name}", "rows") as report:
            self.report = report
            yield


def _joined(pieces: list[Piece]) -> Bundle:
    import pyarrow as pa

    batch = pieces[0].batch if len(pieces) == 1 else _concatenated([piece.batch for piece in pieces])
    starts = np.cumsum([0] + [piece.batch.num_rows for piece in pieces[:-1]]).tolist()
    assert isinstance(batch, pa.RecordBatch)
    return Bundle(batch, tuple((s, p.origin, p.first_row) for s, p in zip(starts, pieces, strict=True)))


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of several that go together; a column that is missing from some of them is null there."""
    import pyarrow as pa

    arrays = []
    for i in range(batches[0].num_columns):
        columns = [batch.column(i) for batch in batches]
        kind = next((column.type for column in columns if not pa.types.is_null(column.type)), columns[0].type)
        arrays.append(pa.concat_arrays([column if column.type == kind else column.cast(kind) for column in columns]))
    return pa.RecordBatch.from_arrays(arrays, names=batches[0].schema.names)


def _common_types(first: list[pa.DataType], second: list[pa.DataType]) -> list[pa.DataType] | None:
    """The types of the columns of two batches that go together, or ``None`` if they do not.

    Only equal types go together, and a column without values with any: what a value means, and which labels are the
    same, must not depend on the rows that happen to be read beside it.
    """
    import pyarrow as pa

    common = []
    for a, b in zip(first, second, strict=True):
        if a != b and not pa.types.is_null(a) and not pa.types.is_null(b):
            return None
        common.append(b if pa.types.is_null(a) else a)
    return common


@dataclass(frozen=True)
class LogFile:
    """One file of a log: its path, its kind, and the columns its folders name (``.../arm=3/part.parquet``)."""

    path: str
    kind: str
    partition: tuple[tuple[str, Any], ...] = ()
    groups: tuple[int, ...] | None = None
    """the row groups to read, all if ``None``; only Parquet has them"""
    first_row: int = 0
    """the number of the first row to read"""


@dataclass(frozen=True)
class Wanted:
    """The columns asked for."""

    columns: tuple[str, ...]
    labels: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def present(self, available: Sequence[str], origin: str) -> list[str]:
        """The wanted columns that are there; those that must be are checked."""
        names = set(available)
        here = [name for name in self.columns if name in names or name not in self.optional]
        check_columns(available, here, origin)
        return here

    def to_read(self, available: Sequence[str], constants: Mapping[str, Any], origin: str) -> list[str]:
        """The wanted columns to read from a file that has ``available``; ``constants`` are named by its folders."""
        here = self.present([*available, *(name for name in constants if name not in available)], origin)
        return [name for name in here if name not in constants]

    def completed(self, table: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
        """One batch with exactly the wanted columns, null where an optional one is missing."""
        import pyarrow as pa

        n = table.num_rows
        names = set(table.schema.names)
        arrays = []
        for name in self.columns:
            column = table.column(name) if name in names else pa.nulls(n)
            if isinstance(column, pa.ChunkedArray):
                column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
                if isinstance(column, pa.ChunkedArray):
                    column = pa.concat_arrays(column.chunks)
            arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, names=list(self.columns))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text, in any of Arrow's forms."""
    import pyarrow as pa

    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_columns(available: Sequence[str], wanted: Sequence[str], origin: str) -> None:
    """Every wanted column is there exactly once, or an error that says what is there instead."""
    missing = [name for name in wanted if name not in available]
    if missing:
        why = did_you_mean(missing[0], available)
        if not why and any(_is_number(name) for name in available):
            why = " Its first line seems to hold values: a file needs the names of its columns there."
        raise SchemaError(f"{origin} has no column {show_labels(missing)}; it has {show_labels(available, 12)}.{why}")
    repeated = sorted({name for name in wanted if list(available).count(name) > 1})
    if repeated:
        raise SchemaError(
            f"{origin} has several columns called {show_labels(repeated)}: it is not clear which one is meant. "
            "Rename or drop all but one."
        )
