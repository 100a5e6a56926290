"""Rows with every feature, arm and reward, read chunk by chunk: a shadow phase, a pilot, a companion log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from sidelight.errors import InputError, InvalidRowsError, SourceError
from sidelight.judging.log_rows import halves_of, row_hashes
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
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.schema import Schema
from sidelight.logs.sources.base import Bundle
from sidelight.logs.sources.opening import open_source
from sidelight.logs.summary import LogSummary

__all__ = ["KEPT", "Chunk", "CompleteRows", "read_complete"]


#: Encoded rows are kept in memory up to this many numbers (64 MB); more are read again for each pass.
KEPT = 8 << 20


@dataclass(frozen=True)
class Chunk:
    """Some complete rows, encoded.

    Attributes:
        hashes: (n,) 64 random bits of each row, by its number in the source (``row_hashes``).
        X: (n, d + 1) encoded full contexts with a constant.
        codes: (n,) position of the arm that was taken.
        rewards: (n,)   propensities: (n,) chance with which the arm was taken, or ``None``.
        bundle: the rows as they came, for functions and learners.
    """

    hashes: np.ndarray
    X: Array
    codes: np.ndarray
    rewards: Array
    propensities: Array | None
    bundle: Bundle


class CompleteRows:
    """Complete rows, read chunk by chunk as often as needed; memory does not depend on how many there are.

    Args:
        summary: of the rows, every feature recorded, a constant first.
        plain: the user's schema, resolved.
        bundles: starts reading.
        text_labels: the source knows nothing but text.
        name: of the source.
    """

    def __init__(
        self,
        summary: LogSummary,
        plain: Schema,
        bundles: Callable[[], Iterable[Bundle]],
        text_labels: bool,
        name: str,
    ) -> None:
        self.summary, self.schema, self.plain, self.name = summary, summary.schema, plain, name
        self.arms: tuple[Label, ...] = summary.arms
        self.known = summary.schema.propensity is not None
        self._bundles, self._text_labels = bundles, text_labels
        self._positions = {label: i for i, label in enumerate(self.arms)}
        self._kept: list[Chunk] | None = None

    def __len__(self) -> int:
        return self.summary.n_rows

    def chunks(self) -> Iterator[Chunk]:
        """The usable rows in order; a source of few rows is read once and kept.

        Raises:
            SourceError: reading the source again gave another number of usable rows.
        """
        if self._kept is not None:
            yield from self._kept
            return
        keep: list[Chunk] | None = [] if len(self) * len(self.schema.encoded_names) <= KEPT else None
        seen = first = 0
        for bundle in self._bundles():
            part = encoded_rows(bundle, self.schema, self._positions, self._text_labels)
            hashes = row_hashes(seen, bundle.batch.num_rows)[part.usable]
            seen += bundle.batch.num_rows
            if len(part.X) == 0:
                continue
            kept = bundle if part.usable.all() else bundle.filtered(part.usable)
            chunk = Chunk(hashes, part.X, part.codes, part.rewards, part.propensities, kept)
            first += len(part.X)
            if keep is not None:
                keep.append(chunk)
            yield chunk
        if first != len(self):
            raise SourceError(
                f"{self.name} gave {first:,} usable rows when it was read again, {len(self):,} before: complete rows "
                "must stay the same while they are judged. Write them to a file first."
            )
        self._kept = keep

    def columns(self, chunk: Chunk) -> Columns:
        """Every feature by name, as a policy that is a function receives them."""
        names = [feature.name for feature in self.schema.features]
        return columns_of_batch(chunk.bundle.batch, self.schema, names, frozenset(), self._text_labels)

    def recorded(self, chunk: Chunk, schema: Schema) -> Array:
        """(n, L) the columns that the log recorded, encoded as the log's.

        Raises:
            InputError: a row has a value that the log's encoding does not know.
        """
        part = encoded_rows(chunk.bundle, schema, self._positions, self._text_labels)
        if not part.usable.all():
            raise InputError(
                "the complete rows hold values of recorded features that the log never saw, such as a new level of a "
                "category: what the log suggests there is not known."
            )
        return part.X

    def taken(self, policy: Requested, chunk: Chunk, log: tuple[Schema, tuple[Population, ...]]) -> np.ndarray:
        """(n,) what a policy takes in each row.

        Args:
            policy: of any kind.
            chunk: the rows.
            log: the log's schema and population, which ``"best"`` needs; two populations are the halves of a log whose
                rows these are: a row's choice is then that of the half that it is not in.
        """
        n = len(chunk.codes)
        if policy.kind == "arm":
            return np.full(n, self.arms.index(policy.rule))
        if policy.kind == "function":
            return take(policy, self.columns(chunk), n, self.arms)
        if policy.kind == "learner":
            return positions_of(self._decided(policy.rule, chunk), n, self.arms, policy.name)
        schema, populations = log
        X = self.recorded(chunk, schema)
        # which half chooses for each row: the one that it is not in, for "best"
        chooses = (
            halves_of(chunk.hashes) ^ (policy.kind == "best") if len(populations) == 2 else np.zeros(n, dtype=bool)
        )
        taken = np.zeros(n, dtype=np.int64)
        for half, population in enumerate(populations):
            there = chooses == bool(half)
            taken[there], known = suggested(population, populations[half - 1], X[there])
            if not known.all():
                raise InputError("in some complete rows there is no arm whose reward can be estimated from the log.")
        return taken

    def _decided(self, learner: Decider, chunk: Chunk) -> list[Any]:
        import pyarrow as pa

        table = pa.table({name: pa.array(values.tolist()) for name, values in self.columns(chunk).items()})
        schema = self.plain if learner.schema is None else learner.schema
        return [decision.arm for decision in learner.decide_many(schema.encode_many(table))]


def read_complete(
    source: Any, schema: Schema, arms: Sequence[Label], on_invalid: str, rewarded: bool = True
) -> CompleteRows:
    """Check rows that have every feature, in one pass.

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
    columns = [name for name in schema.of_recorded(propensity=rewarded).columns if rewarded or name != schema.reward]
    if not open_source(source, columns, label_columns(schema)).rereadable:
        raise InputError("complete rows are read more than once: give a file, a table or a frame.")
    schema = schema.fit(source)
    full = schema.of_recorded(propensity=rewarded).with_arms(arms)

    def bundles() -> Iterator[Bundle]:
        for bundle in open_source(source, columns, label_columns(full)).bundles(batch_rows(full)):
            yield bundle if rewarded else _with_zero(bundle, schema.reward)

    opened = open_source(source, columns, label_columns(full))
    with ThreadPoolExecutor(threads_available()) as pool:
        log_pass = LogPass(full, on_invalid, pool, opened.text_labels)
        try:
            for bundle in bundles():
                log_pass.feed(bundle)
            if log_pass.rows_seen == 0:
                raise SourceError(f"{opened.name} has no rows: rows with every feature are needed to judge from them.")
            summary = log_pass.finish(opened.name)
        except BaseException:
            log_pass.cancel()
            raise
    if rewarded and Population.of(summary).reward_variance == 0.0:
        raise InvalidRowsError(
            f"the reward column {schema.reward!r} is the same in every row of {opened.name}: no policy can be told "
            "from another by it. Is it the right column?"
        )
    levels = {feature.name: feature.levels for feature in summary.schema.features if isinstance(feature, Category)}
    plain = schema.resolve(arms, {name: found for name, found in levels.items() if found is not None})
    return CompleteRows(summary, plain, bundles, opened.text_labels, opened.name)


def _with_zero(bundle: Bundle, column: str) -> Bundle:
    import pyarrow as pa

    batch = bundle.batch
    zeros = pa.array(np.zeros(batch.num_rows))
    names = [*batch.schema.names, column]
    return Bundle(pa.RecordBatch.from_arrays([*batch.columns, zeros], names=names), bundle.pieces, bundle.rows)
