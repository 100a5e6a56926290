"""Draw the log of a setting, or run its learner: pure functions of setting and seed, on any machine."""

from __future__ import annotations

import json
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidelight.errors import UnderdeterminedError
from sidelight.experiments.figure_settings import LogSetting, MomentSetting, RunSetting, digest
from sidelight.experiments.registry import learner_factory, world_of
from sidelight.learners.protocol import Learner
from sidelight.logs.summarize import summarize_log
from sidelight.logs.summary import LogSummary
from sidelight.simulation import Run, simulate
from sidelight.version import __version__

__all__ = ["ROUNDS_KEPT", "cross_moments", "draw_log", "machine", "run_setting"]

ROUNDS_KEPT = 200
"""About this many rounds of each run are kept in its result."""

_PIECE = 1 << 17
"""Rows of a log drawn at a time: a multiple of what worlds draw at a time, so that pieces join to the same log."""

_LOG_STREAM, _QUERY_STREAM = 7_919, 104_729
"""Keys that separate the random streams of logs and of queries from that of the rounds, which uses the seed alone."""


def draw_log(setting: LogSetting) -> bytes:
    """The summary of a log, as the bytes of its file.

    Drawn and summarized in pieces, so ten million rows need no more memory than a hundred thousand.
    """
    world = world_of(setting.world, setting.seed)
    schema = world.schema(setting.recorded)
    rng = np.random.default_rng([_LOG_STREAM, setting.seed])
    summary: LogSummary | None = None
    for start in range(0, max(setting.rows, 1), _PIECE):
        rows = min(_PIECE, setting.rows - start)
        piece = summarize_log(world.sample_log(rows, setting.recorded, rng), schema)
        summary = piece if summary is None else summary + piece
    assert summary is not None
    return summary.to_bytes()


def cross_moments(settings: tuple[MomentSetting, ...]) -> list[NDArray[np.float64]]:
    """``R12(a)`` ``(K, L, m)`` for each of these settings, which share a world: its moments are computed once."""
    world = world_of(settings[0].world, settings[0].seed)
    return [np.asarray(world.cross_moments(setting.recorded)) for setting in settings]


def run_setting(
    setting: RunSetting, seed: int, log: bytes | None, moments: NDArray[np.float64] | None = None
) -> pa.Table:
    """One run: ``seed, round, arm, reward, regret``, with what it was and where it ran in the table's metadata.

    A learner that cannot start from its log (fewer rows of an arm than features) leaves a table without rows, whose
    metadata says why.
    """
    started = time.perf_counter()
    world = world_of(setting.world, setting.world.seed_of(seed))
    summary = None if log is None else LogSummary.from_bytes(log)
    make = learner_factory(setting.learner.kind, dict(setting.learner.values))

    def factory(run: Run) -> Learner:
        if summary is not None:
            run.summary = summary
        if moments is not None:
            run.true_cross_moments = moments
        return _after_queries(make(run), setting.learner.queries, run, seed)

    refused = ""
    try:
        table = simulate(
            world,
            {setting.learner.kind: factory},
            setting.horizon,
            recorded=setting.recorded,
            log_rows=setting.log_rows,
            seeds=[seed],
            workers=1,
            every=max(1, setting.horizon // ROUNDS_KEPT),
        ).drop_columns(["learner"])
    except UnderdeterminedError as error:
        refused = str(error)
        table = _no_rounds()
    about = {
        "setting": setting.to_dict(),
        "digest": digest(setting),
        "seed": seed,
        "refused": refused,
        "seconds": round(time.perf_counter() - started, 3),
        "machine": machine(),
        "version": __version__,
    }
    result: pa.Table = table.replace_schema_metadata({"sidelight": json.dumps(about, ensure_ascii=False)})
    return result


def _after_queries(learner: Learner, queries: int | None, run: Run, seed: int) -> Learner:
    """Give a learner that needs answers ``queries`` before the first round and none later; unchanged if ``None``."""
    if queries is None or learner.needs is None:
        return learner
    # two streams, so that the answers of a small number are the first of those of a larger one
    contexts, answers = np.random.default_rng([_QUERY_STREAM, seed]).spawn(2)
    X = run.world.contexts(queries, contexts) if queries else np.empty((0, run.world.n_features))
    actions: Any = run.world.behavior_actions(X, answers) if queries else []
    for x, arm in zip(X, actions, strict=True):
        learner.observe_behavior(x, arm)
    learner.needs = None
    return learner


def _no_rounds() -> Any:
    types = {"seed": pa.int64(), "round": pa.int64(), "arm": pa.int64(), "reward": pa.float64(), "regret": pa.float64()}
    return pa.table({name: pa.array([], kind) for name, kind in types.items()})


def machine() -> dict[str, Any]:
    """Python, processor, cores and versions that a result was computed with; nothing that identifies the machine."""
    versions = {}
    for package in ("numpy", "scipy", "numba", "pyarrow"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # vendored by a distribution
            versions[package] = "unknown"
    return {
        "system": platform.system(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **versions,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
