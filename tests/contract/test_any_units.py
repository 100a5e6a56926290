"""Learners of random configurations, fed the same history in other units, decide alike."""

from __future__ import annotations

import numpy as np
import pytest
from tests.contract.random_units import Configuration, Scales

from sidelight.errors import SidelightError

#: configurations for each seed of the fixture
EACH = 12
#: rounds before the rewards have a unit
UNTOLD = 3


def configurations(seed):
    for number in range(EACH):
        found = Configuration(1000 * seed + number)
        try:
            yield found, found.play(Scales())
        except SidelightError:  # a hard constraint of a log that does not determine its coefficients
            continue


@pytest.mark.filterwarnings("ignore")
def test_powers_of_two_change_no_decision(seed):
    for drawn, (past, plain) in configurations(seed):
        rng = np.random.default_rng(drawn.n)
        features, unit = 2.0 ** rng.integers(-100, 101, size=drawn.d), 2.0 ** int(rng.integers(-100, 101))
        again, scores = drawn.play(Scales(features, 1.0 if drawn.binary else unit))
        assert again == past, (drawn.kind, drawn.ways)
        # a feature that has not varied yet has a weight that is as good as zero in any unit, but is not zero
        np.testing.assert_allclose(scores[UNTOLD:], plain[UNTOLD:], rtol=0.0, atol=1e-20 * np.abs(plain).max())


@pytest.mark.filterwarnings("ignore")
def test_other_units_change_scores_by_rounding_alone(seed):
    for drawn, (past, plain) in configurations(seed):
        rng = np.random.default_rng(drawn.n)
        features = 10.0 ** rng.uniform(-4, 4, size=drawn.d)
        shifts, level = (rng.uniform(-3, 3, size=drawn.d) * features, 90.0) if drawn.shifts else (0.0, 0.0)
        reward = (1.0, 0.0) if drawn.binary else (37.0, level)
        _, scores = drawn.play(Scales(features, reward[0], shifts, reward[1]), past)
        sizes = np.abs(plain).sum(axis=1)[UNTOLD:, None]
        sizes = np.maximum(sizes, max(float(np.median(sizes)), 1e-9))
        worst = (np.abs(scores - plain)[UNTOLD:] / sizes).max()
        assert worst < 1e-6, (drawn.kind, drawn.ways, drawn.options, worst)
