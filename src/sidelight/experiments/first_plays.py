"""A learner that plays every arm once before it decides for itself, as the paper's released code does."""

from __future__ import annotations

from typing import Any

import numpy as np

from sidelight.learners.protocol import Decision, Learner

__all__ = ["FirstPlays"]


class FirstPlays:
    """A wrapper that first plays each arm once, in order, and then leaves every decision to its learner.

    With a small ``α`` an optimistic learner without a log tries only a few of its arms, so it is no baseline: in the
    world of the paper's text OFUL with ``α = 0.01`` plays one to four of thirty arms.

    Args:
        learner: decides once every arm has been played.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self._untried = list(learner.arms)

    @property
    def needs(self) -> Any:
        """What the learner is told of the old policy."""
        return self.learner.needs

    @property
    def arms(self) -> tuple[Any, ...]:
        """Labels of the arms."""
        return self.learner.arms

    @property
    def n_features(self) -> int:
        """Length of a context."""
        return self.learner.n_features

    def decide(
        self, x: Any, allowed: Any = None, rng: np.random.Generator | None = None, default: Any = None
    ) -> Decision:
        """The first arm that was never played, or the learner's choice."""
        for arm in self._untried:
            if allowed is None or arm in allowed:
                return Decision(arm, float("nan"), float("nan"), 1.0)
        return self.learner.decide(x, allowed, rng, default)

    def observe(self, x: Any, arm: Any, reward: float) -> None:
        """Pass a round on to the learner inside."""
        if arm in self._untried:
            self._untried.remove(arm)
        self.learner.observe(x, arm, reward)

    def wants_query(self, x: Any) -> bool:
        """Whether the learner wants to know what the old policy would do at ``x``."""
        return self.learner.wants_query(x)

    def observe_behavior(self, x: Any, arm: Any = None, **more: Any) -> None:
        """Learn what the old policy would do at ``x``."""
        self.learner.observe_behavior(x, arm, **more)
