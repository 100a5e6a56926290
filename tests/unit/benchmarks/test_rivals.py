"""The rivals are what their papers describe: limits, identities, and the behaviour that they report."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.paired import Setting, play
from benchmarks.rivals.bounded import AnchorTS, EllipsoidalMinUCB, HybridLinUCB
from benchmarks.rivals.data import DATA, DataSetting
from benchmarks.rivals.deconfounded import DeconfoundedWarmStart, doubly_debiased_lasso, lasso
from benchmarks.rivals.floor import floor_regret, prior
from benchmarks.rivals.practice import ArrowCB, FrozenRidge, ImputedStart, ZeroStart
from benchmarks.rivals.ridge import Sums, noise_of, zero_filled
from benchmarks.synthetic import Cell, SyntheticWorld

import sidelight as sl

SMALL = Cell("small", arms=4, recorded=3, hidden=2, rows=4_000)


def setting(rounds: int = 300, seed: int = 1, cell: Cell = SMALL) -> Setting:
    return Setting(cell, seed, rounds)


def test_sums_keep_the_inverse_and_the_ridge_solution():
    """At λ = 7: ``V⁻¹V = I`` and ``ŵ = V⁻¹Y`` after 2,000 updates."""
    rng = np.random.default_rng(0)
    V, Y = np.tile(7.0 * np.eye(5), (2, 1, 1)), rng.normal(size=(2, 5))
    sums = Sums(V, Y)
    V, Y = V.copy(), Y.copy()
    for _ in range(2_000):
        a, x, r = int(rng.integers(2)), rng.normal(size=5), rng.normal()
        sums.add(a, x, r)
        V[a] += np.outer(x, x)
        Y[a] += r * x
    np.testing.assert_allclose(sums.inverses @ V, np.tile(np.eye(5), (2, 1, 1)), atol=1e-9)
    np.testing.assert_allclose(sums.weights, np.linalg.solve(V, Y[:, :, None])[:, :, 0], rtol=1e-9)


def choices(learner, setting):
    """The arms that a learner takes."""
    X, rewards, _, _, _ = setting.draws
    rng, out = np.random.default_rng(5), []
    for t, x in enumerate(X):
        arm = learner.decide(x, rng=rng).arm
        learner.observe(x, arm, rewards[t, arm])
        out.append(arm)
    return out


class OnlineLinUCB(ZeroStart):
    """LinUCB without a log, for the limits."""

    def __init__(self, summary, alpha, regularization):
        super().__init__(summary, alpha, regularization)
        zeros, moments = (np.zeros_like(v) for v in zero_filled(summary))
        self.sums = Sums(regularization * np.eye(self.n_features) + zeros, moments)


@pytest.mark.parametrize("kind", [HybridLinUCB, EllipsoidalMinUCB])
def test_with_any_bias_possible_the_log_counts_for_nothing(kind):
    here = setting()
    free = choices(kind(here.summary, alpha=0.7, regularization=2.0, bias=1e12), here)
    assert free == choices(OnlineLinUCB(here.summary, 0.7, 2.0), here)


def test_without_bias_the_hybrid_never_has_a_wider_bound_than_either_source():
    here = setting()
    learner = HybridLinUCB(here.summary, alpha=0.7, regularization=2.0, bias=0.0)
    assert choices(learner, here) != choices(OnlineLinUCB(here.summary, 0.7, 2.0), here)
    x = here.draws[0][0]
    assert (learner.pooled.norms(x) <= learner.online.norms(x) + 1e-12).all()


def test_the_ellipsoid_finds_the_direction_of_the_bias():
    """A log that is wrong about one feature alone: after 4,000 rounds the largest allowance is that feature's."""
    rng = np.random.default_rng(3)
    weights = rng.normal(size=(2, 4))
    false = weights.copy()
    false[:, 2] += 3.0
    X = rng.normal(size=(5_000, 4))
    arms = rng.integers(2, size=5_000)
    r = (X * false[arms]).sum(axis=1) + 0.1 * rng.normal(size=5_000)
    summary = sl.LogSummary.from_arrays(X, arms, r, sl.Schema.for_arrays(4, recorded=4, n_arms=2))
    learner = EllipsoidalMinUCB(summary, alpha=1.0, regularization=1.0, bias=0.3)
    for x in rng.normal(size=(4_096, 4)):
        a = int(rng.integers(2))
        learner.observe(x, a, float(weights[a] @ x + 0.1 * rng.normal()))
    assert (learner.allowance.argmax(axis=1) == 2).all()
    assert (np.sort(learner.allowance, axis=1)[:, -2] < 0.2 * learner.allowance[:, 2]).all()


