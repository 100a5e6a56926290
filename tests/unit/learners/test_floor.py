"""The floor's bound is the formula's, it survives lies, late rewards and files, and it lets a good learner act."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sidelight.errors import InputError
from sidelight.learners.floor import Floor, FloorLedger

FLOOR = Floor(0.1, noise=0.4, weight_bound=1.5, regularization=0.7, delta=0.02)


def literal_total(floor: Floor, history, observed, K: int, d: int) -> float:
    """Σ_a (z_a·ŵ_a − √β_a‖z_a‖_{V_a⁻¹}) + c·t from the whole history, with dense solves."""
    total = floor.allowance * len(history)
    for a in range(K):
        z = sum((x * ((arm == a) - (1 - floor.share) * (old == a)) for x, arm, old in history), np.zeros(d))
        V = floor.regularization * np.eye(d)
        Y = np.zeros(d)
        for x, arm, r in observed:
            if arm == a:
                V += np.outer(x, x)
                Y += x * r
        log_det = np.linalg.slogdet(V / floor.regularization)[1]
        beta = floor.noise**2 * (log_det + 2 * math.log(K / floor.delta)) + floor.regularization * floor.weight_bound**2
        total += z @ np.linalg.solve(V, Y) - math.sqrt(beta) * math.sqrt(z @ np.linalg.solve(V, z))
    return float(total)


@pytest.mark.parametrize("floor", [FLOOR, Floor(0.0, allowance=0.2, noise=0.4, weight_bound=1.5, regularization=3.0)])
def test_the_total_is_the_formula_s_after_a_thousand_rounds(floor):
    """Rewards late and in another order, some missing; more rounds of an arm than between two refreshes."""
    rng = np.random.default_rng(2)
    K, d = 3, 4
    ledger = FloorLedger(floor, K, d)
    weights = rng.normal(size=(K, d)) / 2
    history, observed, waiting = [], [], []
    for _ in range(2_000):
        x, arm, old = rng.normal(size=d), int(rng.integers(K)), int(rng.integers(K))
        ledger.record(x, arm, old)
        history.append((x, arm, old))
        waiting.append((x, arm, float(weights[arm] @ x + 0.4 * rng.normal())))
        if rng.random() < 0.9:
            x, arm, r = waiting.pop(int(rng.integers(len(waiting))))
            ledger.observe(x, arm, r)
            observed.append((x, arm, r))
    assert ledger.total == pytest.approx(literal_total(floor, history, observed, K, d), rel=1e-9)


def test_permission_is_the_total_after_the_round():
    rng = np.random.default_rng(4)
    K, d = 3, 2
    ledger = FloorLedger(FLOOR, K, d)
    weights = np.array([[1.0, 0.2], [1.4, -0.1], [0.1, 0.1]])
    agreed = refused = 0
    for _ in range(1_500):
        x = np.array([1.0, rng.normal()])
        arm, old = int(rng.integers(K)), 0
        permitted = ledger.permits(x, arm, old)
        if arm != old:
            trial = FloorLedger(FLOOR, K, d)
            trial.restore({k: np.copy(v) for k, v in ledger.state().items()})
            trial.record(x, arm, old)
            assert permitted == (trial.total >= 0.0)
            agreed, refused = agreed + permitted, refused + (not permitted)
        played = arm if permitted else old
        ledger.record(x, played, old)
        ledger.observe(x, played, float(weights[played] @ x + 0.3 * rng.normal()))
    assert agreed > 50
    assert refused > 50


def run(kind: str, seed: int, rounds: int = 1_500) -> tuple[float, float, float]:
    """Least of (earned − promised) in expectation over rounds; what was earned; what the old policy would have."""
    rng = np.random.default_rng(seed)
    K, d = 4, 3
    weights = np.abs(rng.normal(size=(K, d))) * 0.5
    if kind == "negative":
        weights -= 0.6
    floor = (
        Floor(0.1, noise=0.3, weight_bound=2.5)
        if kind != "negative"
        else Floor(allowance=0.1, noise=0.3, weight_bound=2.5)
    )
    ledger = FloorLedger(floor, K, d)
    lying = rng.permutation(K)
    earned = promised = lowest = 0.0
    for t in range(rounds):
        x = np.concatenate([[1.0], rng.uniform(size=d - 1)])
        means = weights @ x
        old = int(rng.integers(K))
        # a learner that is right, or one that believes a log whose labels were swapped
        wanted = int(means.argmax()) if kind != "lying" else int(means[lying].argmin())
        played = wanted if ledger.permits(x, wanted, old) else old
        ledger.record(x, played, old)
        earned += means[played]
        promised += (1.0 - floor.share) * means[old] - floor.allowance
        lowest = min(lowest, earned - promised)
        if t % 3 == 0:  # rewards of a third of the rounds arrive
            ledger.observe(x, played, float(means[played] + 0.3 * rng.normal()))
    return lowest, earned, promised


@pytest.mark.parametrize("kind", ["honest", "lying", "negative"])
def test_the_floor_holds_at_all_times(kind):
    """20 runs at δ = 5 %: four or more failures have probability below 2 %; the bound is loose enough for none."""
    assert sum(run(kind, seed)[0] < -1e-9 for seed in range(20)) == 0


def test_a_good_learner_is_let_act():
    """With honest choices it earns more than the old policy, which draws its arms."""
    _, earned, promised = run("honest", 1, 4_000)
    assert earned > 1.1 * promised / 0.9


def test_nothing_is_permitted_before_anything_is_known():
    ledger = FloorLedger(FLOOR, 3, 2)
    x = np.array([1.0, 0.5])
    assert not ledger.permits(x, 1, 0)
    assert ledger.permits(x, 0, 0)


def test_a_new_arm_widens_every_arm_s_radius():
    rng = np.random.default_rng(0)
    ledger, larger = FloorLedger(FLOOR, 2, 2), FloorLedger(FLOOR, 3, 2)
    for _ in range(50):
        x, arm = rng.normal(size=2), int(rng.integers(2))
        for one in (ledger, larger):
            one.record(x, arm, 0)
            one.observe(x, arm, 1.0)
    ledger.add_arm()
    assert ledger.total == pytest.approx(larger.total)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "exactly one"),
        ({"share": 0.1, "allowance": 0.1}, "exactly one"),
        ({"share": 1.0}, "share=1.0"),
        ({"share": -0.1}, "share=-0.1"),
        ({"allowance": math.inf}, "allowance=inf"),
        ({"share": 0.1, "noise": 0.0}, "noise=0.0"),
        ({"share": 0.1, "delta": 1.0}, "delta=1.0"),
        ({"share": 0.1, "weight_bound": math.nan}, "weight_bound=nan"),
    ],
)
def test_bad_floors(values, words):
    with pytest.raises(InputError, match=words.replace(".", r"\.")):
        Floor(**values)
