"""Worlds made of public data sets: real covariates, real or fitted surfaces (``tables.py``).

Contexts are rows drawn with replacement, standardised. A seed draws which half of the features is hidden, and an old
policy: a softmax of a noisy linear score fitted to the rewards on *all* features, so that the log is confounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

import sidelight as sl
from benchmarks.rivals.tables import FETCHED, INSTALLED, UNSEEN, Surfaces, standardised

Array = Any


@dataclass(frozen=True)
class DataCell:
    """A data set as a cell of the table."""

    name: str
    rows: int = 20_000
    delay: int = 0
    batch: int = 1
    answered: float = 1.0
    linear: bool = False

    @property
    def digest(self) -> str:
        """Part of its result files' names."""
        return str(self.rows)


DATA = {name: DataCell(name) for name in INSTALLED}
FETCHED_DATA = {name: DataCell(name) for name in FETCHED}
UNSEEN_DATA = {name: DataCell(name) for name in UNSEEN}


@cache
def surfaces(name: str) -> Surfaces:
    """Contexts (n, p) standardised, the mean reward of each arm there (n, K), and the noise's deviation."""
    X, means, noise = {**INSTALLED, **FETCHED, **UNSEEN}[name]()
    return standardised(np.asarray(X, dtype=float)), means, noise


class DataWorld:
    """A data set, a choice of hidden features and an old policy."""

    def __init__(self, cell: DataCell, seed: int) -> None:
        self.cell = cell
        X, self._means, self.noise = surfaces(cell.name)
        rng = np.random.default_rng([seed, 31])
        order = rng.permutation(X.shape[1])
        self._X = np.column_stack([np.ones(len(X)), X[:, order]])
        self.n_arms, self.n_features = self._means.shape[1], self._X.shape[1]
        self.n_recorded = (self.n_features - 1 + 1) // 2
        scores = np.linalg.lstsq(self._X, self._means, rcond=None)[0].T
        scores += rng.standard_normal(scores.shape) * scores.std()
        logits = self._X @ scores.T
        self._logits = 1.5 * (logits - logits.mean(axis=1, keepdims=True)) / logits.std()

    def _rows(self, n: int, rng: np.random.Generator) -> Array:
        return rng.integers(len(self._X), size=n)

    def _chances(self, rows: Array) -> Array:
        chances = np.exp(self._logits[rows])
        return chances / chances.sum(axis=1, keepdims=True)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Array, Array, Array, Array, Array]:
        """Contexts, potential rewards, mean rewards, the old policy's arms and its probabilities."""
        rows = self._rows(n, rng)
        means, chances = self._means[rows], self._chances(rows)
        if self.noise is None:
            rewards = (rng.random((n, 1)) < means).astype(float)
        else:
            rewards = means + self.noise * rng.standard_normal((n, 1))
        cumulative = np.cumsum(chances, axis=1)
        arms = np.minimum((rng.random((n, 1)) >= cumulative).sum(axis=1), self.n_arms - 1)
        return self._X[rows], rewards, means, arms, chances

    def log_rows(self, rng: np.random.Generator) -> tuple[sl.Schema, Array, Array, Array]:
        """The log's schema, the full contexts, of which it records a part, the arms and the rewards."""
        X, rewards, _, arms, _ = self.draw(self.cell.rows, rng)
        names = [f"x{j}" for j in range(self.n_features - 1)]
        schema = sl.Schema(names, names[: self.n_recorded], arms=range(self.n_arms), intercept=True)
        return schema, X, arms, rewards[np.arange(len(X)), arms]

    def summary(self, rng: np.random.Generator) -> sl.LogSummary:
        """The old policy's log, without the hidden features."""
        schema, X, arms, rewards = self.log_rows(rng)
        return sl.LogSummary.from_arrays(X[:, schema.recorded_index], arms, rewards, schema)


@dataclass
class DataSetting:
    """What the learners of one seed share, in the form of ``benchmarks.paired.Setting``."""

    cell: DataCell
    seed: int
    rounds: int

    @cached_property
    def world(self) -> DataWorld:
        """The data set with its hidden features and old policy."""
        return DataWorld(self.cell, self.seed)

    @cached_property
    def summaries(self) -> list[sl.LogSummary]:
        """The one log."""
        return [self.world.summary(np.random.default_rng([self.seed, 32]))]

    @property
    def summary(self) -> sl.LogSummary:
        """The log."""
        return self.summaries[0]

    @property
    def newest_rows(self) -> tuple[sl.Schema, Array, Array, Array]:
        """The rows behind ``summary``: schema, full contexts, arms, rewards."""
        return self.world.log_rows(np.random.default_rng([self.seed, 32]))

    @cached_property
    def draws(self) -> tuple[Array, Array, Array, Array, Array]:
        """Contexts, potential rewards, mean rewards, answers, and that every round is answered."""
        X, rewards, means, arms, _ = self.world.draw(self.rounds, np.random.default_rng([self.seed, 33]))
        return np.ascontiguousarray(X), rewards, means, arms.astype(np.int64), np.ones(self.rounds, dtype=bool)
