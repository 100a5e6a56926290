"""Versions of the fold: taking a log over, servers that do not fit, states that only another version can rebuild."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from sidelight.errors import StoreError
from sidelight.service.core import engine as engines
from sidelight.service.core import fold as folds
from sidelight.service.core import recovery, starting
from sidelight.service.core.engine import Engine
from sidelight.service.core.fold import FOLD, OlderFold
from sidelight.service.core.recovery import fold_at, recover
from sidelight.service.core.starting import open_store
from sidelight.service.log import migrations as tables
from sidelight.service.log.bases import newest_base
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Configuration, FoldChange
from sidelight.service.log.rows import event_from_row
from sidelight.service.operations.retention import forget
from sidelight.service.problems import Problem
from sidelight.service.views.audit import audit
from sidelight.service.views.status import describe_engine
from tests.service.helpers import bits, command, engine_of, make_config, make_schema, random_context, run

encode = make_schema().encode


@pytest.fixture
def fold(monkeypatch):
    """Sets the version of the fold everywhere, as another Sidelight would have it."""

    def change(version: int) -> None:
        for module in (folds, recovery, starting, engines):
            monkeypatch.setattr(module, "FOLD", version)
        monkeypatch.setattr(recovery.recover, "__kwdefaults__", {**recovery.recover.__kwdefaults__, "fold": version})

    return change


async def rounds(engine: Engine, rng: np.random.Generator, n: int, subject: str | None = None) -> list[DecisionId]:
    from sidelight.service.core.deciding import Ask

    ids = []
    for _ in range(n):
        asks = None if subject is None else [Ask(subject=subject)]
        number, event, _ = await engine.decide(encode(random_context(rng))[None], asks)
        ids.append(DecisionId(number, 0, event.epoch))
        await engine.reward(ids[-1], float(rng.normal()), event.arms[0] or "low", None)
    return ids


def test_the_first_start_of_a_new_version_writes_a_base_and_an_event(tmp_path, database, rng, fold):
    config = make_config(tmp_path, kind="RunningOFUL", mode="act", database=database, snapshot_every=7)

    async def live() -> list[DecisionId]:
        async with engine_of(config) as engine:
            return await rounds(engine, rng, 12, "anna")

    before = run(live())
    store = open_store(config)
    last = store.head()
    old = recover(store).state
    fold(FOLD + 1)
    with pytest.raises(StoreError, match=rf"folded by version {FOLD},.*serve` once"):
        recover(store)
    after = run(live())
    (row,) = store.of_kind("fold")
    event = event_from_row(row, 0)
    assert isinstance(event, FoldChange)
    assert (row.number, event.fold, event.before) == (last + 1, FOLD + 1, FOLD)
    base = newest_base(store)
    assert (base.snapshot.number, base.snapshot.fold) == (row.number, FOLD + 1)
    assert base.snapshot.learner == old.snapshot(0.0).learner, (
        "what the old version knew is what the new one goes on from"
    )
    # replay, forgetting and snapshots start there
    whole = recover(store, use_snapshots=False)
    assert whole.start == row.number
    assert bits(whole.state) == bits(recover(store).state)
    with pytest.raises(OlderFold, match="older version"):
        recover(store, upto=last)
    # who decided what is told by the audit
    told = audit(store, config.load_schema(), before[-1])
    assert told["learner"]["fold"] == FOLD
    assert told["learner"]["exact"] is False
    assert "older version" in told["learner"]["why_not"]
    told = audit(store, config.load_schema(), after[-1])
    assert told["learner"]["fold"] == FOLD + 1
    assert told["learner"]["reproduced"] is True
    assert [fold_at(store, n) for n in (1, last, row.number, row.number + 1)] == [FOLD, FOLD, FOLD, FOLD + 1]
    done = forget(store, "anna")
    assert done.decisions == 24
    assert recover(store, use_snapshots=False).start == done.event
    store.close()
    # once is enough
    run(live())
    store = open_store(config)
    assert len(store.of_kind("fold")) == 1
    store.close()


def test_two_servers_with_different_folds_do_not_both_decide(tmp_path, database, rng, fold):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)
    x = encode(random_context(rng))[None]

    async def live() -> None:
        async with engine_of(config) as old:
            await rounds(old, rng, 3)
            fold(FOLD + 1)
            async with engine_of(config) as new:
                number, _, _ = await new.decide(x, None)
                with pytest.raises(Problem, match=rf"folded by version {FOLD + 1}.*decides no more.*Upgrade"):
                    await old.decide(x, None)
                assert not old.ready
                assert "Upgrade" in describe_engine(old)["error"]
                with pytest.raises(Problem, match="Upgrade"):
                    await old.reward(DecisionId(number), 1.0, None, None)
                assert new.ready
                await new.reward(DecisionId(number), 1.0, None, None)
            fold(FOLD)
            store = open_store(config)
            with pytest.raises(StoreError, match="newer one serves it"):
                Engine(store, config)
            store.close()

    run(live())


def test_a_snapshot_that_cannot_be_read_is_kept(tmp_path, rng, monkeypatch, caplog):
    config = make_config(tmp_path, kind="OFUL", mode="act", snapshot_every=6)

    async def live() -> str:
        async with engine_of(config) as engine:
            await rounds(engine, rng, 10)
            return bits(engine.state)

    expected = run(live())
    store = open_store(config)
    numbers = store.snapshot_numbers()
    newest = store.snapshot(numbers[0])
    future = replace(newest, state=json.dumps(json.loads(newest.state) | {"rails": {"a mode": "of the future"}}))
    store.put_snapshot(future)
    found = recover(store, repair=True)
    assert found.damaged == []
    assert found.unreadable == [numbers[0]]
    assert bits(found.state) == expected
    assert store.snapshot_numbers() == numbers
    assert "cannot be read by this version" in caplog.text
    store.close()


def test_reading_commands_do_not_migrate(tmp_path, database):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)
    store = open_store(config)
    Engine(store, config)
    with store.writing() as connection:
        store.set_property(connection, "version", "3")
    store.close()
    for words in (
        ["replay"],
        ["backup", "copy.db"],
        ["audit", "1"],
        ["tokens", "list"],
        ["tokens", "create", "me", "--scope", "read"],
        ["forget", "--subject", "anna"],
        ["erase"],
        ["export", "out.parquet"],
    ):
        done = command(*words, cwd=tmp_path)
        assert done.returncode == 1, words
        assert "has version 3" in done.stderr, words
        assert "migrate" in done.stderr, words
    assert open_version(config) == 3


def open_version(config) -> int:
    from sidelight.service.log.connections import database_url
    from sidelight.service.log.store import Store

    store = Store(database_url(config.storage.database, config.folder), migrate=False)
    try:
        return store.version()
    finally:
        store.close()


def test_migrate_is_a_command(tmp_path):
    make_config(tmp_path, kind="OFUL")
    first = json.loads(command("migrate", "--json", cwd=tmp_path).stdout)
    assert first == {"from": 0, "to": tables.VERSION}
    assert "already" in command("migrate", cwd=tmp_path).stdout


def test_another_summary_with_the_same_schema_is_refused(tmp_path, rng):
    from tests.service.helpers import make_summary

    config = make_config(tmp_path, kind="RunningOFUL", mode="act")
    store = open_store(config)
    Engine(store, config)
    make_summary(seed=6).save(tmp_path / "log.summary")
    with pytest.raises(StoreError, match="another log summary"):
        Engine(store, config)
    make_summary().save(tmp_path / "log.summary")
    Engine(store, config)
    store.close()


def test_the_first_event_says_what_folds_it(tmp_path):
    config = make_config(tmp_path, kind="RunningOFUL")
    store = open_store(config)
    Engine(store, config)
    event = event_from_row(store.first(), 0)
    assert isinstance(event, Configuration)
    assert event.file["fold"] == store.end().fold == FOLD
    assert len(event.file["summary"]) == 64
    store.close()
