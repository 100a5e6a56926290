"""Regret of the fused learner against its bars: worlds × log sizes × methods, paired, until the ratios are known.

    python -m benchmarks.regret                      every group, from stored results where they exist
    python -m benchmarks.regret --only paper_text    one group
    python -m benchmarks.regret --only grid --match "K = 2,"    the cells of a group whose name has this in it
    python -m benchmarks.regret --print              nothing is run, the tables are printed from the result files
    python -m benchmarks.regret --print --write      and kept in docs/measurements/regret.csv, and its pages written

Every seed draws its own world, log, contexts, noise and old-policy answers, which all methods of the seed share.
Seeds are added until the 95 % half-width of a mean ratio is at most 3 % (or ``--max-seeds``).  The fused learner has
default arguments only.  "The same prior" is ``regularization="auto", noise="auto", radius="posterior"``.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import sidelight as sl
from benchmarks.evidence import source_hash
from benchmarks.regret_pages import COLUMNS, EARLY_COLUMNS, EARLY_FIGURES, Row, book, keep, write, write_pages

RESULTS = Path("results/regret")
MARKS = (25, 100, 400, 1_500, 5_000)
AUTO: dict[str, Any] = {"regularization": "auto", "noise": "auto", "radius": "posterior"}
RUNNING_GRID = [(lam, alpha) for lam in (0.1, 1.0, 5.0, 25.0) for alpha in (0.1, 1.0)]
ZERO_GRID = (0.1, 0.3, 1.0, 3.0)


def _without_cross(run: sl.Run) -> Any:
    summary = completed(run.summary)
    m = summary.n_features - summary.n_recorded
    return sl.ProjectedOFUL(
        sl.SideInformation.structured(summary, np.zeros((summary.n_arms, summary.n_recorded, m))), **AUTO
    )


def completed(summary: sl.LogSummary) -> sl.LogSummary:
    """The log itself, or, where an arm has too few rows for a hard learner, with L rows of almost nothing an arm.

    Hard learners refuse a log that leaves ``b_a`` open; rows ``(√10⁻³ e_i, reward 0)`` make it the (almost) shortest
    solution, which is the kindest reading of the paper there.
    """
    if summary.determined.all():
        return summary
    L, K = summary.n_recorded, summary.n_arms
    X = np.tile(math.sqrt(1e-3) * np.eye(L), (K, 1))
    arms = np.repeat(np.array(summary.arms), L)
    return summary + sl.LogSummary.from_arrays(X, arms, np.zeros(K * L), summary.schema)


def _asking(run: sl.Run) -> sl.BehaviorQueries:
    return sl.BehaviorQueries(completed(run.summary), estimator="ipw")


class RandomTenth:
    """The fused learner, asking in a random tenth of the rounds."""

    def __init__(self, run: sl.Run) -> None:
        self._learner = sl.FusedOFUL(sl.BehaviorQueries(run.summary))
        self._rng = np.random.default_rng(run.seed + 1)
        self.needs = self._learner.needs

    def wants_query(self, x: Any) -> bool:
        """Whatever the context."""
        return bool(self._rng.random() < 0.1)

    def __getattr__(self, name: str) -> Any:
        if name == "play":
            raise AttributeError(name)
        return getattr(self._learner, name)


def _ideal(run: sl.Run) -> Any:
    """The fused learner told its prior: the noise, and the mean and variance of the world's own weights."""
    w, noise = run.world.weights, run.world.noise
    return sl.FusedOFUL(
        sl.BehaviorQueries(run.summary),
        noise=noise,
        prior_mean=float(w.mean()),
        regularization=noise**2 / float(w.var()),
        safety=0.0,
    )


