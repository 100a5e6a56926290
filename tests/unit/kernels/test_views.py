"""Views of a vector: the compiled ones against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from sidelight.kernels.views import part


@njit
def doubled(vector, begin, shape):
    view = part(vector, begin, shape)
    for i in range(view.size):
        view.flat[i] *= 2
    return view.shape, view.strides, view.sum()


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
@pytest.mark.parametrize("shape", [(4,), (2, 3), (3, 1, 2), (1, 4, 2)])
def test_a_compiled_view_shares_the_memory_of_the_vector(shape, dtype):
    vector, begin = np.arange(20).astype(dtype), 5
    expected = vector.copy()
    view = part(expected, begin, shape)
    assert view.base is not None
    view *= 2
    found = doubled(vector, begin, shape)
    np.testing.assert_array_equal(vector, expected)
    assert found == (view.shape, view.strides, view.sum())


def test_a_view_of_nothing_has_its_shape():
    @njit
    def shape_of(vector):
        return part(vector, 3, (2, 0, 5)).shape

    assert shape_of(np.zeros(3)) == part(np.zeros(3), 3, (2, 0, 5)).shape == (2, 0, 5)
