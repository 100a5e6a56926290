"""A learner copies the estimator it is given: one estimator may serve two learners, and stays the caller's."""

from __future__ import annotations

import numpy as np
import pytest
from tests.contract.registry import ARMS, FEATURES

import sidelight as sl

D = len(FEATURES)
MAKERS = {
    "EpochOFUL": lambda hidden: sl.EpochOFUL(hidden, 500, keep_data=True),
    "RunningOFUL": sl.RunningOFUL,
}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


@pytest.mark.parametrize("kind", ["actions", "probabilities"])
def test_two_learners_of_one_estimator(make, log, rng, kind):
    build = sl.BehaviorQueries if kind == "actions" else sl.BehaviorProbabilities

    def tell(target, x, t):
        chances = np.roll([0.2, 0.3, 0.5], t)
        if isinstance(target, build):
            target.observe(x, ARMS[t % 3] if kind == "actions" else chances)
        elif kind == "actions":
            target.observe_behavior(x, ARMS[t % 3])
        else:
            target.observe_behavior(x, probabilities=chances)

    shared = build(log.summary)
    for t, x in enumerate(rng.normal(size=(20, D))):
        tell(shared, x, t)
    before = shared.regression().copy()
    one, other, alone = make(shared), make(shared), make(shared.copy())
    X = rng.normal(size=(60, D))
    for t, x in enumerate(X):
        tell(one, x, t)
        tell(alone, x, t)
        one.observe(x, ARMS[t % 3], 0.5)
        alone.observe(x, ARMS[t % 3], 0.5)
        other.observe(x, ARMS[t % 3], 0.5)
    assert shared.n_answers == 20
    np.testing.assert_array_equal(shared.regression(), before)
    np.testing.assert_array_equal(one.scores(X[0])[0], alone.scores(X[0])[0])
    assert not np.array_equal(one.scores(X[0])[0], other.scores(X[0])[0])
    # and what is told to the estimator afterwards does not reach the learners
    kept = other.scores(X[0])[0].tobytes()
    for t, x in enumerate(X):
        tell(shared, x, t)
    assert other.scores(X[0])[0].tobytes() == kept
    assert shared.n_answers == 80


class OneForAll:
    """A user's own estimator (the paper's Assumption 1): the same regression for every arm, learned by counting."""

    needs = "action"

    def __init__(self, summary):
        self.summary = summary
        self.n_answers = 0
        L, m = summary.n_recorded, summary.n_features - summary.n_recorded
        self.A, self.C = 0.1 * np.eye(L), np.zeros((L, m))
        self.order = np.concatenate([summary.recorded, summary.hidden])

    def observe(self, x, answer, probability=1.0):
        y = np.asarray(x)[self.order]
        L = self.summary.n_recorded
        self.A += np.outer(y[:L], y[:L]) / probability
        self.C += np.outer(y[:L], y[L:]) / probability
        self.n_answers += 1

    def regression(self):
        return np.broadcast_to(np.linalg.solve(self.A, self.C), (self.summary.n_arms, *self.C.shape))

    def precision(self):
        return np.broadcast_to(self.A, (self.summary.n_arms, *self.A.shape))

    def residual_moments(self):
        return np.broadcast_to(np.eye(self.C.shape[1]), (self.summary.n_arms, self.C.shape[1], self.C.shape[1]))

    def bound(self, delta, horizon, context_bound=1.0):
        return np.full(self.summary.n_arms, np.inf if self.n_answers == 0 else 1.0 / np.sqrt(self.n_answers))

    def copy(self):
        twin = OneForAll(self.summary)
        twin.A, twin.C, twin.n_answers = self.A.copy(), self.C.copy(), self.n_answers
        return twin


def test_a_users_own_estimator(make, log, rng):
    own = OneForAll(log.summary)
    assert isinstance(own, sl.HiddenEstimator)
    learner = make(own)
    assert learner.needs == "action"
    X = rng.normal(size=(40, D))
    for t, x in enumerate(X):
        learner.observe_behavior(x, ARMS[t % 3])
        learner.observe(x, ARMS[t % 3], 0.1)
    assert own.n_answers == 0
    assert np.isfinite(np.concatenate(learner.scores(X[0]))).all()


def test_a_learner_with_a_users_own_estimator_says_that_it_cannot_be_saved(make, log, tmp_path):
    with pytest.raises(sl.errors.InputError, match="OneForAll"):
        make(OneForAll(log.summary)).save(tmp_path / "learner")
