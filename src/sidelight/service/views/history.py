"""What became of a decision: who took which arm, what it brought, what the old policy would have done."""

from __future__ import annotations

from typing import Any

from sidelight.labels import label_to_json
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Action, Behavior, DefaultReward, Release, Retraction, Reward
from sidelight.service.log.rows import event_from_row
from sidelight.service.log.store import Store

__all__ = ["describe_history", "read_history"]

#: kinds of events that are told about a decision
_ABOUT = ("reward", "action", "behavior", "default")


def read_history(store: Store, id: DecisionId, n_features: int) -> dict[str, Any]:
    """The events that refer to a decision, by kind: ``(row, event)``; and what a person said about them later."""
    rows = list(store.find([f"{kind}:{id}" for kind in _ABOUT]).values())
    doubted = [f"{kind}:{id}" for kind in (*_ABOUT, "event")]
    rows += store.find([f"{what}:{name}" for what in ("release", "retracted") for name in doubted]).values()
    return {
        row.kind if row.kind in _ABOUT else f"{row.kind} {row.number}": (row, event_from_row(row, n_features))
        for row in rows
    }


def describe_history(history: dict[str, Any], given: Any) -> dict[str, Any]:
    """What happened after a decision: which arm was taken, what it brought, what the old policy would have done."""
    out: dict[str, Any] = {"action": None, "reward": None, "default_reward": None, "behavior": None, "reviews": []}
    if given is not None:
        out["behavior"] = _answer(given)
    for row, event in history.values():
        match event:
            case Action():
                out["action"] = {
                    "event": row.number,
                    "at": row.at,
                    "arm": label_to_json(event.arm),
                    "by": event.by,
                    "override": event.override,
                    **_quarantine(event),
                }
            case Reward():
                out["reward"] = {
                    "event": row.number,
                    "at": row.at,
                    "reward": event.reward,
                    "arm": label_to_json(event.arm),
                    "by": event.by,
                    "override": event.override,
                    **_quarantine(event),
                }
            case DefaultReward():
                out["default_reward"] = {
                    "event": row.number,
                    "at": row.at,
                    "reward": event.reward,
                    "arm": None if event.arm is None else label_to_json(event.arm),
                }
            case Behavior():
                out["behavior"] = _answer(event.answer) | _quarantine(event)
            case Release() | Retraction():
                said = {"event": row.number, "at": row.at, "about": event.event, "by": event.by, "reason": event.reason}
                out["reviews"].append({"released": isinstance(event, Release), **said})
    return out


def _quarantine(event: Action | Reward | Behavior) -> dict[str, Any]:
    return {} if event.quarantine is None else {"quarantine": event.quarantine}


def _answer(answer: Any) -> dict[str, Any]:
    return {
        "arm": None if answer.arm is None else label_to_json(answer.arm),
        "probabilities": None if answer.probabilities is None else list(answer.probabilities),
        "asked_with": answer.probability,
    }
