"""Honest worlds described by data: what a ``Cell`` of the zoo says, and the world that is drawn from it.

All features are drawn standardised (``z``: mean 0, variance 1) and written in the cell's units, ``centre + scale·z``.
Rewards are ``reward_shift + reward_unit·(level_a + u_a·z + curvature)`` plus noise; the log comes from the same world,
so that every disagreement between log and rounds is chance, the hidden features' doing, or curvature.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr

import sidelight as sl

Array = Any

MOMENT_ROWS = 1 << 18
"""Contexts in the Monte-Carlo sample behind ``cross_moments``."""


@dataclass(frozen=True)
class Era:
    """One of several logs of the same policy.

    Attributes:
        recorded, hidden: the share of the cell's recorded and of its hidden features that this log recorded, the first
            ones of each.
        rows: its rows, as a multiple of the cell's.
        arms: the share of the arms whose rows were kept, the first ones.
    """

    recorded: float = 1.0
    hidden: float = 0.0
    rows: float = 1.0
    arms: float = 1.0


#: name → the logs, oldest first
LOGS: dict[str, tuple[Era, ...]] = {
    "one": (Era(),),
    "two": (Era(), Era(recorded=0.5, hidden=0.5)),
    "eras": (Era(recorded=0.5), Era(), Era(hidden=0.5)),
    "six eras": (*(Era(recorded=share) for share in (0.2, 0.4, 0.6, 0.8, 1.0)), Era(hidden=0.5)),
    "same columns": (Era(), Era(), Era()),
    "same columns, sizes": (Era(rows=0.03), Era(rows=0.1), Era()),
    "sizes": (Era(recorded=0.5, rows=5.0), Era(), Era(hidden=0.5, rows=0.05)),
    "two small": (Era(recorded=0.5, rows=0.02), Era(rows=0.02), Era(hidden=0.5)),
    "arms": (Era(recorded=0.5, arms=0.5), Era(arms=0.7), Era(hidden=0.5)),
}


@dataclass(frozen=True)
class Cell:
    """One honest world of the zoo; the defaults are the base world.

    Attributes:
        name: what is special about it.
        arms, recorded, hidden: K, L and m, an intercept not counted.
        rows: rows of each log.
        intercept: whether contexts start with a constant, which the log records.
        strengths: standard deviation over contexts of the recorded and the hidden features' part of a mean reward.
        levels: standard deviation over arms of the mean reward.
        noise: smallest and largest standard deviation of the noise, spread geometrically over the arms.
        noise_by_context: the noise's variance grows with the first recorded feature's square.
        tails: of the noise: ``normal``, ``student`` (3 degrees of freedom) or ``binary`` (rewards are 0 or 1).
        kinds: distribution of recorded and hidden features: see ``_shape``.
        correlation: between neighbouring features (autoregressive), before their distribution is shaped.
        units: centre and scale of the features, repeated as needed, recorded ones first; None leaves them standardised.
        policy: the old one: ``softmax``, ``greedy`` (always its best arm), ``random``, ``skilled`` (a softmax that
            gives each arm to those whom it suits) or ``adverse`` (to those whom it suits least; in both ``sees`` and
            ``imbalance`` are not used).
        sees: how much of the recorded and of the hidden features enters its logits.
        sharpness: standard deviation of its logits over contexts; of the last two the logit for each unit of reward.
        imbalance: standard deviation over arms of its logits' levels.
        absent: arms that it never took.
        delay: rounds until a reward arrives.
        batch: decisions taken before the rewards of any of them arrive.
        answered: share of rounds in which the old policy is asked.
        wrong: share of answers that are a random arm.
        curvature: standard deviation of the curved part of a mean reward.
        curved_in: whose squares it is made of: ``recorded`` or ``hidden``.
        reward_shift, reward_unit: units of the reward.
        logs: the logs that there are, a name in ``LOGS``.
    """

    name: str
    arms: int = 8
    recorded: int = 6
    hidden: int = 4
    rows: int = 20_000
    intercept: bool = True
    strengths: tuple[float, float] = (1.0, 1.0)
    levels: float = 0.5
    noise: tuple[float, float] = (0.5, 0.5)
    noise_by_context: bool = False
    tails: str = "normal"
    kinds: tuple[str, str] = ("normal", "normal")
    correlation: float = 0.0
    units: tuple[tuple[float, float], ...] | None = None
    policy: str = "softmax"
    sees: tuple[float, float] = (0.5, 1.0)
    sharpness: float = 1.0
    imbalance: float = 0.3
    absent: int = 0
    delay: int = 0
    batch: int = 1
    answered: float = 1.0
    wrong: float = 0.0
    curvature: float = 0.0
    curved_in: str = "recorded"
    reward_shift: float = 0.0
    reward_unit: float = 1.0
    logs: str = "one"

    @property
    def linear(self) -> bool:
        """Whether mean rewards are linear in the features, so that weights exist."""
        return self.curvature == 0.0 and self.tails != "binary"

    @property
    def digest(self) -> str:
        """Eight hex digits that change with any entry but the name."""
        entries = {key: value for key, value in asdict(self).items() if key != "name"}
        return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()[:8]


class SyntheticWorld:
    """The world of one cell and one seed.

    Attributes:
        weights: (K, d)  of the features in the cell's units, intercept first if there is one.
        noises: (K,)  standard deviations.
    """

    def __init__(self, cell: Cell, seed: int) -> None:
        rng = np.random.default_rng([seed, 1])
        K, L, m = cell.arms, cell.recorded, cell.hidden
        p = L + m
        self.cell, self.n_arms, self.n_features = cell, K, p + cell.intercept
        units = np.array([(cell.units or ((0.0, 1.0),))[j % len(cell.units or (1,))] for j in range(p)])
        units[:L] = _natural_units(cell.kinds[0], units[:L])
        units[L:] = _natural_units(cell.kinds[1], units[L:])
        self.centre, self.scale = units[:, 0], units[:, 1]
        self._factor = np.linalg.cholesky(cell.correlation ** np.abs(np.subtract.outer(np.arange(p), np.arange(p))))
        directions = rng.standard_normal((K, p))
        self._slopes = np.hstack(
            [
                cell.strengths[0] * directions[:, :L] / np.sqrt(max(L, 1)),
                cell.strengths[1] * directions[:, L:] / np.sqrt(max(m, 1)),
            ]
        )
        # the old policy gives even arms to those whom they suit and odd ones to those whom they do not, in part
        leaning = np.where(np.arange(K) % 2 == 0, 1.0, -1.0)[:, None] * directions
        seen = np.repeat(cell.sees, (L, m)) / np.sqrt(np.repeat((max(L, 1), max(m, 1)), (L, m)))
        self._policy = cell.sharpness * seen * (leaning + rng.standard_normal((K, p))) / np.sqrt(2.0)
        self._policy_levels = cell.imbalance * rng.standard_normal(K)
        levels = cell.levels * rng.standard_normal(K)
        self._curves = rng.standard_normal((K, L if cell.curved_in == "recorded" else m))
        self._curves *= cell.curvature / np.sqrt(2.0 * max(self._curves.shape[1], 1))
        self.noises = cell.reward_unit * rng.permutation(np.geomspace(*cell.noise, K))
        slopes = cell.reward_unit * self._slopes / self.scale
        if cell.intercept:
            constant = cell.reward_shift + cell.reward_unit * levels - slopes @ self.centre
            self.weights = np.column_stack([constant, slopes])
        else:
            self.weights = slopes
        self.names = [f"x{j}" for j in range(p)]

    def schema(self, columns: list[int], arms: int | None = None) -> sl.Schema:
        """The schema of a log that recorded these features, of the first arms or of all."""
        names = [self.names[j] for j in columns]
        return sl.Schema(self.names, names, arms=range(arms or self.n_arms), intercept=self.cell.intercept)

    def columns(self) -> list[list[int]]:
        """The features that each log recorded."""
        L, m = self.cell.recorded, self.cell.hidden
        return [[*range(int(era.recorded * L)), *range(L, L + int(era.hidden * m))] for era in LOGS[self.cell.logs]]

    def contexts(self, n: int, rng: np.random.Generator) -> Array:
        """X (n, d)."""
        g = rng.standard_normal((n, len(self.centre))) @ self._factor.T
        L = self.cell.recorded
        z = np.hstack([_shape(self.cell.kinds[0], g[:, :L], rng), _shape(self.cell.kinds[1], g[:, L:], rng)])
        X = self.centre + self.scale * z
        return np.ascontiguousarray(np.column_stack([np.ones(n), X]) if self.cell.intercept else X)

    def standardised(self, X: Array) -> Array:
        """z (n, L + m)."""
        return (X[:, 1:] if self.cell.intercept else X) / self.scale - self.centre / self.scale

    def behavior_probabilities(self, X: Array) -> Array:
        """π_b(a | x): (n, K)."""
        n, K = len(X), self.n_arms
        allowed = np.arange(K) >= self.cell.absent
        if self.cell.policy == "random":
            return np.broadcast_to(allowed / allowed.sum(), (n, K)).copy()
        if self.cell.policy in ("skilled", "adverse"):
            sign = 1.0 if self.cell.policy == "skilled" else -1.0
            logits = sign * self.cell.sharpness * (self.standardised(X) @ self._slopes.T)
        else:
            logits = self.standardised(X) @ self._policy.T + self._policy_levels
        logits[:, ~allowed] = -np.inf
        if self.cell.policy == "greedy":
            return np.eye(K)[logits.argmax(axis=1)]
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        return chances / chances.sum(axis=1, keepdims=True)

    def behavior_actions(self, X: Array, rng: np.random.Generator) -> Array:
        """(n,) arms of the old policy."""
        cumulative = np.cumsum(self.behavior_probabilities(X), axis=1)
        return np.minimum((rng.random((len(X), 1)) * cumulative[:, -1:] >= cumulative).sum(axis=1), self.n_arms - 1)

    def mean_rewards(self, X: Array) -> Array:
        """(n, K)."""
        means = X @ self.weights.T
        if self.cell.curvature:
            z = self.standardised(X)
            block = z[:, : self.cell.recorded] if self.cell.curved_in == "recorded" else z[:, self.cell.recorded :]
            means = means + self.cell.reward_unit * (block**2 - 1.0) @ self._curves.T
        return np.clip(0.5 + 0.15 * means, 0.02, 0.98) if self.cell.tails == "binary" else means

    def potential_rewards(self, X: Array, rng: np.random.Generator) -> Array:
        """(n, K) rewards of every arm under the same noise."""
        means, n = self.mean_rewards(X), len(X)
        if self.cell.tails == "binary":
            return (rng.random((n, 1)) < means).astype(float)
        noise = rng.standard_t(3, n) / np.sqrt(3.0) if self.cell.tails == "student" else rng.standard_normal(n)
        if self.cell.noise_by_context:
            noise = noise * np.sqrt((1.0 + 2.0 * self.standardised(X)[:, 0] ** 2) / 3.0)
        return means + noise[:, None] * self.noises

    def log_rows(self, rng: np.random.Generator) -> Iterator[tuple[sl.Schema, Array, Array, Array]]:
        """Of each log its schema, the full contexts (n, d), of which it records a part, the arms and the rewards."""
        for era, columns in zip(LOGS[self.cell.logs], self.columns(), strict=True):
            X = self.contexts(int(era.rows * self.cell.rows), rng)
            arms = self.behavior_actions(X, rng)
            rewards = self.potential_rewards(X, rng)[np.arange(len(X)), arms]
            n_arms = int(era.arms * self.n_arms)
            kept = arms < n_arms
            yield self.schema(columns, n_arms), X[kept], arms[kept], rewards[kept]

    def logs(self, rng: np.random.Generator) -> list[sl.LogSummary]:
        """A summary of each log, all of them of the same policy."""
        return [
            sl.LogSummary.from_arrays(X[:, schema.recorded_index], arms, rewards, schema)
            for schema, X, arms, rewards in self.log_rows(rng)
        ]

    def cross_moments(self, schema: sl.Schema) -> Array:
        """R12(a) (K, L, m) of a log with this schema; zero for an arm that the old policy never takes."""
        moments, mass = self.second_moments
        cross = moments[:, schema.recorded_index][:, :, schema.hidden_index]
        return cross / np.maximum(mass, 1e-300)[:, None, None]

    def moments(self, schema: sl.Schema) -> tuple[Array, Array]:
        """R12(a) (K, L, m) and R11(a) (K, L, L) of a log with this schema, from the same contexts."""
        moments, mass = self.second_moments
        recorded = moments[:, schema.recorded_index][:, :, schema.recorded_index]
        return self.cross_moments(schema), recorded / np.maximum(mass, 1e-300)[:, None, None]

    @cached_property
    def second_moments(self) -> tuple[Array, Array]:
        """Σ π_b(a|x) x xᵀ (K, d, d) and Σ π_b(a|x) (K,) over ``MOMENT_ROWS`` contexts."""
        rng = np.random.default_rng(20_261_116)
        K, d = self.n_arms, self.n_features
        sums, mass = np.zeros((K, d, d)), np.zeros(K)
        for _ in range(MOMENT_ROWS >> 13):
            X = self.contexts(1 << 13, rng)
            chances = self.behavior_probabilities(X)
            mass += chances.sum(axis=0)
            for a in range(K):
                sums[a] += (X * chances[:, a : a + 1]).T @ X
        return sums, mass


FLAG_SHARES = {"flags": 0.3, "rare flags": 0.03}


def _natural_units(kind: str, units: Array) -> Array:
    """Flags and categories are 0 or 1 whatever the cell's units are."""
    if kind in FLAG_SHARES:
        share = FLAG_SHARES[kind]
        return np.tile((share, np.sqrt(share * (1.0 - share))), (len(units), 1))
    if kind == "category":
        share = 1.0 / (len(units) + 1)
        return np.tile((share, np.sqrt(share * (1.0 - share))), (len(units), 1))
    return units


