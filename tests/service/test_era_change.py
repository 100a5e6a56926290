"""The traffic story: cameras learn to tell scooters, a plan is retired, another one is built, decisions go on.

The service of the last era has decided without scooters. What it did becomes a log that hides them, and the next
service starts from that log; the old learner goes on acting until the new one takes over.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidelight as sl
from sidelight.errors import InputError
from sidelight.learners.saving import learner_from_bytes
from sidelight.service.config import LogsConfig, TelemetryConfig, initial_config, load_config, save_config
from sidelight.service.core.fold import State, numbered
from sidelight.service.core.old_policy import OldPolicy
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Configuration, Decisions
from sidelight.service.log.rows import event_from_row
from sidelight.worlds.signals import FEATURES, PLANS
from tests.service.helpers import command, engine_of, make_config, make_schema, post, random_context, run, serving

OLD = FEATURES[:9]  # everything but scooters
RETIRED, NEW = "all-walk", "scooter lane"


class Road:
    """Contexts and rewards of the crossing."""

    def __init__(self, seed: int) -> None:
        self.world = sl.worlds.TrafficWorld(seed=seed)
        self.rng = np.random.default_rng(seed)

    def contexts(self, n: int, features: tuple[str, ...]) -> tuple[np.ndarray, list[dict[str, float]]]:
        X = self.world.contexts(n, self.rng)
        return X, [dict(zip(features, x[1:].tolist(), strict=False)) for x in X]

    def rewards(self, X: np.ndarray, plans: list[str]) -> list[float]:
        known = [plan if plan != NEW else RETIRED for plan in plans]  # what is built does what its forerunner did
        return self.world.rewards(X, np.array(known), self.rng).tolist()


def drive(client: httpx.Client, road: Road, batches: int, features: tuple[str, ...], answers: bool) -> list[dict]:
    """Batches of decisions and their rewards; the decisions."""
    made: list[dict[str, Any]] = []
    for _ in range(batches):
        X, contexts = road.contexts(25, features)
        asks: list[dict[str, Any]] = [{"context": context} for context in contexts]
        if answers:
            for ask, action in zip(asks, road.world.behavior_actions(X, road.rng), strict=True):
                ask["behavior"] = {"arm": str(action)}
        answer = post(client, "/v1/decisions/batch", {"decisions": asks})
        assert answer.status_code == 201, answer.text
        decisions = answer.json()["decisions"]
        values = road.rewards(X, [decision["arm"] for decision in decisions])
        rewards = [{"decision": d["id"], "reward": value} for d, value in zip(decisions, values, strict=True)]
        assert not any("problem" in r for r in post(client, "/v1/rewards", {"rewards": rewards}).json()["results"])
        made += decisions
    return made


def say(*arguments: str, cwd: Path) -> str:
    done = command(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_next_era_starts_from_what_the_last_one_decided(tmp_path: Path, seed: int):
    road = Road(seed)
    first = tmp_path / "first"
    first.mkdir()
    # the log of the controller before: it recorded seven of the nine features, and scooters did not exist
    log = road.world.sample_log(3000, 7, road.rng)
    pq.write_table(pa.table(log), first / "old.parquet")
    features = ("--recorded", ",".join(FEATURES[:7]), "--hidden", ",".join(OLD[7:]))
    columns = ("--arm", "plan", "--reward", "minutes_saved", "--intercept")
    say("summarize", "old.parquet", *features, *columns, "-o", "log.summary", cwd=first)
    say("init", "--summary", "log.summary", "--mode", "act", "--port", "0", cwd=first)
    token = json.loads(
        say("tokens", "create", "road", *(a for s in ("decide", "reward", "read", "admin") for a in ("--scope", s)),
            "--json", cwd=first)
    )["token"]  # fmt: skip
    headers = {"Authorization": f"Bearer {token}"}
    with serving(first) as server, httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
        before = drive(client, road, 24, OLD, answers=True)
        assert {decision["by"] for decision in before} == {"learner"}
        # while it runs
        changes = ("--feature", "scooters", "--arm", NEW, "--retire", RETIRED)
        made = json.loads(say("successor", "../second", *changes, "--json", cwd=first))
    retired = sum(decision["arm"] == RETIRED for decision in before)
    assert made["rows"] == len(before) - retired
    assert (made["acted"], made["left_out"], made["moments"]) == ("learner", retired, 16)
    second = tmp_path / "second"
    config = load_config(second / "sidelight.toml")
    schema = config.load_schema()
    assert [schema.encoded_names[i] for i in schema.hidden_index] == ["scooters"]
    assert set(schema.arms) == {*PLANS, NEW} - {RETIRED}
    summary = sl.LogSummary.load(second / "log.summary")
    arms = [decision["arm"] for decision in before]
    assert dict(zip(summary.arms, summary.counts.tolist(), strict=True)) == {
        plan: arms.count(plan) for plan in summary.arms
    }
    with serving(second) as server, httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
        # in shadow the old learner goes on acting: it does not know scooters, and nobody needs to tell its arm
        shadow = drive(client, road, 8, FEATURES, answers=False)
        # (where it used to take the retired plan, what it takes now is no news about what it did)
        assert {decision["by"] for decision in shadow} == {"old_policy", "fallback"}
        # about as often as it did: the difference of two shares strays by more than 0.2 with probability below 1e-6
        fallbacks = sum(decision["by"] == "fallback" for decision in shadow) / len(shadow)
        assert abs(fallbacks - retired / len(before)) < 0.2
        assert not {decision["arm"] for decision in shadow} & {RETIRED, NEW, None}
        assert not any(decision["wants_query"] for decision in shadow)
        assert post(client, "/v1/mode", {"mode": "act"}).status_code == 200
        after = drive(client, road, 8, FEATURES, answers=False)
        assert {decision["by"] for decision in after} == {"learner"}
        assert RETIRED not in {decision["arm"] for decision in after}
        trust = {entry["arm"]: entry for entry in client.get("/v1/status").json()["log_trust"]}
        # a late reward of the old service has nowhere to go here
        assert post(client, f"/v1/decisions/{before[7]['id']}/reward", {"reward": 1.0}).status_code == 404
    # the old rows show in the new learner's sums, for the arms that have some
    frequent = max(summary.arms, key=lambda arm: arms.count(arm))
    print({arm: (arms.count(arm), round(entry["effective_rows"], 1)) for arm, entry in trust.items()})
    assert trust[frequent]["effective_rows"] > 0.2 * arms.count(frequent)
    assert not trust[frequent]["doubted"]
    assert trust[NEW]["effective_rows"] == 0.0
    with_log_beats_without(second, frequent)


def with_log_beats_without(folder: Path, arm: str) -> None:
    """The evidence of the log is in the estimate: without it, the same events leave a wider interval."""
    config = load_config(folder / "sidelight.toml")
    store = open_store(config)
    state = recover(store, use_snapshots=False).state
    events = [event_from_row(row, state.learner.n_features) for chunk in store.follow(0) for row in chunk]
    first = events[0]
    assert isinstance(first, Configuration)
    start = learner_from_bytes(store.blob(first.learner))
    answered = [event for event in events if isinstance(event, Decisions)]
    assert any(answer is not None for event in answered for answer in event.answers)
    # the same events without the log: a learner that starts cold
    cold = sl.OFUL(len(start.arms), start.n_features, arms=start.arms, regularization="auto", radius="posterior")
    x = np.mean([event.contexts.mean(axis=0) for event in answered], axis=0)
    folded = State(cold, state.rails, number=store.origin)
    for rows in store.follow(store.origin):
        for item in numbered(store, rows, start.n_features):
            folded.apply(item)
    at = list(start.arms).index(arm)
    assert state.learner.scores(x)[1][at] < folded.learner.scores(x)[1][at]
    store.close()


def test_what_cannot_be_succeeded_is_said(tmp_path: Path):
    make_config(tmp_path, kind="OFUL", mode="act")
    config = load_config(tmp_path / "sidelight.toml")
    open_store(config).close()
    for arguments, message in (
        ((), "nothing changes"),
        (("--retire", "tiny"), "'tiny' is not one of the arms"),
        (("--arm", "low"), "'low' is an arm already"),
        (("--feature", "age"), "age"),
        (("--feature", "new", "--mode", "dream"), "'dream' is not one of"),
        (("--feature", "new"), "no rewarded decisions"),
    ):
        done = command("successor", f"next{len(message)}", *arguments, cwd=tmp_path)
        assert done.returncode == 1, done.stdout
        assert message in done.stderr
        assert not list(tmp_path.glob("next*")), "nothing is left behind"
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "something").touch()
    assert "empty folder" in command("successor", "taken", "--feature", "new", cwd=tmp_path).stderr


def test_a_successor_writes_nothing_where_its_database_cannot_begin(tmp_path: Path, rng: np.random.Generator):
    config = make_config(tmp_path, kind="OFUL", mode="act")
    encode = make_schema().encode

    async def live() -> None:
        async with engine_of(config) as engine:
            for _ in range(40):
                number, _, _ = await engine.decide(encode(random_context(rng))[None], None)
                await engine.reward(DecisionId(number), float(rng.normal()), None, None)

    run(live())
    for place, message in (
        (tmp_path / "sidelight.db", "already holds events"),
        (tmp_path / "no" / "x.db", "no folder"),
    ):
        done = command("successor", "next", "--feature", "new", "--new-database", str(place), cwd=tmp_path)
        assert done.returncode == 1
        assert message in done.stderr
        assert not (tmp_path / "next").exists()
    done = command("successor", "next", "--feature", "new", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("change", [("--arm", "new"), ("--retire", "mid")])
def test_arms_alone_may_change(tmp_path: Path, change: tuple[str, str], rng: np.random.Generator):
    """Without new features the log hides nothing, and all that was learned goes over."""
    folder = tmp_path / "first"
    folder.mkdir()
    config = make_config(folder, kind="FusedOFUL", mode="act")
    config = replace(
        config,
        mode=replace(config.mode, explore=0.02, propensities="all"),
        gate=replace(config.gate, reward_after="7d", default_reward=-1.0, error_rate=0.01),
        bounds=replace(config.bounds, reward=[-50.0, 50.0]),
    )
    save_config(config, folder / "sidelight.toml")
    encode = make_schema().encode

    async def live() -> None:
        async with engine_of(config) as engine:
            X = np.array([encode(random_context(rng)) for _ in range(80)])
            number, _, _ = await engine.decide(X, None)
            ids = [DecisionId(number, i) for i in range(80)]
            await asyncio.gather(*(engine.reward(id, float(rng.normal()), None, None) for id in ids))

    run(live())
    say("successor", "../next", *change, cwd=folder)
    assert "is good" in say("serve", "--check", "-c", "../next/sidelight.toml", cwd=folder)
    after = load_config(tmp_path / "next" / "sidelight.toml")
    assert (after.gate, after.bounds) == (config.gate, config.bounds), "what was agreed goes over"
    assert (after.mode.explore, after.mode.propensities, after.mode.share) == (0.02, "all", 1.0)
    # where a gate is on, another learner begins at the foot of its ladder
    climbing = replace(config, gate=replace(config.gate, promote="automatic", ladder=[0.02, 0.5, 1.0]))
    save_config(climbing, folder / "sidelight.toml")
    say("successor", "../climbing", *change, "--mode", "act", cwd=folder)
    assert load_config(tmp_path / "climbing" / "sidelight.toml").mode.share == 0.02
    assert len(after.load_schema().hidden_index) == 0

    async def onward() -> None:
        async with engine_of(after) as engine:
            X = np.array([encode(random_context(rng)) for _ in range(5)])
            _, event, _ = await engine.decide(X, None)
            assert event.routes == ["old_policy"] * 5
            assert None not in event.arms

    run(onward())


def test_features_may_have_the_names_of_an_exports_own_columns(tmp_path: Path, rng: np.random.Generator):
    """Neither takes the other's place: not in an export, not in the log that a successor starts from."""
    names = ["age", "propensity", "decision", "mode"]
    folder = tmp_path / "first"
    folder.mkdir()
    schema = sl.Schema(names, recorded=[], arms=["low", "high"])
    made = initial_config(schema, mode="act", share=0.75, port=0)
    made = replace(made, logs=LogsConfig(format="json", level="error"), telemetry=TelemetryConfig(service_name="ward"))
    save_config(made, folder / "sidelight.toml")
    X = rng.normal(size=(60, 4))

    async def live() -> list[float | None]:
        async with engine_of(load_config(folder / "sidelight.toml")) as engine:
            number, event, _ = await engine.decide(X, None)
            for i in range(60):
                await engine.reward(DecisionId(number, i), 1.0, None, None)
            return event.propensities

    chances = run(live())
    say("export", "log.parquet", cwd=folder)
    table = pq.read_table(folder / "log.parquet")
    for i, name in enumerate(names):
        np.testing.assert_array_equal(table[name].to_numpy(), X[:, i])
    assert table["propensity_"].to_pylist() == chances
    assert set(table["mode_"].to_pylist()) == {"act"}
    say("successor", "../next", "--feature", "new", cwd=folder)
    after = load_config(tmp_path / "next" / "sidelight.toml")
    # what was set for the process goes over
    assert (after.logs, after.telemetry) == (made.logs, made.telemetry)


