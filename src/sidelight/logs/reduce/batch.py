"""One batch of a log: encode it, find the rows that cannot be used, and reduce the others to moments.

Runs in threads; everything it needs is in a :class:`Job`, everything it found in a :class:`Reduced`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sidelight.errors import InvalidRowsError, SchemaError
from sidelight.labels import Label, show_labels
from sidelight.logs.reduce.moments import BatchMoments, batch_moments
from sidelight.logs.schema.columns import is_time, label_codes, number_column
from sidelight.logs.schema.encoding import (
    MISSING,
    NOT_A_NUMBER,
    UNKNOWN_LABEL,
    Encoded,
    Layout,
    Problem,
    all_problems,
    encode_columns,
    label_problems,
    number_problems,
)
from sidelight.logs.schema.features import Category, comma_message
from sidelight.logs.schema.schema import Schema
from sidelight.logs.sources.base import Bundle

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Job", "ReadRows", "Reduced", "no_propensities", "read_rows", "reduce_bundle", "show_reasons"]


@dataclass(frozen=True)
class Job:
    """What a thread needs to reduce one bundle.

    Attributes:
        bundle: the rows, and where they came from.
        schema: says which column is what.
        layout: what the recorded columns are encoded into.
        arms: label → position.
        bases: (K, p+1, p+1)  ready: (K,)  from :meth:`Moments.bases`.
        skip: leave rows out that cannot be used; otherwise they are an error.
        text_labels: the source knows nothing but text.
        careful: check every value before the moments are computed, since earlier bundles had rows that cannot be used.
    """

    bundle: Bundle
    schema: Schema
    layout: Layout
    arms: Mapping[Label, int]
    bases: np.ndarray
    ready: np.ndarray
    skip: bool
    text_labels: bool
    careful: bool


@dataclass(frozen=True)
class Reduced:
    """The moments, skipped rows and propensity sums of one bundle."""

    moments: BatchMoments
    skipped: dict[str, int]
    propensities: np.ndarray | None


def no_propensities(n_arms: int) -> np.ndarray:
    """(K, 4) ``Σp``, ``Σ1/p``, ``Σ1/p²`` and ``min p`` of no rows at all."""
    empty = np.zeros((n_arms, 4))
    empty[:, 3] = np.inf
    return empty


@dataclass(frozen=True)
class ReadRows:
    """The columns of a batch as arrays, and what is wrong in them.

    Attributes:
        schema: says which column is what.
        layout: what the recorded columns are encoded into.
        encoded: the recorded columns.
        codes: (n,) position of the logged arm, negative where it is missing or unknown.
        rewards: (n,)
        propensities: (n,) chance with which the arm was taken, or ``None``.
        arm_rows: rows whose arm is missing, and those whose arm is unknown, each ``None`` where there are none.
        unparsable: (n,) rows whose reward is no number, or ``None``.
        outside: rows with a reward or a propensity that the schema does not allow.
    """

    schema: Schema
    layout: Layout
    encoded: Encoded
    codes: np.ndarray
    rewards: np.ndarray
    propensities: np.ndarray | None
    arm_rows: tuple[np.ndarray | None, np.ndarray | None]
    unparsable: np.ndarray | None
    outside: list[Problem]

    @property
    def suspicious(self) -> bool:
        """Whether something is known to be wrong; a value that is not finite need not show here."""
        labels = any(rows is not None for rows in self.arm_rows)
        columns = self.encoded.problems or self.encoded.unparsable
        return bool(columns or labels or self.unparsable is not None or self.outside)

    def problems(self) -> list[Problem]:
        """Every row that cannot be used, by reason; it looks at every value, which is slow."""
        return [
            *all_problems(self.encoded, self.layout),
            *label_problems(self.schema.arm, self.arm_rows),
            *number_problems(self.schema.reward, self.rewards, self.unparsable),
            *self.outside,
        ]


def read_rows(
    batch: pa.RecordBatch, schema: Schema, layout: Layout, arms: Mapping[Label, int], text_labels: bool
) -> ReadRows:
    """Read a batch of a log: the one place that says which rows can be used, so that every pass leaves out the same.

    Args:
        batch: with the schema's columns.
        schema: says which column is what.
        layout: what the recorded columns are encoded into.
        arms: label → position.
        text_labels: the source knows nothing but text.
    """
    encoded = encode_columns(batch, layout, text_labels)
    rewards, unparsable, not_binary = _rewards_of(batch, schema)
    codes, arm_rows = label_codes(batch.column(schema.arm), schema.arm, arms, text_labels)
    propensities, improbable = _propensities_of(batch, schema)
    outside = [*not_binary, *improbable]
    return ReadRows(schema, layout, encoded, codes, rewards, propensities, arm_rows, unparsable, outside)


def reduce_bundle(job: Job) -> Reduced:
    """Encode a bundle and compute its moments; runs in a thread."""
    read = read_rows(job.bundle.batch, job.schema, job.layout, job.arms, job.text_labels)
    codes, columns = read.codes, [*read.encoded.columns, read.rewards]
    if not (job.careful or read.suspicious):
        # batch_moments returns None if a value is not finite, so values need not be checked beforehand.
        moments = batch_moments(columns, codes, job.bases, job.ready)
        if moments is not None:
            return Reduced(moments, {}, _propensity_sums(read.propensities, codes, len(job.ready)))
    problems = read.problems()
    skipped: dict[str, int] = {}
    if problems:
        _check_text(job.bundle, problems, job.schema)
        if not job.skip:
            raise InvalidRowsError(_invalid_rows(job.bundle, problems, job.schema))
        codes, skipped = _without(codes, problems)
    moments = batch_moments(columns, codes, job.bases, job.ready)
    assert moments is not None, "every row that is not finite was found"
    return Reduced(moments, skipped, _propensity_sums(read.propensities, codes, len(job.ready)))


def _rewards_of(batch: pa.RecordBatch, schema: Schema) -> tuple[np.ndarray, np.ndarray | None, list[Problem]]:
    """The rewards, which of them are no numbers, and those that are neither 0 nor 1 though the schema says so."""
    column = batch.column(schema.reward)
    if is_time(column.type):
        raise SchemaError(
            f"the reward, column {schema.reward!r}, holds {column.type}, a date or a time: a reward is a number, the "
            "larger the better. If it is how long something took, compute that first, with the opposite sign where "
            "less is better."
        )
    rewards, unparsable = number_column(column, schema.reward)
    if schema.binary is not True:
        return rewards, unparsable, []
    other = np.isfinite(rewards) & (rewards != 0.0) & (rewards != 1.0)
    reason = "neither 0 nor 1, which the schema says all rewards are (binary=True)"
    return rewards, unparsable, [Problem(schema.reward, reason, other)] if other.any() else []


def _propensities_of(batch: pa.RecordBatch, schema: Schema) -> tuple[np.ndarray | None, list[Problem]]:
    if schema.propensity is None:
        return None, []
    values, unparsable = number_column(batch.column(schema.propensity), schema.propensity)
    if ((values > 0) & (values <= 1)).all():
        return values, []
    problems = number_problems(schema.propensity, values, unparsable)
    outside = np.isfinite(values) & ~((values > 0) & (values <= 1))
    if outside.any():
        problems.append(Problem(schema.propensity, "not a probability above 0 and at most 1", outside))
    return values, problems


def _propensity_sums(values: np.ndarray | None, codes: np.ndarray, n_arms: int) -> np.ndarray | None:
    if values is None:
        return None
    sums = no_propensities(n_arms)
    kept = codes >= 0
    arms, p = codes[kept], values[kept]
    sums[:, 0] = np.bincount(arms, p, n_arms)
    sums[:, 1] = np.bincount(arms, 1 / p, n_arms)
    sums[:, 2] = np.bincount(arms, 1 / p**2, n_arms)
    np.minimum.at(sums[:, 3], arms, p)
    return sums


def _without(codes: np.ndarray, problems: Iterable[Problem]) -> tuple[np.ndarray, dict[str, int]]:
    """The codes with -1 for unusable rows, and how many rows each reason took; a row counts once."""
    bad = np.zeros(len(codes), dtype=bool)
    skipped: dict[str, int] = {}
    for problem in problems:
        new = int((problem.rows & ~bad).sum())
        if new:
            skipped[f"{problem.column}: {problem.reason}"] = new
        bad |= problem.rows
    return np.where(bad, -1, codes), skipped


def _check_text(bundle: Bundle, problems: list[Problem], schema: Schema) -> None:
    """Raise SchemaError if a column that should hold numbers holds text wherever it is not empty in the bundle."""
    for problem in problems:
        if problem.reason != NOT_A_NUMBER:
            continue
        column = bundle.batch.column(problem.column)
        readable = len(column) - column.null_count
        if problem.rows.sum() >= readable > 0:
            value = column[int(np.argmax(problem.rows))].as_py()
            commas = comma_message(str(value), problem.column, bundle.origin(0)[0])
            if commas is not None:
                raise SchemaError(commas)
            if problem.column == schema.reward:
                raise SchemaError(
                    f"the reward, column {problem.column!r} of {bundle.origin(0)[0]}, is text such as {value!r}: a "
                    "reward is a number, the larger the better. Map it to numbers first, such as 1 for success and 0 "
                    "for failure."
                )
            raise SchemaError(
                f"column {problem.column!r} of {bundle.origin(0)[0]} holds text such as {value!r}, not numbers. "
                f"If it is a category, declare it: categories=[{problem.column!r}]."
            )


def _invalid_rows(bundle: Bundle, problems: list[Problem], schema: Schema) -> str:
    first = min(problems, key=lambda problem: int(np.argmax(problem.rows)))
    row = int(np.argmax(first.rows))
    origin, number = bundle.origin(row)
    value = bundle.batch.column(first.column)[row].as_py()
    _, counts = _without(np.zeros(bundle.batch.num_rows, dtype=np.int64), problems)
    total = sum(counts.values())
    message = (
        f"row {number:,} of {origin}: column {first.column!r} is {value!r} ({first.reason}). Of the "
        f"{bundle.batch.num_rows:,} rows read around it, {total:,} cannot be used: {show_reasons(counts)}. "
    )
    if first.reason == UNKNOWN_LABEL:
        levels = {f.name: f.levels for f in schema.features if isinstance(f, Category)}
        arms = first.column == schema.arm
        known = (schema.arms if arms else levels.get(first.column)) or ()
        message += f"The declared {'arms' if arms else 'levels'} are {show_labels(known, 20)}. "
    if first.reason == NOT_A_NUMBER and first.column != schema.reward:
        message += f"If it is a category, declare it: categories=[{first.column!r}]. "
    message += 'Correct the log, or leave such rows out and count them with on_invalid="skip" (--skip-invalid)'
    if any(p.column in schema.recorded and p.reason == MISSING for p in problems):
        message += "; if a column was only added later, summarize_eras keeps the rows without it"
    return message + "."


def show_reasons(counts: Mapping[str, int]) -> str:
    """Why rows cannot be used, and how many, as text for a message."""
    shown = sorted(counts.items(), key=lambda item: -item[1])
    text = ", ".join(f"{reason} ({count:,})" for reason, count in shown[:6])
    return (text + (", ..." if len(shown) > 6 else "")) or "no reason known"
