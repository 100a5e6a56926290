"""Every kind of source gives the same summary, reads only the schema's columns and reports how far it is."""

from __future__ import annotations

import gzip

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from sidelight.errors import InputError, InvalidRowsError, SourceError
from sidelight.logs import summarize as passes
from sidelight.logs.schema.schema import Schema
from sidelight.logs.sources.opening import open_source
from sidelight.logs.summarize import summarize_log
from sidelight.logs.summary import LogSummary

N = 3_000
SCHEMA = Schema(["x0", "flag", "city", "seen later"], ["x0", "flag", "city"], categories=["city"], intercept=True)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(11)
    cities = np.array(["Rome", "Paris", "Oslo"])[rng.integers(0, 3, N)]
    x0 = rng.normal(size=N)
    return pa.table(
        {
            "unused text": ["ü,\n\"'"] * N,
            "reward": x0 + (cities == "Paris") + rng.normal(size=N),
            "city": cities,
            "x0": x0,
            "flag": rng.random(N) < 0.3,
            "unused": rng.normal(size=N),
            "arm": rng.integers(0, 4, N),
        }
    )


@pytest.fixture(scope="module")
def reference(table):
    return summarize_log(table, SCHEMA)


def same(found: LogSummary, reference: LogSummary) -> None:
    assert found.schema == reference.schema
    assert found.counts.tolist() == reference.counts.tolist()
    norms = np.linalg.norm(reference.factors, axis=1)
    np.testing.assert_array_less(
        np.abs(found.grams - reference.grams),
        1e-12 * norms[:, :-1, None] * norms[:, None, :-1] + 1e-300,
    )
    np.testing.assert_allclose(found.coefficients, reference.coefficients, rtol=1e-9)
    assert found.skipped == {}


def test_the_reference_is_right(table, reference):
    frame = table.to_pandas()
    assert reference.arms == (0, 1, 2, 3)
    assert reference.schema.encoded_names == (
        "intercept",
        "x0",
        "flag",
        "city=Paris",
        "city=Rome",
        "seen later",
    )
    for arm in range(4):
        part = frame[frame.arm == arm]
        X = np.column_stack(
            [np.ones(len(part)), part.x0, part.flag, part.city == "Paris", part.city == "Rome"],
        ).astype(float)
        np.testing.assert_allclose(
            reference.coefficients[arm], np.linalg.lstsq(X, part.reward.to_numpy(), rcond=None)[0], rtol=1e-9
        )
        np.testing.assert_allclose(reference.means[arm], X.mean(axis=0), rtol=1e-12)
        residuals = part.reward - X @ reference.coefficients[arm]
        np.testing.assert_allclose(reference.residual_variances[arm], (residuals**2).sum() / (len(part) - 5), rtol=1e-9)


