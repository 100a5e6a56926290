"""What every linear world promises: its log, its policy, its moments, its pairing of noise."""

from __future__ import annotations

import numpy as np
import pytest

from sidelight.errors import ContextError, InputError, SchemaError, UnknownArmError
from sidelight.worlds.confounded import ConfoundedWorld
from sidelight.worlds.linear import CHUNK_ROWS, draw_indices, label_indices
from sidelight.worlds.paper import PaperWorld
from sidelight.worlds.protocol import World, recorded_indices

WORLDS = {
    "paper_text": lambda: PaperWorld.preset("paper_text", seed=5, n_arms=4, n_features=7, sharpness=3.0),
    "authors_code": lambda: PaperWorld.preset("authors_code", seed=5, n_arms=4, n_features=7, noise=0.7),
    "confounded": lambda: ConfoundedWorld(seed=5, n_arms=4, n_features=7, n_hidden=3, noise=0.2),
}


@pytest.fixture(params=sorted(WORLDS), scope="module")
def world(request: pytest.FixtureRequest):
    """Read only: a world's moments take a quarter of a second, once."""
    return WORLDS[request.param]()


def columns(table, names):
    return np.column_stack([table[name].to_numpy() for name in names])


def test_meets_the_protocol(world):
    assert isinstance(world, World)
    schema = world.schema(3)
    assert [feature.name for feature in schema.features] == list(world.features)
    assert list(schema.recorded) == list(world.features[:3])
    assert list(schema.arms) == [0, 1, 2, 3]


def test_contexts_have_norm_one(world):
    X = world.contexts(50, np.random.default_rng(0))
    assert X.shape == (50, 7)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), world.context_bound, rtol=1e-12)


def test_the_log_holds_only_what_was_recorded_and_obeys_the_model(world, rng):
    n = CHUNK_ROWS + 17  # more than one chunk
    table = world.sample_log(n, [4, 1, 0], rng)
    names = [world.features[j] for j in (0, 1, 4)]
    assert table.column_names == [*names, "arm", "reward"]
    assert table.num_rows == n
    # with everything recorded, the residual of the true weights is the noise: standard error σ/√(2n)
    full = world.sample_log(n, 7, rng)
    X, arms, rewards = columns(full, world.features), full["arm"].to_numpy(), full["reward"].to_numpy()
    residuals = rewards - np.einsum("nd,nd->n", X, world.weights[arms])
    assert abs(residuals.std() / world.noise - 1) < 6 / np.sqrt(2 * n)  # fails once in 5·10⁸


def test_logs_of_length_zero_and_one(world, rng):
    assert world.sample_log(0, 2, rng).num_rows == 0
    assert world.sample_log(1, 0, rng).column_names == ["arm", "reward"]


def test_same_seed_same_log_and_other_seed_another(world):
    first, again, other = (world.sample_log(100, 3, np.random.default_rng(s)) for s in (1, 1, 2))
    assert first.equals(again)
    assert not first.equals(other)


def test_probabilities_are_the_softmax_of_the_logits(world, rng):
    X = world.contexts(20, rng)
    P = world.behavior_probabilities(X)
    raw = np.exp(world.behavior_logits(X))
    np.testing.assert_allclose(P, raw / raw.sum(axis=1, keepdims=True), rtol=1e-12)


def test_actions_follow_the_probabilities(world, rng):
    """Counts against the sums of probabilities; 4 arms at 5.5 standard deviations: once in 6·10⁶."""
    X = world.contexts(40_000, rng)
    P = world.behavior_probabilities(X)
    counts = np.bincount(world.behavior_actions(X, rng), minlength=4)
    deviation = (counts - P.sum(axis=0)) / np.sqrt((P * (1 - P)).sum(axis=0))
    assert np.abs(deviation).max() < 5.5


def test_noise_does_not_depend_on_the_arm(world):
    X = world.contexts(30, np.random.default_rng(3))
    potential = world.potential_rewards(X, np.random.default_rng(9))
    for arm in range(4):
        np.testing.assert_allclose(world.rewards(X, arm, np.random.default_rng(9)), potential[:, arm], atol=1e-14)
    arms = np.arange(30) % 4
    generator, untouched = np.random.default_rng(9), np.random.default_rng(9)
    np.testing.assert_allclose(world.rewards(X, arms, generator), potential[np.arange(30), arms], atol=1e-14)
    world.rewards(X, 0, untouched)
    assert generator.random() == untouched.random()  # both consumed the same amount
    np.testing.assert_allclose(
        potential - world.mean_rewards(X), (potential - world.mean_rewards(X))[:, :1] * np.ones(4), atol=1e-14
    )


