"""A log that goes back, is exchanged or altered is noticed; ids are not given twice; a request fails alone."""

from __future__ import annotations

import asyncio
import json
import shutil

import numpy as np
import pytest
import sqlalchemy as sa

from sidelight.errors import StoreError
from sidelight.service.core.deciding import Ask
from sidelight.service.core.engine import Engine
from sidelight.service.core.fold import FOLD
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from sidelight.service.log import migrations as tables
from sidelight.service.log.connections import database_url
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Configuration, Reward
from sidelight.service.log.rows import event_from_row, event_to_row
from sidelight.service.log.store import Diverged, Store
from sidelight.service.operations.copying import back_up
from sidelight.service.problems import Problem
from sidelight.service.views.status import describe_engine
from tests.service.helpers import bits, command, engine_of, make_config, make_schema, random_context, run
from tests.service.test_store import Note

encode = make_schema().encode


def context(rng: np.random.Generator) -> np.ndarray:
    return encode(random_context(rng))[None]


async def decide(engine: Engine, rng: np.random.Generator) -> DecisionId:
    number, event, _ = await engine.decide(context(rng), None)
    return DecisionId(number, 0, event.epoch)


def cut(store: Store, last: int) -> None:
    """Take the log back to event ``last``, as a standby that lagged would."""
    with store.writing() as connection:
        head = store.lock(connection)
        chain = store.chain_within(connection, head, last)
        for table in (tables.events, tables.snapshots, tables.subjects):
            connection.execute(table.delete().where(table.c.number > last))
        epoch = connection.execute(sa.select(tables.events.c.epoch).where(tables.events.c.number == last)).scalar_one()
        store.advance(connection, head._replace(number=last, chain=chain, epoch=epoch))


async def until_not_ready(engine: Engine) -> None:
    for _ in range(200):
        if not engine.ready:
            break
        await asyncio.sleep(0.02)


async def unknown(coroutine) -> None:
    with pytest.raises(Problem) as caught:
        await coroutine
    assert caught.value.kind == "unknown-decision"


@pytest.mark.parametrize("writes", [True, False])
def test_a_server_whose_past_was_lost_decides_no_more(tmp_path, database, rng, writes):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database, snapshot_every=5)

    async def live() -> tuple[list[DecisionId], str]:
        async with engine_of(config) as engine:
            ids = [await decide(engine, rng) for _ in range(12)]
            other = open_store(config)
            cut(other, 6)
            if writes:
                with pytest.raises(Problem, match=r"ends at event 6.*seen event 13.*decides no more"):
                    await decide(engine, rng)
            else:
                # nobody asks for anything: it looks for what others wrote, and notices
                await until_not_ready(engine)
            assert not engine.ready
            assert "decides no more" in describe_engine(engine)["error"]
            with pytest.raises(Problem, match="decides no more"):
                await engine.reward(ids[0], 1.0, None, None)
            with pytest.raises(StoreError, match="not one of this log"):
                other.put_snapshot(engine.state.snapshot(0.0))
            assert all(number <= 6 for number in other.snapshot_numbers())
            other.close()
            return ids, bits(engine.state)

    ids, _ = run(live())

    async def again() -> None:
        async with engine_of(config) as engine:
            new = await decide(engine, rng)
            assert new.epoch
            assert new.number in [id.number for id in ids], "its number was given before, its id was not"
            assert str(new) not in map(str, ids)
            await unknown(engine.reward(DecisionId(new.number), 1.0, None, None))
            await unknown(engine.reward(DecisionId(new.number, 0, new.epoch + 1), 1.0, None, None))
            assert (await engine.reward(new, 1.0, None, None))[1]
            assert DecisionId.parse(str(new)) == new
            # what the log still has is as it was
            assert (await engine.reward(ids[0], 1.0, None, None))[1]
            for lost in ids:
                if lost.number > 6:
                    await unknown(engine.reward(lost, 1.0, None, None))

    run(again())


