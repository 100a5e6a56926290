"""When what is automatic is learned anew: refreshes by growth, searches that found nothing when events have doubled."""

from __future__ import annotations

import numpy as np
import pytest
from tests.statistical.fused_worlds import log_of, play, small_world

import sidelight as sl
from sidelight.learners.automatic import RENEWED, Automatic
from sidelight.learners.rounds import play_rounds
from sidelight.side import prior_search
from sidelight.side.coordinates import Units


@pytest.fixture
def searches(monkeypatch):
    """Counts the searches for better variances."""
    found = []
    climb = prior_search._climb

    def counted(start, value_of):
        best = climb(start, value_of)
        found.append(best == start)
        return best

    monkeypatch.setattr(prior_search, "_climb", counted)
    return found


def evidence(rng, K=4, d=3):
    X = rng.normal(size=(K, 40, d))
    w = rng.normal(size=(K, d))
    return np.einsum("ani,anj->aij", X, X), np.einsum("ani,an->ai", X, np.einsum("ani,ai->an", X, w))


@pytest.mark.parametrize("unsettled", [False, True])
def test_refreshes_come_less_often_once_there_are_many_events(unsettled):
    """By a factor of 1.3 until 3,000 events and of 1.9 from there on, unless something is unsettled."""
    auto = Automatic.begin([np.arange(3)], 3, 1.0)
    auto.unsettled = unsettled
    at = [0]
    while at[-1] < 1_000_000:
        auto.events += auto.room()
        auto.refreshed = auto.events
        at.append(auto.events)
    grown = np.array(at[1:]) / np.array(at[:-1], dtype=np.float64).clip(1.0)
    early = np.array(at[:-1]) < 3_000
    assert (grown[early][np.array(at[:-1])[early] >= 100] < 1.5).all()
    np.testing.assert_allclose(grown[~early], 1.3 if unsettled else 1.9, rtol=0.01)


def test_late_searches_wait_until_there_are_four_times_as_many_events_whatever_they_found(rng, searches):
    auto = Automatic.begin([np.arange(3)], 3, 1.0)
    auto.events = 4_000
    for size in (1.0, 16.0):
        J, h = evidence(rng)
        auto.search_at = 0
        auto.learn(J, size * h, Units.given(np.ones(3), 1.0))
        assert not searches[-1]
        assert auto.search_at == 16_000


@pytest.mark.parametrize("lie", [None, "swapped"])
def test_a_log_that_rewards_contradict_is_judged_as_often_as_at_first(tmp_path, rng, lie):
    world = sl.worlds.ConfoundedWorld(seed=1)
    if lie is not None:
        world = sl.worlds.DriftedWorld(world, lie, seed=1)
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(world.sample_log(5_000, 6, rng), world.schema(6))))
    X = world.contexts(2_400, rng)
    play_rounds(learner, X, world.potential_rewards(X, rng), world.behavior_actions(X, rng).astype(np.int64), rng)
    assert learner.automatic.unsettled == (lie is not None)
    learner.save(tmp_path / "learner")
    again = sl.load_learner(tmp_path / "learner")
    assert again.automatic.unsettled == learner.automatic.unsettled
    assert again.automatic.room() == learner.automatic.room()


def test_answers_that_come_late_are_learned_from_as_quickly_as_early_ones(rng):
    world = sl.worlds.ConfoundedWorld(seed=1)
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(world.sample_log(5_000, 6, rng), world.schema(6))))
    X = world.contexts(5_000, rng)
    rewards = world.potential_rewards(X, rng)
    for x, r in zip(X, rewards, strict=True):
        arm = learner.decide(x).arm
        learner.observe(x, arm, r[arm])
    refreshes = learner.refreshes
    for x, a in zip(X[:3_000], world.behavior_actions(X[:3_000], rng), strict=True):
        learner.observe_behavior(x, int(a))
    assert learner.refreshes >= refreshes + 2
    assert learner.automatic.refreshed >= 8_000 / 1.3


def test_a_search_that_found_nothing_waits_until_events_have_doubled(rng, searches):
    J, h = evidence(rng)
    auto = Automatic.begin([np.arange(3)], 3, 1.0)
    for events in range(10, 200, 10):
        auto.events = events
        auto.learn(J, h, Units.given(np.ones(3), 1.0))
        if searches[-1]:
            break
    # the same evidence: once it stands still there is nothing to find
    before, stood = len(searches), auto.events
    for events in range(stood, 2 * stood):
        auto.events = events
        mean = auto.learn(J, h, Units.given(np.ones(3), 1.0)).mean
    assert len(searches) == before
    np.testing.assert_array_equal(mean, auto.mean)
    auto.events = 2 * stood
    auto.learn(J, h, Units.given(np.ones(3), 1.0))
    assert len(searches) == before + 1
    assert auto.search_at == 4 * stood


def test_evidence_that_changed_meanwhile_still_moves_the_mean(rng, searches):
    J, h = evidence(rng)
    auto = Automatic.begin([np.arange(3)], 3, 1.0)
    auto.events = 100
    while not (searches and searches[-1]):
        auto.learn(J, h, Units.given(np.ones(3), 1.0))
    before, at = len(searches), auto.mean
    auto.events = 120
    auto.learn(J, h + 1.0, Units.given(np.ones(3), 1.0))
    assert len(searches) == before
    assert np.abs(auto.mean - at).max() > 1e-3


