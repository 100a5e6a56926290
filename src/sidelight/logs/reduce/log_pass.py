"""The one pass over a log: batches are encoded and reduced in threads, and folded in the order they came."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

import numpy as np

from sidelight.errors import InputError, InvalidRowsError, SchemaError, SourceError, StandInWarning, calls_inside
from sidelight.labels import Label, show_labels, typed_labels
from sidelight.logs.reduce.batch import Job, Reduced, no_propensities, reduce_bundle, show_reasons
from sidelight.logs.reduce.moments import Moments, rows_per_batch
from sidelight.logs.schema.columns import (
    UNKNOWN,
    check_labels,
    distinct_labels,
    is_time,
    label_position,
    number_column,
)
from sidelight.logs.schema.features import Category, Date, Number
from sidelight.logs.schema.fitting import check_levels, fitted_terms, peek_kinds
from sidelight.logs.schema.schema import Schema
from sidelight.logs.schema.stand_ins import stand_in, stand_in_message
from sidelight.logs.sources.base import Bundle, Source
from sidelight.logs.sources.opening import open_source
from sidelight.logs.summary import LogSummary

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LogPass", "batch_rows", "check_settings", "label_columns", "opened_with_kinds", "threads_available"]

# Batches under way at a time. Fixed, not the number of threads: which rows a base is made of depends on it, and the
# same log must give the same bits on every machine.
_DEPTH = 3
# With more levels, every batch that has new ones is checked for dates and identifiers; otherwise once, at the end.
_LOOK_AGAIN = 100
# More different values than this are not labels.
_MOST_LABELS = 20_000


def threads_available() -> int:
    """The cores this process may use, eight at most."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(8, usable))


def check_settings(schema: Schema, on_invalid: str) -> None:
    """Check what does not depend on the source."""
    if not isinstance(schema, Schema):
        raise SchemaError(f"the schema must be a Schema, not {type(schema).__name__}.")
    if on_invalid not in ("raise", "skip"):
        raise InputError(f"on_invalid must be 'raise' or 'skip', not {on_invalid!r}.")
    recorded = set(schema.recorded)
    unknown = [f.name for f in schema.features if not f.resolved and f.name not in recorded]
    if unknown:
        raise SchemaError(
            f"the levels of {show_labels(unknown)} cannot be discovered: a hidden category is not in the log. "
            "Declare them, categories={name: [levels]}."
        )


def label_columns(schema: Schema) -> tuple[str, ...]:
    """The columns that are read as text from a file without types (CSV): the arm, recorded categories and dates."""
    return (schema.arm, *(f.name for f in schema.recorded_features if isinstance(f, Category | Date)))


def opened_with_kinds(
    source: Any, schema: Schema, more: Sequence[str] = (), optional: Sequence[str] = ()
) -> tuple[Source, Schema]:
    """The source, open for a pass, and the schema with what it leaves to the log: text columns, knots, edges.

    Args:
        source: see :func:`sidelight.summarize_log`.
        schema: the schema.
        more: further columns with labels to read.
        optional: columns that may be missing from some or all files.
    """
    columns = (*schema.columns, *more)
    opened = open_source(source, columns, (*label_columns(schema), *more), optional)
    features = peek_kinds(opened, schema.features, schema.recorded)
    if schema.unfitted or features != list(schema.features):
        if opened.rereadable:
            opened.rewind()
        terms = fitted_terms(source, schema.derived, features, schema.recorded) if schema.unfitted else schema.derived
        schema = schema.with_features(features, terms)
        if opened.rereadable:  # a column that is a category is read as text from now on
            opened = open_source(source, columns, (*label_columns(schema), *more), optional)
    return opened, schema


def batch_rows(schema: Schema) -> int:
    """Rows of which a batch is a few megabytes, once encoded."""
    width = sum(len(f.encoded_names) if f.resolved else 8 for f in schema.recorded_features) + int(schema.intercept)
    return rows_per_batch(width + sum(sum(keep) for _, keep in schema.layout().terms))


