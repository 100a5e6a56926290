"""The floor's bound is the formula's, it survives lies, late rewards and files, and it lets a good learner act."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from scipy.optimize import minimize
from tests.threads import seen_during

import sidelight as sl
from sidelight.errors import InputError
from sidelight.kernels import floor as kernels
from sidelight.learners.floor import Floor
from sidelight.learners.ledger import FloorLedger
from sidelight.linalg import apply, log1p, product

FLOOR = Floor(0.1, noise=0.4, weight_bound=1.5, regularization=0.7, delta=0.02)


def loose_total(ledger: FloorLedger) -> float:
    """The bound that adds up all conditions on the weights; ``total`` is the better of it and the exact one."""
    found = ledger._lower(ledger._projected, ledger._met()) + ledger.floor.allowance * ledger.rounds
    assert ledger.total >= found
    return found


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
    mixed = np.logaddexp(-zero / 2, -guess / 2) - math.log(2)
    rho = max(-2 * noise * mixed + 2 * noise * math.log(1 / floor.delta) - residual + prior, 0.0)
    rho = max(rho, 2 * noise * math.log(1 / floor.delta))
    return float(mean - math.sqrt(rho * norm) + floor.allowance * len(history))


def guess_of(rng, mean: float) -> tuple[float, float]:
    """What some learner might expect of a reward: right within 0.2, and sure of that."""
    return mean + 0.2 * float(rng.normal()), 0.04


def play_round(ledger: FloorLedger, x, arm: int, old: int, reward: float, guess: tuple[float, float]) -> None:
    """One round whose reward comes at once."""
    ledger.record(x, arm, old)
    ledger.expect(x, arm, guess)
    ledger.observe(x, arm, reward)


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("floor", [FLOOR, Floor(0.0, allowance=0.2, noise=0.4, weight_bound=1.5, regularization=3.0)])
@pytest.mark.parametrize("good", [True, False])
def test_the_total_is_the_formula_s_after_two_thousand_rounds(floor, good, keyed):
    """Good guesses of rewards and bad ones.

    Rewards late and in another order: those count before which none is missing. Some rounds took another arm than was
    decided, and nothing was expected of that one. More rounds of an arm than between two refreshes."""
    rng = np.random.default_rng(2)
    K, d = 3, 4
    ledger = FloorLedger(floor, K, d)
    weights = rng.normal(size=(K, d)) / 2
    history, rounds, waiting, came = [], [], [], set()
    for t in range(2_000):
        x, arm, old = rng.normal(size=d), int(rng.integers(K)), int(rng.integers(K))
        mean = float(weights[arm] @ x)
        guess = guess_of(rng, mean if good else -mean)
        ledger.record(x, arm, old)
        ledger.expect(x, arm, guess, (t, 0) if keyed else None)
        history.append((x, arm, old))
        taken = arm if t % 10 else old
        rounds.append((x, taken, mean + 0.4 * rng.normal(), guess if taken == arm else (0.0, math.inf)))
        waiting.append(t)
        if rng.random() < 0.99:
            s = waiting.pop(int(rng.integers(min(len(waiting), 30))))
            came.add(s)
            if keyed:
                ledger.settle((s, 0), *rounds[s][1:3])
            else:
                ledger.observe(*rounds[s][:3])
    first = next(t for t in range(2_000) if t not in came)
    assert 1_500 < first < max(came)
    assert ledger.counts.sum() == first
    assert ledger.awaiting.open == 2_000 - len(came)
    assert loose_total(ledger) == pytest.approx(literal_total(floor, history, rounds[:first], K, d), rel=1e-9)
    again = FloorLedger(floor, K, d)
    again.restore({name: np.copy(value) for name, value in ledger.state().items()})
    for s in sorted(waiting):
        for one in (ledger, again):
            if keyed:
                one.settle((s, 0), *rounds[s][1:3])
            else:
                one.observe(*rounds[s][:3])
    assert not len(again.awaiting)
    assert again.total == ledger.total
    assert loose_total(ledger) == pytest.approx(literal_total(floor, history, rounds, K, d), rel=1e-9)


def literal_least(ledger: FloorLedger, Z, starts: int = 4) -> float:
    """The least ``Σ z·w`` with ``‖w_a‖ ≤ S`` and ``Σ (r − x·w)² ≤ Θ``, by a general solver."""
    K, d = Z.shape
    bound = ledger.floor.weight_bound
    margin = 2 * ledger.floor.noise**2 * math.log(1 / ledger.floor.delta)
    slack = math.fsum(ledger._fits) - max(ledger._excess, margin)  # Σr² − Θ

    def left(w):
        W = w.reshape(K, d)
        return -slack - sum(v @ G @ v - 2 * g @ v for v, G, g in zip(W, ledger.grams, ledger.moments, strict=True))

    def inside(w):
        return bound**2 - np.sum(w.reshape(K, d) ** 2, axis=1)

    fits = np.array([np.linalg.lstsq(G, g, rcond=None)[0] for G, g in zip(ledger.grams, ledger.moments, strict=True)])
    begins = [fits.ravel(), *(bound / 2 * np.random.default_rng(i).normal(size=K * d) for i in range(starts))]
    found = []
    for begin in begins:
        solved = minimize(
            lambda w: float(Z.ravel() @ w),
            begin,
            jac=lambda w: Z.ravel(),
            method="SLSQP",
            constraints=[{"type": "ineq", "fun": left}, {"type": "ineq", "fun": inside}],
            options={"maxiter": 500, "ftol": 1e-12},
        )
        if solved.success and left(solved.x) > -1e-7 and inside(solved.x).min() > -1e-7:
            found.append(solved.fun)
    return min(found)


@pytest.mark.parametrize("floor", [FLOOR, Floor(allowance=0.2, noise=0.4, weight_bound=0.8, delta=0.1)])
@pytest.mark.parametrize("rounds", [1, 3, 8, 40])
def test_the_exact_bound_is_the_least_that_is_possible(floor, rounds):
    """At the start, when the looser bound takes an arm of which little is known for longer than it can be."""
    K, d = 3, 2
    for seed in range(6):
        rng = np.random.default_rng([rounds, seed])
        ledger = FloorLedger(floor, K, d)
        weights = rng.uniform(0.0, 0.5, (K, d))
        for _ in range(rounds):
            x, arm, old = np.array([1.0, rng.uniform()]), int(rng.integers(2)), int(rng.integers(K))
            play_round(ledger, x, arm, old, float(weights[arm] @ x + 0.4 * rng.normal()), (0.4, 0.05))
        Z = ledger.differences
        loose = ledger._lower(ledger._projected, ledger._met())
        tight = ledger._least(Z, ledger._projected, loose, math.inf)
        fits = [
            np.linalg.solve(G + ledger.ridge * np.eye(d), g) for G, g in zip(ledger.grams, ledger.moments, strict=True)
        ]
        if max(map(np.linalg.norm, fits)) > floor.weight_bound:
            assert tight == loose
            continue
        least = literal_least(ledger, Z)
        assert tight <= least + 1e-5
        assert tight == pytest.approx(least, rel=2e-3, abs=2e-3)
        assert ledger.total == max(tight, loose) + floor.allowance * rounds


def test_every_pair_of_multipliers_is_a_bound():
    """Weak duality: weights that meet the conditions are never worse than the formula says, whatever μ and λ are."""
    rng = np.random.default_rng(1)
    K, d, S = 2, 3, 1.5
    for _ in range(50):
        X, r = rng.normal(size=(K, 5, d)), rng.normal(size=(K, 5))
        W = rng.normal(size=(K, d))
        W *= S * rng.uniform(size=(K, 1)) / np.linalg.norm(W, axis=1, keepdims=True)
        theta = float(np.sum((r - np.einsum("kni,ki->kn", X, W)) ** 2)) + rng.exponential()
        Z, mu, ball = rng.normal(size=(K, d)), rng.exponential(), rng.exponential(size=K)
        value = mu * (np.sum(r**2) - theta)
        for a in range(K):
            q = Z[a] - 2 * mu * X[a].T @ r[a]
            value -= q @ np.linalg.solve(mu * X[a].T @ X[a] + ball[a] * np.eye(d), q) / 4 + ball[a] * S**2
        assert np.sum(Z * W) >= value
        spectra, vectors = np.linalg.eigh(np.einsum("kni,knj->kij", X, X))
        rotated, moments = (np.einsum("kij,ki->kj", vectors, v) for v in (Z, np.einsum("kni,kn->ki", X, r)))
        best = kernels.least(spectra, rotated, moments, np.sum(r**2) - theta, S, mu, math.inf)
        assert value <= best + 1e-3 * abs(best)
        assert best <= np.sum(Z * W)


def test_rounds_that_contradict_the_bound_on_weights_permit_nothing_more():
    """Rewards that no weights within S explain: the set of possible weights is empty, and its least is anything."""
    ledger = FloorLedger(Floor(0.1, noise=0.1, weight_bound=0.2), 2, 2)
    for i in range(40):
        play_round(ledger, np.array([1.0, 0.1 * (i % 7)]), i % 2, 0, 5.0, (0.2, 0.0))
    assert ledger.total == loose_total(ledger)
    spectra, vectors = np.linalg.eigh(ledger.grams)
    rotated, moments = (np.einsum("kij,ki->kj", vectors, v) for v in (ledger.differences, ledger.moments))
    slack = math.fsum(ledger._fits) - ledger._excess
    assert kernels.least(spectra, rotated, moments, slack, 0.2, 1.0, math.inf) > ledger.total + 1_000.0


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
        reward = float(weights[played] @ x + 0.3 * rng.normal())
        play_round(ledger, x, played, old, reward, (float(weights[played] @ x), 0.01))
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
    late: list = []
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
        guess = means[played] if kind != "lying" else means[lying[played]]
        ledger.expect(x, played, (float(guess), 0.0))
        noise = 0.3 * rng.normal()
        # a good reward comes at once, a bad one 20 rounds later
        late.append((t + 20 * (noise < 0.0), x, played, float(means[played] + noise)))
        for _, *reward in [entry for entry in late if entry[0] <= t]:
            ledger.observe(*reward)
        late = [entry for entry in late if entry[0] > t]
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
            play_round(one, x, arm, 0, 1.0, (0.5, 0.1))
    assert ledger.with_arm().total == pytest.approx(larger.total)
    assert ledger.n_arms == 2


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
    """Recomputed with dense solves after 301 rounds."""
    world, summary = setting()
    floor = Floor(allowance=0.3, noise=0.3, weight_bound=2.0)
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary), floor=floor)
    rng, history, observed, waiting = np.random.default_rng(5), [], [], []
    for x in world.contexts(301, rng):
        old = world.behavior_actions(x[None], rng)[0]
        learner.observe_behavior(x, old)
        arm = learner.decide(x, rng=rng, default=old).arm
        learner.record_decision(x, arm, old)
        reward = float(world.rewards(x[None], arm, rng)[0])
        estimates, deviations = learner.scores(x)
        waiting.append((x, arm, reward))
        if len(waiting) == 7:  # the last comes first, and what was expected of the others does not follow from it
            for late in reversed(waiting):
                learner.observe(*late)
            waiting.clear()
        history.append((x, arm, old))
        observed.append((x, arm, reward, (float(estimates[arm]), float(deviations[arm]) ** 2)))
    literal = literal_total(floor, history, observed, world.n_arms, world.n_features)
    assert loose_total(learner.ledger) == pytest.approx(literal, rel=1e-9)


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
        play_round(ledger, x, arm, old, reward, (0.3, 0.2))
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
    floor = Floor(0.1, noise=0.3, weight_bound=1.5)
    kinds = {"right": 1.0, "none": None, "wrong": -3.0}
    ledgers = {kind: FloorLedger(floor, K, d) for kind in kinds}
    weights = np.abs(rng.normal(size=(K, d))) / 3
    for _ in range(300):
        x, arm = np.concatenate([[1.0], rng.uniform(size=d - 1)]), int(rng.integers(K))
        mean = float(weights[arm] @ x)
        reward = mean + 0.3 * float(rng.normal())
        for kind, factor in kinds.items():
            # a guess as vague as the bounds let it be is next to none
            guess = (0.0, 1e9) if factor is None else (factor * mean, 0.0)
            play_round(ledgers[kind], x, arm, arm, reward, guess)
    totals = {kind: loose_total(ledger) for kind, ledger in ledgers.items()}
    assert totals["right"] > totals["none"]
    assert totals["wrong"] == pytest.approx(totals["none"], rel=0.01)
    lowest = FloorLedger(floor, K, d)
    lowest.restore({k: v for k, v in ledgers["none"].state().items() if k not in ("floor_guessed", "floor_squares")})
    # T_g = T₀, as in a file of an earlier version: half of each is the whole of one
    assert loose_total(lowest) > totals["wrong"]
    mean, norm = (math.fsum(row) for row in lowest._projected)
    widened = ((loose_total(lowest) - mean) ** 2 / norm) + 2 * 0.09 * math.log(2)
    assert totals["wrong"] == pytest.approx(mean - math.sqrt(widened * norm), rel=1e-9)


def test_guesses_that_are_no_numbers_count_as_none():
    ledger, other = FloorLedger(FLOOR, 2, 2), FloorLedger(FLOOR, 2, 2)
    x = np.array([1.0, 0.5])
    for one, guess in ((ledger, (math.nan, math.inf)), (other, (0.0, 1e300))):
        play_round(one, x, 0, 1, 0.7, guess)
    assert math.isfinite(ledger.total)
    assert ledger.total == other.total


def test_units_do_not_matter():
    """Rewards in cents and features in millimetres: the same decisions, the total in the reward's unit."""
    rng = np.random.default_rng(8)
    K, d = 2, 3
    plain = FloorLedger(Floor(0.1, noise=0.3, weight_bound=1.2), K, d)
    scaled = FloorLedger(Floor(0.1, noise=30.0, weight_bound=0.12), K, d)
    for _ in range(200):
        x, arm, old = np.abs(rng.normal(size=d)), int(rng.integers(K)), int(rng.integers(K))
        reward, guess = float(rng.normal()), (float(rng.normal()), 0.1)
        assert plain.permits(x, arm, old) == scaled.permits(1_000.0 * x, arm, old)
        play_round(plain, x, arm, old, reward, guess)
        play_round(scaled, 1_000.0 * x, arm, old, 100.0 * reward, (100.0 * guess[0], 1e4 * guess[1]))
    assert scaled.total == pytest.approx(100.0 * plain.total, rel=1e-9)


