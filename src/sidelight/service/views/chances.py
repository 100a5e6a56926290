"""The propensity of every arm in a decision, as far as it is known: needed to evaluate another policy offline.

A decision in ``act`` is the learner's with the share of the traffic, else the old policy's or the fallback:

    P(arm) = share · ((1 − explore) q(arm) + explore/n) + (1 − share) 1{arm = other},

``q`` the learner's own chances (1 for one arm if it draws nothing, else as written down), ``n`` the arms that were
allowed.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

from sidelight.labels import Label
from sidelight.linalg import Array
from sidelight.service.log.events import Configuration, Decisions
from sidelight.service.log.rows import event_from_row
from sidelight.service.log.store import Store
from sidelight.service.rails import Rails

__all__ = ["Switches", "arm_chances", "route_chance"]


class Switches:
    """The rails (kill switch, fallback, exploration) as they were at any event.

    Args:
        store: the log.
    """

    def __init__(self, store: Store) -> None:
        self._numbers: list[int] = []
        self._states: list[dict[str, Any]] = []
        state: dict[str, Any] = {"killed": False, "fallback": None, "explore": 0.0}
        for row in store.configurations():
            event = event_from_row(row, 0)
            if isinstance(event, Configuration):
                state = state | {name: v for name in state if (v := getattr(event, name)) is not None}
                self._numbers.append(row.number)
                self._states.append(state)

    def at(self, number: int, event: Decisions) -> Rails:
        """The rails in force for the decisions of event ``number``."""
        found = self._states[bisect_left(self._numbers, number) - 1]
        return Rails(event.mode, event.share, found["fallback"], found["killed"], found["explore"])


def route_chance(event: Decisions, i: int, rails: Rails) -> float:
    """The probability with which decision ``i`` was routed to whoever chose its arm."""
    drawn = event.mode == "act" and not rails.killed and event.estimates[i] is not None
    if not drawn:
        return 1.0
    return event.share if event.routes[i] == "learner" else 1.0 - event.share


def arm_chances(event: Decisions, i: int, rails: Rails, arms: list[Label]) -> Array | None:
    """(K,)  propensity of every arm in decision ``i``; None where they are not known."""
    answer = None if event.answers is None else event.answers[i]
    if event.mode == "shadow" and not rails.killed:
        return None if answer is None or answer.probabilities is None else np.array(answer.probabilities)
    if event.mode == "assist" and not rails.killed:
        return None  # whether a person confirmed depends on what the person saw
    allowed = None if event.allowed is None else event.allowed[i]
    route, taken = route_chance(event, i, rails), event.arms[i]
    if event.routes[i] != "learner" and route == 1.0:
        # Killed, a failed learner, or a share of 0: the fallback has propensity 1; the old policy drew its arm itself,
        # with propensities that are not known here.
        return _only(arms, taken) if event.routes[i] == "fallback" else None
    written = None if event.chances is None else event.chances[i]
    own = _only(arms, event.recommended[i]) if written is None else np.array(written)
    even = np.array([1.0 if allowed is None or arm in allowed else 0.0 for arm in arms])
    found = event.share * ((1.0 - rails.explore) * own + rails.explore * even / even.sum())
    if event.share < 1.0:
        other = taken if event.routes[i] != "learner" else _without_learner(event, i, rails)
        found = found + (1.0 - event.share) * _only(arms, other)
    recorded = event.propensities[i]
    if recorded is None or taken is None or abs(found[arms.index(taken)] - recorded) > 1e-9:
        return None  # the learner drew, and its chances were not written down; or a floor held it back
    return np.asarray(found)


def _without_learner(event: Decisions, i: int, rails: Rails) -> Label | None:
    """The arm that the route without the learner takes: the old policy's, or the fallback."""
    answer = None if event.answers is None else event.answers[i]
    allowed = None if event.allowed is None else event.allowed[i]
    for arm in (None if answer is None else answer.arm, rails.fallback):
        if arm is not None and (allowed is None or arm in allowed):
            return arm
    return None if allowed is None else allowed[0]


def _only(arms: list[Label], arm: Label | None) -> Array:
    return np.array([1.0 if one == arm else 0.0 for one in arms])
