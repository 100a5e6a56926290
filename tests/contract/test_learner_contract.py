"""What every learner promises, whatever its algebra; see ``registry.LEARNERS``."""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.contract.conftest import SETTINGS, Player
from tests.contract.registry import ARMS, FEATURES, make_log
from tests.threads import seen_during

import sidelight as sl
from sidelight.errors import InputError
from sidelight.learners.saving import learner_bytes

D = len(FEATURES)


def contexts(n: int, seed: int = 11) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, D)) * 0.6 + 0.2


def bits(learner, x) -> bytes:
    estimates, widths = learner.scores(x)
    return estimates.tobytes() + widths.tobytes()


def test_it_is_a_learner(make):
    learner = make()
    assert isinstance(learner, sl.Learner)
    assert learner.arms == ARMS
    assert learner.n_features == D
    assert learner.needs in (None, "action", "probabilities")
    assert type(learner).__name__ in repr(learner)


def test_a_decision_says_what_it_rests_on(played):
    learner = played(60)
    x = contexts(1)[0]
    decision = learner.decide(x, rng=np.random.default_rng(0))
    estimates, widths = learner.scores(x)
    a = learner.arms.index(decision.arm)
    assert estimates.shape == widths.shape == (3,)
    assert (widths >= 0).all()
    assert (decision.estimate, decision.width) == (estimates[a], widths[a])
    assert 0.0 < decision.propensity <= 1.0


def test_the_decision_has_the_highest_index(entry, played):
    if entry.draws:
        pytest.skip("its decisions are drawn")
    learner = played(60)
    for x in contexts(20):
        estimates, widths = learner.scores(x)
        assert learner.decide(x).arm == ARMS[int(np.argmax(estimates + widths))]


def test_the_same_inputs_give_the_same_bits(make, player):
    one, other = make(), make()
    assert player.play(one, 150) == player.play(other, 150)
    for x in contexts(5):
        assert bits(one, x) == bits(other, x)


def test_saved_and_loaded_it_makes_the_same_next_thousand_decisions(make, player, tmp_path):
    learner = make()
    player.play(learner, 200)
    path = tmp_path / "learner.sidelight"
    learner.save(path)
    loaded = sl.load_learner(path)
    assert type(loaded) is type(learner)
    assert loaded.settings == learner.settings or loaded.settings.to_dict() == learner.settings.to_dict()
    x = contexts(1)[0]
    assert bits(loaded, x) == bits(learner, x)
    assert player.play(loaded, 1000, seed=8) == player.play(learner, 1000, seed=8)
    assert bits(loaded, x) == bits(learner, x)


def test_a_fresh_learner_survives_a_file_too(make, player, tmp_path):
    learner = make(prior_mean=[0.1, -0.2, 0.3, 0.0, 0.5])
    learner.save(tmp_path / "fresh")
    loaded = sl.load_learner(tmp_path / "fresh")
    assert player.play(loaded, 40) == player.play(learner, 40)


@pytest.mark.parametrize("twin_of", [copy.copy, copy.deepcopy, lambda learner: pickle.loads(pickle.dumps(learner))])
def test_a_copy_goes_on_by_itself(make, player, twin_of):
    learner, other = make(), make()
    for one in (learner, other):
        player.play(one, 30)
    before = learner_bytes(learner)
    twin = twin_of(learner)
    for one in (twin, other):
        player.play(one, 20, seed=8)
    assert learner_bytes(learner) == before
    assert learner_bytes(twin) == learner_bytes(other)


