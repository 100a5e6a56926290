"""What users get when they bring bad input: what was seen, why it is a problem, what to do."""

from __future__ import annotations

import decimal
import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidelight.errors import (
    ContextError,
    InputError,
    InvalidRowsError,
    SchemaError,
    SidelightError,
    SourceError,
    UnderdeterminedError,
)
from sidelight.logs.schema.features import Number
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summarize import summarize_log
from sidelight.logs.summary import LogSummary

SCHEMA = Schema(["a", "b", "hidden"], ["a", "b"], arms=["x", "y"])


def log(n=40, seed=0, **columns):
    rng = np.random.default_rng(seed)
    table = {
        "a": rng.normal(size=n),
        "b": rng.normal(size=n),
        "arm": np.array(["x", "y"])[np.arange(n) % 2],
        "reward": rng.normal(size=n),
    }
    return pa.table({**table, **columns})


def with_value(column, row, value, n=40):
    values = log(n)[column].to_pylist()
    values[row] = value
    return log(n, **{column: pa.array(values)})


BAD_ROWS = [
    ("a", 7, float("nan"), ["row 7", "'a'", "nan", "missing or NaN", "summarize_eras"]),
    ("b", 3, None, ["row 3", "'b'", "None", "missing or NaN", "summarize_eras"]),
    ("a", 0, float("inf"), ["row 0", "'a'", "inf", "infinite"]),
    ("b", 39, float("-inf"), ["row 39", "'b'", "-inf", "infinite"]),
    ("reward", 5, None, ["row 5", "'reward'", "missing or NaN"]),
    ("reward", 5, float("nan"), ["row 5", "'reward'", "missing or NaN"]),
    ("arm", 9, "z", ["row 9", "'arm'", "'z'", "not among the declared", "The declared arms are 'x', 'y'"]),
    ("arm", 9, None, ["row 9", "'arm'", "missing or NaN"]),
]


@pytest.mark.parametrize(("column", "row", "value", "says"), BAD_ROWS, ids=lambda v: str(v))
def test_bad_rows_are_named(column, row, value, says, tmp_path):
    table = with_value(column, row, value)
    pq.write_table(table, tmp_path / "log.parquet")
    for source in (table, tmp_path / "log.parquet", table.to_pandas()):
        with pytest.raises(InvalidRowsError) as error:
            summarize_log(source, SCHEMA)
        for part in says:
            # A frame of pandas shows what is missing in its own way.
            if part not in ("nan", "None"):
                assert part in str(error.value)
        assert 'on_invalid="skip"' in str(error.value)
        assert "1 cannot be used" in str(error.value)
    with pytest.raises(InvalidRowsError, match=r"log\.parquet"):
        summarize_log(tmp_path / "log.parquet", SCHEMA)


def test_skipping_reports_reasons_and_changes_nothing_else():
    n = 400
    rng = np.random.default_rng(8)
    good = log(n, seed=3)
    a = good["a"].to_numpy().copy()
    reward = good["reward"].to_pylist()
    arm = good["arm"].to_pylist()
    bad = rng.permutation(n)[:6]
    a[bad[0]], a[bad[1]], a[bad[2]] = np.nan, np.inf, np.nan
    reward[bad[3]], arm[bad[4]], arm[bad[5]] = None, "unknown", None
    # One row with two problems counts once, under the first.
    reward[bad[0]] = None
    table = log(n, seed=3, a=a, reward=pa.array(reward), arm=pa.array(arm))
    found = summarize_log(table, SCHEMA, on_invalid="skip")
    assert found.skipped == {
        "a: infinite": 1,
        "a: missing or NaN": 2,
        "arm: missing or NaN": 1,
        "arm: not among the declared labels": 1,
        "reward: missing or NaN": 1,
    }
    keep = np.setdiff1d(np.arange(n), bad)
    clean = summarize_log(good.take(pa.array(keep)), SCHEMA)
    assert found.n_rows == clean.n_rows == n - 6
    np.testing.assert_allclose(found.factors, clean.factors, atol=1e-12)
    assert found.diagnose().rows_read == n


