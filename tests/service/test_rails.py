"""Who acts, and with what chance: the propensities that an export needs are exactly right."""

from __future__ import annotations

import asyncio
from collections import Counter

import numpy as np
import pytest

from sidelight.service.core.deciding import Ask
from sidelight.service.log.events import Answer, Configuration
from sidelight.service.rails import Rails, subject_draw
from tests.service.helpers import engine_of, make_config, make_schema, random_context, run
from tests.service.test_crash import check_who_acted


def test_shadow_and_assist():
    rails = Rails("shadow", 1.0, "low")
    known = {"old_arm": None, "old_propensity": None, "allowed": None, "draw": 0.5}
    assert rails.route("high", 1.0, **known) == (None, "old_policy", None)
    assert rails.route("high", 1.0, **known | {"old_arm": "mid", "old_propensity": 0.3}) == ("mid", "old_policy", 0.3)
    assert Rails("assist", 0.2, "low").route("high", 0.7, **known) == ("high", "learner", 0.7)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.9])
@pytest.mark.parametrize("same", [True, False])
def test_propensities_of_a_ramp_sum_to_one(share, same):
    """Over the draw, each arm's chance is what its propensity says: the learner is certain of its arm."""
    rails = Rails("act", share, "low")
    recommended = "low" if same else "high"
    draws = (np.arange(4000) + 0.5) / 4000
    routes = [
        rails.route(recommended, 1.0, old_arm=None, old_propensity=None, allowed=None, draw=draw) for draw in draws
    ]
    for arm, count in Counter(route.arm for route in routes).items():
        chances = {route.propensity for route in routes if route.arm == arm}
        assert len(chances) == 1
        assert chances.pop() == pytest.approx(count / 4000, abs=1e-3)


def test_a_learner_that_draws_keeps_its_own_chance():
    rails = Rails("act", 0.5, "low")
    route = rails.route("high", 0.4, old_arm=None, old_propensity=None, allowed=None, draw=0.1)
    assert route == ("high", "learner", pytest.approx(0.2))
    # outside its share it might have drawn the fallback too: 0.5 would be too little, and nobody knows how much
    out = {"old_arm": None, "old_propensity": None, "allowed": None, "draw": 0.9}
    assert rails.route("high", 0.4, **out) == ("low", "fallback", None)
    assert rails.route("low", 0.4, **out) == ("low", "fallback", pytest.approx(0.7))


def test_the_fallback_keeps_to_allowed_arms():
    rails = Rails("act", 1.0, "low", killed=True)
    known = {"old_propensity": None, "draw": 0.5}
    assert rails.route("high", 1.0, old_arm=None, allowed=["mid", "high"], **known).arm == "mid"
    assert rails.route("high", 1.0, old_arm="high", allowed=["mid", "high"], **known)[:2] == ("high", "old_policy")
    assert rails.route("high", 1.0, old_arm="low", allowed=["mid"], **known)[:2] == ("mid", "fallback")


def test_a_subject_stays_on_its_side_of_the_ramp():
    draws = [subject_draw(f"patient {i}") for i in range(4000)]
    assert all(0.0 <= draw < 1.0 for draw in draws)
    # a fair coin: 4000 draws below 0.3 have deviation 29; six deviations fail with probability 2e-9
    assert abs(sum(draw < 0.3 for draw in draws) - 1200) < 6 * 29
    assert [subject_draw(f"patient {i}") for i in range(4000)] == draws


def test_a_ramp_in_the_engine(tmp_path, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act", share=0.3, fallback="mid")
    encode = make_schema().encode
    X = np.array([encode(random_context(rng)) for _ in range(600)])

    async def live() -> None:
        async with engine_of(config) as engine:
            plain = engine.choose(X, None)
            again = engine.choose(X, [Ask(subject=f"s{i}") for i in range(600)])
            third = engine.choose(X, [Ask(subject=f"s{i}", answer=Answer("high")) for i in range(600)])
        by = Counter(plain.routes)
        # 600 draws at 0.3: deviation 11.2; six of them fail with probability 2e-9
        assert abs(by["learner"] - 180) < 68
        assert set(by) == {"learner", "fallback"}
        # the same subjects are decided by the learner whether or not the old policy said its arm
        assert [r == "learner" for r in again.routes] == [r == "learner" for r in third.routes]
        assert {r for r in third.routes if r != "learner"} == {"old_policy"}
        for event in (plain, again, third):
            other = "high" if event is third else "mid"
            for arm, recommended, route, chance in zip(
                event.arms, event.recommended, event.routes, event.propensities, strict=True
            ):
                assert arm == (recommended if route == "learner" else other)
                expected = 1.0 if recommended == other else (0.3 if route == "learner" else 0.7)
                assert chance == pytest.approx(expected)

    run(live())


def test_a_learner_that_fails_leaves_it_to_the_fallback(tmp_path, rng, caplog):
    config = make_config(tmp_path, kind="OFUL", mode="act", fallback="mid")
    encode = make_schema().encode
    X = np.array([encode(random_context(rng)) for _ in range(3)])

    async def live() -> None:
        async with engine_of(config) as engine:
            engine.state.learner.weights[:] = np.nan
            number, event, _ = await engine.decide(X, None)
            assert event.arms == ["mid"] * 3
            assert event.routes == ["fallback"] * 3
            assert event.estimates == [None] * 3
            assert event.propensities == [1.0] * 3
            assert number == engine.state.number

    run(live())
    assert "the learner could not decide" in caplog.text


def test_no_decision_stands_after_a_switch_that_it_was_made_before(tmp_path, database):
    """Decisions and switches at once, on two servers: whatever the order, the log is as if each knew all before it."""
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)
    x = make_schema().encode(random_context(np.random.default_rng(2)))[None]

    async def live() -> None:
        async with engine_of(config) as one, engine_of(config) as other:
            for round in range(6):
                await asyncio.gather(
                    *(engine.decide(x, None) for _ in range(10) for engine in (one, other)),
                    one.configure(Configuration(killed=round % 2 == 0)),
                    *(engine.decide(x, None, f"once:{round}:{i}", "f") for i in range(5) for engine in (one, other)),
                    other.configure(Configuration(share=0.5 + round / 20)),
                    *(engine.decide(x, None) for _ in range(10) for engine in (one, other)),
                )
            check_who_acted(one.store)
            assert one.store.head() == 1 + 6 * (2 * 20 + 5 + 2)

    run(live())
