"""Contexts that an arm of a log hardly has: how much larger its error may be there."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.side.evidence import LogGeometry
from sidelight.side.rare import USUAL, RareContexts

NAMES = ["a", "b", "c"]


def log_of(X, arms, intercept=False):
    schema = sl.Schema(NAMES, NAMES, arms=["x", "y"], intercept=intercept)
    rows = np.column_stack([np.ones(len(X)), X]) if intercept else X
    return sl.LogSummary.from_arrays(rows, np.array(["x", "y"])[arms], X[:, 0], schema), rows


def rare(log):
    return RareContexts(log, LogGeometry(sl.BehaviorQueries(log)).directions)


def sums(rows):
    return np.stack([rows.T @ rows, np.zeros((rows.shape[1],) * 2)]), np.array([float(len(rows)), 0.0])


def test_it_is_the_leverage_of_a_context_beyond_the_usual(rng):
    X = np.repeat(np.eye(3), [900, 97, 3], axis=0)
    log, rows = log_of(np.concatenate([X, X]), np.repeat([0, 1], 1000))
    found = rare(log)
    # on average over the arm's own rows the leverage is L
    assert found.times(*sums(rows[:1000])).tolist() == [1.0, 1.0]
    for at, share in ((0, 0.9), (-1, 0.003)):
        leverage = 1.0 / share
        expected = max(leverage - USUAL * 3, 1.0)
        # the log's rows count beside as many of all arms as there are features, which are alike here
        assert found.times(*sums(X[at : at + 1] if at >= 0 else X[-1:]))[0] == pytest.approx(expected, rel=1e-9)


def test_in_an_ordinary_world_nothing_is_rare(rng):
    X = rng.normal(size=(4_000, 3))
    log, _ = log_of(X, rng.integers(2, size=4_000))
    for _ in range(50):
        assert (rare(log).times(*sums(rng.normal(size=(20, 3)))) == 1.0).all()


def test_it_does_not_depend_on_units(rng):
    X = rng.normal(size=(500, 3))
    X[:, 2] = rng.random(500) < 0.02
    arms, new = rng.integers(2, size=500), np.array([[0.3, -2.0, 1.0], [4.0, 1.0, 1.0]])
    found = []
    for scale, shift in ((1.0, 0.0), (np.array([1e3, -1e-4, 7.0]), np.array([5e3, 1e-3, 90.0]))):
        log, _ = log_of(X * scale + shift, arms, intercept=True)
        rows = np.column_stack([np.ones(2), new * scale + shift])
        found.append(rare(log).times(*sums(rows)))
    assert found[0][0] > 1.0
    np.testing.assert_allclose(found[1], found[0], rtol=1e-8)


def test_an_arm_without_rows_takes_the_leverages_of_all(rng):
    X = rng.normal(size=(300, 3))
    log, rows = log_of(X, np.zeros(300, dtype=np.int64))
    grams, counts = sums(rows[:5])
    assert np.isfinite(rare(log).times(grams[::-1].copy(), counts[::-1].copy())).all()
