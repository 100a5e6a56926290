"""A user's complete table as arrays: the first step of ``ReplayWorld``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sidelight.errors import InvalidRowsError, SchemaError
from sidelight.labels import Label, show_labels, sorted_labels
from sidelight.logs.schema.columns import distinct_labels, number_column
from sidelight.logs.schema.features import Category, Date, Feature
from sidelight.logs.schema.schema import Schema
from sidelight.logs.sources.base import is_text
from sidelight.logs.sources.csv import MISSING_TEXTS, NO_NUMBER
from sidelight.logs.sources.opening import open_source
from sidelight.worlds.protocol import Floats

MISSING = "(missing)"
"""The level of a category whose value is missing."""

OTHER = "(other)"
"""The level of a category that gathers its rare ones."""

RARE = 0.01
"""A level with a smaller share of the rows is rare: a log of a few thousand rows would hardly show it in every arm."""


@dataclass(frozen=True)
class Rows:
    """Complete rows of a table: encoded contexts, and the extra columns asked for."""

    schema: Schema
    """With every category's levels."""
    X: Floats
    """``(n, d)``, encoded as ``schema`` encodes."""
    numbers: dict[str, Floats]
    """Extra number columns, ``(n,)`` each."""
    labels: dict[str, tuple[NDArray[np.intp], tuple[Label, ...]]]
    """Extra label columns: indices ``(n,)`` and the labels, sorted."""
    kept: NDArray[np.intp]
    """Positions of these rows in the table."""
    dropped: dict[str, int]
    """Column → rows dropped because its value was missing (counted at the first such column)."""


def read_rows(source: Any, schema: Schema, numbers: tuple[str, ...] = (), labels: tuple[str, ...] = ()) -> Rows:
    """All features of ``schema``, recorded or not, and extra columns, from anything that a log can be read from.

    A row with a missing number, or with a missing value in an extra column, is dropped and counted. Categories whose
    levels the schema does not declare: a missing value is the level ``(missing)``, levels with less than ``RARE`` of
    the rows are gathered in ``(other)`` (or dropped, if even together they are fewer), and with an intercept the most
    frequent level is the one without a column. Beside ``(missing)`` or ``(other)`` all levels are text.
    """
    features = schema.features
    derived = [*(term.label for term in schema.derived), *(f.name for f in features if isinstance(f, Date))]
    if derived:
        raise SchemaError(
            f"a table that is replayed has numbers and categories, and the schema has {show_labels(derived)}: compute "
            "such columns first, and name them among the features."
        )
    names = [feature.name for feature in features]
    categories = [feature.name for feature in features if isinstance(feature, Category)]
    columns = list(dict.fromkeys([*names, *numbers, *labels]))
    table = _table(source, columns, [*categories, *labels])
    values: dict[str, Floats] = {}
    codes: dict[str, tuple[NDArray[np.intp], tuple[Label, ...]]] = {}
    for name in columns:
        if name in categories or name in labels:
            codes[name] = _codes(table[name], name, missing=name in categories)
        else:
            values[name] = _numbers(table[name], name)
    keep = np.ones(table.num_rows, dtype=bool)
    dropped: dict[str, int] = {}
    for name in columns:
        bad = codes[name][0] < 0 if name in codes else ~np.isfinite(values[name])
        if (bad & keep).any():
            dropped[name] = int((bad & keep).sum())
        keep &= ~bad
    if not keep.any():
        raise InvalidRowsError(
            f"none of the {table.num_rows} rows has a value in every column needed; missing values by column: "
            f"{dropped}. Leave out the emptiest features, or fill them in."
        )
    resolved = _with_levels(schema, codes, keep, dropped)
    return Rows(
        resolved,
        _encoded(resolved, codes, values, keep),
        {name: values[name][keep] for name in numbers},
        {name: (codes[name][0][keep], codes[name][1]) for name in labels},
        np.flatnonzero(keep),
        dropped,
    )