def clicks(order: str, contexts: str = "different") -> FloorLedger:
    """200 rounds of an arm that is clicked in 40 of 100; clicks come sooner than their absence, or as decided."""
    rng = np.random.default_rng(5)
    ledger = FloorLedger(Floor(0.1, noise=0.5, weight_bound=1.5), 2, 2)
    rounds = []
    for t in range(200):
        x = np.array([1.0, rng.uniform() if contexts == "different" else 0.5])
        ledger.record(x, 1, 0)
        ledger.expect(x, 1, (0.5 - 0.001 * t, 0.01))
        rounds.append((x, 1, float(rng.random() < 0.4)))
    for one in rounds if order == "as decided" else sorted(rounds, key=lambda one: -one[2]):
        ledger.observe(*one)
        if order == "clicks alone" and ledger.awaiting.open == 130:
            break
    return ledger


@pytest.mark.parametrize("contexts", ["different", "the same"])
def test_the_order_in_which_rewards_come_does_not_matter(contexts):
    """Guesses were made when the rounds were decided, so that not even they follow the rewards that come first."""
    decided, sooner = clicks("as decided", contexts), clicks("clicks first", contexts)
    assert decided.total == pytest.approx(sooner.total, rel=1e-12)
    assert decided.guessed == pytest.approx(sooner.guessed, rel=1e-12)
    assert not len(sooner.awaiting)