def write(kind, table, folder):
    """The table as files of this kind; returns the source."""
    halves = [table.slice(0, 1_000), table.slice(1_000)]
    if kind == "parquet":
        pq.write_table(table, folder / "log.parquet", row_group_size=700)
        return folder / "log.parquet"
    if kind == "parquet, dictionary and decimal":
        changed = table.set_column(2, "city", table["city"].dictionary_encode())
        pq.write_table(changed, folder / "log.parquet")
        return str(folder / "log.parquet")
    if kind == "list of parquet":
        for i, half in enumerate(halves):
            pq.write_table(half, folder / f"{i}.parquet")
        return [folder / "0.parquet", str(folder / "1.parquet")]
    if kind == "glob":
        write("list of parquet", table, folder)
        return str(folder / "*.parquet")
    if kind == "csv":
        pacsv.write_csv(table, folder / "log.csv")
        return folder / "log.csv"
    if kind == "csv.gz":
        write("csv", table, folder)
        (folder / "log.csv.gz").write_bytes(gzip.compress((folder / "log.csv").read_bytes()))
        return folder / "log.csv.gz"
    if kind == "csv.zst":
        with pa.CompressedOutputStream(str(folder / "log.csv.zst"), "zstd") as stream:
            pacsv.write_csv(table, stream)
        return folder / "log.csv.zst"
    if kind == "semicolons and a byte order mark":
        table.to_pandas().to_csv(folder / "log.csv", sep=";", index=False, encoding="utf-8-sig")
        return folder / "log.csv"
    if kind == "arrow file":
        with pa.ipc.new_file(folder / "log.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=800)
        return folder / "log.arrow"
    if kind == "arrow stream":
        with pa.ipc.new_stream(folder / "log.arrows", table.schema) as writer:
            writer.write_table(table, max_chunksize=800)
        return folder / "log.arrows"
    if kind == "folder":
        write("list of parquet", table, folder)
        (folder / "_SUCCESS").write_text("")
        (folder / ".hidden").mkdir()
        return folder
    if kind == "folder partitioned by arm":
        ds.write_dataset(
            table,
            folder,
            format="parquet",
            partitioning=ds.partitioning(pa.schema([("arm", pa.int64())]), flavor="hive"),
        )
        return folder
    assert kind == "no suffix"
    pq.write_table(table, folder / "log")
    return folder / "log"


FILES = [
    "parquet",
    "parquet, dictionary and decimal",
    "list of parquet",
    "glob",
    "csv",
    "csv.gz",
    "csv.zst",
    "semicolons and a byte order mark",
    "arrow file",
    "arrow stream",
    "folder",
    "folder partitioned by arm",
    "no suffix",
]


@pytest.mark.parametrize("kind", FILES)
def test_files(kind, table, reference, tmp_path):
    same(summarize_log(write(kind, table, tmp_path), SCHEMA), reference)


def frames(table):
    arrays = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    nullable = table.to_pandas().astype({"arm": "Int64", "flag": "boolean", "x0": "Float64", "city": "category"})
    structured = np.empty(N, dtype=[("x0", float), ("flag", bool), ("city", "U5"), ("arm", int), ("reward", float)])
    for name in structured.dtype.names:
        structured[name] = arrays[name]
    return {
        "pandas": lambda: table.to_pandas(),
        "pandas with an index": lambda: table.to_pandas().set_index("unused"),
        "pandas nullable and categorical": lambda: nullable,
        "polars": lambda: pl.from_arrow(table),
        "polars lazy": lambda: pl.from_arrow(table).lazy(),
        "record batch": lambda: table.combine_chunks().to_batches()[0],
        "reader": lambda: table.to_reader(max_chunksize=500),
        "dataset": lambda: ds.dataset(table),
        "scanner": lambda: ds.dataset(table).scanner(),
        "duckdb": lambda: duckdb.from_arrow(table),
        "mapping": lambda: arrays,
        "structured array": lambda: structured,
        "iterator of batches": lambda: iter(table.to_batches(max_chunksize=701)),
        "generator of frames": lambda: (b.to_pandas() for b in table.to_batches(max_chunksize=701)),
        "list of tables": lambda: [table.slice(0, 5), table.slice(5)],
    }


FRAMES = [
    "pandas",
    "pandas with an index",
    "pandas nullable and categorical",
    "polars",
    "polars lazy",
    "record batch",
    "reader",
    "dataset",
    "scanner",
    "duckdb",
    "mapping",
    "structured array",
    "iterator of batches",
    "generator of frames",
    "list of tables",
]


@pytest.mark.parametrize("kind", FRAMES)
def test_objects(kind, table, reference):
    source = frames(table)[kind]()
    same(summarize_log(source, SCHEMA), reference)


def test_a_triple_of_arrays():
    rng = np.random.default_rng(0)
    X, arms, r = rng.normal(size=(50, 2)), rng.integers(0, 2, 50), rng.normal(size=50)
    schema = Schema.for_arrays(4, 2, 2)
    found = summarize_log((X, arms, r), schema)
    np.testing.assert_allclose(found.factors, LogSummary.from_arrays(X, arms, r, schema).factors, atol=1e-12)


def test_only_the_columns_of_the_schema_are_read(table, tmp_path, monkeypatch):
    read = []
    original = pq.ParquetFile.read_row_group

    def spy(self, *arguments, columns=None, **keywords):
        read.append(tuple(columns))
        return original(self, *arguments, columns=columns, **keywords)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", spy)
    pq.write_table(table, tmp_path / "log.parquet")
    summarize_log(tmp_path / "log.parquet", SCHEMA)
    assert read == [("x0", "flag", "city", "arm", "reward")]


def test_a_lazy_frame_is_not_collected(table, reference, monkeypatch):
    lazy = pl.from_arrow(table).lazy()

    def refuse(*_, **__):
        raise AssertionError("collected")

    monkeypatch.setattr(pl.LazyFrame, "collect", refuse)
    same(summarize_log(lazy, SCHEMA), reference)


def test_progress_knows_how_far_it_is(table, tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "batch_rows", lambda schema: 512)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=512)
    seen = []
    summarize_log(tmp_path / "log.parquet", SCHEMA, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == [512, 1024, 1536, 2048, 2560, 3000]
    assert {total for _, total in seen} == {N}
    pacsv.write_csv(table, tmp_path / "log.csv")
    seen.clear()
    summarize_log(tmp_path / "log.csv", SCHEMA, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (N, N)


def test_a_bar_is_drawn_on_standard_error(table, capsys):
    summarize_log(table, SCHEMA, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "3,000 of 3,000 rows" in captured.err


def test_large_row_groups_are_streamed(table, reference, tmp_path, monkeypatch):
    from sidelight.logs.sources import paths as tables

    monkeypatch.setattr(tables, "_WHOLE_GROUP", 1000)
    monkeypatch.setattr(tables, "_ROWS", 256)
    pq.write_table(table, tmp_path / "log.parquet")
    same(summarize_log(tmp_path / "log.parquet", SCHEMA), reference)


def test_the_same_bits_for_any_number_of_threads(monkeypatch):
    from sidelight.logs.reduce import moments

    monkeypatch.setattr(moments, "_SMALL", 0)
    monkeypatch.setattr(passes, "batch_rows", lambda schema: 4_000)
    rng = np.random.default_rng(4)
    n = 60_000
    table = pa.table(
        {"a": rng.normal(size=n), "b": rng.normal(size=n), "arm": rng.integers(0, 3, n), "reward": rng.normal(size=n)}
    )
    schema = Schema(["a", "b"], ["a", "b"])
    found = [passes.summarize_here(table, schema, threads=threads) for threads in (1, 2, 5)]
    assert found[0].to_bytes() == found[1].to_bytes() == found[2].to_bytes()


def test_labels_found_late_change_nothing(monkeypatch):
    """New arms and levels in the last rows, on the fast road: as if all had been known from the start."""
    from sidelight.logs.reduce import moments

    monkeypatch.setattr(moments, "_SMALL", 0)
    monkeypatch.setattr(passes, "batch_rows", lambda schema: 2_000)
    rng = np.random.default_rng(9)
    n = 10_000
    city = np.array(["b", "c"])[rng.integers(0, 2, n)].astype(object)
    city[9_500:] = "a"
    city[9_900:] = "d"
    arm = rng.integers(5, 7, n)
    arm[9_000:] = 1
    table = pa.table({"x": rng.normal(size=n), "city": city, "arm": arm, "reward": rng.normal(size=n)})
    open_ = summarize_log(table, Schema(["x", "city"], ["x", "city"], categories=["city"], intercept=True))
    closed = summarize_log(
        table,
        Schema(["x", "city"], ["x", "city"], categories={"city": ["a", "b", "c", "d"]}, intercept=True, arms=[1, 5, 6]),
    )
    assert open_.arms == (1, 5, 6)
    assert open_.schema.encoded_names == closed.schema.encoded_names
    np.testing.assert_allclose(open_.grams, closed.grams, atol=1e-9)
    np.testing.assert_allclose(open_.cross, closed.cross, atol=1e-9)
    np.testing.assert_allclose(open_.residual_sums, closed.residual_sums, rtol=1e-9)
    assert open_.counts.tolist() == closed.counts.tolist()


def test_a_dictionary_may_name_what_no_row_has():
    """Unused categories of pandas, and dictionaries that differ from part to part, are no levels and no arms."""
    import pandas as pd

    cities = pd.Categorical(["b", "a"] * 10, categories=["never", "b", "a", "nor this"])
    frame = pd.DataFrame(
        {"x": np.arange(20.0), "city": cities, "arm": pd.Categorical(["p"] * 20, ["q", "p"]), "reward": 1.0}
    )
    schema = Schema(["x", "city"], ["x", "city"], categories=["city"])
    found = summarize_log(frame, schema)
    assert found.arms == ("p",)
    assert found.schema.encoded_names == ("x", "city=a", "city=b")
    other = frame.assign(city=pd.Categorical(["a", "c"] * 10), arm=pd.Categorical(["q"] * 20))
    both = summarize_log(iter([frame, other]), schema)
    assert both.arms == ("p", "q")
    assert both.counts.tolist() == [20, 20]
    np.testing.assert_array_equal(np.diag(both.grams[1])[1:], [10, 0, 10])


def test_parts_with_different_levels_and_arms_add_up():
    rng = np.random.default_rng(10)
    n = 400
    table = pa.table(
        {
            "x": rng.normal(size=n),
            "city": np.repeat(["b", "c", "a", "d"], n // 4),
            "arm": np.repeat(["one", "two"], n // 2),
            "reward": rng.normal(size=n),
        }
    )
    schema = Schema(["x", "city"], ["x", "city"], categories=["city"], intercept=True)
    whole = summarize_log(table, schema)
    parts = [summarize_log(table.slice(i * 100, 100), schema) for i in (2, 0, 3, 1)]
    total = parts[0] + parts[1] + parts[2] + parts[3]
    assert total.schema == whole.schema
    np.testing.assert_allclose(total.grams, whole.grams, atol=1e-11)
    np.testing.assert_allclose(total.cross, whole.cross, atol=1e-11)


@pytest.mark.parametrize("source", [3, 2.5, object(), b"bytes", [1, 2], iter(["a", "b"])])
def test_what_cannot_be_read_says_what_can(source):
    with pytest.raises(SourceError, match=r"cannot read a log from|each item must be a table"):
        summarize_log(source, SCHEMA)


def test_a_sandwich_needs_a_second_reading(table):
    with pytest.raises(InputError, match="reads the log twice"):
        summarize_log(table.to_reader(), SCHEMA, sandwich=True)


def test_sandwich(table):
    frame = table.to_pandas()
    found = summarize_log(table, SCHEMA, sandwich=True)
    assert found.meat is not None
    part = frame[frame.arm == 2]
    X = np.column_stack([np.ones(len(part)), part.x0, part.flag, part.city == "Paris", part.city == "Rome"]).astype(
        float
    )
    residuals = part.reward.to_numpy() - X @ found.coefficients[2]
    leverages = np.diagonal(X @ np.linalg.inv(X.T @ X) @ X.T)
    weights = np.square(residuals / (1.0 - leverages))
    np.testing.assert_allclose(found.meat[2], (X * weights[:, None]).T @ X, rtol=1e-9, atol=1e-9)
    again = LogSummary.from_bytes(found.to_bytes())
    np.testing.assert_array_equal(again.meat, found.meat)
    np.testing.assert_array_equal(again.meat_freedom, found.meat_freedom)


def test_the_degrees_of_freedom_of_a_sandwich(rng):
    """Of normal rows ``n(L + 1)/(3L + 5)``; one row with most of the squares leaves about as many as one row has."""
    n, L = 40_000, 3
    X, schema = rng.normal(size=(n, L)), Schema.for_arrays(L, recorded=L, n_arms=1)
    r = rng.normal(size=n)
    found = summarize_log((X, np.zeros(n, int), r), schema, sandwich=True)
    assert found.meat_freedom[0] == pytest.approx(n * (L + 1) / (3 * L + 5), rel=0.1)
    r[7] = 1e5
    found = summarize_log((X, np.zeros(n, int), r), schema, sandwich=True)
    assert 1.0 < found.meat_freedom[0] < 3.0
    np.testing.assert_array_equal(found.moved_to(schema).meat_freedom, found.meat_freedom)


def test_a_row_that_alone_decides_a_coefficient_counts_with_the_variance_of_its_arm(rng):
    """It has no residual, and a sandwich of residuals alone would take its coefficient for exact."""
    X = np.column_stack([np.ones(60), np.zeros(60)])
    X[5, 1] = 2.0
    r = rng.normal(size=60)
    schema = Schema.for_arrays(2, recorded=2, n_arms=2)
    found = summarize_log((X, np.zeros(60, int), r), schema, sandwich=True)
    others = np.delete(np.arange(60), 5)
    weights = np.square((r[others] - r[others].mean()) / (1.0 - 1.0 / 59))
    assert found.meat[0, 1, 1] == pytest.approx(4.0 * found.residual_variances[0])
    assert found.meat[0, 0, 0] == pytest.approx(weights.sum() + found.residual_variances[0])
    assert not found.meat[1].any()
    assert found.meat_freedom[1] == 0.0


def test_propensities(tmp_path):
    table = pa.table({"x": [1.0, 2, 3, 4], "arm": [0, 0, 1, 1], "reward": [1.0, 2, 3, 4], "p": [0.5, 0.25, 1.0, 0.2]})
    found = summarize_log(table, Schema(["x"], ["x"], propensity="p"))
    np.testing.assert_allclose(found.propensities, [[0.75, 6, 20, 0.25], [1.2, 6, 26, 0.2]])
    doubled = found + found
    np.testing.assert_allclose(doubled.propensities, [[1.5, 12, 40, 0.25], [2.4, 12, 52, 0.2]])
    found.save(tmp_path / "s")
    np.testing.assert_array_equal(LogSummary.load(tmp_path / "s").propensities, found.propensities)


def test_none_is_a_label_in_a_csv_file_and_a_gap_among_numbers(tmp_path):
    """An arm called None, for those who get nothing, was missing, and left out without a word by --skip-invalid."""
    path = tmp_path / "log.csv"
    arms, tiers = ("None", "mail", "call"), ("None", "gold")
    rows = [f"{i % 7},{tiers[i % 2]},2024-01-{1 + i % 28:02},{arms[i % 3]},{i % 5}" for i in range(60)]
    header = "age,tier,visit,arm,reward"
    path.write_text("\n".join([header, *rows, "None,gold,2024-02-01,mail,1", "3,gold,None,call,1"]), encoding="utf-8")
    schema = Schema(
        ["age", "tier"], ["age", "tier", "visit"], categories=["tier"], derived=["days_since(visit, '2024-01-01')"]
    )
    with pytest.raises(InvalidRowsError, match=r"row 60 of .* column 'age' is None \(missing or NaN\)"):
        summarize_log(path, schema)
    summary = summarize_log(path, schema, on_invalid="skip")
    assert summary.arms == ("None", "call", "mail")
    assert summary.schema.features[1].levels == ("None", "gold")
    assert summary.skipped == {"age: missing or NaN": 1, "visit: missing or NaN": 1}


def test_blanks_around_names_and_labels_of_a_csv_file_do_not_count(tmp_path):
    """``arm, reward`` and ``a, 1`` are written by hand; an arm with and without a blank counted as two."""
    path = tmp_path / "log.csv"
    rows = "".join(f"{i % 7}, {'ab'[i % 2]},  {'uv'[i % 2]} ,{i % 5}\n" for i in range(40))
    path.write_text(" x , tier, arm ,reward\n" + rows + "3,a,u,1\n NA ,a,v,1\n3, ,u,1\n", encoding="utf-8")
    schema = Schema(["x", "tier"], ["x", "tier"], categories=["tier"])
    summary = summarize_log(path, schema, on_invalid="skip")
    assert (summary.arms, summary.n_rows) == (("u", "v"), 41)
    assert summary.schema.features[1].levels == ("a", "b")
    assert summary.skipped == {"tier: missing or NaN": 1, "x: missing or NaN": 1}
    plain = tmp_path / "plain.csv"
    plain.write_text(path.read_text(encoding="utf-8").replace(" ", ""), encoding="utf-8")
    assert np.array_equal(summary.factors, summarize_log(plain, schema, on_invalid="skip").factors)


def test_a_csv_file_may_lack_every_column_that_is_optional(tmp_path):
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("other\n" + "1\n" * 5, encoding="utf-8")
    second.write_text("x\n" + "2\n" * 3, encoding="utf-8")
    opened = open_source([str(first), str(second)], ["x"], optional=["x"])
    found = [bundle.batch.column("x").to_pylist() for bundle in opened.bundles(100)]
    assert found == [[None] * 5 + [2.0] * 3]


def test_an_arm_called_inf_is_text(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("x,arm,reward\n" + "1.5,inf,1\n2.0,1.5,3\n" * 4, encoding="utf-8")
    summary = summarize_log(path, Schema(["x"], ["x"]))
    assert summary.arms == ("1.5", "inf")
    assert LogSummary.from_bytes(summary.to_bytes()).arms == summary.arms
