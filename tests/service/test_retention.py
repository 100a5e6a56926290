"""Forgetting a person: contexts go from rows, files and exports; the learner goes on as if nothing had happened."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from sidelight.errors import StoreError
from sidelight.learners.saving import learner_bytes
from sidelight.service.client import Client
from sidelight.service.core.deciding import Ask
from sidelight.service.core.engine import Engine
from sidelight.service.core.fold import ContextsDeleted
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from sidelight.service.dashboard.rolling import Rolling
from sidelight.service.log import migrations as tables
from sidelight.service.log.bases import newest_base
from sidelight.service.log.connections import database_url
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Configuration
from sidelight.service.log.store import Store
from sidelight.service.operations import retention
from sidelight.service.operations.copying import copy_store
from sidelight.service.operations.retention import forget
from sidelight.service.problems import Problem
from sidelight.service.views.export import export_log
from tests.service.helpers import (
    ARMS,
    bits,
    command,
    engine_of,
    make_config,
    make_schema,
    random_context,
    replayed,
    run,
    serving,
)

ANNA = "anna@example.org"
encode = make_schema().encode


async def visits(engine: Engine, rng: np.random.Generator, rounds: int, subject: str) -> list[DecisionId]:
    """Decisions about ``subject`` and about others, mixed in batches, most of them rewarded, some answered."""
    made: list[DecisionId] = []
    for step in range(rounds):
        X = np.array([encode(random_context(rng)) for _ in range(3 if step % 2 else 1)])
        asks = [Ask(answer=Answer("mid") if step % 3 == 0 else None, subject=subject), Ask(subject="else"), Ask()]
        number, event, _ = await engine.decide(X, asks[: len(X)], f"once:{rng.integers(2**60)}", "fingerprint")
        made.append(DecisionId(number))
        for i in range(len(X)):
            if (step + i) % 4:
                await engine.reward(DecisionId(number, i), float(rng.normal()), event.arms[i] or "low", None)
    return made


def contexts_of(store: Store, subject: str) -> list[bytes]:
    """The raw bytes of the contexts about a subject."""
    with store.reading() as connection:
        s = tables.subjects
        about = sa.select(s.c.number, s.c.position).where(s.c.subject == subject)
        ids = connection.execute(about.order_by(s.c.number, s.c.position)).all()
    d = make_schema().n_features
    rows = store.rows(number for number, _ in ids)
    return [rows[number].contexts[8 * d * i : 8 * d * (i + 1)] for number, i in ids]


@pytest.mark.parametrize("kind", ["FusedOFUL", "RunningOFUL"])
def test_a_forgotten_person_leaves_the_database_and_the_learner_goes_on(tmp_path, database, rng, kind):
    config = make_config(tmp_path, kind=kind, mode="act", database=database, snapshot_every=25)

    async def live() -> None:
        async with engine_of(config) as engine:
            # many others first: a sum over one context would be that context
            X = np.array([encode(random_context(rng)) for _ in range(90)])
            number, _, _ = await engine.decide(X, None)
            ids = [DecisionId(number, i) for i in range(90)]
            await asyncio.gather(*(engine.reward(id, 1.0, ARMS[id.position % 3], "old_policy") for id in ids))
            ids = await visits(engine, rng, 12, ANNA)
            store = engine.store
            before, learner = engine.state.number, learner_bytes(engine.state.learner)
            old = engine.state.snapshot(0.0)
            # seven bytes of each number: enough to know it again, whatever it lies beside
            secrets = [part[8 * k : 8 * k + 7] for part in contexts_of(store, ANNA) for k in (1, 2, 6)]
            others = contexts_of(store, "else")
            done = forget(store, ANNA)
            assert done.decisions == len(ids)
            assert done.event == before + 1
            assert done.erased
            assert forget(store, ANNA).decisions == 0
            # the running server goes on: late rewards of forgotten decisions are kept, and teach nothing
            late = next(id for step, id in enumerate(ids) if step % 4 == 0)
            await engine.reward(late, 1.0, "low", None)
            assert learner_bytes(engine.state.learner) == learner
            assert engine.state.counts["without context"] == 1
            assert late.number not in engine._recent
            await visits(engine, rng, 6, "berta")
            assert learner_bytes(engine.state.learner) != learner
            expected = bits(engine.state)
            # rebuilt from snapshots and from the base alone, it is the same
            whole = recover(store, use_snapshots=False)
            assert whole.start == done.event
            assert bits(whole.state) == bits(recover(store).state) == expected
            assert contexts_of(store, "else")[: len(others)] == others, "nobody else lost anything"
            # a server that was behind may come with a snapshot from before
            kept = store.snapshot_numbers()
            store.put_snapshot(old)
            assert store.snapshot_numbers() == kept
            assert recover(store, upto=done.event).state.forgotten == {tuple(id) for id in ids}
            with pytest.raises(ContextsDeleted, match="was deleted"):
                recover(store, upto=before, use_snapshots=False)
            if store.sqlite:
                files = b"".join(path.read_bytes() for path in Path(database).parent.glob("events.db*"))
                assert others[0] in files, "the search itself finds what is there"
                assert not any(secret in files for secret in secrets)
                assert ANNA.encode() not in files
            with store.reading() as connection:
                for row in connection.execute(sa.select(tables.events)):
                    assert ANNA not in row.payload
                    if row.kind == "decisions":
                        # an estimate and a width are two equations for the context
                        told = json.loads(row.payload)
                        gone = [DecisionId(row.number, i) in ids for i in range(len(told["arms"]))]
                        assert [value is None for value in told["estimates"]] == gone
                        assert [value is None for value in told["widths"]] == gone
                    assert row.contexts is None or not any(secret in row.contexts for secret in secrets)
            rolling = Rolling(ARMS, make_schema().n_features)
            rolling.fill(store, engine.state.number, make_schema().n_features)
            assert rolling.hour.total("failures", time.time()) == 0, "a deleted estimate is no failure"
            export_log(store, make_schema(), tmp_path / "log.parquet")
            decisions = set(pq.read_table(tmp_path / "log.parquet")["decision"].to_pylist())
            assert decisions
            assert not decisions & {str(id) for id in ids}

    run(live())


def test_a_server_that_was_behind_takes_over_the_base(tmp_path, database, rng, monkeypatch):
    """Rewards that it has not folded yet need contexts that are gone: it starts again from the base."""
    config = make_config(tmp_path, kind="RunningOFUL", mode="act", database=database)

    def fails(store: Store, upto: int | None = None) -> None:
        raise StoreError("cannot read the event log")

    async def live() -> None:
        async with engine_of(config) as ahead, engine_of(config) as behind:
            behind.committer._poll = 1e6
            await visits(ahead, rng, 6, ANNA)
            await behind.configure(Configuration(share=0.9))
            await visits(ahead, rng, 6, ANNA)
            forget(ahead.store, ANNA, erase=False)
            await visits(ahead, rng, 2, "berta")
            with monkeypatch.context() as broken:
                broken.setattr("sidelight.service.core.folding.recover", fails)
                change = asyncio.ensure_future(behind.configure(Configuration(share=0.8)))
                for _ in range(500):
                    if not behind.ready:
                        break
                    await asyncio.sleep(0.01)
                assert not behind.ready, "it stays behind until the store can be read"
                assert not change.done()
            await change
            await ahead.configure(Configuration(share=0.7))
            await behind.configure(Configuration(share=0.6))
            assert behind.ready
            assert bits(recover(ahead.store, use_snapshots=False).state) == bits(behind.state)
            assert behind.state.rails.share == 0.6

    run(live())


@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize(("mode", "share"), [("act", 0.5), ("shadow", 1.0), ("assist", 1.0)])
def test_a_server_that_was_behind_does_not_fold_what_is_left_into_the_gate(
    tmp_path, database, rng, monkeypatch, mode, share, twin
):
    """Without subjects and estimates other decisions would be its units: it starts again from the base."""
    config = make_config(tmp_path, kind="OFUL", mode=mode, share=share, database=database)
    if twin:
        monkeypatch.setattr("sidelight.service.core.folding.LARGE", 0)

    async def live() -> None:
        async with engine_of(config) as ahead, engine_of(config) as behind:
            behind.committer._poll = 1e6
            # neither answers nor rewards: the learner needs none of these contexts, the gate counts their subjects
            for who in (ANNA, "berta", ANNA, None):
                await ahead.decide(np.array([encode(random_context(rng))]), [Ask(subject=who)])
            before = ahead.state.number
            done = forget(ahead.store, ANNA, erase=False)
            assert done.decisions == 2
            assert behind.state.number < done.event
            with pytest.raises(ContextsDeleted, match="was deleted"):
                recover(ahead.store, upto=before, use_snapshots=False)
            await behind.configure(Configuration(fallback="mid"))
            assert bits(behind.state) == bits(recover(ahead.store, use_snapshots=False).state)
            assert len(_units(behind)) == 3, "a person's first decision, and the one about nobody"
            await ahead.configure(Configuration(fallback="low"))
            assert bits(ahead.state) == bits(recover(ahead.store, use_snapshots=False).state)

    run(live())


@pytest.mark.parametrize(("mode", "share"), [("act", 0.5), ("shadow", 1.0), ("assist", 1.0)])
def test_the_gate_keeps_neither_key_nor_estimate_of_who_was_forgotten(tmp_path, database, rng, mode, share):
    config = make_config(tmp_path, kind="OFUL", mode=mode, share=share, database=database, snapshot_every=3)

    async def live() -> None:
        async with engine_of(config) as engine:
            for arm in ARMS:  # no estimate is 0 after these
                number, _, _ = await engine.decide(np.array([encode(random_context(rng))]), None)
                await engine.reward(DecisionId(number), 1.0, arm, "person")
            for who in ("carla", ANNA):
                _, event, _ = await engine.decide(np.array([encode(random_context(rng))]), [Ask(subject=who)])
            (estimate,) = event.estimates
            assert ANNA in engine.state.snapshot(0.0).state
            assert (repr(estimate) in engine.state.snapshot(0.0).state) == (mode != "act")
            done = forget(engine.store, ANNA)
            await engine.configure(Configuration(fallback="mid"))
            kept = newest_base(engine.store).snapshot
            for snapshot in (kept, *map(engine.store.snapshot, engine.store.snapshot_numbers())):
                assert ANNA not in snapshot.state
                assert repr(estimate) not in snapshot.state
                assert "carla" in snapshot.state, "nobody else is lost"
            assert bits(engine.state) == bits(recover(engine.store, use_snapshots=False).state)
            if engine.store.sqlite:
                files = b"".join(path.read_bytes() for path in Path(database).parent.glob("events.db*"))
                assert b"carla" in files
                assert ANNA.encode() not in files
            # their decision stays a unit; who comes back is somebody new
            waiting = len(_units(engine))
            for who in (ANNA, "carla"):
                await engine.decide(np.array([encode(random_context(rng))]), [Ask(subject=who)])
            assert len(_units(engine)) == waiting + 1
            assert done.event - 1 in {unit.number for unit in _units(engine)}

    run(live())


def test_a_wild_reward_of_who_was_forgotten_waits_for_a_person(tmp_path, rng):
    """Nothing is learned at a deleted context, but its reward still counts for the gate, and in the arm's mean."""
    config = make_config(tmp_path, kind="OFUL", mode="act", share=0.5)
    config = replace(config, bounds=replace(config.bounds, reward=[-10.0, 10.0]))

    async def live() -> str:
        async with engine_of(config) as engine:
            ids = []
            for who in (ANNA, "carla"):
                number, _, _ = await engine.decide(np.array([encode(random_context(rng))]), [Ask(subject=who)])
                ids.append(DecisionId(number))
            forget(engine.store, ANNA)
            await engine.configure(Configuration(fallback="mid"))
            noted = [await engine.reward(id, 1e6, None, None) for id in ids]
            assert all("the reward is not within -10 to 10" in (one.quarantine or "") for one in noted)
            assert [unit.reward for unit in _units(engine)] == [None, None]
            assert sum(engine.state.reward_sums.values()) == 0.0
            assert (await engine.reward(ids[0], 1e6, None, None)).quarantine is not None
            await engine.reviews.decide_doubt(DecisionId(noted[0].number), True, None, "right")
            assert sum(engine.state.reward_sums.values()) == 1e6
            await engine.reviews.retract(ids[1], None, "wrong")
            assert len(engine.state.quarantine) == 0
            assert engine.state.learner.counts.sum() == 0
            assert await engine.check_itself() is True
            return bits(engine.state)

    assert run(live()) == replayed(config)