def test_a_log_with_other_events_of_the_same_numbers_is_noticed(tmp_path, database, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)

    async def live() -> None:
        async with engine_of(config) as engine:
            # it shall learn of it by writing
            engine.committer._poll = 1e6
            for _ in range(6):
                await decide(engine, rng)
            other = open_store(config)
            cut(other, 3)
            end = other.end()
            for _ in range(8):
                other.append([Note(2)], other.head(), 0, None, FOLD)
            assert other.head() > engine.state.number > end.number
            with pytest.raises(Problem, match="another one"):
                await decide(engine, rng)
            assert not engine.ready
            other.close()

    run(live())


@pytest.mark.parametrize("tell", ["reward", "action", "behavior", "retraction", "release"])
def test_what_was_read_and_lost_before_it_was_seen_is_not_told_about(tmp_path, database, rng, tell):
    """Another server's decision, found in the log by its id, is gone with the log's tail when the reward is written."""
    config = make_config(tmp_path, kind="FusedOFUL", mode="act", database=database)
    wild = encode(random_context(rng))[None]
    wild[0, 1] = 1e9

    async def live() -> None:
        async with engine_of(config) as engine, engine_of(config) as elsewhere:
            # it learns what the other one writes only when it writes itself
            engine.committer._poll = 1e6
            await decide(engine, rng)
            end = engine.store.head()
            decided = await decide(elsewhere, rng)
            if tell == "retraction":
                await elsewhere.reward(decided, 1.0, None, None)
            if tell == "release":
                number, event, _ = await elsewhere.decide(wild, [Ask(answer=Answer(arm="a"))])
                assert event.quarantine is not None
                decided = DecisionId(number, 0, event.epoch)
            assert engine.state.number == end
            other, rows = open_store(config), engine.store.rows

            def rows_and_then_they_are_lost(numbers):
                engine.store.rows = rows
                found = rows(numbers)
                cut(other, end)
                return found

            engine.store.rows = rows_and_then_they_are_lost
            calls = {
                "reward": lambda: engine.reward(decided, 1.0, None, None),
                "action": lambda: engine.action(decided, "a", None),
                "behavior": lambda: engine.behavior(decided, Answer(arm="a")),
                "retraction": lambda: engine.reviews.decide_doubt(
                    DecisionId(decided.number + 1, 0, decided.epoch), False, None, None
                ),
                "release": lambda: engine.reviews.decide_doubt(decided, True, None, None),
            }
            with pytest.raises(Problem) as caught:
                await calls[tell]()
            assert caught.value.kind in ("unknown-decision", "unknown-event")
            assert engine.ready
            mine = await decide(engine, rng)
            await engine.reward(mine, 1.0, None, None)
            other.close()

    run(live())
    # whatever is in the log can be folded
    store = open_store(config)
    assert recover(store).state.number == store.head()
    store.close()


def test_an_event_about_what_is_not_in_the_log_ends_deciding_at_once(tmp_path, database, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)

    async def live() -> None:
        async with engine_of(config) as engine:
            await decide(engine, rng)
            other = open_store(config)
            other.append([Note(77)], other.head(), 0, None, FOLD)
            with pytest.raises(Problem, match=r"refers to the decision 77.*decides no more"):
                await decide(engine, rng)
            assert not engine.ready
            assert engine.committer.alive
            other.close()

    run(live())


def test_a_server_does_not_write_into_another_log_that_took_the_place(tmp_path, database, rng):
    url = database_url(database)
    store = Store(url)
    store.append([Note(1), Note(2)], 0)
    chain = store.end().chain
    with store.writing() as connection:
        store.set_property(connection, "identity", "00" * 16)
        connection.execute(tables.head.update().values(chain=b"another"))
    head = store.head()
    with pytest.raises(Diverged):
        store.append([Note(3)], 2, 0, chain)
    assert store.head() == head
    store.close()


