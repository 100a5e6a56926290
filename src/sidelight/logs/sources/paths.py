"""Sources that are files: Parquet, CSV (also compressed) and Arrow IPC; one, many, or a partitioned folder."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sidelight.errors import SourceError
from sidelight.labels import typed_labels
from sidelight.logs.sources.base import LogFile, Piece, Source, Wanted, is_text
from sidelight.logs.sources.csv import csv_columns, csv_tables

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["file_columns", "find_files", "kind_of", "open_files", "open_paths", "row_groups"]

_KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".parq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".arrows": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
}
_COMPRESSED = (".gz", ".gzip", ".zst", ".zstd", ".bz2", ".lz4")
# A row group up to this size is read whole, by several threads; a larger one is streamed.
_WHOLE_GROUP = 96 << 20
_ROWS = 131_072


def open_paths(source: Any, wanted: Wanted) -> Source:
    """The files of a path, list or glob as one source."""
    files = find_files(source)
    name = files[0].path if len(files) == 1 else f"{len(files)} files"
    if len(files) > 1 and isinstance(source, str | os.PathLike):
        name = os.fspath(source)
    return open_files(files, wanted, name)


def open_files(files: list[LogFile], wanted: Wanted, name: str) -> Source:
    """Files as one source, one after the other."""
    kinds = {file.kind for file in files}
    if len(kinds) > 1 and "csv" in kinds:
        raise SourceError(
            f"the log ({name}) mixes CSV with {', '.join(sorted(kinds - {'csv'}))}: in CSV every label is text, "
            "elsewhere it has a type. Summarize them apart with declared arms and add the summaries."
        )
    progress = _Bytes()

    def pieces() -> Iterator[Piece]:
        types = _Types(wanted)
        progress.total = sum(os.path.getsize(file.path) for file in files)
        progress.done = 0
        for file in files:
            yield from _file_pieces(file, wanted, types, progress)
            progress.done += os.path.getsize(file.path)
            progress.current = 0

    rows = sum(_parquet_rows(file) for file in files) if kinds == {"parquet"} else None
    fraction = None if rows is not None else progress.fraction
    return Source(name, pieces, wanted.columns, rows, kinds == {"csv"}, True, fraction)


class _Bytes:
    """Progress of reading, in bytes of the files."""

    def __init__(self) -> None:
        self.total = self.done = self.current = 0

    def fraction(self) -> float:
        return min(1.0, (self.done + self.current) / self.total) if self.total else 0.0


def find_files(source: Any) -> list[LogFile]:
    """The files of a path, list, glob or folder, in a fixed order.

    Raises:
        SourceError: there are none, or one is of no kind Sidelight reads.
    """
    if isinstance(source, str | os.PathLike):
        return _expand(os.path.expanduser(os.fspath(source)))
    paths = [os.path.expanduser(os.fspath(item)) for item in source]
    # a set has another order in each process
    return [
        file for path in (sorted(paths) if isinstance(source, set | frozenset) else paths) for file in _expand(path)
    ]


def _expand(path: str) -> list[LogFile]:
    if os.path.isdir(path):
        return _folder(path)
    if os.path.exists(path):
        return [LogFile(path, kind_of(path))]
    if glob.has_magic(path):
        found = sorted(glob.glob(path, recursive=True))
        if not found:
            raise SourceError(f"no file matches {path!r}.")
        return [file for item in found for file in _expand(item)]
    parent = os.path.dirname(path) or "."
    near = sorted(os.listdir(parent))[:5] if os.path.isdir(parent) else []
    raise SourceError(
        f"there is no file or folder {path!r}."
        + (f" Its folder holds {', '.join(near)}." if near else f" The folder {parent!r} does not exist either.")
    )


def file_columns(file: LogFile) -> list[str]:
    """The names of a file's columns, those that its folders name included."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if file.kind == "parquet":
            names = list(pq.read_schema(file.path).names)
        elif file.kind == "arrow":
            with pa.memory_map(file.path) as stream:
                opening = pa.ipc.open_file if stream.read(6) == b"ARROW1" else pa.ipc.open_stream
                stream.seek(0)
                names = list(opening(stream).schema.names)
        else:
            names = csv_columns(file.path)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(_unreadable(file, 0, error)) from error
    return [*names, *(name for name, _ in file.partition if name not in names)]


