"""What is run for a cell of the table, and where it is kept.

Results are small JSON files below ``results/rivals/``, one for each seed and one for each rival's tuning, so that a run
that was stopped goes on where it stood and two processes can share a cell. Rivals are kept by a hash of their own code,
Sidelight by the state of ``src/``.
"""

from __future__ import annotations

import ast
import hashlib
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import sidelight as sl
from benchmarks.evidence import write_json
from benchmarks.paired import Setting, play
from benchmarks.rivals.bounded import AnchorTS, EllipsoidalMinUCB, HybridLinUCB
from benchmarks.rivals.data import DataCell, DataSetting
from benchmarks.rivals.deconfounded import DeconfoundedWarmStart
from benchmarks.rivals.floor import floor_regret, told_everything
from benchmarks.rivals.packages import PACKAGES, package_regret
from benchmarks.rivals.practice import ArrowCB, FrozenRidge, ImputedStart, ZeroStart
from benchmarks.rivals.ridge import in_standard_units, noise_of
from benchmarks.synthetic import Cell

Array = Any
AnyCell = Cell | DataCell
AnySetting = Setting | DataSetting

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "results" / "rivals"
EARLY = 200
FIRST_TUNING_SEED = 10_000
WIDTHS = (0.1, 0.3, 1.0, 3.0)
PRIORS = (0.1, 1.0, 10.0)

#: name → class, and the values that are tried of each of its settings; every rival that learns has the same ridges
RIVALS: dict[str, tuple[type, dict[str, tuple[float, ...]]]] = {
    "deconfounded TS": (DeconfoundedWarmStart, {"alpha": WIDTHS, "regularization": PRIORS, "penalty": (0.1, 1.1)}),
    "ellipsoidal": (EllipsoidalMinUCB, {"alpha": WIDTHS, "regularization": PRIORS, "bias": (0.03, 0.3, 3.0)}),
    "hybrid": (HybridLinUCB, {"alpha": WIDTHS, "regularization": PRIORS, "bias": (0.1, 1.0, 10.0)}),
    "anchor TS": (AnchorTS, {"alpha": WIDTHS, "regularization": PRIORS}),
    "arrow": (
        ArrowCB,
        {"alpha": (0.0125, 0.05, 0.3), "regularization": PRIORS, "decay": (0.0, 1.0 / 3.0), "minimax": (0.0, 1.0)},
    ),
    "zeros": (ZeroStart, {"alpha": WIDTHS, "regularization": PRIORS}),
    "imputed": (ImputedStart, {"alpha": WIDTHS, "regularization": PRIORS}),
    "frozen": (FrozenRidge, {"regularization": (1.0,)}),
}
#: the default learner, and what of its regret is the price of what
OURS: dict[str, Callable[[Setting | DataSetting], Any]] = {
    "fused": lambda s: sl.FusedOFUL([sl.BehaviorQueries(summary) for summary in s.summaries]),
    "safety off": lambda s: sl.FusedOFUL([sl.BehaviorQueries(summary) for summary in s.summaries], safety=0.0),
    "R12 known": lambda s: sl.FusedOFUL(
        [sl.KnownCrossMoments(summary, s.world.cross_moments(summary.schema)) for summary in s.summaries]
    ),
    "100 rows": lambda s: sl.FusedOFUL(
        [sl.BehaviorQueries(summary) for summary in s.summaries], bias_bound=0.1 * noise_of(s.summary)
    ),
    "10 rows": lambda s: sl.FusedOFUL(
        [sl.BehaviorQueries(summary) for summary in s.summaries], bias_bound=0.1**0.5 * noise_of(s.summary)
    ),
    "prior given": lambda s: sl.FusedOFUL([sl.BehaviorQueries(summary) for summary in s.summaries], regularization=1.0),
    "no log": lambda s: sl.OFUL(
        s.summary.n_arms, s.summary.n_features, regularization="auto", radius="posterior", schema=s.summary.schema
    ),
    "no log, ridge 10": lambda s: sl.OFUL(
        s.summary.n_arms,
        s.summary.n_features,
        regularization=10.0,
        noise=noise_of(s.summary),
        alpha=0.1,
        radius="posterior",
        schema=s.summary.schema,
    ),
}


