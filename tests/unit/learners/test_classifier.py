"""``BanditClassifier``: the learner behind it is the one made by hand, and scikit-learn can handle it."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone, is_classifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

import sidelight as sl

WORLD = sl.worlds.ConfoundedWorld(seed=3, n_arms=4, n_features=5, n_hidden=2)
RNG = np.random.default_rng(7)
LOG = WORLD.sample_log(3_000, recorded=3, rng=RNG)
X = WORLD.contexts(60, RNG)
ARMS = WORLD.behavior_actions(X, RNG)
REWARDS = WORLD.rewards(X, ARMS, RNG)
BEHAVIOR = WORLD.behavior_actions(X, RNG)


def log_arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    frame = LOG.to_pandas()
    return frame[list(WORLD.features[:3])].to_numpy(), frame["arm"].to_numpy(), frame["reward"].to_numpy()


def fitted(**settings) -> sl.BanditClassifier:
    return sl.BanditClassifier(features=5, intercept=False, **settings).fit(*log_arrays())


def test_it_is_the_learner_that_one_would_make_by_hand():
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(LOG, WORLD.schema(3))), alpha=0.4)
    bandit = fitted(settings={"alpha": 0.4}).partial_fit(X, ARMS, REWARDS, behavior=BEHAVIOR)
    for x, arm in zip(X, BEHAVIOR, strict=True):
        learner.observe_behavior(x, arm)
    learner.observe_many(X, ARMS, REWARDS)
    new = WORLD.contexts(40, RNG)
    chosen = learner.decide_many(new)
    assert bandit.predict(new).tolist() == [decision.arm for decision in chosen]
    assert bandit.decisions(new)["estimate"].to_pylist() == [decision.estimate for decision in chosen]
    assert np.array_equal(bandit.decision_function(new)[0], sum(learner.scores(new[0])))


def test_the_repr_shows_every_parameter_in_full():
    names = [f"measurement {i} of the patient" for i in range(20)]
    settings = {"safety": 0.5, "query_budget": 1_000, "noise": 0.25, "regularization": 10.0, "radius": "posterior"}
    shown = repr(sl.BanditClassifier("OFUL", features=names, settings=settings))
    assert shown == f"BanditClassifier(learner='OFUL', features={names!r}, settings={settings!r})"


def test_oful_takes_a_complete_log_for_rounds_and_no_other():
    recorded, arms, rewards = log_arrays()
    bandit = sl.BanditClassifier("OFUL", intercept=False, settings={"alpha": 1.3, "regularization": 10.0, "noise": 1.0})
    bandit.fit(recorded, arms, rewards)
    by_hand = sl.OFUL(4, 3, alpha=1.3, regularization=10.0, noise=1.0, radius="posterior")
    by_hand.observe_many(recorded, arms, rewards)
    assert bandit.predict(X[:, :3]).tolist() == [decision.arm for decision in by_hand.decide_many(X[:, :3])]
    np.testing.assert_allclose(bandit.decision_function(X[:1, :3])[0], sum(by_hand.scores(X[0, :3])), atol=1e-12)
    assert "0 rounds on a log of 3,000 rows" in repr(bandit)
    with pytest.warns(sl.SidelightWarning, match="x3, x4, so OFUL does not look"):
        cold = fitted(learner="OFUL")
    assert cold.learner_.counts.sum() == 0
    assert "60 rounds" in repr(cold.partial_fit(X, ARMS, REWARDS))
    assert "60 rounds" in repr(fitted(learner="ZeroFilledOFUL").partial_fit(X, ARMS, REWARDS))


def test_columns_without_a_value_are_hidden_wherever_they_stand():
    recorded, arms, rewards = log_arrays()
    wide = np.full((len(arms), 5), np.nan)
    wide[:, [4, 0, 2]] = recorded
    bandit = sl.BanditClassifier(features=5, intercept=False).fit(wide, arms, rewards)
    assert bandit.summary_.recorded.tolist() == [0, 2, 4]
    assert bandit.schema_.recorded == ("x0", "x2", "x4")


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_frames_in_and_frames_out(kind):
    ward = ["north", "south"] * 100
    rng = np.random.default_rng(0)
    log = {"age": rng.normal(size=200), "ward": ward}
    arms = np.where(rng.random(200) < 0.5, "low", "high")
    make = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}[kind]
    features = ["age", "ward", "income"]
    bandit = sl.BanditClassifier(features=features).fit(make(log), arms, rng.normal(size=200))
    full = make({"income": [0.3, 0.1], "ward": ["south", "north"], "age": [0.5, -0.5]})
    if kind == "pandas":
        full.index = ["p1", "p2"]
    out = bandit.decisions(full)
    assert type(out) is type(full)
    names = out.column_names if kind == "arrow" else list(out.columns)
    assert names == ["arm", "estimate", "width", "propensity"]
    assert set(np.asarray(out["arm"]).tolist()) <= {"low", "high"}
    if kind == "pandas":
        assert out.index.tolist() == ["p1", "p2"]
    assert bandit.feature_names_in_.tolist() == features
    assert bandit.predict(full).tolist() == np.asarray(out["arm"]).tolist()


def test_scikit_learn_clones_it_and_sees_a_classifier():
    bandit = fitted(learner="FusedThompson", settings={"alpha": 0.5})
    copy = clone(bandit)
    assert copy.get_params() == bandit.get_params()
    assert not hasattr(copy, "learner_")
    assert is_classifier(copy)
    check_is_fitted(bandit)
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(copy)
    copy.set_params(learner="RunningOFUL", settings={"noise": 0.3})
    assert type(copy.fit(*log_arrays()).learner_).__name__ == "RunningOFUL"
    with pytest.raises(sl.errors.InputError, match="colour"):
        copy.set_params(colour="blue")


def test_it_ends_a_pipeline():
    recorded, arms, rewards = log_arrays()
    wide = np.hstack([recorded, np.full((len(arms), 2), np.nan)])
    scaler = StandardScaler(with_mean=False)
    pipe = make_pipeline(scaler, sl.BanditClassifier(features=5))
    # the scaler leaves a column without values alone, and warns that it has no variance to divide by
    with np.errstate(invalid="ignore"):
        pipe.fit(wide, arms, banditclassifier__reward=rewards)
    assert pipe[-1].summary_.n_recorded == 4  # and the constant
    assert pipe[-1].predict(X).shape == (60,)


@pytest.mark.parametrize("learner", ["FusedThompson", "FusedOFUL", "ZeroFilledOFUL", "OFUL", "RunningOFUL"])
def test_probabilities_are_those_of_the_decisions(learner):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sl.SidelightWarning)
        bandit = fitted(learner=learner)
    if bandit.learner_.needs:
        bandit.partial_fit(X, ARMS, REWARDS, behavior=BEHAVIOR)
    chances = bandit.predict_proba(X)
    assert chances.shape == (60, 4)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-9)
    position = {arm: i for i, arm in enumerate(bandit.classes_.tolist())}
    for row, decision in zip(chances, bandit.learner_.decide_many(X), strict=True):
        # a propensity is an integral by quadrature, and the row is scaled to sum to 1
        assert row[position[decision.arm]] == pytest.approx(decision.propensity, abs=1e-4)


def test_without_a_log_it_starts_cold_and_asks_for_the_arms():
    bandit = sl.BanditClassifier(intercept=False)
    with pytest.raises(sl.errors.InputError, match="classes="):
        bandit.partial_fit(X, ARMS, REWARDS)
    bandit.partial_fit(X, ARMS, REWARDS, classes=[0, 1, 2, 3])
    by_hand = sl.OFUL(4, 5, regularization="auto", radius="posterior")
    by_hand.observe_many(X, ARMS, REWARDS)
    assert bandit.predict(X).tolist() == [decision.arm for decision in by_hand.decide_many(X)]
    assert "60 rounds without a log" in repr(bandit)


def test_probabilities_of_the_old_policy():
    chances = WORLD.behavior_probabilities(X)
    chances[::3] = np.nan
    bandit = fitted(answers="probabilities").partial_fit(X, ARMS, REWARDS, behavior=chances)
    (estimator,) = bandit.learner_.estimators().values()
    assert estimator.n_answers == 40


@pytest.mark.parametrize("nothing", [None, np.nan])
@pytest.mark.parametrize("form", [list, lambda values: np.array(values, dtype=object), pd.Series])
def test_rows_in_which_nobody_asked_are_left_out(nothing, form):
    labels = np.array(["a", "b", "c", "d"])
    recorded, arms, rewards = log_arrays()
    some = [nothing if i % 2 else str(labels[arm]) for i, arm in enumerate(BEHAVIOR)]
    bandit = sl.BanditClassifier(features=5).fit(recorded, labels[arms], rewards)
    bandit.partial_fit(X, labels[ARMS], REWARDS, behavior=form(some))
    (estimator,) = bandit.learner_.estimators().values()
    assert estimator.n_answers == 30


@pytest.mark.parametrize(
    ("arms", "rewards", "behavior"),
    [
        ([*ARMS[:-1].tolist(), 17], REWARDS, BEHAVIOR),
        (ARMS, [*REWARDS[:-1].tolist(), np.inf], BEHAVIOR),
        (ARMS, [*REWARDS[:-1].tolist(), None], BEHAVIOR),
        (ARMS, REWARDS, [*BEHAVIOR[:-1].tolist(), 17]),
    ],
    ids=["arm", "infinite reward", "missing reward", "answer"],
)
def test_a_batch_with_an_error_teaches_nothing(arms, rewards, behavior):
    bandit = fitted()
    before = bandit.learner_.scores(X[0])
    with pytest.raises(sl.errors.InputError):
        bandit.partial_fit(X, arms, rewards, behavior=behavior)
    after = bandit.learner_.scores(X[0])
    assert np.array_equal(before, after)
    (estimator,) = bandit.learner_.estimators().values()
    assert estimator.n_answers == 0
    assert bandit.learner_.counts.sum() == 0


@pytest.mark.parametrize("wrong", [[0.9, 0.9, 0.0, 0.0], ["high", 0.0, 0.0, 1.0]], ids=["sum", "text"])
def test_a_batch_with_wrong_probabilities_of_the_old_policy_teaches_nothing(wrong):
    chances = [*WORLD.behavior_probabilities(X)[:-1].tolist(), wrong]
    bandit = fitted(answers="probabilities")
    with pytest.raises(sl.errors.InputError, match="probabilities"):
        bandit.partial_fit(X, ARMS, REWARDS, behavior=chances)
    (estimator,) = bandit.learner_.estimators().values()
    assert estimator.n_answers == 0
    assert bandit.learner_.counts.sum() == 0


def test_a_log_that_counts_for_nothing_is_worth_a_warning():
    bandit = fitted()
    with pytest.warns(sl.SidelightWarning, match="x3, x4"):
        bandit.partial_fit(X, ARMS, REWARDS)
    bandit.partial_fit(X, ARMS, REWARDS, behavior=BEHAVIOR)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bandit.partial_fit(X, ARMS, REWARDS)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sl.BanditClassifier().predict(X), "Nothing has been learned yet"),
        (lambda: sl.BanditClassifier("LinUCB").fit(*log_arrays()), "LinUCB"),
        (lambda: sl.BanditClassifier(features=2).fit(*log_arrays()), "X has 3 columns"),
        (lambda: sl.BanditClassifier(answers="votes").fit(*log_arrays()), "votes"),
        (lambda: fitted().fit(X, ARMS[:5], REWARDS), "y has 5 values and X 60 rows"),
        (lambda: fitted().predict([["a", "b"]]), "Text belongs into a frame"),
        (lambda: fitted().predict([1.0, 2.0]), r"shape \(2,\)"),
        (lambda: fitted().partial_fit(X, ARMS, REWARDS, behavior=BEHAVIOR[:3]), "behavior has 3"),
    ],
)
def test_bad_input_is_explained(call, words):
    with pytest.raises(sl.errors.InputError, match=words):
        call()


def test_scikit_learn_need_not_be_installed():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import sidelight as sl\n"
        "b = sl.BanditClassifier(arms=['a', 'b']).partial_fit([[1.0], [2.0]], ['a', 'b'], [0.1, 0.9])\n"
        "print(b.predict([[1.0]]), b.get_params())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
