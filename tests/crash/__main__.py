"""``make crash``: every prefix of a recorded session, with any part of what was not synced, and every sync failing."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.crash.states import SYNC, Op, build, explore, record

#: seconds between two lines of progress
_EVERY = 30.0


class Reporter:
    """Says every half minute how far a part has come, and how long the rest of it takes at that pace."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._began = self._told = time.monotonic()

    def __call__(self, done: int, of: int) -> None:
        """``done`` operations of ``of`` were looked at."""
        now = time.monotonic()
        if now - self._told >= _EVERY:
            self._told = now
            rest = (now - self._began) * (of - done) / done
            print(f"  {self.what}: {done} of {of} operations, about {rest / 60:.0f} min to go", flush=True)


def main() -> int:
    """The command."""
    options = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    options.add_argument("--rounds", type=int, default=4, help="decisions in each part of the session")
    options.add_argument("--subsets", type=int, default=40, help="random subsets of unsynced writes at each point")
    options.add_argument("--every", type=int, default=1, help="operations between two points that are looked at")
    options.add_argument("--syncs", type=int, default=0, help="syncs that fail, evenly spread; 0 for every one")
    given = options.parse_args()
    rng = np.random.default_rng(0)
    began, total, wrong = time.monotonic(), 0, list[str]()

    def check(what: str, ops: list[Op], first: int, survives: Callable[[], bool] | None = None) -> None:
        nonlocal total
        states, found = explore(
            ops,
            rng,
            subsets=given.subsets,
            every=given.every,
            first=first,
            survives=survives,
            progress=Reporter(what),
        )
        total += states
        wrong.extend(f"{what}: {line}" for line in found)
        print(f"{what}: {len(ops) - first} operations, {states} states, {len(found)} wrong", flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build(folder)

        def recorded(fail: int) -> list[Op]:
            work = folder / f"session-{fail}"
            work.mkdir()
            return record(library, work, rounds=given.rounds, fail_sync=fail)

        session = recorded(0)
        check("power cuts", session, 0)
        syncs = sum(op.what == SYNC and op.file != "acks" for op in session)
        step = 1 if not given.syncs else max(syncs // given.syncs, 1)
        for fail in range(1, syncs + 1, step):
            ops = recorded(fail)
            # up to there the session is the one above
            first = next((i for i, op in enumerate(ops) if op.failed), len(ops) - 1)
            check(f"sync {fail} of {syncs} fails, nothing before it is on disk", ops, first)
            check(f"sync {fail} of {syncs} fails, half before it is on disk", ops, first, lambda: rng.random() < 0.5)
    print(*wrong, sep="\n")
    print(f"{total} states, {len(wrong)} wrong, {time.monotonic() - began:.0f} s")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
