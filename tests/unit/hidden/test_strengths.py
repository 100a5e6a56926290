"""How strongly arms' regressions are pulled together: before answers, and as answers make likely."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests import reference
from tests.unit.learners.histories import draw_problem

import sidelight as sl
from sidelight.hidden.pooling import Pool
from sidelight.hidden.strengths import BENT_GRID, LEVEL_GRID, OWN_GRID, SLOPE_GRID, first_own, own_likelihoods


def test_automatic_pooling_tells_alike_from_unlike(rng):
    """Arms that share one regression are pooled hard, arms that differ are not; the estimate moves accordingly."""
    p = draw_problem(rng, d=5, L=2, K=4)
    shared = rng.normal(size=(2, 3))
    unlike = 3.0 * rng.normal(size=(4, 2, 3))
    strengths = {}
    for name, B in (("alike", np.broadcast_to(shared, (4, 2, 3))), ("unlike", unlike)):
        queries = sl.BehaviorQueries(p.summary)
        for _ in range(400):
            a = int(rng.integers(4))
            x = np.empty(5)
            x_o = rng.normal(size=2)
            x[p.order] = np.concatenate([x_o, x_o @ B[a] + 0.3 * rng.normal(size=3)])
            queries.observe(x, a)
        strengths[name] = queries.pooling_strength()
        assert np.abs(queries.regression() - B).max() < 0.25
    assert strengths["alike"] > 20 * strengths["unlike"]


def test_before_the_first_answer_coefficients_have_their_expected_variance(rng):
    """``κ₀ = 1/E[1/κ₀]`` of a log-normal prior, here by drawing from it; 10⁶ draws, a tenth is many deviations."""
    draws = 40.0 * np.exp(1.5 * rng.normal(size=1_000_000))
    assert first_own(40.0) == pytest.approx(1.0 / np.mean(1.0 / draws), rel=0.1)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_first_strengths_of_arms_are_their_priors(rng, intercept):
    """``1/E[1/κ]`` of ``log κ ~ N(log 512p, 2²)``, and levels as they differ along ``w_h``, however many are hidden."""
    p, m = 4, 3
    schema = sl.Schema.for_arrays(p + m + intercept, recorded=p + intercept, n_arms=2)
    X = rng.normal(size=(200, p))
    X = np.column_stack([np.ones(200), X]) if intercept else X
    queries = sl.BehaviorQueries(sl.LogSummary.from_arrays(X, rng.integers(2, size=200), rng.normal(size=200), schema))
    # by the midpoint rule
    z = np.linspace(-10.0, 10.0, 20_001)
    expected = np.average(np.exp(-2.0 * z) / (512.0 * p), weights=np.exp(-0.5 * z * z))
    assert queries.pooling_strength() == pytest.approx(1.0 / expected, rel=1e-6)
    assert queries._strengths.levels == 1.25


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("alike", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n", [12, 90, 700])
def test_automatic_pooling_is_what_answers_make_likely(rng, n, alike, intercept):
    """``κ`` as ``1/E[1/κ]``, the most likely ``v``, the least ``κ₀`` nearly as likely as the best."""
    K, L, m = 4, 3, 2

    def recorded(count):
        x_o = rng.normal(size=(count, L)) + 0.5
        if intercept:
            x_o[:, 0] = 1.0
        return x_o

    schema = sl.Schema([f"x{i}" for i in range(L + m)], recorded=[f"x{i}" for i in range(L)])
    X0, a0 = recorded(600), rng.integers(K, size=600)
    X0[:, -1] += 0.5 * a0  # arms that the old policy gave to others
    queries = sl.BehaviorQueries(sl.summarize_log((X0, a0, rng.normal(size=600)), schema))
    B = rng.normal(size=(L, m)) + alike * rng.normal(size=(K, L, m))
    X_o, arms = recorded(n), rng.integers(K, size=n)
    H = np.einsum("ti,tij->tj", X_o, B[arms]) + rng.normal(size=(n, m)) + alike * arms[:, None]
    for x_o, h, a in zip(X_o, H, arms, strict=True):
        queries.observe(np.concatenate([x_o, h]), int(a))
    before = queries._strengths
    found, chances = queries._estimate_strengths()

    # coordinates: centred by the log, and last the level, which fades where recorded features speak for the arm
    keep = slice(1, None) if intercept else slice(None)
    centre = X0[:, keep].mean(axis=0)
    Z0 = np.column_stack([X0[:, keep] - centre, np.ones(600)])
    preferred = reference.arms_preferences(X0[:, keep], a0, K)
    Z, Y = np.column_stack([X_o[:, keep] - centre, np.ones(n)]), H - H.mean(axis=0)
    Z[:, -1] -= 0.1 * np.sum(Z[:, :-1] * preferred[arms], axis=1)
    D, p = Z0.T @ Z0 / 600, Z.shape[1] - 1
    # the regression within arms, whose levels are as far apart as they were last found to be
    total = reference.within_arms(Z, Y, arms, p, before.levels)
    ZZ, ZY, YY = total[: p + 1, : p + 1], total[: p + 1, p + 1 :], total[p + 1 :, p + 1 :]

    def weakly(value, middle, deviation=1.5):
        return -0.5 * (math.log(value / middle) / deviation) ** 2

    C = D[:p, :p]
    rest = 1.0 / (np.diag(C) * np.diag(np.linalg.inv(C)))
    guess = np.clip((p - 1) * rest.sum() / (1.0 - rest).sum() / 4.0, OWN_GRID[0], OWN_GRID[-1])
    owns = []
    for own in OWN_GRID:
        prior = np.diag([0.0] * p + [1e-6])
        prior[:p, :p] = own * C
        T = ZZ + prior
        left = 1.0 - np.einsum("im,im->m", ZY, np.linalg.solve(T, ZY)) / np.diag(YY)
        fit = -0.5 * (n + 1) * np.log(left + 1.0 / n).sum()
        fit += 0.5 * m * (p * math.log(own) - np.linalg.slogdet(T)[1])
        owns.append(fit + weakly(own, guess))
    own = OWN_GRID[np.flatnonzero(np.array(owns) >= max(owns) - 2.0 / (1.0 + n / (8.0 * (p + 1))))[0]]
    assert found.own == own

    prior = np.diag([0.0] * p + [1e-6])
    prior[:p, :p] = own * C
    T = ZZ + prior
    theta = np.linalg.solve(T, ZY)
    residual = YY - ZY.T @ theta - theta.T @ ZY + theta.T @ ZZ @ theta + np.diag(np.square(Y).sum(axis=0) / n)
    used = np.trace(np.linalg.solve(T, ZZ))
    residual /= n - used + 1.0

    free = n - used + m + 1

    def likelihood(slopes, levels):
        """Of what each arm's answers say beyond the pool, by the density of a matrix of normal variables."""
        covariance = np.linalg.inv(slopes * D)
        covariance[p, p] += levels
        squares, total = (m + 1) * residual, 0.0
        for a in range(K):
            own, off = Z[arms == a], (Y - Z @ theta)[arms == a]
            among = np.eye(len(own)) + own @ covariance @ own.T
            squares = squares + off.T @ np.linalg.solve(among, off)
            total -= 0.5 * m * np.linalg.slogdet(among)[1]
        # the covariance between hidden features takes its most likely value, squares/free
        total -= 0.5 * free * np.linalg.slogdet(squares)[1]
        return float(total) + weakly(slopes, 512.0 * p, 2.0) + weakly(levels, 1.25 / 1.5)

    values = np.array([[likelihood(k, v) for v in LEVEL_GRID] for k in SLOPE_GRID])
    _, j = np.unravel_index(values.argmax(), values.shape)
    weights = np.exp(values - values.max())
    variance = np.average(1.0 / SLOPE_GRID, weights=weights.sum(axis=1))
    i = np.argmin(np.abs(np.log(SLOPE_GRID * variance)))
    assert found[1:3] == pytest.approx((SLOPE_GRID[i], 1.5 * LEVEL_GRID[j]), rel=1e-12)
    # what was not looked at is far less likely
    likely = values > values.max() - 6.5
    np.testing.assert_allclose(chances[likely] - chances.max(), values[likely] - values.max(), atol=1e-6)
    assert (chances[~np.isfinite(chances)] == -np.inf).all()


