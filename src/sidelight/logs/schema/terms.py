"""Derived features: functions of columns, written ``spline(weight, 4)``, ``stage:dose``, ``weekday(visit)``.

A term takes columns as arrays and gives encoded columns. What it must know of the log (knots, edges, a day to count
from, what to put into gaps) it either is told or finds in a sample of the column, once (:meth:`Term.fitted`); then it
is kept in the schema, so that the log, an answer and a context are encoded by the same function. Everything is
computed entry by entry in a fixed order: one row gives the same bits alone and in a batch.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from sidelight.errors import SchemaError
from sidelight.labels import Label
from sidelight.logs.schema.entrywise import logarithm, sine
from sidelight.logs.schema.features import MICROSECONDS_PER_DAY, microseconds_since_1970
from sidelight.logs.schema.splines import Bends, spline_knots

__all__ = [
    "Bins",
    "Column",
    "DatePart",
    "DaysSince",
    "Inputs",
    "Logarithm",
    "Missing",
    "Power",
    "Product",
    "Spline",
    "Term",
    "quoted",
]

Kind = Literal["number", "category", "date", "any"]

_PLAIN = re.compile(r"[^\W\d][\w.]*")


def quoted(name: str) -> str:
    """A column's name as a formula writes it: in backquotes unless it is a plain word."""
    return name if _PLAIN.fullmatch(name) else f"`{name}`"


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


class Term:
    """A derived feature: some encoded columns that are a function of some columns."""

    @property
    def label(self) -> str:
        """The term as a formula writes it; reading it back gives the term, but for what was found in the log."""
        raise NotImplementedError

    @property
    def inputs(self) -> Mapping[str, Kind]:
        """The columns it is computed from, and what each of them must be."""
        raise NotImplementedError

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

    def names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """The names of its encoded columns."""
        return [self.label]

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """Those of its encoded columns that are kept, each (n,); NaN where a value is outside its domain."""
        raise NotImplementedError

    def found(self) -> dict[str, Any]:
        """What was found in the log, for a file."""
        return {}

    def with_found(self, described: Mapping[str, Any]) -> Term:
        """The inverse of :meth:`found`."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe description: the term as it is written, and what was found in the log."""
        return {"term": self.label, **self.found()}

    # as a factor of a product

    def factor_names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """The names of its columns where it is a factor of a product."""
        return self.names(levels)

    def factor_columns(self, values: Inputs) -> list[np.ndarray]:
        """Its columns where it is a factor of a product."""
        return self.columns(values, [True] * len(self.names(values.levels)))


@dataclass(frozen=True)
class Column(Term):
    """A column as it is; only as a factor of a :class:`Product`."""

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
class Power(Term):
    """A power of a number: ``age**2``.

    Attributes:
        column: the number.
        exponent: a whole or half number; with a half, values must be at least 0, with a negative one not 0.

    Examples:
        >>> import sidelight as sl
        >>> sl.Schema(["age"], recorded=["age"], derived=[sl.Power("age", 2)]).encode({"age": 3}).tolist()
        [3.0, 9.0]
    """

    column: str
    exponent: float

    def __post_init__(self) -> None:
        if self.exponent == 0 or not abs(self.exponent) <= 16 or 2 * self.exponent != int(2 * self.exponent):
            raise SchemaError(
                f"{quoted(self.column)}**{self.exponent:g}: an exponent is a whole or half number other than 0, from "
                "-16 to 16; beside it there is log()."
            )

    @property
    def label(self) -> str:
        """``age**2``."""
        return f"{quoted(self.column)}**{self.exponent:g}"

    @property
    def inputs(self) -> Mapping[str, Kind]:
        """The number."""
        return {self.column: "number"}

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """The power; NaN where it is not defined."""
        x = values.numbers[self.column]
        out = np.ones_like(x)
        if self.exponent != int(self.exponent):
            out = np.sqrt(np.where(x >= 0, x, np.nan))
        for _ in range(int(abs(self.exponent))):
            out = out * x
        if self.exponent > 0:
            return [out]
        return [1.0 / np.where(out == 0, np.nan, out)]


