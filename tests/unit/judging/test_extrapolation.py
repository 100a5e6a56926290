"""Values that are extrapolated: how far the rows of an arm reach, and the warning."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.judging.choice import Tried, softmax, softmax_regression
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


def by_rule(n=3_000):
    """An old policy that follows a rule: "dear" where the price is above 0, and never else."""
    rng = np.random.default_rng(3)
    # a gap of a fifth of a deviation only: a smooth model gives "dear" a chance below it
    price = np.where(rng.random(n) < 0.25, 0.0, rng.uniform(0.2, 3.0, n))
    dear, age = price > 0.0, rng.normal(50, 9, n)
    reward = np.where(dear, 0.5 + 0.1 * price, 0.3) + rng.normal(0, 0.4, n)
    return {"price": price, "age": age, "arm": np.where(dear, "dear", "cheap"), "reward": reward}


def test_an_arm_that_a_rule_forbids_is_not_valued_there():
    """A softmax regression expects "dear" in contexts where no row has it; the rows themselves are counted."""
    verdict = sl.judge(by_rule(), SCHEMA, policies=["dear"])
    (line,) = (line for line in verdict.lines if line.policy == "always dear")
    assert np.isnan(line.value)
    assert "never tries arm 'dear' in about 26% of the contexts" in line.note  # the part that has a price of 0
    assert "'price' tells most" in line.note


def test_complete_rows_do_not_value_what_a_rule_forbids():
    log = by_rule()
    hidden = sl.Schema(["price", "age"], ["age"], arms=["cheap", "dear"])
    verdict = sl.judge(log, hidden, policies=["dear"], complete=log)
    (line,) = (line for line in verdict.lines if (line.policy, line.stage) == ("always dear", "complete"))
    assert np.isnan(line.value)
    assert "all but never tries arm 'dear'" in line.note
    assert "'price' tells most" in line.note


@pytest.mark.parametrize("strength", [0.5, 2.0])
def test_an_old_policy_that_tries_everything_is_valued(strength):
    """Chances of a softmax that the model can fit, and of one that it cannot: no rule is seen where there is none."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=4_000)
    for logit in (strength * x, strength * np.sin(2.0 * x)):
        dear = rng.random(4_000) < 1.0 / (1.0 + np.exp(-logit))
        tried = Tried(2)
        Z = np.column_stack([np.ones(4_000), x])
        chances = softmax(Z @ softmax_regression(Z, dear.astype(int), 2).T)
        for arm in (0, 1):
            tried.add(np.full(4_000, arm), chances[:, arm], dear == arm)
        assert (tried.never() == 0.0).all()
