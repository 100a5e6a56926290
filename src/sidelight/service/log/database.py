"""The database of an event log: opening, migrating, transactions, and erasing deleted data from its files."""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self

import sqlalchemy as sa
from sqlalchemy import Connection, event, select
from sqlalchemy.exc import DataError, IntegrityError, InterfaceError, ProgrammingError, SQLAlchemyError, StatementError

from sidelight.errors import StoreError
from sidelight.service.log import migrations as tables
from sidelight.service.log.connections import BUSY_TIMEOUT, check_encoding, connect, explain_failure, file_of
from sidelight.service.log.settling import Diverged
from sidelight.service.log.silence import Silence
from sidelight.service.log.surroundings import Surroundings

__all__ = ["Database", "Rejected", "Unsynced"]

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger("sidelight.service")

#: pages of SQLite's write-ahead log after which the serving process moves them into the file
_CHECKPOINT_PAGES = 1000
_ASKED, _DONE = "checkpoint_asked", "checkpoint_done"
#: number of dead row versions of a PostgreSQL table, TOAST included, that the last VACUUM could not remove
_OLD_VERSIONS = (
    "SELECT coalesce(sum(pg_stat_get_dead_tuples(kept)), 0) FROM pg_class, unnest(ARRAY[oid, reltoastrelid]) AS kept "
    "WHERE oid = %s::regclass AND kept <> 0"
)


class Rejected(StoreError):
    """The database works, but it refuses the values to be written, or an event does not match its checksum."""


class Unsynced(Diverged):
    """The disk failed to make a transaction durable: this process no longer knows what is on disk."""


