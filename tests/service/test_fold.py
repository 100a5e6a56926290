"""The learner is the fold of the log: live, recovered and replayed states are equal bit for bit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import warnings

import numpy as np
import pytest

import sidelight as sl
from sidelight.errors import StoreError
from sidelight.learners.correcting import Receipt
from sidelight.learners.saving import learner_bytes
from sidelight.service.config import initial_config, load_config, save_config
from sidelight.service.core.deciding import Ask
from sidelight.service.core.defaults import NOT_TAUGHT, Defaults
from sidelight.service.core.engine import Engine
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from sidelight.service.log import migrations as tables
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Configuration, Reward
from sidelight.service.problems import Problem
from sidelight.service.views.history import read_history
from tests.service.helpers import ARMS, bits, engine_of, make_config, make_schema, random_context, replayed, run


async def traffic(engine: Engine, rng: np.random.Generator, rounds: int) -> list[DecisionId]:
    """Decisions, overrides, late and repeated rewards, answers, mode changes, concurrently."""
    encode = make_schema().encode
    probabilities = engine.state.learner.needs == "probabilities"
    made: list[DecisionId] = []

    def answer() -> Answer:
        p = rng.dirichlet(np.ones(3))
        return Answer(ARMS[rng.integers(3)], tuple((p / p.sum()).tolist()) if probabilities else None)

    async def one(step: int) -> None:
        X = np.array([encode(random_context(rng)) for _ in range(1 + 3 * (step % 7 == 0))])
        asks = None
        if step % 3 == 0:
            asks = [
                Ask(["low", "high"] if step % 2 else None, answer() if step % 4 == 0 else None, f"s{step}") for _ in X
            ]
        number, event, _ = await engine.decide(X, asks)
        ids = [DecisionId(number, i) for i in range(len(event))]
        made.extend(ids)
        for id in ids:
            if rng.random() < 0.3:
                with contextlib.suppress(Problem):  # an answer may be known already, and differ
                    await engine.behavior(id, answer())
            if rng.random() < 0.8:
                taken = ARMS[rng.integers(3)] if event.arms[id.position] is None or rng.random() < 0.2 else None
                by = "old_policy" if taken is not None and rng.random() < 0.5 else None
                value = float(rng.normal())
                await engine.reward(id, value, taken, by)
                assert (await engine.reward(id, value, taken, by))[1] is False

    for start in range(0, rounds, 10):
        await asyncio.gather(*(one(step) for step in range(start, start + 10)))
        mode = ["shadow", "assist", "act"][(start // 10) % 3]
        await engine.configure(Configuration(mode=mode, share=0.6, killed=start % 50 == 40))
    x = encode(random_context(rng))
    await engine.behavior_at(x, answer(), None, None)
    return made


@pytest.mark.parametrize(
    ("kind", "answers"),
    [("OFUL", "queries"), ("RunningOFUL", "queries"), ("FusedOFUL", "queries"), ("FusedOFUL", "probabilities")],
)
def test_live_recovered_and_replayed_are_equal(tmp_path, rng, kind, answers):
    if not hasattr(sl, kind):
        pytest.skip(f"{kind} is not there")
    config = make_config(tmp_path, kind=kind, answers=answers, snapshot_every=60)

    async def live() -> tuple[str, bytes]:
        async with engine_of(config) as engine:
            await traffic(engine, rng, 60)
            assert engine.state.counts["failures"] == 0
            assert engine.state.counts["rewards"] > 30
            return bits(engine.state), learner_bytes(engine.state.learner)

    expected, learner = run(live())
    store = open_store(config)
    quick = recover(store)
    whole = recover(store, use_snapshots=False)
    assert quick.start > 0, "no snapshot was taken"
    assert whole.start == 0
    assert bits(quick.state) == bits(whole.state) == expected
    assert learner_bytes(quick.state.learner) == learner_bytes(whole.state.learner) == learner
    # and from every snapshot that is there, not only the newest
    for number in store.snapshot_numbers()[1:]:
        with store.writing() as connection:
            connection.execute(tables.snapshots.delete().where(tables.snapshots.c.number > number))
        older = recover(store)
        assert older.start == number
        assert bits(older.state) == expected
    store.close()


def test_the_fold_feeds_the_learner_what_the_log_says(tmp_path):
    """A learner fed by hand in the order of the log equals the service's."""
    config = make_config(tmp_path, kind="RunningOFUL", mode="shadow")
    encode = make_schema().encode
    rng = np.random.default_rng(8)
    X = [encode(random_context(rng)) for _ in range(4)]

    async def live() -> bytes:
        async with engine_of(config) as engine:
            first, event, _ = await engine.decide(np.array(X[:2]), [Ask(answer=Answer("mid")), Ask()])
            assert event.arms == ["mid", None]
            assert event.routes == ["old_policy"] * 2
            # the old policy acted: its arm is played and is an answer, once
            await engine.reward(DecisionId(first, 1), 2.0, "high", None)
            await engine.reward(DecisionId(first, 0), 1.0, None, None)
            await engine.behavior_at(X[2], Answer("low", probability=0.5), None, None)
            await engine.configure(Configuration(mode="act"))
            third, event, _ = await engine.decide(np.array(X[3:]), None)
            assert event.routes == ["learner"]
            other = next(arm for arm in ARMS if arm != event.arms[0])
            await engine.reward(DecisionId(third), -1.0, other, "old_policy")
            return learner_bytes(engine.state.learner), other, event

    learner, other, event = run(live())
    by_hand = config.build_learner()
    by_hand.observe_behavior(X[0], "mid")
    by_hand.observe(X[1], "high", 2.0)
    by_hand.observe_behavior(X[1], "high")
    by_hand.observe(X[0], "mid", 1.0)
    by_hand.observe_behavior(X[2], "low", probability=0.5)
    by_hand.observe(X[3], other, -1.0)
    asked_with = event.query_probabilities[0] if event.asked[0] else 1.0
    by_hand.observe_behavior(X[3], other, probability=asked_with)
    assert learner_bytes(by_hand) == learner


