"""Paired runs of learners in the zoo's worlds: play one, record what it did, compare means over seeds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import t as student

import sidelight as sl
from benchmarks.regret import completed
from benchmarks.synthetic import Array, Cell, SyntheticWorld
from sidelight.learners.rounds import play_rounds


@dataclass
class Setting:
    """What the learners of one seed share: the world, its logs, and all draws of the rounds."""

    cell: Cell
    seed: int
    rounds: int

    @cached_property
    def world(self) -> SyntheticWorld:
        """The environment."""
        return SyntheticWorld(self.cell, self.seed)

    @cached_property
    def summaries(self) -> list[sl.LogSummary]:
        """The old policy's logs, oldest first."""
        return self.world.logs(np.random.default_rng([self.seed, 2]))

    @property
    def summary(self) -> sl.LogSummary:
        """The newest log, for learners that take only one."""
        return self.summaries[-1]

    @property
    def newest_rows(self) -> tuple[sl.Schema, Array, Array, Array]:
        """The rows behind ``summary``: schema, full contexts, arms, rewards."""
        return list(self.world.log_rows(np.random.default_rng([self.seed, 2])))[-1]

    @cached_property
    def draws(self) -> tuple[Array, Array, Array, Array, Array]:
        """Contexts, potential rewards, mean rewards, the old policy's answers, and in which rounds it was asked."""
        rng = np.random.default_rng([self.seed, 3])
        world, cell, n = self.world, self.cell, self.rounds
        X = world.contexts(n, rng)
        rewards = world.potential_rewards(X, rng)
        answers = np.where(
            rng.random(n) < cell.wrong, rng.integers(cell.arms, size=n), world.behavior_actions(X, rng)
        ).astype(np.int64)
        return X, rewards, world.mean_rewards(X), answers, rng.random(n) < cell.answered


def play(learner: Any, setting: Setting) -> Array:
    """Cumulative regret of a learner (rounds,): answers at once, rewards by the cell's delay and batches."""
    X, rewards, means, answers, asked = setting.draws
    cell, n = setting.cell, setting.rounds
    rng = np.random.default_rng([setting.seed, 4])
    plain = cell.delay == 0 and cell.batch == 1 and (cell.answered == 1.0 or learner.needs is None)
    plain = plain and len(getattr(learner, "logs", ())) < 2
    chances = setting.world.behavior_probabilities(X) if learner.needs == "probabilities" else None
    played = None
    if plain:
        played = play_rounds(learner, X, rewards, answers if learner.needs == "action" else None, rng)
    if played is None:
        played = np.empty(n, dtype=np.int64)
        waiting = 0
        for i in range(n):
            if asked[i]:
                _answer(learner, X[i], int(answers[i]), None if chances is None else chances[i])
            played[i] = learner.decide(X[i], rng=rng).arm
            due = i + 1 - cell.delay
            if due > 0 and (i + 1) % cell.batch == 0:
                for j in range(waiting, due):
                    learner.observe(X[j], int(played[j]), float(rewards[j, played[j]]))
                waiting = due
    return np.cumsum(means.max(axis=1) - means[np.arange(n), played])


def _answer(learner: Any, x: Array, arm: int, chances: Array | None) -> None:
    if learner.needs is None:
        return
    if chances is None:
        learner.observe_behavior(x, arm)
    else:
        learner.observe_behavior(x, probabilities=chances)


def record(make: Callable[[Setting], Any], setting: Setting, marks: Sequence[int]) -> dict[str, Any]:
    """What one learner did in one setting: regret at the marks, seconds, and what it thinks of its logs."""
    started = time.perf_counter()
    learner = make(setting)
    regret = play(learner, setting)
    out: dict[str, Any] = {
        "regret": {str(mark): float(regret[min(mark, setting.rounds) - 1]) for mark in marks},
        "seconds": round(time.perf_counter() - started, 3),
    }
    if isinstance(learner, sl.FusedOFUL):
        out["doubted"] = any(entry["doubted"] for entry in learner.log_trust())
        out["broken"] = [entry["assumption"] for entry in learner.assumptions() if not entry["holds"]]
        if setting.cell.linear:
            out["calibration"] = calibration(learner, setting.world)
    return out


def calibration(learner: Any, world: SyntheticWorld) -> list[float]:
    """``ξᵀΛξ/L`` of every log and arm that the log knows, ``ξ = b − M̂w``: 1 is right, less is cautious."""
    out = []
    for log in learner.logs:
        b, B = np.asarray(completed(log.hidden.summary).coefficients), log.hidden.regression()
        for i, a in enumerate(log.arms):
            if log.hidden.summary.counts[i] > 0 and log.L:
                w = world.weights[a][log.order]
                xi = b[i] - (w[: log.L] + B[i] @ w[log.L :])
                out.append(float(xi @ log.evidence.precision[i] @ xi) / log.L)
    return out


@dataclass(frozen=True)
class Ratio:
    """A ratio of mean regrets, paired by seed, with its 95 % interval (delta method, Student's quantile)."""

    value: float
    half: float
    seeds: int

    @property
    def low(self) -> float:
        """Lower end."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """Upper end."""
        return self.value + self.half

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.half:.2f}" if math.isfinite(self.half) else f"{self.value:.2f}"


def ratio(mine: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Mean of ``mine`` over mean of ``theirs``."""
    a, b = np.asarray(mine, dtype=float), np.asarray(theirs, dtype=float)
    n = len(a)
    value = float(a.mean() / max(b.mean(), 1e-300))
    if n < 2:
        return Ratio(value, math.inf, n)
    error = float(np.std(a - value * b, ddof=1)) / (math.sqrt(n) * max(float(b.mean()), 1e-300))
    return Ratio(value, float(student.ppf(0.975, n - 1)) * error, n)
