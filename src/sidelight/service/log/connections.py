"""Connections to SQLite and PostgreSQL: their settings, their addresses, and what their errors mean."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from sidelight.errors import StoreError

__all__ = [
    "BUSY_TIMEOUT",
    "check_encoding",
    "connect",
    "database_url",
    "driver_of",
    "explain_failure",
    "file_of",
    "place_of",
    "sqlite_flaw",
    "untouched",
]

logger = logging.getLogger("sidelight.service")

_PLACE = "sidelight_place"
#: milliseconds that SQLite waits for a lock of another connection
BUSY_TIMEOUT = "busy_timeout = 10000"
#: PostgreSQL's code for a transaction that writes and must not
_READ_ONLY = "25006"
#: seconds that making a connection to PostgreSQL may take
CONNECT_SECONDS = 10


def database_url(database: str, folder: Path | None = None) -> sa.URL:
    """``postgresql://…``, ``sqlite:///…`` or a file's name, relative to ``folder``, as SQLAlchemy wants it."""
    if "://" not in database:
        path = Path(database) if folder is None else folder / database
        if not path.name or path.is_dir():
            raise StoreError(f"{database!r} is a folder, and a database is a file: name one in it.")
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


def untouched(url: sa.URL) -> sa.URL:
    """The address that opens a SQLite file as immutable, so that reading it creates no files beside it.

    Addresses of PostgreSQL, with options, or of files with a write-ahead log (they may have a writer) stay unchanged.
    """
    path = Path(str(url.database))
    if url.get_backend_name() != "sqlite" or url.query or path.with_name(path.name + "-wal").exists():
        return url
    query = {"uri": "true", "mode": "ro", "immutable": "1"}
    return url.set(database="file:" + quote(str(path.absolute())), query=query)


def file_of(url: sa.URL) -> Path:
    """The file of a SQLite database."""
    name = str(url.database)
    return Path(unquote(name.removeprefix("file:"))) if url.query.get("uri") else Path(name)


def connect(url: sa.URL) -> tuple[Engine, Engine]:
    """The engines for reading and for writing; commits are durable whatever the database server's defaults.

    PostgreSQL has one engine for both. SQLite has two: a single connection writes and checkpoints, because in some
    versions of the library two connections that do so at once can destroy the file; all others are read-only.
    """
    if url.get_backend_name() == "sqlite":
        options = {"timeout": 10.0, "check_same_thread": False}
        readers = sa.create_engine(url, connect_args=options)
        event.listen(readers, "connect", _prepare_sqlite_reader)
        event.listen(readers, "begin", _begin_reading)
        writer = sa.create_engine(url, connect_args=options, poolclass=sa.QueuePool, pool_size=1, max_overflow=0)
        event.listen(writer, "connect", _prepare_sqlite_writer)
        event.listen(writer, "begin", _begin_writing)
        return readers, writer
    # A server or a network that is gone is noticed in seconds, also in the middle of a statement.
    connection: dict[str, Any] = {
        # overrides the defaults of the role, the database and the environment
        "client_encoding": "utf8",
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 5,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
    }
    engine = sa.create_engine(url, connect_args=connection)
    event.listen(engine, "connect", _prepare_postgresql)
    event.listen(engine, "handle_error", _leave_what_is_read_only)

    # What ``pool_pre_ping`` does, but after the other listeners (``Silence``) know that the connection is in use.
    def ping(connection: Any, _record: Any, _proxy: Any) -> None:
        try:
            engine.dialect.do_ping(connection)
        except Exception as error:
            raise sa.exc.InvalidatePoolError from error

    event.listen(engine, "checkout", ping)
    return engine, engine


def _prepare_sqlite_writer(connection: Any, record: Any) -> None:
    # Switches off the driver's implicit BEGIN; ``_begin_writing`` issues it.
    connection.isolation_level = None
    record.info[_PLACE] = "file"
    _set(
        connection,
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        BUSY_TIMEOUT,
        "secure_delete = ON",
        # Only the process that serves moves the write-ahead log into the file; ``Store.serve`` switches it on.
        "wal_autocheckpoint = 0",
    )


def _prepare_sqlite_reader(connection: Any, _record: Any) -> None:
    connection.isolation_level = None
    _set(connection, BUSY_TIMEOUT, "wal_autocheckpoint = 0", "query_only = ON")


