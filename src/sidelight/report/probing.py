"""Looking into a learner while it runs: its estimates and widths at a few fixed contexts, now and then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sidelight.linalg import Array

__all__ = ["PROBES", "Finding", "Looks", "checkpoints", "probed"]

PROBES = 60
"""Contexts at which learners are asked."""


def checkpoints(horizon: int) -> list[int]:
    """Rounds after which to ask: the start, the end, and powers between, closer together at first."""
    spaced = np.unique(np.round(np.geomspace(10, max(horizon, 11), 14)).astype(int))
    return [0, *(int(t) for t in spaced if t < horizon), horizon]


def probed(
    learners: Mapping[str, Callable[[Any], Any]], world: Any, horizon: int, seed: int
) -> tuple[dict[str, Callable[[Any], Any]], Looks]:
    """Factories of learners that are looked into, and what is seen there.

    Args:
        learners: name → ``factory(run)``.
        world: gives the contexts.
        horizon: of the run.
        seed: draws the contexts.
    """
    X = np.ascontiguousarray(world.contexts(PROBES, np.random.default_rng([31_415, seed])))
    looks = Looks(X, {})

    def wrap(name: str, make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def factory(run: Any) -> Any:
            looks.made[name] = _Probed(make(run), X, checkpoints(horizon))
            return looks.made[name]

        return factory

    return {name: wrap(name, make) for name, make in learners.items()}, looks


@dataclass(frozen=True)
class Looks:
    """What was seen of learners that were looked into.

    Attributes:
        X: (n, d)  the contexts at which they were asked.
        made: name → learner, once it has been made.
    """

    X: Array
    made: dict[str, _Probed]

    def table(self, mean_rewards: Callable[[Array], Array] | None) -> pa.Table:
        """``learner, round, context, arm, estimate, width`` and ``truth`` where ``mean_rewards`` tells it."""
        truth = None if mean_rewards is None else mean_rewards(self.X)
        columns: dict[str, list[Any]] = {n: [] for n in ("learner", "round", "context", "arm", "estimate", "width")}
        if truth is not None:
            columns["truth"] = []
        for name, learner in self.made.items():
            learner.look()
            for t, (estimates, widths) in learner.seen.items():
                for i in range(len(self.X)):
                    for a, arm in enumerate(learner.arms):
                        values = (name, t, i, str(arm), float(estimates[i, a]), float(widths[i, a]))
                        for key, value in zip(columns, values, strict=False):
                            columns[key].append(value)
                        if truth is not None:
                            columns["truth"].append(float(truth[i, a]))
        return pa.table(columns)

    def findings(self) -> dict[str, list[Finding]]:
        """Learner → what its rounds say about the log, the linearity and the present, where it tests them."""
        found = {name: _findings(learner) for name, learner in self.made.items()}
        return {name: findings for name, findings in found.items() if findings}


class Finding(NamedTuple):
    """What a learner's own rounds say about something that it assumes.

    Attributes:
        tested: what is assumed.
        holds: whether nothing was found against it.
        says: in words.
    """

    tested: str
    holds: bool
    says: str


#: what the assumptions are called in a report
_TESTED = {"linear": "rewards are linear in the features", "still": "the present stands still"}


def _findings(learner: Any) -> list[Finding]:
    logs: dict[Any, list[dict[str, Any]]] = {}
    for entry in getattr(learner, "log_trust", list)():
        logs.setdefault(entry["log"], []).append(entry)
    out = []
    for key, entries in logs.items():
        arms = Counter(entry["says"] for entry in entries)
        told = [f"{says} ({n} of {len(entries)} arms)" if len(arms) > 1 else says for says, n in arms.items()]
        tested = "the log is right" if key is None else f"the log {key!r} is right"
        out.append(Finding(tested, not any(entry["doubted"] for entry in entries), " ".join(told)))
    return out + [
        Finding(_TESTED[e["assumption"]], e["holds"], e["says"]) for e in getattr(learner, "assumptions", list)()
    ]


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
