"""``make crash``: every prefix of a recorded session, with any part of what was not synced, and every sync failing."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.crash.states import SYNC, Op, build, explore, record

#: operations of the session in one part: a part is what one process looks at
_PART = 60


@dataclass(frozen=True)
class Part:
    """One piece of the search. Its random choices depend on its number alone, not on which process looks at it."""

    number: int
    what: str
    #: the sync that fails; 0 for none
    fail: int = 0
    #: the operations to look at; with a failing sync all from there on
    first: int = 0
    last: int | None = None
    #: of the writes before a sync that failed, half have reached the disk all the same, and not none of them
    half: bool = False


@dataclass(frozen=True)
class Search:
    """How a part is looked at."""

    library: Path
    rounds: int
    subsets: int
    every: int
    #: what a session writes in which no sync fails
    session: list[Op]

    def __call__(self, part: Part) -> tuple[int, list[str]]:
        """How many different states the part has, and what is wrong with any of them."""
        ops, first, rng = self.session, part.first, np.random.default_rng(part.number)
        if part.fail:
            ops = recorded(self.library, self.rounds, part.fail)
            # up to there the session is the one in which no sync fails
            first = next((i for i, op in enumerate(ops) if op.failed), len(ops) - 1)
        survives = (lambda: rng.random() < 0.5) if part.half else None
        return explore(ops, rng, subsets=self.subsets, every=self.every, first=first, last=part.last, survives=survives)


def recorded(library: Path, rounds: int, fail: int) -> list[Op]:
    """What a session writes when its sync number ``fail`` fails; 0 for none."""
    with tempfile.TemporaryDirectory() as work:
        return record(library, Path(work), rounds=rounds, fail_sync=fail)


def parts_of(session: list[Op], syncs: int) -> list[Part]:
    """The parts of the search: power cuts in pieces of the session, then ``syncs`` syncs that fail (0: every one)."""
    made: list[Part] = []
    for first in range(0, len(session), _PART):
        last = min(first + _PART, len(session)) - 1
        made.append(Part(len(made), f"power cuts after operations {first} to {last}", first=first, last=last))
    count = sum(op.what == SYNC and op.file != "acks" for op in session)
    for fail in range(1, count + 1, max(count // syncs, 1) if syncs else 1):
        for half in (False, True):
            what = f"sync {fail} of {count} fails, {'half' if half else 'nothing'} before it is on disk"
            made.append(Part(len(made), what, fail=fail, half=half))
    return made


def main() -> int:
    """The command."""
    options = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    options.add_argument("--rounds", type=int, default=4, help="decisions in each part of the session")
    options.add_argument("--subsets", type=int, default=8, help="random subsets of unsynced writes at each point")
    options.add_argument("--every", type=int, default=1, help="operations between two points that are looked at")
    options.add_argument("--syncs", type=int, default=0, help="syncs that fail, evenly spread; 0 for every one")
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    given = options.parse_args()
    began, total, wrong = time.monotonic(), 0, list[str]()
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(given.workers) as pool:
        library = build(Path(folder))
        session = recorded(library, given.rounds, 0)
        search = Search(library, given.rounds, given.subsets, given.every, session)
        parts = parts_of(session, given.syncs)
        print(f"{len(session)} operations, {len(parts)} parts", flush=True)
        running = {pool.submit(search, part): part for part in parts}
        for done, ended in enumerate(as_completed(running), 1):
            states, found = ended.result()
            total += states
            wrong.extend(f"{running[ended].what}: {line}" for line in found)
            rest = (time.monotonic() - began) * (len(parts) - done) / done
            print(
                f"{done} of {len(parts)}: {running[ended].what}: {states} states, {len(found)} wrong; "
                f"about {rest / 60:.0f} min to go",
                flush=True,
            )
    print(*wrong, sep="\n")
    print(f"{total} states, {len(wrong)} wrong, {time.monotonic() - began:.0f} s")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
