"""The compiled algebra of stacks against NumPy's, at sizes that are no multiples of a vector."""

from __future__ import annotations

import numpy as np
import pytest

from sidelight.kernels import spd


def stack(rng, K, m):
    root = rng.normal(size=(K, m, m + 2))
    return root @ np.swapaxes(root, 1, 2)


@pytest.mark.parametrize(("m", "n"), [(1, 0), (2, 3), (5, 1), (8, 9), (13, 4), (41, 30)])
def test_elimination(rng, m, n):
    """``[A | X]`` becomes ``[Gᵀ | G⁻¹X]``, then ``[Gᵀ | A⁻¹X]``; what is below the diagonal is not read."""
    A, X, first = stack(rng, 1, m)[0], rng.normal(size=(m, n)), spd.padded(m)
    table = np.zeros((m, first + spd.padded(n)))
    table[:, :m], table[:, first : first + n] = np.triu(A) + np.tril(rng.normal(size=(m, m)), -1), X
    assert spd.factor(table) == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-12, abs=1e-12)
    root = np.linalg.cholesky(A)
    np.testing.assert_allclose(np.triu(table[:, :m]), root.T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(table[:, first : first + n], np.linalg.solve(root, X), rtol=1e-7, atol=1e-9)
    spd.backward(table, first)
    np.testing.assert_allclose(table[:, first : first + n], np.linalg.solve(A, X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("m", [1, 2, 5, 8, 13, 34])
def test_inverses_and_determinants(rng, m):
    A, log_det = stack(rng, 3, m), np.empty(3)
    spd.log_det_stack(A, log_det)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(A)[1], rtol=1e-9, atol=1e-9)
    inverses = np.empty_like(A)
    spd.invert_stack(A, inverses)
    np.testing.assert_allclose(inverses @ A, np.broadcast_to(np.eye(m), A.shape), atol=1e-8)
    np.testing.assert_array_equal(inverses, np.swapaxes(inverses, 1, 2))


def test_a_determinant_beyond_the_range_of_numbers():
    log_det = np.empty(2)
    spd.log_det_stack(np.array([np.diag(np.full(9, 1e90)), np.diag(np.full(9, 1e-90))]), log_det)
    np.testing.assert_allclose(log_det, [810 * np.log(10.0), -810 * np.log(10.0)], rtol=1e-12)


def test_a_matrix_that_is_not_positive_definite_has_no_determinant():
    log_det = np.empty(2)
    spd.log_det_stack(np.array([[[1.0, 2.0], [2.0, 1.0]], [[2.0, 1.0], [1.0, 2.0]]]), log_det)
    assert np.isnan(log_det[0])
    assert log_det[1] == pytest.approx(np.log(3.0))


@pytest.mark.parametrize(("m", "n"), [(1, 1), (4, 3), (7, 9), (12, 2)])
def test_solutions_in_any_units(rng, m, n):
    units = 10.0 ** rng.uniform(-6, 6, size=m)
    A, X = stack(rng, 4, m) * np.outer(units, units), rng.normal(size=(4, m, n)) * units[:, None]
    A[2] = 0.0
    expected = X.copy()
    for a in (0, 1, 3):
        expected[a] = np.linalg.solve(A[a] / np.outer(units, units), X[a] / units[:, None]) / units[:, None]
    solved = np.zeros(4, dtype=np.bool_)
    spd.solve_stack(A, X, solved)
    assert solved.tolist() == [True, True, False, True]
    np.testing.assert_allclose(X, expected, rtol=1e-6)


def test_a_matrix_of_lower_rank_is_left_alone(rng):
    v = rng.normal(size=(1, 6, 3))
    A, X = v @ np.swapaxes(v, 1, 2), np.ones((1, 6, 2))
    solved = np.zeros(1, dtype=np.bool_)
    spd.solve_stack(A, X, solved)
    assert not solved[0]
    assert (X == 1.0).all()


@pytest.mark.parametrize(("m", "n"), [(1, 2), (6, 6), (9, 3)])
def test_congruence(rng, m, n):
    A, X, products = stack(rng, 3, m), rng.normal(size=(3, m, n)), np.empty((3, n, n))
    A[1] = -np.eye(m)
    spd.congruence_stack(A, X, products)
    assert np.isnan(products[1]).all()
    for a in (0, 2):
        np.testing.assert_allclose(products[a], X[a].T @ np.linalg.solve(A[a], X[a]), rtol=1e-7, atol=1e-9)


def test_pooling_likelihoods_of_all_levels_by_explicit_inverses(rng):
    K, L, m, strength = 3, 5, 2, 1.7
    S, gap = stack(rng, K, L), rng.normal(size=(K, L, m))
    mean = rng.normal(size=L)
    D = stack(rng, 1, L)[0] + np.outer(mean, mean)
    levels, values = np.array([1.0, 0.25, 1 / 256]), np.empty(3)
    spd.pooling_likelihoods(S, D, gap, mean, strength, levels, values)
    for level, value in zip(levels, values, strict=True):
        W = S + strength * (D - (1.0 - level) * np.outer(mean, mean))
        squares = sum(float(np.trace(gap[a].T @ np.linalg.solve(W[a], gap[a]))) for a in range(K))
        assert value == pytest.approx(0.5 * (squares - m * np.linalg.slogdet(W)[1].sum()), rel=1e-9)
