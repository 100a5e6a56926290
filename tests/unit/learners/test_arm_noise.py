"""Noise per arm: shrunk to that of all where arms do not differ, each arm's own where they do."""

from __future__ import annotations

import numpy as np
import pytest
from tests import reference

import sidelight as sl
from sidelight.learners import noise
from sidelight.learners.noise import arm_noises, own_residuals, rate_noise, residual_noise, residuals

AUTO = {"regularization": "auto", "radius": "posterior"}


def test_residuals_are_those_of_the_rows(rng):
    X, r, w = rng.normal(size=(3, 20, 4)), rng.normal(size=(3, 20)), rng.normal(size=(3, 4))
    grams, moments = np.einsum("ani,anj->aij", X, X), np.einsum("ani,an->ai", X, r)
    covariances = np.linalg.inv(grams + 0.7 * np.eye(4))
    left, used = residuals((r * r).sum(axis=1), moments, grams, w, covariances)
    np.testing.assert_allclose(left, np.square(r - np.einsum("ani,ai->an", X, w)).sum(axis=1))
    np.testing.assert_allclose(used, np.einsum("aij,aji->a", grams, covariances))
    assert residual_noise(2.5, left, used, 60.0) == pytest.approx(
        (20.0 * 2.5 + left.sum()) / (20.0 + 60.0 - used.sum())
    )


@pytest.mark.parametrize("rate", [0.5, 0.2, 0.03])
def test_the_noise_of_rates_starts_with_as_many_rounds_as_tell_as_much(rng, rate):
    """Weighted squared errors of right rates have mean ¼, and the variance that the weight of the guess allows for."""
    draws = (rng.random((2_000, 200)) < rate).astype(float)
    errors = 0.25 * np.square(draws - rate) / (rate * (1.0 - rate))
    spread = max(1.0 / (rate * (1.0 - rate)) - 4.0, 2.0)
    assert errors.mean() == pytest.approx(0.25, rel=0.05)
    if rate < 0.2:  # at 0.2 and above the weight is that of normal noise, which is more cautious
        assert errors.var() / 0.25**2 == pytest.approx(spread, rel=0.1)
    left, used = np.array([3.0, 4.5]), np.array([2.0, 3.5])
    weight = 20.0 * spread / 2.0
    expected = (weight * 0.25 + 7.5) / (weight + 100.0 - 5.5)
    assert rate_noise(0.25, rate, left, used, 100.0) == pytest.approx(expected)


def test_arms_that_differ_get_their_own_and_arms_that_do_not_the_common(rng):
    """200 rounds an arm: each estimate within a factor of 1.5 of the truth, six of its deviations (0.07) and more."""
    true = np.geomspace(0.05, 3.0, 8) ** 2
    left = true * rng.chisquare(200, size=8)
    found = arm_noises(float(left.sum() / 1600), left, np.full(8, 200.0))
    assert (np.abs(np.log(found / true)) < np.log(1.5)).all()
    alike = rng.chisquare(10, size=8)
    found = arm_noises(1.0, alike, np.full(8, 10.0))
    # ten rounds each: the raw estimates scatter by 0.45, the shrunk ones by much less
    assert np.std(np.log(found)) < 0.4 * np.std(np.log(alike / 10.0))


def test_noises_of_arms_are_the_formula(rng):
    left, free = rng.chisquare(7, size=9) * np.geomspace(0.1, 30.0, 9), rng.uniform(0.0, 40.0, size=9)
    literal = reference.arm_noises(1.7, left, free, noise.SPREADS, noise.SPREAD_WEIGHTS, noise.STEPS)
    np.testing.assert_allclose(arm_noises(1.7, left, free), literal, rtol=1e-12)


def test_an_arm_s_own_least_squares_replaces_residuals_that_leave_more(rng):
    """Arm 0 has a feature that is always zero, arm 1 too few rounds, arm 2 residuals that leave less already."""
    n, m = np.array([40, 9, 40]), 4
    X, r = rng.normal(size=(3, 40, m)), rng.normal(size=(3, 40))
    X[0, :, 2] = 0.0
    X[1, 9:], r[1, 9:] = 0.0, 0.0
    grams, moments = np.einsum("ani,anj->aij", X, X), np.einsum("ani,an->ai", X, r)
    left, used = np.array([90.0, 90.0, 1e-3]), np.array([2.0, 2.0, 2.0])
    own_residuals((r * r).sum(axis=1), moments, grams, n.astype(float), left, used)
    kept = [0, 1, 3]
    rest = r[0] - X[0][:, kept] @ np.linalg.lstsq(X[0][:, kept], r[0], rcond=None)[0]
    np.testing.assert_allclose(left, [rest @ rest, 90.0, 1e-3], rtol=1e-7)
    np.testing.assert_array_equal(used, [3.0, 2.0, 2.0])


