"""What a schema leaves to the log: which columns are text, and the quantiles that derived features are made from.

Kinds are recognized in the first rows. Quantiles come from a cheap first pass over the columns concerned, which keeps
every 1st, 2nd, 4th, … row so that at most ``_SAMPLE`` are left: which rows those are depends on their number alone, so
every kind of source gives the same knots.
"""

from __future__ import annotations

import datetime as dt
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sidelight.errors import InputError, SchemaError, SidelightWarning, calls_inside
from sidelight.labels import Label, show_labels
from sidelight.logs.schema.assembly import check_kind
from sidelight.logs.schema.columns import date_column, number_column
from sidelight.logs.schema.features import BOOLEANS, Category, Date, Feature, Number, comma_message
from sidelight.logs.schema.terms import Missing, Term
from sidelight.logs.sources.base import Source, is_text
from sidelight.logs.sources.opening import open_source

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check_arms", "check_levels", "fitted_terms", "peek_kinds", "sample_columns", "settled_features"]

_SAMPLE = 65_536
_ROWS = 131_072
# A column with at least this many different values, more than one for every two rows, is an identifier.
_MANY_LEVELS = 20
# This many rows of a part of a log are enough to recognize an identifier.
_ENOUGH_ROWS = 2_000
# Many arms that are numbers must have a median of this many rows: a measurement has few rows for each value.
_ROWS_OF_A_NUMBER = 10
# A column with more different days than this is not a category.
_MANY_DAYS = 12
# Different texts of the first rows that are examined to recognize the kind of a column.
_LOOKED_AT = 2_000


def peek_kinds(opened: Source, features: Sequence[Feature], recorded: Sequence[str]) -> list[Feature]:
    """The features, with undeclared columns that hold text as categories; rows read for this are not lost.

    Raises:
        SchemaError: a column holds dates, identifiers or numbers with a decimal comma, and the message says what to do.
    """
    assumed = [f.name for f in features if isinstance(f, Number) and f.assumed and f.name in set(recorded)]
    if not assumed:
        return list(features)
    return settled_features(opened.first_values(assumed), features, opened.name, opened.total_rows)


def settled_features(
    first: Mapping[str, pa.Array], features: Sequence[Feature], origin: str, rows: int | None = None
) -> list[Feature]:
    """The features, with undeclared kinds settled by the first values of their columns.

    rows: of the whole log, where that is known
    """
    settled: list[Feature] = []
    text: list[str] = []
    for feature in features:
        open_kind = isinstance(feature, Number) and feature.assumed and feature.name in first
        if open_kind and _is_text(first[feature.name], feature.name, origin, rows):
            text.append(feature.name)
            settled.append(Category(feature.name, own=feature.own))
        else:
            settled.append(feature)
    if text:
        what = (
            "column {} of {} holds text, so it is a category"
            if len(text) == 1
            else ("columns {} of {} hold text, so they are categories")
        )
        warnings.warn(
            what.format(show_labels(text), origin)
            + f", with the levels found there. To say so yourself: categories=[{show_labels(text)}], or "
            f"Category({text[0]!r}) among the features.",
            SidelightWarning,
            stacklevel=calls_inside(),
        )
    return settled


