"""Values that are extrapolated: how far the rows of an arm reach, and the warning."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.judging.extrapolation import reach_of

SCHEMA = sl.Schema(["price", "age"], ["price", "age"], arms=["cheap", "dear"])


def log_of(apart, n=6_000):
    """Arms drawn at random, and a column that follows from the arm: ``apart`` deviations."""
    rng = np.random.default_rng(0)
    dear = rng.random(n) < 0.3
    price, age = apart * dear + rng.normal(size=n), rng.normal(50, 9, n)
    return {"price": price, "age": age, "arm": np.where(dear, "dear", "cheap"), "reward": dear + rng.normal(size=n)}


@pytest.mark.parametrize("apart", [0.0, 1.5])
def test_the_reach_of_an_arm_is_what_its_distance_leaves(apart):
    """For one normal column ``d`` deviations off, ``E α_s² P = 1 + d²``."""
    verdict = sl.judge(log_of(apart), SCHEMA)
    assert reach_of(verdict.estimates["always dear"]) == pytest.approx(1 / (1 + (0.7 * apart) ** 2), rel=0.1)
    assert reach_of(verdict.estimates["always cheap"]) == pytest.approx(1 / (1 + (0.3 * apart) ** 2), rel=0.1)
    assert not any("extrapolated" in text for text in verdict.warnings)


def test_a_column_that_follows_from_the_arm_is_found():
    log = log_of(0.0)
    # nearly always the same under an arm: one in fifty has the other's price
    dear = log["arm"] == "dear"
    log["price"] = np.where(dear ^ (np.arange(len(dear)) % 50 == 0), 5.0, 0.0)
    verdict = sl.judge(log, SCHEMA, policies=["best", "dear"])
    (warning,) = (text for text in verdict.warnings if "extrapolated" in text)
    assert "'price' above all" in warning
    assert "leave it out" in warning
    assert warning in verdict.to_html().replace("&#39;", "'")
    (again,) = sl.judge(sl.summarize_log(log, SCHEMA), policies="dear").warnings
    assert "'always dear'" in again
    without = sl.judge(log, sl.Schema(["age"], ["age"], arms=["cheap", "dear"]), policies="dear")
    assert without.warnings == ()