def test_rewards_behind_one_that_is_missing_wait():
    """70 clicks are in and not one absence: those before the first absence count, as in the order of decisions."""
    ledger = clicks("clicks alone")
    assert ledger.counts[1] < 10
    assert len(ledger.awaiting) == 200 - ledger.counts[1]
    # at one context nobody knows whose rewards these are
    assert clicks("clicks alone", "the same").counts[1] == 0


def test_a_reward_without_a_decision_counts_in_its_turn():
    ledger = FloorLedger(FLOOR, 2, 2)
    ledger.expect(np.array([1.0, 0.2]), 0, (0.3, 0.1))
    ledger.observe(np.array([1.0, 0.7]), 1, 0.4)
    assert ledger.counts.tolist() == [0, 0]
    ledger.observe(np.array([1.0, 0.2]), 0, 0.1)
    assert ledger.counts.tolist() == [1, 1]


def test_dropped_decisions_hold_nothing_up_and_leave_no_context():
    ledger = FloorLedger(FLOOR, 2, 2)
    for i in range(4):
        ledger.expect(np.array([1.0, 0.25 * i]), 0, (0.3, 0.1), (7, i))
    ledger.settle((7, 1), 0, 0.5)
    ledger.settle((7, 3), 0, 0.5)
    ledger.drop((7, 3))
    assert ledger.counts[0] == 0
    assert not ledger.state()["floor_awaited"][3].any()
    ledger.drop((7, 0))
    assert ledger.counts[0] == 1
    ledger.abandon()
    assert ledger.counts[0] == 1
    assert not len(ledger.awaiting)
    ledger.settle((7, 2), 0, 0.5)  # too late
    assert ledger.counts[0] == 1


