"""Every state that a power cut may leave behind: prefixes of a record, with any part of what was not synced.

What a file was synced with is on disk. Of the writes since, all may be there, none, one alone, any subset, and one of
them torn at a multiple of 512 bytes. Names (creating, renaming, removing) are there in the order in which they came.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sidelight.service.log.sealing import chain_after, is_sealed_anew, seal_matches

NAME, WRITE, SYNC, TRUNCATE, REMOVE, RENAME = range(1, 7)
ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "tests" / "upgrades" / "fixtures" / "0.1.0" / "sqlite"
SECTOR = 512


@dataclass(frozen=True)
class Op:
    """One record: what was done to which file; ``other`` is a rename's target, or 1 for a sync that failed."""

    what: int
    file: str
    offset: int = 0
    data: bytes = b""
    other: str = ""
    failed: bool = False


def compiler() -> str | None:
    """A C compiler, if there is one."""
    return shutil.which("gcc") or shutil.which("cc")


def build(folder: Path) -> Path:
    """The recorder as a shared library."""
    made = folder / "recorder.so"
    source = Path(__file__).with_name("recorder.c")
    subprocess.run(
        [str(compiler()), "-O1", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl", "-lpthread"], check=True
    )
    return made


def record(library: Path, work: Path, *, rounds: int, fail_sync: int = 0, prepare: str = "") -> list[Op]:
    """Run the session in ``work`` and return what it wrote.

    Args:
        library: from :func:`build`.
        work: a new folder.
        rounds: decisions in each part of the session.
        fail_sync: the sync that fails; 0 for none.
        prepare: Python that runs before the session, to plant a fault.
    """
    service = work / "service"
    shutil.copytree(FIXTURE, service)
    out = work / "record"
    code = f"{prepare}\nimport runpy, sys\nsys.argv = ['session', {str(service)!r}, '{rounds}']\n"
    code += "runpy.run_module('tests.crash.session', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "LD_PRELOAD": str(library),
            "SIDELIGHT_CRASH_FOLDER": str(service),
            "SIDELIGHT_CRASH_RECORD": str(out),
            "SIDELIGHT_CRASH_FAIL_SYNC": str(fail_sync),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 3):
        raise RuntimeError(done.stderr[-3000:])
    return read(out.read_bytes(), service)


def read(content: bytes, folder: Path) -> list[Op]:
    """The operations of a record, with names relative to ``folder``."""
    names: dict[int, str] = {}
    found: list[Op] = []
    at = 0
    while at < len(content):
        what, file, offset, length, other = struct.unpack_from("<qqqqq", content, at)
        at += 40
        data = content[at : at + max(length, 0)]
        at += max(length, 0)
        if what == NAME:
            names[file] = str(Path(data.decode()).relative_to(folder))
        elif what == RENAME:
            found.append(Op(what, names[file], other=names[other]))
        else:
            found.append(Op(what, names[file], offset, data, failed=bool(other)))
    return [op for op in found if op.file == "acks" or op.file.split("-")[0].split(".")[0] in ("sidelight", "copy")]


