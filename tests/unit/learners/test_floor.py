"""The floor's bound is the formula's, it survives lies, late rewards and files, and it lets a good learner act."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import sidelight as sl
from sidelight.errors import InputError
from sidelight.learners.floor import Floor, FloorLedger
from sidelight.linalg import apply, log1p, product

FLOOR = Floor(0.1, noise=0.4, weight_bound=1.5, regularization=0.7, delta=0.02, prompt=True)


def literal_total(floor: Floor, history, observed, K: int, d: int) -> float:
    """``Σ z·ŵ − ρ√(Σ‖z‖²_{V⁻¹}) + c·t`` from the whole history, with dense solves and the mixtures' own integrals.

    history: (x, played, old)   observed: (x, arm, reward, (expected mean, its variance))
    """
    ridge = floor.regularization or d * floor.noise**2 / floor.weight_bound**2
    noise = floor.noise**2
    mean = norm = residual = prior = zero = guess = 0.0
    for a in range(K):
        z = sum((x * ((arm == a) - (1 - floor.share) * (old == a)) for x, arm, old in history), np.zeros(d))
        X = np.array([x for x, arm, _, _ in observed if arm == a]).reshape(-1, d)
        r = np.array([reward for _, arm, reward, _ in observed if arm == a])
        V = ridge * np.eye(d) + X.T @ X
        w = np.linalg.solve(V, X.T @ r)
        mean += z @ w
        norm += z @ np.linalg.solve(V, z)
        # the least of Σ(r − x·w)² + λ‖w‖²
        residual += np.sum((r - X @ w) ** 2) + ridge * w @ w
        prior += ridge * floor.weight_bound**2 if len(r) or z.any() else 0.0
        # rewards of one arm are normal with this covariance where weights are drawn from N(0, σ²/λ)
        C = noise * (np.eye(len(r)) + X @ X.T / ridge)
        zero += np.linalg.slogdet(C / noise)[1] + r @ np.linalg.solve(C, r)
    for x, _, reward, (m, v) in observed:
        most = floor.weight_bound * np.linalg.norm(x)
        m, v = np.clip(m, 0.0 if floor.share else -most, most), min(v, most**2)
        guess += math.log(1 + v / noise) + (reward - m) ** 2 / (noise + v)
    mixed = np.logaddexp(-zero / 2, -guess / 2) - math.log(2) if floor.prompt else -zero / 2
    rho = max(-2 * noise * mixed + 2 * noise * math.log(1 / floor.delta) - residual + prior, 0.0)
    rho = max(rho, 2 * noise * math.log(1 / floor.delta))
    return float(mean - math.sqrt(rho * norm) + floor.allowance * len(history))


def guess_of(rng, mean: float) -> tuple[float, float]:
    """What some learner might expect of a reward: right within 0.2, and sure of that."""
    return mean + 0.2 * float(rng.normal()), 0.04


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("floor", [FLOOR, Floor(0.0, allowance=0.2, noise=0.4, weight_bound=1.5, regularization=3.0)])
@pytest.mark.parametrize("good", [True, False])
def test_the_total_is_the_formula_s_after_two_thousand_rounds(floor, good, prompt):
    """Good guesses of rewards and bad ones.

    Rewards late and in another order, some missing; more rounds of an arm than between two refreshes."""
    rng, floor = np.random.default_rng(2), replace(floor, prompt=prompt)
    K, d = 3, 4
    ledger = FloorLedger(floor, K, d)
    weights = rng.normal(size=(K, d)) / 2
    history, observed, waiting = [], [], []
    for _ in range(2_000):
        x, arm, old = rng.normal(size=d), int(rng.integers(K)), int(rng.integers(K))
        ledger.record(x, arm, old)
        history.append((x, arm, old))
        mean = float(weights[arm] @ x)
        waiting.append((x, arm, mean + 0.4 * rng.normal(), guess_of(rng, mean if good else -mean)))
        if rng.random() < 0.9:
            observed.append(waiting.pop(int(rng.integers(len(waiting)))))
            ledger.observe(*observed[-1])
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
        ledger.observe(x, played, float(weights[played] @ x + 0.3 * rng.normal()), (float(weights[played] @ x), 0.01))
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
        Floor(0.1, noise=0.3, weight_bound=2.5, prompt=True)
        if kind != "negative"
        else Floor(allowance=0.1, noise=0.3, weight_bound=2.5, prompt=True)
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
            guess = means[played] if kind != "lying" else means[lying[played]]
            ledger.observe(x, played, float(means[played] + 0.3 * rng.normal()), (float(guess), 0.0))
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


def test_a_new_arm_is_as_if_it_had_been_there_always():
    rng = np.random.default_rng(0)
    ledger, larger = FloorLedger(FLOOR, 2, 2), FloorLedger(FLOOR, 3, 2)
    for _ in range(50):
        x, arm = rng.normal(size=2), int(rng.integers(2))
        for one in (ledger, larger):
            one.record(x, arm, 0)
            one.observe(x, arm, 1.0, (0.5, 0.1))
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


# ------------------------------------------------------------------------------------ in the learner


def setting(seed: int = 0, rows: int = 5_000):
    world = sl.worlds.ConfoundedWorld(seed=seed)
    log = world.sample_log(rows, 6, np.random.default_rng(1))
    return world, sl.summarize_log(log, world.schema(6))


def play(learner, world, rounds: int, seed: int = 5) -> list:
    rng = np.random.default_rng(seed)
    out = []
    for x in world.contexts(rounds, rng):
        old = world.behavior_actions(x[None], rng)[0]
        learner.observe_behavior(x, old)
        decision = learner.decide(x, rng=rng, default=old)
        learner.record_decision(x, decision.arm, old)
        learner.observe(x, decision.arm, float(world.rewards(x[None], decision.arm, rng)[0]))
        out.append((decision, old))
    return out


def test_the_learner_takes_the_old_policy_s_arm_until_it_may_do_otherwise():
    world, summary = setting()
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary), floor=Floor(allowance=0.3, noise=0.3, weight_bound=2.0))
    decisions = play(learner, world, 1_500)
    assert all(decision.arm == old for decision, old in decisions[:5])
    own = [decision.arm != old for decision, old in decisions]
    assert sum(own[-300:]) > 0
    assert learner.ledger.total >= 0.0 or sum(own) == 0


def test_the_learner_s_decisions_stay_above_the_literal_bound():
    """Recomputed with dense solves after 300 rounds."""
    world, summary = setting()
    floor = Floor(allowance=0.3, noise=0.3, weight_bound=2.0)
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary), floor=floor)
    rng, history, observed = np.random.default_rng(5), [], []
    for x in world.contexts(300, rng):
        old = world.behavior_actions(x[None], rng)[0]
        learner.observe_behavior(x, old)
        arm = learner.decide(x, rng=rng, default=old).arm
        learner.record_decision(x, arm, old)
        reward = float(world.rewards(x[None], arm, rng)[0])
        estimates, deviations = learner.scores(x)
        learner.observe(x, arm, reward)
        history.append((x, arm, old))
        observed.append((x, arm, reward, (float(estimates[arm]), float(deviations[arm]) ** 2)))
    literal = literal_total(floor, history, observed, world.n_arms, world.n_features)
    assert learner.ledger.total == pytest.approx(literal, rel=1e-9)


def test_a_floored_learner_is_saved_whole(tmp_path):
    world, summary = setting()
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary), floor=Floor(allowance=0.3, noise=0.3, weight_bound=2.0))
    play(learner, world, 200)
    learner.save(tmp_path / "floored.learner")
    again = sl.load_learner(tmp_path / "floored.learner")
    assert again.floor == learner.floor
    assert play(again, world, 200, 6) == play(learner, world, 200, 6)


def test_simulate_tells_a_floored_learner_what_the_old_policy_does():
    world = sl.worlds.ConfoundedWorld(seed=0)

    def floored(run):
        return sl.FusedOFUL(sl.BehaviorQueries(run.summary), floor=Floor(allowance=1e-9, noise=0.3, weight_bound=2.0))

    def old(run):
        return sl.FusedOFUL(sl.BehaviorQueries(run.summary))

    table = sl.simulate(world, {"floored": floored, "free": old}, 60, 6, 2_000, seeds=1, workers=1, every=1)
    # with an allowance of nothing no other arm than the old policy's is ever permitted so early
    rng = np.random.default_rng(np.random.SeedSequence(0).spawn(3)[1].spawn(4)[0])
    X = world.contexts(60, rng)
    answers = world.behavior_actions(X, np.random.default_rng(np.random.SeedSequence(0).spawn(3)[1].spawn(4)[2]))
    names = np.array(table["learner"].to_pylist())
    arms = np.array(table["arm"].to_pylist())
    assert arms[names == "floored"].tolist() == list(answers)
    assert arms[names == "free"].tolist() != list(answers)


def test_what_a_floored_learner_refuses():
    world, summary = setting()
    x = world.contexts(1, np.random.default_rng(0))[0]
    with pytest.raises(InputError, match="known beforehand"):
        sl.FusedOFUL(sl.BehaviorQueries(summary), floor=0.05)
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary), floor=0.05, noise=0.3, weight_bound=2.0)
    assert learner.floor == Floor(0.05, noise=0.3, weight_bound=2.0)
    with pytest.raises(InputError, match="needs the old policy's arm"):
        learner.decide(x)
    with pytest.raises(InputError, match="not among the allowed"):
        learner.decide(x, allowed=[1, 2], default=0)
    with pytest.raises(InputError, match="one by one"):
        learner.decide_many([x])
    with pytest.raises(InputError, match="keeps no floor"):
        sl.FusedThompson(sl.BehaviorQueries(summary), floor=Floor(0.1)).decide(x, default=0)


def test_the_compiled_sums_are_those_of_plain_products_to_the_bit():
    rng = np.random.default_rng(6)
    K, d = 3, 7
    floor = Floor(0.2, noise=0.3, weight_bound=2.5, regularization=0.4, delta=0.1)
    ledger = FloorLedger(floor, K, d)
    grams, moments = np.zeros((K, d, d)), np.zeros((K, d))
    inverses, log_dets = np.tile(np.eye(d) / 0.4, (K, 1, 1)), np.zeros(K)
    for _ in range(300):
        x, arm, old, reward = rng.normal(size=d), int(rng.integers(K)), int(rng.integers(K)), float(rng.normal())
        ledger.record(x, arm, old)
        ledger.observe(x, arm, reward, (0.3, 0.2))
        grams[arm] += product(x[:, None], x[None, :])
        moments[arm] += reward * x
        u = apply(inverses[arm], x)
        growth = float(product(x, u))
        inverses[arm] -= product(u[:, None], u[None, :]) / (1.0 + growth)
        log_dets[arm] += float(log1p(growth))
    found = ledger.state()
    for name, expected in (("grams", grams), ("moments", moments), ("inverses", inverses), ("log_dets", log_dets)):
        np.testing.assert_array_equal(found[f"floor_{name}"], expected)
    projected = np.empty((2, K))
    for a, z in enumerate(ledger.differences):
        u = apply(inverses[a], z)
        projected[:, a] = float(product(u, moments[a])), float(product(z, u))
    np.testing.assert_array_equal(ledger._projected, projected)
    # a ledger from its sums alone has the same total to the bit
    again = FloorLedger(floor, K, d)
    again.restore(found)
    assert again.total == ledger.total


def test_a_good_guess_gives_room_and_a_bad_one_takes_little():
    """Guesses far off cost at most ``2σ² log 2`` of ``ρ²``, however many there are."""
    rng = np.random.default_rng(3)
    K, d = 3, 4
    floor = Floor(0.1, noise=0.3, weight_bound=1.5, prompt=True)
    kinds = {"right": 1.0, "none": None, "wrong": -3.0}
    ledgers = {kind: FloorLedger(floor, K, d) for kind in kinds}
    weights = np.abs(rng.normal(size=(K, d))) / 3
    for _ in range(300):
        x, arm = np.concatenate([[1.0], rng.uniform(size=d - 1)]), int(rng.integers(K))
        mean = float(weights[arm] @ x)
        reward = mean + 0.3 * float(rng.normal())
        for kind, factor in kinds.items():
            ledgers[kind].record(x, arm, arm)
            # a guess as vague as the bounds let it be is next to none
            ledgers[kind].observe(x, arm, reward, (0.0, 1e9) if factor is None else (factor * mean, 0.0))
    totals = {kind: ledger.total for kind, ledger in ledgers.items()}
    assert totals["right"] > totals["none"]
    assert totals["wrong"] == pytest.approx(totals["none"], rel=0.01)
    lowest = FloorLedger(floor, K, d)
    lowest.restore({k: v for k, v in ledgers["none"].state().items() if k not in ("floor_guessed", "floor_squares")})
    # T_g = T₀, as in a file of an earlier version: half of each is the whole of one
    assert lowest.total > totals["wrong"]
    mean, norm = (math.fsum(row) for row in lowest._projected)
    widened = ((lowest.total - mean) ** 2 / norm) + 2 * 0.09 * math.log(2)
    assert totals["wrong"] == pytest.approx(mean - math.sqrt(widened * norm), rel=1e-9)


def test_guesses_that_are_no_numbers_count_as_none():
    ledger, other = FloorLedger(FLOOR, 2, 2), FloorLedger(FLOOR, 2, 2)
    x = np.array([1.0, 0.5])
    for one, guess in ((ledger, (math.nan, math.inf)), (other, (0.0, 1e300))):
        one.record(x, 0, 1)
        one.observe(x, 0, 0.7, guess)
    assert math.isfinite(ledger.total)
    assert ledger.total == other.total


def test_units_do_not_matter():
    """Rewards in cents and features in millimetres: the same decisions, the total in the reward's unit."""
    rng = np.random.default_rng(8)
    K, d = 2, 3
    plain = FloorLedger(Floor(0.1, noise=0.3, weight_bound=1.2, prompt=True), K, d)
    scaled = FloorLedger(Floor(0.1, noise=30.0, weight_bound=0.12, prompt=True), K, d)
    for _ in range(200):
        x, arm, old = np.abs(rng.normal(size=d)), int(rng.integers(K)), int(rng.integers(K))
        reward, guess = float(rng.normal()), (float(rng.normal()), 0.1)
        assert plain.permits(x, arm, old) == scaled.permits(1_000.0 * x, arm, old)
        plain.record(x, arm, old)
        plain.observe(x, arm, reward, guess)
        scaled.record(1_000.0 * x, arm, old)
        scaled.observe(1_000.0 * x, arm, 100.0 * reward, (100.0 * guess[0], 1e4 * guess[1]))
    assert scaled.total == pytest.approx(100.0 * plain.total, rel=1e-9)