def _is_text(column: pa.Array, name: str, origin: str, rows: int | None) -> bool:
    """Whether a column is text in which no value reads as a number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_text(column.type):
        return False
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    plain = column.cast(kind).cast(pa.string())
    stripped = pc.utf8_trim_whitespace(plain.drop_null())
    distinct = [text for text in stripped.unique().to_pylist() if text]
    if not distinct or any(_reads_as_number(text) for text in distinct[:_LOOKED_AT]):
        return False
    told = [comma_message(text, name, origin) for text in distinct[:_LOOKED_AT]]
    if all(told):
        raise SchemaError(str(told[0]))
    check_levels(name, distinct, len(stripped), origin, declared=False, part=rows != len(column))
    return True


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.lower() in BOOLEANS
    return True


def check_levels(
    name: str, levels: Sequence[Label], rows: int, origin: str, declared: bool = True, part: bool = False
) -> None:
    """Check that what was found in a column can be the levels of a category.

    Args:
        name: of the column.
        levels: what was found.
        rows: in how many rows.
        origin: what the message calls the log.
        declared: whether the user declared it a category.
        part: whether these are a part of the log's rows. In a small one, such as the file of one day, most rows may
            have a level of their own; the check is repeated once all rows of the log are read.

    Raises:
        SchemaError: they are days, or nearly every row has its own: a date or an identifier.
    """
    if len(levels) > _MANY_DAYS and all(_is_day(level) for level in levels[:_LOOKED_AT]):
        raise SchemaError(
            f"column {name!r} of {origin} holds dates, {len(levels):,} different ones such as {levels[0]!r}: as a "
            "category every date would be a level of its own, and tomorrow's is none of them. Say what of it counts, "
            f"derived=['days_since({name})', 'weekday({name})', 'month({name})', 'hour({name})'], and leave it out of "
            f"{'the categories' if declared else 'the features'}."
        )
    enough = not part or rows >= _ENOUGH_ROWS
    if enough and len(levels) >= _MANY_LEVELS and len(levels) > rows / 2:
        if all(isinstance(level, str) and _WRITTEN_DAY.match(level) for level in levels[:_LOOKED_AT]):
            raise SchemaError(
                f"column {name!r} of {origin} holds dates that are not written as 2024-02-29 or 2024-02-29T13:45:00, "
                f"such as {levels[0]!r}, of which day and month cannot be told apart for sure. Write them so (in "
                f"pandas: pandas.to_datetime(frame[{name!r}], dayfirst=True)), and say what of them counts, "
                f"derived=['days_since({name})', 'weekday({name})', 'month({name})']."
            )
        raise SchemaError(
            f"column {name!r} of {origin} has {len(levels):,} different values in {rows:,} rows "
            f"({show_labels(levels[:2])}, ...): that is an identifier, not a category. It says nothing about rows yet "
            "to come: leave it out, or map it to a category whose levels have many rows each."
        )


def check_arms(name: str, arms: Sequence[Label], counts: Sequence[int], skipped: int, origin: str) -> None:
    """Check that what was found in a column can be arms.

    Args:
        name: of the column.
        arms: the labels found.
        counts: rows of each that could be used.
        skipped: rows that could not.
        origin: what the message calls the log.

    Raises:
        SchemaError: nearly every row has its own, or they are numbers of which most have few rows: a measurement or an
            identifier.
    """
    rows = skipped + int(sum(counts))
    if len(arms) < _MANY_LEVELS:
        return
    typical = float(np.median(counts))
    numbers = all(isinstance(arm, int | float) for arm in arms)
    measured = numbers and typical < _ROWS_OF_A_NUMBER
    if len(arms) > rows / 2 or measured:
        few = f", most of them with {typical:.0f} rows or fewer" if measured and len(arms) <= rows / 2 else ""
        raise SchemaError(
            f"column {name!r} of {origin} has {len(arms):,} different values in {rows:,} rows{few} "
            f"({show_labels(arms[:2])}, ...): that is a measurement or an identifier, not an arm. An arm is one of a "
            "few choices, each taken many times: name the column that holds the choice, or put its values into groups. "
            "If these are arms with few rows each, name them: arms=[...] in the schema."
        )


#: 29.2.2024, 2/29/24 13:45
_WRITTEN_DAY = re.compile(r"\s*\d{1,4}[./-]\d{1,2}[./-]\d{2,4}\b")


def _is_day(level: Label) -> bool:
    if isinstance(level, dt.date):
        return True
    if not isinstance(level, str) or len(level) < 8 or not level[:4].isdigit():
        return False
    try:
        dt.datetime.fromisoformat(level)
    except ValueError:
        return False
    return True


def fitted_terms(
    source: Any, terms: Sequence[Term], features: Sequence[Feature], recorded: Sequence[str]
) -> tuple[Term, ...]:
    """The derived features with what they need of the log.

    Raises:
        InputError: the source can be read only once.
        SchemaError: a column is not recorded, so that nothing about it can be found in the log, or has no values.
    """
    kinds = {feature.name: feature for feature in features}
    wanted: list[str] = []
    for term in terms:
        for part in term.parts:
            name = part.wants
            if name is None:
                continue
            if isinstance(kinds[name], Category) and isinstance(part, Missing):
                continue
            check_kind(part, name, kinds[name])
            if name not in recorded:
                raise SchemaError(
                    f"{part.label} cannot be taken from the log, which did not record {name!r}: give knots=[...] for a "
                    "spline, a list of edges for bins, a day for days_since, a value for missing."
                )
            wanted.append(name)
    wanted = list(dict.fromkeys(wanted))
    samples = sample_columns(source, wanted, kinds) if wanted else {}
    return tuple(
        term.with_parts([part.fitted(samples[part.wants]) if part.wants in samples else part for part in term.parts])
        for term in terms
    )


def sample_columns(source: Any, names: Sequence[str], kinds: Mapping[str, Feature]) -> dict[str, np.ndarray]:
    """Finite values of each column in increasing order, of a part of the rows spread evenly over the source."""
    dates = [name for name in names if isinstance(kinds[name], Date)]
    opened = open_source(source, names, labels=dates, optional=names)
    if not opened.rereadable:
        raise InputError(
            f"derived features take their knots from a first pass over the log, and {opened.name} can be read only "
            "once. Write it to a file first, or give knots and edges."
        )
    kept: dict[str, list[np.ndarray]] = {name: [] for name in names}
    stride, row, held = 1, 0, 0
    for bundle in opened.bundles(_ROWS):
        first = -row % stride
        part = bundle.batch.take(_every(first, stride, bundle.batch.num_rows))
        for name in names:
            kept[name].append(_finite_or_nan(part.column(name), kinds[name]))
        held += part.num_rows
        row += bundle.batch.num_rows
        while held > _SAMPLE:
            # rows 0, s, 2s, … are held; every other one of those leaves rows 0, 2s, 4s, …
            stride *= 2
            for name in names:
                kept[name] = [np.concatenate(kept[name])[::2]]
            held = (held + 1) // 2
    samples = {}
    for name in names:
        values = np.concatenate(kept[name]) if kept[name] else np.empty(0)
        values = np.sort(values[np.isfinite(values)])
        if not len(values):
            raise SchemaError(f"column {name!r} of {opened.name} has no value in any row: nothing derives from it.")
        samples[name] = values
    return samples


def _every(first: int, stride: int, rows: int) -> pa.Array:
    import pyarrow as pa

    return pa.array(np.arange(first, rows, stride))


def _finite_or_nan(column: pa.Array, feature: Feature) -> np.ndarray:
    if isinstance(feature, Date):
        return date_column(column, feature.name, feature.zone)[0]
    return np.array(number_column(column, feature.name)[0])
