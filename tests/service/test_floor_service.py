"""The floor in the service: no decision is taken that could break it, those under way included; replays agree."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx
import numpy as np
import pytest

from sidelight.service.app import create_app
from sidelight.service.config import load_config, save_config
from sidelight.service.core import flooring
from sidelight.service.core.deciding import Ask
from sidelight.service.core.engine import Engine
from sidelight.service.core.proposals import DecisionsProposal
from sidelight.service.core.starting import open_store
from sidelight.service.dashboard.alarms import alarms
from sidelight.service.dashboard.climbing import floor_card
from sidelight.service.dashboard.rolling import Rolling
from sidelight.service.dashboard.watching import odd
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Configuration
from sidelight.service.log.store import Draft, Outdated, Written
from sidelight.service.operations.retention import forget
from sidelight.service.problems import Problem
from sidelight.service.sections import BoundsConfig, GateConfig
from sidelight.service.views.audit import audit
from sidelight.service.views.checkup import check_config
from sidelight.service.views.status import describe_state
from tests.service.helpers import ARMS, bits, engine_of, make_config, replayed, run
from tests.service.test_gate_service import until

ALLOWANCE = {"allowance": 0.2, "noise": 0.5, "weight_bound": 1.0}


def floored(folder, floor=None, mode="act", share=1.0):
    config = make_config(folder, kind="FusedOFUL", mode=mode, share=share)
    settings = {"floor": ALLOWANCE if floor is None else floor}
    config = replace(config, learner=replace(config.learner, settings=settings))
    save_config(config, folder / "sidelight.toml")
    return load_config(folder / "sidelight.toml")


def contexts(engine, n, rng):
    X = np.zeros((n, engine.state.learner.n_features))
    X[:, 0] = 1.0
    X[:, 1:] = 0.3 * rng.normal(size=(n, X.shape[1] - 1))
    return X


def old(arm="low", **more):
    return Ask(answer=Answer(arm), **more)


async def play(engine, rounds, together, rng):
    """Rounds in which ``together`` requests come at once; the old policy's arm pays least."""
    floor = []
    for _ in range(rounds):
        X = contexts(engine, together, rng)
        made = await asyncio.gather(*(engine.decide(X[i : i + 1], [old()]) for i in range(together)))
        floor.append(engine.state.learner.ledger.total)
        await asyncio.gather(
            *(
                engine.reward(DecisionId(number, 0), float(ARMS.index(event.arms[0]) + 0.1 * rng.normal()), None, None)
                for number, event, _ in made
            )
        )
    return floor


def test_decisions_under_way_count_and_a_replay_agrees_to_the_bit(tmp_path):
    """40 at once: with the folded account alone all of them would take the room that there is for one."""
    config = floored(tmp_path)

    async def go():
        async with engine_of(config) as engine:
            room = await play(engine, 12, 40, np.random.default_rng(0))
            assert min(room) >= 0.0
            found = describe_state(engine.state)["floor"]
            assert found["rounds"] == 480
            assert 0 < found["kept"] < 480
            assert found["room"] == engine.state.learner.ledger.total
            assert found["allowance"] == 0.2
            card = str(floor_card(engine.state))
            assert "the old policy&#39;s reward less 0.200 a decision" in card
            assert f"{found['kept']} of 480 decisions" in card
            return bits(engine.state)

    assert run(go()) == replayed(config)