def _folder(path: str) -> list[LogFile]:
    found: list[tuple[str, list[tuple[str, str]]]] = []
    for folder, subfolders, names in os.walk(path):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith((".", "_")))
        keys = [part.partition("=")[::2] for part in Path(folder).relative_to(path).parts if "=" in part]
        for name in sorted(names):
            if not name.startswith((".", "_")) and _known_suffix(name) is not None:
                found.append((os.path.join(folder, name), [(key, unquote(value)) for key, value in keys]))
    if not found:
        raise SourceError(f"the folder {path!r} holds no Parquet, CSV or Arrow files.")
    typed = _partition_values([dict(keys) for _, keys in found])
    return [LogFile(name, kind_of(name), tuple(values.items())) for (name, _), values in zip(found, typed, strict=True)]


def _partition_values(rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """The values that folders name, with the type that fits all of them."""
    names = sorted({name for row in rows for name in row})
    typed: list[dict[str, Any]] = [{} for _ in rows]
    for name in names:
        where = [i for i, row in enumerate(rows) if row.get(name, _NO_VALUE) != _NO_VALUE]
        for i, value in zip(where, typed_labels([rows[i][name] for i in where]), strict=True):
            typed[i][name] = value
        for i in set(range(len(rows))) - set(where):
            typed[i][name] = None
    return typed


_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def _known_suffix(name: str) -> str | None:
    lowered = name.lower()
    for suffix in _COMPRESSED:
        lowered = lowered.removesuffix(suffix)
    return _KINDS.get(os.path.splitext(lowered)[1])


def kind_of(path: str) -> str:
    """What a file is (``"parquet"``, ``"arrow"`` or ``"csv"``), by its first bytes, else by its name.

    Raises:
        SourceError: it cannot be read, is empty, or of no kind that Sidelight reads.
    """
    try:
        with open(path, "rb") as stream:
            start = stream.read(8)
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror or error}.") from error
    if not start:
        raise SourceError(f"{path} is empty: a log needs at least a header and a row.")
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"ARROW1") or start[:4] == b"\xff\xff\xff\xff":
        return "arrow"
    kind = _known_suffix(path)
    if kind in ("parquet", "arrow"):
        raise SourceError(
            f"{path} is named like {kind.title()} but does not start like it (first bytes {start!r}): it is damaged "
            "or of another kind."
        )
    if kind == "csv":
        return kind
    if start.startswith(b"PK") or b"\x00" in start:
        hint = (
            "Save a spreadsheet as CSV, and convert anything else first"
            if start.startswith(b"PK")
            else "Convert it first"
        )
        raise SourceError(f"{path} is neither Parquet, CSV nor Arrow (first bytes {start!r}). {hint}.")
    return "csv"


def _file_pieces(file: LogFile, wanted: Wanted, types: _Types, progress: _Bytes) -> Iterator[Piece]:
    import pyarrow as pa

    constants = {name: value for name, value in file.partition if name in wanted.columns}
    row = file.first_row
    try:
        for table in _READERS[file.kind](file, wanted, constants, types, progress):
            yield Piece(_with_constants(table, constants, wanted), file.path, row)
            row += table.num_rows
    except (pa.ArrowException, OSError, EOFError) as error:
        raise SourceError(_unreadable(file, row, error)) from error


def _unreadable(file: LogFile, row: int, error: Exception) -> str:
    text = str(error).split("\n")[0].rstrip(".")
    after = f" after {row:,} rows" if row else ""
    hint = "It is probably cut off or damaged: copy or write it again"
    if "magic bytes" in text or "footer" in text.lower():
        hint = "Its end is missing, so it was cut off while it was written or copied: copy or write it again"
    elif "invalid UTF8" in text or "UTF-8" in text:
        hint = "Save it as UTF-8"
    elif "codec" in text.lower() or "not built" in text:
        hint = "This build of PyArrow lacks that codec: write it with another compression"
    elif "Expected" in text and "columns" in text:
        hint = "A cell that holds the delimiter or a quote needs quotes around it"
    elif file.kind == "csv":
        hint = "Look at that place in the file"
    return f"cannot read {file.path}{after}: {text}. {hint}."


def _with_constants(table: pa.Table | pa.RecordBatch, constants: dict[str, Any], wanted: Wanted) -> pa.RecordBatch:
    import pyarrow as pa

    if constants:
        columns = {name: table.column(name) for name in table.schema.names}
        for name, value in constants.items():
            columns[name] = (
                pa.repeat(pa.scalar(value), table.num_rows) if value is not None else pa.nulls(table.num_rows)
            )
        table = pa.table(columns)
    return wanted.completed(table)


