"""Arrow columns into encoded blocks: one code for logs of any size and for contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sidelight.errors import ContextError
from sidelight.labels import Label, plain_label, show_labels, typed_readings
from sidelight.logs.schema.features import Category, Feature, number_column
from sidelight.logs.sources.opening import as_batches

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "UNKNOWN_LABEL",
    "Encoded",
    "Layout",
    "Problem",
    "all_problems",
    "distinct_labels",
    "encode_columns",
    "encode_table",
    "first_problem",
    "label_codes",
    "label_problems",
    "layout_of",
    "number_problems",
]


UNKNOWN_LABEL = "not among the declared labels"


@dataclass(frozen=True)
class Problem:
    """Rows of a batch that cannot be used, for one reason."""

    column: str
    reason: str
    rows: np.ndarray
    """(n,) booleans"""


@dataclass(frozen=True)
class Layout:
    """Where each feature's encoded columns lie in a block of ``width`` columns.

    ``positions`` maps a category's level to its column counted from the feature's first, -1 for none.
    """

    features: tuple[Feature, ...]
    starts: tuple[int, ...]
    positions: tuple[Mapping[Label, int] | None, ...]
    intercept: bool
    width: int


def layout_of(
    features: Sequence[Feature], intercept: bool, levels: Mapping[str, Sequence[Label]] | None = None
) -> Layout:
    """The layout of these features, one after the other.

    Args:
        features: the features to encode.
        intercept: whether column 0 is the constant.
        levels: levels to use instead of a category's own; then every level has a column.
    """
    starts: list[int] = []
    positions: list[Mapping[Label, int] | None] = []
    width = int(intercept)
    for feature in features:
        starts.append(width)
        if not isinstance(feature, Category):
            positions.append(None)
            width += 1
            continue
        if levels is not None and feature.name in levels:
            where = {level: i for i, level in enumerate(levels[feature.name])}
            width += len(where)
        else:
            where = feature.position_of
            width += len(feature.column_levels)
        positions.append(where)
    return Layout(tuple(features), tuple(starts), tuple(positions), intercept, width)


@dataclass
class Encoded:
    """The encoded columns of a batch and what could not be encoded.

    Attributes:
        columns: one contiguous (n,) float64 array per encoded column; NaN where a number is missing or unreadable.
        problems: rows whose label is missing or unknown.
        unparsable: name → rows whose text is not a number.
    """

    columns: list[np.ndarray]
    problems: list[Problem]
    unparsable: dict[str, np.ndarray]


def encode_columns(batch: pa.RecordBatch, layout: Layout, text_labels: bool = False) -> Encoded:
    """Encode a batch column by column, without copying numbers that are already float64."""
    n = batch.num_rows
    encoded = Encoded([np.ones(n)] if layout.intercept else [], [], {})
    for feature, positions in zip(layout.features, layout.positions, strict=True):
        column = batch.column(feature.name)
        if positions is None:
            values, unparsable = number_column(column, feature.name)
            encoded.columns.append(values)
            if unparsable is not None:
                encoded.unparsable[feature.name] = unparsable
            continue
        codes, found = label_codes(column, positions, text_labels)
        levels = [np.zeros(n) for position in positions.values() if position >= 0]
        for position, level in enumerate(levels):
            level[codes == position] = 1.0
        encoded.columns.extend(levels)
        encoded.problems.extend(label_problems(feature.name, found))
    return encoded


def all_problems(encoded: Encoded, layout: Layout) -> list[Problem]:
    """Every row that cannot be used, in the order of the features; slower than knowing that there is none."""
    by_label: dict[str, list[Problem]] = {}
    for problem in encoded.problems:
        by_label.setdefault(problem.column, []).append(problem)
    problems: list[Problem] = []
    for feature, start in zip(layout.features, layout.starts, strict=True):
        if isinstance(feature, Category):
            problems.extend(by_label.get(feature.name, []))
        else:
            problems.extend(number_problems(feature.name, encoded.columns[start], encoded.unparsable.get(feature.name)))
    return problems


def number_problems(name: str, values: np.ndarray, unparsable: np.ndarray | None) -> list[Problem]:
    """The rows of a number column that cannot be used."""
    missing = np.isnan(values)
    if unparsable is not None:
        missing &= ~unparsable
    found = [Problem(name, "missing or NaN", missing), Problem(name, "infinite", np.isinf(values))]
    if unparsable is not None:
        found.append(Problem(name, "not a number", unparsable))
    return [problem for problem in found if problem.rows.any()]


def label_problems(name: str, found: tuple[np.ndarray | None, np.ndarray | None]) -> list[Problem]:
    """The problems of a column of labels, from what :func:`label_codes` found."""
    missing, unknown = found
    problems = [] if missing is None else [Problem(name, "missing or NaN", missing)]
    return problems + ([] if unknown is None else [Problem(name, UNKNOWN_LABEL, unknown)])


def label_codes(
    column: pa.Array, positions: Mapping[Label, int], text: bool = False
) -> tuple[np.ndarray, tuple[np.ndarray | None, np.ndarray | None]]:
    """A column of labels as positions.

    Args:
        column: the labels.
        positions: label → position.
        text: the column comes from a file in which everything is text, so ``"3"`` may stand for ``3``.

    Returns:
        ``codes`` (n,) int64: the position of each label, -1 for a baseline, -2 where missing, -3 where unknown;
        and the rows that are missing and those that are unknown, each ``None`` where there are none.
    """
    indices, labels = distinct_labels(column)
    table = np.array([_position(label, positions, text) for label in labels] + [-2], dtype=np.int64)
    codes = table[indices]
    # A dictionary may name labels that no row has, so the rows decide.
    if len(codes) == 0 or codes.min() >= -1:
        return codes, (None, None)
    missing, unknown = codes == -2, codes == -3
    return codes, (missing if missing.any() else None, unknown if unknown.any() else None)


def _position(label: Label | None, positions: Mapping[Label, int], text: bool) -> int:
    if label is None:
        return -2
    position = positions.get(label)
    if position is None and text and isinstance(label, str):
        position = next((positions[value] for value in typed_readings(label) if value in positions), None)
    return -3 if position is None else position


def distinct_labels(column: pa.Array) -> tuple[np.ndarray, list[Label | None]]:
    """The distinct values of a column and where they stand.

    Returns:
        ``indices`` (n,), -1 where null, into ``labels``; a label is ``None`` where the value is NaN.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    indices = encoded.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int64()), -1)
    labels: list[Label | None] = []
    for value in encoded.dictionary.to_pylist():
        if value is None or value != value:
            labels.append(None)
            continue
        labels.append(plain_label(value))
    return indices.to_numpy(zero_copy_only=False), labels


