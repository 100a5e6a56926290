"""Conversion of the contexts in messages to encoded vectors.

A value by name is read as ``Schema.encode`` reads it, so that the same row gives the same decision in Python and over
HTTP: a number may stand in quotes, because decimals and integers that are kept as text come so from most programs
(plain decimals: an exponent or white space is an error).
An array holds the encoded numbers themselves, which must be JSON numbers, not text.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from array import array
from collections.abc import Sequence
from types import GenericAlias
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec.structs import astuple

from sidelight.errors import ContextError
from sidelight.linalg import Array
from sidelight.logs.schema.features import Category, Date, Feature, Number
from sidelight.logs.schema.schema import INTERCEPT, Schema
from sidelight.service.checking import FieldError, ObjectWords, shown
from sidelight.service.http.rules import LabelSet, Unfit
from sidelight.service.problems import pointer

__all__ = ["Contexts", "array_of"]

#: characters of a number in quotes: a double in full has at most 24, and a decimal may have more
LONGEST_NUMBER = 64
#: the error where Python would read a text as a number, and this service does not
PLAIN = "not a plain decimal"


def quoted_pattern(largest: float) -> str:
    """A regular expression of the numbers that may stand in quotes: plain decimals below ``largest``, no exponents."""
    return rf"^-?[0-9]{{1,{max(math.floor(math.log10(largest)), 1)}}}(\.[0-9]{{1,30}})?$"


class Contexts:
    """The two forms of a context, every feature by name or the encoded numbers in order, and how each is encoded.

    Args:
        schema: resolved.
        largest: the largest magnitude a number may have; sums of squares of finite numbers can overflow.

    Attributes:
        number: the type of a number of sensible size.
        named: the type of a context by name, a struct with the features as fields.
        either: the type of a context in a message.
        words: the texts of errors in a context by name.
    """

    def __init__(self, schema: Schema, largest: float) -> None:
        self.schema = schema
        self.n_features = schema.n_features
        self.names = [feature.name for feature in schema.features]
        self.levels = {
            feature.name: LabelSet(feature.levels or (), "level")
            for feature in schema.features
            if isinstance(feature, Category)
        }
        self.number = Annotated[float, msgspec.Meta(ge=-largest, le=largest)]
        self._largest = largest
        self._gaps = schema.may_miss if schema.imputed else None
        may_miss = schema.whole_layout.fills.keys() | schema.whole_layout.imputed
        # Features may have any name, so the struct numbers them and renames them on the wire.
        self.named = msgspec.defstruct(
            "Context",
            [
                _field(f"feature_{i}", self._kind(feature), feature.name in may_miss)
                for i, feature in enumerate(schema.features)
            ],
            rename={f"feature_{i}": name for i, name in enumerate(self.names)},
            forbid_unknown_fields=True,
            gc=False,
            kw_only=True,
        )
        self.words = ObjectWords(
            "is not a feature of this service",
            "the features are",
            'Every feature needs a value to decide, unless the schema lets it be missing: missing = "impute"',
        )
        encoded: Any = Annotated[
            array_of(self.number if self._gaps is None else self.number | None),
            msgspec.Meta(
                min_length=self.n_features,
                max_length=self.n_features,
                description="the encoded features in order: " + ", ".join(schema.encoded_names[:40]),
                extra_json_schema={"prefixItems": [{"const": 1}]} if schema.intercept else None,
                extra={
                    "rule": _Array(schema),
                    "remedy": f"Give the {self.n_features} encoded numbers in the order "
                    + ", ".join(schema.encoded_names[:8])
                    + (", …" if self.n_features > 8 else ""),
                },
            ),
        ]
        self.either = Annotated[
            self.named | encoded,
            msgspec.Meta(
                description="every feature by name, or the encoded numbers in order",
                extra={
                    "missing": "Every decision needs a context",
                    "noun": "a context",
                    "remedy": "Give every feature by name, or the encoded numbers in order",
                    **({"rule": _Derived(schema)} if schema.derived or schema.imputed else {}),
                },
            ),
        ]
        # One number per field and nothing else: then the fields in order are the vector.
        self._plain = not self.levels and not schema.derived
        self._first = int(schema.intercept)
        self._columns: list[tuple[int, LabelSet | None, list[int]]] = [
            (
                schema.feature_start(feature.name),
                self.levels.get(feature.name),
                [feature.position_of[level] for level in feature.levels or ()] if isinstance(feature, Category) else [],
            )
            for feature in schema.features
        ]

    def _kind(self, feature: Feature) -> Any:
        if isinstance(feature, Category):
            return _level(self.levels[feature.name])
        if isinstance(feature, Date):
            return Annotated[str, msgspec.Meta(description="a date or a time, ISO 8601", extra={"rule": _Day(feature)})]
        quoted = msgspec.Meta(
            max_length=LONGEST_NUMBER,
            description="a number in quotes",
            extra={"rule": _Quoted(feature, self._largest)},
            extra_json_schema={"pattern": quoted_pattern(self._largest)},
        )
        return self.number | bool | Annotated[str, quoted]

    def _read(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values of a context by name; numbers in quotes are converted to floats."""
        if str not in map(type, values):
            return values
        return [
            _unquoted(feature, value, self._largest) if type(value) is str and isinstance(feature, Number) else value
            for feature, value in zip(self.schema.features, values, strict=True)
        ]

    def _derived(self, values: Sequence[Any]) -> Array:
        """Encode one context by name, through the schema because it has derived features."""
        named: dict[str, Any] = {}
        for name, value in zip(self.names, values, strict=True):
            levels = self.levels.get(name)
            named[name] = value if levels is None or value is None else levels.read(value)
        try:
            return self.schema.encode(named)
        except ContextError as error:
            raise Unfit(str(error)) from error

    def encode(self, context: Any) -> Array:
        """One context ``x`` (d,).

        Raises:
            Unfit: a level is unknown, text is not a number, a derived feature is not defined, an array does not begin
                with the intercept's 1, or a value is missing that may not be.
        """
        if type(context) is list:
            if self._first and context[0] != 1.0:
                raise Unfit
            return self._checked(np.array(context, dtype=np.float64))
        values: Sequence[Any] = astuple(context)
        if self._plain:
            intercept = (1.0,) if self._first else ()
            try:
                # an array takes nothing but numbers, so there is no need to look for text first
                return self._checked(np.frombuffer(array("d", (*intercept, *values))))
            except TypeError:
                return self._checked(np.array((*intercept, *self._read(values)), dtype=np.float64))
        values = self._read(values)
        if self.schema.derived:
            return self._derived(values)
        x = np.zeros(self.n_features)
        if self._first:
            x[0] = 1.0
        for value, (start, levels, positions) in zip(values, self._columns, strict=True):
            if levels is None:
                x[start] = value
                continue
            if value is None and self._gaps is not None and self._gaps[start]:
                x[start : start + 1 + max(positions)] = np.nan
                continue
            level = levels.find(value)
            if level is None:
                raise Unfit
            if positions[level] >= 0:
                x[start + positions[level]] = 1.0
        return self._checked(x)

    def _checked(self, x: Array) -> Array:
        """``x`` (…, d), once checked: only features that may be missing are, and no context is all gaps."""
        if self._gaps is not None:
            gone = np.isnan(x)
            if (gone & ~self._gaps).any() or gone.all(axis=-1).any():
                raise Unfit
        return x

    def encode_many(self, contexts: Sequence[Any]) -> Array:
        """Many contexts ``X`` (n, d), whole columns at once where all are by name or all are arrays.

        Raises:
            Unfit: as ``encode``.
        """
        kinds = set(map(type, contexts))
        if kinds == {list}:
            X = np.array(contexts, dtype=np.float64)
            if self._first and not (X[:, 0] == 1.0).all():
                raise Unfit
            return self._checked(X)
        if kinds != {self.named} or (self._gaps is not None and self.levels):
            return np.array([self.encode(context) for context in contexts])
        rows: list[Sequence[Any]] = list(map(astuple, contexts))
        values = _numbers(rows) if self._plain else None
        if values is None:
            rows = [self._read(row) for row in rows]
        if self._plain:
            values = np.array(rows, dtype=np.float64) if values is None else values
            return self._checked(np.hstack([np.ones((len(rows), 1)), values]) if self._first else values)
        if self.schema.derived:
            return np.array([self._derived(row) for row in rows])
        X = np.zeros((len(rows), self.n_features))
        if self._first:
            X[:, 0] = 1.0
        every = np.arange(len(rows))
        for column, (start, levels, positions) in zip(zip(*rows, strict=True), self._columns, strict=True):
            if levels is None:
                X[:, start] = column
                continue
            found = [levels.find(value) for value in column]
            if None in found:
                raise Unfit
            at = np.array([positions[level] for level in found if level is not None])
            X[every[at >= 0], start + at[at >= 0]] = 1.0
        return X


