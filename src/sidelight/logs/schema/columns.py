"""One Arrow column as an array: numbers, days, labels; what cannot be read is told apart from what is missing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sidelight.errors import SchemaError
from sidelight.labels import Label, plain_label, typed_readings
from sidelight.logs.schema.features import BOOLEANS, MICROSECONDS_PER_DAY, microseconds_since_1970
from sidelight.logs.sources.base import is_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "UNKNOWN",
    "check_labels",
    "date_column",
    "distinct_labels",
    "is_time",
    "label_codes",
    "label_position",
    "number_column",
]

#: code of a label that has no position
UNKNOWN = -3

#: Arrow reads a zone's transitions from the list in its file, which ends in 2037, and ignores the rule for later years.
_TABLE_ENDS = microseconds_since_1970(dt.datetime(2037, 1, 1), None)
#: The last day but one of Python's calendar: adding a zone's offset must not leave the calendar.
_CALENDAR_ENDS = microseconds_since_1970(dt.datetime(9999, 12, 30), None)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def is_time(kind: pa.DataType) -> bool:
    """Whether a column of this type holds dates, times or lengths of time, none of which is a number."""
    import pyarrow as pa

    return bool(pa.types.is_temporal(kind))


def number_column(column: pa.Array, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    """A log's column as ``float64``.

    Returns:
        ``values`` (n,), NaN where the value is missing or cannot be read, and ``unparsable`` (n,) booleans, the
        rows whose text is not a number (``None`` where there are none).

    Raises:
        SchemaError: the column holds something that is not a number at all.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_float64(kind) and column.null_count == 0:
        return column.to_numpy(zero_copy_only=True), None
    if pa.types.is_dictionary(kind):
        return number_column(column.dictionary_decode(), name)
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan), None
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif is_text(kind):
        return _parsed(column, name)
    elif pa.types.is_decimal(kind):
        # By way of text, which is rounded to the nearest float like one value is; Arrow's own cast is not.
        column = column.cast(pa.string())
    elif not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        if pa.types.is_duration(kind):
            raise SchemaError(
                f"column {name!r} holds {kind}, a length of time, not a number. Say in which unit it counts: in pandas "
                f"frame[{name!r}].dt.total_seconds() / 86400 are days."
            )
        if pa.types.is_time(kind):
            raise SchemaError(
                f"column {name!r} holds {kind}, a time of day, not a number. Join it with its date to a timestamp, of "
                f"which hour({name}) counts among derived=[...], or turn it into a number such as hours since midnight."
            )
        if pa.types.is_temporal(kind):
            raise SchemaError(
                f"column {name!r} holds {kind}, a date or a time, not a number. Say what of it counts: "
                f"days_since({name}), weekday({name}), month({name}) or hour({name}) among derived=[...]."
            )
        raise SchemaError(f"column {name!r} holds {kind}, which is neither a number nor text: turn it into one first.")
    column = column.cast(pa.float64(), safe=False)
    if column.null_count:
        column = pc.fill_null(column, np.nan)
    return column.to_numpy(zero_copy_only=False), None


