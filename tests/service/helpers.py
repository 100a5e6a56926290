"""Services for tests: a log and its summary, a configuration, an engine in this process, a server in another."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import httpx._transports.default as transports
import numpy as np

import sidelight as sl
from sidelight.service.config import Config, initial_config, load_config, save_config
from sidelight.service.core.engine import Engine
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from sidelight.service.log.surroundings import Surroundings
from tests.service.prepared import ForkedServer

# Every client reads the certificates of authorities, 44 ms, though no test has a connection with TLS: once will do.
transports.create_ssl_context = functools.cache(transports.create_ssl_context)

ARMS = ["low", "mid", "high"]
SOURCE = Path(__file__).parents[2] / "src"


def make_schema() -> sl.Schema:
    return sl.Schema(
        ["age", "dose", "ward", "severity", "pain"],
        recorded=["age", "dose", "ward"],
        arms=ARMS,
        intercept=True,
        categories={"ward": ["north", "south", "east"]},
    )


def make_summary(seed: int = 5, rows: int = 400) -> sl.LogSummary:
    rng = np.random.default_rng(seed)
    schema = make_schema()
    X = np.zeros((rows, schema.n_recorded))
    X[:, 0] = 1.0
    X[:, 1:3] = rng.normal(size=(rows, 2))
    ward = rng.integers(0, 3, size=rows)
    for level in (1, 2):
        X[:, 2 + level] = ward == level
    arms = rng.integers(0, 3, size=rows)
    rewards = X @ rng.normal(size=X.shape[1]) * (1 + arms) + 0.3 * rng.normal(size=rows)
    return sl.LogSummary.from_arrays(X, [ARMS[a] for a in arms], rewards, schema)


def make_config(
    folder: Path, *, kind: str = "RunningOFUL", limits: dict[str, Any] | None = None, **changes: Any
) -> Config:
    """A configuration in ``folder``, read back from its file."""
    snapshot_every = changes.pop("snapshot_every", None)
    if kind == "OFUL":
        config = initial_config(make_schema(), kind=kind, port=0, **changes)
    else:
        make_summary().save(folder / "log.summary")
        config = initial_config(make_schema(), summary_path="log.summary", kind=kind, port=0, **changes)
    if limits:
        config = replace(config, limits=replace(config.limits, **limits))
    if snapshot_every:
        config = replace(config, storage=replace(config.storage, snapshot_every=snapshot_every))
    save_config(config, folder / "sidelight.toml")
    return load_config(folder / "sidelight.toml")


def random_context(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "age": float(rng.normal()),
        "dose": float(rng.normal()),
        "ward": ["north", "south", "east"][rng.integers(3)],
        "severity": bool(rng.integers(2)),
        "pain": float(rng.normal()),
    }


@contextlib.asynccontextmanager
async def engine_of(config: Config, now: list[float] | None = None) -> AsyncIterator[Engine]:
    """An engine in this process; its clock shows ``now[0]`` seconds since 1970, if given."""
    around = Surroundings() if now is None else Surroundings(now=lambda: now[0])
    store = open_store(config, surroundings=around)
    engine = Engine(store, config, surroundings=around)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()
        store.close()


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def bits(state: Any) -> str:
    """A digest of everything a state holds."""
    return state.snapshot(0.0).digest


def replayed(config: Config) -> str:
    """The state's digest after a replay from the first event, snapshots unused."""
    store = open_store(config)
    try:
        return bits(recover(store, use_snapshots=False).state)
    finally:
        store.close()


class Server:
    """``sidelight serve`` in a process of its own: a fork of one that has loaded everything (``prepared.py``).

    Args:
        folder: where its configuration is.
        arguments: further ones of the command.
        environment: further variables.
        prepare: Python that runs in it before the command does, to let something happen at a certain point.
    """

    def __init__(
        self, folder: Path, *arguments: str, environment: dict[str, str] | None = None, prepare: str = ""
    ) -> None:
        self.folder = folder
        words = ["serve", "-c", str(folder / "sidelight.toml"), *arguments]
        variables = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", **(environment or {})}
        self.process = ForkedServer(words, variables, prepare=prepare)
        self.said: list[str] = []
        # Whoever does not read what a server logs stops it as soon as a pipe's 64 KB are full.
        self._logged: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if "decides at" in line:
                break
        else:
            self.process.wait(10)
            self._reader.join(10)
            self.url = ""
            return
        self.url = self.said[-1].split(" at ")[1].split()[0]
        self.port = int(self.url.rpartition(":")[2])

    def _read(self) -> None:
        assert self.process.stderr is not None
        with contextlib.suppress(ValueError):  # it is closed when the server was ended
            for line in self.process.stderr:
                self._logged.append(line)

    @property
    def errors(self) -> str:
        """What it has logged so far."""
        return "".join(self._logged)

    def kill(self) -> None:
        """As a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self._close()

    def stop(self) -> int:
        """As an operator would."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        self._close()
        return code

    def _close(self) -> None:
        self._reader.join(10)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@contextlib.contextmanager
def serving(folder: Path, *arguments: str, **options: Any) -> Iterator[Server]:
    """A server for the length of a block."""
    server = Server(folder, *arguments, **options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


@dataclass(frozen=True)
class Done:
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str


def command(*arguments: str, cwd: Path) -> Done:
    """``sidelight …`` in this process, which saves the seconds of starting another."""
    from sidelight.cli import main

    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def post(client: httpx.Client, path: str, body: Any, **headers: str) -> httpx.Response:
    return client.post(path, content=json.dumps(body), headers={"Content-Type": "application/json", **headers})
