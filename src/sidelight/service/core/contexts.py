"""Contexts and arms as they come over the wire: strict reading, and the way back to the user's units.

``Schema.encode`` is lenient, as a reader of files must be (text that looks like a number is one). A service is strict:
JSON knows numbers, so a number in quotes is a mistake worth telling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from sidelight.labels import Label, label_to_json, show_labels
from sidelight.linalg import Array
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.schema import INTERCEPT, Schema
from sidelight.service.problems import Problem, invalid, pointer

__all__ = ["ContextReader", "Labels", "shown"]

_NUMBERS = {int, float}
_VALUES = {int, float, bool}


class Labels:
    """Labels by their JSON form: ``true`` is not ``1`` here, and ``1.0`` is."""

    def __init__(self, labels: Sequence[Label]) -> None:
        self.labels = tuple(labels)
        self.json = [label_to_json(label) for label in self.labels]
        self._index = {_key(form): i for i, form in enumerate(self.json)}

    def __len__(self) -> int:
        return len(self.labels)

    def find(self, value: Any) -> int | None:
        """The label's position, or None."""
        return self._index.get(value) if type(value) is str else self._index.get(_key(value))

    def read(self, value: Any, where: str, what: str = "arm") -> Label:
        """The label itself.

        Raises:
            Problem: there is no such label.
        """
        found = self.find(value)
        if found is None:
            raise invalid(
                where, f"{shown(value)} is not one of the {what}s", f"The {what}s are {show_labels(self.labels)}"
            )
        return self.labels[found]

    def to_json(self, label: Label) -> Any:
        """The JSON form of one label."""
        return label if type(label) is str or type(label) is int else label_to_json(label)

    def json_schema(self) -> dict[str, Any]:
        """One of the labels."""
        return {"enum": self.json}


def _key(form: Any) -> Any:
    kind = type(form)
    if kind is str:
        return form
    if kind is bool:
        return ("boolean", form)
    if kind is int or kind is float:
        return ("number", form)
    if kind is dict and len(form) == 1:
        ((name, text),) = form.items()
        return (name, text) if type(text) is str else None
    return None


