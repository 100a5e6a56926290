"""What ``log_trust`` says means what it says, and a bias may be in one direction alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.statistical.fused_worlds import log_of, play, small_world

import sidelight as sl
from sidelight.errors import InputError


def test_shares_of_logs_rounds_and_prior_add_up_to_one(rng):
    world = small_world(seed=1)
    logs = {
        "wide": sl.BehaviorQueries(log_of(world, 3_000, 4, rng)),
        "narrow": sl.BehaviorQueries(log_of(world, 2_000, [0, 1, 2], rng)),
    }
    learner = sl.FusedOFUL(logs)
    play(world, learner, 300, rng)
    learner._relearn()
    shares = np.zeros(4)
    for entry in learner.log_trust():
        assert 0.0 <= entry["share"] <= 1.0
        shares[entry["arm"]] += entry["share"]
    precision, _ = learner._prior()
    C = np.square(learner.noises)[:, None, None] * learner.covariances
    rest = precision / learner.noise**2 + learner.grams / np.square(learner.noises)[:, None, None]
    rest = np.einsum("aij,aji->a", C, rest) / learner.n_features
    np.testing.assert_allclose(shares + rest, 1.0, rtol=1e-6)


def test_before_any_answer_a_long_log_counts_for_few_rows(rng):
    """After many answers for most of them; where nothing is hidden for all."""
    world = small_world(seed=2)
    rows = 20_000
    summary = log_of(world, rows, 4, rng)

    def counted(learner):
        return sum(entry["effective_rows"] for entry in learner.log_trust())

    learner = sl.FusedOFUL(sl.BehaviorQueries(summary))
    before = counted(learner)
    assert before < 0.1 * rows
    for x in world.contexts(3_000, rng):
        learner.observe_behavior(x, int(world.behavior_actions(x[None], rng)[0]))
    assert counted(learner) > 3.0 * before
    whole = log_of(world, rows, 6, rng)
    assert counted(sl.FusedOFUL(sl.BehaviorQueries(whole))) == pytest.approx(rows, rel=1e-6)
    assert counted(sl.FusedOFUL(sl.BehaviorQueries(whole), bias_bound=0.5)) < 0.1 * rows


def test_a_bound_by_feature_adds_to_the_covariance_of_those_features(rng):
    """``C + p·diag(Δ_j²)``, by name and by position alike."""
    world = small_world(seed=3)
    summary = log_of(world, 500, [0, 2, 3, 5], rng)
    names = summary.schema.encoded_names
    fixed = {"regularization": 1.3, "noise": 0.3}
    plain = sl.FusedOFUL(sl.BehaviorQueries(summary), **fixed)
    named = sl.FusedOFUL(sl.BehaviorQueries(summary), bias_bound={names[2]: 0.4, names[5]: 0.1}, **fixed)
    placed = sl.FusedOFUL(sl.BehaviorQueries(summary), bias_bound=[0, 0, 0.4, 0, 0, 0.1], **fixed)
    np.testing.assert_array_equal(named.weights, placed.weights)
    log, other = plain.logs[0], named.logs[0]
    other.tau2[:] = log.tau2
    other._set_evidence()
    D = 2.0 * np.diag(np.square([0.0, 0.4, 0.0, 0.1]))
    for a in range(4):
        C = np.linalg.inv(log.evidence.precision[a]) + D
        np.testing.assert_allclose(np.linalg.inv(other.evidence.precision[a]), C, rtol=1e-5)
    again = sl.FusedOFUL(sl.BehaviorQueries(summary), **named.options(), **fixed)
    np.testing.assert_array_equal(again.weights, named.weights)


@pytest.mark.parametrize(
    ("bound", "words"),
    [({"x9": 1.0}, "no log records"), ({"x1": 1.0}, "no log records"), ([1.0, 2.0], "one for each feature"),
     ({"x0": -1.0}, "at least 0"), ("much", "at least 0")],
)  # fmt: skip
def test_bounds_that_mean_nothing(rng, bound, words):
    world = small_world(seed=3)
    summary = log_of(world, 500, [0, 2, 3, 5], rng)
    names = dict(zip(("x0", "x1"), summary.schema.encoded_names, strict=False))
    if isinstance(bound, dict):
        bound = {names.get(key, key): value for key, value in bound.items()}
    with pytest.raises(InputError, match=words):
        sl.FusedOFUL(sl.BehaviorQueries(summary), bias_bound=bound)


def test_a_log_that_is_wrong_about_one_feature_is_believed_about_the_others(rng):
    """The log's rewards count one recorded feature twice: that feature is named, and the log still counts."""
    world = small_world(seed=4)
    table = world.sample_log(20_000, recorded=4, rng=rng)
    schema = world.schema(4)
    column = "x2"
    x = table[column].to_numpy()
    # contexts have no intercept here, so that a slope is one through zero
    rewards = pa.array(table[schema.reward].to_numpy() + 2.0 * x / x.std())
    table = table.set_column(table.column_names.index(schema.reward), schema.reward, rewards)
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(table, schema)))
    play(world, learner, 1_500, rng)
    trust = learner.log_trust()
    assert {entry["feature"] for entry in trust} == {column}
    assert all(entry["doubted"] and entry["cause"] == "log" and column in entry["says"] for entry in trust)
    assert sum(entry["effective_rows"] for entry in trust) > 2_000
    assert all(entry["holds"] for entry in learner.assumptions())