@dataclass(frozen=True)
class Logarithm(Term):
    """The natural logarithm of a number, ``log(income)``; ``log(income, 1)`` is that of income + 1.

    Attributes:
        column: the number; the logarithm is taken of positive values only.
        offset: what is added first.

    Examples:
        >>> import sidelight as sl
        >>> sl.Schema("log(income, 1)", recorded=["income"]) == sl.Schema(
        ...     [], recorded=["income"], derived=[sl.Logarithm("income", 1)])
        True
    """

    column: str
    offset: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "offset", float(self.offset))

    @property
    def label(self) -> str:
        """``log(income, 1)``."""
        return f"log({quoted(self.column)}{f', {self.offset!r}' if self.offset else ''})"

    @property
    def inputs(self) -> Mapping[str, Kind]:
        """The number."""
        return {self.column: "number"}

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """The logarithm; NaN where the value is not positive."""
        x = values.numbers[self.column] + self.offset
        usable = (x > 0) & np.isfinite(x)
        return [np.where(usable, logarithm(np.where(usable, x, 1.0)), np.nan)]


@dataclass(frozen=True)
class Spline(Term):
    """A natural cubic spline of a number, ``spline(weight, 4)``: the number itself and ``df - 1`` bends.

    The bends are curves that are straight beyond the outer knots; on the sample that the knots come from (or on a
    grid between given knots) they have mean 0 and mean square 1, and are uncorrelated with each other and with the
    number. So a straight effect needs none of them.

    Attributes:
        column: the number; it has an encoded column of its own.
        df: encoded columns in all, the number's own included; at least 2.
        knots: where the curve may change, increasing, ``df + 1`` of them; ``None`` takes quantiles of the log.
        bends: how the curves are put together; follows from the knots and the sample.
        knots_found: whether the knots come from the log.

    Examples:
        >>> import sidelight as sl
        >>> schema = sl.Schema([], recorded=["age"], derived=[sl.Spline("age", knots=[20, 40, 60, 80])])
        >>> schema.encoded_names
        ('age', 'bend1(age)', 'bend2(age)')
    """

    column: str
    df: int = 4
    knots: tuple[float, ...] | None = None
    bends: Bends | None = None
    knots_found: bool = False

    def __post_init__(self) -> None:
        if self.knots is None:
            if not 2 <= self.df <= 20:
                raise SchemaError(f"spline({quoted(self.column)}, {self.df}): give between 2 and 20 columns.")
            return
        knots = tuple(float(knot) for knot in self.knots)
        if len(knots) < 3 or not all(math.isfinite(k) for k in knots) or list(knots) != sorted(set(knots)):
            raise SchemaError(
                f"the knots of the spline of {self.column!r} must be at least three increasing numbers, not "
                f"{list(self.knots)}."
            )
        object.__setattr__(self, "knots", knots)
        object.__setattr__(self, "df", len(knots) - 1)
        if self.bends is None:
            object.__setattr__(self, "bends", Bends.of(knots, np.linspace(knots[0], knots[-1], 65)))

    @property
    def label(self) -> str:
        """``spline(weight, 4)``, or with the knots where they were given."""
        if self.knots is None or self.knots_found:
            return f"spline({quoted(self.column)}, {self.df})"
        return f"spline({quoted(self.column)}, knots=[{', '.join(map(repr, self.knots))}])"

    @property
    def inputs(self) -> Mapping[str, Kind]:
        """The number."""
        return {self.column: "number"}

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The number, whose own column is the straight part."""
        return (self.column,)

    @property
    def wants(self) -> str | None:
        """The number, where no knots were given."""
        return self.column if self.knots is None else None

    def fitted(self, sample: np.ndarray) -> Term:
        """Knots at quantiles of the sample."""
        knots = spline_knots(self.column, self.df, sample)
        # a hundred quantiles say as much of the column's spread as all of its values
        at = np.linspace(0, len(sample) - 1, min(len(sample), 101)).round().astype(np.int64)
        return replace(self, knots=knots, bends=Bends.of(knots, sample[at]), knots_found=True)

    def names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """One for each bend."""
        return [f"bend{i}({self.column})" for i in range(1, self.df)]

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """The bends."""
        assert self.bends is not None
        return self.bends.columns(values.numbers[self.column], keep)

    def factor_names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """In a product also the number itself."""
        return [self.column, *self.names(levels)]

    def factor_columns(self, values: Inputs) -> list[np.ndarray]:
        """In a product also the number itself."""
        return [values.numbers[self.column], *self.columns(values, [True] * (self.df - 1))]

    def found(self) -> dict[str, Any]:
        """Knots and bends."""
        if self.bends is None:
            return {}
        return {
            "knots": list(self.knots or ()),
            "knots_found": self.knots_found,
            "bends": [list(row) for row in self.bends.coefficients],
        }

    def with_found(self, described: Mapping[str, Any]) -> Term:
        """Knots and bends as they were kept."""
        if "knots" not in described:
            return self
        knots = tuple(described["knots"])
        bends = Bends(knots, tuple(tuple(row) for row in described["bends"]))
        return replace(self, knots=knots, bends=bends, knots_found=described["knots_found"])


@dataclass(frozen=True)
class Bins(Term):
    """Which of several intervals a number lies in, ``bins(age, 4)`` or ``bins(age, [40, 65])``.

    The first interval has no column of its own: with all the others 0 it is what the constant stands for.

    Attributes:
        column: the number.
        count: how many intervals, with about as many rows of the log each, where no edges are given.
        edges: where an interval ends and the next begins, increasing; a value equal to an edge is in the upper one.
        edges_found: whether the edges come from the log.

    Examples:
        >>> import sidelight as sl
        >>> schema = sl.Schema([], recorded=["age"], derived=[sl.Bins("age", edges=[40, 65])])
        >>> schema.encoded_names, schema.encode({"age": 50}).tolist()
        (('age in [40, 65)', 'age in [65, ∞)'), [1.0, 0.0])
    """

    column: str
    count: int = 4
    edges: tuple[float, ...] | None = None
    edges_found: bool = False

    def __post_init__(self) -> None:
        if self.edges is None:
            if not 2 <= self.count <= 100:
                raise SchemaError(f"bins({quoted(self.column)}, {self.count}): give between 2 and 100 intervals.")
            return
        edges = tuple(float(edge) for edge in self.edges)
        if not edges or not all(math.isfinite(e) for e in edges) or list(edges) != sorted(set(edges)):
            raise SchemaError(f"the edges of the bins of {self.column!r} must be increasing, not {list(self.edges)}.")
        object.__setattr__(self, "edges", edges)
        if not self.edges_found:
            object.__setattr__(self, "count", len(edges) + 1)

    @property
    def label(self) -> str:
        """``bins(age, 4)``, or with the edges where they were given."""
        if self.edges is None or self.edges_found:
            return f"bins({quoted(self.column)}, {self.count})"
        return f"bins({quoted(self.column)}, [{', '.join(map(repr, self.edges))}])"

    @property
    def inputs(self) -> Mapping[str, Kind]:
        """The number."""
        return {self.column: "number"}

    @property
    def wants(self) -> str | None:
        """The number, where no edges were given."""
        return self.column if self.edges is None else None

    def fitted(self, sample: np.ndarray) -> Term:
        """Edges at quantiles of the sample; equal ones are one."""
        at = (np.arange(1, self.count) * len(sample)) // self.count
        edges = [edge for edge in sorted(set(sample[at].tolist())) if edge > sample[0]]
        if not edges:
            raise SchemaError(
                f"column {self.column!r} is {sample[0]:g} nearly everywhere, so its quantiles make no bins: give the "
                f"edges, bins({quoted(self.column)}, [...])."
            )
        return replace(self, edges=tuple(edges), edges_found=True)

    def names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """``age in [40, 65)``, one for each interval but the first."""
        if self.edges is None:
            return [f"{self.column} in bin {i}" for i in range(1, self.count)]
        edges = self.edges
        upper = [f"{edge:.12g})" for edge in edges[1:]] + ["∞)"]
        return [f"{self.column} in [{low:.12g}, {high}" for low, high in zip(edges, upper, strict=True)]

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """1 where the value lies in the interval; NaN where there is no value."""
        x = values.numbers[self.column]
        edges = [*(self.edges or ()), math.inf]
        nothing = ~np.isfinite(x)
        out = []
        for i, kept in enumerate(keep):
            if kept:
                inside = ((x >= edges[i]) & (x < edges[i + 1])).astype(np.float64)
                inside[nothing] = np.nan
                out.append(inside)
        return out

    def found(self) -> dict[str, Any]:
        """The edges, where they come from the log."""
        return {"edges": list(self.edges or ())} if self.edges_found else {}

    def with_found(self, described: Mapping[str, Any]) -> Term:
        """The edges as they were kept."""
        if "edges" not in described:
            return self
        return replace(self, edges=tuple(described["edges"]), edges_found=True)


_PARTS = {"weekday": 7.0, "month": 12.0, "hour": 24.0}


@dataclass(frozen=True)
class DatePart(Term):
    """A part of a date as a point on a circle, sine and cosine: ``weekday(visit)``, ``month(visit)``, ``hour(visit)``.

    Attributes:
        column: the date.
        part: ``"weekday"`` (Monday is 0), ``"month"`` (January is 0) or ``"hour"`` (with its fraction).
        zone: the zone whose clocks count, for timestamps that have one; see :class:`sidelight.Date`.

    Examples:
        >>> import sidelight as sl
        >>> schema = sl.Schema([], recorded=["visit"], derived=[sl.DatePart("visit", "hour")])
        >>> schema.encode({"visit": "2024-02-29T06:00"}).round(12).tolist()
        [1.0, 0.0]
    """

    column: str
    part: Literal["weekday", "month", "hour"]
    zone: str | None = None

    def __post_init__(self) -> None:
        if self.part not in _PARTS:
            raise SchemaError(f"{self.part!r} is not a part of a date; there are {', '.join(_PARTS)}.")

    @property
    def label(self) -> str:
        """``hour(visit, 'Europe/Berlin')``."""
        return f"{self.part}({quoted(self.column)}{'' if self.zone is None else f', {self.zone!r}'})"

    @property
    def inputs(self) -> Mapping[str, Kind]:
        """The date."""
        return {self.column: "date"}

    def names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """Sine and cosine."""
        return [f"sin {self.part}({self.column})", f"cos {self.part}({self.column})"]

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """Sine and cosine of the part's share of its period."""
        days = values.numbers[self.column]
        known = np.isfinite(days)
        safe = np.where(known, days, 0.0)
        if self.part == "hour":
            turns = safe - np.floor(safe)
        elif self.part == "weekday":
            # 1970-01-01 was a Thursday
            turns = ((np.floor(safe) + 3) % 7) / 7
        else:
            months = np.floor(safe).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
            turns = (months % 12) / 12
        pair = (sine(turns), sine(turns + 0.25))
        return [np.where(known, column, np.nan) for column, kept in zip(pair, keep, strict=True) if kept]