def encode_table(contexts: Any, features: tuple[Feature, ...], intercept: bool) -> np.ndarray:
    """The encoded columns (n, width) of these features of a table.

    Raises:
        ContextError: a row cannot be encoded; the message says which one and why.
    """
    names = [feature.name for feature in features]
    layout = layout_of(features, intercept)
    blocks = []
    row = 0
    for batch, text_labels in as_batches(contexts, names):
        encoded = encode_columns(batch, layout, text_labels)
        block = np.empty((batch.num_rows, layout.width))
        for j, column in enumerate(encoded.columns):
            block[:, j] = column
        if encoded.problems or not np.isfinite(block).all():
            first, wrong = first_problem(batch, encoded, layout)
            raise ContextError(f"row {row + first}: {wrong}. Every feature needs a known, finite value.")
        blocks.append(block)
        row += batch.num_rows
    return np.concatenate(blocks) if blocks else np.empty((0, layout.width))


def first_problem(batch: pa.RecordBatch, encoded: Encoded, layout: Layout) -> tuple[int, str]:
    """The first row of a batch that cannot be encoded, and what is wrong with it; the levels, where one is unknown."""
    problem = min(all_problems(encoded, layout), key=lambda found: int(np.argmax(found.rows)))
    row = int(np.argmax(problem.rows))
    value = batch.column(problem.column)[row].as_py()
    reason = problem.reason
    if reason == UNKNOWN_LABEL:
        category = next(feature for feature in layout.features if feature.name == problem.column)
        assert isinstance(category, Category)
        how = "was not seen in the log" if category.discovered else "is not one of the declared levels"
        reason = f"a level that {how}: {show_labels(category.levels or (), 20)}"
    return row, f"feature {problem.column!r} is {value!r} ({reason})"
