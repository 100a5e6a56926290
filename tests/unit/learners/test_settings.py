"""Settings are checked once, where they are given, by name and value."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import sidelight as sl
from sidelight.errors import InputError
from sidelight.learners.registry import KINDS, learner_class
from sidelight.learners.settings import SettingArguments, Settings


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("regularization", 0.0),
        ("regularization", -1.0),
        ("regularization", np.nan),
        ("regularization", "strong"),
        ("noise", -0.1),
        ("noise", np.inf),
        ("alpha", -1.0),
        ("alpha", None),
        ("delta", 0.0),
        ("delta", 1.0),
        ("delta", "five percent"),
        ("context_bound", 0.0),
        ("context_bound", True),
        ("weight_bound", -2.0),
        ("radius", "wide"),
        ("prior_mean", [1.0, 2.0]),
        ("prior_mean", np.nan),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_its_value(setting, value):
    with pytest.raises(InputError, match=setting) as caught:
        sl.OFUL(2, 3, **{setting: value})
    shown = "shape (2,)" if isinstance(value, list) else str(value)
    assert shown in str(caught.value) or setting == "prior_mean"


def test_no_noise_is_for_learners_that_weigh_nothing_against_it():
    schema = sl.Schema.for_arrays(3, recorded=2, n_arms=2)
    rng = np.random.default_rng(0)
    log = sl.LogSummary.from_arrays(rng.normal(size=(50, 2)), np.arange(50) % 2, rng.normal(size=50), schema)
    assert sl.OFUL(2, 3, noise=0.0).scores([1.0, 2.0, 0.0])[1].min() > 0.0  # the prior's part of the radius
    for make in (
        lambda: sl.OFUL(2, 3, regularization="auto", noise=0.0),
        lambda: sl.FusedOFUL(sl.BehaviorQueries(log), noise=0.0),
        lambda: sl.FusedOFUL(sl.BehaviorQueries(log), regularization=0.7, noise=0.0),
    ):
        with pytest.raises(InputError, match=r"noise=0\.0"):
            make()


@pytest.mark.parametrize("value", [0, -3, 2.5, "two", None])
def test_sizes_must_be_whole_numbers(value):
    with pytest.raises(InputError, match=r"n_arms=.*whole number"):
        sl.OFUL(value, 3)
    with pytest.raises(InputError, match=r"n_features=.*whole number"):
        sl.OFUL(3, value)


def test_projected_bounds_default_to_the_plain_ones():
    assert Settings(context_bound=2.0, weight_bound=3.0).kernel_context_bound == 2.0
    assert Settings(context_bound=2.0, weight_bound=3.0).kernel_weight_bound == 3.0
    given = Settings(context_bound=2.0, weight_bound=3.0, projected_context_bound=0.5, projected_weight_bound=0.25)
    assert (given.kernel_context_bound, given.kernel_weight_bound) == (0.5, 0.25)


@pytest.mark.parametrize("mean", [0.5, [1.0, 2.0, 3.0], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]])
def test_a_prior_mean_is_what_an_unseen_arm_is_estimated_by(mean):
    learner = sl.OFUL(2, 3, prior_mean=mean, regularization=7.0)
    x = np.array([0.2, -1.0, 0.4])
    expected = np.broadcast_to(mean, (2, 3)) @ x
    np.testing.assert_allclose(learner.scores(x)[0], expected, rtol=1e-12)


@pytest.mark.parametrize("horizon", [0, -1, 1.5, "long"])
def test_a_horizon_must_be_a_whole_number(horizon):
    schema = sl.Schema.for_arrays(2, recorded=1, n_arms=1)
    summary = sl.LogSummary.from_arrays(np.ones((3, 1)), [0, 0, 0], [1.0, 2.0, 3.0], schema)
    with pytest.raises(InputError, match="horizon"):
        sl.EpochOFUL(sl.BehaviorQueries(summary), horizon)


def test_labels_must_differ_and_fit():
    with pytest.raises(InputError, match="differ"):
        sl.OFUL(2, 3, arms=["a", "a"])
    with pytest.raises(InputError, match="3 arm labels for 2 arms"):
        sl.OFUL(2, 3, arms=["a", "b", "c"])


def test_a_schema_of_another_size_is_refused():
    with pytest.raises(InputError, match="4 features and the learner 3"):
        sl.OFUL(2, 3, schema=sl.Schema.for_arrays(4, recorded=2, n_arms=2))


@pytest.mark.parametrize("regularization", [0.1, 10.0])
def test_the_radius_has_the_given_regularization_from_the_start(regularization):
    """Also where the noise is learned, and nothing has varied yet."""
    learner = sl.OFUL(2, 3, regularization=regularization, noise="auto", weight_bound=2.0)
    _, widths = learner.scores([1.0, 0.0, 0.0])
    squared = regularization * 4.0 + learner.noise**2 * 2.0 * np.log(2 / 0.05)
    np.testing.assert_allclose(widths, np.sqrt(squared / regularization))


@pytest.mark.parametrize("centre", [0.0, 1e3, 1e6, 1e8])
@pytest.mark.parametrize("radius", ["printed", "determinant"])
def test_radii_of_features_far_from_zero_are_numbers(rng, centre, radius):
    schema = sl.Schema(["a", "b", "c"], ["a", "b"], arms=[0, 1], intercept=True)

    def draw(n):
        return np.column_stack([np.ones(n), rng.normal(size=(n, 3)) + centre])

    arms = np.arange(300) % 2
    log = sl.LogSummary.from_arrays(draw(300)[:, :3], arms, rng.normal(size=300), schema)
    queries = sl.BehaviorQueries(log)
    settings = {"regularization": "auto", "radius": radius}
    for learner in (
        sl.OFUL(2, 4, schema=schema, arms=[0, 1], **settings),
        sl.RunningOFUL(queries, **settings),
        sl.EpochOFUL(queries, 100, **settings),
    ):
        for t, x in enumerate(draw(40)):
            if learner.needs:
                learner.observe_behavior(x, t % 2)
            assert np.isfinite(np.concatenate(learner.scores(x))).all()
            learner.observe(x, t % 2, float(rng.normal()))


@pytest.mark.parametrize("name", KINDS)
def test_a_constructor_lists_every_setting_with_its_default(name):
    cls = learner_class(name)
    parameters = inspect.signature(cls).parameters
    listed = {n: parameters[n] for n in SettingArguments.__annotations__}
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in listed.values())
    assert not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    fused = name.startswith("Fused")
    assert listed["radius"].default == ("posterior" if fused else "determinant")
    assert listed["regularization"].default == ("auto" if fused else 1.0)
    assert listed["noise"].default == ("auto" if fused else None)
    assert ("projected_weight_bound" in parameters) == (name in ("ProjectedOFUL", "RunningOFUL", "EpochOFUL"))


@pytest.mark.parametrize("name", ["nois", "projected_weight_bound"])
def test_a_keyword_that_is_no_setting_is_refused(name):
    with pytest.raises(TypeError, match=f"'{name}'.*regularization"):
        sl.OFUL(2, 3, **{name: 1.0})