def test_a_wait_without_end_is_said_before_and_while_it_holds_up_the_floor(tmp_path):
    config = floored(tmp_path)
    (warned,) = [line for line in check_config(config) if "reward_after" in line]
    assert warned.startswith("warning: [learner.settings] floor without [gate] reward_after")
    waiting = replace(config, gate=replace(config.gate, reward_after="7d"))
    assert not any("reward_after" in line for line in check_config(waiting))

    async def go():
        rng = np.random.default_rng(17)
        async with engine_of(config) as engine:
            rolling = Rolling(engine.state.learner.arms, engine.state.learner.n_features)
            number, event, _ = await engine.decide(contexts(engine, 120, rng), [old()] * 120)
            names = list(engine.schema.encoded_names)

            def said():
                return [alarm for alarm in alarms(engine.state, rolling, names, 0.0) if alarm.kind == "floor"]

            for i in range(1, 100):
                await engine.reward(DecisionId(number, i), 0.3, event.arms[i], None)
            assert said() == []  # rewards that are late for a while are no alarm
            for i in range(100, 120):
                await engine.reward(DecisionId(number, i), 0.3, event.arms[i], None)
            (alarm,) = said()
            assert alarm.words.startswith("119 rewards that came tell the floor nothing: they wait behind 1 decisions")
            assert "Set [gate] reward_after" in alarm.remedy
            assert "Set [gate] reward_after" in str(odd([alarm]))
            await engine.reward(DecisionId(number, 0), 0.3, event.arms[0], None)
            assert said() == []

    run(go())


def test_the_folded_account_alone_would_break_it(tmp_path, monkeypatch):
    """The fault that the account of decisions under way prevents."""
    monkeypatch.setattr(flooring.Account, "record", lambda self, *decision: None)
    config = floored(tmp_path)

    async def go():
        async with engine_of(config) as engine:
            return min(await play(engine, 12, 40, np.random.default_rng(0)))

    assert run(go()) < 0.0


async def play_on_two(one, other, rounds, together, rng):
    """Requests come to both servers at once, ``together`` to each; the least room that the floor ever had."""
    room = []
    for _ in range(rounds):
        asked = [(engine, contexts(engine, 1, rng)) for engine in (one, other) for _ in range(together)]
        made = await asyncio.gather(*(engine.decide(x, [old()]) for engine, x in asked))
        await until(lambda: one.state.number == other.state.number)
        room.append(one.state.learner.ledger.total)
        assert room[-1] == other.state.learner.ledger.total
        await asyncio.gather(
            *(
                one.reward(DecisionId(number, 0), float(ARMS.index(event.arms[0]) + 0.1 * rng.normal()), None, None)
                for number, event, _ in made
            )
        )
    return min(room)


@pytest.mark.parametrize("together", [1, 15])
def test_several_servers_share_one_room(tmp_path, together):
    """What another server decided counts before anything is written, long before the log is looked at again."""
    config = floored(tmp_path)

    async def go():
        async with engine_of(config) as one, engine_of(config) as other:
            assert await play_on_two(one, other, 12, together, np.random.default_rng(3)) >= 0.0
            found = describe_state(one.state)["floor"]
            assert found["rounds"] == 24 * together  # every request was answered once
            assert found["kept"] < found["rounds"]
            await until(lambda: one.state.number == other.state.number)
            return bits(one.state), bits(other.state)

    assert set(run(go())) == {replayed(config)}


def test_a_decision_that_does_not_count_another_server_s_is_not_written(tmp_path):
    config = floored(tmp_path)

    async def go():
        async with engine_of(config) as one, engine_of(config) as other:
            X = contexts(one, 3, np.random.default_rng(3))
            one.choose(X[:1], [old()])  # under way here, and never written
            event, number = one.choose(X[1:2], [old()]), one.state.number
            counted = one._decider.account.before(event)
            assert counted == 1
            # one event with decisions comes after the last that was known, but not the one that was counted
            await other.decide(X[2:], [old()])

            async def becomes(counted):
                return type(await one.submit(DecisionsProposal(Draft.of(event, None, number, counted))))

            assert await becomes(counted) is Outdated
            assert await becomes(0) is Outdated
            assert await becomes(None) is Written  # without a floor nobody looks
            assert one.state.learner.ledger.rounds == 2

    run(go())