@dataclass(frozen=True)
class DaysSince(Term):
    """Days from a day to a date, fractions included: ``days_since(visit, "2020-01-01")``.

    Attributes:
        column: the date.
        origin: the day to count from, ISO text; ``None`` takes the first day of the log.
        origin_found: whether the day comes from the log.
        zone: the zone whose clocks count, for timestamps that have one; see :class:`sidelight.Date`.

    Examples:
        >>> import sidelight as sl
        >>> schema = sl.Schema([], recorded=["visit"], derived=[sl.DaysSince("visit", "2024-01-01")])
        >>> schema.encode({"visit": "2024-01-31"}).tolist()
        [30.0]
    """

    column: str
    origin: str | None = None
    origin_found: bool = False
    zone: str | None = None

    def __post_init__(self) -> None:
        if self.origin is not None:
            try:
                object.__setattr__(self, "_day", _day(self.origin))
            except ValueError:
                raise SchemaError(
                    f"days_since({quoted(self.column)}, {self.origin!r}): a day is written 2020-01-01."
                ) from None

    @property
    def label(self) -> str:
        """``days_since(visit, '2020-01-01')``."""
        origin = "" if self.origin is None or self.origin_found else f", {self.origin!r}"
        zone = "" if self.zone is None else f", zone={self.zone!r}"
        return f"days_since({quoted(self.column)}{origin}{zone})"

    @property
    def inputs(self) -> Mapping[str, Kind]:
        """The date."""
        return {self.column: "date"}

    @property
    def wants(self) -> str | None:
        """The date, where no day was given."""
        return self.column if self.origin is None else None

    def fitted(self, sample: np.ndarray) -> Term:
        """Count from the first day of the sample."""
        first = dt.date(1970, 1, 1) + dt.timedelta(days=math.floor(sample[0]))
        return replace(self, origin=first.isoformat(), origin_found=True)

    def names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """``days_since(visit)``."""
        return [f"days_since({self.column})"]

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """The days."""
        return [values.numbers[self.column] - self.__dict__["_day"]]

    def found(self) -> dict[str, Any]:
        """The day, where it comes from the log."""
        return {"origin": self.origin} if self.origin_found else {}

    def with_found(self, described: Mapping[str, Any]) -> Term:
        """The day as it was kept."""
        return replace(self, origin=described["origin"], origin_found=True) if "origin" in described else self


