"""The tables of the store, and how they came to be: one migration per version, applied in order."""

from __future__ import annotations

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

from sidelight.errors import StoreError

__all__ = [
    "VERSION",
    "bases",
    "blobs",
    "events",
    "head",
    "metadata",
    "migrate",
    "properties",
    "snapshots",
    "subjects",
    "tokens",
]

metadata = MetaData()

# SQLite makes a primary key the row's own address only if it is called INTEGER.
_Number = BigInteger().with_variant(Integer, "sqlite")

#: what is known about the database itself: its version
properties = Table(
    "sidelight_properties",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("value", Text, nullable=False),
)

#: one row: the number of the last event; whoever holds its lock gives the next numbers
head = Table(
    "sidelight_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", _Number, nullable=False),
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
    Index("sidelight_events_key", "key", unique=True),
)

#: large immutable values by their SHA-256: the initial learner
blobs = Table(
    "sidelight_blobs",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

snapshots = Table(
    "sidelight_snapshots",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=False),
    Column("at", Float(53), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("state", Text, nullable=False),
    Column("learner", LargeBinary, nullable=False),
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

#: where a replay starts once contexts were deleted: the state just after that, kept twice
bases = Table(
    "sidelight_bases",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=False),
    Column("copy", Integer, primary_key=True, autoincrement=False),
    Column("at", Float(53), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("state", Text, nullable=False),
    Column("learner", LargeBinary, nullable=False),
)


def _first(connection: Connection) -> None:
    metadata.create_all(connection, tables=[head, events, blobs, snapshots, tokens], checkfirst=False)
    connection.execute(head.insert().values(id=1, number=0))


def _subjects(connection: Connection) -> None:
    metadata.create_all(connection, tables=[subjects], checkfirst=False)


def _bases(connection: Connection) -> None:
    metadata.create_all(connection, tables=[bases], checkfirst=False)


#: migration i brings a database from version i to version i + 1; a published one is never edited
_MIGRATIONS = (_first, _subjects, _bases)

VERSION = len(_MIGRATIONS)


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
    if not inspect(connection).has_table(properties.name):
        properties.create(connection)
        connection.execute(properties.insert().values(name="version", value="0"))
    found = int(connection.execute(select(properties.c.value).where(properties.c.name == "version")).scalar_one())
    if found > VERSION:
        raise StoreError(
            f"the database has version {found}, and this Sidelight knows versions up to {VERSION}: a newer Sidelight "
            "wrote it. Upgrade Sidelight, or point it at another database."
        )
    for step in _MIGRATIONS[found:target]:
        step(connection)
    if found < target:
        connection.execute(properties.update().where(properties.c.name == "version").values(value=str(target)))
    return found, max(found, target)
