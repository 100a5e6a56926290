"""What learners earned in a replayed trial: rounds, mean rewards and paired differences, with bootstrap intervals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidelight.drawing.intervals import number
from sidelight.drawing.notebook import card
from sidelight.errors import InputError
from sidelight.labels import counted
from sidelight.worlds.protocol import Floats

__all__ = ["ReplayResult", "ReplayedRun", "bootstrap_interval"]

#: rows that a bootstrap draws at a time
_DRAWN = 1 << 16


class ReplayedRun(NamedTuple):
    """One learner's run: accepted rows, arms and rewards, and how many rows were offered before each."""

    learner: str
    seed: int
    rows: NDArray[np.intp]
    arms: NDArray[np.intp]
    rewards: Floats
    offered: NDArray[np.intp]
    total: int


class ReplayResult:
    """The runs of a replayed trial; ``rounds()`` and ``summary()`` are Arrow tables.

    Args:
        arms: their labels.
        positions: for each row of the world, its position in the source.
        runs: one for each learner and seed.
    """

    def __init__(self, arms: tuple[Any, ...], positions: NDArray[np.intp], runs: list[ReplayedRun]) -> None:
        self._arms = arms
        self._positions = positions
        self._runs = runs

    @property
    def learners(self) -> list[str]:
        """Names of the learners, in the order given to ``replay``."""
        return list(dict.fromkeys(part.learner for part in self._runs))

    def __repr__(self) -> str:
        rounds, seeds = sum(len(part.rows) for part in self._runs), len({part.seed for part in self._runs})
        size = f"{counted(seeds, 'seed')}, {counted(rounds, 'round')}"
        return f"ReplayResult({', '.join(self.learners)}; {size}; see summary())"

    def _repr_html_(self) -> str:
        rows = []
        for name in self.learners:
            parts = [part for part in self._runs if part.learner == name]
            means = [float(part.rewards.mean()) for part in parts if len(part.rewards)] or [float("nan")]
            counts = f"{sum(len(part.rows) for part in parts):,}", f"{sum(part.total for part in parts):,}"
            rows.append((name, *counts, *(number(v) for v in (float(np.mean(means)), min(means), max(means)))))
        return card(
            f"A replayed trial: {counted(len(self.learners), 'learner')}, "
            f"{counted(len({part.seed for part in self._runs}), 'seed')}.",
            [("intervals", "summary() has them for each learner, difference(learner, baseline) for two, paired")],
            "Mean reward of the accepted rounds",
            ("learner", "rounds accepted", "rows offered", "mean reward", "lowest of a seed", "highest of a seed"),
            rows,
        )

    def rounds(self) -> pa.Table:
        """One row for each accepted round: ``learner, seed, round, offered, row, arm, reward``.

        ``offered`` is how many rows had been offered, ``row`` the position in the source.
        """

        def column(values: list[Any]) -> Any:
            return np.concatenate(values) if values else np.empty(0)

        arms = pa.array(self._arms)
        return pa.table(
            {
                "learner": [part.learner for part in self._runs for _ in part.rows],
                "seed": column([np.full(len(part.rows), part.seed) for part in self._runs]),
                "round": column([np.arange(1, len(part.rows) + 1) for part in self._runs]),
                "offered": column([part.offered for part in self._runs]),
                "row": column([self._positions[part.rows] for part in self._runs]),
                "arm": arms.take(pa.array(column([part.arms for part in self._runs]).astype(np.int64))),
                "reward": column([part.rewards for part in self._runs]),
            }
        )

    def summary(self, repeats: int = 2000, level: float = 0.95) -> pa.Table:
        """One row for each learner: rows offered and accepted over all seeds, mean reward, its bootstrap interval.

        The mean is that over seeds of each run's mean, so that two learners' means differ by their ``difference``. The
        interval resamples accepted rounds within each seed: the uncertainty of the reward these runs earned.
        """
        columns: dict[str, list[Any]] = {
            name: [] for name in ("learner", "seeds", "offered", "accepted", "mean_reward", "low", "high")
        }
        for name in self.learners:
            parts = [part for part in self._runs if part.learner == name]
            runs = [part.rewards for part in parts if len(part.rewards)]
            mean, low, high = _mean_of_runs(runs, repeats, level)
            accepted, offered = sum(map(len, runs)), sum(part.total for part in parts)
            for key, value in zip(columns, (name, len(parts), offered, accepted, mean, low, high), strict=True):
                columns[key].append(value)
        return pa.table(columns)

    def difference(
        self, learner: str, baseline: str, repeats: int = 2000, level: float = 0.95
    ) -> tuple[float, float, float]:
        """Mean reward of ``learner`` less that of ``baseline``, with a bootstrap interval.

        Seeds are resampled, and within a seed the accepted rounds of each: the runs of one seed share a split and an
        order, so their difference is paired. A seed in which one of them has no round is left out; NaN if none is left.
        """
        for name in (learner, baseline):
            if name not in self.learners:
                raise InputError(f"no learner {name!r} in this replay; there are {', '.join(self.learners)}.")
        rng = np.random.default_rng(0)
        by_seed: dict[int, dict[str, Floats]] = {}
        for part in self._runs:
            by_seed.setdefault(part.seed, {})[part.learner] = part.rewards
        pairs = [(runs[learner], runs[baseline]) for runs in by_seed.values()]
        pairs = [(first, second) for first, second in pairs if len(first) and len(second)]
        if not pairs:
            return float("nan"), float("nan"), float("nan")
        gaps = [first.mean() - second.mean() for first, second in pairs]
        draws = np.stack(
            [_bootstrap(first, repeats, rng) - _bootstrap(second, repeats, rng) for first, second in pairs]
        )
        chosen = rng.integers(len(pairs), size=(len(pairs), repeats))
        means = np.take_along_axis(draws, chosen, axis=0).mean(axis=0)
        low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
        return float(np.mean(gaps)), float(low), float(high)


def bootstrap_interval(values: Floats, weights: Floats, repeats: int, level: float) -> tuple[float, float, float]:
    """Weighted mean and the percentile bootstrap interval of it."""
    if not len(values):
        return float("nan"), float("nan"), float("nan")
    rng = np.random.default_rng(0)
    products = values * weights
    means = np.empty(repeats)
    for i in range(repeats):
        counts = np.bincount(rng.integers(len(values), size=len(values)), minlength=len(values))
        means[i] = (counts @ products) / (counts @ weights)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(products.sum() / weights.sum()), float(low), float(high)


def _mean_of_runs(runs: list[Floats], repeats: int, level: float) -> tuple[float, float, float]:
    """The mean over runs of their means, and the percentile interval when rounds are resampled within each run."""
    if not runs:
        return float("nan"), float("nan"), float("nan")
    rng = np.random.default_rng(0)
    draws = np.mean([_bootstrap(run, repeats, rng) for run in runs], axis=0)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(np.mean([run.mean() for run in runs])), float(low), float(high)


def _bootstrap(values: Floats, repeats: int, rng: np.random.Generator) -> Floats:
    """Means of ``repeats`` resamples, ``(repeats,)``."""
    n = len(values)
    # many resamples in one call, drawn one after the other as single calls would draw them, in memory that is bounded
    blocks = np.diff([*range(0, repeats, max(_DRAWN // n, 1)), repeats])
    return np.concatenate([values[rng.integers(n, size=(block, n))].mean(axis=1) for block in blocks])
