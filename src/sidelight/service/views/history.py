"""What became of a decision: who took which arm, what it brought, what the old policy would have done."""

from __future__ import annotations

from typing import Any

from sidelight.labels import label_to_json
from sidelight.service.log.events import Action, Behavior, DecisionId, DefaultReward, Reward, event_from_row
from sidelight.service.log.store import Store

__all__ = ["describe_history", "read_history"]


def read_history(store: Store, id: DecisionId, n_features: int) -> dict[str, Any]:
    """The events that refer to a decision, by kind: ``(row, event)``."""
    found = store.find([f"{kind}:{id}" for kind in ("reward", "action", "behavior", "default")])
    return {row.kind: (row, event_from_row(row, n_features)) for row in found.values()}


def describe_history(history: dict[str, Any], given: Any) -> dict[str, Any]:
    """What happened after a decision: which arm was taken, what it brought, what the old policy would have done."""
    out: dict[str, Any] = {"action": None, "reward": None, "default_reward": None, "behavior": None}
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
                }
            case Reward():
                out["reward"] = {
                    "event": row.number,
                    "at": row.at,
                    "reward": event.reward,
                    "arm": label_to_json(event.arm),
                    "by": event.by,
                    "override": event.override,
                }
            case DefaultReward():
                out["default_reward"] = {
                    "event": row.number,
                    "at": row.at,
                    "reward": event.reward,
                    "arm": None if event.arm is None else label_to_json(event.arm),
                }
            case Behavior():
                out["behavior"] = _answer(event.answer)
    return out


def _answer(answer: Any) -> dict[str, Any]:
    return {
        "arm": None if answer.arm is None else label_to_json(answer.arm),
        "probabilities": None if answer.probabilities is None else list(answer.probabilities),
        "asked_with": answer.probability,
    }
