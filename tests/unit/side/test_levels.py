"""Levels without an intercept: a variance of their own, by brute force; nothing where features have mean zero."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import sidelight as sl
from sidelight.learners.rounds import play_rounds
from sidelight.side.coordinates import Tally, Units
from sidelight.side.levels import Level
from sidelight.side.prior import Hyper
from sidelight.side.prior_likelihood import PriorLikelihood
from sidelight.side.prior_search import estimate_prior

D = 4
#: recorded, hidden, and the block of levels, which has no feature
BLOCKS = [np.array([0, 1]), np.array([2, 3]), np.array([], dtype=np.int64)]
CENTRES, SCALES = np.array([60.0, -80.0, 36.8, 0.0]), np.array([12.0, 15.0, 0.4, 2.0])
AUTO = {"regularization": "auto", "radius": "posterior"}


def units_of(X, r):
    tally = Tally.empty(X.shape[1])
    tally.add(slice(None), len(X), X.sum(axis=0), (X * X).sum(axis=0))
    tally.add_rewards(len(r), r.sum(), (r * r).sum())
    return Units.of(tally, None)


def contexts(rng, n, d=D):
    return CENTRES[:d] + SCALES[:d] * rng.normal(size=(n, d))


def test_means_and_spreads_are_those_of_the_features(rng):
    X = contexts(rng, 5_000)
    u = units_of(X, rng.normal(size=5_000) + 3.0)
    np.testing.assert_allclose(u.scales * u.means, X.mean(axis=0), rtol=1e-2, atol=0.1)
    np.testing.assert_allclose(u.scales * u.spreads, X.std(axis=0), rtol=1e-2)
    np.testing.assert_allclose(X.mean(axis=0) / u.scales @ u.level, 1.0, rtol=1e-2)
    # means of a few values are not sure, and one value tells none
    assert not units_of(X[:1], np.ones(1)).means.any()
    assert not units_of(rng.choice([-1.0, 1.0], size=(2, D)), np.ones(2)).means.any()


@pytest.mark.parametrize("rounding", [-1e-15, 0.0, 1e-15])
def test_a_mean_that_is_as_sure_as_chance_is_none_whatever_rounding_does(rounding):
    """A flag set in three of nine rows: the square of its mean, 1/3 of its second moment, is four times its chance."""
    tally = Tally.empty(2)
    tally.add(np.array([0]), 9.0, np.array([3.0 * (1.0 + rounding)]), np.array([3.0]))
    # a feature whose mean makes a level, so that the flag's would count
    tally.add(np.array([1]), 9.0, np.array([18.0]), np.array([40.0]))
    means = Units.of(tally, None).means
    assert means[0] == 0.0
    assert means[1] > 0.5


def test_a_stretch_changes_the_variance_of_the_level_and_nothing_else(rng):
    X = contexts(rng, 500)
    u = units_of(X, 20.0 + rng.normal(size=500))
    level, variances, omega = Level(u, np.ones(D)), rng.uniform(0.1, 4.0, size=D), 37.0
    T = level.stretch(variances, omega)
    C = T.covariance(np.diag(variances))
    g, size = level.g, level.g @ level.g
    mean = g @ (variances * g) / size
    np.testing.assert_allclose(g @ C @ g, size / (1 + size) * (mean + size / (1 + size) * omega), rtol=1e-10)
    # given the level, weights are distributed as independent ones are: the same regression on it, the same rest
    for covariance in (np.diag(variances), C):
        on_level = covariance @ g / (g @ covariance @ g)
        rest = covariance - np.outer(on_level, covariance @ g)
        np.testing.assert_allclose(on_level, variances * g / (g @ (variances * g)), rtol=1e-9)
        np.testing.assert_allclose(rest, np.diag(variances) - np.outer(on_level, variances * g), atol=1e-9)
    # the origin pays the mean reward to the mean context
    np.testing.assert_allclose(g @ level.origin, 20.0, rtol=0.02)
    part = variances * g
    np.testing.assert_allclose(np.diag(variances) + level.excess(variances, omega) * np.outer(part, part), C, rtol=1e-9)
    matrix = T.vectors(np.eye(D)).T
    J, h = np.cov(rng.normal(size=(D, 9))), rng.normal(size=D)
    np.testing.assert_allclose(T.quadratic(J), matrix.T @ J @ matrix, rtol=1e-9)
    np.testing.assert_allclose(T.linear(h), matrix.T @ h, rtol=1e-9)


def test_the_smaller_the_means_the_less_a_level_matters(rng):
    for size, most in ((1.0, 1.0), (0.1, 0.2), (0.01, 0.002)):
        u = replace(Units.given(np.ones(D), 1.0), means=np.full(D, size / np.sqrt(D)))
        assert abs(Level(u, np.ones(D)).stretch(np.ones(D), 10.0).root - 1.0) <= most


@pytest.mark.parametrize("q", [0, 2])
def test_log_p_and_prior_are_those_of_the_normal_density_of_all_rewards(rng, q):
    """Differences over variances equal those of the joint density; mean and covariance those of a new arm's weights."""
    K, n, sigma = 3, 6, 0.7
    X = contexts(rng, K * n).reshape(K, n, D)
    r = 30.0 + rng.normal(size=(K, n))
    J = np.einsum("kni,knj->kij", X, X) / sigma**2
    h = np.einsum("kni,kn->ki", X, r) / sigma**2
    u = units_of(contexts(rng, 400), 30.0 + 10.0 * rng.normal(size=400))
    Z = None
    if q:
        Z = np.zeros((K, q, D))
        Z[:, 0, :2], Z[:, 1, 2:] = rng.normal(size=(K, 2)), rng.normal(size=(K, 2))
    likelihood = PriorLikelihood(J, h, BLOCKS, u, preferences=Z)
    hypers = [
        Hyper((0.3, 2.0, 50.0), 0.2, 0.1),
        Hyper((0.3, 2.0, 0.5), 0.2, 0.1),
        Hyper((4.0, 0.1, 9.0), 1.0, 30.0),
    ]
    level, s = Level(u, np.ones(D)), u.scales * u.spreads
    hyperprior = PriorLikelihood(np.zeros_like(J), np.zeros_like(h), BLOCKS, u, preferences=Z)

    def parts(hyper):
        omega = np.repeat(hyper.variances[:2], 2)
        own = level.stretch(omega, hyper.variances[2]).covariance(np.diag(omega))
        common = level.stretch(np.full(D, hyper.mean_variance), hyper.level_variance)
        return own / np.outer(s, s), common.covariance(hyper.mean_variance * np.eye(D)) / np.outer(s, s)

    def brute(hyper):
        own, common = parts(hyper)
        covariance = np.zeros((K * n, K * n))
        for a in range(K):
            for b in range(K):
                between = common + (own if a == b else 0.0)
                for k in range(q):
                    block = u.spreads[BLOCKS[k]]
                    size = max(np.mean((Z[:, k][:, BLOCKS[k]] * block) ** 2), 0.01)
                    gamma = hyper.preference * hyper.variances[k] / size
                    between = between + gamma * np.outer(Z[a, k] / u.scales, Z[b, k] / u.scales)
                covariance[a * n : (a + 1) * n, b * n : (b + 1) * n] = X[a] @ between @ X[b].T
        covariance += sigma**2 * np.eye(K * n)
        mean = (X @ (level.origin / s)).ravel()
        return multivariate_normal(mean, covariance).logpdf(r.ravel())

    ours = [likelihood.value(hyper) - hyperprior.value(hyper) for hyper in hypers]
    np.testing.assert_allclose(np.diff(ours), np.diff([brute(hyper) for hyper in hypers]), rtol=1e-5, atol=1e-5)
    if not q:
        own, common = parts(hypers[0])
        among = np.kron(np.ones((K, K)), common) + np.kron(np.eye(K), own)
        design = np.zeros((K * n, K * D))
        for a in range(K):
            design[a * n : (a + 1) * n, a * D : (a + 1) * D] = X[a]
        new = np.kron(np.ones((1, K)), common) @ design.T
        gain = new @ np.linalg.inv(design @ among @ design.T + sigma**2 * np.eye(K * n))
        origin = level.origin / s
        prior = likelihood.prior(hypers[0], (1.0, 1.0, 1.0))
        np.testing.assert_allclose(prior.mean, origin + gain @ (r.ravel() - (X @ origin).ravel()), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(prior.covariance, own + common - gain @ new.T, rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(prior.covariance @ prior.precision, np.eye(D), atol=1e-6)


def test_a_level_that_is_expected_takes_no_digits_from_what_tells_priors_apart(rng):
    """Rewards of 30 with a noise of 1e-5: ``log p`` of the level is 1e13, and differences between priors are exact."""
    K, n, sigma = 3, 6, 1e-5
    X = contexts(rng, K * n).reshape(K, n, D)
    u = units_of(contexts(rng, 400), 30.0 + 10.0 * rng.normal(size=400))
    origin, noise = Level(u, np.ones(D)).origin / (u.scales * u.spreads), sigma * rng.normal(size=(K, n))
    J = np.einsum("kni,knj->kij", X, X) / sigma**2
    around, whole = (np.einsum("kni,kn->ki", X, r) / sigma**2 for r in (noise, noise + X @ origin))
    likelihood = PriorLikelihood(J, whole, BLOCKS, u)
    # where rewards have no level in common nothing is expected of arms
    plain = PriorLikelihood(J, around, BLOCKS, replace(u, mean_reward=0.0))
    assert likelihood.left_out > 1e12
    assert plain.left_out == 0.0
    for hyper in (Hyper((0.3, 2.0, 50.0), 0.2, 0.1), Hyper((4.0, 0.1, 9.0), 1.0, 30.0)):
        assert likelihood.value(hyper) == pytest.approx(plain.value(hyper), abs=1e-3)
        assert likelihood.log_marginal(hyper) == likelihood.value(hyper) + likelihood.left_out


def test_without_means_the_block_of_levels_changes_nothing(rng):
    X = rng.normal(size=(5, 30, D))
    r = np.einsum("knd,kd->kn", X, rng.normal(size=(5, D))) + rng.normal(size=(5, 30))
    J, h = np.einsum("kni,knj->kij", X, X), np.einsum("kni,kn->ki", X, r)
    u = Units.given(np.ones(D), float(np.mean(r * r)))
    plain, with_levels = (estimate_prior(J, h, blocks, u) for blocks in (BLOCKS[:2], BLOCKS))
    assert with_levels.hyper.variances[:2] == plain.hyper.variances
    assert np.array_equal(with_levels.mean, plain.mean)
    assert np.array_equal(with_levels.precision, plain.precision)
    assert with_levels.log_marginal == plain.log_marginal


def test_levels_that_differ_and_weights_that_do_not_are_told_apart(rng):
    """Levels of 20 and weights of 0.5: each has its own variance, and the reverse."""
    for levels, weights in ((20.0, 0.5), (0.3, 0.5)):
        K, n = 12, 40
        X = contexts(rng, K * n).reshape(K, n, D)
        g = CENTRES / SCALES
        Y = weights * rng.normal(size=(K, D))
        Y += np.outer(levels * rng.normal(size=K) - Y @ g, g) / (g @ g)
        r = np.einsum("knd,kd->kn", X, Y / SCALES) + 0.5 * rng.normal(size=(K, n))
        J, h = np.einsum("kni,knj->kij", X, X) / 0.25, np.einsum("kni,kn->ki", X, r) / 0.25
        u = units_of(X.reshape(-1, D), r.ravel())
        prior = estimate_prior(J, h, BLOCKS, u)
        prior = estimate_prior(J, h, BLOCKS, u, prior.hyper)
        x = CENTRES
        found = np.sqrt(x @ prior.covariance @ x)
        assert 0.5 < found / np.hypot(levels, weights) < 2.5
        own = np.sqrt(np.diagonal(prior.covariance)) * SCALES
        assert 0.2 < own[3] / weights < 2.5  # a feature of mean zero, which has no part in levels


#: age, weight, income, pressure, a rate, a yes/no as 1/2, a rate, a laboratory value, a temperature, a concentration
CLINIC = np.array(
    [
        [60.0, 80.0, 40_000.0, 130.0, 0.3, 1.4, 0.02, 250.0, 36.8, 4e-6],
        [12.0, 15.0, 15_000.0, 18.0, 0.1, 0.5, 0.01, 60.0, 0.4, 1e-6],
    ]
)


def clinic(seed, rounds=400, K=8):
    """Raw contexts; weights are alike in standard deviations, so that the arms' levels differ most."""
    rng = np.random.default_rng(seed)
    centres, scales = CLINIC
    X = centres + scales * rng.normal(size=(rounds, CLINIC.shape[1]))
    means = X @ (0.4 * rng.normal(size=(K, CLINIC.shape[1])) / scales).T
    return X, means + 0.5 * rng.normal(size=(rounds, 1)), means


def test_a_cold_learner_tries_arms_whose_level_is_far_from_the_others():
    """While levels had no variance of their own, the best arm was not found in 6 of these 24 worlds."""
    for seed in range(24):
        X, rewards, means = clinic(seed)
        learner = sl.OFUL(8, CLINIC.shape[1], **AUTO)
        played = play_rounds(learner, X, rewards, None, np.random.default_rng(seed))
        regret = means.max(axis=1) - means[np.arange(len(X)), played]
        # of the last rounds, in units of what levels differ by
        assert regret[-100:].mean() < 0.1 * means.mean(axis=0).std()


def test_a_saved_learner_goes_on_as_it_was(tmp_path):
    X, rewards, _ = clinic(1, 120)
    learner = sl.OFUL(8, CLINIC.shape[1], **AUTO)
    play_rounds(learner, X[:60], rewards[:60], None, np.random.default_rng(0))
    learner.save(tmp_path / "learner")
    again = sl.load_learner(tmp_path / "learner")
    assert again.automatic.units.mean_reward == learner.automatic.units.mean_reward != 0.0
    assert np.array_equal(again.automatic.units.means, learner.automatic.units.means)
    for one in (learner, again):
        play_rounds(one, X[60:], rewards[60:], None, np.random.default_rng(0))
    assert np.array_equal(learner.weights, again.weights)
    # a file from before there were levels: variances are searched for anew
    state = learner.automatic.state()
    state["auto_hyper"], state["auto_widening"] = np.ones(4), np.ones(1)
    state["auto_units"], state["auto_rewards"] = state["auto_units"][:3], state["auto_rewards"][:4]
    learner.automatic.restore(state)
    assert learner.automatic.hyper is None
    assert not learner.automatic.units.means.any()
    learner._relearn()
    assert learner.automatic.hyper is not None
    assert learner.automatic.units.means.any()


def test_a_column_of_ones_is_a_feature_like_any_other_unless_others_make_levels(rng):
    """A constant that is no declared intercept keeps its block's variance; beside raw features it is their level."""
    X = np.column_stack([np.ones(500), rng.normal(size=(500, 3))])
    raw = X + np.array([0.0, 8.0, 3.0, 0.0])
    for contexts, counts in ((X, False), (raw, True)):
        tally = Tally.empty(4)
        tally.add(np.arange(4), 500.0, contexts.sum(axis=0), np.square(contexts).sum(axis=0))
        tally.add_rewards(500.0, 0.0, 500.0)
        assert (Units.of(tally, None).means[0] > 0.0) == counts
