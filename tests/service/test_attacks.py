"""What an attack of an hour and a half found, where no other test repeats it: mostly against a process that serves.

Requests sent ahead, slow bodies, places and bodies over the limit are in ``test_connections``; a database that hangs,
and who freezes with its lock, in ``test_one_writer``; logs that were altered in ``test_lost_tail``.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
import sqlalchemy as sa

from sidelight.errors import StoreError
from sidelight.service.config import Config
from sidelight.service.core.engine import Engine
from sidelight.service.core.starting import open_store
from sidelight.service.http.auth import SCOPES, create_token
from sidelight.service.log.committer import Committer
from sidelight.service.log.connections import database_url
from sidelight.service.log.sealing import Head
from sidelight.service.log.store import Store
from sidelight.service.problems import Problem
from tests.service.helpers import command, engine_of, make_config, make_schema, post, random_context, run, serving


def raw(port: int, head: str) -> int:
    """The status of a request whose lines are written by hand."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head.encode())
        return int(connection.recv(65536).split()[1])


def test_a_host_that_only_begins_like_this_machine_is_refused(tmp_path: Path):
    """Without tokens a page elsewhere could otherwise have a browser call the service."""
    make_config(tmp_path, kind="OFUL", mode="act")
    with serving(tmp_path) as server:
        for host, good in (("[::1].evil.org", False), ("127.0.0.1.evil.org", False), ("evil.org", False), ("", True)):
            name = host or f"127.0.0.1:{server.port}"
            status = raw(server.port, f"GET /v1/status HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n")
            assert (status == 200) is good, (host, status)


def test_two_authorizations_are_refused_whichever_is_right(tmp_path: Path):
    store = open_store(make_config(tmp_path, kind="OFUL", mode="act"))
    token = create_token(store, "reader", ["read"])
    store.close()
    with serving(tmp_path) as server:
        right, wrong = f"Authorization: Bearer {token}\r\n", "Authorization: Bearer sl_wrong\r\n"
        start = f"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n"
        assert raw(server.port, start + right + "\r\n") == 200
        for pair in (right + wrong, wrong + right, right + right):
            assert raw(server.port, start + pair + "\r\n") in (400, 401)


def test_a_large_body_does_not_keep_others_waiting(tmp_path: Path):
    """Decisions are answered while 3.8 MB are read, decided and written, not only before and after."""
    limits = {"body_bytes": 5_000_000, "batch": 200_000, "seconds": 120.0}
    make_config(tmp_path, kind="OFUL", mode="act", limits=limits)
    rng = np.random.default_rng(3)
    contexts = [random_context(rng) for _ in range(200)]
    body = json.dumps({"decisions": [{"context": context} for context in contexts * 170]}).encode()
    assert 3_000_000 < len(body) < 5_000_000
    with serving(tmp_path) as server, httpx.Client(base_url=server.url, timeout=120) as client:
        post(client, "/v1/decisions", {"context": contexts[0]})
        sent: list[tuple[float, float, int]] = []

        def send() -> None:
            began = time.monotonic()
            headers = {"content-type": "application/json"}
            answer = httpx.post(server.url + "/v1/decisions/batch", content=body, headers=headers, timeout=120)
            sent.append((began, time.monotonic(), answer.status_code))

        large = threading.Thread(target=send)
        answered: list[float] = []
        large.start()
        while large.is_alive():
            assert post(client, "/v1/decisions", {"context": contexts[1]}).status_code == 201
            answered.append(time.monotonic())
        large.join()
    ((began, ended, status),) = sent
    assert status == 201
    gaps = np.diff([began, *(at for at in answered if began < at < ended), ended])
    assert len(gaps) > 5
    assert max(gaps) < 0.6 * (ended - began), "somebody waited for most of it"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_commit_thread_that_dies_is_told_at_once(tmp_path: Path):
    """Requests that wait are refused, those that come later too, and the server is not ready."""
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def live() -> None:
        async with engine_of(config) as engine:
            x = np.array([[1.0, 0.1, 0.2, 0.0, 0.0, 0.3, 0.4]])
            await engine.decide(x, None)
            assert engine.ready
            engine.store.append = _dies  # type: ignore[method-assign]
            asked = asyncio.gather(*(engine.decide(x, None) for _ in range(5)), return_exceptions=True)
            first = await asyncio.wait_for(asked, 10)
            assert all(isinstance(outcome, Problem) and outcome.kind == "storage" for outcome in first), first
            assert not engine.ready
            with pytest.raises(Problem, match="restart"):
                await asyncio.wait_for(engine.decide(x, None), 10)

    run(live())


