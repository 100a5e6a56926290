"""What the paper's released code does otherwise than its text, and what each difference costs.

    python -m benchmarks.released                 5 seeds, 100,000 rounds, a log of a million rows
    python -m benchmarks.released --rounds 20000 --seeds 3 --rows 100000

In the world of the released experiment (``authors_code``: d = K = 30, L = 25, σ = 1, λ = 0.1, δ = 0.01, α = 0.01) the
table has OFUL and the every-round estimate with the printed radius, and the latter with the radius of the released
code, whose noise ``σ`` is replaced by ``σ + S_x S_w C``, ``C = S_x S_w λ_max(R11⁻¹) K``, unless R12 is computed. In
the world of the text it has OFUL with and without a first play of every arm.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

import sidelight as sl
from benchmarks.paired import ratio
from sidelight.experiments.first_plays import FirstPlays

RECORDED = 25
PRINTED: dict[str, Any] = {"regularization": 0.1, "delta": 0.01, "alpha": 0.01, "radius": "printed"}


def released_factor(summary: sl.LogSummary, noise: float) -> float:
    """By how much the released code's radius exceeds the printed one: ``(σ + S_x S_w C)/σ`` at ``S_x = S_w = 1``."""
    smallest = min(float(np.linalg.eigvalsh(np.asarray(R11))[0]) for R11 in summary.second_moments)
    return (noise + summary.n_arms / smallest) / noise


def authors_world(run: sl.Run) -> dict[str, float]:
    """The settings of one run of the released experiment."""
    noise = float(run.world.noise)
    return {"printed": noise, "released": noise * released_factor(run.summary, noise)}


LEARNERS = {
    "OFUL": lambda run: sl.OFUL(run.world.n_arms, run.world.n_features, noise=float(run.world.noise), **PRINTED),
    "every round, printed radius": lambda run: sl.RunningOFUL(
        sl.BehaviorQueries(run.summary, estimator="ipw"), noise=authors_world(run)["printed"], **PRINTED
    ),
    "every round, released radius": lambda run: sl.RunningOFUL(
        sl.BehaviorQueries(run.summary, estimator="ipw"), noise=authors_world(run)["released"], **PRINTED
    ),
}
TEXT_LEARNERS = {
    "OFUL": LEARNERS["OFUL"],
    "OFUL, every arm once first": lambda run: FirstPlays(LEARNERS["OFUL"](run)),
}


def table_of(preset: str, learners: dict[str, Any], given: argparse.Namespace) -> str:
    """Regret at the end and arms played, by learner."""
    results = sl.simulate(
        lambda seed: sl.worlds.PaperWorld.preset(preset, seed=seed),
        learners,
        given.rounds,
        recorded=RECORDED,
        log_rows=given.rows,
        seeds=given.seeds,
        workers=1,
        every=max(1, given.rounds // 1_000),
    )
    names, rounds = np.array(results["learner"].to_pylist()), results["round"].to_numpy()
    regret, seeds, arms = results["regret"].to_numpy(), results["seed"].to_numpy(), np.array(results["arm"].to_pylist())
    ends = {name: regret[(names == name) & (rounds == given.rounds)] for name in learners}
    lines = [f"| learner ({preset}) | regret | to OFUL | arms played |", "|---|---|---|---|"]
    for name in learners:
        tried = [len(set(arms[(names == name) & (seeds == seed)].tolist())) for seed in range(given.seeds)]
        lines.append(
            f"| {name} | {ends[name].mean():,.0f} | {ratio(ends[name], ends['OFUL'])} | {min(tried)} to {max(tried)} |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.released", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    world = sl.worlds.PaperWorld.preset("authors_code", seed=0)
    factors = []
    for recorded in (5, 10, 15, 20, 25):
        summary = sl.summarize_log(world.sample_log(min(given.rows, 200_000), recorded, rng), world.schema(recorded))
        factors.append(released_factor(summary, float(world.noise)))
    print(f"released radius over printed one, L = 5 to 25: {min(factors):,.0f} to {max(factors):,.0f} times\n")
    print(table_of("authors_code", LEARNERS, given), flush=True)
    print("\n" + table_of("paper_text", TEXT_LEARNERS, given))
    return 0


if __name__ == "__main__":
    sys.exit(main())
