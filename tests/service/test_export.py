"""Closing the loop: an export is a log that ``summarize_log`` reads; a back-up is the same service again."""

from __future__ import annotations

import asyncio
import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest

import sidelight as sl
from sidelight.errors import InputError
from sidelight.service.core.deciding import Ask
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from sidelight.service.log.connections import database_url
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Configuration
from sidelight.service.log.store import Store
from sidelight.service.operations.copying import copy_store
from sidelight.service.views.export import export_log
from tests.service.helpers import ARMS, bits, command, engine_of, make_config, make_schema, random_context, run


def test_an_export_is_a_log_with_propensities(tmp_path, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act", share=0.6, fallback="mid")
    encode = make_schema().encode
    contexts = [random_context(rng) for _ in range(120)]
    X = np.array([encode(context) for context in contexts])
    taken: list[tuple[str, float, float | None]] = []

    async def live() -> None:
        async with engine_of(config) as engine:
            number, event, _ = await engine.decide(X[:100], None)
            for i in range(100):
                override = i % 10 == 3
                arm = next(a for a in ARMS if a != event.arms[i]) if override else None
                value = float(rng.normal())
                await engine.reward(DecisionId(number, i), value, arm, "person" if override else None)
                taken.append((arm or event.arms[i], value, None if override else event.propensities[i]))
            await engine.configure(Configuration(mode="shadow"))
            probabilities = (0.2, 0.5, 0.3)
            asks = [Ask(answer=Answer("mid", probabilities)), *([Ask()] * 19)]
            number, event, _ = await engine.decide(X[100:], asks)
            await engine.reward(DecisionId(number, 0), 1.25, None, None)
            taken.append(("mid", 1.25, 0.5))
            await engine.reward(DecisionId(number, 1), 2.5, "high", None)
            taken.append(("high", 2.5, None))
            # while it runs
            done = export_log(engine.store, make_schema(), tmp_path / "log.parquet")
            assert (done.rows, done.unknown, done.last) == (102, 11, engine.state.number)
            known = export_log(engine.store, make_schema(), tmp_path / "known.parquet", only_known=True)
            assert (known.rows, known.dropped) == (91, 11)
            rest = export_log(engine.store, make_schema(), tmp_path / "rest.parquet", after=done.last)
            assert rest.rows == 0

    run(live())
    table = pq.read_table(tmp_path / "log.parquet")
    assert list(zip(*(table[c].to_pylist() for c in ("arm", "reward", "propensity")), strict=True)) == taken
    for i in range(100):
        for name, value in contexts[i].items():
            assert table[name][i].as_py() == value
    assert table["override"].to_pylist().count(True) == 10
    schema = make_schema()
    summary = sl.summarize_log(tmp_path / "log.parquet", schema)
    assert summary.n_rows == 102
    # the summary of the export is the summary of what was decided
    rows = [*range(100), 100, 101]
    expected = sl.LogSummary.from_arrays(
        X[rows][:, schema.recorded_index], [arm for arm, _, _ in taken], [reward for _, reward, _ in taken], schema
    )
    np.testing.assert_allclose(summary.grams, expected.grams, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(summary.cross, expected.cross, rtol=1e-12, atol=1e-12)
    with_propensities = sl.Schema(
        schema.features, recorded=schema.recorded, arms=ARMS, intercept=True, propensity="propensity"
    )
    weighed = sl.summarize_log(tmp_path / "known.parquet", with_propensities)
    assert weighed.propensities is not None
    assert weighed.propensities[:, 0].sum() == pytest.approx(sum(p for _, _, p in taken if p is not None))


def test_what_a_person_confirmed_has_no_known_propensity(tmp_path, rng):
    """The learner was certain of its proposal, but whether it was taken depends on what the person saw."""
    config = make_config(tmp_path, kind="OFUL", mode="assist")
    encode = make_schema().encode
    X = np.array([encode(random_context(rng)) for _ in range(4)])

    async def live() -> None:
        async with engine_of(config) as engine:
            number, event, _ = await engine.decide(X, None)
            await engine.action(DecisionId(number, 0), event.arms[0], "person")
            for i in range(3):
                await engine.reward(DecisionId(number, i), 1.0, None, None)
            await engine.configure(Configuration(mode="act"))
            number, _, _ = await engine.decide(X[3:], None)
            await engine.reward(DecisionId(number), 1.0, None, None)
            done = export_log(engine.store, make_schema(), tmp_path / "log.parquet")
            assert (done.rows, done.unknown) == (4, 3)

    run(live())
    assert pq.read_table(tmp_path / "log.parquet")["propensity"].to_pylist() == [None, None, None, 1.0]


def test_a_back_up_under_load_is_the_same_service(tmp_path, database, rng):
    config = make_config(tmp_path, kind="RunningOFUL", mode="act", database=database, snapshot_every=50)
    encode = make_schema().encode
    X = np.array([encode(random_context(rng)) for _ in range(10)])

    async def live() -> None:
        async with engine_of(config) as engine:
            stop = asyncio.Event()

            async def load() -> None:
                while not stop.is_set():
                    number, _, _ = await engine.decide(X, [Ask(subject="somebody")] * 10)
                    await engine.reward(DecisionId(number, 3), float(rng.normal()), None, None)

            tasks = [asyncio.create_task(load()) for _ in range(4)]
            await asyncio.sleep(0.3)
            target = Store(database_url(str(tmp_path / "copy.db")))
            last = await asyncio.get_running_loop().run_in_executor(None, copy_store, engine.store, target)
            await asyncio.sleep(0.1)
            stop.set()
            await asyncio.gather(*tasks)
            assert 1 < last < engine.state.number, "events went on while it was copied"
            original = recover(engine.store, upto=last, use_snapshots=False)
            assert bits(recover(target).state) == bits(original.state)
            rows = [row for chunk in engine.store.follow(0, last) for row in chunk]
            assert [row for chunk in target.follow(0) for row in chunk] == rows
            target.close()

    run(live())


def test_a_name_that_is_not_utf_8_is_an_error_and_no_traceback(tmp_path):
    config = make_config(tmp_path, kind="OFUL")
    store = open_store(config)
    for kind in ("parquet", "csv", "arrow"):
        with pytest.raises(InputError, match=r"log\\udcff.* is not UTF-8"):
            export_log(store, make_schema(), tmp_path / os.fsdecode(b"log\xff." + kind.encode()))
    store.close()


def test_a_pipe_is_not_replaced_and_a_link_stays(tmp_path):
    """A file was renamed to whatever had the name: ``sidelight export /dev/null`` removed the device, for who may."""
    config = make_config(tmp_path, kind="OFUL")
    store = open_store(config)
    pipe, link, real = tmp_path / "pipe.parquet", tmp_path / "link.parquet", tmp_path / "real.parquet"
    os.mkfifo(pipe)
    link.symlink_to(real)
    with pytest.raises(InputError, match="a device or a pipe"):
        export_log(store, config.load_schema(), pipe)
    assert pipe.is_fifo()
    with pytest.raises(InputError, match="a folder"):
        export_log(store, config.load_schema(), tmp_path)
    export_log(store, config.load_schema(), link)
    assert link.is_symlink()
    assert real.is_file()
    store.close()


def test_the_command_line(tmp_path):
    """init, check, tokens, replay, export, backup, as a person would."""
    from tests.service.helpers import make_summary

    make_summary().save(tmp_path / "log.summary")
    made = command("init", "--summary", "log.summary", "--mode", "act", "--port", "0", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "FusedOFUL" in made.stdout
    again = command("init", "--summary", "log.summary", cwd=tmp_path)
    assert again.returncode == 1
    assert "--force" in again.stderr
    checked = command("serve", "--check", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "sidelight.toml is good" in checked.stdout
    assert not (tmp_path / "sidelight.db").exists(), "checking writes nothing"
    token = command("tokens", "create", "app", "--scope", "decide", "--scope", "read", "--json", cwd=tmp_path)
    assert json.loads(token.stdout)["token"].startswith("sl_")
    assert "'root' is not a scope" in command("tokens", "create", "x", "--scope", "root", cwd=tmp_path).stderr
    listed = json.loads(command("tokens", "list", "--json", cwd=tmp_path).stdout)
    assert [(t["name"], t["scopes"], t["revoked"]) for t in listed] == [("app", ["decide", "read"], None)]
    assert json.loads(token.stdout)["token"].split("_", 2)[2] not in json.dumps(listed)

    from sidelight.service.config import load_config

    config = load_config(tmp_path / "sidelight.toml")
    encode = make_schema().encode

    async def live() -> None:
        async with engine_of(config) as engine:
            x = np.array([encode(random_context(np.random.default_rng(0)))])
            number, _, _ = await engine.decide(x, None)
            await engine.reward(DecisionId(number), 1.5, None, None)

    run(live())
    replay = command("replay", "--json", cwd=tmp_path)
    assert replay.returncode == 0, replay.stderr
    assert json.loads(replay.stdout)["equal"] is True
    exported = command("export", "out.parquet", "--json", cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    assert json.loads(exported.stdout)["rows"] == 1
    backup = command("backup", "copy.db", cwd=tmp_path)
    assert backup.returncode == 0, backup.stderr
    store = open_store(config, str(tmp_path / "copy.db"))
    assert store.head() == 3
    store.close()
    assert command("tokens", "revoke", "app", cwd=tmp_path).returncode == 0
    assert "no valid token" in command("tokens", "revoke", "app", cwd=tmp_path).stderr
