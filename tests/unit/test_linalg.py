"""Pure linear algebra, against explicit pseudo-inverses."""

from __future__ import annotations

import numpy as np
import pytest
from tests import reference

from sidelight.linalg import (
    kernel_of,
    kernel_of_structured,
    orthonormal_kernel_of_structured,
    pseudo_inverse,
    structured_pseudo_inverse,
    symmetrize,
    triangle,
)


@pytest.mark.parametrize(("L", "m"), [(0, 3), (3, 0), (1, 4), (5, 2)])
def test_structured_kernel_and_pseudo_inverse(rng, L, m):
    B = 3.0 * rng.normal(size=(L, m))
    M = reference.structured(B)
    N = kernel_of_structured(B)
    assert N.shape == (L + m, m)
    assert not (M @ N).any()  # exactly: −B + B
    np.testing.assert_allclose(structured_pseudo_inverse(B), reference.pinv(M, L).astype(float), atol=1e-13)


@pytest.mark.parametrize("size", [1e-12, 1e9, 1e30])
def test_the_pseudo_inverse_of_a_large_or_small_regression(rng, size):
    """``I + BBᵀ`` is ``BBᵀ`` to rounding where features have very different units, and singular for ``L > m``."""
    L, m = 4, 2
    B = size * rng.normal(size=(L, m))
    found, M = structured_pseudo_inverse(B), np.concatenate([np.eye(L), B], axis=1)
    assert np.linalg.norm(found, 2) <= 1.0 + 1e-12
    np.testing.assert_allclose(found @ (M @ found), found, atol=1e-12 * max(size, 1.0))
    # M† has the singular vectors of B
    left, sigma, right = np.linalg.svd(B)
    core = np.concatenate([1.0 / (1.0 + sigma**2), np.ones(L - m)])
    top = left @ np.diag(core) @ left.T
    bottom = right.T @ np.diag(sigma / (1.0 + sigma**2)) @ left[:, :m].T
    np.testing.assert_allclose(found, np.concatenate([top, bottom]), atol=1e-13)


@pytest.mark.parametrize("size", [1.0, 2.0**-150, 1e6])
def test_the_orthonormal_kernel_keeps_the_digits_of_tiny_columns(rng, size):
    """A column of ``B`` in a unit that is not known yet is tiny, and so is what the basis has of it elsewhere."""
    B = rng.normal(size=(2, 3, 4))
    B[:, :, 3] *= size
    U = orthonormal_kernel_of_structured(B)
    np.testing.assert_allclose(np.swapaxes(U, 1, 2) @ U, np.broadcast_to(np.eye(4), (2, 4, 4)), atol=1e-9)
    np.testing.assert_array_equal(U[1], orthonormal_kernel_of_structured(B[1]))
    whole = U @ triangle(kernel_of_structured(B))
    scale = np.array([1.0, 1.0, 1.0, size])
    np.testing.assert_allclose(whole[:, :3] / scale, -B / scale, atol=1e-9)
    # of a tiny column the entries beside its own are as tiny
    assert np.abs(U[:, 3:6, 3]).max() <= 10.0 * size


def test_structured_kernel_of_many_arms_at_once(rng):
    B = rng.normal(size=(4, 3, 2))
    np.testing.assert_array_equal(kernel_of_structured(B)[2], kernel_of_structured(B[2]))


def test_kernel_of_any_matrix(rng):
    d, rank = 7, 3
    rows = rng.normal(size=(rank, d))
    M = np.concatenate([rows, rng.normal(size=(2, rank)) @ rows, np.zeros((1, d))])
    b = M @ rng.normal(size=d)
    found, U, anchor, contradiction = kernel_of(M, b)
    assert found == rank
    np.testing.assert_allclose(U.T @ U, np.eye(d - rank), atol=1e-13)
    np.testing.assert_allclose(M @ U, 0.0, atol=1e-13)
    np.testing.assert_allclose(anchor, (reference.pinv(M, rank) @ b).astype(float), rtol=1e-11)
    assert contradiction < 1e-12


def test_kernel_of_nothing_and_of_zeros():
    for M in (np.zeros((0, 3)), np.zeros((2, 3))):
        rank, U, anchor, contradiction = kernel_of(M, np.zeros(len(M)))
        assert (rank, contradiction) == (0, 0.0)
        assert U.shape == (3, 3)
        assert anchor.tolist() == [0.0, 0.0, 0.0]


def test_kernel_of_contradictory_rows_says_how_far_they_are_from_agreeing():
    _, _, _, contradiction = kernel_of(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([1.0, 3.0]))
    assert contradiction == pytest.approx(np.sqrt(2.0))


def test_symmetrize():
    np.testing.assert_array_equal(symmetrize(np.array([[1.0, 4.0], [2.0, 3.0]])), [[1.0, 3.0], [3.0, 3.0]])


def test_the_pseudo_inverse_of_a_covariance_has_no_negative_direction(rng):
    """An eigenvalue that rounding made negative is one that is not known, not a large negative precision."""
    Q = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    found = pseudo_inverse((Q * [1e6, 2.0, 0.5, -1e-8]) @ Q.T)
    np.testing.assert_allclose(found, (Q * [1e-6, 0.5, 2.0, 0.0]) @ Q.T, rtol=0, atol=1e-6)
