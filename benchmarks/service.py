"""Load on the decision service, in one run on one machine: python -m benchmarks.service [--database postgresql://…]

Compared in turns, so that a noisy machine disturbs all alike: an endpoint in the same server that only echoes its
body (an ordinary route of Starlette, through the same limits and the same token check), single decisions (past
Starlette's router, as the service serves them), and batches of 500. Then memory over 200,000 decisions. Wanted, by
processor time: decisions at ≥ 0.6 of the echo's rate, batches at ≥ 30 × the single rate; the 99th percentile within
10 × the median, memory flat.

``--disk 5000``: instead, what 5,000 decisions one by one, as many in batches, and their rewards take on SQLite's disk,
and how long folding them anew takes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FEATURES = [f"feature_{i}" for i in range(10)]
ARMS = ["a", "b", "c", "d", "e"]
BATCH = 500


# ------------------------------------------------------------------------------------------ the server


def set_up(folder: Path, database: str, learner: str) -> str:
    """A configuration in ``folder`` and a token."""
    import sidelight as sl
    from sidelight.service.config import initial_config, load_config, save_config
    from sidelight.service.core.starting import open_store
    from sidelight.service.http.auth import create_token

    rng = np.random.default_rng(0)
    schema = sl.Schema(FEATURES, recorded=FEATURES[:6], arms=ARMS)
    X = rng.normal(size=(5000, 6)) / 3
    arms = rng.integers(0, 5, size=5000)
    summary = sl.LogSummary.from_arrays(X, [ARMS[a] for a in arms], X[:, 0] * arms + rng.normal(size=5000), schema)
    summary.save(folder / "log.summary")
    config = initial_config(
        summary.schema,
        summary_path="" if learner == "OFUL" else "log.summary",
        kind=learner,
        mode="act",
        port=0,
        database=database,
    )
    save_config(config, folder / "sidelight.toml")
    store = open_store(load_config(folder / "sidelight.toml"))
    token = create_token(store, "benchmark", ["decide", "reward", "read"])
    store.close()
    return token


def serve(folder: Path) -> None:
    """The service itself, with one more address that only echoes."""
    from sidelight.service import run as server
    from sidelight.service.config import load_config
    from sidelight.service.http.wire import read_body

    create = server.create_app

    def with_echo(engine: Any) -> Any:
        app = create(engine)
        service = app.state.service

        async def echo(request: Request) -> Response:
            service.allow(request, "decide")
            return Response(await read_body(request, service.limits.body_bytes), media_type="application/json")

        # the first route, as that of decisions is among the first: matching the others would make the echo dearer
        app.router.routes.insert(0, Route("/echo", echo, methods=["POST"]))
        return app

    server.create_app = with_echo
    server.run(load_config(folder / "sidelight.toml"), say=lambda line: print(line, flush=True))


# ------------------------------------------------------------------------------------------ the load


class Connection(asyncio.Protocol):
    """One keep-alive connection that sends the next request as soon as the last one is answered."""

    def __init__(self, requests: list[bytes], until: float, times: list[float], done: asyncio.Future[None]) -> None:
        self.requests, self.until, self.times, self.done = requests, until, times, done
        self.buffer = bytearray()
        self.next = 0

    def connection_made(self, transport: Any) -> None:
        """Start."""
        self.transport = transport
        self._send()

    def _send(self) -> None:
        self.started = time.perf_counter()
        if self.started >= self.until:
            self.transport.close()
            if not self.done.done():
                self.done.set_result(None)
            return
        self.transport.write(self.requests[self.next % len(self.requests)])
        self.next += 1

    def data_received(self, data: bytes) -> None:
        """Wait for the whole answer."""
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        if not self.buffer.startswith(b"HTTP/1.1 20"):
            self.transport.abort()
            if not self.done.done():
                self.done.set_exception(RuntimeError(f"the service answered {bytes(self.buffer[:400])!r}"))
            return
        at = self.buffer.find(b"content-length: ")
        length = int(self.buffer[at + 16 : self.buffer.find(b"\r", at)])
        if len(self.buffer) < head + 4 + length:
            return
        self.times.append(time.perf_counter() - self.started)
        self.buffer.clear()
        self._send()


async def load(port: int, requests: list[bytes], connections: int, seconds: float) -> tuple[float, list[float]]:
    """Requests per second, and how long each took."""
    loop = asyncio.get_running_loop()
    times: list[float] = []
    begun = time.perf_counter()
    waits = []
    for i in range(connections):
        done = loop.create_future()
        turned = requests[i % len(requests) :] + requests[: i % len(requests)]
        await loop.create_connection(
            lambda t=turned, d=done: Connection(t, begun + seconds, times, d), "127.0.0.1", port
        )
        waits.append(done)
    await asyncio.gather(*waits)
    return len(times) / (time.perf_counter() - begun), times


def request(path: str, body: Any, token: str) -> bytes:
    """The bytes of a request."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def processor(pid: int) -> float:
    """Processor seconds that a process has used: on a busy machine steadier than the clock."""
    import psutil

    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def resident(pid: int) -> float:
    """Resident megabytes of a process."""
    import psutil

    return psutil.Process(pid).memory_info().rss / 2**20


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--database", default="sidelight.db")
    parser.add_argument("--learner", default="FusedOFUL")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--disk", type=int, default=0, help="bytes of so many decisions and rewards, nothing else")
    parser.add_argument("--memory", type=int, default=200_000, help="decisions of the memory run; 0 leaves it out")
    options = parser.parse_args(arguments)
    if options.disk and "://" in options.database:
        parser.error("--disk measures a SQLite file")
    if options.serve is not None:
        serve(options.serve)
        return
    try:
        import uvloop

        run = uvloop.run
    except ImportError:
        run = asyncio.run
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        token = set_up(folder, options.database, options.learner)
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.service", "--serve", str(folder)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            port = 0
            for line in process.stdout:
                if "decides at" in line:
                    port = int(line.split("://127.0.0.1:")[1].split()[0])
                    break
            if options.disk:
                disk(folder / options.database, f"http://127.0.0.1:{port}", token, options.disk)
            else:
                report(run, port, token, process.pid, options)
        finally:
            process.terminate()
            process.wait(30)
        if options.disk:
            command = [sys.executable, "-c", "from sidelight.cli import main; main()", "replay", "--json", "--config"]
            command.append(str(folder / "sidelight.toml"))
            told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            print(f"folding {told['events']} events anew: {told['seconds']:.1f} s")


