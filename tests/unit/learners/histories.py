"""Random logs, settings and histories for comparing learners with ``tests/reference.py``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tests import reference

import sidelight as sl

RADII = ("determinant", "printed", "posterior")
TOLERANCE = {"rtol": 1e-9, "atol": 1e-12}


@dataclass
class Problem:
    """A log as raw rows, beside its summary; ``recorded`` are positions that need not be the first.

    Attributes:
        x_o: (n, L)   arms: (n,)   rewards: (n,)   the rows of the log
        order: (d,)  recorded features first: the order in which the reference works
    """

    K: int
    d: int
    recorded: np.ndarray
    x_o: np.ndarray
    arms: np.ndarray
    rewards: np.ndarray
    summary: sl.LogSummary
    order: np.ndarray

    @property
    def L(self) -> int:
        return len(self.recorded)

    def rows(self, a: int) -> np.ndarray:
        return self.x_o[self.arms == a]

    @property
    def b(self) -> list[np.ndarray]:
        return [reference.least_squares(self.rows(a), self.rewards[self.arms == a]) for a in range(self.K)]

    @property
    def R11(self) -> np.ndarray:
        return np.array([self.rows(a).T @ self.rows(a) / len(self.rows(a)) for a in range(self.K)])

    @property
    def shares(self) -> np.ndarray:
        return np.array([np.mean(self.arms == a) for a in range(self.K)])

    @property
    def means(self) -> np.ndarray:
        return np.array([self.rows(a).mean(axis=0) for a in range(self.K)])


def draw_problem(rng: np.random.Generator, d: int | None = None, L: int | None = None, K: int | None = None) -> Problem:
    """d up to 12, L from 0 to d, K up to 5; which features are recorded is drawn too."""
    d = int(rng.integers(1, 13)) if d is None else d
    L = int(rng.integers(0, d + 1)) if L is None else L
    K = int(rng.integers(1, 6)) if K is None else K
    recorded = np.sort(rng.permutation(d)[:L])
    counts = L + 3 + rng.integers(0, 20, size=K)
    arms = rng.permutation(np.repeat(np.arange(K), counts))
    x_o = rng.normal(size=(len(arms), L)) + 0.5
    rewards = rng.normal(size=len(arms)) * 2.0 + arms
    schema = sl.Schema.for_arrays(d, recorded=recorded.tolist(), n_arms=K)
    summary = sl.LogSummary.from_arrays(x_o, arms, rewards, schema)
    hidden = np.setdiff1d(np.arange(d), recorded)
    order = np.concatenate([recorded, hidden]).astype(int)
    return Problem(K, d, recorded, x_o, arms, rewards, summary, order)


@dataclass
class Drawn:
    """Settings that are not the defaults, in the words of a learner and in the symbols of the reference."""

    learner: dict[str, Any]
    symbols: dict[str, Any]
    prior_mean: Any = field(default=0.0)


def draw_settings(rng: np.random.Generator, K: int, d: int, radius: str, projected: bool = False) -> Drawn:
    """λ from 0.01 to 100, and everything else away from its default."""
    lam = float(10.0 ** rng.uniform(-2, 2))
    shapes: list[tuple[int, ...]] = [(), (d,), (K, d)]
    prior_mean = rng.normal(size=shapes[int(rng.integers(3))])
    learner: dict[str, Any] = {
        "regularization": lam,
        "noise": float(rng.uniform(0.1, 2.5)),
        "alpha": float(rng.uniform(0.01, 2.0)),
        "delta": float(rng.uniform(0.001, 0.4)),
        "context_bound": float(rng.uniform(0.5, 3.0)),
        "weight_bound": float(rng.uniform(0.2, 3.0)),
        "prior_mean": prior_mean,
        "radius": radius,
    }
    symbols = {
        "lam": lam,
        "sigma": learner["noise"],
        "alpha": learner["alpha"],
        "delta": learner["delta"],
        "kind": radius,
        "S_x": learner["context_bound"],
        "S_w": learner["weight_bound"],
    }
    if projected:
        learner["projected_context_bound"] = symbols["S_x"] = float(rng.uniform(0.3, 2.0))
        learner["projected_weight_bound"] = symbols["S_w"] = float(rng.uniform(0.1, 2.0))
    return Drawn(learner, symbols, prior_mean)


def in_order(value: Any, order: np.ndarray) -> Any:
    """A prior mean in the context's order, as the reference wants it: recorded features first."""
    value = np.asarray(value)
    return value if value.ndim == 0 else value[..., order]


def draw_context(rng: np.random.Generator, d: int) -> np.ndarray:
    return rng.normal(size=d) * rng.uniform(0.2, 2.0)


def assert_same_scores(learner: Any, x: np.ndarray, expected: tuple[np.ndarray, np.ndarray]) -> None:
    estimates, widths = learner.scores(x)
    np.testing.assert_allclose(estimates, expected[0], **TOLERANCE, err_msg=f"estimates of {learner}")
    np.testing.assert_allclose(widths, expected[1], **TOLERANCE, err_msg=f"widths of {learner}")
