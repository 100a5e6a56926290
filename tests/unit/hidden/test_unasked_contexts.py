"""Contexts at which the old policy was not asked tell how hidden features go with recorded ones."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.hidden.protocol import Contexts, EstimatorDefaults
from sidelight.hidden.unasked import Unasked

K, L, M = 3, 3, 2
CENTRES = np.array([1.0, 0.0, -2.0])
SLOPES = np.array([[0.9, 0.0], [0.0, -0.7], [0.3, 0.2]])


def contexts(n, rng):
    """(n, 1 + L + M)  An intercept, recorded features that have nothing to do with each other, and hidden ones."""
    recorded = rng.normal(size=(n, L)) + CENTRES
    hidden = recorded @ SLOPES + rng.normal(size=(n, M)) + [3.0, 0.0]
    return np.column_stack([np.ones(n), recorded, hidden])


def queries(rng, rows=3_000):
    names = [f"x{j}" for j in range(L + M)]
    schema = sl.Schema(names, names[:L], arms=range(K), intercept=True)
    X = contexts(rows, rng)
    arms = rng.integers(K, size=rows)
    return sl.BehaviorQueries(sl.LogSummary.from_arrays(X[:, : L + 1], arms, rng.normal(size=rows), schema))


def sums(X):
    return Contexts(float(len(X)), X.sum(axis=0), X.T @ X)


def test_deviations_are_integrated_out(rng):
    n, m, v = 4, 2, 0.7
    Z, Y = rng.normal(size=(30, n)), rng.normal(size=(30, m))
    slopes, levels = (root @ root.T for root in rng.normal(size=(2, n, n)))
    both = np.hstack([Z, Y])
    found = Unasked(30.0, both.T @ both, slopes, levels).within(v)
    precision = np.linalg.inv(np.eye(30) + Z @ (slopes + v * levels) @ Z.T)
    np.testing.assert_allclose((1.0 + v / 1.5) * found, both.T @ precision @ both, rtol=1e-9, atol=1e-9)


def test_slopes_and_means_are_told_where_nobody_answers(rng):
    hidden, X = queries(rng), contexts(2_000, rng)
    before = hidden.precision()
    assert hidden.unseen().all()
    assert hidden.see_contexts(sums(X))
    B = hidden.regression()
    np.testing.assert_allclose(B[:, 1:], np.tile(SLOPES, (K, 1, 1)), atol=0.15)
    np.testing.assert_allclose(B[:, 0], np.tile([3.0, 0.0], (K, 1)), atol=0.4)
    assert not hidden.unseen().any()
    # the level of an arm is told to within some deviations of what the recorded features leave, not at once for good
    level = 1.0 / np.linalg.inv(hidden.precision())[:, 0, 0]
    assert (level > 1e3 / np.linalg.inv(before)[:, 0, 0]).all()
    assert (level < 0.2).all()


def test_what_was_asked_everywhere_stays_as_it_is(rng):
    hidden, X = queries(rng), contexts(200, rng)
    for x in X:
        hidden.observe(x, int(rng.integers(K)))
    before = hidden.regression(), hidden.precision(), hidden.residual_moments()
    assert not hidden.see_contexts(sums(X))
    for old, new in zip(before, (hidden.regression(), hidden.precision(), hidden.residual_moments()), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("asked", [0, 7])
def test_files_and_copies_keep_them(rng, asked):
    hidden, X = queries(rng), contexts(100, rng)
    for x in X[:asked]:
        hidden.observe(x, int(rng.integers(K)))
    hidden.see_contexts(sums(X))
    twins = hidden.copy(), type(hidden).from_state(hidden.summary, *hidden.state())
    for twin in twins:
        np.testing.assert_array_equal(twin.regression(), hidden.regression())
        np.testing.assert_array_equal(twin.precision(), hidden.precision())


def test_given_strengths_and_other_estimators_do_not_look_at_them(rng):
    summary, X = queries(rng).summary, contexts(50, rng)
    for hidden in (sl.BehaviorQueries(summary, pooling=3.0), sl.BehaviorQueries(summary, estimator="ipw")):
        before = hidden.regression()
        assert not hidden.see_contexts(sums(X))
        np.testing.assert_array_equal(hidden.regression(), before)
    assert not EstimatorDefaults().see_contexts(sums(X))


def test_a_learner_that_never_asks_learns_from_its_contexts(rng):
    hidden = queries(rng)
    learner = sl.FusedOFUL(hidden)
    assert not learner.logs[0].hidden.regression()[:, 1:].any()
    for x in contexts(400, rng):
        learner.observe(x, learner.decide(x).arm, float(rng.normal()))
    log = learner.logs[0]
    np.testing.assert_allclose(log.hidden.regression()[:, 1:], np.tile(SLOPES, (K, 1, 1)), atol=0.25)
    # hidden features have no effect here, and the log leaves nothing but noise: before, half of it was called theirs
    assert (log.tau2 < 0.2 * log.s2).all()


def test_an_intercept_alone_and_a_given_pooling(rng):
    """Without slopes only answers say something about them; a strength that is given takes nothing from contexts."""
    schema = sl.Schema(["x", "y"], [], arms=[0, 1], intercept=True)
    log = sl.LogSummary.from_arrays(np.ones((200, 1)), rng.integers(2, size=200), rng.normal(size=200), schema)
    hidden = sl.BehaviorQueries(log)
    X = np.column_stack([np.ones(300), rng.normal(size=(300, 2))])
    for x in X[:20]:
        hidden.observe(x, 0)
    assert hidden.see_contexts(Contexts(300.0, X.sum(axis=0), X.T @ X))
    told = hidden._told()
    assert told.unasked is not None
    assert told.informative(1.0) == told.answers == 20.0
    hidden.fix_pooling(3.0)
    assert hidden._told().unasked is None