def array_of(item: Any) -> Any:
    """The type of a list whose entries have a type that is only known here."""
    return GenericAlias(list, (item,))


def _numbers(rows: Sequence[Sequence[Any]]) -> Array | None:
    """Rows of numbers as an array, in a third of the time of ``np.array``; None where a value is no number."""
    try:
        packed = struct.pack(f"{len(rows) * len(rows[0])}d", *itertools.chain.from_iterable(rows))
    except struct.error:
        return None
    return np.frombuffer(packed).reshape(len(rows), -1).copy()


def _level(levels: LabelSet) -> Any:
    return Annotated[Any, msgspec.Meta(extra_json_schema={"enum": levels.json}, extra={"rule": levels})]


def _field(name: str, kind: Any, may_miss: bool) -> tuple[Any, ...]:
    return (name, kind | None if type(kind) is not GenericAlias else kind, None) if may_miss else (name, kind)


def _unquoted(feature: Number, text: str, largest: float) -> float:
    """A number that came as text.

    Raises:
        Unfit: it is none, or none of a sensible size.
    """
    try:
        number = feature.one_value(text)
    except ContextError as error:
        raise Unfit(str(error)) from error
    if abs(number) > largest:
        raise Unfit
    if not re.fullmatch(quoted_pattern(largest), text):
        raise Unfit(PLAIN)
    return number


