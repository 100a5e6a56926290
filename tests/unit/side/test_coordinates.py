"""Units: centres and scales are a change of coordinates, exact in powers of two; evidence and priors move alike."""

from __future__ import annotations

import numpy as np
import pytest

from sidelight.learners.log_facts import CERTAIN, constraint_evidence
from sidelight.side.coordinates import UNKNOWN, Tally, Units
from sidelight.side.prior import reference_variance
from sidelight.side.prior_search import estimate_prior

BLOCKS = [np.array([1, 2]), np.array([3, 4]), np.array([0])]


def tally_of(X, r):
    tally = Tally.empty(X.shape[1])
    tally.add(slice(None), len(X), X.sum(axis=0), (X * X).sum(axis=0))
    tally.add_rewards(len(r), r.sum(), (r * r).sum())
    return tally


def rows(rng, n=60, d=5, intercept=True):
    X = rng.normal(size=(n, d)) * [1.0, 3.0, 0.2, 50.0, 1.0] + [0.0, 60.0, -1.0, 7.0, 0.5]
    if intercept:
        X[:, 0] = 1.0
    return X, 40.0 + X @ rng.normal(size=d) + rng.normal(size=n)


@pytest.mark.parametrize("constant", [0, None])
def test_evidence_weights_and_precision_are_those_of_standardised_features(rng, constant):
    X, r = rows(rng, intercept=constant is not None)
    u = Units.of(tally_of(X, r), constant)
    Z = (X - u.centres) / u.scales
    J, h = u.evidence((X.T @ X)[None], (X.T @ r)[None])
    np.testing.assert_allclose(J[0], Z.T @ Z, rtol=1e-8, atol=1e-7)
    np.testing.assert_allclose(h[0], Z.T @ (r - u.reward_centre), rtol=1e-8, atol=1e-7)
    v = rng.normal(size=5)
    np.testing.assert_allclose(X @ u.weights(v), Z @ v + u.reward_centre, rtol=1e-10)
    C = np.cov(rng.normal(size=(5, 30)))
    # Cov(x·w) does not depend on coordinates, and precision and covariance are inverses
    np.testing.assert_allclose(X @ u.covariance(C) @ X.T, Z @ C @ Z.T, rtol=1e-6, atol=1e-9)
    P = u.precision(np.linalg.inv(C))
    np.testing.assert_allclose(P @ u.covariance(C), np.eye(5), atol=1e-6)


@pytest.mark.parametrize("constant", [0, None])
def test_rows_and_weights_in_these_units(rng, constant):
    X, r = rows(rng, intercept=constant is not None)
    u = Units.of(tally_of(X, r), constant)
    w, M = rng.normal(size=5), rng.normal(size=(3, 5))
    np.testing.assert_allclose(u.weights(u.scaled_weights(w)), w, rtol=1e-8)
    A = np.array([u.weights(v) - u.weights(np.zeros(5)) for v in np.eye(5)]).T
    np.testing.assert_allclose(u.rows_of(M), M @ A, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(u.inverse_rows(A), np.eye(5), atol=1e-8)


# the second size is what weights of 1/P(a) may make of a few answers
@pytest.mark.parametrize("size", [1.0, 1e6])
@pytest.mark.parametrize("constant", [0, None, 4])
def test_an_exact_constraint_of_a_log_is_as_certain_in_every_direction(rng, constant, size):
    X, r = rows(rng, intercept=constant == 0)
    if constant == 4:  # hidden in this log
        X[:, 4] = 1.0
    u, L = Units.of(tally_of(X, r), constant), 3
    M = np.concatenate([np.eye(L), size * rng.normal(size=(L, 2))], axis=1)
    anchor = np.append(rng.normal(size=L), [0.0, 0.0])
    J, h = constraint_evidence(M, anchor, u, of_log=True)
    # about v, with Mw = u.rows_of(M)v
    Q = np.linalg.qr(u.rows_of(M).T)[0]
    certain = CERTAIN / reference_variance(u, 5)
    np.testing.assert_allclose(J, certain * Q @ Q.T, rtol=0.0, atol=1e-7 * certain)
    np.testing.assert_allclose(h, J @ u.scaled_weights(anchor), rtol=1e-9, atol=1e-9 * np.abs(h).max())


def test_with_an_intercept_centres_are_means_and_without_one_zero(rng):
    X, r = rows(rng)
    u = Units.of(tally_of(X, r), 0)
    np.testing.assert_allclose(u.centres[1:], X[:, 1:].mean(axis=0))
    np.testing.assert_allclose(u.scales[1:], X[:, 1:].std(axis=0, ddof=1))
    assert (u.centres[0], u.scales[0]) == (0.0, 1.0)
    assert u.reward_variance == pytest.approx(r.var())
    plain = Units.of(tally_of(X, r), None)
    np.testing.assert_array_equal(plain.centres, 0.0)
    np.testing.assert_allclose(plain.scales, np.sqrt((X * X).mean(axis=0)))
    assert plain.reward_centre == 0.0


def test_a_feature_that_never_varied_has_no_unit(rng):
    X, r = rows(rng)
    X[:, 2], X[:, 3] = 0.1, 0.0
    u = Units.of(tally_of(X, r), 0)
    assert u.known.tolist() == [True, True, False, False, True]
    J, h = u.evidence((X.T @ X)[None], (X.T @ r)[None])
    assert not J[0, 2:4].any()
    assert not h[0, 2:4].any()
    assert Units.of(tally_of(X, r), None).scales[3] == UNKNOWN


@pytest.mark.parametrize("rewards", [np.zeros(60), np.full(60, 5.0)])
def test_rewards_that_are_all_alike_have_no_unit_of_their_own(rng, rewards):
    X, _ = rows(rng)
    u = Units.of(tally_of(X, rewards), 0)
    assert not u.reward_known
    assert u.reward_variance == (25.0 if rewards.any() else 1.0)


@pytest.mark.parametrize("constant", [0, None])
def test_powers_of_two_change_exponents_alone(rng, constant):
    X, r = rows(rng, intercept=constant is not None)
    factors = 2.0 ** rng.integers(-100, 101, size=5)
    if constant is not None:
        factors[0] = 1.0
    reward = 2.0**-70
    priors = []
    for Y, q, f, g in ((X, r, np.ones(5), 1.0), (X * factors, r * reward, factors, reward)):
        u = Units.of(tally_of(Y, q), constant)
        J = np.stack([Y[i::3].T @ Y[i::3] for i in range(3)]) / (0.7 * g) ** 2
        h = np.stack([Y[i::3].T @ q[i::3] for i in range(3)]) / (0.7 * g) ** 2
        prior = estimate_prior(J, h, BLOCKS, u)
        priors.append((prior.mean * f / g, prior.precision / np.outer(f, f) * g * g, prior.log_marginal))
    for one, other in zip(*priors, strict=True):
        np.testing.assert_array_equal(one, other)