def test_skipping_on_the_fast_road(monkeypatch):
    from sidelight.logs import summarize as passes
    from sidelight.logs.reduce import moments

    monkeypatch.setattr(moments, "_SMALL", 0)
    monkeypatch.setattr(passes, "batch_rows", lambda schema: 1_000)
    table = log(6_000, seed=1)
    a = table["a"].to_numpy().copy()
    a[4_321], a[17] = np.nan, np.inf
    found = summarize_log(table.set_column(0, "a", pa.array(a)), SCHEMA, on_invalid="skip")
    clean = summarize_log(table.filter(pa.array(np.isfinite(a))), SCHEMA)
    assert found.skipped == {"a: infinite": 1, "a: missing or NaN": 1}
    np.testing.assert_allclose(found.factors, clean.factors, atol=1e-10)


def test_a_number_that_cannot_be_parsed(tmp_path):
    lines = ["a,b,arm,reward"] + [f"{i},{i * i % 7},x,{i}" for i in range(50)]
    lines[31] = "12,abc,x,3"
    (tmp_path / "log.csv").write_text("\n".join(lines))
    with pytest.raises(InvalidRowsError, match=r"row 30 of .*log\.csv: column 'b' is 'abc' \(not a number\)"):
        summarize_log(tmp_path / "log.csv", SCHEMA)
    found = summarize_log(tmp_path / "log.csv", SCHEMA, on_invalid="skip")
    assert found.skipped == {"b: not a number": 1}
    assert found.n_rows == 49
    assert found.factors.any()


def test_a_bad_number_far_into_a_large_file(tmp_path, monkeypatch):
    """The reader has handed out rows before it meets the cell; none may be lost or counted twice."""
    from sidelight.logs.sources import csv as text

    monkeypatch.setattr(text, "_BLOCK", 2_000)
    rng = np.random.default_rng(0)
    lines = [f"{a:.6f},{b:.6f},{'xy'[i % 2]},{r:.6f}" for i, (a, b, r) in enumerate(rng.normal(size=(3_000, 3)))]
    (tmp_path / "good.csv").write_text("\n".join(["a,b,arm,reward", *lines]))
    lines.insert(2_500, "1.0,oops,x,2.0")
    (tmp_path / "bad.csv").write_text("\n".join(["a,b,arm,reward", *lines]))
    with pytest.raises(InvalidRowsError, match=r"row 2,500 of .*'oops'"):
        summarize_log(tmp_path / "bad.csv", SCHEMA)
    found = summarize_log(tmp_path / "bad.csv", SCHEMA, on_invalid="skip")
    clean = summarize_log(tmp_path / "good.csv", SCHEMA)
    assert found.counts.tolist() == clean.counts.tolist() == [1_500, 1_500]
    np.testing.assert_allclose(found.factors, clean.factors, atol=1e-10)


def test_text_where_a_number_is_expected():
    with pytest.raises(SchemaError, match=r"'a' of .* holds text such as 'Rome', not numbers.*categories=\['a'\]"):
        summarize_log(log(4, a=["Rome", "Oslo", "Rome", "Oslo"]), Schema([Number("a"), "b"], ["a", "b"]))
    with pytest.raises(SchemaError, match=r"column 'a' holds timestamp.*weekday\(a\)"):
        summarize_log(log(2, a=pd.to_datetime(["2020-01-01", "2021-01-01"])), SCHEMA)
    with pytest.raises(SchemaError, match="column 'b' holds list"):
        summarize_log(log(2, b=pa.array([[1], [2]])), SCHEMA)