def test_a_key_of_who_was_forgotten_does_not_answer_for_another_number_of_decisions(tmp_path, rng):
    """What the request was is deleted, so that an equal key must do; a batch of three has no answer of one, though."""
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def live() -> None:
        async with engine_of(config) as engine:
            X = np.array([encode(random_context(rng)) for _ in range(3)])
            number, _, _ = await engine.decide(X[:1], [Ask(subject=ANNA)], "once:key", "one")
            forget(engine.store, ANNA)
            assert (await engine.decide(X[:1], [Ask(subject=ANNA)], "once:key", "one"))[::2] == (number, False)
            with pytest.raises(Problem, match="another request"):
                await engine.decide(X, None, "once:key", "three")

    run(live())


@pytest.mark.parametrize("moved", [{"position": 1}, {"position": 5}, {"number": 3}])
def test_an_altered_index_of_subjects_deletes_nobody_elses_context(tmp_path, database, rng, moved):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)

    async def live() -> None:
        async with engine_of(config) as engine:
            for who in (ANNA, "carla"):
                X = np.array([encode(random_context(rng)) for _ in range(2)])
                number, _, _ = await engine.decide(X, [Ask(subject=who), Ask(subject="else")])
            s = tables.subjects
            with engine.store.writing() as connection:
                connection.execute(s.delete().where(s.c.subject != ANNA))
                connection.execute(s.update().values(**moved))
            before = engine.store.rows([2, 3])
            with pytest.raises(StoreError, match="the index of subjects names decisions of event"):
                forget(engine.store, ANNA)
            assert engine.store.rows([2, 3]) == before
            assert engine.store.head() == number

    run(live())


