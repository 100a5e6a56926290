"""Verdicts about a log, and what follows from them, on numbers made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.statistical.fused_worlds import log_of, play, small_world

import sidelight as sl
from sidelight.learners.fused.learner import FIRST_JUDGED
from sidelight.learners.fused.log import CAUGHT
from sidelight.side.trust import EFFECTIVE_ROWS, verdict

LEVELS = len(EFFECTIVE_ROWS)


def marginals(*gains: float) -> np.ndarray:
    """One column an arm; the last level explains its rewards better than full trust by ``gain``."""
    out = np.zeros((LEVELS, len(gains)))
    out[1:] = -50.0
    out[-1] = gains
    return out


def test_one_arm_that_is_surely_wrong_takes_the_credit_of_the_others():
    """A gain of five is too little against a log of good repute, and enough against one that is caught."""
    assert verdict(marginals(5.0, -40.0, -40.0)).levels.tolist() == [0, 0, 0]
    assert verdict(marginals(5.0, -40.0, 30.0)).levels.tolist() == [LEVELS - 1, 0, LEVELS - 1]
    assert verdict(marginals(0.5, -40.0, 30.0)).levels.tolist() == [0, 0, LEVELS - 1]


def test_many_arms_a_little_wrong_are_a_log_that_is_wrong():
    found = verdict(marginals(4.0, 4.0, 4.0, 4.0))
    assert found.common
    assert found.levels.tolist() == [LEVELS - 1] * 4


@pytest.fixture
def learner(rng):
    world = small_world(seed=1)
    return sl.FusedOFUL(sl.BehaviorQueries(log_of(world, 2_000, 4, rng)), arms=[0, 1, 2, 3, "new"])


def test_how_readily_arms_are_tried(learner):
    """As a rule all alike; more where the log was wrong elsewhere; never where no log speaks."""
    np.testing.assert_array_equal(learner._reluctance(), [1, 1, 1, 1, np.inf])
    learner.logs[0].levels[:] = [0, LEVELS - 1, 0, 1]
    np.testing.assert_array_equal(learner._reluctance(), [1 / CAUGHT, np.inf, 1 / CAUGHT, 1, np.inf])
    learner.logs[0].levels[:] = LEVELS - 1
    assert np.isinf(learner._reluctance()).all()


def test_a_surprise_calls_for_a_refresh_before_its_time(rng):
    world = small_world(seed=2)
    summary = log_of(world, 2_000, 4, rng)
    learners = {name: sl.FusedOFUL(sl.BehaviorQueries(summary), safety=s) for name, s in (("on", 0.03), ("off", 0.0))}
    for name, learner in learners.items():
        play(world, learner, 3 * FIRST_JUDGED, np.random.default_rng(0))
        x = world.contexts(1, np.random.default_rng(1))[0]
        assert learner.automatic.room() > 1
        before = learner.refreshes
        learner.observe(x, 2, float(learner.scores(x)[0][2]) + 100.0 * learner.noise)
        assert learner.refreshes - before == (name == "on")
        learner.observe(x, 2, float(learner.scores(x)[0][2]) + 1e6)
        assert learner.refreshes - before == (name == "on"), "two in a row are no reason for two"


def test_logs_are_not_judged_on_a_handful_of_rounds(rng):
    world = small_world(seed=3)
    lying = sl.worlds.DriftedWorld(world, "shifted", size=5.0)
    learner = sl.FusedOFUL(sl.BehaviorQueries(log_of(lying, 50_000, 4, rng)))
    play(world, learner, FIRST_JUDGED - 1, rng)
    assert not any(entry["doubted"] for entry in learner.log_trust())
    play(world, learner, 500, rng)
    assert any(entry["doubted"] for entry in learner.log_trust())
