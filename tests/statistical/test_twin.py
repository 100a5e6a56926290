"""Two samples of logs, one from a world and one from its twin, cannot be told apart; a false twin can."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sidelight.worlds.confounded import ConfoundedWorld
from sidelight.worlds.linear import LinearWorld
from sidelight.worlds.twin import TwinWorld

RECORDED = 3
ROWS = 20_000
LEVEL = 1e-5
"""The smallest Bonferroni-corrected p-value at which the test would fail by chance: 10⁻⁵ per seed."""


@pytest.fixture
def world() -> ConfoundedWorld:
    return ConfoundedWorld(seed=3, n_arms=5, n_features=6, n_hidden=3, confounding=3.0)


class FalseTwin(TwinWorld):
    """The twin's contexts and policy with the other world's weights: what a careless construction would give."""

    def __init__(self, world: LinearWorld, recorded: int, seed: int) -> None:
        true = TwinWorld.random(world, recorded, seed=seed)
        super().__init__(world, recorded, shift=true.map[recorded:, :recorded], mixing=true.map[recorded:, recorded:])
        self.weights = world.weights


def drawn(world, seed):
    table = world.sample_log(ROWS, RECORDED, np.random.default_rng(seed))
    features = np.column_stack([table[name].to_numpy() for name in table.column_names[:-2]])
    return features, table["arm"].to_numpy(), table["reward"].to_numpy()


def smallest_p_value(first, second, directions):
    """Bonferroni over arm counts (chi-squared) and, within each arm, KS of projections of (x_o, r)."""
    counts = np.stack([np.bincount(arms, minlength=5) for _, arms, _ in (first, second)])
    p_values = [stats.chi2_contingency(counts).pvalue]
    for arm in range(5):
        rows = []
        for features, arms, rewards in (first, second):
            chosen = np.column_stack([features, rewards])[arms == arm]
            rows.append(chosen @ directions)
        p_values += [stats.ks_2samp(a, b).pvalue for a, b in zip(rows[0].T, rows[1].T, strict=True)]
    return min(p_values) * len(p_values)


def test_two_samples_cannot_tell_the_twins_apart_but_the_weights_differ(world, seed):
    """Fails with probability at most 10⁻⁵ (a union over 31 p-values of true null hypotheses)."""
    twin = TwinWorld.random(world, RECORDED, seed=11)
    reward_alone = np.eye(RECORDED + 1)[:, -1:]
    directions = np.random.default_rng(seed).standard_normal((RECORDED + 1, 5))
    directions = np.hstack([reward_alone, directions])
    ours = drawn(world, (seed, 1))
    assert smallest_p_value(ours, drawn(twin, (seed, 2)), directions) > LEVEL
    assert (np.linalg.norm(twin.weights - world.weights, axis=1) > 0.1).all()
    # the same comparison has the power to reject a world whose log does differ
    assert smallest_p_value(ours, drawn(FalseTwin(world, RECORDED, 11), (seed, 2)), directions) < LEVEL


def energy_p_value(first, second, permutations, rng):
    """Permutation test of the energy distance between two samples ``(n, p)``; exact level ``1/(permutations + 1)``."""
    pooled = np.vstack([first, second])
    pooled = (pooled - pooled.mean(axis=0)) / pooled.std(axis=0)
    distances = np.sqrt(np.maximum(((pooled[:, None] - pooled[None]) ** 2).sum(axis=2), 0.0))
    n = len(first)
    signs = np.concatenate([np.full(n, 1.0 / n), np.full(len(second), -1.0 / len(second))])
    shuffled = rng.permuted(np.tile(signs, (permutations, 1)), axis=1)
    energy = -np.einsum("pn,pn->p", shuffled @ distances, shuffled)
    return (1 + (energy >= -signs @ distances @ signs - 1e-12).sum()) / (permutations + 1)


def test_energy_distance_of_the_rows_of_one_arm(world, seed):
    """Fails with probability 1/2000 per seed: the observed distance would be the largest of 2000 exchangeable ones."""
    rng = np.random.default_rng(seed)
    twin, false = TwinWorld.random(world, RECORDED, seed=11), FalseTwin(world, RECORDED, 11)

    arm = int(np.argmax(np.linalg.norm(twin.weights - world.weights, axis=1)))

    def rows(w, stream):
        features, arms, rewards = drawn(w, (seed, stream))
        return np.column_stack([features[:, 1:], rewards])[arms == arm][:800]  # without the constant

    ours = rows(world, 3)
    assert energy_p_value(ours, rows(twin, 4), 1999, rng) > 1 / 2000
    assert energy_p_value(ours, rows(false, 4), 1999, rng) == 1 / 2000
