"""What a schema still lacks before it can encode: levels of categories, and what derived features need of a log."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sidelight.labels import show_labels
from sidelight.logs.schema.features import Category, Feature
from sidelight.logs.schema.terms import Term

__all__ = ["unfitted_terms", "what_is_lacking"]


def unfitted_terms(features: Sequence[Feature], derived: Sequence[Term]) -> tuple[Term, ...]:
    """The derived features that still need a sample of the log: knots, edges, a day to count from."""
    # a category has no median to fill its gaps with
    nothing = {None, *(feature.name for feature in features if isinstance(feature, Category))}
    return tuple(term for term in derived if any(part.wants not in nothing for part in term.parts))


def what_is_lacking(features: Sequence[Feature], derived: Sequence[Term], recorded: Collection[str]) -> str | None:
    """Why contexts cannot be encoded yet, and what to do about it; None if they can."""
    unknown = [feature.name for feature in features if not feature.resolved]
    if unknown:
        return (
            f"the levels of {show_labels(unknown)} are not known yet: summarize a log (summary.schema knows "
            "those it found) or declare them, categories={name: [levels]}. A hidden category is never in the "
            "log, so its levels must be declared."
        )
    unfitted = unfitted_terms(features, derived)
    if not unfitted:
        return None
    term = unfitted[0]
    gone = [name for name in term.inputs if name not in recorded]
    remedy = (
        f". The log did not record {show_labels(gone)}, so there it must be said: knots=[...] for a spline, a list "
        "of edges for bins, a day for days_since, a value for missing."
        if gone
        else "."
    )
    return (
        f"{term.label} takes what it needs from the log: summarize one (summary.schema has it), or let "
        f"schema.fit(source) look at it{remedy}"
    )
