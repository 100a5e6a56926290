"""Evidence while the old policy acts: what the gate says in shadow and assist, and the first step onto the ladder."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import httpx
import numpy as np

from sidelight.service.app import create_app
from sidelight.service.config import GateConfig, load_config, save_config
from sidelight.service.core.deciding import Ask
from sidelight.service.core.engine import Engine
from sidelight.service.core.gate import Gate
from sidelight.service.core.starting import open_store
from sidelight.service.dashboard.climbing import gate_card
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Configuration, GateStep
from sidelight.service.log.rows import event_from_row
from tests.service.helpers import ARMS, bits, engine_of, make_config, replayed, run

GATE = GateConfig(promote="automatic", ladder=[0.1, 0.5], error_rate=0.2, holdout=0.1, reward_after="1h")


def looking_on(folder, mode="shadow", **changes):
    config = make_config(folder, kind="OFUL", mode=mode, share=0.0)
    config = replace(config, gate=replace(GATE, **changes))
    save_config(config, folder / "sidelight.toml")
    return load_config(folder / "sidelight.toml")


async def traffic(engine, n, rng, *, told=False, never=None, gain=1.0, subject=None):
    """The old policy tosses a fair die (without ``never``); the learner's arm earns ``gain`` more."""
    size = 100
    for _ in range(n // size):
        X = np.zeros((size, engine.state.learner.n_features))
        X[:, 0] = 1.0
        X[:, 1] = rng.normal(size=size)
        p = np.array([0.0 if arm == never else 1.0 for arm in ARMS])
        p /= p.sum()
        arms = [ARMS[i] for i in rng.choice(3, size=size, p=p)]
        asks = [Ask(answer=Answer(arm, tuple(map(float, p))) if told else None, subject=subject) for arm in arms]
        number, event, _ = await engine.decide(X, asks)
        await asyncio.gather(
            *(
                engine.reward(
                    DecisionId(number, i),
                    float(gain * (arms[i] == event.recommended[i]) + 0.5 * rng.normal()),
                    arms[i],
                    "old_policy",
                )
                for i in range(size)
            )
        )


def steps_of(engine):
    return [event_from_row(row, 0) for row in engine.store.of_kind(GateStep.kind)]


def test_estimated_chances_suggest_and_never_promote(tmp_path):
    config = looking_on(tmp_path)

    async def play():
        async with engine_of(config) as engine:
            await traffic(engine, 2_400, np.random.default_rng(0))
            gate = engine.state.gate
            found = gate.evidence()
            assert found["says"] == "better"
            assert found["propensities"] == "estimated"
            assert found["units"] == 1_900
            assert len(found["history"]) > 5
            step = gate.proposal()
            assert (step.before, step.after, step.share) == (-1, 0, 0.1)
            assert "if the model of the old policy is right" in step.reason
            await asyncio.sleep(0.1)
            assert steps_of(engine) == []
            card = str(gate_card(gate))
            assert "may suggest a step and takes none" in card
            assert "it waits for a person" in card
            assert 'class="plot"' in card
            again = Gate.from_dict(json.loads(json.dumps(gate.to_dict())))
            assert again.to_dict() == gate.to_dict()
            await engine.reviews.step(0, None, "ops")
            assert (engine.state.rails.mode, engine.state.rails.share) == ("act", 0.1)
            assert engine.state.gate.shadow is None
            return bits(engine.state)

    assert run(play()) == replayed(config)


def test_chances_that_the_old_policy_tells_may_promote_to_the_first_rung(tmp_path):
    config = looking_on(tmp_path)

    async def play():
        async with engine_of(config) as engine:
            await traffic(engine, 1_600, np.random.default_rng(1), told=True)
            for _ in range(200):
                if engine.state.rails.mode == "act":
                    break
                await asyncio.sleep(0.01)
            (step,) = steps_of(engine)
            assert (step.before, step.after, step.mode, step.by) == (-1, 0, "act", None)
            assert step.evidence["propensities"] == "told"
            assert step.evidence["low"] > 0
            assert engine.state.rails.share == 0.1
            assert engine.state.gate.rung == 0
            return bits(engine.state)

    assert run(play()) == replayed(config)


def test_without_overlap_it_asks_for_the_first_randomised_share(tmp_path):
    config = looking_on(tmp_path)

    async def play():
        async with engine_of(config) as engine:
            # a learner without rounds of an arm wants to try it, and the old policy never does
            await traffic(engine, 1_200, np.random.default_rng(2), told=True, never="high", gain=-3.0)
            found = engine.state.gate.evidence()
            assert found["says"] == "cannot tell"
            assert found["gain"] is None
            assert "never tries arm 'high'" in found["problem"]
            step = engine.state.gate.proposal()
            assert step.after == 0
            assert "only a first share that is drawn at random can" in step.reason
            assert not engine.state.gate.automatic(step)
            assert "Only a first share that is drawn at random can tell" in str(gate_card(engine.state.gate))
            await engine.reviews.step(None, True, "ops")
            assert engine.state.gate.proposal() is None

    run(play())


def test_a_subject_is_one_row_and_another_mode_begins_anew(tmp_path):
    config = looking_on(tmp_path, mode="assist")

    async def play():
        async with engine_of(config) as engine:
            await traffic(engine, 700, np.random.default_rng(3))
            assert engine.state.gate.shadow.mode == "assist"
            assert engine.state.gate.shadow.rows.rows == 200
            assert engine.state.gate.evidence()["from"] == "what persons did"
            await engine.configure(Configuration(mode="shadow", by="ops"))
            await traffic(engine, 200, np.random.default_rng(4), subject="anna")
            assert engine.state.gate.shadow.mode == "shadow"
            assert engine.state.gate.shadow.model.count == 1
            await engine.configure(Configuration(mode="act", share=0.0, by="ops"))
            assert engine.state.gate.says() == "no shared traffic"
            return bits(engine.state)

    assert run(play()) == replayed(config)


def test_a_person_may_step_up_again_after_the_learner_fell_off_the_ladder(tmp_path):
    config = looking_on(tmp_path, mode="act", promote="suggest")

    async def play():
        async with engine_of(config) as engine:
            for after in (0, -1, 0, 1, -1, 0):
                _, new, *_ = await engine.reviews.step(after, None, "ops")
                assert new
                assert engine.state.gate.rung == after

    run(play())


def test_status_shows_the_evidence_and_its_history(tmp_path):
    config = looking_on(tmp_path)

    async def play():
        store = open_store(config)
        engine = Engine(store, config)
        app = create_app(engine)
        async with app.router.lifespan_context(app):
            await traffic(engine, 1_700, np.random.default_rng(5))
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                gate = (await client.get("/v1/status")).json()["gate"]
                assert gate["from"] == "the old policy's rows"
                assert gate["history"][0][0] >= 1_000
                assert gate["proposal"]["share"] == 0.1
                page = await client.get("/verdict")
                assert page.status_code == 200
                assert "Yes, if the model of the old policy is right." in page.text
                assert "It waits for a person." in page.text
                assert "<script" not in page.text
                assert "script-src" not in page.headers["content-security-policy"]
                metrics = (await client.get("/metrics")).text
                assert 'sidelight_gate_verdict{says="better"} 1.0' in metrics
                await client.post("/v1/gate", json={"step": "up"})
                page = await client.get("/verdict")
                assert "Too early to tell." in page.text
                assert "rung 1" in page.text
        store.close()

    run(play())


def test_subjects_without_end_need_no_end_of_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("sidelight.service.core.entering.MOST_SUBJECTS", 150)
    config = looking_on(tmp_path)

    async def play():
        async with engine_of(config) as engine:
            X = np.zeros((300, engine.state.learner.n_features))
            X[:, 0] = 1.0
            await engine.decide(X, [Ask(subject=f"person {i}") for i in range(300)])
            found = engine.state.gate.evidence()
            assert found["waiting"] == 150
            await engine.decide(X[:1], [Ask()])
            assert engine.state.gate.evidence()["waiting"] == 151
            return bits(engine.state)

    assert run(play()) == replayed(config)
