"""Verdicts about a log, and what follows from them, on numbers made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.statistical.fused_worlds import log_of, play, small_world

import sidelight as sl
from sidelight.learners.fused.standing import CAUGHT
from sidelight.learners.fused.trust import FIRST_JUDGED
from sidelight.side.trust import EFFECTIVE_ROWS, FEATURE_ROWS, LogTest, verdict

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


def test_where_a_log_is_expected_to_fit_badly_a_larger_bias_takes_more_evidence():
    """Each further size is a tenth as likely beforehand; the first is as likely as without."""
    gain = np.zeros((5, 2))
    gain[1:, 0] = [9.0, 9.5, 10.5, 14.0]
    assert verdict(gain).levels[0] == 4
    found = verdict(gain, steep=True)
    assert found.levels[0] == 1, "14 − 3 log 10 = 7.1 is less than 9"
    gain[4, 0] = 17.0
    assert verdict(gain, steep=True).levels[0] == 4
    gain[1:, 0] = [6.4, -9.0, -9.0, -9.0]
    assert verdict(gain).levels[0] == verdict(gain, steep=True).levels[0] == 1


def test_where_a_log_is_expected_to_fit_badly_its_last_rows_are_dropped_only_for_what_is_not_tolerated():
    """As if the noise's variance were a tenth larger in every round: ``½ log 1.1`` a round of the arm, or of all."""
    gain = np.zeros((5, 3))
    gain[3:, 0] = [100.0, 120.0]
    gain[1:, 1:] = -50.0
    few, many = np.array([100.0, 0.0, 0.0]), np.array([400.0, 0.0, 0.0])
    assert verdict(gain).levels[0] == 4
    assert verdict(gain, steep=True, lenient=few).levels[0] == 4, "20 − log 10 is more than 100 · 0.048"
    assert verdict(gain, steep=True, lenient=many).levels[0] == 3, "… and less than 400 · 0.048"
    whole = np.array([0.0, 10.0, 50.0, 200.0, 212.0])
    everywhere = np.full(3, 80.0)
    for lenient, level in ((None, 4), (few, 4), (everywhere, 3)):
        found = verdict(np.zeros((5, 3)), whole=whole, steep=lenient is not None, lenient=lenient)
        assert found.common
        assert found.levels.tolist() == [level] * 3


def test_where_a_log_is_expected_to_fit_badly_no_single_feature_is_to_blame():
    """A line through other contexts is off in all features that go with what bends."""
    values, features = marginals(20.0, 20.0, 20.0), np.array([-3.0, 61.0, 2.0])
    assert verdict(values, features=features).feature == 1
    found = verdict(values, features=features, lenient=np.full(3, 20.0))
    assert found.feature == -1
    assert found.doubted.all()


def test_one_feature_that_is_wrong_leaves_the_others_alone():
    """A bias in one feature's slope explains as much as one of everything: the smaller claim is made."""
    values = marginals(20.0, 20.0, 20.0)
    found = verdict(values, features=np.array([-3.0, 61.0, 2.0]))
    assert (found.feature, found.levels.tolist()) == (1, [0, 0, 0])
    assert found.doubted.all()
    assert verdict(values, features=np.array([-3.0, 30.0, 2.0])).feature == -1
    assert verdict(marginals(0.0, 0.0), features=np.array([5.0, 0.0])).feature == -1, "no more than luck"


def test_evidence_is_a_product_over_refreshes_that_may_begin_at_any_of_them():
    """``A_k = Σ_j w_j Π_{i ≥ j} L_i`` with ``w_j = 1/(j(j + 1))``, for arms, the whole log and features alike."""
    rng = np.random.default_rng(3)
    test, steps = LogTest(2, 3), 6
    values, gains = rng.normal(size=(steps, LEVELS, 2)), rng.normal(size=(steps, 3 * len(FEATURE_ROWS), 2))
    for i in range(steps):
        test.add(values[i], gains[i], judged=i > 0)
    ratios = (values - values[:, :1])[1:]
    weights = np.array([1.0 / (j * (j + 1.0)) for j in range(1, steps)])

    def mixture(logs):
        return np.log(sum(w * np.exp(logs[j:].sum(axis=0)) for j, w in enumerate(weights)))

    np.testing.assert_allclose(test.arms[1:], mixture(ratios)[1:], rtol=1e-9)
    np.testing.assert_allclose(test.whole[1:], mixture(ratios.sum(axis=2))[1:], rtol=1e-9)
    np.testing.assert_allclose(test.features, mixture(gains[1:].sum(axis=2)), rtol=1e-9)
    np.testing.assert_allclose(test.by_arm, mixture(gains[1:]), rtol=1e-9)
    copy = LogTest(2, 3)
    copy.restore(test.state())
    copy.add(values[0], gains[0], judged=True)
    test.add(values[0], gains[0], judged=True)
    np.testing.assert_array_equal(copy.features, test.features)
    np.testing.assert_array_equal(copy.arms, test.arms)


def test_what_curvature_explains_is_no_accusation():
    """A bias that leaves 100 rows is excused where curvature may bias as much; one that leaves none is not."""
    test = LogTest(2, 1)
    test.arms[1:], test.whole[1:] = -50.0, -50.0
    test.arms[EFFECTIVE_ROWS.index(100.0)] = 40.0
    assert test.verdict(0.0).doubted.all()
    assert not test.verdict(0.0, excused=30.0).doubted.any()
    assert test.verdict(0.0, excused=300.0).doubted.all()
    test.arms[-1] = 80.0
    assert test.verdict(0.0, excused=30.0).doubted.all()
    test.arms[1:], test.features = -50.0, np.array([40.0, -5.0])
    assert test.verdict(0.0).feature == -1, "no arm agrees"
    test.by_arm[:, 0] = 40.0
    assert test.verdict(0.0).feature == -1, "one arm alone is no matter of a feature"
    test.by_arm[:, 1] = 6.0
    assert test.verdict(0.0).feature == 0
    assert test.verdict(0.0, excused=0.5 * FEATURE_ROWS[0]).feature == -1
    test.features = np.array([-5.0, 40.0])
    assert test.verdict(0.0, excused=0.5 * FEATURE_ROWS[0]).feature == 1


@pytest.fixture
def learner(rng):
    world = small_world(seed=1)
    return sl.FusedOFUL(sl.BehaviorQueries(log_of(world, 2_000, 4, rng)), arms=[0, 1, 2, 3, "new"])


def test_how_readily_arms_are_tried(learner):
    """As a rule all alike; more where the log was wrong elsewhere; never where no log speaks."""
    np.testing.assert_array_equal(learner._reluctance(), [1, 1, 1, 1, np.inf])
    learner.logs[0].standing.levels[:] = [0, LEVELS - 1, 0, 1]
    np.testing.assert_array_equal(learner._reluctance(), [1 / CAUGHT, np.inf, 1 / CAUGHT, 1, np.inf])
    learner.logs[0].standing.levels[:] = LEVELS - 1
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
