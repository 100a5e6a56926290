"""A budget for asking the old policy: kept to, spent where it helps, and without bias."""

from __future__ import annotations

import numpy as np
import pytest
from tests.statistical.fused_worlds import log_of, small_world

import sidelight as sl


def run(learner, world, rounds: int, rng) -> list[int]:
    """The rounds in which it asked."""
    asked = []
    X = world.contexts(rounds, rng)
    answers, table = world.behavior_actions(X, rng), world.potential_rewards(X, rng)
    for t, x in enumerate(X):
        if learner.wants_query(x):
            asked.append(t)
            learner.observe_behavior(x, int(answers[t]))
        arm = learner.decide(x, rng=rng).arm
        learner.observe(x, arm, table[t, arm])
    return asked


@pytest.fixture
def world(seed):
    return small_world(seed=seed)


@pytest.fixture
def summary(world, rng):
    return log_of(world, 20_000, 4, rng)


@pytest.mark.parametrize("budget", [1, 7, 60])
def test_a_number_of_times_is_never_exceeded_and_spent_early(world, summary, rng, budget):
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary), query_budget=budget)
    asked = run(learner, world, 400, rng)
    assert len(asked) == budget == learner.asking.asked
    assert asked[-1] < 10 * budget + 30


def test_a_share_is_kept_to_at_every_moment(world, summary, rng):
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary), query_budget=0.1)
    asked = np.array(run(learner, world, 600, rng))
    so_far = np.arange(1, len(asked) + 1)
    # the first may be asked at once; after it the share holds
    assert (so_far[1:] <= 0.1 * (asked[1:] + 1)).all()
    assert len(asked) >= 50


def test_no_budget_asks_nothing_and_no_limit_asks_always(world, summary, rng):
    assert run(sl.FusedOFUL(sl.BehaviorQueries(summary), query_budget=0), world, 50, rng) == []
    assert len(run(sl.FusedOFUL(sl.BehaviorQueries(summary)), world, 50, rng)) == 50
    known = sl.FusedOFUL(sl.KnownCrossMoments(summary, world.cross_moments(4)), query_budget=10)
    assert run(known, world, 50, rng) == []


def test_it_asks_with_the_probability_that_it_says(world, summary, rng):
    """At a fixed state, over 3,000 contexts: the sum of (asked − q) within five deviations, failure below 1e-6."""
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary), query_budget=100_000)
    run(learner, world, 150, rng)
    X = world.contexts(3_000, rng)
    q = np.array([learner.query_probability(x) for x in X])
    asked = np.array([learner.wants_query(x) for x in X])
    assert q.min() >= 0.3
    assert q.std() > 0.02, "it prefers some contexts"
    assert abs((asked - q).sum()) < 5 * np.sqrt((q * (1 - q)).sum()) + 1e-9


def test_answers_weighted_by_their_chance_stay_consistent(seed):
    """Chosen contexts, weighted: ``B̂`` errs by what its precision says.  Unweighted it would be biased.

    ``((B̂ − B)w_h)ᵀA((B̂ − B)w_h)/(τ²L)`` over 8 runs of 4 arms, 128 degrees of freedom: limits four deviations away.
    """
    values = []
    for s in range(8):
        rng = np.random.default_rng([seed, s])
        world = small_world(seed=1000 * seed + s)
        learner = sl.FusedOFUL(sl.BehaviorQueries(log_of(world, 20_000, 4, rng), pooling=0.0), query_budget=500)
        run(learner, world, 700, rng)
        hidden = learner.logs[0].hidden
        assert hidden.n_answers > 400
        assert hidden.sums.total_weight > hidden.n_answers  # some were weighted
        X = world.contexts(100_000, rng)
        p = world.behavior_probabilities(X)
        A, Sigma = hidden.precision(), hidden.residual_moments()
        for a in range(4):
            S = X.T @ (X * p[:, a : a + 1])
            B = np.linalg.solve(S[:4, :4], S[:4, 4:])
            w_h = world.weights[a, 4:]
            error = (hidden.regression()[a] - B) @ w_h
            values.append(error @ A[a] @ error / (4 * float(w_h @ Sigma[a] @ w_h)))
    assert 0.5 < np.mean(values) < 1.6


def test_a_late_answer_carries_the_chance_with_which_it_was_asked(world, summary, rng):
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary), query_budget=5)
    x = world.contexts(1, rng)[0]
    chance = learner.query_probability(x)
    assert chance > 0
    for other in world.contexts(5, rng):
        learner.observe_behavior(other, 1, probability=0.5)
    assert learner.query_probability(x) == 0.0
    learner.observe_behavior(x, 2, probability=chance)
    assert learner.logs[0].hidden.n_answers == 6
    with pytest.raises(sl.errors.InputError, match="chance"):
        learner.observe_behavior(x, 2)
