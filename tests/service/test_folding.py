"""A large learner is folded beside the event loop: decisions go on, from folds of prefixes of the log."""

from __future__ import annotations

import asyncio
import threading

import httpx
import numpy as np
import pytest

from sidelight.service.app import create_app
from sidelight.service.core import folding
from sidelight.service.core.deciding import Ask, Decider
from sidelight.service.core.engine import Engine
from sidelight.service.core.fold import State
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Configuration, Reward
from sidelight.service.operations.retention import forget
from tests.service.helpers import bits, engine_of, make_config, make_schema, random_context, replayed, run

encode = make_schema().encode


@pytest.fixture(autouse=True)
def large(monkeypatch):
    monkeypatch.setattr(folding, "LARGE", 0)


async def decided(engine, rng, **ask) -> DecisionId:
    number, event, _ = await engine.decide(encode(random_context(rng))[None], [Ask(**ask)] if ask else None)
    return DecisionId(number, 0, event.epoch)


def held(monkeypatch) -> tuple[list[str], threading.Event]:
    """No reward is folded in before the event is set; the threads that do it."""
    apply, threads, go = State.apply, [], threading.Event()

    def waits(self, item):
        if isinstance(item.event, Reward):
            threads.append(threading.current_thread().name)
            assert go.wait(120.0), "the fold was waited for"
        apply(self, item)

    monkeypatch.setattr(State, "apply", waits)
    return threads, go


async def written_switch(engine: Engine, killed: bool) -> asyncio.Future[int]:
    """The kill switch, in the log and perhaps not in force yet."""
    before = len(engine.store.configurations())
    change = asyncio.ensure_future(engine.configure(Configuration(killed=killed, by="somebody")))
    while len(engine.store.configurations()) == before:
        await asyncio.sleep(0.01)
    return change


def test_decisions_go_on_while_a_reward_is_folded_in(tmp_path, rng, monkeypatch):
    config = make_config(tmp_path, kind="RunningOFUL", mode="act")

    async def live() -> str:
        async with engine_of(config) as engine:
            ids = [await decided(engine, rng) for _ in range(3)]
            threads, go = held(monkeypatch)
            version = engine.state.version
            noted = await engine.reward(ids[0], 1.0, None, None)
            # none of these is answered before the fold goes on, unless it does not wait for it
            for _ in range(5):
                assert (await engine.decision(await decided(engine, rng))).version == version
            go.set()
            await engine.in_force(noted)
            assert engine.state.version == noted.number
            assert threads
            assert all(name.startswith("sidelight-read") for name in threads)
            # what has to be in force when it is answered waits; and then it is
            go.clear()
            await engine.reward(ids[1], 1.0, None, None)
            change = await written_switch(engine, True)
            assert not change.done()
            go.set()
            await change
            assert engine.state.rails.killed
            _, event, _ = await engine.decide(encode(random_context(rng))[None], None)
            assert event.routes == ["fallback"]
            # a decision that was made before the change is made anew
            go.clear()
            await engine.reward(ids[2], 1.0, None, None)
            change = await written_switch(engine, False)
            outcomes = [asyncio.ensure_future(decided(engine, rng)) for _ in range(5)]
            await asyncio.sleep(0.0)
            go.set()
            for id in await asyncio.gather(*outcomes):
                event = await engine.decision(id)
                assert (event.routes == ["learner"]) == (id.number > (await change))
            monkeypatch.undo()
            assert await engine.check_itself() is True
        # decisions are answered before they are folded in; once the server has ended, all of them are
        return bits(engine.state)

    assert run(live()) == replayed(config)


def test_the_state_that_decides_is_always_a_prefix(tmp_path, database, rng):
    """Decisions, rewards, answers, retractions, forgetting and snapshots, all at once, on two servers."""
    config = make_config(tmp_path, kind="RunningOFUL", mode="act", database=database, snapshot_every=7)
    seen: dict[int, str] = {}

    async def live() -> None:
        async with engine_of(config) as engine, engine_of(config) as other:
            for round in range(6):
                server = (engine, other)[round % 2]
                subject = f"s{round}"
                ids = await asyncio.gather(*(decided(server, rng, subject=subject) for _ in range(4)))
                told = [server.reward(id, float(rng.normal()), "low", None) for id in ids[:3]]
                told.append(server.behavior_at(encode(random_context(rng)), Answer("mid"), None, None))
                await asyncio.gather(*told, decided(engine, rng), decided(other, rng))
                if round == 2:
                    await server.reviews.retract(ids[0], None, "a slip")
                if round == 3:
                    forget(server.store, "s0", erase=False)
                for watched in (engine, other):
                    seen[watched.state.number] = bits(watched.state)
            for _ in range(300):
                if engine.state.number == other.state.number == engine.store.head():
                    break
                await asyncio.sleep(0.02)
            assert bits(engine.state) == bits(other.state)
            assert await engine.check_itself() is True
            assert engine.store.snapshot_numbers()
            assert (await engine.digest())["digest"] == bits(engine.state)
            retraction = next(row.number for row in engine.store.of_kind("retraction"))
            base = next(row.number for row in engine.store.of_kind("forgotten"))
            for number, digest in seen.items():
                if number >= max(base, retraction):
                    assert bits(recover(engine.store, upto=number).state) == digest

    run(live())
    assert replayed(config)