def test_dates_derived_features_and_gaps_go_over(tmp_path: Path, rng: np.random.Generator):
    """The next log is what the old learner saw, though a date is in no export; rows with gaps are left out."""
    folder = tmp_path / "first"
    folder.mkdir()
    schema = sl.Schema(
        "age + weight + missing(weight, 70) + ward + spline(age, knots=[30, 45, 60]) + weekday(visit)"
        " + days_since(visit, '2024-01-01') + age:ward",
        recorded=[],
        arms=["low", "high"],
        intercept=True,
        categories={"ward": ["north", "south"]},
        missing={"age": "impute"},
        binary=False,
    )
    save_config(initial_config(schema, mode="act", port=0), folder / "sidelight.toml")
    config = load_config(folder / "sidelight.toml")
    contexts = [
        {
            "age": None if i % 10 == 0 else float(rng.normal(50, 9)),
            "weight": None if i % 7 == 0 else float(rng.normal(70, 9)),
            "ward": ["north", "south"][i % 2],
            "visit": f"2024-03-{1 + i % 28:02d}",
        }
        for i in range(120)
    ]
    X = np.array([config.load_schema().encode(context) for context in contexts])
    rewards = rng.normal(size=120)

    async def live() -> list[Any]:
        async with engine_of(config) as engine:
            number, event, _ = await engine.decide(X, None)
            for i, reward in enumerate(rewards):
                await engine.reward(DecisionId(number, i), float(reward), None, None)
            return event.arms

    arms = run(live())
    said = say("successor", "../next", "--feature", "pain", cwd=folder)
    assert "12 were left out" in said
    assert "is good" in say("serve", "--check", "-c", "../next/sidelight.toml", cwd=folder)
    summary = sl.LogSummary.load(tmp_path / "next" / "log.summary")
    assert summary.schema.recorded_names == config.load_schema().encoded_names
    assert (summary.schema.imputed, summary.schema.binary) == (("age",), False)
    whole = ~np.isnan(X).any(axis=1)
    expected = sl.LogSummary.from_arrays(X[whole], np.array(arms)[whole], rewards[whole], summary.schema)
    np.testing.assert_allclose(summary.reward_sums, expected.reward_sums, rtol=1e-12)
    assert summary.counts.tolist() == expected.counts.tolist()

    async def onward() -> None:
        after = load_config(tmp_path / "next" / "sidelight.toml")
        async with engine_of(after) as engine:
            x = np.array([after.load_schema().encode({**contexts[0], "pain": 0.5})])
            _, event, _ = await engine.decide(x, None)
            assert event.routes == ["old_policy"]
            assert event.arms[0] in schema.arms

    run(onward())


