"""Whatever is wrong with what a verdict is given: a clear error, or "cannot be told"; never a number."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.errors import InputError, InvalidRowsError, SchemaError, SourceError
from sidelight.judging.choice import ChoiceModel

N = 600
SCHEMA = sl.Schema(["u", "v", "h"], ["u", "v"])
RNG = np.random.default_rng(0)
FULL = {
    **{name: RNG.normal(size=N) for name in ("u", "v", "h")},
    "arm": np.array(["a", "b"])[RNG.integers(0, 2, N)],
    "reward": RNG.normal(size=N),
}
LOG = {name: values for name, values in FULL.items() if name != "h"}
ANSWERS = {name: values for name, values in FULL.items() if name != "reward"}
FEW = np.where(np.arange(N) < 5, "b", "a")
SPLIT = np.where(FULL["u"] > 0, "a", "b")


def without(rows, name):
    return {key: values for key, values in rows.items() if key != name}


def first(rows, n):
    return {key: values[:n] for key, values in rows.items()}


@pytest.mark.parametrize(
    ("log", "more", "error", "message"),
    [
        (without(LOG, "reward"), {}, SchemaError, "no column 'reward'"),
        ({**LOG, "reward": np.ones(N)}, {}, InvalidRowsError, "is 1 in every row"),
        ({**LOG, "reward": np.array(["good"] * N)}, {}, SchemaError, "a reward is a number"),
        ({**LOG, "arm": np.array(["a"] * N)}, {}, InputError, "one arm only"),
        (first(LOG, 0), {}, SourceError, "no rows"),
        (first(LOG, 1), {}, SourceError, "too few rows to judge anything: 1"),
        (LOG, {"answers": {**ANSWERS, "arm": np.where(SPLIT == "a", "a", "z")}}, InputError, "'z'"),
        (LOG, {"answers": without(ANSWERS, "h")}, InputError, "no column 'h'"),
        (LOG, {"answers": first(ANSWERS, 0)}, InputError, "no rows"),
        (LOG, {"complete": LOG}, SchemaError, "no column 'h'"),
        (LOG, {"complete": without(FULL, "reward")}, SchemaError, "no column 'reward'"),
        (LOG, {"complete": {**FULL, "arm": np.where(SPLIT == "a", "a", "z")}}, InvalidRowsError, "'z'"),
        (LOG, {"complete": {**FULL, "reward": np.full(N, 3.0)}}, InvalidRowsError, "the same in every row"),
        (LOG, {"complete": iter([FULL])}, InputError, "more than once"),
        (LOG, {"by": "era"}, SchemaError, "no column 'era'"),
    ],
)
def test_errors(log, more, error, message):
    with pytest.raises(error, match=message):
        sl.judge(log, SCHEMA, **more)


@pytest.mark.parametrize(
    ("log", "more", "stage", "why"),
    [
        ({**LOG, "arm": FEW}, {}, "log", "arm 'b' has 5 rows for 3 columns"),
        ({**LOG, "arm": SPLIT}, {}, "log", "never tries arm 'b' in about"),
        ({**LOG, "arm": SPLIT}, {"answers": {**ANSWERS, "arm": SPLIT}}, "answers", "never tries arm 'b' in about"),
        (LOG, {"answers": {**ANSWERS, "arm": FEW}}, "answers", "only 5 answers"),
        (LOG, {"complete": {**FULL, "arm": SPLIT}}, "complete", "all but never tries arm 'b'"),
        (LOG, {"complete": first(FULL, 20)}, "complete", "rows of equal weight"),
    ],
    ids=["few rows", "no overlap", "no overlap, answers", "few answers", "no overlap, complete", "few complete"],
)
def test_what_cannot_be_told(log, more, stage, why):
    verdict = sl.judge(log, SCHEMA, policies="b", **more)
    line = verdict.line("always b", stage)
    assert not line.known
    assert why in line.note
    assert (line.low, line.high) == (-np.inf, np.inf)
    assert line.to_dict()["gain"] is None
    assert why in verdict.sentence
    assert why in verdict.to_html().replace("&#39;", "'")


def test_eras_without_overlap():
    """In one of two eras the arms are split by a feature: a third of the contexts cannot be told."""
    era = np.where(np.arange(N) % 3 < 2, "split", "random")
    log = {**LOG, "era": era, "arm": np.where(era == "split", SPLIT, LOG["arm"])}
    line = sl.judge(log, SCHEMA, by="era", policies="b").line("always b")
    assert "never tries arm 'b' in about" in line.note
    assert sl.judge({**LOG, "era": era}, SCHEMA, by="era", policies="b").line("always b").known


def test_a_sharp_policy_is_not_taken_for_one_without_overlap(seed):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(5_000), rng.normal(size=(5_000, 3))])
    arm = (3.0 * X[:, 1] + rng.logistic(size=5_000) > 0).astype(int)
    model = ChoiceModel(X, arm, 2)
    assert model.untried(model.everywhere(0))[1] < 0.05
    sharp = ChoiceModel(X, (X[:, 1] > 0).astype(int), 2)
    assert sharp.untried(sharp.everywhere(0))[1] > 0.2
    assert sharp.untried((X[:, 1] > 0).astype(int))[1] == 0.0


def test_few_rows_of_many_arms_do_not_look_like_no_overlap(seed):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(2_000), rng.normal(size=(2_000, 15))])
    model = ChoiceModel(X, rng.integers(0, 100, 2_000), 100)
    assert model.untried(rng.integers(0, 100, 2_000))[1] == 0.0