def _set(connection: Any, *pragmas: str) -> None:
    cursor = connection.cursor()
    for pragma in pragmas:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_reading(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _begin_writing(connection: Connection) -> None:
    driver_of(connection).execute("BEGIN IMMEDIATE")


def driver_of(connection: Connection) -> Any:
    """The driver's own connection, for statements that run too often to go through SQLAlchemy."""
    return connection.connection.driver_connection


def _prepare_postgresql(connection: Any, record: Any) -> None:
    autocommit, connection.autocommit = connection.autocommit, True
    with connection.cursor() as cursor:
        # send floats with all their digits: an event's time is part of its checksum
        cursor.execute("SET extra_float_digits = 3")
        cursor.execute("SET synchronous_commit = on")
        cursor.execute("SET default_transaction_isolation = 'read committed'")
        cursor.execute("SET lock_timeout = '20s'")
        cursor.execute("SET statement_timeout = '60s'")
        # A server that freezes while it holds the log's lock must not stop all others until it wakes.
        cursor.execute("SET idle_in_transaction_session_timeout = '10s'")
        record.info[_PLACE] = _postgresql_place(cursor)
    connection.autocommit = autocommit


def _leave_what_is_read_only(context: Any) -> None:
    """Have connections that may only read closed: a new one may write, once the database or another server allows it.

    A session keeps the ``default_transaction_read_only`` that it began with, whatever the database says later.
    """
    if getattr(context.original_exception, "sqlstate", None) == _READ_ONLY:
        context.is_disconnect = True


def _postgresql_place(cursor: Any) -> str | None:
    """Cluster, timeline and database as text; another one after a failover, point-in-time recovery or restored dump."""
    try:
        cursor.execute(
            "SELECT system_identifier || ':' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || ':' || "
            "(SELECT oid FROM pg_database WHERE datname = current_database()) FROM pg_control_system()"
        )
        return str(cursor.fetchone()[0])
    except Exception as error:
        # Not every role may ask, and no standby can answer: then only servers that remember lost events notice the
        # loss.
        logger.info("the database does not tell its timeline: %s", type(error).__name__)
        return None


def check_encoding(connection: Connection) -> None:
    """Check, before a log begins in a database, that it can hold every text.

    Raises:
        StoreError: it cannot.
    """
    if connection.dialect.name == "postgresql":
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
        if encoding != "UTF8":
            raise StoreError(
                f"the PostgreSQL database has the encoding {encoding}, which cannot hold every name and subject: make "
                "one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
            )


def place_of(connection: Connection) -> str | None:
    """Which database instance a writing connection reaches, as text; None where it cannot be determined."""
    found: str | None = connection.info.get(_PLACE)
    return found


def sqlite_flaw(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> str | None:
    """What is wrong with this version of the SQLite library, or None.

    From 3.7.0 to 3.51.2, except 3.44.6 and 3.50.7, two connections that write and checkpoint one file at the same
    moment can destroy it.
    """
    if not (3, 7, 0) <= version[:3] <= (3, 51, 2) or version[:3] in ((3, 44, 6), (3, 50, 7)):
        return None
    shown = ".".join(map(str, version[:3]))
    return (
        f"SQLite {shown} can destroy a file when two connections write and checkpoint it at the same moment (fixed in "
        "3.51.3). Sidelight lets only one connection do so; open the file with no other program while the service "
        "runs, and upgrade SQLite."
    )


_CAUSES: tuple[tuple[Callable[[str], bool], str], ...] = (
    (lambda t: "disk is full" in t or "no space left" in t, "the disk is full: free some space"),
    (
        lambda t: "read-only transaction" in t,
        "PostgreSQL only lets it be read (a standby, or default_transaction_read_only): see why, and that it may be "
        "written to",
    ),
    (
        lambda t: "readonly" in t or "read-only" in t or "permission denied" in t or "unable to open database" in t,
        "the folder or the database is missing or not writable: check that it exists and who owns it",
    ),
    (lambda t: "disk i/o error" in t or "file too large" in t, "the disk refuses to write: check its space and health"),
    (lambda t: "locked" in t or "lock timeout" in t, "another process holds its lock: stop whatever else writes to it"),
    (
        lambda t: "sidelight_events_sealed" in t or "belongs to a newer sidelight" in t,
        "the database belongs to a newer Sidelight: upgrade this one",
    ),
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
