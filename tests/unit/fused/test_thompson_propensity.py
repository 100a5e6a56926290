"""A Thompson decision's propensity is the probability that its arm has the highest draw."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from sidelight.learners.thompson import FusedThompson

propensity = FusedThompson._propensity


def of_all(means, deviations, mask=None):
    mask = np.ones(len(means), dtype=bool) if mask is None else mask
    return np.array([propensity(a, means, deviations, mask) for a in np.flatnonzero(mask)])


@pytest.mark.parametrize("ratio", [1e-8, 1e-4, 0.01, 0.3, 1.0, 40.0, 1e6])
@pytest.mark.parametrize("gap", [0.0, 1e-3, 0.03, -0.4, 2.0, -7.0])
def test_two_arms_have_a_closed_form(ratio, gap):
    """``Φ((m_0 − m_1)/√(s_0² + s_1²))``, also where one arm is known far better than the other."""
    means, deviations = np.array([0.3 + gap, 0.3]), np.array([1.0, ratio])
    expected = ndtr(gap / np.hypot(1.0, ratio))
    np.testing.assert_allclose(of_all(means, deviations), [expected, 1.0 - expected], atol=2e-4)


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
def test_they_sum_to_one_over_the_allowed_arms(rng, spread):
    for _ in range(20):
        K = int(rng.integers(1, 9))
        means, deviations = rng.normal(size=K), 10.0 ** rng.uniform(-spread, 0.0, size=K)
        assert of_all(means, deviations).sum() == pytest.approx(1.0, abs=1e-3)
        mask = rng.random(K) < 0.6
        mask[int(rng.integers(K))] = True
        assert of_all(means, deviations, mask).sum() == pytest.approx(1.0, abs=1e-3)


def test_equal_arms_share_equally():
    np.testing.assert_allclose(of_all(np.full(5, 2.0), np.full(5, 0.1)), 0.2, atol=1e-6)


def test_a_single_arm_is_certain():
    assert propensity(2, np.zeros(4), np.ones(4), np.arange(4) == 2) == 1.0


@pytest.mark.parametrize(
    ("means", "deviations", "expected"),
    [
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
        ([0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]),
        ([0.0, 0.3, 0.3], [1.0, 0.0, 0.0], [1.0 - ndtr(0.3), ndtr(0.3), 0.0]),
        ([0.1, 0.3], [2.0, 1e-15], [1.0 - ndtr(0.1), ndtr(0.1)]),
        ([0.2, 0.0, -0.1], [0.0, 1.0, 2.0], [ndtr(0.2) * ndtr(0.15), None, None]),
    ],
)
def test_arms_that_are_known_for_certain(means, deviations, expected):
    """A context of zeros leaves no arm any deviation, and a decision then always takes the first."""
    found = of_all(np.array(means), np.array(deviations))
    assert found.sum() == pytest.approx(1.0, abs=1e-3)
    for value, wanted in zip(found, expected, strict=True):
        assert wanted is None or value == pytest.approx(wanted, abs=1e-4)
