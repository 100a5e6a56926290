"""Score by score against numbers that were recorded from the paper's own formulas."""

from __future__ import annotations

import json

import numpy as np
from tests.recorded.make_scores import PATH

import sidelight as sl


def test_algorithm_1_has_the_recorded_scores():
    """120 rounds, 8 probes, 6 arms, values that are not the defaults: equal to 3e-14 of the largest score."""
    recorded = json.loads(PATH.read_text(encoding="utf-8"))
    s = recorded["settings"]
    X = np.array(recorded["contexts"])
    side = sl.SideInformation([np.array(M) for M in recorded["M"]], [np.array(b) for b in recorded["b"]])
    learner = sl.ProjectedOFUL(
        side,
        regularization=s["lam"],
        noise=s["sigma"],
        delta=s["delta"],
        alpha=s["alpha"],
        context_bound=s["S_x"],
        weight_bound=s["S_w"],
        radius="printed",
    )
    rounds = len(recorded["arms"])
    for x, arm, reward in zip(X[:rounds], recorded["arms"], recorded["rewards"], strict=True):
        learner.observe(x, arm, reward)
    for x, estimates, widths in zip(X[rounds:], recorded["estimates"], recorded["widths"], strict=True):
        mine = learner.scores(x)
        assert abs(mine[0] - estimates).max() < 3e-14 * np.abs(estimates).max()
        assert abs(mine[1] - widths).max() < 3e-14 * np.abs(widths).max()
