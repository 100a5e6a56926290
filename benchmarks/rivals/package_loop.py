"""One run of a published package, in its own environment: ``python package_loop.py <task.npz> <result.npz>``.

Imports nothing of Sidelight. The task holds the log's rows with NaN for what the log lacks, the contexts and potential
rewards of all rounds, and as JSON the library, how it starts, its settings, and delay and batches of the rewards. The
result holds the positions of the arms that it took.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np

Array = Any
FIRST_IMPUTATION = 16
"""Rounds before which the log's gaps are zeros: an imputer needs complete rows. Then again whenever they double."""


class MABWiser:
    """LinUCB of MABWiser. Its ridge parameter stays at 1: at others, the inverse of an arm without rows is not one."""

    def __init__(self, n_arms: int, alpha: float) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        policy = LearningPolicy.LinUCB(alpha=alpha, l2_lambda=1.0)
        self.bandit = MAB(arms=list(range(n_arms)), learning_policy=policy)

    def fit(self, X: Array, arms: Array, rewards: Array) -> None:
        """Start from these rows."""
        self.bandit.fit(decisions=arms, rewards=rewards, contexts=X)

    def learn(self, x: Array, arm: int, reward: float) -> None:
        """One more row."""
        self.bandit.partial_fit(decisions=[arm], rewards=[reward], contexts=x[None, :])

    def choose(self, x: Array) -> int:
        """The position of the arm to take."""
        return int(self.bandit.predict(x[None, :]))


class ContextualBandits:
    """LinUCB of contextualbandits, in double precision and without an intercept of its own (contexts have one)."""

    def __init__(self, n_arms: int, alpha: float) -> None:
        from contextualbandits.online import LinUCB

        self.policy = LinUCB(
            nchoices=n_arms, alpha=alpha, lambda_=1.0, fit_intercept=False, use_float=False, random_state=1, njobs=1
        )

    def fit(self, X: Array, arms: Array, rewards: Array) -> None:
        """Start from these rows."""
        self.policy.fit(X, arms, rewards)

    def learn(self, x: Array, arm: int, reward: float) -> None:
        """One more row."""
        self.policy.partial_fit(x[None, :], np.array([arm]), np.array([reward]))

    def choose(self, x: Array) -> int:
        """The position of the arm to take."""
        return int(self.policy.predict(x[None, :])[0])


LIBRARIES = {"mabwiser": MABWiser, "contextualbandits": ContextualBandits}


def imputed(rows: Array, contexts: Array) -> Array:
    """The log's rows completed by scikit-learn's IterativeImputer, fitted to them and to the complete contexts."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    imputer = IterativeImputer(random_state=0, keep_empty_features=True)
    return imputer.fit(np.vstack([rows, contexts])).transform(rows)


def run(task: dict[str, Any], arrays: dict[str, Array]) -> Array:
    """The arms taken.  (rounds,)"""
    X, rewards, rows = arrays["X"], arrays["rewards"], arrays["log_X"]
    n, filled = len(X), np.nan_to_num(rows)
    make = LIBRARIES[task["library"]]

    def start(log: Array, seen: list[int]) -> Any:
        bandit = make(rewards.shape[1], **task["settings"])
        bandit.fit(
            np.vstack([log, X[seen]]),
            np.concatenate([arrays["log_arms"], played[seen]]),
            np.concatenate([arrays["log_rewards"], rewards[seen, played[seen]]]),
        )
        return bandit

    played, seen = np.zeros(n, dtype=np.int64), []  # seen: the rounds whose rewards have arrived
    bandit, next_imputation = start(filled, []), FIRST_IMPUTATION
    for i in range(n):
        played[i] = bandit.choose(X[i])
        due = i + 1 - task["delay"]
        if due > 0 and (i + 1) % task["batch"] == 0:
            for j in range(len(seen), due):
                seen.append(j)
                bandit.learn(X[j], int(played[j]), float(rewards[j, played[j]]))
        if task["start"] == "imputed" and len(seen) >= next_imputation:
            next_imputation = 2 * len(seen)
            bandit = start(imputed(rows, X[: i + 1]), seen)
    return played


def main() -> None:
    """The command line."""
    warnings.simplefilter("ignore")  # about convergence of the imputer, and about scikit-learn's names of columns
    with np.load(sys.argv[1]) as stored:
        arrays = {name: stored[name] for name in stored.files}
    played = run(json.loads(str(arrays.pop("task"))), arrays)
    np.savez(sys.argv[2], played=played)


if __name__ == "__main__":
    main()