def _dies(*_arguments: object) -> None:
    raise SystemExit("out of luck")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_who_comes_while_the_commit_thread_dies_is_refused_too(tmp_path: Path):
    """The thread has emptied its queue for the last time, and is alive for a moment more."""
    config = make_config(tmp_path, kind="OFUL", mode="act")

    class Dying:
        def is_alive(self) -> bool:
            return True

        def join(self, timeout: float | None = None) -> None: ...

    async def live() -> None:
        async with engine_of(config) as engine:
            x = np.array([[1.0, 0.1, 0.2, 0.0, 0.0, 0.3, 0.4]])
            engine.store.append = _dies  # type: ignore[method-assign]
            with pytest.raises(Problem):
                await asyncio.wait_for(engine.decide(x, None), 10)
            assert engine.committer is not None
            engine.committer._worker.join(10)
            engine.committer._worker = Dying()
            with pytest.raises(Problem, match="restart"):
                await asyncio.wait_for(engine.decide(x, None), 10)
            engine.committer._worker = None

    run(live())


def test_a_server_that_cannot_start_leaves_no_thread_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = make_config(tmp_path, kind="OFUL", mode="act")
    run(_live_briefly(config))
    changed = replace(config, mode=replace(config.mode, share=0.25))

    def fails(*_arguments: object) -> None:
        raise StoreError("no room")

    async def live() -> None:
        store = open_store(changed)
        engine = Engine(store, changed)
        monkeypatch.setattr(store, "append", fails)
        started: list[Committer] = []
        start = Committer.start
        monkeypatch.setattr(Committer, "start", lambda self: (started.append(self), start(self)))
        with pytest.raises(Problem, match="no room"):
            await engine.start()
        assert len(started) == 1
        assert not started[0].alive
        store.close()

    run(live())


async def _live_briefly(config: Config) -> None:
    async with engine_of(config):
        pass


def test_a_restore_leaves_the_back_up_and_its_folder_as_they_are(tmp_path: Path, rng):
    """They may be on a medium that cannot be written."""
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def live() -> None:
        async with engine_of(config) as engine:
            await engine.decide(np.array([[1.0, 0.1, 0.2, 0.0, 0.0, 0.3, 0.4]]), None)

    run(live())
    vault = tmp_path / "vault"
    vault.mkdir()
    assert command("backup", str(vault / "copy.db"), cwd=tmp_path).returncode == 0
    before = (vault / "copy.db").read_bytes()
    (vault / "copy.db").chmod(0o444)
    vault.chmod(0o555)
    looked = vault.stat().st_mtime_ns
    try:
        done = command("restore", str(vault / "copy.db"), "--database", "new.db", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    finally:
        vault.chmod(0o755)
    assert [path.name for path in vault.iterdir()] == ["copy.db"]
    # not even a file that came and went
    assert vault.stat().st_mtime_ns == looked
    assert (vault / "copy.db").read_bytes() == before
    store = Store(database_url(str(tmp_path / "new.db")))
    assert store.head() >= 2
    store.close()


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "tab\there", "new\nline"])
def test_token_names_hold_no_control_characters(tmp_path: Path, name: str):
    make_config(tmp_path, kind="OFUL", mode="act")
    done = command("tokens", "create", name, "--scope", "read", cwd=tmp_path)
    assert done.returncode != 0
    assert name not in done.stderr
    store = open_store(make_config(tmp_path, kind="OFUL", mode="act"))
    assert create_token(store, "a good one", SCOPES)
    store.close()


def test_a_back_up_that_a_server_opens_while_it_is_read_is_not_restored(tmp_path: Path, rng, monkeypatch):
    """It is read as if nobody could write to it, so what is read would be a mixture of two states."""
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def live() -> None:
        async with engine_of(config) as engine:
            for _ in range(3):
                await engine.decide(make_schema().encode(random_context(rng))[None], None)

    run(live())
    assert command("backup", "copy.db", cwd=tmp_path).returncode == 0
    look, opened = Store.end_within, list[Store]()

    def meanwhile(self: Store, connection: sa.Connection) -> Head:
        if not opened:
            opened.append(Store(database_url(str(tmp_path / "copy.db"))))
            opened[0].probe()
        return look(self, connection)

    monkeypatch.setattr(Store, "end_within", meanwhile)
    done = command("restore", "copy.db", "--database", "new.db", cwd=tmp_path)
    monkeypatch.undo()
    opened[0].close()
    assert done.returncode == 1
    assert "was opened by something that writes" in done.stderr
    assert not (tmp_path / "new.db").exists()
    assert command("restore", "copy.db", "--database", "new.db", cwd=tmp_path).returncode == 0
