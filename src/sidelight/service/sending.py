"""Conversion of Python values to the JSON that a client sends: NumPy and Arrow scalars, dates, gaps; and its errors."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import numbers
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from sidelight.errors import InputError
from sidelight.logs.schema.features import is_missing
from sidelight.logs.schema.naming import by_name

__all__ = ["Context", "ask_body", "context_body", "given", "one_each", "to_json"]

Context: TypeAlias = Mapping[str, Any] | Sequence[float]


def ask_body(context: Context, allowed: Any, behavior: Any, probabilities: Any, subject: str | None) -> dict[str, Any]:
    """The body of a request for one decision, without the fields that are None."""
    body: dict[str, Any] = {"context": context_body(context)}
    answer = given(arm=behavior, probabilities=None if probabilities is None else list(probabilities))
    if answer:
        body["behavior"] = answer
    return body | given(allowed=None if allowed is None else list(allowed), subject=subject)


def one_each(name: str, values: Sequence[Any] | None, n: int) -> Sequence[Any]:
    """``values``, checked to have one entry per context; ``n`` times None where there are none."""
    if values is None:
        return [None] * n
    if isinstance(values, str) or len(values) != n:
        seen = f"the text {values!r}" if isinstance(values, str) else f"{len(values)} entries"
        raise InputError(f"{name} is {seen} for {n} contexts: give a list with one entry for each, None where none.")
    return values


def context_body(context: Context) -> Any:
    """A context as a request has it: values by feature name, or the encoded numbers in order; gaps are null.

    Raises:
        InputError: it is neither.
    """
    named = by_name(context)
    if named is None:
        try:
            return [None if is_missing(value) else float(value) for value in context]
        except (TypeError, ValueError):
            raise InputError(
                f"{reprlib.repr(context)} is not a context: give every feature by name, or the encoded numbers in "
                "order."
            ) from None
    return {str(name): _as_json(value) for name, value in named.items()}


def _as_json(value: Any) -> Any:
    """A value of a context as JSON: scalars as Python's own, dates as ISO text, gaps as null."""
    if isinstance(value, np.generic):
        value = value.item()
    elif hasattr(value, "as_py"):
        value = value.as_py()
    if is_missing(value):
        return None
    if isinstance(value, dt.date):
        return value.isoformat()
    return float(value) if isinstance(value, decimal.Decimal) else value


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not missing: neither None, nor NaN and the like, which data frames have for it."""
    return {name: value for name, value in fields.items() if not is_missing(value)}


def to_json(body: Any) -> bytes:
    """A body as JSON.

    Raises:
        InputError: a number is not finite, or a value has no JSON form; the message names the fields.
    """
    wrong = [f"{where} is {value!r}" for where, value in _unfit(body, "")]
    if wrong:
        raise InputError(
            f"{', '.join(wrong[:10])}{' …' if len(wrong) > 10 else ''}: the service takes finite numbers, text, true "
            "and false. Fill in what is missing, or do not ask for this decision."
        )
    return json.dumps(body, separators=(",", ":"), default=_plain).encode()


def _unfit(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Place and value of everything in the body that has no JSON form."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _unfit(inner, f"{where}/{name}")
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from _unfit(inner, f"{where}/{i}")
    elif isinstance(value, str | bool | numbers.Integral | type(None)):
        return
    elif not isinstance(value, numbers.Real | decimal.Decimal) and not hasattr(value, "item"):
        yield where, value
    elif isinstance(value, numbers.Real | decimal.Decimal) and not math.isfinite(value):
        yield where, float(value)


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python's own; another kind of number as a float."""
    return value.item() if hasattr(value, "item") else float(value)
