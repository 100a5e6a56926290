"""The ends of the scale: nothing recorded is OFUL to the last bit, everything recorded leaves nothing to learn."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.learners.histories import RADII, draw_problem, draw_settings

import sidelight as sl
from sidelight.errors import UnderdeterminedError


def same_bits(one, other, X, arms, rewards):
    """Both learners through the same rounds, past a refresh of the caches."""
    for t, (x, a, r) in enumerate(zip(X, arms, rewards, strict=True)):
        if t % 97 == 0:
            for left, right in zip(one.scores(x), other.scores(x), strict=True):
                assert left.tobytes() == right.tobytes()
            assert one.decide(x) == other.decide(x)
        one.observe(x, a, r)
        other.observe(x, a, r)


@pytest.mark.parametrize("given", ["no rows", "rows of zeros", "structured"])
@pytest.mark.parametrize("radius", RADII)
def test_nothing_recorded_is_oful_bit_for_bit(rng, radius, given):
    K, d, n = 3, 5, 3500
    settings = draw_settings(rng, K, d, radius).learner
    if given == "no rows":
        side = sl.SideInformation([np.zeros((0, d))] * K, [np.zeros(0)] * K)
    elif given == "rows of zeros":
        side = sl.SideInformation([np.zeros((2, d))] * K, [np.zeros(2)] * K)
    else:
        side = sl.SideInformation.structured(draw_problem(rng, d=d, L=0, K=K).summary, np.zeros((K, 0, d)))
    X, arms, rewards = rng.normal(size=(n, d)), rng.integers(K, size=n).tolist(), rng.normal(size=n)
    same_bits(sl.ProjectedOFUL(side, **settings), sl.OFUL(K, d, **settings), X, arms, rewards)


def test_a_zero_filled_log_without_recorded_features_is_oful_with_a_larger_count(rng):
    """Nothing was recorded, so the log adds nothing to V and Y; only the printed radius sees its rows."""
    p = draw_problem(rng, d=4, L=0, K=2)
    settings = draw_settings(rng, 2, 4, "determinant").learner
    X, arms, rewards = rng.normal(size=(1200, 4)), rng.integers(2, size=1200).tolist(), rng.normal(size=1200)
    same_bits(sl.ZeroFilledOFUL(p.summary, **settings), sl.OFUL(2, 4, **settings), X, arms, rewards)


@pytest.mark.parametrize("given", ["any matrix", "structured"])
@pytest.mark.parametrize("radius", RADII)
def test_everything_recorded_has_width_zero_and_never_changes(rng, radius, given):
    K, d = 3, 4
    p = draw_problem(rng, d=d, L=d, K=K)
    settings = draw_settings(rng, K, d, radius).learner
    if given == "structured":
        side = sl.SideInformation.from_log(p.summary, np.zeros((K, d, 0)))
    else:
        M = [rng.normal(size=(d, d)) for _ in range(K)]
        side = sl.SideInformation(M, [M[a] @ p.b[a] for a in range(K)])
    learner = sl.ProjectedOFUL(side, **settings)
    x = rng.normal(size=d)
    before = learner.scores(x)
    np.testing.assert_allclose(before[0], [float(x @ p.b[a]) for a in range(K)], rtol=1e-9)
    assert before[1].tolist() == [0.0] * K
    learner.observe_many(rng.normal(size=(50, d)), rng.integers(K, size=50).tolist(), 100.0 * rng.normal(size=50))
    after = learner.scores(x)
    assert before[0].tobytes() == after[0].tobytes()
    assert after[1].tolist() == [0.0] * K


@pytest.mark.parametrize("make", [lambda h: sl.EpochOFUL(h, 50), sl.RunningOFUL], ids=["epoch", "running"])
def test_everything_recorded_leaves_the_learners_of_the_hidden_half_nothing_to_learn(rng, make):
    p = draw_problem(rng, d=4, L=4, K=2)
    learner = make(sl.BehaviorQueries(p.summary))
    learner.observe(rng.normal(size=4), 0, 1.0)
    learner.observe_behavior(rng.normal(size=4), 1)
    learner.observe(rng.normal(size=4), 1, 1.0)
    x = rng.normal(size=4)
    estimates, widths = learner.scores(x)
    np.testing.assert_allclose(estimates, [float(x @ p.b[a]) for a in range(2)], rtol=1e-9)
    assert widths.tolist() == [0.0, 0.0]


def test_fewer_rows_than_recorded_features_is_an_error_of_the_hard_learners(rng):
    schema = sl.Schema.for_arrays(5, recorded=3, n_arms=2)
    # arm 1 has two rows for three recorded features
    arms = np.array([0] * 9 + [1] * 2)
    summary = sl.LogSummary.from_arrays(rng.normal(size=(11, 3)), arms, rng.normal(size=11), schema)
    for make in (
        lambda: sl.SideInformation.from_log(summary, np.zeros((2, 3, 2))),
        lambda: sl.EpochOFUL(sl.BehaviorQueries(summary), 100),
        lambda: sl.RunningOFUL(sl.BehaviorQueries(summary)),
    ):
        with pytest.raises(UnderdeterminedError, match="1 has 2"):
            make()
    sl.ZeroFilledOFUL(summary)  # fills zeros, needs no b


def test_weights_of_an_arm_reproduce_its_estimate(rng):
    p = draw_problem(rng, d=6, L=3, K=3)
    queries = sl.BehaviorQueries(p.summary, estimator="ipw")
    learners = [
        sl.OFUL(3, 6, regularization=0.3),
        sl.ProjectedOFUL(sl.SideInformation.from_log(p.summary, rng.normal(size=(3, 3, 3)))),
        sl.ZeroFilledOFUL(p.summary),
        sl.RunningOFUL(queries),
        sl.EpochOFUL(queries, 100),
    ]
    X, arms, rewards = rng.normal(size=(30, 6)), rng.integers(3, size=30).tolist(), rng.normal(size=30)
    for learner in learners:
        for x, a, r in zip(X, arms, rewards, strict=True):
            learner.observe_behavior(x, a)
            learner.observe(x, a, r)
        expected = [float(X[0] @ learner.weights_of(a)) for a in range(3)]
        np.testing.assert_allclose(learner.scores(X[0])[0], expected, rtol=1e-12)
