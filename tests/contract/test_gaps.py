"""What every learner promises about contexts with gaps, where its schema says ``missing="impute"``."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from tests.contract.conftest import SETTINGS
from tests.contract.registry import ARMS, FEATURES, make_log

import sidelight as sl
from sidelight.errors import ContextError, InputError


@pytest.fixture(scope="module")
def gappy():
    return make_log(missing="impute")


@pytest.fixture
def gappy_make(entry, gappy):
    return lambda: entry.make(gappy, **SETTINGS)


@pytest.fixture(scope="module")
def practised():
    """Learners after 40 rounds, by name: never handed out, only copied."""
    return {}


@pytest.fixture
def played(entry, gappy_make, practised):
    """A learner after 40 rounds with gaps, one's own to change; the rounds are played once for all tests."""
    if entry.name not in practised:
        practised[entry.name] = gappy_make()
        play(practised[entry.name], rows(40))
    return copy.deepcopy(practised[entry.name])


def rows(n, seed=4):
    """Contexts with a gap in about every sixth value, and each a value somewhere."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, len(FEATURES))) * 0.6 + 0.2
    gone = rng.random(X.shape) < 0.17
    gone[np.arange(n), rng.integers(len(FEATURES), size=n)] = False
    return np.where(gone, np.nan, X)


def play(learner, X, seed=6):
    rng = np.random.default_rng(seed)
    decisions = []
    for t, x in enumerate(X):
        answer, probabilities, reward = int(rng.integers(3)), rng.dirichlet(np.ones(3)), float(rng.normal())
        if learner.needs == "action":
            learner.observe_behavior(x, ARMS[answer], probability=0.8)
        elif learner.needs == "probabilities":
            learner.observe_behavior(x, probabilities=probabilities)
        decisions.append(learner.decide(x, rng=np.random.default_rng(t)))
        learner.observe(x, decisions[-1].arm, reward)
    return decisions


def test_it_decides_and_learns_and_holds_no_nan(gappy_make):
    learner = gappy_make()
    X = rows(150)
    for decision in play(learner, X):
        assert np.isfinite([decision.estimate, decision.width, decision.propensity]).all()
    assert learner.counts.sum() > 0
    assert learner.gaps.rows >= 150
    arrays = {**learner.state(), **learner.gaps.state()}
    held = [name for name, value in arrays.items() if np.asarray(value).dtype.kind == "f" and np.isnan(value).any()]
    assert not held


def test_a_saved_learner_goes_on_to_the_bit(played, tmp_path):
    played.save(tmp_path / "learner.sidelight")
    loaded = sl.load_learner(tmp_path / "learner.sidelight")
    X = rows(90, seed=8)
    assert play(loaded, X, seed=9) == play(played, X, seed=9)


def test_the_same_context_however_it_is_given(played):
    for x in rows(20, seed=12):
        named = {name: None if np.isnan(v) else float(v) for name, v in zip(FEATURES, x, strict=True)}
        absent = {name: value for name, value in named.items() if value is not None}
        given = played.scores(x)
        for form in (named, absent, x.tolist()):
            estimates, widths = played.scores(form)
            np.testing.assert_array_equal(estimates, given[0])
            np.testing.assert_array_equal(widths, given[1])
        # whoever gives the inferred values as seen ones claims to know them
        estimates, widths = played.scores(played.filled(x))
        np.testing.assert_array_equal(estimates, given[0])
        assert (widths <= given[1]).all()


def test_inputs_are_not_changed(gappy_make):
    learner = gappy_make()
    X = rows(30)
    kept = X.copy()
    play(learner, X)
    learner.decide_many(X, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(X, kept)


def test_without_leave_a_gap_is_an_error(entry, log):
    learner = entry.make(log, **SETTINGS)
    with pytest.raises(ContextError):
        learner.decide(np.array([0.1, np.nan, 0.2, 0.3, 0.4]))


def test_a_round_with_gaps_is_taken_out_as_it_was_taken_in(entry, played):
    """What is put into gaps changes as contexts come; a round that turns out to be another arm's has the old values."""
    if entry.name in ("EpochOFUL", "EpochOFUL, R12 known"):
        pytest.skip("drops its rounds when an episode begins")
    learner, name = played, "kept_V" if entry.name == "EpochOFUL, data kept" else "grams"
    name = name if name in learner.state() else "V"
    before = np.array(learner.state()[name][0])
    taken = [x for x in rows(12, seed=5) if np.isnan(x).any()]
    receipts = []
    for x in taken:
        receipts.append(learner.receipt(x, 0.5, ARMS[0]))
        learner.observe(x, ARMS[0], 0.5)
    for x in 3.0 * rows(60, seed=7) - 1.0:
        learner.observe(x, ARMS[1], 0.1)
    for x, receipt in zip(taken, receipts, strict=True):
        learner.correct(x, ARMS[0], 0.5, 0.5, taken=ARMS[2], receipt=receipt)
    np.testing.assert_allclose(learner.state()[name][0], before, rtol=1e-9, atol=1e-9)
    with pytest.raises(InputError, match="missing values"):
        learner.correct(np.zeros(len(FEATURES)), ARMS[1], 0.1, 0.5, receipt=receipts[0])
