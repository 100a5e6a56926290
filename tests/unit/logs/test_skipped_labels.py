"""Skipping rows never changes what the good rows give: labels that only skipped rows had leave no trace."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import sidelight as sl
from sidelight.errors import InvalidRowsError, SchemaError


@pytest.fixture
def frame(rng):
    n = 300
    return pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "b": rng.normal(size=n),
            "c": rng.choice(["u", "v"], n),
            "arm": rng.choice(["x", "y"], n),
            "reward": rng.normal(size=n),
        }
    )


def same(bad: pd.DataFrame, schema: sl.Schema) -> sl.LogSummary:
    skipped = sl.summarize_log(bad, schema, on_invalid="skip")
    good = sl.summarize_log(bad.drop(index=4), schema)
    assert skipped.schema == good.schema
    np.testing.assert_array_equal(skipped.coefficients, good.coefficients)
    return skipped


def test_an_arm_of_a_skipped_row_is_no_arm(frame):
    frame.loc[4, ["arm", "a"]] = ["phantom", np.nan]
    assert same(frame, sl.Schema(["a", "b", "h"], ["a", "b"])).arms == ("x", "y")


def test_a_level_of_a_skipped_row_is_no_level(frame):
    frame.loc[4, ["c", "a"]] = ["Q", np.nan]  # first in order, so it would be the baseline
    summary = same(frame, sl.Schema(["a", sl.Category("c"), "h"], ["a", "c"], intercept=True))
    assert summary.schema.encoded_names == ("intercept", "a", "c=v", "h")


def test_labels_of_a_csv_keep_their_type(frame, tmp_path):
    frame["arm"] = np.arange(300) % 2
    frame = frame.astype({"arm": str})
    frame.loc[4, ["arm", "a"]] = ["oops", np.nan]
    frame.to_csv(tmp_path / "log.csv", index=False)
    summary = sl.summarize_log(tmp_path / "log.csv", sl.Schema(["a", "b"], ["a", "b"]), on_invalid="skip")
    assert summary.arms == (0, 1)


def test_an_era_of_skipped_rows_is_no_era(frame):
    frame.loc[4, ["b", "reward"]] = np.nan
    eras = sl.summarize_eras(frame, sl.Schema(["a", "b", "h"], ["a", "b"]), on_invalid="skip")
    assert list(eras) == [("a", "b")]
    (summary,) = eras.values()
    assert summary.n_rows == 299
    assert sum(summary.skipped.values()) == 1


def test_arrays_that_are_too_wide_are_named():
    arrays = (np.ones((9, 7)), np.zeros(9, int), np.ones(9))
    with pytest.raises(SchemaError, match="X has 7 columns, but the schema records 6 features"):
        sl.summarize_log(arrays, sl.Schema.for_arrays(7, 6, 3))


def test_the_commands_do_not_write_over_what_they_read(frame, tmp_path, capsys):
    from sidelight.cli import main

    path = tmp_path / "log.csv"
    frame.to_csv(path, index=False)
    before = path.read_bytes()
    for out, why in ((path, "would destroy it"), (tmp_path / "nowhere" / "x.summary", "There is no folder")):
        with pytest.raises(SystemExit) as stopped:
            main(["summarize", str(path), "--out", str(out), "--recorded", "a,b"])
        assert stopped.value.code
        assert why in " ".join(capsys.readouterr().err.split())
    assert path.read_bytes() == before


def test_a_second_pass_leaves_out_what_the_first_one_skipped():
    """Rewards that are neither 0 nor 1, and chances that are none, were in the sandwich though not in the sums."""
    rng = np.random.default_rng(0)
    n = 400
    log = {"x": rng.normal(size=n), "arm": rng.integers(0, 2, n), "reward": rng.integers(0, 2, n) * 1.0}
    log["chance"] = np.full(n, 0.5)
    log["reward"][5], log["chance"][7] = 7.0, 1.5
    schema = sl.Schema(["x"], ["x"], binary=True, propensity="chance")
    good = (log["reward"] <= 1) & (log["chance"] <= 1)
    rest = {name: values[good] for name, values in log.items()}
    summary = sl.summarize_log(log, schema, on_invalid="skip", sandwich=True)
    alone = sl.summarize_log(rest, schema, sandwich=True)
    assert summary.n_rows == n - 2
    assert np.allclose(summary.meat, alone.meat, rtol=1e-12)
    assert np.allclose(summary.meat_freedom, alone.meat_freedom, rtol=1e-12)
    # one is skipped when the log is read, the other when complete rows are
    verdict = sl.judge(log, schema, complete=log, on_invalid="skip")
    assert verdict.rows == n - 1
    assert {line.rows for line in verdict.lines if line.stage == "complete"} == {n - 2}
    with pytest.raises(InvalidRowsError, match=r"row 7 of .* not a probability above 0 and at most 1"):
        sl.judge(rest, schema, complete=log | {"reward": np.minimum(log["reward"], 1.0)})
