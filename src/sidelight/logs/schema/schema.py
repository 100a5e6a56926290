"""The schema: which columns are the context, which of them the log recorded, and how values become arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sidelight.errors import SchemaError, UnknownArmError
from sidelight.labels import Label, check_types, show_labels, sorted_labels
from sidelight.logs.schema.assembly import (
    check_kind,
    check_roles,
    checked_arms,
    checked_features,
    checked_missing,
    checked_positions,
    checked_recorded,
    with_baselines,
)
from sidelight.logs.schema.context_encoder import ContextEncoder
from sidelight.logs.schema.encoded_columns import EncodedColumns
from sidelight.logs.schema.encoding import INTERCEPT, Layout, encode_table, layout_of, may_miss
from sidelight.logs.schema.features import Category, Feature, Number
from sidelight.logs.schema.fitting import fitted_terms, peek_kinds
from sidelight.logs.schema.saving import description_of, schema_arguments
from sidelight.logs.schema.showing import schema_card, schema_text
from sidelight.logs.schema.terms import Term
from sidelight.logs.schema.unresolved import unfitted_terms, what_is_lacking
from sidelight.logs.sources.opening import open_source

__all__ = ["INTERCEPT", "Schema"]


class Schema:
    """Which columns are the context ``x``, which of them the log recorded, and how values become arrays.

    A context is encoded as a vector of length ``d``: the intercept first if there is one, then the features in the
    order given, a category as one column per level, then the derived features. The same functions encode a log and a
    single context.

    Args:
        features: every feature the learner will see when it decides, in order: names, or :class:`Number`,
            :class:`Category` and :class:`Date`. A name is a number (booleans count as 0 and 1), unless the log has
            text there: then it is a category. Or a formula, ``"age + spline(weight, 4) + stage:dose_before"``.
        recorded: the names of the columns the log recorded; features computed from those alone are ``x_o``, the
            others are hidden, ``x_h``.
        arm: the column with the arm that was chosen.
        reward: the column with its reward.
        arms: the arms in order, or ``None`` to discover them in the log (then sorted).
        intercept: add a constant feature 1. It is always recorded: nobody needs to store it. Off by default here,
            because arrays are taken as they are; the commands and :class:`BanditClassifier` add it.
        categories: names of features that are categories, or a mapping from name to levels (``None``: discovered).
            Short for writing :class:`Category` in ``features``. With an intercept the first level has no column,
            since all of them together would repeat the constant.
        propensity: an optional column with the probability with which the old policy chose the logged arm.
        derived: features computed from columns, beside ``features``: a formula, or a list of formulas and terms
            (:class:`Spline`, :class:`Power`, :class:`Product`, :class:`Logarithm`, :class:`Bins`, :class:`DatePart`,
            :class:`DaysSince`, :class:`Missing`).
        missing: what a gap in an online context is (``None``, NaN, a name that is not there): ``"refuse"`` (default) an
            error; ``"impute"`` something that the learner infers from the values that are there; or a mapping from
            feature to one of the two. A log's gaps are another matter: see ``summarize_eras`` and ``on_invalid``.
        binary: whether every reward is 0 or 1, so that its variance follows from its mean; ``None`` (default): if those
            in the log are.

    Example:
        >>> schema = Schema(["age", "dose", "severity"], recorded=["age", "dose"], arms=["low", "high"])
        >>> schema.n_features, schema.recorded_index.tolist(), schema.hidden_index.tolist()
        (3, [0, 1], [2])
        >>> schema.encode({"age": 61, "dose": 2.5, "severity": True}).tolist()
        [61.0, 2.5, 1.0]
    """

    def __init__(
        self,
        features: str | Sequence[str | Feature],
        recorded: Iterable[str],
        arm: str = "arm",
        reward: str = "reward",
        arms: Iterable[Any] | None = None,
        intercept: bool = False,
        *,
        categories: Iterable[str] | Mapping[str, Iterable[Any] | None] | None = None,
        propensity: str | None = None,
        derived: str | Term | Iterable[str | Term] = (),
        missing: str | Mapping[str, str] = "refuse",
        binary: bool | None = None,
    ) -> None:
        self.features, self.derived = checked_features(features, derived, categories, intercept)
        self.recorded = checked_recorded(recorded, self.features)
        self.arm, self.reward, self.propensity = arm, reward, propensity
        self.intercept = bool(intercept)
        self.arms_discovered = False
        self.arms: tuple[Label, ...] | None = None if arms is None else checked_arms(arms)
        self.imputed = checked_missing(missing, self.features)
        if binary not in (None, True, False):
            raise SchemaError(f"binary={binary!r}: say True, False, or None to see it in the log.")
        self.binary = None if binary is None else bool(binary)
        self._check_roles(self.features, self.intercept)
        self._layout()

    def _check_roles(self, features: Sequence[Feature], intercept: bool) -> None:
        roles = {"arm": self.arm, "reward": self.reward, "propensity": self.propensity}
        check_roles([feature.name for feature in features], roles, intercept)

    def _layout(self) -> None:
        """Lay the encoded columns out: names, which are recorded, where each feature starts."""
        self._whole = layout_of(self.features, self.intercept, terms=self.derived, imputed=self.imputed)
        self._columns = EncodedColumns.of(self._whole, self.recorded)
        self._encoder = ContextEncoder(self._whole, self._columns.spans)
        self._lacking = what_is_lacking(self.features, self.derived, self.recorded)
        self._arm_index: dict[Any, int] = {label: i for i, label in enumerate(self.arms or ())}

    @classmethod
    def for_arrays(cls, n_features: int, recorded: int | Iterable[int], n_arms: int | None = None) -> Schema:
        """A schema for plain arrays: features ``x0 .. x{d-1}``, arms ``0 .. K-1``.

        Args:
            n_features: ``d``.
            recorded: the number ``L`` of recorded features, counted from the first, or their positions.
            n_arms: ``K``, or ``None`` to discover the arms.
        """
        names = [f"x{i}" for i in range(n_features)]
        known = [names[i] for i in checked_positions(recorded, n_features)]
        return cls(names, known, arms=None if n_arms is None else range(n_arms))

    # What the encoding looks like

    @property
    def n_features(self) -> int:
        """``d``: the length of an encoded context, intercept and one-hot columns included."""
        self._require_levels()
        return len(self._columns.names)

    @property
    def n_recorded(self) -> int:
        """``L``: how many encoded columns the log recorded."""
        self._require_levels()
        return len(self._columns.recorded)

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """The names of the ``d`` encoded columns."""
        self._require_levels()
        return self._columns.names

    @property
    def recorded_names(self) -> tuple[str, ...]:
        """The names of the ``L`` recorded encoded columns."""
        names = self.encoded_names
        return tuple(names[i] for i in self._columns.recorded)

    @property
    def recorded_index(self) -> np.ndarray:
        """(L,) positions of the recorded columns ``x_o`` in the encoded context, increasing."""
        self._require_levels()
        return self._columns.recorded

    @property
    def hidden_index(self) -> np.ndarray:
        """(m,) positions of the hidden columns ``x_h`` in the encoded context, increasing."""
        self._require_levels()
        return self._columns.hidden

    @property
    def derived_index(self) -> np.ndarray:
        """Positions of the derived features' columns in the encoded context, increasing."""
        self._require_levels()
        return self._columns.derived

    @property
    def may_miss(self) -> np.ndarray:
        """(d,) booleans: the encoded columns that are NaN in a context whose gap is to be inferred."""
        self._require_levels()
        return may_miss(self._whole)

    @property
    def recorded_features(self) -> tuple[Feature, ...]:
        """The features the log recorded, in the order of ``features``."""
        recorded = set(self.recorded)
        return tuple(feature for feature in self.features if feature.name in recorded)

    @property
    def recorded_terms(self) -> tuple[Term, ...]:
        """The derived features that the log recorded: those of recorded columns alone."""
        return tuple(term for term in self.derived if self.is_recorded(term))

    def is_recorded(self, term: Term) -> bool:
        """Whether a derived feature is recorded: whether all columns that it is computed from are."""
        return set(term.inputs) <= set(self.recorded)

    @property
    def unfitted(self) -> tuple[Term, ...]:
        """The derived features that still need a sample of the log: knots, edges, a day to count from."""
        return unfitted_terms(self.features, self.derived)

    @property
    def resolved(self) -> bool:
        """Whether the arms, every category's levels, and what derived features need of the log are known."""
        return self.arms is not None and all(feature.resolved for feature in self.features) and not self.unfitted

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the log that a summary reads, and no others."""
        extra = () if self.propensity is None else (self.propensity,)
        return (*(feature.name for feature in self.recorded_features), self.arm, self.reward, *extra)

    def feature_start(self, name: str) -> int:
        """The position of the first encoded column of a feature, or of a derived feature by its label."""
        return int(self._columns.spans[name].start)

    def term_names(self, term: Term) -> tuple[str, ...]:
        """The names of the encoded columns of a derived feature."""
        return self._columns.names[self._columns.spans[term.label]]

    def layout(self, levels: Mapping[str, Sequence[Label]] | None = None) -> Layout:
        """What a log is encoded into: the recorded columns and the derived features that are recorded.

        Args:
            levels: levels found so far, while a log is read; see :func:`layout_of`.
        """
        return layout_of(self.recorded_features, self.intercept, levels, self.recorded_terms)

    @property
    def whole_layout(self) -> Layout:
        """What a full context is encoded into."""
        self._require_levels()
        return self._whole

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

    def encode(self, context: Any) -> np.ndarray:
        """One context as a ``float64`` array ``x`` (d,).

        Args:
            context: anything that names its values (a mapping, a pandas ``Series``, a named tuple, a frame with one
                row), names that are not features being left aside; or an array that is already encoded.

        Raises:
            ContextError: a feature is missing (and not to be inferred: such a gap is NaN in the array), a value is not
                finite, a level was never seen, or the array has the wrong length.
        """
        self._require_levels()
        return self._encoder.one(context)

    def encode_many(self, contexts: Any) -> np.ndarray:
        """Many contexts as a ``float64`` array ``X`` (n, d).

        Args:
            contexts: an Arrow table or batch, a frame, a sequence of contexts that name their values, or an array
                that is already encoded. Columns and names that are not features are left aside.
        """
        self._require_levels()
        return self._encoder.many(contexts)

    def encode_recorded(self, batch: Any) -> np.ndarray:
        """The recorded columns of a log as a ``float64`` array ``X_o`` (n, L): the same code, fewer columns."""
        self._require_levels()
        return encode_table(batch, self.layout())

    def _require_levels(self) -> None:
        if self._lacking is not None:
            raise SchemaError(self._lacking)

    # Variations

    def resolve(
        self, arms: Iterable[Label] | None = None, levels: Mapping[str, Iterable[Label]] | None = None
    ) -> Schema:
        """The schema with arms and levels that were found in a log; what was declared stays.

        Raises:
            SchemaError: a label was found as text and as another type.
        """
        found = {name: tuple(labels) for name, labels in (levels or {}).items()}
        arms = None if arms is None else tuple(arms)
        for name, labels in {**found, self.arm: arms or ()}.items():
            check_types(labels, name)
        features = tuple(
            feature.with_levels(sorted_labels(found[feature.name]))
            if isinstance(feature, Category) and feature.name in found and (not feature.resolved or feature.discovered)
            else feature
            for feature in self.features
        )
        settled = tuple(replace(f, assumed=False) if isinstance(f, Number) else f for f in features)
        discovered: dict[str, Any] = {}
        if arms is not None and (self.arms is None or self.arms_discovered):
            discovered = {"arms": sorted_labels(arms), "arms_discovered": True}
        return self._with(features=with_baselines(settled, self.intercept), **discovered)

    def with_recorded(self, recorded: Iterable[str]) -> Schema:
        """The same schema where the log recorded other features: another era of the log."""
        return self._with(recorded=checked_recorded(recorded, self.features))

    def of_recorded(self, propensity: bool = False) -> Schema:
        """The schema of the log alone, with a constant: recorded features, arm and reward, and nothing else.

        Args:
            propensity: keep the column with propensities too.

        Raises:
            SchemaError: a recorded feature is called ``intercept``, as the constant is.
        """
        features = with_baselines(self.recorded_features, True)
        self._check_roles(features, True)
        return self._with(
            features=features,
            derived=self.recorded_terms,
            intercept=True,
            propensity=self.propensity if propensity else None,
            imputed=tuple(name for name in self.imputed if name in self.recorded),
        )

    def with_arms(self, arms: Iterable[Any]) -> Schema:
        """The same schema with these arms, in this order."""
        return self._with(arms=checked_arms(arms), arms_discovered=False)

    def with_features(self, features: Sequence[Feature], derived: Sequence[Term] | None = None) -> Schema:
        """The same schema where columns turned out to be of other kinds, or derived features were fitted."""
        terms = self.derived if derived is None else tuple(derived)
        kinds = {feature.name: feature for feature in features}
        for term in terms:
            for name in term.inputs:
                check_kind(term, name, kinds[name])
        return self._with(features=with_baselines(tuple(features), self.intercept), derived=terms)

    def with_missing(self, missing: str | Mapping[str, str]) -> Schema:
        """The same schema with another treatment of gaps in online contexts: see ``missing`` of the class."""
        return self._with(imputed=checked_missing(missing, self.features))

    def with_derived(self, derived: str | Term | Iterable[str | Term]) -> Schema:
        """The same schema with more derived features, say those that a diagnosis proposes."""
        features, terms = checked_features(self.features, [*self.derived, *_listed(derived)], None, self.intercept)
        return self.with_features(features, terms)

    def fit(self, source: Any) -> Schema:
        """The schema with what derived features need of a log, from one cheap pass over the columns concerned.

        ``summarize_log`` does this where it is needed; call it to give several parts of a log the same knots.

        Args:
            source: as for :func:`sidelight.summarize_log`.
        """
        if not self.unfitted and not any(isinstance(f, Number) and f.assumed for f in self.recorded_features):
            return self
        opened = open_source(source, [f.name for f in self.recorded_features], optional=self.recorded)
        features = peek_kinds(opened, self.features, self.recorded)
        opened.rewind()
        return self.with_features(features, fitted_terms(source, self.derived, features, self.recorded))

    def _with(self, **changes: Any) -> Schema:
        """A schema with other attributes, which have been checked."""
        schema = object.__new__(Schema)
        schema.__dict__.update(self.__dict__)
        schema.__dict__.update(changes)
        schema._layout()
        return schema

    # Saving and comparing

    def to_dict(self) -> dict[str, Any]:
        """A description in plain JSON values from which :meth:`from_dict` makes an equal schema."""
        return description_of(self)

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Schema:
        """The inverse of :meth:`to_dict`."""
        try:
            schema = cls(**schema_arguments(description))
            schema.arms_discovered = bool(description["arms_discovered"])
        except (KeyError, TypeError) as error:
            raise SchemaError(f"this is not a schema that Sidelight wrote: {error!r}.") from error
        return schema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._settled().to_dict() == other._settled().to_dict()

    def _settled(self) -> Schema:
        """The same schema with every undeclared number declared as one."""
        features = tuple(replace(f, assumed=False) if isinstance(f, Number) else f for f in self.features)
        return self._with(features=features)

    def __hash__(self) -> int:
        return hash((self.recorded, self.arm, self.reward, self.arms))

    def _repr_html_(self) -> str:
        return schema_card(self)

    def __repr__(self) -> str:
        return schema_text(self)


def _listed(derived: str | Term | Iterable[str | Term]) -> list[str | Term]:
    return [derived] if isinstance(derived, str | Term) else list(derived)