def _shape(kind: str, g: Array, rng: np.random.Generator) -> Array:
    """Standard normal columns (n, p) as columns of another distribution, mean 0 and variance 1.

    ``normal``, ``uniform``, ``skewed`` (log-normal), ``heavy`` (Student, 5 degrees of freedom), ``flags`` and ``rare
    flags`` (0 or 1), ``category`` (one of p + 1 levels, the first without a column).
    """
    if kind == "normal" or not g.shape[1]:
        return g
    if kind == "uniform":
        return np.sqrt(12.0) * (ndtr(g) - 0.5)
    if kind == "skewed":
        return (np.exp(0.75 * g) - np.exp(0.28125)) / np.sqrt((np.exp(0.5625) - 1.0) * np.exp(0.5625))
    if kind == "heavy":
        return g * np.sqrt(3.0 / rng.chisquare(5, g.shape))
    if kind in FLAG_SHARES:
        share = FLAG_SHARES[kind]
        return ((ndtr(g) < share) - share) / np.sqrt(share * (1.0 - share))
    if kind == "category":
        share = 1.0 / (g.shape[1] + 1)
        level = np.minimum((ndtr(g[:, 0]) / share).astype(int), g.shape[1])
        return (np.eye(g.shape[1] + 1)[level][:, 1:] - share) / np.sqrt(share * (1.0 - share))
    raise ValueError(f"No distribution called {kind!r}.")