def test_no_more_decisions_wait_than_there_is_room_for(monkeypatch):
    """Which rewards count does not depend on them: of decisions that were left out none ever does."""
    monkeypatch.setattr("sidelight.learners.awaiting.MOST", 3)
    ledger = FloorLedger(FLOOR, 2, 2)
    X = [np.array([1.0, 0.1 * i]) for i in range(5)]
    for x in X:
        ledger.expect(x, 0, (0.3, 0.1))
    for x in X[1:]:
        ledger.observe(x, 0, 0.5)
    assert ledger.counts[0] == 0
    ledger.observe(X[0], 0, 0.5)
    assert ledger.counts[0] == 3
    ledger.observe(X[1], 1, 0.5)  # all rewards of those left out are in: this one is new
    assert ledger.counts.tolist() == [3, 1]
    before = ledger.total
    ledger.correct(X[4], 0, 0.5, 0.9)  # it was never counted, so there is nothing to correct
    assert ledger.total == before


def test_a_corrected_reward_was_not_foretold_by_the_wrong_one():
    ledger, plain = (FloorLedger(FLOOR, 2, 2) for _ in range(2))
    x = np.array([1.0, 0.5])
    ledger.expect(x, 0, (0.2, 0.0))
    ledger.observe(x, 0, 0.2)
    ledger.correct(x, 0, 0.2, 0.7)
    plain.observe(x, 0, 0.7)
    assert ledger.guessed == pytest.approx(plain.guessed)