@pytest.mark.parametrize(
    "harm", ["a back-up in its place", "the same in its place", "removed", "its write-ahead log removed"]
)
def test_a_file_that_is_exchanged_or_removed_while_it_is_used_is_noticed(tmp_path, rng, harm):
    """By renaming or removing, so that the server goes on with a file that has no name any more."""
    config = make_config(tmp_path, kind="OFUL", mode="act")
    x = make_schema().encode(random_context(rng))[None]
    path = tmp_path / "sidelight.db"

    async def live() -> None:
        async with engine_of(config) as engine:
            for _ in range(3):
                await engine.decide(x, None)
            copy = tmp_path / "copy.db"
            if harm == "the same in its place":
                copy.write_bytes(path.read_bytes())
            else:
                back_up(engine.store, database_url(str(copy)))
            if harm == "removed":
                path.unlink()
            elif harm == "its write-ahead log removed":
                path.with_name("sidelight.db-wal").unlink()
            else:
                copy.replace(path)
            for _ in range(2):
                with pytest.raises(Problem) as refused:
                    await engine.decide(x, None)
                assert refused.value.status == 503
            assert not engine.ready
            assert "removed or exchanged" in str(engine.why_not_ready())

    run(live())


def test_ids_are_not_given_again_after_a_restore(tmp_path, database, rng):
    """A late reward of a decision that the back-up lacks is not taken for another's, however often it is restored."""
    config = make_config(tmp_path, kind="RunningOFUL", mode="act", database=database, snapshot_every=5)

    async def live(config, n: int) -> list[DecisionId]:
        async with engine_of(config) as engine:
            return [await decide(engine, rng) for _ in range(n)]

    kept = run(live(config, 4))
    assert command("backup", "copy.db", cwd=tmp_path).returncode == 0
    lost = run(live(config, 4))
    seen = [*kept, *lost]
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(tmp_path / "log.summary", folder)
        shutil.copy(tmp_path / "sidelight.toml", folder)
        done = command("restore", "../copy.db", "--database", str(folder / "restored.db"), cwd=folder)
        assert done.returncode == 0, done.stderr
        restored = make_config(folder, kind="RunningOFUL", mode="act", database=str(folder / "restored.db"))
        made = run(live(restored, 6))
        assert not {str(id) for id in made} & {str(id) for id in seen}
        assert len({id.epoch for id in made}) == 1

        async def rewards(restored=restored) -> None:
            async with engine_of(restored) as engine:
                for id in lost:
                    await unknown(engine.reward(id, 5.0, None, None))
                assert (await engine.reward(kept[0], 5.0, None, None))[1]

        run(rewards())
        seen += made
        store = open_store(restored)
        assert bits(recover(store).state) == bits(recover(store, use_snapshots=False).state)
        store.close()
    assert len({id.epoch for id in seen}) == 3


@pytest.mark.parametrize("column", ["payload", "kind", "at", "key", "contexts", "epoch"])
def test_an_altered_event_is_not_served(tmp_path, database, rng, column):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)

    async def live() -> DecisionId:
        async with engine_of(config) as engine:
            return await decide(engine, rng)

    id = run(live())
    store = open_store(config)
    e = tables.events
    row = store.rows([id.number])[id.number]
    changed = {
        "payload": row.payload.replace('"version":0', '"version":1'),
        "kind": "action",
        "at": np.nextafter(row.at, 2e9),
        "key": "once:x",
        "contexts": bytes([row.contexts[0] ^ 1]) + row.contexts[1:],
        "epoch": 7,
    }[column]
    with store.writing() as connection:
        connection.execute(e.update().where(e.c.number == id.number).values({column: changed}))
    with pytest.raises(StoreError, match=f"event {id.number} .*was altered"):
        store.rows([id.number])
    with pytest.raises(StoreError, match="was altered"):
        recover(store, use_snapshots=False)
    store.close()


