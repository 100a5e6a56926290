"""Coverage of ``radius="theory"``: for all arms and rounds at once, with probability ``1 − δ``."""

from __future__ import annotations

import numpy as np
import pytest
from tests.statistical.binomial import most
from tests.statistical.fused_worlds import Heard

import sidelight as sl

ROUNDS, RUNS = 90, 30


def misses(kind: str, seed: int, delta: float, alpha: float = 1.0, sandwich: bool = False, **options) -> int:
    """In how many of ``RUNS`` runs some ``x·w_a`` ever lay outside its interval."""
    world, failed = Heard(kind, sigma=1.0), 0
    for run in range(RUNS):
        rng = np.random.default_rng([seed, run])
        summary = world.log(400, rng, sandwich=sandwich)
        learner = sl.FusedOFUL(
            sl.BehaviorQueries(summary),
            radius="theory",
            regularization=0.5,
            noise=1.0,
            delta=delta,
            alpha=alpha,
            weight_bound=1.2,
            context_bound=3.0,
            sandwich=sandwich,
            **options,
        )
        X = world.contexts(ROUNDS, rng)
        answers, outside = world.actions(X, rng), False
        for x, answer in zip(X, answers, strict=True):
            learner.observe_behavior(x, int(answer))
            estimates, widths = learner.scores(x)
            outside |= bool((np.abs(estimates - world.weights @ x) > widths).any())
            arm = learner.decide(x, rng=rng).arm
            learner.observe(x, arm, float(world.weights[arm] @ x + rng.normal()))
        failed += outside
    return failed


@pytest.mark.parametrize("delta", [0.05, 0.2])
@pytest.mark.parametrize("kind", ["normal", "heavy"])
def test_it_covers(seed, kind, delta):
    """A right program fails with probability below 1e-4 (exact binomial); unions make it cover far more often."""
    assert misses(kind, seed, delta) <= most(RUNS, delta, 1e-4)


def test_uneven_noise_in_the_log_with_the_sandwich(seed):
    """Beyond the assumption the log's own radius fails (see the calibration); the sandwich restores it."""
    assert misses("uneven", seed, 0.2, sandwich=True) <= most(RUNS, 0.2, 1e-4)


def test_the_test_can_fail(seed):
    """A seventh of the width does not cover: at least half of the runs miss."""
    assert misses("normal", seed, 0.05, alpha=1 / 7, safety=0.0) >= RUNS // 2
