"""Learners to disk: one checked container each, never pickled; ``learners.saving`` reads them again."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from sidelight.errors import InputError
from sidelight.files import container_bytes, write_atomically
from sidelight.hidden.registry import estimator_state
from sidelight.labels import label_to_json
from sidelight.learners.registry import KINDS

__all__ = ["KIND", "VERSION", "learner_bytes", "save_learner"]

KIND, VERSION = "learner", 1


def save_learner(learner: Any, path: str | os.PathLike[str]) -> None:
    """Write ``learner`` to ``path``, atomically."""
    write_atomically(path, learner_bytes(learner))


def learner_bytes(learner: Any) -> bytes:
    """What ``save_learner`` writes."""
    name = type(learner).__name__
    if name not in KINDS:
        raise InputError(
            f"{name} cannot be saved: a file may only name Sidelight's own learners "
            f"({', '.join(KINDS)}). Save the events and replay them."
        )
    arrays = {f"state/{key}": np.asarray(value) for key, value in learner.state().items()}
    if learner.gaps is not None:
        arrays |= {f"state/{key}": value for key, value in learner.gaps.state().items()}
    meta: dict[str, Any] = {
        "class": name,
        "settings": learner.settings.to_dict(),
        "arms": [label_to_json(arm) for arm in learner.arms],
        "schema": None if learner.schema is None else learner.schema.to_dict(),
        "n_features": learner.n_features,
        "rng": None if learner.rng is None else _rng_to_json(learner.rng),
        "options": learner.options(),
    }
    hidden = learner.estimators()
    meta["hidden"] = []
    for i, (key, estimator) in enumerate(hidden.items()):
        description, state = estimator_state(estimator)
        meta["hidden"].append([None if key is None else label_to_json(key), description])
        arrays.update({f"hidden/{i}/{field}": value for field, value in state.items()})
    reduction = getattr(learner, "reduction", None)
    if reduction is not None and not hidden:
        meta["shifted"] = reduction.shifted
        for field in ("order", "loadings", "anchors", "dimensions"):
            arrays[f"reduction/{field}"] = getattr(reduction, field)
        if learner._summary is not None:
            arrays["summary"] = np.frombuffer(learner._summary.to_bytes(), dtype=np.uint8)
    return container_bytes(KIND, VERSION, meta, arrays)


def _rng_to_json(rng: np.random.Generator) -> dict[str, Any]:
    state = rng.bit_generator.state
    if state["bit_generator"] != "PCG64":
        raise InputError(
            f"A learner with a {state['bit_generator']} generator cannot be saved; use numpy.random.default_rng."
        )
    return {
        "state": str(state["state"]["state"]),
        "inc": str(state["state"]["inc"]),
        "has_uint32": state["has_uint32"],
        "uinteger": state["uinteger"],
    }