METHODS: dict[str, Callable[[sl.Run], Any]] = {
    "fused": lambda run: sl.FusedOFUL(sl.BehaviorQueries(run.summary)),
    "fused, told its prior, safety off": _ideal,
    "fused, safety off": lambda run: sl.FusedOFUL(sl.BehaviorQueries(run.summary), safety=0.0),
    "fused, R12 known": lambda run: sl.FusedOFUL(sl.KnownCrossMoments(run.summary, run.true_cross_moments)),
    "fused, probabilities": lambda run: sl.FusedOFUL(sl.BehaviorProbabilities(run.summary)),
    "fused, a tenth": lambda run: sl.FusedOFUL(sl.BehaviorQueries(run.summary), query_budget=run.horizon // 10),
    "fused, a random tenth": RandomTenth,
    "OFUL": lambda run: sl.OFUL(run.world.n_arms, run.world.n_features, **AUTO),
    "Algorithm 1": lambda run: sl.ProjectedOFUL(
        sl.SideInformation.from_log(completed(run.summary), run.true_cross_moments), **AUTO
    ),
    "B = 0": _without_cross,
    "every round": lambda run: sl.RunningOFUL(_asking(run), **AUTO),
    "paper": lambda run: sl.RunningOFUL(
        _asking(run),
        regularization=0.1,
        alpha=0.01,
        delta=0.01,
        noise=run.world.noise,
        radius="printed",
    ),
}
for _lam, _alpha in RUNNING_GRID:
    METHODS[f"every round, λ={_lam:g}, width {_alpha:g}"] = lambda run, lam=_lam, alpha=_alpha: sl.RunningOFUL(
        _asking(run),
        regularization=lam,
        alpha=alpha,
        noise=run.world.noise,
        radius="posterior",
    )
for _alpha in ZERO_GRID:
    METHODS[f"zero-filled, width {_alpha:g}"] = lambda run, alpha=_alpha: sl.ZeroFilledOFUL(
        run.summary, alpha=alpha, **AUTO
    )
for _lam in (0.1, 1.0, 5.0, 25.0):
    METHODS[f"fused, λ={_lam:g}"] = lambda run, lam=_lam: sl.FusedOFUL(
        sl.BehaviorQueries(run.summary), regularization=lam
    )

for _safety in (0.0, 0.03, 0.3, 1.0):
    METHODS[f"fused, safety={_safety:g}"] = lambda run, safety=_safety: sl.FusedOFUL(
        sl.BehaviorQueries(run.summary), safety=safety
    )

SAFETY = tuple(f"fused, safety={safety:g}" for safety in (0.0, 0.03, 0.3, 1.0))
EVERY_ROUND = tuple(f"every round, λ={lam:g}, width {alpha:g}" for lam, alpha in RUNNING_GRID)
ZERO = tuple(f"zero-filled, width {alpha:g}" for alpha in ZERO_GRID)
GRID = ("OFUL", "Algorithm 1", "every round", "zero-filled, width 1")
FIXED = tuple(f"fused, λ={lam:g}" for lam in (0.1, 1.0, 5.0, 25.0))


@dataclass(frozen=True)
class Bar:
    """``method``'s regret over the best of ``against`` (chosen in hindsight) must be at most ``at_most``."""

    method: str
    against: tuple[str, ...]
    at_most: float
    last_quarter: bool = False


@dataclass(frozen=True)
class Cell:
    """One world, one log size, and the bars to be met there."""

    name: str
    world: Callable[[int], Any]
    recorded: int
    log_rows: int
    horizon: int
    bars: tuple[Bar, ...]
    extra: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)

    @property
    def methods(self) -> tuple[str, ...]:
        """Every method that a bar or a line needs."""
        names = [name for bar in self.bars for name in (bar.method, *bar.against)]
        return tuple(dict.fromkeys([*names, *self.extra]))


def _paper(preset: str, **changes: Any) -> Callable[[int], Any]:
    return lambda seed: sl.worlds.PaperWorld.preset(preset, seed=seed, **changes)


def _confounded(seed: int) -> Any:
    return sl.worlds.ConfoundedWorld(seed=seed)


