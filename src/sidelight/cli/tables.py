"""A user's table on the command line: which columns are features, of which kind, and what was left out and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, feather, parquet

from sidelight.cli.log_options import split_names
from sidelight.cli.profiles import MANY_LEVELS
from sidelight.errors import SchemaError, SourceError
from sidelight.logs.schema.schema import Schema
from sidelight.logs.sources.base import LogFile, is_text
from sidelight.logs.sources.csv import MISSING_TEXTS, NO_NUMBER, csv_header, open_bytes, trimmed
from sidelight.logs.sources.paths import find_files

__all__ = ["Columns", "columns_of", "read_table", "schema_of", "with_names"]


class Columns(NamedTuple):
    """Features of a table, which of them are hidden, which are categories, and what the user should know."""

    features: list[str]
    hidden: list[str]
    categories: list[str]
    notes: list[str]


def read_table(source: str) -> pa.Table:
    """A CSV, Parquet or Arrow file, several by a glob, or a folder of them, as one table."""
    tables = [_whole(file) for file in find_files(source)]
    return pa.concat_tables([_named(table, source) for table in tables], promote_options="permissive").combine_chunks()


def _whole(file: LogFile) -> pa.Table:
    """All rows and columns of a file, with types found in it where it is CSV."""
    try:
        if file.kind == "parquet":
            return parquet.ParquetFile(file.path).read()
        if file.kind == "arrow":
            return feather.read_table(file.path)
        _, delimiter = csv_header(file.path)
        table = csv.read_csv(
            open_bytes(file.path),
            parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=csv.ConvertOptions(null_values=MISSING_TEXTS, strings_can_be_null=True, check_utf8=True),
        )
        columns = [_number_if_it_is_one(trimmed(c) if is_text(c.type) else c) for c in table.columns]
        return pa.table(columns, names=[name.strip() for name in table.column_names])
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"cannot read {file.path}: {error}") from error


def _number_if_it_is_one(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text that is a number wherever it does not say None, as numbers."""
    if not is_text(column.type) or not pc.any(pc.equal(column, NO_NUMBER)).as_py():
        return column
    try:
        return pc.if_else(pc.equal(column, NO_NUMBER), None, column).cast(pa.float64())
    except pa.ArrowInvalid:
        return column


