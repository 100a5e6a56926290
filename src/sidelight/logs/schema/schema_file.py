"""Schemas in files of their own, TOML or JSON, that people write and commands read."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sidelight.errors import SchemaError
from sidelight.labels import did_you_mean, label_from_json
from sidelight.logs.schema.features import feature_from_dict
from sidelight.logs.schema.formula import term_from_dict
from sidelight.logs.schema.schema import Schema

__all__ = ["SCHEMA_FILE_VERSION", "read_schema_file", "schema_from_description"]

#: Version 2 has derived features, dates, features as tables, and an intercept unless it says otherwise. A file without
#: a version is of version 1, in which there is an intercept only where it says so.
SCHEMA_FILE_VERSION = 2

_KEYS = {
    "features",
    "recorded",
    "hidden",
    "arm",
    "reward",
    "arms",
    "binary",
    "intercept",
    "categories",
    "propensity",
    "derived",
    "missing",
    "version",
}


def read_schema_file(path: str | os.PathLike[str]) -> Schema:
    """The schema in a file: JSON if its name ends in ``.json``, else TOML.

    Raises:
        SchemaError: it cannot be read, has unknown keys, or describes no schema.
    """
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8")
        described = json.loads(text) if source.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise SchemaError(f"cannot read the schema {path}: {error}.") from error
    if not isinstance(described, dict):
        raise SchemaError(f"the schema {path} is not a table of settings but {type(described).__name__}.")
    inner = described.get("schema", described)
    if not isinstance(inner, dict):
        raise SchemaError(
            f"the schema {path} has schema = {inner!r}, where a table of settings, [schema], is expected."
        )
    return schema_from_description(inner, str(path))


def schema_from_description(described: Mapping[str, Any], origin: str) -> Schema:
    """The schema that a table of settings describes; ``origin`` names it in messages."""
    unknown = sorted(set(described) - _KEYS - {"arms_discovered"})
    if unknown or "features" not in described or not {"recorded", "hidden"} & set(described):
        raise SchemaError(
            f"the schema {origin} needs features, and recorded or hidden, and may have {', '.join(sorted(_KEYS))}"
            + (f"; it has {', '.join(unknown)}" if unknown else "")
            + "."
            + (did_you_mean(unknown[0], sorted(_KEYS)) if unknown else "")
        )
    version = described.get("version", 1)
    if not isinstance(version, int) or not 1 <= version <= SCHEMA_FILE_VERSION:
        raise SchemaError(
            f"the schema {origin} is of version {version!r}, and this Sidelight reads up to {SCHEMA_FILE_VERSION}."
        )
    for name in ("features", "recorded", "hidden", "arms", "derived"):
        _check_list(described, name, origin, formula=name in ("features", "derived"))
    features = described["features"]
    if not isinstance(features, str):
        features = [feature_from_dict(dict(f)) if isinstance(f, Mapping) else f for f in features]
    derived = described.get("derived", ())
    if not isinstance(derived, str):
        derived = [term_from_dict(dict(term)) if isinstance(term, Mapping) else term for term in derived]
    arms = described.get("arms")
    schema = Schema(
        features,
        described.get("recorded", ()),
        described.get("arm", "arm"),
        described.get("reward", "reward"),
        None if arms is None else [label_from_json(label) for label in arms],
        described.get("intercept", version >= 2),
        categories=described.get("categories"),
        propensity=described.get("propensity"),
        derived=derived,
        missing=described.get("missing", "refuse"),
        binary=described.get("binary"),
    )
    if "hidden" in described:
        schema = _without_hidden(schema, described, origin)
    schema.arms_discovered = bool(described.get("arms_discovered", False))
    return schema


def _check_list(described: Mapping[str, Any], name: str, origin: str, formula: bool) -> None:
    """Refuse a setting that is neither left out nor a list, nor, where that is possible, a formula."""
    value = described.get(name, [])
    if isinstance(value, list | tuple) or (name == "arms" and value is None) or (formula and isinstance(value, str)):
        return
    example = '["age", "weight"]' if name != "arms" else '["low", "high"]'
    or_formula = " or a formula" if formula else ""
    raise SchemaError(f"the schema {origin} has {name} = {value!r}: give a list{or_formula}, {name} = {example}.")


def _without_hidden(schema: Schema, described: Mapping[str, Any], origin: str) -> Schema:
    names = [feature.name for feature in schema.features]
    hidden = list(described["hidden"])
    unknown = [name for name in hidden if name not in names]
    if unknown:
        raise SchemaError(
            f"the schema {origin} hides {', '.join(unknown)}, which is not among its features {', '.join(names)}."
            + did_you_mean(unknown[0], names)
        )
    if "recorded" in described and set(described["recorded"]) != set(names) - set(hidden):
        raise SchemaError(f"the schema {origin} says recorded and hidden, and they do not fit together: leave one out.")
    return schema.with_recorded([name for name in names if name not in hidden])
