"""A value out of bounds is written down and kept from the learner, until a person releases or discards it."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import httpx
import numpy as np
import pytest

import sidelight as sl
from sidelight.errors import InputError
from sidelight.learners.saving import learner_bytes
from sidelight.learners.wild import LIMITS, REWARD_LIMIT
from sidelight.service.app import create_app
from sidelight.service.config import load_config, save_config
from sidelight.service.core.bounds import Bounds
from sidelight.service.core.deciding import Ask
from sidelight.service.core.engine import Engine
from sidelight.service.core.recovery import recover
from sidelight.service.core.seen import Seen
from sidelight.service.core.starting import open_store
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Behavior, Configuration, Release, Reward
from sidelight.service.log.rows import event_from_row, event_to_row
from sidelight.service.operations.retention import forget
from sidelight.service.problems import Problem
from sidelight.service.sections import BoundsConfig, GateConfig
from tests.service.helpers import (
    bits,
    command,
    engine_of,
    make_config,
    make_schema,
    make_summary,
    random_context,
    replayed,
    run,
)

encode = make_schema().encode


def bounded(folder, database=None, kind="OFUL", **bounds):
    config = make_config(
        folder, kind=kind, mode="act", snapshot_every=7, **({"database": database} if database else {})
    )
    config = replace(config, bounds=BoundsConfig(**bounds))
    save_config(config, folder / "sidelight.toml")
    return load_config(folder / "sidelight.toml")


async def decided(engine: Engine, rng, **changes) -> DecisionId:
    number, event, _ = await engine.decide(encode(random_context(rng) | changes)[None], None)
    return DecisionId(number, 0, event.epoch)


async def caught_up(*engines: Engine) -> None:
    for _ in range(300):
        if len({engine.state.number for engine in engines}) == 1:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the servers do not agree")


# ---------------------------------------------------------------------------------------------- bounds


def test_bounds_of_the_log_are_those_of_a_wild_value():
    """Mean and standard deviation of the log's values, and the learners' own limits."""
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(900), rng.normal(50.0, 4.0, 900)])
    rewards = rng.normal(10.0, 2.0, 900)
    schema = sl.Schema(["age", "pain"], recorded=["age"], arms=["a", "b"], intercept=True)
    summary = sl.LogSummary.from_arrays(X, ["a", "b"] * 450, rewards, schema)
    bounds = Bounds.of(BoundsConfig(), schema, {"": summary})
    nothing = Seen(3, 0).ranges
    reach = np.sqrt(900.0) * X[:, 1].std(ddof=1)
    reward_reach = REWARD_LIMIT * np.sqrt(900.0) * rewards.std()
    assert LIMITS[0] < np.sqrt(900.0) < LIMITS[1]
    for side in (-1.0, 1.0):
        inside, outside = X[:, 1].mean() + side * reach * (1 - 1e-9), X[:, 1].mean() + side * reach * (1 + 1e-9)
        assert bounds.reason(nothing, np.array([1.0, inside, 1e9])) is None
        assert "age is not within" in (bounds.reason(nothing, np.array([1.0, outside, 0.0])) or "")
        inside = rewards.mean() + side * reward_reach * (1 - 1e-9)
        outside = rewards.mean() + side * reward_reach * (1 + 1e-9)
        x = np.array([1.0, 50.0, 0.0])
        assert bounds.reason(nothing, x, inside) is None
        assert "the reward is not within" in (bounds.reason(nothing, x, outside) or "")


def test_what_is_not_in_the_log_is_bounded_by_what_was_taught():
    seen = Seen(2, None)
    bounds = Bounds(["u", "v"], np.full(3, -np.inf), np.full(3, np.inf), [None] * 3)
    rng = np.random.default_rng(0)
    assert bounds.reason(seen.ranges, np.array([1e9, 1e9]), 1e9) is None
    for _ in range(50):
        seen.add(rng.normal(size=2), float(rng.normal()))
    assert bounds.reason(seen.ranges, np.array([10.0, -10.0]), 10.0) is None
    said = bounds.reason(seen.ranges, np.array([1e9, 0.0]), 1e9) or ""
    assert "u is not within" in said
    assert "the reward is not within" in said
    assert "v is" not in said
    assert "1e+09" not in said, "a value that may have to be deleted"
    again = Seen.from_dict(json.loads(json.dumps(seen.to_dict())))
    for _ in range(30):
        x, r = rng.normal(size=2), float(rng.normal())
        seen.add(x, r)
        again.add(x, r)
    assert again.to_dict() == seen.to_dict()


def test_the_configuration_goes_before_the_log(tmp_path):
    schema = make_schema()
    config = BoundsConfig(reward=[-1, 2], features={"age": [0.0, 120.0]})
    bounds = Bounds.of(config, schema, {"": make_summary()})
    nothing = Seen(schema.n_features, 0).ranges
    x = encode({"age": 50.0, "dose": 0.0, "ward": "north", "severity": False, "pain": 0.0})
    assert bounds.reason(nothing, x, 2.0) is None
    assert "-1 to 2 (as configured)" in (bounds.reason(nothing, x, 2.1) or "")
    x[1] = -0.1
    assert "age is not within 0 to 120 (as configured)" in (bounds.reason(nothing, x) or "")
    with pytest.raises(InputError, match="'height'"):
        Bounds.of(BoundsConfig(features={"height": [0, 1]}), schema, {})
    with pytest.raises(InputError, match=r"\[bounds\] reward = \[2, 1\] must be two numbers"):
        bounded(tmp_path, reward=[2, 1])
    with pytest.raises(InputError, match=r"\[bounds\] features.age = 3"):
        bounded(tmp_path, features={"age": 3})
    off = Bounds.of(BoundsConfig(automatic=False), schema, {"": make_summary()})
    seen = Seen(schema.n_features, 0)
    for _ in range(100):
        seen.add(np.random.default_rng(0).normal(size=schema.n_features), 1.0)
    assert off.reason(seen.ranges, np.full(schema.n_features, 1e12), 1e12) is None


# -------------------------------------------------------------------------------------------- the fold


def test_a_wild_reward_waits_and_is_learned_when_released(tmp_path, database, rng):
    config = bounded(tmp_path, database, reward=[-10, 10])

    async def live() -> None:
        async with engine_of(config) as engine, engine_of(config) as other:
            good, bad = await decided(engine, rng), await decided(engine, rng)
            await engine.reward(good, 1.0, None, None)
            before = learner_bytes(engine.state.learner)
            noted = await engine.reward(bad, 1e9, None, None)
            assert noted.new
            assert "the reward is not within -10 to 10" in str(noted.quarantine)
            assert learner_bytes(engine.state.learner) == before
            assert engine.state.counts["quarantined"] == 1
            assert len(engine.state.quarantine) == 1
            # the same again is the same, another value contradicts: it is recorded
            assert await engine.reward(bad, 1e9, None, None) == (noted.number, False, noted.quarantine, False)
            with pytest.raises(Problem) as caught:
                await engine.reward(bad, 2.0, None, None)
            assert caught.value.kind == "conflict"
            id = DecisionId(noted.number)
            released = await engine.reviews.decide_doubt(id, True, "doctor", "the unit is right")
            assert released.new
            assert await engine.reward(bad, 1e9, None, None) == (noted.number, False, None, False)
            assert await engine.reviews.decide_doubt(id, True, "doctor", "again") == released._replace(new=False)
            assert len(engine.state.quarantine) == 0
            by_hand = config.build_learner()
            for decision, reward in ((good, 1.0), (bad, 1e9)):
                event = await engine.decision(decision)
                by_hand.observe(event.contexts[0], event.arms[0], reward)
            assert learner_bytes(engine.state.learner) == learner_bytes(by_hand)
            learned = DecisionId(await reward_number(engine, good))
            with pytest.raises(Problem, match="not in quarantine"):
                await engine.reviews.decide_doubt(learned, True, None, None)
            with pytest.raises(Problem, match="no reward, action or answer"):
                await engine.reviews.decide_doubt(good, True, None, None)
            await caught_up(engine, other)
            assert bits(other.state) == bits(engine.state)
            # and back: what was released can be retracted, from every replay
            await engine.reviews.retract(bad, "doctor", "it was a slip after all")
            assert learner_bytes(engine.state.learner) == before
            assert await engine.check_itself() is True
            await caught_up(engine, other)
            assert bits(other.state) == bits(engine.state)

    async def reward_number(engine: Engine, id: DecisionId) -> int:
        return (await engine.read(engine.store.find, [f"reward:{id}"]))[f"reward:{id}"].number

    run(live())
    assert recovered(config) == replayed(config)


@pytest.mark.parametrize("twin", [False, True])
def test_a_server_that_hears_of_release_and_retraction_at_once_unlearns_it(tmp_path, database, rng, monkeypatch, twin):
    """What it knows to be in quarantine is taught and taken back by the same news."""
    config = bounded(tmp_path, database, reward=[-10, 10])
    if twin:
        monkeypatch.setattr("sidelight.service.core.folding.LARGE", 0)

    async def live() -> None:
        async with engine_of(config) as engine, engine_of(config) as other:
            bad = await decided(engine, rng)
            noted = await engine.reward(bad, 1e9, None, None)
            await caught_up(engine, other)
            other.committer._poll = 1e6
            await asyncio.sleep(2 * config.storage.poll_seconds)
            await engine.reviews.decide_doubt(DecisionId(noted.number), True, "doctor", "the unit is right")
            await engine.reviews.retract(bad, "doctor", "it was a slip after all")
            with pytest.raises(Problem, match="was retracted; it cannot be released"):  # it was called repeated
                await engine.reviews.decide_doubt(DecisionId(noted.number), True, "doctor", "right after all")
            assert other.state.number == noted.number
            await other.configure(Configuration(fallback="mid"))
            assert other.state.learner.counts.sum() == 0
            assert bits(other.state) == bits(recover(other.store, use_snapshots=False).state)

    run(live())
    assert recovered(config) == replayed(config)


def recovered(config) -> str:
    store = open_store(config)
    try:
        return bits(recover(store).state)
    finally:
        store.close()


def test_a_discarded_one_never_teaches_and_costs_no_refold(tmp_path, rng, monkeypatch):
    config = bounded(tmp_path, features={"pain": [-5, 5]})

    async def live() -> str:
        async with engine_of(config) as engine:
            id = await decided(engine, rng, pain=1e6)
            noted = await engine.reward(id, 1.0, None, None)
            assert "pain is not within -5 to 5" in str(noted.quarantine)
            monkeypatch.setattr("sidelight.service.core.folding.recover", None)
            await engine.reviews.decide_doubt(DecisionId(noted.number), False, "doctor", "a slip")
            monkeypatch.undo()
            assert engine.state.learner.counts.sum() == 0
            assert len(engine.state.quarantine) == 0
            with pytest.raises(Problem, match="was retracted"):
                await engine.reviews.decide_doubt(DecisionId(noted.number), True, "doctor", "no, right")
            assert await engine.check_itself() is True
            return bits(engine.state)

    assert run(live()) == replayed(config)


def test_answers_at_wild_contexts_wait_too(tmp_path, rng):
    config = bounded(tmp_path, kind="RunningOFUL", features={"pain": [-5, 5]})

    async def live() -> str:
        async with engine_of(config) as engine:
            wild = encode(random_context(rng) | {"pain": 1e6})
            tame = encode(random_context(rng))
            before = learner_bytes(engine.state.learner)
            asks = [Ask(answer=Answer("mid")), Ask(answer=Answer("low"))]
            number, event, _ = await engine.decide(np.stack([tame, wild]), asks)
            assert event.quarantine is not None
            assert [why is None for why in event.quarantine] == [True, False]
            after = learner_bytes(engine.state.learner)
            assert after != before, "the tame one is learned"
            at = await engine.behavior_at(wild, Answer("high"), None, None)
            assert at.quarantine
            told = await engine.behavior(DecisionId((await engine.decide(wild[None], None))[0]), Answer("low"))
            assert told.quarantine
            assert learner_bytes(engine.state.learner) == after
            names = [DecisionId(number, 1), DecisionId(at.number), DecisionId(told.number)]
            by_hand = recover(engine.store).state.learner
            for name, arm in zip(names, ("low", "high", "low"), strict=True):
                await engine.reviews.decide_doubt(name, True, None, "right")
                by_hand.observe_behavior(wild, arm, probability=1.0)
                assert learner_bytes(engine.state.learner) == learner_bytes(by_hand)
            await engine.reviews.retract(DecisionId(number, 1), None, "wrong", "behavior")
            await engine.reviews.retract(DecisionId(number, 0), None, "wrong", "behavior")
            assert await engine.check_itself() is True
            return bits(engine.state)

    assert run(live()) == replayed(config)


def test_a_base_keeps_what_waits(tmp_path, rng):
    """Forgetting somebody keeps a base; what waited before it can still be released, and discarded."""
    config = bounded(tmp_path, reward=[-10, 10])

    async def live() -> str:
        async with engine_of(config) as engine:
            ids = [await decided(engine, rng) for _ in range(3)]
            waits = [await engine.reward(id, 100.0 + i, None, None) for i, id in enumerate(ids)]
            number, *_ = await engine.decide(encode(random_context(rng))[None], [Ask(subject="anna")])
            anna = DecisionId(number)
            hers = await engine.reward(anna, 99.0, None, None)
            await engine.reward(await decided(engine, rng), 1.0, None, None)
            forget(engine.store, "anna", erase=False)
            await decided(engine, rng)
            assert len(engine.state.quarantine) == 4
            await engine.reviews.decide_doubt(DecisionId(waits[0].number), True, None, "right")
            await engine.reviews.decide_doubt(DecisionId(waits[1].number), False, None, "wrong")
            await engine.reviews.decide_doubt(DecisionId(hers.number), True, None, "right")
            assert engine.state.learner.counts.sum() == 2, "a deleted context teaches nothing"
            await engine.reviews.retract(ids[0], None, "wrong after all")
            assert engine.state.learner.counts.sum() == 1
            assert await engine.check_itself() is True
            await engine.reviews.decide_doubt(DecisionId(waits[2].number), True, None, "right")
            forget_again = (await engine.decide(encode(random_context(rng))[None], [Ask(subject="bert")]))[0]
            assert forget_again
            forget(engine.store, "bert", erase=False)
            await decided(engine, rng)
            with pytest.raises(Problem, match="base after event"):
                await engine.reviews.retract(ids[2], None, "wrong after all")
            return bits(engine.state)

    assert run(live()) == replayed(config)


def test_a_wait_does_not_end_with_what_is_in_quarantine(tmp_path, rng):
    """The default reward is taught meanwhile, and a release takes its place; none is taught at a wild context."""
    config = bounded(tmp_path, reward=[-10, 10], features={"pain": [-5, 5]})
    config = replace(config, gate=GateConfig(reward_after="1s", default_reward=-1.0))

    async def live() -> str:
        async with engine_of(config) as engine:
            id, wild = await decided(engine, rng), await decided(engine, rng, pain=1e6)
            noted = await engine.reward(id, 1e3, None, None)
            engine._waits._clock = replace(engine._waits._clock, now=lambda: time.time() + 60.0)
            assert await engine._waits.end() == 2
            assert await engine._waits.end() == 0
            event = await engine.decision(id)
            by_hand = config.build_learner()
            by_hand.observe(event.contexts[0], event.arms[0], -1.0)
            assert learner_bytes(engine.state.learner) == learner_bytes(by_hand), "the wild context taught nothing"
            await engine.reviews.decide_doubt(DecisionId(noted.number), True, None, "right")
            assert engine.state.learner.counts.sum() == 1
            assert engine.state.reward_sums[event.arms[0]] == 1e3
            late = await engine.reward(wild, 1.0, None, None)
            await engine.reviews.decide_doubt(DecisionId(late.number), True, None, "right")
            assert engine.state.learner.counts.sum() == 2
            # a released one ends the wait: no default is written after it
            third = await decided(engine, rng)
            noted = await engine.reward(third, 1e3, None, None)
            await engine.reviews.decide_doubt(DecisionId(noted.number), True, None, "right")
            assert await engine._waits.end() == 0
            assert await engine.check_itself() is True
            return bits(engine.state)

    assert run(live()) == replayed(config)


def test_a_release_survives_its_row():
    for inner, context in (
        (Reward(DecisionId(3, 1, 7), 2.5, "low"), None),
        (Behavior(Answer("mid", probability=0.25), None, np.arange(3.0)), np.arange(3.0)),
    ):
        event = Release(9, 1, inner, "doctor", "right")
        found = event_from_row(event_to_row(event, 11, 0.0, "release:9"), 3)
        assert isinstance(found, Release)
        assert (found.event, found.position, found.by, found.reason) == (9, 1, "doctor", "right")
        assert type(found.released) is type(inner)
        assert found.decision == inner.decision
        if context is not None:
            assert isinstance(found.released, Behavior)
            assert np.array_equal(found.released.context, context)


# ---------------------------------------------------------------------------------- HTTP, command line


def test_over_http(tmp_path, rng):
    config = bounded(tmp_path, reward=[-10, 10])

    async def live() -> None:
        store = open_store(config)
        app = create_app(Engine(store, config))
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
        ):
            made = [(await http.post("/v1/decisions", json={"context": random_context(rng)})).json() for _ in range(3)]
            path = f"/v1/decisions/{made[0]['id']}"
            noted = (await http.post(f"{path}/reward", json={"reward": 1e6})).json()
            assert "-10 to 10" in noted["quarantine"]
            many = [{"decision": made[1]["id"], "reward": 50.0}, {"decision": made[2]["id"], "reward": 5.0}]
            results = (await http.post("/v1/rewards", json={"rewards": many})).json()["results"]
            assert ["quarantine" in result for result in results] == [True, False]
            status = (await http.get("/v1/status")).json()
            assert status["quarantine"]["waiting"] == 2
            listed = (await http.get("/v1/quarantine")).json()
            assert listed["waiting"] == 2
            assert [(item["decision"], item["reward"], item["what"]) for item in listed["newest"]] == [
                (made[1]["id"], 50.0, "reward"),
                (made[0]["id"], 1e6, "reward"),
            ]
            metrics = (await http.get("/metrics")).text
            assert "sidelight_quarantined_total 2.0" in metrics
            assert "sidelight_quarantine_waiting 2.0" in metrics
            review = f"/v1/quarantine/{listed['newest'][0]['id']}"
            right = {"release": True, "reason": "the dose was doubled"}
            assert (await http.post(review, json=right)).status_code == 201
            assert (await http.post(review, json=right)).json()["repeated"] is True
            body = (await http.get(f"/v1/decisions/{made[1]['id']}")).json()
            assert body["reward"]["quarantine"]
            assert body["reviews"][0]["reason"] == "the dose was doubled"
            assert body["reviews"][0]["released"] is True
            assert (await http.post("/v1/quarantine/x", json=right)).status_code == 404
            assert (await http.post("/v1/quarantine/1", json=right)).status_code == 404
            assert (await http.post(review, json={"release": "yes"})).status_code == 422
            # retraction, twice the same
            wrong = f"/v1/decisions/{made[2]['id']}/retraction"
            assert (await http.post(wrong, json={"reason": "a slip"})).status_code == 201
            assert (await http.post(wrong, json={"reason": "a slip"})).status_code == 200
            nothing = await http.post(wrong, json={"reason": "a slip", "what": "action"})
            assert nothing.status_code == 409
            assert "no action" in nothing.json()["detail"]
            assert (await http.post(wrong, json={})).status_code == 422
        store.close()

    run(live())


def test_the_command(tmp_path, rng):
    config = bounded(tmp_path, reward=[-10, 10])

    async def live() -> int:
        async with engine_of(config) as engine:
            return (await engine.reward(await decided(engine, rng), 1e6, None, None)).number

    number = run(live())
    listed = command("quarantine", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert "1 waits in quarantine" in listed.stdout
    assert f"{number}: reward 1000000.0" in listed.stdout
    assert "--reason" in command("quarantine", str(number), "--release", cwd=tmp_path).stderr
    done = command("quarantine", str(number), "--release", "--reason", "right", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["repeated"] is False
    assert "before" in command("quarantine", str(number), "--release", "--reason", "right", cwd=tmp_path).stdout
    assert "Nothing waits" in command("quarantine", cwd=tmp_path).stdout
    assert json.loads(command("replay", "--json", cwd=tmp_path).stdout)["equal"] is True
    audited = json.loads(command("audit", "2", cwd=tmp_path).stdout)
    assert audited["followed"]["reviews"][0]["released"] is True