def test_a_decision_that_counts_one_that_was_not_written_is_made_anew(tmp_path):
    """A request that turns out to be a retry earned no room: who counted on it decides again."""
    config = floored(tmp_path)

    async def go():
        async with engine_of(config) as engine:
            rng = np.random.default_rng(4)
            X = contexts(engine, 3, rng)
            first = await engine.decide(X[:1], [old()], key="k", fingerprint="f")
            chosen = []
            choose = engine.choose

            def counting(*asked):
                chosen.append(choose(*asked))
                return chosen[-1]

            engine.choose = counting
            again, behind = await asyncio.gather(
                engine.decide(X[:1], [old()], key="k", fingerprint="f"), engine.decide(X[1:2], [old()])
            )
            assert again[0] == first[0]
            assert not again[2]
            assert behind[2]
            assert len(chosen) == 3  # the retry, and the other one twice
            assert engine.state.learner.ledger.rounds == 2
            await engine.decide(X[2:], [old()])
            assert len(chosen) == 4  # alone there is nothing to wait for
            return bits(engine.state)

    assert run(go()) == replayed(config)


def test_a_batch_counts_its_own_decisions_and_the_old_route_does_not(tmp_path):
    config = floored(tmp_path, share=0.5)

    async def go():
        async with engine_of(config) as engine:
            rng = np.random.default_rng(1)
            kept = 0
            for _ in range(6):
                X = contexts(engine, 60, rng)
                number, event, _ = await engine.decide(X, [old()] * 60)
                assert engine.state.learner.ledger.total >= 0.0
                kept += event.routes.count("learner")
                rewards = [float(ARMS.index(arm) + 0.1 * rng.normal()) for arm in event.arms]
                await asyncio.gather(
                    *(engine.reward(DecisionId(number, i), r, None, None) for i, r in enumerate(rewards))
                )
            assert engine.state.learner.ledger.rounds == kept
            i = next(i for i in range(60) if event.routes[i] == "learner")
            assert audit(engine.store, engine.schema, DecisionId(number, i))["learner"]["reproduced"]
            return bits(engine.state)

    assert run(go()) == replayed(config)


def test_without_the_old_policys_arm_the_learner_may_not_act(tmp_path):
    config = floored(tmp_path)

    async def go():
        async with engine_of(config) as engine:
            X = contexts(engine, 2, np.random.default_rng(2))
            with pytest.raises(Problem, match="under a floor"):
                await engine.decide(X[:1], None)
            with pytest.raises(Problem, match="/decisions/1/behavior"):
                await engine.decide(X, [old(), Ask()])
            with pytest.raises(Problem, match="leaves out 'low'"):
                await engine.decide(X[:1], [old(allowed=["mid", "high"])])
            number, event, _ = await engine.decide(X[:1], [old(allowed=["low", "high"])])
            assert event.arms == ["low"]
            assert number == engine.state.number

    run(go())


def test_in_shadow_the_learner_says_what_it_would_do_freely(tmp_path):
    config = floored(tmp_path, mode="shadow")

    async def go():
        async with engine_of(config) as engine:
            X = contexts(engine, 30, np.random.default_rng(3))
            _, event, _ = await engine.decide(X, None)
            assert event.arms == [None] * 30
            assert set(event.recommended) - {"low"}
            assert engine.state.learner.ledger.rounds == 0

    run(go())


# ------------------------------------------------------------------------- rewards, in the order of decisions


def counted(engine) -> tuple[int, int, int]:
    """How many rewards the floor knows, how many have not come, and how many wait behind those."""
    found = describe_state(engine.state)["floor"]
    return found["counted"], found["awaited"], found["behind"]


async def decided(engine, n: int, rng) -> list[DecisionId]:
    """``n`` decisions of the learner, in one event."""
    number, event, _ = await engine.decide(contexts(engine, n, rng), [old(subject=f"s{i}") for i in range(n)])
    return [DecisionId(number, i, event.epoch) for i in range(n)]