def test_a_fold_that_fails_stops_the_server_and_nobody_waits(tmp_path, rng, monkeypatch):
    config = make_config(tmp_path, kind="RunningOFUL", mode="act")

    async def live() -> None:
        async with engine_of(config) as engine:
            id = await decided(engine, rng)
            apply = State.apply

            def broken(self, item):
                if isinstance(item.event, Reward):
                    raise AssertionError("a bug")
                apply(self, item)

            monkeypatch.setattr(State, "apply", broken)
            await engine.reward(id, 1.0, None, None)
            for _ in range(200):
                if not engine.ready:
                    break
                await asyncio.sleep(0.01)
            assert "stuck" in str(engine.why_not_ready())
            with pytest.raises(Exception, match="stuck"):
                await asyncio.wait_for(decided(engine, rng), 5)
            monkeypatch.undo()

    run(live())


def test_explanations_and_digests_do_not_hold_up_the_loop(tmp_path, rng, monkeypatch):
    config = make_config(tmp_path, kind="RunningOFUL", mode="act")

    async def live() -> None:
        async with engine_of(config) as engine:
            id = await decided(engine, rng)
            main = threading.current_thread()

            def look(state: State) -> tuple[bool, np.ndarray]:
                return threading.current_thread() is main, state.learner.scores(np.ones(7))[0]

            (here, scores), version, exact = await engine.past.look_at(engine.state.version, look)
            assert not here
            assert exact
            assert np.array_equal(scores, engine.state.learner.scores(np.ones(7))[0])
            await engine.reward(id, 1.0, None, None)
            (here, _), _, exact = await engine.past.look_at(version, look)
            assert not here
            assert exact, "rebuilt"

    run(live())


def test_large_batches_are_decided_beside_the_loop(tmp_path, rng, monkeypatch):
    """By the same learner: the same arms, estimates and version as one by one."""
    config = make_config(tmp_path, kind="RunningOFUL", mode="act")

    async def live() -> None:
        async with engine_of(config) as engine:
            await engine.reward(await decided(engine, rng), 1.0, None, None)
            await engine.configure(Configuration(share=1.0))
            X = np.stack([encode(random_context(rng)) for _ in range(40)])
            threads = []
            choose = Decider.choose

            def watched(self, *arguments):
                threads.append(threading.current_thread())
                return choose(self, *arguments)

            monkeypatch.setattr(Decider, "choose", watched)
            _, event, _ = await engine.decide(X, None)
            assert threads[0] is not threading.current_thread()
            for i, x in enumerate(X):
                one = engine.choose(x[None], None)
                assert (one.arms[0], one.estimates[0], one.version) == (
                    event.arms[i],
                    event.estimates[i],
                    event.version,
                )
            monkeypatch.undo()
            assert await engine.check_itself() is True

    run(live())


def test_large_bodies_are_read_beside_the_loop(tmp_path, rng, monkeypatch):
    """Their text, and the hash that tells a retry: 3.8 MB held up everybody else for half a second."""
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def live() -> None:
        store = open_store(config)
        app = create_app(Engine(store, config))
        service, here, threads = app.state.service, threading.current_thread(), {}

        def watch(owner, name):
            function = getattr(owner, name)

            def watched(*arguments):
                threads[name] = threading.current_thread()
                return function(*arguments)

            monkeypatch.setattr(owner, name, watched)

        watch(service.bodies, "decisions")
        watch(service, "idempotency")
        body = {"decisions": [{"context": random_context(rng)} for _ in range(900)]}
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http,
        ):
            answer = await http.post("/v1/decisions/batch", json=body, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 201
        assert set(threads) == {"decisions", "idempotency"}
        assert here not in threads.values()
        store.close()

    run(live())
