"""The two stories and the log from another time: names, units, eras, and which part of the world each lie touches."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest

import sidelight as sl
from sidelight.errors import InputError
from sidelight.worlds.confounded import ConfoundedWorld
from sidelight.worlds.dosing import CLINICAL, DOSES, SOCIOECONOMIC, DosingWorld
from sidelight.worlds.drifted import DriftedWorld
from sidelight.worlds.protocol import World
from sidelight.worlds.signals import ERAS, FEATURES, PLANS, TrafficWorld

STORIES = {"dosing": DosingWorld, "traffic": lambda: TrafficWorld(seed=1)}


@pytest.fixture(params=sorted(STORIES), scope="module")
def world(request):
    """Read only: a world's moments take half a second, once."""
    return STORIES[request.param]()


def short_regression(world, table):
    """Per arm, the coefficients of the reward on the encoded recorded features of a log."""
    schema = world.schema(world.default_recorded)
    X = schema.encode_recorded(table)
    arms = world.arm_indices(table[schema.arm].to_pylist())
    rewards = table[schema.reward].to_numpy()
    return np.stack([np.linalg.lstsq(X[arms == a], rewards[arms == a], rcond=None)[0] for a in range(world.n_arms)])


def test_a_log_decodes_to_what_a_user_would_store_and_encodes_back(world, rng):
    assert isinstance(world, World)
    schema = world.schema(len(world.features))
    X, arms, rewards = world._logged(200, np.random.default_rng(4))
    table = world.sample_log(200, len(world.features), np.random.default_rng(4))
    assert table.column_names == [*world.features, schema.arm, schema.reward]
    np.testing.assert_allclose(schema.encode_many(table), X, atol=1e-15)
    assert table[schema.arm].to_pylist() == [world.arms[a] for a in arms]
    np.testing.assert_array_equal(table[schema.reward].to_numpy(), rewards)
    np.testing.assert_array_equal(world.arm_indices(table[schema.arm].to_pylist()), arms)


def test_contexts_stay_within_their_bound_and_every_arm_matters(world, rng):
    X = world.contexts(20_000, rng)
    assert np.linalg.norm(X, axis=1).max() <= world.context_bound
    best = np.bincount(world.mean_rewards(X).argmax(axis=1), minlength=world.n_arms) / len(X)
    assert best.min() > 0.005
    assert best.max() < 0.6
    P = world.behavior_probabilities(X)
    means = world.mean_rewards(X)
    old, ideal, chance = (P * means).sum(axis=1).mean(), means.max(axis=1).mean(), means.mean()
    assert chance < old < ideal  # the old policy knows something, and there is something to gain
    assert world.second_moments()[0].min() > 0.03


def test_the_log_is_confounded_as_proposition_one_says(world, rng):
    """b_a approaches w_o + B w_h, away from w_o; the tolerance is 7 standard errors of the coarsest coefficient."""
    table = world.sample_log(120_000, world.default_recorded, rng)
    schema = world.schema(world.default_recorded)
    kept, hidden = schema.recorded_index, schema.hidden_index
    moments = world.second_moments()[1]
    B = np.linalg.solve(moments[:, kept][:, :, kept], moments[:, kept][:, :, hidden])
    limit = world.weights[:, kept] + np.einsum("klm,km->kl", B, world.weights[:, hidden])
    b = short_regression(world, table)
    shares = world.second_moments()[0]
    inverse = np.linalg.inv(moments[:, kept][:, :, kept])
    spread = 1.5 * np.sqrt(np.einsum("kll->kl", inverse) / (120_000 * shares[:, None]))
    assert (np.abs(b - limit) < 7 * spread).all()
    assert np.abs(limit - world.weights[:, kept]).max() > 0.5


def test_dosing_records_what_privacy_left():
    world = DosingWorld(noise=0.3)
    assert world.arms == (*DOSES, "weekly")
    log = world.sample_log(50, world.default_recorded, np.random.default_rng(0))
    assert log.column_names == [*CLINICAL, "regimen", "response"]
    assert not set(SOCIOECONOMIC) & set(log.column_names)
    assert set(log["stage"].to_pylist()) <= {"I", "II", "III", "IV"}


def test_dosing_without_bias_has_clinicians_who_saw_what_they_recorded(rng):
    fair = DosingWorld(bias=0.0)
    X = fair.contexts(20, rng)
    other = X.copy()
    other[:, 8:] = fair.contexts(20, rng)[:, 8:]
    np.testing.assert_array_equal(fair.behavior_probabilities(X), fair.behavior_probabilities(other))
    assert not np.allclose(DosingWorld().behavior_probabilities(X), DosingWorld().behavior_probabilities(other))


