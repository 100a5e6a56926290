"""Nonlinear effects and interactions: which terms, missing from a schema, a log gives evidence for.

One pass keeps, per arm, the triangular factor of the recorded columns together with every candidate: a spline of each
number, and the product of each pair. What a candidate explains follows from the factors alone: the residuals of the
reward are regressed on those of the candidate's few columns, both after regression on the schema's own. This is forward
selection: the candidate that explains most per column is added first, and the others are tested again beside it, so
that of two redundant ones only one is proposed.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import fdtrc

from sidelight.errors import SchemaError, SidelightWarning
from sidelight.logs.schema.features import Category, Number
from sidelight.logs.schema.fitting import sample_columns
from sidelight.logs.schema.number_terms import Spline
from sidelight.logs.schema.schema import Schema
from sidelight.logs.schema.terms import Product, Term
from sidelight.logs.summarize import summarize_log

__all__ = ["Proposal", "candidate_terms", "propose_terms"]

# Columns of a spline that is tried: the number and two bends.
_BENDS = 3
# More features than this, and only splines are tried: pairs grow with the square.
_MOST_FOR_PAIRS = 16
# A proposed term has at most this p-value, corrected for the number of candidates, and explains at least this share.
# The share is small because noise is most of what is left unexplained, and arms may differ in little else.
_LEVEL = 0.01
_LEAST = 0.0002
_MOST = 24
# An arm with fewer rows per column than this is left out.
_ROWS_PER_COLUMN = 5


@dataclass(frozen=True)
class Proposal:
    """A derived feature that a log asks for.

    Attributes:
        term: the feature as a formula writes it, ``spline(age, 3)`` or ``age:weight``.
        explains: the share of what the schema leaves unexplained that it would explain, beyond chance.
        p_value: the probability that chance explains as much, all candidates considered.
        columns: how many encoded columns it adds.
    """

    term: str
    explains: float
    p_value: float
    columns: int


def candidate_terms(schema: Schema, source: Any) -> Schema:
    """The schema with a spline of each recorded number and the product of each pair of recorded features, fitted."""
    fitted = schema.fit(source)
    known = {term.label for term in fitted.derived}
    bent = {name for term in fitted.derived if isinstance(term, Spline) for name in term.inputs}
    numbers = [f.name for f in fitted.recorded_features if isinstance(f, Number) and f.own]
    usable = numbers + [f.name for f in fitted.recorded_features if isinstance(f, Category) and f.own]
    tried: list[Term] = []
    straight = [name for name in numbers if name not in bent]
    samples = sample_columns(source, straight, {f.name: f for f in fitted.features}) if straight else {}
    for name in straight:
        try:
            tried.append(Spline(name, _BENDS).fitted(samples[name]))
        except SchemaError:  # a flag or a count of few values has nothing to bend
            continue
    if len(usable) <= _MOST_FOR_PAIRS:
        pairs = (Product(a, b) for a, b in itertools.combinations(usable, 2))
        tried += [pair for pair in pairs if pair.label not in known]
    return fitted.with_derived([*tried])


def propose_terms(source: Any, schema: Schema, on_invalid: str = "raise") -> list[Proposal]:
    """Derived features of recorded columns that explain more of the rewards than chance would.

    Args:
        source: the log, as for :func:`sidelight.summarize_log`; it is read several times.
        schema: the schema; what it has already is not proposed.
        on_invalid: as for :func:`sidelight.summarize_log`.

    Returns:
        The proposals, in the order in which they are worth adding; none where straight effects will do.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> rng = np.random.default_rng(0)
        >>> a, b, arm = rng.normal(size=2_000), rng.normal(size=2_000), rng.integers(0, 2, 2_000)
        >>> log = {"a": a, "b": b, "arm": arm, "reward": a**2 + b + rng.normal(size=2_000)}
        >>> [p.term for p in sl.propose_terms(log, sl.Schema(["a", "b"], ["a", "b"], intercept=True))]
        ['spline(a, 3)']
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SidelightWarning)
        wide_schema = candidate_terms(schema, source)
        summary = summarize_log(source, wide_schema, on_invalid)
    wide = summary.schema
    base = [name for name in wide.recorded_names if name not in _names_of(wide, wide.derived[len(schema.derived) :])]
    tried = wide.derived[len(schema.derived) :]
    columns = {term.label: _positions(wide, _names_of(wide, [term])) for term in tried}
    arms = np.flatnonzero(summary.counts >= _ROWS_PER_COLUMN * (len(base) + _BENDS + 2))
    if not len(arms) or not columns:
        return []
    left = [_Left(summary.factors[arm], _positions(wide, base)) for arm in arms]
    rows = int(summary.counts[arms].sum())
    total = sum(arm.unexplained for arm in left)
    used = len(arms) * len(base)
    found: list[Proposal] = []
    while columns and len(found) < _MOST and total > 0:
        gains = {label: sum(arm.gain(at) for arm in left) for label, at in columns.items()}
        best = max(gains, key=lambda label: gains[label] / len(columns[label]))
        k = len(arms) * len(columns[best])
        unexplained = sum(arm.unexplained for arm in left)
        freedom = rows - used - k
        rest = unexplained - gains[best]
        if freedom <= 0 or rest <= 0:
            break
        statistic = (gains[best] / k) / (rest / freedom)
        p_value = min(1.0, float(fdtrc(k, freedom, max(statistic, 0.0))) * len(gains))
        explains = (gains[best] - k * rest / freedom) / total
        if p_value > _LEVEL or explains < _LEAST:
            break
        found.append(Proposal(best, float(explains), p_value, len(columns[best])))
        for arm in left:
            arm.take(columns[best])
        used += k
        del columns[best]
    return found


def _names_of(schema: Schema, terms: Sequence[Term]) -> set[str]:
    return {name for term in terms for name in schema.term_names(term)}


def _positions(schema: Schema, names: Sequence[str] | set[str]) -> list[int]:
    return [i for i, name in enumerate(schema.recorded_names) if name in names]


class _Left:
    """The residuals of one arm: every column and the reward, after regression on the columns taken so far.

    ``factor`` (q+1, q+1), a triangular factor, stands for the rows: regressions on either are the same.
    """

    def __init__(self, factor: np.ndarray, base: list[int]) -> None:
        scales = np.sqrt((factor**2).sum(axis=0))
        self._columns = factor / np.where(scales > 0, scales, 1.0)
        self._scale = float(scales[-1])
        self.take(base)

    @property
    def unexplained(self) -> float:
        """The residual sum of squares of the reward."""
        return float((self._columns[:, -1] ** 2).sum()) * self._scale**2

    def take(self, columns: list[int]) -> None:
        """Replace every column by its residual after regression on these columns."""
        basis = _basis(self._columns[:, columns])
        self._columns = self._columns - basis @ (basis.T @ self._columns)

    def gain(self, columns: list[int]) -> float:
        """By how much these columns would reduce the residual sum of squares of the reward."""
        basis = _basis(self._columns[:, columns])
        return float(((basis.T @ self._columns[:, -1]) ** 2).sum()) * self._scale**2


def _basis(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the span of columns whose norms are at most 1; directions that are
    only rounding error are dropped."""
    values, vectors = np.linalg.eigh(columns.T @ columns)
    kept = values > 1e-10
    basis: np.ndarray = columns @ (vectors[:, kept] / np.sqrt(values[kept]))
    return basis
