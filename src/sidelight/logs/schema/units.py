"""Encoded contexts back in the user's units: numbers by name, categories by their level."""

from __future__ import annotations

from typing import Any

import numpy as np

from sidelight.labels import Label, label_to_json
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.schema import INTERCEPT, Schema
from sidelight.logs.schema.terms import Missing

__all__ = ["contributions", "in_units", "units_to_json", "values_to_json"]


def in_units(x: np.ndarray, schema: Schema) -> dict[str, Label | None]:
    """Every feature of an encoded context ``x`` (d,) by name; a category whose columns are all 0 has its baseline.

    A gap is ``None``, even if a feature marks it (:class:`sidelight.Missing`): the value that fills it in other columns
    was never observed.

    A column that has no encoded column of its own cannot be read back; the columns derived from it stand for it.
    """
    out: dict[str, Label | None] = {}
    gaps = {term.column for term in schema.derived if isinstance(term, Missing) and x[schema.feature_start(term.label)]}
    for feature in schema.features:
        if not feature.own:
            continue
        if feature.name in gaps:
            out[feature.name] = None
            continue
        start = schema.feature_start(feature.name)
        if isinstance(feature, Category):
            part = x[start : start + len(feature.column_levels)]
            if np.isnan(part).any():
                out[feature.name] = None
                continue
            hot = int(part.argmax()) if len(part) and part.max() > 0 else -1
            out[feature.name] = feature.column_levels[hot] if hot >= 0 else feature.baseline
        else:
            out[feature.name] = _number(x[start])
    for term in schema.derived:
        names = schema.term_names(term)
        start = schema.feature_start(term.label)
        out |= {name: _number(value) for name, value in zip(names, x[start : start + len(names)], strict=True)}
    return out


def _number(value: float) -> float | None:
    return float(value) if value == value else None


def units_to_json(x: np.ndarray, schema: Schema) -> dict[str, Any]:
    """``in_units`` with every level in its JSON form."""
    return {name: None if v is None else label_to_json(v) for name, v in in_units(x, schema).items()}


def values_to_json(x: np.ndarray, schema: Schema) -> dict[str, Any]:
    """The values behind :func:`contributions`, by name; a term with several columns has a mapping of their values."""
    units = units_to_json(x, schema)
    out: dict[str, Any] = {INTERCEPT: 1.0} if schema.intercept else {}
    out |= {feature.name: units[feature.name] for feature in schema.features if feature.own}
    for term in schema.derived:
        columns = {name: units[name] for name in schema.term_names(term)}
        out[term.label] = next(iter(columns.values())) if len(columns) == 1 else columns
    return out


def contributions(x: np.ndarray, weights: np.ndarray, schema: Schema) -> dict[str, float]:
    """``x_i w_i`` per feature and derived feature, in units of the reward; the columns of each are added up.

    The intercept, where there is one, comes first.
    """
    products = x * weights
    out = {INTERCEPT: float(products[0])} if schema.intercept else {}
    for feature in schema.features:
        if feature.own:
            start = schema.feature_start(feature.name)
            out[feature.name] = float(products[start : start + len(feature.encoded_names)].sum())
    for term in schema.derived:
        start = schema.feature_start(term.label)
        out[term.label] = float(products[start : start + len(schema.term_names(term))].sum())
    return out