class LogPass:
    """The state of a pass: what is known of the labels, the moments so far, and the batches under way.

    Labels that the schema leaves open are found as they come: a new arm is a new empty row of the moments, a new
    level a new column that is zero in all earlier rows, so nothing has to be read twice.

    Args:
        schema: the schema, not necessarily resolved.
        on_invalid: ``"raise"`` or ``"skip"``.
        pool: where batches are reduced.
        text_labels: the source knows nothing but text.
        part: whether the rows are a part of a log, whose labels will be united with those of the others: labels found
            in text stay text, and whether they can be levels is asked of the whole.
        warns: whether to warn of numbers that seem to stand for missing values.
    """

    def __init__(
        self,
        schema: Schema,
        on_invalid: str,
        pool: Executor,
        text_labels: bool = False,
        part: bool = False,
        warns: bool = False,
    ) -> None:
        self._warns = warns
        self._schema, self._skip, self._pool = schema, on_invalid == "skip", pool
        self._text_labels, self._part = text_labels, part
        self._arms: list[Label] = list(schema.arms or ())
        self._open_arms = schema.arms is None or schema.arms_discovered
        self._levels: dict[str, list[Label]] = {
            f.name: list(f.levels or ())
            for f in schema.recorded_features
            if isinstance(f, Category) and (not f.resolved or f.discovered)
        }
        self._relayout()
        self._moments = Moments.empty(len(self._arms), self._layout.width)
        self._pending: deque[Future[Reduced]] = deque()
        self._skipped: dict[str, int] = {}
        self._propensities: np.ndarray | None = None
        self._bases: tuple[np.ndarray, np.ndarray] | None = None
        self._base_rows = 0
        self.rows_seen = 0

    def _relayout(self) -> None:
        self._layout = self._schema.layout(self._levels)
        self._arm_positions: dict[Label, int] = {label: i for i, label in enumerate(self._arms)}

    def feed(self, bundle: Bundle) -> None:
        """Start on a bundle, and fold the oldest one under way if enough are."""
        if bundle.batch.num_rows == 0:
            return
        if self._warns and not self.rows_seen:
            self._warn_of_stand_ins(bundle.batch)
        self.rows_seen += bundle.batch.num_rows
        self._discover(bundle.batch)
        bases, ready = self._current_bases()
        job = Job(
            bundle,
            self._schema,
            self._layout,
            self._arm_positions,
            bases,
            ready,
            self._skip,
            self._text_labels,
            bool(self._skipped),
        )
        self._pending.append(self._pool.submit(reduce_bundle, job))
        if len(self._pending) >= _DEPTH:
            self._fold_oldest()

    def _warn_of_stand_ins(self, batch: pa.RecordBatch) -> None:
        """Warn of numbers in the first batch that seem to stand for missing values, of features and of the reward."""
        numbers = [feature.name for feature in self._schema.recorded_features if isinstance(feature, Number)]
        for name in [*numbers, self._schema.reward]:
            column = batch.column(name)
            if is_time(column.type):
                continue  # a date is no reward: the error is raised where rewards are read
            found = stand_in(number_column(column, name)[0])
            if found is not None:
                warnings.warn(stand_in_message(name, found), StandInWarning, stacklevel=calls_inside())

    def _current_bases(self) -> tuple[np.ndarray, np.ndarray]:
        rows = int(self._moments.counts.sum())
        # A new base is computed whenever the number of rows has doubled; in between the old one is good enough.
        if self._bases is None or rows >= 2 * self._base_rows:
            self._bases, self._base_rows = self._moments.bases(), max(rows, 1)
        return self._bases

    def _fold_oldest(self) -> None:
        reduced = self._pending.popleft().result()
        self._moments.fold(reduced.moments)
        if reduced.moments.direct:
            self._bases = None
        for reason, count in reduced.skipped.items():
            self._skipped[reason] = self._skipped.get(reason, 0) + count
        if reduced.propensities is not None:
            self._add_propensities(reduced.propensities)

    def _add_propensities(self, more: np.ndarray) -> None:
        if self._propensities is None:
            self._propensities = no_propensities(len(more))
        self._propensities[:, :3] += more[:, :3]
        self._propensities[:, 3] = np.minimum(self._propensities[:, 3], more[:, 3])

    def _drain(self) -> None:
        while self._pending:
            self._fold_oldest()

    def cancel(self) -> None:
        """Drop batches that are being reduced; their results are not added."""
        for future in self._pending:
            future.cancel()
        self._pending.clear()

    def _discover(self, batch: pa.RecordBatch) -> None:
        """Make room for arms and levels that no earlier batch had."""
        new_arms = self._unseen(batch, self._schema.arm, self._arm_positions) if self._open_arms else []
        new_levels = {
            name: unseen
            for name, levels in self._levels.items()
            if (unseen := self._unseen(batch, name, dict.fromkeys(levels, 0)))
        }
        for name, unseen in new_levels.items():
            if len(self._levels[name]) + len(unseen) > _LOOK_AGAIN:
                check_levels(name, [*self._levels[name], *unseen], self.rows_seen, "the log", part=True)
        self._grow(new_arms, new_levels)

    def _grow(self, new_arms: Sequence[Label], new_levels: Mapping[str, Sequence[Label]]) -> None:
        """Add arms without rows, and levels that are zero in all rows so far."""
        if not new_arms and not new_levels:
            return
        # Finish the batches under way first: their columns do not have the new labels.
        self._drain()
        old = self._column_names()
        for name, unseen in new_levels.items():
            self._levels[name].extend(unseen)
        self._arms.extend(new_arms)
        self._relayout()
        if new_levels:
            self._moments = self._moments.with_columns(_selection(old, self._column_names()))
        if new_arms:
            kept, grown = len(self._moments.counts), len(self._arms)
            self._moments = self._moments.with_arms(range(kept), grown)
            if self._propensities is not None:
                more = no_propensities(grown)
                more[:kept] = self._propensities
                self._propensities = more
        self._bases = None

    def _forget_unused(self) -> None:
        """Remove arms and levels that only skipped rows had, so that skipped rows do not change the result."""
        self._drain()
        if not self._skipped or not self._moments.counts.any():
            return
        if self._open_arms:
            used = np.flatnonzero(self._moments.counts > 0)
            self._arms = [self._arms[i] for i in used]
            self._moments = self._moments.of_arms(used)
            if self._propensities is not None:
                self._propensities = self._propensities[used]
        names = self._column_names()
        rows = {name: float(total) for name, total in zip(names, self._moments.sums.sum(axis=0), strict=True)}
        for feature, levels in self._levels.items():
            # a level without a column is the baseline, and has the rows that the others leave
            total = sum(rows.get(f"{feature}={level}", 0.0) for level in levels)
            rest = float(self._moments.counts.sum()) - total
            self._levels[feature] = [level for level in levels if rows.get(f"{feature}={level}", rest) > 0.5]
        self._relayout()
        if self._column_names() != names:
            self._moments = self._moments.with_columns(_selection(names, self._column_names()))
        self._bases = None

    def _unseen(self, batch: pa.RecordBatch, name: str, known: Mapping[Label, int]) -> list[Label]:
        # A dictionary may name values that no row has; only those that rows have are found.
        indices, labels = distinct_labels(check_labels(batch.column(name), name).unique(), name)
        found = (labels[i] for i in indices.tolist() if i >= 0)
        # in a file in which everything is text, "3" is no new label beside a 3 that an earlier file had
        unseen = [label for label in found if label_position(label, known, self._text_labels) == UNKNOWN]
        if len(known) + len(unseen) > _MOST_LABELS:
            raise SchemaError(
                f"column {name!r} has more than {_MOST_LABELS:,} different values ({show_labels(unseen, 4)}), too "
                "many for arms or levels. Is it a number or an identifier rather than a label?"
            )
        return list(dict.fromkeys(unseen))

    def _column_names(self) -> list[str]:
        return list(self._layout.names)

    def skipped(self) -> dict[str, int]:
        """How many rows fed so far were skipped, by reason."""
        self._drain()
        return dict(sorted(self._skipped.items()))

    def labels(self) -> tuple[list[Label], dict[str, list[Label]]]:
        """The arms and the levels found so far, where the schema left them open."""
        self._forget_unused()
        return (self._arms if self._open_arms else []), self._levels

    def finish(
        self,
        name: str,
        arms: Sequence[Label] = (),
        levels: Mapping[str, Sequence[Label]] | None = None,
        rows: int | None = None,
    ) -> LogSummary:
        """The summary of everything fed, with arms and levels in their final order.

        Args:
            name: what messages call the source.
            arms: arms that other parts of the log have.
            levels: levels that other parts of the log have.
            rows: of all parts of the log; default those fed.
        """
        self._drain()
        if self.rows_seen == 0:
            raise SourceError(f"{name} has no rows: there is nothing to learn from.")
        self._forget_unused()
        if not self._arms or not self._moments.counts.any():
            raise InvalidRowsError(
                f"none of the {self.rows_seen:,} rows of {name} can be used: {show_reasons(self._skipped)}."
            )
        elsewhere = {feature: list(found) for feature, found in (levels or {}).items()}
        self._grow(
            [label for label in arms if label not in self._arm_positions] if self._open_arms else [],
            {
                feature: new
                for feature, own in self._levels.items()
                if (new := [level for level in elsewhere.get(feature, []) if level not in own])
            },
        )
        final_levels = {**elsewhere, **self._levels}
        empty = [feature for feature, found in final_levels.items() if not found]
        if empty:
            raise InvalidRowsError(f"column {show_labels(empty)} has no value in any row of {name}.")
        for feature, found in self._levels.items():
            check_levels(feature, found, rows or self.rows_seen, name, part=self._part)
        keep = self._part or not self._text_labels
        typed: Callable[[Sequence[Label]], tuple[Label, ...]] = tuple if keep else typed_labels
        final_arms = typed(self._arms) if self._open_arms else tuple(self._arms)
        schema = self._schema.resolve(
            final_arms if self._open_arms else None, {f: typed(found) for f, found in final_levels.items()}
        )
        return self._in_final_order(schema, final_arms)

    def _in_final_order(self, schema: Schema, arms: tuple[Label, ...]) -> LogSummary:
        # Typed levels print as the text they came from, so the names of columns do not change.
        moments = self._moments
        names = self._column_names()
        if tuple(names) != schema.recorded_names:
            moments = moments.with_columns(_selection(names, list(schema.recorded_names)))
        at = [schema.arm_index(label) for label in arms]
        moments = moments.with_arms(at, len(arms))
        propensities = self._propensities
        if propensities is not None:
            moved = no_propensities(len(arms))
            moved[at] = propensities
            propensities = moved
        return LogSummary(schema, moments, dict(sorted(self._skipped.items())), None, propensities)


def _selection(old: list[str], new: list[str]) -> np.ndarray:
    """(len(old), len(new)) with a 1 where the names are equal: a new column that is not among the old ones is zero."""
    where = {name: j for j, name in enumerate(new)}
    T = np.zeros((len(old), len(new)))
    for i, name in enumerate(old):
        if name in where:
            T[i, where[name]] = 1.0
    return T
