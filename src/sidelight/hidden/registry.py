"""The estimators of the hidden half that a file may name, and how they are written and read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sidelight.errors import FileFormatError
from sidelight.hidden.companion import CompanionLog
from sidelight.hidden.known import KnownCrossMoments
from sidelight.hidden.probabilities import BehaviorProbabilities
from sidelight.hidden.protocol import CompleteEstimator
from sidelight.hidden.queries import BehaviorQueries
from sidelight.logs.summary import LogSummary

__all__ = ["ESTIMATORS", "estimator_from_state", "estimator_state"]

#: by the ``kind`` in the first half of ``state()``: how to make the estimator again of its log and its state
ESTIMATORS: dict[str, Callable[[LogSummary, dict[str, Any], dict[str, Any]], Any]] = {
    "known": KnownCrossMoments.from_state,
    "BehaviorQueries": BehaviorQueries.from_state,
    "BehaviorProbabilities": BehaviorProbabilities.from_state,
    "CompanionLog": CompanionLog.from_state,
}


def estimator_state(estimator: CompleteEstimator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Description and arrays of an estimator, its log included."""
    meta, arrays = estimator.state()
    log = np.frombuffer(estimator.summary.to_bytes(), dtype=np.uint8)
    return meta, {**arrays, "log": log}


def estimator_from_state(meta: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """The inverse of ``estimator_state``."""
    kind = meta["kind"]
    if kind not in ESTIMATORS:
        raise FileFormatError(f"The file names an estimator {kind!r} that this version of Sidelight does not know.")
    summary = LogSummary.from_bytes(np.asarray(arrays["log"], dtype=np.uint8).tobytes())
    return ESTIMATORS[kind](summary, meta, arrays)
