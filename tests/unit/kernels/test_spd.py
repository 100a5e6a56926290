"""The compiled algebra of stacks against NumPy's, at sizes that are no multiples of a vector."""

from __future__ import annotations

import numpy as np
import pytest

from sidelight.kernels import spd
from sidelight.kernels.compiled import kernel


@kernel
def factor(table):
    return spd.factor(table)


@kernel
def backward(table, first):
    spd.backward(table, table, first, False)


def stack(rng, K, m):
    root = rng.normal(size=(K, m, m + 2))
    return root @ np.swapaxes(root, 1, 2)


@pytest.mark.parametrize(("m", "n"), [(1, 0), (2, 3), (5, 1), (8, 9), (13, 4), (41, 70), (103, 2)])
def test_elimination(rng, m, n):
    """``[A | X]`` becomes ``[Gᵀ | G⁻¹X]``, then ``[Gᵀ | A⁻¹X]``; what is below the diagonal is not read."""
    A, X, first = stack(rng, 1, m)[0], rng.normal(size=(m, n)), spd.padded(m)
    table = np.zeros((m, first + spd.padded(n)))
    table[:, :m], table[:, first : first + n] = np.triu(A) + np.tril(rng.normal(size=(m, m)), -1), X
    assert factor(table) == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-12, abs=1e-12)
    root = np.linalg.cholesky(A)
    np.testing.assert_allclose(np.triu(table[:, :m]), root.T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(table[:, first : first + n], np.linalg.solve(root, X), rtol=1e-7, atol=1e-9)
    backward(table, first)
    np.testing.assert_allclose(table[:, first : first + n], np.linalg.solve(A, X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("m", [1, 2, 5, 8, 13, 34, 99])
def test_inverses_and_determinants(rng, m):
    A, log_det = stack(rng, 3, m), np.empty(3)
    spd.solve_stack(A, np.empty((3, m, 0)), log_det)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(A)[1], rtol=1e-9, atol=1e-9)
    inverse = np.empty((m, m))
    assert spd.invert(A[1], inverse) == pytest.approx(log_det[1], rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(inverse @ A[1], np.eye(m), atol=1e-8)
    np.testing.assert_array_equal(inverse, inverse.T)


def test_a_determinant_beyond_the_range_of_numbers():
    log_det = np.empty(2)
    spd.solve_stack(np.array([np.diag(np.full(9, 1e90)), np.diag(np.full(9, 1e-90))]), np.empty((2, 9, 0)), log_det)
    np.testing.assert_allclose(log_det, [810 * np.log(10.0), -810 * np.log(10.0)], rtol=1e-12)


def test_a_matrix_that_is_not_positive_definite_has_no_determinant():
    log_det = np.empty(2)
    spd.solve_stack(np.array([[[1.0, 2.0], [2.0, 1.0]], [[2.0, 1.0], [1.0, 2.0]]]), np.empty((2, 2, 0)), log_det)
    assert np.isnan(log_det[0])
    assert log_det[1] == pytest.approx(np.log(3.0))


@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 1), (8, 9), (13, 4), (99, 3)])
def test_solutions_of_a_stack(rng, m, n):
    A, X = stack(rng, 3, m), rng.normal(size=(3, m, n))
    found, log_det = X.copy(), np.empty(3)
    spd.solve_stack(A, found, log_det)
    np.testing.assert_allclose(A @ found, X, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(A)[1], rtol=1e-9, atol=1e-9)
    A[1] = -A[1]
    again = X.copy()
    spd.solve_stack(A, again, log_det)
    assert np.isnan(log_det).tolist() == [False, True, False]
    np.testing.assert_array_equal(again, [found[0], X[1], found[2]])
