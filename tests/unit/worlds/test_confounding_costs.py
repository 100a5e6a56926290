"""The confounded world separates those who know what the log hides from those who assume it away."""

from __future__ import annotations

import numpy as np

import sidelight as sl
from sidelight.worlds.confounded import ConfoundedWorld

HORIZON = 2500


def test_assuming_that_nothing_is_hidden_costs_at_least_forty_percent():
    """Algorithm 1 with known R12 against the same with B = 0, summed over three worlds; measured ratio 2.0."""

    def projected(cross_moments):
        def factory(run):
            side = sl.SideInformation.from_log(run.summary, cross_moments(run.true_cross_moments))
            return sl.ProjectedOFUL(side, noise=run.world.noise, weight_bound=run.world.weight_bound)

        return factory

    table = sl.simulate(
        lambda seed: ConfoundedWorld(seed=seed),
        {"known": projected(lambda R12: R12), "none": projected(np.zeros_like)},
        horizon=HORIZON,
        recorded=6,
        log_rows=50_000,
        seeds=3,
        workers=1,
        every=HORIZON,
    ).to_pydict()
    regret = dict.fromkeys(("known", "none"), 0.0)
    for name, value in zip(table["learner"], table["regret"], strict=True):
        regret[name] += value
    assert regret["none"] > 1.4 * regret["known"], regret