@dataclass
class Disk:
    """Files as they are for certain, and what was written to them since."""

    certain: dict[str, bytearray] = field(default_factory=dict)
    unsure: dict[str, list[Op]] = field(default_factory=dict)
    acks: list[str] = field(default_factory=list)
    #: of the writes before a sync that failed, which have reached the disk all the same; None for none of them
    survives: Callable[[], bool] | None = None

    def take(self, op: Op) -> None:
        """The next operation of the record."""
        if op.file == "acks":
            self.acks += op.data.decode().split("\n")[:-1] if op.what == WRITE else []
            return
        if op.what in (WRITE, TRUNCATE):
            self.certain.setdefault(op.file, bytearray())
            self.unsure.setdefault(op.file, []).append(op)
        elif op.what == SYNC:
            waiting = self.unsure.pop(op.file, [])
            # After a sync that failed the pages are clean for the system, and no later sync writes them.
            for written in waiting:
                if not op.failed or (self.survives is not None and self.survives()):
                    apply(self.certain[op.file], written)
        elif op.what == REMOVE:
            self.certain.pop(op.file, None)
            self.unsure.pop(op.file, None)
        elif op.what == RENAME:
            self.certain[op.other] = self.certain.pop(op.file, bytearray())
            self.unsure[op.other] = self.unsure.pop(op.file, [])

    def states(self, rng: np.random.Generator, subsets: int) -> Iterator[dict[str, bytes]]:
        """What may be on disk now: all, none, each alone, all but each, random subsets, each torn."""
        ops = [(name, i) for name, waiting in self.unsure.items() for i in range(len(waiting))]
        everything = frozenset(ops)
        seen: set[frozenset[tuple[str, int]]] = set()
        for chosen in (
            everything,
            frozenset[tuple[str, int]](),
            *(frozenset([op]) for op in ops),
            *(everything - {op} for op in ops),
            *(frozenset(op for op in ops if rng.random() < 0.5) for _ in range(subsets if ops else 0)),
        ):
            if chosen not in seen:
                seen.add(chosen)
                yield self.files(chosen)
        for name, i in ops:
            op = self.unsure[name][i]
            if op.what == WRITE and len(op.data) > SECTOR:
                keep = int(rng.integers(1, -(-len(op.data) // SECTOR))) * SECTOR
                yield self.files(everything, torn=(name, i, keep))

    def files(self, chosen: frozenset[tuple[str, int]], torn: tuple[str, int, int] | None = None) -> dict[str, bytes]:
        """The files with the chosen ones of the uncertain writes."""
        made: dict[str, bytes] = {}
        for name, content in self.certain.items():
            copy = bytearray(content)
            for i, op in enumerate(self.unsure.get(name, ())):
                if (name, i) in chosen:
                    short = torn is not None and torn[:2] == (name, i)
                    apply(copy, Op(op.what, name, op.offset, op.data[: torn[2]]) if short and torn else op)
            made[name] = bytes(copy)
        return made


def apply(content: bytearray, op: Op) -> None:
    """Do a write or a truncation to a file's content."""
    if op.what == TRUNCATE:
        if len(content) > op.offset:
            del content[op.offset :]
        else:
            content.extend(bytes(op.offset - len(content)))
        return
    end = op.offset + len(op.data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    content[op.offset : end] = op.data


def initial_disk() -> Disk:
    """The folder as the session finds it."""
    return Disk({"sidelight.db": bytearray((FIXTURE / "sidelight.db").read_bytes())})


class Checker:
    """Opens states and says what is wrong with them."""

    def __init__(self) -> None:
        base = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="sidelight-crash-", dir=base))

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def wrong(self, files: dict[str, bytes], acks: list[str]) -> str | None:
        """What is wrong with a state, or None."""
        for left in os.listdir(self.folder):
            os.unlink(self.folder / left)
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
        events = [int(line.split()[1]) for line in acks if line.startswith("event")]
        found = _look(self.folder / "sidelight.db", max(events, default=0), events)
        if found is None and "copy.db" in files:
            last = next((int(line.split()[1]) for line in acks if line.startswith("backup")), 0)
            found = _look(self.folder / "copy.db", last, [])
        if found is None and "forgotten" in acks:
            found = _still_there(self.folder / "sidelight.db")
        return found


def _look(path: Path, last: int, told: list[int]) -> str | None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        ((verdict,),) = connection.execute("PRAGMA quick_check").fetchall()
        if verdict != "ok":
            return f"{path.name} is corrupt: {verdict}"
        version = int(connection.execute("SELECT value FROM sidelight_properties WHERE name = 'version'").fetchone()[0])
        if version < 4:
            return f"{path.name} has lost event {last}" if last else None
        ((head, chain),) = connection.execute("SELECT number, chain FROM sidelight_head").fetchall()
        if head < last:
            return f"{path.name} ends at event {head}, and {last} was acknowledged"
        rows = connection.execute(
            "SELECT number, kind, at, key, payload, contexts, epoch, seal, chain FROM sidelight_events "
            "WHERE seal IS NOT NULL ORDER BY number"
        ).fetchall()
        before: bytes | None = None
        for *content, seal, after in rows:
            number, kind, at, key, payload, contexts, epoch = content
            if not seal_matches(seal, (number, kind, at, key, payload, contexts, epoch)):
                return f"event {number} does not match its seal"
            if before is not None and not is_sealed_anew(seal) and chain_after(before, seal) != after:
                return f"event {number} does not follow from the one before"
            before = after
        if rows and (rows[-1][0] != head or before != chain):
            return f"the head says {head}, the last event is {rows[-1][0]}"
        numbers = {row[0] for row in rows}
        lost = [number for number in told if number not in numbers]
        return f"event {lost[0]} was acknowledged and is gone" if lost else None
    except sqlite3.Error as error:
        return f"{path.name} cannot be opened: {error}"
    finally:
        connection.close()


def _still_there(path: Path) -> str | None:
    connection = sqlite3.connect(path)
    try:
        query = "SELECT count(*) FROM sidelight_subjects WHERE subject = 'person-2'"
        left = connection.execute(query).fetchone()[0]
        return f"{left} contexts of a person are back that was forgotten" if left else None
    finally:
        connection.close()


def explore(
    ops: list[Op],
    rng: np.random.Generator,
    *,
    subsets: int,
    every: int = 1,
    first: int = 0,
    last: int | None = None,
    most: int = 6,
    survives: Callable[[], bool] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[int, list[str]]:
    """Check the states after every ``every``-th operation; returns how many different ones there were, what is wrong.

    Args:
        ops: what a session wrote.
        rng: chooses the random subsets and where writes are torn.
        subsets: how many random subsets of the uncertain writes are tried after an operation.
        every: how many operations lie between two that are looked at.
        first: the index of the first operation to look at.
        last: the index of the last one; None for the last of ``ops``.
        most: end after so many states that are wrong.
        survives: see :class:`Disk`.
        progress: called with the number of operations that are done, and of all.
    """
    disk, checker = initial_disk(), Checker()
    disk.survives = survives
    found: list[str] = []
    # One write alone, or none, leaves the same files after every operation up to the next sync.
    # A hash of 64 bits tells them apart: of 100,000 states two share one by chance once in four thousand million runs.
    seen: set[int] = set()
    last = len(ops) - 1 if last is None else last
    try:
        for i, op in enumerate(ops[: last + 1]):
            disk.take(op)
            if i < first or ((i - first) % every and i != last):
                continue
            for files in disk.states(rng, subsets):
                state = hash((len(disk.acks), *sorted(files.items())))
                if state in seen:
                    continue
                seen.add(state)
                wrong = checker.wrong(files, disk.acks)
                if wrong is not None:
                    found.append(f"after operation {i} of {len(ops)}: {wrong}")
                    if len(found) >= most:
                        return len(seen), found
            progress(i + 1 - first, last + 1 - first)
    finally:
        checker.close()
    return len(seen), found
