"""CSV files: every cell is text, and one bad cell must not spoil a column."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from sidelight.errors import SourceError
from sidelight.logs.sources.base import LogFile, Wanted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "MISSING_TEXTS",
    "NO_NUMBER",
    "check_start",
    "csv_columns",
    "csv_header",
    "csv_tables",
    "open_bytes",
    "trimmed",
]

_BLOCK = 8 << 20
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\x04\x22\x4d\x18": "lz4"}
#: texts that stand for a missing value in a CSV file
MISSING_TEXTS = ["", "NA", "N/A", "NaN", "nan", "NULL", "null", "#N/A", "-nan", "-NaN", "<NA>"]
#: missing too in columns of numbers and dates; among labels it is a label, such as the arm of those who get nothing
NO_NUMBER = "None"


def csv_tables(
    file: LogFile, wanted: Wanted, constants: dict[str, Any], types: Any, progress: Any
) -> Iterator[pa.RecordBatch]:
    """The wanted columns of a CSV file: numbers as numbers where every cell is one, labels as text."""
    import pyarrow as pa

    header, delimiter = csv_header(file.path)
    names = [name.strip() for name in header]
    here = wanted.to_read(names, constants, file.path)
    labels = {*wanted.labels}
    # an empty selection would mean all columns; one is enough to count the rows
    raw = {name: header[names.index(name)] for name in here} or {names[0]: header[0]}
    number_types = {name: pa.string() if name in labels else pa.float64() for name in here}
    delivered = 0
    try:
        for batch in _read(file.path, raw, number_types, delimiter, progress):
            yield _trimmed(batch, labels)
            delivered += batch.num_rows
        return
    except pa.ArrowInvalid as error:
        if "conversion error" not in str(error):
            if "columns" in str(error) and "Row #" not in str(error):
                # with threads the error lacks the row number: read again with one thread, whose error names the row
                for _ in _read(file.path, raw, number_types, delimiter, progress, threads=False):
                    pass
            raise
    # A cell is not a number: read the rest as text and check it cell by cell later, so that the message can name the
    # row and the other rows can be used.
    skip = delivered
    text_types = dict.fromkeys(here, pa.string())
    for batch in _read(file.path, raw, text_types, delimiter, progress):
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        yield _without_none(_trimmed(batch.slice(skip), here), labels)
        skip = 0


def _trimmed(batch: pa.RecordBatch, columns: Collection[str]) -> pa.RecordBatch:
    """The batch with these columns, which are text, without blanks around their values."""
    import pyarrow as pa

    found = [
        trimmed(column) if name in columns else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(found, names=batch.schema.names)


def trimmed(column: pa.Array) -> pa.Array:
    """Text without blanks around it, null where what is left stands for a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.is_in(text, value_set=pa.array(MISSING_TEXTS, text.type)), None, text)


def _without_none(batch: pa.RecordBatch, labels: set[str]) -> pa.RecordBatch:
    """Columns of text that are to be numbers, null where they say None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [
        column if name in labels else pc.if_else(pc.equal(column, NO_NUMBER), None, column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _read(
    path: str, columns: dict[str, str], types: dict[str, Any], delimiter: str, progress: Any, threads: bool = True
) -> Iterator[pa.RecordBatch]:
    """Batches of these columns: name → name as the file has it, perhaps with blanks around it."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    with open(path, "rb") as raw:
        stream = _Counted(raw, progress)
        with pacsv.open_csv(
            open_bytes(path, stream),
            read_options=pacsv.ReadOptions(block_size=_BLOCK, use_threads=threads),
            parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(
                include_columns=list(columns.values()),
                column_types={columns[name]: kind for name, kind in types.items()},
                null_values=MISSING_TEXTS,
                strings_can_be_null=True,
            ),
        ) as reader:
            for batch in reader:
                yield pa.RecordBatch.from_arrays(batch.columns, names=list(columns))


class _Counted:
    """A file object that counts the bytes read from it."""

    def __init__(self, raw: Any, progress: Any) -> None:
        self._raw, self._progress = raw, progress
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        content: bytes = self._raw.read(size)
        self._progress.current = self._raw.tell()
        return content

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def _codec(path: str) -> str | None:
    with open(path, "rb") as stream:
        start = stream.read(4)
    return next((codec for magic, codec in _MAGIC.items() if start.startswith(magic)), None)


def open_bytes(path: str, stream: Any = None) -> pa.NativeFile:
    """The bytes of a file, decompressed; read from ``stream`` if one is given, else from the file."""
    import pyarrow as pa

    codec = _codec(path)
    opened = pa.OSFile(path) if stream is None else pa.PythonFile(stream, mode="r")
    return opened if codec is None else pa.CompressedInputStream(opened, codec)


#: an object, or an array of objects, arrays, texts or numbers; a column may be called [age]
_JSON = re.compile(rb'\s*(\{\s*["}]|\[\s*[\[{"\]\d-])')


def check_start(path: str, start: bytes) -> None:
    """Check that a file may be CSV.  start: its first bytes

    Raises:
        SourceError: it is UTF-16 text or JSON.
    """
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in start[:64]:
        raise SourceError(
            f"{path} is UTF-16 text, as some spreadsheets write it, or no text at all. Save it as UTF-8, or read it "
            "with pandas.read_csv(..., encoding='utf-16') and give the frame."
        )
    if _JSON.match(start.removeprefix(b"\xef\xbb\xbf")):
        raise SourceError(
            f"{path} is JSON, not a table of values between commas. Read it with pandas.read_json(...) (one object in "
            "each line: lines=True) and give the frame, or save it as Parquet or CSV."
        )


def csv_columns(path: str) -> list[str]:
    """The names of the columns of a CSV file, without blanks around them."""
    return [name.strip() for name in csv_header(path)[0]]


def csv_header(path: str) -> tuple[list[str], str]:
    """The column names as they are written, and the delimiter, from the first line.

    Raises:
        SourceError: the file is empty, or no UTF-8 text.
    """
    with open_bytes(path) as stream:
        start: bytes = stream.read(1 << 16)
    check_start(path, start)
    try:
        text = start.decode("utf-8-sig", errors="ignore" if len(start) == 1 << 16 else "strict")
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}). Save it as UTF-8."
        ) from error
    lines = text.splitlines()
    first = next((line for line in lines if line.strip()), "")
    if not first:
        raise SourceError(f"{os.fspath(path)} is empty: a log needs at least a header and a row.")
    delimiter = max(",\t;|", key=first.count)
    return next(csv.reader(lines[lines.index(first) :], delimiter=delimiter)), delimiter
