"""Batches of decisions are those of single ones, to the last bit, at every age and for numbers of every size."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl


def learner_of(kind, K, d, rng, **settings):
    if kind == "OFUL":
        return sl.OFUL(K, d, **settings)
    L = d // 3
    if kind == "[I, B]":
        M = [np.hstack([np.eye(L), rng.normal(size=(L, d - L))]) for _ in range(K)]
    else:
        M = [rng.normal(size=(L, d)) for _ in range(K)]
    return sl.ProjectedOFUL(sl.SideInformation(M, [rng.normal(size=L) for _ in range(K)]), **settings)


def check(learner, X):
    """As one by one, and as the scores of all arms say."""
    for decision, x in zip(learner.decide_many(X)[::20], X[::20], strict=True):
        estimates, widths = learner.scores(x)
        assert decision.arm == int((estimates + widths).argmax())
    assert learner.decide_many(X) == [learner.decide(x) for x in X]


def bounded(learner):
    """Make ``bounds`` true of covariances that a test has changed."""
    learner.bounds = [np.sqrt(min(np.trace(C), np.abs(C).sum(axis=1).max())) for C in learner.covariances]


@pytest.mark.parametrize("kind", ["OFUL", "[I, B]", "any M"])
@pytest.mark.parametrize(("K", "d"), [(4, 20), (5, 21), (13, 23), (33, 30)])
@pytest.mark.parametrize("rounds", [0, 40, 2_000])
def test_as_one_by_one_at_every_age(kind, K, d, rounds, rng):
    """From no rounds at all, where all arms tie, to many."""
    learner = learner_of(kind, K, d, rng, noise=0.2, regularization=0.3)
    for x in rng.normal(size=(rounds, d)):
        arm = learner.decide(x).arm
        learner.observe(x, arm, float(x[arm % d] + 0.2 * rng.normal()))
    check(learner, rng.normal(size=(259, d)))
    check(learner, np.vstack([np.zeros((1, d)), rng.normal(size=(15, d))]))


@pytest.mark.parametrize("kind", ["OFUL", "[I, B]"])
@pytest.mark.parametrize("alpha", [0.0, 1e-9, 1.0])
def test_arms_that_differ_by_the_last_bit(kind, alpha, rng):
    K, d = 12, 24
    learner = learner_of(kind, K, d, rng, alpha=alpha, noise=0.1)
    learner.weights[:] = rng.normal(size=d)
    for a in range(0, K, 3):
        learner.weights[a] = np.nextafter(learner.weights[a], np.inf)
        learner.covariances[a] *= 1.0 - 2.0**-52 * a
    bounded(learner)
    X = rng.normal(size=(300, d))
    check(learner, X)
    chosen = {decision.arm for decision in learner.decide_many(X)}
    assert len(chosen) > 1, "nothing was close enough to be decided by the last bit"


def test_estimates_that_cancel(rng):
    """``ŵ`` is large and orthogonal to the contexts: its products are all rounding, far more than the widths."""
    K, d = 8, 32
    learner = sl.OFUL(K, d, noise=1e-6)
    along = rng.normal(size=d)
    X = rng.normal(size=(200, d))
    X -= np.outer(X @ along, along) / (along @ along)
    learner.weights[:] = 1e9 * along * (1.0 + 1e-7 * rng.normal(size=(K, 1)))
    bounded(learner)
    check(learner, X)
    assert len({decision.arm for decision in learner.decide_many(X)}) == K


def test_covariances_that_are_almost_singular(rng):
    """The forms are all cancellation: they come out as rounding, negative ones too, and zero widths tie."""
    K, d = 10, 28
    learner = sl.OFUL(K, d, noise=0.3)
    for a in range(K):
        Q, _ = np.linalg.qr(rng.normal(size=(d, d)))
        C = (Q * np.logspace(0, -18, d)) @ Q.T
        learner.covariances[a] = 0.5 * (C + C.T)
    bounded(learner)
    # contexts along the small axes of the last arm
    check(learner, rng.normal(size=(200, 6)) @ Q[:, -6:].T)


@pytest.mark.parametrize("scale", [1e-160, 1e-80, 1e40, 1e48])
def test_numbers_near_the_end_of_the_range(scale, rng):
    K, d = 6, 18
    learner = sl.OFUL(K, d, noise=0.3)
    for x in rng.normal(size=(100, d)):
        learner.observe(x, int(rng.integers(K)), float(rng.normal()))
    check(learner, scale * rng.normal(size=(100, d)))
    learner.weights *= 1e170  # their squares overflow: no bound is left, and nothing is left out
    check(learner, scale * rng.normal(size=(100, d)))


@pytest.mark.parametrize("value", [1e60, np.inf, np.nan])
def test_a_context_beyond_what_can_be_computed_is_refused_inside_the_kernel_too(value, rng):
    learner, x = sl.OFUL(3, 4, noise=0.3), rng.normal(size=4)
    x[2] = value
    for given in (x, x.tolist()):
        with pytest.raises(sl.errors.ContextError, match="Feature 2"):
            learner.decide(given)
