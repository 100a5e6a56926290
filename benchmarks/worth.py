"""Is the range of "online rounds this log is worth" true: the diagnosis against simulations of the same worlds.

    python -m benchmarks.worth                  all cells, 8 seeds
    python -m benchmarks.worth --cells real     cells whose name begins with this
    python -m benchmarks.worth --fresh --first-seed 1000 [--csv FILE]
                                                other worlds, sizes and seeds than those by which the constant was
                                                chosen, and the number columns of a file as contexts

In each cell of a grid of worlds and log sizes the worth of a log is measured: the learner that starts from the log runs
``T`` rounds, a learner without it (the same prior, learned in the same way) runs much longer, and the measured worth is
the number of rounds ``n`` after which its next ``T`` rounds cost no more than the first ``T`` of the other. The grid
has weak logs (few rows, weak effects), hidden parts that are much stronger and much weaker than the recorded ones, and
the covariates of public data sets. The diagnosis sees one log at a time, once alone and once with the hidden columns.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import sidelight as sl
from benchmarks.regret import AUTO
from sidelight.logs.diagnosis.worth import HORIZON, Worth, worth_in_rounds
from sidelight.worlds.linear import LinearWorld

COLD_ROUNDS = 11_000
EVERY = 10


@dataclass(frozen=True)
class Cell:
    """One world and one log size.

    Attributes:
        name: what is special about it.
        rows: rows of the log.
        recorded_strength, hidden_strength: standard deviation over contexts of their part of a mean reward.
        noise: standard deviation of a reward given everything.
        arms: K.
        table: a public data set, or a CSV file, whose rows are the contexts; None draws normal ones.
        recorded, hidden: how many features of either kind, an intercept not counted.
    """

    name: str
    rows: int
    recorded_strength: float = 1.0
    hidden_strength: float = 1.0
    noise: float = 0.7
    arms: int = 5
    table: str | None = None
    recorded: int = 6
    hidden: int = 3


def cells() -> list[Cell]:
    """The grid: every kind of world with a small and a large log."""
    kinds = {
        "base": {},
        "strong hidden": {"recorded_strength": 0.5, "hidden_strength": 1.5, "noise": 0.5},
        "weak hidden": {"hidden_strength": 0.15},
        "weak effects": {"recorded_strength": 0.2, "hidden_strength": 0.2, "noise": 1.0},
        "much noise": {"noise": 2.0},
        "two arms": {"arms": 2},
        "many arms": {"arms": 15},
    }
    found = [Cell(f"normal, {name}", rows, **values) for name, values in kinds.items() for rows in (500, 10_000)]
    for table in ("fair", "randhie", "breast_cancer", "diabetes"):
        for name in ("base", "strong hidden", "weak effects"):
            found += [Cell(f"real, {table}, {name}", rows, table=table, **kinds[name]) for rows in (1_000, 10_000)]
    return found


def fresh_cells(files: Iterable[str] = ()) -> list[Cell]:
    """Another grid: nothing in it was looked at when the constant of ``logs/diagnosis/worth.py`` was chosen."""
    kinds: dict[str, dict[str, Any]] = {
        "few features": {"recorded": 3, "hidden": 1, "arms": 3},
        "many features": {"recorded": 12, "hidden": 6, "arms": 4},
        "very strong hidden": {"recorded_strength": 0.3, "hidden_strength": 2.0, "noise": 0.5},
        "weak effects": {"recorded_strength": 0.3, "hidden_strength": 0.3, "noise": 1.0},
        "eight arms": {"arms": 8, "noise": 1.0},
        "little noise": {"noise": 0.2},
    }
    found = [Cell(f"normal, {name}", rows, **values) for name, values in kinds.items() for rows in (300, 3_000)]
    for table in ("wine", *files):
        for name in ("few features", "very strong hidden", "weak effects"):
            label = f"real, {Path(table).stem}, {name}"
            found += [Cell(label, rows, table=table, **kinds[name]) for rows in (300, 3_000)]
    return found


def columns_of_file(path: str) -> np.ndarray:
    """The number columns of a CSV file that have a value in nearly every row, ``(n, p)``; rows with gaps left out."""
    import pyarrow as pa
    import pyarrow.csv as csv

    table = csv.read_csv(path)
    numbers = [
        column.cast(pa.float64()).to_numpy()
        for column in table.columns
        if (pa.types.is_integer(column.type) or pa.types.is_floating(column.type))
        and column.null_count < 0.05 * len(column)
    ]
    X = np.column_stack(numbers)
    return X[np.isfinite(X).all(axis=1)]


@cache
def covariates(table: str) -> np.ndarray:
    """The columns of a public data set, standardised, ``(n, p)``."""
    if table in ("fair", "randhie"):
        import statsmodels.api as sm

        frame = getattr(sm.datasets, table).load_pandas().data
        frame = frame.drop(columns={"fair": ["affairs"], "randhie": ["mdvis"]}[table])
        X = frame.to_numpy(dtype=float)
    elif table.endswith(".csv"):
        X = columns_of_file(table)
    else:
        from sklearn import datasets

        X = getattr(datasets, f"load_{table}")().data
    X = X[:, X.std(axis=0) > 0]
    return np.asarray((X - X.mean(axis=0)) / X.std(axis=0))


class DrawnWorld(LinearWorld):
    """The world of one cell and one seed: random weights, and an old policy that looks at hidden features most."""

    def __init__(self, cell: Cell, seed: int) -> None:
        rng = np.random.default_rng([seed, 11])
        L, m, K = cell.recorded, cell.hidden, cell.arms
        self.cell = cell
        if cell.table is None:
            self.pool = None
            columns = rng.standard_normal((4_000, L + m))
        else:
            everything = covariates(cell.table)
            m = min(m, max(1, everything.shape[1] - L))
            L = min(L, everything.shape[1] - m)
            columns = self.pool = everything[:, rng.permutation(everything.shape[1])[: L + m]]
        slopes = rng.standard_normal((K, L + m))
        for part, strength in ((slice(0, L), cell.recorded_strength), (slice(L, L + m), cell.hidden_strength)):
            spread = (columns[:, part] @ slopes[:, part].T).std(axis=0).mean()
            slopes[:, part] *= strength / spread
        levels = 0.5 * cell.recorded_strength * rng.standard_normal(K)
        names = [f"x{j}" for j in range(L + m)]
        schema = sl.Schema(names, names[:L], arms=range(K), intercept=True)
        super().__init__(np.column_stack([levels, slopes]), cell.noise, schema=schema)
        leaning = np.where(np.arange(K) % 2 == 0, 1.0, -1.0)[:, None] * slopes[:, L:] + rng.standard_normal((K, m))
        policy = np.column_stack([0.5 * rng.standard_normal((K, L)) / np.sqrt(L), leaning])
        self.policy = policy / (columns @ policy.T).std(axis=0).mean()
        self.default_recorded = L

    def contexts(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``(n, d)``, a constant first."""
        if self.pool is None:
            X = rng.standard_normal((n, self.n_features - 1))
        else:
            X = self.pool[rng.integers(len(self.pool), size=n)]
        return np.column_stack([np.ones(n), X])

    def behavior_logits(self, X: np.ndarray) -> np.ndarray:
        """``(n, K)``."""
        return X[:, 1:] @ self.policy.T


