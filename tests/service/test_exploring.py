"""Exploration and what the export tells about chances: of the arm, of the route, of all arms."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from sidelight.errors import InputError
from sidelight.service.app import create_app
from sidelight.service.config import GateConfig, load_config, save_config
from sidelight.service.core.deciding import Ask
from sidelight.service.core.engine import Engine
from sidelight.service.core.starting import open_store
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Configuration
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
)


def exploring(folder, kind="OFUL", explore=0.3, share=0.6, propensities="taken", **settings):
    config = make_config(folder, kind=kind, mode="act", share=share, fallback="mid")
    config = replace(
        config,
        mode=replace(config.mode, explore=explore, propensities=propensities),
        learner=replace(config.learner, settings=settings),
    )
    save_config(config, folder / "sidelight.toml")
    return load_config(folder / "sidelight.toml")


def contexts(rng, n):
    return np.array([make_schema().encode(random_context(rng)) for _ in range(n)])


async def rewarded(engine, X, asks, rng):
    number, event, _ = await engine.decide(X, asks)
    for i in range(len(X)):
        arm = None if event.arms[i] is not None else "high"
        await engine.reward(DecisionId(number, i), float(rng.normal()), arm, None)
    return event


@pytest.mark.parametrize("kind", ["OFUL", "FusedThompson"])
def test_every_arm_has_the_chance_that_is_written_down(tmp_path, rng, kind):
    """One context many times: the arms come out as often as the chances say (each within 5 deviations)."""
    config = exploring(tmp_path, kind)

    async def go():
        async with engine_of(config) as engine:
            X = np.tile(contexts(rng, 1), (3_000, 1))
            asks = [Ask(allowed=["low", "high"], answer=Answer("high"))] * 3_000
            if kind == "FusedThompson":
                asks = [replace(ask, answer=None) for ask in asks]
            event = await rewarded(engine, X[:1], asks[:1], rng)
            _, event, _ = await engine.decide(X, asks)
            chances = {}
            for arm, chance in zip(event.arms, event.propensities, strict=True):
                assert chance == pytest.approx(chances.setdefault(arm, chance), abs=1e-9)
            assert set(chances) == {"low", "high"}
            assert sum(chances.values()) == pytest.approx(1.0, abs=1e-4)
            for arm, chance in chances.items():
                deviation = np.sqrt(chance * (1 - chance) / 3_000)
                assert abs(event.arms.count(arm) / 3_000 - chance) < 5 * deviation
            return bits(engine.state)

    assert run(go()) == replayed(config)


def test_the_export_tells_routes_subjects_and_all_chances(tmp_path, rng):
    config = exploring(tmp_path, explore=0.2, share=0.5)

    async def go():
        async with engine_of(config) as engine:
            X = contexts(rng, 60)
            asks = [Ask(subject=f"s{i % 7}", answer=Answer("low") if i % 2 else None) for i in range(60)]
            first = await rewarded(engine, X, asks, rng)
            await engine.configure(Configuration(killed=True))
            second = await rewarded(engine, X[:10], None, rng)
            await engine.configure(Configuration(killed=False, mode="shadow"))
            third = await rewarded(engine, X[:2], [Ask(answer=Answer("low", (0.2, 0.5, 0.3))), Ask()], rng)
            export_log(engine.store, engine.schema, tmp_path / "log.parquet")
            export_log(engine.store, engine.schema, tmp_path / "log.csv", subjects=True)
            export_log(engine.store, engine.schema, tmp_path / "obp.parquet", names="obp")
            with pytest.raises(InputError, match="which CSV cannot hold"):
                export_log(engine.store, engine.schema, tmp_path / "obp.csv", names="obp")
            return first, second, third, X

    first, second, third, X = run(go())
    table = pq.read_table(tmp_path / "log.parquet")
    rows = table.to_pylist()
    assert len(rows) == 72
    for i in range(60):
        row = rows[i]
        assert row["recommended"] == first.recommended[i]
        assert row["route"] == first.routes[i]
        assert row["route_probability"] == 0.5
        chances = row["propensities"]
        assert sum(chances) == pytest.approx(1.0)
        assert min(chances) >= 0.5 * 0.2 / 3 - 1e-12
        assert chances[ARMS.index(row["arm"])] == pytest.approx(row["propensity"])
    for row in rows[60:70]:
        assert (row["route"], row["route_probability"], row["propensities"]) == ("fallback", 1.0, [0.0, 1.0, 0.0])
    assert second.routes == ["fallback"] * 10
    assert rows[70]["propensities"] == [0.2, 0.5, 0.3]
    assert rows[71]["propensities"] is None
    assert third.arms[1] is None
    hashed = [row["subject"] for row in rows[:60]]
    assert len(set(hashed)) == 7
    assert not any(f"s{i}" in hashed for i in range(7))
    assert hashed[0] == hashed[7]
    text = pacsv.read_csv(tmp_path / "log.csv")
    assert text["subject"].to_pylist()[:7] == [f"s{i}" for i in range(7)]
    assert json.loads(text["propensities"].to_pylist()[0]) == rows[0]["propensities"]
    obp = pq.read_table(tmp_path / "obp.parquet")
    assert obp["action"].to_pylist() == [ARMS.index(row["arm"]) for row in rows]
    assert obp["pscore"].to_pylist() == [row["propensity"] for row in rows]
    assert obp["reward"].to_pylist() == [row["reward"] for row in rows]
    assert set(obp["position"].to_pylist()) == {0}
    np.testing.assert_array_equal(np.array(obp["context"].to_pylist())[:60], X)


def test_a_policy_is_valued_rightly_from_the_export(tmp_path):
    """Weighting by the chances: a fixed arm's value, within 4 standard errors of the truth, where nobody favours it."""
    config = exploring(tmp_path, explore=0.3, share=1.0)
    truth = {"low": 0.0, "mid": 1.0, "high": -0.5}

    async def go():
        rng = np.random.default_rng(4)
        async with engine_of(config) as engine:
            for _ in range(10):
                X = contexts(rng, 100)
                number, event, _ = await engine.decide(X, None)
                rewards = [truth[arm] + 0.1 * rng.normal() for arm in event.arms]
                await asyncio.gather(
                    *(engine.reward(DecisionId(number, i), reward, None, None) for i, reward in enumerate(rewards))
                )
            export_log(engine.store, engine.schema, tmp_path / "log.parquet")

    run(go())
    rows = pq.read_table(tmp_path / "log.parquet").to_pylist()
    for a, arm in enumerate(ARMS):
        scores = [row["reward"] / row["propensities"][a] if row["arm"] == arm else 0.0 for row in rows]
        assert abs(np.mean(scores) - truth[arm]) < 4 * np.std(scores) / np.sqrt(len(scores))


