"""The one pass over a log."""

from __future__ import annotations

from typing import Any

import numpy as np

from sidelight.errors import InputError, InvalidRowsError, SchemaError, SourceError
from sidelight.logs.encoding import distinct_labels, encode_block, found_problems, label_codes, layout_of
from sidelight.logs.features import number_column
from sidelight.logs.labels import sorted_labels
from sidelight.logs.moments import Moments
from sidelight.logs.schema import Schema
from sidelight.logs.summary import LogSummary

__all__ = ["summarize", "summary_of_arrays"]


def summary_of_arrays(X_recorded: Any, arms: Any, rewards: Any, schema: Schema) -> LogSummary:
    """:meth:`LogSummary.from_arrays`."""
    X = np.asarray(X_recorded, dtype=np.float64)
    r = np.asarray(rewards, dtype=np.float64)
    labels = np.asarray(arms)
    L = schema.n_recorded
    if X.ndim != 2 or X.shape[1] != L:
        raise SchemaError(
            f"the recorded contexts have shape {X.shape}, but the schema records {L} columns: give shape (n, {L})."
        )
    if r.shape != (len(X),) or labels.shape != (len(X),):
        raise InputError(
            f"{len(X)} contexts come with rewards of shape {r.shape} and arms of shape {labels.shape}: each needs "
            "one reward and one arm."
        )
    for name, values in (("contexts", X), ("rewards", r)):
        if not np.isfinite(values).all():
            where = np.argwhere(~np.isfinite(values))[0]
            raise InvalidRowsError(
                f"the {name} hold {values[tuple(where)]} in row {where[0]}: every value must be finite."
            )
    distinct, codes = np.unique(labels, return_inverse=True)
    if schema.arms is None:
        schema = schema.resolve(sorted_labels(distinct.tolist()))
    at = np.array([schema.arm_index(label) for label in distinct.tolist()], dtype=np.int64)
    moments = Moments.empty(len(schema.arms or ()), L)
    moments.add_rows(np.column_stack([X, r]), at[codes] if len(X) else np.zeros(0, dtype=np.int64))
    return LogSummary(schema, moments)


def summarize(
    source: Any, schema: Schema, on_invalid: str, progress: Any, client: Any, sandwich: bool
) -> LogSummary:
    """:func:`sidelight.logs.summary.summarize_log`."""
    from sidelight.logs.sources import as_batches

    parts = list(as_batches(source, schema.columns))
    if not parts:
        raise SourceError("the log has no rows.")
    import pyarrow as pa

    table = pa.Table.from_batches(parts).combine_chunks()
    batch = table.to_batches()[0]
    if schema.arms is None:
        _, labels = distinct_labels(batch.column(schema.arm))
        schema = schema.resolve([label for label in labels if label is not None])
    levels = {}
    for feature in schema.recorded_features:
        if not feature.resolved:
            _, labels = distinct_labels(batch.column(feature.name))
            levels[feature.name] = [label for label in labels if label is not None]
    schema = schema.resolve(None, levels)
    layout = layout_of(schema.recorded_features, schema.intercept)
    block = np.empty((layout.width + 1, batch.num_rows))
    problems = encode_block(batch, layout, block[:-1])
    codes, found = label_codes(
        batch.column(schema.arm), {label: i for i, label in enumerate(schema.arms or ())}
    )
    problems += found_problems(schema.arm, found)
    block[-1] = number_column(batch.column(schema.reward), schema.reward)[0]
    if problems or not np.isfinite(block).all():
        raise InvalidRowsError(
            f"the log has rows that cannot be used: {[(p.column, p.reason) for p in problems]}."
        )
    moments = Moments.empty(len(schema.arms or ()), layout.width)
    moments.add_rows(block.T, codes)
    return LogSummary(schema, moments)