def test_damaged_snapshots_are_noticed_and_replaced(tmp_path, rng, caplog):
    config = make_config(tmp_path, kind="OFUL", snapshot_every=40)

    async def live() -> str:
        async with engine_of(config) as engine:
            await traffic(engine, rng, 50)
            return bits(engine.state)

    expected = run(live())
    store = open_store(config)
    newest = store.snapshot_numbers()[0]
    with store.writing() as connection:
        row = connection.execute(tables.snapshots.select().where(tables.snapshots.c.number == newest)).one()
        spoilt = bytearray(row.learner)
        spoilt[len(spoilt) // 2] ^= 1
        connection.execute(
            tables.snapshots.update().where(tables.snapshots.c.number == newest).values(learner=bytes(spoilt))
        )
    store.close()

    async def again() -> tuple[str, list[int], bytes]:
        async with engine_of(config) as engine:
            return bits(engine.state), engine.damaged, engine.metrics.text()

    found, damaged, metrics = run(again())
    assert found == expected
    assert damaged == [newest]
    assert f"snapshot after event {newest} is damaged" in caplog.text
    assert b"sidelight_damaged_snapshots_total 1.0" in metrics
    store = open_store(config)
    assert recover(store).damaged == []
    assert recover(store).start == newest
    store.close()


def test_a_gap_in_the_log_is_an_error(tmp_path, rng):
    config = make_config(tmp_path, kind="OFUL")

    async def live() -> None:
        async with engine_of(config) as engine:
            await traffic(engine, rng, 10)

    run(live())
    store = open_store(config)
    with store.writing() as connection:
        connection.execute(tables.snapshots.delete())
        connection.execute(tables.events.delete().where(tables.events.c.number == 5))
    with pytest.raises(StoreError, match=r"lacks event \d+:"):
        recover(store)
    store.close()


def test_a_start_does_not_warn_of_contexts_that_nobody_sent(tmp_path, rng):
    """What is compiled beforehand is compiled with zeros, which are wild where a log's years lie around 2020."""
    X = np.column_stack([np.ones(400), rng.normal(2_020, 2, 400)])
    schema = sl.Schema(["year", "age"], recorded=["year"], arms=["a", "b"], intercept=True)
    sl.LogSummary.from_arrays(X, rng.choice(["a", "b"], 400), rng.normal(size=400), schema).save(
        tmp_path / "log.summary"
    )
    save_config(initial_config(schema, summary_path="log.summary", port=0), tmp_path / "sidelight.toml")
    config = load_config(tmp_path / "sidelight.toml")
    store = open_store(config)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Engine(store, config)
    assert not [str(warning.message) for warning in caught if issubclass(warning.category, sl.SidelightWarning)]
    store.close()


def test_a_log_belongs_to_one_configuration(tmp_path):
    config = make_config(tmp_path, kind="OFUL")
    store = open_store(config)
    Engine(store, config)
    other = make_config(tmp_path, kind="RunningOFUL")
    with pytest.raises(StoreError, match=r"learner = 'OFUL'.*'RunningOFUL'"):
        Engine(store, other)
    store.close()


def test_changes_of_the_file_win_over_requests_only_when_it_changed(tmp_path):
    config = make_config(tmp_path, kind="OFUL", mode="shadow")

    async def rails(config, change=None):
        async with engine_of(config) as engine:
            if change is not None:
                await engine.configure(change)
            return engine.state.rails

    assert run(rails(config, Configuration(mode="act", share=0.25))).mode == "act"
    # a restart with the same file keeps what was asked for
    assert run(rails(config)).share == 0.25
    # a file that says something new wins
    changed = make_config(tmp_path, kind="OFUL", mode="assist")
    assert run(rails(changed)).mode == "assist"
    assert run(rails(changed, Configuration(killed=True))).killed
    assert run(rails(changed)).killed
    # and what it says as before does not: whoever edits the share does not let go of the kill switch
    ramped = make_config(tmp_path, kind="OFUL", mode="assist", share=0.125)
    now = run(rails(ramped))
    assert (now.mode, now.share, now.killed) == ("assist", 0.125, True)
    assert replayed(ramped)


@pytest.mark.parametrize("error", [KeyError, TypeError, IndexError, np.linalg.LinAlgError])
def test_an_event_that_the_learner_fails_at_teaches_nothing_live_and_at_every_start(
    tmp_path, rng, monkeypatch, caplog, error
):
    config = make_config(tmp_path, kind="OFUL", mode="act")
    encode = make_schema().encode
    observe = sl.OFUL.observe

    def fails_at_seven(self, x, arm, reward) -> None:
        if reward == 7.0:
            raise error("a bug")
        observe(self, x, arm, reward)

    monkeypatch.setattr(sl.OFUL, "observe", fails_at_seven)

    async def live() -> tuple[str, int]:
        async with engine_of(config) as engine:
            for reward in (1.0, 7.0, 0.5):
                number, _, _ = await engine.decide(encode(random_context(rng))[None], None)
                written, *_ = await engine.reward(DecisionId(number), reward, None, None)
                if reward == 7.0:
                    failed = written
            assert engine.ready
            assert (engine.state.counts["rewards"], engine.state.counts["failures"]) == (3, 1)
            assert engine.state.learner.counts.sum() == 2
            assert b"sidelight_learner_failures_total 1.0" in engine.metrics.text()
            assert (await engine.digest())["digest"] == bits(engine.state)
            return bits(engine.state), failed

    digest, failed = run(live())
    assert f"could not learn from event {failed}: {error.__name__}" in caplog.text
    assert replayed(config) == digest

    async def after() -> None:
        async with engine_of(config) as engine:
            assert engine.ready
            assert bits(engine.state) == digest

    run(after())


def out_of_memory(*_: object) -> None:
    raise MemoryError


def test_the_digest_is_computed_once_for_each_event(tmp_path, rng, monkeypatch):
    config = make_config(tmp_path, kind="OFUL", mode="act")
    x = make_schema().encode(random_context(rng))[None]

    async def live() -> None:
        async with engine_of(config) as engine:
            computed: list[int] = []
            snapshot = engine.state.snapshot
            monkeypatch.setattr(engine.state, "snapshot", lambda at: computed.append(1) or snapshot(at))
            number, _, _ = await engine.decide(x, None)
            before = await engine.digest()
            assert await engine.digest() == before
            assert len(computed) == 1
            await engine.reward(DecisionId(number), 1.5, None, None)
            after = await engine.digest()
            assert after["event"] == before["event"] + 1
            assert after["digest"] == snapshot(0.0).digest != before["digest"]
            assert len(computed) == 2

    run(live())


def test_a_server_whose_fold_fails_says_so_and_is_not_ready(tmp_path, rng, monkeypatch, caplog):
    """Not the learner's fault: requests do not wait in vain, and what was written is learned from after a restart."""
    config = make_config(tmp_path, kind="OFUL", mode="act")
    x = make_schema().encode(random_context(rng))[None]

    async def live() -> int:
        async with engine_of(config) as engine:
            number, _, _ = await engine.decide(x, None)
            with monkeypatch.context() as patched:
                patched.setattr(engine.state.learner, "observe", out_of_memory)
                with pytest.raises(Problem, match="stuck at event 3"):
                    await asyncio.wait_for(engine.reward(DecisionId(number), 1.0, None, None), 5)
            assert not engine.ready
            with pytest.raises(Problem, match="stuck"):
                await asyncio.wait_for(engine.decide(x, None), 5)
            return engine.store.head()

    head = run(live())
    assert "cannot be folded in" in caplog.text

    async def after() -> None:
        async with engine_of(config) as engine:
            assert engine.ready
            assert (engine.state.number, engine.state.counts["rewards"]) == (head, 1)

    run(after())


def test_overrides_and_conflicts(tmp_path):
    config = make_config(tmp_path, kind="RunningOFUL", mode="act")
    encode = make_schema().encode
    x = np.array([encode(random_context(np.random.default_rng(3)))])

    async def conflict(coroutine) -> None:
        with pytest.raises(Problem) as caught:
            await coroutine
        assert caught.value.kind == "conflict"

    async def live() -> None:
        async with engine_of(config) as engine:
            ids = [DecisionId((await engine.decide(x, None))[0]) for _ in range(4)]
            decided = (await engine.decision(ids[0])).arms[0]
            other = next(arm for arm in ARMS if arm != decided)
            # an action, then its reward: the reward takes the action's arm
            number, new, *_ = await engine.action(ids[0], other, "person")
            assert new
            assert (await engine.action(ids[0], other, "person")) == (number, False, None, False)
            await conflict(engine.action(ids[0], decided, None))
            await conflict(engine.reward(ids[0], 1.0, decided, None))
            await engine.reward(ids[0], 1.0, None, None)
            event = read_history(engine.store, ids[0], engine.schema.n_features)["reward"][1]
            assert isinstance(event, Reward)
            assert (event.arm, event.by) == (other, "person")
            assert engine.state.counts["overrides"] == 1
            # same value again is fine, another one is not, nor is another arm
            assert (await engine.reward(ids[0], 1.0, None, None))[1] is False
            await conflict(engine.reward(ids[0], 1.5, None, None))
            await conflict(engine.reward(ids[0], 1.0, decided, None))
            # an override by the old policy answers the query; the same answer is known, another contradicts
            await engine.reward(ids[1], 0.5, other, "old_policy")
            assert (await engine.behavior(ids[1], Answer(other)))[1] is False
            await conflict(engine.behavior(ids[1], Answer(decided)))
            # an answer first, then an override by the old policy: it counts once
            answers = engine.state.learner.hidden.n_answers
            await engine.behavior(ids[2], Answer(other))
            await engine.reward(ids[2], 0.5, other, "old_policy")
            assert engine.state.learner.hidden.n_answers == answers + 1
            # by a person it is no answer
            await engine.reward(ids[3], 0.5, other, None)
            assert engine.state.learner.hidden.n_answers == answers + 1
            with pytest.raises(Problem) as caught:
                await engine.reward(DecisionId(10_000), 1.0, None, None)
            assert caught.value.kind == "unknown-decision"
            with pytest.raises(Problem) as caught:
                await engine.reward(DecisionId(ids[0].number, 1), 1.0, None, None)
            assert caught.value.kind == "unknown-decision"

    run(live())


def test_two_engines_on_one_database_reach_the_same_state(tmp_path, database, rng):
    """Each decides on its own copy and folds what the other wrote, in the order of the log."""
    config = make_config(tmp_path, kind="RunningOFUL", database=database)

    async def live() -> None:
        async with engine_of(config) as one, engine_of(config) as other:
            await asyncio.gather(traffic(one, rng, 20), traffic(other, rng, 20))
            assert one.state.number > 40
            for engine in (one, other):
                fold = recover(engine.store, upto=engine.state.number, use_snapshots=False).state
                assert bits(engine.state) == bits(fold)
            # one more event makes the one that is behind catch up with everything
            behind, ahead = sorted((one, other), key=lambda engine: engine.state.number)
            await behind.configure(Configuration(share=0.5))
            assert behind.state.number > ahead.state.number

    run(live())


def test_one_key_at_once_from_many_places_decides_once(tmp_path, database):
    """Retries that overtake their first try, in one server and in two, all get the same decision."""
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)
    encode = make_schema().encode
    x = np.array([encode(random_context(np.random.default_rng(6)))])

    async def live() -> None:
        async with engine_of(config) as one, engine_of(config) as other:
            made = await asyncio.gather(
                *(engine.decide(x, None, "once:k", "same request") for engine in (one, other) for _ in range(6))
            )
            assert len({number for number, _, _ in made}) == 1
            assert sum(new for _, _, new in made) == 1
            with pytest.raises(Problem) as caught:
                await other.decide(x, None, "once:k", "another request")
            assert caught.value.kind == "key-reused"
            assert one.store.head() == made[0][0]

    run(live())


def test_receipts_survive_a_snapshot_also_one_from_before_gaps_were_in_them():
    kept = Defaults(7.0, 0.5, 3, {(4, 0): Receipt(0.1, 9, 0.25, (1.5, -2.0)), (5, 1): NOT_TAUGHT, (6, 0): Receipt()})
    assert Defaults.from_dict(json.loads(json.dumps(kept.to_dict()))) == kept
    older = Defaults.from_dict({"receipts": [[4, 0, 0.1, 9, 0.25], [5, 1, 0.0, -1]]})
    assert older.receipts == {(4, 0): Receipt(0.1, 9, 0.25), (5, 1): NOT_TAUGHT}