@pytest.mark.parametrize("writes", [True, False])
def test_a_server_that_meets_an_altered_event_decides_no_more(tmp_path, database, rng, writes):
    """Whether it meets it when it writes, or when it looks for what others wrote."""
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)

    async def live() -> None:
        async with engine_of(config) as engine:
            engine.committer._poll = 1e6
            await decide(engine, rng)
            other = open_store(config)
            other.append([Note(2)], other.head(), 0, None, FOLD)
            e = tables.events
            with other.writing() as connection:
                connection.execute(e.update().where(e.c.number == other.head()).values(key="once:x"))
            if writes:
                with pytest.raises(Problem, match="was altered"):
                    await decide(engine, rng)
            else:
                engine.committer._poll = 0.02
                engine.committer._queue.ring()
            await until_not_ready(engine)
            assert not engine.ready
            assert "decides no more" in describe_engine(engine)["error"]
            with pytest.raises(Problem, match="decides no more"):
                await decide(engine, rng)
            other.close()

    run(live())


def test_events_that_changed_places_are_noticed(database):
    store = Store(database_url(database))
    store.append([Note(i) for i in range(1, 6)], 0)
    other = Store(database_url(database))
    with store.writing() as connection:
        connection.execute(tables.events.update().where(tables.events.c.number == 3).values(chain=b"x" * 16))
    with pytest.raises(StoreError, match="event 3 does not follow"):
        list(other.follow(0))
    store.close(), other.close()


@pytest.mark.parametrize("harm", ["head too low", "head too high", "no head", "learner", "learner altered", "decision"])
def test_a_start_looks_at_what_a_snapshot_hides(tmp_path, database, rng, harm):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)

    async def live() -> DecisionId:
        async with engine_of(config) as engine:
            id = await decide(engine, rng)
            await engine.reward(id, 1.0, None, None)
            await decide(engine, rng)
            return id

    id = run(live())
    store = open_store(config)
    with store.writing() as connection:
        execute = connection.execute
        if harm == "head too low":
            execute(tables.head.update().values(number=tables.head.c.number - 1))
        elif harm == "head too high":
            execute(tables.head.update().values(number=tables.head.c.number + 1))
        elif harm == "no head":
            execute(tables.head.delete())
        elif harm == "learner":
            execute(tables.blobs.delete())
        elif harm == "learner altered":
            execute(tables.blobs.update().values(content=b"nothing"))
        else:
            execute(tables.events.delete().where(tables.events.c.number == id.number))
            execute(tables.snapshots.delete())
    words = {
        "head too low": "there are events up to",
        "head too high": "events are lost",
        "no head": "no head row",
        "learner": "initial learner .* is missing",
        "learner altered": "initial learner .* was altered",
        "decision": rf"lacks event {id.number}:",
    }[harm]
    with pytest.raises(StoreError, match=words):
        Engine(store, config)
    store.close()


@pytest.mark.parametrize(
    ("name", "value"), [("version", ";"), ("origin", "\x10"), ("sealed_after", "o"), ("identity", "064f4e(c")]
)
def test_a_property_that_was_altered_has_its_message(tmp_path, name, value):
    config = make_config(tmp_path, kind="OFUL")
    store = open_store(config)
    with store.writing() as connection:
        store.set_property(connection, name, value)
    store.close()
    with pytest.raises(StoreError, match=r"altered.*Restore a back-up"):
        open_store(config)


def test_a_reward_whose_decision_is_gone_has_its_message(tmp_path, rng):
    store = Store(database_url(str(tmp_path / "events.db")))
    from sidelight.service.log.numbering import numbered

    store.append([Note(7)], 0)
    with pytest.raises(StoreError, match="event 1 refers to the decision 7, which is not in the log"):
        list(numbered(store, store.read(0, 1), 3))
    store.close()


def test_a_snapshot_after_the_end_of_the_log_is_said(tmp_path, database, rng, caplog):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)

    async def live() -> list[DecisionId]:
        async with engine_of(config) as engine:
            return [await decide(engine, rng) for _ in range(5)]

    run(live())
    store = open_store(config)
    newest = store.snapshot(store.snapshot_numbers()[0])
    cut(store, 4)
    store.put_snapshot(newest)
    engine = Engine(store, config)
    assert "events were lost" in " ".join(engine.notes)
    assert "events were lost" in caplog.text
    store.close()
    assert all(id.epoch for id in run(live()))


