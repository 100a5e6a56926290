"""Every learner that the contract suite runs on.  To have a new one tested, add one line to ``LEARNERS``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import sidelight as sl

FEATURES = ("weight", "age", "severity", "dose", "smoker")
#: neither the first features nor neighbours
RECORDED = ("age", "dose")
ARMS = ("low", "middle", "high")


@dataclass
class Log:
    """A small log of a policy that saw everything, and what else a learner may be made from.

    Attributes:
        summary: the log.   table: a companion, fully recorded.   R12: (K, L, m).
    """

    summary: sl.LogSummary
    companion: Any
    R12: np.ndarray
    arms: tuple[Any, ...]

    @property
    def schema(self) -> sl.Schema:
        return self.summary.schema


def make_log(seed: int = 0, arms: Sequence[Any] = ARMS, same_for_all: bool = False, missing: str = "refuse") -> Log:
    """120 rows for every arm; ``same_for_all`` gives every arm the same rows, so that all indices are tied.

    missing: what a gap in an online context is, see ``Schema``.
    """
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    schema = sl.Schema(list(FEATURES), RECORDED, arms=list(arms), missing=missing)
    K, d, n = len(arms), len(FEATURES), 120
    columns = [FEATURES.index(name) for name in RECORDED]
    X = rng.normal(size=(K, n, d)) * 0.6 + 0.2
    if same_for_all:
        X[:] = X[0]
        rewards = np.broadcast_to(X[0] @ rng.normal(size=d), (K, n))
    else:
        X += 0.3 * rng.normal(size=(K, 1, d))  # the old policy chose by the context
        rewards = np.einsum("knd,kd->kn", X, rng.normal(size=(K, d))) + 0.2 * rng.normal(size=(K, n))
    labels = [arm for arm in arms for _ in range(n)]
    flat = X.reshape(-1, d)
    summary = sl.LogSummary.from_arrays(flat[:, columns], labels, rewards.ravel(), schema)
    companion = pa.table({name: flat[:, j] for j, name in enumerate(FEATURES)})
    companion = companion.append_column("arm", pa.array(labels)).append_column("reward", pa.array(rewards.ravel()))
    hidden = [j for j in range(d) if j not in columns]
    R12 = np.einsum("kni,knj->kij", X[:, :, columns], X[:, :, hidden]) / n
    return Log(summary, companion, R12, tuple(arms))


@dataclass(frozen=True)
class Entry:
    """One learner under contract.

    Attributes:
        name: shown in the test's id.
        make: ``make(log, **settings)`` → learner.
        draws: its decisions are drawn (Thompson), from the generator given to ``decide``.
        forgets: it throws data away, so the order of observations matters.
        adds_arms: it can be offered further arms.
        joins_arms: the arms of its logs join those that are named.
    """

    name: str
    make: Callable[..., Any]
    draws: bool = False
    forgets: bool = False
    adds_arms: bool = False
    joins_arms: bool = False

    def __str__(self) -> str:
        return self.name


def _any_matrix(log: Log, **settings: Any) -> sl.ProjectedOFUL:
    rng = np.random.default_rng(5)
    d = len(FEATURES)
    rows = [rng.normal(size=(k, d)) for k in (2, 0, 3, 1, 2, 4, 3)[: len(log.arms)]]
    if log.summary.counts[0] and np.array_equal(log.summary.factors[0], log.summary.factors[-1]):
        rows = [rows[0]] * len(log.arms)
    side = sl.SideInformation(rows, [M @ np.ones(d) for M in rows], arms=log.arms)
    return sl.ProjectedOFUL(side, schema=log.schema, **settings)


def _automatic(log: Log, **settings: Any) -> sl.FusedOFUL:
    # bad numbers stay, so that they are complained of
    learned = {name: "auto" for name in ("regularization", "noise") if settings.get(name, 1.0) > 0}
    return sl.FusedOFUL(sl.BehaviorProbabilities(log.summary), **{**settings, **learned})


HORIZON = 2000

LEARNERS: list[Entry] = [
    Entry(
        "OFUL",
        lambda log, **s: sl.OFUL(len(log.arms), len(FEATURES), schema=log.schema, **{"arms": log.arms, **s}),
        adds_arms=True,
    ),
    Entry("ZeroFilledOFUL", lambda log, **s: sl.ZeroFilledOFUL(log.summary, **s), adds_arms=True),
    Entry("ProjectedOFUL", lambda log, **s: sl.ProjectedOFUL(sl.SideInformation.from_log(log.summary, log.R12), **s)),
    Entry("ProjectedOFUL, any matrix", _any_matrix),
    Entry(
        "EpochOFUL",
        lambda log, **s: sl.EpochOFUL(sl.BehaviorQueries(log.summary, estimator="ipw"), HORIZON, **s),
        forgets=True,
    ),
    Entry(
        "EpochOFUL, data kept",
        lambda log, **s: sl.EpochOFUL(sl.BehaviorQueries(log.summary), HORIZON, keep_data=True, **s),
    ),
    Entry(
        "EpochOFUL, R12 known",
        lambda log, **s: sl.EpochOFUL(sl.KnownCrossMoments(log.summary, log.R12), HORIZON, **s),
        forgets=True,
    ),
    Entry("RunningOFUL", lambda log, **s: sl.RunningOFUL(sl.BehaviorQueries(log.summary, estimator="ipw"), **s)),
    Entry("RunningOFUL, regression", lambda log, **s: sl.RunningOFUL(sl.BehaviorQueries(log.summary), **s)),
    Entry("RunningOFUL, probabilities", lambda log, **s: sl.RunningOFUL(sl.BehaviorProbabilities(log.summary), **s)),
    Entry(
        "RunningOFUL, companion log",
        lambda log, **s: sl.RunningOFUL(sl.CompanionLog(log.summary, log.companion), **s),
    ),
    # its refreshes come after so many events, so what it knows between two of them depends on the order
    Entry(
        "FusedOFUL",
        lambda log, **s: sl.FusedOFUL(sl.BehaviorQueries(log.summary), safety=0.0, **s),
        forgets=True,
        adds_arms=True,
        joins_arms=True,
    ),
    # now and then it tries an arm by the toss of a coin
    Entry(
        "FusedOFUL, automatic",
        _automatic,
        draws=True,
        forgets=True,
        adds_arms=True,
        joins_arms=True,
    ),
    Entry(
        "FusedThompson",
        lambda log, **s: sl.FusedThompson(sl.BehaviorQueries(log.summary), **s),
        draws=True,
        forgets=True,
        adds_arms=True,
        joins_arms=True,
    ),
]
