"""Derived features: functions of columns, written ``spline(weight, 4)``, ``stage:dose``, ``weekday(visit)``.

A term takes columns as arrays and gives encoded columns. What it must know of the log (knots, edges, a day to count
from, what to put into gaps) it is either given or finds in a sample of the column, once (:meth:`Term.fitted`); then it
is kept in the schema, so that the log, an answer and a context are encoded by the same function. Everything is
computed entry by entry in a fixed order: one row gives the same bits alone and in a batch.

Functions of numbers are in ``number_terms``, those of dates in ``date_terms``.
"""

from __future__ import annotations

import itertools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, ClassVar, Literal, cast

import numpy as np

from sidelight.errors import SchemaError
from sidelight.labels import Label

__all__ = ["Column", "ColumnTerm", "Inputs", "Kind", "Missing", "Product", "Term", "quoted"]

Kind = Literal["number", "category", "date", "any"]

_PLAIN = re.compile(r"[^\W\d][\w.]*")


def quoted(name: str) -> str:
    """A column's name as a formula writes it: in backquotes unless it is a plain word."""
    return name if _PLAIN.fullmatch(name) else f"`{name}`"


def finite(value: Any, of: str) -> float:
    """A number given for the derived feature ``of``, checked to be finite.

    Raises:
        SchemaError: it is not a number, or not finite.
    """
    if isinstance(value, int | float | np.integer | np.floating | Decimal) and math.isfinite(value):
        return float(value)
    raise SchemaError(f"{of}: {value!r} is not a number.")


