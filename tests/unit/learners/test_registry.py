"""The registry of learners: what it says about each class is so."""

from __future__ import annotations

import inspect

import pytest

import sidelight as sl
from sidelight.learners.registry import KINDS, learner_class


@pytest.mark.parametrize("name", KINDS)
def test_what_it_says_about_a_class_is_so(name):
    kind, cls = KINDS[name], learner_class(name)
    first, second, *_ = inspect.signature(cls).parameters
    expected = {"schema": "n_arms", "summary": "summary", "constraint": "side_information", "hidden": "hidden"}
    assert first == expected[kind.made_from]
    assert (second == "horizon") == kind.takes_horizon
    assert (kind.hidden is not None) == (kind.made_from == "hidden")
    assert getattr(sl, name) is cls


def test_every_learner_that_is_public_is_in_it():
    learners = {
        name for name in sl.__all__ if inspect.isclass(getattr(sl, name)) and hasattr(getattr(sl, name), "decide")
    }
    assert learners - {"Learner", "DecisionClient"} == set(KINDS)
