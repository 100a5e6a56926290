"""Coverage of the verdict, small: a few cells of ``benchmarks/verdict.py`` with few logs.

An interval that misses in 7 % of logs (the most that is claimed) fails a cell of 40 logs with probability 0.001.
"""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.verdict import (
    Cell,
    CompleteCell,
    SequenceCell,
    World,
    by_judge,
    by_parts,
    complete_by_judge,
    complete_by_parts,
    complete_rows,
    drawn,
    ever_wrong,
    judged,
    measure_complete,
    measure_sequence,
    scores_of,
    standard_lognormal,
)
from tests.statistical.binomial import most

import sidelight as sl
from sidelight.judging.shared_traffic import Comparison

LOGS = 40
MISSES = most(LOGS, 0.07, 0.001)


@pytest.mark.parametrize(
    "cell",
    [
        Cell("normal", 1.0, rows=2_000, answers=200, reference=400_000),
        Cell("normal", "worst", rows=4_000, answers=300, reference=400_000),
        Cell("binary", "worst", rows=4_000, answers=300, reference=400_000),
        Cell("skewed", "worst", rows=4_000, answers=300, reference=400_000),
    ],
    ids=lambda cell: f"{cell.features}-{cell.hidden}",
)
def test_log_and_answers_hold_the_truth(cell, seed):
    found = [judged(cell, 1_000 * seed + i) for i in range(LOGS)]
    for stage in ("log", "answers"):
        assert sum(1 - one[stage] for one in found if one[stage] == one[stage]) <= MISSES, stage
    assert np.mean([one["wrong sign"] for one in found]) <= 0.05
    # what anyone would compute without thinking of hidden features is nearly always wrong here
    assert np.mean([one["naive"] for one in found]) < 0.5


@pytest.mark.parametrize("policy", ["arm", "rule"])
def test_the_parts_of_the_benchmark_are_judge(policy, seed):
    cell = Cell("skewed", rows=3_000, answers=300, policy=policy, reference=100_000)
    data = drawn(cell, World(cell), seed)
    for one, other in zip(by_judge(cell, data)[:2], by_parts(cell, data)[:2], strict=True):
        assert (one.gain, one.low, one.high) == pytest.approx((other.gain, other.low, other.high), rel=1e-9)


@pytest.mark.parametrize("known", [True, False])
def test_the_parts_for_complete_rows_are_judge(known, seed):
    rows, _ = complete_rows(CompleteCell("skewed", True, known), 800, np.random.default_rng(seed))
    one, other = complete_by_judge(rows, known), complete_by_parts(rows, known)
    assert (one.gain, one.low, one.high) == (other.gain, other.low, other.high)


@pytest.mark.parametrize("known", [True, False])
def test_complete_rows_hold_the_truth(known):
    row = measure_complete(CompleteCell("normal", True, known), LOGS)
    assert LOGS * (1 - row["stage 3"]) <= MISSES
    assert row["told"] == 1.0
    if not known:
        assert row["of known"] <= 1.3


def test_complete_rows_whose_old_policy_hardly_shows_what_is_wanted(seed):
    """Rows with large weights are rare, and without them scores look certain: of these intervals 17 % missed."""
    names, samples, missed, told = ["u", "v", "h"], 60, 0, 0
    schema = sl.Schema(names, names[:2], arms=range(3), propensity="chance")
    rng = np.random.default_rng(1)
    W, phi = rng.normal(size=(3, 3)) * 0.5, rng.normal(size=(3, 3)) * 1.5

    def drawn_rows(n, rng):
        X = standard_lognormal(rng.normal(size=(n, 3)))
        p = np.exp(X @ phi.T - (X @ phi.T).max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        arm = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, 2)
        mu, at = X @ W.T, np.arange(n)
        columns = {name: X[:, j] for j, name in enumerate(names)}
        reward = mu[at, arm] + 0.5 * rng.normal(size=n)
        return columns | {"arm": arm, "reward": reward, "chance": p[at, arm]}, mu.mean(axis=0) - mu[at, arm].mean()

    _, gains = drawn_rows(1_000_000, rng)
    for i in range(samples):
        rows, _ = drawn_rows(1_500, np.random.default_rng([seed, i, 9]))
        verdict = sl.judge(rows, schema, complete=rows, policies=[0, 1, 2])
        for arm in range(3):
            line = verdict.line(f"always {arm}", "complete")
            told += line.known
            missed += line.known and not line.low <= gains[arm] <= line.high
    assert told > 1.5 * samples
    # fails with probability 0.001 if 5 % miss, arms being independent
    assert missed <= most(told, 0.05, 0.001)


def test_looking_all_the_time_errs_rarely():
    runs = 100
    row = measure_sequence(SequenceCell("skewed", 0.1, units=5_000), runs)
    assert runs * row["false verdicts"] <= most(runs, 0.05, 0.001)


@pytest.mark.parametrize("gain", [0.0, 0.4])
def test_the_vectors_of_the_benchmark_are_the_comparison(gain):
    rng = np.random.default_rng(3)
    n, share = 3_000, 0.3
    treated = rng.random(n) < share
    reward = rng.normal(size=n) + gain * treated
    comparison, spoke, scores = Comparison(), False, []
    for unit, value in zip(treated.tolist(), reward.tolist(), strict=True):
        scores.append(comparison.score(unit, share, value))
        comparison.observe(unit, share, value)
        spoke |= comparison.says() in ("better", "worse")
    np.testing.assert_allclose(scores_of(treated, share, reward), scores, rtol=1e-9, atol=1e-9)
    assert ever_wrong(np.array(scores), treated) == spoke
