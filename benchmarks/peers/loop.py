"""One library's online loop at d = K = 30, one choice and one update a round: ``python loop.py <library>``.

Runs in that library's own environment, so it imports nothing of Sidelight. NumPy's LinUCB takes turns with the library
in the same process, block by block, so that what else the machine does meets both alike. Times are processor time,
which on a free machine is the wall time of one thread. Prints one line of JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import types
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.numpy_linucb import NumpyLinUCB

K = D = 30
ROUNDS, WARM = 6_000, 200
BLOCK = 1e-3
"""Seconds of a block, about, for both."""
SECONDS = 12.0
"""Blocks are begun until then, or until the rounds are over."""

Round = Callable[[Any, Any], int]
"""``one(x, rewards)``: choose for the context ``x`` (d,), learn the chosen arm's of the rewards (K,), return it."""


def numpy() -> Round:
    """The denominator of every ratio."""
    learner = NumpyLinUCB(K, D)

    def one(x: Any, rewards: Any) -> int:
        arm = learner.decide(x)
        learner.observe(x, arm, rewards[arm])
        return arm

    return one


def mabwiser() -> Round:
    """``predict`` and ``partial_fit``; it wants to be fitted once before."""
    from mabwiser.mab import MAB, LearningPolicy

    bandit = MAB(arms=list(range(K)), learning_policy=LearningPolicy.LinUCB(alpha=1.0, l2_lambda=1.0))
    bandit.fit(decisions=list(range(K)), rewards=[0.0] * K, contexts=np.zeros((K, D)))

    def one(x: Any, rewards: Any) -> int:
        row = x[None, :]
        arm = int(bandit.predict(row))
        bandit.partial_fit(decisions=[arm], rewards=[rewards[arm]], contexts=row)
        return arm

    return one


def river() -> Round:
    """``pull`` and ``update`` with the dictionary it takes as a context."""
    from river import bandit

    policy = bandit.LinUCBDisjoint(alpha=1.0, seed=0)
    arms = list(range(K))

    def one(x: Any, rewards: Any) -> int:
        context = dict(enumerate(x.tolist()))
        arm = int(policy.pull(arms, context=context))
        policy.update(arm, context, float(rewards[arm]))
        return arm

    return one


def obp() -> Round:
    """``select_action`` and ``update_params``, a batch of one."""
    _stand_in_for("torch", "torch.nn", "torch.nn.functional", "torch.optim")
    from obp.policy import LinUCB

    policy = LinUCB(dim=D, n_actions=K, batch_size=1, epsilon=1.0)

    def one(x: Any, rewards: Any) -> int:
        row = x[None, :]
        arm = int(policy.select_action(row)[0])
        policy.update_params(action=arm, reward=rewards[arm], context=row)
        return arm

    return one


def contextualbandits() -> Round:
    """``predict`` and ``partial_fit``; its defaults, Sherman–Morrison in single precision, without an intercept."""
    from contextualbandits.online import LinUCB

    policy = LinUCB(nchoices=K, alpha=1.0, lambda_=1.0, fit_intercept=False, random_state=1, njobs=1)

    def one(x: Any, rewards: Any) -> int:
        row = x[None, :]
        arm = int(policy.predict(row)[0])
        policy.partial_fit(row, np.array([arm]), rewards[arm : arm + 1])
        return arm

    return one


def pymab() -> Round:
    """``select_action`` and ``update``; a context for each arm, here the same one (a view)."""
    from pymab.policies import LinUCBPolicy

    policy, rng = LinUCBPolicy(n_arms=K, n_features=D, alpha=1.0, l2=1.0), np.random.default_rng(0)

    def one(x: Any, rewards: Any) -> int:
        context = np.broadcast_to(x, (K, D))
        arm = int(policy.select_action(context=context, rng=rng))
        policy.update(action=arm, reward=rewards[arm], context=context)
        return arm

    return one


def paretobandit() -> Round:
    """The policy itself, without the router around it: ``select_arm`` and ``update``."""
    from pareto_bandit.policy import DisjointLinUCBPolicy

    names = [str(arm) for arm in range(K)]
    policy = DisjointLinUCBPolicy(names, dim=D, alpha=1.0, init_lambda=1.0, seed=0)

    def one(x: Any, rewards: Any) -> int:
        name, _ = policy.select_arm(x)
        arm = int(name)
        policy.update(name, x, rewards[arm])
        return arm

    return one


