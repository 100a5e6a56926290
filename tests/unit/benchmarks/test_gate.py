"""The gate's simulations: compiled sums are the fold's to the bit, and what is counted as false is false."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from benchmarks import gate
from benchmarks.gate_scenarios import LADDER, SCENARIOS, SHADOW
from scipy.stats import norm


@pytest.mark.parametrize("name", SCENARIOS)
def test_compiled_sums_are_the_fold_s_to_the_bit(name, monkeypatch):
    units = 7_000 if "later than a rung" in name else 3_000
    short = replace(SCENARIOS[name], units=min(SCENARIOS[name].units, units))
    monkeypatch.setitem(SCENARIOS, name, short)
    outcome, sums = (gate.climb_again if name in LADDER else gate.look_on_again)(short, 3)
    assert sums.count > 150
    # raises where the fold has anything else
    assert gate.play(name, range(3, 4), by_fold=4) == [asdict(outcome)]


def test_several_rungs_and_falls_agree_too():
    falling = replace(LADDER["ladder with drift"], later=-0.6, drift=0.0)
    outcome, sums = gate.climb(falling, 1)
    assert outcome.up
    assert outcome.down
    assert not outcome.false_up
    assert (outcome, sums) == gate.climb_again(falling, 1)


def test_a_difference_is_noticed(monkeypatch):
    monkeypatch.setattr(gate, "look_on", lambda scenario, seed: gate.look_on_again(scenario, seed + 1))
    with pytest.raises(AssertionError, match="shadow equal, seed 0: the fold has"):
        gate.play("shadow equal", range(1), by_fold=1)
    assert SHADOW["shadow equal"].true_gain == 0.0


def test_steps_are_false_by_the_average_of_the_units_they_rest_on():
    outcome = gate.Outcome(times=[None, None])
    outcome.stepped(1, 0, np.array([0.1, 0.3]), 0.2)
    assert (outcome.up, outcome.false_up, outcome.times) == (True, True, [2, None])
    outcome = gate.Outcome(times=[None, None])
    outcome.stepped(1, 1, np.array([0.1, 0.4]), 0.2)
    outcome.stepped(-1, 1, np.array([-0.1, 0.0]), 0.2)
    assert (outcome.false_up, outcome.false_down, outcome.times) == (False, False, [None, 2])
    outcome.stepped(-1, 0, np.array([0.1, 0.0]), 0.2)
    assert outcome.false_down


def test_the_fixed_sample_test_has_the_power_it_is_told():
    share, gain, alpha = 0.3, 0.25, 0.02
    needed = gate.fixed_sample(gain, share, alpha)
    error = np.sqrt((1 / share + 1 / (1 - share)) / needed)
    assert norm.sf(norm.ppf(1 - alpha) - gain / error) == pytest.approx(0.9)
