"""One library's online loop at d = K = 30, one choice and one update a round: ``python loop.py <library>``.

Runs in that library's own environment, so it imports nothing of Sidelight.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

K = D = 30
ROUNDS, BLOCK = 400, 20


def mabwiser() -> Callable[[Any, Any], int]:
    """LinUCB by ``predict`` and ``partial_fit``."""
    from mabwiser.mab import MAB, LearningPolicy

    bandit = MAB(arms=list(range(K)), learning_policy=LearningPolicy.LinUCB(alpha=1.0, l2_lambda=1.0))
    first = np.random.default_rng(1).normal(size=(K, D))
    bandit.fit(decisions=list(range(K)), rewards=[0.0] * K, contexts=first)

    def one(x: Any, rewards: Any) -> int:
        row = x[None, :]
        arm = bandit.predict(row)
        bandit.partial_fit(decisions=[arm], rewards=[rewards[arm]], contexts=row)
        return int(arm)

    return one


def river() -> Callable[[Any, Any], int]:
    """``LinUCBDisjoint`` by ``pull`` and ``update``, contexts as the dictionaries it takes (made beforehand)."""
    from river import bandit

    policy = bandit.LinUCBDisjoint(alpha=1.0, seed=0)
    arms = list(range(K))

    def one(x: Any, rewards: Any) -> int:
        context = dict(enumerate(x))
        arm = policy.pull(arms, context=context)
        policy.update(arm, context, rewards[arm])
        return int(arm)

    return one


def obp() -> Callable[[Any, Any], int]:
    """``LinUCB`` by ``select_action`` and ``update_params``, batches of one."""
    from obp.policy import LinUCB

    policy = LinUCB(dim=D, n_actions=K, batch_size=1, epsilon=1.0)

    def one(x: Any, rewards: Any) -> int:
        row = x[None, :]
        arm = int(policy.select_action(row)[0])
        policy.update_params(action=arm, reward=rewards[arm], context=row)
        return arm

    return one


def contextualbandits() -> Callable[[Any, Any], int]:
    """``LinUCB`` by ``predict`` and ``partial_fit``."""
    from contextualbandits.online import LinUCB

    policy = LinUCB(nchoices=K, alpha=1.0, lambda_=1.0, beta_prior=None, random_state=0, njobs=1)

    def one(x: Any, rewards: Any) -> int:
        row = x[None, :]
        arm = int(policy.predict(row)[0])
        policy.partial_fit(row, np.array([arm]), np.array([rewards[arm]]))
        return arm

    return one


def main(name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROUNDS, D)) / np.sqrt(D)
    table = X @ rng.normal(size=(D, K)) + 0.05 * rng.normal(size=(ROUNDS, K))
    one = {f.__name__: f for f in (mabwiser, river, obp, contextualbandits)}[name]()
    times = []
    for i in range(0, ROUNDS, BLOCK):
        started = time.perf_counter()
        for t in range(i, i + BLOCK):
            one(X[t], table[t])
        times.append((time.perf_counter() - started) / BLOCK * 1e6)
    print(version(name), round(statistics.median(times[2:]), 1))


if __name__ == "__main__":
    main(sys.argv[1])
