"""Taking a wrong reward back from the command line; the service itself does so by ``Engine.retract``."""

from __future__ import annotations

from sidelight.errors import InputError
from sidelight.service.core.fold import FOLD
from sidelight.service.core.proposals import Known, RetractionProposal
from sidelight.service.log.bases import base_number
from sidelight.service.log.events import DecisionId
from sidelight.service.log.store import Store, Written
from sidelight.service.problems import Problem

__all__ = ["retract_reward"]


def retract_reward(store: Store, id: DecisionId, by: str | None, reason: str | None) -> tuple[int, bool]:
    """Write that a decision's reward was wrong; returns the event's number and whether it is new.

    Raises:
        InputError: there is no such decision or reward, or a base holds what the learner made of it.
    """
    row = store.rows([id.number]).get(id.number)
    if row is None or row.kind != "decisions" or row.epoch != id.epoch:
        raise InputError(f"there is no decision {str(id)!r}: use the id that came with the decision.")
    _, (outcome,) = store.append([RetractionProposal(id, base_number(store), by, reason)], store.head(), 0, None, FOLD)
    if isinstance(outcome, Problem):
        raise InputError(outcome.detail)
    if isinstance(outcome, Known):
        return outcome.row.number, False
    if not isinstance(outcome, Written):
        raise TypeError(f"an outcome that nobody knows: {type(outcome).__name__}")
    return outcome.number, True