def test_a_file_of_a_learner_in_doubt_goes_on_as_it_was(rng, tmp_path):
    world = small_world(seed=5)
    lying = sl.worlds.DriftedWorld(world, "shifted", size=2.0)
    learner = sl.FusedOFUL(sl.BehaviorQueries(log_of(lying, 20_000, 4, rng)))
    play(world, learner, 700, rng)
    assert any(entry["doubted"] for entry in learner.log_trust())
    learner.save(tmp_path / "learner")
    copy = sl.load_learner(tmp_path / "learner")
    assert copy.log_trust() == learner.log_trust()
    assert copy.assumptions() == learner.assumptions()
    for one in (learner, copy):
        play(world, one, 400, np.random.default_rng(3))
    assert copy.log_trust() == learner.log_trust()
    assert copy.assumptions() == learner.assumptions()
    np.testing.assert_array_equal(copy.weights, learner.weights)


def test_a_log_is_excused_by_a_moving_present_only_where_that_was_found(rng):
    """A cause that ``log_trust`` names is one that ``assumptions`` reports: weak signs of drift excuse no log."""
    world = small_world(seed=2)
    learner = sl.FusedOFUL(sl.BehaviorQueries(log_of(world, 2_000, 4, rng)))
    play(world, learner, 200, rng)
    assert learner.misfit is not None
    entry = learner.logs[0]
    learner.misfit.moving, learner.misfit.curved = 2.0, 0.0
    assert learner._accused(entry).all(), "two units of log evidence are within chance"
    learner.misfit.moving, learner.broken["still"] = 6.0, 350
    assert not learner._accused(entry).any()
    assert not learner.assumptions()[1]["holds"]


def test_curved_rewards_are_a_cause_only_where_they_were_found(rng):
    """Weak signs of curved rewards keep a log from being accused, and are not told as the reason."""
    world = small_world(seed=2)
    learner = sl.FusedOFUL(sl.BehaviorQueries(log_of(world, 2_000, 4, rng)))
    play(world, learner, 200, rng)
    assert learner.misfit is not None
    standing = learner.logs[0].standing
    standing.levels[:], standing.accused[:] = 3, False
    learner.misfit.curved = 2.0
    (entry, *_) = learner.log_trust()
    assert learner.assumptions()[0]["holds"]
    assert entry["reduced"]
    assert not entry["doubted"]
    assert entry["cause"] == "undecided"
    assert "have not shown yet" in entry["says"]
    assert "about" not in entry["says"]
    standing.feature = 0
    (entry, *_) = learner.log_trust()
    assert f"counts for less in what it says about {entry['feature']}, since" in entry["says"]
    standing.feature = -1
    learner.broken["linear"] = 350
    (entry, *_) = learner.log_trust()
    assert entry["cause"] == "curved"
    assert "rewards are not linear:" in entry["says"]


def test_a_log_that_records_nothing_survives_a_file(rng, tmp_path):
    table = pa.table({"arm": rng.integers(2, size=200), "reward": rng.normal(size=200)})
    schema = sl.Schema(features=["a", "b", "c"], recorded=[], arms=[0, 1])
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(table, schema)))
    for _ in range(5):
        x = rng.normal(size=3)
        learner.observe_behavior(x, 0)
        learner.observe(x, 1, float(x[0]))
    learner.save(tmp_path / "learner")
    copy = sl.load_learner(tmp_path / "learner")
    for name, value in learner.state().items():
        np.testing.assert_array_equal(copy.state()[name], value)


def test_a_refused_reward_fades_nothing(rng):
    table = pa.table({"a": rng.normal(size=300), "arm": rng.integers(2, size=300), "reward": rng.integers(2, size=300)})
    schema = sl.Schema(features=["a", "b"], recorded=["a"], arms=[0, 1], binary=True)
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(table, schema)), forgetting=0.9)
    for _ in range(5):
        x = rng.normal(size=2)
        learner.observe_behavior(x, 0)
        learner.observe(x, 1, 1.0)
    before = {name: np.copy(value) for name, value in learner.state().items()}
    with pytest.raises(InputError, match="neither 0 nor 1"):
        learner.observe(x, 0, 0.5)
    for name, value in learner.state().items():
        np.testing.assert_array_equal(before[name], value)
