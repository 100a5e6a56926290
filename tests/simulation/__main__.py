"""``make simulate SEEDS=2000``: run seeds, or look for the planted faults; a failing seed is shown with fewer steps."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.checks import failures, failures_of, shrink
from tests.simulation.faults import FAULTS, planted
from tests.simulation.world import draw_plan


def find(name: str, start: int, seeds: int) -> int | None:
    """The first seed that finds a fault."""
    for seed in range(start, start + seeds):
        with planted(name):
            if failures(seed):
                return seed
    return None


def main() -> int:
    """The command."""
    options = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    options.add_argument("--seeds", type=int, default=200, help="how many")
    options.add_argument("--start", type=int, default=0, help="the first; with --seeds 1 a run is repeated")
    options.add_argument("--workers", type=int, default=1, help="processes")
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
    seeds = range(given.start, given.start + given.seeds)
    wrong: dict[int, list[str]] = {}
    with ProcessPoolExecutor(given.workers) as pool:
        for seed, found in zip(seeds, pool.map(failures, seeds, chunksize=4), strict=True):
            if found:
                wrong[seed] = found
                print(f"seed {seed}: " + "; ".join(found[:3]), flush=True)
    print(f"{len(seeds)} seeds, {len(wrong)} failed, {time.monotonic() - began:.0f} s")
    if wrong:
        smallest = shrink(draw_plan(min(wrong)))
        print(f"seed {smallest.seed} with {len(smallest.steps)} steps:", *smallest.steps, sep="\n  ")
        print("; ".join(failures_of(smallest)))
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