def _units(engine: Engine) -> list[Any]:
    """What waits for rewards in the gate."""
    gate = engine.state.gate
    return list(gate.waiting if gate.shadow is None else gate.shadow.waiting)


def test_one_damaged_copy_of_the_base_is_survived_and_mended(tmp_path, database, rng, caplog):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)

    async def live(damage=None) -> tuple[str, list[int]]:
        async with engine_of(config) as engine:
            if damage is None:
                await visits(engine, rng, 6, ANNA)
                forget(engine.store, ANNA, erase=False)
                await visits(engine, rng, 2, "berta")
            return bits(engine.state), engine.damaged

    expected, _ = run(live())
    store = open_store(config)
    base = newest_base(store).snapshot
    spoilt = bytes([base.learner[0] ^ 1]) + base.learner[1:]
    for damaged in (0, 1):
        with store.writing() as connection:
            connection.execute(tables.snapshots.delete())
            connection.execute(tables.bases.update().where(tables.bases.c.copy == damaged).values(learner=spoilt))
        assert newest_base(store).damaged == 1
        assert run(live(damaged)) == (expected, [base.number])
        assert "one of two copies" in caplog.text
        assert newest_base(store).damaged == 0, "mended from the other one"
        assert bits(recover(store, use_snapshots=False).state) == expected
    # a back-up holds both copies too
    copy = Store(database_url(str(tmp_path / "copy.db")))
    copy_store(store, copy)
    assert bits(recover(copy, use_snapshots=False).state) == expected
    copy.close()
    with store.writing() as connection:
        connection.execute(tables.bases.update().values(learner=spoilt))
    with pytest.raises(StoreError, match=r"both copies.*Restore"):
        recover(store)
    store.close()


