"""Estimators of the hidden half as JSON and arrays, for files of learners."""

from __future__ import annotations

from typing import Any

import numpy as np

from sidelight.errors import FileFormatError, InputError
from sidelight.hidden.companion import CompanionLog
from sidelight.hidden.known import KnownCrossMoments
from sidelight.hidden.probabilities import BehaviorProbabilities
from sidelight.hidden.queries import BehaviorQueries
from sidelight.logs.summary import LogSummary

__all__ = ["estimator_from_state", "estimator_state"]

_CLASSES: dict[str, Any] = {
    "BehaviorQueries": BehaviorQueries,
    "BehaviorProbabilities": BehaviorProbabilities,
    "CompanionLog": CompanionLog,
}


def estimator_state(estimator: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Description and arrays of one of Sidelight's own estimators, its log included."""
    if not isinstance(estimator, KnownCrossMoments | BehaviorQueries | BehaviorProbabilities | CompanionLog):
        raise InputError(
            f"A learner with an estimator of your own ({type(estimator).__name__}) cannot be saved: a file may only "
            "name Sidelight's estimators. Keep its data and make it again."
        )
    meta, arrays = estimator.state()
    log = np.frombuffer(estimator.summary.to_bytes(), dtype=np.uint8)
    return meta, {**arrays, "log": log}


def estimator_from_state(meta: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """The inverse of ``estimator_state``."""
    summary = LogSummary.from_bytes(np.asarray(arrays["log"], dtype=np.uint8).tobytes())
    kind = meta["kind"]
    if kind == "known":
        return KnownCrossMoments(summary, arrays["cross_moments"])
    if kind not in _CLASSES:
        raise FileFormatError(f"The file names an estimator {kind!r} that this version of Sidelight does not know.")
    estimator = _CLASSES[kind].__new__(_CLASSES[kind])
    estimator._begin(summary, meta["estimator"], meta["pooling"])
    estimator.restore(meta, arrays)
    return estimator
