"""A small problem for the estimators of the hidden half."""

from __future__ import annotations

import pytest
from tests.unit.learners.histories import Problem, draw_problem


@pytest.fixture
def problem(rng) -> Problem:
    return draw_problem(rng, d=6, L=3, K=3)
