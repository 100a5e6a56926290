"""Sources that are objects in memory, or that hand out batches: frames, tables, readers, relations, arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sidelight.errors import SchemaError, SourceError
from sidelight.logs.sources.base import Piece, Source, Wanted, check_columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["matrix_of", "open_frame"]

# Rows that a streaming query hands out at a time.
_ROWS = 131_072


def open_frame(source: Any, wanted: Wanted) -> Source | None:
    """The source, or ``None`` if ``source`` is not an object of one of these kinds."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    module = type(source).__module__.split(".")[0]
    if isinstance(source, pa.Table):
        return _table(source, wanted, "the Arrow table")
    if isinstance(source, pa.RecordBatch):
        return _table(pa.Table.from_batches([source]), wanted, "the Arrow batch")
    if isinstance(source, pa.RecordBatchReader):
        return _reader(source, wanted, "the Arrow reader")
    if isinstance(source, ds.Dataset):
        return _dataset(source, wanted)
    if isinstance(source, ds.Scanner):
        return _reader(source.to_reader(), wanted, "the Arrow scanner")
    if module == "polars":
        return _polars(source, wanted)
    if module == "pandas":
        return _pandas(source, wanted)
    if module in ("duckdb", "_duckdb"):
        return _duckdb(source, wanted)
    if isinstance(source, Mapping):
        batch = _mapping_batch(source, wanted, "the mapping")
        return _one(batch, wanted, "the mapping")
    if isinstance(source, np.ndarray):
        return _array(source, wanted)
    if isinstance(source, tuple) and len(source) == 3 and np.ndim(source[0]) == 2:
        batch = _triple(source, wanted)
        return _one(batch, wanted, "the arrays")
    if hasattr(source, "__arrow_c_stream__"):
        return _reader(pa.RecordBatchReader.from_stream(source), wanted, f"the {type(source).__name__}")
    if isinstance(source, Iterable) and not isinstance(source, bytes):
        return _iterator(source, wanted)
    return None


def _one(batch: pa.RecordBatch, wanted: Wanted, name: str) -> Source:
    return Source(name, lambda: iter([Piece(batch, name, 0)]), wanted.columns, batch.num_rows)


def _table(table: pa.Table, wanted: Wanted, name: str) -> Source:
    here = wanted.present(table.column_names, name)

    def pieces() -> Iterator[Piece]:
        row = 0
        for batch in table.select(here).to_batches(max_chunksize=_ROWS):
            yield Piece(wanted.completed(batch), name, row)
            row += batch.num_rows

    return Source(name, pieces, wanted.columns, table.num_rows)


def _stream(batches: Iterable[Any], wanted: Wanted, name: str) -> Iterator[Piece]:
    import pyarrow as pa

    row = 0
    try:
        for batch in batches:
            yield Piece(wanted.completed(batch), name, row)
            row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{name} stopped after {row:,} rows: {error}") from error


def _reader(reader: pa.RecordBatchReader, wanted: Wanted, name: str) -> Source:
    wanted.present(reader.schema.names, name)
    return Source(name, lambda: _stream(reader, wanted, name), wanted.columns, rereadable=False)


def _dataset(dataset: Any, wanted: Wanted) -> Source:
    name = "the Arrow dataset"
    here = wanted.present(dataset.schema.names, name)

    def pieces() -> Iterator[Piece]:
        # Two fragments read ahead keep the reader busy without holding much.
        batches = dataset.to_batches(columns=here, batch_size=_ROWS, batch_readahead=4, fragment_readahead=2)
        return _stream(batches, wanted, name)

    try:
        rows = dataset.count_rows()
    except (OSError, ValueError):
        rows = None
    return Source(name, pieces, wanted.columns, rows)


def _polars(frame: Any, wanted: Wanted) -> Source | None:
    import polars as pl

    if isinstance(frame, pl.DataFrame):
        name = "the polars frame"
        here = wanted.present(frame.columns, name)
        return _table(frame.select(here).to_arrow(), wanted, name)
    if not isinstance(frame, pl.LazyFrame):
        return None
    name = "the polars lazy frame"
    here = wanted.present(frame.collect_schema().names(), name)

    def pieces() -> Iterator[Piece]:
        # The query runs in streaming mode and hands out chunks: the frame is never collected.
        chunks = frame.select(here).collect_batches(chunk_size=_ROWS, maintain_order=True)
        try:
            yield from _stream((chunk.to_arrow() for chunk in chunks), wanted, name)
        except pl.exceptions.PolarsError as error:
            raise SourceError(f"{name} could not be computed: {error}") from error

    return Source(name, pieces, wanted.columns)


def _pandas(frame: Any, wanted: Wanted) -> Source | None:
    import pyarrow as pa

    if not hasattr(frame, "columns"):
        return None
    name = "the pandas frame"
    names = [str(column) for column in frame.columns]
    here = wanted.present(names, name)
    frame = frame.iloc[:, [names.index(column) for column in here]]
    text = {i for i in range(len(here)) if _has_text_among_others(frame.iloc[:, i])}

    def pieces() -> Iterator[Piece]:
        for first in range(0, len(frame), _ROWS):
            part = frame.iloc[first : first + _ROWS]
            arrays = {column: _pandas_column(part.iloc[:, i], column, i in text) for i, column in enumerate(here)}
            yield Piece(wanted.completed(pa.table(arrays)), name, first)

    return Source(name, pieces, wanted.columns, len(frame))


def _has_text_among_others(values: Any) -> bool:
    """Whether a column of objects mixes text with other types; judged on the whole column, not on a chunk."""
    import pandas as pd

    kind = pd.api.types.infer_dtype(values, skipna=True) if values.dtype == object else ""
    return kind in ("mixed", "mixed-integer") and any(isinstance(value, str) for value in values)


