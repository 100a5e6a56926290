"""Derived features of dates: where in the week, the day or the year one lies, and days since another."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sidelight.errors import SchemaError
from sidelight.labels import Label
from sidelight.logs.schema.entrywise import sine
from sidelight.logs.schema.features import MICROSECONDS_PER_DAY, microseconds_since_1970
from sidelight.logs.schema.terms import ColumnTerm, Inputs, Term, quoted

__all__ = ["DatePart", "DaysSince"]


_PARTS = {"weekday": 7.0, "month": 12.0, "hour": 24.0}


@dataclass(frozen=True)
class DatePart(ColumnTerm):
    """A part of a date as a point on a circle, sine and cosine: ``weekday(visit)``, ``month(visit)``, ``hour(visit)``.

    Attributes:
        column: the date.
        part: ``"weekday"`` (Monday is 0), ``"month"`` (January is 0) or ``"hour"`` (with its fraction).
        zone: the zone whose clocks count, for timestamps that have one; see :class:`sidelight.Date`.

    Examples:
        >>> import sidelight as sl
        >>> schema = sl.Schema([], recorded=["visit"], derived=[sl.DatePart("visit", "hour")])
        >>> schema.encode({"visit": "2024-02-29T06:00"}).round(12).tolist()
        [1.0, 0.0]
    """

    kind = "date"

    column: str
    part: Literal["weekday", "month", "hour"]
    zone: str | None = None

    def __post_init__(self) -> None:
        if self.part not in _PARTS:
            raise SchemaError(f"{self.part!r} is not a part of a date; there are {', '.join(_PARTS)}.")

    @property
    def label(self) -> str:
        """``hour(visit, 'Europe/Berlin')``."""
        return f"{self.part}({quoted(self.column)}{'' if self.zone is None else f', {self.zone!r}'})"

    def names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """Names of the two encoded columns: sine and cosine."""
        return [f"sin {self.part}({self.column})", f"cos {self.part}({self.column})"]

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """Sine and cosine of the part's share of its period."""
        days = values.numbers[self.column]
        known = np.isfinite(days)
        safe = np.where(known, days, 0.0)
        if self.part == "hour":
            turns = safe - np.floor(safe)
        elif self.part == "weekday":
            # 1970-01-01 was a Thursday
            turns = ((np.floor(safe) + 3) % 7) / 7
        else:
            months = np.floor(safe).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
            turns = (months % 12) / 12
        pair = (sine(turns), sine(turns + 0.25))
        return [np.where(known, column, np.nan) for column, kept in zip(pair, keep, strict=True) if kept]


@dataclass(frozen=True)
class DaysSince(ColumnTerm):
    """Days from a day to a date, fractions included: ``days_since(visit, "2020-01-01")``.

    Attributes:
        column: the date.
        origin: the day to count from, ISO text; ``None`` takes the first day of the log.
        origin_found: whether the day comes from the log.
        zone: the zone whose clocks count, for timestamps that have one; see :class:`sidelight.Date`.

    Examples:
        >>> import sidelight as sl
        >>> schema = sl.Schema([], recorded=["visit"], derived=[sl.DaysSince("visit", "2024-01-01")])
        >>> schema.encode({"visit": "2024-01-31"}).tolist()
        [30.0]
    """

    kind = "date"
    learned = "origin"

    column: str
    origin: str | None = None
    origin_found: bool = False
    zone: str | None = None

    def __post_init__(self) -> None:
        if self.origin is not None:
            try:
                object.__setattr__(self, "_day", _day(self.origin))
            except (ValueError, TypeError):
                raise SchemaError(
                    f"days_since({quoted(self.column)}, {self.origin!r}): a day is written 2020-01-01."
                ) from None

    @property
    def label(self) -> str:
        """``days_since(visit, '2020-01-01')``."""
        origin = "" if self.origin is None or self.origin_found else f", {self.origin!r}"
        zone = "" if self.zone is None else f", zone={self.zone!r}"
        return f"days_since({quoted(self.column)}{origin}{zone})"

    def fitted(self, sample: np.ndarray) -> Term:
        """Count from the first day of the sample."""
        first = dt.date(1970, 1, 1) + dt.timedelta(days=math.floor(sample[0]))
        return replace(self, origin=first.isoformat(), origin_found=True)

    def names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """``days_since(visit)``."""
        return [f"days_since({self.column})"]

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """One encoded column (n,): days since the origin, fractions included."""
        return [values.numbers[self.column] - self.__dict__["_day"]]


def _day(text: str) -> float:
    return microseconds_since_1970(dt.datetime.fromisoformat(text), None) / MICROSECONDS_PER_DAY
