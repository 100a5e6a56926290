"""Policies that a verdict can judge: fixed arms, the log's own suggestion, functions of columns, learners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sidelight.errors import InputError, SidelightError, UnknownArmError
from sidelight.judging.population import Population
from sidelight.labels import Label, show_labels, typed_readings
from sidelight.linalg import Array
from sidelight.logs.schema.columns import date_column, label_codes, number_column
from sidelight.logs.schema.features import Category, Date
from sidelight.logs.schema.schema import Schema

__all__ = [
    "BEST",
    "OLD",
    "Columns",
    "Decider",
    "Lacking",
    "Policy",
    "Requested",
    "columns_of_batch",
    "moments_of",
    "positions_of",
    "requested",
    "suggested",
    "take",
]

BEST = "best"
OLD = "old policy"


class Lacking(Exception):
    """A policy asked for a feature that these rows do not have."""


class Columns(dict[str, Any]):
    """Columns by name; a feature that these rows lack raises ``Lacking``, an unknown name ``KeyError``."""

    def __init__(self, columns: Mapping[str, Any], lacking: frozenset[str] = frozenset()) -> None:
        super().__init__(columns)
        self.lacking = lacking

    def __missing__(self, name: str) -> Any:
        raise (Lacking if name in self.lacking else KeyError)(name)

    def row(self, i: int) -> Columns:
        """The values of one row."""
        return Columns({name: values[i] for name, values in self.items()}, self.lacking)


class Policy(Protocol):
    """A function of columns: what it would do in each of ``n`` contexts."""

    def __call__(self, columns: Mapping[str, np.ndarray], /) -> Any:
        """Arm labels, one for each row, or one label for all; ``columns`` maps a feature's name to its (n,) values."""


@runtime_checkable
class Decider(Protocol):
    """A learner as far as a verdict needs it: decisions for many full contexts."""

    @property
    def schema(self) -> Schema | None:
        """How it encodes contexts, ``None`` if it takes them encoded."""

    def decide_many(self, X: Any, /) -> Sequence[Any]:
        """Decisions with an attribute ``arm``, one for each encoded full context of X (n, d)."""


@dataclass(frozen=True)
class Requested:
    """A policy to be judged, and under which name.

    Attributes:
        name: what the verdict calls it.
        kind: ``"best"``, ``"arm"``, ``"function"`` or ``"learner"``; within a verdict also ``"word"`` (chosen and
            valued on all rows) and ``"own half"`` (chosen and valued on the same half).
        rule: the label, the function or the learner; ``None`` for ``"best"``.
    """

    name: str
    kind: str
    rule: Any = None


def requested(policies: Any, arms: Sequence[Label]) -> list[Requested]:
    """What a user asks to be judged: one policy, a sequence of them, or a mapping from name to policy.

    Raises:
        InputError: something is none of the kinds, or has the name of a policy that every verdict judges.
        UnknownArmError: a label is not one of the arms.
    """
    if isinstance(policies, Mapping):
        named = [_one(policy, arms, str(name)) for name, policy in policies.items()]
        for policy in named:
            _check_name(policy, arms)
        return named
    listed = isinstance(policies, list | tuple | set | frozenset | np.ndarray)
    found = [_one(policy, arms, None) for policy in (policies if listed else [policies])]
    if isinstance(policies, set | frozenset):
        # a set has another order in each process, and the first policy is the headline
        found.sort(key=lambda policy: policy.name)
    names: dict[str, int] = {}
    out = []
    for policy in found:
        names[policy.name] = names.get(policy.name, 0) + 1
        again = names[policy.name]
        out.append(policy if again == 1 else Requested(f"{policy.name} ({again})", policy.kind, policy.rule))
    return out


def _check_name(policy: Requested, arms: Sequence[Label]) -> None:
    own = {BEST: policy.kind == "best", OLD: False}
    own |= {f"always {arm}": policy.kind == "arm" and policy.rule == arm for arm in arms}
    if not own.get(policy.name, True):
        raise InputError(f"a policy cannot be called {policy.name!r}: every verdict has another one of that name.")


def _one(policy: Any, arms: Sequence[Label], name: str | None) -> Requested:
    if isinstance(policy, str) and policy == BEST:
        return Requested(name or BEST, "best")
    if isinstance(policy, Decider):
        return Requested(name or type(policy).__name__, "learner", policy)
    if callable(policy):
        own = getattr(policy, "__name__", type(policy).__name__)
        return Requested(name or ("function" if own == "<lambda>" else own), "function", policy)
    if isinstance(policy, np.generic):
        policy = policy.item()
    try:
        known = policy in arms
    except TypeError:
        known = False
    if not known and isinstance(policy, str):
        # as on a command line, where all is text
        readings = [value for value in typed_readings(policy) if value in arms]
        policy, known = (readings[0], True) if readings else (policy, False)
    if known:
        return Requested(name or f"always {policy}", "arm", policy)
    if isinstance(policy, str | int | float | bool):
        raise UnknownArmError(
            f"the policy {policy!r} is neither 'best' nor one of the arms: {show_labels(arms, 20)}."
            + (" The labels are text." if str(policy) in arms else "")
        )
    raise InputError(
        f"{policy!r:.80} is no policy: give 'best', an arm, a function of columns that returns arms, a learner (with "
        "complete rows), or several of these."
    )