def test_a_reward_is_corrected_before_its_turn_comes():
    ledger, plain = (FloorLedger(FLOOR, 2, 2) for _ in range(2))
    x, y = np.array([1.0, 0.5]), np.array([1.0, 0.1])
    for one in (ledger, plain):
        one.expect(y, 1, (0.3, 0.1))
        one.expect(x, 0, (0.2, 0.1))
    ledger.observe(x, 0, 0.2)
    ledger.correct(x, 0, 0.2, 0.7)
    plain.observe(x, 0, 0.7)
    for one in (ledger, plain):
        one.observe(y, 1, 0.4)
    assert ledger.guessed == plain.guessed
    assert ledger.total == plain.total


def test_threads_decide_while_an_arm_is_added():
    """Learner and account get the new arm together, whole: a thread sees both without it, or both with it."""
    world, summary = setting()
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary), floor=Floor(allowance=0.3, noise=0.3, weight_bound=2.0))
    play(learner, world, 20)
    before, X = learner.ledger, world.contexts(3, np.random.default_rng(0))
    K, labels = world.n_arms, [f"new {i}" for i in range(12)]
    alone = copy.deepcopy(learner)
    possible = [{alone.decide(x, default=0)} for x in X]
    for label in labels:
        alone.add_arm(label)
        for found, x in zip(possible, X, strict=True):
            found.add(alone.decide(x, default=0))

    def add_arms() -> None:
        for label in labels:
            learner.add_arm(label)

    for seen, found in zip(seen_during(add_arms, lambda i: learner.decide(X[i], default=0)), possible, strict=True):
        assert seen <= found
    assert before.n_arms == K
    assert learner.ledger.n_arms == learner.n_arms == K + 12
    with pytest.raises(InputError, match="already"):
        learner.add_arm("new 3")
    assert learner.ledger.n_arms == K + 12


def test_files_of_before_have_a_second_number_of_rounds_which_is_passed_over():
    ledger = FloorLedger(FLOOR, 2, 3)
    for _ in range(5):
        ledger.record(np.ones(3), 1, 0)
    again = FloorLedger(FLOOR, 2, 3)
    again.restore({**ledger.state(), "floor_rounds": np.array([5, 0])})
    assert again.rounds == 5
    assert again.total == ledger.total