def test_columns(tmp_path):
    with pytest.raises(SchemaError, match=r"no column 'a'; it has 'aa', 'b', 'arm', 'reward'\. Did you mean 'aa'"):
        summarize_log(log().rename_columns(["aa", "b", "arm", "reward"]), SCHEMA)
    with pytest.raises(SchemaError, match=r"several columns called 'a'.*Rename or drop"):
        summarize_log(log().append_column("a", log()["b"]), SCHEMA)
    (tmp_path / "twice.csv").write_text("a,b,a,arm,reward\n1,2,3,x,4\n")
    with pytest.raises(SchemaError, match=r"twice\.csv has several columns called 'a'"):
        summarize_log(tmp_path / "twice.csv", SCHEMA)
    pq.write_table(log().drop_columns(["reward"]), tmp_path / "log.parquet")
    with pytest.raises(SchemaError, match=r"log\.parquet has no column 'reward'"):
        summarize_log(tmp_path / "log.parquet", SCHEMA)
    with pytest.raises(SchemaError, match="recorded 'c' is not among the features 'a', 'b'"):
        Schema(["a", "b"], ["c"])


def test_nothing_to_read(tmp_path):
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "header.csv").write_text("a,b,arm,reward\n")
    pq.write_table(log(0), tmp_path / "none.parquet")
    for name in ("empty.csv", "empty.parquet"):
        with pytest.raises(SourceError, match=f"{name} is empty"):
            summarize_log(tmp_path / name, SCHEMA)
    for name in ("header.csv", "none.parquet"):
        with pytest.raises(SourceError, match=f"{name} has no rows"):
            summarize_log(tmp_path / name, SCHEMA)
    with pytest.raises(SourceError, match="the Arrow table has no rows"):
        summarize_log(log(0), SCHEMA)
    with pytest.raises(SourceError, match="has no rows"):
        summarize_log(iter([]), SCHEMA)
    with pytest.raises(SourceError, match=r"no file matches '.*\*\.csv'"):
        summarize_log(str(tmp_path / "sub" / "*.csv"), SCHEMA)
    with pytest.raises(SourceError, match=r"there is no file or folder .*nope.*empty\.csv"):
        summarize_log(tmp_path / "nope", SCHEMA)
    (tmp_path / "folder").mkdir()
    with pytest.raises(SourceError, match="holds no Parquet, CSV or Arrow files"):
        summarize_log(tmp_path / "folder", SCHEMA)


def test_every_row_skipped():
    with pytest.raises(InvalidRowsError, match=r"none of the 4 rows .* can be used: a: missing or NaN \(4\)"):
        summarize_log(log(4, a=[None] * 4), SCHEMA, on_invalid="skip")


