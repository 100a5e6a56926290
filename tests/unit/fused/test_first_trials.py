"""Arms that were never played share the whole budget of trials: who is tried where, against a literal reference."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.cells import CELLS
from benchmarks.paired import Setting
from benchmarks.synthetic import Cell

import sidelight as sl
from sidelight.learners.fused.trust import first_trials

ADVERSE = Cell("", arms=5, policy="adverse", sharpness=4.0, strengths=(0.3, 2.0), rows=5_000)


def played(safety: float, rounds: int) -> tuple[sl.FusedOFUL, np.ndarray]:
    """A learner in a world whose old policy gave each arm to those whom it suited least, and fresh contexts."""
    setting = Setting(ADVERSE, 3, rounds)
    X, rewards, _, answers, _ = setting.draws
    learner = sl.FusedOFUL(sl.BehaviorQueries(setting.summary), safety=safety)
    for x, pay, named in zip(X, rewards, answers, strict=True):
        learner.observe_behavior(x, int(named))
        arm = learner.decide(x).arm
        if arm >= 2:  # two arms are never played
            learner.observe(x, arm, float(pay[arm]))
    return learner, setting.world.contexts(200, np.random.default_rng(9))


@pytest.mark.parametrize(("never", "readiness"), [(0, 8.0), (1, 4.0), (3, 2.0), (7, 1.0), (8, 1.0)])
def test_the_arms_that_were_never_played_share_the_budget_of_all(never, readiness):
    assert first_trials(np.arange(8) < never) == readiness


@pytest.mark.parametrize("K", [2, 10, 200])
def test_all_first_trials_together_seem_to_cost_a_logarithm_of_the_arms(K):
    """The arms are tried one after the other: each may cost ``safety/K`` times its readiness."""
    total = sum(first_trials(np.arange(K) < never) / K for never in range(1, K + 1))
    assert total < np.log(K + 1.0) + 1.0 / K


@pytest.mark.parametrize("safety", [0.1, 0.7])
def test_a_first_trial_may_seem_to_cost_a_part_of_all_widths_paid(safety):
    """An arm that was never played is a candidate exactly where its gap is at most ``safety·spent/(1 + u)``."""
    learner, contexts = played(safety, 300)
    learner.refresh()
    never = learner.counts == 0
    assert never[:2].all()
    u, limit = int(never.sum()), safety * float(learner.spent[0])
    np.testing.assert_allclose(learner.untested[never], max(5 / (1 + u), 1.0))
    seen = set()
    for x in contexts:
        estimates, widths = learner.scores(x)
        index = estimates + widths
        best = int(index.argmax())
        costs = np.full(5, np.inf)
        for a in range(5):
            if a == best:
                continue
            gap = float(index[best] - estimates[a])
            if never[a]:
                costs[a] = gap * (1 + u)
            else:
                costs[a] = gap * 5 * (1.0 + learner.counts[a]) ** 1.5 / learner.untested[a]
        tried = int(costs.argmin())
        expected = {best, tried} if costs[tried] <= limit else {best}
        assert set(np.flatnonzero(learner.propensities(x))) == expected
        seen |= expected - {best}
    assert seen & {0, 1}, "no first trial was offered, so this test shows nothing"


def test_without_safety_there_is_no_first_trial():
    learner, contexts = played(0.0, 120)
    assert (learner.untested == 1.0).all()
    assert all((learner.propensities(x) == 1.0).any() for x in contexts)


def test_the_adverse_policy_gives_each_arm_to_those_whom_it_suits_least():
    setting = Setting(CELLS["policy: adverse"], 0, 4_000)
    X, _, means, answers, _ = setting.draws
    slopes = means - means.mean(axis=0)
    for a in range(setting.cell.arms):
        assert slopes[answers == a, a].mean() < -0.5 * slopes[:, a].std()
    assert X.shape == (4_000, setting.world.n_features)
