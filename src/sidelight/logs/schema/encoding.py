"""Arrow columns as encoded arrays: the same code for logs of any size and for contexts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sidelight.errors import ContextError
from sidelight.labels import Label, show_labels
from sidelight.logs.schema.columns import date_column, label_codes, number_column
from sidelight.logs.schema.features import Category, Date, Feature
from sidelight.logs.schema.terms import Column, Inputs, Missing, Product, Term
from sidelight.logs.sources.opening import as_batches

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "INTERCEPT",
    "MISSING",
    "NOT_A_NUMBER",
    "UNKNOWN_LABEL",
    "Encoded",
    "Layout",
    "Problem",
    "all_problems",
    "encode_batch",
    "encode_columns",
    "encode_table",
    "first_problem",
    "label_problems",
    "layout_of",
    "may_miss",
    "number_problems",
    "spans",
]

#: The encoded name of the constant feature.
INTERCEPT = "intercept"

UNKNOWN_LABEL = "not among the declared labels"
MISSING = "missing or NaN"
NOT_A_NUMBER = "not a number"


@dataclass(frozen=True)
class Problem:
    """Rows of a batch that cannot be used, for one reason."""

    column: str
    reason: str
    rows: np.ndarray
    """(n,) booleans"""


@dataclass(frozen=True)
class Layout:
    """What is encoded where: the constant, then each feature's own columns, then those of each term.

    Attributes:
        features: the columns to read.
        levels: category → its levels in order.
        shown: category → positions of the levels that have a column of their own.
        terms: the derived features, each with which of its columns are kept.
        intercept: whether column 0 is the constant.
        names: the names of the encoded columns.
        fills: column → what a gap counts as, for the columns whose gaps are no mistake; ``None`` for a category.
        imputed: columns whose gaps a context may have: what is computed from them is NaN there, for a learner to infer.
    """

    features: tuple[Feature, ...]
    levels: Mapping[str, tuple[Label, ...]]
    shown: Mapping[str, tuple[int, ...]]
    terms: tuple[tuple[Term, tuple[bool, ...]], ...]
    intercept: bool
    names: tuple[str, ...]
    fills: Mapping[str, float | None]
    imputed: frozenset[str] = frozenset()

    @property
    def width(self) -> int:
        """How many encoded columns there are."""
        return len(self.names)


def layout_of(
    features: Sequence[Feature],
    intercept: bool,
    levels: Mapping[str, Sequence[Label]] | None = None,
    terms: Sequence[Term] = (),
    imputed: Iterable[str] = (),
) -> Layout:
    """The layout of these features and terms, one after the other.

    Args:
        features: the columns to encode.
        intercept: whether column 0 is the constant.
        levels: levels to use instead of a category's own, while a log is read: then every level has a column, and
            products keep every combination.
        terms: derived features of these columns.
        imputed: columns whose gaps a context may have; one whose gaps are filled (``Missing``) has none.
    """
    names: list[str] = [INTERCEPT] if intercept else []
    all_levels: dict[str, tuple[Label, ...]] = {}
    shown: dict[str, tuple[int, ...]] = {}
    for feature in features:
        if not isinstance(feature, Category):
            names.extend(feature.encoded_names)
            continue
        if levels is not None and feature.name in levels:
            all_levels[feature.name] = tuple(levels[feature.name])
            shown[feature.name] = tuple(range(len(levels[feature.name])))
        else:
            all_levels[feature.name] = feature.levels or ()
            shown[feature.name] = tuple(feature.index_of[level] for level in feature.column_levels)
        names.extend(f"{feature.name}={all_levels[feature.name][i]}" for i in shown[feature.name])
    kept: list[tuple[Term, tuple[bool, ...]]] = []
    for term in terms:
        every = term.names(all_levels)
        omitted = _omitted(term, features, terms, all_levels, intercept) if levels is None else set()
        kept.append((term, tuple(name not in omitted for name in every)))
        names.extend(name for name in every if name not in omitted)
    fills = {term.column: term.fill for term in terms if isinstance(term, Missing)}
    gaps = frozenset(imputed) - fills.keys()
    return Layout(tuple(features), all_levels, shown, tuple(kept), intercept, tuple(names), fills, gaps)


def spans(layout: Layout) -> list[tuple[frozenset[str], slice]]:
    """For every feature and every term, the columns that it is computed from and its encoded columns."""
    found: list[tuple[frozenset[str], slice]] = []
    at = int(layout.intercept)
    for feature in layout.features:
        width = len(layout.shown[feature.name]) if isinstance(feature, Category) else len(feature.encoded_names)
        found.append((frozenset({feature.name}), slice(at, at + width)))
        at += width
    for term, keep in layout.terms:
        found.append((frozenset(term.inputs), slice(at, at + sum(keep))))
        at += sum(keep)
    return found


def may_miss(layout: Layout) -> np.ndarray:
    """(d,) booleans: the encoded columns that are NaN in a context whose gap is to be inferred."""
    out = np.zeros(layout.width, dtype=bool)
    for inputs, span in spans(layout):
        out[span] = bool(inputs & layout.imputed)
    return out


def gaps_in(encoded: Encoded, layout: Layout) -> dict[str, np.ndarray]:
    """The rows in which a column has a gap that a context may have: column → (n,) booleans, where there are any."""
    found: dict[str, np.ndarray] = {}
    for feature in layout.features:
        name = feature.name
        if name not in layout.imputed:
            continue
        if isinstance(feature, Category):
            rows = [p.rows for p in encoded.problems if p.column == name and p.reason == MISSING]
            gaps = rows[0] if rows else np.zeros(encoded.inputs.rows, dtype=bool)
        else:
            gaps = np.isnan(encoded.inputs.numbers[name])
            if name in encoded.unparsable:
                gaps &= ~encoded.unparsable[name]
        if gaps.any():
            found[name] = gaps
    return found


def _omitted(
    term: Term,
    features: Sequence[Feature],
    terms: Sequence[Term],
    levels: Mapping[str, tuple[Label, ...]],
    intercept: bool,
) -> set[str]:
    """The columns of a product that others make up.

    The columns of all levels of a category, each multiplied with the same other columns, add up to the product of
    those. Where that product has a column too, one level is left out: the baseline, or the first. Where all factors
    are categories and nothing is left out so, all columns add up to the constant, so with one the first is left out.
    """
    if not isinstance(term, Product):
        return set()
    references: dict[str, str] = {}
    present: set[frozenset[str]] = set()
    for feature in features:
        if isinstance(feature, Category) and levels[feature.name]:
            own = levels[feature.name]
            references[feature.name] = f"{feature.name}={feature.baseline if feature.baseline in own else own[0]}"
        if feature.own:
            present |= {frozenset({name}) for name in Column(feature.name).names(levels)}
    for other in terms:
        columns = other.combinations(levels) if isinstance(other, Product) else [(n,) for n in other.names(levels)]
        present |= {frozenset(column) for column in columns}
    omitted: set[str] = set()
    combinations = term.combinations(levels)
    of_category = [
        factor.name if isinstance(factor, Column) and factor.name in levels else "" for factor in term.factors
    ]
    for column in combinations:
        for i, name in enumerate(of_category):
            rest = frozenset(column[:i] + column[i + 1 :])
            if name and column[i] == references[name] and rest in present:
                omitted.add(":".join(column))
    if not omitted and all(of_category) and intercept and combinations:
        return {":".join(combinations[0])}
    return omitted


@dataclass
class Encoded:
    """The encoded columns of a batch and what could not be encoded.

    Attributes:
        columns: one contiguous (n,) float64 array per encoded column; NaN where a number is missing or unreadable.
        problems: rows whose label is missing or unknown.
        unparsable: name → rows whose text is not a number, or no date.
        inputs: the columns as they were read, gaps filled where that is asked for.
    """

    columns: list[np.ndarray]
    problems: list[Problem]
    unparsable: dict[str, np.ndarray]
    inputs: Inputs


def encode_columns(batch: pa.RecordBatch, layout: Layout, text_labels: bool = False) -> Encoded:
    """Encode a batch column by column, without copying numbers that are already float64."""
    n = batch.num_rows
    inputs = Inputs(n, levels=layout.levels)
    encoded = Encoded([np.ones(n)] if layout.intercept else [], [], {}, inputs)
    for feature in layout.features:
        column = batch.column(feature.name)
        if isinstance(feature, Category):
            _encode_category(feature, column, layout, text_labels, encoded)
            continue
        if isinstance(feature, Date):
            values, unparsable = date_column(column, feature.name, feature.zone)
        else:
            values, unparsable = number_column(column, feature.name)
        if unparsable is not None:
            encoded.unparsable[feature.name] = unparsable
        if feature.name in layout.fills:
            gaps = np.isnan(values)
            if unparsable is not None:
                gaps &= ~unparsable
            inputs.gaps[feature.name] = gaps
            fill = layout.fills[feature.name]
            if fill is not None and gaps.any():
                values = np.where(gaps, fill, values)
        inputs.numbers[feature.name] = values
        if feature.own:
            encoded.columns.append(values)
    for term, keep in layout.terms:
        encoded.columns.extend(term.columns(inputs, keep))
    return encoded


def _encode_category(feature: Category, column: pa.Array, layout: Layout, text_labels: bool, encoded: Encoded) -> None:
    name = feature.name
    # a baseline counts as a level, the one without a column, even if no row of the log had it
    positions: dict[Label, int] = {} if feature.baseline is None else {feature.baseline: -1}
    positions |= {level: i for i, level in enumerate(layout.levels[name])}
    codes, (missing, unknown) = label_codes(column, name, positions, text_labels)
    if name in layout.fills:
        encoded.inputs.gaps[name] = np.zeros(len(codes), dtype=bool) if missing is None else missing
        missing = None
    encoded.inputs.codes[name] = codes
    for i in layout.shown[name]:
        level = np.zeros(len(codes))
        level[codes == i] = 1.0
        encoded.columns.append(level)
    encoded.problems.extend(label_problems(name, (missing, unknown)))


def all_problems(encoded: Encoded, layout: Layout) -> list[Problem]:
    """Every row that cannot be used, in the order of the features; it looks at every value, which is slow."""
    by_label: dict[str, list[Problem]] = {}
    for problem in encoded.problems:
        by_label.setdefault(problem.column, []).append(problem)
    problems: list[Problem] = []
    for feature in layout.features:
        if isinstance(feature, Category):
            problems.extend(by_label.get(feature.name, []))
            continue
        what = "not a date" if isinstance(feature, Date) else NOT_A_NUMBER
        values = encoded.inputs.numbers[feature.name]
        problems.extend(number_problems(feature.name, values, encoded.unparsable.get(feature.name), what))
    bad = np.zeros(encoded.inputs.rows, dtype=bool)
    for problem in problems:
        bad |= problem.rows
    at = layout.width - sum(sum(keep) for _, keep in layout.terms)
    for term, keep in layout.terms:
        outside = ~bad
        block = encoded.columns[at : at + sum(keep)]
        at += sum(keep)
        outside &= ~np.all([np.isfinite(column) for column in block], axis=0) if block else False
        if outside.any():
            name = next(iter(term.inputs))
            problems.append(Problem(name, f"outside of what {term.label} is defined for", outside))
    return problems


def number_problems(
    name: str, values: np.ndarray, unparsable: np.ndarray | None, what: str = NOT_A_NUMBER
) -> list[Problem]:
    """The rows of a column of numbers or dates that cannot be used."""
    missing = np.isnan(values)
    if unparsable is not None:
        missing &= ~unparsable
    found = [Problem(name, MISSING, missing), Problem(name, "infinite", np.isinf(values))]
    if unparsable is not None:
        found.append(Problem(name, what, unparsable))
    return [problem for problem in found if problem.rows.any()]


def label_problems(name: str, found: tuple[np.ndarray | None, np.ndarray | None]) -> list[Problem]:
    """The problems of a column of labels, from what :func:`label_codes` found."""
    missing, unknown = found
    problems = [] if missing is None else [Problem(name, MISSING, missing)]
    return problems + ([] if unknown is None else [Problem(name, UNKNOWN_LABEL, unknown)])


def encode_table(contexts: Any, layout: Layout) -> np.ndarray:
    """The encoded columns (n, width) of a table.

    Raises:
        ContextError: a row cannot be encoded; the message says which one and why.
    """
    names = [feature.name for feature in layout.features]
    blocks = []
    row = 0
    for batch, text_labels in as_batches(contexts, names):
        block, problems = encode_batch(batch, layout, text_labels)
        if problems:
            first, wrong = first_problem(batch, problems, layout)
            raise ContextError(f"row {row + first}: {wrong}. Every feature needs a known, finite value.")
        blocks.append(block)
        row += batch.num_rows
    return np.concatenate(blocks) if blocks else np.empty((0, layout.width))


def encode_batch(batch: pa.RecordBatch, layout: Layout, text_labels: bool = False) -> tuple[np.ndarray, list[Problem]]:
    """The encoded columns (n, width) of a batch of contexts, NaN for gaps that they may have, and what is wrong."""
    encoded = encode_columns(batch, layout, text_labels)
    block = np.empty((batch.num_rows, layout.width))
    for j, column in enumerate(encoded.columns):
        block[:, j] = column
    if not encoded.problems and not encoded.unparsable and np.isfinite(block).all():
        return block, []
    gaps = gaps_in(encoded, layout)
    problems = []
    for problem in all_problems(encoded, layout):
        if not (problem.reason == MISSING and problem.column in gaps):
            problems.append(problem)
    for inputs, span in spans(layout):
        for name in inputs & gaps.keys():
            block[gaps[name], span] = np.nan
    return block, problems


def first_problem(batch: pa.RecordBatch, problems: Sequence[Problem], layout: Layout) -> tuple[int, str]:
    """The first row of a batch that cannot be encoded, and what is wrong with it; the levels, where one is unknown."""
    problem = min(problems, key=lambda found: int(np.argmax(found.rows)))
    row = int(np.argmax(problem.rows))
    value = batch.column(problem.column)[row].as_py()
    reason = problem.reason
    if reason == UNKNOWN_LABEL:
        category = next(feature for feature in layout.features if feature.name == problem.column)
        assert isinstance(category, Category)
        how = "was not seen in the log" if category.discovered else "is not one of the declared levels"
        reason = f"a level that {how}: {show_labels(category.levels or (), 20)}"
    return row, f"feature {problem.column!r} is {value!r} ({reason})"
