"""A PostgreSQL that takes what is sent to it and never answers: the server hangs up, and can go on elsewhere.

The database ends a statement that takes too long, and the network a connection whose packets nobody takes. Neither
helps where something in between takes the packets and forgets them.
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
#: seconds between two looks
_LOOK = 5.0


class Silence:
    """Hangs up on PostgreSQL where a connection has waited too long for an answer; for a process that serves.

    Args:
        engine: whose connections to watch.
    """

    def __init__(self, engine: Engine) -> None:
        self._since: dict[Any, float] = {}
        self._ended = threading.Event()
        # in front of the others, which may ask the database something
        event.listen(engine, "connect", self._used, insert=True)
        event.listen(engine, "checkout", self._used, insert=True)
        event.listen(engine, "checkin", self._given_back)
        threading.Thread(target=self._watch, name="sidelight-silence", daemon=True).start()

    def end(self) -> None:
        """Stop watching: connections are no longer hung up on, and the thread ends at its next look."""
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
    """End what waits for this connection in another thread, which then finds it closed."""
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)
    except Exception as error:
        # closed already: it failed before it was given back
        logger.debug("a connection cannot be hung up on: %s", type(error).__name__)
    else:
        logger.error("PostgreSQL has not answered for %.0f s: hung up", LONGEST)