def _lie(lie: str, make: Callable[[int], Any], size: float) -> Callable[[int], Any]:
    return lambda seed: sl.worlds.DriftedWorld(make(seed), lie, size=size, share=1 / 3, seed=seed)


def groups() -> dict[str, list[Cell]]:
    """All cells, by group."""
    out: dict[str, list[Cell]] = {}
    text = {10**6: 0.75, 10**5: 0.4, 10**4: 0.3, 10**3: 0.4}
    out["paper_text"] = [
        Cell(
            f"paper_text, {rows:,} rows",
            _paper("paper_text"),
            25,
            rows,
            8_000,
            (Bar("fused", EVERY_ROUND, bar),),
            ("fused, safety off", "fused, told its prior, safety off"),
        )
        for rows, bar in text.items()
    ]
    out["authors_code"] = [
        Cell(
            "authors_code, 1,000,000 rows", _paper("authors_code"), 25, 10**6, 30_000, (Bar("fused", ("paper",), 0.7),)
        ),
        Cell("authors_code, 10,000 rows", _paper("authors_code"), 25, 10**4, 30_000, (Bar("fused", ("OFUL",), 1.0),)),
    ]
    out["confounded"] = [
        Cell(
            f"ConfoundedWorld, {rows:,} rows",
            _confounded,
            6,
            rows,
            5_000,
            (
                Bar("fused", ("B = 0",), 1.0),
                Bar("fused", ZERO, 1.0),
                Bar("fused", ("every round",), 1.0),
                Bar("fused, R12 known", ("Algorithm 1",), 1.0),
                Bar("fused", ("Algorithm 1",), 1.0),
                Bar("fused", ("fused, R12 known",), 1.2),
                Bar("fused, probabilities", ("fused, R12 known",), 1.05),
                Bar("fused, a tenth", ("fused",), 1.1),
                Bar("fused, a tenth", ("fused, a random tenth",), 1.0),
            ),
            ("OFUL",),
        )
        for rows in (10**3, 10**4, 10**5, 10**6)
    ]
    out["zero_filled"] = [
        Cell(
            f"paper_text, L = {recorded}, {rows:,} rows, {horizon:,} rounds",
            _paper("paper_text"),
            recorded,
            rows,
            horizon,
            (Bar("fused", ZERO, 1.0),),
        )
        for recorded, rows, horizon in (
            (25, 10**6, 30_000),
            (25, 10**4, 30_000),
            (10, 10**6, 30_000),
            (25, 10**6, 2_000),
            (25, 10**4, 2_000),
            (25, 10**3, 8_000),
        )
    ]
    lies = ("redrawn", "slandered", "shifted", "swapped", "moved")
    out["lies"] = [
        Cell(
            f"{label}, {lie}",
            _lie(lie, make, 3.0),
            recorded,
            10**6,
            100_000,
            (Bar("fused", ("OFUL",), 1.1), Bar("fused", ("OFUL",), 1.1, last_quarter=True)),
            ("fused, safety off",),
        )
        for label, make, recorded in (("paper_text", _paper("paper_text"), 25), ("ConfoundedWorld", _confounded, 6))
        for lie in lies
    ] + [
        Cell(
            f"{label}, honest", make, recorded, 10**6, 100_000, (Bar("fused", ("fused, safety off",), 1.05),), ("OFUL",)
        )
        for label, make, recorded in (("paper_text", _paper("paper_text"), 25), ("ConfoundedWorld", _confounded, 6))
    ]
    out["frontier"] = [
        Cell(
            f"{label}, {'honest' if lie is None else lie}",
            make if lie is None else _lie(lie, make, 3.0),
            recorded,
            10**5,
            30_000,
            (),
            ("OFUL", "fused", *SAFETY),
        )
        for label, make, recorded in (("paper_text", _paper("paper_text"), 25), ("ConfoundedWorld", _confounded, 6))
        for lie in (None, "slandered", "swapped")
    ]
    out["grid"] = [
        Cell(
            f"σ = {sigma:g}, L = {recorded}, K = {arms}, sharpness {sharpness:g}",
            _paper("paper_text", noise=sigma, n_arms=arms, sharpness=sharpness),
            recorded,
            10**5,
            8_000,
            (Bar("fused", GRID, 1.05), Bar("fused, R12 known", GRID, 1.05)),
            ("fused, safety off",) if arms == 2 and recorded == 29 else (),
        )
        for sigma in (0.01, 0.1, 1.0)
        for recorded in (1, 5, 15, 29)
        for arms in (2, 10, 100)
        for sharpness in (1.0, 4.0)
    ]
    out["automatic"] = [
        Cell(f"{label}, {rows:,} rows", make, recorded, rows, 8_000, (Bar("fused", FIXED, 1.5),))
        for label, make, recorded in (
            ("paper_text", _paper("paper_text"), 25),
            ("authors_code", _paper("authors_code"), 25),
            ("ConfoundedWorld", _confounded, 6),
        )
        for rows in (10**3, 10**5)
    ]
    return out


