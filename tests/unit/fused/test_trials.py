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
