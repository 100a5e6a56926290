"""Learners on disk: one checked container each, never pickled."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from sidelight.errors import FileFormatError
from sidelight.files import read_container, read_container_bytes
from sidelight.hidden.registry import estimator_from_state
from sidelight.labels import label_from_json
from sidelight.learners.containers import KIND, VERSION, learner_bytes, save_learner
from sidelight.learners.reduced import ReducedLearner
from sidelight.learners.registry import KINDS, learner_class
from sidelight.learners.settings import Settings
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summary import LogSummary
from sidelight.side.constraint import Reduction

__all__ = ["learner_bytes", "learner_from_bytes", "load_learner", "save_learner"]


def load_learner(path: str | os.PathLike[str]) -> Any:
    """Read a learner that ``save`` wrote; it continues exactly where the saved one stood.

    Raises:
        FileFormatError: the file is cut off, altered, foreign or from a newer version.

    Examples:
        >>> import os, tempfile, sidelight as sl
        >>> learner = sl.OFUL(2, 3, arms=["low", "high"])
        >>> learner.observe([1.0, 0.0, 0.0], "high", 2.0)
        >>> path = os.path.join(tempfile.mkdtemp(), "learner.sidelight")
        >>> learner.save(path)
        >>> sl.load_learner(path).decide([1.0, 0.0, 0.0]) == learner.decide([1.0, 0.0, 0.0])
        True
    """
    meta, arrays = read_container(path, KIND, VERSION)
    return _rebuild(meta, arrays, str(path))


def learner_from_bytes(content: bytes) -> Any:
    """The inverse of ``learner_bytes``."""
    meta, arrays = read_container_bytes(content, KIND, VERSION)
    return _rebuild(meta, arrays, "the learner")


def _rebuild(meta: dict[str, Any], arrays: dict[str, Any], origin: str) -> Any:
    try:
        return _rebuilt(meta, arrays, origin)
    except KeyError as error:
        raise FileFormatError(
            f"{origin} was written by another version of Sidelight: it has no {error}. Make the learner again, or "
            "replay its events."
        ) from error


def _rebuilt(meta: dict[str, Any], arrays: dict[str, Any], origin: str) -> Any:
    name = meta.get("class")
    if name not in KINDS:
        raise FileFormatError(f"{origin} holds a {name!r}, which this version of Sidelight does not know.")
    cls = learner_class(name)
    common: dict[str, Any] = {
        "arms": [label_from_json(arm) for arm in meta["arms"]],
        "schema": None if meta["schema"] is None else Schema.from_dict(meta["schema"]),
        "rng": None if meta["rng"] is None else _rng_from_json(meta["rng"]),
    }
    # bounds in the kernel that were never given are left out: not every learner takes them
    settings = {k: v for k, v in meta["settings"].items() if v is not None}
    hidden = {
        (None if key is None else label_from_json(key)): estimator_from_state(
            description, _under(arrays, f"hidden/{i}/")
        )
        for i, (key, description) in enumerate(meta["hidden"])
    }
    if hidden:
        first = hidden.get(None, hidden)
        learner = cls(first, **meta["options"], **settings, **common)
    else:
        parts = _under(arrays, "reduction/")
        reduction = Reduction(
            order=parts["order"],
            loadings=parts["loadings"],
            shifted=bool(meta["shifted"]),
            anchors=parts["anchors"],
            dimensions=parts["dimensions"],
        )
        log = LogSummary.from_bytes(arrays["summary"].tobytes()) if "summary" in arrays else None
        learner = cls.__new__(cls)
        ReducedLearner.__init__(
            learner, common["arms"], reduction, Settings(**settings), common["schema"], common["rng"], log
        )
    state = _under(arrays, "state/")
    learner.restore(state)
    if learner.gaps is not None:
        learner.gaps.restore(state)
    return learner


def _under(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}


def _rng_from_json(state: dict[str, Any]) -> np.random.Generator:
    rng = np.random.default_rng(0)
    rng.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": int(state["state"]), "inc": int(state["inc"])},
        "has_uint32": state["has_uint32"],
        "uinteger": state["uinteger"],
    }
    return rng
