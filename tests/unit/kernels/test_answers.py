"""The compiled algebra of the estimators from answers against explicit inverses."""

from __future__ import annotations

import numpy as np
import pytest

from sidelight.kernels import answers


def stack(rng, K, m):
    root = rng.normal(size=(K, m, m + 2))
    return root @ np.swapaxes(root, 1, 2)


@pytest.mark.parametrize(("L", "m"), [(1, 1), (4, 3), (7, 9), (12, 2)])
def test_regressions_in_any_units(rng, L, m):
    units = 10.0 ** rng.uniform(-6, 6, size=L + m)
    S, toward = stack(rng, 4, L + m), rng.normal(size=(L, m))
    pull = stack(rng, 1, L)[0]
    S[2, :L, :L] = -pull
    expected = np.linalg.solve(S[[0, 1, 3], :L, :L] + pull, S[[0, 1, 3], :L, L:] + toward)
    S, pull, toward = (
        S * np.outer(units, units),
        pull * np.outer(units[:L], units[:L]),
        toward * np.outer(units[:L], units[L:]),
    )
    B, solved = np.full((4, L, m), 7.0), np.zeros(4, dtype=np.bool_)
    answers.regress(S, pull, toward, B, solved)
    assert solved.tolist() == [True, True, False, True]
    np.testing.assert_allclose(B[[0, 1, 3]] * units[:L, None] / units[L:], expected, rtol=1e-6, atol=1e-8)
    assert (B[2] == 7.0).all()


def test_a_matrix_of_lower_rank_is_left_alone(rng):
    v = rng.normal(size=(1, 6, 3))
    S = np.concatenate([v @ np.swapaxes(v, 1, 2), np.ones((1, 6, 2))], axis=2)
    B, solved = np.ones((1, 6, 2)), np.zeros(1, dtype=np.bool_)
    answers.regress(S, np.zeros((6, 6)), np.zeros((6, 2)), B, solved)
    assert not solved[0]
    assert (B == 1.0).all()


@pytest.mark.parametrize(("L", "m"), [(1, 2), (6, 1), (11, 3)])
def test_what_a_regression_used_up_and_how_precise_it_is(rng, L, m):
    S, S_squared, pull, shared = stack(rng, 3, L + m), stack(rng, 3, L), stack(rng, 1, L)[0], stack(rng, 1, L)[0]
    S_squared[1] = -10.0 * shared
    S11 = S[:, :L, :L]
    W = S11 + pull
    used, A = np.empty(3), np.empty((3, L, L))
    inside = stack(rng, 3, L)
    answers.used_up(S, pull, inside, used)
    np.testing.assert_allclose(used, np.einsum("aij,aji->a", inside, np.linalg.inv(W)), rtol=1e-8)
    answers.answers_precision(S, S_squared, pull, shared, A)
    assert np.isnan(A[1]).all()
    for a in (0, 2):
        np.testing.assert_allclose(A[a], W[a] @ np.linalg.solve(S_squared[a] + shared, W[a]), rtol=1e-7, atol=1e-9)


def test_a_regression_without_an_inverse_used_up_one_answer_for_each_feature():
    used = np.empty(1)
    answers.used_up(np.ones((1, 3, 3)), np.zeros((2, 2)), np.ones((1, 2, 2)), used)
    assert used[0] == 2.0


def test_pooling_likelihoods_of_all_levels_by_explicit_inverses(rng):
    K, L, m, strength = 3, 5, 2, 1.7
    S, gap = stack(rng, K, L), rng.normal(size=(K, L, m))
    mean = rng.normal(size=L)
    D = stack(rng, 1, L)[0] + np.outer(mean, mean)
    levels, values = np.array([1.0, 0.25, 1 / 256]), np.empty(3)
    answers.pooling_likelihoods(S, D, gap, mean, strength, levels, values)
    for level, value in zip(levels, values, strict=True):
        W = S + strength * (D - (1.0 - level) * np.outer(mean, mean))
        squares = sum(float(np.trace(gap[a].T @ np.linalg.solve(W[a], gap[a]))) for a in range(K))
        assert value == pytest.approx(0.5 * (squares - m * np.linalg.slogdet(W)[1].sum()), rel=1e-9)