def test_nothing_is_deleted_where_the_state_cannot_be_verified(tmp_path, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def live() -> None:
        async with engine_of(config) as engine:
            await visits(engine, rng, 4, ANNA)

    run(live())
    store = open_store(config)
    kept = contexts_of(store, ANNA)
    wrong = recover(store).state
    wrong.learner.observe(np.ones(wrong.learner.n_features), "low", 5.0)
    store.put_snapshot(wrong.snapshot(0.0))
    with pytest.raises(StoreError, match="do not agree"):
        forget(store, ANNA)
    assert contexts_of(store, ANNA) == kept
    assert newest_base(store) is None
    # whoever knows why they differ (an upgrade) may go on from what the servers run on
    assert forget(store, ANNA, verify=False).decisions == 4
    assert learner_bytes(recover(store, use_snapshots=False).state.learner) == learner_bytes(wrong.learner)
    store.close()


def test_the_command_says_what_it_did(tmp_path, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def live() -> None:
        async with engine_of(config) as engine:
            await visits(engine, rng, 4, ANNA)

    run(live())
    done = command("forget", "--subject", ANNA, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert body["decisions"] == 4
    assert body["erased"] is True
    again = command("forget", "--subject", ANNA, cwd=tmp_path)
    assert "no decisions about this subject" in again.stdout
    assert json.loads(command("erase", "--json", cwd=tmp_path).stdout) == {"erased": True}
    replay = json.loads(command("replay", "--json", cwd=tmp_path).stdout)
    assert replay["equal"] is True
    assert replay["from_base"] == body["event"]


def test_a_call_that_ended_before_it_erased_is_repeated(tmp_path, rng, monkeypatch):
    """No decision about the subject is left then, and what was deleted may still be in the files."""
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def live() -> None:
        async with engine_of(config) as engine:
            # others first: a sum over one context would be that context
            await visits(engine, rng, 40, "berta")
            await visits(engine, rng, 4, ANNA)

    run(live())
    store = open_store(config)
    secrets = contexts_of(store, ANNA)

    def lingers() -> bool:
        files = b"".join(path.read_bytes() for path in tmp_path.glob("sidelight.db*"))
        return any(secret in files for secret in secrets)

    def ended(_store: Store) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Store, "erase_deleted", ended)
        with pytest.raises(KeyboardInterrupt):
            forget(store, ANNA)
    assert lingers()
    done = forget(store, ANNA)
    assert (done.decisions, done.event, done.erased) == (0, None, True)
    assert not lingers()
    store.close()


def old_versions(connection: Any) -> int:
    """How many versions of rows PostgreSQL has marked as deleted in its tables and not removed yet, counted by it."""
    names = [t.name for t in (tables.events, tables.subjects, tables.snapshots, tables.pieces, tables.bases)]
    return sum(
        connection.execute("SELECT pg_stat_get_dead_tuples(%s::regclass)", [name]).fetchone()[0] for name in names
    )


def test_postgresql_forgets_beside_who_holds_its_tables_and_says_what_somebody_still_sees(tmp_path, new_postgres, rng):
    psycopg = pytest.importorskip("psycopg")
    database = new_postgres()
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)

    async def live() -> None:
        async with engine_of(config) as engine:
            await visits(engine, rng, 20, ANNA)
            await visits(engine, rng, 3, "berta")

    run(live())
    store = open_store(config)
    secrets = contexts_of(store, ANNA)

    def on_disk() -> bytes:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            folder = connection.execute("SHOW data_directory").fetchone()[0]
            places = [
                connection.execute("SELECT pg_relation_filepath(%s)", [name]).fetchone()[0]
                for name in (tables.events.name, tables.subjects.name, "sidelight_subjects_subject")
            ]
        return b"".join((Path(folder) / place).read_bytes() for place in places)

    with psycopg.connect(database) as holder:
        # VACUUM FULL would wait for this one, and every server behind it
        holder.execute("LOCK TABLE sidelight_events IN ACCESS SHARE MODE")
        assert forget(store, ANNA).erased
    with psycopg.connect(database, autocommit=True) as connection:
        assert old_versions(connection) == 0
    with psycopg.connect(database) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT count(*) FROM sidelight_events")
        assert forget(store, "berta", erase=False).decisions == 3
        assert store.erase_deleted(patience=0.5) is False
        seen = reader.execute("SELECT count(*) FROM sidelight_subjects WHERE subject = 'berta'").fetchone()
        assert seen == (3,), "it is there for who began to read before"
    assert store.erase_deleted()
    store.close()
    said = command("erase", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "Nothing that was deleted lingers" in said.stdout
    files = on_disk()
    assert b'"else"' in files, "the search itself finds what is there"
    assert ANNA.encode() not in files
    assert b"berta" not in files
    assert not any(secret in files for secret in secrets)


def test_under_load_with_a_server_of_its_own(tmp_path, database):
    """The command beside a running server: whatever comes meanwhile, server and replay stay equal bit for bit."""
    config = make_config(tmp_path, kind="RunningOFUL", mode="act", database=database, snapshot_every=40)
    stop = threading.Event()
    errors: list[BaseException] = []
    rewarded: list[str] = []

    def visit(url: str, who: int) -> None:
        own = np.random.default_rng(who)
        try:
            with Client(url, retries=30, patience=1.0) as client:
                before: list[str] = []
                while not stop.is_set():
                    before.append(client.decide(random_context(own), subject=f"s{who % 2}").id)
                    # late ones, too: some of these were forgotten by then
                    id = before.pop(int(own.integers(len(before))))
                    client.reward(id, 1.0)
                    rewarded.append(id)
                    if len(before) < 5:
                        before.append(client.decide(random_context(own), subject=f"s{who % 2}").id)
        except BaseException as error:
            errors.append(error)

    with serving(tmp_path) as server:
        threads = [threading.Thread(target=visit, args=(server.url, who)) for who in range(4)]
        for thread in threads:
            thread.start()
        done = []
        for round, subject in enumerate(("s0", "s1", "s0"), start=1):
            while len(rewarded) < 20 * round and not errors:
                time.sleep(0.01)
            done.append(json.loads(command("forget", "--subject", subject, "--json", cwd=tmp_path).stdout))
        stop.set()
        for thread in threads:
            thread.join(30)
        assert not errors
        assert all(body["decisions"] > 0 for body in done)
        store = open_store(config)
        whole = recover(store, use_snapshots=False)
        while (state := httpx.get(f"{server.url}/v1/state").json())["event"] < whole.state.number:
            time.sleep(0.05)
        assert whole.start == done[-1]["event"]
        assert (state["event"], state["digest"]) == (whole.state.number, bits(whole.state))
        assert whole.state.counts["without context"] > 0
        store.close()


def test_it_ends_though_the_person_keeps_coming(tmp_path, database, rng, monkeypatch):
    """Decisions that come while somebody is forgotten are left for the next call, however fast they come."""
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)
    monkeypatch.setattr(retention, "_AT_ONCE", 3)
    parts, forget_some = [], retention._forget_some

    async def live() -> None:
        async with engine_of(config) as engine:
            await visits(engine, rng, 4, ANNA)
            loop = asyncio.get_running_loop()

            def then_she_comes(*arguments: Any) -> tuple[int, int]:
                done = forget_some(*arguments)
                asyncio.run_coroutine_threadsafe(visits(engine, rng, 1, ANNA), loop).result(60)
                parts.append(done[1])
                assert len(parts) < 9, "it goes on as long as she comes"
                return done

            monkeypatch.setattr(retention, "_forget_some", then_she_comes)
            done = await asyncio.to_thread(forget, engine.store, ANNA, erase=False)
            assert done.decisions == 4
            assert parts == [3, 1]
            assert len(contexts_of(engine.store, ANNA)) == 2
            assert await engine.check_itself() is True

    run(live())


def test_two_people_are_forgotten_at_once(tmp_path, database, rng, monkeypatch):
    """The other deletion comes between the two folds that are compared: what one of them needs is gone."""
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)

    async def live() -> None:
        async with engine_of(config) as engine:
            await visits(engine, rng, 4, ANNA)
            await visits(engine, rng, 4, "berta")

    run(live())
    store, other = open_store(config), Store(open_store(config).url)
    look, calls = retention.recover, []

    def slow(*arguments: Any, **named: Any) -> Any:
        calls.append(named)
        if len(calls) == 2:
            assert forget(other, "berta", verify=False, erase=False).decisions == 4
        return look(*arguments, **named)

    monkeypatch.setattr(retention, "recover", slow)
    done = forget(store, ANNA, erase=False)
    monkeypatch.undo()
    assert done.decisions == 4
    assert contexts_of(store, ANNA) == contexts_of(store, "berta") == []
    assert newest_base(store).snapshot.number == done.event == store.head()
    assert bits(recover(store).state) == bits(recover(store, use_snapshots=False).state)
    store.close(), other.close()