def test_without_exploration_a_certain_learner_has_chances_of_zero_and_a_drawing_one_none(tmp_path, rng):
    (tmp_path / "certain").mkdir()
    (tmp_path / "drawing").mkdir()
    (tmp_path / "all").mkdir()
    found = {}

    async def go(name, config):
        async with engine_of(config) as engine:
            await rewarded(engine, contexts(rng, 20), None, rng)
            export_log(engine.store, engine.schema, tmp_path / name / "log.parquet")
            found[name] = pq.read_table(tmp_path / name / "log.parquet")["propensities"].to_pylist()

    run(go("certain", exploring(tmp_path / "certain", explore=0.0)))
    run(go("drawing", exploring(tmp_path / "drawing", "FusedThompson", explore=0.0)))
    run(go("all", exploring(tmp_path / "all", "FusedThompson", explore=0.0, propensities="all")))
    assert all(0.0 in row for row in found["certain"])
    assert None in found["drawing"]
    assert all(row is not None and sum(row) == pytest.approx(1.0, abs=1e-4) for row in found["all"])


def test_defaults_are_exported_as_assumed_until_a_reward_comes(tmp_path, rng):
    config = exploring(tmp_path, explore=0.0)
    config = replace(config, gate=GateConfig(reward_after="1s", default_reward=-1.0))
    save_config(config, tmp_path / "sidelight.toml")
    config = load_config(tmp_path / "sidelight.toml")
    now = [1_000_000.0]

    async def go():
        async with engine_of(config, now) as engine:
            number, _, _ = await engine.decide(contexts(rng, 3), None)
            await engine.reward(DecisionId(number, 0), 5.0, None, None)
            now[0] += 2.0
            await engine._waits.end()
            await engine.reward(DecisionId(number, 1), 7.0, None, None)
            export_log(engine.store, engine.schema, tmp_path / "log.parquet")

    run(go())
    rows = pq.read_table(tmp_path / "log.parquet").to_pylist()
    assert sorted((row["reward"], row["assumed"]) for row in rows) == [(-1.0, True), (5.0, False), (7.0, False)]