def test_who_told_probabilities_goes_on_telling_them(tmp_path: Path, rng: np.random.Generator):
    folder = tmp_path / "first"
    folder.mkdir()
    config = make_config(folder, kind="FusedOFUL", mode="shadow", answers="probabilities")
    encode = make_schema().encode

    async def live() -> None:
        async with engine_of(config) as engine:
            X = np.array([encode(random_context(rng)) for _ in range(60)])
            number, _, _ = await engine.decide(X, None)
            for i in range(60):
                await engine.reward(DecisionId(number, i), 1.0, ["low", "mid", "high"][i % 3], None)

    run(live())
    say("successor", "../next", "--feature", "new", cwd=folder)
    after = load_config(tmp_path / "next" / "sidelight.toml")
    assert (after.learner.answers, after.learner.old_policy) == ("probabilities", "")


def test_the_mixture_answers_and_the_latest_acts(rng: np.random.Generator):
    """Answers are spread over the moments of the old learner; it acts as it was last, among the arms that are left."""
    old = sl.Schema(["a"], recorded=[], arms=["x", "y", "gone"])
    new = sl.Schema(["b", "a"], recorded=["a"], arms=["y", "x", "new"])

    def fond_of(arm: str) -> sl.OFUL:
        learner = sl.OFUL(3, 1, arms=old.arms, schema=old, radius="posterior")
        for _ in range(50):
            for other in old.arms:
                learner.observe([1.0], other, float(other == arm))
        return learner

    policy = OldPolicy([fond_of("x"), fond_of("y"), fond_of("gone"), fond_of("gone")], fond_of("y"), new)
    x = np.array([-7.0, 1.0])  # b does not matter, and a is where the old learner had it
    answers = [policy.answer(x, None, rng) for _ in range(400)]
    # binomial(400, 1/4) strays from 100 by more than 45 with probability below 1e-6
    assert all(abs(answers.count(arm) - 100) < 45 for arm in ("x", "y"))
    assert answers.count(None) == 400 - answers.count("x") - answers.count("y")
    assert {policy.act(x, None, rng) for _ in range(20)} == {"y"}
    assert policy.act(x, ["x", "new"], rng) == "x"
    assert policy.act(x, ["new"], rng) is None
    assert policy.answer(x, ["new"], rng) is None
    with pytest.raises(InputError, match="'a'"):
        OldPolicy([fond_of("x")], fond_of("x"), sl.Schema(["b"], recorded=["b"], arms=["x", "y"]))
