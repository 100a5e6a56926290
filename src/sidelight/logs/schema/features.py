"""One feature of the context: how its raw values become encoded columns.

A feature is a number, a boolean or a category. The array functions here encode a column of a log, the ``one_*``
functions one value of one context; a test holds the two together for every kind of value.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sidelight.errors import ContextError, SchemaError
from sidelight.labels import Label, label_from_json, label_to_json, plain_label, show_labels

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Category", "Feature", "Number", "feature_from_dict", "number_column"]


@dataclass(frozen=True)
class Number:
    """A number or a boolean (``True`` is 1, ``False`` is 0): one encoded column.

    Attributes:
        name: the column's name.

    Examples:
        >>> import sidelight as sl
        >>> sl.Schema(features=[sl.Number("age"), "weight"], recorded=["age"]).encoded_names
        ('age', 'weight')
    """

    name: str

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """The names of its encoded columns: its own."""
        return (self.name,)

    @property
    def resolved(self) -> bool:
        """A number has nothing to discover."""
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
            number = float(value)
        elif isinstance(value, str):
            try:
                number = _BOOLEANS[value.lower()] if value.lower() in _BOOLEANS else float(value)
            except ValueError:
                raise ContextError(f"feature {self.name!r} is {value!r}, which is not a number.") from None
        elif value is None:
            raise ContextError(f"feature {self.name!r} is missing: every feature needs a value to decide.")
        else:
            raise ContextError(f"feature {self.name!r} is {value!r} ({type(value).__name__}), which is not a number.")
        if not math.isfinite(number):
            raise ContextError(f"feature {self.name!r} is {number}: every feature needs a finite value to decide.")
        return number

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe description."""
        return {"kind": "number", "name": self.name}


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
        """The levels that have a column: all but the baseline."""
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
            raise ContextError(f"feature {self.name!r} is missing: every feature needs a value to decide.")
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
            if self.baseline is not None:
                cached[self.baseline] = -1
            object.__setattr__(self, "_position_of", cached)
        return cached

    def with_levels(self, levels: tuple[Label, ...]) -> Category:
        """The same category with levels found in a log."""
        return replace(self, levels=levels, discovered=True)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe description."""
        return {
            "kind": "category",
            "name": self.name,
            "levels": None if self.levels is None else [label_to_json(level) for level in self.levels],
            "baseline": None if self.baseline is None else label_to_json(self.baseline),
            "discovered": self.discovered,
            "chosen_baseline": self.chosen_baseline,
        }


Feature = Number | Category

# Text that stands for a boolean in a file in which everything is text.
_BOOLEANS = {"true": 1.0, "false": 0.0}


def feature_from_dict(description: dict[str, Any]) -> Feature:
    """The inverse of ``to_dict`` of any feature."""
    if description["kind"] == "number":
        return Number(description["name"])
    levels = description["levels"]
    baseline = description["baseline"]
    return Category(
        description["name"],
        None if levels is None else tuple(label_from_json(level) for level in levels),
        None if baseline is None else label_from_json(baseline),
        description["discovered"],
        description["chosen_baseline"],
    )


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
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _parsed(column, name)
    elif pa.types.is_decimal(kind):
        # By way of text, which is rounded to the nearest float like one value is; Arrow's own cast is not.
        column = column.cast(pa.string())
    elif not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise SchemaError(
            f"column {name!r} holds {kind}, which is not a number. Declare it as a category "
            f"(categories=[{name!r}]), or turn it into a number first."
        )
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
            if text.lower() in _BOOLEANS:
                values[i] = _BOOLEANS[text.lower()]
            else:
                unparsable[i] = True
    return values, unparsable if unparsable.any() else None
