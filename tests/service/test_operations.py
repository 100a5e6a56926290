"""Running it: back-ups under load, a stop that loses nothing, the audit of one decision."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sidelight.errors import StoreError
from sidelight.service.config import load_config
from sidelight.service.core.deciding import Ask
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Configuration
from sidelight.service.log.store import Store
from sidelight.service.operations.retention import forget
from tests.service.helpers import (
    ARMS,
    Server,
    bits,
    command,
    engine_of,
    make_config,
    make_schema,
    random_context,
    run,
    serving,
)
from tests.service.test_crash import Worker, check, free_port, further


def load(url: str, stop: threading.Event, workers: int = 4) -> list[Worker]:
    made = [Worker(url, seed, stop) for seed in range(workers)]
    for worker in made:
        worker.start()
    return made


def test_a_back_up_under_load_restored_elsewhere_is_equal_bit_for_bit(tmp_path: Path, database: str):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    config = make_config(here, kind="FusedOFUL", mode="act", database=database, snapshot_every=60)
    stop = threading.Event()
    with serving(here) as server:
        workers = load(server.url, stop)
        while sum(len(worker.rewards) for worker in workers) < 60:
            time.sleep(0.01)
        done = command("backup", str(tmp_path / "backup.db"), "--json", cwd=here)
        assert done.returncode == 0, done.stderr
        further(workers, 40)
        stop.set()
        for worker in workers:
            worker.join(30)
            assert worker.error is None
    last = json.loads(done.stdout)["events"]
    assert [path.name for path in tmp_path.glob("backup*")] == ["backup.db"], "a back-up is one file"
    for name in ("sidelight.toml", "log.summary"):
        shutil.copy(here / name, there / name)
    restored = command("restore", "../backup.db", "--database", "restored.db", "--json", cwd=there)
    assert restored.returncode == 0, restored.stderr
    original, copy = open_store(config), open_store(load_config(there / "sidelight.toml"), str(there / "restored.db"))
    assert original.head() > last > 1, "events went on while it was copied"
    assert [row for chunk in copy.follow(0) for row in chunk] == [
        row for chunk in original.follow(0, last) for row in chunk
    ]
    prefix = recover(original, upto=last, use_snapshots=False)
    assert bits(recover(copy).state) == bits(prefix.state) == json.loads(restored.stdout)["digest"]
    original.close(), copy.close()
    # nothing is ever overwritten
    again = command("restore", "../backup.db", "--database", "restored.db", cwd=there)
    assert again.returncode == 1
    assert "is there already" in again.stderr


@pytest.mark.parametrize("error", [StoreError("the disk is full"), KeyboardInterrupt()])
def test_a_back_up_that_fails_is_not_in_the_way_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
):
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def live() -> None:
        async with engine_of(config) as engine:
            await engine.configure(Configuration(share=0.25))

    run(live())
    before = sorted(path.name for path in tmp_path.iterdir())

    def stops(*_: object) -> None:
        assert not (tmp_path / "copy.db").exists(), "what is not whole has not the name of what is"
        assert list(tmp_path.glob("copy.db.*.partial"))
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Store, "advance", stops)
        assert command("backup", "copy.db", cwd=tmp_path).returncode != 0
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    # one that was killed leaves its file
    (tmp_path / "copy.db.0a1b2c3d.partial").touch()
    done = command("backup", "copy.db", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    store = open_store(config)
    assert json.loads(done.stdout)["events"] == store.head() == 2
    store.close()
    assert (tmp_path / "copy.db").stat().st_mode & 0o007 == 0
    assert "is there already" in command("backup", "copy.db", cwd=tmp_path).stderr


def test_from_sqlite_to_postgresql(tmp_path: Path, new_postgres: Callable[[], str], rng: np.random.Generator):
    config = make_config(tmp_path, kind="RunningOFUL", mode="act", snapshot_every=20)
    encode = make_schema().encode

    async def live() -> str:
        async with engine_of(config) as engine:
            for _ in range(30):
                number, _, _ = await engine.decide(np.array([encode(random_context(rng))]), None)
                await engine.reward(DecisionId(number), float(rng.normal()), None, None)
            forget(engine.store, "nobody")
            return bits(engine.state)

    expected = run(live())
    address = new_postgres()
    assert command("backup", address, cwd=tmp_path).returncode == 0
    assert "already holds events" in command("backup", address, cwd=tmp_path).stderr
    moved = json.loads(command("replay", "--database", address, "--json", cwd=tmp_path).stdout)
    assert moved["equal"] is True
    store = open_store(config, address)
    assert bits(recover(store).state) == expected
    store.close()


def test_a_stop_finishes_what_was_accepted(tmp_path: Path):
    make_config(tmp_path, kind="FusedOFUL", mode="act", snapshot_every=10_000)
    port = free_port()
    server = Server(tmp_path, "--port", str(port))
    stop = threading.Event()
    workers = load(server.url, stop, workers=8)
    while sum(len(worker.rewards) for worker in workers) < 80:
        time.sleep(0.01)
    assert server.stop() == 0, "told to stop under load, it ends well"
    store = open_store(load_config(tmp_path / "sidelight.toml"))
    assert store.snapshot_numbers()[0] == store.head(), "the next start has nothing to fold"
    # callers saw a closed door at worst: with the next server they go on where they were
    store.close()
    server = Server(tmp_path, "--port", str(port))
    further(workers, 20)
    stop.set()
    for worker in workers:
        worker.join(30)
        assert worker.error is None, worker.error
    assert server.stop() == 0
    check(tmp_path, workers)


def test_the_audit_of_a_decision_reproduces_it(tmp_path: Path, rng: np.random.Generator):
    config = make_config(tmp_path, kind="FusedOFUL", mode="act", snapshot_every=15)
    encode = make_schema().encode
    contexts = [random_context(rng) for _ in range(40)]
    X = np.array([encode(context) for context in contexts])

    async def live() -> tuple[DecisionId, str]:
        async with engine_of(config) as engine:
            ids = [DecisionId((await engine.decide(x[None], None))[0]) for x in X[:30]]
            for id in ids:
                await engine.reward(id, float(rng.normal()), None, None)
            await engine.configure(Configuration(share=0.999999, by="the operator"))
            asks = [Ask(allowed=["low", "high"], answer=Answer("mid"), subject="somebody"), Ask()]
            number, event, _ = await engine.decide(X[30:32], asks)
            id = DecisionId(number)
            for x in X[32:]:
                later = DecisionId((await engine.decide(x[None], None))[0])
                await engine.reward(later, 1.0, None, None)
            other = next(arm for arm in ARMS if arm != event.arms[0])
            await engine.reward(id, 2.5, other, "person")
            return id, event.arms[0]

    id, arm = run(live())
    done = command("audit", str(id), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["decision"] == str(id)
    assert told["asked"]["context"] == {**contexts[30], "severity": float(contexts[30]["severity"])}
    assert told["asked"]["allowed"] == ["low", "high"]
    assert told["asked"]["subject"] == "somebody"
    assert told["decided"]["arm"] == arm
    assert told["decided"]["share"] == 0.999999
    assert told["in_force"]["start"]["learner"] == "FusedOFUL"
    assert [change["by"] for change in told["in_force"]["changes"]] == [None, "the operator"]
    learner = told["learner"]
    assert learner["exact"] is True
    assert learner["reproduced"] is True, "the learner of then, rebuilt, says the same to the last bit"
    assert learner["events_behind_the_log"] == 0
    assert {entry["arm"] for entry in learner["arms"]} == set(ARMS)
    mine = next(entry for entry in learner["arms"] if entry["arm"] == told["decided"]["recommended"])
    assert mine["estimate"] == told["decided"]["estimate"]
    assert told["followed"]["reward"]["override"] is True
    assert told["followed"]["reward"]["reward"] == 2.5
    assert told["followed"]["behavior"]["arm"] == "mid"
    # once its person is forgotten, everything but the context and what would tell it is still there
    store = open_store(config)
    forget(store, "somebody")
    store.close()
    after = json.loads(command("audit", str(id), cwd=tmp_path).stdout)
    assert after["asked"]["context"] is None
    assert after["asked"]["subject"] is None
    assert after["decided"] == told["decided"] | {"estimate": None, "width": None}
    assert after["followed"] == told["followed"]
    assert after["learner"]["reproduced"] is None
    assert "deleted" in after["learner"]["why_not"]
    assert "no decision" in command("audit", "999", cwd=tmp_path).stderr
    assert "not a decision's id" in command("audit", "x", cwd=tmp_path).stderr


@pytest.mark.parametrize("what", [".", "", ".."])
def test_a_folder_in_place_of_a_database_is_said(tmp_path: Path, what: str):
    make_config(tmp_path, kind="OFUL")
    done = command("restore", what, cwd=tmp_path)
    assert done.returncode == 1
    assert "is a folder" in done.stderr
    text = (tmp_path / "sidelight.toml").read_text()
    (tmp_path / "sidelight.toml").write_text(text.replace('"sidelight.db"', '"."'))
    done = command("serve", "--check", cwd=tmp_path)
    assert done.returncode == 1
    assert "is a folder" in done.stderr
