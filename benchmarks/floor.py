"""Does the floor hold, and what does it cost?  Simulated learners under a floor, honest logs and lying ones.

    python -m benchmarks.floor                              100 runs of 1,500 rounds for each log and sign
    python -m benchmarks.floor --regret --runs 8            regret with and without a floor, 6,000 rounds, honest log

Three arms, five features (a constant, two recorded, two hidden). With positive rewards every arm's mean is above 0 and
the floor is a share of the old policy's reward; with negative ones it is an allowance a round. A floor is broken if at
any round the expected reward of what was played falls below what was promised. δ = 5 %.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

import sidelight as sl
from benchmarks.gate import interval
from sidelight.worlds.linear import LinearWorld

LOGS = ("honest", "shifted", "slandered", "swapped")
NOISE = 0.3


class Floored(LinearWorld):
    """Means within 0.15 and 1.65 of a reward of ``sign``; the old policy prefers arms by the hidden features."""

    context_bound = 2.0

    def __init__(self, seed: int, sign: float) -> None:
        rng = np.random.default_rng([seed, 5])
        weights = np.column_stack([np.full(3, 0.9) + rng.uniform(-0.15, 0.15, 3), rng.uniform(-0.15, 0.15, (3, 4))])
        super().__init__(weights if sign > 0 else weights - np.array([1.8, 0, 0, 0, 0]), NOISE)
        self._policy = rng.normal(size=(5, 3))

    def contexts(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 5)  a constant and four features in [−1, 1]."""
        return np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 4))])

    def behavior_logits(self, X: np.ndarray) -> np.ndarray:
        """(n, 3)"""
        return X @ self._policy


def learner_of(world: LinearWorld, seed: int, floor: sl.Floor | None) -> sl.FusedOFUL:
    """The default learner, started from a log of 5,000 rows."""
    log = world.sample_log(5_000, 3, np.random.default_rng([seed, 1]))
    return sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(log, world.schema(3))), floor=floor)


def play(kind: str, sign: float, seed: int, rounds: int, floor: sl.Floor | None) -> tuple[float, float, int]:
    """The least room that was left at any round, the regret, and how often the old policy's arm was kept."""
    honest = Floored(seed, sign)
    world = honest if kind == "honest" else sl.worlds.DriftedWorld(honest, kind, size=2.0, seed=seed)
    learner = learner_of(world, seed, floor)
    rng, noise = np.random.default_rng([seed, 2]), np.random.default_rng([seed, 3])
    X = honest.contexts(rounds, rng)
    means, old = honest.mean_rewards(X), honest.behavior_actions(X, rng)
    earned = promised = regret = 0.0
    least, kept = np.inf, 0
    for t, x in enumerate(X):
        default = int(old[t])
        learner.observe_behavior(x, default)
        if floor is None:
            arm = learner.decide(x, rng=rng).arm
        else:
            wanted, arm, _ = learner.decide_under(learner.ledger, x, default, rng=rng)
            kept += arm != wanted.arm
            learner.record_decision(x, arm, default)
            earned += means[t, arm]
            promised += (1.0 - floor.share) * means[t, default] - floor.allowance
            least = min(least, earned - promised)
        learner.observe(x, arm, float(means[t, arm] + NOISE * noise.standard_normal()))
        regret += float(means[t].max() - means[t, arm])
    return float(least), regret, kept


def floor_for(sign: float, size: float) -> sl.Floor:
    """A share of what the old policy earns, or about as much a round."""
    bounds = {"noise": NOISE, "weight_bound": 1.2}
    return sl.Floor(share=size, **bounds) if sign > 0 else sl.Floor(allowance=0.9 * size, **bounds)


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.floor", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--size", type=float, default=0.1, help="the floor's share")
    parser.add_argument("--regret", action="store_true", help="compare regret with and without the floor")
    given = parser.parse_args(arguments)
    if given.regret:
        rounds = given.rounds or 6_000
        pairs = []
        for seed in range(given.runs):
            floored = play("honest", 1.0, seed, rounds, floor_for(1.0, given.size))
            free = play("honest", 1.0, seed, rounds, None)
            pairs.append((floored[1], free[1], floored[2]))
            print(f"seed {seed}: {pairs[-1]}", file=sys.stderr, flush=True)
        values = np.array(pairs)
        ratio = values[:, 0].mean() / values[:, 1].mean()
        print(f"{given.runs} runs of {rounds:,} rounds, floor={given.size}, honest log:")
        print(f"regret {values[:, 0].mean():.1f} with the floor, {values[:, 1].mean():.1f} without: {ratio:.2f}")
        print(f"the old policy's arm was kept in {values[:, 2].mean():.0f} rounds")
        return 0
    rounds = given.rounds or 1_500
    print(f"{given.runs} runs of {rounds:,} rounds, floor={given.size}, δ = 5 %")
    print("| log | rewards | broken | least room (mean) | old arm kept |")
    print("|---|---|---|---|---|")
    for kind in LOGS:
        for sign, name in ((1.0, "positive"), (-1.0, "negative")):
            started = time.perf_counter()
            found = [play(kind, sign, seed, rounds, floor_for(sign, given.size)) for seed in range(given.runs)]
            broken = sum(least < -1e-9 for least, _, _ in found)
            low, high = interval(broken, given.runs)
            least, kept = np.mean([v[0] for v in found]), np.mean([v[2] for v in found])
            row = f"{broken / given.runs:.3f} ({low:.3f} to {high:.3f}) | {least:.2f} | {kept / rounds:.0%}"
            print(f"| {kind} | {name} | {row} |", flush=True)
            print(f"{kind}, {name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
