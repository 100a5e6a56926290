"""The zoo: is the default learner ever the wrong choice on an honest log?

    python -m benchmarks.zoo                                    all cells, 8 seeds, 2,000 rounds
    python -m benchmarks.zoo --quick                            a dozen cells
    python -m benchmarks.zoo --cells "units: clinic" base       some cells; a prefix such as "units" means all of them
    python -m benchmarks.zoo --learners fused cold --seeds 64 --rounds 4000
    python -m benchmarks.zoo --print                            nothing is run: tables from the result files
    python -m benchmarks.zoo --print --markdown                 the table of docs/zoo.md
    python -m benchmarks.zoo --list

Every seed draws a world, logs, contexts, noise and answers, which all learners share. Results are kept in
``results/zoo/`` by the state of ``src/`` (``--state`` prints those of another one); a run that was stopped goes on
where it stood. ``--reuse`` takes the results of learners other than the fused ones from earlier states, if there are
any.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import sidelight as sl
from benchmarks.cells import CELLS, QUICK
from benchmarks.evidence import source_hash, write_json
from benchmarks.paired import Ratio, Setting, ratio, record
from benchmarks.regret import AUTO, completed
from benchmarks.rivals.floor import floor_regret
from benchmarks.synthetic import Cell

RESULTS = Path(__file__).parents[1] / "results" / "zoo"
EARLY = 200

Record = dict[str, Any]


def _known(setting: Setting) -> list[Any]:
    return [sl.KnownCrossMoments(s, setting.world.cross_moments(s.schema)) for s in setting.summaries]


def _known_both(setting: Setting) -> list[Any]:
    return [sl.KnownCrossMoments(s, *setting.world.moments(s.schema)) for s in setting.summaries]


def _queries(setting: Setting) -> list[Any]:
    return [sl.BehaviorQueries(summary) for summary in setting.summaries]


LEARNERS: dict[str, Callable[[Setting], Any]] = {
    "fused": lambda s: sl.FusedOFUL(_queries(s)),
    "cold": lambda s: sl.OFUL(s.world.n_arms, s.world.n_features, schema=s.summary.schema, **AUTO),
    "zeros": lambda s: sl.ZeroFilledOFUL(s.summary, **AUTO),
    "every round": lambda s: sl.RunningOFUL(sl.BehaviorQueries(completed(s.summary), estimator="ipw"), **AUTO),
    "known": lambda s: sl.FusedOFUL(_known(s)),
    # not among the defaults
    "known, R11 too": lambda s: sl.FusedOFUL(_known_both(s)),
    "newest log": lambda s: sl.FusedOFUL(sl.BehaviorQueries(s.summary)),
    "probabilities": lambda s: sl.FusedOFUL([sl.BehaviorProbabilities(summary) for summary in s.summaries]),
    "thompson": lambda s: sl.FusedThompson(_queries(s)),
    "thompson, half": lambda s: sl.FusedThompson(_queries(s), alpha=0.5),
    "safety off": lambda s: sl.FusedOFUL(_queries(s), safety=0.0),
}
#: "floor" is no learner but the lower bound of ``benchmarks/rivals/floor.py``
DEFAULT = ("fused", "cold", "zeros", "every round", "known", "floor")
SIMPLE = ("cold", "zeros", "every round")
FUSED = ("fused", "known", "known, R11 too", "newest log", "probabilities", "thompson", "thompson, half", "safety off")


# -------------------------------------------------------------------------------------------------------- running


def path_of(state: str, cell: Cell, rounds: int, seed: int) -> Path:
    """The result file of one seed of a cell."""
    safe = "".join(c if c.isalnum() else "_" for c in cell.name)
    return RESULTS / state / f"{safe}-{cell.digest}" / f"{rounds}-{seed}.json"


def read(path: Path) -> dict[str, Record]:
    """Learner → its record, from a result file; empty if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def earlier(cell: Cell, rounds: int, seed: int) -> dict[str, Record]:
    """What any earlier state of ``src/`` has of the learners that are not fused, newest first."""
    out: dict[str, Record] = {}
    folders = sorted((f for f in RESULTS.glob("*") if f.is_dir()), key=lambda f: f.stat().st_mtime, reverse=True)
    for folder in folders:
        for name, found in read(path_of(folder.name, cell, rounds, seed)).items():
            if name not in FUSED:
                out.setdefault(name, found)
    return out


