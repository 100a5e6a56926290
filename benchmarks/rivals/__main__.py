"""Sidelight's default learner against every rival, in the zoo's worlds and on public data, with a lower bound.

    python -m benchmarks.rivals                         the zoo's quick cells, 8 seeds, 2,000 rounds
    python -m benchmarks.rivals --cells all --seeds 32 --workers 2      a night
    python -m benchmarks.rivals --cells base units      by name or prefix; "worlds": simulated, "data": public data
                                                        sets, "fetched", "unseen": more (benchmarks/rivals/tables.py)
    python -m benchmarks.rivals --packages              also MABWiser and contextualbandits, installed by pip
    python -m benchmarks.rivals --rivals-only           nothing of Sidelight, whose results depend on src/
    python -m benchmarks.rivals --sidelight-only        nothing else, where the rivals' results are there
    python -m benchmarks.rivals --explain               where it loses, also without safety, told R12, with less log
    python -m benchmarks.rivals --plan                  nothing is run: how long a run would take
    python -m benchmarks.rivals --print                 nothing is run: the table from the result files
    python -m benchmarks.rivals --print --write         and into docs/measurements/rivals.md; --write NAME: NAME.md

Each rival's settings are chosen for each cell by its mean regret on seeds of their own (``--tuning``), which no row of
the table uses; ``fused`` has its default arguments. Seeds are paired as in the zoo, and all cells have their first seed
before any has its second. A run that was stopped goes on where it stood.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context

from benchmarks.cells import CELLS, QUICK
from benchmarks.evidence import source_hash
from benchmarks.rivals import table
from benchmarks.rivals.data import DATA, FETCHED_DATA, UNSEEN_DATA
from benchmarks.rivals.packages import PACKAGES
from benchmarks.rivals.runs import OURS, RIVALS, AnyCell, Plan, missing_seconds, run_seed


def cells_of(names: list[str]) -> list[AnyCell]:
    """The cells of these names or prefixes; a name that is whole is no prefix.

    Raises:
        SystemExit: there is none.
    """
    prefixes = tuple(name for name in names if name not in CELLS)
    cells: list[AnyCell] = [
        cell
        for name, cell in CELLS.items()
        if name in names or name.startswith(prefixes) or not {"all", "worlds"}.isdisjoint(names)
    ]
    cells += [cell for name, cell in DATA.items() if any(w in ("all", "data", name) for w in names)]
    cells += [cell for name, cell in FETCHED_DATA.items() if any(w in ("fetched", name) for w in names)]
    cells += [cell for name, cell in UNSEEN_DATA.items() if any(w in ("unseen", name) for w in names)]
    if not cells:
        raise SystemExit(f"No cell begins with {' or '.join(names)}; see python -m benchmarks.zoo --list.")
    return cells


def run(pieces: list[tuple[AnyCell, int]], plan: Plan, workers: int) -> None:
    """All pieces, saying now and then how much is left."""
    started, said = time.perf_counter(), time.perf_counter()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(run_seed, cell, seed, plan) for cell, seed in pieces]
        for done, future in enumerate(as_completed(futures), start=1):
            name = future.result()
            if time.perf_counter() - said > 30.0 or done == len(pieces):
                said = time.perf_counter()
                left = (said - started) / done * (len(pieces) - done)
                print(f"{done} of {len(pieces)} ({name}), about {left / 60:.0f} min left", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rivals", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cells", nargs="+", default=list(QUICK), metavar="NAME", help="names, prefixes, worlds, data, all"
    )
    parser.add_argument("--seeds", type=int, default=8, help="how many")
    parser.add_argument("--first-seed", type=int, default=0, metavar="N")
    parser.add_argument("--tuning", type=int, default=3, help="seeds on which settings are chosen")
    parser.add_argument("--rounds", type=int, default=2_000)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument(
        "--packages",
        nargs="*",
        choices=list(PACKAGES),
        metavar="NAME",
        help=f"also packages that practitioners use, all or of these: {'; '.join(PACKAGES)}",
    )
    parser.add_argument("--rivals-only", action="store_true", help="run nothing of Sidelight")
    parser.add_argument("--sidelight-only", action="store_true", help="run no rival: their results are there")
    parser.add_argument("--explain", action="store_true", help="run what explains a loss")
    parser.add_argument("--plan", action="store_true", help="run nothing, say how long it would take")
    parser.add_argument("--print", action="store_true", help="run nothing")
    parser.add_argument("--write", nargs="?", const="rivals", metavar="NAME", help="write docs/measurements/NAME.md")
    parser.add_argument("--state", default=source_hash(), help="the state of src/ whose results are shown")
    given = parser.parse_args(arguments)
    cells, seeds = cells_of(given.cells), range(given.first_seed, given.first_seed + given.seeds)
    rivals = () if given.sidelight_only else (*RIVALS, *(PACKAGES if given.packages == [] else given.packages or ()))
    plan = Plan(given.rounds, given.tuning, given.state, () if given.rivals_only else ("fused",), rivals)
    print(f"src/ at {given.state}; {len(cells)} cells, {given.seeds} seeds, {given.rounds} rounds")
    if given.plan:
        seconds, unknown = missing_seconds(cells, seeds, plan)
        print(f"about {seconds / 3600:.1f} hours of one core, {seconds / 3600 / given.workers:.1f} by the clock")
        if unknown:
            print(f"and {unknown} pieces of work that were never timed: run one cell first")
        return 0
    if not given.print:
        run([(cell, seed) for seed in seeds for cell in cells], plan, given.workers)
    if given.rivals_only:
        return 0
    rows = table.rows(cells, given.rounds, seeds, given.state)
    if given.explain and not given.print:
        lost = [row.cell for row in rows if row.against.high > table.BAR]
        run([(cell, seed) for seed in seeds for cell in lost], replace(plan, ours=tuple(OURS)), given.workers)
        rows = table.rows(cells, given.rounds, seeds, given.state)
    print(table.text(rows))
    if given.write:
        chosen = f"--first-seed {given.first_seed} --seeds {given.seeds} --tuning {given.tuning}"
        table.write(rows, given.write, Plan(given.rounds, given.tuning, given.state, (), (), chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
