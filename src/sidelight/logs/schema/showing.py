"""A schema as people see it: a card in a notebook, a line of text."""

from __future__ import annotations

from typing import Any

from sidelight.drawing.notebook import card
from sidelight.labels import counted, show_labels
from sidelight.logs.schema.features import Date, Feature

__all__ = ["schema_card", "schema_text"]


def schema_card(schema: Any) -> str:
    """HTML of a ``Schema``: every feature, its kind, and whether the log recorded it."""
    recorded = set(schema.recorded)
    rows = [
        (feature.name, _kind(feature), "recorded" if feature.name in recorded else "hidden")
        for feature in schema.features
    ]
    rows += [(term.label, "derived", "recorded" if schema.is_recorded(term) else "hidden") for term in schema.derived]
    pairs = [("arm", schema.arm), ("reward", schema.reward)]
    if schema.arms is not None:
        pairs.append(("arms", ", ".join(map(str, schema.arms))))
    constant = " and a constant" if schema.intercept else ""
    lead = f"Schema: {counted(len(schema.features), 'feature')}{constant}, of which the log recorded {len(recorded)}"
    return card(lead, pairs, "Features", ("feature", "kind", "in the log"), rows)


def schema_text(schema: Any) -> str:
    """``Schema(features=[…], recorded=[…], …)``, with what is derived, recorded and hidden."""
    hidden = [term for term in schema.derived if not schema.is_recorded(term)]
    names = [feature.name for feature in schema.features]
    parts = [f"features=[{show_labels(names)}]", f"recorded=[{show_labels(schema.recorded)}]"]
    parts += [f"arm={schema.arm!r}", f"reward={schema.reward!r}"]
    parts += [f"arms=[{show_labels(schema.arms)}]"] if schema.arms is not None else []
    parts += ["intercept=True"] if schema.intercept else []
    parts += [f"gaps inferred in [{show_labels(schema.imputed)}]"] if schema.imputed else []
    for what, terms in (("recorded", schema.recorded_terms), ("hidden", hidden)):
        parts += [f"derived and {what}: {', '.join(term.label for term in terms)}"] if terms else []
    return f"Schema({', '.join(parts)})"


def _kind(feature: Feature) -> str:
    kind = type(feature).__name__.lower()
    return kind if feature.own or isinstance(feature, Date) else f"{kind}, only in derived features"