def _day(text: str) -> float:
    return microseconds_since_1970(dt.datetime.fromisoformat(text), None) / MICROSECONDS_PER_DAY


@dataclass(frozen=True)
class Missing(Term):
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

    column: str
    fill: float | None = None
    fill_found: bool = False

    @property
    def label(self) -> str:
        """``missing(weight)``."""
        given = "" if self.fill is None or self.fill_found else f", {self.fill!r}"
        return f"missing({quoted(self.column)}{given})"

    @property
    def inputs(self) -> Mapping[str, Kind]:
        """The column, of any kind."""
        return {self.column: "any"}

    @property
    def wants(self) -> str | None:
        """The column, where the fill is not known; a category needs none."""
        return self.column if self.fill is None else None

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

    def found(self) -> dict[str, Any]:
        """The fill, where it comes from the log."""
        return {"fill": self.fill} if self.fill_found else {}

    def with_found(self, described: Mapping[str, Any]) -> Term:
        """The fill as it was kept."""
        return replace(self, fill=described["fill"], fill_found=True) if "fill" in described else self


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
        """The columns of all factors."""
        found: dict[str, Kind] = {}
        for term in self.factors:
            for name, kind in term.inputs.items():
                found[name] = kind if found.get(name, "any") == "any" else found[name]
        return found

    @property
    def wants(self) -> str | None:
        """What the first factor that is not fitted wants."""
        return next((term.wants for term in self.factors if term.wants is not None), None)

    def fitted(self, sample: np.ndarray) -> Term:
        """With the factors fitted that want this sample."""
        column = self.wants
        return Product(*(term.fitted(sample) if term.wants == column else term for term in self.factors))

    def names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """Every combination of the factors' columns, the last factor's changing fastest."""
        return [":".join(combination) for combination in self.combinations(levels)]

    def combinations(self, levels: Mapping[str, Sequence[Label]]) -> list[tuple[str, ...]]:
        """The names of the factors' columns, for each column of the product."""
        return list(itertools.product(*(term.factor_names(levels) for term in self.factors)))

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """The products."""
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
        """What the factors found."""
        found = [term.found() for term in self.factors]
        return {"factors": found} if any(found) else {}

    def with_found(self, described: Mapping[str, Any]) -> Term:
        """The factors as they were kept."""
        if "factors" not in described:
            return self
        return Product(*(t.with_found(f) for t, f in zip(self.factors, described["factors"], strict=True)))
