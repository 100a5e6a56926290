"""The prior over arms: its marginal likelihood by brute force, and what it finds."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from sidelight.learners.fused.hyperparameters import SMALLER_NOISES, SURELY, likeliest_noise, most_gain
from sidelight.learners.noise import least_residuals, rounds_likelihood
from sidelight.side import prior_search
from sidelight.side.coordinates import Units
from sidelight.side.deviations import Deviations
from sidelight.side.prior import Hyper
from sidelight.side.prior_likelihood import MOST_LEVELS, PriorLikelihood, log_marginal
from sidelight.side.prior_search import estimate_prior, most_probable
from sidelight.side.spread import LogSpread, SpreadLikelihood


def arms_with_rounds(rng, K, d, n, sigma, weights):
    X = rng.normal(size=(K, n, d))
    r = np.einsum("knd,kd->kn", X, weights) + sigma * rng.normal(size=(K, n))
    J = np.einsum("kni,knj->kij", X, X) / sigma**2
    h = np.einsum("kni,kn->ki", X, r) / sigma**2
    return X, r, J, h


@pytest.mark.parametrize("q", [0, 1, 3])
@pytest.mark.parametrize(("K", "d", "n"), [(1, 1, 3), (2, 3, 4), (4, 2, 7), (3, 3, 1), (2, 11, 5)])
def test_log_marginal_is_the_density_of_all_rewards(rng, K, d, n, q):
    """Differences over settings equal those of the joint normal density of all rewards, arms coupled by their means."""
    sigma = 0.7
    X, r, J, h = arms_with_rounds(rng, K, d, n, sigma, rng.normal(size=(K, d)))
    Z = rng.normal(size=(K, q, d))

    def brute(omega, kappa2):
        covariance = np.zeros((K * n, K * n))
        designs = [np.hstack([np.eye(d), Z[a].T]) for a in range(K)]
        for a in range(K):
            for b in range(K):
                between = designs[a] @ np.diag(kappa2) @ designs[b].T + (np.diag(omega) if a == b else 0.0)
                covariance[a * n : (a + 1) * n, b * n : (b + 1) * n] = X[a] @ between @ X[b].T
        covariance += sigma**2 * np.eye(K * n)
        return multivariate_normal(np.zeros(K * n), covariance).logpdf(r.ravel())

    settings = [
        (rng.uniform(0.01, 3.0, size=d), rng.uniform(0.01, 5.0, size=d + q)),
        (np.full(d, 1e-6), np.full(d + q, 0.3)),
        (np.full(d, 40.0), np.full(d + q, 1e-5)),
    ]
    ours = [log_marginal(Deviations(J, h, Z if q else None).shrunk(omega), kappa2)[0] for omega, kappa2 in settings]
    theirs = [brute(*s) for s in settings]
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("K", "d", "n"), [(1, 1, 3), (3, 2, 7), (2, 5, 4)])
def test_noises_are_compared_by_the_density_of_all_rewards(rng, K, d, n):
    """``log_marginal`` and ``rounds_likelihood`` together differ between noises as the normal density does."""
    X = rng.normal(size=(K, n, d))
    r = np.einsum("knd,kd->kn", X, rng.normal(size=(K, d))) + rng.normal(size=(K, n))
    omega, kappa2 = rng.uniform(0.1, 3.0, size=d), rng.uniform(0.1, 3.0, size=d)

    def ours(variances):
        J = np.einsum("kni,knj->kij", X, X) / variances[:, None, None]
        h = np.einsum("kni,kn->ki", X, r) / variances[:, None]
        squares = np.square(r).sum(axis=1)
        return log_marginal(Deviations(J, h).shrunk(omega), kappa2)[0] + rounds_likelihood(
            np.full(K, n), squares, variances
        )

    def brute(variances):
        between = np.kron(np.ones((K, K)), np.diag(kappa2)) + np.kron(np.eye(K), np.diag(omega))
        design = np.zeros((K * n, K * d))
        for a in range(K):
            design[a * n : (a + 1) * n, a * d : (a + 1) * d] = X[a]
        covariance = design @ between @ design.T + np.diag(np.repeat(variances, n))
        return multivariate_normal(np.zeros(K * n), covariance).logpdf(r.ravel())

    noises = [np.full(K, 0.04), np.full(K, 3.0), rng.uniform(0.2, 2.0, size=K)]
    np.testing.assert_allclose(np.diff([ours(v) for v in noises]), np.diff([brute(v) for v in noises]), rtol=1e-9)


@pytest.mark.parametrize("q", [0, 2])
def test_the_common_mean_is_its_posterior(rng, q):
    """``β̂`` and its covariance by one large regression for the means and every arm's deviation from its own."""
    K, d, n, sigma = 3, 2, 5, 0.4
    omega, kappa2 = np.array([0.5, 2.0]), np.array([3.0, 0.1, 0.7, 1.9])[: d + q]
    X, r, J, h = arms_with_rounds(rng, K, d, n, sigma, rng.normal(size=(K, d)))
    Z = rng.normal(size=(K, q, d))
    p = d + q
    design = np.zeros((K * n, p + d * K))
    for a in range(K):
        design[a * n : (a + 1) * n, :p] = X[a] @ np.hstack([np.eye(d), Z[a].T])
        design[a * n : (a + 1) * n, p + d * a : p + d * (a + 1)] = X[a]
    precision = np.diag(np.concatenate([1 / kappa2, np.tile(1 / omega, K)])) + design.T @ design / sigma**2
    covariance = np.linalg.inv(precision)
    expected = covariance @ design.T @ r.ravel() / sigma**2
    _, mean, C = log_marginal(Deviations(J, h, Z if q else None).shrunk(omega), kappa2)
    np.testing.assert_allclose(mean, expected[:p], rtol=1e-8)
    np.testing.assert_allclose(C, covariance[:p, :p], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("q", [0, 2])
@pytest.mark.parametrize(("K", "d"), [(1, 1), (3, 6), (2, 21)])
def test_whatever_is_integrated_out_first_is_the_same(rng, K, d, q):
    """All orders of elimination against explicit inverses, with and without another variance of levels."""
    _, _, J, h = arms_with_rounds(rng, K, d, 2 * d, 0.7, rng.normal(size=(K, d)))
    Z, g, omega = rng.normal(size=(K, q, d)), rng.normal(size=d), rng.uniform(0.01, 3.0, size=d)
    level = omega * g
    for n in sorted({0, 1, d // 2, d}):
        deviations = Deviations(J, h, Z if q else None, rng.permutation(d)[:n], g)
        for excess in (0.0, 2.5, -0.9 / float(g @ level), 0.0):
            prior = np.diag(omega) + excess * np.outer(level, level)
            designs = [np.hstack([np.eye(d), Z[a].T]) for a in range(K)]
            S = [np.linalg.inv(np.linalg.inv(J[a]) + prior) for a in range(K)]
            t = [np.linalg.solve(np.eye(d) + J[a] @ prior, h[a]) for a in range(K)]
            # log det W_a = log det(I + J_aΩ), and (Dh)ᵀW⁻¹(Dh) = hᵀΩt
            value = sum(
                0.5 * h[a] @ prior @ t[a] - 0.5 * np.linalg.slogdet(np.eye(d) + J[a] @ prior)[1] for a in range(K)
            )
            found = deviations.shrunk(omega, excess)
            assert found.value == pytest.approx(value, rel=1e-8)
            np.testing.assert_allclose(
                found.S, sum(X.T @ s @ X for X, s in zip(designs, S, strict=True)), rtol=1e-6, atol=1e-9
            )
            np.testing.assert_allclose(
                found.t, sum(X.T @ v for X, v in zip(designs, t, strict=True)), rtol=1e-6, atol=1e-8
            )
            np.testing.assert_array_equal(found.S, found.S.T)


def test_what_is_kept_of_a_first_part_is_what_would_be_computed_anew(rng):
    """More variances of it than are kept, in any order, to the bit; powers of two as units change nothing."""
    K, d = 3, 5
    _, _, J, h = arms_with_rounds(rng, K, d, 9, 0.7, rng.normal(size=(K, d)))
    kept, units = Deviations(J, h, None, np.arange(3)), 2.0 ** np.array([3, -2, 0, 7, 1])
    for variance in (1.0, 2.0, 4.0, 1.0, 8.0, 0.5, 2.0, 1.0):
        omega = np.array([variance] * 3 + [rng.uniform(0.1, 1.0)] * 2)
        found, anew = kept.shrunk(omega), Deviations(J, h, None, np.arange(3)).shrunk(omega)
        other = Deviations(J * np.outer(units, units), h * units, None, np.arange(3)).shrunk(omega / units**2)
        for one in (anew, other):
            assert one.value == found.value
        np.testing.assert_array_equal(anew.S, found.S)
        np.testing.assert_array_equal(anew.t, found.t)
        np.testing.assert_array_equal(other.t, found.t * units)


def test_a_matrix_that_is_not_positive_definite_ends_the_search_there(rng):
    """Rounding may leave such a ``W_a``: the value is −∞, so that another ``Ω`` is taken."""
    J, h = np.array([np.eye(2), [[1.0, 20.0], [20.0, 1.0]], np.eye(2)]), rng.normal(size=(3, 2))
    for first in (np.arange(2), np.array([1]), np.zeros(0, dtype=np.int64)):
        shrunk = Deviations(J, h, None, first).shrunk(np.array([1.0, 2.0]))
        assert shrunk.value == -np.inf
        assert not shrunk.S.any()
        assert not shrunk.t.any()
    # levels of less than no variance
    shrunk = Deviations(J[:1], h[:1], g=np.ones(2)).shrunk(np.ones(2), -2.0)
    assert shrunk.value == -np.inf


def test_weights_along_preferences_are_foretold(rng):
    """A third of the arms has rounds; the others' prior means are then near their weights, ``γz_a`` and little more.

    With ``γ = −0.8`` the deviation of a weight from ``γz`` is 0.1 and that of ``γ̂`` 0.01; 0.5 is five deviations.
    """
    K, d, sigma, gamma = 30, 8, 0.3, np.array([0.4, -0.8])
    Z = np.zeros((K, 2, d))
    Z[:, 0, :3], Z[:, 1, 3:] = rng.normal(size=(K, 3)), rng.normal(size=(K, 5))
    weights = np.einsum("k,akd->ad", gamma, Z) + 0.1 * rng.normal(size=(K, d))
    _, r, J, h = arms_with_rounds(rng, K, d, 40, sigma, weights)
    J[10:], h[10:] = 0.0, 0.0
    units = Units.given(np.ones(d), float(np.mean(r[:10] ** 2)))
    prior = None
    for _ in range(3):
        prior = estimate_prior(J, h, BLOCKS, units, None if prior is None else prior.hyper, preferences=Z)
    assert prior.means is not None
    assert prior.precisions is not None
    np.testing.assert_allclose(prior.means[10:], weights[10:], atol=0.5)
    deviations = np.sqrt(np.einsum("aii->ai", np.linalg.inv(prior.precisions)))
    assert deviations[10:].min() > 0.05
    assert deviations[10:].max() < 0.4
    # an arm without preferences may be anything that the others are on average
    assert np.abs(prior.mean).max() < 0.5


BLOCKS = [np.arange(3), np.arange(3, 8)]


def test_it_finds_the_prior_that_the_arms_were_drawn_from(rng):
    """40 arms, much data: each block's variance within a factor of two and the mean within its own error.

    The maximum over a grid of factors of two; each variance rests on 120 or 200 weights, so its relative error is
    about 0.13, and a factor of 2.5 is more than five deviations away.
    """
    K, d, sigma = 40, 8, 0.3
    variances = np.concatenate([np.full(3, 0.04), np.full(5, 0.5)])
    mean = np.array([0.5, -0.2, 0.1, 1.0, 0.0, -1.0, 0.3, 0.2])
    weights = mean + np.sqrt(variances) * rng.normal(size=(K, d))
    _, r, J, h = arms_with_rounds(rng, K, d, 60, sigma, weights)
    prior = estimate_prior(J, h, BLOCKS, Units.given(np.ones(d), float(np.mean(r**2))))
    prior = estimate_prior(J, h, BLOCKS, Units.given(np.ones(d), float(np.mean(r**2))), prior.hyper)
    prior = estimate_prior(J, h, BLOCKS, Units.given(np.ones(d), float(np.mean(r**2))), prior.hyper)
    found = np.array(prior.hyper.variances)
    assert (np.abs(np.log(found / [0.04, 0.5])) < np.log(2.5)).all()
    np.testing.assert_allclose(prior.mean, weights.mean(axis=0), atol=0.1)
    np.testing.assert_allclose(prior.precision @ prior.covariance, np.eye(d), atol=1e-8)


def test_a_prior_has_the_posterior_mean_of_its_variances(rng):
    """The sum over factors of two of ``ω`` times its posterior probability; steps that add little are left out."""
    _, r, J, h = arms_with_rounds(rng, 4, 8, 40, 0.3, rng.normal(size=(4, 8)))
    units = Units.given(np.ones(8), float(np.mean(r**2)))
    prior = estimate_prior(J, h, BLOCKS, units)
    likelihood, factors = PriorLikelihood(J, h, BLOCKS, units), 2.0 ** np.arange(-6, 7)
    for k, widening in enumerate(prior.widening):
        values = np.array([likelihood.value(prior.hyper.scaled(k, factor)) for factor in factors])
        chances = np.exp(values - values.max())
        assert widening == pytest.approx(float(factors @ chances / chances.sum()), rel=0.05)
    made = likelihood.prior(prior.hyper.widened(prior.widening), (1.0, 1.0))
    np.testing.assert_allclose(prior.covariance, made.covariance)
    # where variances are not searched, they stay as wide as they were
    again = estimate_prior(J, h, BLOCKS, units, prior.hyper, search=False, widening=(3.0, 0.5))
    made = likelihood.prior(prior.hyper.widened((3.0, 0.5)), (1.0, 1.0))
    np.testing.assert_array_equal(again.covariance, made.covariance)


def test_what_few_arms_say_about_the_others_is_not_overstated(seed):
    """Three arms with rounds, two without: the squared error of their weights in units of what the prior claims.

    Its mean is 1.26 and was 1.89 with the variances of highest probability.  The tail is long, so the middle half of
    600 worlds is averaged: 0.945 and was 1.32, with a standard error of 0.035.  Outside of the bounds with a chance of
    1e-6.
    """
    rng, ratios, blocks = np.random.default_rng([seed, 5]), [], [np.arange(2), np.arange(2, 4)]
    for _ in range(600):
        weights = rng.normal(size=(5, 4))
        _, r, J, h = arms_with_rounds(rng, 5, 4, 40, 0.3, weights)
        J[3:], h[3:] = 0.0, 0.0
        units = Units.given(np.ones(4), float(np.mean(r[:3] ** 2)))
        prior = estimate_prior(J, h, blocks, units)
        prior = estimate_prior(J, h, blocks, units, prior.hyper)
        errors = weights[3:] - prior.mean
        ratios.append(np.einsum("ai,ij,aj->a", errors, prior.precision, errors).mean() / 4.0)
    assert 0.76 < np.mean(np.sort(ratios)[150:450]) < 1.13


def test_it_does_not_depend_on_units(rng):
    K, d, sigma = 10, 8, 0.5
    weights = 0.3 + rng.normal(size=(K, d))
    _, r, J, h = arms_with_rounds(rng, K, d, 30, sigma, weights)
    units = 10.0 ** rng.integers(-3, 4, size=d)
    plain = estimate_prior(J, h, BLOCKS, Units.given(np.ones(d), float(np.mean(r**2))))
    # x in other units is x·units, and the weights are divided by them
    other = estimate_prior(J * np.outer(units, units), h * units, BLOCKS, Units.given(units, float(np.mean(r**2))))
    np.testing.assert_allclose(other.mean * units, plain.mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(other.covariance * np.outer(units, units), plain.covariance, rtol=1e-6, atol=1e-9)


def test_without_any_evidence_it_is_as_wide_as_the_rewards_allow():
    d = 8
    prior = estimate_prior(np.zeros((3, d, d)), np.zeros((3, d)), BLOCKS, Units.given(np.ones(d), 4.0))
    np.testing.assert_array_equal(prior.mean, 0.0)
    assert 0.1 < float(np.trace(prior.covariance)) / 4.0 < 10.0


def test_a_single_arm_has_a_prior_too(rng):
    _, r, J, h = arms_with_rounds(rng, 1, 8, 200, 0.3, rng.normal(size=(1, 8)))
    prior = estimate_prior(J, h, BLOCKS, Units.given(np.ones(8), float(np.mean(r**2))))
    assert np.isfinite(prior.covariance).all()
    # nothing says that its weights are the common mean, so the prior stays wide enough to hold them
    assert np.sqrt(np.diag(prior.covariance)).min() > 0.05


def test_a_search_that_goes_on_never_gets_worse(rng):
    _, r, J, h = arms_with_rounds(rng, 6, 8, 20, 0.3, rng.normal(size=(6, 8)))
    previous, last = Hyper((1e-4, 1e-4), 1e-4, 1e-4), -np.inf
    for _ in range(15):
        prior = estimate_prior(J, h, BLOCKS, Units.given(np.ones(8), float(np.mean(r**2))), previous)
        assert prior.log_marginal >= last - 1e-9
        previous, last = prior.hyper, prior.log_marginal
    best = estimate_prior(J, h, BLOCKS, Units.given(np.ones(8), float(np.mean(r**2))))
    assert last >= best.log_marginal - 2.0


def test_derived_features_without_effect_leave_the_mean_of_the_others_alone(rng):
    """Twelve features of no effect beside three whose common mean is 1, which one ``κ²`` for all would make small."""
    K, d = 6, 15
    weights = np.zeros((K, d))
    weights[:, :3] = 1.0 + 0.1 * rng.normal(size=(K, 3))
    _, r, J, h = arms_with_rounds(rng, K, d, 400, 0.3, weights)
    units = Units.given(np.ones(d), float(np.mean(r**2)))
    prior = estimate_prior(J, h, [np.arange(3), np.arange(3, d)], units, derived=1)
    straight, bent = prior.hyper.variances
    assert bent < 0.05 * straight
    assert prior.hyper.mean_variance > 0.1
    np.testing.assert_allclose(prior.mean[:3], weights[:, :3].mean(axis=0), atol=0.05)
    alike = estimate_prior(J, h, [np.arange(3), np.arange(3, d)], units)
    assert prior.log_marginal > alike.log_marginal + 5.0


def with_a_log(rng, Z):
    """The likelihood of the priors of six arms, with and without what a log's residual variances say."""
    K, d = Z.shape[0], Z.shape[2]
    _, r, J, h = arms_with_rounds(rng, K, d, 12, 0.3, rng.normal(size=(K, d)))
    units = Units.given(np.ones(d), float(np.mean(r**2)))
    part = LogSpread(rng.uniform(0.1, 3.0, K) * units.reward_variance, np.full(K, 300.0), np.ones((K, 5)))
    hidden = SpreadLikelihood([(1.0, part)], units.reward_variance)
    made = [PriorLikelihood(J, h, BLOCKS, units, hidden=given, preferences=Z) for given in (hidden, None)]
    return *made, hidden, (J, h)


def test_what_a_log_says_is_asked_at_the_mean_square_of_hidden_weights(rng):
    """``log p`` with it is larger than without it by its value at ``ω + mean_a,j (μ_j + γz_aj)²``, a little rounded."""
    Z = np.zeros((6, 2, 8))
    Z[:, 0, :3], Z[:, 1, 3:] = rng.normal(size=(6, 3)), rng.normal(size=(6, 5))
    both, alone, hidden, (J, h) = with_a_log(rng, Z)
    hyper = Hyper((0.3, 0.7), 0.5, 0.5, 0.25)
    sizes = [float(np.square(Z[:, 0, :3]).mean()), float(np.square(Z[:, 1, 3:]).mean())]
    kappa2 = np.array([0.5] * 8 + [0.25 * 0.3 / sizes[0], 0.25 * 0.7 / sizes[1]])
    _, mean, _ = log_marginal(Deviations(J, h, Z).shrunk(np.array([0.3] * 3 + [0.7] * 5)), kappa2)
    square = 0.7 + float(np.square(mean[3:8] + mean[9] * Z[:, 1, 3:]).mean())
    exponent = np.round(4.0 * np.log2(square / 0.7)) / 4.0
    expected = hidden(0.7 * 2.0**exponent)
    assert both.value(hyper) - alone.value(hyper) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("wide", [True, False])
def test_priors_that_cannot_win_are_left_out_and_the_best_one_is_found_all_the_same(rng, monkeypatch, wide):
    Z = rng.normal(size=(6, 2, 8))
    both, _, hidden, _ = with_a_log(rng, Z)
    start = Hyper((0.3, 0.7), 0.5, 0.5, 0.25)
    patient = copy.deepcopy(both)
    found = most_probable(both, start, search=True, wide=wide)
    asked = len(hidden.parts[0][1]._found)
    monkeypatch.setattr(patient, "value", lambda hyper, above=0.0: PriorLikelihood.value(patient, hyper))
    assert most_probable(patient, start, search=True, wide=wide) == found
    assert len(patient._hidden.parts[0][1]._found) >= asked + (5 if wide else 0)


@pytest.mark.parametrize("told", [True, False])
def test_the_first_search_begins_at_the_best_of_all_its_points(rng, monkeypatch, told):
    """What logs say is not asked of all points; it climbs from the first of highest ``log p`` all the same."""
    climbed = []
    monkeypatch.setattr(prior_search, "_climb", lambda start, likelihood: climbed.append(start) or start)
    for scale in (1e-3, 1.0, 1e3):
        Z = rng.normal(size=(6, 2, 8))
        both, alone, _, _ = with_a_log(rng, scale * Z)
        likelihood = both if told else alone
        found = most_probable(likelihood, Hyper((0.3, 0.7), 0.5, 0.5, 0.25), search=True, wide=True)
        points = [Hyper((0.3, 0.7), 0.5, 0.5, 0.25), *prior_search._coarse([True, True], 0, likelihood.reference)]
        values = [likelihood.value(point) for point in points]
        assert found == climbed[-1] == points[int(np.argmax(values))]


def noisy_arms(rng, K, d, n, sigma, weights):
    _, r, J, h = arms_with_rounds(rng, K, d, n, sigma, weights)
    sums = np.square(r).sum(axis=1), h * sigma**2, J * sigma**2
    return sums, np.full(K, float(n))


@pytest.mark.parametrize("n", [3, 12, 60])
def test_no_prior_gains_more_by_a_smaller_noise_than_its_bound(rng, n):
    """At any prior; nearly as much is gained where the prior is so wide that it lets rounds decide."""
    K, d = 3, 4
    (squares, moments, grams), rounds = noisy_arms(rng, K, d, n, 0.5, rng.normal(size=(K, d)))
    left = least_residuals(squares, moments, grams, rounds)
    assert (left > 0.0).all() == (n >= 2 * d + 2)
    larger, smaller = rng.uniform(0.3, 2.0, size=K), np.full(K, 0.1)
    bound = most_gain(larger, smaller, rounds, left)
    for scale in (1e-8, 1e-3, 1.0, 1e3, 1e8):
        omega, kappa2 = scale * rng.uniform(0.1, 3.0, size=d), scale * rng.uniform(0.1, 3.0, size=d)
        value = [
            log_marginal(Deviations(grams / v[:, None, None], moments / v[:, None]).shrunk(omega), kappa2)[0]
            + rounds_likelihood(rounds, squares, v)
            for v in (larger, smaller)
        ]
        assert value[1] - value[0] <= bound + 1e-6


@pytest.mark.parametrize("truth", [0.02, 0.3, 1.0])
def test_the_likeliest_noise_is_that_of_a_search_that_leaves_nothing_out(rng, truth):
    K, d, n = 4, 8, 40
    (squares, moments, grams), rounds = noisy_arms(rng, K, d, n, np.sqrt(truth), 0.7 * rng.normal(size=(K, d)))
    units = Units.given(np.ones(d), float(squares.sum() / rounds.sum()))
    searched = []

    def likelihood(variances):
        searched.append(variances[0])
        prior = estimate_prior(grams / variances[:, None, None], moments / variances[:, None], BLOCKS, units)
        return prior.log_marginal + rounds_likelihood(rounds, squares, variances), lambda: prior

    current, most = np.full(K, 1.1), 1.0
    values = [likelihood(np.full(K, part * most))[0] for part in SMALLER_NOISES]
    known = likelihood(current)[0]
    searched.clear()
    least = least_residuals(squares, moments, grams, rounds)
    # the prior that the current noise has was not searched far and wide
    smaller = [part * most for part in SMALLER_NOISES]
    found = likeliest_noise(likelihood, (current, known - 1.0), smaller, (rounds, least))
    if max(values) > known + SURELY:
        assert found is not None
        assert found[0][0] == SMALLER_NOISES[int(np.argmax(values))] * most
        assert found[1].log_marginal + rounds_likelihood(rounds, squares, found[0]) == max(values)
    else:
        assert found is None
        assert len(searched) < len(SMALLER_NOISES)
    assert (found is None) == (truth == 1.0)


def test_derived_features_are_expected_to_matter_less():
    """Where nothing is known of bends yet, their weights are held near a 1024th of the others' variance."""
    rng = np.random.default_rng(4)
    K, d = 6, 8
    J, h = np.zeros((K, d, d)), np.zeros((K, d))
    for a in range(K):
        X = rng.normal(size=(40, 4))
        J[a, :4, :4] = X.T @ X
        h[a, :4] = X.T @ (X @ rng.normal(size=4) + rng.normal(size=40))
    blocks = [np.arange(4), np.arange(4, 8)]
    prior = estimate_prior(J, h, blocks, Units.given(np.ones(d), 5.0), derived=1)
    first, bent = prior.hyper.variances
    assert 1 / 4096 <= bent / first <= 1 / 256


def test_levels_vary_at_most_a_few_times_as_much_as_rewards():
    """A log without answers leaves levels open: large ones would let slopes be smaller at no price, without end."""
    K, L = 8, 4
    rng = np.random.default_rng(6)
    # along this direction the evidence says next to nothing: a large level makes up for slopes
    open_direction = np.array([1.0, 0.02, -0.015, 0.01])
    known = np.eye(L) - np.outer(open_direction, open_direction) / (open_direction @ open_direction)
    J = np.broadcast_to(1_000.0 * known + 1e-6 * np.eye(L), (K, L, L))
    slopes = np.column_stack([np.zeros(K), 0.4 * rng.normal(size=K)[:, None] * open_direction[1:] / 0.03])
    units = Units(np.zeros(L), np.ones(L), np.full(L, 1e4), 0, 0.0, 2.0, 1e4, True)
    prior = estimate_prior(J, np.einsum("aij,aj->ai", J, slopes), [np.arange(1, L), np.array([0])], units, wide=True)
    assert prior.hyper.variances[1] <= MOST_LEVELS * units.reward_variance
    assert np.sqrt(prior.covariance[0, 0]) < 5.0
