"""No learner ever holds a NaN, and no single row can undo it."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pyarrow as pa
import pytest

import sidelight as sl
from sidelight.errors import SidelightWarning, WildValueWarning
from sidelight.learners.wild import Ranges, weight_of
from sidelight.side.coordinates import Tally, Units

AUTO = {"regularization": "auto", "radius": "posterior"}
K, D, L = 3, 5, 3
NAMES = [f"x{j}" for j in range(D)]
SCHEMA = sl.Schema(NAMES, NAMES[:L], arms=range(K))


def summary_of(rng, rewards):
    X = rng.normal(size=(400, L))
    arms = np.arange(400) % K
    return sl.LogSummary.from_arrays(X, arms, rewards(X, arms), SCHEMA)


LEARNERS = {
    "OFUL": lambda log: sl.OFUL(K, D, **AUTO),
    "zero-filled": lambda log: sl.ZeroFilledOFUL(log, **AUTO),
    "every round": lambda log: sl.RunningOFUL(sl.BehaviorQueries(log, estimator="ipw"), **AUTO),
    "projected": lambda log: sl.ProjectedOFUL(sl.SideInformation.from_log(log, np.zeros((K, L, D - L))), **AUTO),
    "epochs": lambda log: sl.EpochOFUL(sl.BehaviorQueries(log), 300, **AUTO),
    "fused": lambda log: sl.FusedOFUL(sl.BehaviorQueries(log)),
    "sampling": lambda log: sl.FusedThompson(sl.BehaviorQueries(log)),
}


@pytest.mark.parametrize("reward", [0.0, 5.0])
@pytest.mark.parametrize("zeros", [1, 20, 150])
@pytest.mark.parametrize("learner", LEARNERS)
def test_rewards_that_are_all_alike_leave_finite_scores(rng, learner, zeros, reward):
    one = LEARNERS[learner](summary_of(rng, lambda X, arms: np.full(len(X), reward)))
    W = rng.normal(size=(K, D))
    for t in range(zeros + 30):
        x = rng.normal(size=D)
        if one.needs:
            one.observe_behavior(x, int(rng.integers(K)))
        decision = one.decide(x, rng=rng)
        one.observe(x, decision.arm, reward if t < zeros else float(x @ W[decision.arm]))
        estimates, widths = one.scores(x)
        assert np.isfinite(estimates).all()
        assert np.isfinite(widths).all()
        assert (widths >= 0.0).all()
    assert one.automatic.variance > 0.0


def test_zeros_at_first_do_not_decide_for_ever(rng):
    W = rng.normal(size=(K, D))
    one, right = sl.OFUL(K, D, **AUTO), []
    for t in range(600):
        x = rng.normal(size=D)
        arm = one.decide(x).arm
        one.observe(x, arm, 0.0 if t < 20 else float(x @ W[arm] + 0.1 * rng.normal()))
        right.append(arm == (W @ x).argmax())
    assert np.mean(right[-200:]) > 0.85


def units_of(X, rewards, constant=None):
    tally = Tally.empty(X.shape[1])
    tally.add(slice(None), len(X), X.sum(axis=0), (X * X).sum(axis=0))
    tally.add_rewards(len(rewards), rewards.sum(), (rewards * rewards).sum())
    return Units.of(tally, constant)


def test_what_is_wild(rng):
    X, rewards = rng.normal(size=(100, 3)), 10.0 * rng.normal(size=100)
    ranges = Ranges.of(units_of(X, rewards), np.arange(3))
    for value, wild in ((15.0, False), (-25.0, True), (1e6, True)):
        found = ranges.wild(np.array([0.0, value, 0.0]))
        assert [v.position for v in found] == ([1] if wild else [])
        assert ranges.usual(np.array([0.0, value, 0.0]), 0.0) is not wild
    # a reward's limit is three times a feature's
    assert not ranges.wild(np.zeros(3), 400.0)
    (reward,) = ranges.wild(np.zeros(3), 1e9)
    assert (reward.position, reward.value) == (None, 1e9)
    assert weight_of([reward]) == pytest.approx((60.0 * np.sqrt((rewards**2).mean()) / 1e9) ** 2)
    assert weight_of([]) == 1.0


def test_a_flag_that_was_seen_once_is_never_wild():
    for n in (50, 400, 5_000):
        X = np.zeros((n, 1))
        X[3] = 1.0
        assert not Ranges.of(units_of(X, np.ones(n)), np.arange(1)).wild(np.ones(1))


def test_few_values_call_only_slips_of_many_orders_wild(rng):
    X, rewards = rng.normal(size=(6, 2)), rng.normal(size=6)
    ranges = Ranges.of(units_of(X, rewards), np.arange(2))
    assert not ranges.wild(np.full(2, 100.0), 100.0)
    assert len(ranges.wild(np.full(2, 1e6), 1e6)) == 3
    assert not Ranges.of(units_of(X[:3], rewards[:3]), np.arange(2)).wild(np.full(2, 1e6), 1e6)


def test_the_first_value_that_differs_is_new_not_wild():
    ranges = Ranges.of(units_of(np.full((50, 1), 0.1), np.zeros(50), None), np.arange(1))
    assert ranges.usual(np.array([0.1]), 0.0)
    assert ranges.new(np.array([0.1]), 3.0)
    assert not ranges.wild(np.array([0.1]), 3.0)


def run(make, seed, slip, n=500, at=200):
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(K, D))
    one = make(summary_of(rng, lambda X, arms: (X * W[arms, :L]).sum(axis=1) + rng.normal(size=len(X))))
    right = []
    for t in range(n):
        x = rng.normal(size=D)
        rewards = W @ x + 0.3 * rng.normal()
        seen = x.copy()
        if t == at:
            seen, rewards = slip(seen, rewards)
        if one.needs:
            one.observe_behavior(seen, int(rng.integers(K)))
        arm = one.decide(seen).arm
        one.observe(seen, arm, float(rewards[arm]))
        right.append(arm == (W @ x).argmax())
    return np.mean(right[-200:]), one


@functools.cache
def run_without_a_slip(learner, seed):
    """How often it took the best arm; the same for every slip."""
    return run(LEARNERS[learner], seed, lambda x, rewards: (x, rewards))[0]


def one_feature(j, value):
    def slip(x, rewards):
        x[j] = value
        return x, rewards

    return slip


SLIPS = {
    "recorded": one_feature(1, 1e6),
    "hidden": one_feature(D - 1, -1e6),
    "reward": lambda x, rewards: (x, rewards + 1e9),
}


@pytest.mark.parametrize("at", [8, 200])
@pytest.mark.parametrize("slip", SLIPS)
@pytest.mark.parametrize("learner", ["OFUL", "zero-filled", "every round", "fused"])
def test_one_wild_value_does_not_undo_what_was_learned(seed, learner, slip, at):
    clean = run_without_a_slip(learner, seed)
    with pytest.warns(WildValueWarning, match="wild value"):
        slipped, one = run(LEARNERS[learner], seed, SLIPS[slip], at=at)
    assert slipped > clean - 0.06
    assert one.automatic.wild_rows >= 1


def test_a_unit_that_really_changed_is_followed(rng):
    W = rng.normal(size=(K, D))
    one, right = sl.OFUL(K, D, **AUTO), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SidelightWarning)
        for t in range(3_000):
            x = rng.normal(size=D)
            mean = W @ x
            if t >= 300:
                x[0] *= 1_000.0  # grams instead of kilograms from now on
            arm = one.decide(x).arm
            one.observe(x, arm, float(mean[arm] + 0.1 * rng.normal()))
            right.append(arm == mean.argmax())
    assert one.automatic.ranges.usual(np.array([3_000.0, 0.0, 0.0, 0.0, 0.0]), 0.0)
    # what was learned in the old unit is never forgotten, but the other features are learned again
    assert np.mean(right[-500:]) > 0.6


@pytest.mark.parametrize("learner", ["OFUL", "zero-filled", "every round", "fused"])
def test_a_shift_shifts_the_means_of_wild_rows_too(rng, learner):
    # with an intercept a wild row counts for its weight in numbers too, and once corrected for what is left of it
    schema = sl.Schema(NAMES, NAMES[:L], arms=range(K), intercept=True)
    X, W = rng.normal(size=(300, D)), rng.normal(size=(K, D))
    X[250, D - 1] = 1e4
    arms, log_X, log_arms = rng.integers(K, size=300), rng.normal(size=(200, L)), np.arange(200) % K
    units = []
    for shift, level in ((np.zeros(D), 0.0), (rng.normal(size=D) * 5.0, 90.0)):
        rewards = (X[:, :-1] * W[arms, :-1]).sum(axis=1) + level
        table = {name: log_X[:, j] + shift[j] for j, name in enumerate(NAMES[:L])}
        log = sl.summarize_log(pa.table({**table, "arm": log_arms, "reward": log_X[:, 0] + level}), schema)
        one = sl.OFUL(K, D + 1, schema=schema, **AUTO) if learner == "OFUL" else LEARNERS[learner](log)
        for t in range(300):
            if one.needs:
                one.observe_behavior(np.append(1.0, X[t] + shift), int(arms[t]))
            x, place = np.append(1.0, X[t] + shift), (arms[t] + 1) % K
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", WildValueWarning)
                if t == 250:
                    receipt_of_wild = one.receipt(x, rewards[t], int(place))
                one.observe(x, int(place), rewards[t])
        if learner != "every round":
            at = (np.append(1.0, X[250] + shift), int((arms[250] + 1) % K), rewards[250])
            one.correct(*at, rewards[250] + 1.0, receipt=receipt_of_wild)
        one._relearn()
        found = one.automatic.units
        order = one.order if learner == "every round" else one.reduction.order
        known = np.where(found.scales < 1e6, found.centres - np.append(0.0, shift)[order], 0.0)
        units.append([*known, *found.scales, found.reward_centre - level, found.reward_variance])
        assert one.automatic.wild_rows > 0
    np.testing.assert_allclose(units[1], units[0], rtol=1e-8, atol=1e-8)


def test_a_batch_treats_wild_rows_as_single_calls_do(rng):
    X, arms, rewards = rng.normal(size=(300, D)), rng.integers(K, size=300), rng.normal(size=300)
    X[100, 2], rewards[200] = 1e7, -1e8
    single, batch = sl.OFUL(K, D, **AUTO), sl.OFUL(K, D, **AUTO)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SidelightWarning)
        for x, arm, reward in zip(X, arms, rewards, strict=True):
            single.observe(x, int(arm), float(reward))
        batch.observe_many(X, arms.tolist(), rewards)
    assert batch.automatic.wild_rows == single.automatic.wild_rows == 2
    x = rng.normal(size=D)
    np.testing.assert_allclose(batch.scores(x), single.scores(x), rtol=1e-9)


def test_warnings_thin_out_and_files_keep_the_ranges(rng, tmp_path):
    one = sl.OFUL(K, D, **AUTO)
    for _ in range(200):
        one.observe(rng.normal(size=D), 0, float(rng.normal()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(9):
            x = rng.normal(size=D)
            x[2] = 1e8
            one.observe(x, 1, 0.0)
    # the 1st, 2nd, 4th and 8th
    assert len([w for w in caught if w.category is WildValueWarning]) == 4
    assert "Feature 2" in str(caught[0].message)
    one.save(tmp_path / "learner")
    twin = sl.load_learner(tmp_path / "learner")
    assert twin.automatic.wild_rows == 9
    np.testing.assert_array_equal(twin.automatic.ranges.high, one.automatic.ranges.high)


def test_a_proven_sandwich_of_a_handful_of_rows_says_nothing_and_does_not_fail(rng):
    log = {f"x{j}": rng.normal(size=5) for j in range(L)} | {"arm": [0, 1, 2, 1, 0], "reward": rng.normal(size=5)}
    hidden = sl.BehaviorQueries(sl.summarize_log(log, SCHEMA, sandwich=True))
    one = sl.FusedOFUL(hidden, radius="theory", regularization=1.0, noise=0.5, sandwich=True)
    for _ in range(30):
        x = rng.normal(size=D)
        one.observe_behavior(x, int(rng.integers(K)))
        one.observe(x, one.decide(x).arm, float(rng.normal()))
    assert np.isfinite(one.covariances).all()


def test_a_log_that_recorded_no_feature_at_all(rng):
    log = {"arm": np.arange(300) % K, "reward": rng.normal(size=300) + np.arange(300) % K}
    for intercept in (False, True):
        schema = sl.Schema(NAMES, [], arms=range(K), intercept=intercept)
        one = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(log, schema)))
        for _ in range(60):
            x = np.append(np.ones(int(intercept)), rng.normal(size=D))
            one.observe_behavior(x, int(rng.integers(K)))
            one.observe(x, one.decide(x).arm, float(x.sum() + rng.normal()))
        assert np.isfinite(one.covariances).all()
        assert one._spread_of_logs(one.automatic.units) is None


def test_logs_that_lack_each_others_columns_need_no_units_before_the_first_answer(rng):
    X, W = rng.normal(size=(300, D)), rng.normal(size=(K, D))
    arms, units = np.arange(300) % K, 2.0 ** np.array([3, -2, 0, 5, -7])
    rewards = (X * W[arms]).sum(axis=1) + rng.normal(size=300)

    def learner(units):
        logs = {}
        for columns in ([0, 1, 2], [2, 3]):
            schema = sl.Schema(NAMES, [NAMES[j] for j in columns], arms=range(K))
            summary = sl.LogSummary.from_arrays((X * units)[:, columns], arms, rewards, schema)
            logs[str(columns)] = sl.BehaviorQueries(summary)
        return sl.FusedOFUL(logs)

    plain, scaled = learner(np.ones(D)), learner(units)
    for t in range(20):
        x = rng.normal(size=D)
        for one, other in zip(plain.scores(x), scaled.scores(x * units), strict=True):
            np.testing.assert_array_equal(one, other)
        for one, unit in ((plain, 1.0), (scaled, units)):
            if t > 5:
                one.observe_behavior(x * unit, t % K)
            one.observe(x * unit, t % K, float(x[0]))


@pytest.mark.parametrize("value", [0.0, 5.0])
def test_a_first_value_is_new_whatever_it_is_and_never_wild(value):
    ranges = Ranges.of(Units.of(Tally.empty(3), 0), np.arange(3))
    x = np.array([1.0, value, value])
    assert ranges.new(x, value)
    assert not ranges.wild(x, value)