def log_with_bends(seed, hidden_of):
    """Answers about a hidden feature that goes with a recorded column, by ``hidden_of``; splines of two columns."""
    rng = np.random.default_rng([seed, 1])
    schema = sl.Schema(["x", "y", "h"], ["x", "y"], intercept=True, derived="spline(x, 4) + spline(y, 4)")
    X, arms = rng.normal(size=(2_000, 2)), rng.integers(2, size=2_000)
    log = {"x": X[:, 0], "y": X[:, 1], "arm": arms, "reward": rng.normal(size=2_000)}
    queries = sl.BehaviorQueries(sl.summarize_log(log, schema))
    for x, y in rng.normal(size=(400, 2)):
        queries.observe({"x": x, "y": y, "h": hidden_of(x) + 0.7 * rng.normal()}, int(rng.integers(2)))
    return queries


def test_the_pull_of_bends_follows_what_hidden_columns_go_with(seed):
    """Of 400 answers a slope of 0.7 is 20 deviations, and so is that of a square."""
    straight, curved = log_with_bends(seed, lambda x: 0.7 * x), log_with_bends(seed, lambda x: 0.7 * (x * x - 1.0))
    assert straight._strengths.bent == BENT_GRID[-1]
    assert curved._strengths.bent == BENT_GRID[0]
    # errors of coefficients of bends, whose variance is one over the number of answers without a pull
    bends = straight._leveled.bent[: straight.summary.n_recorded]
    assert bends.sum() == 6
    assert np.square(straight.regression()[:, bends]).mean() < 0.5 / 400
    again = sl.BehaviorQueries.from_state(straight.summary, *straight.state())
    assert again._strengths == straight._strengths


