"""Running figures: the numbers are those of ``simulate``, on every kind of place; what is done is not done again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import loky.process_executor
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidelight as sl
from sidelight.errors import FileFormatError, InputError
from sidelight.experiments import scheduling
from sidelight.experiments.figure_settings import (
    Cell,
    Figure,
    LearnerSetting,
    LogSetting,
    RunSetting,
    WorldSetting,
    options,
)
from sidelight.experiments.jobs import draw_log, run_setting
from sidelight.experiments.registry import make_world
from sidelight.experiments.results import Results
from sidelight.experiments.scheduling import missing_runs, run_figures
from sidelight.simulation import WORKER_ENVIRONMENT

WORLD = WorldSetting("confounded", options(n_arms=3, n_features=5, n_hidden=2), seed=4)
COLD = RunSetting(WORLD, LearnerSetting("OFUL", options(noise="true", radius="posterior")), 60)
FUSED = RunSetting(WORLD, LearnerSetting("FusedOFUL", options(hidden="queries")), 60, 3, 500)
HARD = RunSetting(WORLD, LearnerSetting("ProjectedOFUL", options(noise="true")), 60, 3, 4)


def figure(*settings: RunSetting) -> Figure:
    cells = tuple(Cell(f"line {i}", setting) for i, setting in enumerate(settings))
    return Figure("tiny", "curves", "A title", "A setting.", "recorded", cells, baseline="line 0", seeds=2)


def test_a_run_is_what_simulate_gives() -> None:
    """The same numbers by the public road: the world of the shared seed, the shared log, the run's own rounds."""
    log = LogSetting(WORLD, 3, 500, WORLD.seed)
    table = run_setting(FUSED, 7, draw_log(log))
    world = make_world("confounded", 4, dict(WORLD.values))
    summary = sl.LogSummary.from_bytes(draw_log(log))
    assert summary.n_rows == 500
    direct = sl.simulate(
        world, {"f": lambda run: sl.FusedOFUL(sl.BehaviorQueries(summary))}, 60, 3, 500, [7], workers=1
    )
    assert table["regret"].to_pylist() == direct["regret"].to_pylist()
    assert table["arm"].to_pylist() == direct["arm"].to_pylist()
    told = json.loads(table.schema.metadata[b"sidelight"])
    assert told["seed"] == 7
    assert told["version"] == sl.__version__
    assert told["setting"]["learner"]["kind"] == "FusedOFUL"
    assert set(told["machine"]) >= {"processor", "cores", "python", "numpy"}


def test_a_log_in_pieces_is_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    from sidelight.experiments import jobs

    log = LogSetting(WORLD, 3, 90_000, 1)
    whole = sl.LogSummary.from_bytes(draw_log(log))
    monkeypatch.setattr(jobs, "_PIECE", 1 << 15)
    pieces = sl.LogSummary.from_bytes(draw_log(log))
    assert whole.counts.tolist() == pieces.counts.tolist()
    np.testing.assert_allclose(whole.coefficients, pieces.coefficients, rtol=1e-9)


def test_stopped_runs_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, tiny = Results(tmp_path), figure(COLD, FUSED)
    calls: list[tuple[str, int]] = []

    def stops(setting: RunSetting, seed: int, *shared: Any) -> pa.Table:
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append((setting.learner.kind, seed))
        return run_setting(setting, seed, *shared)

    monkeypatch.setattr(scheduling, "run_setting", stops)
    with pytest.raises(KeyboardInterrupt):
        run_figures([tiny], results, seeds=2, workers=1)
    assert len(missing_runs([tiny], 2, results)) == 2
    monkeypatch.setattr(scheduling, "run_setting", run_setting)
    assert run_figures([tiny], results, seeds=2, workers=1) == 2
    assert run_figures([tiny], results, seeds=2, workers=1) == 0
    # another seed is one run more for each setting, and no file is left half written
    assert run_figures([tiny], results, seeds=3, workers=1) == 2
    assert not list(tmp_path.rglob("*.part"))


def test_results_of_another_version_are_run_again(tmp_path: Path) -> None:
    results, tiny = Results(tmp_path), figure(COLD)
    run_figures([tiny], results, seeds=1, workers=1)
    path = results.run_path(COLD, 0)
    table = pq.read_table(path)
    told = json.loads(table.schema.metadata[b"sidelight"]) | {"version": "0.0.1"}
    pq.write_table(table.replace_schema_metadata({"sidelight": json.dumps(told)}), path)
    assert missing_runs([tiny], 1, results) == [(COLD, 0)]
    pq.write_table(table.replace_schema_metadata({}), path)
    with pytest.raises(FileFormatError, match="not a result of Sidelight"):
        missing_runs([tiny], 1, results)


def test_shared_runs_are_run_once(tmp_path: Path) -> None:
    results = Results(tmp_path)
    assert run_figures([figure(COLD, FUSED), figure(FUSED, COLD)], results, seeds=2, workers=1) == 4


def test_processes_and_cluster_give_the_same_numbers(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    tiny = figure(COLD, FUSED)
    here, there, cluster_results = (Results(tmp_path / name) for name in ("here", "processes", "cluster"))
    run_figures([tiny], here, seeds=2, workers=1)
    run_figures([tiny], there, seeds=2, workers=2)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert os.getpid() not in client.run(os.getpid).values()
        run_figures([tiny], cluster_results, seeds=2, scheduler=cluster.scheduler_address)
    tables = [r.gather(tiny, 2)["regret"].to_pylist() for r in (here, there, cluster_results)]
    assert tables[0] == tables[1] == tables[2]


def test_no_scheduler_is_said_plainly(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        run_figures([figure(COLD)], Results(tmp_path), seeds=1, scheduler="nowhere-at-all")


def test_gathered_tables_are_tidy(tmp_path: Path) -> None:
    results, tiny = Results(tmp_path), figure(COLD, FUSED, HARD)
    with pytest.raises(InputError, match="is not there"):
        results.gather(tiny, 2)
    run_figures([tiny], results, seeds=2, workers=1)
    table = results.gather(tiny, 2)
    assert pq.read_table(results.figure_path(tiny)).to_pylist() == table.to_pylist()
    names = table.column_names
    assert {"figure", "series", "learner", "settings", "seed", "round", "regret", "version", "machine"} <= set(names)
    # four rows for three arms with three features: the hard constraint cannot start, and the table says so
    assert set(table["series"].to_pylist()) == {"line 0", "line 1"}
    assert list(json.loads(table.schema.metadata[b"refused"])) == ["line 2"]


def test_queries_before_the_start() -> None:
    """No answers: the log says nothing about hidden halves; more answers contain the fewer."""
    log = draw_log(LogSetting(WORLD, 3, 500, 4))

    def regret(queries: int | None) -> float:
        learner = LearnerSetting("FusedOFUL", options(hidden="queries"), queries)
        setting = RunSetting(WORLD, learner, 200, 3, 500)
        return float(run_setting(setting, 0, log)["regret"][-1].as_py())

    assert regret(300) != regret(0)
    assert regret(300) == regret(300)


def most_memory_of_a_worker() -> float:
    return float(vars(loky.process_executor)["_MAX_MEMORY_LEAK_SIZE"])


def test_a_worker_that_keeps_large_logs_is_not_taken_for_a_leak() -> None:
    """loky restarts a worker, with a warning, that has grown by this many bytes."""
    executor = loky.get_reusable_executor(max_workers=1, timeout=60, env=WORKER_ENVIRONMENT)
    assert executor.submit(most_memory_of_a_worker).result() > 1e15