def test_cross_moments_against_an_independent_sample(world, rng):
    """Each entry within 6 standard errors of an independent weighted mean (84 entries: once in 6·10⁶)."""
    n = 200_000
    X = world.contexts(n, rng)
    P = world.behavior_probabilities(X)
    kept, hidden = [0, 2, 3], [1, 4, 5, 6]
    moments = world.cross_moments([3, 0, 2])
    assert moments.shape == (4, 3, 4)
    for arm in range(4):
        share = P[:, arm].mean()
        for i, j in enumerate(kept):
            products = X[:, [j]] * X[:, hidden]
            terms = P[:, [arm]] * (products - moments[arm, i]) / share
            # the world's own sample is five times as long, hence the factor 1.2
            error = 1.2 * terms.std(axis=0) / np.sqrt(n) + 1e-12
            assert (np.abs(terms.mean(axis=0)) < 6 * error).all()


def test_moments_agree_between_copies():
    assert np.array_equal(WORLDS["confounded"]().cross_moments(3), WORLDS["confounded"]().cross_moments(3))


def test_moments_are_computed_once(world):
    assert world.second_moments()[1] is world.second_moments()[1]
    assert world.second_moments()[0].sum() == pytest.approx(1, abs=1e-9)


def test_recorded_may_be_a_number_indices_or_names():
    names = ["a", "b", "c", "d"]
    assert recorded_indices(2, names) == (0, 1)
    assert recorded_indices(np.int64(2), names) == (0, 1)
    assert recorded_indices([3, 1], names) == (1, 3)
    assert recorded_indices(["d", "a"], names) == (0, 3)
    assert recorded_indices([], names) == ()


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        (5, "between 0 and 4"),
        (-1, "between 0 and 4"),
        (True, "single value"),
        ("ab", "single value"),
        (2.5, "single value"),
        (["z"], "'z'"),
        ([0, 4], "index 4"),
        ([1, "b"], "b more than once"),
    ],
)
def test_wrong_recorded_is_explained(recorded, message):
    with pytest.raises(SchemaError, match=message):
        recorded_indices(recorded, ["a", "b", "c", "d"])


def test_wrong_contexts_and_arms_are_explained(world):
    with pytest.raises(ContextError, match="7 features"):
        world.mean_rewards(np.zeros((2, 6)))
    X = world.contexts(2, np.random.default_rng(0))
    with pytest.raises(UnknownArmError, match="arm 4"):
        world.rewards(X, [0, 4], np.random.default_rng(0))


def test_labels_become_indices():
    assert label_indices(["no", "yes", "no"], ["yes", "no"], plain=False).tolist() == [1, 0, 1]
    assert label_indices("yes", ["yes", "no"], plain=False) == 0
    with pytest.raises(UnknownArmError, match="maybe"):
        label_indices("maybe", ["yes", "no"], plain=False)


def test_draws_never_leave_the_range():
    class Top:
        def random(self, n):
            return np.full(n, np.nextafter(1.0, 0.0))

    P = np.full((3, 7), 1 / 7)
    assert draw_indices(P, Top()).tolist() == [6, 6, 6]


def test_presets_are_the_documented_settings():
    text = PaperWorld.preset("paper_text", seed=1)
    code = PaperWorld.preset("authors_code", seed=1)
    assert text.weights.shape == code.weights.shape == (30, 30)
    assert (text.noise, code.noise) == (0.05, 1.0)
    assert 0 <= text.weights.min() < text.weights.max() <= 1 / 30
    assert 0 <= code.weights.min() < code.weights.max() <= 1 / np.sqrt(30)
    assert code.weights.max() > 1 / 30
    assert not text.offsets.any()
    assert 0 <= code.offsets.min() < code.offsets.max() <= 1
    X = text.contexts(100, np.random.default_rng(0))
    assert X.min() >= 0
    assert code.contexts(100, np.random.default_rng(0)).min() < 0
    assert not np.array_equal(text.weights, PaperWorld.preset("paper_text", seed=2).weights)
    with pytest.raises(InputError, match="does not exist"):
        PaperWorld.preset("journal", seed=1)


def test_sharpness_zero_is_an_indifferent_policy(rng):
    world = PaperWorld.preset("authors_code", seed=1, n_arms=3, n_features=4, sharpness=0.0)
    np.testing.assert_allclose(world.behavior_probabilities(world.contexts(5, rng)), 1 / 3)


def test_the_confounded_policy_sees_hidden_features_only(rng):
    world = ConfoundedWorld(seed=2, n_arms=5, n_features=8, n_hidden=3)
    X = world.contexts(6, rng)
    changed = X.copy()
    changed[:, : world.default_recorded] = rng.standard_normal((6, 5))
    np.testing.assert_array_equal(world.behavior_probabilities(X), world.behavior_probabilities(changed))
    np.testing.assert_allclose(X[:, 0], 1 / np.sqrt(2))
    with pytest.raises(InputError, match="n_hidden"):
        ConfoundedWorld(seed=2, n_features=4, n_hidden=4)
