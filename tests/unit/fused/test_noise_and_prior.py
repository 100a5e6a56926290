"""A noise that is taken for too large and a prior that is too narrow do not keep each other alive."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.learners.fused.hyperparameters import DEVIATIONS, smaller_noises
from sidelight.side.prior import Hyper

K, RECORDED, HIDDEN, SIGMA = 6, 3, 4, 0.3


def learner_with_rounds(rng: np.random.Generator, hidden_strength: float, noises: np.ndarray) -> sl.FusedOFUL:
    """A learner with a log of a random policy, and eight rounds and answers of every arm.

    Not enough for regressions of single arms, of which each has eight weights.
    """
    schema = sl.Schema(["o1", "o2", "o3", "h1", "h2", "h3", "h4"], ["o1", "o2", "o3"], intercept=True)
    weights = np.concatenate(
        [0.05 * rng.normal(size=(K, 1 + RECORDED)), hidden_strength * rng.normal(size=(K, HIDDEN))], 1
    )

    def rounds(n):
        X = np.concatenate([np.ones((n, 1)), rng.normal(size=(n, RECORDED + HIDDEN))], axis=1)
        arms = rng.integers(K, size=n)
        return X, arms, (X * weights[arms]).sum(axis=1) + noises[arms] * rng.normal(size=n)

    X, arms, rewards = rounds(20_000)
    log = {f"o{i}": X[:, i] for i in (1, 2, 3)} | {"arm": arms, "reward": rewards}
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(log, schema)))
    X, arms, rewards = rounds(8 * K)
    for i in range(8 * K):
        learner.observe_behavior(X[i], int(rng.integers(K)))
        learner.observe(X[i], int(arms[i]), float(rewards[i]))
    return learner


def collapsed(learner: sl.FusedOFUL) -> None:
    """Make the learner believe that nothing hidden has an effect, and that rewards are noise."""
    automatic = learner.automatic
    assert automatic is not None
    assert automatic.hyper is not None
    first, *_ = automatic.hyper.variances
    automatic.hyper = automatic.hyper._replace(
        variances=(first, *[1e-4 * first] * (len(automatic.hyper.variances) - 1))
    )
    assert isinstance(automatic.hyper, Hyper)
    automatic.events, automatic.search_at = 96, 0
    # shrunk weights, whose residuals are all of the rewards
    learner.weights = 0.0
    learner.covariances *= 1e-6
    for log in learner.logs:
        log.tau2 = np.zeros(K)


@pytest.mark.parametrize("seed", range(4))
def test_a_noise_above_what_the_log_leaves_is_given_up(seed):
    """Rewards that rounds explain by hidden features are not taken for noise once both are compared together."""
    learner = learner_with_rounds(np.random.default_rng(seed), 2.0, np.full(K, SIGMA))
    collapsed(learner)
    least = float(np.min(learner.logs[0].s2))
    learner._relearn()
    assert learner.noise**2 < least


@pytest.mark.parametrize("seed", range(4))
def test_noise_that_differs_by_arm_is_not_taken_for_hidden_effects(seed):
    """The played arms' noise is above the least residual variance of the log, and nothing hidden has an effect."""
    noises = np.array([0.1, 1.0, 1.5, 2.0, 1.0, 1.5])
    learner = learner_with_rounds(np.random.default_rng(seed), 0.0, noises)
    learner._relearn()
    assert learner.noise > 0.7


def test_the_least_residual_variance_of_many_arms_is_below_the_noise_by_chance(rng):
    """It competes with a noise only if it is below it by more than its error; smaller ones compete all the same."""
    log = learner_with_rounds(rng, 0.0, np.full(K, SIGMA)).logs[0]
    a = int(np.argmin(log.s2))
    most, error = float(log.s2[a]), float(np.sqrt(2.0 / (log.counts[a] - log.L)))
    assert smaller_noises([log], most * (1.0 + 0.9 * DEVIATIONS * error), most) == [0.25 * most, 0.0625 * most]
    assert smaller_noises([log], most * (1.0 + 1.1 * DEVIATIONS * error), most) == [
        most,
        0.25 * most,
        0.0625 * most,
    ]
