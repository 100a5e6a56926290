"""A verdict depends on no unit: values and intervals are in the rewards', and nothing else follows any."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import sidelight as sl

K, D, L, N = 3, 5, 3, 500
GAINS = (("gain", 0.0), ("low", 0.0), ("high", 0.0))
NAMES = [f"x{j}" for j in range(D)]


def lines(past, scale, shift, unit, level, stage):
    Z, arms, rewards, asked, answers = past
    schema = sl.Schema(NAMES, NAMES[:L], arms=range(K), intercept=True)
    X = Z * scale + shift
    log = pa.table({**dict(zip(NAMES, X.T, strict=True)), "arm": arms, "reward": rewards * unit + level})
    queries = sl.BehaviorQueries(sl.summarize_log(log, schema))
    for x, arm in zip(asked * scale + shift, answers, strict=True):
        queries.observe(np.append(1.0, x), int(arm))
    given = {"log": {}, "answers": {"answers": queries}, "complete": {"complete": log.slice(0, 300)}}[stage]
    verdict = sl.judge(log, schema, **given)
    found = [
        [np.nan if line[name] is None else (line[name] - zero) / unit for name, zero in (("value", level), *GAINS)]
        for line in verdict.table.to_pylist()
        if line["stage"] == stage
    ]
    shares = [[line["reward_share"], line["choice_share"]] for line in verdict.benchmarks.to_pylist()]
    return np.array(found), np.array(shares)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stage", ["log", "answers", "complete"])
def test_values_and_intervals_are_the_same_in_other_units(rng, stage):
    means, W, P = rng.normal(size=D), rng.normal(size=(K, D)), 0.3 * rng.normal(size=(K, D))

    def draw(n):
        Z = rng.normal(size=(n, D)) + means
        return Z, (Z @ P.T + rng.gumbel(size=(n, K))).argmax(axis=1)

    (Z, arms), (asked, answers) = draw(N), draw(250)
    past = (Z, arms, (Z * W[arms]).sum(axis=1) + 0.5 * rng.normal(size=N), asked, answers)
    scale = 10.0 ** rng.uniform(-4, 4, size=D) * rng.choice([-1.0, 1.0], size=D)
    plain, shares = lines(past, 1.0, 0.0, 1.0, 0.0, stage)
    other, same = lines(past, scale, 30.0 * scale, 37.0, 900.0, stage)
    assert np.isfinite(plain[:, 1:]).any()
    np.testing.assert_allclose(other, plain, rtol=0.0, atol=1e-9 * np.abs(plain[np.isfinite(plain)]).max())
    np.testing.assert_allclose(same, shares, rtol=1e-9, atol=1e-12)