def test_a_learner_that_forgets_searches_at_every_refresh(rng, searches):
    J, h = evidence(rng)
    auto = Automatic.begin([np.arange(3)], 3, 1.0)
    auto.longest, auto.events = 16, 1000
    for calls in range(1, 6):
        auto.learn(J, h, Units.given(np.ones(3), 1.0))
        assert len(searches) == calls


@pytest.mark.parametrize("changed", [True, False])
def test_a_new_verdict_makes_it_search_again(rng, searches, changed):
    world = sl.worlds.ConfoundedWorld(seed=1)
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(world.sample_log(2_000, 6, rng), world.schema(6))))
    X = world.contexts(400, rng)  # so many that no smaller noise competes, which is another search
    play_rounds(learner, X, world.potential_rewards(X, rng), world.behavior_actions(X, rng).astype(np.int64), rng)
    learner.automatic.search_at = 10**9
    learner.logs[0].standing.judge = lambda verdict, accused, events: changed
    before = len(searches)
    learner._relearn()
    assert len(searches) == before + changed
    learner._relearn()
    # with nothing new between the two it stood still at the latest then
    assert len(searches) <= before + 2 * changed


def test_a_verdict_says_whether_it_is_a_new_one(rng):
    world = sl.worlds.DriftedWorld(sl.worlds.ConfoundedWorld(seed=1), "redrawn", size=3.0, share=1.0, seed=1)
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(world.sample_log(20_000, 6, rng), world.schema(6))))
    log, said = learner.logs[0].standing, []
    judge = log.judge

    def noted(verdict, accused, events):
        before, feature = log.levels.copy(), log.feature
        changed = judge(verdict, accused, events)
        said.append(changed)
        assert changed == (bool((log.levels != before).any()) or log.feature != feature)
        return changed

    log.judge = noted
    X = world.contexts(2_000, rng)
    play_rounds(learner, X, world.potential_rewards(X, rng), world.behavior_actions(X, rng).astype(np.int64), rng)
    assert {True, False} <= set(said)


def test_pooling_that_stood_still_waits_until_answers_have_doubled(rng):
    world = sl.worlds.ConfoundedWorld(seed=0)
    log = sl.summarize_log(world.sample_log(2_000, 6, rng), world.schema(6))
    hidden = sl.BehaviorQueries(log)
    X = world.contexts(600, rng)
    at, still = [], []
    estimate = hidden._estimate_strengths

    def noted():
        at.append(hidden.n_answers)
        result = estimate()
        still.append(result[0] == hidden._strengths)
        return result

    hidden._estimate_strengths = noted
    for x, a in zip(X, world.behavior_actions(X, rng), strict=True):
        hidden.observe(x, int(a))
    assert True in still[:-1]
    assert False in still[:-1]
    for before, after, stood in zip(at, at[1:], still, strict=False):
        assert after == np.ceil((2.0 if stood else 1.25) * before + 8)


@pytest.mark.parametrize("forgetting", [1.0, 0.95])
def test_a_learner_that_forgets_lets_noises_compete_at_every_fourth_refresh_at_most(tmp_path, rng, forgetting):
    """A competition costs dozens of refreshes, and one that forgets has a refresh every few rounds for ever."""
    world = small_world(seed=4_200, n_arms=3, noise=0.2)
    learner = sl.FusedOFUL(sl.BehaviorQueries(log_of(world, 2_000, 4, rng)), forgetting=forgetting)
    assert learner.automatic is not None
    auto, competitions = learner.automatic, []
    competed = auto.competed
    auto.competed = lambda: (competed(), competitions.append(auto.events))
    play(world, learner, 300, rng)
    assert competitions
    if forgetting < 1.0:
        assert (np.diff(competitions) >= RENEWED * auto.longest).all()
        assert auto.compete_at == competitions[-1] + RENEWED * auto.longest
        del auto.competed
        learner.save(tmp_path / "learner")
        assert sl.load_learner(tmp_path / "learner").automatic.compete_at == auto.compete_at
    else:
        assert auto.compete_at == 0


def test_files_from_before_these_schedules(rng):
    """They search, and estimate the pooling, as soon as they may."""
    auto = Automatic.begin([np.arange(3)], 3, 1.0)
    auto.events, auto.refreshed, auto.search_at, auto.compete_at = 50, 40, 90, 70
    arrays = auto.state()
    other = Automatic.begin([np.arange(3)], 3, 1.0)
    other.restore(arrays)
    assert (other.events, other.refreshed, other.search_at, other.compete_at) == (50, 40, 90, 70)
    other.restore({**arrays, "auto_numbers": arrays["auto_numbers"][:3]})
    assert (other.events, other.refreshed, other.search_at, other.compete_at) == (50, 40, 0, 0)

    world = sl.worlds.ConfoundedWorld(seed=0)
    hidden = sl.BehaviorQueries(sl.summarize_log(world.sample_log(500, 6, rng), world.schema(6)))
    hidden._still = True
    meta, sums = hidden.state()
    twin = hidden.copy()
    twin.restore(meta, sums)
    assert twin._still
    meta.pop("strength_still")
    twin.restore(meta, sums)
    assert not twin._still
