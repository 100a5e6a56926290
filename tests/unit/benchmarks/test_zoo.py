"""The zoo's worlds are what their descriptions say, its runs resume, and its ratios are paired."""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest
from benchmarks import zoo
from benchmarks.cells import CELLS, QUICK
from benchmarks.paired import Setting, play, ratio
from benchmarks.synthetic import Cell, SyntheticWorld


def test_there_are_many_cells_and_no_two_are_the_same():
    assert len(CELLS) >= 40
    assert len({cell.digest for cell in CELLS.values()}) == len(CELLS)
    assert set(QUICK) <= set(CELLS)


@pytest.mark.parametrize("name", CELLS)
def test_features_are_standardised_below_their_units(name):
    """Mean 0 and variance 1 of every feature; 40,000 draws, and heavy tails, allow five and more deviations."""
    world = SyntheticWorld(CELLS[name], seed=3)
    X = world.contexts(40_000, np.random.default_rng(0))
    assert X.shape[1] == world.n_features
    z = world.standardised(X)
    assert abs(z.mean(axis=0)).max() < 0.03
    assert abs(z.var(axis=0) - 1).max() < 0.25


@pytest.mark.parametrize("name", [name for name, cell in CELLS.items() if cell.linear and cell.arms <= 8])
def test_linear_cells_have_weights_and_the_noise_they_say(name):
    """``E[r | x, a] = x·w_a`` to rounding, and the residuals' deviation is σ_a to 10 % (t with 3 degrees: 30 %)."""
    cell = CELLS[name]
    world = SyntheticWorld(cell, seed=5)
    X = world.contexts(20_000, np.random.default_rng(1))
    means = world.mean_rewards(X)
    np.testing.assert_allclose(means, X @ world.weights.T)
    noise = (world.potential_rewards(X, np.random.default_rng(2)) - means).std(axis=0)
    np.testing.assert_allclose(noise, world.noises, rtol=0.3 if cell.tails == "student" else 0.1)


def test_the_strengths_are_deviations_over_contexts():
    """Averaged over 400 arms: the hidden part of the mean rewards has a variance of 9, the recorded part one of 1/4."""
    world = SyntheticWorld(Cell("", arms=400, strengths=(0.5, 3.0), levels=0.0), seed=1)
    slopes = world.weights[:, 1:]
    assert (slopes[:, :6] ** 2).sum(axis=1).mean() == pytest.approx(0.25, rel=0.15)
    assert (slopes[:, 6:] ** 2).sum(axis=1).mean() == pytest.approx(9.0, rel=0.15)


def test_the_cross_moments_are_those_of_the_old_policy():
    """Against 400,000 contexts and drawn arms: entries of about 1, errors of about 0.01."""
    world = SyntheticWorld(Cell("", arms=3), seed=2)
    schema = world.schema(world.columns()[0])
    rng = np.random.default_rng(7)
    X = world.contexts(400_000, rng)
    arms = world.behavior_actions(X, rng)
    for a in range(3):
        mine = X[arms == a]
        seen = mine[:, schema.recorded_index].T @ mine[:, schema.hidden_index] / len(mine)
        np.testing.assert_allclose(world.cross_moments(schema)[a], seen, atol=0.03)


def test_absent_arms_are_never_taken_and_eras_record_more_and_more():
    world = SyntheticWorld(CELLS["policy: two arms absent"], seed=0)
    (summary,) = world.logs(np.random.default_rng(0))
    assert list(np.flatnonzero(np.asarray(summary.counts) == 0)) == [0, 1]
    columns = SyntheticWorld(CELLS["logs: three eras"], seed=0).columns()
    assert all(set(a) < set(b) for a, b in itertools.pairwise(columns))


class Echo:
    """Plays arm 0 and notes how many rewards it had seen at each decision."""

    needs = None

    def __init__(self) -> None:
        self.seen, self.at = 0, []

    def decide(self, x, rng=None):
        self.at.append(self.seen)
        return type("Decision", (), {"arm": 0})

    def observe(self, x, arm, reward):
        self.seen += 1


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"delay": 3}, [0, 0, 0, 0, 1, 2, 3, 4]), ({"batch": 4}, [0, 0, 0, 0, 4, 4, 4, 4])],
)
def test_rewards_arrive_after_their_delay_or_batch(changes, expected):
    learner = Echo()
    play(learner, Setting(Cell("", **changes), seed=0, rounds=8))
    assert learner.at == expected


def test_a_run_resumes_and_other_learners_are_taken_from_earlier_states(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "RESULTS", tmp_path)
    calls = []

    def counted(setting):
        calls.append(setting.seed)
        return Echo()

    monkeypatch.setitem(zoo.LEARNERS, "cold", counted)
    cell = Cell("resume", arms=2, rows=50)
    first = zoo.run_seed(cell, 0, 20, ["cold"], "one")
    assert zoo.run_seed(cell, 0, 20, ["cold"], "one") == first
    assert zoo.run_seed(cell, 0, 20, ["cold"], "two", reuse=True)["cold"] == first["cold"]
    assert calls == [0]
    zoo.run_seed(cell, 0, 20, ["cold"], "three")
    assert calls == [0, 0]


def test_a_ratio_is_paired(seed):
    """Seeds differ by a factor of a hundred, the ratio in each of them is 2: the interval is narrow all the same."""
    theirs = np.random.default_rng(seed).lognormal(sigma=2.0, size=30)
    found = ratio(2.0 * theirs, theirs)
    assert found.value == pytest.approx(2.0)
    assert found.half < 1e-9


@pytest.mark.parametrize(
    "name",
    [
        "batches",
        "claims",
        "evidence",
        "gate",
        "log",
        "online",
        "regret",
        "released",
        "scale",
        "service",
        "worth",
        "zoo",
    ],
)
def test_every_benchmark_can_be_imported(name):
    """Names that they take from ``src`` change; none is run here."""
    assert importlib.import_module(f"benchmarks.{name}").__doc__
