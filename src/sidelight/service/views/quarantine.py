"""Rewards and answers that were kept from the learner as out of bounds, and wait for a person's review."""

from __future__ import annotations

from typing import Any

from sidelight.service.core.seen import Quarantine
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Action, Decisions, Reward
from sidelight.service.log.rows import event_from_row
from sidelight.service.log.store import Store

__all__ = ["describe_quarantine"]

#: largest number of entries in one list
_SHOWN = 100


def describe_quarantine(store: Store, quarantine: Quarantine, n_features: int, most: int = _SHOWN) -> dict[str, Any]:
    """How many wait, and the newest of them; as JSON."""
    newest = quarantine.newest(most)
    rows = store.rows(number for number, _, _ in newest)
    return {
        "waiting": len(quarantine),
        "newest": [_item(rows[n], i, why, n_features) for n, i, why in newest if n in rows],
    }


def _item(row: Any, position: int, why: str, n_features: int) -> dict[str, Any]:
    event = event_from_row(row, n_features)
    id = DecisionId(row.number, position, row.epoch)
    decision = id if isinstance(event, Decisions) else getattr(event, "decision", None)
    what = {Reward: "reward", Action: "action"}.get(type(event), "behavior")
    body = {"id": str(id), "what": what, "decision": None if decision is None else str(decision), "at": row.at}
    return body | {"why": why} | ({"reward": event.reward} if isinstance(event, Reward) else {})