def test_the_export_has_the_rewards_that_the_learner_was_taught(tmp_path, rng):
    """Quarantined: the default stands until the release. Retracted: it stands again. Moved to another arm: there."""
    config = exploring(tmp_path, explore=0.0)
    config = replace(
        config,
        gate=GateConfig(reward_after="1s", default_reward=-1.0),
        bounds=replace(config.bounds, reward=[-10.0, 10.0]),
    )
    save_config(config, tmp_path / "sidelight.toml")
    config = load_config(tmp_path / "sidelight.toml")
    now = [1_000_000.0]

    async def go():
        async with engine_of(config, now) as engine:
            number, event, _ = await engine.decide(contexts(rng, 6), None)
            ids = [DecisionId(number, i) for i in range(6)]
            other = [next(arm for arm in engine.state.learner.arms if arm != event.arms[i]) for i in range(6)]
            await engine.reward(ids[0], 5.0, None, None)
            wild = [await engine.reward(ids[i], 1_000.0 + i, None, None) for i in (1, 2)]
            assert all(noted.quarantine for noted in wild)
            await engine.reward(ids[3], 3.0, None, None)
            now[0] += 2.0
            await engine._waits.end()
            await engine.action(ids[4], other[4], "person")

            def exported(name, after=0):
                done = export_log(engine.store, engine.schema, tmp_path / name, after=after)
                rows = pq.read_table(tmp_path / name).to_pylist()
                shown = [(row["decision"], row[engine.schema.reward], row["assumed"], row["corrects"]) for row in rows]
                return done, sorted(shown), {row["decision"]: row[engine.schema.arm] for row in rows}

            name = [str(id) for id in ids]
            first, rows, arms = exported("first.parquet")
            assert rows == [
                (name[0], 5.0, False, False),
                (name[1], -1.0, True, False),
                (name[2], -1.0, True, False),
                (name[3], 3.0, False, False),
                (name[4], -1.0, True, False),
                (name[5], -1.0, True, False),
            ]
            assert arms[name[4]] == other[4]
            assert arms[name[5]] == event.arms[5]
            await engine.reviews.decide_doubt(DecisionId(wild[0].number), True, None, "right")
            await engine.reviews.decide_doubt(DecisionId(wild[1].number), False, None, "wrong")
            await engine.reviews.retract(ids[3], None, "a slip")
            await engine.reward(ids[5], 6.0, None, None)
            _, rows, _ = exported("second.parquet")
            assert rows == [
                (name[0], 5.0, False, False),
                (name[1], 1_001.0, False, False),
                (name[2], -1.0, True, False),
                (name[4], -1.0, True, False),
                (name[5], 6.0, False, False),
            ]
            done, rows, _ = exported("more.parquet", after=first.last)
            assert rows == [(name[1], 1_001.0, False, True), (name[5], 6.0, False, True)]
            assert done.corrected == 2
            sums = engine.state.reward_sums
            assert sum(sums.values()) == pytest.approx(5.0 + 1_001.0 - 1.0 - 1.0 + 6.0)

    run(go())


