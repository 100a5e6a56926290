"""Servers that begin where their imports end: a process that has loaded everything forks one for each request.

Loading modules and compiled loops takes a server about three seconds of processor time, and the tests start dozens.
This process has one thread and no state but modules, so a fork of it is what a new process would be after its imports:
it has a process number of its own, is stopped and killed as any other, and shares no connection and no file.
The tutorial, the examples and the notebook start their servers from nothing, as people do.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]


class ForkedServer:
    """A server that was forked, with what the tests use of ``subprocess.Popen``.

    Args:
        arguments: of the command ``sidelight``.
        environment: all of its variables.
        prepare: Python that runs in it before the command does.
        output: an open file that takes what it prints and logs; without one ``stdout`` and ``stderr`` are pipes.

    Attributes:
        pid: of the server.   stdout: what it prints.   stderr: what it logs.   returncode: None while it runs.
    """

    def __init__(
        self, arguments: list[str], environment: dict[str, str], *, prepare: str = "", output: IO[str] | None = None
    ) -> None:
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        ends: list[int] = []
        if output is None:
            (out, out_end), (err, err_end) = os.pipe(), os.pipe()
            self.stdout, self.stderr, ends = open(out), open(err), [out_end, err_end]  # noqa: SIM115
        self._life = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._life.connect(_address())
        request = json.dumps([arguments, environment, os.getcwd(), prepare]).encode()
        streams = [output.fileno()] * 2 if output is not None else ends
        socket.send_fds(self._life, [len(request).to_bytes(8, "big")], streams)
        self._life.sendall(request)
        for end in ends:
            os.close(end)
        self.pid = int.from_bytes(_exactly(self._life, 8), "big")

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended; negative if a signal ended it."""
        if self.returncode is None:
            with selectors.DefaultSelector() as ready:
                ready.register(self._life, selectors.EVENT_READ)
                if not ready.select(timeout):
                    raise subprocess.TimeoutExpired("sidelight serve", timeout or 0.0)
            self.returncode = int.from_bytes(_exactly(self._life, 8), "big", signed=True)
            self._life.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """To the server, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the server to end, if it still runs."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the server as a power cut would, if it still runs."""
        self.send_signal(signal.SIGKILL)


@functools.cache
def _parent() -> subprocess.Popen[bytes]:
    """The process that forks, started when it is first needed; its standard input stays open as long as this one."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.service.prepared"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"},
    )


_starting = threading.Lock()


def _address() -> str:
    """Where it listens; some tests start several servers at once."""
    with _starting:
        return _said_address()


@functools.cache
def _said_address() -> str:
    """What it says once it is ready."""
    said = _parent().stdout
    assert said is not None
    address = said.readline().decode().rstrip("\n")
    assert address, "the process that forks servers did not start"
    return address


def _exactly(stream: socket.socket, length: int) -> bytes:
    """So many bytes, or EOFError."""
    content = b""
    while len(content) < length:
        if not (more := stream.recv(length - len(content))):
            raise EOFError("the process that forks servers has ended.")
        content += more
    return content


# ------------------------------------------------------------------------------------ the process that forks


def load_everything() -> None:
    """Import what a server imports, and load the compiled loops by using them."""
    import numpy as np

    import sidelight as sl
    import sidelight.cli.service

    schema = sl.Schema.for_arrays(3, recorded=[0, 1], n_arms=2)
    X = np.random.default_rng(0).normal(size=(40, 2))
    log = sl.LogSummary.from_arrays(X, [0, 1] * 20, X.sum(axis=1), schema)
    for learner in (sl.OFUL(2, 3), sl.FusedOFUL(sl.BehaviorQueries(log))):
        for x in np.eye(3):
            if learner.needs == "action":
                learner.observe_behavior(x, 0)
            learner.decide(x)
            learner.observe(x, 1, 0.5)


def serve_forks() -> tuple[list[str], str]:
    """Fork on request and tell how each fork ends.

    Returns in a fork, with the command's arguments and the Python to run before.
    """
    load_everything()
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1
    with contextlib.ExitStack() as open_here:
        listening = open_here.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        address = f"\0sidelight-tests-{os.getpid()}"  # an abstract one: no file that could be left behind
        listening.bind(address)
        listening.listen()
        wake, woken = socket.socketpair()
        for end in (wake, woken):
            end.setblocking(False)
            open_here.enter_context(end)
        signal.set_wakeup_fd(wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        ready = open_here.enter_context(selectors.DefaultSelector())
        for source in (listening, woken, sys.stdin):
            ready.register(source, selectors.EVENT_READ)
        print(address, flush=True)
        lives: dict[int, socket.socket] = {}
        while True:
            for key, _ in ready.select():
                if key.fileobj is sys.stdin:  # the tests have ended, and so do servers that they left behind
                    for pid in lives:
                        os.kill(pid, signal.SIGKILL)
                    raise SystemExit
                if key.fileobj is woken:
                    woken.recv(4096)
                    while lives and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                        with lives.pop(ended[0]) as life, contextlib.suppress(OSError):
                            life.sendall(os.waitstatus_to_exitcode(ended[1]).to_bytes(8, "big", signed=True))
                    continue
                life = listening.accept()[0]
                length, streams, _, _ = socket.recv_fds(life, 8, 2)
                arguments, environment, folder, prepare = json.loads(_exactly(life, int.from_bytes(length, "big")))
                if (pid := os.fork()) == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for other in (*lives.values(), life):
                        other.close()
                    nothing = os.open(os.devnull, os.O_RDONLY)
                    for stream, standard in zip((nothing, *streams), range(3), strict=True):
                        os.dup2(stream, standard)
                        os.close(stream)
                    os.environ.clear()
                    os.environ.update(environment)
                    os.chdir(folder)
                    return list(arguments), prepare
                for stream in streams:
                    os.close(stream)
                lives[pid] = life
                life.sendall(pid.to_bytes(8, "big"))


if __name__ == "__main__":
    given, first = serve_forks()
    exec(first, {"__name__": "prepare"})
    from sidelight.cli import main

    main(given)
