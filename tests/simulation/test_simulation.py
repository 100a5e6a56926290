"""A short run of the simulation, that it repeats itself, and that it finds what was planted.

``make simulate SEEDS=20000`` is the long one, ``python -m tests.simulation --faults --seeds 2000`` the search: every
fault is found by a seed, and no plan is written by hand.
"""

from __future__ import annotations

import pytest

from tests.simulation.checks import failures, failures_of, shrink
from tests.simulation.faults import FAULTS, FOUND_BY, planted
from tests.simulation.plans import draw_plan


@pytest.mark.parametrize("start", range(0, 24, 6))
def test_nothing_goes_wrong_that_should_not(start: int):
    for seed in range(start, start + 6):
        assert failures(seed) == [], f"python -m tests.simulation --start {seed} --seeds 1"


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str):
    with planted(name):
        assert failures(FOUND_BY[name])


def test_a_failure_replays_from_its_seed_and_is_shrunk():
    name = "decisions_are_never_outdated"
    plan = draw_plan(FOUND_BY[name])
    with planted(name):
        found = failures_of(plan)
        assert found == failures_of(plan), "the same run twice"
        smaller = shrink(plan)
        assert failures_of(smaller)
    assert 0 < len(smaller.steps) < len(plan.steps)
    assert failures_of(smaller) == []


def test_every_fault_has_its_seed():
    assert set(FOUND_BY) == set(FAULTS)
    assert len(FAULTS) >= 30
