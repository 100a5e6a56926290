"""The parts of a schema from what a user gives: names, formulas, objects; checked and put in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sidelight.errors import SchemaError
from sidelight.labels import Label, did_you_mean, plain_label, show_labels
from sidelight.logs.schema.date_terms import DatePart, DaysSince
from sidelight.logs.schema.encoding import INTERCEPT
from sidelight.logs.schema.features import Category, Date, Feature, Number
from sidelight.logs.schema.formula import read_formula, read_terms
from sidelight.logs.schema.terms import Product, Term

__all__ = [
    "check_kind",
    "check_roles",
    "checked_arms",
    "checked_features",
    "checked_missing",
    "checked_positions",
    "checked_recorded",
    "with_baselines",
]


def checked_features(
    features: str | Sequence[str | Feature],
    derived: str | Term | Iterable[str | Term],
    categories: Iterable[str] | Mapping[str, Iterable[Any] | None] | None,
    intercept: bool,
) -> tuple[tuple[Feature, ...], tuple[Term, ...]]:
    """The features and the derived features.

    A column that only derived features use is added to the features, without an encoded column of its own.
    """
    if isinstance(categories, str):
        raise SchemaError(f"categories must be a list of names or a mapping to levels, not the text {categories!r}.")
    if not isinstance(categories, Iterable | None):
        raise SchemaError(f"categories must be a list of names or a mapping to levels, not {categories!r}.")
    if not isinstance(features, Iterable):
        raise SchemaError(f"features must be a list of names or a formula, not {features!r}.")
    levels: dict[str, Iterable[Any] | None]
    levels = dict(categories) if isinstance(categories, Mapping) else dict.fromkeys(categories or ())
    extra = read_terms(derived)
    terms = list(extra.terms)
    listed: list[str | Feature]
    if isinstance(features, str):
        formula = read_formula(features)
        listed = list(formula.columns)
        terms = [*formula.terms, *terms]
        levels |= {name: levels.get(name) for name in formula.categories}
    else:
        listed = list(features)
    levels |= {name: levels.get(name) for name in extra.categories}
    known = {feature if isinstance(feature, str) else getattr(feature, "name", "") for feature in listed}
    listed += [name for name in extra.columns if name not in known]
    built = [_feature(feature, levels) for feature in listed]
    names = [feature.name for feature in built]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise SchemaError(f"features {show_labels(repeated)} are listed twice; each needs a name of its own.")
    terms = _each_once(terms)
    built = _with_inputs(built, terms, levels)
    names = [feature.name for feature in built]
    unknown = [name for name in levels if name not in names]
    if unknown:
        raise SchemaError(
            f"categories {show_labels(unknown)} are not among the features {show_labels(names)}."
            + did_you_mean(unknown[0], names)
        )
    if not built and not intercept:
        raise SchemaError("there are no features and no intercept: a context needs at least one value.")
    return with_baselines(tuple(built), intercept), tuple(terms)


def _each_once(terms: Iterable[Term]) -> list[Term]:
    """Every term once, in the order of writing; of products that differ in the order of their factors the first."""
    found: dict[tuple[str, ...], Term] = {}
    for term in terms:
        meaning = tuple(sorted(_factors(term)))
        if meaning not in found or found[meaning].label == term.label:
            found[meaning] = term
    return list(found.values())


def _factors(term: Term) -> list[str]:
    return (
        [label for factor in term.factors for label in _factors(factor)] if isinstance(term, Product) else [term.label]
    )


def _feature(feature: str | Feature, levels: Mapping[str, Iterable[Any] | None]) -> Feature:
    if isinstance(feature, Number | Category | Date):
        return feature
    if not isinstance(feature, str) or not feature:
        raise SchemaError(f"a feature is a name, a Number, a Category or a Date, not {feature!r}.")
    if feature in levels:
        wanted = levels[feature]
        return Category(feature, None if wanted is None else tuple(wanted))
    return Number(feature, assumed=True)


def _with_inputs(
    built: list[Feature], terms: Sequence[Term], levels: Mapping[str, Iterable[Any] | None]
) -> list[Feature]:
    """The features and the columns that only terms use; each is checked to be of the kind that its terms need."""
    features = {feature.name: feature for feature in built}
    dates = {name for term in terms for name, kind in term.inputs.items() if kind == "date"}
    for term in terms:
        for name, kind in term.inputs.items():
            own = name in term.own_columns
            if name not in features:
                if name in dates:
                    features[name] = Date(name)
                else:
                    made = _feature(name, levels)
                    features[name] = made if own or isinstance(made, Date) else replace(made, own=False)
            feature = features[name]
            if kind == "date" and isinstance(feature, Number) and feature.assumed:
                raise SchemaError(
                    f"{name!r} is listed as a feature of its own and {term.label} takes it for a date, which has no "
                    "column of its own: leave it out of the features, or list it as Date."
                )
            check_kind(term, name, feature)
            if isinstance(feature, Date) and isinstance(term, Product) and kind == "any":
                raise SchemaError(
                    f"{term.label} multiplies with the date {name!r}: say what of it counts, days_since({name}) or "
                    f"weekday({name})."
                )
            if own and isinstance(feature, Number) and not feature.own:
                features[name] = replace(feature, own=True)
        _set_zones(term, features)
    return list(features.values())


def check_kind(term: Term, name: str, feature: Feature) -> None:
    """Check that the feature ``name`` is of the kind that ``term`` needs; an undeclared column may hold text.

    Raises:
        SchemaError: it is something else.
    """
    kind = term.inputs[name]
    is_kind = {"date": Date, "number": Number, "category": Category}.get(kind)
    if is_kind is not None and not isinstance(feature, is_kind):
        advice = f" A category acts by its levels: name the column alone, or with a number, {name}:age."
        raise SchemaError(
            f"{term.label} is a function of a {kind}, and {name!r} is a {type(feature).__name__.lower()}."
            + (advice if isinstance(feature, Category) else "")
        )


def _set_zones(term: Term, features: dict[str, Feature]) -> None:
    for part in term.parts:
        if isinstance(part, DatePart | DaysSince) and part.zone is not None:
            date = features[part.column]
            assert isinstance(date, Date)
            if date.zone not in (None, part.zone):
                raise SchemaError(
                    f"{part.label} counts by the clocks of {part.zone}, and {part.column!r} is already read by those "
                    f"of {date.zone}: a column has one zone."
                )
            features[part.column] = replace(date, zone=part.zone)


def with_baselines(features: tuple[Feature, ...], intercept: bool) -> tuple[Feature, ...]:
    """The features; with an intercept, a category's first level gets no column: all would add up to the constant."""
    return tuple(
        replace(feature, baseline=feature.levels[0], chosen_baseline=True)
        if isinstance(feature, Category)
        and intercept
        and feature.levels
        and (feature.baseline is None or feature.chosen_baseline)
        else feature
        for feature in features
    )


