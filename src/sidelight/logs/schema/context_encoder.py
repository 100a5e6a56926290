"""Contexts, given by name or as arrays that are encoded already, as encoded vectors."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sidelight.errors import ContextError
from sidelight.labels import show_labels
from sidelight.logs.schema.encoding import Layout, encode_table, may_miss
from sidelight.logs.schema.features import NEEDED, Category, is_missing
from sidelight.logs.schema.naming import by_name, rows_by_name
from sidelight.logs.schema.terms import Inputs

__all__ = ["ContextEncoder"]


class ContextEncoder:
    """Encodes contexts one by one or many at once; ``Schema.encode`` and ``encode_many`` say what they may be.

    Args:
        layout: what a full context is encoded into.
        spans: the encoded columns of each feature, and of each derived one by its label.
    """

    def __init__(self, layout: Layout, spans: Mapping[str, slice]) -> None:
        self._layout, self._spans = layout, spans

    def one(self, context: Any) -> np.ndarray:
        """One context ``x`` (d,), NaN for gaps that are to be inferred."""
        named = by_name(context)
        if named is None:
            return self._checked_array(context, 1)
        x = np.zeros(self._layout.width)
        if self._layout.intercept:
            x[0] = 1.0
        if self._layout.terms:
            return self._with_derived(named, x)
        imputed = self._layout.imputed
        for feature in self._layout.features:
            if feature.name not in named and (feature.name not in imputed or self._typo(feature.name, named)):
                raise ContextError(self._missing_message(named))
            value = named.get(feature.name)
            span = self._spans[feature.name]
            if feature.name in imputed and is_missing(value):
                x[span] = np.nan
                continue
            if isinstance(feature, Category):
                position = feature.position(value)
                if position >= 0:
                    x[span.start + position] = 1.0
            elif feature.own:
                x[span.start] = feature.one_value(value)
        return x

    def _with_derived(self, named: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
        """One context whose derived features are computed by the same functions as those of a log."""
        fills, imputed = self._layout.fills, self._layout.imputed
        inputs = Inputs(1, levels=self._layout.levels)
        gone: set[str] = set()
        for feature in self._layout.features:
            name = feature.name
            if name not in named and ((name not in fills and name not in imputed) or self._typo(name, named)):
                raise ContextError(self._missing_message(named))
            value = named.get(name)
            span = self._spans[name]
            if name in imputed and is_missing(value):
                gone.add(name)
                x[span] = np.nan
                continue
            gap = name in fills and is_missing(value)
            if name in fills:
                inputs.gaps[name] = np.array([gap])
            if isinstance(feature, Category):
                position = -1 if gap else feature.position(value)
                inputs.codes[name] = np.array([-2 if gap else feature.index_of[value]])
                if position >= 0:
                    x[span.start + position] = 1.0
                continue
            fill = fills.get(name)
            number = fill if gap and fill is not None else feature.one_value(value)
            inputs.numbers[name] = np.array([number])
            if feature.own:
                x[span.start] = number
        for term, keep in self._layout.terms:
            span = self._spans[term.label]
            if not gone.isdisjoint(term.inputs):
                x[span] = np.nan
                continue
            for i, column in enumerate(term.columns(inputs, keep)):
                x[span.start + i] = column[0]
            if not np.isfinite(x[span]).all():
                raise ContextError(
                    f"{term.label} is not defined for "
                    + ", ".join(f"{name!r} = {named.get(name)!r}" for name in term.inputs)
                    + ": every feature needs a finite value to decide."
                )
        return x

    def many(self, contexts: Any) -> np.ndarray:
        """Many contexts, however they came, as the encoded matrix ``X`` (n, d)."""
        layout = self._layout
        if isinstance(contexts, np.ndarray) and not contexts.dtype.names:
            return self._checked_array(contexts, 2)
        rows = None if hasattr(contexts, "__arrow_c_stream__") else rows_by_name(contexts)
        if rows is not None:
            return np.array([self._row(i, row) for i, row in enumerate(rows)]).reshape(len(rows), layout.width)
        if isinstance(contexts, Sequence) and not isinstance(contexts, str):
            return self._checked_array(contexts, 2) if len(contexts) else np.empty((0, layout.width))
        return encode_table(contexts, layout)

    def _row(self, i: int, row: Mapping[str, Any]) -> np.ndarray:
        try:
            return self.one(row)
        except ContextError as error:
            raise ContextError(f"row {i}: {error}") from error

    def _checked_array(self, values: Any, dimensions: int) -> np.ndarray:
        d = self._layout.width
        try:
            x = np.array(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ContextError(f"a context must be a mapping or {d} numbers: {error}.") from error
        if x.ndim != dimensions or x.shape[-1] != d:
            raise ContextError(
                f"a context has {d} values ({show_labels(self._layout.names)}), but this has shape {x.shape}."
            )
        finite = np.isfinite(x)
        if self._layout.imputed:
            finite |= np.isnan(x) & may_miss(self._layout)
        if not finite.all():
            where = np.argwhere(~finite)[0]
            row = f" in row {where[0]}" if dimensions == 2 else ""
            name, value = self._layout.names[where[-1]], x[tuple(where)]
            raise ContextError(f"feature {name!r} is {value}{row}: every feature needs a finite value.")
        return x

    def _missing_message(self, context: Mapping[str, Any]) -> str:
        missing = [feature.name for feature in self._layout.features if feature.name not in context]
        message = f"the context lacks {show_labels(missing)}: {NEEDED}"
        for name in missing:
            close = self._typo(name, context)
            if close:
                return message + f" Did you mean {name!r} where it says {close!r}?"
        if not any(isinstance(name, str) for name in context):
            message += " Its values have no names; give numbers in order as an array, to_numpy()."
        return message

    def _typo(self, name: str, context: Mapping[str, Any]) -> str | None:
        """A name in the context that is not a feature but is spelled almost like this one."""
        extra = [key for key in context if isinstance(key, str) and key not in self._spans]
        return next(iter(difflib.get_close_matches(name, extra, 1)), None)
