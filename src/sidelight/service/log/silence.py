"""A watchdog for a PostgreSQL that accepts what is sent and never answers: it closes the connection.

The database ends a statement that takes too long, and TCP a connection whose packets are not acknowledged. Neither
helps where something in between acknowledges the packets and drops them.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from typing import Any

from sqlalchemy import Engine, event

__all__ = ["Silence"]

logger = logging.getLogger("sidelight.service")

#: seconds for which a connection may be in use; statements end after 60, and a server that runs uses several at most
LONGEST = 90.0
#: seconds between two checks
_LOOK = 5.0


class Silence:
    """Hangs up on PostgreSQL where a connection has waited too long for an answer; for a process that serves.

    Args:
        engine: whose connections to watch.
    """

    def __init__(self, engine: Engine) -> None:
        self._since: dict[Any, float] = {}
        self._ended = threading.Event()
        # before the other listeners, which may query the database
        event.listen(engine, "connect", self._used, insert=True)
        event.listen(engine, "checkout", self._used, insert=True)
        event.listen(engine, "checkin", self._given_back)
        threading.Thread(target=self._watch, name="sidelight-silence", daemon=True).start()

    def end(self) -> None:
        """Stop watching: connections are no longer hung up on, and the thread ends at its next check."""
        self._ended.set()

    def _used(self, connection: Any, *_: Any) -> None:
        self._since[connection] = time.monotonic()

    def _given_back(self, connection: Any, _record: Any) -> None:
        self._since.pop(connection, None)

    def _watch(self) -> None:
        while not self._ended.wait(min(_LOOK, LONGEST / 4)):
            for connection, since in list(self._since.items()):
                if time.monotonic() - since > LONGEST:
                    self._since.pop(connection, None)
                    _hang_up(connection)


def _hang_up(connection: Any) -> None:
    """Shut the connection's socket down; a thread that waits on it then gets an error."""
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)
    except Exception as error:
        # already closed: it failed before it was returned to the pool
        logger.debug("a connection cannot be hung up on: %s", type(error).__name__)
    else:
        logger.error("PostgreSQL has not answered for %.0f s: hung up", LONGEST)
