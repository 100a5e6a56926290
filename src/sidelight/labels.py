"""Labels of arms and category levels: any plain value, with one fixed order and a place in JSON; words for messages."""

from __future__ import annotations

import datetime as dt
import decimal
import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from sidelight.errors import SchemaError

__all__ = [
    "Label",
    "check_types",
    "counted",
    "did_you_mean",
    "label_from_json",
    "label_to_json",
    "plain_label",
    "position_of",
    "show_labels",
    "sorted_labels",
    "typed_labels",
    "typed_readings",
]

Label: TypeAlias = str | int | float | bool | dt.date | dt.datetime | dt.time | decimal.Decimal


def plain_label(value: Any) -> Label:
    """``value`` as a plain Python value; NumPy and Arrow scalars lose their wrapping.

    Raises:
        SchemaError: it is missing, not a number, or of a type that cannot be a label.
    """
    if isinstance(value, np.generic):
        value = value.item()
    elif hasattr(value, "as_py"):
        value = value.as_py()
    if isinstance(value, float) and not math.isfinite(value):
        raise SchemaError(f"{value} cannot be a label: it is not a finite number. Rename or drop those rows.")
    if isinstance(value, str | int | float | dt.date | dt.time | decimal.Decimal):
        return value
    raise SchemaError(
        f"{value!r} cannot be a label: labels are text, numbers, booleans, dates or times, not {type(value).__name__}."
    )


def sorted_labels(labels: Iterable[Label]) -> tuple[Label, ...]:
    """The distinct labels in an order that depends on nothing but the labels.

    Numbers and booleans by value, then dates, then text. Labels that are equal are one (``1`` and ``1.0``): the
    integer is kept, so that two parts of a log agree whatever type their columns have.
    """
    distinct: dict[Label, Label] = {}
    for label in labels:
        known = distinct.get(label)
        if known is None or (type(label) is int and type(known) is not int):
            distinct[label] = label
    return tuple(sorted(distinct.values(), key=_order))


def check_types(labels: Iterable[Label], column: str) -> None:
    """Check that no label is there as text and as another type: ``"1"`` beside ``1``.

    Raises:
        SchemaError: one is; the two would count as different labels.
    """
    others = {label for label in labels if not isinstance(label, str)}
    if not others:
        return
    for text in (label for label in labels if isinstance(label, str)):
        same = next((value for value in typed_readings(text) if value in others), None)
        if same is not None:
            raise SchemaError(
                f"column {column!r} holds {text!r}, which is text, and {same!r}, which is not: the same label would "
                "count as two. Write the column with one type in all parts of the log."
            )


def _order(label: Label) -> tuple[int, Any, str]:
    if isinstance(label, bool | int | float | decimal.Decimal):
        return (0, label, "")
    if isinstance(label, str):
        return (4, 0, label)
    if isinstance(label, dt.datetime):
        # one without a zone counts as UTC: the zone of this machine must not decide the order
        moment = label if label.tzinfo is not None else label.replace(tzinfo=dt.UTC)
        return (2, moment.timestamp(), label.isoformat())
    if isinstance(label, dt.date):
        return (1, label.toordinal(), "")
    return (3, 0, label.isoformat())


def label_to_json(label: Label) -> Any:
    """A JSON value from which :func:`label_from_json` makes the same label, type included."""
    if isinstance(label, str | bool | int | float):
        return label
    if isinstance(label, dt.datetime):
        return {"datetime": label.isoformat()}
    if isinstance(label, dt.date):
        return {"date": label.isoformat()}
    if isinstance(label, dt.time):
        return {"time": label.isoformat()}
    return {"decimal": str(label)}


def label_from_json(value: Any) -> Label:
    """The inverse of :func:`label_to_json`.

    Raises:
        SchemaError: it is not what that function makes of a label.
    """
    if not isinstance(value, dict):
        return plain_label(value)
    read: dict[str, Callable[[str], Label]] = {
        "datetime": dt.datetime.fromisoformat,
        "date": dt.date.fromisoformat,
        "time": dt.time.fromisoformat,
        "decimal": decimal.Decimal,
    }
    try:
        ((kind, text),) = value.items()
        return read[kind](text)
    except (KeyError, ValueError, TypeError, decimal.InvalidOperation) as error:
        raise SchemaError(
            f"{value!r} is not a label: a table has one entry, date = '2024-02-29', datetime = '2024-02-29T13:45:00', "
            "time = '13:45:00' or decimal = '1.50'."
        ) from error


def typed_readings(text: str) -> list[Label]:
    """What a text may stand for in a file in which everything is text: an integer, a number, a boolean."""
    readings: list[Label] = []
    for read in (int, float):
        try:
            readings.append(read(text))
        except ValueError:
            continue
    lowered = text.lower()
    return readings + ([lowered == "true"] if lowered in ("true", "false") else [])


def typed_labels(texts: Sequence[Label]) -> tuple[Label, ...]:
    """Labels found in such a file with the type that fits them all: integers, numbers, booleans, else text.

    Only texts that are written as Python writes the value count, so ``007`` stays text.
    """
    if not all(isinstance(text, str) for text in texts):
        # beside labels of an earlier file, which have their types already
        found = [text for text in texts if isinstance(text, str)]
        read = dict(zip(found, typed_labels(found), strict=True))
        return tuple(read[text] if isinstance(text, str) else text for text in texts)
    for kind in (int, float):
        try:
            values = [kind(str(text)) for text in texts]
        except ValueError:
            continue
        if all(str(value) == text and math.isfinite(value) for value, text in zip(values, texts, strict=True)):
            return tuple(values)
    if all(text in ("True", "False") for text in texts):
        return tuple(text == "True" for text in texts)
    return tuple(texts)


def position_of(label: Any, positions: Mapping[Any, int]) -> int | None:
    """The position of a label; ``None`` for one that is not there, or that cannot be a label (a list, an array)."""
    try:
        return positions.get(label)
    except TypeError:
        return None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to end a message with, whether one of ``known`` was meant that reads nearly the same; else nothing."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f" Did you mean {close[0]!r}?" if close else ""


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun, thousands set apart: ``1 row``, ``2,000 rows``, ``0 rows``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def show_labels(labels: Iterable[Any], limit: int = 8) -> str:
    """The first few labels as text for a message: ``'a', 'b', ... (12 in all)``."""
    shown = [repr(label) for label in labels]
    if len(shown) <= limit:
        return ", ".join(shown)
    return ", ".join(shown[:limit]) + f", ... ({len(shown)} in all)"
