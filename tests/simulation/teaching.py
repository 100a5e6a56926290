"""What the learner must have been taught by a log, written down literally and compared with the learner itself.

Nothing of the fold is used: rewards, default rewards, releases and retractions become one list of rounds, and a learner
that starts anew is taught the list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from sidelight.learners.saving import learner_from_bytes
from sidelight.service.log.events import (
    Action,
    Configuration,
    Decisions,
    DefaultReward,
    Forgotten,
    Release,
    Retraction,
    Reward,
)

#: rounds are added in another order than the fold's, and corrections are sums and differences
TOLERANCE = 1e-6


def rounds_taught(events: list[Any]) -> dict[tuple[int, int], tuple[Any, float]]:
    """``(number, position)`` of a decision → the arm and the reward that its round taught, after all is said."""
    retracted = {(event.event, event.position) for _, event in events if isinstance(event, Retraction)}
    taught: dict[tuple[int, int], tuple[Any, float]] = {}
    forgotten: set[tuple[int, int]] = set()
    for row, event in events:
        if isinstance(event, Forgotten):
            forgotten |= {(number, position) for number, position in event.decisions}
        elif isinstance(event, DefaultReward):
            if event.arm is not None and event.decision[:2] not in forgotten:
                taught[event.decision[:2]] = event.arm, event.reward
        elif isinstance(event, Action) and event.replaces is not None:
            if event.decision[:2] not in forgotten:
                taught[event.decision[:2]] = event.arm, event.replaces
        else:
            place = (event.event, event.position) if isinstance(event, Release) else (row.number, 0)
            said = event.released if isinstance(event, Release) else event
            teaches = isinstance(said, Reward) and said.quarantine is None and place not in retracted
            if teaches and said.decision[:2] not in forgotten:
                taught[said.decision[:2]] = said.arm, said.reward
    return taught


def differences(world: Any, store: Any, events: list[Any], learner: Any) -> Iterable[str]:
    """Where a learner differs from one that is taught the rounds of the log anew."""
    first = next(event for _, event in events if isinstance(event, Configuration))
    literal = learner_from_bytes(store.blob(first.learner))
    made = {row.number: (row.key, event) for row, event in events if isinstance(event, Decisions)}
    taught = rounds_taught(events)
    for (number, position), (arm, reward) in taught.items():
        key, event = made[number]
        x = event.contexts[position]
        if np.isnan(x).any():
            # forgotten since: a batch has consecutive markers, and the first one is in its key
            x = world.contexts[float(key.removeprefix("once:k")) + position]
        literal.observe(x, arm, reward)
    if list(literal.counts) != list(learner.counts):
        yield f"the learner was taught {list(learner.counts)} rounds, the log has {list(literal.counts)}: {taught}"
        return
    for x in (np.array([1.0, 0.1, 0.3, 0.0, 0.0, 0.5, -0.2]), np.array([1.0, 0.0, -1.0, 1.0, 0.0, 0.0, 1.0])):
        for arm in learner.arms:
            here, there = (one.decide(x, [arm], np.random.default_rng(0)) for one in (learner, literal))
            if not np.allclose(here[1:3], there[1:3], rtol=TOLERANCE, atol=TOLERANCE):
                yield f"the learner expects {here[1:3]} of {arm}, and {there[1:3]} by the rounds of the log: {taught}"
                return