def _group_rows(file: LogFile) -> list[int]:
    """The rows of each row group of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(file.path)
        return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    except (pa.ArrowException, OSError) as error:
        raise SourceError(_unreadable(file, 0, error)) from error


def _parquet_rows(file: LogFile) -> int:
    rows = _group_rows(file)
    return sum(rows) if file.groups is None else sum(rows[group] for group in file.groups)


def row_groups(file: LogFile, n_rows: int) -> list[tuple[LogFile, int | None]]:
    """A file cut into pieces of about ``n_rows`` rows at its row groups, with their rows; other kinds stay whole."""
    if file.kind != "parquet":
        return [(file, None)]
    pieces: list[tuple[LogFile, int | None]] = []
    groups: list[int] = []
    first = n = 0
    for group, rows in enumerate(_group_rows(file)):
        if groups and n + rows > n_rows:
            pieces.append((replace(file, groups=tuple(groups), first_row=first), n))
            groups, first, n = [], first + n, 0
        groups.append(group)
        n += rows
    if n:
        pieces.append((replace(file, groups=tuple(groups), first_row=first), n))
    return pieces


def _parquet_tables(
    file: LogFile, wanted: Wanted, constants: dict[str, Any], types: _Types, progress: _Bytes
) -> Iterator[pa.Table]:
    import pyarrow.parquet as pq

    # Page checksums are verified if the file has them.
    with pq.ParquetFile(file.path, page_checksum_verification=True) as opened:
        schema = opened.schema_arrow
        here = wanted.to_read(schema.names, constants, file.path)
        types.check(file, schema, here)
        metadata = opened.metadata
        leaves = [metadata.schema.column(i).path.split(".")[0] for i in range(metadata.num_columns)]
        wanted_leaves = [i for i, leaf in enumerate(leaves) if leaf in here]
        for group in range(opened.num_row_groups) if file.groups is None else file.groups:
            row_group = metadata.row_group(group)
            size = sum(row_group.column(i).total_uncompressed_size for i in wanted_leaves)
            if max(size, 8 * len(here) * row_group.num_rows) <= _WHOLE_GROUP:
                yield opened.read_row_group(group, columns=here)
            else:
                yield from opened.iter_batches(_ROWS, row_groups=[group], columns=here)


def _arrow_tables(
    file: LogFile, wanted: Wanted, constants: dict[str, Any], types: _Types, progress: _Bytes
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    with pa.memory_map(file.path) as stream:
        is_file = stream.read(6) == b"ARROW1"
        stream.seek(0)
        opening = pa.ipc.open_file if is_file else pa.ipc.open_stream
        schema = opening(stream).schema
        here = wanted.to_read(schema.names, constants, file.path)
        types.check(file, schema, here)
        stream.seek(0)
        options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in here])
        reader = opening(stream, options=options)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else iter(reader)
        for batch in batches:
            progress.current = stream.tell()
            yield batch


class _Types:
    """The column types of the files read so far; a column must not be a number in one file and text in another."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._seen: dict[str, tuple[str, Any, str]] = {}

    def check(self, file: LogFile, schema: pa.Schema, names: Sequence[str]) -> None:
        """Compare a file's types with those of the files before it."""
        for name in names:
            kind = schema.field(name).type
            family = _family(kind)
            if family == "nothing":
                continue
            known_family, known_kind, known_path = self._seen.setdefault(name, (family, kind, file.path))
            if known_family != family:
                consequence = (
                    "the same label would count as two"
                    if name in self._wanted.labels
                    else "it cannot be both a number and something else"
                )
                raise SourceError(
                    f"column {name!r} changes its type between files: {known_kind} in {known_path}, {kind} in "
                    f"{file.path}; {consequence}. Write both with one type."
                )


def _family(kind: pa.DataType) -> str:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _family(kind.value_type)
    if pa.types.is_null(kind):
        return "nothing"
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
    ):
        return "number"
    if is_text(kind):
        return "text"
    if pa.types.is_temporal(kind):
        return "time"
    return str(kind)


_READERS: dict[str, Any] = {"parquet": _parquet_tables, "arrow": _arrow_tables, "csv": csv_tables}
