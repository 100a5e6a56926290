"""Compiled rounds are deciding and observing one by one, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.learners.rounds import play_rounds

K, D, L = 5, 6, 3
ROUNDS = 700
RECORDED = [0, 2, 5]


@pytest.fixture(scope="module")
def world():
    return sl.worlds.ConfoundedWorld(seed=3, n_arms=K, n_features=D, n_hidden=2, noise=0.2)


@pytest.fixture(scope="module")
def summary(world):
    log = world.sample_log(3_000, recorded=RECORDED, rng=np.random.default_rng(5))
    return sl.summarize_log(log, world.schema(RECORDED))


SETTINGS = {"alpha": 0.7, "delta": 0.2, "context_bound": 1.3, "weight_bound": 0.8}
NUMBERS = {"regularization": 2.3, "noise": 0.31, "prior_mean": 0.05, **SETTINGS}
AUTO = {"regularization": "auto", "noise": "auto", **SETTINGS}

MAKERS = {
    "OFUL": lambda s, w: sl.OFUL(K, D, **NUMBERS),
    "OFUL, auto": lambda s, w: sl.OFUL(K, D, **AUTO, radius="posterior"),
    "OFUL, printed": lambda s, w: sl.OFUL(K, D, **NUMBERS, radius="printed"),
    "ZeroFilledOFUL": lambda s, w: sl.ZeroFilledOFUL(s, **NUMBERS),
    "ZeroFilledOFUL, auto": lambda s, w: sl.ZeroFilledOFUL(s, **AUTO, radius="posterior"),
    "ProjectedOFUL": lambda s, w: sl.ProjectedOFUL(
        sl.SideInformation.from_log(s, w.cross_moments(RECORDED)), projected_weight_bound=0.6, **NUMBERS
    ),
    "ProjectedOFUL, auto": lambda s, w: sl.ProjectedOFUL(
        sl.SideInformation.from_log(s, w.cross_moments(RECORDED)), **AUTO
    ),
    "FusedOFUL": lambda s, w: sl.FusedOFUL(sl.BehaviorQueries(s), **NUMBERS),
    "FusedOFUL, auto": lambda s, w: sl.FusedOFUL(sl.BehaviorQueries(s)),
    "FusedOFUL, much doubt": lambda s, w: sl.FusedOFUL(sl.BehaviorQueries(s), alpha=1.7, safety=1.5),
    "FusedOFUL, no doubt": lambda s, w: sl.FusedOFUL(sl.BehaviorQueries(s, pooling=3.0), **AUTO, safety=0.0),
    "FusedOFUL, ipw": lambda s, w: sl.FusedOFUL(sl.BehaviorQueries(s, estimator="ipw"), radius="determinant", **AUTO),
    "FusedOFUL, R12 known": lambda s, w: sl.FusedOFUL(sl.KnownCrossMoments(s, w.cross_moments(RECORDED)), **AUTO),
    "FusedOFUL, one log of some arms": lambda s, w: sl.FusedOFUL(
        sl.KnownCrossMoments(s, w.cross_moments(RECORDED)), arms=[*range(K)], bias_bound=0.1
    ),
}


def rounds_of(world, seed: int):
    rng = np.random.default_rng(seed)
    X = np.ascontiguousarray(world.contexts(ROUNDS, rng))
    return X, world.potential_rewards(X, rng), world.behavior_actions(X, rng).astype(np.int64)


def one_by_one(learner, X, table, answers, rng) -> np.ndarray:
    played = []
    for x, rewards, answer in zip(X, table, answers, strict=True):
        if learner.needs == "action":
            learner.observe_behavior(x, learner.arms[answer])
        arm = learner.arms.index(learner.decide(x, rng=rng).arm)
        learner.observe(x, learner.arms[arm], rewards[arm])
        played.append(arm)
    return np.array(played)


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_to_the_last_bit(name, summary, world):
    X, table, answers = rounds_of(world, 8)
    quick, slow = MAKERS[name](summary, world), MAKERS[name](summary, world)
    rngs = np.random.default_rng(1), np.random.default_rng(1)
    given = answers if quick.needs == "action" else None
    # in pieces of uneven length, so that it stops between an answer and its round's end too
    pieces = [
        play_rounds(quick, X[i:j], table[i:j], None if given is None else given[i:j], rngs[0])
        for i, j in ((0, 1), (1, 40), (40, 333), (333, ROUNDS))
    ]
    assert all(piece is not None for piece in pieces)
    np.testing.assert_array_equal(np.concatenate(pieces), one_by_one(slow, X, table, answers, rngs[1]))
    assert rngs[0].random() == rngs[1].random()
    ours, theirs = quick.state(), slow.state()
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        assert np.asarray(value).tobytes() == np.asarray(theirs[key]).tobytes(), key
    assert len(set(np.concatenate(pieces).tolist())) > 1


def test_the_same_across_the_kernels_own_refreshes(rng):
    """After 1,024 rank-one updates an arm's caches are recomputed from its sums."""
    X, table = rng.normal(size=(2_500, 3)), rng.normal(size=(2_500, 2))
    quick, slow = (sl.OFUL(2, 3, **NUMBERS, radius="posterior") for _ in range(2))
    played = play_rounds(quick, X, table, None, rng)
    np.testing.assert_array_equal(played, one_by_one(slow, X, table, played, rng))
    assert quick.counts.max() > 1_024 > quick.updates.max()
    assert quick.covariances.tobytes() == slow.covariances.tobytes()


