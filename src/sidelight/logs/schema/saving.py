"""How a schema is written to files: as plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sidelight.labels import label_from_json, label_to_json
from sidelight.logs.schema.features import feature_from_dict
from sidelight.logs.schema.formula import term_from_dict

__all__ = ["description_of", "schema_arguments"]


def description_of(schema: Any) -> dict[str, Any]:
    """A ``Schema`` in plain JSON values; what has its default in older files is left out where it has it."""
    return {
        "features": [feature.to_dict() for feature in schema.features],
        "recorded": list(schema.recorded),
        "arm": schema.arm,
        "reward": schema.reward,
        "propensity": schema.propensity,
        "intercept": schema.intercept,
        "arms": None if schema.arms is None else [label_to_json(label) for label in schema.arms],
        "arms_discovered": schema.arms_discovered,
        **({"derived": [term.to_dict() for term in schema.derived]} if schema.derived else {}),
        **({"missing": dict.fromkeys(schema.imputed, "impute")} if schema.imputed else {}),
        **({} if schema.binary is None else {"binary": schema.binary}),
    }


def schema_arguments(description: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``Schema`` that a description has; whether arms were discovered is not among them.

    Raises:
        KeyError: the description lacks something.
    """
    arms = description["arms"]
    return {
        "features": [feature_from_dict(feature) for feature in description["features"]],
        "recorded": description["recorded"],
        "arm": description["arm"],
        "reward": description["reward"],
        "arms": None if arms is None else [label_from_json(label) for label in arms],
        "intercept": description["intercept"],
        "propensity": description["propensity"],
        "derived": [term_from_dict(term) for term in description.get("derived", ())],
        "missing": description.get("missing", "refuse"),
        "binary": description.get("binary"),
    }
