"""How far rounds test a log: ``FusedLog.tested`` against the information about a shift of what the log predicts."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.hidden.protocol import completed
from sidelight.learners.fused.log import FusedLog

K, L, D = 2, 2, 4


def a_log(rng) -> FusedLog:
    schema = sl.Schema.for_arrays(D, recorded=L, n_arms=K)
    arms = np.arange(80) % K
    summary = sl.LogSummary.from_arrays(rng.normal(size=(80, L)), arms, rng.normal(size=80), schema)
    return FusedLog(None, completed(sl.BehaviorQueries(summary)), {a: a for a in range(K)})


def test_rounds_test_a_log_as_far_as_open_weights_cannot_explain_a_lie(rng):
    """A lie ``δx_j`` in rewards of covariance ``σ²I + XPXᵀ`` has the information ``δ²x_jᵀ(…)⁻¹x_j``."""
    X, P, sigma2 = rng.normal(size=(9, D)), np.diag([0.02, 0.3, 1.0, 4.0]), 0.25
    covariance = np.linalg.inv(X.T @ X + sigma2 * np.linalg.inv(P))
    among = np.linalg.inv(sigma2 * np.eye(9) + X @ P @ X.T)
    parts = [sigma2 * X[:, j] @ among @ X[:, j] / (X[:, j] @ X[:, j]) for j in range(L)]
    grams = np.array([X.T @ X, np.zeros((D, D))])
    found = a_log(rng).tested(np.array([covariance, covariance]), grams)
    assert found[0] == pytest.approx(np.mean(parts), rel=1e-9)
    assert found[1] == 0.0, "an arm without rounds has tested nothing"


def test_known_weights_make_every_round_a_test_and_open_ones_none(rng):
    X = rng.normal(size=(3, D))
    grams = np.array([X.T @ X, X.T @ X])
    sure, open_ = np.linalg.inv(grams[0] + 1e9 * np.eye(D)), np.linalg.inv(grams[1] + 1e-9 * np.eye(D))
    tested = a_log(rng).tested(np.array([sure, open_]), grams)
    assert tested == pytest.approx([1.0, 0.0], abs=1e-5)


def test_rounds_overrule_a_log_as_far_as_its_lie_does_not_move_the_estimate(rng):
    """A log that says ``b + β`` instead of ``b`` moves ``M̂ŵ`` by ``σ²M̂V⁻¹M̂ᵀΛβ``: the mean over directions is left."""
    world = sl.worlds.ConfoundedWorld(seed=4, n_arms=2, n_features=5, n_hidden=2)
    summary = sl.summarize_log(world.sample_log(500, recorded=3, rng=rng), world.schema(3))
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary), regularization=0.7, noise=0.3)
    for x, answer in zip(world.contexts(60, rng), rng.integers(2, size=60).tolist(), strict=True):
        learner.observe_behavior(x, answer)
        learner.observe(x, 1, float(world.rewards(x[None], [1], rng)[0]))
    learner._relearn()  # the evidence is of the last refresh
    log, variances = learner.logs[0], np.square(learner.noises)
    found = log.overruled(learner.covariances, variances)
    for a in range(2):
        M = np.concatenate([np.eye(3), log.hidden.regression()[a]], axis=1)
        moved = variances[a] * M @ learner.covariances[a] @ M.T @ log.evidence.precision[a]
        assert found[a] == pytest.approx(1.0 - np.trace(moved) / 3.0, rel=1e-6)
    assert found[1] > found[0] + 0.01, "the arm that was played"
    assert (a_log(rng).overruled(learner.covariances, variances) == 0.0).all(), "a log that says nothing yet"