# ---------------------------------------------------------------------------- one caller, not all


def test_a_key_of_another_request_is_that_requests_problem_alone(tmp_path, database, rng):
    config = make_config(tmp_path, kind="RunningOFUL", mode="act", database=database)
    x = context(rng)

    async def problem(coroutine) -> str:
        with pytest.raises(Problem) as caught:
            await coroutine
        return caught.value.kind

    async def live() -> None:
        async with engine_of(config) as engine:
            await engine.decide(x, None, "once:a", "print")
            await engine.behavior_at(x[0], Answer("low"), "once:b", "print")
            others = [asyncio.ensure_future(engine.decide(context(rng), None)) for _ in range(30)]
            found = await asyncio.gather(
                problem(engine.behavior_at(x[0], Answer("low"), "once:a", "print")),
                problem(engine.decide(x, None, "once:b", "print")),
                problem(engine.decide(x, None, "first", "print")),
                problem(engine.behavior_at(x[0], Answer("low"), "first", "print")),
            )
            assert found == ["key-reused"] * 4
            assert all(new for _, _, new in await asyncio.gather(*others))
            assert engine.ready
            assert engine.metrics.store_errors._value.get() == 0

    run(live())


class Bad:
    """A proposal with a bug of its own."""

    keys: tuple[str, ...] = ()
    context = None

    def __init__(self, error: Exception) -> None:
        self.error = error

    def settle(self, found):
        raise self.error


@pytest.mark.parametrize("error", [StoreError("bad"), ValueError("bad"), KeyError("bad")])
def test_a_proposal_that_cannot_be_settled_fails_alone(tmp_path, database, rng, error):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)

    async def live() -> None:
        async with engine_of(config) as engine:
            tasks = [asyncio.ensure_future(engine.decide(context(rng), None)) for _ in range(10)]
            with pytest.raises((Problem, type(error)), match="bad"):
                await engine.submit(Bad(error))
            assert all(new for _, _, new in await asyncio.gather(*tasks))
            assert engine.ready

    run(live())


@pytest.mark.parametrize("subject", ["\ud800", "x" * 300])
def test_what_the_database_does_not_take_fails_alone(tmp_path, database, rng, subject):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)
    if subject[0] == "x" and "postgres" not in database:
        pytest.skip("SQLite takes text of any length")

    async def live() -> None:
        async with engine_of(config) as engine:
            tasks = [asyncio.ensure_future(engine.decide(context(rng), None)) for _ in range(10)]
            bad = asyncio.ensure_future(engine.decide(context(rng), [Ask(subject=subject)]))
            tasks += [asyncio.ensure_future(engine.decide(context(rng), None)) for _ in range(10)]
            with pytest.raises(Exception, match=r"surrogates|too long"):
                await bad
            assert all(new for _, _, new in await asyncio.gather(*tasks))
            assert engine.ready
            assert engine.state.counts["decisions"] == 20
            await engine.configure(Configuration(killed=True))
            head = engine.store.head()
            assert engine.state.number == head

    run(live())


def test_the_payload_of_an_id_with_an_epoch_survives(tmp_path):
    for id in (DecisionId(12, 7), DecisionId(12), DecisionId(12, 7, 0x5E0F3A1C), DecisionId(12, 0, 1)):
        row = event_to_row(Reward(id, 1.0, "low"), 20, 0.0, None)
        back = event_from_row(row, 0)
        assert back.decision == id
        assert str(back.decision) == str(id)
        assert json.loads(row.payload)["decision"] == list(id)
    for text in ("12@0", "12@", "12@G", "12@0a", "12@A", "12@123456789", "@1"):
        assert DecisionId.parse(text) is None, text