def _named(table: pa.Table, source: str) -> pa.Table:
    """The columns that have a name; spreadsheets leave empty ones at the right."""
    named = [i for i, name in enumerate(table.column_names) if name.strip()]
    names = [table.column_names[i] for i in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SourceError(f"{source} has the column {twice[0]!r} more than once; rename one of them.")
    return table.select(named)


def _known_names(given: Sequence[str] | None, columns: Sequence[str]) -> list[str]:
    """Names from options, checked to be columns of the table."""
    names = split_names(given, columns)
    for name in names:
        if name not in columns:
            raise SchemaError(f"there is no column {name!r}; there are {', '.join(columns)}.")
    return names


def columns_of(
    table: pa.Table,
    outcome: Sequence[str],
    features: Sequence[str] | None,
    hidden: Sequence[str] | None,
    ignore: Sequence[str] | None,
    categories: Sequence[str] | None = None,
    recorded: Sequence[str] | None = None,
) -> Columns:
    """Which columns of a table are features, hidden ones and categories; what was left out is in ``notes``.

    Args:
        table: the table.
        outcome: the columns with arm and reward.
        features: all features, if the user names them.
        hidden: those that the log will lack; without them every feature that is not ``recorded``.
        ignore: columns that are no features.
        categories: number columns whose values are names; a missing value is one of them.
        recorded: those that the log will have; without them every feature that is not ``hidden``.
    """
    names = table.column_names
    for name in outcome:
        if name not in names:
            raise SchemaError(
                f"there is no column {name!r}; there are {', '.join(names)}. Name the columns with --arm and --reward."
            )
    ignored, wanted = _known_names(ignore, names), _known_names(features, names)
    rest = [name for name in wanted or names if name not in outcome and name not in ignored]
    seen, unseen = _known_names(recorded, names), _known_names(hidden, names)
    unseen, wanted = _sides(table, rest, seen, unseen, wanted)
    clash = [name for name in seen if name in outcome or name in ignored]
    if clash:
        raise SchemaError(f"{clash[0]!r} cannot be recorded as a feature: it is the arm, the reward or ignored.")
    chosen = [*wanted, *(name for name in unseen if name not in wanted)] if wanted else rest
    kept, texts, notes = _usable(table, chosen, _known_names(categories, names), {*wanted, *unseen})
    clash = [name for name in unseen if name in outcome or name not in kept]
    if clash:
        raise SchemaError(f"{clash[0]!r} cannot be hidden: it is the arm, the reward, ignored or empty.")
    if not wanted:
        notes.append(f"Features taken: {', '.join(kept)}. Other outcomes among them would mislead (--ignore).")
    return Columns(kept, unseen, texts, notes)


def _sides(
    table: pa.Table, rest: list[str], seen: list[str], unseen: list[str], wanted: list[str]
) -> tuple[list[str], list[str]]:
    """The hidden features, and all features if they are named: options may name either side, or both.

    Args:
        table: the table.
        rest: the columns that may be features.
        seen: those named as recorded.
        unseen: those named as hidden.
        wanted: all features, if the user names them.
    """
    both = [name for name in seen if name in unseen]
    if both:
        raise SchemaError(f"{both[0]!r} cannot be both recorded and hidden: leave it out of --recorded or of --hidden.")
    if seen and not unseen:
        unseen = [name for name in rest if name not in seen and table[name].null_count < table.num_rows]
        if not wanted:
            # a text with very many values is no feature that anybody meant to hide
            unseen = [name for name in unseen if not _has_many_texts(table[name])]
        if not unseen:
            raise SchemaError("--recorded names every feature, so the log would lack none: leave out those it lacks.")
    elif seen and not wanted:
        wanted = [name for name in rest if name in seen or name in unseen]
    elif seen and set(wanted) - {*seen, *unseen}:
        open_ = ", ".join(name for name in wanted if name not in seen and name not in unseen)
        raise SchemaError(f"does the log have {open_}? Name each of --features in --recorded or in --hidden.")
    if not unseen:
        raise SchemaError(
            "which features should the log lack? Name them, --hidden age,severity, among " + ", ".join(rest) + "."
        )
    return unseen, wanted


def _usable(
    table: pa.Table, chosen: list[str], categories: list[str], named: set[str]
) -> tuple[list[str], list[str], list[str]]:
    """The columns that can be features, those among them that are categories, and a note for each that is left out.

    Args:
        table: the table.
        chosen: the columns.
        categories: number columns whose values are names.
        named: columns that the user named: these are kept even with very many different texts.
    """
    kept: list[str] = []
    notes: list[str] = []
    for name in chosen:
        column = table[name]
        is_category = name in categories or is_text(column.type)
        if is_category and name not in named and len(column.unique()) > MANY_LEVELS:
            notes.append(f"{name} was left out: {len(column.unique()):,} different texts are no category.")
        elif column.null_count == table.num_rows:
            notes.append(f"{name} was left out: it is empty.")
        else:
            kept.append(name)
    return kept, [name for name in kept if name in categories or is_text(table[name].type)], notes


def _has_many_texts(column: pa.ChunkedArray) -> bool:
    return is_text(column.type) and len(column.unique()) > MANY_LEVELS


def with_names(table: pa.Table, categories: Sequence[str]) -> pa.Table:
    """The table with every category as text, so that a missing value can be a level beside numbers."""
    for name in categories:
        if not is_text(table[name].type):
            table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.string()))
    return table


def schema_of(table: pa.Table, columns: Columns, arm: str, reward: str, *, numeric_arm: bool) -> Schema:
    """The schema of the log: an intercept, everything but the hidden features recorded."""
    recorded = [name for name in columns.features if name not in columns.hidden]
    names: dict[str, Any] = dict.fromkeys(columns.categories)
    # a column that is cut into arms, or that holds the right arm, is not the log's: the log has its own
    if numeric_arm or reward not in table.column_names:
        arm, reward = ("arm", "reward") if not {"arm", "reward"} & set(columns.features) else ("_arm", "_reward")
    return Schema(columns.features, recorded, arm, reward, None, True, categories=names)
