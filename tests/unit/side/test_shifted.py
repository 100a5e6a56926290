"""Contexts of another population than the log's: how far it has moved, and what that does to a log's levels."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.hidden.sums import AnswerSums
from sidelight.side.shifted import PopulationShift, level_bias
from sidelight.side.trust import AnswersTest

NAMES = ["a", "b", "c", "d", "e"]


def setting(rng, *, intercept=True, moved=0.0, answers=400, unit=1.0, offset=0.0):
    """A log that recorded three of five features, and answers at contexts whose means have moved."""
    schema = sl.Schema(NAMES, NAMES[:3], arms=["x", "y"], intercept=intercept)
    mix = np.eye(5) + 0.5 * np.eye(5, k=1)

    def contexts(n, shift):
        X = offset + unit * (1.0 + (rng.standard_normal((n, 5)) + shift) @ mix)
        return np.column_stack([np.ones(n), X]) if intercept else X

    X = contexts(4_000, 0.0)
    log = sl.LogSummary.from_arrays(X[:, schema.recorded_index], rng.choice(["x", "y"], 4_000), X[:, -1], schema)
    hidden = sl.BehaviorQueries(log)
    for x, arm in zip(contexts(answers, moved), rng.choice(["x", "y"], answers), strict=True):
        hidden.observe(x, str(arm))
    assert isinstance(hidden.sums, AnswerSums)
    return log, hidden.sums


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("moved", [0.5, 2.0])
def test_the_distance_is_that_of_the_means(rng, intercept, moved):
    # with the features whitened each of the three has moved by ``moved`` deviations: E ρ² = moved²
    log, sums = setting(rng, intercept=intercept, moved=moved)
    assert PopulationShift(log).square(sums) == pytest.approx(moved**2, rel=0.35)


def test_the_same_population_is_seldom_taken_for_another():
    """1 % by construction; 4 of 200 or more would be seen with probability 14 % at 1 %, here with a fixed seed."""
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(200):
        log, sums = setting(rng, answers=int(rng.integers(10, 300)))
        found += PopulationShift(log).square(sums) > 0.0
    assert found <= 3


def test_units_do_not_matter_and_few_answers_tell_nothing():
    plain = setting(np.random.default_rng(1), moved=1.0)
    scaled = setting(np.random.default_rng(1), moved=1.0, unit=2.0**20)
    shifted = setting(np.random.default_rng(1), moved=1.0, unit=3.0, offset=1e4)
    expected = PopulationShift(plain[0]).square(plain[1])
    assert PopulationShift(scaled[0]).square(scaled[1]) == expected
    assert PopulationShift(shifted[0]).square(shifted[1]) == pytest.approx(expected, rel=1e-6)
    few = setting(np.random.default_rng(1), moved=1.0, answers=9)
    assert PopulationShift(few[0]).square(few[1]) == 0.0


def test_a_log_of_an_intercept_alone_shows_nothing(rng):
    schema = sl.Schema(["a"], [], arms=[0, 1], intercept=True)
    log = sl.LogSummary.from_arrays(np.ones((100, 1)), np.arange(100) % 2, rng.normal(size=100), schema)
    hidden = sl.BehaviorQueries(log)
    for x in rng.normal(3.0, 1.0, 60):
        hidden.observe([1.0, x], 1)
    assert PopulationShift(log).square(hidden.sums) == 0.0


def test_what_it_adds_is_a_level(rng):
    log, _ = setting(rng)
    U = level_bias(PopulationShift(log).level, 4.0, np.array([1.0, 9.0]))
    intercept = np.eye(4)[0]
    np.testing.assert_allclose(
        U @ np.swapaxes(U, 1, 2), [4.0 * np.outer(intercept, intercept)] * 1 + [36.0 * np.outer(intercept, intercept)]
    )


def with_policy(rng, moved, looks, n_answers=2_000):
    """A log and answers where two hidden features alone have moved by ``moved``, and the policy looks at all or not."""
    K, schema = 4, sl.Schema(NAMES, NAMES[:3], arms=range(4), intercept=True)
    policy = np.random.default_rng(3).standard_normal((K, 6)) * np.where(np.arange(6) < 4, 1.0, looks)

    def draw(n, shift):
        X = np.column_stack([np.ones(n), rng.standard_normal((n, 5))])
        X[:, 4:] += shift
        return X, (X @ policy.T + rng.gumbel(size=(n, K))).argmax(axis=1)

    X, arms = draw(20_000, 0.0)
    hidden = sl.BehaviorQueries(sl.LogSummary.from_arrays(X[:, :4], arms, X[:, 1], schema))
    for x, arm in zip(*draw(n_answers, moved * np.array([1.0, -1.0])), strict=True):
        hidden.observe(x, int(arm))
    return hidden, AnswersTest(hidden.summary).shares_ratio(hidden)


@pytest.mark.parametrize("moved", [0.5, 1.0])
def test_hidden_features_that_alone_move_are_told_by_the_shares(rng, moved):
    hidden, ratio = with_policy(rng, moved, looks=1.0)
    population = PopulationShift(hidden.summary)
    assert population.square(hidden.sums) == 0.0
    assert ratio > np.log(100.0)
    # its size within a factor of three: one direction of many is seen, through a handful of shares
    found = population.hidden_square(hidden.sums, hidden.hidden_shift())
    assert moved**2 / 3.0 < found < 3.0 * moved**2


def test_shares_that_stand_still_tell_of_no_movement(rng):
    # nothing has moved; or the policy does not look at what has
    for moved, looks in ((0.0, 1.0), (1.0, 0.0)):
        hidden, ratio = with_policy(rng, moved, looks)
        assert ratio < np.log(100.0)
        assert PopulationShift(hidden.summary).hidden_square(hidden.sums, hidden.hidden_shift()) < 0.05
    assert PopulationShift(hidden.summary).hidden_square(hidden.sums, None) == 0.0


def calibration(seed, moved, hidden_alone=False):
    """``ξᵀΛξ/L`` of every arm after 300 rounds at contexts that have moved, and what is said of the honest log."""
    rng = np.random.default_rng([seed, 7])
    K, L, d = 3, 4, 6
    schema = sl.Schema(NAMES, NAMES[:3], arms=range(K), intercept=True)
    weights, policy = rng.standard_normal((2, K, d))
    move = moved * rng.choice([-1.0, 1.0], d - 1) * np.where(np.arange(d - 1) < L - 1, not hidden_alone, 1.0)

    def draw(n, shift):
        X = np.column_stack([np.ones(n), rng.standard_normal((n, d - 1)) + shift])
        arms = (0.5 * X @ policy.T + rng.gumbel(size=(n, K))).argmax(axis=1)
        return X, arms, X @ weights.T + 0.5 * rng.standard_normal((n, 1))

    X, arms, rewards = draw(10_000, 0.0)
    log = sl.LogSummary.from_arrays(X[:, :L], arms, rewards[np.arange(len(X)), arms], schema)
    learner = sl.FusedOFUL(sl.BehaviorQueries(log))
    for x, answer, paid in zip(*draw(300, move), strict=True):
        learner.observe_behavior(x, int(answer))
        arm = learner.decide(x, rng=rng).arm
        learner.observe(x, arm, float(paid[arm]))
    (entry,) = learner.logs
    errors = log.coefficients - weights[:, :L] - np.einsum("alm,am->al", entry.hidden.regression(), weights[:, L:])
    found = np.einsum("al,alk,ak->a", errors, entry.evidence.precision, errors) / L
    return found, learner.log_trust()


def test_an_honest_log_of_another_population_is_neither_believed_too_much_nor_doubted():
    """Without the level's part of the error the mean is 34 here, and three of the logs are doubted; 1 is right."""
    found = [calibration(seed, 1.5) for seed in range(8)]
    assert np.mean([value for value, _ in found]) < 2.5
    assert sum(any(told["doubted"] for told in trust) for _, trust in found) <= 1


