"""The promise of a floor: what it may say, and where it is read from."""

from __future__ import annotations

import math

import numpy as np
import pytest

import sidelight as sl
from sidelight.errors import InputError
from sidelight.learners.floor import Floor


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "exactly one"),
        ({"share": 0.1, "allowance": 0.1}, "exactly one"),
        ({"share": 1.0}, "share=1.0"),
        ({"share": -0.1}, "share=-0.1"),
        ({"allowance": math.inf}, "allowance=inf"),
        ({"share": 0.1, "noise": 0.0}, "noise=0.0"),
        ({"share": 0.1, "delta": 1.0}, "delta=1.0"),
        ({"share": 0.1, "weight_bound": math.nan}, "weight_bound=nan"),
    ],
)
def test_bad_floors(values, words):
    with pytest.raises(InputError, match=words.replace(".", r"\.")):
        Floor(**values)


def test_configurations_that_say_prompt_are_read():
    world = sl.worlds.ConfoundedWorld(seed=0)
    summary = sl.summarize_log(world.sample_log(500, recorded=6, rng=np.random.default_rng(1)), world.schema(6))
    floor = {"share": 0.05, "noise": 0.3, "weight_bound": 2.0, "prompt": True}
    assert sl.FusedOFUL(sl.BehaviorQueries(summary), floor=floor).floor == Floor(0.05, noise=0.3, weight_bound=2.0)
