"""Does the floor hold, and what does it cost?  Simulated learners under a floor, honest logs and lying ones.

    make evidence ONLY=floor                                1,000 runs of 1,500 rounds for each log and sign
    make evidence ONLY=floor_regret                         regret with and without a floor, 6,000 rounds, honest log
    python -m benchmarks.floor --runs 100                   fewer runs; --regret for the second table

Runs are kept by the state of ``src/`` and of this file: one that was stopped goes on where it stood.

Three arms, five features (a constant, two recorded, two hidden). With positive rewards every arm's mean is above 0 and
the floor is a share of the old policy's reward; with negative ones it is an allowance a round. A floor is broken if at
any round the expected reward of what was played falls below what was promised. δ = 5 %.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import sidelight as sl
from benchmarks.evidence import Parts, Row, show, source_hash, table
from benchmarks.gate import interval
from sidelight.worlds.linear import LinearWorld

LOGS = {"honest": "honest", "shifted": "shifted", "slandered": "slandering", "swapped": "relabelled"}
NOISE = 0.3
RUNS, ROUNDS, DELTA = 1_000, 1_500, 0.05
REGRET_RUNS, REGRET_ROUNDS = 40, 6_000
#: runs that are kept together
_PART = 5

Part = Callable[[str, Callable[[], Any]], Any]


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


def play(kind: str, sign: float, seed: int, rounds: int, floor: sl.Floor | None) -> tuple[float | None, float, int]:
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
    return None if floor is None else float(least), regret, kept


def floor_for(sign: float, size: float) -> sl.Floor:
    """A share of what the old policy earns, or about as much a round."""
    bounds = {"noise": NOISE, "weight_bound": 1.2, "delta": DELTA}
    return sl.Floor(share=size, **bounds) if sign > 0 else sl.Floor(allowance=0.9 * size, **bounds)


def measure(part: Part, runs: int = RUNS, rounds: int = ROUNDS, size: float = 0.1) -> list[Row]:
    """How often the floor is broken, for each log and sign of the rewards."""
    return list(_kept_promises(part, runs, rounds, size))


def _kept_promises(part: Part, runs: int, rounds: int, size: float) -> Iterator[Row]:
    for kind, words in LOGS.items():
        for sign, name in ((1.0, "positive"), (-1.0, "negative")):
            floor = floor_for(sign, size)
            found = _runs(
                part, f"{kind}-{name}-{rounds}-{size}", runs, partial(play, kind, sign, rounds=rounds, floor=floor)
            )
            broken = sum(least < -1e-9 for least, _, _ in found)
            low, high = interval(broken, runs)
            yield {
                "log": words,
                "rewards": name,
                "runs": runs,
                "rounds": rounds,
                "broken": broken / runs,
                "interval": f"{low:.4f} to {high:.4f}",
                "least room": float(np.mean([least for least, _, _ in found])),
                "old arm kept": float(np.mean([kept for _, _, kept in found])) / rounds,
            }


def measure_regret(part: Part, runs: int = REGRET_RUNS, rounds: int = REGRET_ROUNDS, size: float = 0.1) -> list[Row]:
    """Regret with and without the floor on honest logs, and the 95 % interval of the ratio of their means."""
    key = f"regret-{rounds}-{size}"
    floored = _runs(part, f"{key}-with", runs, partial(play, "honest", 1.0, rounds=rounds, floor=floor_for(1.0, size)))
    free = _runs(part, f"{key}-without", runs, partial(play, "honest", 1.0, rounds=rounds, floor=None))
    with_floor, without = (np.array([regret for _, regret, _ in found]) for found in (floored, free))
    ratio = float(with_floor.mean() / without.mean())
    error = float(np.std(with_floor - ratio * without, ddof=1) / np.sqrt(runs) / without.mean())
    return [
        {
            "runs": runs,
            "rounds": rounds,
            "regret with floor": float(with_floor.mean()),
            "without": float(without.mean()),
            "ratio": ratio,
            "low": ratio - 1.96 * error,
            "high": ratio + 1.96 * error,
            "rounds with the old arm kept": float(np.mean([kept for _, _, kept in floored])),
        }
    ]


def _runs(part: Part, key: str, runs: int, run: Callable[..., Any]) -> list[Any]:
    """All runs of a cell, from ``part`` where they are kept."""
    harness = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    found: list[Any] = []
    for start in range(0, runs, _PART):
        seeds = range(start, min(start + _PART, runs))
        found += part(f"{harness}-{key}-{seeds.start}-{seeds.stop}", partial(_each, run, seeds))
    return found


def _each(run: Callable[..., Any], seeds: range) -> list[Any]:
    return [run(seed=seed) for seed in seeds]


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.floor", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--size", type=float, default=0.1, help="the floor's share")
    parser.add_argument("--regret", action="store_true", help="compare regret with and without the floor")
    given = parser.parse_args(arguments)
    part = Parts("floor", source_hash())
    if given.regret:
        rows = measure_regret(part, given.runs or REGRET_RUNS, given.rounds or REGRET_ROUNDS, given.size)
    else:
        rows = []
        for row in _kept_promises(part, given.runs or RUNS, given.rounds or ROUNDS, given.size):
            rows.append(row)
            print(" | ".join(show(value) for value in row.values()), file=sys.stderr, flush=True)
    print(f"floor={given.size}, δ = {DELTA:.0%}")
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
