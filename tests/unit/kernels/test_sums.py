"""Sums of answers: many at once against one by one."""

import numpy as np
import pytest

from sidelight.kernels.sums import TOGETHER, Answers, add_answer, add_answers


def _nothing(K: int, d: int, L: int, order: np.ndarray) -> Answers:
    return Answers(order, np.zeros((K, d, d)), np.zeros((K, L, L)), np.zeros((K, d)), np.zeros(K))


@pytest.mark.parametrize(
    ("n", "weighted"), [(1, True), (3, False), (4 * TOGETHER + 3, False), (4 * TOGETHER + 3, True)]
)
def test_answers_at_once_are_answers_one_by_one_to_the_bit(rng, n, weighted) -> None:
    K, d, L = 3, 7, 4
    order, X, arms = rng.permutation(d), rng.normal(size=(n, d)), rng.integers(2, size=n)  # nobody names the third arm
    weights = rng.uniform(1.0, 3.0, size=n) if weighted else np.ones(n)
    together, single = _nothing(K, d, L, order), _nothing(K, d, L, order)
    add_answers(together, X, arms, weights)
    for x, a, weight in zip(X, arms, weights, strict=True):
        add_answer(single, x, int(a), float(weight))
    for ours, theirs in zip(together, single, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert together.counts.sum() == pytest.approx(weights.sum())
    assert not together.S[2].any()


def test_probabilities_are_answers_about_many_arms_at_one_context(rng) -> None:
    K, d, L = 5, 6, 2
    x, weights = rng.normal(size=d), rng.uniform(size=K)
    together, single = _nothing(K, d, L, np.arange(d)), _nothing(K, d, L, np.arange(d))
    add_answers(together, x[None], np.arange(K), weights)
    for a in range(K):
        add_answer(single, x, a, float(weights[a]))
    for ours, theirs in zip(together, single, strict=True):
        np.testing.assert_array_equal(ours, theirs)
