"""A quantity and its inverse are both stored: they must stay inverse after 10⁵ updates by rank one."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.kernels.ridge import DETERMINANT, POSTERIOR, PRINTED, radius_of
from sidelight.learners.reduced import TOGETHER


@pytest.mark.parametrize("lam", [1e-3, 1e3])
@pytest.mark.parametrize("kind", ["OFUL", "any matrix", "[I, B]"])
def test_covariance_and_matrix_stay_inverse(rng, lam, kind):
    d, n = 6, 100_000
    if kind == "OFUL":
        learner = sl.OFUL(1, d, regularization=lam)
        N = np.eye(d)
    elif kind == "any matrix":
        M = rng.normal(size=(2, d))
        learner = sl.ProjectedOFUL(sl.SideInformation([M], [np.ones(2)]), regularization=lam)
        N = learner.reduction.basis(0)
    else:
        schema = sl.Schema.for_arrays(d, recorded=[1, 4], n_arms=1)
        log = sl.LogSummary.from_arrays(rng.normal(size=(30, 2)), [0] * 30, rng.normal(size=30), schema)
        side = sl.SideInformation.structured(log, rng.normal(size=(1, 2, 4)))
        learner = sl.ProjectedOFUL(side, regularization=lam)
        N = learner.reduction.basis(0)
    # anisotropic contexts: one direction is seen a hundred times less than the others
    X = rng.normal(size=(n, d)) * np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.1])
    rewards = rng.normal(size=n)
    few = TOGETHER - 1  # at a time: more would go in as a block
    for i in range(0, n, few):
        learner.observe_many(X[i : i + few], [0] * len(X[i : i + few]), rewards[i : i + few])
    Z = X[:, learner.reduction.order] @ N
    V = lam * N.T @ N + Z.T @ Z
    np.testing.assert_allclose(learner.covariances[0] @ V, np.eye(V.shape[0]), atol=1e-8)
    np.testing.assert_allclose(learner.grams[0], Z.T @ Z, rtol=1e-9, atol=1e-9 * n)
    expected = np.linalg.slogdet(V)[1] - np.linalg.slogdet(lam * N.T @ N)[1]
    assert learner.log_dets[0] == pytest.approx(expected, rel=1e-10)
    right = Z.T @ (rewards - X[:, learner.reduction.order] @ learner.reduction.anchors[0])
    prior = -lam * N.T @ learner.reduction.anchors[0]
    weights = learner.reduction.anchors[0] + N @ np.linalg.solve(V, right + prior)
    np.testing.assert_allclose(learner.weights[0], weights, rtol=1e-8, atol=1e-10)


def test_the_matrix_stays_inverse_between_refreshes(rng):
    """1023 updates after a refresh is as far as rank one ever goes alone."""
    from sidelight.kernels.ridge_updates import REFRESH_EVERY

    learner = sl.OFUL(1, 8, regularization=1e-3)
    n = 3 * REFRESH_EVERY - 1
    X = rng.normal(size=(n, 8))
    for x, reward in zip(X, rng.normal(size=n), strict=True):
        learner.observe(x, 0, reward)
    assert learner.updates[0] == REFRESH_EVERY - 1
    V = 1e-3 * np.eye(8) + X.T @ X
    np.testing.assert_allclose(learner.covariances[0] @ V, np.eye(8), atol=1e-8)


@pytest.mark.parametrize("count", [0, 3, 10_000])
@pytest.mark.parametrize("dimension", [0, 1, 7])
def test_the_kernels_radius_is_the_theorys(rng, count, dimension):
    for _ in range(20):
        noise, lam, delta = rng.uniform(0.1, 3.0), 10.0 ** rng.uniform(-2, 2), rng.uniform(0.001, 0.5)
        S_x, S_w, K = rng.uniform(0.3, 3.0), rng.uniform(0.0, 3.0), int(rng.integers(1, 40))
        log_det = rng.uniform(0.0, 50.0) if dimension else 0.0
        arguments = (count, log_det, dimension, noise, lam * S_w**2, S_x**2 / lam, np.log(K / delta))
        expected = sl.theory.determinant_radius(log_det, noise, delta / K, lam * S_w**2)
        assert radius_of(DETERMINANT, *arguments) == pytest.approx(expected, rel=1e-12)
        expected = sl.theory.printed_radius(count, dimension, noise, lam, S_x, S_w, delta, K)
        assert radius_of(PRINTED, *arguments) == pytest.approx(expected, rel=1e-12)
        assert radius_of(POSTERIOR, *arguments) == noise
