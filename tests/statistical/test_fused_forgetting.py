"""``forgetting``: worse where the world stands still, far better where it moves."""

from __future__ import annotations

import numpy as np
import pytest
from tests.statistical.fused_worlds import log_of, play, small_world

import sidelight as sl


def regret(seed: int, forgetting: float, moves: bool) -> float:
    """Three periods of 500 rounds; the log is of the first."""
    rng = np.random.default_rng(seed)
    worlds = [small_world(seed=100 * seed + (i if moves else 0), n_arms=3, noise=0.2) for i in range(3)]
    learner = sl.FusedOFUL(sl.BehaviorQueries(log_of(worlds[0], 2_000, 4, rng)), forgetting=forgetting)
    return float(sum(play(world, learner, 500, rng).sum() for world in worlds))


def test_a_world_that_moves_is_tracked(seed):
    """The sum over four worlds: measured about a quarter of the regret without forgetting; less than half is asked."""
    without, with_it = (sum(regret(seed + s, f, moves=True) for s in range(4)) for f in (1.0, 0.99))
    assert with_it < 0.5 * without


def test_a_world_that_stands_still_pays_for_it(seed):
    assert regret(seed, 0.95, moves=False) > regret(seed, 1.0, moves=False)


def test_an_arm_that_is_not_played_opens_up_again(seed):
    """Its width grows back toward the prior's while others are played."""
    rng = np.random.default_rng(seed)
    world = small_world(seed=seed)
    learner = sl.FusedOFUL(sl.BehaviorQueries(log_of(world, 5_000, 4, rng)), forgetting=0.98, noise=0.3)
    X = world.contexts(1_600, rng)
    for x in X[:400]:
        learner.observe(x, 0, float(world.weights[0] @ x + 0.3 * rng.normal()))
    narrow = learner.scores(X[0])[1][0]
    for x in X[400:]:
        learner.observe(x, 1, float(world.weights[1] @ x + 0.3 * rng.normal()))
    widths = learner.scores(X[0])[1]
    assert widths[0] > 2 * narrow
    assert widths[0] == pytest.approx(widths[2], rel=0.05)  # an arm that was never played
    assert widths[1] < 0.5 * widths[2]


def test_the_sums_are_discounted_by_every_round(rng):
    """``Σ γ^{age} x xᵀ`` of an arm, whichever arms the later rounds played."""
    world = small_world(seed=2)
    learner = sl.FusedOFUL(
        sl.BehaviorQueries(log_of(world, 1_000, 4, rng)), forgetting=0.9, regularization=1.0, noise=0.5, safety=0.0
    )
    expected, moments = np.zeros((4, 6, 6)), np.zeros((4, 6))
    for _ in range(70):
        x, a, r = rng.normal(size=6), int(rng.integers(4)), float(rng.normal())
        learner.observe(x, a, r)
        expected *= 0.9
        moments *= 0.9
        expected[a] += np.outer(x, x)
        moments[a] += r * x
    learner._relearn()
    np.testing.assert_allclose(learner.grams, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(learner.moments, moments, rtol=1e-9, atol=1e-12)
