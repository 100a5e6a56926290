"""``decide_many`` and ``observe_many`` are the same as one by one: to the bit, or as nearly as a block of rows can."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import sidelight as sl
from sidelight.learners.reduced import TOGETHER

K, D = 4, 6
MAKERS = {
    "OFUL": lambda M: sl.OFUL(K, D, noise=0.3, regularization=0.4),
    "OFUL, auto": lambda M: sl.OFUL(K, D, noise="auto", regularization="auto", radius="posterior"),
    "ProjectedOFUL": lambda M: sl.ProjectedOFUL(
        sl.SideInformation(M, [rows @ np.ones(D) for rows in M]), noise=0.3, regularization=0.2
    ),
    "ProjectedOFUL, [I, B]": lambda M: sl.ProjectedOFUL(
        sl.SideInformation([np.hstack([np.eye(2), rows[:2, :4]]) for rows in M], [np.ones(2) for _ in M]),
        radius="printed",
    ),
}


def taught(make, rng, n, size):
    """Two learners that were told the same: one by one, and in batches of ``size``."""
    M = [rng.normal(size=(3, D)) for _ in range(K)]
    one, many = make(M), make(M)
    X, arms, rewards = rng.normal(size=(n, D)), rng.choice(K, size=n, p=[0.7, 0.1, 0.1, 0.1]), rng.normal(size=n)
    for x, arm, reward in zip(X, arms, rewards, strict=True):
        one.observe(x, int(arm), float(reward))
    for i in range(0, n, size):
        j = min(i + size, n)
        many.observe_many(X[i:j], arms[i:j].tolist(), rewards[i:j])
    assert one.n_contexts == many.n_contexts == n
    return one, many


def same_bits(one, many, but=()):
    theirs = many.state()
    for key, value in one.state().items():
        if key not in but:
            assert np.asarray(value).tobytes() == np.asarray(theirs[key]).tobytes(), key


@pytest.mark.parametrize("name", MAKERS)
def test_small_batches_are_the_same_to_the_bit(name, rng):
    one, many = taught(MAKERS[name], rng, 2_500, TOGETHER - 1)
    assert one.counts.max() > 1_024, "the most played arm passes the kernel's own refresh"
    same_bits(one, many)
    ties = np.zeros((1, D))
    questions = np.vstack([rng.normal(size=(200, D)), ties])
    assert many.decide_many(questions) == [one.decide(x) for x in questions]


#: what is derived from the sums, by rank one after every row or at once after a block of them
CACHES = ("covariances", "weights", "log_dets", "radii")


@pytest.mark.parametrize("size", [101, 1_000, 2_500])
@pytest.mark.parametrize("name", MAKERS)
def test_large_batches_have_the_same_sums_to_the_bit(name, size, rng):
    one, many = taught(MAKERS[name], rng, 2_500, size)
    for key in CACHES:
        np.testing.assert_allclose(getattr(many, key), getattr(one, key), rtol=1e-9, atol=1e-12)
    assert not np.array_equal(one.covariances, many.covariances), "no block was taken in: this shows nothing"
    if "auto" in name:
        # its prior was learned from caches that agree up to rounding
        np.testing.assert_allclose(many.automatic.precision, one.automatic.precision, rtol=1e-9)
        same_bits(
            one, many, but=(*CACHES, "bounds", "updates", "auto_hyper", "auto_mean", "auto_precision", "auto_numbers")
        )
        return
    one.refresh()
    many.refresh()
    same_bits(one, many)


@pytest.mark.parametrize(("d", "rows"), [(1, 3), (7, 1), (8, 300), (9, 129), (30, 257)])
def test_a_block_adds_up_as_rows_do(d, rows, rng):
    """Sums that were begun before, of lengths around the width of vectors."""
    Z, before = rng.normal(size=(rows, d)), rng.normal(size=(20, d))
    one, many = (sl.OFUL(2, d, regularization=0.3) for _ in range(2))
    for x in before:
        one.observe(x, 1, 1.0)
        many.observe(x, 1, 1.0)
    for x in Z:
        one.observe(x, 1, float(x[0]))
    X = np.vstack([Z, np.zeros((TOGETHER, d))])
    many.observe_many(X, [1] * len(X), X[:, 0])
    assert one.grams.tobytes() == many.grams.tobytes()
    assert one.moments.tobytes() == many.moments.tobytes()
    assert many.updates[1] == 0, "that was a block"


def test_where_rank_one_loses_digits_a_block_does_not(rng):
    """With next to no prior the first updates cancel most of what they started from."""
    d, n, lam = 6, 900, 1e-6
    X, rewards = rng.normal(size=(n, d)) * np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.01]), rng.normal(size=n)
    one, many = (sl.OFUL(1, d, regularization=lam) for _ in range(2))
    for x, reward in zip(X, rewards, strict=True):
        one.observe(x, 0, float(reward))
    many.observe_many(X, [0] * n, rewards)
    V, right = X.T @ X + lam * np.eye(d), X.T @ rewards
    off = [np.abs(V @ learner.weights[0] - right).max() / np.abs(right).max() for learner in (one, many)]
    assert off[1] < 1e-13 < off[0] < 1e-6


def test_nothing_is_left_to_learn(rng):
    """As many constraints as features: a block of no dimensions."""
    M = [rng.normal(size=(3, 3)) for _ in range(2)]
    learner = sl.ProjectedOFUL(sl.SideInformation(M, [rows @ np.ones(3) for rows in M]))
    X = rng.normal(size=(100, 3))
    learner.observe_many(X, [0] * 100, rng.normal(size=100))
    assert learner.counts.tolist() == [100, 0]
    for decision, x in zip(learner.decide_many(X), X, strict=True):
        assert decision.estimate == pytest.approx(x.sum())
        assert decision.width == 0.0


def test_a_read_only_array_is_taken_like_any_other(rng):
    learner = sl.OFUL(K, D)
    X = rng.normal(size=(5, D))
    frozen = X.copy()
    frozen.flags.writeable = False
    learner.observe_many(frozen, [0, 1, 2, 3, 0], np.arange(5.0))
    assert learner.decide_many(frozen) == learner.decide_many(X)
    assert learner.decide(frozen[1]) == learner.decide(X[1])


def fused(rng, **settings):
    """A fused learner in doubt: it knows a small log, a few answers and some rounds."""
    schema = sl.Schema([f"x{i}" for i in range(D)], recorded=["x0", "x1", "x2", "x3"])
    log = sl.summarize_log((rng.normal(size=(300, 4)), rng.integers(K, size=300), rng.normal(size=300)), schema)
    learner = sl.FusedOFUL(sl.BehaviorQueries(log), **{"safety": 8.0, **settings})
    for x in rng.normal(size=(150, D)):
        learner.observe_behavior(x, int(rng.integers(K)))
        learner.observe(x, learner.decide(x).arm, float(rng.normal()))
    return learner


@pytest.mark.parametrize("drawn", [True, False])
def test_fused_batches_doubt_and_draw_as_one_by_one(rng, drawn):
    learner = fused(rng)
    assert (learner.untested > 1.0).any()
    X = rng.normal(size=(400, D))
    one, many, among = (np.random.default_rng(7) if drawn else None for _ in range(3))
    decisions = learner.decide_many(X, rng=many)
    assert decisions == [learner.decide(x, rng=one) for x in X]
    # the arithmetic of a choice among some arms is written apart
    for x, decision in zip(X, decisions, strict=True):
        again = learner.decide(x, allowed=learner.arms, rng=among)
        assert (again.arm, again.propensity) == (decision.arm, decision.propensity)
    propensities = {decision.propensity for decision in decisions}
    assert propensities == {0.5, 1.0}, "some rounds are in doubt, or this test shows nothing"


def test_a_proven_radius_decides_in_batches_too(rng):
    learner = fused(rng, radius="theory", regularization=1.0, noise=1.0)
    X = rng.normal(size=(20, D))
    assert learner.decide_many(X) == [learner.decide(x) for x in X]


def test_over_cores_covers_every_row_once(monkeypatch):
    from sidelight.learners import reduced

    monkeypatch.setattr(reduced.os, "cpu_count", lambda: 3)
    for n, products in ((1, 10**9), (2, 10**9), (10, 10**9), (10, 0)):
        seen = np.zeros(n, dtype=int)

        def rows(start, stop, seen=seen):
            seen[start:stop] += 1

        reduced.over_cores(rows, n, products)
        assert (seen == 1).all()


def test_large_batches_over_cores_are_the_same(rng, monkeypatch):
    from sidelight.learners import reduced

    learner = fused(rng)
    X = rng.normal(size=(300, D))
    alone = learner.decide_many(X)
    monkeypatch.setattr(reduced, "WORTH_THREADS", 1)
    assert learner.decide_many(X) == alone


def test_a_copy_learns_in_memory_of_its_own(rng):
    """The parts of a state share its memory: a copy must not write where the original reads."""
    original = fused(rng)
    X = rng.normal(size=(30, D))
    before = original.decide_many(X)
    for twin in (copy.copy(original), copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
        assert [twin.decide(x) for x in X] == before
    for x in X:
        twin.observe(x, 0, 5.0)
    assert twin.counts[0] == original.counts[0] + 30
    assert original.decide_many(X) == [original.decide(x) for x in X] == before


@pytest.mark.parametrize("safety", [8.0, 0.0])
def test_fused_learners_observe_in_batches_too(rng, safety, monkeypatch):
    """In doubt of its log row by row, since a reward may surprise and widths paid add up; else in blocks."""
    one = fused(rng, safety=safety)
    many = copy.deepcopy(one)
    X, arms = rng.normal(size=(1_500, D)), rng.integers(K, size=1_500)
    rewards = rng.normal(size=1_500) + 40.0 * (rng.random(1_500) < 0.01)  # some that surprise
    for x, arm, reward in zip(X, arms, rewards, strict=True):
        one.observe(x, int(arm), float(reward))
    assert many._observes_plainly()
    assert not fused(rng, forgetting=0.99)._observes_plainly()
    monkeypatch.setattr(type(many), "_observe", None)
    monkeypatch.setattr(type(many), "_observes_plainly", lambda self: True)
    many.observe_many(X, arms.tolist(), rewards)
    assert one.refreshes == many.refreshes
    if safety:
        same_bits(one, many)
        return
    assert one.spent == many.spent == 0.0
    for key in (*CACHES, "prior_precisions", "prior_moments"):
        theirs, ours = getattr(many, key), getattr(one, key)
        np.testing.assert_allclose(theirs, ours, rtol=1e-9, atol=1e-9 * np.abs(ours).max())


def test_a_batch_of_repeated_features_far_larger_than_the_prior(rng):
    """Rounding swallows the prior, so that sums have no inverse; what is derived from them stays of this world."""
    K, d = 4, 6
    X = 1e7 * rng.normal(size=(200, 2)) @ rng.normal(size=(2, d))
    arms, rewards = rng.integers(K, size=200).tolist(), rng.normal(size=200)
    learner = sl.OFUL(K, d, noise=0.5)
    learner.observe_many(X, arms, rewards)
    estimates, widths = learner.scores(X[0])
    assert (np.abs(estimates) < 3.0).all()
    assert ((widths > 0.0) & (widths < 3.0)).all()
    assert learner.decide(X[0]).arm == int((estimates + widths).argmax())
