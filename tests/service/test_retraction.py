"""A wrong reward is taken back: the learner becomes as if it had never come, on every server and in every replay."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from sidelight.errors import InputError
from sidelight.learners.saving import learner_bytes
from sidelight.service.config import GateConfig, save_config
from sidelight.service.core import reviewing
from sidelight.service.core.deciding import Ask
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer
from sidelight.service.operations import retention, retracting
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
)

encode = make_schema().encode


async def rewarded(engine, rng, rewards) -> list[DecisionId]:
    ids = []
    for reward in rewards:
        number, event, _ = await engine.decide(encode(random_context(rng))[None], [Ask(subject="anna")])
        ids.append(DecisionId(number, 0, event.epoch))
        if reward is not None:
            await engine.reward(ids[-1], reward, event.arms[0] or "low", None)
    return ids


def by_hand(config, store, without: set[int]) -> bytes:
    """A learner that was given every reward but some, in the order of the log."""
    from sidelight.service.core.fold import numbered

    learner = config.build_learner()
    for rows in store.follow(0):
        for item in numbered(store, rows, learner.n_features):
            if item.event.kind == "reward" and item.number not in without:
                learner.observe(item.context, item.event.arm, item.event.reward)
    return learner_bytes(learner)


def test_what_comes_after_an_action_was_taken_back_is_not_about_its_arm(tmp_path, rng):
    """Neither a reward, with an arm or without, nor the default reward; another action is refused as before."""
    config = make_config(tmp_path, kind="OFUL", mode="act")
    config = replace(config, gate=GateConfig(reward_after="1h", default_reward=-1.0))
    save_config(config, tmp_path / "sidelight.toml")
    now = [1e6]

    async def live() -> str:
        async with engine_of(config, now) as engine:
            number, event, _ = await engine.decide(np.array([encode(random_context(rng)) for _ in range(4)]), None)
            ids = [DecisionId(number, i) for i in range(4)]
            others = [[arm for arm in ARMS if arm != decided] for decided in event.arms]
            first, right = zip(*others, strict=True)
            for id, arm in zip(ids, first, strict=True):
                await engine.action(id, arm, "person")
            with pytest.raises(Problem, match="already has an action"):
                await engine.reward(ids[1], 2.0, right[1], None)
            for id in ids[:3]:
                await engine.reviews.retract(id, "doctor", "a slip", "action")
            with pytest.raises(Problem, match="already has an action"):
                await engine.action(ids[0], right[0], "person")
            await engine.reward(ids[0], 1.0, None, None)
            await engine.reward(ids[1], 2.0, right[1], None)
            now[0] += 3_601.0
            assert await engine._waits.end() == 2
            export_log(engine.store, engine.schema, tmp_path / "log.parquet")
            rows = pq.read_table(tmp_path / "log.parquet").to_pylist()
            assert {row["decision"]: (row["arm"], row["reward"], row["by"]) for row in rows} == {
                str(ids[0]): (event.arms[0], 1.0, "service"),
                str(ids[1]): (right[1], 2.0, "person"),
                str(ids[2]): (event.arms[2], -1.0, "service"),
                str(ids[3]): (first[3], -1.0, "person"),
            }
            counts = Counter([event.arms[0], right[1], event.arms[2], first[3]])
            assert engine.state.learner.counts.tolist() == [counts[arm] for arm in ARMS]
            return bits(engine.state)

    assert run(live()) == replayed(config)


def test_the_learner_is_as_if_the_reward_had_never_come(tmp_path, database, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database, snapshot_every=5)

    async def live() -> list[DecisionId]:
        async with engine_of(config) as engine, engine_of(config) as other:
            ids = await rewarded(engine, rng, [1.0, 0.5, 1e6, 0.25, None])
            number, new, *_ = await engine.reviews.retract(ids[2], "doctor", "a slip of the keyboard")
            assert new
            assert await engine.reviews.retract(ids[2], "doctor", "again") == (number, False, None, False)
            ids += await rewarded(engine, rng, [2.0, 0.125])
            wrong = next(row for row in engine.store.read(0, number) if row.key == f"reward:{ids[2]}")
            expected = by_hand(config, engine.store, {wrong.number})
            assert learner_bytes(engine.state.learner) == expected
            for _ in range(200):
                if other.state.number == engine.state.number:
                    break
                await asyncio.sleep(0.02)
            assert bits(other.state) == bits(engine.state)
            assert engine.state.counts["retractions"] == 1
            assert engine.state.counts["quarantined"] == 0, "it was learned, and is no value out of bounds"
            # what has no reward has nothing to take back
            with pytest.raises(Problem, match="no reward"):
                await engine.reviews.retract(ids[4], None, None)
            # what the log says stays: a second reward is still a contradiction
            with pytest.raises(Problem) as caught:
                await engine.reward(ids[2], 3.0, None, None)
            assert caught.value.kind == "conflict"
            # an earlier state still has it
            before = recover(engine.store, upto=number - 1).state
            assert learner_bytes(before.learner) != learner_bytes(recover(engine.store, upto=number).state.learner)
            assert bits(recover(engine.store, upto=number - 1, use_snapshots=False).state) == bits(before)
            return ids

    run(live())
    store = open_store(config)
    assert bits(recover(store).state) == bits(recover(store, use_snapshots=False).state)
    store.close()


def test_a_base_that_holds_it_is_a_clear_no(tmp_path, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def live() -> None:
        async with engine_of(config) as engine:
            ids = await rewarded(engine, rng, [1.0, 1e6])
            forget(engine.store, "anna", erase=False)
            with pytest.raises(Problem, match=r"base after event.*cannot be taken out"):
                await engine.reviews.retract(ids[1], None, None)

    run(live())


@pytest.mark.parametrize("by_command", [False, True])
def test_a_base_that_comes_between_the_look_and_the_writing_is_noticed(tmp_path, rng, monkeypatch, by_command):
    """Somebody is forgotten after it was looked up which events a base holds."""
    config = make_config(tmp_path, kind="OFUL", mode="act")
    module = retracting if by_command else reviewing
    look, looks = module.base_number, []

    def slow_look(store):
        found = look(store)
        if not looks:
            other = open_store(config)
            assert forget(other, "anna").decisions
            other.close()
        looks.append(found)
        return found

    monkeypatch.setattr(module, "base_number", slow_look)

    async def live() -> None:
        async with engine_of(config) as engine:
            ids = await rewarded(engine, rng, [1.0, 5.0])
            if by_command:
                with pytest.raises(InputError, match="replays start from a base"):
                    retracting.retract(engine.store, ids[1], config.load_schema().n_features, None, None)
            else:
                with pytest.raises(Problem, match="replays start from a base") as caught:
                    await asyncio.wait_for(engine.reviews.retract(ids[1], None, None), 30)
                assert caught.value.kind == "conflict"
            assert looks[0] is None
            assert looks[1] is not None

    run(live())


def test_a_base_does_not_hold_what_is_retracted_while_somebody_is_forgotten(tmp_path, rng, monkeypatch):
    """The retraction comes after the log was folded and before the base is written."""
    config = make_config(tmp_path, kind="OFUL", mode="act")
    verified, looks = retention._verified, []

    async def live() -> None:
        async with engine_of(config) as engine:
            ids = await rewarded(engine, rng, [1.0, 5.0, 2.0])
            expected = by_hand(config, engine.store, {ids[1].number + 1})

            def slow(store, progress):
                state = verified(store, progress)
                if not looks:
                    retracting.retract(store, ids[1], config.load_schema().n_features, None, None)
                looks.append(state.number)
                return state

            monkeypatch.setattr(retention, "_verified", slow)
            assert forget(engine.store, "anna", erase=False).decisions == 3
            assert len(looks) == 2
            assert learner_bytes(recover(engine.store, use_snapshots=False).state.learner) == expected

    run(live())


def test_the_command(tmp_path, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def live() -> list[DecisionId]:
        async with engine_of(config) as engine:
            return await rewarded(engine, rng, [1.0, 1e6])

    ids = run(live())
    done = command("retract", str(ids[1]), "--reason", "a slip", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["repeated"] is False
    assert json.loads(command("replay", "--json", cwd=tmp_path).stdout)["equal"] is True
    assert "before" in command("retract", str(ids[1]), "--reason", "a slip", cwd=tmp_path).stdout
    assert "no decision" in command("retract", "999", "--reason", "x", cwd=tmp_path).stderr
    assert "not a decision" in command("retract", "x", "--reason", "x", cwd=tmp_path).stderr
    for what in ("action", "behavior"):
        done = command("retract", str(ids[0]), "--reason", "x", "--what", what, cwd=tmp_path)
        assert f"has no {what} that could be taken back" in done.stderr
    store = open_store(config)
    assert recover(store).state.learner.counts.sum() == 1
    store.close()


@pytest.mark.parametrize("what", ["action", "behavior"])
def test_the_command_takes_back_whatever_was_told(tmp_path, rng, what):
    config = make_config(tmp_path, mode="shadow")

    async def live() -> tuple[DecisionId, DecisionId]:
        async with engine_of(config) as engine:
            X = np.array([encode(random_context(rng)) for _ in range(2)])
            number, _, _ = await engine.decide(X, [Ask(), Ask(None, Answer("low"))])
            one, other = DecisionId(number, 0), DecisionId(number, 1)
            await (engine.action(one, "mid", None) if what == "action" else engine.behavior(one, Answer("mid")))
            assert engine.state.learner.hidden.n_answers == 2
            return one, other

    one, other = run(live())
    done = command("retract", str(one), "--reason", "a slip", "--what", what, cwd=tmp_path)
    assert f"The {what} of {one} is retracted" in done.stdout, done.stderr
    if what == "behavior":  # one that came with the decision
        assert command("retract", str(other), "--reason", "a slip", "--what", what, cwd=tmp_path).returncode == 0
    store = open_store(config)
    assert recover(store).state.learner.hidden.n_answers == (1 if what == "action" else 0)
    store.close()


def test_words_that_no_answer_can_hold_are_not_kept(tmp_path, rng):
    """A terminal hands bytes that are no UTF-8 over as halves of surrogate pairs; a decision with them was a 500."""
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def live() -> list[DecisionId]:
        async with engine_of(config) as engine:
            return await rewarded(engine, rng, [1.0])

    (id,) = run(live())
    for words in ("", "\udcff", "two\nlines", "x" * 201):
        done = command("retract", str(id), "--reason", words, cwd=tmp_path)
        assert "--reason" in done.stderr
        assert "1 to 200 characters" in done.stderr
    assert "--by" in command("retract", str(id), "--reason", "a slip", "--by", "\udcff", cwd=tmp_path).stderr
    discard = command("quarantine", "3", "--discard", "--reason", "\udcff", cwd=tmp_path)
    assert "--reason" in discard.stderr
    assert "no subject has" in command("forget", "--subject", "\udcff", cwd=tmp_path).stderr
    store = open_store(config)
    assert not store.of_kind("retraction")
    store.close()


def test_the_right_arm_after_a_wrong_action_is_an_answer(tmp_path, rng):
    """In shadow what the old policy did is an answer; an action that was taken back was none."""
    config = make_config(tmp_path, mode="shadow")

    async def live() -> str:
        async with engine_of(config) as engine:
            number, _, _ = await engine.decide(np.array([encode(random_context(rng)) for _ in range(2)]), None)
            ids = [DecisionId(number, i) for i in range(2)]
            for id in ids:
                await engine.action(id, "low", None)
                await engine.reviews.retract(id, "doctor", "a slip", "action")
            assert engine.state.learner.hidden.n_answers == 0
            await engine.reward(ids[0], 1.0, "high", None)
            assert (await engine.behavior(ids[1], Answer("high"))).new
            assert engine.state.learner.hidden.n_answers == 2
            return bits(engine.state)

    assert run(live()) == replayed(config)


def test_the_self_check_compares_a_replay_with_what_decides(tmp_path, database, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database, snapshot_every=5)

    async def live() -> None:
        async with engine_of(config) as engine:
            ids = await rewarded(engine, rng, [1.0, 0.5, 1e6])
            assert await engine.check_itself() is True
            await rewarded(engine, rng, [0.25, 2.0])
            assert await engine.check_itself() is True
            await engine.reviews.retract(ids[2], None, "a slip")
            assert await engine.check_itself() is True
            forget(engine.store, "anna", erase=False)
            await rewarded(engine, rng, [0.125])
            assert await engine.check_itself() is True
            text = engine.metrics.text().decode()
            assert f"sidelight_self_check_event_number {float(engine.state.number)}" in text
            assert "sidelight_self_check_failures_total 0.0" in text
            # a learner that is not the fold of the log any more
            engine.state.learner.observe(encode(random_context(rng)), "low", 9.0)
            assert await engine.check_itself() is False
            assert b"sidelight_self_check_failures_total 1.0" in engine.metrics.text()

    run(live())
