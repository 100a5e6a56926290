"""When a fused learner learns how much arms differ in what a log hides, and what rests on it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.statistical.fused_worlds import log_of, small_world

import sidelight as sl


def played(world, learner, n, rng, asked=False, arms=3):
    """``n`` rounds with the arms in turn."""
    X = world.contexts(n, rng)
    actions = world.behavior_actions(X, rng)
    for t, x in enumerate(X):
        if asked:
            learner.observe_behavior(x, int(actions[t]))
        learner.observe(x, t % arms, float(world.rewards(x[None], np.array([t % arms]), rng)[0]))


@pytest.fixture
def world():
    return small_world(seed=5)


def test_scales_are_learned_anew_once_answers_tell_what_they_are_relative_to(world, rng):
    learner = sl.FusedOFUL(sl.BehaviorQueries(log_of(world, 5_000, 4, rng)))
    arms = learner.n_arms
    played(world, learner, 300, rng, arms=arms)
    entry = learner.logs[0]
    assert entry.scales != (1.0, 1.0)
    assert not entry.scales_are_due()
    played(world, learner, 60, rng, asked=True, arms=arms)
    assert entry.hidden.expected_at > 0
    # no search is due, and still the scales are those of what is expected now
    learner.automatic.search_at = 10**9
    learner._relearn()
    kept = entry.scales
    assert not entry.scales_are_due()
    learner.automatic.search_at = 0
    learner._relearn()
    np.testing.assert_allclose(entry.scales, kept, rtol=0.2)


def test_scales_go_back_to_what_is_expected_where_no_arm_tells_of_them(world, rng):
    learner = sl.FusedOFUL(sl.BehaviorQueries(log_of(world, 5_000, 4, rng)))
    played(world, learner, 300, rng, arms=learner.n_arms)
    entry, nothing = learner.logs[0], np.zeros(learner.n_arms)
    assert entry.scales != (1.0, 1.0)
    J, h = learner._evidence(np.square(learner.noises))
    entry.learn_scales(J, h, nothing)
    assert entry.scales == (1.0, 1.0)
    np.testing.assert_array_equal(entry.geometry.A, entry.geometry.tested)


def test_nothing_is_learned_of_differences_where_rounds_are_forgotten(world, rng):
    learner = sl.FusedOFUL(sl.BehaviorQueries(log_of(world, 5_000, 4, rng)), forgetting=0.99)
    played(world, learner, 300, rng, arms=learner.n_arms)
    assert learner.logs[0].scales == (1.0, 1.0)


def test_when_they_were_learned_is_kept_in_files(world, rng, tmp_path):
    learner = sl.FusedOFUL(sl.BehaviorQueries(log_of(world, 5_000, 4, rng)))
    played(world, learner, 200, rng, asked=True, arms=learner.n_arms)
    learner.save(tmp_path / "learner")
    again = sl.load_learner(tmp_path / "learner")
    assert again.logs[0]._scaled_at == learner.logs[0]._scaled_at > 0
    assert again.logs[0].scales == learner.logs[0].scales != (1.0, 1.0)


def test_what_answers_can_reduce_is_a_part_of_the_error_that_is_claimed(world, rng):
    """``f_a = tr(Λτ²A⁻¹)/L`` is at most 1, with the ``A`` that the evidence was made with."""
    learner = sl.FusedOFUL(sl.BehaviorQueries(log_of(world, 20_000, 4, rng)), query_budget=50)
    played(world, learner, 300, rng, arms=learner.n_arms)
    entry = learner.logs[0]
    assert entry.scales != (1.0, 1.0)
    inverses = np.linalg.inv(entry.geometry.A)
    parts = (entry.evidence.precision * inverses).sum(axis=(1, 2)) * entry.tau2 / entry.L
    assert (parts <= 1.0 + 1e-6).all()
    shares, moments = entry.hidden.summary.shares, entry.hidden.summary.second_moments
    H = ((shares * parts)[:, None, None] * inverses).sum(axis=0)
    H /= sum(share * np.trace(R @ H) for share, R in zip(shares, moments, strict=True))
    for x in world.contexts(5, rng):
        y = x[entry.order[: entry.L]]
        assert entry.query_gain(x) == pytest.approx(y @ H @ y, rel=1e-4)


def test_the_order_of_logs_of_one_size_does_not_matter(world):
    def scores(order):
        rng = np.random.default_rng(8)
        logs = {"all": log_of(world, 900, 4, rng), "few": log_of(world, 900, [0, 2], rng)}
        learner = sl.FusedOFUL({key: sl.BehaviorQueries(logs[key]) for key in order}, safety=0.0)
        for t, x in enumerate(world.contexts(150, rng)):
            for key in logs:
                learner.observe_behavior(x, t % learner.n_arms, log=key)
            learner.observe(x, t % learner.n_arms, float(np.sin(3.0 * t) + x.sum()))
        return np.stack(learner.scores(x))

    np.testing.assert_allclose(scores(["all", "few"]), scores(["few", "all"]), rtol=1e-9)