def cold(run: Any) -> Any:
    """The learner without a log that learns its prior as the fused one does."""
    return sl.OFUL(run.world.n_arms, run.world.n_features, schema=run.schema, **AUTO)


def fused(run: Any) -> Any:
    """The learner that starts from the log."""
    return sl.FusedOFUL(sl.BehaviorQueries(run.summary))


def mean_regret(table: Any) -> np.ndarray:
    """Mean cumulative regret at rounds 0, EVERY, 2 EVERY, ..."""
    rounds, regret = table["round"].to_numpy(), table["regret"].to_numpy()
    distinct, which = np.unique(rounds, return_inverse=True)
    means = np.bincount(which, regret) / np.bincount(which)
    grid = np.arange(0, distinct[-1] + 1, EVERY)
    return np.interp(grid, np.concatenate([[0], distinct]), np.concatenate([[0.0], means]))


def measured_worth(cold_regret: np.ndarray, cost: float, horizon: int) -> float:
    """The first ``n`` with ``R(n + T) − R(n) ≤ cost``; infinite if the runs are too short to tell."""
    steps = horizon // EVERY
    enough = np.flatnonzero(cold_regret[steps:] - cold_regret[:-steps] <= cost)
    return float(enough[0] * EVERY) if len(enough) else float("inf")