class Database:
    """Connections to one database whose tables have the version of this Sidelight.

    Args:
        url: where it is.
        create: make it where it is not there.
        migrate: bring its tables to this version; otherwise they are taken as they are.
        surroundings: time and randomness.
    """

    def __init__(
        self, url: sa.URL, *, create: bool = True, migrate: bool = True, surroundings: Surroundings | None = None
    ) -> None:
        self.url = url
        self._path = file_of(url)  # of SQLite
        self._log_path = self._beside("-wal")
        self.sqlite = url.get_backend_name() == "sqlite"
        self.surroundings = Surroundings() if surroundings is None else surroundings
        self.origin = 0
        self.identity = b""
        self.sealed_after = 0
        self._serving: IO[bytes] | None = None
        self._silence: Silence | None = None
        #: why nothing may be written any more; None while writing is allowed
        self._ended: Diverged | None = None
        self._opened: tuple[int, int] | None = None
        self._has_log = False
        if self.sqlite and not create and not self._path.exists():
            raise StoreError(f"there is no database at {url.database}. `sidelight serve` makes one.")
        if self.sqlite and create and not url.query:
            # Contexts may be personal data: whatever the umask, a new file is open to its owner and group alone.
            # SQLite gives the files beside it the same rights; where the file cannot be made, opening it says why.
            with suppress(OSError):
                self._path.touch(mode=0o660)
        self._engine, self._writer = connect(url)
        if migrate:
            self.migrated = self._migrate()
            self.reread()
        if self.sqlite and not url.query:
            self._opened = _file_at(self._path)

    def _migrate(self) -> tuple[int, int]:
        version = self.version()
        if version == tables.VERSION:
            return version, version
        with self._guard("open"), self._writer.begin() as connection:
            if version == 0:
                check_encoding(connection)
            return tables.migrate(connection)

    @classmethod
    def existing(cls, url: sa.URL, *, create: bool = False) -> Self:
        """A database that is read as it is: it is never migrated, because servers of an older version may run on it.

        Args:
            url: where it is.
            create: make it where it is not there, or empty.

        Raises:
            StoreError: it is not there, or its tables have another version.
        """
        found = cls(url, create=create, migrate=False)
        try:
            version = found.version()
            if version == 0 and create:
                found.migrated = found._migrate()
            elif version < tables.VERSION:
                where = url.render_as_string(hide_password=True)
                raise StoreError(
                    f"the database at {where} has version {version}, and this Sidelight works with {tables.VERSION}. "
                    "Back it up with the Sidelight that wrote it, stop that one, then `sidelight migrate` or "
                    "`sidelight serve` brings it up to date."
                    if version
                    else f"there is no event log in the database at {where}. `sidelight serve` makes one."
                )
            found.reread()
        except BaseException:
            found.close()
            raise
        return found

    def version(self) -> int:
        """The version of the tables; 0 where there are none.

        Raises:
            StoreError: a newer Sidelight made them.
        """
        with self._guard("open"), self._engine.connect() as connection:
            return tables.database_version(connection)

    def reread(self) -> None:
        """Read again what the database says about the log."""
        found = self.properties()
        try:
            self.origin = int(found.get("origin", 0))
            self.identity = bytes.fromhex(found.get("identity", ""))
            self.sealed_after = int(found.get("sealed_after", 0))
        except ValueError as error:
            raise StoreError(
                f"what the database says about its log was altered ({error}). Restore a back-up."
            ) from error

    def properties(self) -> dict[str, str]:
        """What the database says about itself."""
        with self.reading() as connection:
            return {row.name: row.value for row in connection.execute(select(tables.properties))}

    def has_tokens(self) -> bool:
        """Whether a token was ever made, valid or revoked."""
        with self.reading() as connection:
            return connection.execute(select(tables.tokens.c.id).limit(1)).first() is not None

    def close(self) -> None:
        """Give back every connection."""
        if self._silence is not None:
            self._silence.end()
        self._engine.dispose()
        self._writer.dispose()
        if self._serving is not None:
            self._serving.close()
            self._serving = None

    @contextmanager
    def _guard(self, action: str) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
            if _is_failed_sync(error):
                said = getattr(error, "orig", error)
                self._ended = Unsynced(
                    f"the disk could not make a transaction durable ({said}). Pages may be gone that look as if they "
                    "were written, and a second try may succeed without writing them, so this server decides no more. "
                    "Check the disk, then start it again: it goes on from what is there."
                )
                raise self._ended from error
            kind = Rejected if _is_about_content(error) else StoreError
            raise kind(explain_failure(error, action, self.url)) from error

    @contextmanager
    def reading(self, *, one_state: bool = False) -> Iterator[Connection]:
        """A connection that reads.

        Args:
            one_state: have all its statements see the database at one moment, as SQLite's do anyway.
        """
        with self._guard("read"), self._engine.connect() as connection:
            if one_state and not self.sqlite:
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield connection

    @contextmanager
    def writing(self, patience: float | None = None) -> Iterator[Connection]:
        """A transaction that writes; SQLite's write lock is taken at once.

        Args:
            patience: for how many seconds it may pause between two statements before PostgreSQL takes it for dead;
                None for what the connection has.
        """
        if self._ended is not None:
            raise self._ended
        self._check_files()
        with self._guard("write to"), self._writer.begin() as connection:
            if patience is not None and not self.sqlite:
                connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{int(patience)}s'")
            yield connection
        # again after the commit: if the files were exchanged meanwhile, the transaction is in none of them
        self._check_files(written=True)

    def _check_files(self, *, written: bool = False) -> None:
        """Check that SQLite's files are still those that were opened: others can be put in their place meanwhile.

        Args:
            written: whether a transaction has just ended, so that the write-ahead log is in use.

        Raises:
            Diverged: the file was removed or exchanged, or its write-ahead log is gone.
        """
        if self._opened is None:
            return
        gone = _file_at(self._path) != self._opened
        if written:
            # not every file system supports a write-ahead log: its absence is an error only if it was there before
            had, self._has_log = self._has_log, _file_at(self._log_path) is not None
            gone = gone or (had and not self._has_log)
        if gone:
            self._ended = Diverged(
                f"{self._path} or the write-ahead log beside it was removed or exchanged while it was in use: what is "
                "written now would be lost, so this server decides no more. Stop it, see that the right file is there, "
                "without the -wal and -shm files of another, and start it again."
            )
            raise self._ended

    def _beside(self, ending: str) -> Path:
        return self._path.with_name(self._path.name + ending)

    # ----------------------------------------------------------------------------------- serving

    def serve(self) -> None:
        """Declare this process a server of the database.

        From now on it checkpoints SQLite's write-ahead log, or closes connections on which PostgreSQL does not answer.

        Raises:
            StoreError: it cannot be written to.
        """
        if not self.sqlite and self._silence is None:
            self._silence = Silence(self._engine)
        if not self.sqlite or self._serving is not None or sys.platform == "win32":
            return
        with self._guard("serve"):
            lock = self._lock_file.open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
        except OSError as error:
            lock.close()
            raise StoreError(explain_failure(error, "lock", self.url)) from error
        self._serving = lock
        event.listen(self._writer, "checkout", _checkpoint_by_itself)

    @property
    def _lock_file(self) -> Path:
        return self._path.with_name(f".{self._path.name}.serving")

    def checkpoint_if_asked(self) -> None:
        """Checkpoint the write-ahead log if another process has asked for it.  Call it in the thread that writes."""
        if self._serving is None:
            return
        found = self.properties()
        asked = found.get(_ASKED)
        if asked is None or asked == found.get(_DONE):
            return
        if self._truncate_log():
            with self.writing() as connection:
                self.set_property(connection, _DONE, asked)

    def set_property(self, connection: Connection, name: str, value: str) -> None:
        """Write one of the database's properties, in the caller's transaction."""
        p = tables.properties
        if connection.execute(p.update().where(p.c.name == name).values(value=value)).rowcount == 0:
            connection.execute(p.insert().values(name=name, value=value))

    # ---------------------------------------------------------------------------------- deleting

    def erase_deleted(self, patience: float = 10.0, *, rewrite: bool = False) -> bool:
        """Erase what the database still holds of deleted data, as described below; servers keep running meanwhile.

        SQLite overwrites what is deleted (``secure_delete``), so only the write-ahead log beside the file still holds
        it until that log is checkpointed and truncated; a running server is asked to do so. PostgreSQL removes the old
        versions of rows and their entries in indexes (``VACUUM``); their bytes may lie in the free space of its pages
        until that is used again.

        Args:
            patience: for how many seconds to try.
            rewrite: have PostgreSQL write its tables anew, without those bytes; every server waits while that lasts.

        Returns:
            False where it did not work within ``patience`` seconds: somebody held a lock or still reads a state of the
            database from before the deletion, or there was no room.
        """
        try:
            with self._guard("rewrite"):
                return self._empty_log(patience) if self.sqlite else self._vacuum(patience, rewrite)
        except StoreError as error:
            logger.warning("%s", error)
            return False

    def _vacuum(self, patience: float, rewrite: bool) -> bool:
        clock = self.surroundings
        end = clock.monotonic() + patience
        # no TRUNCATE: PostgreSQL would need an exclusive lock on the table for it
        options = "FULL" if rewrite else "INDEX_CLEANUP ON, TRUNCATE OFF"
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("SET statement_timeout = 0")
            try:
                for table in (tables.events, tables.subjects, tables.snapshots, tables.pieces, tables.bases):
                    connection.exec_driver_sql(f"VACUUM ({options}) {table.name}")
                    while not rewrite and connection.exec_driver_sql(_OLD_VERSIONS, (table.name,)).scalar_one():
                        # A transaction still sees the dead rows, or the statistics lag behind.
                        if clock.monotonic() > end:
                            return False
                        clock.sleep(0.1)
                        connection.exec_driver_sql(f"VACUUM ({options}) {table.name}")
            finally:
                # Not returned to the pool, where its changed settings would reach the next user.
                connection.invalidate()
        return True

    def _empty_log(self, patience: float) -> bool:
        clock = self.surroundings
        end = clock.monotonic() + patience
        with self._nobody_serves() as alone:
            if alone:
                while not self._truncate_log():
                    if clock.monotonic() > end:
                        return False
                    clock.sleep(0.05)
                return True
        wanted = clock.random_bytes(8).hex()
        with self.writing() as connection:
            self.set_property(connection, _ASKED, wanted)
        while clock.monotonic() < end:
            if self.properties().get(_DONE) == wanted:
                return True
            clock.sleep(0.05)
        return False

    @contextmanager
    def _nobody_serves(self) -> Iterator[bool]:
        """Whether no other process serves this SQLite file; if so, none can start to within the block."""
        if self._serving is not None or sys.platform == "win32":
            yield self._serving is not None
            return
        with self._guard("lock"), self._lock_file.open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True

    def _truncate_log(self) -> bool:
        """Checkpoint SQLite's write-ahead log and truncate it; False where a reader still needs it.

        It waits only as long as short reads take: the reader may be a back-up, and this connection cannot write
        meanwhile.
        """
        raw = self._writer.raw_connection()
        cursor = raw.cursor()
        try:
            cursor.execute("PRAGMA busy_timeout = 100")
            try:
                return not cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            finally:
                cursor.execute(f"PRAGMA {BUSY_TIMEOUT}")
        except sqlite3.Error as error:
            raise StoreError(explain_failure(error, "rewrite", self.url)) from error
        finally:
            raw.close()


def _checkpoint_by_itself(connection: Any, record: Any, _proxy: Any) -> None:
    if not record.info.get("sidelight_checkpoints"):
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        record.info["sidelight_checkpoints"] = True


def _file_at(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file with this name; None where there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _is_failed_sync(error: Exception) -> bool:
    origin = getattr(error, "orig", error)
    return getattr(origin, "sqlite_errorname", None) in ("SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC")


#: errors about what the database was given: SQLAlchemy's, and those of SQLite's driver where it is used directly
_ABOUT_CONTENT = (
    DataError,
    IntegrityError,
    ProgrammingError,
    InterfaceError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
)


def _is_about_content(error: Exception) -> bool:
    """Whether the database refused what it was given, and not the connection, the disk or a lock."""
    if isinstance(error, _ABOUT_CONTENT):
        return True
    return type(error) is StatementError or (
        isinstance(error, StatementError) and isinstance(error.orig, ValueError | TypeError | OverflowError)
    )
