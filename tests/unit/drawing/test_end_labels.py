"""Labels beside their lines."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from sidelight.drawing.end_labels import places


def test_labels_with_room_stand_where_they_want_to():
    assert places([1.0, 5.0, 9.0], 2.0, 0.0, 10.0) == [1.0, 5.0, 9.0]


def test_a_cluster_is_spread_around_its_middle():
    assert places([5.0, 5.0, 5.0], 2.0, 0.0, 10.0) == [3.0, 5.0, 7.0]
    assert places([1.0, 5.4, 5.6, 9.0], 1.0, 0.0, 10.0) == [1.0, 5.0, 6.0, 9.0]


def test_labels_stay_in_the_frame_and_where_they_do_not_fit_begin_at_its_foot():
    assert places([9.9, 10.0], 2.0, 0.0, 10.0) == [8.0, 10.0]
    assert places([0.1, 0.2], 2.0, 1.0, 10.0) == [1.0, 3.0]
    assert places([1.0, 2.0, 3.0], 5.0, 0.0, 7.0) == [0.0, 5.0, 10.0]
    assert places([], 1.0, 0.0, 1.0) == []


@pytest.mark.parametrize("draw", range(8))
def test_no_other_places_are_nearer(draw):
    """Against a general solver, with six random labels."""
    rng = np.random.default_rng(draw)
    wanted, gap = np.sort(rng.uniform(0, 10, 6)), 1.3
    found = np.array(places(wanted.tolist(), gap, 0.0, 10.0))
    assert (np.diff(found) >= gap - 1e-12).all()
    assert found[0] >= 0.0
    assert found[-1] <= 10.0 + 1e-12
    apart = [{"type": "ineq", "fun": lambda p, i=i: p[i + 1] - p[i] - gap} for i in range(5)]
    solved = minimize(
        lambda p: ((p - wanted) ** 2).sum(), found, bounds=[(0, 10)] * 6, constraints=apart, method="SLSQP"
    )
    assert ((found - wanted) ** 2).sum() <= solved.fun + 1e-6