def test_who_has_many_decisions_is_forgotten_in_parts(tmp_path, database, rng, monkeypatch):
    """Each part is whole by itself: interrupted between two, the log can be folded, and the next call goes on."""
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)
    monkeypatch.setattr(retention, "_AT_ONCE", 3)

    async def live(rounds: int) -> None:
        async with engine_of(config) as engine:
            await visits(engine, rng, rounds, ANNA)

    run(live(8))
    store = open_store(config)
    write, parts = store.rewrite, []

    def interrupted(connection: Any, rows: Any) -> None:
        parts.append(len(rows))
        if len(parts) == 3:
            raise KeyboardInterrupt
        write(connection, rows)

    monkeypatch.setattr(store, "rewrite", interrupted)
    with pytest.raises(KeyboardInterrupt):
        forget(store, ANNA, erase=False)
    assert parts == [3, 3, 2]
    assert len(contexts_of(store, ANNA)) == 2
    assert newest_base(store).snapshot.number == store.head()
    monkeypatch.setattr(store, "rewrite", write)

    run(live(2))  # a server starts from what is there, and more is decided about her
    assert forget(store, ANNA, erase=False).decisions == 4
    assert contexts_of(store, ANNA) == []
    state = recover(store).state
    assert state.counts["forgotten"] == len(state.forgotten) == 10
    assert bits(state) == bits(recover(store, use_snapshots=False).state)
    store.close()


def test_the_event_that_is_kept_for_the_rewards_of_a_batch_goes_with_a_forgotten_person(tmp_path, rng):
    config = make_config(tmp_path, mode="act", database="sqlite")

    async def live() -> None:
        async with engine_of(config) as engine:
            number, _, _ = await engine.decide(np.array([encode(random_context(rng))]), [Ask(subject=ANNA)])
            recent, row, d = engine._recent, engine._recent.row(number), engine.state.learner.n_features
            event = recent.parsed(row, d)
            # parsed once for all rewards of its batch
            assert recent.parsed(engine._recent.row(number), d) is event
            assert not np.isnan(event.contexts).any()
            forget(engine.store, ANNA)
            await engine.decide(np.array([encode(random_context(rng))]), None)
            assert recent._parsed is None
            # read from the store, it has no context any more
            gone = engine.store.rows([number])[number]
            assert np.isnan(recent.parsed(gone, d).contexts).all()

    run(live())