# ------------------------------------------------------------------------------------------------ running


def _path(group: str, cell: Cell, seed: int) -> Path:
    safe = "".join(c if c.isalnum() else "_" for c in cell.name)
    return RESULTS / group / f"{safe}__{seed}.parquet"


def run_seed(group: str, cell: Cell, seed: int) -> pa.Table:
    """One seed of one cell: total and last-quarter regret of every method, stored and reused."""
    path = _path(group, cell, seed)
    have = pq.read_table(path) if path.exists() else None
    known = set() if have is None else set(have["method"].to_pylist())
    missing = [name for name in cell.methods if name not in known]
    if missing:
        table = sl.simulate(
            cell.world,
            {name: METHODS[name] for name in missing},
            cell.horizon,
            recorded=cell.recorded,
            log_rows=cell.log_rows,
            seeds=[seed],
            workers=1,
            every=cell.horizon // 4,
        )
        rows = []
        for name in missing:
            part = table.filter(pc.equal(table["learner"], name))
            regret = part["regret"].to_pylist()
            last_quarter = regret[-1] - regret[-2]
            rows.append({"method": name, "regret": regret[-1], "last_quarter": last_quarter, "source": source_hash()})
        new = pa.Table.from_pylist(rows)
        have = new if have is None else pa.concat_tables([have, new], promote_options="default")
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(have, path)
    assert have is not None
    return have


def stored(group: str, cell: Cell, max_seeds: int) -> dict[str, dict[int, tuple[float, float]]]:
    """method → seed → (regret, last quarter), from the result files."""
    out: dict[str, dict[int, tuple[float, float]]] = {}
    for seed in range(max_seeds):
        path = _path(group, cell, seed)
        if path.exists():
            for row in pq.read_table(path).to_pylist():
                out.setdefault(row["method"], {})[seed] = (row["regret"], row["last_quarter"])
    return out


def sources(group: str, cells: list[Cell], max_seeds: int) -> str:
    """The states of ``src/`` that the fused learner's results come from, separated by spaces."""
    found = set()
    for path in (_path(group, cell, seed) for cell in cells for seed in range(max_seeds)):
        if path.exists():
            rows = pq.read_table(path).to_pylist()
            found |= {row.get("source") or "earlier" for row in rows if row["method"].startswith("fused")}
    return " ".join(sorted(found))


@dataclass(frozen=True)
class Ratio:
    """A ratio of mean regrets over the seeds that both have, and its 95 % half-width (delta method, paired)."""

    value: float
    half: float
    against: str
    seeds: int
    mine: float
    theirs: float

    def verdict(self, at_most: float) -> str:
        """Is the bar met, surely not, or is that not decided?"""
        if self.value + self.half <= at_most:
            return "yes"
        return "unclear" if self.value - self.half <= at_most else "no"