def test_the_order_in_which_rewards_come_does_not_matter_unless_they_are_prompt():
    """Clicks come sooner than their absence, and a learner that follows them expects clicks."""
    rng = np.random.default_rng(5)
    rounds = [(np.array([1.0, rng.uniform()]), float(rng.random() < 0.4)) for _ in range(200)]
    totals = {}
    for prompt in (False, True):
        for order in ("as decided", "clicks first"):
            ledger = FloorLedger(Floor(0.1, noise=0.5, weight_bound=1.5, prompt=prompt), 2, 2)
            for x, _ in rounds:
                ledger.record(x, 1, 0)
            came = rounds if order == "as decided" else sorted(rounds, key=lambda pair: -pair[1])
            expected = 0.5
            for x, reward in came:
                ledger.observe(x, 1, reward, (expected, 0.01))
                expected = 0.9 * expected + 0.1 * reward
            totals[prompt, order] = ledger.total
    assert totals[False, "as decided"] == pytest.approx(totals[False, "clicks first"], rel=1e-9)
    assert totals[True, "as decided"] < totals[True, "clicks first"] - 1.0


def test_a_corrected_reward_was_not_foretold_by_the_wrong_one():
    ledger, plain = (FloorLedger(FLOOR, 2, 2) for _ in range(2))
    x = np.array([1.0, 0.5])
    ledger.observe(x, 0, 0.2, (0.2, 0.0))
    ledger.correct(x, 0, 0.2, 0.7)
    plain.observe(x, 0, 0.7, (0.0, 1e300))
    assert ledger.guessed == pytest.approx(plain.guessed)


def test_files_of_before_have_a_second_number_of_rounds_which_is_passed_over():
    ledger = FloorLedger(FLOOR, 2, 3)
    for _ in range(5):
        ledger.record(np.ones(3), 1, 0)
    again = FloorLedger(FLOOR, 2, 3)
    again.restore({**ledger.state(), "floor_rounds": np.array([5, 0])})
    assert again.rounds == 5
    assert again.total == ledger.total
