"""What is not the summary of one log is named where a summary is wanted."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.errors import InputError

TAKERS = {
    "SideInformation": lambda log: sl.SideInformation.structured(log, np.zeros((2, 1, 1))),
    "KnownCrossMoments": lambda log: sl.SideInformation.from_log(log, np.zeros((2, 1, 1))),
    "BehaviorQueries": sl.BehaviorQueries,
    "BehaviorProbabilities": sl.BehaviorProbabilities,
    "CompanionLog": lambda log: sl.CompanionLog(log, None),
    "ZeroFilledOFUL": sl.ZeroFilledOFUL,
}


@pytest.mark.parametrize("taker", TAKERS)
def test_what_is_no_summary_is_named(taker):
    world = sl.worlds.TrafficWorld(seed=0)
    eras = sl.summarize_eras(world.sample_eras_log(900, np.random.default_rng(0)), world.eras_schema)
    with pytest.raises(InputError, match=f"{taker} takes the summary of one log, and got 3 eras.*FusedOFUL"):
        TAKERS[taker](eras)
    for wrong in (None, "log.parquet", [1, 2]):
        with pytest.raises(InputError, match=f"{taker} .* got {type(wrong).__name__}. summarize_log"):
            TAKERS[taker](wrong)
