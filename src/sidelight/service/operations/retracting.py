"""Retraction and release from the command line; the service itself does so by ``Engine.decide_doubt``."""

from __future__ import annotations

from sidelight.errors import InputError
from sidelight.service.core.doubted import Doubted, ReleaseProposal, RetractionProposal
from sidelight.service.core.fold import FOLD
from sidelight.service.core.proposals import Known
from sidelight.service.log.bases import base_number
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Decisions
from sidelight.service.log.rows import event_from_row
from sidelight.service.log.store import Outdated, Store, Written
from sidelight.service.problems import Problem

__all__ = ["decide_doubt", "retract"]


def retract(
    store: Store, id: DecisionId, n_features: int, by: str | None, reason: str | None, what: str = "reward"
) -> tuple[int, bool]:
    """Write that what was told about a decision was wrong; returns the event's number and whether it is new.

    Args:
        store: the event log; servers may run on it.
        id: the decision.
        n_features: ``d``.
        by: who says so.
        reason: in that person's words.
        what: ``reward``, ``action`` or ``behavior``.

    Raises:
        InputError: there is no such decision or nothing of the kind was told about it, a base holds what the learner
            made of it, or the words cannot be kept.
    """
    row = store.rows([id.number]).get(id.number)
    decision = None if row is None or row.epoch != id.epoch else event_from_row(row, n_features)
    if not isinstance(decision, Decisions) or id.position >= len(decision):
        raise InputError(f"there is no decision {str(id)!r}: use the id that came with the decision.")
    told = store.find([f"{what}:{id}"]).get(f"{what}:{id}")
    given = what == "behavior" and decision.answers is not None and decision.answers[id.position] is not None
    if told is None and not given:
        raise InputError(f"decision {id} has no {what} that could be taken back.")
    doubted = id if told is None else DecisionId(told.number, 0, told.epoch)
    return decide_doubt(store, doubted, n_features, False, by, reason)


def decide_doubt(
    store: Store, id: DecisionId, n_features: int, release: bool, by: str | None, reason: str | None
) -> tuple[int, bool]:
    """Write whether a reward, an action or an answer is right; returns the event's number and whether it is new.

    Args:
        store: the event log; servers may run on it.
        id: of its event; for an answer that came with a decision, of the decision.
        n_features: ``d``.
        release: teach the learner what was quarantined; otherwise retract it, quarantined or not.
        by: who says so.
        reason: in that person's words.

    Raises:
        InputError: there is nothing of that name, it is not in quarantine, a base holds what is to be retracted, or
            the words cannot be kept.
    """
    _check_words("--reason", reason)
    _check_words("--by", by)
    try:
        doubted = Doubted.at(store.rows([id.number]).get(id.number), id, n_features)
    except Problem as problem:
        raise InputError(problem.detail) from problem
    proposal: ReleaseProposal | RetractionProposal
    while True:
        known = store.head()
        if release:
            proposal = ReleaseProposal(doubted, None, by, reason)
        else:
            proposal = RetractionProposal(doubted, base_number(store), by, reason, known)
        _, (outcome,) = store.append([proposal], known, 0, None, FOLD)
        if not isinstance(outcome, Outdated):  # nobody was forgotten meanwhile
            break
    if isinstance(outcome, Problem):
        raise InputError(outcome.detail)
    if isinstance(outcome, Known):
        return outcome.row.number, False
    if not isinstance(outcome, Written):
        raise TypeError(f"unexpected outcome: {type(outcome).__name__}")
    return outcome.number, True


def _check_words(option: str, text: str | None) -> None:
    """Check words that stay in the log for ever, as the service does with those of a request.

    Python reads command-line bytes that are not UTF-8 as lone surrogates, which no response can hold.
    """
    if text is not None and not (0 < len(text) <= 200 and text.isprintable()):
        raise InputError(f"{option} is {text[:40]!r}: use 1 to 200 characters without control characters.")