def test_the_anchor_keeps_the_index_between_the_online_draw_and_the_online_mean():
    """A hybrid draw that lies outside the two is replaced by one of them: the median's point."""
    here = setting()
    learner = AnchorTS(here.summary, alpha=1.0, regularization=1.0)
    learner.pooled.weights += 1e6  # a log that promises everything
    mean = learner.online.estimates(here.draws[0][0])
    picks = [learner.decide(here.draws[0][0], rng=np.random.default_rng(s)).arm for s in range(200)]
    assert np.allclose(mean, 0.0)
    assert len(set(picks)) == len(learner.arms)  # the promise, which is the same for every arm, decides nothing


def test_imputed_rows_are_the_rows_a_linear_imputer_would_fill():
    here = setting(rounds=64)
    learner = ImputedStart(here.summary, alpha=0.5, regularization=3.0)
    choices(learner, here)
    X = here.draws[0]
    recorded, hidden = np.asarray(here.summary.recorded), np.asarray(here.summary.hidden)
    ridge = 1e-6 * np.trace(X[:, recorded].T @ X[:, recorded]) / len(recorded) * np.eye(len(recorded))
    B = np.linalg.solve(X[:, recorded].T @ X[:, recorded] + ridge, X[:, recorded].T @ X[:, hidden])
    world = SyntheticWorld(SMALL, 1)
    rng = np.random.default_rng([1, 2])
    rows = world.contexts(SMALL.rows, rng)
    arms = world.behavior_actions(rows, rng)
    filled = rows.copy()
    filled[:, hidden] = rows[:, recorded] @ B
    for a in range(4):
        V = 3.0 * np.eye(X.shape[1]) + filled[arms == a].T @ filled[arms == a] + learner.grams[a]
        np.testing.assert_allclose(learner.sums.inverses[a] @ V, np.eye(X.shape[1]), atol=1e-6)


def test_frozen_never_moves():
    here = setting()
    learner = FrozenRidge(here.summary, regularization=2.0)
    before = learner.sums.weights.copy()
    choices(learner, here)
    assert (learner.sums.weights == before).all()


def test_arrow_drops_a_log_that_lies_and_keeps_one_that_does_not():
    """Two arms, weights of opposite sign in the lying log, 3,000 rounds, 5 % exploration."""

    def winner(sign: float) -> float:
        rng = np.random.default_rng(8)
        weights = np.array([[1.0, 0.5], [-1.0, 0.2]])
        X, arms = rng.normal(size=(3_000, 2)), rng.integers(2, size=3_000)
        r = sign * (X * weights[arms]).sum(axis=1) + 0.2 * rng.normal(size=3_000)
        summary = sl.LogSummary.from_arrays(X, arms, r, sl.Schema.for_arrays(2, recorded=2, n_arms=2))
        learner = ArrowCB(summary, alpha=0.5, regularization=0.5)
        for x in rng.normal(size=(3_000, 2)):
            arm = learner.decide(x, rng=rng).arm
            learner.observe(x, arm, float(weights[arm] @ x + 0.2 * rng.normal()))
        return learner.WEIGHTS[learner._best()]

    assert winner(-1.0) <= 0.125
    assert winner(1.0) > 0.0


