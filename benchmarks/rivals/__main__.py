"""Sidelight's default learner against every rival, in the zoo's worlds and on public data, with a lower bound.

    python -m benchmarks.rivals                         the zoo's quick cells, 8 seeds, 2,000 rounds
    python -m benchmarks.rivals --cells base units      some cells, by name or prefix; "all" for all
    python -m benchmarks.rivals --cells data            public data sets: insurance, digits, tumours, wine
    python -m benchmarks.rivals --seeds 32 --rounds 4000
    python -m benchmarks.rivals --print                 nothing is run: the table from the result files

Each rival's settings are chosen for each cell by its mean regret on seeds of their own (``--tuning``), which no row of
the table uses; ``fused`` has its default arguments. Seeds are paired as in the zoo. Results are kept in
``results/rivals/`` by the state of ``src/`` (rivals' own do not depend on it), and a run that was stopped goes on where
it stood.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import sidelight as sl
from benchmarks.cells import CELLS, QUICK
from benchmarks.evidence import source_hash, write_json
from benchmarks.paired import Setting, play, ratio
from benchmarks.rivals.bounded import AnchorTS, EllipsoidalMinUCB, HybridLinUCB
from benchmarks.rivals.data import DATA, DataCell, DataSetting
from benchmarks.rivals.deconfounded import DeconfoundedWarmStart
from benchmarks.rivals.floor import floor_regret
from benchmarks.rivals.practice import ArrowCB, FrozenRidge, ImputedStart, ZeroStart
from benchmarks.synthetic import Cell

RESULTS = Path(__file__).parents[2] / "results" / "rivals"
EARLY = 200
FIRST_TUNING_SEED = 10_000
WIDTHS = (0.1, 0.3, 1.0)
PRIORS = (0.1, 1.0, 10.0)

#: name → class, and the values that are tried of each of its settings
RIVALS: dict[str, tuple[type, dict[str, tuple[float, ...]]]] = {
    "deconfounded TS": (DeconfoundedWarmStart, {"alpha": (0.1, 0.3, 1.0), "regularization": (0.1, 1.0)}),
    "ellipsoidal": (EllipsoidalMinUCB, {"alpha": WIDTHS, "regularization": (1.0,), "bias": (0.03, 0.3, 3.0)}),
    "hybrid": (HybridLinUCB, {"alpha": WIDTHS, "regularization": (1.0,), "bias": (0.1, 1.0, 10.0)}),
    "anchor TS": (AnchorTS, {"alpha": WIDTHS, "regularization": PRIORS}),
    "arrow": (ArrowCB, {"alpha": (0.03, 0.1, 0.3, 1.0), "regularization": (1.0,)}),
    "zeros": (ZeroStart, {"alpha": WIDTHS, "regularization": PRIORS}),
    "imputed": (ImputedStart, {"alpha": WIDTHS, "regularization": PRIORS}),
    "frozen": (FrozenRidge, {"regularization": (1.0,)}),
}


def setting_of(cell: Cell | DataCell, seed: int, rounds: int) -> Any:
    """What the learners of one seed share."""
    return DataSetting(cell, seed, rounds) if isinstance(cell, DataCell) else Setting(cell, seed, rounds)


def folder_of(cell: Cell | DataCell, rounds: int, state: str | None) -> Path:
    """Where a cell's results are: of the rivals, or of Sidelight at one state of ``src/``."""
    safe = "".join(c if c.isalnum() else "_" for c in cell.name)
    return RESULTS / ("rivals" if state is None else state) / f"{safe}-{cell.digest}-{rounds}"


