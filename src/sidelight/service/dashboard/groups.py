"""How subgroups fare: the last rewards divided by a feature that the reader picks."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sidelight.drawing.intervals import Interval, number, student
from sidelight.linalg import Array
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.schema import Schema
from sidelight.service.dashboard.rolling import Rewarded
from sidelight.service.dashboard.window import ACTORS

__all__ = ["Group", "dividing_features", "groups_by"]

#: a number with more values than this is divided into quarters, a category's rarer levels are put together
_MOST_VALUES, _MOST_LEVELS = 6, 11
_OTHERS = "all others"
_MISSING = "missing"


class Group(NamedTuple):
    """A subgroup and its rewards: all, those that the learner earned, and those of everybody else."""

    name: str
    size: int
    every: Interval
    learner: Interval
    learner_count: int
    others: Interval
    others_count: int


def dividing_features(schema: Schema) -> list[str]:
    """The features by which rewards can be divided: those that an encoded context holds itself.

    A date, and a column that only derived features use, has no encoded column of its own.
    """
    return [feature.name for feature in schema.features if feature.encoded_names]


def groups_by(feature: str, rewarded: Rewarded, schema: Schema) -> list[Group]:
    """The subgroups of the last rewards by one of ``dividing_features``, in its order; none for ``""``."""
    contexts, rewards, actors = rewarded.rows()
    if len(rewards) == 0 or not feature:
        return []
    by_learner = actors == ACTORS.index("learner")
    out = []
    for name, members in _divided(feature, contexts, schema):
        learner, others = members & by_learner, members & ~by_learner
        out.append(
            Group(
                name,
                int(members.sum()),
                _interval(rewards[members]),
                _interval(rewards[learner]),
                int(learner.sum()),
                _interval(rewards[others]),
                int(others.sum()),
            )
        )
    return out


def _interval(values: Array) -> Interval:
    return student(values) if len(values) else Interval(math.nan, math.nan, math.nan)


def _divided(feature: str, X: Array, schema: Schema) -> list[tuple[str, NDArray[np.bool_]]]:
    described = next(f for f in schema.features if f.name == feature)
    start = schema.feature_start(feature)
    if isinstance(described, Category):
        return _by_level(described, X[:, start : start + len(described.column_levels)])
    gone = np.isnan(X[:, start])
    parts = _by_value(X[:, start])
    return [*parts, (_MISSING, gone)] if gone.any() else parts


def _by_value(values: Array) -> list[tuple[str, NDArray[np.bool_]]]:
    """Each value where there are few, else quarters; gaps belong to none."""
    there = values[~np.isnan(values)]
    if not len(there):
        return []
    distinct = np.unique(there)
    if len(distinct) <= _MOST_VALUES:
        return [(f"{value:g}", values == value) for value in distinct]
    edges = np.unique(np.quantile(there, [0.25, 0.5, 0.75]))
    which = np.where(np.isnan(values), -1, np.searchsorted(edges, values, side="right"))
    texts = [number(edge) for edge in edges]
    names = [f"below {texts[0]}"]
    names += [f"{low} to {high}" for low, high in itertools.pairwise(texts)]
    names += [f"{texts[-1]} and above"]
    return [(name, which == i) for i, name in enumerate(names) if (which == i).any()]


def _by_level(feature: Category, columns: Array) -> list[tuple[str, NDArray[np.bool_]]]:
    hot = columns > 0.0
    gone = np.asarray(np.isnan(columns).any(axis=1))
    parts = [(str(level), hot[:, i]) for i, level in enumerate(feature.column_levels)]
    if feature.baseline is not None:
        parts.insert(0, (str(feature.baseline), np.asarray(~hot.any(axis=1) & ~gone)))
    if gone.any():
        parts.append((_MISSING, gone))
    parts = [(name, members) for name, members in parts if members.any()]
    if len(parts) <= _MOST_LEVELS + 1:
        return parts
    frequent = set(sorted(range(len(parts)), key=lambda i: -int(parts[i][1].sum()))[:_MOST_LEVELS])
    rest = np.zeros(len(columns), dtype=np.bool_)
    for i, (_, members) in enumerate(parts):
        if i not in frequent:
            rest |= members
    return [part for i, part in enumerate(parts) if i in frequent] + [(_OTHERS, rest)]
