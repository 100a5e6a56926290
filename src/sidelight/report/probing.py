"""Looking into a learner while it runs: its estimates and widths at a few fixed contexts, now and then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from sidelight.linalg import Array

__all__ = ["PROBES", "checkpoints", "probed"]

PROBES = 60
"""Contexts at which learners are asked."""


def checkpoints(horizon: int) -> list[int]:
    """Rounds after which to ask: the start, the end, and powers between, closer together at first."""
    spaced = np.unique(np.round(np.geomspace(10, max(horizon, 11), 14)).astype(int))
    return [0, *(int(t) for t in spaced if t < horizon), horizon]


def probed(
    learners: Mapping[str, Callable[[Any], Any]], world: Any, horizon: int, seed: int
) -> tuple[dict[str, Callable[[Any], Any]], Callable[..., pa.Table]]:
    """Factories of learners that are looked into, and a function that collects what was seen.

    Args:
        learners: name → ``factory(run)``.
        world: gives the contexts.
        horizon: of the run.
        seed: draws the contexts.
    """
    X = np.ascontiguousarray(world.contexts(PROBES, np.random.default_rng([31_415, seed])))
    made: dict[str, _Probed] = {}

    def wrap(name: str, make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def factory(run: Any) -> Any:
            made[name] = _Probed(make(run), X, checkpoints(horizon))
            return made[name]

        return factory

    def collect(mean_rewards: Callable[[Array], Array] | None) -> pa.Table:
        truth = None if mean_rewards is None else mean_rewards(X)
        columns: dict[str, list[Any]] = {n: [] for n in ("learner", "round", "context", "arm", "estimate", "width")}
        if truth is not None:
            columns["truth"] = []
        for name, learner in made.items():
            learner.look()
            for t, (estimates, widths) in learner.seen.items():
                for i in range(len(X)):
                    for a, arm in enumerate(learner.arms):
                        values = (name, t, i, str(arm), float(estimates[i, a]), float(widths[i, a]))
                        for key, value in zip(columns, values, strict=False):
                            columns[key].append(value)
                        if truth is not None:
                            columns["truth"].append(float(truth[i, a]))
        return pa.table(columns)

    return {name: wrap(name, make) for name, make in learners.items()}, collect


class _Probed:
    """A learner that remembers its scores at some contexts after some rounds, and is otherwise unchanged."""

    def __init__(self, learner: Any, X: Array, rounds: list[int]) -> None:
        self._learner = learner
        self._X = X
        self._waiting = list(rounds)
        self._round = 0
        self.seen: dict[int, tuple[Array, Array]] = {}
        self._look_if_due()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def look(self) -> None:
        """Record estimates and widths of all probed contexts and arms at the present round."""
        scores = [self._learner.scores(x) for x in self._X]
        self.seen[self._round] = np.stack([s[0] for s in scores]), np.stack([s[1] for s in scores])

    def _look_if_due(self) -> None:
        if self._waiting and self._round >= self._waiting[0]:
            self.look()
            while self._waiting and self._round >= self._waiting[0]:
                self._waiting.pop(0)

    def observe(self, x: Any, arm: Any, reward: float) -> None:
        """Pass the reward on to the learner; record its scores if this round is a checkpoint."""
        self._learner.observe(x, arm, reward)
        self._round += 1
        self._look_if_due()

    def play(self, X: Array, table: Array, answers: Any, probabilities: Any, rng: np.random.Generator) -> Any:
        """Many rounds at once, cut at the checkpoints; ``None`` if the learner has no such shortcut."""
        compiled = getattr(self._learner, "play", None)
        if compiled is None:
            return None
        parts: list[Array] = []
        start = 0
        while start < len(X):
            stop = len(X)
            if self._waiting:
                stop = min(stop, start + max(1, self._waiting[0] - self._round))
            some = slice(start, stop)
            played = compiled(
                X[some],
                table[some],
                None if answers is None else answers[some],
                None if probabilities is None else probabilities[some],
                rng,
            )
            if played is None:
                return None  # the first piece already says so: nothing has been learned yet
            parts.append(np.asarray(played))
            self._round += stop - start
            start = stop
            self._look_if_due()
        return np.concatenate(parts)
