"""Turns encoded contexts into the columns that a log would hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidelight.errors import SchemaError
from sidelight.labels import show_labels
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.schema import Schema
from sidelight.worlds.protocol import Floats


def log_batch(schema: Schema, X: Floats, arm_indices: NDArray[np.intp], rewards: Floats) -> pa.RecordBatch:
    """The rows a log would hold: the recorded features as a user stores them, the arm's label, the reward.

    ``X`` ``(n, d)`` is encoded as ``schema`` encodes; a category comes back as its level, the intercept is
    left out (nobody stores it).
    """
    columns: list[Any] = [feature_column(schema, feature.name, X) for feature in schema.recorded_features]
    names = [feature.name for feature in schema.recorded_features]
    columns += [pa.array(schema.arms).take(pa.array(arm_indices)), pa.array(rewards)]
    return pa.record_batch(columns, names=[*names, schema.arm, schema.reward])


def feature_column(schema: Schema, name: str, X: Floats) -> pa.Array:
    """One feature of the encoded contexts ``X`` ``(n, d)`` as raw values ``(n,)``."""
    start = schema.feature_start(name)
    feature = next(feature for feature in schema.features if feature.name == name)
    if not isinstance(feature, Category):
        return pa.array(np.ascontiguousarray(X[:, start]))
    levels = [*feature.column_levels, *([] if feature.baseline is None else [feature.baseline])]
    shown = X[:, start : start + len(feature.column_levels)] > 0.5
    # no level shown means the baseline, which is last in ``levels``
    positions = np.where(shown.any(axis=1), shown.argmax(axis=1), len(levels) - 1)
    try:
        column = pa.array(levels)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaError(
            f"category {name!r} has levels of different types ({show_labels(levels)}), which no column of a log can "
            "hold. Declare them all as text."
        ) from error
    return column.take(pa.array(positions))