def test_rewards_count_in_the_order_of_decisions(tmp_path):
    """Also those of the old policy's route, of overrides, and across a snapshot."""
    config = floored(tmp_path, share=0.5)

    async def go():
        rng = np.random.default_rng(7)
        async with engine_of(config) as engine:
            ids = await decided(engine, 6, rng)
            for id in (ids[4], ids[1], ids[2]):
                await engine.reward(id, 0.3, None, None)
            assert counted(engine) == (0, 3, 3)
            assert engine.state.learner.counts.sum() == 3  # the learner does not wait
            card = str(floor_card(engine.state))
            assert "0; 3 have not come, 3 wait behind these" in card
            assert "holds up all behind it for ever: set [gate] reward_after" in card
        async with engine_of(config) as engine:
            assert counted(engine) == (0, 3, 3)
            await engine.reward(ids[0], 0.3, "high", "person")
            assert counted(engine) == (3, 2, 1)
            assert engine.state.learner.ledger.counts[ARMS.index("high")] >= 1
            await engine.reward(ids[3], 0.3, None, None)
            await engine.reward(ids[5], 0.3, None, None)
            assert counted(engine) == (6, 0, 0)
            assert await engine.check_itself() is True
            return bits(engine.state)

    assert run(go()) == replayed(config)


def test_a_wait_that_is_over_counts_and_what_comes_later_does_not(tmp_path):
    config = replace(floored(tmp_path), gate=GateConfig(reward_after="1h", default_reward=0.0))
    save_config(config, tmp_path / "sidelight.toml")
    now = [1_000_000.0]

    async def go():
        async with engine_of(config, now) as engine:
            ids = await decided(engine, 4, np.random.default_rng(7))
            await engine.reward(ids[2], 0.5, None, None)
            assert counted(engine) == (0, 3, 1)
            now[0] += 3_601.0
            assert await engine._waits.end() == 3
            assert counted(engine) == (4, 0, 0)
            before = engine.state.learner.ledger.total
            await engine.reward(ids[0], 0.9, None, None)
            assert engine.state.reward_sums["low"] == pytest.approx(1.4)  # the learner learns what came late
            assert engine.state.learner.ledger.total == before
            return bits(engine.state)

    assert run(go()) == replayed(config)


def test_a_wait_that_begins_later_leaves_earlier_decisions_alone(tmp_path):
    """No default will ever come for them, so the floor does not wait either."""
    config = floored(tmp_path)

    async def go():
        rng = np.random.default_rng(7)
        async with engine_of(config) as engine:
            ids = await decided(engine, 3, rng)
            await engine.reward(ids[1], 0.5, None, None)
            assert counted(engine) == (0, 2, 1)
        waits = replace(config, gate=GateConfig(reward_after="1h"))
        async with engine_of(waits) as engine:
            assert counted(engine) == (1, 0, 0)
            return bits(engine.state)

    assert run(go()) == replayed(config)


@pytest.mark.parametrize("right", [True, False])
def test_the_floor_waits_for_who_looks_through_the_quarantine(tmp_path, right):
    config = replace(
        floored(tmp_path), bounds=BoundsConfig(reward=[-5, 5]), gate=GateConfig(reward_after="1h", default_reward=0.0)
    )
    save_config(config, tmp_path / "sidelight.toml")
    now = [1_000_000.0]

    async def go():
        async with engine_of(config, now) as engine:
            ids = await decided(engine, 2, np.random.default_rng(7))
            noted = await engine.reward(ids[0], -9.0, None, None)
            now[0] += 3_601.0
            assert await engine._waits.end() == 2
            assert counted(engine) == (0, 1, 1)
            await engine.reviews.decide_doubt(DecisionId(noted.number), right, None, "looked at")
            assert counted(engine) == (2 if right else 1, 0, 0)
            assert engine.state.learner.ledger.moments[:, 0].sum() == (-9.0 if right else 0.0)
            assert await engine.check_itself() is True
            return bits(engine.state)

    assert run(go()) == replayed(config)


def test_what_is_retracted_counts_for_nothing(tmp_path):
    config = floored(tmp_path)

    async def go():
        async with engine_of(config) as engine:
            ids = await decided(engine, 2, np.random.default_rng(7))
            for id in ids:
                await engine.reward(id, 0.5, None, None)
            assert counted(engine) == (2, 0, 0)
            await engine.reviews.retract(ids[0], None, "another person's")
            assert counted(engine) == (1, 0, 0)
            return bits(engine.state)

    assert run(go()) == replayed(config)