@pytest.mark.parametrize("bent", [1.0, 8.0, 64.0])
def test_the_pooled_regression_is_pulled_in_the_metric_of_bends(seed, bent):
    """``(S11 + κ₀D_β)θ = S12``, written out, and ``log det D_β`` in the likelihood of ``β``."""
    told = log_with_bends(seed, lambda x: 0.4 * x)._told()
    n, c = told.frame.size, told.frame.constant
    root = np.diag(np.where(told.frame.bent, np.sqrt(bent), 1.0))
    pull = 8.0 * root @ told.D @ root
    pull[c, c] = 1e-6
    total = told.within(0.25).total
    theta = np.linalg.solve(total[:n, :n] + pull, total[:n, n:])
    np.testing.assert_allclose(Pool.of(told, 8.0, 0.25, bent).theta, theta, rtol=1e-6, atol=1e-9)

    def value(strength):
        W = root @ told.D @ root * strength
        W[c, c] = 1e-6
        T, prior = total[:n, :n] + W, np.delete(np.delete(W, c, 0), c, 1)
        left = 1.0 - total[:n, n] @ np.linalg.solve(T, total[:n, n]) / total[n, n] + 1.0 / told.answers
        slogdet = np.linalg.slogdet(T)[1] - np.linalg.slogdet(prior)[1]
        return -0.5 * ((told.answers + 1.0) * np.log(left) + slogdet) - 0.5 * (np.log(strength / 30.0) / 1.5) ** 2

    found = own_likelihoods(told, 30.0, 0.25, bent)
    plain = own_likelihoods(told, 30.0, 0.25)
    expected = np.array([value(strength) for strength in OWN_GRID[:12]])
    np.testing.assert_allclose(np.diff(found[:12]), np.diff(expected), rtol=1e-5, atol=1e-5)
    root = np.eye(n)
    assert found[3] - plain[3] == pytest.approx(expected[3] - value(OWN_GRID[3]), abs=1e-4)


def test_what_repeated_features_say_together_keeps_its_digits(rng):
    """Three copies of a recorded feature, pulled weakly: together they predict what the feature alone does."""
    X, arms = rng.normal(size=(300, 1)), rng.integers(2, size=300)
    contexts = rng.normal(size=(60, 1))
    hidden = 0.8 * contexts + 0.3 * rng.normal(size=(60, 1))
    answers, found = rng.integers(2, size=60), []
    # in other units copies are copies but for rounding
    for scales in ([1.0], [1.0, 3.7, 0.021]):
        schema = sl.Schema.for_arrays(len(scales) + 1, recorded=len(scales), n_arms=2)
        queries = sl.BehaviorQueries(sl.LogSummary.from_arrays(X * scales, arms, rng.normal(size=300), schema))
        for x, h, arm in zip(contexts * scales, hidden, answers, strict=True):
            queries.observe(np.append(x, h), int(arm))
        told = queries._told()
        pool = Pool.of(told, OWN_GRID[0], 1.25, 1.0)
        slopes = told.frame.scale[: len(scales)] * pool.theta[: len(scales), 0] * told.unit[0]
        found.append(float(np.dot(slopes, scales)))
        # T⁻¹T is the identity in the directions that contexts have
        gram = pool.gram - pool.pull
        np.testing.assert_allclose(gram @ pool.solved(pool.gram), gram, rtol=1e-11, atol=1e-11 * np.abs(gram).max())
    assert found[1] == pytest.approx(found[0], rel=1e-9)
