"""Worlds made of public data sets that ship inside packages: real covariates, real or fitted surfaces.

* ``insurance``: the RAND health insurance experiment (statsmodels' ``randhie``), a randomised trial: four levels of
  cost sharing as arms, minus the number of visits as reward; surfaces are gradient-boosted trees fitted for each arm.
* ``digits``, ``tumours``, ``wine`` and ``iris`` (scikit-learn): arms are classes, the reward is 1 for the right one;
  digits have their first 20 principal components as features.
* ``travel`` (statsmodels' ``modechoice``: which of four ways of travelling somebody took), ``affairs`` (``fair``:
  whether there were any) and ``parties`` (``anes96``: three parts of the scale of party identification): likewise.

Contexts are rows drawn with replacement, standardised. A seed draws which half of the features is hidden, and an old
policy: a softmax of a noisy linear score fitted to the rewards on *all* features, so that the log is confounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import statsmodels.api as sm
from sklearn import datasets
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingRegressor

import sidelight as sl

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


CLASSES = {
    "digits": datasets.load_digits,
    "tumours": datasets.load_breast_cancer,
    "wine": datasets.load_wine,
    "iris": datasets.load_iris,
}
DATA = {name: DataCell(name) for name in ("insurance", *CLASSES, "travel", "affairs", "parties")}


def _standardised(X: Array) -> Array:
    spread = X.std(axis=0)
    return (X - X.mean(axis=0))[:, spread > 0] / spread[spread > 0]


@cache
def surfaces(name: str) -> tuple[Array, Array, float]:
    """Contexts (n, p) standardised, the mean reward of each arm there (n, K), and the noise's deviation."""
    if name == "insurance":
        frame = sm.datasets.randhie.load_pandas().data
        edges = np.unique(np.quantile(frame["lncoins"], [0.25, 0.5, 0.75]))
        arms = np.searchsorted(edges, frame["lncoins"].to_numpy(), side="left")
        reward = -np.minimum(frame["mdvis"].to_numpy(float), 20.0)
        X = frame.drop(columns=["mdvis", "lncoins"]).to_numpy(float)
        means = np.empty((len(X), int(arms.max()) + 1))
        for a in range(means.shape[1]):
            model = HistGradientBoostingRegressor(max_iter=60, max_depth=4, random_state=0)
            means[:, a] = model.fit(X[arms == a], reward[arms == a]).predict(X)
        noise = float(np.std(reward - means[np.arange(len(X)), arms]))
        return _standardised(X), means, noise
    if name in CLASSES:
        loaded = CLASSES[name]()
        X, classes = np.asarray(loaded.data, dtype=float), loaded.target
    else:
        X, classes = _survey(name)
    X = _standardised(X)
    if name == "digits":
        X = _standardised(PCA(20, random_state=0).fit_transform(X))
    return X, np.eye(int(classes.max()) + 1)[classes], 0.0


def _survey(name: str) -> tuple[Array, Array]:
    """Features (n, p) and classes (n,) of a data set of statsmodels."""
    if name == "travel":
        frame = sm.datasets.modechoice.load_pandas().data.sort_values(["individual", "mode"])
        each = [frame[column].to_numpy(float).reshape(-1, 4) for column in ("ttme", "invc", "invt", "hinc", "psize")]
        features = np.column_stack([*each[:3], each[3][:, 0], each[4][:, 0]])
        return features, frame["choice"].to_numpy().reshape(-1, 4).argmax(axis=1)
    if name == "affairs":
        frame = sm.datasets.fair.load_pandas().data
        return frame.drop(columns="affairs").to_numpy(float), (frame["affairs"] > 0.0).to_numpy().astype(int)
    frame = sm.datasets.anes96.load_pandas().data
    features = frame.drop(columns=["PID", "vote", "expvote"], errors="ignore").to_numpy(float)
    return features, np.digitize(frame["PID"].to_numpy(), [1.5, 4.5])


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
