"""The tables of the store, and how they came to be: one migration per version, applied in order."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    select,
    text,
)
from sqlalchemy.schema import CreateColumn

from sidelight.errors import StoreError

__all__ = [
    "RARE",
    "VERSION",
    "allow_unsealed",
    "bases",
    "blobs",
    "database_version",
    "events",
    "forbid_unsealed",
    "head",
    "metadata",
    "migrate",
    "pieces",
    "properties",
    "snapshots",
    "subjects",
    "tokens",
]

metadata = MetaData()

# In SQLite a primary key is the rowid itself, without a second index, only if its type is called INTEGER.
_Number = BigInteger().with_variant(Integer, "sqlite")

#: what is known about the database itself: its version, the log's identity, where the log began
properties = Table(
    "sidelight_properties",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("value", Text, nullable=False),
)

#: one row: the end of the log (``sealing.Head``); whoever holds its lock gives the next numbers
head = Table(
    "sidelight_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", _Number, nullable=False),
    Column("chain", LargeBinary, nullable=True),
    Column("epoch", _Number, nullable=False, server_default="0"),
    Column("fold", Integer, nullable=False, server_default="1"),
    Column("place", Text, nullable=True),
)

#: the log; rows are only ever added (and contexts deleted on a person's request)
events = Table(
    "sidelight_events",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("at", Float(53), nullable=False),
    Column("key", String(300), nullable=True),
    Column("payload", Text, nullable=False),
    Column("contexts", LargeBinary, nullable=True),
    Column("epoch", _Number, nullable=False, server_default="0"),
    # None in events that were written before there were seals
    Column("seal", LargeBinary, nullable=True),
    Column("chain", LargeBinary, nullable=True),
    Index("sidelight_events_key", "key", unique=True),
)

#: large immutable values by their SHA-256: the initial learner
blobs = Table(
    "sidelight_blobs",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)


def _state_columns() -> list[Column[Any]]:
    """The columns of a state that was kept."""
    return [
        Column("at", Float(53), nullable=False),
        Column("digest", String(64), nullable=False),
        Column("state", Text, nullable=False),
        Column("learner", LargeBinary, nullable=False),
        Column("fold", Integer, nullable=False, server_default="1"),
    ]


snapshots = Table(
    "sidelight_snapshots",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=False),
    *_state_columns(),
)

#: learners that are too large for one short transaction, in pieces; ``digest`` is their snapshot's
pieces = Table(
    "sidelight_pieces",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("number", _Number, nullable=False),
    Column("content", LargeBinary, nullable=False),
)

tokens = Table(
    "sidelight_tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", String(200), nullable=False),
    Column("scopes", String(100), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created", Float(53), nullable=False),
    Column("revoked", Float(53), nullable=True),
)

#: which decisions were about whom, so that a person's contexts can be found
subjects = Table(
    "sidelight_subjects",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("subject", String(200), nullable=False),
    Index("sidelight_subjects_subject", "subject"),
)

#: where a replay starts once contexts were deleted or the fold has a new version: the state just after that, kept twice
bases = Table(
    "sidelight_bases",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=False),
    Column("copy", Integer, primary_key=True, autoincrement=False),
    *_state_columns(),
)

#: condition of the partial index over the rare kinds of event, which the frequent kinds do not lengthen
RARE = "kind NOT IN ('decisions', 'reward', 'action', 'behavior', 'default')"

#: columns that version 4 adds, by table; the steps before it make the tables without them
_SINCE_4 = {
    head: ("chain", "epoch", "fold", "place"),
    events: ("epoch", "seal", "chain"),
    snapshots: ("fold",),
    bases: ("fold",),
}


def _create_as_of_3(connection: Connection, *made: Table) -> None:
    """Make tables in the shape that they had up to version 3."""
    old = MetaData()
    for table in made:
        later = _SINCE_4.get(table, ())
        columns = [column._copy() for column in table.columns if column.name not in later]
        indexes = [Index(str(i.name), *(c.name for c in i.columns), unique=i.unique) for i in table.indexes]
        Table(table.name, old, *columns, *indexes)
    old.create_all(connection, checkfirst=False)


def _first(connection: Connection) -> None:
    _create_as_of_3(connection, head, events, blobs, snapshots, tokens)
    connection.execute(text(f"INSERT INTO {head.name} (id, number) VALUES (1, 0)"))


def _subjects(connection: Connection) -> None:
    _create_as_of_3(connection, subjects)


def _bases(connection: Connection) -> None:
    _create_as_of_3(connection, bases)


def _seals(connection: Connection) -> None:
    """Seals, chain, epochs and the version of the fold; from here on a server of version 3 cannot write any more."""
    for table, names in _SINCE_4.items():
        for name in names:
            ddl = CreateColumn(table.columns[name]).compile(dialect=connection.dialect)
            connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {ddl}"))
    connection.execute(text(f"CREATE INDEX sidelight_events_rare ON {events.name} (kind, number) WHERE {RARE}"))
    identity = secrets.token_bytes(16)
    last = connection.execute(select(head.c.number)).scalar_one()
    connection.execute(
        properties.insert(),
        [{"name": "identity", "value": identity.hex()}, {"name": "sealed_after", "value": str(last)}],
    )
    connection.execute(head.update().values(chain=identity))
    forbid_unsealed(connection)


def forbid_unsealed(connection: Connection) -> None:
    """Refuse events without a seal: an older server knows nothing of seals and would go on writing."""
    if connection.dialect.name == "postgresql":
        rule = "CHECK (seal IS NOT NULL AND chain IS NOT NULL) NOT VALID"
        connection.execute(text(f"ALTER TABLE {events.name} ADD CONSTRAINT sidelight_events_sealed {rule}"))
        return
    connection.execute(
        text(
            f"CREATE TRIGGER sidelight_events_sealed BEFORE INSERT ON {events.name} "
            "WHEN NEW.seal IS NULL OR NEW.chain IS NULL "
            "BEGIN SELECT RAISE(ABORT, 'the database belongs to a newer Sidelight: upgrade this one'); END"
        )
    )


def allow_unsealed(connection: Connection) -> None:
    """Undo ``forbid_unsealed``, for events from before there were seals that are copied."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"ALTER TABLE {events.name} DROP CONSTRAINT sidelight_events_sealed"))
    else:
        connection.execute(text("DROP TRIGGER sidelight_events_sealed"))


