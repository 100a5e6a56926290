"""Connections to SQLite and PostgreSQL: their settings, their addresses, and what their errors mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from sidelight.errors import StoreError

__all__ = ["connect", "database_url", "explain_failure"]


def database_url(database: str, folder: Path | None = None) -> sa.URL:
    """``postgresql://…``, ``sqlite:///…`` or a file's name, relative to ``folder``, as SQLAlchemy wants it."""
    if "://" not in database:
        path = Path(database) if folder is None else folder / database
        return sa.URL.create("sqlite", database=str(path))
    try:
        url = sa.make_url(database)
    except (SQLAlchemyError, ValueError) as error:
        raise StoreError(f"{database!r} is not an address of a database: {error}.") from error
    backend = url.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and url.database not in (None, "", ":memory:"):
        return url
    raise StoreError(f"{database!r}: Sidelight keeps its events in a SQLite file or in postgresql://….")


def connect(url: sa.URL) -> Engine:
    """An engine whose connections are durable, whatever the server's defaults."""
    if url.get_backend_name() == "sqlite":
        engine = sa.create_engine(url, connect_args={"timeout": 10.0, "check_same_thread": False})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        # A dead server is noticed in seconds, and no statement waits for ever for a lock.
        options = {"connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
        engine = sa.create_engine(url, connect_args=options, pool_pre_ping=True)
        event.listen(engine, "connect", _prepare_postgresql)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver's own idea of when a transaction starts is switched off; _begin_sqlite says it.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "busy_timeout = 10000",
        "secure_delete = ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("sidelight_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _prepare_postgresql(connection: Any, _record: Any) -> None:
    autocommit, connection.autocommit = connection.autocommit, True
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
        cursor.execute("SET default_transaction_isolation = 'read committed'")
        cursor.execute("SET lock_timeout = '20s'")
        cursor.execute("SET statement_timeout = '60s'")
    connection.autocommit = autocommit


_CAUSES: tuple[tuple[Callable[[str], bool], str], ...] = (
    (lambda t: "disk is full" in t or "no space left" in t, "the disk is full: free some space"),
    (
        lambda t: "readonly" in t or "read-only" in t or "permission denied" in t or "unable to open database" in t,
        "the folder or the database is missing or not writable: check that it exists and who owns it",
    ),
    (lambda t: "disk i/o error" in t or "file too large" in t, "the disk refuses to write: check its space and health"),
    (lambda t: "locked" in t or "lock timeout" in t, "another process holds its lock: stop whatever else writes to it"),
    (lambda t: "malformed" in t or "not a database" in t, "the file is damaged or not a database: restore a back-up"),
    (
        lambda t: "connect" in t or "server closed" in t or "terminat" in t or "shutting down" in t,
        "the database server does not answer: check that it runs and is reachable",
    ),
)


def explain_failure(error: Exception, action: str, url: sa.URL) -> str:
    """What went wrong with the database, and what to do."""
    origin = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    said = " ".join(str(origin).split())
    where = url.render_as_string(hide_password=True)
    cause = next((advice for applies, advice in _CAUSES if applies(said.lower())), "see what the database said")
    return f"cannot {action} the event log at {where}: {cause}. The database said: {said}."