def finite_all(values: Any, of: str) -> tuple[float, ...]:
    """Several such numbers, in a list or an array."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise SchemaError(f"{of}: {values!r} is not a list of numbers.")
    return tuple(finite(value, of) for value in values)


@dataclass
class Inputs:
    """The columns of some rows, for terms to be computed from.

    Attributes:
        rows: n.
        numbers: name → (n,) values of numbers, and days since 1970 of dates; gaps are filled where a term says how.
        codes: name → (n,) the position of each row's level among ``levels[name]``; negative where there is none.
        levels: name → the levels of a category, in order.
        gaps: name → (n,) booleans, for the columns whose gaps a term tells apart.
    """

    rows: int
    numbers: dict[str, np.ndarray] = field(default_factory=dict)
    codes: dict[str, np.ndarray] = field(default_factory=dict)
    levels: Mapping[str, Sequence[Label]] = field(default_factory=dict)
    gaps: dict[str, np.ndarray] = field(default_factory=dict)


class Term(ABC):
    """A derived feature: some encoded columns that are a function of some columns."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The term as a formula writes it; reading it back gives the term, but for what was found in the log."""

    @property
    @abstractmethod
    def inputs(self) -> Mapping[str, Kind]:
        """The columns it is computed from, and what each of them must be."""

    @property
    def own_columns(self) -> tuple[str, ...]:
        """Columns that this term needs to have an encoded column of their own."""
        return ()

    @property
    def wants(self) -> str | None:
        """The column of which :meth:`fitted` needs a sample before anything can be computed, or ``None``."""
        return None

    def fitted(self, sample: np.ndarray) -> Term:
        """The term with what it must know of the log, from finite values of :attr:`wants` in increasing order."""
        return self

    @property
    def parts(self) -> tuple[Term, ...]:
        """The terms that it is made of, each of which is fitted by itself: the factors of a product."""
        return (self,)

    def with_parts(self, parts: Sequence[Term]) -> Term:
        """The inverse of :attr:`parts`."""
        return parts[0]

    def names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """The names of its encoded columns."""
        return [self.label]

    @abstractmethod
    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """Those of its encoded columns that are kept, each (n,); NaN where a value is outside its domain."""

    def found(self) -> dict[str, Any]:
        """What was found in the log, in plain JSON values, to be kept in a file."""
        return {}

    def with_found(self, described: Mapping[str, Any]) -> Term:
        """The inverse of :meth:`found`."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """A description in plain JSON values: the term as it is written, and what was found in the log."""
        return {"term": self.label, **self.found()}

    # as a factor of a product

    def factor_names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """The names of its columns where it is a factor of a product."""
        return self.names(levels)

    def factor_columns(self, values: Inputs) -> list[np.ndarray]:
        """Its columns where it is a factor of a product."""
        return self.columns(values, [True] * len(self.names(values.levels)))


class ColumnTerm(Term):
    """A function of one column; what it must know of the log, if anything, is one of its fields.

    Attributes:
        column: the column.
        kind: what it must be.
        learned: the field that a sample of the column fills in unless the user did; ``None`` if there is no such field.
            A second field, ``…_found``, says that it comes from the log, and so goes into files.
    """

    column: str
    kind: ClassVar[Kind] = "number"
    learned: ClassVar[str | None] = None

    @property
    def inputs(self) -> Mapping[str, Kind]:
        """The column that the term reads, and the kind of values that it takes."""
        return {self.column: self.kind}

    @property
    def wants(self) -> str | None:
        """The column, where what must be known of it was not given."""
        return self.column if self.learned is not None and getattr(self, self.learned) is None else None

    def found(self) -> dict[str, Any]:
        """What comes from the log, by the name of its field."""
        if self.learned is None or not getattr(self, f"{self.learned}_found"):
            return {}
        value = getattr(self, self.learned)
        return {self.learned: list(value) if isinstance(value, tuple) else value}

    def with_found(self, described: Mapping[str, Any]) -> Term:
        """The term with its field as a file kept it."""
        if self.learned is None or self.learned not in described:
            return self
        value = described[self.learned]
        kept = {self.learned: tuple(value) if isinstance(value, list) else value, f"{self.learned}_found": True}
        return cast(Term, replace(cast(Any, self), **kept))


@dataclass(frozen=True)
class Column(Term):
    """A column without a function applied to it; it stands only as a factor of a :class:`Product`."""

    name: str

    @property
    def label(self) -> str:
        """The column's name."""
        return quoted(self.name)

    @property
    def inputs(self) -> Mapping[str, Kind]:
        """The column, a number or a category."""
        return {self.name: "any"}

    def names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """One for a number, one for each level of a category."""
        if self.name in levels:
            return [f"{self.name}={level}" for level in levels[self.name]]
        return [self.name]

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """The number, or for each level whether the row has it."""
        if self.name in values.codes:
            codes = values.codes[self.name]
            return [(codes == i).astype(np.float64) for i, kept in enumerate(keep) if kept]
        return [values.numbers[self.name]]


