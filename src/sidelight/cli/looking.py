"""A first look at a user's file: what kind of values each column holds, from its first rows, read as text.

Nothing is decided here; :mod:`sidelight.cli.proposing` says what each column might be for.
"""

from __future__ import annotations

import csv
import datetime as dt
import difflib
import glob
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from sidelight.errors import SourceError
from sidelight.logs.sources.csv import MISSING_TEXTS, NO_NUMBER, check_start, open_bytes, trimmed
from sidelight.logs.sources.paths import kind_of
from sidelight.logs.sources.writing import write_tables

__all__ = ["Look", "Profile", "headless", "look_at", "mistyped", "write_prepared"]

ROWS = 50_000
"""Number of rows that are examined."""
MANY = 60
"""Distinct values that are kept; more are only counted."""
MOSTLY = 0.98
"""The share of values that must be numbers (or dates) for a column to be one; the rest cannot be used."""

Kind = Literal["number", "integer", "boolean", "date", "text", "empty", "other"]

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)?,\d+")
_WHOLE = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_MONEY = re.compile(r"^(?:[€$£¥]|EUR|USD|CHF|GBP)\s*|\s*(?:[€$£¥%]|EUR|USD|CHF|GBP)$")
_BOOLEAN = frozenset(["true", "false"])
_DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y")
_TIMES = ("", " %H:%M", " %H:%M:%S")


@dataclass(frozen=True)
class Profile:
    """What the first rows say about one column.

    Attributes:
        name: of the column.
        kind: of its values.
        rows, missing, distinct: counts; ``distinct`` leaves out what is missing.
        levels: the values as text, the most frequent first, if there are at most ``MANY``; labels: with their types.
        example: one value, as it is written.
        repair: what must be done to the column before Sidelight can read it: ``"comma"`` (decimal comma),
            ``"thousands"``, ``"money"`` (a currency or per cent sign), or a date's format; empty if nothing.
        sequence: whether the values count up by one.
        span: days between the first and the last date.
        timed: whether dates have a time of day.
    """

    name: str
    kind: Kind
    rows: int
    missing: int
    distinct: int
    levels: tuple[str, ...] = ()
    labels: tuple[Any, ...] = ()
    example: str = ""
    repair: str = ""
    sequence: bool = False
    span: float = 0.0
    timed: bool = False

    @property
    def missing_share(self) -> float:
        """The part of the rows without a value."""
        return self.missing / self.rows if self.rows else 1.0


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
    """Look at the first rows of a CSV, Parquet or Arrow file; of several files, at the first.

    Raises:
        SourceError: there is no such file, it cannot be read, or it has no rows.
    """
    files = [path for source in sources for path in _found(source)]
    first = files[0]
    form, delimiter, encoding = {"parquet": "Parquet", "arrow": "Arrow", "csv": "CSV"}[kind_of(first)], "", ""
    if form != "CSV":
        table, rows = _head(first, form)
    else:
        encoding = _encoding(first)
        delimiter = _delimiter(first, encoding)
        batches, rows = [], 0
        for batch in _csv_batches(first, delimiter, encoding):
            batches.append(batch)
            rows += batch.num_rows
            if rows >= ROWS:
                break
        table = pa.Table.from_batches(batches).slice(0, ROWS) if batches else pa.table({})
    if table.num_rows == 0:
        raise SourceError(f"{first} has no rows: a log needs a header and at least a few rows.")
    named = [name for name in table.column_names if name.strip()]
    profiles = tuple(_profile(name, table[name]) for name in named)
    whole, unnamed = rows <= ROWS and len(files) == 1, len(table.column_names) - len(named)
    return Look(tuple(files), form, delimiter, encoding, table.num_rows, whole, profiles, unnamed)


def headless(names: Sequence[str]) -> str:
    """A question to add to a message about columns if their names look like a row of values; else nothing."""
    numbers = [name for name in names if _NUMBER.fullmatch(name)]
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
        for batch in pacsv.open_csv(
            open_bytes(path),
            read_options=pacsv.ReadOptions(encoding=encoding, block_size=8 << 20),
            parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(
                column_types={name: pa.string() for name in header},
                null_values=MISSING_TEXTS,
                strings_can_be_null=True,
            ),
        ):
            yield pa.RecordBatch.from_arrays([trimmed(column) for column in batch.columns], names=names)
    except pa.ArrowInvalid as error:
        raise SourceError(f"cannot read {path} as a table: {error}") from error


# ------------------------------------------------------------------------------------------------ one column


def _profile(name: str, column: pa.ChunkedArray) -> Profile:
    kind = column.type
    rows = len(column)
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    strange = (pa.types.is_nested, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_time, pa.types.is_duration)
    if any(is_it(kind) for is_it in strange):
        return Profile(name, "other", rows, column.null_count, 0, example=str(kind))
    values = [value for value in column.to_pylist() if value is not None and value == value]
    missing = rows - len(values)
    if not values:
        return Profile(name, "empty", rows, missing, 0)
    counts = Counter(values)
    labels = tuple(value for value, _ in counts.most_common()) if len(counts) <= MANY else ()
    shared: dict[str, Any] = {"levels": tuple(map(str, labels)), "labels": labels, "example": str(values[0])}
    common = (name, rows, missing, len(counts))
    if pa.types.is_boolean(kind):
        return _made(common, "boolean", shared)
    if pa.types.is_integer(kind):
        return _made(common, "integer", {**shared, "sequence": _is_sequence(values)})
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _made(common, "number", shared)
    if pa.types.is_temporal(kind):
        days = [_days(value) for value in values]
        timed = any(isinstance(value, dt.datetime) and value.time() != dt.time() for value in values)
        return _made(common, "date", {**shared, "span": max(days) - min(days), "timed": timed})
    texts = [str(value).strip() for value in values]
    if NO_NUMBER in texts:
        # "None" is a missing value in a column of numbers or dates; in a column of text it is a value, such as an arm
        rest = pc.if_else(pc.equal(column.cast(pa.string()), NO_NUMBER), None, column.cast(pa.string()))
        found = _profile(name, rest)
        if found.kind != "text":
            return found
    return _of_texts(common, texts, shared)


