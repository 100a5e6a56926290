"""``decide_many`` and ``observe_many`` inside the kernel are the same as one by one, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl

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


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_to_the_bit(name, rng):
    M = [rng.normal(size=(3, D)) for _ in range(K)]
    one, many = MAKERS[name](M), MAKERS[name](M)
    n = 2_500  # the most played arm passes the kernel's own refresh
    X, arms, rewards = rng.normal(size=(n, D)), rng.choice(K, size=n, p=[0.7, 0.1, 0.1, 0.1]), rng.normal(size=n)
    for x, arm, reward in zip(X, arms, rewards, strict=True):
        one.observe(x, int(arm), float(reward))
    for i, j in ((0, 1), (1, 300), (300, n)):
        many.observe_many(X[i:j], arms[i:j].tolist(), rewards[i:j])
    assert one.counts.max() > 1_024
    assert one.n_contexts == many.n_contexts == n
    theirs = many.state()
    for key, value in one.state().items():
        assert np.asarray(value).tobytes() == np.asarray(theirs[key]).tobytes(), key
    ties = np.zeros((1, D))
    questions = np.vstack([X[:200], ties])
    assert many.decide_many(questions) == [one.decide(x) for x in questions]


def test_a_read_only_array_is_taken_like_any_other(rng):
    learner = sl.OFUL(K, D)
    X = rng.normal(size=(5, D))
    frozen = X.copy()
    frozen.flags.writeable = False
    learner.observe_many(frozen, [0, 1, 2, 3, 0], np.arange(5.0))
    assert learner.decide_many(frozen) == learner.decide_many(X)
    assert learner.decide(frozen[1]) == learner.decide(X[1])
