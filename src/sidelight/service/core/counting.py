"""Updates of the metrics after events, transactions and changes of the state."""

from __future__ import annotations

from collections.abc import Iterable

from sidelight.service.core.fold import State
from sidelight.service.log.events import Action, Behavior, Decisions, DefaultReward, Event, Reward
from sidelight.service.log.numbering import Numbered
from sidelight.service.log.queue import Group
from sidelight.service.metrics import Metrics

__all__ = ["count_events", "count_group", "show_state"]


def count_events(metrics: Metrics, news: Iterable[Numbered]) -> None:
    """Count events that were folded in, by kind."""
    routes: list[str] = []
    for _, at, event, _, _ in news:
        if isinstance(event, Decisions):
            routes += event.routes
            if event.answers is None:
                continue
        _count(metrics, event, at)
    metrics.decided(routes)


def _count(metrics: Metrics, event: Event, at: float) -> None:
    match event:
        case Decisions():
            metrics.answers.inc(sum(answer is not None for answer in event.answers or ()))
            if event.quarantine is not None:
                metrics.quarantined.inc(sum(reason is not None for reason in event.quarantine))
        case Reward():
            metrics.rewards.inc()
            if event.waited_until is not None:
                metrics.late_rewards.observe(max(at - event.waited_until, 0.0))
            metrics.answers.inc(event.answer)
            metrics.overrides.inc(event.override)
            metrics.quarantined.inc(event.quarantine is not None)
        case Action():
            metrics.answers.inc(event.answer)
            metrics.overrides.inc(event.override)
            metrics.quarantined.inc(event.quarantine is not None)
        case Behavior():
            metrics.answers.inc()
            metrics.quarantined.inc(event.quarantine is not None)
        case DefaultReward():
            metrics.default_rewards.inc()


def count_group(metrics: Metrics, group: Group) -> None:
    """Count a transaction that was written: its requests and its duration."""
    if group.entries:
        metrics.committed(len(group.entries), group.seconds)


def show_state(metrics: Metrics, state: State) -> None:
    """Set the gauges of the quarantine, the last event, the learner's version, the kill switch and the share."""
    metrics.quarantine.set(len(state.quarantine))
    metrics.stands(state.number, state.version, killed=state.rails.killed, share=state.rails.share)
