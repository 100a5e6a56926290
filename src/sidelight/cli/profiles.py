"""What kind of values a column holds, judged by the first rows, and the column with its notation repaired."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from sidelight.logs.sources.csv import NO_NUMBER

__all__ = ["NUMBER", "Kind", "Profile", "profile_of", "repaired"]

#: distinct values that are kept; more are only counted
MANY = 60
#: the share of values that must be numbers (or dates) for a column to be one; the rest cannot be used
MOSTLY = 0.98

Kind = Literal["number", "integer", "boolean", "date", "text", "empty", "other"]

#: a number as programs write it
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
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
        rising: whether the values are whole numbers, each larger than the one before; sequence: by one each time.
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
    rising: bool = False
    sequence: bool = False
    span: float = 0.0
    timed: bool = False

    @property
    def missing_share(self) -> float:
        """The part of the rows without a value."""
        return self.missing / self.rows if self.rows else 1.0


def profile_of(name: str, column: pa.ChunkedArray) -> Profile:
    """What the values of a column are."""
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

    def made(kind: Kind, **more: Any) -> Profile:
        levels = tuple(map(str, labels))
        return Profile(name, kind, rows, missing, len(counts), levels, labels, str(values[0]), **more)

    if pa.types.is_boolean(kind):
        return made("boolean")
    if pa.types.is_integer(kind):
        return made("integer", **_order(values))
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return made("number", **(_order(values) if all(float(value).is_integer() for value in values) else {}))
    if pa.types.is_temporal(kind):
        days = [_days(value) for value in values]
        timed = any(isinstance(value, dt.datetime) and value.time() != dt.time() for value in values)
        return made("date", span=max(days) - min(days), timed=timed)
    texts = [str(value).strip() for value in values]
    if NO_NUMBER in texts:
        # "None" is a missing value in a column of numbers or dates; in a column of text it is a value, such as an arm
        rest = pc.if_else(pc.equal(column.cast(pa.string()), NO_NUMBER), None, column.cast(pa.string()))
        found = profile_of(name, rest)
        if found.kind != "text":
            return found
    return _of_texts(texts, made)


def _of_texts(texts: list[str], made: Callable[..., Profile]) -> Profile:
    """The profile, completed by ``made``, of a column that is written as text: its kind and what must be repaired."""
    enough = MOSTLY * len(texts)

    def share(pattern: re.Pattern[str], values: Sequence[str]) -> int:
        return sum(pattern.fullmatch(value) is not None for value in values)

    if {text.lower() for text in texts} <= _BOOLEAN:
        return made("boolean")
    if share(NUMBER, texts) >= enough:
        whole = all("." not in text and "e" not in text.lower() for text in texts if NUMBER.fullmatch(text))
        return made(
            "integer" if whole else "number",
            **_order([int(text) for text in texts if re.fullmatch(r"[+-]?\d{1,18}", text)] if whole else ()),
        )
    bare = [_MONEY.sub("", text) for text in texts]
    money = bare != texts
    for pattern, repair in ((NUMBER, "money"), (_THOUSANDS, "thousands"), (_COMMA, "comma")):
        fitting = share(pattern, bare)
        plain = sum(_fits_beside(pattern, text) for text in bare)
        if fitting and plain >= enough and (pattern is not NUMBER or money):
            return made("number", repair=repair)
    found = _date_format(texts)
    if found is not None:
        written, days, timed = found
        repair = "" if written == "iso" else written
        return made("date", span=max(days) - min(days), timed=timed, repair=repair)
    return made("text")


def _fits_beside(pattern: re.Pattern[str], text: str) -> bool:
    """Whether a value is a number in this notation, or one that looks the same in all notations."""
    if pattern.fullmatch(text):
        return True
    return bool((_WHOLE if pattern is _COMMA else NUMBER).fullmatch(text))


def _order(values: Sequence[Any]) -> dict[str, bool]:
    """What a profile says about the order of whole numbers."""
    steps = [later - earlier for earlier, later in pairwise(values)]
    enough = len(values) > 2
    return {"rising": enough and min(steps) > 0, "sequence": enough and min(steps) == max(steps) == 1}


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


def repaired(column: pa.Array, profile: Profile) -> pa.Array:
    """A column with the repair of its profile made; values that do not fit its kind become null."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return column
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    if profile.kind == "date" and profile.repair:
        return pc.strptime(text, format=profile.repair, unit="s", error_is_null=True)
    if profile.kind not in ("number", "integer"):
        return text
    if profile.repair:
        text = pc.replace_substring_regex(text, _MONEY.pattern, "")
    if profile.repair == "comma":
        text = pc.replace_substring(pc.replace_substring(text, ".", ""), ",", ".")
    elif profile.repair == "thousands":
        text = pc.replace_substring(text, ",", "")
    good = pc.match_substring_regex(text, f"^{NUMBER.pattern}$")
    return pc.if_else(good, text, pa.scalar(None, pa.string())).cast(pa.float64())
