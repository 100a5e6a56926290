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

from sidelight.labels import typed_labels
from sidelight.logs.sources.base import is_text
from sidelight.logs.sources.csv import NO_NUMBER

__all__ = ["MANY_LEVELS", "NUMBER", "Kind", "NotWhole", "Profile", "profile_of", "repaired"]

#: a text column with more different values is a name or a remark, not a category
MANY_LEVELS = 50
#: distinct values that are kept; more are only counted
MANY = 60
#: the share of values that must be numbers (or dates) for a column to be one; the rest cannot be used
MOSTLY = 0.98

Kind = Literal["number", "integer", "boolean", "date", "text", "empty", "other"]

#: a number as programs write it
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMMA = re.compile(r"[+-]?([1-9]\d{0,2}(\.\d{3})+|\d+)?,\d+")
_WHOLE = re.compile(r"[+-]?([1-9]\d{0,2}(\.\d{3})+|\d+)")
# no separator follows a leading zero: "0,512" is half of one, never 512
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
#: fits ``_THOUSANDS`` and ``_COMMA`` alike
_EITHER = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_MONEY = re.compile(r"^(?:[€$£¥]|EUR|USD|CHF|GBP)\s*|\s*(?:[€$£¥%]|EUR|USD|CHF|GBP)$")
_SIGNS = {"EUR": "€", "USD": "$", "GBP": "£"}
_BOOLEAN = frozenset(["true", "false"])
_DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y")
_TIMES = ("", " %H:%M", " %H:%M:%S")


class NotWhole(Exception):
    """A column that was taken for whole numbers has others too."""


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
        signs: the units that its values are written with, such as € and $; an empty text beside a per cent sign stands
            for values without it.
        decimal: the sign before decimals, ``,`` or ``.``, where the values leave no doubt; "1,234" and "1.234" do.
        coded: whether whole numbers are written with zeros before them, as codes are.
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
    signs: tuple[str, ...] = ()
    decimal: str = ""
    coded: bool = False
    rising: bool = False
    sequence: bool = False
    span: float = 0.0
    timed: bool = False

    @property
    def missing_share(self) -> float:
        """The part of the rows without a value."""
        return self.missing / self.rows if self.rows else 1.0


def profile_of(name: str, column: pa.ChunkedArray, decimal: str = "") -> Profile:
    """What the values of a column are.

    Args:
        name: of the column.
        column: its values.
        decimal: the sign before decimals in the rest of the file; decides where this column alone does not.
    """
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
        typed = typed_labels(labels) if kind == "integer" else labels
        return Profile(name, kind, rows, missing, len(counts), levels, typed, str(values[0]), **more)

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
        found = profile_of(name, rest, decimal)
        if found.kind != "text":
            return found
    return _of_texts(texts, made, decimal)


def _of_texts(texts: list[str], made: Callable[..., Profile], decimal: str) -> Profile:
    """The profile, completed by ``made``, of a column that is written as text: its kind and what must be repaired."""
    enough = MOSTLY * len(texts)

    def share(pattern: re.Pattern[str], values: Sequence[str]) -> int:
        return sum(pattern.fullmatch(value) is not None for value in values)

    if {text.lower() for text in texts} <= _BOOLEAN:
        return made("boolean")
    dotted = decimal == "," and any("." in text for text in texts) and share(_WHOLE, texts) >= enough
    if share(NUMBER, texts) >= enough and not dotted:
        numbers = [text for text in texts if NUMBER.fullmatch(text)]
        whole = all("." not in text and "e" not in text.lower() for text in numbers)
        return made(
            "integer" if whole else "number",
            decimal=_sure_point(numbers),
            coded=whole and any(re.fullmatch(r"[+-]?0\d+", text) for text in numbers),
            **_order(_whole_numbers(numbers)),
        )
    signs = [_MONEY.findall(text) for text in texts]
    bare = [_MONEY.sub("", text) for text in texts]
    money = bare != texts
    notations = []
    for pattern, repair in ((NUMBER, "money"), (_THOUSANDS, "thousands"), (_COMMA, "comma")):
        plain = sum(_fits_beside(pattern, text) for text in bare)
        if plain >= enough and share(pattern, bare) and (pattern is not NUMBER or money):
            notations.append((plain, repair))
    if dotted:
        notations = [(len(texts), "comma")]
    if notations:
        repair = _likeliest(notations, bare, decimal)
        sure = "," if repair == "comma" and not all(map(_EITHER.fullmatch, bare)) else _sure_point(bare)
        return made("number", repair=repair, signs=_units(signs, bare), decimal=sure)
    found = _date_format(texts)
    if found is not None:
        written, days, timed = found
        repair = "" if written == "iso" else written
        return made("date", span=max(days) - min(days), timed=timed, repair=repair)
    return made("text")


