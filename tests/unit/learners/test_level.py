"""A recorded column that is always 1 does what an intercept does."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl

N, K = 900, 3


def data(seed, ones=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal([3.0, -1.0, 0.5], [1.0, 2.0, 1.0], (N, 3))
    arms = rng.integers(K, size=N)
    W = rng.normal(size=(K, 3))
    rewards = 5.0 + arms + (X * W[arms]).sum(axis=1) + rng.normal(size=N)
    log = {"one": np.full(N, ones), "a": X[:, 0], "b": X[:, 1], "arm": arms, "reward": rewards}
    return log, np.column_stack([np.ones(200), X[:200]]), rewards[:200], arms[:200]


def schemas():
    column = sl.Schema(["one", "a", "b", "c"], ["one", "a", "b"], arms=range(K))
    return column, sl.Schema(["a", "b", "c"], ["a", "b"], arms=range(K), intercept=True)


def learner_of(kind, summary):
    if kind == "fused":
        return sl.FusedOFUL(sl.BehaviorQueries(summary))
    if kind == "two logs":
        return sl.FusedOFUL({"old": sl.BehaviorQueries(summary), "new": sl.BehaviorQueries(summary)})
    if kind == "running":
        hidden = sl.BehaviorQueries(summary, estimator="ipw")
        return sl.RunningOFUL(hidden, regularization="auto", noise="auto", radius="posterior")
    return sl.ZeroFilledOFUL(summary, regularization="auto", noise="auto", radius="posterior")


@pytest.mark.parametrize("kind", ["fused", "two logs", "running", "zeros"])
def test_the_same_scores_as_with_an_intercept(kind, seed):
    log, contexts, rewards, arms = data(seed)
    found = []
    for schema in schemas():
        learner = learner_of(kind, sl.summarize_log(log, schema))
        for x, arm, reward in zip(contexts, arms, rewards, strict=True):
            if learner.needs is not None:
                learner.observe_behavior(x, int(arm))
            learner.observe(x, int(arm), float(reward))
        found.append(np.array([learner.scores(x) for x in contexts[:20]]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-9)


def test_which_column_is_a_level():
    log, *_ = data(0)
    column, intercept = schemas()
    assert sl.summarize_log(log, column).level == 0
    assert sl.summarize_log(log, intercept).level == 0
    last = sl.Schema(["a", "c", "one"], ["a", "one"], arms=range(K))
    assert sl.summarize_log(log, last).level == 2
    for other in (2.0, -1.0, 0.0, 1.0 + 1e-4):
        assert sl.summarize_log(data(0, ones=other)[0], column).level is None
    assert sl.summarize_log(log | {"one": np.tile([0.0, 2.0], N // 2)}, column).level is None  # of mean 1


def test_a_column_that_is_not_always_one_in_another_log():
    log, *_ = data(1)
    column, _ = schemas()
    moved = sl.summarize_log(log | {"one": np.tile([0.0, 1.0], N // 2)}, column)
    logs = {"old": sl.BehaviorQueries(moved), "new": sl.BehaviorQueries(sl.summarize_log(log, column))}
    assert sl.FusedOFUL(logs).automatic.constant is None


def test_a_wild_value_in_it_is_seen():
    log, contexts, *_ = data(2)
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(log, schemas()[0])))
    for t, x in enumerate(contexts[:60]):
        learner.observe(x, t % K, 1.0)
    before = learner.scores(contexts[0])[0]
    with pytest.warns(sl.errors.WildValueWarning):
        learner.observe(np.r_[1e6, contexts[0, 1:]], 0, 5.0)
    assert np.abs(learner.scores(contexts[0])[0] - before).max() < 1.0


def test_a_log_without_rows():
    """An intercept of the schema is one whatever the log says; a column that nobody saw is none."""
    for schema, constant in zip(schemas(), (None, 0), strict=True):
        summary = sl.LogSummary.from_arrays(np.zeros((0, 3)), np.zeros(0, dtype=int), np.zeros(0), schema)
        assert sl.FusedOFUL(sl.BehaviorQueries(summary)).automatic.constant == constant