@pytest.mark.parametrize("order", [1, -1])
def test_own_least_squares_have_a_rank(rng, order):
    """A feature that repeats another one, and one that is off an intercept by rounding, use up no rounds."""
    n, m = 40, 5
    X, r = rng.normal(size=(n, m)), rng.normal(size=n)
    X[:, 0], X[:, 3] = 1.0, X[:, 1]
    # as a centre far from zero leaves it: 1e-5 of a scale away from it, and squares of 1e-10
    X[:, 4] = 1e-5 * (1.0 + 1e-7 * rng.normal(size=n))
    X = X[:, ::order]
    grams, moments = (X.T @ X)[None], (X.T @ r)[None]
    left, used = np.array([90.0]), np.array([2.0])
    own_residuals(np.array([r @ r]), moments, grams, np.array([float(n)]), left, used)
    rest = r - X @ np.linalg.lstsq(X, r, rcond=1e-6)[0]
    np.testing.assert_allclose(left, [rest @ rest], rtol=1e-9)
    assert used == 3.0


def test_where_both_regressions_leave_nothing_rounding_does_not_choose(rng):
    X = rng.normal(size=(40, 4))
    r = X @ [0.3, -1.0, 0.2, 2.0]
    for rounding in (0.0, 1e-13):
        left, used = np.array([rounding]), np.array([3.7])
        own_residuals(np.array([r @ r]), (X.T @ r)[None], (X.T @ X)[None], np.array([40.0]), left, used)
        assert used == 3.7


def test_an_arm_that_was_never_played_has_the_noise_of_all(rng):
    left, free = np.array([0.0, 40.0, 38.0]), np.array([0.0, 40.0, 40.0])
    assert arm_noises(1.0, left, free)[0] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("learner", ["cold", "fused"])
def test_learners_learn_a_noise_for_every_arm(rng, learner, tmp_path):
    K, d = 3, 4
    noises, W = np.array([0.1, 0.5, 2.5]), rng.normal(size=(K, d))
    names = [f"x{j}" for j in range(d)]
    one = sl.OFUL(K, d, **AUTO)
    if learner == "fused":
        X, arms = rng.normal(size=(600, d)), np.arange(600) % K
        rewards = (X * W[arms]).sum(axis=1) + noises[arms] * rng.normal(size=600)
        log = sl.LogSummary.from_arrays(X[:, :3], arms, rewards, sl.Schema(names, names[:3], arms=range(K)))
        one = sl.FusedOFUL(sl.BehaviorQueries(log))
    for t in range(900):
        x, arm = rng.normal(size=d), t % K
        if one.needs:
            one.observe_behavior(x, int(rng.integers(K)))
        one.observe(x, arm, float(x @ W[arm] + noises[arm] * rng.normal()))
    assert (np.abs(np.log(one.noises / noises)) < np.log(1.3)).all()
    # posterior: σ_a²V⁻¹ with V = σ_a²(Ω⁻¹ + J) + Σxxᵀ, whose width the radius makes
    x = rng.normal(size=d)
    V = one.prior_precisions + one.grams
    np.testing.assert_allclose(
        one.scores(x)[1], one.noises * np.sqrt([x @ np.linalg.solve(v, x) for v in V]), rtol=1e-6
    )
    one.save(tmp_path / "file")
    np.testing.assert_array_equal(sl.load_learner(tmp_path / "file").noises, one.noises)


def test_given_noise_is_the_same_for_all_arms():
    np.testing.assert_array_equal(sl.OFUL(3, 2, regularization="auto", noise=0.7).noises, 0.7)


def test_a_cold_guess_of_the_noise_is_the_variance_around_levels(rng):
    """Arms that pay 0, 100 and 1,000 on average: their difference is not noise, with an intercept or without one."""
    X = np.array([1.0, 5.0]) + np.array([0.0, 0.5]) * rng.normal(size=(3, 40, 2))
    r = np.array([0.0, 100.0, 1_000.0])[:, None] + rng.normal(size=(3, 40))
    X[2, 3:], r[2, 3:] = 0.0, 0.0
    sums = (r * r).sum(axis=1), np.einsum("ani,an->ai", X, r), np.einsum("ani,anj->aij", X, X)
    rounds, total = np.array([40.0, 40.0, 3.0]), 5_000.0
    within = sum(((r[a, :n] - r[a, :n].mean()) ** 2).sum() for a, n in enumerate(rounds.astype(int)))
    found = noise.variance_around_levels(*sums, rounds, np.array([1.0, 0.0]), total)
    np.testing.assert_allclose(found, (4.0 * total + within) / (4.0 + 83.0 - 3.0), rtol=1e-9)
    # levels that a feature makes are about as good
    assert noise.variance_around_levels(*sums, rounds, np.array([0.0, 0.2]), total) < 0.5 * total
    assert noise.variance_around_levels(*sums, rounds, np.zeros(2), total) == total
    assert noise.variance_around_levels(*sums, np.zeros(3), np.array([1.0, 0.0]), total) == total