def test_inputs_are_not_changed(make):
    learner = make()
    X = contexts(4)
    rewards, arms, mean = np.array([0.5, -1.0, 2.0, 0.1]), list(ARMS[:2]) * 2, np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    probabilities = np.array([0.2, 0.3, 0.5])
    kept = X.copy(), rewards.copy(), list(arms), probabilities.copy(), mean.copy()
    for array in (X, rewards, probabilities, mean):
        array.flags.writeable = False
    learner.decide(X[0], rng=np.random.default_rng(0))
    learner.scores(X[0])
    learner.wants_query(X[0])
    learner.observe(X[0], ARMS[1], 1.0)
    if learner.needs == "action":
        learner.observe_behavior(X[1], ARMS[2])
    elif learner.needs == "probabilities":
        learner.observe_behavior(X[1], probabilities=probabilities)
    learner.decide_many(X)
    learner.observe_many(X, arms, rewards)
    make(prior_mean=mean).decide(X[0], rng=np.random.default_rng(0))
    for now, before in zip((X, rewards, arms, probabilities, mean), kept, strict=True):
        assert np.array_equal(now, before)


def test_it_does_not_hold_on_to_the_callers_arrays(make, player):
    """A caller may fill one buffer again and again."""
    one, other = make(), make()
    buffer = np.empty(D)
    for _, x, answer, probabilities, rewards in player.events(40):
        buffer[:] = x
        chances = probabilities.copy()
        player.answer(one, buffer, answer, chances)
        one.observe(buffer, ARMS[answer], rewards[answer])
        buffer[:] = np.nan
        chances[:] = np.nan
        player.answer(other, x, answer, probabilities)
        other.observe(x, ARMS[answer], rewards[answer])
    x = contexts(1)[0]
    assert bits(one, x) == bits(other, x)


def test_what_scores_returns_is_the_callers_own(played):
    learner = played(60)
    x = contexts(1)[0]
    before = bits(learner, x)
    for array in learner.scores(x):
        array[:] = 1e6
    assert bits(learner, x) == before


def test_asking_changes_nothing(make, player):
    """``decide``, ``scores`` and ``wants_query`` may be called any number of times in between."""

    def ask(learner, x):
        for other in contexts(2, seed=int(abs(x[0]) * 1e6)):
            learner.decide(other, rng=np.random.default_rng(1))
            learner.decide(x, allowed=[ARMS[2], ARMS[0]], rng=np.random.default_rng(2))
            learner.scores(other)
            learner.wants_query(other)
            learner.log_trust()

    plain, asked = make(), make()
    assert player.play(plain, 120) == player.play(asked, 120, extra=ask)
    for x in contexts(3):
        assert bits(plain, x) == bits(asked, x)


def test_wants_query_is_a_yes_or_a_no(make):
    learner = make()
    answer = learner.wants_query(contexts(1)[0])
    assert answer in (True, False)
    if learner.needs is None:
        assert not answer


def test_many_decisions_are_the_decisions_one_by_one(entry, played):
    if entry.draws:
        pytest.skip("its decisions are drawn")
    learner = played(60)
    X = contexts(40)
    assert list(learner.decide_many(X)) == [learner.decide(x) for x in X]
    assert list(zip(*learner.decide_columns(X), strict=True)) == learner.decide_many(X)
    assert list(learner.decide_many(np.empty((0, D)))) == []


def test_a_learner_with_a_generator_draws_from_it(make, player, tmp_path):
    """Its decisions are those of one that is given the generator each time, in batches and from a file too."""
    own, given = make(rng=np.random.default_rng(5)), make()
    for learner in (own, given):
        player.play(learner, 60)
    own.propensities(contexts(1)[0])  # which draws nothing
    own.save(tmp_path / "learner")
    for learner in (own, sl.load_learner(tmp_path / "learner")):
        rng = np.random.default_rng(5)
        repeated = np.repeat(contexts(1), 40, axis=0)
        assert [learner.decide(x) for x in repeated] == [given.decide(x, rng=rng) for x in repeated]
        assert learner.decide_many(contexts(40)) == given.decide_many(contexts(40), rng=rng)