def _parsed(column: pa.Array, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Text as numbers: one bad cell makes a CSV reader call the whole column text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    try:
        values = text.cast(pa.float64())
    except pa.ArrowInvalid:
        return _parsed_one_by_one(text.to_pylist())
    return pc.fill_null(values, np.nan).to_numpy(zero_copy_only=False), None


def _parsed_one_by_one(texts: list[str | None]) -> tuple[np.ndarray, np.ndarray | None]:
    values = np.full(len(texts), np.nan)
    unparsable = np.zeros(len(texts), dtype=bool)
    for i, text in enumerate(texts):
        if text is None or text == "":
            continue
        try:
            values[i] = float(text)
        except ValueError:
            if text.lower() in BOOLEANS:
                values[i] = BOOLEANS[text.lower()]
            else:
                unparsable[i] = True
    return values, unparsable if unparsable.any() else None


def date_column(column: pa.Array, name: str, zone: str | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    """Dates and timestamps as days since 1970-01-01, fractions included.

    A timestamp with a zone counts as the time on the clocks of ``zone`` (UTC if ``None``); one without counts as it
    is written.

    Returns:
        ``days`` (n,), NaN where the value is missing or cannot be read, and ``unparsable`` (n,) booleans, the rows
        whose text is no date (``None`` where there are none).

    Raises:
        SchemaError: the column holds something that is no date at all, or text of times with and without a zone.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        return date_column(column.dictionary_decode(), name, zone)
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan), None
    if is_text(kind):
        return _parsed_dates(column.cast(pa.string()).to_pylist(), name, zone)
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("us"))
    elif not pa.types.is_timestamp(kind):
        raise SchemaError(
            f"column {name!r} holds {kind}, which is no date. Write dates as dates, timestamps or ISO text "
            "(2024-02-29, 2024-02-29T13:45:00+01:00)."
        )
    microseconds = _microseconds(column)
    if getattr(kind, "tz", None) is not None and zone is not None:
        local = _microseconds(pc.local_timestamp(column.cast(pa.timestamp(kind.unit, zone))))
        late = (microseconds >= _TABLE_ENDS) & (microseconds < _CALENDAR_ENDS)
        local[late] = [
            microseconds_since_1970(_EPOCH + dt.timedelta(microseconds=at), zone) for at in microseconds[late].tolist()
        ]
        microseconds = local
    days = microseconds / MICROSECONDS_PER_DAY
    if column.null_count:
        days[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return days, None


def _microseconds(column: pa.Array) -> np.ndarray:
    """Timestamps as whole microseconds, cut off towards the past, whatever their unit; 0 where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ticks: np.ndarray = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    per = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[column.type.unit]
    return ticks // 1_000 if column.type.unit == "ns" else ticks * per


def _parsed_dates(texts: list[str | None], name: str, zone: str | None) -> tuple[np.ndarray, np.ndarray | None]:
    days = np.full(len(texts), np.nan)
    unparsable = np.zeros(len(texts), dtype=bool)
    known: dict[str, float | None] = {}
    # whether a time has a zone → the first such text
    times: dict[bool, str] = {}
    for i, text in enumerate(texts):
        if text is None or text.strip() in ("", "None"):
            continue
        if text not in known:
            try:
                moment = dt.datetime.fromisoformat(text.strip())
                known[text] = microseconds_since_1970(moment, zone)
                if len(text.strip()) > len("2024-02-29"):
                    times.setdefault(moment.tzinfo is not None, text)
            except (ValueError, OverflowError):
                known[text] = None
        at = known[text]
        if at is None:
            unparsable[i] = True
        else:
            days[i] = at / MICROSECONDS_PER_DAY
    if len(times) == 2:
        raise SchemaError(
            f"column {name!r} has times with a zone ({times[True]!r}) and without one ({times[False]!r}): the first "
            f"count on the clocks of {zone or 'UTC'}, and on whose clocks the others were read nobody can tell. Write "
            "all of them with their zone, or all without."
        )
    return days, unparsable if unparsable.any() else None


def label_codes(
    column: pa.Array, name: str, positions: Mapping[Label, int], text: bool = False
) -> tuple[np.ndarray, tuple[np.ndarray | None, np.ndarray | None]]:
    """A column of labels as positions.

    Args:
        column: the labels.
        name: of the column.
        positions: label → position.
        text: the column comes from a file in which everything is text, so ``"3"`` may stand for ``3``.

    Returns:
        ``codes`` (n,) int64: the position of each label, -1 for a baseline, -2 where missing, ``UNKNOWN`` where it has
        none; and the rows that are missing and those that are unknown, each ``None`` where there are none.

    Raises:
        SchemaError: the column holds something that cannot be a label.
    """
    indices, labels = distinct_labels(column, name)
    table = np.array([label_position(label, positions, text) for label in labels] + [-2], dtype=np.int64)
    codes = table[indices]
    # A dictionary may name labels that no row has, so the rows decide.
    if len(codes) == 0 or codes.min() >= -1:
        return codes, (None, None)
    missing, unknown = codes == -2, codes == UNKNOWN
    return codes, (missing if missing.any() else None, unknown if unknown.any() else None)


def label_position(label: Label | None, positions: Mapping[Label, int], text: bool) -> int:
    """The position of one label; -2 if it is missing, ``UNKNOWN`` if it has none.  Arguments as for ``label_codes``."""
    if label is None:
        return -2
    position = positions.get(label)
    if position is None and text and isinstance(label, str):
        position = next((positions[value] for value in typed_readings(label) if value in positions), None)
    return UNKNOWN if position is None else position


def check_labels(column: pa.Array, name: str) -> pa.Array:
    """The column, after a check that its values are scalars.

    Raises:
        SchemaError: it holds lists, structures or the like.
    """
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        raise SchemaError(
            f"column {name!r} holds {column.type}, which cannot be labels of arms or categories: those are text, "
            "numbers, booleans, dates or times. Give each row one such value."
        )
    return column


def distinct_labels(column: pa.Array, name: str) -> tuple[np.ndarray, list[Label | None]]:
    """The distinct values of a column and where they stand.

    Returns:
        ``indices`` (n,), -1 where null, into ``labels``; a label is ``None`` where the value is NaN.

    Raises:
        SchemaError: the column holds something that cannot be a label.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    check_labels(column, name)
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    indices = encoded.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int64()), -1)
    labels: list[Label | None] = []
    for value in encoded.dictionary.to_pylist():
        if value is None or value != value:
            labels.append(None)
            continue
        labels.append(plain_label(value))
    return indices.to_numpy(zero_copy_only=False), labels