def _made(common: tuple[str, int, int, int], kind: Kind, more: dict[str, Any]) -> Profile:
    name, rows, missing, distinct = common
    return Profile(name, kind, rows, missing, distinct, **more)


def _of_texts(common: tuple[str, int, int, int], texts: list[str], shared: dict[str, Any]) -> Profile:
    """The kind of a column that is written as text, and what must be repaired in it."""
    enough = MOSTLY * len(texts)

    def share(pattern: re.Pattern[str], values: Sequence[str]) -> int:
        return sum(pattern.fullmatch(value) is not None for value in values)

    if {text.lower() for text in texts} <= _BOOLEAN:
        return _made(common, "boolean", shared)
    if share(_NUMBER, texts) >= enough:
        whole = all("." not in text and "e" not in text.lower() for text in texts if _NUMBER.fullmatch(text))
        sequence = whole and _is_sequence([int(text) for text in texts if re.fullmatch(r"[+-]?\d{1,18}", text)])
        return _made(common, "integer" if whole else "number", {**shared, "sequence": sequence})
    bare = [_MONEY.sub("", text) for text in texts]
    money = bare != texts
    for pattern, repair in ((_NUMBER, "money"), (_THOUSANDS, "thousands"), (_COMMA, "comma")):
        fitting = share(pattern, bare)
        plain = sum(_fits_beside(pattern, text) for text in bare)
        if fitting and plain >= enough and (pattern is not _NUMBER or money):
            return _made(common, "number", {**shared, "repair": repair})
    found = _date_format(texts)
    if found is not None:
        written, days, timed = found
        repair = "" if written == "iso" else written
        return _made(common, "date", {**shared, "span": max(days) - min(days), "timed": timed, "repair": repair})
    return _made(common, "text", shared)


def _fits_beside(pattern: re.Pattern[str], text: str) -> bool:
    """Whether a value is a number in this notation, or one that looks the same in all notations."""
    if pattern.fullmatch(text):
        return True
    return bool((_WHOLE if pattern is _COMMA else _NUMBER).fullmatch(text))


def _is_sequence(values: Sequence[int]) -> bool:
    return len(values) > 2 and all(later - earlier == 1 for earlier, later in pairwise(values))


def _days(value: Any) -> float:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).timestamp() / 86_400
    return float(value.toordinal()) if isinstance(value, dt.date) else 0.0


def _date_format(texts: list[str]) -> tuple[str, list[float], bool] | None:
    """``iso`` or a format, the days, and whether there are times; None if these are no dates or it is ambiguous."""
    sample = texts[:: max(1, len(texts) // 2_000)]
    try:
        read = [dt.datetime.fromisoformat(text) for text in sample]
        if all(re.match(r"\d{4}-\d{2}-\d{2}", text) for text in sample):
            return "iso", [_days(value) for value in read], any(value.time() != dt.time() for value in read)
    except ValueError:
        pass
    fitting = []
    for day in _DATES:
        for time in _TIMES:
            try:
                read = [dt.datetime.strptime(text, day + time) for text in sample]
            except ValueError:
                continue
            fitting.append((day + time, [_days(value) for value in read], bool(time)))
    return fitting[0] if len(fitting) == 1 else None


# ------------------------------------------------------------------------------------------- a copy that reads


def write_prepared(look: Look, path: Path) -> int:
    """Write the rows as Parquet with every repair made, whole or not at all; values that fit nowhere become null.

    Returns:
        How many rows were written.
    """
    kinds = {profile.name: profile for profile in look.profiles}

    def repaired() -> Iterator[pa.Table]:
        for file in look.files:
            for batch in _batches(look, file):
                names = [name for name in batch.schema.names if name in kinds]
                yield pa.table({name: _repaired(batch.column(name), kinds[name]) for name in names})

    try:
        return write_tables(path, "parquet", repaired()) or 0
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"cannot write {path}: {error}") from error


def _batches(look: Look, file: str) -> Iterator[pa.RecordBatch]:
    """All rows of a file, of the kind of the one that was looked at."""
    if look.format == "CSV":
        return _csv_batches(file, look.delimiter, look.encoding)
    import pyarrow.dataset as ds

    batches: Iterator[pa.RecordBatch] = ds.dataset(file, format=_FORMATS[look.format]).to_batches()
    return batches


_FORMATS = {"Parquet": "parquet", "Arrow": "ipc"}


def _repaired(column: pa.Array, profile: Profile) -> pa.Array:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return column
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    if profile.kind == "date" and profile.repair:
        return pc.strptime(text, format=profile.repair, unit="s", error_is_null=True)
    if profile.kind not in ("number", "integer"):
        return text
    if profile.repair:
        text = pc.replace_substring_regex(text, r"^([€$£¥]|EUR|USD|CHF|GBP)\s*|\s*([€$£¥%]|EUR|USD|CHF|GBP)$", "")
    if profile.repair == "comma":
        text = pc.replace_substring(pc.replace_substring(text, ".", ""), ",", ".")
    elif profile.repair == "thousands":
        text = pc.replace_substring(text, ",", "")
    good = pc.match_substring_regex(text, r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")
    return pc.if_else(good, text, pa.scalar(None, pa.string())).cast(pa.float64())
