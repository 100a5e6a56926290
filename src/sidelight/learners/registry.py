"""The learners: what each is made from and what it is, in one place.

Files, the configuration of the service, the command line, ``sidelight warm`` and experiments read it.  No class is
imported before somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

__all__ = ["KINDS", "LearnerKind", "kinds_made_from", "learner_class"]


@dataclass(frozen=True)
class LearnerKind:
    """One class of learners.

    Attributes:
        home: the module of the class.
        made_from: the first argument of its constructor: numbers of arms and features, with a ``"schema"``; the
            ``"summary"`` of a log; a ``"constraint"`` (``SideInformation``); an estimator of the ``"hidden"`` half of a
            log.
        meaning: what it is, in a few words.
        hidden: the way of learning the hidden half that it takes by default in simulations: a key of
            ``experiments.registry.HIDDEN``.
        takes_horizon: whether the number of rounds is its second argument.
        several_logs: whether it can be made from several logs at once.
        cost: processor time of a simulated round, in rounds of OFUL, roughly.
    """

    home: str
    made_from: Literal["schema", "summary", "constraint", "hidden"]
    meaning: str
    hidden: str | None = None
    takes_horizon: bool = False
    several_logs: bool = False
    cost: int = 1


#: name → what is known about it; nothing else is ever imported on a file's word
KINDS: dict[str, LearnerKind] = {
    "FusedOFUL": LearnerKind(
        "sidelight.learners.fused.learner",
        "hidden",
        "the log as evidence: the one to use",
        hidden="queries",
        several_logs=True,
        cost=4,
    ),
    "FusedThompson": LearnerKind(
        "sidelight.learners.thompson",
        "hidden",
        "the same, drawing weights from its posterior",
        hidden="queries",
        several_logs=True,
        cost=4,
    ),
    "RunningOFUL": LearnerKind(
        "sidelight.learners.running",
        "hidden",
        "what the paper's experiments ran: Algorithm 1, cross moments estimated in every round",
        hidden="ipw",
        cost=20,
    ),
    "EpochOFUL": LearnerKind(
        "sidelight.learners.epoch",
        "hidden",
        "Algorithm 2: cross moments estimated in episodes",
        hidden="ipw",
        takes_horizon=True,
        cost=4,
    ),
    "ProjectedOFUL": LearnerKind(
        "sidelight.learners.projected", "constraint", "Algorithm 1: the log as a constraint, cross moments known"
    ),
    "ZeroFilledOFUL": LearnerKind("sidelight.learners.zero_filled", "summary", "the log with zeros for what it lacks"),
    "OFUL": LearnerKind("sidelight.learners.oful", "schema", "no log"),
}


def learner_class(name: str) -> Any:
    """The class of this name; KeyError for one that is not a learner of Sidelight."""
    return getattr(import_module(KINDS[name].home), name)


def kinds_made_from(*sources: str) -> Iterator[str]:
    """The names of the learners that are made from one of these."""
    return (name for name, kind in KINDS.items() if kind.made_from in sources)