def test_the_debiased_lasso_covers_where_nothing_is_hidden():
    """40 fits of 6 weights, 95 % intervals: fewer than 216 of 240 covered has probability below 1e-3."""
    covered = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(500, 6)) * [1.0, 2.0, 0.5, 1.0, 3.0, 1.0]
        beta = np.array([1.0, 0.0, -2.0, 0.0, 0.3, 0.0])
        y = X @ beta + rng.normal(size=500)
        R = np.linalg.qr(np.column_stack([X, y]), mode="r")
        estimate, deviation = doubly_debiased_lasso(R[:, :-1], R[:, -1], 500)
        covered += int((abs(estimate - beta) < 1.96 * deviation).sum())
    assert covered >= 216


def test_the_debiased_lasso_removes_dense_confounding():
    """The behaviour its authors report: a strong hidden factor moves all of more features than there are rows."""
    ours, plain = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        p, n = 120, 80
        H, loadings = rng.normal(size=n), rng.normal(size=p)
        X = np.outer(H, loadings) + rng.normal(size=(n, p))
        beta = np.zeros(p)
        beta[:3] = 1.0
        y = X @ beta + 4.0 * H + 0.3 * rng.normal(size=n)
        estimate, _ = doubly_debiased_lasso(X, y, n, wanted=np.arange(3))
        ours.append(np.linalg.norm(estimate - 1.0))
        plain.append(np.linalg.norm(lasso(X, y, np.sqrt(2.0 * np.log(p)))[:3] - 1.0))
    assert np.mean(ours) < 0.8 * np.mean(plain)


def test_the_warm_start_has_the_log_s_estimates_and_a_wide_prior_for_the_rest():
    here = setting()
    learner = DeconfoundedWarmStart(here.summary, alpha=0.5, regularization=0.1)
    hidden = [int(np.flatnonzero(learner.kept == j)[0]) for j in here.summary.hidden]
    assert np.allclose(learner.sums.weights[:, hidden], 0.0)
    assert np.allclose(np.diagonal(learner.sums.inverses, axis1=1, axis2=2)[:, hidden], 10.0)


def test_the_floor_lies_below_every_learner():
    """Means over six seeds in the base world, where the fused learner has more than ten times as much."""
    floors, fused = [], []
    for seed in range(6):
        here = setting(400, seed, Cell("base"))
        floors.append(floor_regret(here)[-1])
        fused.append(play(sl.FusedOFUL(sl.BehaviorQueries(here.summary)), here)[-1])
    assert np.mean(floors) < 0.5 * np.mean(fused)


def test_the_floor_s_prior_is_that_of_the_worlds():
    """Mean and covariance of 4,000 drawn arms against the stated ones, in raw units."""
    cell = Cell("", arms=4_000, recorded=2, hidden=1, units=((60.0, 12.0), (0.0, 3.0), (5.0, 0.1)), reward_shift=7.0)
    here = Setting(cell, 0, 1)
    precision, mean = prior(here)
    drawn = here.world.weights
    half = np.linalg.cholesky(precision)
    z = (drawn - mean) @ half
    np.testing.assert_allclose(z.T @ z / len(z), np.eye(4), atol=0.1)
    assert abs(z.mean(axis=0)).max() < 0.08


def test_the_noise_is_that_of_the_log():
    here = setting()
    assert noise_of(here.summary) ** 2 == pytest.approx(float(here.summary.pooled_residual_variance))


@pytest.mark.parametrize("name", ["tumours", "wine"])
def test_a_data_set_is_a_world_with_a_confounded_log(name):
    """One optimal arm a row, rewards of 0 and 1, half the features hidden; over twelve seeds the old policy, a noisy
    fit to all features, is better than chance."""
    here = DataSetting(DATA[name], 3, 500)
    X, rewards, means, _, _ = here.draws
    assert X.shape == (500, here.world.n_features)
    assert (means.max(axis=1) == 1.0).all()
    assert (rewards == means).all()
    assert here.summary.n_recorded < here.world.n_features
    gains = []
    for seed in range(12):
        _, _, means, answers, _ = DataSetting(DATA[name], seed, 500).draws
        gains.append(means[np.arange(500), answers].mean() - means.mean())
    assert np.mean(gains) > 0.05
    assert play(sl.OFUL(here.world.n_arms, here.world.n_features, noise=0.5), here)[-1] < 500 * (1 - means.mean())
