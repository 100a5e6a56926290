"""Four matrices side by side against NumPy's algebra of each, at sizes that are no multiples of a vector."""

from __future__ import annotations

import numpy as np
import pytest

from sidelight.kernels import lanes
from sidelight.kernels.compiled import kernel


@kernel
def eliminate(A, E):
    return lanes.eliminate(A, E)


@kernel
def add_squares(E, negative):
    lanes.add_squares(E, negative)


@pytest.mark.parametrize(("d", "n"), [(1, 0), (2, 3), (4, 1), (7, 2), (9, 5), (30, 3)])
def test_elimination_and_squares(rng, d, n):
    """``[I | X]`` becomes ``E = [G⁻¹ | G⁻¹X]``, and ``EᵀE`` is taken off; what is below the diagonal is not read."""
    root, X = rng.normal(size=(lanes.LANES, d, d + 2)), rng.normal(size=(lanes.LANES, d, n))
    A = root @ np.swapaxes(root, 1, 2)
    below = np.tril(rng.normal(size=(d, d)), -1)
    W = lanes.in_lanes(np.triu(A) + below)[0]
    E = lanes.in_lanes(np.concatenate([np.broadcast_to(np.eye(d), A.shape), X], axis=2))[0]
    assert eliminate(W, E) == pytest.approx(np.linalg.slogdet(A)[1].sum(), rel=1e-12, abs=1e-12)
    negative = np.ones((d + n, d + n, lanes.LANES))
    add_squares(E, negative)
    for lane in range(lanes.LANES):
        G = np.linalg.cholesky(A[lane])
        expected = np.linalg.solve(G, np.concatenate([np.eye(d), X[lane]], axis=1))
        np.testing.assert_allclose(E[:, :, lane], expected, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(
            np.tril(1.0 - negative[:, :, lane]), np.tril(expected.T @ expected), rtol=1e-7, atol=1e-8
        )


def test_each_lane_has_the_bits_that_it_has_whatever_stands_beside_it(rng):
    root = rng.normal(size=(lanes.LANES, 6, 8))
    A = root @ np.swapaxes(root, 1, 2)
    alone = np.broadcast_to(A[2], A.shape)
    found = []
    for stack in (A, alone):
        W, E = lanes.in_lanes(stack)[0], lanes.in_lanes(np.broadcast_to(np.eye(6), A.shape))[0]
        eliminate(W, E)
        found.append(E[:, :, 2].tobytes())
    assert found[0] == found[1]


def test_a_matrix_that_is_not_positive_definite_has_no_determinant():
    W = lanes.in_lanes(np.array([np.eye(2), [[1.0, 2.0], [2.0, 1.0]], np.eye(2)]))[0]
    W[:, :, 3] = np.eye(2)
    assert np.isnan(eliminate(W, np.zeros((2, 2, lanes.LANES))))


def test_lanes_without_a_matrix_are_zero(rng):
    stack = rng.normal(size=(6, 2, 3))
    side_by_side = lanes.in_lanes(stack)
    assert side_by_side.shape == (2, 2, 3, lanes.LANES)
    np.testing.assert_array_equal(side_by_side[1, :, :, 1], stack[5])
    np.testing.assert_array_equal(side_by_side[1, :, :, 2:], 0.0)
