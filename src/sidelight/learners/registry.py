"""The learners by name: what files may name, and what figures, the command line and `sidelight warm` offer."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["HOMES", "learner_class"]

#: name → module; nothing else is ever imported on a file's word
HOMES = {
    "OFUL": "sidelight.learners.oful",
    "ZeroFilledOFUL": "sidelight.learners.zero_filled",
    "ProjectedOFUL": "sidelight.learners.projected",
    "EpochOFUL": "sidelight.learners.epoch",
    "RunningOFUL": "sidelight.learners.running",
    "FusedOFUL": "sidelight.learners.fused.learner",
    "FusedThompson": "sidelight.learners.thompson",
}


def learner_class(name: str) -> Any:
    """The class of this name; KeyError for one that is not a learner of Sidelight."""
    return getattr(import_module(HOMES[name]), name)
