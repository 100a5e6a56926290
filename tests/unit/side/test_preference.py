"""What the old policy favoured, from a log, from answers and from known moments."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.side.preference import all_preferences, recorded_preferences

K, L, M = 4, 3, 2


def _logged(rng, n=60_000, units=None, policy=None, weights=None):
    """Contexts with correlated features, arms of a softmax policy of logits ``x·φ_a``, and rewards."""
    mixing = np.eye(L + M) + 0.3 * np.tri(L + M)
    z = rng.normal(size=(n, L + M)) @ mixing.T
    phi = 0.4 * rng.normal(size=(K, L + M)) if policy is None else policy
    logits = z @ phi.T + rng.gumbel(size=(n, K))
    arms = logits.argmax(axis=1)
    units = np.ones(L + M) if units is None else units
    X = np.column_stack([np.ones(n), z * units])
    w = np.zeros((K, L + M + 1)) if weights is None else weights
    rewards = np.sum(X * w[arms], axis=1) + 0.5 * rng.normal(size=n)
    names = [f"x{j}" for j in range(L + M)]
    schema = sl.Schema(names, names[:L], arms=range(K), intercept=True)
    return X, arms, rewards, schema, phi


def _summary(X, arms, rewards, schema):
    return sl.LogSummary.from_arrays(X[:, : L + 1], arms, rewards, schema)


def _cosines(a, b):
    return np.sum(a * b, axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_answers_tell_the_direction_of_the_policys_logits(rng):
    """Of normal contexts the discriminant direction is that of ``φ_a`` less the mean over arms; 20,000 answers tell it.

    A softmax of four arms is not quite the normal mixture of discriminant analysis: 0.95 leaves room for that.
    """
    X, arms, rewards, schema, phi = _logged(rng)
    estimator = sl.BehaviorQueries(_summary(X, arms, rewards, schema))
    for i in range(5_000):
        estimator.observe(X[i], int(arms[i]))
    found = all_preferences(
        recorded_preferences(estimator.summary), estimator.hidden_shift(), X[:, L + 1 :].std(axis=0)
    )
    assert np.all(found[:, 0] == 0.0)  # the intercept
    shares = np.bincount(arms, minlength=K) / len(arms)
    assert (_cosines(found[:, 1:], phi - shares @ phi) > 0.95).all()


def test_known_moments_tell_what_answers_tell(rng):
    """With independent hidden features, whose variances stand in for ``Σ_e``, the two agree up to sampling error."""
    X, arms, rewards, schema, _ = _logged(rng)
    summary = _summary(X, arms, rewards, schema)
    R12 = np.stack([X[arms == a][:, : L + 1].T @ X[arms == a][:, L + 1 :] / (arms == a).sum() for a in range(K)])
    known, asked = sl.KnownCrossMoments(summary, R12), sl.BehaviorQueries(summary)
    for i in range(5_000):
        asked.observe(X[i], int(arms[i]))
    a, b = known.hidden_shift(), asked.hidden_shift()
    assert a is not None
    assert b is not None
    assert a.residual is None
    np.testing.assert_allclose(a.slopes, b.slopes, atol=0.1)
    np.testing.assert_allclose(a.levels, b.levels, atol=0.15)
    both = sl.KnownCrossMoments(summary, R12, summary.second_moments).hidden_shift()
    assert both is not None
    np.testing.assert_allclose(both.levels, a.levels, atol=1e-12)


@pytest.mark.parametrize("units", [2.0 ** np.array([3, -7, 0, 11, -2]), np.array([1e3, 0.3, 1e-4, 7.0, 250.0])])
def test_units_divide_preferences(units):
    found = []
    for scale in (np.ones(L + M), units):
        rng = np.random.default_rng(5)
        X, arms, rewards, schema, _ = _logged(rng, n=3_000, units=scale)
        estimator = sl.BehaviorQueries(_summary(X, arms, rewards, schema))
        for i in range(300):
            estimator.observe(X[i], int(arms[i]))
        z = all_preferences(recorded_preferences(estimator.summary), estimator.hidden_shift(), scale[L:])
        found.append(z[:, 1:] * scale)
    if np.all(np.frexp(units)[0] == 0.5):
        np.testing.assert_array_equal(found[0], found[1])
    else:
        np.testing.assert_allclose(found[0], found[1], rtol=1e-7, atol=1e-9)


def test_where_arms_were_drawn_by_lot_almost_nothing_is_left(rng):
    """What chance leaves is shrunk: the mean square is below what sampling error alone would have, ``1/n_a``."""
    X, arms, rewards, schema, _ = _logged(rng, n=4_000, policy=np.zeros((K, L + M)))
    found = recorded_preferences(_summary(X, arms, rewards, schema))
    assert np.square(found).mean() < 1.0 / 1_000
    assert np.isfinite(found).all()


def test_arms_without_rows_and_features_that_stand_still_have_none(rng):
    X, arms, rewards, schema, _ = _logged(rng, n=500)
    X[:, 2] = 7.0
    arms[arms == 3] = 0
    found = recorded_preferences(_summary(X, arms, rewards, schema))
    assert np.all(found[3] == 0.0)
    assert np.all(found[:, 2] == 0.0)
    assert np.isfinite(found).all()
    nothing = sl.BehaviorQueries(_summary(X, arms, rewards, schema))
    assert nothing.hidden_shift() is None
    z = all_preferences(found, None, np.ones(M))
    np.testing.assert_array_equal(z, np.column_stack([found, np.zeros((K, M))]))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_learner_expects_of_arms_nobody_played_what_the_policy_knew(rng, sign):
    """A policy that gives arms to whom they suit best, or least: after rounds of two arms the others' prior means point
    along their hidden weights (rounds of random contexts, so that nothing else could tell)."""
    weights = np.column_stack([np.zeros(K), 0.3 * rng.normal(size=(K, L)), 1.5 * rng.normal(size=(K, M))])
    X, arms, rewards, schema, _ = _logged(rng, n=20_000, policy=sign * weights[:, 1:], weights=weights)
    learner = sl.FusedOFUL(sl.BehaviorQueries(_summary(X, arms, rewards, schema)))
    for i in range(600):
        learner.observe_behavior(X[i], int(arms[i]))
        played = i % 2
        learner.observe(X[i], played, float(X[i] @ weights[played] + 0.5 * rng.normal()))
    means = learner._prior()[1][:, L + 1 :]
    assert (_cosines(means[2:], weights[2:, L + 1 :]) > 0.8).all()
    # an arm that comes later has no preferences: the prior that all arms share
    learner.add_arm("new")
    np.testing.assert_array_equal(learner._prior()[1][-1], learner.automatic.mean)
    assert np.isfinite(learner.scores(X[0])).all()
    learner.observe(X[0], "new", 1.0)


def test_a_file_keeps_the_priors_of_the_arms(rng, tmp_path):
    X, arms, rewards, schema, _ = _logged(rng, n=2_000)
    learner = sl.FusedOFUL(sl.BehaviorQueries(_summary(X, arms, rewards, schema)))
    for i in range(80):
        learner.observe_behavior(X[i], int(arms[i]))
        learner.observe(X[i], i % K, float(rewards[i]))
    learner.add_arm("new")
    learner.save(tmp_path / "a.learner")
    again = sl.load_learner(tmp_path / "a.learner")
    for mine, theirs in zip(learner._prior(), again._prior(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for i in range(80, 140):
        for each in (learner, again):
            each.observe(X[i], "new" if i % 2 else 1, float(rewards[i]))
    np.testing.assert_array_equal(learner.scores(X[0]), again.scores(X[0]))
