"""Small worlds and logs for the statistical tests of the fused learners, and how to play them."""

from __future__ import annotations

from typing import Any

import numpy as np

import sidelight as sl
from sidelight.learners.rounds import play_rounds


def small_world(seed: int, **changes: Any) -> Any:
    """A confounded world of 4 arms, 6 features, the last 2 hidden."""
    return sl.worlds.ConfoundedWorld(seed=seed, **{"n_arms": 4, "n_features": 6, "n_hidden": 2, **changes})


def log_of(world: Any, rows: int, recorded: Any, rng: np.random.Generator) -> sl.LogSummary:
    return sl.summarize_log(world.sample_log(rows, recorded=recorded, rng=rng), world.schema(recorded))


def play(world: Any, learner: Any, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Regret of every round."""
    X = np.ascontiguousarray(world.contexts(rounds, rng))
    table, means = world.potential_rewards(X, rng), world.mean_rewards(X)
    answers = np.asarray(world.behavior_actions(X, rng)).astype(np.int64)
    draws = np.random.default_rng(int(rng.integers(2**32)))
    played = play_rounds(learner, X, table, answers if learner.needs == "action" else None, draws)
    if played is None:
        played = np.empty(rounds, dtype=np.int64)
        for t in range(rounds):
            if learner.wants_query(X[t]):
                learner.observe_behavior(X[t], int(answers[t]))
            played[t] = learner.decide(X[t], rng=draws).arm
            learner.observe(X[t], int(played[t]), table[t, played[t]])
    return means.max(axis=1) - means[np.arange(rounds), played]


def log_errors(learner: Any, world: Any, counted: bool = False) -> list[float]:
    """``ξᵀΛξ/L`` of every log and arm, ``ξ = b − M̂w``; ``Λ`` as each log has it, or as it counts among several."""
    out = []
    for log in learner.logs:
        b, B = np.asarray(log.hidden.summary.coefficients), log.hidden.regression()
        for i, a in enumerate(log.arms):
            w = world.weights[a][log.order]
            xi = b[i] - (w[: log.L] + B[i] @ w[log.L :])
            evidence = log.counted if counted else log.evidence
            out.append(float(xi @ evidence.precision[i] @ xi) / log.L)
    return out


def posterior_errors(learner: Any, world: Any) -> list[float]:
    """``(w − ŵ)ᵀV(w − ŵ)/(σ²d)`` of every arm."""
    errors = [learner.weights[a] - world.weights[a] for a in range(world.n_arms)]
    return [
        float(e @ np.linalg.solve(learner.covariances[a], e)) / (learner.noise**2 * world.n_features)
        for a, e in enumerate(errors)
    ]


class Heard:
    """A hand-made world of two arms whose log may have noise of any kind; ``x_0 = 1``, features 3 and 4 are hidden.

    Online the noise is normal with deviation ``sigma``; the logged rewards' has that deviation and the given ``kind``:
    ``normal``, ``heavy`` (Student's t with 3 degrees of freedom) or ``uneven`` (growing with ``|x_1|``).
    """

    K, L, d = 2, 3, 5
    weights = np.array([[0.3, 0.5, -0.2, 0.8, -0.4], [-0.1, 0.2, 0.6, -0.5, 0.7]])

    def __init__(self, kind: str, sigma: float) -> None:
        self.kind, self.sigma = kind, sigma
        self.schema = sl.Schema.for_arrays(self.d, recorded=self.L, n_arms=self.K)

    def contexts(self, n: int, rng: np.random.Generator) -> np.ndarray:
        X = rng.normal(size=(n, self.d))
        X[:, 3] += 0.6 * X[:, 1]
        X[:, 0] = 1.0
        return X

    def actions(self, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        chance = 1.0 / (1.0 + np.exp(-(X[:, 3] - 0.5 * X[:, 4] + 0.3 * X[:, 1])))
        return (rng.random(len(X)) < chance).astype(int)

    def log(self, n: int, rng: np.random.Generator, sandwich: bool = False) -> sl.LogSummary:
        X = self.contexts(n, rng)
        arms = self.actions(X, rng)
        noise = rng.normal(size=n)
        if self.kind == "heavy":
            noise = rng.standard_t(3, size=n) / np.sqrt(3.0)
        elif self.kind == "uneven":
            noise *= np.abs(X[:, 1]) ** 1.5 / (8.0 / np.pi) ** 0.25  # E|x|³ = √(8/π)
        rewards = np.einsum("nd,nd->n", X, self.weights[arms]) + self.sigma * noise
        return sl.summarize_log((X[:, : self.L], arms, rewards), self.schema, sandwich=sandwich)

    def answered(self, summary: sl.LogSummary, n: int, rng: np.random.Generator) -> sl.BehaviorQueries:
        hidden = sl.BehaviorQueries(summary, pooling=0.0)
        X = self.contexts(n, rng)
        for x, a in zip(X, self.actions(X, rng), strict=True):
            hidden.observe(x, int(a))
        return hidden