def test_the_export_says_who_took_an_arm_also_where_the_reward_is_the_default_one(tmp_path, rng):
    """The old policy's decisions without a reward are its own, and an override is one however it was told."""
    config = make_config(tmp_path, kind="OFUL", mode="shadow")
    config = replace(config, gate=GateConfig(reward_after="1s", default_reward=0.0))
    save_config(config, tmp_path / "sidelight.toml")
    config = load_config(tmp_path / "sidelight.toml")
    now = [1_000_000.0]

    async def go():
        async with engine_of(config, now) as engine:
            asks = [Ask(answer=Answer("mid")), Ask(answer=Answer("mid")), Ask(answer=Answer("mid")), Ask(), Ask()]
            number, _, _ = await engine.decide(contexts(rng, 5), asks)
            ids = [DecisionId(number, i) for i in range(5)]
            await engine.reward(ids[0], 1.0, None, None)
            await engine.action(ids[2], "high", None)
            await engine.action(ids[3], "low", None)
            now[0] += 2.0
            await engine._waits.end()

            def exported(acted=None):
                export_log(engine.store, engine.schema, tmp_path / "log.parquet", acted=acted)
                rows = pq.read_table(tmp_path / "log.parquet").to_pylist()
                return {row["decision"]: (row["arm"], row["reward"], row["by"], row["override"]) for row in rows}

            name = [str(id) for id in ids]
            assert exported() == {
                name[0]: ("mid", 1.0, "old_policy", False),
                name[1]: ("mid", 0.0, "old_policy", False),
                name[2]: ("high", 0.0, "person", True),
                name[3]: ("low", 0.0, "old_policy", False),
            }
            assert list(exported("old_policy")) == [name[0], name[1], name[3]]
            await engine.reward(ids[2], 2.0, None, None)
            assert exported()[name[2]] == ("high", 2.0, "person", True)

    run(go())


def test_exploration_is_configured_by_an_event_and_refused_under_a_floor(tmp_path):
    config = exploring(tmp_path, explore=0.0)

    async def explore_of(config):
        async with engine_of(config) as engine:
            return engine.state.rails.explore, engine.state.number

    assert run(explore_of(config))[0] == 0.0
    before = run(explore_of(config))[1]
    changed = replace(config, mode=replace(config.mode, explore=0.05))
    assert run(explore_of(changed)) == (0.05, before + 1)
    assert run(explore_of(config)) == (0.0, before + 2)
    with pytest.raises(InputError, match="would break the floor"):
        replace(changed, learner=replace(config.learner, settings={"floor": 0.1})).rails()


def test_exploration_is_changed_by_request_and_refused_under_a_floor(tmp_path):
    def changed(folder, body, **settings):
        folder.mkdir()
        config = exploring(folder, kind="FusedOFUL", explore=0.0, **settings)

        async def go():
            store = open_store(config)
            app = create_app(Engine(store, config))
            async with (
                app.router.lifespan_context(app),
                httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client,
            ):
                answer = await client.post("/v1/mode", json=body)
            store.close()
            return answer.status_code, answer.json()

        return run(go())

    status, body = changed(tmp_path / "free", {"explore": 0.02})
    assert status == 200
    assert body["rails"]["explore"] == 0.02
    assert changed(tmp_path / "large", {"explore": 0.7})[0] == 422
    floor = {"share": 0.1, "noise": 0.5, "weight_bound": 1.0}
    status, body = changed(tmp_path / "floored", {"explore": 0.02}, floor=floor)
    assert status == 422
    assert "drawn evenly would break" in str(body)
    assert changed(tmp_path / "zero", {"explore": 0.0}, floor=floor)[0] == 200


def test_the_command_line_exports_for_the_open_bandit_pipeline(tmp_path, rng):
    config = exploring(tmp_path)

    async def go():
        async with engine_of(config) as engine:
            await rewarded(engine, contexts(rng, 5), None, rng)

    run(go())
    done = command("export", "log.parquet", "--names", "obp", cwd=tmp_path)
    assert "Wrote 5 rewarded decisions" in done.stdout
    assert pq.read_table(tmp_path / "log.parquet").schema.field("context").type == pa.list_(pa.float64())
