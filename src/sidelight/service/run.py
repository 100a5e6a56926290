"""Running the service: engine, application and Uvicorn in one process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

import uvicorn

if sys.platform != "win32":
    import resource

from sidelight.errors import ServiceError
from sidelight.service.app import create_app
from sidelight.service.config import Config
from sidelight.service.core.engine import Engine
from sidelight.service.core.starting import lacks_tokens, open_store
from sidelight.service.http.guarded import guarded_protocol
from sidelight.service.journal import decision_log, set_up_logs
from sidelight.service.log.connections import sqlite_flaw
from sidelight.service.telemetry import CommitSpans, TracedRequests, trace_provider

__all__ = ["run"]

logger = logging.getLogger("sidelight.service")

#: file descriptors reserved beside connections: for the database, pipes, Python itself
_OTHER_FILES = 256


def run(config: Config, *, say: Callable[[str], None] = print, verbose: bool = False) -> None:
    """Serve until a signal says stop.

    Args:
        config: the checked configuration.
        say: prints a line for the person who starts the service.
        verbose: log what happens, whatever the level in the configuration.

    Raises:
        SidelightError: the store or the configuration cannot be used.
    """
    set_up_logs(config.logs, verbose=verbose)
    traces = trace_provider(config.telemetry)
    store = open_store(config)
    try:
        if (wrong := lacks_tokens(config, store)) is not None:
            raise ServiceError(wrong)
        if store.sqlite and (flaw := sqlite_flaw()) is not None:
            say(flaw)
        engine = Engine(store, config)
        for note in engine.notes:
            say(note)
        for number in engine.damaged:
            say(f"The snapshot after event {number} was damaged; the state was rebuilt from the events.")
        app = create_app(engine)
        if config.logs.decisions:
            engine.on_decision = decision_log(config.logs, engine.schema)
        if traces is not None:
            engine.spans = CommitSpans(traces)
            app.add_middleware(TracedRequests, provider=traces)
        if app.state.service.tokens.open:
            say(f"No tokens: answering this machine only ({config.service.host}), and anybody on it.")
        allow_files(config.limits.connections)
        listener = _listen(config)
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        say(
            f"Sidelight decides at http://{shown}:{port} in {engine.state.rails.mode} mode, "
            f"event {engine.state.number}."
        )
        settings = uvicorn.Config(
            app,
            http=guarded_protocol(config.limits),
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(config.limits.seconds) + 5,
        )
        longest = 2 * config.limits.seconds + 10
        server = LeavingServer(settings, app.state.service.dashboard.end_streams, longest)
        # Objects that exist now stay, and requests leave almost no reference cycles: collecting rarely saves a tenth of
        # the time.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)
        for number in (signal.SIGTERM, signal.SIGINT):
            # Until Uvicorn installs its signal handlers, a stop is remembered. Afterwards Uvicorn stops gracefully and
            # then raises the signal once more; by then there is nothing left to do.
            signal.signal(number, server.ask)
        with asyncio.Runner(loop_factory=settings.get_loop_factory()) as runner:
            runner.run(server.serve([listener]))
    finally:
        store.close()
        if traces is not None:
            traces.shutdown()


class LeavingServer(uvicorn.Server):
    """A Uvicorn server that ends the dashboard's streams when it is told to stop, instead of waiting for their clients.

    Args:
        settings: Uvicorn's.
        leave: called in the event loop as soon as a stop was asked for.
        longest: seconds after which the process ends even if requests still wait for a database that hangs; what was
            not written was not acknowledged.
    """

    def __init__(self, settings: uvicorn.Config, leave: Callable[[], None], longest: float) -> None:
        super().__init__(settings)
        self._leave = leave
        self._longest = longest
        self._asked = False

    def ask(self, *_: object) -> None:
        """Request a stop as soon as the start is done: for signals that come before Uvicorn handles them."""
        self._asked = True

    async def main_loop(self) -> None:
        """Serve until a stop is requested; return at once if it was during the start."""
        self.should_exit = self.should_exit or self._asked
        await super().main_loop()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the dashboard's streams, then finish the accepted requests."""
        watch = threading.Timer(self._longest, _end_now)
        watch.daemon = True
        watch.start()
        self._leave()
        await super().shutdown(sockets)


def allow_files(connections: int) -> None:
    """Raise the process's limit on open files to what ``connections`` needs; log a warning where the system refuses."""
    if sys.platform == "win32":
        return
    wanted = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < wanted:
            logger.warning(
                "this process may open %d files, and [limits] connections = %d needs %d: raise the limit (ulimit -n), "
                "or lower connections; else a flood of connections keeps out the kill switch too",
                most,
                connections,
                wanted,
            )


def _end_now() -> None:
    logger.error("the stop takes too long: ending without what still waits for the database")
    os._exit(1)


def _listen(config: Config) -> socket.socket:
    host, port = config.service.host, config.service.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, socket.gaierror) as error:
        listener.close()
        raise ServiceError(
            f"cannot listen at {host}:{port}: {error}. Choose another [service] port, or stop what uses it."
        ) from error
    listener.listen(2048)
    return listener
