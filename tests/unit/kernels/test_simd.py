"""Sums four at a time against plain ones, at every length around the width of the vectors."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from sidelight.kernels import simd


@njit
def compiled(x, y, stack, a, loadings, first):
    z = np.empty(loadings.shape[1])
    simd.subtract_products(z, x, first, loadings, a)
    n = len(x)
    sums = np.array(
        [
            simd.dot(x, y),
            simd.dot_row(stack[a], 0, y),
            simd.quadratic_form(stack, a, x),
            simd.dot_at(stack, (a * n + n - 1) * n, y, 0, n),
        ]
    )
    return sums, z


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 30, 33])
def test_every_length(n, rng):
    for m in {1, 3, min(4, n), min(5, n), min(9, n), n} & set(range(1, n + 1)):
        x, y = rng.normal(size=(2, n))
        stack = rng.normal(size=(3, n, n))
        stack += np.swapaxes(stack, 1, 2)
        loadings = rng.normal(size=(3, m, n))
        first = n - m if n % 2 else -1
        before = stack.copy()
        sums, z = compiled(x, y, stack, 2, loadings, first)
        expected = [
            x @ y,
            before[2, 0] @ y,
            x @ before[2] @ x,
            before[2, n - 1] @ y,
        ]
        np.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(z, (x[first:] if n % 2 else 0.0) - loadings[2] @ x, rtol=1e-12, atol=1e-12)


def test_the_order_of_additions_is_the_written_one():
    """Two vectors of four that alternate, their sum, halves across, then the rest: bits that no machine may change."""
    x = np.array([1.0, 1e16, -1e16, 3.0, 1e-16, 2.0, 1e16, 5.0, -1e16, 7.0])
    lanes = x[:4] + x[4:8]
    expected = ((lanes[0] + lanes[2]) + (lanes[1] + lanes[3])) + (x[8] + x[9])
    stack = np.zeros((1, 10, 10))
    sums, _ = compiled(x, np.ones(10), stack, 0, np.zeros((1, 1, 10)), -1)
    assert sums[0] == expected


@njit
def cleared(array):
    simd.clear(array)


@pytest.mark.parametrize("shape", [(7,), (3, 0), (3, 5), (2, 3, 4)])
def test_arrays_of_any_shape_are_cleared(shape, rng):
    array = rng.normal(size=shape)
    cleared(array)
    assert not array.any()
