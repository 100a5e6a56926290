"""The dashboard without a browser: what it counts, what it says, whom it lets in, what it costs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from markupsafe import escape
from starlette.requests import Request
from starlette.responses import Response

import sidelight as sl
from sidelight.drawing.intervals import number, student
from sidelight.errors import StoreError
from sidelight.service.app import create_app
from sidelight.service.config import BoundsConfig, Config, initial_config, load_config, save_config
from sidelight.service.core.deciding import Ask
from sidelight.service.core.engine import Engine
from sidelight.service.core.fold import Numbered
from sidelight.service.core.starting import open_store
from sidelight.service.dashboard import proving
from sidelight.service.dashboard.groups import dividing_features, groups_by
from sidelight.service.dashboard.learning import arm_rows, arms_table
from sidelight.service.dashboard.pieces import give_or_take, percent
from sidelight.service.dashboard.rendering import Renderer, View
from sidelight.service.dashboard.rolling import Rewarded, Rolling
from sidelight.service.dashboard.routes import Dashboard
from sidelight.service.dashboard.sessions import Sessions
from sidelight.service.dashboard.watching import subgroups
from sidelight.service.dashboard.window import ACTORS, Window
from sidelight.service.http.auth import Token, Tokens, create_token, list_tokens, revoke_token
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Configuration, Forgotten, Reward
from sidelight.service.log.rows import Row
from sidelight.service.views.status import describe_engine
from tests.service.helpers import (
    ARMS,
    Server,
    engine_of,
    make_config,
    make_schema,
    post,
    random_context,
    run,
    serving,
)

VIEW = View("hour", "taken", "ward")


@contextlib.asynccontextmanager
async def watched(config: Config) -> AsyncIterator[tuple[Engine, Dashboard]]:
    """An engine and its dashboard in this process."""
    async with engine_of(config) as engine:
        dashboard = Dashboard(engine, Tokens(list_tokens(engine.store), True))
        dashboard.start()
        try:
            yield engine, dashboard
        finally:
            dashboard.stop()


def encoded(rng: np.random.Generator, n: int) -> np.ndarray:
    schema = make_schema()
    return np.array([schema.encode(random_context(rng)) for _ in range(n)])


def test_the_mean_reward_of_an_arm_without_rewards_is_nothing_not_zero(tmp_path, rng):
    async def go():
        async with watched(make_config(tmp_path, kind="OFUL", mode="act")) as (engine, dashboard):
            number_, _, _ = await engine.decide(encoded(rng, 1), None)
            await engine.reward(DecisionId(number_, 0), -2.5, "mid", None)
            told = {arm["arm"]: (arm["rewards"], arm["mean_reward"]) for arm in describe_engine(engine)["arms"]}
            assert told == {"low": (0, None), "mid": (1, -2.5), "high": (0, None)}
            rows = arm_rows(engine.state, dashboard.rolling, "hour", time.time())
            table = str(arms_table(rows, "hour", 1))
            assert len(re.findall(r"–\s*<[^>]+>\s*of 0", table)) == 2

    run(go())


# ------------------------------------------------------------------------------------------ counting


def test_a_window_counts_what_lies_in_it(seed):
    """Whatever the order of small delays and however long the pauses, it equals counting the events themselves."""
    rng = np.random.default_rng(seed)
    window = Window(7.0, 9, 3)
    now, times = 1_000_003.0, []
    for _ in range(400):
        now += rng.exponential(2.0) if rng.random() < 0.97 else 120.0 * rng.random()
        at = now - 5.0 * rng.random()
        times.append(at)
        slot = window.slot(at)
        if slot is not None:
            window.add(slot, "decisions")
            window.add_arm(slot, "taken", int(rng.integers(3)))
        newest = int(max(max(times), now) // 7.0)
        expected = Counter(int(t // 7.0) for t in times)
        assert window.series("decisions", now) == [expected[newest - 8 + i] for i in range(9)]
    assert sum(map(sum, window.arms(now))) == window.total("decisions", now)
    assert window.seconds(now) == pytest.approx(8 * 7.0 + now % 7.0)
    window.grow(5)
    assert {len(row) for row in window.arms(now)} == {5}


async def traffic(engine: Engine, n: int, seed: int) -> Counter[str]:
    """Decisions of all kinds and what follows; counts rewards by who chose the arm, from the decisions themselves."""
    rng = np.random.default_rng(seed)
    earned: Counter[str] = Counter()
    for i in range(n):
        size = 1 if i % 3 else 5
        X = encoded(rng, size)
        asks = None
        if i % 4 == 0:
            asks = [Ask(answer=Answer(arm=ARMS[int(rng.integers(3))]) if j % 2 else None) for j in range(size)]
        number, event, _ = await engine.decide(X, asks)
        for position in range(size):
            id, value = DecisionId(number, position), float(rng.normal())
            if rng.random() < 0.2:
                arm = next(arm for arm in ARMS if arm != event.arms[position])
                await engine.action(id, arm, "person")
                await engine.reward(id, value, None, None)
                earned["person"] += 1
            elif rng.random() < 0.8:
                await engine.reward(id, value, None, None)
                earned[event.routes[position]] += 1
    return earned


def test_events_are_counted_at_the_time_that_the_log_has(tmp_path: Path, seed):
    """Not at the time of their delivery: a restart, which reads the log, would count some in another minute."""
    config = make_config(tmp_path, kind="RunningOFUL", mode="act", share=0.5)

    async def live() -> None:
        async with watched(config) as (engine, _):
            seen: dict[int, float] = {}
            engine.listeners.append(lambda news: seen.update((item.number, item.at) for item in news))
            before = engine.state.number
            await traffic(engine, 10, seed)
            assert seen == {row.number: row.at for row in engine.store.read(before, engine.state.number)}
            assert len(seen) > 10

    run(live())


def test_counters_agree_with_the_fold_and_survive_a_restart(tmp_path: Path, seed):
    config = make_config(tmp_path, kind="RunningOFUL", mode="act", share=0.5)

    async def live() -> tuple[Any, Any]:
        async with watched(config) as (engine, dashboard):
            earned = await traffic(engine, 25, seed)
            return check(dashboard.rolling, engine, earned)

    async def again() -> tuple[Any, Any]:
        async with watched(config) as (engine, dashboard):
            return check(dashboard.rolling, engine, None)

    def check(rolling: Rolling, engine: Engine, earned: Counter[str] | None) -> tuple[Any, Any]:
        now = time.time()
        counts = engine.state.counts
        for window in (rolling.hour, rolling.day):
            assert window.total("decisions", now) == counts["decisions"]
            assert window.total("overrides", now) == counts["overrides"]
            assert window.total("answers", now) == counts["answers"]
            assert sum(window.total(f"rewards:{actor}", now) for actor in ACTORS) == counts["rewards"]
            for arm, place in rolling.arms.items():
                assert sum(row[place] for row in window.arms(now)) == engine.state.arm_counts[arm]
                rewards = sum(row[place] for row in window.arms(now, "rewarded"))
                assert rewards == engine.state.arm_counts["rewarded:" + arm]
            for route in ("learner", "old_policy", "fallback"):
                assert window.total(f"decided:{route}", now) == counts[route]
        if earned is not None:
            # batches are divided between learner and others, so this needs each decision's own route
            assert {a: rolling.hour.total(f"rewards:{a}", now) for a in ACTORS} == {a: earned[a] for a in ACTORS}
            assert min(earned.values()) > 0
        sums = [rolling.hour.total(f"sums:{actor}", now) for actor in ACTORS]
        assert sum(sums) == pytest.approx(sum(engine.state.reward_sums.values()))
        return sums, rolling.rewarded.rows()

    (sums, rows), (sums_again, rows_again) = run(live()), run(again())
    assert sums == sums_again
    for one, other in zip(rows, rows_again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_in_quarantine_is_in_no_mean_before_it_is_released(tmp_path: Path):
    config = make_config(tmp_path, kind="OFUL", mode="act")
    config = replace(config, bounds=BoundsConfig(reward=[-10.0, 10.0]))
    save_config(config, tmp_path / "sidelight.toml")

    async def go() -> None:
        async with watched(load_config(tmp_path / "sidelight.toml")) as (engine, dashboard):
            number, _, _ = await engine.decide(encoded(np.random.default_rng(3), 3), None)
            rewards = (1.0, 1e6, 3.0)
            told = [await engine.reward(DecisionId(number, i), reward, None, None) for i, reward in enumerate(rewards)]
            (event,) = (noted.number for noted in told if noted.quarantine)
            for mean, n in ((2.0, 2), ((1.0 + 1e6 + 3.0) / 3.0, 3)):
                rolling, now = dashboard.rolling, time.time()
                assert rolling.hour.total("rewards:learner", now) == 3
                sums, worth = (rolling.hour.total(f"{name}:learner", now) for name in ("sums", "worth"))
                assert (sums / worth, worth) == (pytest.approx(mean), n)
                assert rolling.rewarded.rows()[1].mean() == pytest.approx(mean)
                assert f"of {n} in an hour" in Renderer(engine, rolling, dashboard.errors).parts(VIEW)["tiles"]
                await engine.reviews.decide_doubt(DecisionId(event), True, None, "right")

    run(go())


def test_the_status_and_the_dashboard_say_the_same(tmp_path: Path):
    """Also where the old policy acts, and what it does is its answer."""
    config = make_config(tmp_path, kind="RunningOFUL", mode="shadow")

    async def go() -> None:
        async with watched(config) as (engine, dashboard):
            for i, x in enumerate(encoded(np.random.default_rng(3), 9)):
                number, _, _ = await engine.decide(x[None], [Ask(answer=Answer("low"))] if i % 3 == 0 else None)
                if i % 2:
                    await engine.action(DecisionId(number), ARMS[i % 3], None)
                await engine.reward(DecisionId(number), 1.0, ARMS[i % 3], None)
            status = describe_engine(engine)
            parts = Renderer(engine, dashboard.rolling, dashboard.errors).parts(View.of({}, ["age"]))
            answers = status["counts"]["answers"]
            assert answers == 9, "three came with the decision, the others are what the old policy did"
            assert f"<dt>Answers so far</dt><dd>{answers}</dd>" in parts["queries"]
            assert f"<dt>Answered in an hour</dt><dd>{answers}</dd>" in parts["queries"]
            assert f"event {status['event']}, learner as of event {status['version']}" in parts["about"]
            assert f"{status['counts']['decisions']} in an hour" in parts["tiles"]
            assert f"{status['counts']['rewards']} in an hour" in parts["tiles"]
            assert f">{status['counts']['overrides']}</dd>" in parts["tiles"]

    run(go())


def test_what_is_read_at_the_start_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def go() -> None:
        async with engine_of(config) as engine:
            for x in encoded(np.random.default_rng(3), 60):
                await engine.decide(x[None], None)
            upto, d = engine.state.number, engine.state.learner.n_features
            for name, value, expected in (("_FILL_EVENTS", 20, 20), ("_FILL_BYTES", 1, 10)):
                with monkeypatch.context() as patched:
                    patched.setattr(f"sidelight.service.dashboard.rolling.{name}", value)
                    patched.setattr("sidelight.service.dashboard.rolling._FILL_CHUNK", 10)
                    rolling = Rolling(ARMS, d)
                    rolling.fill(engine.store, upto, d)
                    assert rolling.hour.total("decisions", time.time()) == expected
                    # what was changed before is known all the same
                    assert len(rolling.changes) == 1
            # a log that fails on the way gives what was read until then, and that is what is said
            read, calls = engine.store.read, []

            def fails(*span: int) -> list[Row]:
                calls.append(span)
                if len(calls) > 2:
                    raise StoreError("gone.")
                return read(*span)

            with monkeypatch.context() as patched:
                patched.setattr("sidelight.service.dashboard.rolling._FILL_CHUNK", 10)
                patched.setattr(engine.store, "read", fails)
                part = Rolling(ARMS, d)
                part.fill(engine.store, upto, d)
            assert part.hour.total("decisions", time.time()) == 20
            assert "starts with the last 20 events only, more cannot be read: gone." in caplog.text
            # nor is what happened before yesterday
            late = Rolling(ARMS, d)
            late.fill(engine.store, upto, d, now=time.time() + 2 * 86_400)
            assert late.day.total("decisions", time.time()) == 0

    run(go())


def test_changes_of_who_acts_are_listed_with_their_authors(tmp_path: Path):
    config = make_config(tmp_path, kind="OFUL", mode="shadow")

    async def go() -> None:
        async with watched(config) as (engine, dashboard):
            await engine.configure(Configuration(mode="act", share=0.125, by="night shift"))
            await engine.configure(Configuration(killed=True, by="night shift"))
            first, second, third = dashboard.rolling.changes
            assert (first.words, first.by) == ("mode shadow, ramp 100\u00a0%, fallback low", "the configuration file")
            assert (second.words, second.by) == ("mode act, ramp 12.5\u00a0%", "night shift")
            assert third.words == "kill switch on"
            assert "The kill switch is on" in dashboard.renderer.parts(VIEW)["banner"]

    run(go())


# ----------------------------------------------------------------------------------------- subgroups


def filled(n: int, seed: int) -> tuple[Rewarded, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X, rewards, actors = encoded(rng, n), rng.normal(size=n), rng.integers(0, 4, size=n)
    rewarded = Rewarded(X.shape[1])
    for i in range(n):
        rewarded.add(DecisionId(i + 1, 0), X[i], rewards[i], int(actors[i]))
    return rewarded, X, rewards, actors


def test_subgroups_are_those_of_the_contexts(seed):
    rewarded, X, rewards, actors = filled(500, seed)
    schema = make_schema()
    wards = groups_by("ward", rewarded, schema)
    assert [group.name for group in wards] == ["north", "south", "east"]
    south = X[:, 3] == 1.0
    assert wards[1].every == student(rewards[south])
    assert wards[1].learner == student(rewards[south & (actors == 0)])
    assert wards[1].others == student(rewards[south & (actors != 0)])
    assert wards[1].learner_count + wards[1].others_count == wards[1].size == south.sum()
    # a number in quarters, a boolean by its two values; every reward is in one of them
    ages = groups_by("age", rewarded, schema)
    assert [group.size for group in ages] == [125, 125, 125, 125]
    assert [group.name for group in groups_by("severity", rewarded, schema)] == ["0", "1"]
    np.testing.assert_allclose(
        sum(group.size * group.every.mean for group in ages) / 500, rewards.mean(), rtol=0, atol=1e-12
    )


def test_rewards_are_divided_only_by_what_a_context_holds():
    """A date has no encoded column: rewards were divided by the feature behind it, or that was an error."""
    schema = sl.Schema(["age"], ["age", "visit"], derived=["weekday(visit)"], intercept=True, arms=ARMS)
    assert [feature.name for feature in schema.features] == ["age", "visit"]
    assert dividing_features(schema) == ["age"]
    assert View.of({"feature": "visit"}, dividing_features(schema)).feature == "age"
    constant = sl.Schema([], [], intercept=True, arms=ARMS)
    assert View.of({}, dividing_features(constant)).feature == ""
    rewarded = Rewarded(1)
    rewarded.add(DecisionId(1, 0), np.ones(1), 2.0, 0)
    assert groups_by("", rewarded, constant) == []
    assert "no feature to divide" in subgroups("", [])


def test_only_the_last_rewards_are_kept(seed):
    rewarded, X, rewards, _ = filled(100, seed)
    small = Rewarded(200_000)  # as many features as leave room for the smallest number of rows
    assert small.size == 100
    assert len(rewarded.rows()[1]) == 100
    rewarded.size = 100
    rewarded.add(DecisionId(7, 3), X[0], 42.0, 0)
    assert rewarded.rows()[1].max() == 42.0
    assert rewards[0] not in rewarded.rows()[1]


def test_a_person_who_is_forgotten_is_forgotten_here_too(seed):
    rewarded, X, _, _ = filled(50, seed)
    rolling = Rolling(ARMS, X.shape[1])
    rolling.rewarded = rewarded
    rolling.take([Numbered(60, time.time(), Forgotten([[7, 0], [9, 0]]), None)])
    contexts, rewards, _ = rolling.rewarded.rows()
    assert len(rewards) == 48
    assert not any((contexts == X[6]).all(axis=1))
    assert rolling.mean_context() is None
    # a reward that was under way meanwhile counts, but brings no context back
    now = time.time()
    rolling.take([Numbered(61, now, Reward(DecisionId(7), 2.5, "mid"), X[6])])
    rolling.take([Numbered(62, now, Reward(DecisionId(8), 3.5, "mid"), X[7])])
    assert rolling.hour.total("sums:learner", now) == 6.0
    contexts, rewards, _ = rolling.rewarded.rows()
    assert 3.5 in rewards
    assert not any((contexts == X[6]).all(axis=1))


# ------------------------------------------------------------------------------------------- parts


def test_names_are_text_and_never_html(tmp_path: Path):
    """Arms, levels, features and who changed what come from outside."""
    evil = '<img src=x onerror="alert(1)">'
    schema = sl.Schema([evil, "age"], recorded=["age"], arms=[evil, "b"], categories={evil: ["a", evil]})
    save_config(initial_config(schema, kind="OFUL", port=0, mode="act"), tmp_path / "sidelight.toml")

    async def go() -> None:
        async with watched(load_config(tmp_path / "sidelight.toml")) as (engine, dashboard):
            x = schema.encode({evil: evil, "age": 1.0})
            for _ in range(3):
                number, _, _ = await engine.decide(x[None], None)
                await engine.reward(DecisionId(number), 1.0, evil, "person")
            await engine.configure(Configuration(mode="assist", by=evil))
            dashboard.errors.handle(_record(evil))
            parts = dashboard.renderer.parts(View("hour", "taken", evil))
            text = "".join(parts.values()) + dashboard.renderer.every_arm(VIEW)
            assert "<img" not in text
            assert text.count("&lt;img") > 8

    run(go())


def _record(words: str) -> Any:
    return logging.LogRecord("sidelight.service", logging.ERROR, "", 0, words, None, None)


def test_two_hundred_arms_stay_readable_and_cheap(tmp_path: Path):
    arms = [f"item-{i:03d}" for i in range(200)]
    schema = sl.Schema(["u", "v"], recorded=["u"], arms=arms, intercept=True)
    save_config(initial_config(schema, kind="OFUL", port=0, mode="act"), tmp_path / "sidelight.toml")

    async def go() -> None:
        async with watched(load_config(tmp_path / "sidelight.toml")) as (engine, dashboard):
            rng = np.random.default_rng(1)
            X = np.column_stack([np.ones(300), rng.normal(size=(300, 2))])
            for x in X:
                # only one is allowed, so that every arm is taken
                number, _, _ = await engine.decide(x[None], [Ask(allowed=[arms[int(rng.integers(200))]])])
                await engine.reward(DecisionId(number), 0.5, None, None)
            reading, here = engine.store.reading, threading.get_ident()

            def elsewhere() -> Any:
                assert threading.get_ident() != here, "a push reads from the store"
                return reading()

            engine.store.reading = elsewhere  # type: ignore[method-assign]
            view = View("hour", "taken", "u")
            parts = dashboard.renderer.parts(view)
            assert parts["arms"].count("<tr>") == 11
            assert parts["arms-over-time"].count("<li>") == 7
            assert dashboard.renderer.every_arm(view).count('<th scope="row">') == 200
            assert sum(map(len, parts.values())) < 60_000

    run(go())


def test_estimates_are_the_learners(tmp_path: Path):
    config = make_config(tmp_path, kind="FusedOFUL", mode="act")

    async def go() -> None:
        async with watched(config) as (engine, dashboard):
            await traffic(engine, 12, 3)
            mean, n = dashboard.rolling.mean_context() or (None, 0)
            assert n == engine.state.counts["decisions"]
            estimates, widths = engine.state.learner.scores(mean)
            for row in arm_rows(engine.state, dashboard.rolling, "hour", time.time()):
                i = ARMS.index(row.arm)
                assert (row.estimate, row.width) == (estimates[i], widths[i])
            parts = dashboard.renderer.parts(VIEW)
            assert "rests on it" in parts["trust"]
            assert "no limit" in parts["queries"]

    run(go())


def test_what_the_log_proved_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = make_config(tmp_path, kind="FusedOFUL", mode="act")
    verdict = sl.judge(config.load_summaries()[""])

    async def go() -> None:
        async with watched(config) as (_, dashboard):
            card = dashboard.renderer.parts(VIEW)["verdict"]
            assert str(escape(verdict.sentence)) in card
            for line in verdict.lines[1:]:
                assert str(escape(line.policy)) in card
                assert number(line.gain, sign=True) in card
            # the page's policy forbids styles and scripts inside it
            assert "style=" not in card
            assert "<script" not in card
            # judged once, however long the service runs
            monkeypatch.setattr(proving, "judge", None)
            assert dashboard.renderer.parts(VIEW)["verdict"] == card

    run(go())


def test_a_service_without_a_log_says_so(tmp_path: Path):
    async def go() -> None:
        async with watched(make_config(tmp_path, kind="OFUL")) as (_, dashboard):
            assert "started without a log" in dashboard.renderer.parts(VIEW)["verdict"]

    run(go())


def test_errors_are_shown_and_hold_no_more_than_the_log(tmp_path: Path):
    config = make_config(tmp_path, kind="OFUL")

    async def go() -> None:
        async with watched(config) as (engine, dashboard):
            assert "No warnings" in dashboard.renderer.parts(VIEW)["errors"]
            for i in range(20):
                dashboard.errors.handle(_record(f"failure {i}"))
            engine.metrics.answered("/v1/decisions", 422, 0.1)
            fresh = Renderer(engine, dashboard.rolling, dashboard.errors).parts(VIEW)["errors"]
            assert "failure 19" in fresh
            assert "failure 9<" not in fresh
            assert re.search(r"/v1/decisions</th><td>422</td><td>1<", fresh)
            dashboard.stop()
            assert dashboard.errors not in logging.getLogger("sidelight.service").handlers

    run(go())


def test_numbers_as_people_read_them():
    assert give_or_take(-0.26081, 0.0097) == "−0.261 <small>± 0.010</small>"
    assert give_or_take(1234.5, 87.0) == "1,234 <small>± 87</small>"
    assert give_or_take(0.00012345, 0.000021) == "0.000123 <small>± 0.000021</small>"
    assert give_or_take(1.0, float("inf")) == "1.00 <small>± –</small>"
    assert [percent(p) for p in (0.0, 0.004, 0.0951, 0.0996, 1.0)] == [
        "0\u00a0%",
        "0.4\u00a0%",
        "9.5\u00a0%",
        "10\u00a0%",
        "100\u00a0%",
    ]


# ------------------------------------------------------------------------------------- who is let in


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[tuple[Server, dict[str, str], Any]]:
    folder: Path = tmp_path_factory.mktemp("dashboard")
    config = make_config(folder, kind="RunningOFUL", mode="act", limits={"seconds": 2.5})
    store = open_store(config)
    tokens = {
        "watch": create_token(store, "wall screen", ["read"]),
        "switch": create_token(store, "night shift", ["read", "admin"]),
        "decide": create_token(store, "app", ["decide", "reward"]),
        # a busy server notices late that streams were hung up on: whoever opens them all is nobody else
        "crowd": create_token(store, "crowd", ["read"]),
    }
    with serving(folder) as server:
        yield server, tokens, store
    store.close()


OURS = {"X-Sidelight-Dashboard": "1"}


def signed_in(service: Any, who: str) -> httpx.Client:
    server, tokens, _ = service
    client = httpx.Client(base_url=server.url)
    assert post(client, "/dashboard/session", {"token": tokens.get(who, who)}).status_code == 204
    return client


def test_the_page_is_behind_a_door_and_under_a_strict_policy(service):
    server, _, _ = service
    outside = httpx.get(server.url + "/")
    inside = signed_in(service, "watch").get("/")
    assert "Sign in" in outside.text
    assert "part-tiles" not in outside.text
    assert "part-tiles" in inside.text
    for answer in (outside, inside):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        # nothing that the policy would refuse, and nothing from elsewhere
        assert not re.search(r"<script(?![^>]* src=\"/)|<style| style=|\bon[a-z]+=|https?://", answer.text)
        for name in re.findall(r'(?:src|href)="(/dashboard/[^"]+)"', answer.text):
            assert httpx.get(server.url + name).status_code == 200
    assert httpx.get(server.url + "/dashboard/nothing.js").status_code == 404
    head = httpx.head(server.url + "/")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == outside.headers["content-length"]


def test_the_cookie_is_no_token_and_scripts_cannot_read_it(service):
    server, tokens, _ = service
    client = httpx.Client(base_url=server.url)
    cookie = post(client, "/dashboard/session", {"token": tokens["watch"]}).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Path=/" in cookie
    assert "Secure" not in cookie, "here it came without TLS"
    behind = httpx.Client(base_url=server.url, headers={"X-Forwarded-Proto": "https"})
    assert "Secure" in post(behind, "/dashboard/session", {"token": tokens["watch"]}).headers["set-cookie"]
    assert tokens["watch"].split("_", 2)[2] not in cookie
    # it opens the dashboard and nothing else
    assert client.get("/v1/status").status_code == 401
    assert client.get("/dashboard/arms").status_code == 200
    assert client.request("DELETE", "/dashboard/session").status_code == 204
    assert client.get("/dashboard/arms").status_code == 401
    assert client.get("/dashboard/session").json() == {"may_watch": False}


def test_signing_in_often_ends_nobody_elses_session():
    """Sessions are limited for each token, so that one token cannot sign everybody else out."""
    mine, other = (Token(name, name, frozenset({"read"}), "", 0.0, None) for name in ("mine", "other"))
    sessions = Sessions(Tokens([mine, other], loopback=True))

    def request(cookie: str = "") -> Request:
        headers = [(b"cookie", cookie.encode())]
        return Request({"type": "http", "method": "GET", "scheme": "http", "path": "/", "headers": headers})

    def sign_in(token: Token) -> Request:
        response = Response()
        sessions.open(token, request(), response)
        return request(response.headers["set-cookie"].partition(";")[0])

    watching, first = sign_in(other), sign_in(mine)
    for _ in range(1000):
        last = sign_in(mine)
    assert sessions.token(watching) == other
    assert sessions.token(last) == mine
    assert sessions.token(first) is None, "those of one token are limited"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"token": "sl_00000000_" + "x" * 43}, 401),
        ({"token": "nonsense ☃"}, 401),
        ({"token": 7}, 422),
        ([], 422),
        ({"token": "x" * 2000}, 413),
    ],
)
def test_bad_tokens_open_nothing(service, body, status):
    client = httpx.Client(base_url=service[0].url)
    answer = post(client, "/dashboard/session", body)
    assert answer.status_code == status
    assert "set-cookie" not in answer.headers
    assert client.get("/dashboard/events").status_code == 401


def test_no_other_address_is_open(service):
    """Beside what the description names there is the dashboard; of that only the door and the files are for all."""
    server, tokens, _ = service
    bare = httpx.Client(base_url=server.url)
    for path in ("/dashboard/events", "/dashboard/arms"):
        answer = bare.get(path)
        assert answer.status_code == 401
        assert "part" not in answer.text
    described = bare.get("/openapi.json", headers={"Authorization": f"Bearer {tokens['watch']}"}).json()["paths"]
    assert not [path for path in described if "dashboard" in path]
    for path in ("/dashboard", "/dashboard/", "/dashboard/../sidelight.toml", "/dashboard/%2e%2e/page.py", "/static"):
        assert bare.get(path).status_code == 404, path


def test_pages_of_other_origins_may_not_watch(service):
    client = signed_in(service, "watch")
    for site in ("cross-site", "same-site"):
        assert client.get("/dashboard/events", headers={"Sec-Fetch-Site": site}).status_code == 401


def test_a_token_without_read_may_not_watch(service):
    server, tokens, _ = service
    answer = post(httpx.Client(base_url=server.url), "/dashboard/session", {"token": tokens["decide"]})
    assert answer.status_code == 403
    assert "'read'" in answer.json()["detail"]


def test_switching_needs_admin_and_our_own_page(service):
    store = service[2]
    client = signed_in(service, "switch")
    for headers in (
        {},  # what a form or a script of another origin could send
        {"X-Sidelight-Dashboard": "0"},
        OURS | {"Sec-Fetch-Site": "cross-site"},
        OURS | {"Sec-Fetch-Site": "same-site"},  # another port of this very host
    ):
        for path, body in (("/v1/kill", {"killed": True}), ("/v1/mode", {"mode": "shadow"})):
            assert post(client, path, body, **headers).status_code == 401, headers
    before = store.head()
    assert post(client, "/v1/mode", {"share": 0.75}, **OURS).status_code == 200
    assert post(client, "/v1/kill", {"killed": True}, **OURS, **{"Sec-Fetch-Site": "same-origin"}).status_code == 200
    written = [json.loads(row.payload) for row in store.read(before, store.head()) if row.kind == "configuration"]
    assert [(event["by"], event.get("share"), event.get("killed")) for event in written] == [
        ("night shift", 0.75, None),
        ("night shift", None, True),
    ]
    assert post(client, "/v1/kill", {"killed": False}, **OURS).status_code == 200
    reader = signed_in(service, "watch")
    assert post(reader, "/v1/kill", {"killed": True}, **OURS).status_code == 403
    # a cookie does not stand in where a token is needed for anything else
    assert post(client, "/v1/decisions", {"context": {}}, **OURS).status_code == 401


def test_a_revoked_token_ends_its_session(service):
    server, _, store = service
    token = create_token(store, "leaver", ["read"])
    client = httpx.Client(base_url=server.url)
    end = time.monotonic() + 8
    while post(client, "/dashboard/session", {"token": token}).status_code != 204:
        assert time.monotonic() < end
        time.sleep(0.1)
    revoke_token(store, "leaver")
    while client.get("/dashboard/arms").status_code != 401:
        assert time.monotonic() < end
        time.sleep(0.1)


# ----------------------------------------------------------------------------------------- the stream


def messages(client: httpx.Client, path: str = "/dashboard/events") -> list[dict[str, Any]]:
    """All that one stream says until it ends."""
    with client.stream("GET", path) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        return [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]


def test_one_token_cannot_take_every_place(service):
    """Others can still watch."""
    server, tokens, _ = service
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=server.url))

        def open_stream(name: str) -> int:
            headers = {"Authorization": f"Bearer {tokens[name]}"}
            return stack.enter_context(client.stream("GET", "/dashboard/events", headers=headers)).status_code

        assert [open_stream("crowd") for _ in range(20)] == [200] * 12 + [503] * 8
        assert open_stream("switch") == 200


def test_the_stream_says_everything_once_and_then_what_changed(service):
    server, tokens, _ = service
    client = signed_in(service, "watch")
    started = time.monotonic()
    first, *more = messages(client)
    # it ends by itself before the limit on a request's time
    assert time.monotonic() - started < 2.5
    assert {"tiles", "traffic", "arms", "trust", "groups", "errors", "state"} <= set(first)
    assert first["state"]["may_switch"] is False
    assert first["state"]["mode"] == "act"
    for message in more:
        assert "arms" not in message

    app = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {tokens['decide']}"})
    made: list[dict[str, Any]] = []
    with client.stream("GET", "/dashboard/events") as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                made.append(json.loads(line[6:]))
                if len(made) == 1:
                    for _ in range(7):
                        rng = np.random.default_rng(1)
                        assert post(app, "/v1/decisions", {"context": random_context(rng)}).status_code == 201
                else:
                    break
    (before,) = re.findall(r"([\d,]+) in an hour", made[0]["tiles"])[:1]
    (after,) = re.findall(r"([\d,]+) in an hour", made[1]["tiles"])[:1]
    assert int(after) - int(before) == 7


def test_too_many_watchers_are_turned_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sidelight.service.dashboard.routes._VIEWERS", 2)
    config = make_config(tmp_path, kind="OFUL")

    async def go() -> list[int]:
        store = open_store(config)
        engine = Engine(store, config)
        app = create_app(engine)
        statuses = []
        async with app.router.lifespan_context(app):
            app.state.service.dashboard._stream_seconds = 0.6

            async def visit() -> int:
                transport = httpx.ASGITransport(app=app)
                async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                    return (await client.get("/dashboard/events")).status_code

            first = [asyncio.create_task(visit()) for _ in range(2)]
            await asyncio.sleep(0.2)
            statuses = [await visit(), *await asyncio.gather(*first), await visit()]
        store.close()
        return statuses

    assert run(go()) == [503, 200, 200, 200]


def test_without_tokens_it_is_open_to_this_machine_only(tmp_path: Path):
    make_config(tmp_path, kind="OFUL", mode="shadow")
    with serving(tmp_path) as server:
        assert "part-tiles" in httpx.get(server.url + "/").text
        assert httpx.get(server.url + "/dashboard/session").json() == {"may_watch": True}
        assert httpx.get(server.url + "/", headers={"Host": "evil.example"}).status_code == 400
        assert httpx.get(server.url + "/dashboard/events", headers={"Host": "evil.example"}).status_code == 400
