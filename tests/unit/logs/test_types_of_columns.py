"""What a value means, and which labels are the same, depends on the value alone: not on the rows beside it."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidelight as sl
from sidelight.errors import InvalidRowsError, SchemaError
from sidelight.labels import sorted_labels
from sidelight.logs.sources.paths import find_files

N = 60
SCHEMA = sl.Schema(["x", "c"], ["x", "c"], categories=["c"])


def columns(**changes):
    rng = np.random.default_rng(0)
    which = np.arange(N) % 3
    return {"x": rng.normal(size=N), "c": which, "arm": which % 2, "reward": rng.normal(size=N)} | changes


def parquet(folder, name, **changes):
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table(columns(**changes)), path)
    return str(path)


def test_files_whose_types_differ_keep_the_labels_of_each(tmp_path):
    """Joined to one batch, decimals became floats, and large integers no label at all."""
    values = [decimal.Decimal(text) for text in ("0.1", "0.2", "0.3")]
    tenths = [values[i % 3] for i in range(N)]
    first = parquet(tmp_path, "two_digits", c=pa.array(tenths, pa.decimal128(10, 2)))
    second = parquet(tmp_path, "four_digits", c=pa.array(tenths, pa.decimal128(12, 4)))
    empty = parquet(tmp_path, "empty", c=pa.nulls(N))
    alone = sl.summarize_log(first, SCHEMA)
    both = sl.summarize_log([first, second], SCHEMA)
    assert both.schema.encoded_names == alone.schema.encoded_names
    assert both.schema.features[1].levels == tuple(values)
    with pytest.warns(sl.SidelightWarning, match="skipped"):
        assert sl.summarize_log([empty, first], SCHEMA, on_invalid="skip").schema == alone.schema

    large = np.array([2**63 + 5, 7, 9], dtype=np.uint64)[np.arange(N) % 3]
    unsigned, signed = parquet(tmp_path, "unsigned", c=large), parquet(tmp_path, "signed")
    assert sl.summarize_log([unsigned, signed], SCHEMA).schema.features[1].levels == (0, 1, 2, 7, 9, 2**63 + 5)
    exact = parquet(tmp_path, "exact", c=np.array([2**53 + 1, 2**53, 3])[np.arange(N) % 3])
    floats = parquet(tmp_path, "floats", c=(np.arange(N) % 3).astype(float))
    assert sl.summarize_log([exact, floats], SCHEMA).schema.features[1].levels == (0, 1, 2, 3, 2**53, 2**53 + 1)


def test_a_label_that_is_text_in_one_part_and_a_number_in_another_is_refused():
    numbers, texts = columns(), columns(arm=(np.arange(N) % 3 % 2).astype(str))
    first, second = (sl.summarize_log(log, SCHEMA) for log in (numbers, texts))
    with pytest.raises(SchemaError, match="column 'arm' holds '0', which is text, and 0, which is not"):
        first + second
    with pytest.raises(SchemaError, match="column 'arm' holds '0', which is text, and 0, which is not"):
        sl.summarize_log(iter([pa.table(numbers), pa.table(texts)]), SCHEMA)
    levels = sl.summarize_log(columns(c=(np.arange(N) % 3).astype(str)), SCHEMA)
    with pytest.raises(SchemaError, match="column 'c' holds '0'"):
        first + levels
    # text that reads like no number goes with numbers, as before
    assert (first + sl.summarize_log(columns(arm=["new"] * N), SCHEMA)).arms == (0, 1, "new")


def test_a_pandas_column_of_objects_has_one_type_in_all_its_parts():
    """A frame is read in parts; one with nothing but numbers gave other labels than one with a text among them."""
    n = 140_000
    arms = np.tile(np.array([1, 2], dtype=object), n // 2)
    arms[-1] = "x"
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=n), "arm": arms, "reward": rng.normal(size=n)})
    schema = sl.Schema(["x"], ["x"])
    assert sl.summarize_log(frame, schema).arms == sl.summarize_log(frame.tail(1_000), schema).arms == ("1", "2", "x")
    frame["x"] = frame["x"].astype(object)
    frame.loc[0, "x"] = "3.5"
    summary = sl.summarize_log(frame, schema)
    assert summary.n_rows == n


def test_frames_beside_arrays_are_read_by_name():
    log = columns()
    frame = pd.DataFrame({"b": log["x"] + 5.0, "a": log["x"]})
    schema = sl.Schema(["a", "b"], ["a", "b"])
    named = sl.summarize_log({"a": log["x"], "b": log["x"] + 5.0, "arm": log["arm"], "reward": log["reward"]}, schema)
    for made in (frame, pa.Table.from_pandas(frame)):
        assert np.allclose(sl.summarize_log((made, log["arm"], log["reward"]), schema).means, named.means)
        assert np.allclose(sl.LogSummary.from_arrays(made, log["arm"], log["reward"], schema).means, named.means)
    with pytest.raises(SchemaError, match=r"no column 'a'.*to take its columns in order give an array"):
        sl.summarize_log((frame.rename(columns={"a": "u"}), log["arm"], log["reward"]), schema)
    with pytest.raises(SchemaError, match=r"no column 'a'.*to take its columns in order give an array"):
        sl.LogSummary.from_arrays(frame.rename(columns={"a": "u"}), log["arm"], log["reward"], schema)


def test_a_mapping_may_have_numbers_as_names():
    log = columns()
    summary = sl.summarize_log({0: log["x"], "arm": log["arm"], "reward": log["reward"]}, sl.Schema(["0"], ["0"]))
    assert summary.n_rows == N


def test_arrays_that_are_no_numbers_or_labels():
    x, r, schema = np.zeros((4, 1)), np.zeros(4), sl.Schema(["x"], ["x"])
    with pytest.raises(InvalidRowsError, match="contexts are not numbers"):
        sl.LogSummary.from_arrays([["u"]] * 4, [0, 1, 0, 1], r, schema)
    with pytest.raises(InvalidRowsError, match="rewards are not numbers"):
        sl.LogSummary.from_arrays(x, [0, 1, 0, 1], ["a"] * 4, schema)
    with pytest.raises(SchemaError, match="None cannot be a label"):
        sl.LogSummary.from_arrays(x, [0, None, 0, 1], r, schema)
    with pytest.raises(SchemaError, match="nan cannot be a label"):
        sl.LogSummary.from_arrays(x, np.array([0, np.nan, 0, 1]), r, schema)
    summary = sl.LogSummary.from_arrays(x, [1, "a", 1, 1], r, schema)
    assert summary.arms == (1, "a")
    assert summary.counts.tolist() == [3, 1]


@pytest.mark.parametrize("role", ["arm", "c"])
def test_lists_are_no_labels(role):
    nested = pa.array([[1.0]] * N)
    with pytest.raises(SchemaError, match=f"column '{role}' holds list<item: double>, which cannot be labels"):
        sl.summarize_log(pa.table(columns(**{role: nested})), SCHEMA)
    with pytest.raises(SchemaError, match="column 'reward' holds list<item: double>, which is neither a number"):
        sl.summarize_log(pa.table(columns(reward=nested)), SCHEMA)


def test_gaps_in_a_dictionary_are_gaps():
    """A null or a NaN may be one of a dictionary's values, instead of a row without one."""
    at = pa.array(np.arange(N) % 3)
    texts = pa.DictionaryArray.from_arrays(at, pa.array(["u", None, "v"]))
    numbers = pa.DictionaryArray.from_arrays(at, pa.array([1.0, float("nan"), 3.0]))
    for changes, era in (({"c": texts}, ("x",)), ({"x": numbers}, ("c",))):
        eras = sl.summarize_eras(pa.table(columns(**changes)), SCHEMA)
        assert {key: summary.n_rows for key, summary in eras.items()} == {("x", "c"): 2 * N // 3, era: N // 3}


def test_the_order_of_times_does_not_depend_on_the_zone_of_the_machine():
    """02:30 did not exist in Berlin on that day, and counted as 03:30 there."""
    moments = [dt.datetime(2024, 3, 31, 2, 30), dt.datetime(2024, 3, 31, 3, 0)]
    zone = os.environ.get("TZ")
    try:
        os.environ["TZ"] = "Europe/Berlin"
        time.tzset()
        assert sorted_labels(moments) == tuple(moments)
    finally:
        os.environ.pop("TZ") if zone is None else os.environ.update(TZ=zone)
        time.tzset()


def test_a_set_of_files_has_an_order(tmp_path):
    names = [parquet(tmp_path, name) for name in "dbac"]
    assert [file.path for file in find_files(set(names))] == sorted(names)


@pytest.mark.parametrize("labels", [[1, 2, 3], [1.0, 2.0, 3.0], [0.5, 1.0, 1.5], [False, True, True], ["a", "b", "1"]])
def test_a_csv_file_is_read_again_with_the_schema_that_was_found_in_it(labels, tmp_path):
    """Arms and levels of the summary have types; the file has nothing but text."""
    file = tmp_path / "log.csv"
    made = pd.DataFrame(columns(c=np.array(labels)[np.arange(N) % 3], arm=np.array(labels)[np.arange(N) % 3]))
    made.to_csv(file, index=False)
    schema = sl.Schema(["x", "c"], ["x", "c"], categories=["c"], intercept=True)
    first = sl.summarize_log(file, schema)
    again = sl.summarize_log(file, first.schema)
    assert again.schema == first.schema
    np.testing.assert_array_equal(again.factors, first.factors)
    assert sl.judge(file, first.schema).table.num_rows == sl.judge(file, schema).table.num_rows
    assert next(iter(sl.summarize_eras(file, first.schema).values())).arms == first.arms
    assert sl.propose_terms(file, first.schema) == sl.propose_terms(file, schema)


def test_a_label_that_a_later_csv_file_adds_has_the_type_of_the_others(tmp_path):
    older, newer = tmp_path / "older.csv", tmp_path / "newer.csv"
    pd.DataFrame(columns()).to_csv(older, index=False)
    pd.DataFrame(columns(c=np.arange(N) % 4, arm=np.arange(N) % 3)).to_csv(newer, index=False)
    first = sl.summarize_log(older, SCHEMA)
    later = sl.summarize_log(newer, first.schema)
    assert later.arms == (0, 1, 2)
    assert [type(arm) for arm in later.arms] == [int, int, int]
    assert later.schema.features[1].levels == (0, 1, 2, 3)
    assert (first + later).arms == (0, 1, 2)