def test_an_honest_log_whose_hidden_features_have_moved_is_neither_and_says_so():
    """Without what the shares say the mean is 34 here as well, and five of the logs are doubted."""
    found = [calibration(seed, 2.0, hidden_alone=True) for seed in range(8)]
    assert np.mean([value for value, _ in found]) < 2.5
    assert sum(any(told["doubted"] for told in trust) for _, trust in found) <= 2
    for _, trust in found:
        assert all(told["moved"] > 0.5 for told in trust)
        assert all("on average" in told["says"] for told in trust if not told["reduced"])


def test_what_is_known_of_it_survives_a_file(tmp_path, rng):
    log, _ = setting(rng)
    learner = sl.FusedOFUL(sl.BehaviorQueries(log))
    for x in rng.standard_normal((60, 5)) + 4.0:
        learner.observe_behavior([1.0, *x], "x")
        learner.observe([1.0, *x], "y", float(x[0]))
    learner.scores(np.ones(6))
    assert learner.logs[0].moved > 1.0
    learner.save(tmp_path / "learner")
    again = sl.load_learner(tmp_path / "learner")
    assert again.logs[0].moved == learner.logs[0].moved
    for x in rng.standard_normal((60, 5)) + 4.0:
        for one in (learner, again):
            one.observe_behavior([1.0, *x], "x")
            one.observe([1.0, *x], "y", float(x[0]))
        np.testing.assert_array_equal(learner.scores([1.0, *x]), again.scores([1.0, *x]))
