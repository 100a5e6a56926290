"""The reduction on a real cluster of processes: the same result, with a worker killed in the middle."""

from __future__ import annotations

import os
import signal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from sidelight.errors import InvalidRowsError, SchemaError, SourceError
from sidelight.logs.reduce import cluster
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summarize import summarize_log

SCHEMA = Schema(["a", "city", "h"], ["a", "city"], categories=["city"], intercept=True)
FILES, ROWS = 24, 4_000


@pytest.fixture(scope="module")
def client():
    """Two worker processes; one of them dies in a test and comes back."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
        ) as local,
        distributed.Client(local) as connected,
    ):
        yield connected


@pytest.fixture
def dd():
    """Dask's frames; imported here, since every test process would pay for it at the top."""
    return pytest.importorskip("dask.dataframe")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files whose labels differ, so that parts must be united: an arm and a level are in the last file only."""
    path = tmp_path_factory.mktemp("log")
    rng = np.random.default_rng(1)
    for i in range(FILES):
        last = i == FILES - 1
        cities = np.array(["Rome", "Paris", "Aachen"] if last else ["Rome", "Paris"])
        a = rng.normal(size=ROWS)
        table = pa.table(
            {
                "a": a,
                "city": cities[rng.integers(0, len(cities), ROWS)],
                "arm": rng.integers(0, 3 if last else 2, ROWS),
                "reward": a + rng.normal(size=ROWS),
                "not read": rng.normal(size=ROWS),
            }
        )
        pq.write_table(table, path / f"{i:02}.parquet", row_group_size=1_500)
    return path


def same(found, reference):
    assert found.schema == reference.schema
    assert found.counts.tolist() == reference.counts.tolist()
    assert found.skipped == reference.skipped
    norms = np.linalg.norm(reference.factors, axis=1)[:, :-1]
    difference = np.abs(found.grams - reference.grams) / (norms[:, :, None] * norms[:, None, :] + 1e-300)
    assert difference.max() < 1e-12
    np.testing.assert_allclose(found.coefficients_of(0), reference.coefficients_of(0), rtol=1e-9)


def test_the_same_result_though_a_worker_is_killed(client, folder, monkeypatch):
    monkeypatch.setattr(cluster, "_ROWS_PER_TASK", 1_500)
    workers = client.run(os.getpid)
    killed = []
    seen = []

    def report(done, total):
        seen.append((done, total))
        if not killed and done > total / 4:
            address, pid = next(iter(workers.items()))
            os.kill(pid, signal.SIGKILL)
            killed.append(address)

    found = summarize_log(folder, SCHEMA, client=client, progress=report)
    assert killed, "the worker was not killed: the test tested nothing"
    assert seen[-1] == (FILES * ROWS, FILES * ROWS)
    assert len(seen) == FILES * 3, "one task per row group"
    assert set(client.run(os.getpid).values()) != set(workers.values())
    same(found, summarize_log(folder, SCHEMA))
    assert found.arms == (0, 1, 2)
    assert found.schema.encoded_names == ("intercept", "a", "city=Paris", "city=Rome", "h")


def test_an_address_will_do(client, folder):
    files = sorted(folder.glob("*.parquet"))[:3]
    same(summarize_log(files, SCHEMA, client=client.scheduler.address), summarize_log(files, SCHEMA))


def test_a_dask_frame_is_reduced_where_it_lies(client, folder, monkeypatch, dd):
    frame = dd.read_parquet(folder)

    def refuse(*_, **__):
        raise AssertionError("computed into memory")

    monkeypatch.setattr(type(frame), "compute", refuse)
    same(summarize_log(frame, SCHEMA), summarize_log(folder, SCHEMA))


def test_csv_labels_are_united_before_they_are_typed(client, tmp_path):
    """In the first file every arm looks like a number, in the second one does not."""
    first = pa.table({"a": [1.0, 2.0, 4.0], "city": ["x", "y", "x"], "arm": ["1", "2", "1"], "reward": [1.0, 2.0, 3.0]})
    second = pa.table({"a": [3.0, 5.0], "city": ["z", "x"], "arm": ["2", "none"], "reward": [1.0, 2.0]})
    pacsv.write_csv(first, tmp_path / "1.csv")
    pacsv.write_csv(second, tmp_path / "2.csv")
    found = summarize_log(tmp_path, SCHEMA, client=client)
    assert found.arms == ("1", "2", "none")
    assert found.counts.tolist() == summarize_log(tmp_path, SCHEMA).counts.tolist() == [2, 2, 1]
    only_numbers = summarize_log(tmp_path / "1.csv", SCHEMA, client=client)
    assert only_numbers.arms == (1, 2)


def test_what_goes_wrong_on_a_worker_is_said_here(client, folder, tmp_path):
    table = pq.read_table(folder / "00.parquet")
    bad = table.set_column(0, "a", pa.array(np.where(np.arange(ROWS) == 1_700, np.nan, 0.5)))
    pq.write_table(bad, tmp_path / "bad.parquet", row_group_size=1_500)
    with pytest.raises(InvalidRowsError, match=r"row 1,700 of .*bad\.parquet: column 'a' is nan"):
        summarize_log(tmp_path, SCHEMA, client=client)
    found = summarize_log([tmp_path / "bad.parquet", folder / "01.parquet"], SCHEMA, "skip", client=client)
    assert found.skipped == {"a: missing or NaN": 1}
    assert found.n_rows == 2 * ROWS - 1
    (tmp_path / "cut.parquet").write_bytes((folder / "00.parquet").read_bytes()[:-100])
    with pytest.raises(SourceError, match=r"cut\.parquet"):
        summarize_log(tmp_path / "cut.parquet", SCHEMA, client=client)
    with pytest.raises(SourceError, match="files that every worker can see, or a Dask frame, not Table"):
        summarize_log(table, SCHEMA, client=client)


def test_a_dask_frame_without_a_cluster(folder, dd):
    frame = dd.from_pandas(pd.read_parquet(folder / "00.parquet"), npartitions=3)
    import dask

    with dask.config.set(scheduler="synchronous"):
        found = summarize_log(frame, SCHEMA)
    same(found, summarize_log(folder / "00.parquet", SCHEMA))


def test_levels_are_judged_by_all_parts_together(client, tmp_path):
    """Most rows of each small file have a level of their own; a category of the log, unless it is so in all of them."""
    rng = np.random.default_rng(0)
    for day in range(6):
        rows = {
            "a": rng.normal(size=60),
            "city": [f"c{i % 50}" for i in range(60)],
            "day": [f"{day}-{i}" for i in range(60)],
        }
        rows |= {"arm": rng.integers(0, 2, 60), "reward": rng.normal(size=60)}
        pq.write_table(pa.table(rows), tmp_path / f"{day}.parquet")
    same(summarize_log(tmp_path, SCHEMA, client=client), summarize_log(tmp_path, SCHEMA))
    identifier = Schema(["a", "day"], ["a", "day"], categories=["day"])
    for where in (client, None):
        with pytest.raises(SchemaError, match=r"'day' .* 360 different values in 360 rows .* an identifier"):
            summarize_log(tmp_path, identifier, client=where)
