"""``make simulate SEEDS=2000``: run seeds, or look for the planted faults; a failing seed is shown with fewer steps."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.simulation.checks import failures, failures_of, shrink
from tests.simulation.faults import FAULTS, planted
from tests.simulation.plans import draw_plan


def find(name: str, start: int, seeds: int) -> int | None:
    """The first seed that finds a fault."""
    for seed in range(start, start + seeds):
        with planted(name):
            if failures(seed):
                return seed
    return None


def run_seed(seed: int) -> list[str]:
    """What is wrong with the run of a seed; the collector of cycles would take a tenth of the time."""
    gc.disable()
    try:
        return failures(seed)
    finally:
        if seed % 16 == 0:
            gc.collect()


def main() -> int:
    """The command."""
    options = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    options.add_argument("--seeds", type=int, default=200, help="how many")
    options.add_argument("--start", type=int, default=0, help="the first; with --seeds 1 a run is repeated")
    options.add_argument("--workers", type=int, default=1, help="processes")
    options.add_argument("--done", type=Path, help="a file of seeds that went well: they are skipped, new ones added")
    options.add_argument("--faults", nargs="*", help="look for planted faults instead; all of them, or those named")
    given = options.parse_args()
    began = time.monotonic()
    if given.faults is not None:
        missed = 0
        for name in given.faults or FAULTS:
            seed = find(name, given.start, given.seeds)
            missed += seed is None
            print(f"{name}: {'NOT FOUND' if seed is None else f'found by seed {seed}'}", flush=True)
        return min(missed, 1)
    before = set(given.done.read_text().split()) if given.done is not None and given.done.exists() else set()
    seeds = [seed for seed in range(given.start, given.start + given.seeds) if str(seed) not in before]
    wrong: dict[int, list[str]] = {}
    with ProcessPoolExecutor(given.workers) as pool, open(given.done or os.devnull, "a") as done:
        for seed, found in zip(seeds, pool.map(run_seed, seeds, chunksize=4), strict=True):
            if found:
                wrong[seed] = found
                print(f"seed {seed}: " + "; ".join(found[:3]), flush=True)
            else:
                print(seed, file=done, flush=True)
    print(f"{len(seeds)} seeds, {len(wrong)} failed, {time.monotonic() - began:.0f} s")
    if wrong:
        smallest = shrink(draw_plan(min(wrong)))
        print(f"seed {smallest.seed} with {len(smallest.steps)} steps:", *smallest.steps, sep="\n  ")
        print("; ".join(failures_of(smallest)))
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
