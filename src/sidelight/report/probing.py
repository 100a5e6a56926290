"""Probing a learner while it runs: its estimates and widths at a few fixed contexts, at checkpoints."""

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
"""Number of contexts at which learners are probed."""


def checkpoints(horizon: int) -> list[int]:
    """Rounds after which to probe: the start, the end, and about evenly on a logarithmic scale between."""
    spaced = np.unique(np.round(np.geomspace(10, max(horizon, 11), 14)).astype(int))
    return [0, *(int(t) for t in spaced if t < horizon), horizon]


def probed(
    learners: Mapping[str, Callable[[Any], Any]], world: Any, horizon: int, seed: int
) -> tuple[dict[str, Callable[[Any], Any]], Looks]:
    """Factories of learners that are probed, and the object that records their probes.

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
    """The records of probed learners.

    Attributes:
        X: (n, d)  the contexts at which they are probed.
        made: name → learner, once it has been made.
    """

    X: Array
    made: dict[str, _Probed]

    def table(self, mean_rewards: Callable[[Array], Array] | None) -> pa.Table:
        """``learner, round, context, arm, estimate, width`` and ``truth`` if ``mean_rewards`` is given."""
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
        """Learner → its tests of the log, of linear rewards and of rewards constant over time, if it makes any."""
        found = {name: _findings(learner) for name, learner in self.made.items()}
        return {name: findings for name, findings in found.items() if findings}


class Finding(NamedTuple):
    """The result of a learner's test of one of its assumptions, from its own rounds.

    Attributes:
        tested: what is assumed.
        holds: whether the test found no evidence against it; None where something is wrong, and not yet known what.
        says: the result in words.
    """

    tested: str
    holds: bool | None
    says: str


#: assumption → its name in a report
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
        open_question = any(entry["cause"] == "undecided" for entry in entries)
        holds = False if any(entry["doubted"] for entry in entries) else None if open_question else True
        out.append(Finding(tested, holds, " ".join(told)))
    return out + [
        Finding(_TESTED[e["assumption"]], e["holds"], e["says"]) for e in getattr(learner, "assumptions", list)()
    ]


class _Probed:
    """A learner that records its scores at the probed contexts at checkpoints, and otherwise behaves as before."""

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
