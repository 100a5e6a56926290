"""How much of what a log leaves unexplained hidden features are taken for, where the schema has derived features."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.learners.fused.unexplained import LARGER, UNTOLD, rate_floor, usual_tau2


def test_hidden_weights_of_the_recorded_ones_size():
    rng = np.random.default_rng(0)
    moments = np.array([np.diag([4.0, 9.0]), np.diag([1.0, 1.0])])
    scales, omega = np.array([2.0, 3.0]), 0.7
    weights = rng.normal(size=(200_000, 2)) * np.sqrt(LARGER * omega) / scales
    drawn = [np.einsum("ni,ij,nj->n", weights, m, weights).mean() for m in moments]
    np.testing.assert_allclose(usual_tau2(moments, scales, omega), drawn, rtol=0.02)


@pytest.mark.parametrize(("noise", "share"), [(20.0, UNTOLD / 2.0), (0.1, UNTOLD)])
def test_a_noisy_log_with_derived_features_stays_precise(noise, share, seed):
    """Where noise is 20 times the effects, hidden features are not taken for half of it; where it is small they are."""
    rng = np.random.default_rng(seed)
    n, K = 20_000, 2
    X, arms = rng.normal(size=(n, 3)), rng.integers(K, size=n)
    W = np.array([[1.0, 0.5, -1.0], [-1.0, 1.0, 0.5]])
    rewards = (X * W[arms]).sum(axis=1) + noise * rng.normal(size=n)
    schema = sl.Schema("a + b + a:b + c", ["a", "b"], arms=range(K), intercept=True)
    log = {"a": X[:, 0], "b": X[:, 1], "arm": arms, "reward": rewards}
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(log, schema)))
    for t in range(300):
        x = {"a": X[t, 0], "b": X[t, 1], "c": X[t, 2]}
        learner.observe_behavior(x, int(arms[t]))
        learner.observe(x, int(arms[t]), float(rewards[t]))
    [entry] = learner.logs
    taken = entry.tau2 / entry.s2
    assert (taken < share).all() if noise > 1.0 else (taken >= share).all()


def test_an_arm_without_a_success_is_not_known_to_have_none(rng):
    """Of 40 rows without a success half a one in 41 is as likely; no more than all arms leave, or half a one in all."""
    counts = np.array([40.0, 3.0, 2_000.0])
    own, whole = 0.5 / 41.0, 0.5 / 2_044.0
    np.testing.assert_allclose(rate_floor(counts, 0.02), [own * (1 - own), 0.02, (1 - 0.5 / 2_001) * 0.5 / 2_001])
    np.testing.assert_allclose(rate_floor(counts, 0.0), np.full(3, whole * (1.0 - whole)))
    X, arms = rng.normal(size=(2_000, 2)), rng.choice(3, size=2_000, p=[0.03, 0.37, 0.6])
    rewards = ((arms > 0) & (rng.random(2_000) < 0.05)).astype(float)
    log = sl.LogSummary.from_arrays(X, arms, rewards, sl.Schema.for_arrays(3, recorded=2, n_arms=3))
    rows = float(log.counts[0])
    assert rows >= 32.0
    learner = sl.FusedOFUL(sl.BehaviorQueries(log))
    assert log.residual_variances[0] == 0.0
    assert learner.logs[0].s2[0] == pytest.approx(0.5 / (rows + 1.0) * (1.0 - 0.5 / (rows + 1.0)))
    # arms that have successes say themselves how their rewards vary
    np.testing.assert_array_equal(learner.logs[0].s2[1:], log.residual_variances[1:])