@dataclass(frozen=True)
class Missing(ColumnTerm):
    """Whether a column has no value, ``missing(weight)``: with it a gap is no mistake.

    Where the column itself, or something derived from it, is encoded too, a gap counts there as ``fill``; how far
    that is wrong is what the weight of this column makes up for. A gap of a category has no level.

    Attributes:
        column: the column that may have gaps.
        fill: what a gap counts as in a number or a date (days since 1970); ``None`` takes the median of the log.

    Examples:
        >>> import sidelight as sl
        >>> schema = sl.Schema(["weight"], recorded=["weight"], derived=[sl.Missing("weight", fill=70.0)])
        >>> schema.encode({"weight": None}).tolist()
        [70.0, 1.0]
    """

    kind = "any"
    learned = "fill"

    column: str
    fill: float | None = None
    fill_found: bool = False

    def __post_init__(self) -> None:
        if self.fill is not None:
            object.__setattr__(self, "fill", finite(self.fill, f"missing({quoted(self.column)}, ...)"))

    @property
    def label(self) -> str:
        """``missing(weight)``."""
        given = "" if self.fill is None or self.fill_found else f", {self.fill!r}"
        return f"missing({quoted(self.column)}{given})"

    def fitted(self, sample: np.ndarray) -> Term:
        """Fill with the median of the sample."""
        return replace(self, fill=float(sample[len(sample) // 2]), fill_found=True)

    def names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """``missing(weight)``."""
        return [f"missing({self.column})"]

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """1 where there is no value."""
        gaps = values.gaps.get(self.column)
        return [np.zeros(values.rows) if gaps is None else gaps.astype(np.float64)]


@dataclass(frozen=True)
class Product(Term):
    """The product of columns or terms, ``age:weight``, ``stage:dose``, ``stage:spline(weight, 3)``.

    A category stands for its levels: every combination of levels has a column, but for those that would repeat what
    the schema has already (see :meth:`sidelight.Schema.encoded_names`).

    Attributes:
        factors: names of columns, or terms.

    Examples:
        >>> import sidelight as sl
        >>> schema = sl.Schema(["dose", "age"], recorded=["dose"], derived=[sl.Product("dose", "age")])
        >>> schema.encode({"dose": 2, "age": 30}).tolist(), schema.hidden_index.tolist()
        ([2.0, 30.0, 60.0], [1, 2])
    """

    factors: tuple[Term, ...]

    def __init__(self, *factors: str | Term | Sequence[str | Term]) -> None:
        flat: list[str | Term] = []
        for factor in factors:
            flat.extend(factor if isinstance(factor, list | tuple) else [factor])  # type: ignore[list-item]
        terms = tuple(Column(factor) if isinstance(factor, str) else factor for factor in flat)
        if wrong := [term for term in terms if not isinstance(term, Term)]:
            raise SchemaError(f"a factor of a product is a column's name or a derived feature, not {wrong[0]!r}.")
        if len(terms) < 2:
            raise SchemaError("a product has at least two factors.")
        if len({term.label for term in terms}) < len(terms):
            raise SchemaError(
                f"{':'.join(term.label for term in terms)} has a factor twice: for a square write {terms[0].label}**2."
            )
        object.__setattr__(self, "factors", terms)

    @property
    def label(self) -> str:
        """``stage:dose``."""
        return ":".join(term.label for term in self.factors)

    @property
    def inputs(self) -> Mapping[str, Kind]:
        """The columns of all factors, and what each of them must be."""
        found: dict[str, Kind] = {}
        for term in self.factors:
            for name, kind in term.inputs.items():
                found[name] = kind if found.get(name, "any") == "any" else found[name]
        return found

    @property
    def parts(self) -> tuple[Term, ...]:
        """The factors; each is fitted to a sample of its own column."""
        return self.factors

    def with_parts(self, parts: Sequence[Term]) -> Term:
        """The product of these factors."""
        return Product(*parts)

    def names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """Every combination of the factors' columns, the last factor's changing fastest."""
        return [":".join(combination) for combination in self.combinations(levels)]

    def combinations(self, levels: Mapping[str, Sequence[Label]]) -> list[tuple[str, ...]]:
        """The names of the factors' columns, for each column of the product."""
        return list(itertools.product(*(term.factor_names(levels) for term in self.factors)))

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """The encoded columns: products of the factors' columns, in the order of ``names``."""
        parts = [term.factor_columns(values) for term in self.factors]
        out = []
        for kept, combination in zip(keep, itertools.product(*parts), strict=True):
            if kept:
                column = combination[0]
                for factor in combination[1:]:
                    column = column * factor
                out.append(column)
        return out

    def found(self) -> dict[str, Any]:
        """What the factors found in the log, by factor."""
        found = [term.found() for term in self.factors]
        return {"factors": found} if any(found) else {}

    def with_found(self, described: Mapping[str, Any]) -> Term:
        """The product with its factors as a file kept them."""
        if "factors" not in described:
            return self
        return Product(*(t.with_found(f) for t, f in zip(self.factors, described["factors"], strict=True)))
