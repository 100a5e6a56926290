"""A first look at a user's file: its format, its first rows, and a profile of each column; and a copy that can be read.

Nothing is decided here; :mod:`sidelight.cli.proposing` says what each column might be for.
"""

from __future__ import annotations

import csv
import difflib
import glob
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from sidelight.cli.profiles import NUMBER, NotWhole, Profile, profile_of, repaired
from sidelight.errors import SourceError
from sidelight.logs.sources.csv import MISSING_TEXTS, NO_NUMBER, check_start, open_bytes, trimmed
from sidelight.logs.sources.paths import kind_of
from sidelight.logs.sources.writing import write_tables

__all__ = ["Copied", "Look", "headless", "look_at", "mistyped", "write_prepared"]

ROWS = 50_000
"""Number of rows that are examined."""
#: format as shown → as PyArrow's datasets name it
_FORMATS = {"Parquet": "parquet", "Arrow": "ipc"}


@dataclass(frozen=True)
class Look:
    """A file (or several of one kind), a profile of each column with a name, and how many columns have none."""

    files: tuple[str, ...]
    format: str
    delimiter: str
    encoding: str
    rows: int
    whole: bool
    profiles: tuple[Profile, ...]
    unnamed: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in the file's order."""
        return tuple(profile.name for profile in self.profiles)

    @property
    def repairs(self) -> tuple[Profile, ...]:
        """The columns that Sidelight cannot read as they are written."""
        return tuple(profile for profile in self.profiles if profile.repair)


def mistyped(name: str, columns: Sequence[str]) -> str | None:
    """The column of which ``name`` seems to be a misspelling, or None; ``dose_1`` is not one of ``dose_2``."""

    def without_digits(text: str) -> str:
        return re.sub(r"\d+", "#", text)

    close = difflib.get_close_matches(name, columns, 1, cutoff=0.8)
    return close[0] if close and without_digits(close[0]) != without_digits(name) else None


def look_at(sources: Sequence[str]) -> Look:
    """Look at the first rows of a CSV, Parquet or Arrow file; of several files, at the first that has rows.

    Raises:
        SourceError: there is no such file, it cannot be read, or it has no rows.
    """
    files = [path for source in sources for path in _found(source)]
    for first in files:
        form, delimiter, encoding, table, rows = _start(first)
        if rows:
            break
    else:
        raise SourceError(f"{files[0]} has no rows: a log needs a header and at least a few rows.")
    named = [name for name in table.column_names if name.strip()]
    profiles = [profile_of(name, table[name]) for name in named]
    signs = {profile.decimal for profile in profiles} - {""}
    decimal = "." if "." in signs else "," if signs else ""
    # no column tells: where semicolons separate cells, commas do not separate thousands
    likely = decimal or ("," if delimiter == ";" else "")
    profiles = [
        profile_of(found.name, table[found.name], likely if found.repair else decimal)
        if found.kind == "number" and not found.decimal
        else found
        for found in profiles
    ]
    whole, unnamed = rows <= ROWS and len(files) == 1, len(table.column_names) - len(named)
    return Look(tuple(files), form, delimiter, encoding, table.num_rows, whole, tuple(profiles), unnamed)


def _start(path: str) -> tuple[str, str, str, pa.Table, int]:
    """Format, delimiter and encoding of a file, its first ``ROWS`` rows, and how many rows were counted."""
    form = {"parquet": "Parquet", "arrow": "Arrow", "csv": "CSV"}[kind_of(path)]
    if form != "CSV":
        return form, "", "", *_head(path, form)
    encoding = _encoding(path)
    delimiter = _delimiter(path, encoding)
    batches, rows = [], 0
    for batch in _csv_batches(path, delimiter, encoding):
        batches.append(batch)
        rows += batch.num_rows
        if rows >= ROWS:
            break
    table = pa.Table.from_batches(batches).slice(0, ROWS) if batches else pa.table({})
    return form, delimiter, encoding, table, rows


def headless(names: Sequence[str]) -> str:
    """A question to add to a message about columns if their names look like a row of values; else nothing."""
    numbers = [name for name in names if NUMBER.fullmatch(name)]
    if 2 * len(numbers) <= len(names) and not any("." in name for name in numbers):
        return ""
    return (
        f" Has the file no header? Its first line is taken for the columns' names, and {numbers[0]!r} is one of them."
    )


def _found(source: str) -> list[str]:
    if os.path.isdir(source):
        inside = [entry for entry in sorted(Path(source).rglob("*")) if entry.is_file() and entry.name[0] not in "._"]
        found = [str(entry) for entry in inside]
    else:
        found = [source] if os.path.exists(source) else sorted(glob.glob(source))
    if not found and os.path.isdir(source):
        raise SourceError(f"the folder {source} has no files in it.")
    if not found:
        raise SourceError(
            f"there is no file {source}. Check the path; a folder or a pattern such as 'log/*.csv' works too."
        )
    return found