def logs_of(cell: Cell, seed: int) -> tuple[Any, Any]:
    """The summary of a log of the cell, and that of the same rows with every column."""
    world = DrawnWorld(cell, seed)
    every = world.schema(len(world.features))
    log = world.sample_log(cell.rows, len(world.features), np.random.default_rng([seed, 7]))
    return sl.summarize_log(log, world.schema(world.default_recorded)), sl.summarize_log(log, every)


def simulated(cell: Cell, seeds: Sequence[int], horizon: int, cold_rounds: int = COLD_ROUNDS) -> float:
    """The measured worth of the cell's logs."""
    world = partial(DrawnWorld, cell)
    recorded = world(0).default_recorded
    run = partial(sl.simulate, world, recorded=recorded, log_rows=cell.rows, seeds=list(seeds), workers=1, every=EVERY)
    cost = mean_regret(run({"fused": fused}, horizon=horizon))[-1]
    return measured_worth(mean_regret(run({"cold": cold}, horizon=cold_rounds)), cost, horizon)


def described(worths: Iterable[Worth], measured: float, longest: int) -> dict[str, Any]:
    """The median of the ranges that the diagnoses give: does it hold the measured worth, and within a factor of 2?"""
    told = [worth for worth in worths if worth.known]
    if not told:
        return {"low": None, "high": None, "inside": None, "right": None}
    low, high = (float(np.median([worth.shown[end] for worth in told])) for end in (0, 1))
    truth = min(max(measured, 1.0), longest)
    inside, right = bool(low <= truth <= high), bool(low / 2 <= truth <= 2 * high)
    return {"low": round(low), "high": round(high), "inside": inside, "right": right}


def measure(grid: Sequence[Cell], seeds: Sequence[int] = range(8), horizon: int = HORIZON) -> dict[str, Any]:
    """Every cell: the measured worth, and the ranges that the diagnosis gives without and with the hidden columns."""
    rows = []
    for cell in grid:
        truth = simulated(cell, seeds, horizon)
        logs = [logs_of(cell, seed) for seed in seeds]
        alone = described((worth_in_rounds(log, horizon=horizon) for log, _ in logs), truth, COLD_ROUNDS - horizon)
        full = (worth_in_rounds(log, complete=complete, horizon=horizon) for log, complete in logs)
        row = {**asdict(cell), "measured": truth if np.isfinite(truth) else None, "alone": alone}
        rows.append(row | {"with hidden columns": described(full, truth, COLD_ROUNDS - horizon)})
        print(json.dumps(rows[-1]), flush=True)
    shares = {}
    for kind in ("alone", "with hidden columns"):
        told = [row[kind]["right"] for row in rows if row[kind]["right"] is not None]
        inside = sum(bool(row[kind]["inside"]) for row in rows)
        shares[kind] = {"inside": inside, "right": sum(told), "told": len(told), "cells": len(rows)}
    return {"seeds": list(seeds), "horizon": horizon, "cells": rows, "shares": shares}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default="")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="the other grid")
    parser.add_argument("--csv", action="append", default=[], metavar="FILE", help="contexts for the other grid")
    given = parser.parse_args()
    every = fresh_cells(given.csv) if given.fresh else cells()
    chosen = [cell for cell in every if cell.name.startswith(given.cells)]
    for kind, share in measure(chosen, range(given.first_seed, given.first_seed + given.seeds))["shares"].items():
        print(
            f"{kind}: of {share['cells']} cells {share['told']} have a range; {share['inside']} hold the measured "
            f"worth, {share['right']} within a factor of 2"
        )
