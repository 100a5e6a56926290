"""What several logs of one world do to a learner, beside the scores that ``test_fused_scores`` compares."""

from __future__ import annotations

import numpy as np
import pytest
from tests.statistical.fused_worlds import log_of, small_world

import sidelight as sl


def taught(world, logs, rng, rounds=120, **options):
    """A learner of some logs, by key, after rounds with answers and arms at random."""
    learner = sl.FusedOFUL({key: sl.BehaviorQueries(log) for key, log in logs.items()}, **options)
    for x in world.contexts(rounds, rng):
        arm = int(rng.integers(world.n_arms))
        learner.observe_behavior(x, int(world.behavior_actions(x[None], rng)[0]))
        learner.observe(x, arm, float(world.rewards(x[None], [arm], rng)[0]))
    learner._relearn()
    return learner


@pytest.fixture
def eras(seed):
    """A world and its logs: each recorded more than the one before, of which the last one has most rows."""
    rng, world = np.random.default_rng(seed), small_world(seed=seed)
    columns = {"old": ([0, 1], 300), "middle": ([0, 1, 2], 200), "new": ([0, 1, 2, 3], 20_000)}
    return world, {key: log_of(world, rows, recorded, rng) for key, (recorded, rows) in columns.items()}


def test_the_order_of_logs_does_not_matter(eras):
    """Which features share a prior variance follows from all logs, not from the first."""
    world, logs = eras
    backwards = dict(reversed(logs.items()))
    one, other = (taught(world, some, np.random.default_rng(5)) for some in (logs, backwards))
    for x in world.contexts(5, np.random.default_rng(6)):
        for mine, theirs in zip(one.scores(x), other.scores(x), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_small_old_logs_do_not_widen_what_a_large_one_tells(eras):
    """With equal shares of the common error widths were 1.05 to 1.07 times those of the new log alone."""
    world, logs = eras
    fixed = {"regularization": 1.0, "noise": float(world.noise)}
    every, alone = (taught(world, some, np.random.default_rng(5), **fixed) for some in (logs, {"new": logs["new"]}))
    X = world.contexts(50, np.random.default_rng(6))
    widths = [np.mean([learner.scores(x)[1] for x in X]) for learner in (every, alone)]
    assert widths[0] < 1.02 * widths[1]


def test_what_logs_count_for_adds_up(eras):
    """``counted`` is what enters the learner; the shares of logs, rounds and prior are at most 1 for every arm."""
    world, logs = eras
    learner = taught(world, logs, np.random.default_rng(5))
    J, _ = learner._log_sums()
    variances = np.square(learner.noises)[:, None, None]
    precision = learner._prior()[0] * (variances / learner.noise**2)
    np.testing.assert_allclose(learner.prior_precisions, variances * J + precision, rtol=1e-9)
    shares = np.zeros(world.n_arms)
    for entry in learner.log_trust():
        shares[entry["arm"]] += entry["share"]
    assert (shares > 0.1).all()
    assert (shares < 1.0).all()
    for log in learner.logs:
        # alone a log says at least what it counts for among others
        assert np.linalg.eigvalsh(log.evidence.J - log.counted.J).min() > -1e-6 * np.abs(log.evidence.J).max()


def test_a_saved_learner_remembers_what_each_log_counts_for(eras, tmp_path):
    world, logs = eras
    learner = taught(world, logs, np.random.default_rng(5))
    learner.save(tmp_path / "learner")
    again = sl.load_learner(tmp_path / "learner")
    assert again.log_trust() == learner.log_trust()
    for mine, theirs in zip(learner.logs, again.logs, strict=True):
        for name in ("evidence", "counted"):
            np.testing.assert_array_equal(getattr(mine, name).J, getattr(theirs, name).J)
    rng = np.random.default_rng(9)
    for x in world.contexts(60, rng):
        assert learner.decide(x) == again.decide(x)
        for each in (learner, again):
            each.observe_behavior(x, 1)
            each.observe(x, 2, 0.3)


def test_the_proven_radius_keeps_equal_shares(eras):
    world, logs = eras
    options = {"regularization": 1.0, "noise": 0.5, "radius": "theory", "context_bound": 5.0}
    learner = taught(world, logs, np.random.default_rng(5), **options)
    for log in learner.logs:
        assert log.evidence is log.counted
        equal = log.geometry.evidence(3.0 * log.tau2, log._variances())
        np.testing.assert_array_equal(log.counted.J, equal.J)
