"""Retraction and release from the command line; the service itself does so by ``Engine.decide_doubt``."""

from __future__ import annotations

from sidelight.errors import InputError
from sidelight.service.core.doubted import Doubted, ReleaseProposal, RetractionProposal
from sidelight.service.core.fold import FOLD
from sidelight.service.core.proposals import Known
from sidelight.service.log.bases import base_number
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.store import Outdated, Store, Written
from sidelight.service.problems import Problem

__all__ = ["decide_doubt", "retract_reward"]


def retract_reward(store: Store, id: DecisionId, by: str | None, reason: str | None) -> tuple[int, bool]:
    """Write that a decision's reward was wrong; returns the event's number and whether it is new.

    Raises:
        InputError: there is no such decision or reward, or a base holds what the learner made of it.
    """
    row = store.rows([id.number]).get(id.number)
    if row is None or row.kind != "decisions" or row.epoch != id.epoch:
        raise InputError(f"there is no decision {str(id)!r}: use the id that came with the decision.")
    reward = store.find([f"reward:{id}"]).get(f"reward:{id}")
    if reward is None:
        raise InputError(f"decision {id} has no reward that could be taken back.")
    return decide_doubt(store, DecisionId(reward.number, 0, reward.epoch), 0, False, by, reason)


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
        InputError: there is nothing of that name, it is not in quarantine, or a base holds what is to be retracted.
    """
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
        raise TypeError(f"an outcome that nobody knows: {type(outcome).__name__}")
    return outcome.number, True