def test_many_observations_are_the_observations_one_by_one(played):
    looped, together = played(60), played(60)
    n = 1500
    X, rng = contexts(n), np.random.default_rng(2)
    arms, rewards = [ARMS[i] for i in rng.integers(3, size=n)], rng.normal(size=n)
    for x, arm, reward in zip(X, arms, rewards, strict=True):
        looped.observe(x, arm, reward)
    together.observe_many(X, arms, rewards)
    for x in contexts(5, seed=1):
        for one, other in zip(looped.scores(x), together.scores(x), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


LABELS = {
    "text": ["a", "ü", ""],
    "numbers": [10, 20, 30],
    "negative and large": [-5, 0, 2**40],
    "fractions": [0.5, 1.5, 2.5],
    "booleans": [False, True],
    "dates": [dt.date(2024, 1, 1), dt.date(2024, 2, 1)],
    "times": [dt.datetime(2024, 1, 1, 12, 30), dt.datetime(2024, 1, 2, 12, 30)],
    "decimals": [decimal.Decimal("0.10"), decimal.Decimal("0.20")],
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_survive(entry, kind, tmp_path):
    labels = LABELS[kind]
    learner = entry.make(make_log(arms=labels), **SETTINGS)
    other = Player(tuple(labels))
    decisions = other.play(learner, 60)
    learner.save(tmp_path / "learner")
    loaded = sl.load_learner(tmp_path / "learner")
    decisions += other.play(loaded, 60, seed=9)
    for arms in (learner.arms, loaded.arms):
        assert [(type(arm), arm) for arm in arms] == [(type(label), label) for label in labels]
    for decision in decisions:
        assert (type(decision.arm), decision.arm) in [(type(label), label) for label in labels]


def test_a_label_may_come_back_as_numpy_or_arrow_gives_it(entry):
    learner = entry.make(make_log(arms=[10, 20, 30]), **SETTINGS)
    learner.observe(contexts(1)[0], np.int64(20), 1.0)
    learner.observe_many(contexts(3), np.array([10, 20, 30]), np.ones(3))
    assert learner.decide(contexts(1)[0], allowed=np.array([20]), rng=np.random.default_rng(0)).arm == 20


def test_the_old_policys_arm_changes_nothing_without_a_floor(played):
    learner = played(60)
    for t, x in enumerate(contexts(20)):
        free = learner.decide(x, rng=np.random.default_rng(t))
        for default in (None, ARMS[t % 3]):
            assert learner.decide(x, default=default, rng=np.random.default_rng(t)) == free
            assert learner.decide(x, None, np.random.default_rng(t), default) == free


def test_allowed_restricts_the_arms(entry, played):
    learner = played(60)
    for x in contexts(10):
        for only in ARMS:
            assert learner.decide(x, allowed=[only], rng=np.random.default_rng(0)).arm == only
        two = learner.decide(x, allowed=iter([ARMS[2], ARMS[0]]), rng=np.random.default_rng(0))
        assert two.arm in (ARMS[0], ARMS[2])
        if not entry.draws:
            estimates, widths = learner.scores(x)
            index = estimates + widths
            assert two.arm == (ARMS[0] if index[0] >= index[2] else ARMS[2])
            assert learner.decide(x, allowed=ARMS) == learner.decide(x)


def test_an_override_is_learned_from_like_any_decision(make):
    """The arm observed is the one that was taken, whatever had been decided."""
    learner, twin = make(), make()
    for x in contexts(30):
        decided = learner.decide(x, rng=np.random.default_rng(0)).arm
        taken = next(arm for arm in ARMS if arm != decided)
        learner.observe(x, taken, 0.3)
        twin.observe(x, taken, 0.3)
    x = contexts(1, seed=4)[0]
    assert bits(learner, x) == bits(twin, x)


def test_rewards_may_come_late_and_in_any_order(entry, make, player):
    """Decide on everything first; the rewards then arrive shuffled."""
    learner, sorted_one = make(), make()
    rounds = list(player.events(300))
    for one in (learner, sorted_one):
        for _, x, answer, probabilities, _ in rounds:
            player.answer(one, x, answer, probabilities)
            one.decide(x, rng=np.random.default_rng(0))
    shuffled = [rounds[i] for i in np.random.default_rng(6).permutation(len(rounds))]
    for one, events in ((learner, shuffled), (sorted_one, rounds)):
        for _, x, answer, _, rewards in events:
            one.observe(x, ARMS[answer], rewards[answer])
    x = contexts(1)[0]
    if entry.forgets:  # which data are left depends on the order; that they are used does not
        assert np.isfinite(np.concatenate(learner.scores(x))).all()
        return
    for one, other in zip(learner.scores(x), sorted_one.scores(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


def test_ties_go_to_the_first(entry):
    if entry.draws:
        pytest.skip("its decisions are drawn")
    learner = entry.make(make_log(same_for_all=True), **SETTINGS)
    for x in contexts(20):
        estimates, widths = learner.scores(x)
        assert len(set((estimates + widths).tolist())) == 1
        assert learner.decide(x).arm == ARMS[0]
        assert learner.decide(x, allowed=[ARMS[2], ARMS[1]]).arm == ARMS[1]


def test_contexts_by_name_and_by_position_are_the_same(entry, make, player):
    import pyarrow as pa

    learner, named = make(), make()
    for _, x, answer, probabilities, rewards in player.events(30):
        by_name = dict(zip(FEATURES, x.tolist(), strict=True))
        shuffled = dict(sorted(by_name.items()))
        player.answer(learner, x, answer, probabilities)
        player.answer(named, shuffled, answer, probabilities)
        learner.observe(x, ARMS[answer], rewards[answer])
        named.observe(shuffled, ARMS[answer], rewards[answer])
    X = contexts(6)
    mappings = [dict(zip(FEATURES, x.tolist(), strict=True)) for x in X]
    assert [bits(learner, x) for x in X] == [bits(named, m) for m in mappings]
    assert bits(learner, X[0]) == bits(learner, X[0].tolist())
    if not entry.draws:
        expected = learner.decide_many(X)
        assert named.decide_many(mappings) == expected
        assert named.decide_many(pa.table({name: X[:, j] for j, name in enumerate(FEATURES)})) == expected
    learner.observe_many(X, [ARMS[0]] * 6, np.ones(6))
    named.observe_many(mappings, [ARMS[0]] * 6, np.ones(6))
    assert bits(learner, X[0]) == bits(named, X[0])


def test_names_that_are_no_features_are_left_aside(played):
    """A row of a table holds more than the features: whatever it is, nothing changes by a bit."""
    one, other = played(60), played(60)
    x, reward = contexts(1)[0], 0.3
    named = dict(zip(FEATURES, x.tolist(), strict=True))
    more = {"patient": "Ann", "height": np.nan, **named, "ward": None}
    assert bits(one, more) == bits(other, named)
    assert one.decide(more, rng=np.random.default_rng(1)) == other.decide(named, rng=np.random.default_rng(1))
    for learner, context in ((one, more), (other, named)):
        learner.observe(context, ARMS[1], reward)
        if learner.needs == "action":
            learner.observe_behavior(context, ARMS[0])
        elif learner.needs == "probabilities":
            learner.observe_behavior(context, probabilities=[0.2, 0.3, 0.5])
    assert bits(one, x) == bits(other, x)


def test_threads_may_decide_at_once(played):
    learner = played(60)
    X = contexts(300)

    def decide(i: int):
        return learner.decide(X[i], rng=np.random.default_rng(i)), learner.wants_query(X[i])

    expected = [decide(i) for i in range(len(X))]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(decide, range(len(X)))) == expected


def test_one_writer_beside_many_readers_loses_nothing(make, player):
    """What readers see while the writer writes is one state or the next; afterwards it is the writer's."""
    learner, alone = make(), make()
    X, stop = contexts(50), threading.Event()

    def read() -> None:
        i = 0
        while not stop.is_set():
            learner.scores(X[i % 50])
            i += 1

    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in readers:
        thread.start()
    try:
        rounds = list(player.events(60))
        for one in (learner, alone):
            for _, x, answer, probabilities, rewards in rounds:
                player.answer(one, x, answer, probabilities)
                one.observe(x, ARMS[answer], rewards[answer])
    finally:
        stop.set()
        for thread in readers:
            thread.join()
    assert [bits(learner, x) for x in X] == [bits(alone, x) for x in X]


def test_threads_decide_while_arms_are_added(entry, played):
    """What they see is the learner with the arms of before, or with one more, whole."""
    if not entry.adds_arms:
        pytest.skip("takes no further arms")
    learner, alone = played(60), played(60)
    X, labels = contexts(5), [f"new {i}" for i in range(12)]

    def look(one, i: int):
        decided = one.decide(X[i], rng=np.random.default_rng(i))
        some = one.decide(X[i], ARMS[1:], rng=np.random.default_rng(i))
        return decided, some, bits(one, X[i]), one.propensities(X[i]).tobytes()

    possible = [[set() for _ in range(4)] for _ in X]
    for label in (None, *labels):
        if label is not None:
            alone.add_arm(label)
        for i in range(len(X)):
            for found, seen in zip(possible[i], look(alone, i), strict=True):
                found.add(seen)

    def add_arms() -> None:
        for label in labels:
            learner.add_arm(label)

    for i, seen in enumerate(seen_during(add_arms, lambda i: look(learner, i))):
        for part, found in zip(zip(*seen, strict=True), possible[i], strict=True):
            assert set(part) <= found
    assert [look(learner, i) for i in range(5)] == [look(alone, i) for i in range(5)]


def test_an_arm_for_which_the_prior_mean_has_no_row_is_refused_and_nothing_is_lost(entry, make):
    if not entry.adds_arms:
        pytest.skip("takes no further arms")
    learner = make(prior_mean=np.full((3, D), 0.1))
    before = bits(learner, contexts(1)[0])
    with pytest.raises(InputError, match="prior_mean"):
        learner.add_arm("new")
    assert learner.arms == ARMS
    assert bits(learner, contexts(1)[0]) == before


def test_a_learner_can_add_an_arm_or_says_why_not(entry, make, tmp_path):
    learner = make()
    if not entry.adds_arms:
        with pytest.raises(InputError, match="'new'"):
            learner.add_arm("new")
        assert learner.arms == ARMS
        return
    learner.observe(contexts(1)[0], ARMS[1], 2.0)
    learner.add_arm("new")
    assert learner.arms == (*ARMS, "new")
    assert len(learner.scores(contexts(1)[0])[0]) == 4
    learner.observe(contexts(1)[0], "new", 1.0)
    learner.save(tmp_path / "learner")
    loaded = sl.load_learner(tmp_path / "learner")
    assert loaded.arms == (*ARMS, "new")
    assert bits(loaded, contexts(1)[0]) == bits(learner, contexts(1)[0])
    for label in ("new", ARMS[0]):
        with pytest.raises(InputError, match=f"{label!r} is already an arm"):
            learner.add_arm(label)


def test_propensities_are_those_of_its_decisions(played):
    learner = played(60)
    for t, x in enumerate(contexts(20)):
        for allowed in (None, [ARMS[0], ARMS[2]]):
            chances = learner.propensities(x, allowed)
            decision = learner.decide(x, allowed, rng=np.random.default_rng(t))
            assert chances.sum() == pytest.approx(1.0, abs=1e-4)
            assert chances[ARMS.index(decision.arm)] == decision.propensity
            assert allowed is None or chances[1] == 0.0


def test_log_trust_is_a_list(make):
    assert isinstance(make().log_trust(), list)