def test_who_is_forgotten_is_not_waited_for(tmp_path):
    """And nothing of the context is left in the account."""
    config = floored(tmp_path)

    async def go():
        async with engine_of(config) as engine:
            ids = await decided(engine, 3, np.random.default_rng(7))
            await engine.reward(ids[2], 0.5, None, None)
            await engine.reward(ids[1], 0.5, None, None)
            forget(engine.store, "s0", erase=False)
            await until(lambda: counted(engine) == (2, 0, 0))
            assert not len(engine.state.learner.ledger.state()["floor_awaited"])
            return bits(engine.state)

    assert run(go()) == replayed(config)


@pytest.mark.parametrize("seed", [1, 2])
def test_two_servers_edited_settings_jumping_clocks_and_delays_by_arm(tmp_path, seed):
    """Whatever order things come in, both servers and a replay agree to the bit, and every decision is counted once.

    Rewards of "high" come last, some never; clocks of the servers differ and jump both ways; shares and waits are
    edited, and both servers stop and start, meanwhile."""
    config = replace(floored(tmp_path, share=0.7), gate=GateConfig(reward_after="1h", default_reward=0.1))
    rng, now = np.random.default_rng(seed), [[1e6], [1e6 + 500.0]]
    waiting: list[tuple[int, DecisionId]] = []
    asked = 0

    async def act(engines) -> None:
        nonlocal asked
        for _ in range(60):
            engine = engines[int(rng.integers(2))]
            what = rng.random()
            if what < 0.5:
                n = int(rng.integers(1, 4))
                number, event, _ = await engine.decide(contexts(engine, n, rng), [old("mid") for _ in range(n)])
                late = {"low": 2, "mid": 5, "high": 40}
                waiting.extend((late[arm], DecisionId(number, i, event.epoch)) for i, arm in enumerate(event.arms))
                asked += n
            elif what < 0.8 and waiting:
                waiting.sort()
                _, id = waiting.pop(0)
                await until(lambda engine=engine, id=id: engine.state.number >= id.number)
                await engine.reward(id, float(rng.normal()), None, None)
            elif what < 0.9:
                now[int(rng.integers(2))][0] += float(rng.choice([-4_000.0, 100.0, 5_000.0]))
                await engine._waits.end()
            else:
                await engine.configure(Configuration(share=float(rng.choice([0.3, 0.7, 1.0])), source="request"))
        await until(lambda: engines[0].state.number == engines[1].state.number)

    async def go():
        for wait in ("1h", "2h", "30m"):
            edited = replace(config, gate=replace(config.gate, reward_after=wait))
            async with engine_of(edited, now[0]) as one, engine_of(edited, now[1]) as other:
                await act((one, other))
                assert bits(one.state) == bits(other.state)
                found = describe_state(one.state)
                assert sum(counted(one)) == asked
                assert found["counts"].get("default rewards", 0) <= asked
        return bits(one.state)

    assert run(go()) == replayed(config)


def test_over_http_the_floor_is_in_the_status_and_in_the_metrics(tmp_path):
    config = floored(tmp_path, floor={"share": 0.1, "noise": 0.5, "weight_bound": 1.0})

    async def go():
        store = open_store(config)
        engine = Engine(store, config)
        app = create_app(engine)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                context = {"age": 0.1, "dose": 0.2, "ward": "north", "severity": True, "pain": 0.0}
                refused = await client.post("/v1/decisions", json={"context": context})
                assert refused.status_code == 422
                assert refused.json()["errors"][0]["pointer"] == "/behavior"
                made = await client.post("/v1/decisions", json={"context": context, "behavior": {"arm": "mid"}})
                assert made.status_code == 201
                assert made.json()["arm"] == "mid"  # nothing is known yet, so nothing may be risked
                floor = (await client.get("/v1/status")).json()["floor"]
                assert floor["rounds"] == 1
                assert "sidelight_floor_room" in (await client.get("/metrics")).text
        store.close()

    run(go())


def test_a_learner_without_a_floor_says_none(tmp_path):
    async def go():
        async with engine_of(make_config(tmp_path, kind="OFUL")) as engine:
            assert describe_state(engine.state)["floor"] is None

    run(go())