def ratio(results: dict[str, dict[int, tuple[float, float]]], bar: Bar) -> Ratio | None:
    """``bar.method`` against the best of ``bar.against``; None with fewer than two seeds in common."""
    column = 1 if bar.last_quarter else 0
    names = [name for name in bar.against if name in results]
    if bar.method not in results or not names:
        return None
    seeds = sorted(set(results[bar.method]).intersection(*(results[name] for name in names)))
    if len(seeds) < 2:
        return None
    means = {name: np.mean([results[name][s][column] for s in seeds]) for name in names}
    best = min(means, key=lambda name: means[name])
    a = np.array([results[bar.method][s][column] for s in seeds])
    b = np.array([results[best][s][column] for s in seeds])
    value = float(a.mean() / b.mean())
    residual = (a - value * b) / b.mean()
    from scipy.stats import t as student

    half = float(student.ppf(0.975, len(seeds) - 1) * residual.std(ddof=1) / math.sqrt(len(seeds)))
    return Ratio(value, half, best, len(seeds), float(a.mean()), float(b.mean()))


def measure(group: str, cells: list[Cell], min_seeds: int, max_seeds: int, seconds: float) -> None:
    """Add seeds to every cell until its ratios are known, the budget of seeds is used or time is up."""
    from loky import get_reusable_executor

    from sidelight.simulation import WORKER_ENVIRONMENT

    executor = get_reusable_executor(max_workers=2, env=WORKER_ENVIRONMENT)
    deadline = time.monotonic() + seconds
    for upto in range(2, max_seeds + 1, 2):
        jobs = []
        for cell in cells:
            results = stored(group, cell, max_seeds)
            half = [found.half / found.value for bar in cell.bars if (found := ratio(results, bar)) is not None]
            have = min((len(results.get(name, ())) for name in cell.methods), default=0)
            known = len(half) == len(cell.bars) and max(half, default=0.0) <= 0.03
            done = known and upto > min_seeds and have == max((len(seeds) for seeds in results.values()), default=0)
            if not done:
                jobs += [(cell, seed) for seed in range(upto) if not _complete(group, cell, seed)]
        futures = [executor.submit(run_seed, group, cell, seed) for cell, seed in jobs]
        for i, future in enumerate(futures):
            left = deadline - time.monotonic()
            if left <= 0:
                for other in futures[i:]:
                    other.cancel()
                return
            future.result()
            print(f"\r{group}: {i + 1} of {len(futures)} runs, up to {upto} seeds", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def _complete(group: str, cell: Cell, seed: int) -> bool:
    path = _path(group, cell, seed)
    return path.exists() and set(cell.methods) <= set(pq.read_table(path, columns=["method"])["method"].to_pylist())


def shown(regret: float) -> str:
    """With two decimals where it is small."""
    return f"{regret:.1f}" if regret >= 10 else f"{regret:.2f}"


def rows_of(group: str, cells: list[Cell], max_seeds: int) -> list[Row]:
    """The comparisons of a group, from the result files."""
    source, out = sources(group, cells, max_seeds), []
    for cell in cells:
        results = stored(group, cell, max_seeds)
        for bar in cell.bars:
            found = ratio(results, bar)
            if found is None:
                continue
            values = {
                "cell": cell.name + (" (last quarter)" if bar.last_quarter else ""),
                "method": bar.method,
                "against": found.against,
                "ratio": f"{found.value:.2f}",
                "low": f"{found.value - found.half:.2f}",
                "high": f"{found.value + found.half:.2f}",
                "bar": f"{bar.at_most:g}",
                "met": found.verdict(bar.at_most),
                "regret": shown(found.mine),
                "regret_against": shown(found.theirs),
                "seeds": str(found.seeds),
            }
            out.append({"group": group, **values, "source": source})
        for name in cell.extra:
            if name in results:
                mean = float(np.mean([v[0] for v in results[name].values()]))
                values = {"cell": cell.name, "method": name, "regret": shown(mean), "seeds": str(len(results[name]))}
                out.append({**dict.fromkeys(COLUMNS, ""), "group": group, **values, "source": source})
    return out


# ------------------------------------------------------------------------------- where not knowing R12 costs


def early_seed(seed: int) -> pa.Table:
    """Regret at ``MARKS`` in ConfoundedWorld with R12 known, by probabilities and by arms; stored and reused."""
    path = RESULTS / "early" / f"{seed}.parquet"
    if not path.exists():
        names = ("fused, R12 known", "fused, probabilities", "fused")
        table = sl.simulate(
            _confounded,
            {name: METHODS[name] for name in names},
            MARKS[-1],
            recorded=6,
            log_rows=10**5,
            seeds=[seed],
            workers=1,
            every=MARKS[0],
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.filter(pc.is_in(table["round"], pa.array(MARKS))), path)
    return pq.read_table(path)


def early(max_seeds: int) -> list[Row]:
    """Where not knowing R12 costs, from the result files; empty with fewer than two seeds."""
    paths = [path for seed in range(max_seeds) if (path := RESULTS / "early" / f"{seed}.parquet").exists()]
    if len(paths) < 2:
        return []
    curves: dict[str, list[list[float]]] = {}
    for path in paths:
        rows = pq.read_table(path).sort_by("round").to_pylist()
        for name in ("fused, R12 known", "fused, probabilities", "fused"):
            curves.setdefault(name, []).append([row["regret"] for row in rows if row["learner"] == name])
    known, by_probabilities, by_arms = (np.array(curve) for curve in curves.values())
    half, out = 2.0 / math.sqrt(len(paths)), []
    for i, rounds in enumerate(MARKS):
        row = {"rounds": str(rounds), "known": f"{known[:, i].mean():.1f}", "seeds": str(len(paths))}
        for name, other in (("probabilities", by_probabilities), ("arms", by_arms)):
            more = (other - known)[:, i]
            row |= {name: f"{more.mean():.1f}", f"{name}_half": f"{half * more.std(ddof=1):.1f}"}
        out.append(row)
    return out


def over_seeds(run: Callable[[int], Any], seeds: int) -> None:
    """``run`` for every seed, over processes."""
    from loky import get_reusable_executor

    from sidelight.simulation import WORKER_ENVIRONMENT

    executor = get_reusable_executor(max_workers=2, env=WORKER_ENVIRONMENT)
    for i, _ in enumerate(executor.map(run, range(seeds))):
        print(f"\r{i + 1} of {seeds} seeds", end="", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=None, help="groups to run")
    parser.add_argument("--match", default="", help="run only cells whose name has this in it")
    parser.add_argument("--print", action="store_true", help="print from the result files, run nothing")
    parser.add_argument("--min-seeds", type=int, default=4)
    parser.add_argument("--max-seeds", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=60.0, help="per group")
    parser.add_argument("--write", action="store_true", help="keep what is printed, and write the pages")
    options = parser.parse_args()
    for group, cells in groups().items():
        if options.only is not None and group not in options.only:
            continue
        if not options.print:
            wanted = [cell for cell in cells if options.match in cell.name]
            measure(group, wanted, options.min_seeds, options.max_seeds, 60.0 * options.minutes)
        rows = rows_of(group, cells, options.max_seeds)
        print(book(rows, []))
        if options.write and rows:
            keep(group, rows)
    if options.only is None or "early" in options.only:
        if not options.print:
            over_seeds(early_seed, options.max_seeds)
        found = early(options.max_seeds)
        print(book([], found))
        if options.write and found:
            write(EARLY_FIGURES, EARLY_COLUMNS, found)
    if options.write:
        write_pages()


if __name__ == "__main__":
    main()
