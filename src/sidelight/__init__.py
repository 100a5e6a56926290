"""Sidelight: contextual bandits that start from a confounded log.

The public names, loaded when first used (PEP 562), so that ``import sidelight`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sidelight.version import __version__

#: public name → module that defines it
_HOMES = {
    "Schema": "sidelight.logs.schema.schema",
    "Category": "sidelight.logs.schema.features",
    "Number": "sidelight.logs.schema.features",
    "Date": "sidelight.logs.schema.features",
    "Spline": "sidelight.logs.schema.number_terms",
    "Power": "sidelight.logs.schema.number_terms",
    "Product": "sidelight.logs.schema.terms",
    "Logarithm": "sidelight.logs.schema.number_terms",
    "Bins": "sidelight.logs.schema.number_terms",
    "DatePart": "sidelight.logs.schema.date_terms",
    "DaysSince": "sidelight.logs.schema.date_terms",
    "Missing": "sidelight.logs.schema.terms",
    "LogSummary": "sidelight.logs.summary",
    "Diagnosis": "sidelight.logs.diagnosis.diagnosis",
    "summarize_log": "sidelight.logs.summarize",
    "summarize_eras": "sidelight.logs.eras",
    "propose_terms": "sidelight.logs.diagnosis.curvature",
    "SideInformation": "sidelight.side.constraint",
    "KnownCrossMoments": "sidelight.hidden.known",
    "BehaviorQueries": "sidelight.hidden.queries",
    "BehaviorProbabilities": "sidelight.hidden.probabilities",
    "CompanionLog": "sidelight.hidden.companion",
    "HiddenEstimator": "sidelight.hidden.protocol",
    "Decision": "sidelight.learners.protocol",
    "Learner": "sidelight.learners.protocol",
    "OFUL": "sidelight.learners.oful",
    "ZeroFilledOFUL": "sidelight.learners.zero_filled",
    "ProjectedOFUL": "sidelight.learners.projected",
    "EpochOFUL": "sidelight.learners.epoch",
    "RunningOFUL": "sidelight.learners.running",
    "FusedOFUL": "sidelight.learners.fused.learner",
    "FusedThompson": "sidelight.learners.thompson",
    "Floor": "sidelight.learners.floor",
    "BanditClassifier": "sidelight.learners.classifier",
    "load_learner": "sidelight.learners.saving",
    "judge": "sidelight.judging.judge",
    "Verdict": "sidelight.judging.verdict",
    "simulate": "sidelight.simulation",
    "Run": "sidelight.simulation",
    "Regret": "sidelight.drawing.comparison",
    "SidelightError": "sidelight.errors",
    "SidelightWarning": "sidelight.errors",
}
_MODULES = ("errors", "theory", "worlds")

__all__ = ["__version__", *_HOMES, *_MODULES]

if TYPE_CHECKING:
    from sidelight import errors, theory, worlds
    from sidelight.drawing.comparison import Regret
    from sidelight.errors import SidelightError, SidelightWarning
    from sidelight.hidden.companion import CompanionLog
    from sidelight.hidden.known import KnownCrossMoments
    from sidelight.hidden.probabilities import BehaviorProbabilities
    from sidelight.hidden.protocol import HiddenEstimator
    from sidelight.hidden.queries import BehaviorQueries
    from sidelight.judging.judge import judge
    from sidelight.judging.verdict import Verdict
    from sidelight.learners.classifier import BanditClassifier
    from sidelight.learners.epoch import EpochOFUL
    from sidelight.learners.floor import Floor
    from sidelight.learners.fused.learner import FusedOFUL
    from sidelight.learners.oful import OFUL
    from sidelight.learners.projected import ProjectedOFUL
    from sidelight.learners.protocol import Decision, Learner
    from sidelight.learners.running import RunningOFUL
    from sidelight.learners.saving import load_learner
    from sidelight.learners.thompson import FusedThompson
    from sidelight.learners.zero_filled import ZeroFilledOFUL
    from sidelight.logs.diagnosis.curvature import propose_terms
    from sidelight.logs.diagnosis.diagnosis import Diagnosis
    from sidelight.logs.eras import summarize_eras
    from sidelight.logs.schema.date_terms import DatePart, DaysSince
    from sidelight.logs.schema.features import Category, Date, Number
    from sidelight.logs.schema.number_terms import Bins, Logarithm, Power, Spline
    from sidelight.logs.schema.schema import Schema
    from sidelight.logs.schema.terms import Missing, Product
    from sidelight.logs.summarize import summarize_log
    from sidelight.logs.summary import LogSummary
    from sidelight.side.constraint import SideInformation
    from sidelight.simulation import Run, simulate


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(f"sidelight.{name}")
    else:
        raise AttributeError(f"module 'sidelight' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
