"""Curved rewards and a present that moves are called by their names, and are no reason to call a log wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.cells import BASE
from benchmarks.paired import Setting, play
from tests.statistical.binomial import most

import sidelight as sl

ROUNDS = 1_500


def learned(setting: Setting) -> sl.FusedOFUL:
    learner = sl.FusedOFUL([sl.BehaviorQueries(summary) for summary in setting.summaries])
    play(learner, setting)
    return learner


def broken(learner: sl.FusedOFUL) -> set[str]:
    return {entry["assumption"] for entry in learner.assumptions() if not entry["holds"]}


def accused(learner: sl.FusedOFUL) -> bool:
    return any(entry["doubted"] for entry in learner.log_trust())


def test_an_honest_linear_world_that_stands_still_is_called_nothing_else(seed):
    """12 runs: an alarm of any of the three kinds in at most 5 % of them.  Failure below 1e-3."""
    cell = replace(BASE, name="small", arms=4, recorded=4, hidden=2, rows=5_000)
    alarms = 0
    for s in range(12):
        learner = learned(Setting(cell, 10_000 * (seed + 1) + s, ROUNDS))
        assert [entry["assumption"] for entry in learner.assumptions()] == ["linear", "still"]
        alarms += bool(broken(learner)) or accused(learner)
    assert alarms <= most(12, 0.05, 1e-3)


@pytest.mark.parametrize("where", ["recorded", "hidden"])
def test_curved_rewards_are_called_curved_and_not_lying(seed, where):
    """A curved part of 0.3 times the noise's variance.  If 80 % are found, 3 of 6 fail to be with probability 0.02."""
    cell = replace(BASE, name="bent", arms=4, recorded=4, hidden=3, rows=5_000, curvature=0.27, curved_in=where)
    found = lying = 0
    for s in range(6):
        learner = learned(Setting(cell, 20_000 * (seed + 1) + s, ROUNDS))
        found += "linear" in broken(learner)
        lying += accused(learner)
    assert found >= 4
    assert lying <= most(6, 0.1, 1e-3)


def test_a_present_that_moves_is_said_to_move(seed):
    """Halfway arms change their weights: the present moves, and nobody calls rewards curved or the log a liar."""
    cell = replace(BASE, name="small", arms=3, recorded=4, hidden=2, rows=5_000)
    moves = lying = 0
    for s in range(4):
        setting = Setting(cell, 30_000 * (seed + 1) + s, 2 * ROUNDS)
        X, rewards, means, _, _ = setting.draws
        other = Setting(cell, 40_000 * (seed + 1) + s, 1).world.mean_rewards(X)
        rewards[ROUNDS:] += (other - means)[ROUNDS:]
        learner = learned(setting)
        moves += "still" in broken(learner)
        lying += accused(learner)
    assert moves >= 3
    assert lying <= 1
