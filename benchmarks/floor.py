"""Does the floor hold, and what does it cost?  Simulated learners under a floor, honest logs and lying ones.

    make evidence ONLY=floor                                1,000 runs of 1,500 rounds for each log and sign
    make evidence ONLY=floor_regret                         regret with and without a floor, 6,000 rounds, honest log
    python -m benchmarks.floor --runs 100                   fewer runs; --regret for the second table
    python -m benchmarks.floor --runs 100 --clicks 400      rewards of 0 and 1: a 1 comes at once, a 0 400 rounds later
    python -m benchmarks.floor --worlds --runs 24           regret in other worlds, and the least that any floor costs

Runs are kept by the state of ``src/`` and of this file: one that was stopped goes on where it stood.

Three arms, five features (a constant, two recorded, two hidden). With positive rewards every arm's mean is above 0 and
the floor is a share of the old policy's reward; with negative ones it is an allowance a round. A floor is broken if at
any round the expected reward of what was played falls below what was promised. δ = 5 %.

**The limit** is a floor that knows the true weights ``w`` and permits an arm as soon as the rounds rule out every
``w'`` under which the promise would then be broken: those with ``‖w'_a‖ ≤ S`` and
``KL = Σ (x·(w' − w))²/2σ² ≤ log(1/δ)`` are not ruled out. By Bretagnolle and Huber the chances of keeping the old arm
under ``w`` and of breaking the promise under ``w'`` add up to ``e^{−KL}/2`` at least, so a floor that permits earlier
in all but ``δ/4`` of the runs breaks its promise in ``δ/4`` of them under some ``w'``. It cannot be built: it shows
what is left to gain.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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


class Kind(NamedTuple):
    """A kind of world: how many arms and features, how noisy, and how far the arms' levels lie apart."""

    arms: int = 3
    features: int = 5
    noise: float = NOISE
    levels: float = 0.15
    slopes: float = 0.6
    #: rewards are 0 or 1, with half of the means below as their chances
    clicks: bool = False


#: arms so far apart that taking a bad one breaks a floor at once
CLICKS = Kind(noise=0.5, levels=0.6, slopes=0.2, clicks=True)
KINDS = {
    "as above": Kind(),
    "more features": Kind(features=11),
    "more arms": Kind(arms=8),
    "more noise": Kind(noise=0.6),
    "less noise": Kind(noise=0.1),
    "arms further apart": Kind(levels=0.3),
}