def bayesianbandits() -> Round:
    """``pull`` and ``update`` of a contextual agent with a normal regression for each arm.

    By Thompson sampling: its upper confidence bounds are quantiles of a thousand samples and take far longer.
    """
    from bayesianbandits import Arm, ContextualAgent, NormalRegressor, ThompsonSampling

    arms = [Arm(arm, learner=NormalRegressor(alpha=1.0, beta=1.0)) for arm in range(K)]
    agent = ContextualAgent(arms, ThompsonSampling(), random_seed=0)

    def one(x: Any, rewards: Any) -> int:
        row = x[None, :]
        (arm,) = agent.pull(row)
        agent.update(row, rewards[arm : arm + 1])
        return int(arm)

    return one


def vowpalwabbit() -> Round:
    """An example to predict and one to learn from, both made from pairs, the quickest of its ways.

    One example for both would be quicker still, but a label set after the prediction is not learned from.
    """
    import vowpalwabbit as vw

    workspace = vw.Workspace(f"--cb_explore {K} --epsilon 0.1 --quiet")
    names, rng = [str(i) for i in range(D)], np.random.default_rng(0)

    def one(x: Any, rewards: Any) -> int:
        pairs = list(zip(names, x.tolist(), strict=True))
        example = workspace.example({"x": pairs}, vw.LabelType.CONTEXTUAL_BANDIT)
        chances = workspace.predict(example)
        workspace.finish_example(example)
        arm = min(int(np.searchsorted(np.cumsum(chances), rng.random())), K - 1)
        example = workspace.example({"x": pairs}, vw.LabelType.CONTEXTUAL_BANDIT)
        example.set_label_string(f"{arm + 1}:{-rewards[arm]}:{chances[arm]}")
        workspace.learn(example)
        workspace.finish_example(example)
        return arm

    return one


def _stand_in_for(*names: str) -> None:
    """Empty modules for a package that a library imports for other parts than the one timed here."""

    class Anything(type):
        def __getattr__(cls, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return Anything(name, (), {"__init__": lambda *_, **__: None, "__call__": lambda _, function: function})

    class Module(types.ModuleType):
        __path__ = ()  # a package, whose modules are found in sys.modules

        def __getattr__(self, name: str) -> Any:
            return getattr(Anything("Anything", (), {}), name)

    sys.modules.update({name: Module(name) for name in names})


class Turns:
    """One learner's rounds, block by block: its times, and what it earned above a random arm."""

    def __init__(self, one: Round, X: Any, table: Any) -> None:
        self._one, self._X, self._table = one, X, table
        self._chance = table.mean(axis=1)
        self.round, self.block = 0, WARM
        self.times: list[float] = []
        self.gains: list[float] = []

    def play(self) -> None:
        """The next block; after the first, which warms up, blocks last as long as ``BLOCK`` says."""
        one, X, table, arms = self._one, self._X, self._table, []
        rounds = [t % ROUNDS for t in range(self.round, self.round + self.block)]
        started = time.process_time()
        for t in rounds:
            arms.append(one(X[t], table[t]))
        seconds = (time.process_time() - started) / len(rounds)
        self.gains += [float(table[t, arm] - self._chance[t]) for t, arm in zip(rounds, arms, strict=True)]
        self.round += len(rounds)
        if self.round > WARM:
            self.times.append(seconds * 1e6)
        else:
            self.block = max(1, round(BLOCK / seconds))

    @property
    def learns(self) -> bool:
        """Whether it earned more than a random arm in its second half: a loop that does not learn is no measurement."""
        half = self.gains[len(self.gains) // 2 :]
        return statistics.fmean(half) > 4.0 * statistics.stdev(half) / len(half) ** 0.5


def main(name: str) -> None:
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROUNDS, D)) / np.sqrt(D)
    table = X @ rng.normal(size=(D, K)) + 0.05 * rng.normal(size=(ROUNDS, K))
    peer, denominator = Turns(globals()[name](), X, table), Turns(numpy(), X, table)
    started = time.perf_counter()
    while peer.round < ROUNDS and time.perf_counter() - started < SECONDS:
        peer.play()
        denominator.play()
    found = {
        "version": version(name),
        "microseconds": round(statistics.median(peer.times), 1),
        "numpy_microseconds": round(statistics.median(denominator.times), 2),
        "rounds": peer.round,
        "learns": peer.learns,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
