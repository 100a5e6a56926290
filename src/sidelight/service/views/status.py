"""The status of the service as JSON, for people and for monitoring."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sidelight.labels import label_to_json
from sidelight.service.core.engine import Engine
from sidelight.service.core.fold import FOLD, State
from sidelight.service.core.gate import Gate
from sidelight.service.views.explain import finite

__all__ = ["describe_engine", "describe_floor", "describe_gate", "describe_state"]


def describe_engine(engine: Engine) -> dict[str, Any]:
    """The status of one server as JSON: whether it can write, and its state."""
    return {
        "ready": engine.ready,
        "error": None if (error := engine.why_not_ready()) is None else str(error),
        "fold": FOLD,
        **describe_state(engine.state),
        "started_from_snapshot": engine.recovered_from,
        "damaged_snapshots": engine.damaged,
    }


def describe_gate(gate: Gate) -> dict[str, Any]:
    """The gate as JSON: settings, evidence and the step that the evidence calls for."""
    step = gate.proposal()
    return {
        "settings": gate.settings.to_dict(),
        **gate.evidence(),
        "proposal": None if step is None else {"rung": step.after, "share": step.share, "reason": step.reason},
    }


def describe_floor(state: State) -> dict[str, Any] | None:
    """What the floor promises and how much room is left before it holds the learner back; None without one."""
    ledger = state.learner.ledger
    if ledger is None:
        return None
    awaited = ledger.awaiting.open
    return {
        **asdict(ledger.floor),
        "regularization": ledger.ridge,
        "rounds": ledger.rounds,
        "kept": state.counts["kept by the floor"],
        "room": ledger.total,
        "counted": int(ledger.counts.sum()),
        "awaited": awaited,
        "behind": len(ledger.awaiting) - awaited,
    }


def describe_state(state: State) -> dict[str, Any]:
    """The folded state as JSON: counts, arms, rails, and the weight of each log."""
    learner = state.learner
    trust = [_plain(entry) for entry in learner.log_trust()]
    return {
        "event": state.number,
        "version": state.version,
        "learner": type(learner).__name__,
        "needs": learner.needs,
        "rails": state.rails.to_dict(),
        "gate": describe_gate(state.gate),
        "floor": describe_floor(state),
        "counts": dict(state.counts),
        "quarantine": {
            "waiting": len(state.quarantine),
            "newest": [{"event": n, "why": why} for n, _, why in state.quarantine.newest(5)],
        },
        "arms": [{"arm": label_to_json(arm), **state.arm_totals(arm)._asdict()} for arm in learner.arms],
        "log_trust": trust,
        "assumptions": [_plain(entry) for entry in learner.assumptions()],
    }


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of ``log_trust`` or ``assumptions`` with labels and numbers as JSON values."""
    return {
        k: label_to_json(v) if k in ("arm", "log") and v is not None else finite(v) if type(v) is float else v
        for k, v in entry.items()
    }
