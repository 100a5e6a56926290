"""Logs whose columns were added over the years: every row counts, in the era it belongs to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from sidelight.errors import InputError, InvalidRowsError, SchemaError, SourceError
from sidelight.logs.eras import summarize_eras
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summarize import summarize_log

SCHEMA = Schema(["a", "b", "city", "h"], ["a", "b", "city"], categories=["city"], intercept=True)


@pytest.fixture
def parts():
    """Three years: ``b`` came with the second, ``city`` with the third."""
    rng = np.random.default_rng(7)

    def year(n, arms, **columns):
        base = {"a": rng.normal(size=n), "arm": np.array(arms)[np.arange(n) % len(arms)], "reward": rng.normal(size=n)}
        return pa.table({**base, **columns})

    return [
        year(30, ["x", "y"]),
        year(50, ["x", "y"], b=rng.normal(size=50)),
        year(40, ["y", "z"], b=rng.normal(size=40), city=np.array(["Rome", "Oslo"])[rng.integers(0, 2, 40)]),
    ]


def checked(eras, parts):
    """Each era is the summary of its own part, and all have the same arms and encoding."""
    assert [summary.n_rows for summary in eras.values()] == [50, 40, 30]
    recorded = [("a", "b"), ("a", "b", "city"), ("a",)]
    for (summary, names), part in zip(
        zip(eras.values(), recorded, strict=True), [parts[1], parts[2], parts[0]], strict=True
    ):
        assert summary.schema.recorded == names
        assert summary.arms == ("x", "y", "z")
        assert summary.schema.encoded_names == ("intercept", "a", "b", "city=Rome", "h")
        alone = summarize_log(
            part,
            Schema(
                ["a", "b", "city", "h"],
                names,
                categories={"city": ["Oslo", "Rome"]},
                intercept=True,
                arms=["x", "y", "z"],
            ),
        )
        np.testing.assert_allclose(summary.grams, alone.grams, atol=1e-10)
        np.testing.assert_allclose(summary.cross, alone.cross, atol=1e-10)
        assert summary.skipped == {}


def test_by_missing_columns_in_one_table(parts):
    table = pa.concat_tables(parts, promote_options="default")
    eras = summarize_eras(table, SCHEMA)
    assert list(eras) == [("a", "b"), ("a", "b", "city"), ("a",)]
    checked(eras, parts)
    shuffled = table.take(pa.array(np.random.default_rng(0).permutation(len(table))))
    checked(summarize_eras(shuffled, SCHEMA), parts)
    checked(summarize_eras(table.to_pandas(), SCHEMA), parts)


def test_by_missing_columns_in_files(parts, tmp_path):
    (tmp_path / "parquet").mkdir()
    (tmp_path / "csv").mkdir()
    for i, part in enumerate(parts):
        pq.write_table(part, tmp_path / "parquet" / f"{i}.parquet")
        pacsv.write_csv(part, tmp_path / "csv" / f"{i}.csv")
    checked(summarize_eras(tmp_path / "parquet", SCHEMA), parts)
    checked(summarize_eras(tmp_path / "csv", SCHEMA), parts)
    with pytest.raises(SchemaError, match=r"0\.parquet has no column 'b'"):
        summarize_log(tmp_path / "parquet", SCHEMA)


def test_by_a_column(parts):
    years = [2021, 2022, 2023]
    tables = [part.append_column("year", pa.array([y] * len(part))) for part, y in zip(parts, years, strict=True)]
    table = pa.concat_tables(tables, promote_options="default")
    eras = summarize_eras(table, SCHEMA, by="year")
    assert list(eras) == [2022, 2023, 2021]
    checked(eras, parts)
    assert "2022: LogSummary(50 rows" in repr(eras)
    with pytest.raises(InputError, match="can be read only once"):
        summarize_eras(table.to_reader(), SCHEMA, by="year")
    with pytest.raises(SchemaError, match="'a' is already used"):
        summarize_eras(table, SCHEMA, by="a")
    with pytest.raises(SchemaError, match="no column 'decade'"):
        summarize_eras(table, SCHEMA, by="decade")


@pytest.mark.parametrize(
    ("years", "kinds"),
    [([2021, 2022, 2023], int), ([0.5, 1.5, 2.5], float), (["07", "2022", "x"], str), ([2021, None, 2023], int)],
)
def test_an_era_has_the_same_name_from_csv_as_from_parquet(parts, years, kinds, tmp_path):
    tables = [part.append_column("year", pa.array([y] * len(part))) for part, y in zip(parts, years, strict=True)]
    table = pa.concat_tables(tables, promote_options="permissive")
    pq.write_table(table, tmp_path / "log.parquet")
    pacsv.write_csv(table, tmp_path / "log.csv")
    by_file = [list(summarize_eras(tmp_path / name, SCHEMA, by="year")) for name in ("log.csv", "log.parquet")]
    assert by_file[0] == by_file[1] == [years[1], years[2], years[0]]
    assert {type(key) for key in by_file[0] if key is not None} == {kinds}


def test_a_gap_within_an_era_is_a_bad_row(parts):
    values = parts[1]["b"].to_pylist()
    values[7] = None
    gap = parts[1].set_column(3, "b", pa.array(values)).append_column("year", pa.array([1] * 50))
    schema = Schema(["a", "b"], ["a", "b"])
    with pytest.raises(InvalidRowsError, match=r"row 7.*'b' is None"):
        summarize_eras(gap, schema, by="year")
    skipped = summarize_eras(gap, schema, by="year", on_invalid="skip")
    assert skipped[1].skipped == {"b: missing or NaN": 1}
    # By missing columns the row is an era of its own: dropping none.
    assert [summary.n_rows for summary in summarize_eras(gap, schema).values()] == [49, 1]


def test_bad_rows_are_still_named_by_their_place(parts):
    table = pa.concat_tables(parts, promote_options="default")
    rewards = table["reward"].to_pylist()
    rewards[85] = None
    table = table.set_column(table.column_names.index("reward"), "reward", pa.array(rewards))
    with pytest.raises(InvalidRowsError, match="row 85 of the Arrow table: column 'reward'"):
        summarize_eras(table, SCHEMA)


def test_values_missing_here_and_there_are_not_eras():
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(10)]
    holes = {name: np.where(rng.random(500) < 0.5, np.nan, 1.0) for name in names}
    with pytest.raises(SourceError, match="more than 64 different sets of missing columns"):
        summarize_eras({**holes, "arm": np.zeros(500), "reward": np.zeros(500)}, Schema(names, names))


def test_no_rows():
    with pytest.raises(SourceError, match="no rows"):
        summarize_eras({"a": [], "arm": [], "reward": []}, Schema(["a"], ["a"]))
