"""Rows of a batch within ranges, against comparisons of whole arrays."""

from __future__ import annotations

import numpy as np
import pytest

from sidelight.kernels.ranges import first_outside, within


@pytest.mark.parametrize("K", [1, 4])
@pytest.mark.parametrize("odd", [np.inf, -3.5, np.nan])
def test_the_first_row_outside(rng, K, odd):
    low, high = -rng.uniform(1.0, 3.0, size=6), rng.uniform(1.0, 3.0, size=6)
    X, rewards = rng.uniform(-1.0, 1.0, size=(9, 5)), rng.uniform(-1.0, 1.0, size=(9, K))
    assert first_outside(X, rewards, low, high) == 9
    assert first_outside(X[:0], rewards[:0], low, high) == 0
    rewards[7, K - 1] = odd
    assert first_outside(X, rewards, low, high) == 7
    X[3, 4] = odd
    assert first_outside(X, rewards, low, high) == 3
    assert [within(x, r, low, high) for x, r in zip(X, rewards[:, -1], strict=True)] == [
        t not in (3, 7) for t in range(9)
    ]