class _Quoted:
    """The rule that a text is a plain decimal within the largest magnitude."""

    def __init__(self, feature: Number, largest: float) -> None:
        self._feature, self._largest = feature, largest

    def errors(self, value: Any, where: str) -> Any:
        """An error unless the text is such a number."""
        try:
            _unquoted(self._feature, value, self._largest)
        except Unfit as error:
            comma = " with a decimal point" if "decimal point" in str(error) else ""
            wrong = "is not a number" if error.args else f"is larger than {self._largest:g}"
            if error.args == (PLAIN,):
                wrong = "is not a plain decimal such as 12.5, which is what may stand in quotes"
            yield FieldError(where, f"{shown(value)} {wrong}", f"Give a finite number{comma}")


class _Day:
    """The rule that a text is a date or a time in ISO 8601."""

    def __init__(self, feature: Date) -> None:
        self._feature = feature

    def errors(self, value: Any, where: str) -> Any:
        """An error unless the text is a date."""
        try:
            self._feature.one_value(value)
        except ContextError:
            yield FieldError(where, f"{shown(value)} is no date", "Write 2024-02-29 or 2024-02-29T13:45:00+01:00")


class _Derived:
    """The rule that a context has a value (an intercept counts), and that its derived features are defined."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def errors(self, value: Any, where: str) -> Any:
        """An error where a derived feature is not defined, such as the logarithm of 0, or nothing is said at all."""
        if all(v is None for v in (value.values() if type(value) is dict else value)) and not self._schema.intercept:
            yield FieldError(where, "has no value at all", "Give at least one")
        elif type(value) is dict:
            labels = {f.name: LabelSet(f.levels or ()) for f in self._schema.features if isinstance(f, Category)}
            read = {n: labels[n].read(v) if n in labels and v is not None else v for n, v in value.items()}
            try:
                self._schema.encode(read)
            except ContextError as error:
                yield FieldError(where, str(error).rstrip("."), "Give values for which every feature is defined")


class _Array:
    """The rule that an encoded context begins with the intercept, if there is one, and lacks only optional values."""

    def __init__(self, schema: Schema) -> None:
        self._intercept = schema.intercept
        self._needed = np.flatnonzero(~schema.may_miss) if schema.imputed else np.zeros(0, dtype=np.int64)

    def errors(self, values: list[float | None], where: str) -> Any:
        """An error unless the first number is 1, and for every number that is missing and may not be."""
        if self._intercept and values[0] != 1:
            yield FieldError(pointer(where, 0), f"is the {INTERCEPT} and not 1", "Put a 1 there")
        for i in self._needed[self._intercept :].tolist():
            if values[i] is None:
                yield FieldError(pointer(where, i), "is missing", "This feature needs a value to decide")
