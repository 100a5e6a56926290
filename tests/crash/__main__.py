"""``make crash``: every prefix of a recorded session, with any part of what was not synced, and every sync failing."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.crash.states import SYNC, build, explore, record


def main() -> int:
    """The command."""
    options = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    options.add_argument("--rounds", type=int, default=4, help="decisions in each part of the session")
    options.add_argument("--subsets", type=int, default=40, help="random subsets of unsynced writes at each point")
    options.add_argument("--syncs", type=int, default=0, help="syncs that fail, evenly spread; 0 for every one")
    given = options.parse_args()
    rng = np.random.default_rng(0)
    began, total, wrong = time.monotonic(), 0, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build(folder)

        def run(what: str, fail: int, subsets: int, every: int) -> int:
            nonlocal total
            work = folder / f"session-{fail}"
            work.mkdir()
            ops = record(library, work, rounds=given.rounds, fail_sync=fail)
            states, found = explore(ops, rng, subsets=subsets, every=every)
            total += states
            wrong.extend(f"{what}: {line}" for line in found)
            print(f"{what}: {len(ops)} operations, {states} states, {len(found)} wrong", flush=True)
            return sum(op.what == SYNC and op.file != "acks" for op in ops)

        syncs = run("power cuts", 0, given.subsets, 1)
        step = 1 if not given.syncs else max(syncs // given.syncs, 1)
        for fail in range(1, syncs + 1, step):
            run(f"sync {fail} fails", fail, 2, 11)
    print(*wrong, sep="\n")
    print(f"{total} states, {len(wrong)} wrong, {time.monotonic() - began:.0f} s")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