def test_cut_off_files(tmp_path):
    table = log(5_000)
    pq.write_table(table, tmp_path / "whole.parquet")
    content = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(SourceError, match=r"cut\.parquet.*cut off while it was written or copied"):
        summarize_log(tmp_path / "cut.parquet", SCHEMA)
    with pytest.raises(SourceError, match=r"cut\.parquet"):
        summarize_log([tmp_path / "whole.parquet", tmp_path / "cut.parquet"], SCHEMA)
    # Damage inside, with the end intact.
    broken = bytearray(content)
    broken[4:40] = b"\xff" * 36
    (tmp_path / "broken.parquet").write_bytes(bytes(broken))
    with pytest.raises(SourceError, match=r"cannot read .*broken\.parquet"):
        summarize_log(tmp_path / "broken.parquet", SCHEMA)
    # One number altered in a file that was written with checksums.
    pq.write_table(table, tmp_path / "checked.parquet", write_page_checksum=True)
    altered = bytearray((tmp_path / "checked.parquet").read_bytes())
    altered[5_000] ^= 1
    (tmp_path / "altered.parquet").write_bytes(bytes(altered))
    with pytest.raises(SourceError, match=r"cannot read .*altered\.parquet.*damaged"):
        summarize_log(tmp_path / "altered.parquet", SCHEMA)
    text = "a,b,arm,reward\n" + "".join(f"{i},{i},x,1\n" for i in range(20_000))
    packed = gzip.compress(text.encode())
    (tmp_path / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(SourceError, match=r"cannot read .*cut\.csv\.gz"):
        summarize_log(tmp_path / "cut.csv.gz", SCHEMA)
    with pa.ipc.new_file(tmp_path / "whole.arrow", table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "cut.arrow").write_bytes((tmp_path / "whole.arrow").read_bytes()[:5_000])
    with pytest.raises(SourceError, match=r"cannot read .*cut\.arrow"):
        summarize_log(tmp_path / "cut.arrow", SCHEMA)
    (tmp_path / "not.parquet").write_bytes(b"hello there")
    with pytest.raises(SourceError, match=r"not\.parquet is named like Parquet but does not start like it"):
        summarize_log(tmp_path / "not.parquet", SCHEMA)
    (tmp_path / "picture.dat").write_bytes(b"\x89PNG\r\n\x00\x00")
    with pytest.raises(SourceError, match="neither Parquet, CSV nor Arrow"):
        summarize_log(tmp_path / "picture.dat", SCHEMA)


def test_ragged_and_foreign_text(tmp_path):
    (tmp_path / "ragged.csv").write_text("a,b,arm,reward\n1,2,x,3\n1,2,3,x,3\n")
    with pytest.raises(SourceError, match=r"ragged\.csv: .*Row #3: Expected 4 columns, got 5: 1,2,3,x,3.*needs quotes"):
        summarize_log(tmp_path / "ragged.csv", SCHEMA)
    (tmp_path / "latin.csv").write_bytes("a,b,arm,reward\n1,2,é,3\n".encode("latin-1"))
    with pytest.raises(SourceError, match="UTF-8"):
        summarize_log(tmp_path / "latin.csv", Schema(["a", "b"], ["a", "b"]))


def test_files_that_do_not_agree(tmp_path):
    pq.write_table(log(), tmp_path / "1.parquet")
    pq.write_table(log().drop_columns(["b"]), tmp_path / "2.parquet")
    with pytest.raises(SchemaError, match=r"2\.parquet has no column 'b'"):
        summarize_log(tmp_path, SCHEMA)
    pq.write_table(log(b=[str(i) for i in range(40)]), tmp_path / "2.parquet")
    with pytest.raises(SourceError, match=r"'b' changes its type.*double in .*1\.parquet, string in .*2\.parquet"):
        summarize_log(tmp_path, SCHEMA)
    pq.write_table(log(arm=[0, 1] * 20), tmp_path / "2.parquet")
    with pytest.raises(SourceError, match=r"'arm' changes its type.*the same label would count as two"):
        summarize_log(tmp_path, Schema(["a", "b"], ["a", "b"]))


def test_harmless_changes_of_type(tmp_path):
    whole = log(b=pa.array(np.arange(40) % 7, pa.int32()))
    pq.write_table(whole.slice(0, 20), tmp_path / "1.parquet")
    as_decimal = pa.array([decimal.Decimal(int(v)) for v in whole["b"].to_pylist()[20:]])
    pq.write_table(whole.slice(20).set_column(1, "b", as_decimal), tmp_path / "2.parquet")
    found = summarize_log(tmp_path, SCHEMA)
    np.testing.assert_allclose(found.factors, summarize_log(whole, SCHEMA).factors, atol=1e-12)


def test_csv_beside_parquet(tmp_path):
    pq.write_table(log(), tmp_path / "1.parquet")
    (tmp_path / "2.csv").write_text("a,b,arm,reward\n1,2,x,3\n")
    with pytest.raises(SourceError, match="mixes CSV with parquet"):
        summarize_log(tmp_path, SCHEMA)


def test_an_arm_without_rows():
    found = summarize_log(log(arm=["x"] * 40), SCHEMA)
    assert found.counts.tolist() == [40, 0]
    assert found.determined.tolist() == [True, False]
    assert np.isfinite(found.residual_variances).all()
    with pytest.raises(UnderdeterminedError, match=r"1 of 2 arms.*no rows at all for arm 'y'.*FusedOFUL"):
        found.coefficients
    assert any("No rows for 'y'" in warning for warning in found.diagnose().warnings)


def test_fewer_rows_than_features():
    found = summarize_log(log(3, arm=["x", "x", "y"]), SCHEMA)
    with pytest.raises(UnderdeterminedError, match="fewer rows than the 2 recorded columns: 'y' has 1"):
        found.require_determined()
    assert np.isfinite(found.residual_variances).all()
    assert found.coefficients_of(0).shape == (2,)


def test_collinear_columns_are_named_whatever_their_units():
    rng = np.random.default_rng(0)
    n = 300
    a, b = rng.normal(size=n), rng.normal(size=n)
    columns = {"a": a, "b": b * 1e9, "c": 2.54e-7 * a, "d": 1e9 * b - a, "arm": np.arange(n) % 2, "reward": a + b}
    schema = Schema(["a", "b", "c", "d", "h"], ["a", "b", "c", "d"])
    found = summarize_log(columns, schema)
    assert found.collinear_features(0) == ("c", "d")
    assert found.columns_to_drop() == ("c", "d")
    with pytest.raises(UnderdeterminedError, match="collinear recorded columns for arms 0, 1: leaving out 'c', 'd'"):
        found.coefficients
    mended = summarize_log(columns, Schema(["a", "b", "h"], ["a", "b"]))
    assert mended.determined.all()
    np.testing.assert_allclose(mended.coefficients, [[1, 1e-9]] * 2, rtol=1e-6)


def test_the_smallest_set_for_all_arms_together():
    """In arm 0 the last column repeats the first, in arm 1 the second: one column mends both."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3))
    arms = np.arange(200) % 2
    X[arms == 0, 2] = X[arms == 0, 0]
    X[arms == 1, 2] = X[arms == 1, 1]
    found = LogSummary.from_arrays(X, arms, rng.normal(size=200), Schema.for_arrays(3, 3, 2))
    assert found.columns_to_drop() == ("x2",)
    # Greedy from the left would keep the first column and then lose two: the search finds the one.
    swapped = LogSummary.from_arrays(X[:, [2, 0, 1]], arms, rng.normal(size=200), Schema.for_arrays(3, 3, 2))
    assert swapped.columns_to_drop() == ("x0",)


def test_scales_of_a_billion_are_no_problem():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(500, 3))
    r = X @ [1.0, 2.0, 3.0]
    scaled = X * [1e9, 1.0, 1e-9]
    found = LogSummary.from_arrays(scaled, np.zeros(500, dtype=int), r, Schema.for_arrays(4, 3, 1))
    assert found.determined.all()
    np.testing.assert_allclose(found.coefficients[0] * [1e9, 1, 1e-9], [1, 2, 3], rtol=1e-10)
    assert found.conditions[0] < 2


def test_all_constant_columns():
    columns = {"a": np.ones(30), "b": np.full(30, 7.0), "arm": ["x"] * 30, "reward": np.arange(30.0)}
    found = summarize_log(columns, SCHEMA)
    assert found.collinear_features("x") == ("b",)
    with_intercept = summarize_log(columns, Schema(["a", "b"], ["a", "b"], intercept=True))
    assert with_intercept.collinear_features("x") == ("a", "b")
    zeros = summarize_log({**columns, "b": np.zeros(30)}, SCHEMA)
    assert zeros.collinear_features("x") == ("b",)
    assert "leave out b" in str(zeros.diagnose())


def test_settings():
    with pytest.raises(InputError, match="on_invalid must be 'raise' or 'skip', not 'drop'"):
        summarize_log(log(), SCHEMA, on_invalid="drop")
    with pytest.raises(SchemaError, match="must be a Schema, not dict"):
        summarize_log(log(), {"features": ["a"]})
    hidden = Schema(["a", "kind"], ["a"], categories=["kind"])
    with pytest.raises(SchemaError, match="levels of 'kind' cannot be discovered: a hidden category is not in the log"):
        summarize_log(log(), hidden)


def test_too_many_labels():
    n = 20_500
    table = pa.table({"a": np.zeros(n), "arm": np.arange(n), "reward": np.zeros(n)})
    with pytest.raises(SchemaError, match="'arm' has more than 20,000 different values"):
        summarize_log(table, Schema(["a"], ["a"]))


def test_propensities_must_be_probabilities():
    schema = Schema(["a", "b"], ["a", "b"], propensity="p")
    p = np.full(40, 0.5)
    p[3], p[4] = 0.0, 1.5
    with pytest.raises(InvalidRowsError, match=r"row 3.*'p' is 0\.0 \(not a probability above 0 and at most 1\)"):
        summarize_log(log(p=p), schema)
    assert sum(summarize_log(log(p=p), schema, on_invalid="skip").skipped.values()) == 2


def test_arrays_that_do_not_fit():
    schema = Schema.for_arrays(3, 2, 2)
    X, arms, r = np.zeros((5, 2)), np.zeros(5, dtype=int), np.zeros(5)
    with pytest.raises(SchemaError, match=r"shape \(5, 3\), but the schema records 2 columns"):
        LogSummary.from_arrays(np.zeros((5, 3)), arms, r, schema)
    with pytest.raises(InputError, match=r"5 contexts come with rewards of shape \(4,\)"):
        LogSummary.from_arrays(X, arms, r[:4], schema)
    with pytest.raises(InvalidRowsError, match="rewards hold nan in row 2"):
        LogSummary.from_arrays(X, arms, np.where(np.arange(5) == 2, np.nan, r), schema)
    with pytest.raises(SidelightError, match="7 is not one of the arms: 0, 1"):
        LogSummary.from_arrays(X, arms + 7, r, schema)
    with pytest.raises(SourceError, match="does not say which column is what"):
        summarize_log(X, schema)


def test_the_first_bad_row_is_the_one_reported(monkeypatch):
    """Batches are reduced at the same time; the message is about the first in the log all the same."""
    from sidelight.logs import summarize as passes

    monkeypatch.setattr(passes, "batch_rows", lambda schema: 10)
    a = np.zeros(200)
    a[[37, 38, 120, 199]] = np.nan
    for _ in range(5):
        with pytest.raises(InvalidRowsError, match="row 37 of"):
            summarize_log(log(200, a=a), SCHEMA)


@pytest.mark.parametrize("give", [list, iter, lambda rows: rows[0]], ids=["list", "iterator", "one row"])
def test_rows_as_dictionaries_are_no_table(give):
    rows = log().to_pylist()
    with pytest.raises(SourceError, match=r"'a' of the mapping is the single value .*pyarrow\.Table\.from_pylist"):
        summarize_log(give(rows), SCHEMA)
    assert summarize_log(pa.Table.from_pylist(rows), SCHEMA).n_rows == 40


@pytest.mark.parametrize("value", ["x", None, 3.0])
def test_a_mapping_with_one_value_for_a_column_is_refused(value):
    with pytest.raises(SourceError, match=f"'arm' of the mapping is the single value {value!r}"):
        summarize_log({**log().to_pydict(), "arm": value}, SCHEMA)


def test_an_unknown_level_is_named_beside_the_known_ones():
    schema = Schema(["a", "city"], ["a", "city"], categories={"city": ["Rome", "Oslo"]}, arms=["x", "y"])
    cities = ["Rome", "Oslo"] * 20
    cities[11] = "Madrid"
    table = log(city=cities)
    for read in (schema.encode_many, schema.encode_recorded):
        with pytest.raises(ContextError, match=r"row 11: feature 'city' is 'Madrid' .*levels: 'Rome', 'Oslo'\)"):
            read(table)
    with pytest.raises(ContextError, match=r"'city' is 'Madrid', .*'Rome', 'Oslo'"):
        schema.encode({"a": 1.0, "city": "Madrid"})
    with pytest.raises(InvalidRowsError, match=r"row 11 .*'city' is 'Madrid' .*The declared levels are 'Rome', 'Oslo'"):
        summarize_log(table, schema)