def test_traffic_eras_lack_the_newer_columns():
    world = TrafficWorld(seed=2)
    log = world.sample_eras_log(10_000, np.random.default_rng(1), shares=(0.5, 0.3, 0.2))
    assert log.column_names == ["year", *FEATURES, "plan", "minutes_saved"]
    assert log.num_rows == 10_000
    years = log["year"].to_numpy()
    assert (np.diff(years) >= 0).all()
    for first, last, share, count in zip(ERAS, [*ERAS, 2024][1:], (0.5, 0.3, 0.2), ERAS.values(), strict=True):
        era = log.filter(pc.and_(pc.greater_equal(log["year"], first), pc.less(log["year"], last)))
        assert era.num_rows == 10_000 * share
        for index, name in enumerate(FEATURES):
            assert era[name].null_count == (0 if index < count else era.num_rows)
    assert set(log["plan"].to_pylist()) == set(PLANS)
    with pytest.raises(InputError, match="sum to 1"):
        world.sample_eras_log(10, np.random.default_rng(1), shares=(0.5, 0.5))
    nothing = world.sample_eras_log(0, np.random.default_rng(1))
    assert (nothing.num_rows, nothing.column_names) == (0, log.column_names)


def test_eras_are_summarized_one_by_one():
    world = TrafficWorld(seed=2)
    log = world.sample_eras_log(30_000, np.random.default_rng(1))
    eras = sl.summarize_eras(log, world.eras_schema, by="missing")
    assert sorted((summary.n_recorded, summary.n_rows) for summary in eras.values()) == [
        (4, 12_000),
        (8, 10_500),
        (10, 7_500),
    ]


# lies


@pytest.fixture(scope="module")
def honest():
    return ConfoundedWorld(seed=6, n_arms=6, n_features=5, n_hidden=2, noise=0.2)


@pytest.mark.parametrize("lie", ["redrawn", "slandered", "shifted", "swapped", "moved", "policy"])
def test_online_stays_true_and_the_log_does_not(honest, lie):
    world = DriftedWorld(honest, lie, size=1.5, share=0.4, seed=3)
    streams = [np.random.default_rng(5) for _ in range(8)]
    X = honest.contexts(30, streams[0])
    np.testing.assert_array_equal(world.contexts(30, streams[1]), X)
    np.testing.assert_array_equal(world.mean_rewards(X), honest.mean_rewards(X))
    np.testing.assert_array_equal(world.rewards(X, 2, streams[2]), honest.rewards(X, 2, streams[3]))
    np.testing.assert_array_equal(world.behavior_actions(X, streams[4]), honest.behavior_actions(X, streams[5]))
    np.testing.assert_array_equal(world.cross_moments(3), honest.cross_moments(3))
    assert not world.sample_log(200, 3, streams[6]).equals(honest.sample_log(200, 3, streams[7]))


def test_no_lie_is_the_honest_world(honest):
    world = DriftedWorld(honest, [])
    logs = [w.sample_log(300, 3, np.random.default_rng(1)) for w in (world, honest)]
    assert logs[0].equals(logs[1])


def test_each_lie_changes_what_it_names(honest):
    def log(*lies, **settings):
        table = DriftedWorld(honest, lies, **settings).sample_log(4000, 5, np.random.default_rng(1))
        X = np.column_stack([table[name].to_numpy() for name in honest.features])
        return X, table["arm"].to_numpy(), table["reward"].to_numpy()

    X, arms, rewards = log()
    means = honest.mean_rewards(honest.contexts(4096, np.random.default_rng(771)))
    best = np.bincount(means.argmax(axis=1)).argmax()

    moved, same_arms, higher = log("shifted", size=2.0)
    np.testing.assert_array_equal(moved, X)
    np.testing.assert_array_equal(same_arms, arms)
    np.testing.assert_allclose(higher - rewards, 2.0 * means.std())

    _, same_arms, lower = log("slandered", size=2.0)
    np.testing.assert_array_equal(same_arms, arms)
    np.testing.assert_allclose(lower - rewards, np.where(arms == best, -2.0 * means.std(), 0.0), atol=1e-12)

    _, swapped, same = log("swapped")
    np.testing.assert_array_equal(same, rewards)
    changed = swapped != arms
    assert set(arms[changed]) == set(swapped[changed])
    assert len(set(arms[changed])) == 2
    assert best in set(arms[changed])

    elsewhere, *_ = log("moved", size=2.0)
    np.testing.assert_allclose(elsewhere[:, 0], X[:, 0])  # the constant stays
    np.testing.assert_allclose(elsewhere[:, 1:] - X[:, 1:], 2.0 * X.std(axis=0)[1:] * np.ones((4000, 1)), rtol=0.1)

    same, other, _ = log("policy")
    np.testing.assert_array_equal(same, X)
    assert (other != arms).mean() > 0.5

    assert (DriftedWorld(honest, "redrawn", share=0.34).log_weights != honest.weights).any(axis=1).sum() == 2


def test_categories_cannot_be_moved():
    world = DriftedWorld(DosingWorld(), "moved", size=1.0)
    assert not world.context_shift[:4].any()
    assert world.context_shift[4:].all()


def test_an_unknown_lie_is_explained(honest):
    with pytest.raises(InputError, match="'gossip' is not known"):
        DriftedWorld(honest, "gossip")
