"""The compiled algebra of stacks against NumPy's, at sizes that are no multiples of a vector."""

from __future__ import annotations

import numpy as np
import pytest

from sidelight.kernels import spd


def stack(rng, K, m):
    root = rng.normal(size=(K, m, m + 2))
    return root @ np.swapaxes(root, 1, 2)


@pytest.mark.parametrize("m", [1, 2, 5, 8, 13])
def test_products_determinants_and_solutions(rng, m):
    A, h = stack(rng, 3, m), rng.normal(size=(3, m))
    quadratic, log_det = np.empty(3), np.empty(3)
    spd.measure_stack(A, h, quadratic, log_det)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(A)[1], rtol=1e-9, atol=1e-9)
    solved = np.linalg.solve(A, h[..., None])[..., 0]
    np.testing.assert_allclose(quadratic, np.einsum("ai,ai->a", h, solved), rtol=1e-9)
    inverse = np.empty((m, m))
    assert spd.invert(A[1], inverse) == pytest.approx(log_det[1], rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(inverse @ A[1], np.eye(m), atol=1e-9)


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


@pytest.mark.parametrize("m", [1, 3, 6, 11])
def test_whitening(rng, m):
    A, G = stack(rng, 3, m), stack(rng, 3, m)
    C, inner = np.zeros_like(A), np.empty_like(A)
    assert spd.whiten_stack(A, G, C, inner) == -1
    np.testing.assert_allclose(C, np.linalg.cholesky(A), rtol=1e-9, atol=1e-12)
    inverse = np.linalg.inv(C)
    np.testing.assert_allclose(inner, inverse @ G @ np.swapaxes(inverse, 1, 2), rtol=1e-8, atol=1e-8)
    A[1] = -np.eye(m)
    assert spd.whiten_stack(A, G, C, inner) == 1
