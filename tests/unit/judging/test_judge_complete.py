"""Stage 3, complete rows: doubly robust values of any policy, and what rows without overlap cannot tell."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import sidelight as sl
from sidelight.errors import InputError, InvalidRowsError, SchemaError
from sidelight.judging.choice import softmax_regression

NAMES = ["u", "v", "h"]
SCHEMA = sl.Schema(NAMES, ["u", "v"], arms=["a", "b", "c"])
KNOWN = sl.Schema(NAMES, ["u", "v"], arms=["a", "b", "c"], propensity="chance")
PHI = np.array([[0.5, 0.0, 0.6], [0.0, -0.4, -0.6], [-0.3, 0.3, 0.0]])
W = np.array([[0.2, 0.5, -0.6], [0.1, -0.5, 0.8], [0.3, 0.2, 0.1]])


def drawn(n, seed, curved=0.0, uniform=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    logits = 0 * X @ PHI.T if uniform else X @ PHI.T
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    arm = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    mu = X @ W.T + curved * np.abs(X[:, [0]]) * [1.0, -1.0, 0.0]
    at = np.arange(n)
    return {
        **{name: X[:, j] for j, name in enumerate(NAMES)},
        "arm": np.array(["a", "b", "c"])[arm],
        "reward": mu[at, arm] + 0.3 * rng.normal(size=n),
        "chance": p[at, arm],
        "mu": mu,
        "p": p,
    }


def rows(table):
    return {name: table[name] for name in (*NAMES, "arm", "reward", "chance")}


def rule(columns):
    return np.where(columns["h"] > 0, "b", "a")


def truth(curved=0.0):
    big = drawn(400_000, 99, curved)
    taken = np.where(big["h"] > 0, 1, 0)
    return big["mu"][np.arange(400_000), taken].mean() - (big["mu"] * big["p"]).sum(axis=1).mean()


@pytest.mark.parametrize("curved", [0.0, 0.6])
def test_known_propensities_are_right_whatever_the_rewards(curved):
    log, more = rows(drawn(3_000, 0, curved)), rows(drawn(4_000, 1, curved))
    verdict = sl.judge(log, KNOWN, complete=more, policies=rule)
    line = verdict.line("rule")
    assert line.stage == "complete"
    # 4.5 standard errors: fails in 1 of 100,000 seeds
    assert abs(line.gain - truth(curved)) < 4.5 * line.error
    assert line.high - line.low < 0.2
    assert line.note == ""
    assert not verdict.line("rule", "log").known
    described = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    assert {overlap["policy"] for overlap in described["overlap"]} >= {"rule", "best", "always a"}
    assert verdict.line("always c", "complete").gain == pytest.approx(verdict.line("always c", "log").gain, abs=0.4)


def test_estimated_propensities_are_marked_conditional():
    log, more = rows(drawn(3_000, 0)), rows(drawn(4_000, 1))
    known = sl.judge(log, KNOWN, complete=more, policies=rule).line("rule")
    verdict = sl.judge(log, SCHEMA, complete=more, policies=rule)
    line = verdict.line("rule")
    assert line.note == "conditional on the model of the old policy"
    assert "conditional on the model of the old policy" in verdict.sentence
    assert abs(line.gain - truth()) < 4.5 * line.error
    assert (line.high - line.low) < 1.3 * (known.high - known.low)
    assert any("softmax" in text for text in verdict.assumptions)


def test_a_learner_is_judged_as_it_stands():
    log, more = drawn(3_000, 0), drawn(4_000, 1)
    learner = sl.OFUL(3, 3, arms=["a", "b", "c"], alpha=0.0)
    X = np.column_stack([log[name] for name in NAMES])
    learner.observe_many(X, log["arm"].tolist(), log["reward"])
    by_schema = sl.OFUL(3, 3, arms=["a", "b", "c"], alpha=0.0, schema=SCHEMA)
    by_schema.observe_many(X, log["arm"].tolist(), log["reward"])
    verdict = sl.judge(rows(log), KNOWN, complete=rows(more), policies={"plain": learner, "named": by_schema})
    taken = np.array([d.arm for d in learner.decide_many(np.column_stack([more[name] for name in NAMES]))])
    same = sl.judge(rows(log), KNOWN, complete=rows(more), policies=lambda c: taken[: len(c["h"])]).line("function")
    for name in ("plain", "named"):
        line = verdict.line(name)
        assert (line.value, line.low, line.high) == (same.value, same.low, same.high)
    assert "give complete rows" in sl.judge(rows(log), KNOWN, policies=learner).line("OFUL").note
    assert verdict.line("plain").sign == 1
    assert not verdict.simpler.as_good
    assert verdict.simpler.stage == "complete"


def test_a_pilot_is_compared_with_the_log():
    log, pilot = drawn(20_000, 0), drawn(4_000, 1, uniform=True)
    verdict = sl.judge(rows(log), KNOWN, complete=rows(pilot), policies=rule, pilot=True)
    line = verdict.line("rule")
    assert line.gain == pytest.approx(line.value - log["reward"].mean())
    assert abs(line.gain - truth()) < 4.5 * line.error
    assert line.error > math.sqrt(log["reward"].var() / 20_000)


@pytest.mark.parametrize("schema", [KNOWN, SCHEMA], ids=["known", "estimated"])
def test_rows_without_overlap_cannot_tell(schema):
    log, more = drawn(3_000, 0), drawn(4_000, 1)

    def censored(table):
        """The old policy never takes b where h > 0.5: what is left is renormalised."""
        keep = ~((table["h"] > 0.5) & (table["arm"] == "b"))
        p = np.where(table["h"] > 0.5, table["chance"] / (1 - table["p"][:, 1]), table["chance"])
        return {**{k: table[k][keep] for k in (*NAMES, "arm", "reward")}, "chance": p[keep]}

    if schema is SCHEMA:
        # a logistic model sees it where the boundary is linear and sharp
        keep = np.where(more["h"] > 0.0, more["arm"] != "b", more["arm"] == "b")
        complete = {k: more[k][keep] for k in (*NAMES, "arm", "reward", "chance")}
    else:
        complete = censored(more)
    verdict = sl.judge(rows(log), schema, complete=complete, policies=rule)
    line = verdict.line("rule", "complete")
    assert not line.known
    assert "cannot tell, because the old policy" in line.note
    assert "'b'" in line.note
    assert "drawn at random" in line.note
    assert "share of 10%" in line.note
    assert math.isnan(line.value)


def test_too_few_matched_rows_cannot_tell():
    verdict = sl.judge(rows(drawn(3_000, 0)), KNOWN, complete=rows(drawn(40, 1)), policies=rule)
    assert "are needed" in verdict.line("rule", "complete").note


def test_categories_and_csv(tmp_path):
    import pyarrow as pa
    import pyarrow.csv as csv

    table = drawn(3_000, 3)
    code = np.array([1, 2, 3])[np.searchsorted([-0.5, 0.5], table["h"])]
    columns = {"u": table["u"], "site": code, "arm": table["arm"], "reward": table["reward"], "chance": table["chance"]}
    csv.write_csv(pa.table(columns), tmp_path / "rows.csv")
    schema = sl.Schema(["u", "site"], ["u"], categories=["site"], propensity="chance")
    frames = sl.judge(columns, schema, complete=columns, policies=lambda c: np.where(c["site"] == 2, "a", "b"))
    text = str(tmp_path / "rows.csv")
    read = sl.judge(text, schema, complete=text, policies=lambda c: np.where(c["site"] == 2, "a", "b"))
    assert frames.line("function").value == pytest.approx(read.line("function").value)
    assert frames.line("function").known


def test_softmax_regression_finds_the_policy():
    table = drawn(40_000, 5)
    Z = np.column_stack([np.ones(40_000), *(table[name] for name in NAMES)])
    codes = np.array(["abc".index(a) for a in table["arm"]])
    found = softmax_regression(Z, codes, 3)
    expected = np.column_stack([np.zeros(3), PHI])
    np.testing.assert_allclose(found - found.mean(axis=0), expected - expected.mean(axis=0), atol=0.06)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda t: {k: v for k, v in t.items() if k != "h"}, SchemaError, "'h'"),
        (lambda t: {k: v for k, v in t.items() if k != "chance"}, SchemaError, "'chance'"),
        (lambda t: {**t, "arm": np.where(np.arange(len(t["u"])) == 7, "z", t["arm"])}, InvalidRowsError, "'z'"),
        (lambda t: {**t, "chance": np.zeros(len(t["u"]))}, InvalidRowsError, "at most 1"),
        (lambda t: {**t, "h": np.full(len(t["u"]), np.nan)}, InvalidRowsError, "missing"),
        (lambda t: {k: v[:0] for k, v in t.items()}, sl.SidelightError, "no rows"),
    ],
)
def test_bad_complete_rows_are_clear_errors(change, error, message):
    log, more = rows(drawn(500, 0)), rows(drawn(500, 1))
    with pytest.raises(error, match=message):
        sl.judge(log, KNOWN, complete=change(more))


def test_a_level_that_the_log_never_saw():
    log = {"s": ["x", "y"] * 200, "arm": ["a", "a", "b", "b"] * 100, "reward": np.arange(400) % 7}
    more = {"s": ["x", "y", "z", "z"] * 100, "arm": ["a"] * 200 + ["b"] * 200, "reward": np.arange(400) % 5}
    schema = sl.Schema(["s"], ["s"], categories=["s"])
    verdict = sl.judge(log, schema, complete=more)
    assert "never saw" in verdict.line("best", "complete").note
    assert verdict.line("always a", "complete").known
    with pytest.raises(InputError, match="is no policy"):
        sl.judge(log, schema, complete=more, policies=3.5j)
