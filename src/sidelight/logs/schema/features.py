"""One column of the context: a number, a category or a date, and how one value of it is read.

:mod:`sidelight.logs.schema.columns` reads whole columns; a test compares the two for every kind of value.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from dataclasses import dataclass, field, replace
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from sidelight.errors import ContextError, SchemaError
from sidelight.labels import Label, label_from_json, label_to_json, plain_label, show_labels

__all__ = ["NEEDED", "Category", "Date", "Feature", "Number", "comma_message", "feature_from_dict", "is_missing"]

MICROSECONDS_PER_DAY = 86_400_000_000
#: what is said about a value that is missing
NEEDED = (
    "every feature needs a value to decide, unless the schema lets it be inferred from the others: "
    'missing="impute", or schema.with_missing("impute").'
)


@dataclass(frozen=True)
class Number:
    """A number or a boolean (``True`` is 1, ``False`` is 0): one encoded column.

    Attributes:
        name: the column's name.
        own: whether it has an encoded column of its own, or is only there for derived features to be computed from.
        assumed: whether its kind was not declared; it then becomes a category if the log has text there.

    Examples:
        >>> import sidelight as sl
        >>> sl.Schema(features=[sl.Number("age"), "weight"], recorded=["age"]).encoded_names
        ('age', 'weight')
    """

    name: str
    own: bool = True
    assumed: bool = field(default=False, compare=False)

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """The name of its encoded column, none if it has no column of its own."""
        return (self.name,) if self.own else ()

    @property
    def resolved(self) -> bool:
        """Always true: a number has nothing to discover in a log."""
        return True

    def one_value(self, value: Any) -> float:
        """The encoded value of one context.

        Raises:
            ContextError: the value is missing, not a number, or not finite.
        """
        if (
            type(value) is float
            or type(value) is int
            or type(value) is bool
            or isinstance(value, int | float | decimal.Decimal | np.number | np.bool_)
        ):
            try:
                number = float(value)
            except OverflowError:
                raise ContextError(f"feature {self.name!r} is {str(value)[:20]}…, too large for a number.") from None
        elif isinstance(value, str):
            try:
                number = BOOLEANS[value.lower()] if value.lower() in BOOLEANS else float(value)
            except ValueError:
                raise ContextError(
                    f"feature {self.name!r} is {value!r}, which is not a number."
                    + (" Numbers have a decimal point here." if DECIMAL_COMMA.fullmatch(value.strip()) else "")
                ) from None
        elif hasattr(value, "as_py"):
            return self.one_value(value.as_py())
        elif is_missing(value):
            raise ContextError(f"feature {self.name!r} is missing: {NEEDED}")
        else:
            raise ContextError(f"feature {self.name!r} is {value!r} ({type(value).__name__}), which is not a number.")
        if not math.isfinite(number):
            raise ContextError(f"feature {self.name!r} is {number}: every feature needs a finite value to decide.")
        return number

    def to_dict(self) -> dict[str, Any]:
        """A description in plain JSON values; :func:`feature_from_dict` reads it."""
        described: dict[str, Any] = {"kind": "number", "name": self.name}
        described |= {} if self.own else {"own": False}
        return described | ({"assumed": True} if self.assumed else {})


@dataclass(frozen=True)
class Category:
    """A category, encoded one-hot.

    Attributes:
        name: the column's name.
        levels: the levels in order, or ``None`` to discover them in the log (then sorted). A level that is not among
            them is an error at decision time.
        baseline: a level without a column of its own, so that the columns of this feature do not add up to a
            constant. ``None`` leaves it to the schema: the first level where there is an intercept, none otherwise.
        discovered: whether the levels were found in a log rather than declared; such levels grow when two parts of
            a log are added.
        chosen_baseline: whether the schema chose the baseline; then it is always the first level.
        own: whether it has encoded columns of its own, or is only there for derived features to be computed from.

    Examples:
        >>> import sidelight as sl
        >>> stage = sl.Category("stage", levels=("I", "II", "III"))
        >>> schema = sl.Schema(features=["age", stage], recorded=["age"])
        >>> schema.encode({"age": 61, "stage": "II"}).tolist()
        [61.0, 0.0, 1.0, 0.0]
    """

    name: str
    levels: tuple[Label, ...] | None = None
    baseline: Label | None = None
    discovered: bool = False
    chosen_baseline: bool = False
    own: bool = True

    def __post_init__(self) -> None:
        if self.levels is None:
            return
        levels = tuple(plain_label(level) for level in self.levels)
        if len(set(levels)) < len(levels):
            raise SchemaError(f"category {self.name!r} lists a level twice: {show_labels(levels)}.")
        if not levels:
            raise SchemaError(f"category {self.name!r} has no levels: list at least one, or None to discover them.")
        if self.baseline is not None and self.baseline not in levels and not self.discovered:
            raise SchemaError(
                f"category {self.name!r} has the baseline {self.baseline!r}, which is not one of its levels: "
                f"{show_labels(levels)}."
            )
        object.__setattr__(self, "levels", levels)

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """One name per level that has a column: ``city=Paris``."""
        return tuple(f"{self.name}={level}" for level in self.column_levels)

    @property
    def column_levels(self) -> tuple[Label, ...]:
        """The levels that have a column: all but the baseline, none if it has no columns of its own."""
        if not self.own:
            return ()
        return tuple(level for level in self.levels or () if self.baseline is None or level != self.baseline)

    @property
    def resolved(self) -> bool:
        """Whether the levels are known."""
        return self.levels is not None

    def position(self, value: Any) -> int:
        """The position of one context's value among the columns, -1 for the baseline.

        Raises:
            ContextError: the level is missing or was not seen before.
        """
        try:
            return self.position_of[value]
        except (KeyError, TypeError):
            pass
        if value is None or value != value:
            raise ContextError(f"feature {self.name!r} is missing: {NEEDED}")
        levels = self.levels or ()
        how = "was not seen in the log" if self.discovered else "is not one of the declared levels"
        raise ContextError(
            f"feature {self.name!r} is {value!r}, a level that {how}: {show_labels(levels)}. "
            "Map it to a known level, or declare the level and summarize the log again."
        )

    @property
    def position_of(self) -> dict[Any, int]:
        """Level → position among the columns, -1 for the baseline."""
        cached: dict[Any, int] | None = self.__dict__.get("_position_of")
        if cached is None:
            cached = {level: i for i, level in enumerate(self.column_levels)}
            cached |= {level: -1 for level in self.levels or () if level not in cached}
            cached |= {} if self.baseline is None else {self.baseline: -1}
            object.__setattr__(self, "_position_of", cached)
        return cached

    @property
    def index_of(self) -> dict[Any, int]:
        """Level → position among all levels, with or without a column; -1 for a baseline that no row of the log has."""
        cached: dict[Any, int] | None = self.__dict__.get("_index_of")
        if cached is None:
            cached = {} if self.baseline is None else {self.baseline: -1}
            cached |= {level: i for i, level in enumerate(self.levels or ())}
            object.__setattr__(self, "_index_of", cached)
        return cached

    def with_levels(self, levels: tuple[Label, ...]) -> Category:
        """The same category with levels found in a log."""
        return replace(self, levels=levels, discovered=True)

    def to_dict(self) -> dict[str, Any]:
        """A description in plain JSON values; :func:`feature_from_dict` reads it."""
        return {
            "kind": "category",
            "name": self.name,
            "levels": None if self.levels is None else [label_to_json(level) for level in self.levels],
            "baseline": None if self.baseline is None else label_to_json(self.baseline),
            "discovered": self.discovered,
            "chosen_baseline": self.chosen_baseline,
            **({} if self.own else {"own": False}),
        }


@dataclass(frozen=True)
class Date:
    """A date or a timestamp; it has no encoded column of its own, only what is derived from it (weekday, days since).

    Attributes:
        name: the column's name.
        zone: a timestamp with a zone counts as the time on the clocks of this zone, ``"Europe/Berlin"``; UTC if
            ``None``. A timestamp without one counts as it is written.

    Examples:
        >>> import sidelight as sl
        >>> schema = sl.Schema([sl.Date("visit")], recorded=["visit"], derived=["days_since(visit, '2024-02-28')"])
        >>> schema.encode({"visit": "2024-03-01T12:00:00"}).tolist()
        [2.5]
    """

    name: str
    zone: str | None = None

    own = False

    def __post_init__(self) -> None:
        if self.zone is not None:
            try:
                ZoneInfo(self.zone)
            except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
                raise SchemaError(
                    f"date {self.name!r} has the zone {self.zone!r}, which is not known: give a name such as "
                    "'Europe/Berlin', or leave it out for UTC."
                ) from None

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """A date has no encoded column of its own."""
        return ()

    @property
    def resolved(self) -> bool:
        """Always true: a date has nothing to discover in a log."""
        return True

    def one_value(self, value: Any) -> float:
        """Days since 1970-01-01 of one context's value, fractions included.

        Raises:
            ContextError: the value is missing or no date.
        """
        if hasattr(value, "as_py"):
            value = value.as_py()
        if isinstance(value, np.datetime64) and not np.isnat(value):
            value = value.astype("datetime64[us]").item()
        if is_missing(value):
            raise ContextError(f"feature {self.name!r} is missing: {NEEDED}")
        if isinstance(value, dict) and len(value) == 1:
            # the form in which labels that are dates travel in JSON
            value = next(iter(value.values()))
        if isinstance(value, str):
            try:
                value = dt.datetime.fromisoformat(value.strip())
            except ValueError:
                raise ContextError(
                    f"feature {self.name!r} is {value!r}, which is no date: write 2024-02-29 or "
                    "2024-02-29T13:45:00+01:00."
                ) from None
        if not isinstance(value, dt.date):
            raise ContextError(f"feature {self.name!r} is {value!r} ({type(value).__name__}), which is no date.")
        if not isinstance(value, dt.datetime):
            value = dt.datetime(value.year, value.month, value.day)
        try:
            return microseconds_since_1970(value, self.zone) / MICROSECONDS_PER_DAY
        except OverflowError:
            raise ContextError(
                f"feature {self.name!r} is {value.isoformat()}, which is beyond the calendar on the clocks of "
                f"{self.zone or 'UTC'}: a year has four digits."
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """A description in plain JSON values; :func:`feature_from_dict` reads it."""
        return {"kind": "date", "name": self.name, "zone": self.zone}


def microseconds_since_1970(moment: dt.datetime, zone: str | None) -> int:
    """Microseconds on the clocks of ``zone`` (UTC if ``None``); a moment without a zone counts as it is written."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC if zone is None else ZoneInfo(zone)).replace(tzinfo=None)
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def is_missing(value: Any) -> bool:
    """Whether a value stands for a gap: ``None``, NaN, NaT, pandas' ``NA``, an Arrow null."""
    if value is None:
        return True
    if type(value) is float:
        return value != value
    if isinstance(value, str | int | bool):
        return False
    if hasattr(value, "as_py"):
        return is_missing(value.as_py())
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # comparing pandas' NA gives NA, which is neither true nor false
        return type(value).__name__ == "NAType"


