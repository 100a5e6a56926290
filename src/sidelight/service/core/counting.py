"""What the metrics are told about events, transactions and the state."""

from __future__ import annotations

from sidelight.service.core.fold import State
from sidelight.service.log.committer import Group
from sidelight.service.log.events import Action, Behavior, Decisions, Event, Reward
from sidelight.service.metrics import Metrics

__all__ = ["count_event", "count_group", "show_state"]


def count_event(metrics: Metrics, event: Event) -> None:
    """An event was folded in."""
    match event:
        case Decisions():
            metrics.decided(event.routes)
            if event.answers is not None:
                metrics.answers.inc(sum(answer is not None for answer in event.answers))
        case Reward():
            metrics.rewards.inc()
            metrics.answers.inc(event.answer)
            metrics.overrides.inc(event.override)
        case Action():
            metrics.answers.inc(event.answer)
            metrics.overrides.inc(event.override)
        case Behavior():
            metrics.answers.inc()


def count_group(metrics: Metrics, group: Group, state: State) -> None:
    """A transaction was written, and this is the state after it."""
    if group.entries:
        metrics.committed(len(group.entries), group.seconds)
    show_state(metrics, state)


def show_state(metrics: Metrics, state: State) -> None:
    """Where the log stands and who acts."""
    metrics.stands(state.number, state.version, killed=state.rails.killed, share=state.rails.share)
