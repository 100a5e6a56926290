"""Is "about how many online rounds this log is worth" true: the formula against simulations.

``python -m benchmarks.worth``: in each cell of a grid of worlds and log sizes, the worth of a log is measured. The
learner that starts from the log runs ``T`` rounds; a learner without a log runs much longer, and the measured worth is
the number of rounds ``n`` after which its next ``T`` rounds cost no more than the first ``T`` of the other. The learner
without a log is the better of two: one that learns its prior, one that is told it. The formula sees the log alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import sidelight as sl
from sidelight.learners.fused.learner import FusedOFUL
from sidelight.logs.diagnosis.worth import HORIZON, worth_in_rounds
from sidelight.worlds.confounded import ConfoundedWorld
from sidelight.worlds.paper import PaperWorld

LOG_ROWS = (1_000, 10_000, 100_000)
COLD_ROUNDS = 20_000
EVERY = 10


def confounded(seed: int, arms: int, hidden: int, noise: float) -> Any:
    return ConfoundedWorld(seed=seed, n_arms=arms, n_features=10, n_hidden=hidden, noise=noise)


def paper(seed: int, preset: Any, size: int, noise: float | None) -> Any:
    return PaperWorld.preset(preset, seed=seed, n_arms=size, n_features=size, noise=noise)


def worlds() -> dict[str, tuple[Callable[[int], Any], tuple[int, ...]]]:
    """Name → factory and the numbers of recorded features: both presets of the paper, and worlds it does not have."""
    found: dict[str, tuple[Callable[[int], Any], tuple[int, ...]]] = {}
    for arms, hidden, noise in ((10, 4, 0.3), (5, 2, 0.3), (10, 7, 0.3), (10, 4, 1.0), (10, 4, 0.1), (4, 3, 0.5)):
        name = f"confounded, {arms} arms, {hidden} of 10 hidden, noise {noise}"
        found[name] = (partial(confounded, arms=arms, hidden=hidden, noise=noise), (10 - hidden,))
    for preset, size, noise, recorded in (
        ("paper_text", 10, None, (4, 8)),
        ("paper_text", 10, 0.2, (4, 8)),
        ("authors_code", 10, None, (4, 8)),
        ("authors_code", 10, 0.2, (4, 8)),
        ("authors_code", 20, 0.2, (10,)),
    ):
        name = f"{preset}, {size} arms, {size} features, noise {noise if noise is not None else 'as there'}"
        found[name] = (partial(paper, preset=preset, size=size, noise=noise), recorded)
    return found


def told(run: Any) -> Any:
    """OFUL without a log that is told the prior: what all its weights have in common, how they vary, and the noise."""
    weights, noise = run.world.weights, run.world.noise
    return sl.OFUL(
        run.world.n_arms,
        run.world.n_features,
        regularization=noise**2 / weights.var(),
        prior_mean=float(weights.mean()),
        noise=noise,
        radius="posterior",
    )


def learning(run: Any) -> Any:
    """OFUL without a log that learns its prior."""
    return sl.OFUL(run.world.n_arms, run.world.n_features, regularization="auto", noise="auto", radius="posterior")


def fused(run: Any) -> Any:
    """The learner that starts from the log."""
    return FusedOFUL(sl.BehaviorQueries(run.summary))


def mean_regret(table: Any, learner: str) -> np.ndarray:
    """Mean cumulative regret at rounds 0, EVERY, 2 EVERY, ..."""
    import pyarrow.compute as pc

    mine = table.filter(pc.equal(table["learner"], learner))
    rounds, regret = mine["round"].to_numpy(), mine["regret"].to_numpy()
    distinct, which = np.unique(rounds, return_inverse=True)
    means = np.bincount(which, regret) / np.bincount(which)
    grid = np.arange(0, distinct[-1] + 1, EVERY)
    return np.interp(grid, np.concatenate([[0], distinct]), np.concatenate([[0.0], means]))


def measured_worth(cold: np.ndarray, cost: float, horizon: int) -> float:
    """The first ``n`` with ``R(n + T) − R(n) ≤ cost``; infinite if the runs are too short to tell."""
    steps = horizon // EVERY
    enough = np.flatnonzero(cold[steps:] - cold[:-steps] <= cost)
    return float(enough[0] * EVERY) if len(enough) else float("inf")


def measure(seeds: int = 16, horizon: int = HORIZON, workers: int | None = None) -> dict[str, Any]:
    """Every cell: the measured and the predicted worth, and the share of cells within a factor of 2."""
    cells = []
    for name, (world, recordings) in worlds().items():
        table = sl.simulate(world, {"told": told, "learning": learning}, COLD_ROUNDS, 0, 0, seeds, workers, every=EVERY)
        curves = [mean_regret(table, learner) for learner in ("told", "learning")]
        cold = min(curves, key=lambda curve: curve[horizon // EVERY])
        for recorded in recordings:
            for rows in LOG_ROWS:
                table = sl.simulate(world, {"fused": fused}, horizon, recorded, rows, seeds, workers, every=EVERY)
                cost = mean_regret(table, "fused")[-1]
                measured = measured_worth(cold, cost, horizon)
                predicted = float(np.median([predicted_worth(world(s), recorded, rows, s, horizon) for s in range(5)]))
                cells.append(_cell(name, recorded, rows, measured, predicted, horizon))
                print(json.dumps(cells[-1]), flush=True)
    within = float(np.mean([cell["within 2"] for cell in cells]))
    return {"seeds": seeds, "horizon": horizon, "cells": cells, "share within 2": within, "holds": within >= 0.8}


def predicted_worth(world: Any, recorded: int, rows: int, seed: int, horizon: int) -> float:
    log = world.sample_log(rows, recorded, np.random.default_rng([seed, 7]))
    return worth_in_rounds(sl.summarize_log(log, world.schema(recorded)), horizon=horizon).rounds


def _cell(name: str, recorded: int, rows: int, measured: float, predicted: float, horizon: int) -> dict[str, Any]:
    # Beyond what the runs can tell, a prediction is right if it is beyond too, or within 2 of where they end.
    longest = COLD_ROUNDS - horizon
    truth = min(max(measured, EVERY), longest)
    ratio = min(predicted, longest) / truth if np.isinf(measured) else predicted / truth
    return {
        "world": name,
        "recorded": recorded,
        "log rows": rows,
        "measured": None if np.isinf(measured) else measured,
        "predicted": round(predicted, 1),
        "ratio": round(ratio, 3),
        "within 2": bool(0.5 <= ratio <= 2.0),
    }


if __name__ == "__main__":
    found = measure()
    hits = sum(cell["within 2"] for cell in found["cells"])
    print(f"{hits} of {len(found['cells'])} cells within a factor of 2 ({found['share within 2']:.0%}; 80 % is asked)")