@lru_cache(maxsize=8)
def setting_of(cell: AnyCell, seed: int, rounds: int) -> AnySetting:
    """What the learners of one seed share, logs and draws with it: rivals are tuned one after the other on the same."""
    return DataSetting(cell, seed, rounds) if isinstance(cell, DataCell) else Setting(cell, seed, rounds)


FLOOR_CODE = ("rivals/floor",)
PACKAGE_CODE = ("rivals/package_loop", "rivals/packages", "rivals/ridge")
WORLD_CODE = ("paired", "synthetic")
DATA_CODE = ("paired", "rivals/data", "rivals/tables")


@cache
def code_hash(names: tuple[str, ...]) -> str:
    """Eight hex digits of modules below ``benchmarks/``, docstrings and comments left out."""
    digest = hashlib.sha256()
    for name in names:
        tree = ast.parse((HERE.parent / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        digest.update(ast.unparse(tree).encode())
    return digest.hexdigest()[:8]


def kept_as(name: str, cell: AnyCell, state: str) -> str:
    """The folder of a learner's or rival's results: what they depend on, its own module and the cell's."""
    if name in OURS:
        return state
    if name == "floor":
        kind, code = "floor", FLOOR_CODE
    elif name in PACKAGES:
        kind, code = "packages", PACKAGE_CODE
    else:
        kind = RIVALS[name][0].__module__.rpartition(".")[2]
        code = (f"rivals/{kind}", "rivals/ridge")
    # chosen settings depend on what was tried
    tried = "" if name == "floor" else "-" + hashlib.sha256(repr(grid_of(name)).encode()).hexdigest()[:4]
    return f"{kind}-{code_hash((*code, *(DATA_CODE if isinstance(cell, DataCell) else WORLD_CODE)))}{tried}"


def folder_of(cell: AnyCell, rounds: int, kind: str) -> Path:
    """Where a cell's results of one kind (see ``kept_as``) are."""
    safe = "".join(c if c.isalnum() else "_" for c in cell.name)
    return RESULTS / kind / f"{safe}-{cell.digest}-{rounds}"


def read(path: Path) -> dict[str, Any]:
    """A result file; empty if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def regret_of(name: str, values: dict[str, float], setting: AnySetting) -> Array:
    """Cumulative regret (rounds,) of a rival with these settings, told the world's units."""
    unit = 1.0
    if isinstance(setting, Setting):
        unit, told = setting.cell.reward_unit, in_standard_units(setting.cell)
        if told != setting.cell:
            setting = setting_of(told, setting.seed, setting.rounds)
    if name in PACKAGES:
        return unit * package_regret(name, setting, values)
    return unit * play(RIVALS[name][0](setting.summary, **values), setting)


def grid_of(name: str) -> dict[str, tuple[float, ...]]:
    """The values that are tried of each setting of a rival."""
    return PACKAGES[name][2] if name in PACKAGES else RIVALS[name][1]


def tuning_file(name: str, cell: AnyCell, rounds: int, seeds: int) -> Path:
    """Where the chosen settings of a rival in a cell are kept."""
    safe = "".join(c if c.isalnum() else "_" for c in name)
    return folder_of(cell, rounds, kept_as(name, cell, "")) / f"tuning-{seeds}-{safe}.json"


def tuned(name: str, cell: AnyCell, rounds: int, seeds: int) -> dict[str, float]:
    """The settings of a rival with the smallest mean regret in this cell, on seeds that no row of the table uses."""
    path = tuning_file(name, cell, rounds, seeds)
    known = read(path)
    if not known:
        started, grid = time.perf_counter(), grid_of(name)
        choices = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        totals = np.zeros(len(choices))
        if len(choices) > 1:
            for seed in range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + seeds):
                setting = setting_of(cell, seed, rounds)
                totals += [regret_of(name, values, setting)[-1] for values in choices]
        known = {"settings": choices[int(np.argmin(totals))], "seconds": time.perf_counter() - started}
        write_json(path, known)
    return known["settings"]


def tuned_regret(name: str, setting: AnySetting, plan: Plan) -> Array:
    """Cumulative regret (rounds,) of a rival with the settings that were best for it in this cell."""
    return regret_of(name, tuned(name, setting.cell, plan.rounds, plan.tuning), setting)


@dataclass(frozen=True)
class Plan:
    """What a run is asked for: rounds, tuning seeds, the state of ``src/``, the names of learners and rivals, and the
    seeds as arguments of the command line."""

    rounds: int
    tuning: int
    state: str
    ours: tuple[str, ...]
    rivals: tuple[str, ...]
    chosen: str = ""


def kept(name: str, cell: AnyCell, seed: int, plan: Plan, run: Callable[[], Array]) -> None:
    """Regret at round 200 and at the end, and the seconds it took, added to the seed's result file unless there."""
    path = folder_of(cell, plan.rounds, kept_as(name, cell, plan.state)) / f"{seed}.json"
    have = read(path)
    if name not in have:
        started = time.perf_counter()
        regret = run()
        have[name] = {
            "early": float(regret[min(EARLY, len(regret)) - 1]),
            "end": float(regret[-1]),
            "seconds": round(time.perf_counter() - started, 3),
        }
        write_json(path, have)


def run_seed(cell: AnyCell, seed: int, plan: Plan) -> str:
    """Everything of one seed that is not stored yet, on one core; its name."""
    setting = setting_of(cell, seed, plan.rounds)
    with threadpool_limits(1):
        for name in plan.rivals:
            kept(name, cell, seed, plan, partial(tuned_regret, name, setting, plan))
        bound = told_everything if isinstance(setting, DataSetting) else floor_regret
        kept("floor", cell, seed, plan, partial(bound, setting))
        for name in plan.ours:
            if name != "R12 known" or isinstance(cell, Cell):  # a data set's R12 is known to nobody
                kept(name, cell, seed, plan, lambda name=name: play(OURS[name](setting), setting))
    return f"{cell.name}, seed {seed}"


def stored(cell: AnyCell, seed: int, rounds: int, state: str) -> dict[str, Any]:
    """Everything that is kept of one seed: name → record."""
    kinds = {kept_as(name, cell, state) for name in ("fused", "floor", *RIVALS, *PACKAGES)}
    return {
        name: record
        for kind in sorted(kinds)
        for name, record in read(folder_of(cell, rounds, kind) / f"{seed}.json").items()
    }


def seeds_of(cell: AnyCell, rounds: int, state: str) -> list[int]:
    """The seeds of a cell that Sidelight was run with at this state."""
    return sorted(int(path.stem) for path in folder_of(cell, rounds, state).glob("*.json"))


def collected(cell: AnyCell, rounds: int, seeds: Iterable[int], state: str) -> list[dict[str, Any]]:
    """For each seed that has both, the records of rivals, floor and Sidelight."""
    found = [stored(cell, seed, rounds, state) for seed in seeds]
    return [records for records in found if "fused" in records and all(name in records for name in RIVALS)]


def missing_seconds(cells: list[AnyCell], seeds: range, plan: Plan) -> tuple[float, int]:
    """Processor seconds that a run would still take, by what the same work took in this cell or else in others, and how
    many pieces of it have never been timed."""
    timed: dict[tuple[str, str], list[float]] = {}
    todo: list[tuple[str, str]] = []

    def look(what: str, cell: AnyCell, record: dict[str, Any] | None) -> None:
        if record:
            timed.setdefault((what, cell.name), []).append(record["seconds"])
        else:
            todo.append((what, cell.name))

    for cell in cells:
        for name in plan.rivals:
            look(f"tuning {name}", cell, read(tuning_file(name, cell, plan.rounds, plan.tuning)))
        for seed in seeds:
            have = stored(cell, seed, plan.rounds, plan.state)
            for name in (*plan.rivals, "floor", *plan.ours):
                look(name, cell, have.get(name))
    anywhere: dict[str, list[float]] = {}
    for (what, _), seconds in timed.items():
        anywhere.setdefault(what, []).extend(seconds)
    known = [np.mean(timed.get(piece) or anywhere[piece[0]]) for piece in todo if piece[0] in anywhere]
    return float(np.sum(known)), len(todo) - len(known)
