"""The gate in the service: events, one step for several servers, replays to the bit, people who hold and undo."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

import sidelight as sl
from sidelight.errors import InputError
from sidelight.judging.sequences import mostly_first
from sidelight.service.app import create_app
from sidelight.service.config import BoundsConfig, GateConfig, load_config, save_config
from sidelight.service.core import waits
from sidelight.service.core.deciding import Ask
from sidelight.service.core.engine import Engine
from sidelight.service.core.proposals import GateProposal
from sidelight.service.core.starting import open_store
from sidelight.service.dashboard.climbing import gate_card, waits_card
from sidelight.service.dashboard.rolling import Rolling
from sidelight.service.dashboard.watching import changes
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Configuration, DefaultReward, GateStep
from sidelight.service.log.rows import event_from_row
from sidelight.service.problems import Problem
from sidelight.service.views.audit import audit
from sidelight.service.views.status import describe_state
from tests.service.helpers import ARMS, bits, engine_of, make_config, replayed, run

GATE = GateConfig(promote="automatic", ladder=[0.5, 1.0], error_rate=0.1, holdout=0.1, reward_after="1h")


def gated(folder, kind="OFUL", **changes):
    """A service in act mode on the first rung of a ladder."""
    config = make_config(folder, kind="OFUL" if kind == "OFUL" else "RunningOFUL", mode="act", share=0.5)
    settings = {"horizon": 500} if kind == "EpochOFUL" else {}
    config = replace(config, learner=replace(config.learner, kind=kind, settings=settings))
    config = replace(config, gate=replace(GATE, **changes))
    save_config(config, folder / "sidelight.toml")
    return load_config(folder / "sidelight.toml")


async def traffic(engine, batches: int, gain: float, rng, size: int = 200, rewarded: bool = True) -> list[DecisionId]:
    """Batches of decisions; the learner's route earns ``gain`` more, noise 0.3."""
    ids: list[DecisionId] = []
    for _ in range(batches):
        X = np.zeros((size, engine.state.learner.n_features))
        X[:, 0] = 1.0
        X[:, 1] = rng.normal(size=size)
        number, event, _ = await engine.decide(X, None)
        found = [DecisionId(number, position) for position in range(size)]
        ids += found
        if rewarded:
            rewards = [gain * (route == "learner") + 0.3 * rng.normal() for route in event.routes]
            await asyncio.gather(
                *(engine.reward(id, float(r), None, None) for id, r in zip(found, rewards, strict=True))
            )
    return ids


def steps_of(engine) -> list[GateStep]:
    rows = engine.store.of_kind(GateStep.kind)
    return [event_from_row(row, 0) for row in rows]  # type: ignore[misc]


