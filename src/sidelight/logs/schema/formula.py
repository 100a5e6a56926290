"""Formulas: ``"age + spline(weight, 4) + stage:dose_before"`` as columns and terms.

A small part of what R and formulaic read: names (in backquotes where they are not plain words), ``+``, ``:`` for
products, ``*`` for both and their product, ``**`` for powers, and the functions below.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from sidelight.errors import SchemaError
from sidelight.logs.schema.date_terms import DatePart, DaysSince
from sidelight.logs.schema.number_terms import Bins, Logarithm, Power, Spline
from sidelight.logs.schema.terms import Column, Missing, Product, Term

__all__ = ["Formula", "read_formula", "read_term", "read_terms", "term_from_dict"]


class Formula(NamedTuple):
    """A parsed formula.

    ``columns``: the names that stand for themselves; ``categories``: those among all names that are declared
    categories, ``C(stage)``; ``terms``: the derived features. Each once, in the order of writing.
    """

    columns: tuple[str, ...]
    categories: tuple[str, ...]
    terms: tuple[Term, ...]


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


_TOKENS = re.compile(
    r"\s*(?:(?P<name>[^\W\d][\w.]*)|`(?P<quoted>[^`]+)`|(?P<number>\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)"
    r"|(?P<text>'[^']*'|\"[^\"]*\")|(?P<sign>\*\*|[-+:*^(),=\[\]]))"
)


def _tokens(formula: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(formula.rstrip()):
        match = _TOKENS.match(formula, at)
        if match is None:
            if formula[at:].lstrip().startswith("~"):
                raise _error(
                    formula, at, "lists features only; the reward is named by reward=…, so that ~ is not part of it"
                )
            raise _error(formula, at, "cannot be read from here on")
        kind = str(match.lastgroup)
        text = match.group(kind)
        found.append(_Token(kind, "**" if text == "^" and kind == "sign" else text, match.start(kind)))
        at = match.end()
    return [*found, _Token("end", "", len(formula))]


def _error(formula: str, at: int, why: str) -> SchemaError:
    rest = formula[at:].strip()
    where = f" at {rest[:30]!r}" if rest else " at its end"
    return SchemaError(
        f"the formula {formula!r} {why}{where}. A formula is made of column names and of functions of them, joined by "
        f"+ : * and **: age + spline(weight, 4) + stage:dose. The functions are {', '.join(sorted(_FUNCTIONS))}; a "
        "name with spaces or signs stands in backquotes."
    )


class _Reader:
    """Reads one formula from left to right."""

    def __init__(self, formula: str) -> None:
        self.formula, self.tokens, self.at = formula, _tokens(formula), 0
        self.categories: list[str] = []

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def take(self, sign: str) -> bool:
        if self.next.kind == "sign" and self.next.text == sign:
            self.at += 1
            return True
        return False

    def need(self, sign: str) -> None:
        if not self.take(sign):
            raise _error(self.formula, self.next.at, f"lacks a {sign!r}")

    def sum(self) -> list[Term]:
        """Terms joined by ``+``."""
        found = self.crossed()
        while self.take("+"):
            found += self.crossed()
        if self.next.kind == "sign" and self.next.text == "-":
            raise _error(self.formula, self.next.at, "takes something away, which is not possible")
        return found

    def crossed(self) -> list[Term]:
        """``a*b``: both, and their product."""
        found = [self.product()]
        while self.take("*"):
            more = self.product()
            found += [more, *(_times(term, more) for term in found)]
        return found

    def product(self) -> Term:
        """Factors joined by ``:``."""
        term = self.power()
        while self.take(":"):
            term = _times(term, self.power())
        return term

    def power(self) -> Term:
        start = self.next.at
        term = self.factor()
        if not self.take("**"):
            return term
        sign = -1.0 if self.take("-") else 1.0
        if self.next.kind != "number" or not isinstance(term, Column):
            raise _error(self.formula, start, "has a power that is not a column to the power of a number")
        exponent = sign * float(self.next.text)
        self.at += 1
        return Power(term.name, exponent)

    def factor(self) -> Term:
        token = self.next
        self.at += 1
        if token.kind == "quoted":
            return Column(token.text)
        if token.kind == "number":
            raise _error(
                self.formula, token.at, "holds a number; a constant is asked for with intercept=True, not in a formula,"
            )
        if token.kind != "name":
            raise _error(self.formula, token.at, "lacks a column or a function")
        if not self.take("("):
            return Column(token.text)
        return self.call(token)

    def call(self, function: _Token) -> Term:
        name = function.text
        if name not in _FUNCTIONS:
            close = difflib.get_close_matches(name, _FUNCTIONS, 1)
            raise _error(
                self.formula,
                function.at,
                f"calls {name}, which is not one of its functions{f' (is it {close[0]}?)' if close else ''},",
            )
        column = self.next
        if column.kind not in ("name", "quoted"):
            raise _error(self.formula, column.at, f"gives {name} no column")
        self.at += 1
        positional: list[Any] = []
        named: dict[str, Any] = {}
        while self.take(","):
            keyword = self.next
            if keyword.kind == "name" and self.tokens[self.at + 1].text == "=":
                self.at += 2
                named[keyword.text] = self.value()
            else:
                positional.append(self.value())
        self.need(")")
        if name == "C":
            self.categories.append(column.text)
        try:
            return _FUNCTIONS[name](column.text, *positional, **named)
        except TypeError:
            raise _error(self.formula, function.at, f"gives {name} arguments it does not take") from None

    def value(self) -> Any:
        """A number, a text, or a list of numbers."""
        if self.take("["):
            values = [self.value()]
            while self.take(","):
                values.append(self.value())
            self.need("]")
            return tuple(values)
        sign = -1 if self.take("-") else 1
        token = self.next
        self.at += 1
        if token.kind == "number":
            return sign * (int(token.text) if token.text.isdigit() else float(token.text))
        if token.kind == "text" and sign == 1:
            return token.text[1:-1]
        raise _error(self.formula, token.at, "lacks a number, a text in quotes or a list of numbers")


def _times(first: Term, second: Term) -> Term:
    return Product(*first.parts, *second.parts)


def _spline(column: str, df: Any = None, knots: Sequence[float] | None = None) -> Term:
    if isinstance(df, tuple):
        df, knots = None, df
    if knots is not None:
        if df is not None:
            raise SchemaError(f"spline({column}, ...): give the number of columns or the knots, not both.")
        return Spline(column, knots=tuple(knots))
    if df is not None and not isinstance(df, int):
        raise SchemaError(f"spline({column}, {df!r}): the number of columns is a whole number.")
    return Spline(column, 4 if df is None else df)


def _bins(column: str, bins: Any = 4) -> Term:
    if isinstance(bins, tuple):
        return Bins(column, edges=bins)
    if not isinstance(bins, int):
        raise SchemaError(f"bins({column}, {bins!r}): give a number of intervals, or a list of edges.")
    return Bins(column, bins)


def _log(column: str, offset: float = 0) -> Term:
    return Logarithm(column, offset)


def _missing(column: str, fill: float | None = None) -> Term:
    return Missing(column, fill)


def _days_since(column: str, origin: str | None = None, zone: str | None = None) -> Term:
    return DaysSince(column, origin, zone=zone)


_FUNCTIONS: dict[str, Callable[..., Term]] = {
    "spline": _spline,
    "bins": _bins,
    "log": _log,
    "missing": _missing,
    "weekday": lambda column, zone=None: DatePart(column, "weekday", zone),
    "month": lambda column, zone=None: DatePart(column, "month", zone),
    "hour": lambda column, zone=None: DatePart(column, "hour", zone),
    "days_since": _days_since,
    "C": Column,
}


def read_formula(formula: str) -> Formula:
    """Parse a formula.

    Raises:
        SchemaError: it cannot be read; the message says from where on, and what a formula is.
    """
    reader = _Reader(formula)
    found = reader.sum()
    if reader.next.kind != "end":
        raise _error(formula, reader.next.at, "cannot be read")
    columns = tuple(dict.fromkeys(term.name for term in found if isinstance(term, Column)))
    terms = tuple({term.label: term for term in found if not isinstance(term, Column)}.values())
    return Formula(columns, tuple(dict.fromkeys(reader.categories)), terms)


def read_term(text: str) -> Term:
    """The one term that a text stands for.

    Raises:
        SchemaError: it is not exactly one derived feature.
    """
    formula = read_formula(text)
    if len(formula.terms) != 1 or formula.columns:
        raise SchemaError(f"{text!r} is not one derived feature; columns as they are belong among the features.")
    return formula.terms[0]


def read_terms(derived: str | Term | Iterable[str | Term]) -> Formula:
    """Derived features as they are given: a formula, a term, or a list of either."""
    given = [derived] if isinstance(derived, str | Term) else list(derived)
    columns: dict[str, None] = {}
    categories: dict[str, None] = {}
    terms: dict[str, Term] = {}
    for item in given:
        if isinstance(item, str):
            formula = read_formula(item)
            columns |= dict.fromkeys(formula.columns)
            categories |= dict.fromkeys(formula.categories)
            terms |= {term.label: term for term in formula.terms}
        elif isinstance(item, Column):
            columns[item.name] = None
        elif isinstance(item, Term):
            terms[item.label] = item
        else:
            raise SchemaError(
                f"a derived feature is a formula such as 'spline(age, 4)', or a term such as Spline('age', 4), not "
                f"{item!r}."
            )
    return Formula(tuple(columns), tuple(categories), tuple(terms.values()))


def term_from_dict(description: dict[str, Any]) -> Term:
    """The inverse of ``to_dict`` of any term."""
    if not isinstance(description.get("term"), str):
        raise SchemaError(f"{description!r} is no derived feature: it needs a term, such as 'spline(age, 4)'.")
    return read_term(description["term"]).with_found(description)