def _pieces(connection: Connection) -> None:
    pieces.create(connection)
    if connection.dialect.name == "postgresql":
        # Otherwise PostgreSQL would try to compress incompressible numbers while every server waits.
        connection.execute(text(f"ALTER TABLE {pieces.name} ALTER COLUMN content SET STORAGE EXTERNAL"))


#: migration i brings a database from version i to version i + 1; a published one is never edited
_MIGRATIONS = (_first, _subjects, _bases, _seals, _pieces)

VERSION = len(_MIGRATIONS)


def database_version(connection: Connection) -> int:
    """The version of the database's tables; 0 where there are none.

    Raises:
        StoreError: it was written by a newer Sidelight.
    """
    if not inspect(connection).has_table(properties.name):
        return 0
    query = select(properties.c.value).where(properties.c.name == "version")
    said = connection.execute(query).scalar_one_or_none() or "0"
    if not (said.isascii() and said.isdigit()):
        raise StoreError(f"the database says that its version is {said!r}: it was altered. Restore a back-up.")
    found = int(said)
    if found > VERSION:
        raise StoreError(
            f"the database has version {found}, and this Sidelight knows versions up to {VERSION}: a newer Sidelight "
            "wrote it. Upgrade Sidelight, or point it at another database."
        )
    return found


def migrate(connection: Connection, target: int = VERSION) -> tuple[int, int]:
    """Bring the database to ``target`` within the caller's transaction.

    Returns:
        the version it had (0: it was empty) and the one it has now.

    Raises:
        StoreError: it was written by a newer Sidelight.
    """
    if connection.dialect.name == "postgresql":
        # Servers that start together take turns; the number is arbitrary but must never change.
        connection.execute(text("SELECT pg_advisory_xact_lock(7305520817)"))
    found = database_version(connection)
    if not inspect(connection).has_table(properties.name):
        properties.create(connection)
        connection.execute(properties.insert().values(name="version", value="0"))
    for step in _MIGRATIONS[found:target]:
        step(connection)
    if found < target:
        connection.execute(properties.update().where(properties.c.name == "version").values(value=str(target)))
    return found, max(found, target)