async def until(condition) -> None:
    for _ in range(6_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


def test_a_better_learner_is_promoted_once_and_a_replay_agrees_to_the_bit(tmp_path):
    config = gated(tmp_path)

    async def play():
        async with engine_of(config) as engine:
            assert engine.state.gate.rung == 0
            ids = await traffic(engine, 8, 0.5, np.random.default_rng(1))
            await until(lambda: engine.state.rails.share == 0.9)
            (step,) = steps_of(engine)
            assert (step.before, step.after, step.by) == (0, 1, None)
            assert step.evidence["low"] > 0
            assert engine.state.gate.rung == 1
            late = (await traffic(engine, 1, 0.5, np.random.default_rng(2), size=3))[0]
            found = audit(engine.store, engine.schema, late)["in_force"]["changes"]
            assert [c["share"] for c in found if c["source"] == "gate"] == [0.9]
            assert audit(engine.store, engine.schema, ids[0])["in_force"]["changes"][-1]["source"] == "file"
            return bits(engine.state), describe_state(engine.state)["gate"]

    digest, described = run(play())
    assert described["rung"] == 1
    assert described["proposal"] is None
    assert replayed(config) == digest


def test_two_servers_take_one_step(tmp_path):
    config = gated(tmp_path)

    async def play():
        async with engine_of(config) as one, engine_of(config) as other:
            rng = np.random.default_rng(3)
            for _ in range(5):
                await asyncio.gather(traffic(one, 1, 0.5, rng), traffic(other, 1, 0.5, rng))
            await until(lambda: one.state.rails.share == other.state.rails.share == 0.9)
            assert len(steps_of(one)) == 1
            await until(lambda: one.state.number == other.state.number)
            assert bits(one.state) == bits(other.state)

    run(play())


def test_a_worse_learner_falls_back_and_an_open_one_stays(tmp_path):
    async def play(folder, gain):
        async with engine_of(gated(folder)) as engine:
            await traffic(engine, 8, gain, np.random.default_rng(4))
            await asyncio.sleep(0.1)
            return engine.state.rails.share, len(steps_of(engine))

    for name, gain, expected in (("worse", -0.5, (0.0, 1)), ("equal", 0.0, (0.5, 0))):
        (tmp_path / name).mkdir()
        assert run(play(tmp_path / name, gain)) == expected


@pytest.mark.parametrize("mode", ["act", "shadow"])
def test_a_wait_that_is_set_later_frees_the_evidence(tmp_path, mode):
    """No wait ends for decisions from before it: one of them without a reward held up all that came later."""
    without = make_config(tmp_path, kind="OFUL", mode=mode, share=0.5)
    waiting = replace(without, gate=GateConfig(reward_after="1h"))
    rng, now = np.random.default_rng(6), [1e6]

    async def play(config, unrewarded):
        async with engine_of(config, now) as engine:
            if unrewarded:
                await traffic(engine, 1, 0.5, rng, size=3, rewarded=False)
            for _ in range(3):
                number, event, _ = await engine.decide(np.ones((50, engine.state.learner.n_features)), None)
                for i, route in enumerate(event.routes):
                    await engine.reward(DecisionId(number, i), float(route == "learner"), "low", None)
            gate = engine.state.gate
            return (gate if gate.shadow is None else gate.shadow).waiting, gate.evidence()["units"], bits(engine.state)

    held, _, _ = run(play(without, True))
    assert len(held) == 153
    held, units, digest = run(play(waiting, False))
    assert not held
    assert units == (150 if mode == "act" else 0)  # in shadow the first 500 teach the model of the old policy
    assert replayed(waiting) == digest


def test_waits_end_with_the_default_reward_once(tmp_path):
    """By a fake clock: an hour later decisions without a reward count as 0, for the evidence and for the learner."""
    config = gated(tmp_path)
    now = [1_000_000.0]

    async def play():
        async with engine_of(config, now) as engine:
            ids = await traffic(engine, 1, 0.0, np.random.default_rng(0), size=5, rewarded=False)
            await engine.reward(ids[1], 1.0, None, None)
            ending = engine._waits
            assert await ending.end() == 0
            assert len(engine.state.gate.waiting) == 5
            # one of them has its reward and waits behind the first
            assert "5, of which 5 wait for a reward, their own or an earlier unit" in str(gate_card(engine.state.gate))
            assert engine.state.learner.counts.sum() == 1
            now[0] += 3_601.0
            assert await ending.end() == 4
            assert await ending.end() == 0
            assert len(engine.state.gate.waiting) == 0
            assert engine.state.learner.counts.sum() == 5
            kinds = [r.kind for r in engine.store.rows(range(1, engine.state.number + 1)).values()]
            assert kinds.count(DefaultReward.kind) == 4
            described = describe_state(engine.state)
            assert described["counts"]["default rewards"] == 4
            assert sum(arm["rewards"] for arm in described["arms"]) == 5
            return bits(engine.state)

    assert run(play()) == replayed(config)


def test_all_waits_that_are_over_end_at_one_look(tmp_path, monkeypatch):
    """A reward that came between looking and writing ended the look, and the others waited for the next one."""
    config = gated(tmp_path)
    now = [1_000_000.0]

    async def play():
        async with engine_of(config, now) as engine:
            ids = await traffic(engine, 3, 0.0, np.random.default_rng(0), rewarded=False)
            now[0] += 3_601.0
            keeper = engine._waits
            find, faster = waits._due, iter(ids)

            def due(store, *arguments):
                found = find(store, *arguments)
                waiting = engine.reward(next(faster), 1.0, None, None)
                asyncio.run_coroutine_threadsafe(waiting, loop).result()
                return found

            loop = asyncio.get_running_loop()
            monkeypatch.setattr(waits, "_due", due)
            monkeypatch.setattr(waits, "_LOOK_SECONDS", (0.01, 0.01))
            looks: list[int] = []
            sleep = asyncio.sleep

            async def only_once(seconds):
                looks.append(1)
                await sleep(seconds if len(looks) == 1 else 1e6)

            monkeypatch.setattr(waits, "asyncio", SimpleNamespace(sleep=only_once, gather=asyncio.gather))
            watching = asyncio.create_task(keeper.watch())
            await until(lambda: len(looks) == 2)
            watching.cancel()
            assert engine.state.counts["default rewards"] + engine.state.counts["rewards"] >= 600
            assert not engine.state.gate.waiting

    run(play())


@pytest.mark.parametrize("looked", ["not yet", "wrong"])
def test_a_reward_in_quarantine_counts_as_itself_when_its_wait_ends(tmp_path, looked):
    """Losses that are out of bounds would else count as the default reward, and speak for the learner.

    One that a person found wrong counts as one that never came."""
    config = replace(gated(tmp_path), bounds=BoundsConfig(reward=[-5, 5]))
    save_config(config, tmp_path / "sidelight.toml")
    now = [1_000_000.0]

    async def play():
        async with engine_of(config, now) as engine:
            (id,) = await traffic(engine, 1, 0.0, np.random.default_rng(0), size=1, rewarded=False)
            noted = await engine.reward(id, -9.0, None, None)
            assert noted.quarantine
            assert engine.state.gate.waiting[0].reward is None
            if looked == "wrong":
                await engine.reviews.decide_doubt(DecisionId(noted.number), False, None, "wrong")
            later = (await traffic(engine, 1, 0.0, np.random.default_rng(0), size=1, rewarded=False))[0]
            unit = engine.state.gate.waiting[0]
            now[0] += 3_601.0
            assert await engine._waits.end() == 2
            assert later
            assert unit.reward == (-9.0 if looked == "not yet" else 0.0)
            assert sum(engine.state.reward_sums.values()) == 0.0  # the learner is taught the default one
            return bits(engine.state)

    assert run(play()) == replayed(config)


@pytest.mark.parametrize("failing", [0, 2])
def test_a_wait_whose_transaction_failed_ends_the_next_time(tmp_path, monkeypatch, failing):
    """Those behind it, in another transaction, wait with it: the fold takes the last wait for all before it."""
    now = [1_000_000.0]

    async def play():
        async with engine_of(gated(tmp_path), now) as engine:
            for seed in range(4):
                await traffic(engine, 1, 0.0, np.random.default_rng(seed), size=1, rewarded=False)
            now[0] += 3_601.0
            submit, proposed = engine.submit, []

            async def fails_once(proposal):
                proposed.append(proposal)
                if len(proposed) == failing + 1:
                    raise Problem("storage", "the database was away for a moment")
                await asyncio.sleep(0)
                return await submit(proposal)

            monkeypatch.setattr(engine, "submit", fails_once)
            with pytest.raises(Problem):
                await engine._waits.end()
            await asyncio.sleep(0.3)
            assert engine.state.counts["default rewards"] == failing
            assert await engine._waits.end() == 4 - failing
            assert engine.state.counts["default rewards"] == 4

    run(play())


def test_what_a_server_has_not_folded_in_ends_no_wait_for_it(tmp_path):
    """Such an event may be lost again, and the server would pass over the decision for ever."""
    now = [1_000_000.0]

    async def play():
        async with engine_of(gated(tmp_path), now) as engine:
            (id,) = await traffic(engine, 1, 0.0, np.random.default_rng(0), size=1, rewarded=False)
            before = engine.state.number
            now[0] += 3_601.0
            assert await engine._waits.end() == 1
            span, d = (now[0] - 3_600.0, now[0]), engine.state.learner.n_features
            behind, _ = waits._due(engine.store, 0, before, span, d)
            assert [due for due, _ in behind] == [id]
            assert waits._due(engine.store, 0, before + 1, span, d)[0] == []

    run(play())


@pytest.mark.parametrize("kind", ["OFUL", "FusedOFUL", "EpochOFUL"])
def test_a_late_reward_takes_the_place_of_the_default_in_the_learner(tmp_path, kind):
    """Also where it is for another arm, told with the reward or with an action before it."""
    config = gated(tmp_path, kind=kind)
    now = [1_000_000.0]

    async def play():
        async with engine_of(config, now) as engine:
            ids = await traffic(engine, 2, 0.0, np.random.default_rng(0), size=20, rewarded=False)
            now[0] += 3_601.0
            assert await engine._waits.end() == 40
            arms = [
                (await engine.decision(id)).arms[id.position]
                for id in ids  # what each default was taught for
            ]
            other = {"low": "mid", "mid": "high", "high": "low"}
            told = sl.OFUL(3, engine.state.learner.n_features, arms=ARMS)
            now[0] += 86_400.0
            for i, (id, arm) in enumerate(zip(ids, arms, strict=True)):
                taken = other[arm] if i % 4 in (1, 2) else arm
                if i % 4 == 2:
                    await engine.action(id, taken, "person")
                if i % 4 < 3:
                    await engine.reward(id, float(i), taken if i % 4 == 1 else None, None)
                told.observe((await engine.decision(id)).contexts[id.position], taken, float(i) if i % 4 < 3 else 0.0)
            learner = engine.state.learner
            if kind != "EpochOFUL":  # which drops rounds of earlier episodes
                np.testing.assert_array_equal(learner.counts, told.counts)
                np.testing.assert_allclose(learner.state()["moments"], reordered(learner, told.moments), atol=1e-9)
            counts = engine.state.counts
            assert (counts["late rewards"], counts["default rewards"], counts["failures"]) == (30, 40, 0)
            rows = engine.store.find([f"reward:{ids[4]}"])
            event = event_from_row(rows[f"reward:{ids[4]}"], 0)
            assert (event.replaces, event.replaces_arm, event.waited_until) == (0.0, arms[4], 1_003_601.0)
            rolling = Rolling(learner.arms, learner.n_features)
            rolling.fill(engine.store, engine.state.number, learner.n_features, now[0])
            card = str(waits_card(engine.state.defaults, rolling, now[0]))
            assert "waited for 1 hour, then 0 counts" in card
            cells = re.findall(r'<th scope="row">([^<]+)</th><td>([^<]+)</td>', card)
            assert ("an hour up to a day after the wait", "30") in cells
            assert ("no reward in time", "40") in cells
            text = engine.metrics.text().decode()
            assert 'sidelight_late_reward_seconds_bucket{le="3600.0"} 0.0' in text
            assert 'sidelight_late_reward_seconds_bucket{le="86400.0"} 30.0' in text
            assert "sidelight_default_rewards_total 40.0" in text
            (first,) = [a for a in describe_state(engine.state)["arms"] if a["arm"] == "low"]
            assert first["rewards"] == told.counts[0]
            return bits(engine.state)

    assert run(play()) == replayed(config)


def reordered(learner, moments):
    """Sums of contexts in the internal order of a learner."""
    return moments[:, learner.reduction.order]


def test_two_servers_write_one_default_each_and_old_decisions_are_left_alone(tmp_path):
    """Decisions from before anybody waited for rewards stay without one."""
    plain = make_config(tmp_path, kind="OFUL", mode="act")
    now = [1_000_000.0]

    async def before():
        async with engine_of(plain, now) as engine:
            await traffic(engine, 1, 0.0, np.random.default_rng(0), size=4, rewarded=False)

    async def play(config):
        async with engine_of(config, now) as one, engine_of(config, now) as other:
            await traffic(one, 1, 0.0, np.random.default_rng(0), size=300, rewarded=False)
            now[0] += 3_601.0
            await until(lambda: one.state.number == other.state.number)
            ended = await asyncio.gather(*(e._waits.end() for e in (one, other)))
            await until(lambda: one.state.number == other.state.number)
            ended += await asyncio.gather(*(e._waits.end() for e in (one, other)))
            assert sum(ended) == 300
            await until(lambda: one.state.number == other.state.number)
            assert one.state.counts["default rewards"] == 300
            assert bits(one.state) == bits(other.state)
            return bits(one.state)

    run(before())
    now[0] += 100_000.0
    config = gated(tmp_path)
    assert run(play(config)) == replayed(config)


def test_after_a_restart_waits_go_on_where_they_were(tmp_path):
    config = gated(tmp_path)
    now = [1_000_000.0]

    async def play(first: bool):
        async with engine_of(config, now) as engine:
            if first:
                await traffic(engine, 1, 0.0, np.random.default_rng(0), size=400, rewarded=False)
                now[0] += 3_601.0
            return await engine._waits.end()

    assert run(play(True)) == 256
    assert run(play(False)) == 144
    assert run(play(False)) == 0


def test_people_hold_step_and_undo_over_http(tmp_path):
    config = gated(tmp_path, promote="suggest", demote="suggest")

    async def play():
        store = open_store(config)
        engine = Engine(store, config)
        app = create_app(engine)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                await traffic(engine, 8, 0.5, np.random.default_rng(1))
                gate = (await client.get("/v1/status")).json()["gate"]
                assert gate["says"] == "better"
                assert gate["proposal"]["share"] == 0.9
                assert engine.state.rails.share == 0.5
                answers = [
                    await client.post("/v1/gate", json=body)
                    for body in ({"hold": True}, {"step": "up"}, {"step": "up"}, {"step": "down"}, {}, {"step": "in"})
                ]
                assert [a.status_code for a in answers] == [200, 200, 409, 200, 422, 422]
                assert answers[1].json()["rails"]["share"] == 0.9
                assert answers[3].json()["rails"]["share"] == 0.5
                assert "no rung 2" in answers[2].json()["detail"]
                assert engine.state.gate.held
                assert len(steps_of(engine)) == 3
                assert all(step.by for step in steps_of(engine))
                text = (await client.get("/metrics")).text
                assert "sidelight_gate_rung 0.0" in text
                assert 'sidelight_gate_gain{bound="low"} NaN' in text
                answer = await client.post("/v1/mode", json={"share": 0.33})
                assert answer.status_code == 200
                gate = (await client.get("/v1/status")).json()["gate"]
                assert (gate["rung"], gate["share"], gate["says"]) == (-1, 0.33, "too early")
                assert "a share of 33\u00a0% is on no rung" in str(gate_card(engine.state.gate))
                assert "33\u00a0% is on no rung" in (await client.get("/verdict")).text
        store.close()

    run(play())


def test_leaving_the_ladder_takes_a_share_that_is_on_no_rung_too(tmp_path):
    """It was answered with 200, and the learner went on deciding."""
    config = gated(tmp_path, promote="suggest")

    async def play():
        store = open_store(config)
        engine = Engine(store, config)
        app = create_app(engine)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                for body in ({"step": "off"}, {"step": "off", "hold": True}):
                    await client.post("/v1/mode", json={"share": 0.33})
                    for step in ("up", "down"):
                        refused = await client.post("/v1/gate", json={"step": step})
                        assert refused.status_code == 409
                        assert "set a share of the ladder (0.5, 0.9)" in refused.json()["detail"]
                    left = await client.post("/v1/gate", json=body)
                    assert left.status_code == 200
                    assert left.json()["rails"]["share"] == 0.0
                    assert engine.state.rails.share == engine.state.gate.share == 0.0
                    assert engine.state.gate.held is ("hold" in body)
                X = np.ones((1, engine.state.learner.n_features))
                number, event, _ = await engine.decide(X, None)
                assert event.routes == ["fallback"]
                held = audit(store, engine.schema, DecisionId(number, 0))["in_force"]["changes"][-1]
                assert held["held"] is True
                assert "share" not in held, "a hold changes no share"
                assert (await client.post("/v1/gate", json={"step": "up"})).json()["rails"]["share"] == 0.5
        store.close()
        return bits(engine.state)

    assert run(play()) == replayed(config)


def test_a_step_that_is_sent_again_is_taken_once(tmp_path):
    """Who names the rung that a step is from goes no further when the answer was lost, or somebody else was faster."""
    config = gated(tmp_path, promote="suggest", ladder=[0.2, 0.5, 0.8, 1.0])

    async def play():
        store = open_store(config)
        engine = Engine(store, config)
        app = create_app(engine)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                rung = (await client.get("/v1/status")).json()["gate"]["rung"]
                assert f'<data id="gate-rung" value="{rung}">' in str(gate_card(engine.state.gate))
                up = {"step": "up", "rung": rung}
                assert (await client.post("/v1/gate", json=up)).json()["rails"]["share"] == 0.8
                again = await client.post("/v1/gate", json=up)
                assert again.status_code == 409
                assert f"share is 0.8 by now (rung {rung + 1} in /v1/status, not {rung})" in again.json()["detail"]
                assert engine.state.rails.share == 0.8
                many = await asyncio.gather(
                    *(client.post("/v1/gate", json={"step": "down", "rung": rung + 1}) for _ in range(4))
                )
                assert {answer.status_code for answer in many} <= {200, 409}
                assert engine.state.rails.share == 0.5
                for other in (1.5, 640617.0):
                    assert (await client.post("/v1/gate", json={"step": "up", "rung": other})).status_code == 409
                assert (await client.post("/v1/gate", json={"step": "up", "rung": -2})).status_code == 422
                assert (await client.post("/v1/gate", json={"rung": 1})).status_code == 422
        store.close()

    run(play())


def test_the_kill_switch_holds_a_promotion_back(tmp_path):
    """Rewards of decisions from before it was thrown may still prove that the learner is better."""
    config = gated(tmp_path)

    async def play():
        async with engine_of(config) as engine:
            rng = np.random.default_rng(1)
            ids = await traffic(engine, 8, 0.5, rng, rewarded=False)
            await engine.configure(Configuration(killed=True))
            routes = {n: (await engine.decision(DecisionId(n, 0))).routes for n in {id.number for id in ids}}
            rewards = [0.5 * (routes[id.number][id.position] == "learner") + 0.3 * rng.normal() for id in ids]
            for start in range(0, len(ids), 200):
                pairs = zip(ids[start : start + 200], rewards[start : start + 200], strict=True)
                await asyncio.gather(*(engine.reward(id, float(r), None, None) for id, r in pairs))
            await asyncio.sleep(0.1)
            assert engine.state.gate.says() == "better"
            assert steps_of(engine) == []
            assert "waits until the kill switch is off" in str(gate_card(engine.state.gate, killed=True))
            app = create_app(engine)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
                assert "It waits until the kill switch is off." in (await client.get("/verdict")).text
            await engine.configure(Configuration(killed=False))
            await until(lambda: engine.state.rails.share == 0.9)
            assert len(steps_of(engine)) == 1

    run(play())


@pytest.mark.parametrize("chunk", [500, 1])
def test_a_clock_that_was_wrong_for_a_moment_holds_up_no_wait(tmp_path, monkeypatch, chunk):
    """Also where a whole chunk of the rows that are read together is from the future."""
    monkeypatch.setattr(waits, "_CHUNK", chunk)
    config = gated(tmp_path)

    async def play():
        now = [1_000.0]
        async with engine_of(config, now) as engine:
            await traffic(engine, 1, 0.0, np.random.default_rng(1), size=2, rewarded=False)
            now[0] = 3e7  # a year's jump, and back
            await traffic(engine, 1, 0.0, np.random.default_rng(2), size=3, rewarded=False)
            now[0] = 2_000.0
            await traffic(engine, 1, 0.0, np.random.default_rng(3), size=4, rewarded=False)
            now[0] = 900.0  # before everything
            await traffic(engine, 1, 0.0, np.random.default_rng(4), size=5, rewarded=False)
            assert await engine._waits.end() == 0
            now[0] = 1_000.0 + 3_600.0
            assert await engine._waits.end() == 2
            now[0] = 2_000.0 + 3_600.0
            # those from the year's jump are older than these, so their wait is over too
            assert await engine._waits.end() == 12
            assert len(engine.state.gate.waiting) == 0

    run(play())


def test_a_step_does_not_undo_what_somebody_set_meanwhile(tmp_path):
    """The share is taken away in the moment in which a promotion is on its way, by a person or by the gate itself."""
    config = gated(tmp_path)

    async def live() -> None:
        async with engine_of(config) as engine:
            gate = engine.state.gate
            assert gate.rung == 0
            off = Configuration(share=0.0, by="somebody")
            _, noted = await asyncio.gather(engine.configure(off), engine.reviews.step(None, True, "another"))
            (held,) = steps_of(engine)
            assert (held.before, held.after, held.held) == (-1, -1, True), "chosen anew, from where the ladder stands"
            assert engine.state.rails.share == 0.0
            # what the gate proposed before is not written, and nothing calls for it any more
            await engine.configure(Configuration(share=0.5, by="somebody"))
            stale = GateStep(0, 1, 0.9, "better", {}, by=None)
            proposal = GateProposal.of(stale, engine.state.gate.tests, engine.state.number)
            await engine.configure(off)
            await engine._gatekeeper._take(proposal)
            assert engine.state.rails.share == 0.0
            assert steps_of(engine) == [held]
            assert noted.new

    run(live())


@pytest.mark.parametrize("after", [-1, 1])
def test_a_person_is_not_answered_with_another_step_of_the_same_moment(tmp_path, after):
    """Who leaves the ladder, or holds it, while the gate goes up: both stand, whichever was first."""
    config = gated(tmp_path)

    async def live() -> None:
        async with engine_of(config) as engine:
            gate = engine.state.gate
            up = GateProposal.of(
                GateStep(0, 1, gate.settings.share_of(1), "better", {}), gate.tests, engine.state.number
            )
            _, noted = await asyncio.gather(engine._gatekeeper._take(up), engine.reviews.step(after, True, "a person"))
            first, second = steps_of(engine)
            assert (first.before, first.after, first.by) == (0, 1, None)
            assert (second.before, second.after, second.held, second.by) == (1, after, True, "a person")
            assert noted.new
            number, *_ = await engine.decide(np.ones((1, engine.state.learner.n_features)), None)
            told = audit(engine.store, engine.schema, DecisionId(number))["in_force"]["changes"]
            assert [(c["rung"], c.get("held")) for c in told if "rung" in c] == [(1, None), (after, True)]
            assert engine.state.gate.rung == after
            assert engine.state.gate.held
            assert engine.state.rails.share == (0.0 if after < 0 else gate.settings.share_of(1))
            # the other way round the gate's step is dropped, and the same step twice is one
            if after > 0:
                before = len(steps_of(engine))
                gone, again = await asyncio.gather(*(engine.reviews.step(0, None, "a person") for _ in range(2)))
                assert (gone.new, again.new) == (True, False)
                assert len(steps_of(engine)) == before + 1

    run(live())


def test_without_a_ladder_there_is_evidence_and_no_step(tmp_path):
    config = make_config(tmp_path, kind="OFUL", mode="act", share=0.5)

    async def play():
        async with engine_of(config) as engine:
            await traffic(engine, 8, 0.5, np.random.default_rng(1))
            described = describe_state(engine.state)["gate"]
            assert described["says"] == "better"
            assert described["low"] > 0
            assert described["proposal"] is None
            assert "promote is off" in str(gate_card(engine.state.gate))
            with pytest.raises(Exception, match="there is no ladder"):
                await engine.reviews.step(1, None, "ops")
            with pytest.raises(Exception, match="there is no ladder"):
                await engine.reviews.step(None, True, "ops")
            assert steps_of(engine) == []
            return bits(engine.state)

    assert run(play()) == replayed(config)


def test_a_share_raised_by_hand_keeps_everybody_and_counts_nobody_twice(tmp_path):
    """Without a ladder subjects are drawn with the same number at every share."""
    config = make_config(tmp_path, kind="OFUL", mode="act", share=0.2)
    asks = [Ask(subject=f"subject {i}") for i in range(300)]

    async def play():
        async with engine_of(config) as engine:
            X = np.zeros((300, engine.state.learner.n_features))
            X[:, 0] = 1.0
            _, before, _ = await engine.decide(X, asks)
            assert engine.state.gate.units == 300
            await engine.configure(Configuration(share=0.6))
            _, after, _ = await engine.decide(X, asks)
            on = [route == "learner" for route in before.routes]
            assert all(now == "learner" for now, was in zip(after.routes, on, strict=True) if was)
            assert sum(route == "learner" for route in after.routes) > sum(on)
            assert engine.state.gate.units == 0
            assert engine.state.gate.tests == 2

    run(play())


def test_a_gate_that_was_off_for_a_while_steps_again(tmp_path):
    """Its steps have keys of their own: with those of before the next one would be taken for a retry."""
    on = gated(tmp_path)

    async def play(config, seed):
        async with engine_of(config) as engine:
            if config.gate.promote == "off":
                await engine.configure(Configuration(share=0.5))
            await traffic(engine, 8, 0.5, np.random.default_rng(seed))
            await asyncio.sleep(0.1)
            return len(steps_of(engine)), engine.state.rails.share, engine.state.gate.tests

    assert run(play(on, 1)) == (1, 0.9, 3)
    off = replace(on, gate=replace(on.gate, promote="off"))
    assert run(play(off, 2))[:2] == (1, 0.5)
    steps, share, _ = run(play(on, 3))
    assert (steps, share) == (2, 0.9)


def test_other_settings_between_restarts(tmp_path):
    """A hold and what was spent of the error rate stay; evidence stays where what it means does."""
    config = gated(tmp_path, promote="suggest")

    async def play(changed, steps=0):
        async with engine_of(replace(config, gate=changed)) as engine:
            gate = engine.state.gate
            if steps:
                await traffic(engine, 2, 0.0, np.random.default_rng(1))
                await engine.reviews.step(None, True, "ops")
            assert gate.held
            return gate.rung, gate.share, gate.units, gate.tests, gate.promotion.sequence.alpha

    first = run(play(config.gate, steps=1))
    assert first == (0, 0.5, 400, 2, mostly_first(mostly_first(0.1, 1) / 2, 1))
    assert run(play(replace(config.gate, smallest_gain=0.5, demote="suggest"))) == first
    # another error rate: fresh evidence on a second ladder
    rung, share, units, tests, alpha = run(play(replace(config.gate, error_rate=0.2)))
    assert (rung, share, units, tests) == (0, 0.5, 0, 3)
    assert alpha == mostly_first(mostly_first(0.2, 2) / 2, 1)
    # another holdout is another share of the last rung; nothing was looked at since, so it is the second ladder still
    assert run(play(replace(config.gate, holdout=0.2)))[2:] == (0, 4, mostly_first(mostly_first(0.1, 2) / 2, 1))
    # a ladder that has no such share any more: the share stays, outside of it
    assert run(play(replace(config.gate, ladder=[0.1, 0.3])))[:3] == (-1, 0.5, 0)
    # and one on which it is another rung
    assert run(play(replace(config.gate, ladder=[0.1, 0.5, 1.0])))[:3] == (1, 0.5, 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('promote = "automatic"', "reward_after is needed"),
        ('promote = "suggest"\nreward_after = "soon"', "'soon' is not a time"),
        ("ladder = [0.5, 0.1]", "must be shares that grow"),
        ("ladder = [0.0, 0.1]", "must lie above 0"),
        ('ladder = "0.1"', "must be a list of numbers"),
        ("holdout = 0.0", "holdout = 0.0 must be"),
        ("holdout = 0.5", "holdout = 0.5 must be"),
        ("error_rate = 0.5", "error_rate = 0.5 must be"),
        ("ladder = [0.1, nan, 0.5]", "must be shares that grow"),
        ("ladder = [0.5, 0.96, 1.0]\nholdout = 0.05", "only the last rung may lie there or above"),
        ("default_reward = inf", "default_reward = inf must be"),
        ("smallest_gain = nan", "smallest_gain = nan must be"),
        ('promote = "always"', "is not one of"),
    ],
)
def test_bad_gates_in_the_file(tmp_path, text, words):
    make_config(tmp_path, kind="OFUL")
    path = tmp_path / "sidelight.toml"
    body = path.read_text().split("[gate]")
    rest = body[1].split("\n[", 1)[1] if len(body) > 1 else ""
    path.write_text(body[0] + f"[gate]\n{text}\n\n[" + rest if rest else body[0] + f"\n[gate]\n{text}\n")
    with pytest.raises(InputError, match=words):
        load_config(path)


@pytest.mark.parametrize(("text", "seconds"), [("45s", 45.0), ("1.5h", 5_400.0), ("7d", 604_800.0), ("", None)])
def test_times(text, seconds):
    assert GateConfig(reward_after=text).wait_seconds == seconds


def test_the_card_on_the_dashboard_says_where_the_ladder_stands(tmp_path):
    config = gated(tmp_path, promote="suggest", demote="suggest")

    async def play():
        async with engine_of(config) as engine:
            early = str(gate_card(engine.state.gate))
            assert "too early to tell" in early
            assert "1 (now)" in early
            await traffic(engine, 8, 0.5, np.random.default_rng(1))
            card = str(gate_card(engine.state.gate))
            assert "the learner is better than the old policy" in card
            assert "it waits for a person" in card
            await engine.reviews.step(1, True, "<b>ops</b>")
            card = str(gate_card(engine.state.gate))
            assert "2 (now)" in card
            assert "a person has stopped promotions" in card
            rolling = Rolling(engine.state.learner.arms, engine.state.learner.n_features)
            rolling.fill(engine.store, engine.state.number, engine.state.learner.n_features)
            assert "rung 2" in str(changes(rolling))
            assert "&lt;b&gt;ops" in str(changes(rolling))

    run(play())
