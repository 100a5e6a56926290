"""Derived features of numbers: powers, logarithms, splines and bins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sidelight.errors import SchemaError
from sidelight.labels import Label
from sidelight.logs.schema.entrywise import logarithm
from sidelight.logs.schema.splines import Bends, spline_knots
from sidelight.logs.schema.terms import ColumnTerm, Inputs, Term, finite, finite_all, quoted

__all__ = ["Bins", "Logarithm", "Power", "Spline"]


@dataclass(frozen=True)
class Power(ColumnTerm):
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
        object.__setattr__(self, "exponent", finite(self.exponent, f"{quoted(self.column)}**..."))
        if self.exponent == 0 or not abs(self.exponent) <= 16 or 2 * self.exponent != int(2 * self.exponent):
            raise SchemaError(
                f"{quoted(self.column)}**{self.exponent:g}: an exponent is a whole or half number other than 0, from "
                "-16 to 16; for a logarithm use log()."
            )

    @property
    def label(self) -> str:
        """``age**2``."""
        return f"{quoted(self.column)}**{self.exponent:g}"

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
class Logarithm(ColumnTerm):
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
        object.__setattr__(self, "offset", finite(self.offset, f"log({quoted(self.column)}, ...)"))

    @property
    def label(self) -> str:
        """``log(income, 1)``."""
        return f"log({quoted(self.column)}{f', {self.offset!r}' if self.offset else ''})"

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """The logarithm; NaN where the value is not positive."""
        x = values.numbers[self.column] + self.offset
        usable = (x > 0) & np.isfinite(x)
        return [np.where(usable, logarithm(np.where(usable, x, 1.0)), np.nan)]


@dataclass(frozen=True)
class Spline(ColumnTerm):
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

    learned = "knots"

    column: str
    df: int = 4
    knots: tuple[float, ...] | None = None
    bends: Bends | None = None
    knots_found: bool = False

    def __post_init__(self) -> None:
        if self.knots is None:
            if not (isinstance(self.df, int) and 2 <= self.df <= 20):
                raise SchemaError(f"spline({quoted(self.column)}, {self.df}): give between 2 and 20 columns.")
            return
        knots = finite_all(self.knots, f"spline({quoted(self.column)}, knots=...)")
        if len(knots) < 3 or list(knots) != sorted(set(knots)):
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
    def own_columns(self) -> tuple[str, ...]:
        """The number, whose own column is the straight part."""
        return (self.column,)

    def fitted(self, sample: np.ndarray) -> Term:
        """Knots at quantiles of the sample."""
        knots = spline_knots(self.column, self.df, sample)
        # a hundred quantiles say as much of the column's spread as all of its values
        at = np.linspace(0, len(sample) - 1, min(len(sample), 101)).round().astype(np.int64)
        return replace(self, knots=knots, bends=Bends.of(knots, sample[at]), knots_found=True)

    def names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """Names of the encoded columns: one for each basis function of the spline."""
        return [f"bend{i}({self.column})" for i in range(1, self.df)]

    def columns(self, values: Inputs, keep: Sequence[bool]) -> list[np.ndarray]:
        """The encoded columns: values of the basis functions, (n,) each."""
        assert self.bends is not None
        return self.bends.columns(values.numbers[self.column], keep)

    def factor_names(self, levels: Mapping[str, Sequence[Label]]) -> list[str]:
        """The names of its columns as a factor of a product: the number itself, then the bends."""
        return [self.column, *self.names(levels)]

    def factor_columns(self, values: Inputs) -> list[np.ndarray]:
        """Its columns as a factor of a product: the number itself, then the bends."""
        return [values.numbers[self.column], *self.columns(values, [True] * (self.df - 1))]

    def found(self) -> dict[str, Any]:
        """What was found in the log and is kept in files: knots and the basis."""
        if self.bends is None:
            return {}
        return {
            "knots": list(self.knots or ()),
            "knots_found": self.knots_found,
            "bends": [list(row) for row in self.bends.coefficients],
        }

    def with_found(self, described: Mapping[str, Any]) -> Term:
        """The spline with the knots and bends that a file kept."""
        if "knots" not in described:
            return self
        knots = tuple(described["knots"])
        bends = Bends(knots, tuple(tuple(row) for row in described["bends"]))
        return replace(self, knots=knots, bends=bends, knots_found=described["knots_found"])


@dataclass(frozen=True)
class Bins(ColumnTerm):
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

    learned = "edges"

    column: str
    count: int = 4
    edges: tuple[float, ...] | None = None
    edges_found: bool = False

    def __post_init__(self) -> None:
        if self.edges is None:
            if not (isinstance(self.count, int) and 2 <= self.count <= 100):
                raise SchemaError(f"bins({quoted(self.column)}, {self.count}): give between 2 and 100 intervals.")
            return
        edges = finite_all(self.edges, f"bins({quoted(self.column)}, [...])")
        if not edges or list(edges) != sorted(set(edges)):
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

    def fitted(self, sample: np.ndarray) -> Term:
        """Edges at quantiles of the sample, without duplicates."""
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
