"""The parts of a state are its two vectors, each number once: an address is not checked where it is read."""

from __future__ import annotations

import numpy as np
import pytest

from sidelight.kernels import misfit, state

#: scalars that are read from a vector, and named beside the vector itself
SCALARS = {*state.Numbers._fields, "doubt", "shifted"}


def check(parts, arena, sizes, head):
    """Every part is a stretch of one of the vectors, and all of them together are all of both."""
    floats, integers = np.zeros(len(arena)), np.zeros(len(sizes))
    integers[:head] = 1.0
    for name, value in parts._asdict().items():
        if name in SCALARS:
            continue
        vector, times = (arena, floats) if value.dtype == np.float64 else (sizes, integers)
        assert value.flags.c_contiguous, name
        assert value.size == 0 or np.shares_memory(value, vector), name
        first = (value.__array_interface__["data"][0] - vector.__array_interface__["data"][0]) // 8
        times[first : first + value.size] += 1.0
    assert (floats == 1.0).all()
    assert (integers == 1.0).all()


@pytest.mark.parametrize(("K", "d", "m", "R", "shifted"), [(1, 1, 1, 0, True), (3, 7, 4, 3, True), (4, 5, 5, 5, False)])
def test_the_parts_of_a_learner(K, d, m, R, shifted):
    arena, sizes = state.vectors_for(K, d, m, R, shifted)
    check(state.state_of(arena, sizes), arena, sizes, state.HEAD)


@pytest.mark.parametrize(("K", "d", "p"), [(1, 1, 1), (3, 7, 4)])
def test_the_parts_of_the_sums_of_misfit(K, d, p):
    arena, sizes = misfit.vectors_for(K, d, p, np.zeros((5, 3), dtype=np.int64))
    check(misfit.sums_of(arena, sizes), arena, sizes, misfit.HEAD)
