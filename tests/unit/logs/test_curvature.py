"""What a log says about terms that a schema lacks."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidelight as sl
from sidelight.cli import main
from sidelight.logs.diagnosis.curvature import propose_terms

N = 6_000


def log(reward, n=N, seed=0):
    rng = np.random.default_rng(seed)
    columns = {f"x{i}": rng.normal(size=n) for i in range(4)}
    columns |= {"flag": rng.random(n) < 0.4, "stage": rng.choice(["a", "b", "c"], n), "arm": rng.integers(0, 3, n)}
    columns["reward"] = reward(columns) + rng.normal(size=n)
    return columns


SCHEMA = sl.Schema(
    ["x0", "x1", "x2", "x3", "flag", "stage"],
    ["x0", "x1", "x2", "x3", "flag", "stage"],
    categories=["stage"],
    intercept=True,
)


@pytest.mark.parametrize(
    ("reward", "terms"),
    [
        (lambda c: np.abs(c["x0"]), ["spline(x0, 3)"]),
        (lambda c: (c["x1"] > 1.0) * 2.0 * (c["arm"] == 2), ["spline(x1, 3)"]),
        (lambda c: c["x2"] * c["x3"], ["x2:x3"]),
        (lambda c: c["x2"] * (c["stage"] == "b"), ["x2:stage"]),
        (lambda c: c["x0"] * c["flag"] * (c["arm"] == 0), ["x0:flag"]),
        (lambda c: c["x0"] - c["x1"] * (c["arm"] == 1) + c["flag"], []),
    ],
    ids=["U", "threshold", "product", "category", "one arm", "straight"],
)
def test_what_is_there_is_proposed(reward, terms):
    assert [proposal.term for proposal in propose_terms(log(reward), SCHEMA)] == terms


def test_what_it_explains_is_what_a_regression_with_it_explains():
    columns = log(lambda c: np.abs(c["x0"]) + 0.7 * c["x1"] * c["x2"])
    proposals = propose_terms(columns, SCHEMA)
    assert {proposal.term for proposal in proposals} == {"spline(x0, 3)", "x1:x2"}
    straight = sl.summarize_log(columns, SCHEMA).pooled_residual_variance
    bent = SCHEMA.with_derived([proposal.term for proposal in proposals])
    curved = sl.summarize_log(columns, bent).pooled_residual_variance
    assert sum(proposal.explains for proposal in proposals) == pytest.approx(1 - curved / straight, abs=2e-3)
    assert propose_terms(columns, bent) == []


def test_chance_is_not_proposed():
    """At 1 % over all candidates two false alarms in 12 logs with heavy tails have probability 0.6 %."""
    rng = np.random.default_rng(5)
    alarms = sum(
        bool(propose_terms(log(lambda c: c["x0"] + rng.standard_t(5, size=1_500), n=1_500, seed=seed), SCHEMA))
        for seed in range(12)
    )
    assert alarms <= 1


def test_few_rows_and_flags_propose_nothing():
    columns = log(lambda c: c["x0"] ** 2, n=20)
    assert propose_terms(columns, SCHEMA) == []
    flags = sl.Schema(["flag"], ["flag"], intercept=True)
    assert propose_terms(log(lambda c: c["flag"] * 1.0), flags) == []


def test_diagnose_offers_them(tmp_path, capsys):
    pq.write_table(pa.table(log(lambda c: np.abs(c["x0"]))), tmp_path / "log.parquet")
    arguments = ["diagnose", str(tmp_path / "log.parquet"), "--recorded", "x0,x1,stage", "--noise", "1"]
    for more, expected in ((["--json"], ["spline(x0, 3)"]), (["--json", "--no-curved"], [])):
        with pytest.raises(SystemExit) as done:
            main([*arguments, *more])
        assert done.value.code in (0, None)
        described = json.loads(capsys.readouterr().out)
        assert [proposal["term"] for proposal in described["proposals"]] == expected
    with pytest.raises(SystemExit):
        main(arguments)
    assert "--derived 'spline(x0, 3)'" in capsys.readouterr().out


def test_a_term_that_explains_little_beside_the_noise_is_proposed(rng):
    """An interaction of a thousandth of the noise's variance, with an F statistic of 50 on 2 and 100,000 degrees.

    Arms may differ in nothing else.  It is missed with a chance below 1e-9.
    """
    n = 100_000
    a, b, arm = rng.normal(size=n), rng.normal(size=n), rng.integers(0, 2, n)
    reward = a - b + np.where(arm == 1, 1.0, -1.0) * 0.1 * a * b + 3.0 * rng.normal(size=n)
    log = {"a": a, "b": b, "arm": arm, "reward": reward}
    (proposal,) = propose_terms(log, sl.Schema(["a", "b"], ["a", "b"], intercept=True))
    assert proposal.term == "a:b"
    assert 0.0002 < proposal.explains < 0.002
