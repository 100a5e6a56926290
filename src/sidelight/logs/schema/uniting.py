"""Two parts of one log: the schema they have in common, and how the columns of one become those of the other."""

from __future__ import annotations

import numpy as np

from sidelight.errors import SchemaError
from sidelight.labels import Label, sorted_labels
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.schema import Schema

__all__ = ["column_map", "common_schema"]


def column_map(old: Schema, new: Schema) -> np.ndarray | None:
    """``T`` (L_old, L_new) with ``x_new = x_old T`` for rows seen under ``old``, or ``None`` where it is the identity.

    A level that ``old`` never saw is 0 in its rows. A level that is ``old``'s baseline has no column there, but it is
    the constant less the other levels, so nothing is lost.
    """
    if old.recorded_names == new.recorded_names:
        return None
    where = {name: i for i, name in enumerate(new.recorded_names)}
    T = np.zeros((old.n_recorded, new.n_recorded))
    for i, name in enumerate(old.recorded_names):
        if name in where:
            T[i, where[name]] = 1.0
    for feature in old.recorded_features:
        if not isinstance(feature, Category) or feature.baseline is None:
            continue
        column = where.get(f"{feature.name}={feature.baseline}")
        if column is not None:
            T[0, column] = 1.0
            names = [f"{feature.name}={level}" for level in feature.column_levels]
            T[[old.recorded_names.index(name) for name in names], column] = -1.0
    return T


def common_schema(first: Schema, second: Schema) -> Schema:
    """The schema of two parts of one log; what was discovered is united, what was declared must agree."""
    if first == second:
        return first
    levels: dict[str, tuple[Label, ...]] = {}
    others = {feature.name: feature for feature in second.features}
    for feature in first.features:
        other = others.get(feature.name)
        if isinstance(feature, Category) and isinstance(other, Category) and feature.discovered and other.discovered:
            levels[feature.name] = sorted_labels([*(feature.levels or ()), *(other.levels or ())])
    arms = None
    if first.arms_discovered and second.arms_discovered:
        arms = sorted_labels([*(first.arms or ()), *(second.arms or ())])
    united = first.resolve(arms, levels)
    if united != second.resolve(arms, levels):
        raise SchemaError(_difference(first, second))
    return united


def _difference(first: Schema, second: Schema) -> str:
    a, b = first.to_dict(), second.to_dict()
    names = [name for name in a if a[name] != b[name]]
    detail = "; ".join(f"{name}: {a[name]!r} against {b[name]!r}" for name in names[:2])
    return (
        f"these summaries have different schemas ({detail}), so they are not two parts of one log. Logs with other "
        "recorded columns or arms are given to a fused learner side by side, one estimator for each."
    )