def run_seed(
    cell: Cell, seed: int, rounds: int, learners: Iterable[str], state: str, reuse: bool = False
) -> dict[str, Record]:
    """All wanted learners of one seed, stored one by one; what is stored already is not run again."""
    path = path_of(state, cell, rounds, seed)
    have = read(path)
    if reuse:
        have = {**earlier(cell, rounds, seed), **have}
    setting = Setting(cell, seed, rounds)
    for name in learners:
        if "regret" not in have.get(name, {}):  # a learner that failed is tried again
            try:
                if name == "floor":
                    bound = floor_regret(setting)
                    have[name] = {"regret": {str(mark): float(bound[mark - 1]) for mark in (EARLY, rounds)}}
                else:
                    have[name] = record(LEARNERS[name], setting, (EARLY, rounds))
            except (sl.SidelightError, ArithmeticError, np.linalg.LinAlgError) as error:
                have[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
            write_json(path, have)
    return have


# -------------------------------------------------------------------------------------------------------- reading


def at(records: list[dict[str, Record]], name: str, mark: int) -> np.ndarray:
    """Regrets of a learner at a round, by seed; NaN where it failed or was not run."""
    return np.array([r.get(name, {}).get("regret", {}).get(str(mark), np.nan) for r in records])


def compare(records: list[dict[str, Record]], mine: str, theirs: str, mark: int) -> Ratio | None:
    """The paired ratio over the seeds that have both; None where the other learner has no regret at all."""
    a, b = at(records, mine, mark), at(records, theirs, mark)
    both = np.isfinite(a) & np.isfinite(b)
    return ratio(a[both], b[both]) if b[both].any() else None


def best(records: list[dict[str, Record]], mark: int) -> str:
    """Which of the simple learners has the smallest mean."""
    means = {name: np.nanmean(v) for name in SIMPLE if np.isfinite(v := at(records, name, mark)).any()}
    return min(means, key=means.__getitem__, default="cold")


def row_of(cell: Cell, records: list[dict[str, Record]], rounds: int, learner: str = "fused") -> dict[str, Any]:
    """One line of the table: what a learner did in a cell, against the others."""
    calibrations = [v for r in records for v in r.get(learner, {}).get("calibration", [])]
    doubts = [r[learner]["doubted"] for r in records if "doubted" in r.get(learner, {})]
    regret = at(records, learner, rounds)
    early, late = best(records, EARLY), best(records, rounds)
    return {
        "cell": cell.name,
        "seeds": int(np.isfinite(regret).sum()),
        "regret": float(np.nanmean(regret)) if np.isfinite(regret).any() else np.nan,
        "bound": float(np.mean(at(records, "floor", rounds))),
        "cold_early": compare(records, learner, "cold", EARLY),
        "best_early": compare(records, learner, early, EARLY),
        "best_early_is": early,
        "cold": compare(records, learner, "cold", rounds),
        "best": compare(records, learner, late, rounds),
        "best_is": late,
        "known": compare(records, learner, "known", rounds),
        "doubted": (sum(doubts), len(doubts)),
        "curved": sum("linear" in r.get(learner, {}).get("broken", ()) for r in records),
        "moving": sum("still" in r.get(learner, {}).get("broken", ()) for r in records),
        "calibration": float(np.mean(calibrations)) if calibrations else np.nan,
        "failed": sorted({f"{n}: {v['failed']}" for r in records for n, v in r.items() if "failed" in v}),
    }


HEADER = (
    f"{'cell':42} {'n':>3} {'regret':>9} {'bound':>9} | {'cold@200':>12} {'best@200':>12} {'':5} | "
    f"{'cold':>12} {'best':>12} {'':5} {'known R12':>12} | {'doubt':>6} {'curved':>6} {'moving':>6} {'calib':>6}"
)


def line(row: dict[str, Any]) -> str:
    """A row of the table as text."""
    show = {key: "–" if row[key] is None else str(row[key]) for key in row}
    doubted, of = row["doubted"]
    return (
        f"{row['cell']:42} {row['seeds']:3d} {row['regret']:9.4g} {row['bound']:9.4g} | {show['cold_early']:>12} "
        f"{show['best_early']:>12} {row['best_early_is'][:5]:5} | {show['cold']:>12} {show['best']:>12} "
        f"{row['best_is'][:5]:5} {show['known']:>12} | {doubted:>3}/{of:<3}"
        f"{row['curved']:6d} {row['moving']:6d} {row['calibration']:6.2f}"
    )


def markdown(rows: list[dict[str, Any]]) -> list[str]:
    """The table of ``docs/zoo.md``, a row for each cell."""
    out = [
        "| world | regret | to cold, round 200 | to cold | to the best of three | which | doubted | calibration |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratios = " | ".join("–" if row[key] is None else str(row[key]) for key in ("cold_early", "cold", "best"))
        doubted, of = row["doubted"]
        calibration = f"{row['calibration']:.2f}" if np.isfinite(row["calibration"]) else "–"
        out.append(
            f"| {row['cell']} | {row['regret']:.4g} | {ratios} | {row['best_is']} | {doubted} of {of} | {calibration} |"
        )
    return out


def overall(rows: list[dict[str, Any]]) -> list[str]:
    """What the issue's bars ask of all cells together."""
    out = []
    for key, words in (
        ("cold", "OFUL(auto) at the end"),
        ("best", "the best of cold, zeros, every round at the end"),
        ("best_early", f"the best of them at round {EARLY}"),
        ("known", "the same learner that knows R12"),
    ):
        have = [(r[key], r["cell"]) for r in rows if r[key] is not None]
        if have:
            worst, where = max(have, key=lambda pair: pair[0].high)
            mean = np.mean([r.value for r, _ in have])
            out.append(f"against {words}: mean ratio {mean:.2f}, largest upper end {worst.high:.2f} ({where})")
    doubted, of = (sum(r["doubted"][i] for r in rows) for i in (0, 1))
    curved, moving = (sum(r[key] for r in rows) for key in ("curved", "moving"))
    out.append(f"honest logs doubted in {doubted} of {of} runs, called curved in {curved}, moving in {moving}")
    return out


def seconds(found: Iterable[list[dict[str, Record]]]) -> str:
    """Where the time went: seconds by learner over all stored runs."""
    spent: dict[str, list[float]] = {}
    for records in found:
        for r in records:
            for name, entry in r.items():
                spent.setdefault(name, []).append(entry.get("seconds", 0.0))
    parts = [f"{name} {sum(s):.0f} s ({1e3 * np.mean(s):.0f} ms a run)" for name, s in spent.items()]
    return "time: " + ", ".join(parts)


def chosen(wanted: list[str], quick: bool) -> list[Cell]:
    """The cells that are named, by name or prefix."""
    if not wanted:
        return [CELLS[name] for name in (QUICK if quick else CELLS)]
    out = []
    for name in wanted:
        found = [CELLS[name]] if name in CELLS else [c for key, c in CELLS.items() if key.startswith(name)]
        if not found:
            raise SystemExit(f"No cell called {name!r} or starting with it; see --list.")
        out += found
    return list(dict.fromkeys(out))


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.zoo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", nargs="+", default=[], metavar="NAME", help="names of cells, or prefixes of them")
    parser.add_argument("--quick", action="store_true", help="a dozen cells")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0, help="number of the first seed")
    parser.add_argument("--rounds", type=int, default=2_000)
    parser.add_argument("--learners", nargs="+", default=list(DEFAULT), metavar="NAME", help=", ".join(LEARNERS))
    parser.add_argument("--reuse", action="store_true", help="take other learners' results from earlier states")
    parser.add_argument("--print", action="store_true", help="run nothing")
    parser.add_argument("--markdown", action="store_true", help="end with the table as Markdown")
    parser.add_argument(
        "--state", default=source_hash(), help="the state of src/ whose results are shown (with --print)"
    )
    parser.add_argument("--list", action="store_true", help="list the cells and stop")
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(CELLS))
        return 0
    unknown = sorted(set(given.learners) - {*LEARNERS, "floor"})
    if unknown:
        print(f"No learner called {', '.join(unknown)}; there are {', '.join(LEARNERS)}.", file=sys.stderr)
        return 2
    cells, seeds = chosen(given.cells, given.quick), range(given.first_seed, given.first_seed + given.seeds)
    print(f"src/ at {given.state}, {len(cells)} cells, {len(seeds)} seeds, {given.rounds} rounds\n{HEADER}", flush=True)
    rows, everything, started = [], [], time.perf_counter()
    for cell in cells:
        if given.print:
            records = [read(path_of(given.state, cell, given.rounds, seed)) for seed in seeds]
        else:
            with threadpool_limits(1):
                records = [
                    run_seed(cell, seed, given.rounds, given.learners, given.state, given.reuse) for seed in seeds
                ]
        if not any(records):
            continue
        everything.append(records)
        rows.append(row_of(cell, records, given.rounds))
        print(line(rows[-1]), flush=True)
        for name in (name for name in given.learners if name not in DEFAULT):
            early, late = (compare(records, "fused", name, mark) for mark in (EARLY, given.rounds))
            print(f"    against {name!r}: {early} at round {EARLY}, {late} at the end", flush=True)
        for failure in rows[-1]["failed"]:
            print(f"    failed: {failure}", flush=True)
    if rows:
        print("\n".join(["", *overall(rows), seconds(everything)]))
        print(f"{time.perf_counter() - started:.0f} s in all")
        if given.markdown:
            print("\n".join(["", *markdown(rows)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
