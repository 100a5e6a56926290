"""A decision's propensity is the frequency with which it is made."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom
from tests.statistical.fused_worlds import log_of, play, small_world

import sidelight as sl


@pytest.fixture
def world(seed):
    return small_world(seed=seed)


def trained(kind, world, rng, rounds: int, **options):
    learner = kind(sl.BehaviorQueries(log_of(world, 2_000, 4, rng)), **options)
    play(world, learner, rounds, rng)
    return learner


@pytest.mark.parametrize("alpha", [1.0, 2.5])
def test_thompsons_choices_are_as_frequent_as_their_propensities(world, rng, alpha):
    """1,500 draws at each of 3 contexts; every arm's count within limits that a right one leaves with 1e-6."""
    learner = trained(sl.FusedThompson, world, rng, 40, alpha=alpha)
    spread = False
    for x in world.contexts(3, rng):
        counts, propensities = np.zeros(4), np.zeros(4)
        for _ in range(1_500):
            decision = learner.decide(x, rng=rng)
            counts[decision.arm] += 1
            propensities[decision.arm] = decision.propensity
        assert propensities.sum() == pytest.approx(1.0, abs=0.01)  # an arm that was never drawn is left out
        for count, p in zip(counts, propensities, strict=True):
            if count:
                assert binom.ppf(1e-6, 1_500, p) - 2 <= count <= binom.isf(1e-6, 1_500, p) + 2
        spread |= 0.05 < propensities.max() < 0.95
    assert spread, "at least one context leaves it undecided"


def test_thompson_among_allowed_arms(world, rng):
    learner = trained(sl.FusedThompson, world, rng, 10)
    x, total = world.contexts(1, rng)[0], {}
    for _ in range(200):
        decision = learner.decide(x, allowed=[1, 3], rng=rng)
        total[decision.arm] = decision.propensity
    assert set(total) <= {1, 3}
    assert sum(total.values()) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("by_context", [False, True], ids=["coin of the generator", "coin of the context"])
def test_rounds_of_propensity_one_half_are_even(world, rng, by_context):
    """Over the contexts in which an arm may be tried, each side half of the time.  Failure below 1e-6."""
    learner = trained(sl.FusedOFUL, world, rng, 400, safety=20.0)
    tried = rounds = 0
    for x in world.contexts(4_000, rng):
        decision = learner.decide(x, rng=None if by_context else rng)
        if decision.propensity == 1.0:
            continue
        assert decision.propensity == 0.5
        estimates, widths = learner.scores(x)
        rounds += 1
        tried += decision.arm != int(np.argmax(estimates + widths))
        assert (decision.estimate, decision.width) == (estimates[decision.arm], widths[decision.arm])
    assert rounds > 200
    assert binom.ppf(5e-7, rounds, 0.5) <= tried <= binom.isf(5e-7, rounds, 0.5)


def test_a_repeated_question_has_the_same_answer(world, rng):
    for kind in (sl.FusedOFUL, sl.FusedThompson):
        learner = trained(kind, world, rng, 60, safety=2.0)
        for x in world.contexts(50, rng):
            assert learner.decide(x) == learner.decide(x)


def test_trials_seem_to_cost_no_more_than_their_share(world, rng):
    """``Σ (index of the best − estimate of the tried) ≤ 2.62 · safety · spent`` over a run, as ``Σ n^{−3/2}`` is."""
    learner = sl.FusedOFUL(sl.BehaviorQueries(log_of(world, 50_000, 4, rng)), safety=3.0)
    X = world.contexts(800, rng)
    table, answers, paid, largest = world.potential_rewards(X, rng), world.behavior_actions(X, rng), 0.0, 0.0
    for t, x in enumerate(X):
        learner.observe_behavior(x, int(answers[t]))
        decision = learner.decide(x, rng=rng)
        estimates, widths = learner.scores(x)
        index = estimates + widths
        if decision.arm != int(index.argmax()):
            cost = float(index.max() - estimates[decision.arm])
            paid, largest = paid + cost, max(largest, cost)
        learner.observe(x, decision.arm, table[t, decision.arm])
    assert paid > 0
    # each trial of an arm is at most safety/K · spent/n^{3/2}, and no arm of this honest log is tried more readily
    assert not any(entry["doubted"] for entry in learner.log_trust())
    assert paid <= 3.0 * float(learner.spent[0]) * 2.62 + largest
    assert largest <= 3.0 / 4 * float(learner.spent[0])
