"""The algebra of the twin: same rows from the same draws, other weights, other optimum at the same vector."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import sidelight
from sidelight.errors import InputError
from sidelight.worlds.confounded import ConfoundedWorld
from sidelight.worlds.paper import PaperWorld
from sidelight.worlds.protocol import World
from sidelight.worlds.twin import TwinWorld


@pytest.fixture
def world():
    return ConfoundedWorld(seed=3, n_arms=5, n_features=6, n_hidden=3)


@pytest.mark.parametrize("recorded", [3, [0, 2, 5], ["x4", "constant"], 0])
def test_the_same_draws_give_the_same_rows(world, recorded):
    twin = TwinWorld.random(world, recorded, seed=8)
    assert isinstance(twin, World)
    ours, theirs = (w.sample_log(500, recorded, np.random.default_rng(1)) for w in (world, twin))
    assert ours.column_names == theirs.column_names
    for name in ours.column_names:
        np.testing.assert_allclose(theirs[name].to_numpy(), ours[name].to_numpy(), rtol=1e-9, atol=1e-12)


def test_every_arm_s_weights_differ_as_the_formula_says(world, rng):
    L, m = 3, 3
    C, T = rng.standard_normal((m, L)), np.eye(m) + 0.5 * rng.random((m, m))
    twin = TwinWorld(world, L, shift=C, mixing=T)
    hidden = np.linalg.solve(T.T, world.weights[:, L:].T).T
    np.testing.assert_allclose(twin.weights[:, L:], hidden, atol=1e-12)
    np.testing.assert_allclose(twin.weights[:, :L], world.weights[:, :L] - hidden @ C, atol=1e-12)
    assert (np.abs(twin.weights - world.weights).max(axis=1) > 1e-3).all()


def test_a_shift_alone_keeps_the_hidden_weights(world, rng):
    twin = TwinWorld(world, 3, shift=rng.standard_normal((3, 3)))
    np.testing.assert_allclose(twin.weights[:, 3:], world.weights[:, 3:], atol=1e-14)
    assert (np.abs(twin.weights[:, :3] - world.weights[:, :3]).max(axis=1) > 1e-3).all()


def test_online_the_two_want_different_actions_at_the_same_vector(world, rng):
    twin = TwinWorld.random(world, 3, seed=8)
    X = world.contexts(4000, rng)
    here, there = world.mean_rewards(X).argmax(axis=1), twin.mean_rewards(X).argmax(axis=1)
    assert (here != there).mean() > 0.2
    # and the same person fares the same in both: nothing in the log could tell
    np.testing.assert_allclose(twin.mean_rewards(X @ twin.map.T), world.mean_rewards(X), atol=1e-12)
    np.testing.assert_allclose(twin.original(X @ twin.map.T), X, atol=1e-12)


def test_the_short_regression_agrees_and_the_cross_moments_do_not(world):
    """b_a = w_o + B w_h is the same number in both worlds, made of different parts."""
    twin = TwinWorld.random(world, 3, seed=8)
    constraints = []
    for w in (world, twin):
        moments = w.second_moments()[1]
        B = np.linalg.solve(moments[:, :3, :3], moments[:, :3, 3:])
        constraints.append((w.weights[:, :3] + np.einsum("klm,km->kl", B, w.weights[:, 3:]), w.cross_moments(3)))
    np.testing.assert_allclose(constraints[0][0], constraints[1][0], rtol=1e-8)
    assert np.abs(constraints[0][1] - constraints[1][1]).max() > 0.05
    X = twin.contexts(300_000, np.random.default_rng(2))
    P = twin.behavior_probabilities(X)
    direct = np.einsum("nk,ni,nj->kij", P, X[:, :3], X[:, 3:], optimize=True) / P.sum(axis=0)[:, None, None]
    np.testing.assert_allclose(twin.cross_moments(3), direct, atol=0.02)


def test_a_policy_of_recorded_features_meets_the_printed_proposition(rng):
    base = PaperWorld.preset("authors_code", seed=2, n_arms=4, n_features=5)
    seen = base.directions.copy()
    seen[:, 3:] = 0
    blind = PaperWorld(base.weights, seen, base.offsets, 0.5, contexts="gaussian", sharpness=3.0)
    X = blind.contexts(50, rng)
    assert TwinWorld.random(blind, 3, seed=1).keeps_policy(X)
    assert not TwinWorld.random(base, 3, seed=1).keeps_policy(X)


def test_wrong_shapes_and_singular_mixing_are_explained(world):
    with pytest.raises(InputError, match=r"C \(3, 3\)"):
        TwinWorld(world, 3, shift=np.zeros((2, 3)))
    for mixing in (np.ones((3, 3)), np.zeros((3, 3)), np.diag([1.0, 2.0, np.nan])):
        with pytest.raises(InputError, match="invertible"):
            TwinWorld(world, 3, mixing=mixing)
    # the limit is 1e8
    almost = np.triu(np.ones((3, 3))) @ np.diag([1.0, 1e-3, 1e-7])
    TwinWorld(world, 3, mixing=almost)
    with pytest.raises(InputError, match=r"condition number 1\.0e\+08"):
        TwinWorld(world, 3, mixing=np.triu(np.ones((3, 3))) @ np.diag([1.0, 1e-3, 1e-8]))


def test_no_singular_values_by_numpy():
    """NumPy's divide-and-conquer driver fails on some finite matrices: only ``hermitian=True``, which is ``eigh``."""
    sources = (Path(sidelight.__file__).parent).rglob("*.py")
    calls = [
        (path.name, call)
        for path in sources
        for call in re.findall(r"linalg\.(?:svd|cond|matrix_rank|lstsq|pinv)\(.*", path.read_text(encoding="utf-8"))
        if "hermitian=True" not in call
    ]
    assert calls == []


def test_nothing_hidden_no_twin_but_itself(world):
    twin = TwinWorld.random(world, 6, seed=1)
    np.testing.assert_array_equal(twin.weights, world.weights)
