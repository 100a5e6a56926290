"""Is the traffic what it should be: contexts out of range, answers that stopped, an arm that is never allowed."""

from __future__ import annotations

import time

import httpx
import numpy as np

from sidelight.service.app import create_app
from sidelight.service.core.deciding import Ask
from sidelight.service.core.engine import Engine
from sidelight.service.core.starting import open_store
from sidelight.service.dashboard.alarms import alarms
from sidelight.service.dashboard.rolling import Rolling
from sidelight.service.dashboard.watching import odd
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer
from tests.service.helpers import engine_of, make_config, make_schema, random_context, run

NAMES = list(make_schema().encoded_names)


def contexts(rng, n, **changes):
    return np.array([make_schema().encode({**random_context(rng), **changes}) for _ in range(n)])


async def watched(engine):
    rolling = Rolling(engine.state.learner.arms, engine.state.learner.n_features)
    engine.listeners.append(rolling.take)
    return rolling


async def usual(engine, rng, n=200, asks=None):
    X = contexts(rng, n)
    number, event, _ = await engine.decide(X, asks)
    for i in range(n):
        await engine.reward(DecisionId(number, i), float(rng.normal()), event.arms[i] or "low", None)


def kinds(engine, rolling, later=0.0):
    return [alarm.kind for alarm in alarms(engine.state, rolling, NAMES, time.time() + later)]


def test_contexts_in_another_unit_are_noticed_and_named(tmp_path, rng):
    for kind in ("OFUL", "FusedOFUL"):
        (tmp_path / kind).mkdir()
        config = make_config(tmp_path / kind, kind=kind, mode="act")

        async def go(config=config):
            async with engine_of(config) as engine:
                rolling = await watched(engine)
                await usual(engine, rng)
                assert kinds(engine, rolling) == []
                X = contexts(rng, 250)
                X[:10, NAMES.index("dose")] *= 1000.0  # in micrograms, from one of the sources
                await engine.decide(X, None)
                (found,) = alarms(engine.state, rolling, NAMES, time.time())
                assert found.kind == "contexts"
                assert found.words.startswith("'dose' lies far from all that log and rounds have seen in ")
                assert "Check its unit" in found.remedy
                assert "&#39;dose&#39; lies far" in str(odd([found]))
                X[100:120, NAMES.index("dose")] = np.nan  # gaps are no values, neither far nor near
                rolling.last_contexts = lambda X=X: X
                (found,) = alarms(engine.state, rolling, NAMES, time.time())
                assert "nan" not in found.words

        run(go())


def test_a_shift_of_the_mean_is_noticed(tmp_path, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def go():
        async with engine_of(config) as engine:
            rolling = await watched(engine)
            await usual(engine, rng)
            X = contexts(rng, 256)
            X[:, NAMES.index("age")] += 2.0
            await engine.decide(X, None)
            (found,) = alarms(engine.state, rolling, NAMES, time.time())
            assert "'age' is on average 2." in found.words

    run(go())


def test_answers_that_stopped_are_noticed(tmp_path, rng):
    config = make_config(tmp_path, kind="FusedOFUL", mode="act")

    async def go():
        async with engine_of(config) as engine:
            rolling = await watched(engine)
            await usual(engine, rng, 120, [Ask(answer=Answer("low"))] * 120)
            assert "answers" not in kinds(engine, rolling)
            await engine.decide(contexts(rng, 60), None)
            assert "answers" not in kinds(engine, rolling)  # some came within the hour
            rolling.hour = type(rolling.hour)(60.0, 61, 3)
            rolling._windows = (rolling.minute, rolling.hour, rolling.day)
            await engine.decide(contexts(rng, 60), None)
            (found,) = [a for a in alarms(engine.state, rolling, NAMES, time.time()) if a.kind == "answers"]
            assert "asked 60 times in the last hour and has answered none" in found.words

    run(go())


def test_an_arm_that_is_never_allowed_is_noticed(tmp_path, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def go():
        async with engine_of(config) as engine:
            rolling = await watched(engine)
            X, some = contexts(rng, 500), [Ask(allowed=["low", "mid"])] * 500
            await engine.decide(X, some)
            assert "arm" not in kinds(engine, rolling)
            await engine.decide(X, some)
            (found,) = [a for a in alarms(engine.state, rolling, NAMES, time.time()) if a.kind == "arm"]
            assert found.words == "'high' was allowed in none of the last 1,000 decisions"
            await engine.decide(X[:1], None)
            assert "arm" not in kinds(engine, rolling)

    run(go())


def test_alarms_are_in_status_and_metrics(tmp_path, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def go():
        store = open_store(config)
        engine = Engine(store, config)
        app = create_app(engine)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                assert (await client.get("/v1/status")).json()["alarms"] == []
                await engine.decide(contexts(rng, 1000), [Ask(allowed=["low"])] * 1000)
                found = (await client.get("/v1/status")).json()["alarms"]
                assert [alarm["kind"] for alarm in found] == ["arm"]
                assert "retire the arm" in found[0]["remedy"]
                text = (await client.get("/metrics")).text
                assert 'sidelight_alarm{kind="arm"} 1.0' in text
                assert 'sidelight_alarm{kind="contexts"} 0.0' in text
        store.close()

    run(go())