def test_doubt_makes_it_try_arms_in_the_kernel_too(summary, world):
    """Else the comparison above compares nothing of the trials."""
    X, table, answers = rounds_of(world, 8)
    doubting = MAKERS["FusedOFUL, much doubt"](summary, world)
    trusting = sl.FusedOFUL(sl.BehaviorQueries(summary), alpha=1.7, safety=0.0)
    one = play_rounds(doubting, X, table, answers, np.random.default_rng(1))
    other = play_rounds(trusting, X, table, answers, np.random.default_rng(1))
    assert (one != other).sum() > 10


def test_the_every_round_variant_chooses_the_same_arms(summary, world):
    """Its kernel keeps polynomials of ``1/t`` by rank one: the same numbers up to rounding, the same choices."""
    X, table, answers = rounds_of(world, 9)
    for settings in (NUMBERS, {**NUMBERS, "radius": "posterior"}, AUTO, {**AUTO, "radius": "posterior"}):
        quick, slow = (sl.RunningOFUL(sl.BehaviorQueries(summary, estimator="ipw"), **settings) for _ in range(2))
        played = play_rounds(quick, X, table, answers, np.random.default_rng(0))
        np.testing.assert_array_equal(played, one_by_one(slow, X, table, answers, np.random.default_rng(0)))
        for x in X[:5]:
            for ours, theirs in zip(quick.scores(x), slow.scores(x), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)


def test_paths_that_the_kernel_does_not_have_are_declined_before_anything_changes(summary, world):
    X, table, answers = rounds_of(world, 8)
    other = sl.FusedOFUL([sl.BehaviorQueries(summary), sl.BehaviorQueries(summary)])
    cases = [
        (sl.FusedOFUL(sl.BehaviorQueries(summary), query_budget=20), answers),
        (sl.FusedOFUL(sl.BehaviorQueries(summary), forgetting=0.99), answers),
        (sl.FusedOFUL(sl.BehaviorQueries(summary), radius="theory", regularization=1.0, noise=0.3), answers),
        (sl.FusedOFUL(sl.BehaviorQueries(summary), arms=[4, 3, 2, 1, 0]), answers),
        (sl.FusedOFUL(sl.BehaviorProbabilities(summary)), None),
        (sl.FusedThompson(sl.BehaviorQueries(summary)), answers),
        (other, answers),
    ]
    for learner, given in cases:
        rng = np.random.default_rng(1)
        before = {key: np.array(value) for key, value in learner.state().items()}
        assert play_rounds(learner, X, table, given, rng) is None
        assert rng.random() == np.random.default_rng(1).random()
        for key, value in learner.state().items():
            np.testing.assert_array_equal(value, before[key])
