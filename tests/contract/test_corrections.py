"""A reward that was assumed and turned out to be another one leaves the sums of a learner that was told it at first."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tests.contract.registry import ARMS, FEATURES

import sidelight as sl
from sidelight.errors import InputError, WildValueWarning

SUMS = ("grams", "moments", "squares", "counts", "context_sums", "V", "Y", "n_contexts", "kept_V", "kept_Y", "visits")


def sums_of(learner) -> dict[str, np.ndarray]:
    state = learner.state()
    return {name: np.array(state[name]) for name in SUMS if name in state}


def same_sums(one, other, exactly: bool = False) -> None:
    found, wanted = sums_of(one), sums_of(other)
    assert found.keys() == wanted.keys()
    assert {"counts", "squares"} <= found.keys()
    for name, value in found.items():
        if exactly:
            np.testing.assert_array_equal(value, wanted[name], err_msg=name)
        else:
            np.testing.assert_allclose(value, wanted[name], rtol=1e-10, atol=1e-10, err_msg=name)


def play(learner, told, player, n: int, *, moved: bool = False, wait: int = 5) -> None:
    """Every third reward is assumed to be 0 (of another arm, if ``moved``) and corrected ``wait`` rounds later."""
    late = []
    for t, x, answer, probabilities, rewards in player.events(n):
        player.answer(learner, x, answer, probabilities)
        player.answer(told, x, answer, probabilities)
        told.observe(x, ARMS[answer], float(rewards[answer]))
        if t % 3:
            learner.observe(x, ARMS[answer], float(rewards[answer]))
        else:
            arm = ARMS[(answer + moved) % len(ARMS)]
            late.append((t + wait, x, arm, ARMS[answer], float(rewards[answer]), learner.receipt(x, 0.0)))
            learner.observe(x, arm, 0.0)
        while late and (late[0][0] <= t or t == n - 1):
            _, x, arm, taken, reward, receipt = late.pop(0)
            learner.correct(x, arm, 0.0, reward, taken=taken, receipt=receipt)


def test_a_corrected_reward_leaves_the_sums_of_one_told_at_first(make, player):
    learner, told = make(), make()
    play(learner, told, player, 70)
    same_sums(learner, told)


def test_a_round_moves_to_the_arm_that_was_taken(entry, make, player):
    if entry.name in ("EpochOFUL", "EpochOFUL, R12 known"):
        pytest.skip("a round that is moved counts in the episode in which it is moved")
    learner, told = make(), make()
    play(learner, told, player, 70, moved=True)
    if entry.name == "EpochOFUL, data kept":
        np.testing.assert_allclose(learner.state()["kept_Y"], told.state()["kept_Y"], rtol=1e-10, atol=1e-10)
        np.testing.assert_array_equal(learner.state()["kept_counts"], told.state()["kept_counts"])
        return
    same_sums(learner, told)


def test_a_learner_from_a_file_is_corrected_to_the_same_bits(make, player, tmp_path):
    learner = make()
    rounds = list(player.events(30))
    receipts = []
    for _, x, answer, probabilities, _ in rounds:
        player.answer(learner, x, answer, probabilities)
        receipts.append(learner.receipt(x, 0.0))
        learner.observe(x, ARMS[answer], 0.0)
    learner.save(tmp_path / "learner")
    loaded = sl.load_learner(tmp_path / "learner")
    for one in (learner, loaded):
        for (_, x, answer, _, rewards), receipt in zip(rounds, receipts, strict=True):
            one.correct(x, ARMS[answer], 0.0, float(rewards[answer]), receipt=receipt)
    x = rounds[0][1]
    for found, wanted in zip(loaded.scores(x), learner.scores(x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_what_cannot_be_corrected_is_refused_and_changes_nothing(entry, make):
    learner = make()
    before = {name: value.copy() for name, value in sums_of(learner).items()}
    x = np.full(len(FEATURES), 0.3)
    for wrong in (
        lambda: learner.correct(x, "nobody", 0.0, 1.0),
        lambda: learner.correct(x, ARMS[0], 0.0, np.nan),
        lambda: learner.correct(x, ARMS[0], np.inf, 1.0),
    ):
        with pytest.raises(InputError):
            wrong()
    if entry.name != "ZeroFilledOFUL":  # which counts the log's rows as rounds
        with pytest.raises(InputError, match="no round of this arm"):
            learner.correct(x, ARMS[0], 0.0, 1.0, receipt=learner.receipt(x, 0.0))
    for name, value in sums_of(learner).items():
        np.testing.assert_array_equal(value, before[name])


def test_where_sums_are_exact_a_corrected_learner_is_the_same_to_the_bit():
    """Small whole numbers add up without rounding, so sums and, after a refresh, all that follows are identical."""
    rng = np.random.default_rng(4)
    learner, told = sl.OFUL(3, 4, noise=0.7), sl.OFUL(3, 4, noise=0.7)
    for t in range(60):
        x, arm, reward = rng.integers(-3, 4, 4).astype(float), int(rng.integers(3)), float(rng.integers(-5, 6))
        told.observe(x, arm, reward)
        learner.observe(x, arm if t % 2 else (arm + 1) % 3, 2.0)
        learner.correct(x, arm if t % 2 else (arm + 1) % 3, 2.0, reward, taken=arm)
    same_sums(learner, told, exactly=True)
    learner.refresh()
    told.refresh()
    for name in ("weights", "covariances", "radii"):
        np.testing.assert_array_equal(getattr(learner, name), getattr(told, name))


def test_what_is_corrected_has_caches_that_belong_to_its_sums():
    rng = np.random.default_rng(5)
    learner = sl.OFUL(2, 3, noise=0.7)
    for _ in range(30):
        x = rng.normal(size=3)
        learner.observe(x, 1, 0.0)
        learner.correct(x, 1, 0.0, float(rng.normal()))
    weights = learner.weights.copy()
    learner.refresh()
    np.testing.assert_array_equal(learner.weights, weights)


def test_a_row_with_a_wild_value_is_corrected_with_the_weight_it_had():
    rng = np.random.default_rng(6)
    learner, told = (sl.OFUL(2, 2, regularization="auto", noise="auto", radius="posterior") for _ in range(2))
    for _ in range(200):
        x, reward = rng.normal(size=2), float(rng.normal())
        for one in (learner, told):
            one.observe(x, 0, reward)
    wild = np.array([1e4, 0.2])
    receipt = learner.receipt(wild, 0.0)
    assert receipt.weight < 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WildValueWarning)
        learner.observe(wild, 0, 0.0)
        told.observe(wild, 0, 0.4)
        learner.correct(wild, 0, 0.0, 0.4, receipt=receipt)
    np.testing.assert_allclose(learner.grams, told.grams, rtol=1e-9)
    np.testing.assert_allclose(learner.moments, told.moments, rtol=1e-6)
    assert learner.n_contexts == told.n_contexts


def test_a_reward_that_is_itself_wild_counts_for_next_to_nothing():
    rng = np.random.default_rng(7)
    learner = sl.OFUL(2, 2, regularization="auto", noise="auto", radius="posterior")
    for _ in range(200):
        learner.observe(rng.normal(size=2), 0, float(rng.normal()))
    x = np.array([1.0, 0.5])
    learner.observe(x, 0, 0.0)
    before = learner.decide(x).estimate
    with pytest.warns(WildValueWarning):
        learner.correct(x, 0, 0.0, 1e9)
    assert abs(learner.decide(x).estimate - before) < 1.0


def test_the_first_reward_that_differs_tells_a_unit_at_once():
    """A click log in which every reward was assumed to be 0 so far."""
    learner = sl.OFUL(2, 2, regularization="auto", noise="auto", radius="posterior")
    rng = np.random.default_rng(8)
    X = rng.normal(size=(100, 2))
    for x in X:
        learner.observe(x, 0, 0.0)
    assert not learner.automatic.units.reward_known
    learner.correct(X[0], 0, 0.0, 1.0)
    assert learner.automatic.units.reward_known
    assert np.isfinite(np.concatenate(learner.scores(X[0]))).all()


@pytest.fixture
def forgetful(log):
    return lambda: sl.FusedOFUL(
        sl.BehaviorQueries(log.summary), safety=0.0, forgetting=0.97, regularization=0.7, noise=0.4
    )


def test_rounds_that_fade_are_corrected_by_what_is_left_of_them(forgetful, player):
    learner, told = forgetful(), forgetful()
    play(learner, told, player, 90, wait=20)
    for one in (learner, told):
        one._relearn()  # brings every arm's sums to the same clock
    for name in ("grams", "moments", "squares", "effective"):
        np.testing.assert_allclose(learner.state()[name], told.state()[name], rtol=1e-9, atol=1e-9, err_msg=name)


def test_where_rounds_fade_or_are_dropped_the_receipt_is_needed(forgetful, log):
    x = np.full(len(FEATURES), 0.3)
    for learner in (forgetful(), sl.EpochOFUL(sl.BehaviorQueries(log.summary), 100)):
        learner.observe(x, ARMS[0], 0.0)
        with pytest.raises(InputError, match="receipt"):
            learner.correct(x, ARMS[0], 0.0, 1.0)


def test_a_floor_follows_the_corrected_reward(log):
    floor = sl.Floor(0.1, noise=0.5, weight_bound=2.0)
    made = [sl.FusedOFUL(sl.BehaviorQueries(log.summary), floor=floor, safety=0.0) for _ in range(2)]
    rng = np.random.default_rng(9)
    for _ in range(60):
        x, reward, arm = rng.normal(size=len(FEATURES)), float(rng.normal()), ARMS[int(rng.integers(2))]
        for one, first in zip(made, (0.0, reward), strict=True):
            one.record_decision(x, arm, ARMS[0])
            one.observe(x, arm, first)
        made[0].correct(x, arm, 0.0, reward)
    corrected, told = (one.ledger for one in made)
    for name in ("moments", "squares", "grams", "counts", "differences"):
        np.testing.assert_allclose(getattr(corrected, name), getattr(told, name), rtol=1e-9, atol=1e-9)
    # what the wrong rewards added to the guesses' errors stays, so a corrected floor never claims more
    assert corrected.guessed > told.guessed
    assert corrected.total <= told.total
    # and apart from the guesses it claims the same
    corrected.restore({**corrected.state(), "floor_guessed": np.array([told.guessed])})
    assert corrected.total == pytest.approx(told.total, rel=1e-9)


def test_rounds_of_long_ago_may_turn_out_to_be_another_arms(log, player):
    """The tests of the assumptions began after some of them, which then go out of the sums that were there before."""
    learner = sl.FusedOFUL(sl.BehaviorQueries(log.summary))
    past = []
    for t, x, answer, _, rewards in player.events(400):
        # wide contexts at first: what is taken out weighs more than all that came since
        x = x * (3.0 if t < 40 else 0.3)
        arm, reward = ARMS[answer], float(rewards[answer])
        past.append((x, arm, reward, learner.receipt(x, reward, arm)))
        learner.observe(x, arm, reward)
        if t >= 200 and t % 4 == 0:
            x, arm, reward, receipt = past[(t - 200) // 4]
            other = ARMS[(ARMS.index(arm) + 1) % len(ARMS)]
            learner.correct(x, arm, reward, reward, taken=other, receipt=receipt)
    assert learner.counts.sum() == 400
    assert learner.misfit is not None
    assert np.isfinite(np.concatenate(learner.scores(x))).all()
    since = learner.grams - learner.weighed_grams
    assert np.linalg.eigvalsh(since).min() > -1e-9 * np.abs(learner.grams).max()


@pytest.mark.parametrize("what", ["observe", "observe_many", "observe_behavior"])
def test_a_warning_of_a_wild_value_points_to_the_line_that_gave_it(entry, log, player, what):
    settings = {} if entry.name == "FusedOFUL, automatic" else {"regularization": "auto"}
    learner = entry.make(log, **settings)
    player.play(learner, 60)
    if learner.ranges() is None or (what == "observe_behavior" and learner.needs is None):
        pytest.skip("looks out for no wild values here")
    x = np.full(len(FEATURES), 1e9)
    answer = {"arm": ARMS[0]} if learner.needs == "action" else {"probabilities": [0.2, 0.3, 0.5]}
    calls = {
        "observe": lambda: learner.observe(x, ARMS[0], 0.1),
        "observe_many": lambda: learner.observe_many([x], [ARMS[0]], [0.1]),
        "observe_behavior": lambda: learner.observe_behavior(x, **answer),
    }
    with pytest.warns(WildValueWarning) as caught:
        calls[what]()
    assert caught[0].filename == __file__
