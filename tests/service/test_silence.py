"""A PostgreSQL behind something that takes what is sent and forgets it: nobody waits for ever, and it goes on."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from sidelight.errors import StoreError
from sidelight.service.log import connections, silence
from sidelight.service.log.connections import database_url
from sidelight.service.log.store import Store
from tests.service.test_store import Note


class Proxy:
    """Passes bytes on to a PostgreSQL server's socket; while ``swallows`` is set it takes them and forgets them."""

    def __init__(self, target: Path) -> None:
        self.target, self.swallows = target, threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self.target))
                for pair in ((caller, server), (server, caller)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self.swallows.is_set():
                    target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxy(new_postgres) -> Iterator[tuple[Proxy, sa.URL]]:
    address = database_url(new_postgres())
    if "host" not in address.query:
        pytest.skip("the socket of the database cannot be found here")
    folder = Path(str(address.query["host"]))
    made = Proxy(next(path for path in folder.glob(".s.PGSQL.*") if path.suffix != ".lock"))
    yield made, address.set(query={}, host="127.0.0.1", port=made.port)
    made.close()


@pytest.mark.parametrize("when", ["asked whether it is there", "in a transaction"])
def test_nobody_waits_for_ever(proxy, monkeypatch, when: str):
    monkeypatch.setattr(silence, "LONGEST", 1.0)
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 2)
    between, url = proxy
    store = Store(url)
    store.serve()
    store.append([Note(1)], 0)

    def write() -> None:
        with store.writing() as connection:
            store.lock(connection)
            between.swallows.set()
            store.lock(connection)

    began = time.monotonic()
    if when == "in a transaction":
        with pytest.raises(StoreError):
            write()
    else:
        # The next use of a connection begins with a question; another connection is made then, which fails as well.
        between.swallows.set()
        with pytest.raises(StoreError):
            store.append([Note(2)], 1)
    assert time.monotonic() - began < 50
    between.swallows.clear()
    store.append([Note(3)], 1)
    assert store.head() == 2
    store.close()