def read(path: Path) -> dict[str, Any]:
    """A result file; empty if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def marks(regret: np.ndarray) -> dict[str, float]:
    """Regret at round 200 and at the end."""
    return {"early": float(regret[min(EARLY, len(regret)) - 1]), "end": float(regret[-1])}


def tuned(name: str, cell: Cell | DataCell, rounds: int, seeds: int) -> dict[str, float]:
    """The settings of a rival with the smallest mean regret in this cell, on seeds of their own."""
    path = folder_of(cell, rounds, None) / f"tuning-{seeds}.json"
    known = read(path)
    if name not in known:
        kind, grid = RIVALS[name]
        choices = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        means = []
        for values in choices:
            regrets = []
            for seed in range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + seeds):
                setting = setting_of(cell, seed, rounds)
                regrets.append(play(kind(setting.summary, **values), setting)[-1])
            means.append(float(np.mean(regrets)))
        known[name] = choices[int(np.argmin(means))]
        write_json(path, known)
    return known[name]


def run_seed(cell: Cell | DataCell, seed: int, rounds: int, tuning: int, state: str) -> None:
    """Everything of one seed that is not stored yet."""
    setting = setting_of(cell, seed, rounds)
    path = folder_of(cell, rounds, None) / f"{seed}.json"
    have = read(path)
    for name, (kind, _) in RIVALS.items():
        if name not in have:
            have[name] = marks(play(kind(setting.summary, **tuned(name, cell, rounds, tuning)), setting))
            write_json(path, have)
    if "floor" not in have and isinstance(cell, Cell):  # a data set has no prior that weights are drawn from
        have["floor"] = marks(floor_regret(setting))
        write_json(path, have)
    path = folder_of(cell, rounds, state) / f"{seed}.json"
    if not path.exists():
        learner = sl.FusedOFUL([sl.BehaviorQueries(summary) for summary in setting.summaries])
        write_json(path, {"fused": marks(play(learner, setting))})


def collected(cell: Cell | DataCell, rounds: int, seeds: range, state: str) -> list[dict[str, Any]]:
    """For each seed that has both, the records of rivals, floor and fused."""
    out = []
    for seed in seeds:
        theirs = read(folder_of(cell, rounds, None) / f"{seed}.json")
        ours = read(folder_of(cell, rounds, state) / f"{seed}.json")
        if theirs and ours:
            out.append({**theirs, **ours})
    return out


def line(cell: Cell | DataCell, records: list[dict[str, Any]], mark: str) -> tuple[str, float]:
    """A row of the table, and the upper end of the ratio to the best rival."""
    of = {name: np.array([r.get(name, {}).get(mark, np.nan) for r in records]) for name in ("fused", "floor", *RIVALS)}
    best = min(RIVALS, key=lambda name: of[name].mean())
    against = ratio(of["fused"], of[best])
    numbers = " ".join(f"{of[name].mean():10.4g}" for name in ("fused", *RIVALS, "floor"))
    return f"{cell.name:42} {numbers} | {against!s:>12} {best}", against.high


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rivals", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", nargs="+", default=list(QUICK), metavar="NAME", help="names, prefixes, or all")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--tuning", type=int, default=3, help="seeds on which settings are chosen")
    parser.add_argument("--rounds", type=int, default=2_000)
    parser.add_argument("--print", action="store_true", help="run nothing")
    parser.add_argument("--state", default=source_hash(), help="the state of src/ whose results are shown")
    given = parser.parse_args(arguments)
    cells: list[Cell | DataCell] = [
        cell for name, cell in CELLS.items() if any(w in ("all", name) or name.startswith(w) for w in given.cells)
    ]
    cells += [cell for name, cell in DATA.items() if any(w in ("all", "data", name) for w in given.cells)]
    if not cells:
        raise SystemExit(f"No cell begins with {' or '.join(given.cells)}; see python -m benchmarks.zoo --list.")
    seeds = range(given.seeds)
    print(f"src/ at {given.state}; {len(cells)} cells, {given.seeds} seeds, {given.rounds} rounds")
    print(f"{'cell':42} " + " ".join(f"{name[:10]:>10}" for name in ("fused", *RIVALS, "floor")) + " |  to the best")
    started, ends = time.perf_counter(), []
    for number, cell in enumerate(cells, start=1):
        if not given.print:
            with threadpool_limits(1):
                for seed in seeds:
                    run_seed(cell, seed, given.rounds, given.tuning, given.state)
        records = collected(cell, given.rounds, seeds, given.state)
        if not records:
            continue
        early, _ = line(cell, records, "early")
        text, high = line(cell, records, "end")
        ends.append(high)
        print(f"{early}   (round {EARLY})")
        left = (time.perf_counter() - started) / number * (len(cells) - number)
        print(text + ("" if given.print else f"   ({left / 60:.0f} min left)"), flush=True)
    finite = [high for high in ends if math.isfinite(high)]
    if finite:
        within = sum(high <= 1.05 for high in finite)
        print(f"\nupper end of the ratio to the best rival: at most 1.05 in {within} of {len(finite)} cells, ", end="")
        print(f"at most 1.10 in {sum(high <= 1.10 for high in finite)}, largest {max(finite):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