Feature = Number | Category | Date

_EPOCH = dt.datetime(1970, 1, 1)
#: A number with a decimal comma, as in much of Europe.
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")

#: A number with commas between thousands: 1,234 and 1,234.50.
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")


def comma_message(value: str, name: str, origin: str) -> str | None:
    """What to do about a column of numbers with commas, of which ``value`` is one; None if it is no such number."""
    text = value.strip()
    decimal, thousands = DECIMAL_COMMA.fullmatch(text), _THOUSANDS.fullmatch(text)
    if not decimal and not thousands:
        return None
    pandas = "read the file with pandas.read_csv(..., {}=',') and give the frame."
    if not decimal:
        return (
            f"column {name!r} of {origin} holds numbers with commas between thousands, such as {value!r}. Write them "
            f"without, or {pandas.format('thousands')}"
        )
    also = " If the comma stands between thousands: thousands=','." if thousands else ""
    return (
        f"column {name!r} of {origin} holds numbers with a decimal comma, such as {value!r}. Write them with a point, "
        f"or {pandas.format('decimal')}{also}"
    )


#: Text that stands for a boolean in a file in which everything is text.
BOOLEANS = {"true": 1.0, "false": 0.0}


def feature_from_dict(description: dict[str, Any]) -> Feature:
    """The inverse of ``to_dict`` of any feature."""
    if not isinstance(description.get("name"), str) or description.get("kind") not in ("number", "category", "date"):
        raise SchemaError(f"{description!r} is no feature: it needs a name, and a kind (number, category or date).")
    if description["kind"] == "number":
        return Number(description["name"], description.get("own", True), description.get("assumed", False))
    if description["kind"] == "date":
        return Date(description["name"], description.get("zone"))
    levels = description.get("levels")
    if not isinstance(levels, list | tuple | None):
        raise SchemaError(f"category {description['name']!r} has levels={levels!r}: give a list of them.")
    baseline = description.get("baseline")
    return Category(
        description["name"],
        None if levels is None else tuple(label_from_json(level) for level in levels),
        None if baseline is None else label_from_json(baseline),
        description.get("discovered", False),
        description.get("chosen_baseline", False),
        description.get("own", True),
    )