def shown(value: Any) -> str:
    """A value for a message, cut short."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class ContextReader:
    """Reads contexts by name or as arrays, strictly, and writes them back in the user's units.

    Args:
        schema: resolved.
        largest: the largest magnitude a number may have; sums of squares of finite numbers can overflow.
    """

    def __init__(self, schema: Schema, largest: float) -> None:
        self.schema = schema
        self.largest = largest
        self.n_features = schema.n_features
        self.names = [feature.name for feature in schema.features]
        self._starts = [schema.feature_start(name) for name in self.names]
        self._levels = {
            feature.name: Labels(feature.levels or ()) for feature in schema.features if isinstance(feature, Category)
        }
        self._columns = {
            feature.name: [feature.position_of[level] for level in feature.levels or ()]
            for feature in schema.features
            if isinstance(feature, Category)
        }

    # ------------------------------------------------------------------------------------- reading

    def read(self, context: Any, where: str) -> Array:
        """One context ``x`` (d,).

        Raises:
            Problem: naming the field and the remedy.
        """
        x = self._fast(context)
        if x is not None:
            return x
        if type(context) is list:
            return self._read_array(context, where)
        if type(context) is not dict:
            raise invalid(
                where,
                f"a context is an object or an array, not {shown(context)}",
                "Give every feature by name, or the encoded numbers in order",
            )
        x = np.zeros(self.n_features)
        if self.schema.intercept:
            x[0] = 1.0
        for name, start in zip(self.names, self._starts, strict=True):
            if name not in context:
                raise invalid(pointer(where, name), "is missing", "Every feature needs a value to decide")
            value = context[name]
            levels = self._levels.get(name)
            if levels is None:
                x[start] = self.number(value, pointer(where, name), booleans=True)
            else:
                level = levels.find(value)
                if level is None:
                    levels.read(value, pointer(where, name), "level")
                    raise AssertionError
                column = self._columns[name][level]
                if column >= 0:
                    x[start + column] = 1.0
        if len(context) > len(self.names):
            unknown = next(name for name in context if name not in self.names)
            raise invalid(
                pointer(where, unknown),
                "is not a feature of this service",
                f"Leave it out; the features are {show_labels(self.names)}",
            )
        return x

    def _fast(self, context: Any) -> Array | None:
        """One context by name where all features are numbers and all is well; None leaves it to the careful way."""
        if self._levels or type(context) is not dict or len(context) != len(self.names):
            return None
        try:
            values = [context[name] for name in self.names]
        except KeyError:
            return None
        if not set(map(type, values)) <= _VALUES or not max(map(abs, values)) <= self.largest:
            return None
        return np.array([1.0, *values] if self.schema.intercept else values, dtype=np.float64)

    def _read_array(self, context: list[Any], where: str) -> Array:
        if len(context) != self.n_features:
            raise invalid(
                where,
                f"has {len(context)} numbers where there are {self.n_features} encoded features",
                f"Give them in the order {show_labels(self.schema.encoded_names)}",
            )
        for i, value in enumerate(context):
            self.number(value, pointer(where, i))
        if self.schema.intercept and context[0] != 1:
            raise invalid(pointer(where, 0), f"is the {INTERCEPT} and not 1", "Put a 1 there")
        return np.array(context, dtype=np.float64)

    def number(self, value: Any, where: str, booleans: bool = False) -> float:
        """A finite number of sensible size.

        Raises:
            Problem: it is something else.
        """
        kind = type(value)
        if kind is not float and kind is not int and not (booleans and kind is bool):
            raise invalid(where, f"{shown(value)} is not a number", "Give a number, without quotes")
        if not math.isfinite(value) if kind is float else False:
            raise invalid(where, f"{value} is not finite", "Give a finite number")
        if abs(value) > self.largest:
            raise invalid(
                where, f"{shown(value)} is larger than {self.largest:g}", "Use a larger unit, or check the value"
            )
        return float(value)

    def read_many(self, contexts: list[Any], where: list[str] | str) -> Array:
        """Many contexts ``X`` (n, d); ``where`` is a pattern with ``{}`` for the position.

        Fast where all is well: whole columns at once. Anything else goes one by one, to say what is wrong.
        """
        X = self._many_arrays(contexts) if type(contexts[0]) is list else self._many_objects(contexts)
        if X is not None and np.abs(X).max(initial=0.0) <= self.largest:
            return X
        pattern = where if isinstance(where, str) else None
        return np.array(
            [self.read(c, pattern.format(i) if pattern is not None else where[i]) for i, c in enumerate(contexts)]
        )

    def _many_arrays(self, contexts: list[Any]) -> Array | None:
        d = self.n_features
        if set(map(type, contexts)) != {list} or set(map(len, contexts)) != {d}:
            return None
        if not set(map(type, chain.from_iterable(contexts))) <= _NUMBERS:
            return None
        try:
            X = np.array(contexts, dtype=np.float64)
        except OverflowError:
            return None
        return X if not self.schema.intercept or (X[:, 0] == 1.0).all() else None

    def _many_objects(self, contexts: list[Any]) -> Array | None:
        if set(map(type, contexts)) != {dict} or set(map(len, contexts)) != {len(self.names)}:
            return None
        X = np.zeros((len(contexts), self.n_features))
        if self.schema.intercept:
            X[:, 0] = 1.0
        rows = np.arange(len(contexts))
        try:
            if not self._levels and len(self.names) > 1:
                values = list(chain.from_iterable(map(itemgetter(*self.names), contexts)))
                if not set(map(type, values)) <= _VALUES:
                    return None
                X[:, int(self.schema.intercept) :] = np.array(values, dtype=np.float64).reshape(len(contexts), -1)
                return X
            for name, start in zip(self.names, self._starts, strict=True):
                column = [context[name] for context in contexts]
                levels = self._levels.get(name)
                if levels is None:
                    if not set(map(type, column)) <= _VALUES:
                        return None
                    X[:, start] = column
                    continue
                columns = self._columns[name]
                found = [levels.find(value) for value in column]
                at = np.array([-2 if level is None else columns[level] for level in found])
                if (at == -2).any():
                    return None
                has = at >= 0
                X[rows[has], start + at[has]] = 1.0
        except (KeyError, OverflowError):
            return None
        return X

    def number_schema(self) -> dict[str, Any]:
        """A finite number of sensible size."""
        return {"type": "number", "minimum": -self.largest, "maximum": self.largest}

    def json_schema(self) -> dict[str, Any]:
        """What a context looks like, for the OpenAPI description."""
        properties: dict[str, Any] = {}
        for feature in self.schema.features:
            if isinstance(feature, Category):
                properties[feature.name] = self._levels[feature.name].json_schema()
            else:
                properties[feature.name] = {"anyOf": [self.number_schema(), {"type": "boolean"}]}
        by_name = {
            "type": "object",
            "description": "every feature by name",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        d = self.n_features
        array: dict[str, Any] = {
            "type": "array",
            "description": "the encoded features in order: " + ", ".join(self.schema.encoded_names[:40]),
            "items": self.number_schema(),
            "minItems": d,
            "maxItems": d,
        }
        if self.schema.intercept:
            array["prefixItems"] = [{"const": 1}]
        return {"anyOf": [by_name, array]}


def unknown_fields(body: dict[str, Any], known: set[str], where: str) -> None:
    """Refuse fields that mean nothing here.

    Raises:
        Problem: there is one.
    """
    for name in body:
        if name not in known:
            raise invalid(
                pointer(where, name),
                "is not a field of this request",
                f"Leave it out; it takes {show_labels(sorted(known))}",
            )


def as_object(body: Any, where: str = "") -> dict[str, Any]:
    """The body of a request, which must be an object.

    Raises:
        Problem: it is something else.
    """
    if type(body) is not dict:
        raise Problem(
            "invalid",
            f"the body must be a JSON object, not {shown(body)}.",
            errors=[{"pointer": where, "detail": "is not an object", "remedy": "Send a JSON object"}],
        )
    return body