def suggested(chosen_on: Population, valued_on: Population, X: Array) -> tuple[np.ndarray, np.ndarray]:
    """What the log's regressions suggest: in each context the arm with the largest ``x_o·b_a``.

    Args:
        chosen_on: the half whose regressions choose.
        valued_on: the half that will value the choice; arms that it cannot value are not chosen.
        X: (n, L_schema) encoded recorded columns.

    Returns:
        ``taken`` (n,) positions of arms, and ``known`` (n,): false where no arm can be valued.
    """
    own, other = chosen_on.select(X), valued_on.select(X)
    scores = np.full((len(X), len(chosen_on.arms)), -np.inf)
    for a, (fit, judge) in enumerate(zip(chosen_on.fits, valued_on.fits, strict=True)):
        if fit.enough and judge.enough:
            there = fit.reaches(own, chosen_on.scale) & judge.reaches(other, valued_on.scale)
            scores[:, a] = np.where(there, own @ fit.b, -np.inf)
    taken = scores.argmax(axis=1)
    return taken, np.isfinite(scores[np.arange(len(X)), taken])


def columns_of_batch(
    batch: Any, schema: Schema, names: Sequence[str], lacking: frozenset[str], text_labels: bool
) -> Columns:
    """Columns of an Arrow batch as a user's function receives them: numbers as floats, categories as labels.

    Args:
        batch: the rows.
        schema: resolved.
        names: the features that the rows have.
        lacking: features that other rows have.
        text_labels: the source knows nothing but text.
    """
    features = {feature.name: feature for feature in schema.features}
    columns: dict[str, np.ndarray] = {}
    for name in names:
        feature = features[name]
        if isinstance(feature, Category):
            levels = list(feature.levels or ())
            codes, _ = label_codes(batch.column(name), name, {level: i for i, level in enumerate(levels)}, text_labels)
            columns[name] = np.array([*levels, None], dtype=object)[codes]
        elif isinstance(feature, Date):
            columns[name] = moments_of(date_column(batch.column(name), name, feature.zone)[0])
        else:
            columns[name] = number_column(batch.column(name), name)[0]
    return Columns(columns, lacking)


def moments_of(days: Array) -> np.ndarray:
    """Days since 1970 (n,) as ``datetime64``; NaT where they are not finite."""
    known = np.isfinite(days)
    moments = np.where(known, np.floor(np.where(known, days, 0.0) * 86_400e6 + 0.5), 0).astype("datetime64[us]")
    return np.where(known, moments, np.datetime64("NaT"))


def take(policy: Requested, columns: Columns, n: int, arms: Sequence[Label]) -> np.ndarray:
    """(n,) positions of the arms that a function takes.

    A function that cannot take arrays (``if row["age"] > 60``) is called row by row.

    Raises:
        InputError: it fails, or returns something else than ``n`` arms.
        Lacking: it asks for a feature that these rows lack.
        UnknownArmError: it returns a label that is not one of the arms.
    """
    rule: Callable[[Mapping[str, Any]], Any] = policy.rule
    try:
        try:
            labels = rule(columns)
        except ValueError as error:
            if "truth value of an array" not in str(error):
                raise
            labels = [rule(columns.row(i)) for i in range(n)]
    except (SidelightError, Lacking):
        raise
    except KeyError as error:
        raise InputError(
            f"policy {policy.name!r} asks for the column {error}, but it is given {show_labels(columns, 20)}."
        ) from error
    except Exception as error:
        raise InputError(
            f"policy {policy.name!r} failed with {type(error).__name__}: {error}. It is called with a mapping from "
            "column to an array of values, and returns an array of arms."
        ) from error
    return positions_of(labels, n, arms, policy.name)


def positions_of(labels: Any, n: int, arms: Sequence[Label], name: str) -> np.ndarray:
    """(n,) positions of arm labels; one label stands for ``n``."""
    where = {label: i for i, label in enumerate(arms)}
    if isinstance(labels, str) or np.ndim(labels) == 0:
        labels = [labels] * n
    values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    if len(values) != n:
        raise InputError(f"policy {name!r} returned {len(values):,} arms for {n:,} contexts: one for each is needed.")
    try:
        return np.array([where[value] for value in values], dtype=np.int64)
    except (KeyError, TypeError):
        wrong = next(value for value in values if not _known(value, where))
        raise UnknownArmError(
            f"policy {name!r} returned {wrong!r}, which is not one of the arms: {show_labels(arms, 20)}."
        ) from None


def _known(value: Any, where: Mapping[Any, int]) -> bool:
    try:
        return value in where
    except TypeError:
        return False
