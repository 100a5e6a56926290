"""Two parts of one log: the schema they have in common, and how the columns of one become those of the other."""

from __future__ import annotations

import numpy as np

from sidelight.errors import SchemaError
from sidelight.labels import Label, sorted_labels
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.schema import Schema
from sidelight.logs.schema.terms import Product

__all__ = ["column_map", "common_schema"]


def column_map(old: Schema, new: Schema) -> np.ndarray | None:
    """``T`` (L_old, L_new) with ``x_new = x_old T`` for rows seen under ``old``, or ``None`` where it is the identity.

    A level that ``old`` never saw is 0 in its rows. A level that has no column there is the constant less the other
    levels, and in a product what it is multiplied with less the other levels' products, so nothing is lost.
    """
    if old.recorded_names == new.recorded_names:
        return None
    expressed = _Expressed(old)
    T = np.zeros((old.n_recorded, new.n_recorded))
    for j, parts in enumerate(_parts(new)):
        T[:, j] = expressed.column(parts)
    return T


def _parts(schema: Schema) -> list[tuple[str, ...]]:
    """For each recorded column, the names of the columns whose product it is; its own name if it is not a product."""
    layout = schema.layout()
    products = {
        ":".join(combination): combination
        for term, _ in layout.terms
        if isinstance(term, Product)
        for combination in term.combinations(layout.levels)
    }
    return [products.get(name, (name,)) for name in schema.recorded_names]


class _Expressed:
    """Columns as combinations of the recorded columns of a schema."""

    def __init__(self, schema: Schema) -> None:
        self._where = {name: i for i, name in enumerate(schema.recorded_names)}
        self._intercept = schema.intercept
        self._levels: dict[str, tuple[str, ...]] = {}
        for feature in schema.recorded_features:
            if isinstance(feature, Category):
                names = tuple(f"{feature.name}={level}" for level in feature.levels or ())
                self._levels |= dict.fromkeys(names, names)

    def column(self, parts: tuple[str, ...]) -> np.ndarray:
        """(L,) such that the product of these columns is ``x_o`` times it, in rows seen under the schema."""
        out = np.zeros(len(self._where))
        name = ":".join(parts)
        if name in self._where or (not parts and self._intercept):
            out[self._where.get(name, 0)] = 1.0
            return out
        for i, part in enumerate(parts):
            if part in self._levels:
                out += self.column(parts[:i] + parts[i + 1 :])
                for level in self._levels[part]:
                    if level != part:
                        out -= self.column((*parts[:i], level, *parts[i + 1 :]))
                return out
        return out


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
