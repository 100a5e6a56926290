"""SQLite: one connection writes and checkpoints.  PostgreSQL: a server that hangs does not hold everybody up."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from sidelight.errors import StoreError
from sidelight.service.core.deciding import Ask
from sidelight.service.core.engine import Engine
from sidelight.service.core.starting import open_store
from sidelight.service.log.connections import database_url, sqlite_flaw
from sidelight.service.log.database import Unsynced
from sidelight.service.log.store import Store
from sidelight.service.problems import Problem
from tests.service.helpers import (
    Server,
    command,
    engine_of,
    make_config,
    make_schema,
    post,
    random_context,
    run,
    serving,
)
from tests.service.test_store import Note


@pytest.mark.parametrize(
    ("version", "flawed"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 44, 7), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((4, 0, 0), False),
    ],
)
def test_which_versions_of_sqlite_can_destroy_a_file(version, flawed):
    assert (sqlite_flaw(version) is not None) is flawed


def test_a_flawed_library_is_said_before_serving(tmp_path):
    make_config(tmp_path, kind="OFUL")
    done = command("serve", "--check", cwd=tmp_path)
    assert ("can destroy a file" in done.stdout) is (sqlite_flaw() is not None)
    with serving(tmp_path) as server:
        assert any("can destroy a file" in line for line in server.said) is (sqlite_flaw() is not None)


def pragma(engine: sa.Engine, name: str) -> int:
    with engine.connect() as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


def test_one_connection_writes_and_only_a_server_checkpoints(tmp_path):
    store = Store(database_url(str(tmp_path / "events.db")))
    with store.reading() as connection, pytest.raises(sa.exc.OperationalError, match="readonly"):
        connection.exec_driver_sql("DELETE FROM sidelight_events")
    assert pragma(store._engine, "wal_autocheckpoint") == 0
    assert pragma(store._writer, "wal_autocheckpoint") == 0
    store._writer.pool._timeout = 0.05
    with store.writing(), pytest.raises(sa.exc.TimeoutError):
        store._writer.connect()
    # whatever is written, the file is as it was until somebody serves it
    before = (tmp_path / "events.db").read_bytes()
    for i in range(60):
        store.append([Note(j) for j in range(500)], i * 500)
    assert (tmp_path / "events.db-wal").stat().st_size > 1100 * 4096
    assert (tmp_path / "events.db").read_bytes() == before
    store.serve()
    store.append([Note(1)], 60 * 500)
    assert (tmp_path / "events.db").read_bytes() != before
    assert pragma(store._engine, "wal_autocheckpoint") == 0
    store.close()


def test_forget_asks_the_running_server_to_checkpoint(tmp_path, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act")
    encode = make_schema().encode

    async def live() -> None:
        async with engine_of(config) as engine:
            for _ in range(5):
                await engine.decide(encode(random_context(rng))[None], [Ask(subject="anna-secret")])

    run(live())
    with serving(tmp_path) as server:
        body = {"context": random_context(rng), "subject": "anna-secret"}
        assert post(httpx.Client(base_url=server.url), "/v1/decisions", body).status_code == 201
        done = json.loads(command("forget", "--subject", "anna-secret", "--json", cwd=tmp_path).stdout)
        assert (done["decisions"], done["erased"]) == (6, True)
        files = b"".join(path.read_bytes() for path in tmp_path.glob("sidelight.db*"))
        assert b"anna-secret" not in files
        assert (tmp_path / "sidelight.db-wal").stat().st_size < 40_000
    # and without a server it does so itself
    run(live())
    done = json.loads(command("forget", "--subject", "anna-secret", "--json", cwd=tmp_path).stdout)
    assert (done["decisions"], done["erased"]) == (5, True)


def test_a_checkpoint_that_was_asked_for_does_not_wait_for_a_long_reader(tmp_path):
    """A back-up may read for minutes; whoever wants to decide meanwhile would wait with the checkpoint."""
    store = Store(database_url(str(tmp_path / "events.db")))
    store.serve()
    store.append([Note(1)], 0)

    def very_patient(connection, *_):
        connection.execute("PRAGMA busy_timeout = 3600000")

    sa.event.listen(store._writer, "checkout", very_patient)
    with store.reading() as back_up:
        back_up.exec_driver_sql("SELECT count(*) FROM sidelight_events").scalar()
        store.append([Note(2)], 1)
        with store.writing() as connection:
            store.set_property(connection, "checkpoint_asked", "by somebody")
        store.checkpoint_if_asked()
        assert "checkpoint_done" not in store.properties()
        store.append([Note(3)], 2)
    store.checkpoint_if_asked()
    assert store.properties()["checkpoint_done"] == "by somebody"
    sa.event.remove(store._writer, "checkout", very_patient)
    store._truncate_log()
    assert pragma(store._writer, "busy_timeout") == 10_000
    store.close()


def test_after_a_failed_sync_a_server_stops_and_says_so(tmp_path, rng):
    config = make_config(tmp_path, kind="OFUL", mode="act")
    x = make_schema().encode(random_context(rng))[None]

    async def live() -> int:
        async with engine_of(config) as engine:
            await engine.decide(x, None)
            head = engine.store.head()

            def failing(connection):
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
                raise error

            sa.event.listen(engine.store._writer, "commit", failing)
            with pytest.raises(Problem, match=r"could not make a transaction durable.*decides no more"):
                await engine.decide(x, None)
            sa.event.remove(engine.store._writer, "commit", failing)
            # it works again, and is not trusted: the pages may be gone
            with pytest.raises(Problem, match="decides no more"):
                await engine.decide(x, None)
            assert not engine.ready
            with pytest.raises(Unsynced):
                engine.store.probe()
            return head

    head = run(live())
    store = open_store(config)
    assert Engine(store, config).state.number == head
    store.close()


def backends(postgres: str) -> list[int]:
    folder = Path(sa.make_url(postgres.replace("postgresql://", "postgresql+psycopg://")).query["host"])
    postmaster = int((folder / "postmaster.pid").read_text().split()[0])
    children = subprocess.run(["pgrep", "-P", str(postmaster)], capture_output=True, text=True, check=False).stdout
    return [postmaster, *map(int, children.split())]


def test_a_database_that_hangs_is_told_by_readiness_and_does_not_keep_a_server_from_ending(
    tmp_path, postgres, new_postgres, rng
):
    if "host=" not in postgres or subprocess.run(["which", "pgrep"], capture_output=True, check=False).returncode:
        pytest.skip("the processes of the database cannot be found here")
    make_config(tmp_path, kind="OFUL", mode="act", database=new_postgres(), limits={"seconds": 1.0})
    with serving(tmp_path) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        assert post(client, "/v1/decisions", {"context": random_context(rng)}).status_code == 201
        stopped = backends(postgres)
        try:
            for process in stopped:
                os.kill(process, signal.SIGSTOP)
            began = time.monotonic()
            assert post(client, "/v1/decisions", {"context": random_context(rng)}).status_code == 503
            while client.get("/health/ready").status_code == 200:
                assert time.monotonic() - began < 15, "readiness never noticed"
                time.sleep(0.1)
            # that it is storage is for anybody to know, and what about it for who may read
            assert client.get("/health/ready").json()["type"].endswith(":storage")
            assert "has not answered" in client.get("/v1/status").json()["error"]
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(30)
        finally:
            for process in stopped:
                os.kill(process, signal.SIGCONT)


def test_a_server_that_freezes_with_the_lock_lets_others_go_on(new_postgres):
    store = Store(database_url(new_postgres()))
    other = Store(store.url)

    def freeze() -> None:
        with store.writing(patience=1) as connection:
            store.lock(connection)
            began = time.monotonic()
            other.append([Note(1)], 0)
            assert 0.5 < time.monotonic() - began < 10
            store.lock(connection)

    with pytest.raises(StoreError):
        freeze()
    assert other.head() == 1
    store.close(), other.close()


def test_a_postgresql_that_could_only_be_read_for_a_while_is_written_to_again(new_postgres):
    """A session keeps the default that it began with, so that a server which kept its sessions never wrote again."""
    import psycopg

    address = new_postgres()
    store = Store(database_url(address))
    store.append([Note(1)], 0)

    def let_write(allowed: bool) -> None:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            name = connection.execute("SELECT current_database()").fetchone()[0]
            read_only = "off" if allowed else "on"
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {read_only}")
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            if not allowed:
                connection.execute(others + "AND pid <> pg_backend_pid()")

    let_write(False)
    for _ in range(2):
        with pytest.raises(StoreError, match="PostgreSQL only lets it be read"):
            store.append([Note(2)], 1)
    let_write(True)
    store.append([Note(2)], 1)
    assert store.head() == 2
    store.close()


#: the signal arrives when a server has said where it decides, and before Uvicorn listens to signals
STOPPED_AT_ONCE = """
import os, signal, uvicorn

serve = uvicorn.Server.serve

async def stopped(self, sockets=None):
    os.kill(os.getpid(), signal.SIGTERM)
    await serve(self, sockets)

uvicorn.Server.serve = stopped
"""


def test_a_stop_in_the_moment_of_the_start_is_not_lost(tmp_path):
    make_config(tmp_path, kind="OFUL")
    server = Server(tmp_path, prepare=STOPPED_AT_ONCE)
    assert server.process.wait(60) == 0
    server._close()