class Floored(LinearWorld):
    """Means between 0 and 1.8 of a reward of ``sign``; the old policy prefers arms by the hidden features."""

    context_bound = 2.0

    def __init__(self, seed: int, sign: float, kind: Kind = KINDS["as above"]) -> None:
        rng = np.random.default_rng([seed, 5])
        K, d = kind.arms, kind.features
        slopes = kind.slopes / (d - 1)
        weights = np.column_stack(
            [np.full(K, 0.9) + rng.uniform(-kind.levels, kind.levels, K), rng.uniform(-slopes, slopes, (K, d - 1))]
        )
        if kind.clicks:
            weights /= 2.0
        super().__init__(weights if sign > 0 else weights - np.concatenate([[1.8], np.zeros(d - 1)]), kind.noise)
        self._policy = rng.normal(size=(d, K))

    def contexts(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, d)  a constant and features in [−1, 1]."""
        return np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, self.n_features - 1))])

    def behavior_logits(self, X: np.ndarray) -> np.ndarray:
        """(n, K)"""
        return X @ self._policy


class Limit:
    """The floor that is told the true weights ``w`` (K, d); see above."""

    def __init__(self, floor: sl.Floor, w: np.ndarray) -> None:
        self._floor, self._w = floor, w
        self._z = np.zeros_like(w)
        self._grams = np.zeros((*w.shape, w.shape[1]))

    def permits(self, x: np.ndarray, arm: int, default: int) -> bool:
        """Whether ``arm`` may be taken at ``x`` where the old policy takes ``default``."""
        return arm == default or self._lower(self._with(x, arm, default)) >= 0.0

    def record(self, x: np.ndarray, arm: int, default: int) -> None:
        """``arm`` is taken, and its reward seen: what the reward is does not matter to who knows the truth."""
        self._z = self._with(x, arm, default)
        self._grams[arm] += np.outer(x, x)

    def _with(self, x: np.ndarray, arm: int, default: int) -> np.ndarray:
        z = self._z.copy()
        z[arm] += x
        z[default] -= (1.0 - self._floor.share) * x
        return z

    def _lower(self, z: np.ndarray) -> float:
        """The least ``Σ z·w'`` over all ``w'`` that are not ruled out: the best of some multipliers of the norms."""
        floor, w, best = self._floor, self._w, -np.inf
        pulled = np.einsum("kij,kj->ki", self._grams, w)
        for ridge in np.geomspace(0.1, 30.0, 6) * floor.noise**2 / floor.weight_bound**2:
            # Σ(x·(w' − w))² + λ‖w'‖² is least at the centre, and grows from there by ‖w' − centre‖²_V
            inverses = np.linalg.inv(self._grams + ridge * np.eye(w.shape[1]))
            centre = np.einsum("kij,kj->ki", inverses, pulled)
            least = np.sum((w - centre) * pulled)
            squared = 2 * floor.noise**2 * np.log(1 / floor.delta) + ridge * len(w) * floor.weight_bound**2 - least
            reach = np.einsum("ki,kij,kj->", z, inverses, z)
            best = max(best, float(np.sum(z * centre) - np.sqrt(max(squared, 0.0) * reach)))
        return best


def learner_of(world: LinearWorld, seed: int, floor: sl.Floor | None) -> sl.FusedOFUL:
    """The default learner, started from a log of 5,000 rows."""
    recorded = (world.n_features + 1) // 2
    log = world.sample_log(5_000, recorded, np.random.default_rng([seed, 1]))
    return sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(log, world.schema(recorded))), floor=floor)


def play(
    kind: str,
    sign: float,
    seed: int,
    rounds: int,
    floor: sl.Floor | None,
    *,
    worlds: Kind = KINDS["as above"],
    limit: bool = False,
    delay: int = 0,
) -> tuple[float | None, float, int]:
    """The least room that was left at any round, the regret, and how often the old policy's arm was kept.

    A reward above its mean, a click for example, comes at once, one below it ``delay`` rounds later.
    """
    honest = Floored(seed, sign, worlds)
    world = honest if kind == "honest" else sl.worlds.DriftedWorld(honest, kind, size=2.0, seed=seed)
    learner = learner_of(world, seed, None if limit else floor)
    ledger: Any = Limit(floor, honest.weights) if limit and floor is not None else learner.ledger
    rng, noise = np.random.default_rng([seed, 2]), np.random.default_rng([seed, 3])
    X = honest.contexts(rounds, rng)
    means, old = honest.mean_rewards(X), honest.behavior_actions(X, rng)
    earned = promised = regret = 0.0
    least, kept = np.inf, 0
    late: dict[int, list[Any]] = {}
    for t, x in enumerate(X):
        default = int(old[t])
        learner.observe_behavior(x, default)
        if floor is None:
            arm = learner.decide(x, rng=rng).arm
        else:
            wanted, arm, _ = learner.decide_under(ledger, x, default, rng=rng)
            kept += arm != wanted.arm
            (ledger.record if limit else learner.record_decision)(x, arm, default)
            earned += means[t, arm]
            promised += (1.0 - floor.share) * means[t, default] - floor.allowance
            least = min(least, earned - promised)
        mean = float(means[t, arm])
        error = (noise.random() < mean) - mean if worlds.clicks else worlds.noise * noise.standard_normal()
        late.setdefault(t if error > 0.0 else t + delay, []).append((x, arm, float(mean + error)))
        for came in late.pop(t, ()):
            learner.observe(*came)
        regret += float(means[t].max() - means[t, arm])
    return None if floor is None else float(least), regret, kept


def floor_for(sign: float, size: float, worlds: Kind = KINDS["as above"]) -> sl.Floor:
    """A share of what the old policy earns, or about as much a round."""
    bounds = {
        "noise": worlds.noise,
        "weight_bound": 0.8 if worlds.clicks else 1.2 if worlds.levels <= 0.15 else 1.3,
        "delta": DELTA,
    }
    return sl.Floor(share=size, **bounds) if sign > 0 else sl.Floor(allowance=0.9 * size, **bounds)


def measure(part: Part, runs: int = RUNS, rounds: int = ROUNDS, size: float = 0.1) -> list[Row]:
    """How often the floor is broken, for each log and sign of the rewards."""
    return list(_kept_promises(part, runs, rounds, size))


def _kept_promises(part: Part, runs: int, rounds: int, size: float, delay: int | None = None) -> Iterator[Row]:
    """``delay``: how much later than a 1 a 0 comes, where rewards are clicks; None where they are not."""
    worlds, signs = (KINDS["as above"], (1.0, -1.0)) if delay is None else (CLICKS, (1.0,))
    for kind, words in LOGS.items():
        for sign in signs:
            name = "clicks" if worlds.clicks else "positive" if sign > 0 else "negative"
            floor = floor_for(sign, size, worlds)
            run = partial(play, kind, sign, rounds=rounds, floor=floor, worlds=worlds, delay=delay or 0)
            found = _runs(part, f"{kind}-{name}-{rounds}-{size}-{delay}", runs, run)
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
    return [_regret(part, runs, rounds, size)]


def measure_worlds(part: Part, runs: int = REGRET_RUNS, rounds: int = REGRET_ROUNDS, size: float = 0.1) -> list[Row]:
    """The same in other worlds."""
    return [{"worlds": name, **_regret(part, runs, rounds, size, kind)} for name, kind in KINDS.items()]


def _regret(part: Part, runs: int, rounds: int, size: float, worlds: Kind = KINDS["as above"]) -> Row:
    floor = floor_for(1.0, size, worlds)
    key = f"regret-{'-'.join(map(str, worlds))}-{rounds}-{size}"
    plays = {
        "with": {"floor": floor},
        "without": {"floor": None},
        "limit": {"floor": floor, "limit": True},
    }
    found = {
        name: _runs(part, f"{key}-{name}", runs, partial(play, "honest", 1.0, rounds=rounds, worlds=worlds, **given))
        for name, given in plays.items()
    }
    with_floor, without, limit = (np.array([regret for _, regret, _ in runs_]) for runs_ in found.values())
    ratio, low, high = _ratio(with_floor, without)
    return {
        "runs": runs,
        "rounds": rounds,
        "regret with floor": float(with_floor.mean()),
        "without": float(without.mean()),
        "ratio": ratio,
        "low": low,
        "high": high,
        "rounds with the old arm kept": float(np.mean([kept for _, _, kept in found["with"]])),
        "ratio at the limit": _ratio(limit, without)[0],
        "kept at the limit": float(np.mean([kept for _, _, kept in found["limit"]])),
    }


def _ratio(some: np.ndarray, others: np.ndarray) -> tuple[float, float, float]:
    """The ratio of two means over the same runs, and its 95 % interval."""
    ratio = float(some.mean() / others.mean())
    error = float(np.std(some - ratio * others, ddof=1) / np.sqrt(len(some)) / others.mean())
    return ratio, ratio - 1.96 * error, ratio + 1.96 * error


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
    parser.add_argument("--worlds", action="store_true", help="the same in other worlds")
    parser.add_argument("--clicks", type=int, default=None, help="rewards of 0 and 1; by how many rounds a 0 is later")
    given = parser.parse_args(arguments)
    part = Parts("floor", source_hash())
    if given.regret or given.worlds:
        measured = measure_worlds if given.worlds else measure_regret
        rows = measured(part, given.runs or REGRET_RUNS, given.rounds or REGRET_ROUNDS, given.size)
    else:
        rows = []
        for row in _kept_promises(part, given.runs or RUNS, given.rounds or ROUNDS, given.size, given.clicks):
            rows.append(row)
            print(" | ".join(show(value) for value in row.values()), file=sys.stderr, flush=True)
    print(f"floor={given.size}, δ = {DELTA:.0%}")
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
