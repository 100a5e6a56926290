"""Random configurations of learners, degenerate data among them, and the same history in other units."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import sidelight as sl
from sidelight.learners.registry import KINDS, learner_class

AUTO = {"regularization": "auto", "radius": "posterior"}
WAYS = ("queries", "probabilities", "companion", "known", "ipw", "control_variate")
#: how often each kind of learner is drawn
CHANCES = {"FusedOFUL": 4, "FusedThompson": 2}
COLUMNS = ("normal", "normal", "normal", "flag", "skewed", "constant", "zero", "copy")


@dataclass(frozen=True)
class Scales:
    """Numbers by which features (d,) and rewards are multiplied, and what is added to them."""

    features: Any = 1.0
    rewards: float = 1.0
    shifts: Any = 0.0
    level: float = 0.0

    def x(self, Z: np.ndarray) -> np.ndarray:
        """Features in these units."""
        return Z * self.features + self.shifts

    def r(self, rewards: np.ndarray) -> np.ndarray:
        """Rewards in these units."""
        return rewards * self.rewards + self.level


class Configuration:
    """A learner, its logs and a history, all drawn from one seed.

    gaps: a tenth of the values of contexts is missing, and inferred
    """

    def __init__(self, seed: int, gaps: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.kind = str(rng.choice(np.repeat(list(KINDS), [CHANCES.get(name, 1) for name in KINDS])))
        self.K, self.d, self.n = int(rng.integers(1, 7)), int(rng.integers(1, 10)), int(rng.integers(40, 120))
        self.intercept, self.binary = bool(rng.integers(2)), rng.random() < 0.15
        self.columns = rng.choice(COLUMNS, size=self.d)
        # no power of two makes 1 of it, which would be an intercept
        self.constants, self.means = rng.uniform(2.1, 3.9, size=self.d), rng.normal(size=self.d)
        self.W, self.P = rng.normal(size=(2, self.K, self.d))
        self.noise = 0.5 * np.exp(rng.normal(size=self.K) * rng.integers(2))
        several = self.kind.startswith("Fused") and rng.random() < 0.4
        self.logs = [self._log(rng) for _ in range(1 + several)]
        # one learner cannot learn from actions and probabilities at once
        ways = [way for way in WAYS if way != "probabilities"] if several else WAYS
        self.ways = [str(rng.choice(ways)) for _ in self.logs]
        self.rounds, self.answers, self.rewards = self._draw(rng, self.n)
        self.chances = self._chances(self.rounds)
        self.companion, self.population = self._draw(rng, 40), self._draw(rng, 200)
        self.options: dict[str, Any] = {}
        if self.kind.startswith("Fused"):
            drawn = {"forgetting": 0.99, "query_budget": 0.5, "safety": 0.5, "sandwich": True}
            self.options = {name: value for name, value in drawn.items() if rng.random() < 0.15}
        self.other = rng.integers(self.K, size=self.n)
        self.gaps = rng.random(self.rounds.shape) < (0.1 if gaps else 0.0)

    @property
    def untold(self) -> int:
        """Rounds before the rewards have a unit: one that lacks a feature which nobody saw says nothing."""
        return 14 if self.gaps.any() else 3

    def reordered(self, features: np.ndarray, arms: np.ndarray) -> Configuration:
        """The same with other orders: feature ``j`` is what was feature ``features[j]``, and arm ``a`` ``arms[a]``."""
        other, place, label = copy.copy(self), np.argsort(features), np.argsort(arms)

        def moved(Z: np.ndarray, chosen: np.ndarray, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            return Z[:, features], label[chosen], rewards[:, arms] if rewards.ndim == 2 else rewards

        other.logs = [(sorted(place[recorded].tolist()), *moved(*rows)) for recorded, *rows in self.logs]
        other.rounds, other.answers, other.rewards = moved(self.rounds, self.answers, self.rewards)
        other.gaps, other.chances = self.gaps[:, features], self.chances[:, arms]
        other.companion, other.population = moved(*self.companion), moved(*self.population)
        return other

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        Z = rng.normal(size=(n, self.d)) + self.means
        for j, kind in enumerate(self.columns):
            if kind == "flag":
                Z[:, j] = rng.random(n) < 0.3
            elif kind == "skewed":
                Z[:, j] = np.exp(Z[:, j])
            elif kind in ("constant", "zero"):
                Z[:, j] = self.constants[j] * (kind == "constant")
            elif kind == "copy":
                Z[:, j] = Z[:, 0]
        means = Z @ self.W.T
        rewards = means + self.noise * rng.normal(size=(n, 1))
        if self.binary:
            rewards = (rng.random((n, 1)) < 1.0 / (1.0 + np.exp(-means))).astype(float)
        return Z, (Z @ self.P.T + rng.gumbel(size=(n, self.K))).argmax(axis=1), rewards

    def _chances(self, Z: np.ndarray) -> np.ndarray:
        odds = np.exp(Z @ self.P.T - (Z @ self.P.T).max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def _log(self, rng: np.random.Generator) -> tuple[list[int], np.ndarray, np.ndarray, np.ndarray]:
        recorded = np.sort(rng.permutation(self.d)[: int(rng.integers(0, self.d + 1))]).tolist()
        Z, arms, rewards = self._draw(rng, int(rng.choice([3 * self.K, 60, 300])))
        kept = arms != rng.integers(self.K) if self.K > 1 and rng.random() < 0.3 else np.ones(len(Z), bool)
        kept[:2] = True  # one reward tells no unit
        # a recorded flag that is always 1 would be an intercept
        Z[np.flatnonzero(kept)[0], (self.columns == "flag") & (Z[kept] == 1.0).all(axis=0)] = 0.0
        return recorded, Z[kept], arms[kept], rewards[np.arange(len(Z)), arms][kept]

    @property
    def shifts(self) -> bool:
        """Whether a shift of features and rewards is promised to change nothing but rounding."""
        free = all(way in ("queries", "probabilities", "companion") for way in self.ways)
        kind = KINDS[self.kind]
        return self.intercept and (kind.made_from == "schema" or (free and kind.made_from == "hidden"))

    def schema(self, recorded: Any) -> sl.Schema:
        """The schema of a log with these features."""
        names = [f"x{j}" for j in range(self.d)]
        missing = "impute" if self.gaps.any() else "refuse"
        return sl.Schema(
            names, [names[j] for j in recorded], arms=range(self.K), intercept=self.intercept, missing=missing
        )

    def _table(self, scales: Scales, Z: np.ndarray, arms: np.ndarray, rewards: np.ndarray, columns: Any) -> pa.Table:
        X = scales.x(Z)
        return pa.table({**{f"x{j}": X[:, j] for j in columns}, "arm": arms, "reward": scales.r(rewards)})

    def make(self, scales: Scales) -> Any:
        """The learner in these units."""
        kind, learner = KINDS[self.kind], learner_class(self.kind)
        if kind.made_from == "schema":
            schema = self.schema(range(self.d))
            return learner(self.K, schema.n_features, schema=schema, **AUTO)
        summaries = []
        for recorded, *rows in self.logs:
            table = self._table(scales, *rows, recorded)
            summaries.append(
                sl.summarize_log(table, self.schema(recorded), sandwich=self.options.get("sandwich", False))
            )
        if kind.made_from == "summary":
            return learner(summaries[0], **AUTO)
        if kind.made_from == "constraint":
            return learner(sl.SideInformation.from_log(summaries[0], self._moments(scales, summaries[0])), **AUTO)
        hidden = [self._estimator(scales, way, summary) for way, summary in zip(self.ways, summaries, strict=True)]
        if kind.takes_horizon:
            return learner(hidden[0], self.n, **AUTO)
        if not kind.several_logs:
            return learner(hidden[0], **AUTO)
        return learner(hidden, **self.options)

    def _moments(self, scales: Scales, summary: sl.LogSummary) -> np.ndarray:
        Z, arms, _ = self.population
        X = np.hstack([np.ones((len(Z), int(self.intercept))), scales.x(Z)])
        o, h = summary.recorded, summary.hidden
        parts = [X[arms == a] for a in range(self.K)]
        return np.stack([part[:, o].T @ part[:, h] / max(len(part), 1) for part in parts])

    def _estimator(self, scales: Scales, way: str, summary: sl.LogSummary) -> Any:
        if way == "known":
            return sl.KnownCrossMoments(summary, self._moments(scales, summary))
        if way == "companion":
            Z, arms, rewards = self.companion
            own = rewards[np.arange(len(Z)), arms]
            return sl.CompanionLog(summary, self._table(scales, Z, arms, own, range(self.d)))
        if way == "probabilities":
            return sl.BehaviorProbabilities(summary)
        return sl.BehaviorQueries(summary, estimator="regression" if way == "queries" else way)

    def play(self, scales: Scales, history: Any = None) -> tuple[list[Any], np.ndarray]:
        """Arms and questions round by round, and scores (n, 2, K) in units of the plain rewards.

        history: arms and questions of another run to repeat; default its own decisions, every fourth overridden
        """
        learner, rewards = self.make(scales), scales.r(self.rewards)
        X = np.where(self.gaps, np.nan, scales.x(self.rounds))
        X = np.ascontiguousarray(np.hstack([np.ones((self.n, int(self.intercept))), X]))
        past: list[Any] = []
        scores: list[Any] = []
        for t, x in enumerate(X):
            asked = learner.needs is not None and learner.wants_query(x)
            if asked if history is None else history[t][1]:
                answer = {"arm": int(self.answers[t])}
                learner.observe_behavior(
                    x, **(answer if learner.needs == "action" else {"probabilities": self.chances[t]})
                )
            estimates, widths = learner.scores(x)
            scores.append([(estimates - scales.level) / scales.rewards, widths / scales.rewards])
            arm = learner.decide(x, rng=np.random.default_rng(t)).arm if t % 4 else int(self.other[t])
            past.append((arm, asked))
            arm = arm if history is None else history[t][0]
            learner.observe(x, arm, float(rewards[t, arm]))
        return past, np.array(scores)
