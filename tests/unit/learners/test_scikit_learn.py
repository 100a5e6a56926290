"""scikit-learn's own checks of an estimator: all of them, but for those that contradict what a bandit is."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import sidelight as sl
from sidelight.errors import ContextError

sklearn = pytest.importorskip("sklearn")
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.utils import get_tags  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

#: The checks that do not hold, and why. This is the list that the documentation means.
CONTRADICT = {
    "check_classifiers_train": "asks for accuracy: arms are not right or wrong, and the reward here is 1 for all",
    "check_classifiers_classes": "wants one column of scores for two classes; there is one index for every arm",
    "check_classifiers_regression_target": "refuses targets that are numbers with fractions; an arm may be called 0.5",
    "check_dtype_object": "wants a TypeError for a dictionary in an array; it is a ContextError, which is a ValueError",
}


class WithoutReward(sl.BanditClassifier):
    """scikit-learn calls ``fit(X, y)``; a log has a reward, here the same in every row."""

    def fit(self, X, y, reward=None):
        return super().fit(
            X, y, np.ones(X.shape[0] if hasattr(X, "shape") else len(np.asarray(X))) if reward is None else reward
        )

    def partial_fit(self, X, y, reward=None, **more):
        return super().partial_fit(
            X,
            y,
            np.ones(X.shape[0] if hasattr(X, "shape") else len(np.asarray(X))) if reward is None else reward,
            **more,
        )


@pytest.mark.filterwarnings("ignore")
def test_the_checks_of_scikit_learn():
    results = check_estimator(WithoutReward(), on_fail=None, on_skip=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert set(failed) == set(CONTRADICT), failed
    assert sum(result["status"] == "passed" for result in results) >= 45


def test_asking_before_fitting():
    with pytest.raises(NotFittedError, match="Nothing has been learned yet"):
        sl.BanditClassifier().predict([[1.0]])
    with pytest.raises(sl.SidelightError, match="Nothing has been learned yet"):
        sl.BanditClassifier().decision_function([[1.0]])


def test_the_number_of_columns_is_compared():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    bandit = sl.BanditClassifier().fit(X, y, X[:, 0])
    for wrong in (X[:, :2], np.hstack([X, X])):
        with pytest.raises(ContextError, match=r"X has \d features, but BanditClassifier is expecting 3 features"):
            bandit.predict(wrong)
        with pytest.raises(ContextError, match="expecting 3 features"):
            bandit.partial_fit(wrong, y, X[:, 0])
    hidden = sl.BanditClassifier(features=4).fit(X, y, X[:, 0])
    assert hidden.n_features_in_ == 4
    with pytest.raises(ContextError, match="X has 3 features, but BanditClassifier is expecting 4 features"):
        hidden.predict(X)


def test_tags_are_true():
    tags = get_tags(sl.BanditClassifier())
    assert tags.estimator_type == "classifier"
    assert tags.target_tags.required
    assert not tags.input_tags.sparse
    assert not tags.input_tags.allow_nan
    with pytest.raises(sl.SidelightError, match="missing or NaN"):
        sl.BanditClassifier().fit(np.array([[1.0], [np.nan], [2.0]]), [0, 1, 0], [1.0, 1.0, 1.0])


def test_frames_are_read_by_name_and_kinds_are_found():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"ward": rng.choice(["a", "b"], 80), "age": rng.normal(size=80), "code": [str(i % 4) for i in range(80)]}
    )
    with pytest.warns(sl.SidelightWarning, match="'ward' of the Arrow table holds text"):
        bandit = sl.BanditClassifier().fit(frame, np.arange(80) % 2, frame["age"])
    assert bandit.schema_.encoded_names == ("intercept", "ward=b", "age", "code")
    shuffled = frame[["code", "age", "ward"]].assign(note="x")
    np.testing.assert_array_equal(bandit.predict(shuffled), bandit.predict(frame))
