"""The fixtures of the contract suite: one learner after the other, and a way to put them through rounds."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.contract.registry import FEATURES, LEARNERS, Entry, Log, make_log

#: not the defaults: a slip in a constructor's arguments must show
SETTINGS = {
    "regularization": 0.7,
    "noise": 0.4,
    "alpha": 0.9,
    "delta": 0.1,
    "context_bound": 2.0,
    "weight_bound": 1.5,
    "prior_mean": 0.05,
}


@pytest.fixture(params=LEARNERS, ids=str)
def entry(request: pytest.FixtureRequest) -> Entry:
    return request.param


@pytest.fixture(scope="session")
def log() -> Log:
    return make_log()


@pytest.fixture
def make(entry: Entry, log: Log) -> Any:
    """A new learner each time it is called."""
    return lambda **changes: entry.make(log, **{**SETTINGS, **changes})


class Player:
    """Puts learners through the same rounds: answers, decisions, overrides, late and missing rewards."""

    def __init__(self, arms: tuple[Any, ...], seed: int = 3) -> None:
        self.arms = arms
        self.seed = seed

    def events(self, n: int, seed: int | None = None) -> Iterator[tuple[int, np.ndarray, int, np.ndarray, np.ndarray]]:
        rng = np.random.default_rng(self.seed if seed is None else seed)
        K, d = len(self.arms), len(FEATURES)
        weights = rng.normal(size=(K, d))
        for t in range(n):
            x = rng.normal(size=d) * 0.6 + 0.2
            yield t, x, int(rng.integers(K)), rng.dirichlet(np.ones(K)), weights @ x + 0.3 * rng.normal(size=K)

    def play(self, learner: Any, n: int, seed: int | None = None, extra: Any = None) -> list[Any]:
        """``n`` rounds; every fifth decision is overridden, every seventh reward never comes."""
        decisions = []
        for t, x, answer, probabilities, rewards in self.events(n, seed):
            if extra is not None:
                extra(learner, x)
            self.answer(learner, x, answer, probabilities)
            decision = learner.decide(x, rng=np.random.default_rng(t))
            decisions.append(decision)
            if t % 7 == 6:
                continue
            arm = self.arms.index(decision.arm) if t % 5 else answer
            learner.observe(x, self.arms[arm], float(rewards[arm]))
        return decisions

    def answer(self, learner: Any, x: np.ndarray, answer: int, probabilities: np.ndarray) -> None:
        if learner.needs == "action":
            learner.observe_behavior(x, self.arms[answer], probability=0.8)
        elif learner.needs == "probabilities":
            learner.observe_behavior(x, probabilities=probabilities)


@pytest.fixture
def player(log: Log) -> Player:
    return Player(log.arms)


@pytest.fixture(scope="session")
def practised() -> dict[tuple[str, int], Any]:
    """Learners after some rounds, by name and number of rounds: never handed out, only copied."""
    return {}


@pytest.fixture
def played(entry: Entry, make: Any, player: Player, practised: dict[tuple[str, int], Any]) -> Any:
    """``played(n)`` is a learner after ``n`` rounds, one's own to change; the rounds are played once for all tests."""

    def after(n: int) -> Any:
        if (entry.name, n) not in practised:
            practised[entry.name, n] = make()
            player.play(practised[entry.name, n], n)
        return copy.deepcopy(practised[entry.name, n])

    return after