def _likeliest(notations: Sequence[tuple[int, str]], bare: Sequence[str], decimal: str) -> str:
    """The notation that fits most values, the first of those that fit as many.

    "1,234" may be 1234 or a little more than 1. Where all values are of this form the rest of the file decides.
    """
    if decimal == "," and all(map(_EITHER.fullmatch, bare)):
        return "comma"
    return max(notations, key=lambda found: found[0])[1]


def _sure_point(texts: Sequence[str]) -> str:
    """``.`` if some value has a decimal point that cannot be a separator of thousands."""
    return "." if any("." in text and not _WHOLE.fullmatch(text) and "," not in text for text in texts) else ""


def _units(signs: Sequence[Sequence[str]], bare: Sequence[str]) -> tuple[str, ...]:
    """The signs that values are written with; "" beside a per cent sign if some value other than 0 has none."""
    found = {_SIGNS.get(sign.strip(), sign.strip()) for each in signs for sign in each}
    if "%" in found and any(not each and re.search("[1-9]", text) for each, text in zip(signs, bare, strict=True)):
        found.add("")
    return tuple(sorted(found))


def _fits_beside(pattern: re.Pattern[str], text: str) -> bool:
    """Whether a value is a number in this notation, or one that looks the same in all notations."""
    if pattern.fullmatch(text):
        return True
    return bool((_WHOLE if pattern is _COMMA else NUMBER).fullmatch(text))


def _whole_numbers(numbers: Sequence[str]) -> list[int]:
    """The values if all are whole, also where they are written 1.0 as by a program that had gaps; empty if not."""
    if not all(re.fullmatch(r"[+-]?\d{1,18}(\.0*)?", text) for text in numbers):
        return []
    return [int(text.split(".")[0]) for text in numbers]


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
    different = list(dict.fromkeys(texts))
    try:
        read = [dt.datetime.fromisoformat(text) for text in different]
        if all(re.match(r"\d{4}-\d{2}-\d{2}", text) for text in different):
            return "iso", [_days(value) for value in read], any(value.time() != dt.time() for value in read)
    except ValueError:
        pass
    fitting = []
    for day in _DATES:
        for time in _TIMES:
            try:
                read = [dt.datetime.strptime(text, day + time) for text in different]
            except ValueError:
                continue
            fitting.append((day + time, [_days(value) for value in read], bool(time)))
    return fitting[0] if len(fitting) == 1 else None


def repaired(column: pa.Array, profile: Profile) -> pa.Array:
    """A column with the repair of its profile made; values that do not fit its kind become null.

    Raises:
        NotWhole: the profile says whole numbers, and here are others.
    """
    if not is_text(column.type):
        return column
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    if profile.kind == "date" and profile.repair:
        return pc.strptime(text, format=profile.repair, unit="s", error_is_null=True)
    if profile.kind not in ("number", "integer") or profile.coded:
        return text
    if profile.repair:
        text = pc.replace_substring_regex(text, _MONEY.pattern, "")
    if profile.repair == "comma":
        text = pc.replace_substring(pc.replace_substring(text, ".", ""), ",", ".")
    elif profile.repair == "thousands":
        text = pc.replace_substring(text, ",", "")
    good = pc.match_substring_regex(text, f"^({NUMBER.pattern})$")
    numbers = pc.if_else(good, text, pa.scalar(None, pa.string()))
    if profile.kind == "number":
        return numbers.cast(pa.float64())
    try:
        # labels of arms and categories: 1 must not become 1.0
        return pc.replace_substring_regex(numbers, r"^\+", "").cast(pa.int64())
    except pa.ArrowInvalid:
        raise NotWhole(profile.name) from None
