"""The schema: which columns are the context, which of them the log recorded, and how values become arrays."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sidelight.drawing.notebook import card
from sidelight.errors import ContextError, SchemaError, UnknownArmError
from sidelight.labels import (
    Label,
    label_from_json,
    label_to_json,
    plain_label,
    show_labels,
    sorted_labels,
)
from sidelight.logs.schema.encoding import encode_table
from sidelight.logs.schema.features import Category, Feature, Number, feature_from_dict

__all__ = ["INTERCEPT", "Schema"]

#: The encoded name of the constant feature.
INTERCEPT = "intercept"


class Schema:
    """Which columns are the context ``x``, which of them the log recorded, and how values become arrays.

    A context is encoded as a vector of length ``d``: the intercept first if there is one, then the features in the
    order given, a category as one column per level. The same functions encode a log and a single context.

    Args:
        features: every feature the learner will see when it decides, in order. A name is a number (booleans count
            as 0 and 1); a :class:`Category` is a category.
        recorded: the names of those the log recorded, ``x_o``; the others are hidden, ``x_h``.
        arm: the column with the arm that was chosen.
        reward: the column with its reward.
        arms: the arms in order, or ``None`` to discover them in the log (then sorted).
        intercept: add a constant feature 1. It is always recorded: nobody needs to store it.
        categories: names of features that are categories, or a mapping from name to levels (``None``: discovered).
            Short for writing :class:`Category` in ``features``. With an intercept the first level has no column,
            since all of them together would repeat the constant.
        propensity: an optional column with the probability with which the old policy chose the logged arm.

    Example:
        >>> schema = Schema(["age", "dose", "severity"], recorded=["age", "dose"], arms=["low", "high"])
        >>> schema.n_features, schema.recorded_index.tolist(), schema.hidden_index.tolist()
        (3, [0, 1], [2])
        >>> schema.encode({"age": 61, "dose": 2.5, "severity": True}).tolist()
        [61.0, 2.5, 1.0]
    """

    def __init__(
        self,
        features: Sequence[str | Feature],
        recorded: Iterable[str],
        arm: str = "arm",
        reward: str = "reward",
        arms: Iterable[Any] | None = None,
        intercept: bool = False,
        *,
        categories: Iterable[str] | Mapping[str, Iterable[Any] | None] | None = None,
        propensity: str | None = None,
    ) -> None:
        self.features = _features(features, categories, intercept)
        self.recorded = _recorded(recorded, self.features)
        self.arm, self.reward, self.propensity = arm, reward, propensity
        self.intercept = bool(intercept)
        self.arms_discovered = False
        self.arms: tuple[Label, ...] | None = None if arms is None else _arms(arms)
        self._check_columns()
        self._layout()

    def _check_columns(self) -> None:
        roles = [("arm", self.arm), ("reward", self.reward), ("propensity", self.propensity)]
        names = [feature.name for feature in self.features]
        taken: dict[str, str] = dict.fromkeys(names, "a feature")
        for role, column in roles:
            if column is None:
                continue
            if not isinstance(column, str) or not column:
                raise SchemaError(f"the {role} column must be a name, not {column!r}.")
            if column in taken:
                raise SchemaError(
                    f"column {column!r} is named as the {role} and as {taken[column]}; a column has one role."
                )
            taken[column] = f"the {role}"
        if self.intercept and INTERCEPT in names:
            raise SchemaError(
                f"there is a feature called {INTERCEPT!r} and intercept=True adds another: rename the feature or "
                "leave the intercept out."
            )

    def _layout(self) -> None:
        """Lay the encoded columns out: names, which are recorded, where each feature starts."""
        names: list[str] = [INTERCEPT] if self.intercept else []
        is_recorded: list[bool] = [True] if self.intercept else []
        self._starts: dict[str, int] = {}
        recorded = set(self.recorded)
        for feature in self.features:
            self._starts[feature.name] = len(names)
            names.extend(feature.encoded_names)
            is_recorded.extend([feature.name in recorded] * len(feature.encoded_names))
        repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if repeated:
            raise SchemaError(f"two encoded columns would have the same name: {show_labels(repeated)}.")
        self._names = tuple(names)
        mask = np.array(is_recorded, dtype=bool)
        self._recorded_index = np.flatnonzero(mask)
        self._hidden_index = np.flatnonzero(~mask)
        self._recorded_index.flags.writeable = False
        self._hidden_index.flags.writeable = False
        self._arm_index: dict[Any, int] = {label: i for i, label in enumerate(self.arms or ())}

    @classmethod
    def for_arrays(cls, n_features: int, recorded: int | Iterable[int], n_arms: int | None = None) -> Schema:
        """A schema for plain arrays: features ``x0 .. x{d-1}``, arms ``0 .. K-1``.

        Args:
            n_features: ``d``.
            recorded: ``L``, the first so many, or the positions of the recorded features.
            n_arms: ``K``, or ``None`` to discover the arms.
        """
        names = [f"x{i}" for i in range(n_features)]
        if isinstance(recorded, int | np.integer):
            if not 0 <= recorded <= n_features:
                raise SchemaError(
                    f"recorded={recorded} features of {n_features}: it must be between 0 and {n_features}."
                )
            index = list(range(int(recorded)))
        else:
            index = [int(i) for i in recorded]
            outside = [i for i in index if not 0 <= i < n_features]
            if outside:
                raise SchemaError(f"recorded positions {outside} are outside 0 .. {n_features - 1}.")
        return cls(names, [names[i] for i in index], arms=None if n_arms is None else range(n_arms))

    # What the encoding looks like

    @property
    def n_features(self) -> int:
        """``d``: the length of an encoded context, intercept and one-hot columns included."""
        self._require_levels()
        return len(self._names)

    @property
    def n_recorded(self) -> int:
        """``L``: how many encoded columns the log recorded."""
        self._require_levels()
        return len(self._recorded_index)

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """The names of the ``d`` encoded columns."""
        self._require_levels()
        return self._names

    @property
    def recorded_names(self) -> tuple[str, ...]:
        """The names of the ``L`` recorded encoded columns."""
        names = self.encoded_names
        return tuple(names[i] for i in self._recorded_index)

    @property
    def recorded_index(self) -> np.ndarray:
        """(L,) positions of the recorded columns ``x_o`` in the encoded context, increasing."""
        self._require_levels()
        return self._recorded_index

    @property
    def hidden_index(self) -> np.ndarray:
        """(m,) positions of the hidden columns ``x_h`` in the encoded context, increasing."""
        self._require_levels()
        return self._hidden_index

    @property
    def recorded_features(self) -> tuple[Feature, ...]:
        """The features the log recorded, in the order of ``features``."""
        recorded = set(self.recorded)
        return tuple(feature for feature in self.features if feature.name in recorded)

    @property
    def resolved(self) -> bool:
        """Whether the arms and every category's levels are known."""
        return self.arms is not None and all(feature.resolved for feature in self.features)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the log that a summary reads, and no others."""
        extra = () if self.propensity is None else (self.propensity,)
        return (*(feature.name for feature in self.recorded_features), self.arm, self.reward, *extra)

    def feature_start(self, name: str) -> int:
        """The position of the feature's first encoded column."""
        return self._starts[name]

    def arm_index(self, label: Any) -> int:
        """The position of an arm.

        Raises:
            UnknownArmError: there is no such arm.
        """
        try:
            return self._arm_index[label]
        except (KeyError, TypeError):
            raise UnknownArmError(
                f"{label!r} is not one of the arms: {show_labels(self.arms or ())}."
                + (" The labels are text." if str(label) in self._arm_index else "")
            ) from None

    # Encoding

    def encode(self, context: Mapping[str, Any] | Sequence[float] | np.ndarray) -> np.ndarray:
        """One context as a ``float64`` array ``x`` (d,).

        Args:
            context: a mapping from feature name to value, or an array that is already encoded.

        Raises:
            ContextError: a feature is missing or unknown, a value is not finite, a level was never seen, or the
                array has the wrong length.
        """
        d = self.n_features
        if not isinstance(context, Mapping):
            return self._checked_array(context, 1)
        x = np.zeros(d)
        if self.intercept:
            x[0] = 1.0
        for feature in self.features:
            if feature.name not in context:
                raise ContextError(self._missing_message(context))
            value = context[feature.name]
            start = self._starts[feature.name]
            if isinstance(feature, Number):
                x[start] = feature.one_value(value)
            else:
                position = feature.position(value)
                if position >= 0:
                    x[start + position] = 1.0
        if len(context) > len(self.features):
            self._check_unknown(context)
        return x

    def encode_many(self, contexts: Any) -> np.ndarray:
        """Many contexts as a ``float64`` array ``X`` (n, d).

        Args:
            contexts: an Arrow table or batch, a frame, a sequence of mappings, or an array that is already encoded.
                Columns that are not features are ignored.
        """
        d = self.n_features
        if isinstance(contexts, np.ndarray):
            return self._checked_array(contexts, 2)
        if isinstance(contexts, Sequence) and not isinstance(contexts, str):
            if all(isinstance(context, Mapping) for context in contexts):
                return np.array([self.encode(context) for context in contexts]).reshape(len(contexts), d)
            return self._checked_array(contexts, 2)
        return encode_table(contexts, self.features, self.intercept)

    def encode_recorded(self, batch: Any) -> np.ndarray:
        """The recorded columns of a log as a ``float64`` array ``X_o`` (n, L): the same code, fewer columns."""
        return encode_table(batch, self.recorded_features, self.intercept)

    def _checked_array(self, values: Any, dimensions: int) -> np.ndarray:
        d = self.n_features
        try:
            x = np.array(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ContextError(f"a context must be a mapping or {d} numbers: {error}.") from error
        if x.ndim != dimensions or x.shape[-1] != d:
            raise ContextError(f"a context has {d} values ({show_labels(self._names)}), but this has shape {x.shape}.")
        finite = np.isfinite(x)
        if not finite.all():
            where = np.argwhere(~finite)[0]
            row = f" in row {where[0]}" if dimensions == 2 else ""
            raise ContextError(
                f"feature {self._names[where[-1]]!r} is {x[tuple(where)]}{row}: every feature needs a finite value."
            )
        return x

    def _missing_message(self, context: Mapping[str, Any]) -> str:
        missing = [feature.name for feature in self.features if feature.name not in context]
        message = f"the context lacks {show_labels(missing)}: every feature needs a value to decide."
        for name in missing:
            close = difflib.get_close_matches(name, [k for k in context if isinstance(k, str)], 1)
            if close:
                return message + f" Did you mean {name!r} where it says {close[0]!r}?"
        return message

    def _check_unknown(self, context: Mapping[str, Any]) -> None:
        known = {feature.name for feature in self.features} | {
            self.arm,
            self.reward,
            self.propensity,
            INTERCEPT,
        }
        unknown = [name for name in context if name not in known]
        if unknown:
            raise ContextError(
                f"the context has {show_labels(unknown)}, which the schema does not know: leave it out. "
                f"Its features are {show_labels(sorted(self._starts))}."
            )

    def _require_levels(self) -> None:
        unknown = [feature.name for feature in self.features if not feature.resolved]
        if unknown:
            raise SchemaError(
                f"the levels of {show_labels(unknown)} are not known yet: summarize a log (summary.schema knows "
                "those it found) or declare them, categories={name: [levels]}. A hidden category is never in the "
                "log, so its levels must be declared."
            )

    # Variations

    def resolve(
        self, arms: Iterable[Label] | None = None, levels: Mapping[str, Iterable[Label]] | None = None
    ) -> Schema:
        """The schema with arms and levels that were found in a log; what was declared stays."""
        found = levels or {}
        features = tuple(
            feature.with_levels(sorted_labels(found[feature.name]))
            if isinstance(feature, Category) and feature.name in found and (not feature.resolved or feature.discovered)
            else feature
            for feature in self.features
        )
        schema = self._copy(features=_with_baselines(features, self.intercept))
        if arms is not None and (self.arms is None or self.arms_discovered):
            schema.arms, schema.arms_discovered = sorted_labels(arms), True
        schema._layout()
        return schema

    def with_recorded(self, recorded: Iterable[str]) -> Schema:
        """The same schema where the log recorded other features: another era of the log."""
        schema = self._copy(recorded=_recorded(recorded, self.features))
        schema._layout()
        return schema

    def of_recorded(self) -> Schema:
        """The schema of the log alone, with a constant: recorded features, arm and reward, and nothing else.

        Raises:
            SchemaError: a recorded feature is called ``intercept``, as the constant is.
        """
        features = _with_baselines(self.recorded_features, True)
        schema = self._copy(features=features, intercept=True, propensity=None)
        schema._check_columns()
        schema._layout()
        return schema

    def with_arms(self, arms: Iterable[Any]) -> Schema:
        """The same schema with these arms, in this order."""
        schema = self._copy(arms=_arms(arms), arms_discovered=False)
        schema._layout()
        return schema

    def _copy(self, **changes: Any) -> Schema:
        schema = object.__new__(Schema)
        schema.__dict__.update(self.__dict__)
        schema.__dict__.update(changes)
        return schema

    # Saving and comparing

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe description from which :meth:`from_dict` makes an equal schema."""
        return {
            "features": [feature.to_dict() for feature in self.features],
            "recorded": list(self.recorded),
            "arm": self.arm,
            "reward": self.reward,
            "propensity": self.propensity,
            "intercept": self.intercept,
            "arms": None if self.arms is None else [label_to_json(label) for label in self.arms],
            "arms_discovered": self.arms_discovered,
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Schema:
        """The inverse of :meth:`to_dict`."""
        try:
            arms = description["arms"]
            schema = cls(
                [feature_from_dict(feature) for feature in description["features"]],
                description["recorded"],
                description["arm"],
                description["reward"],
                None if arms is None else [label_from_json(label) for label in arms],
                description["intercept"],
                propensity=description["propensity"],
            )
            schema.arms_discovered = bool(description["arms_discovered"])
        except (KeyError, TypeError) as error:
            raise SchemaError(f"this is not a schema that Sidelight wrote: {error!r}.") from error
        return schema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.recorded, self.arm, self.reward, self.arms))

    def _repr_html_(self) -> str:
        recorded = set(self.recorded)
        rows = [
            (
                feature.name,
                ("category" if isinstance(feature, Category) else "number"),
                "recorded" if feature.name in recorded else "hidden",
            )
            for feature in self.features
        ]
        pairs = [("arm", self.arm), ("reward", self.reward)]
        if self.arms is not None:
            pairs.append(("arms", ", ".join(map(str, self.arms))))
        constant = " and a constant" if self.intercept else ""
        lead = f"Schema: {len(rows)} features{constant}, of which the log recorded {len(recorded)}"
        return card(lead, pairs, "Features", ("feature", "kind", "in the log"), rows)

    def __repr__(self) -> str:
        names = [feature.name for feature in self.features]
        parts = [f"features=[{show_labels(names)}]", f"recorded=[{show_labels(self.recorded)}]"]
        parts += [f"arm={self.arm!r}", f"reward={self.reward!r}"]
        parts += [f"arms=[{show_labels(self.arms)}]"] if self.arms is not None else []
        parts += ["intercept=True"] if self.intercept else []
        return f"Schema({', '.join(parts)})"


def _features(
    features: Sequence[str | Feature],
    categories: Iterable[str] | Mapping[str, Iterable[Any] | None] | None,
    intercept: bool,
) -> tuple[Feature, ...]:
    if isinstance(features, str):
        raise SchemaError(f"features must be a list of names, not the text {features!r}.")
    if isinstance(categories, str):
        raise SchemaError(f"categories must be a list of names or a mapping to levels, not the text {categories!r}.")
    levels: dict[str, Iterable[Any] | None]
    levels = dict(categories) if isinstance(categories, Mapping) else dict.fromkeys(categories or ())
    built: list[Feature] = []
    for feature in features:
        if isinstance(feature, Number | Category):
            built.append(feature)
        elif not isinstance(feature, str) or not feature:
            raise SchemaError(f"a feature is a name, a Number or a Category, not {feature!r}.")
        elif feature in levels:
            wanted = levels[feature]
            built.append(Category(feature, None if wanted is None else tuple(wanted)))
        else:
            built.append(Number(feature))
    names = [feature.name for feature in built]
    unknown = [name for name in levels if name not in names]
    if unknown:
        raise SchemaError(f"categories {show_labels(unknown)} are not among the features {show_labels(names)}.")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise SchemaError(f"features {show_labels(repeated)} are listed twice; each needs a name of its own.")
    if not built and not intercept:
        raise SchemaError("there are no features and no intercept: a context needs at least one value.")
    return _with_baselines(tuple(built), intercept)


def _with_baselines(features: tuple[Feature, ...], intercept: bool) -> tuple[Feature, ...]:
    """With an intercept a category's first level has no column: all levels together would repeat the constant."""
    return tuple(
        replace(feature, baseline=feature.levels[0], chosen_baseline=True)
        if isinstance(feature, Category)
        and intercept
        and feature.levels
        and (feature.baseline is None or feature.chosen_baseline)
        else feature
        for feature in features
    )


def _recorded(recorded: Iterable[str], features: tuple[Feature, ...]) -> tuple[str, ...]:
    if isinstance(recorded, str):
        raise SchemaError(f"recorded must be a list of names, not the text {recorded!r}.")
    wanted = list(recorded)
    names = [feature.name for feature in features]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        close = difflib.get_close_matches(str(unknown[0]), names, 1)
        raise SchemaError(
            f"recorded {show_labels(unknown)} is not among the features {show_labels(names)}: what the log recorded "
            "must be part of the context the learner sees." + (f" Did you mean {close[0]!r}?" if close else "")
        )
    repeated = sorted({name for name in wanted if wanted.count(name) > 1})
    if repeated:
        raise SchemaError(f"recorded lists {show_labels(repeated)} twice.")
    return tuple(name for name in names if name in set(wanted))


def _arms(arms: Iterable[Any]) -> tuple[Label, ...]:
    if isinstance(arms, str):
        raise SchemaError(f"arms must be a list of labels, not the text {arms!r}.")
    if isinstance(arms, int | np.integer):
        raise SchemaError(f"arms must be a list of labels, not the number {arms}: for {arms} arms give range({arms}).")
    labels = tuple(plain_label(label) for label in arms)
    if not labels:
        raise SchemaError("arms is empty: list at least one arm, or None to discover them in the log.")
    if len(set(labels)) < len(labels):
        raise SchemaError(f"arms lists a label twice: {show_labels(labels)}.")
    return labels