def _pandas_column(values: Any, name: str, text: bool) -> pa.Array:
    import pyarrow as pa

    if text:
        return _as_text(values)
    try:
        return pa.Array.from_pandas(values)
    except pa.ArrowNotImplementedError as error:
        raise SourceError(
            f"column {name!r} of the pandas frame holds {values.dtype}, which Arrow cannot hold: {error}. Turn it "
            "into numbers, text or dates first."
        ) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return _as_text(values)


def _as_text(values: Any) -> pa.Array:
    """A column that mixes numbers and text, all as text, so that every cell can be checked by itself."""
    import pyarrow as pa

    texts = [None if gone else str(v) for v, gone in zip(values.tolist(), values.isna().tolist(), strict=True)]
    return pa.array(texts, pa.string())


def _duckdb(relation: Any, wanted: Wanted) -> Source | None:
    read = getattr(relation, "to_arrow_reader", None) or getattr(relation, "fetch_record_batch", None)
    if read is None or not hasattr(relation, "columns"):
        return None
    name = "the DuckDB relation"
    here = wanted.present(list(relation.columns), name)
    quoted = ", ".join('"' + column.replace('"', '""') + '"' for column in here)

    def pieces() -> Iterator[Piece]:
        return _stream(getattr(relation.project(quoted), read.__name__)(_ROWS), wanted, name)

    return Source(name, pieces, wanted.columns)


def _array(array: np.ndarray, wanted: Wanted) -> Source:
    if array.dtype.names is None:
        raise SourceError(
            f"an array of shape {array.shape} does not say which column is what. Give a mapping from column name to "
            "values, a structured array, or a triple (X, arms, rewards)."
        )
    batch = _mapping_batch({name: array[name] for name in array.dtype.names}, wanted, "the array")
    return _one(batch, wanted, "the array")


def _triple(source: tuple[Any, Any, Any], wanted: Wanted) -> pa.RecordBatch:
    """Arrays ``X`` (n, recorded features), ``arms`` (n,), ``rewards`` (n,), in the order of the schema's columns."""
    *features, arm, reward = wanted.columns
    X = matrix_of(source[0], features, "the frame X")
    if len(wanted.columns) != X.shape[1] + 2:
        n_extra = len(wanted.columns) - 2
        raise SchemaError(
            f"X has {X.shape[1]} columns, but the schema records {n_extra} features ({', '.join(wanted.columns[:-2])})."
        )
    columns = {name: np.ascontiguousarray(X[:, j]) for j, name in enumerate(features)}
    return _mapping_batch({**columns, arm: source[1], reward: source[2]}, wanted, "the arrays")


def matrix_of(X: Any, names: Sequence[str], origin: str) -> np.ndarray:
    """An array as it is; the columns ``names`` of a frame or table, which are read by name whatever their order.

    Raises:
        SchemaError: the frame lacks one of them.
    """
    own = getattr(X, "column_names", None) or getattr(X, "columns", None)  # Arrow, then pandas and polars
    if own is None:
        return np.asarray(X)
    labels = [str(name) for name in own]
    try:
        check_columns(labels, names, origin)
    except SchemaError as error:
        raise SchemaError(f"{error} A frame is read by name; to take its columns in order give an array.") from error
    return (
        np.column_stack([np.asarray(X[own[labels.index(name)]]) for name in names]) if names else np.empty((len(X), 0))
    )


def _iterator(source: Iterable[Any], wanted: Wanted) -> Source:
    name = f"the {type(source).__name__}"

    def pieces() -> Iterator[Piece]:
        row = 0
        for number, item in enumerate(source):
            part = None if isinstance(item, str | bytes | int | float) else open_frame(item, wanted)
            if part is None or isinstance(item, Iterator):
                raise SourceError(
                    f"{name} gave a {type(item).__name__} as its item {number}; each item must be a table or a batch."
                )
            for piece in part.pieces():
                yield Piece(piece.batch, name, row)
                row += piece.batch.num_rows

    return Source(name, pieces, wanted.columns, rereadable=isinstance(source, list | tuple))


def _mapping_batch(arrays: Mapping[str, Any], wanted: Wanted, origin: str) -> pa.RecordBatch:
    """A mapping from column to values as a batch."""
    import pyarrow as pa

    here = wanted.present([str(name) for name in arrays], origin)
    keys = {str(key): key for key in arrays}
    table: dict[str, Any] = {}
    for name in here:
        values = arrays[keys[name]]
        if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
            raise SourceError(
                f"column {name!r} of {origin} is the single value {values!r:.60}: a mapping gives each column all its "
                "values. If each row is a mapping of its own, make one table of them, pyarrow.Table.from_pylist(rows)."
            )
        if hasattr(values, "__array__") and np.ndim(values) != 1:
            raise SchemaError(f"column {name!r} of {origin} has shape {np.shape(values)}: a column has one dimension.")
        if getattr(getattr(values, "dtype", None), "kind", "") == "M" and np.datetime_data(values.dtype)[0] in "WhmMY":
            values = values.astype("datetime64[us]")  # Arrow knows days, and seconds and less
        try:
            table[name] = pa.array(values, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise SourceError(
                f"column {name!r} of {origin} holds values that do not fit together: {error}. Give it one type."
            ) from error
    lengths = {name: len(values) for name, values in table.items()}
    if len(set(lengths.values())) > 1:
        raise SourceError(f"the columns of {origin} have different lengths: {lengths}.")
    return wanted.completed(pa.table(table))