def _encoded(
    schema: Schema,
    codes: dict[str, tuple[NDArray[np.intp], tuple[Label, ...]]],
    values: dict[str, Floats],
    keep: NDArray[np.bool_],
) -> Floats:
    """``X`` (n, d): the kept rows as the schema encodes them.

    Raises:
        SchemaError: a category has a level that the schema does not declare.
    """
    X = np.zeros((int(keep.sum()), schema.n_features))
    if schema.intercept:
        X[:, 0] = 1.0
    for feature in schema.features:
        start = schema.feature_start(feature.name)
        if isinstance(feature, Category):
            indices, found = codes[feature.name]
            unknown = [level for level in found if level not in (feature.levels or ())]
            if unknown:
                raise SchemaError(
                    f"category {feature.name!r} has the level {unknown[0]!r} in the table, which the schema does not "
                    "declare. Declare it"
                    + (f" (as text: it stands beside {MISSING!r})" if MISSING in found else "")
                    + ", or leave the levels out to take those of the table."
                )
            positions = np.array([feature.position(level) for level in found])[indices[keep]]
            shown = positions >= 0
            X[np.flatnonzero(shown), start + positions[shown]] = 1.0
        else:
            X[:, start] = values[feature.name][keep]
    return X


def _with_levels(
    schema: Schema,
    codes: dict[str, tuple[NDArray[np.intp], tuple[Label, ...]]],
    keep: NDArray[np.bool_],
    dropped: dict[str, int],
) -> Schema:
    """The schema with the levels found; rare levels change ``codes``, ``keep`` and ``dropped`` in place."""
    features: list[str | Feature] = []
    for feature in schema.features:
        if not isinstance(feature, Category) or feature.levels is not None:
            features.append(feature)
            continue
        indices, found = codes[feature.name]
        counts = np.bincount(indices[keep], minlength=len(found))
        rare = counts < RARE * keep.sum()
        levels = [level for level, few in zip(found, rare, strict=True) if not few]
        other = len(levels) if counts[rare].sum() >= RARE * keep.sum() else -1
        gathered = np.array([levels.index(level) if level in levels else other for level in found])
        if other >= 0:
            levels = [*_as_text(levels), OTHER]
        indices = gathered[indices]
        codes[feature.name] = indices, tuple(levels)
        if (gone := keep & (indices < 0)).any():
            dropped[feature.name] = dropped.get(feature.name, 0) + int(gone.sum())
            keep &= ~gone
        most = levels[int(np.bincount(indices[keep], minlength=len(levels)).argmax())]
        features.append(Category(feature.name, tuple(levels), baseline=most if schema.intercept else None))
    return Schema(features, schema.recorded, schema.arm, schema.reward, schema.arms, schema.intercept)


def _table(source: Any, columns: list[str], labels: list[str]) -> pa.Table:
    batches = [piece.batch for piece in open_source(source, columns, labels).pieces()]
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


def _codes(column: Any, name: str, missing: bool) -> tuple[NDArray[np.intp], tuple[Label, ...]]:
    """Indices into the sorted labels; what is missing is -1, or the level ``(missing)``."""
    indices, found = distinct_labels(column.combine_chunks(), name)
    present: list[Label] = [label for label in found if label is not None and label not in MISSING_TEXTS]
    ordered = tuple(sorted_labels(present))
    position = {label: i for i, label in enumerate(ordered)}
    code_of = np.array([position.get(label, -1) if label is not None else -1 for label in found] + [-1])
    codes: NDArray[np.intp] = code_of[indices]  # a null has index -1: the last entry
    if missing and (codes < 0).any():
        ordered = (*_as_text(ordered), MISSING)
        codes = np.where(codes < 0, len(ordered) - 1, codes)
    return codes, ordered


def _as_text(levels: Sequence[Label]) -> tuple[Label, ...]:
    """Levels as text, because the level for missing or rare values is text and a column holds labels of one type."""
    return tuple(str(level) for level in levels)


def _numbers(column: Any, name: str) -> Floats:
    """A column as floats, NaN where missing; text is parsed."""
    array = column.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_text(array.type):
        text = pc.utf8_trim_whitespace(array.cast(pa.string()))
        array = pc.if_else(pc.is_in(text, value_set=pa.array([*MISSING_TEXTS, NO_NUMBER])), None, text)
    if pa.types.is_temporal(array.type):
        raise SchemaError(
            f"feature {name!r} holds dates ({array.type}), and a replayed table takes numbers and categories: leave it "
            f"out (--ignore {name} of the command), or put what of it counts, an hour or days since some day, into a "
            "column of its own."
        )
    values, unparsable = number_column(array, name)
    if unparsable is not None:
        value = array[int(unparsable.argmax())].as_py()
        raise SchemaError(
            f"feature {name!r} holds text that is not a number, {value!r}. Declare it as a category: "
            f"categories=[{name!r}]."
        )
    return np.asarray(values)