def checked_recorded(recorded: Any, features: tuple[Feature, ...]) -> tuple[str, ...]:
    """The names of the recorded columns, in the order of the features."""
    if isinstance(recorded, str):
        raise SchemaError(f"recorded must be a list of names, not the text {recorded!r}.")
    if not isinstance(recorded, Iterable):
        nothing = " For a log that recorded none of the features give []." if recorded is None else ""
        raise SchemaError(
            f"recorded must be the names of the features that the log recorded, not {recorded!r}.{nothing}"
        )
    wanted = list(recorded)
    names = [feature.name for feature in features]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise SchemaError(
            f"recorded {show_labels(unknown)} is not among the features {show_labels(names)}: what the log recorded "
            "must be part of the context the learner sees." + did_you_mean(str(unknown[0]), names)
        )
    repeated = sorted({name for name in wanted if wanted.count(name) > 1})
    if repeated:
        raise SchemaError(f"recorded lists {show_labels(repeated)} twice.")
    return tuple(name for name in names if name in set(wanted))


def checked_missing(missing: str | Mapping[str, str], features: tuple[Feature, ...]) -> tuple[str, ...]:
    """The names of the features whose gaps are inferred, in the order of the features."""
    names = [feature.name for feature in features]
    said = dict.fromkeys(names, missing) if isinstance(missing, str) else missing
    if not isinstance(said, Mapping):
        raise SchemaError(f"missing must be 'refuse', 'impute', or a mapping from feature to one of them: {missing!r}.")
    unknown = [name for name in said if name not in names]
    if unknown:
        raise SchemaError(
            f"missing names {show_labels(unknown)}, which is not among the features {show_labels(names)}."
            + did_you_mean(str(unknown[0]), names)
        )
    for name, how in said.items():
        if how not in ("refuse", "impute"):
            raise SchemaError(
                f"missing={how!r} for {name!r}: a gap is refused ('refuse'), or inferred from the other features "
                "('impute')."
            )
    return tuple(name for name in names if said.get(name) == "impute")


def checked_arms(arms: Iterable[Any]) -> tuple[Label, ...]:
    """The arms as plain labels, each once."""
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


def checked_positions(recorded: int | Iterable[int], n_features: int) -> list[int]:
    """Positions of the recorded features of plain arrays: the first ``recorded`` of them, or those listed."""
    if isinstance(recorded, int | np.integer):
        if not 0 <= recorded <= n_features:
            raise SchemaError(f"recorded={recorded} features of {n_features}: it must be between 0 and {n_features}.")
        return list(range(int(recorded)))
    index = [int(i) for i in recorded]
    outside = [i for i in index if not 0 <= i < n_features]
    if outside:
        raise SchemaError(f"recorded positions {outside} are outside 0 .. {n_features - 1}.")
    return index


def check_roles(features: Sequence[str], roles: Mapping[str, Any], intercept: bool) -> None:
    """Refuse a column with two roles, and a feature that is called as the constant is.

    Args:
        features: names of the features.
        roles: ``arm``, ``reward`` and ``propensity`` with the name of their column, or None.
        intercept: whether a constant is added.
    """
    taken = dict.fromkeys(features, "a feature")
    for role, column in roles.items():
        if column is None:
            continue
        if not isinstance(column, str) or not column:
            raise SchemaError(f"the {role} column must be a name, not {column!r}.")
        if column in taken:
            raise SchemaError(
                f"column {column!r} is named as the {role} and as {taken[column]}; a column has one role."
            )
        taken[column] = f"the {role}"
    if intercept and INTERCEPT in features:
        raise SchemaError(
            f"there is a feature called {INTERCEPT!r} and intercept=True adds another: rename the feature or "
            "leave the intercept out."
        )