def _head(path: str, form: str) -> tuple[pa.Table, int]:
    import pyarrow.dataset as ds  # loads pandas where that is installed, which takes half a second

    try:
        data = ds.dataset(path, format=_FORMATS[form])
        return data.head(ROWS), data.count_rows()
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(f"cannot read {path}: {error}") from error


def _encoding(path: str) -> str:
    """The first of UTF-8, Windows-1252 and Latin-1 (which reads any bytes) that reads the whole file."""
    try:
        with open_bytes(path) as raw:
            check_start(path, raw.read(1 << 10))
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror or error}.") from error
    for encoding in ("utf8", "cp1252"):
        try:
            with _text(path, encoding) as stream:
                while stream.read(1 << 22):
                    pass
        except UnicodeDecodeError:
            continue
        except OSError as error:
            raise SourceError(f"cannot read {path}: {error.strerror or error}.") from error
        return encoding
    return "latin1"


def _text(path: str, encoding: str) -> io.TextIOWrapper:
    """A CSV file as text, decompressed, without the mark that some programs put before UTF-8."""
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig" if encoding == "utf8" else encoding, newline="")


def _delimiter(path: str, encoding: str) -> str:
    """The delimiter that cuts most of the first rows into as many columns as the header, the most columns first."""
    with _text(path, encoding) as stream:
        start = [line for _, line in zip(range(200), stream, strict=False)]
    found: dict[str, tuple[float, int]] = {}
    for delimiter in ",;\t|":
        widths = [len(row) for row in csv.reader(start, delimiter=delimiter) if row]
        # the last row may be cut in the middle of a quoted text
        inner = widths[1:-1] or widths[1:] or widths
        agreeing = sum(width == widths[0] for width in inner) / len(inner) if inner else 0.0
        found[delimiter] = (agreeing >= 0.8, widths[0]) if widths and widths[0] > 1 else (False, 0)
    best = max(found, key=lambda delimiter: found[delimiter])
    return best if found[best][1] else ","


def _csv_batches(path: str, delimiter: str, encoding: str) -> Iterator[pa.RecordBatch]:
    """Every column as text, in batches; missing values are null."""
    with _text(path, encoding) as stream:
        header = next(csv.reader(stream, delimiter=delimiter), [])
    names = [name.strip() for name in header]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise SourceError(f"{path} has the column {twice[0]!r} more than once; rename one of them.{headless(names)}")
    try:
        with (
            open_bytes(path) as stream,
            pacsv.open_csv(
                stream,
                read_options=pacsv.ReadOptions(encoding=encoding, block_size=8 << 20),
                parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                convert_options=pacsv.ConvertOptions(
                    column_types={name: pa.string() for name in header},
                    null_values=MISSING_TEXTS,
                    strings_can_be_null=True,
                ),
            ) as reader,
        ):
            for batch in reader:
                yield pa.RecordBatch.from_arrays([trimmed(column) for column in batch.columns], names=names)
    except pa.ArrowInvalid as error:
        raise SourceError(f"cannot read {path} as a table: {error}") from error


# ------------------------------------------------------------------------------------------- a copy that reads


@dataclass(frozen=True)
class Copied:
    """What was written: the rows, and of each column how many values fit nowhere, with the first of them."""

    rows: int
    lost: Mapping[str, tuple[int, str]]


def write_prepared(look: Look, path: Path) -> Copied:
    """Write the rows as Parquet with every repair made, whole or not at all; values that fit nowhere become null."""
    kinds = {profile.name: profile for profile in look.profiles}
    lost: dict[str, tuple[int, str]] = {}

    def tables() -> Iterator[pa.Table]:
        lost.clear()
        for file in look.files:
            for batch in _batches(look, file):
                columns = {}
                for name in (name for name in batch.schema.names if name in kinds):
                    columns[name] = repaired(batch.column(name), kinds[name])
                    _count_lost(name, batch.column(name), columns[name], lost)
                yield pa.table(columns)

    while True:
        try:
            return Copied(write_tables(path, "parquet", tables()) or 0, lost)
        except NotWhole as found:
            # rows after those that were looked at have fractions: begin again
            name = str(found)
            kinds[name] = replace(kinds[name], kind="number")
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"cannot write {path}: {error}") from error


def _count_lost(name: str, before: pa.Array, after: pa.Array, lost: dict[str, tuple[int, str]]) -> None:
    """Add the values that became null, but for those that stand for a missing one."""
    if after.null_count == before.null_count:
        return
    text = before.cast(pa.string())
    gone = text.filter(pc.and_(pc.is_null(after), pc.and_(pc.is_valid(text), pc.not_equal(text, NO_NUMBER))))
    if len(gone):
        count, first = lost.get(name, (0, gone[0].as_py()))
        lost[name] = (count + len(gone), first)


def _batches(look: Look, file: str) -> Iterator[pa.RecordBatch]:
    """All rows of a file, of the kind of the one that was looked at."""
    if look.format == "CSV":
        return _csv_batches(file, look.delimiter, look.encoding)
    import pyarrow.dataset as ds

    batches: Iterator[pa.RecordBatch] = ds.dataset(file, format=_FORMATS[look.format]).to_batches()
    return batches
