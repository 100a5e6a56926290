"""Rows with every feature, arm and reward, read into memory: a shadow phase, a pilot, a companion log."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from sidelight.errors import InputError, InvalidRowsError, SourceError
from sidelight.judging.policies import (
    Columns,
    Decider,
    Requested,
    columns_of_batch,
    positions_of,
    suggested,
    take,
)
from sidelight.judging.population import Population
from sidelight.labels import Label
from sidelight.linalg import Array
from sidelight.logs.reduce.log_pass import LogPass, batch_rows, label_columns, threads_available
from sidelight.logs.reduce.second_pass import encoded_rows
from sidelight.logs.schema.columns import number_column
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.schema import Schema
from sidelight.logs.sources.base import Bundle
from sidelight.logs.sources.opening import open_source

__all__ = ["CompleteRows", "read_complete"]


@dataclass(frozen=True)
class CompleteRows:
    """Complete rows, encoded.

    Attributes:
        schema: all features recorded, a constant first, resolved.
        plain: the user's schema, resolved.
        X: (n, d + 1) encoded full contexts with a constant.
        codes: (n,) position of the arm that was taken   arms: the labels.
        rewards: (n,)   propensities: (n,) chance with which the arm was taken, or ``None``.
        bundles: the usable rows as they came, for functions and learners.
        text_labels: the source knows nothing but text.
        name: of the source.
    """

    schema: Schema
    plain: Schema
    X: Array
    codes: np.ndarray
    arms: tuple[Label, ...]
    rewards: Array
    propensities: Array | None
    bundles: tuple[Bundle, ...]
    text_labels: bool
    name: str

    def columns(self) -> Columns:
        """Every feature by name, as a function of columns sees them."""
        names = [feature.name for feature in self.schema.features]
        parts = [columns_of_batch(b.batch, self.schema, names, frozenset(), self.text_labels) for b in self.bundles]
        return Columns({name: np.concatenate([part[name] for part in parts]) for name in names})

    def recorded(self, schema: Schema) -> Array:
        """(n, L) the columns that the log recorded, encoded as the log's.

        Raises:
            InputError: a row has a value that the log's encoding does not know.
        """
        positions = {label: i for i, label in enumerate(self.arms)}
        parts = [encoded_rows(bundle, schema, positions, self.text_labels) for bundle in self.bundles]
        if not all(part.usable.all() for part in parts):
            raise InputError(
                "the complete rows hold values of recorded features that the log never saw, such as a new level of a "
                "category: what the log suggests there is not known."
            )
        return np.concatenate([part.X for part in parts])

    def taken(self, policy: Requested, log: tuple[Schema, Population]) -> np.ndarray:
        """(n,) what a policy takes in each row; ``log`` is the log's schema and population, which ``"best"`` needs."""
        n = len(self.codes)
        if policy.kind == "arm":
            return np.full(n, self.arms.index(policy.rule))
        if policy.kind == "function":
            return take(policy, self.columns(), n, self.arms)
        if policy.kind == "learner":
            return positions_of(self._decided(policy.rule), n, self.arms, policy.name)
        schema, population = log
        taken, known = suggested(population, population, self.recorded(schema))
        if not known.all():
            raise InputError("in some complete rows no arm has rows in the log that tell what it would pay.")
        return taken

    def _decided(self, learner: Decider) -> list[Any]:
        import pyarrow as pa

        table = pa.table({name: pa.array(values.tolist()) for name, values in self.columns().items()})
        schema = self.plain if learner.schema is None else learner.schema
        return [decision.arm for decision in learner.decide_many(schema.encode_many(table))]


def read_complete(
    source: Any, schema: Schema, arms: Sequence[Label], on_invalid: str, rewarded: bool = True
) -> CompleteRows:
    """Read rows that have every feature.

    Args:
        source: as for ``summarize_log``.
        schema: the user's schema, with the hidden features and, if propensities are known, their column.
        arms: the log's arms.
        on_invalid: ``"raise"`` or ``"skip"``.
        rewarded: whether the rows have rewards; answers of the old policy have none, and get 0.

    Raises:
        SchemaError: a feature, the arm, the reward or the propensity is not there.
        InvalidRowsError: rows that cannot be used, arms that the log does not have among them.
    """
    schema = schema.with_recorded([feature.name for feature in schema.features])
    extra = () if schema.propensity is None or not rewarded else (schema.propensity,)
    there = [name for name in schema.of_recorded().columns if rewarded or name != schema.reward]
    columns = (*there, *extra)
    if not open_source(source, columns, label_columns(schema)).rereadable:
        raise InputError("complete rows are read more than once: give a file, a table or a frame.")
    schema = schema.fit(source)
    full = schema.of_recorded().with_arms(arms)
    opened = open_source(source, columns, label_columns(full))
    bundles = list(opened.bundles(batch_rows(full)))
    if not bundles:
        raise SourceError(f"{opened.name} has no rows: rows with every feature are needed to judge from them.")
    if not rewarded:
        bundles = [_with_zero(bundle, schema.reward) for bundle in bundles]
    with ThreadPoolExecutor(threads_available()) as pool:
        log_pass = LogPass(full, on_invalid, pool, opened.text_labels)
        try:
            for bundle in bundles:
                log_pass.feed(bundle)
            full = log_pass.finish(opened.name).schema
        except BaseException:
            log_pass.cancel()
            raise
    positions = {label: i for i, label in enumerate(arms)}
    parts = [encoded_rows(bundle, full, positions, opened.text_labels) for bundle in bundles]
    kept = tuple(
        bundle if part.usable.all() else bundle.filtered(part.usable)
        for bundle, part in zip(bundles, parts, strict=True)
    )
    propensities = None
    if schema.propensity is not None and rewarded:
        propensities = np.concatenate([_propensities(bundle, schema.propensity) for bundle in kept])
    levels = {feature.name: feature.levels for feature in full.features if isinstance(feature, Category)}
    return CompleteRows(
        full,
        schema.resolve(arms, {name: found for name, found in levels.items() if found is not None}),
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.codes for part in parts]),
        tuple(arms),
        np.concatenate([part.rewards for part in parts]),
        propensities,
        kept,
        opened.text_labels,
        opened.name,
    )


def _with_zero(bundle: Bundle, column: str) -> Bundle:
    import pyarrow as pa

    batch = bundle.batch
    zeros = pa.array(np.zeros(batch.num_rows))
    names = [*batch.schema.names, column]
    return Bundle(pa.RecordBatch.from_arrays([*batch.columns, zeros], names=names), bundle.pieces)


def _propensities(bundle: Bundle, column: str) -> Array:
    values, _ = number_column(bundle.batch.column(column), column)
    wrong = ~((values > 0) & (values <= 1))
    if wrong.any():
        origin, row = bundle.origin(int(np.argmax(wrong)))
        raise InvalidRowsError(
            f"row {row:,} of {origin}: the propensity {column!r} is {values[int(np.argmax(wrong))]}, and the chance "
            "with which an arm was taken lies above 0 and is at most 1."
        )
    return np.asarray(values)