def report(run: Any, port: int, token: str, pid: int, options: Any) -> None:
    rng = np.random.default_rng(1)

    def context() -> dict[str, float]:
        return dict(zip(FEATURES, rng.normal(size=10).round(4).tolist(), strict=True))

    singles = [{"context": context()} for _ in range(200)]
    batches = [{"decisions": [{"context": context()} for _ in range(BATCH)]} for _ in range(8)]
    kinds = {
        "echo": ([request("/echo", body, token) for body in singles], options.connections),
        "single": ([request("/v1/decisions", body, token) for body in singles], options.connections),
        "batch": ([request("/v1/decisions/batch", body, token) for body in batches], 8),
    }
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    costs: dict[str, list[float]] = {kind: [] for kind in kinds}
    for kind, (requests, connections) in kinds.items():
        run(load(port, requests, connections, 1.0))
        print(f"warmed {kind}", file=sys.stderr)
    for _ in range(options.rounds):
        for kind, (requests, connections) in kinds.items():
            before = processor(pid)
            rate, taken = run(load(port, requests, connections, options.seconds))
            costs[kind].append((processor(pid) - before) / len(taken))
            rates[kind].append(rate)
            times[kind] += taken
    median = {kind: statistics.median(values) for kind, values in rates.items()}
    single, batch = median["single"], median["batch"] * BATCH
    print(f"echo              {median['echo']:10.0f} requests/s")
    print(f"single decisions  {single:10.0f} decisions/s   {single / median['echo']:.2f} of the echo")
    print(f"batches of {BATCH}    {batch:10.0f} decisions/s   {batch / single:.1f} × single")
    echo, one, many = (statistics.median(costs[kind]) * 1e6 for kind in ("echo", "single", "batch"))
    print(
        f"processor time    echo {echo:.0f} µs, decision {one:.0f} µs ({echo / one:.2f}, wanted ≥ 0.6), "
        f"in a batch {many / BATCH:.1f} µs ({one * BATCH / many:.1f} ×, wanted ≥ 30)"
    )
    for kind, taken in times.items():
        p50, p99 = np.percentile(taken, [50, 99]) * 1e3
        print(f"{kind:8s} median {p50:7.2f} ms   p99 {p99:7.2f} ms   {p99 / p50:.1f} × (wanted ≤ 10)")
    if options.memory:
        memory(run, port, kinds, pid, options.memory)


def disk(database: Path, url: str, token: str, n: int) -> None:
    """Bytes of a decision by itself, of one in a batch, and of a reward: growth of the database and its journal."""
    import sqlite3

    from sidelight.service.client import Client

    def size() -> int:
        with sqlite3.connect(database) as connection:
            busy = True
            while busy:
                busy = bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        return database.stat().st_size

    contexts = [dict(zip(FEATURES, row, strict=True)) for row in np.random.default_rng(2).normal(size=(n, 10)).round(4)]
    with Client(url, token) as client:
        client.decide(contexts[0])
        sizes = [size()]
        made = [client.decide(context) for context in contexts]
        sizes.append(size())
        for start in range(0, n, BATCH):
            client.decide_many(contexts[start : start + BATCH])
        sizes.append(size())
        for decision in made:
            client.reward(decision.id, 0.5)
        sizes.append(size())
    one, many, reward = np.diff(sizes) / n
    print(f"bytes on disk: {one:.0f} a decision, {many:.0f} in a batch of {BATCH}, {reward:.0f} a reward")


def memory(run: Any, port: int, kinds: dict[str, Any], pid: int, decisions: int) -> None:
    requests, connections = kinds["single"]
    points, made = [resident(pid)], 0
    while made < decisions:
        _, taken = run(load(port, requests, connections, 5.0))
        made += len(taken)
        points.append(resident(pid))
        print(f"{made} decisions: {points[-1]:.1f} MB", file=sys.stderr)
    half = len(points) // 2
    print(
        f"memory over {made} decisions: {points[0]:.1f} MB at first, {points[half]:.1f} half-way, {points[-1]:.1f} at "
        f"the end; the second half added {points[-1] - points[half]:+.1f} MB"
    )


if __name__ == "__main__":
    main()
