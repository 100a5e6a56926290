"""Few rows of a rare reward: what did not happen in them may still happen."""

from __future__ import annotations

import numpy as np
import pytest
from tests.statistical.binomial import most

import sidelight as sl
from sidelight.judging.scarcity import kurtosis_of_rates, least_share, usual_kurtosis

SCHEMA = sl.Schema(["x", "h"], ["x"], arms=["a", "b", "new"], intercept=True, propensity="chance")
LOGS = 60


def log_of(seed, rate=0.02, n=2_000):
    """Three arms that pay alike, the last in about forty rows: at a rate of 2 % nearly half of such logs show none."""
    rng = np.random.default_rng([seed, 8])
    arm = rng.choice(3, n, p=[0.5, 0.48, 0.02])
    return {
        "x": rng.normal(size=n),
        "h": rng.normal(size=n),
        "arm": np.array(["a", "b", "new"])[arm],
        "reward": (rng.random(n) < rate).astype(float),
        "chance": np.array([0.5, 0.48, 0.02])[arm],
    }


def test_a_rare_arm_without_rewards_is_not_called_worse(seed):
    """Rows, summaries and complete rows: intervals that took no purchase for no chance of one missed in 45 %."""
    missed = np.zeros(4)
    for i in range(LOGS):
        log = log_of(1_000 * seed + i)
        verdict = sl.judge(log, SCHEMA, complete=log, policies="new")
        lines = [verdict.line("always new", stage) for stage in ("log", "complete")]
        for sandwich in (False, True):
            summary = sl.summarize_log(log, SCHEMA, sandwich=sandwich)
            lines.append(sl.judge(summary, policies="new").line("always new"))
        missed += [line.known and not line.low <= 0.0 <= line.high for line in lines]
    # fails with probability 0.001 for each of the four if an interval misses in 5 %
    assert (missed <= most(LOGS, 0.05, 0.001)).all(), missed


def test_answers_do_not_take_a_scarce_arm_for_one_without_noise():
    """``τ_a ≤ s_a``: an arm whose forty rows show no reward has a variance all the same."""
    log = next(log for log in map(log_of, range(100)) if not log["reward"][log["arm"] == "new"].any())
    line = sl.judge(log, SCHEMA, answers=log, policies="new").line("always new", "answers")
    assert line.hidden > 0.0
    assert line.low < 0.0 < line.high


def test_an_arm_with_many_rows_speaks_for_itself():
    """An arm that never varies is known to, given rows enough: its interval is the old policy's error alone."""
    rng = np.random.default_rng(0)
    n = 40_000
    arm = rng.integers(0, 2, n)
    log = {"x": rng.normal(size=n), "arm": arm, "reward": np.where(arm == 1, rng.normal(size=n), 0.0)}
    line = sl.judge(log, sl.Schema(["x"], ["x"]), policies=0).line("always 0")
    assert line.error == pytest.approx(log["reward"].std() / np.sqrt(n), rel=0.01)


def test_the_least_share_falls_once_a_variance_is_known():
    assert least_share(3.0, 8.0) == 1.0  # a relative standard error of √(2/8) = 1/2
    assert least_share(3.0, 80.0) == pytest.approx(0.1)
    assert least_share(1.0, 8.0) == 1.0  # flat residuals of few rows are fitted, too
    assert least_share(kurtosis_of_rates(0.01), 40.0) == 1.0


def test_kurtosis():
    rng = np.random.default_rng(1)
    clicks = (rng.random(400_000) < 0.2) - 0.2
    powers = np.array([[len(clicks), (clicks**2).sum(), (clicks**4).sum()], [7.0, 0.0, 0.0]])
    assert usual_kurtosis(powers) == pytest.approx(kurtosis_of_rates(0.2), rel=0.02)
    assert usual_kurtosis(powers[1:]) == 3.0
    assert usual_kurtosis(powers[1:], 50.0) == 50.0
