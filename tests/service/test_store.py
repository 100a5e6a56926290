"""The store: durable settings, gap-free numbers, keys that exist once, migrations, snapshots, clear errors."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from sidelight.errors import StoreError
from sidelight.service.log import migrations as tables
from sidelight.service.log.connections import database_url
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Action
from sidelight.service.log.snapshots import thinned
from sidelight.service.log.store import Draft, Snapshot, Store
from tests.service.conftest import address_of


class Note:
    """A proposal that writes an action, once per key."""

    def __init__(self, number: int, key: str | None = None) -> None:
        self.keys = () if key is None else (key,)
        self._draft = Draft.of(Action(DecisionId(number), "arm", "person"), key)

    def settle(self, found):
        return "known" if self.keys and self.keys[0] in found else self._draft


def test_live_connections_are_durable(database):
    store = Store(database_url(database))
    with store.writing() as connection:
        if store.sqlite:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        else:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
            assert connection.exec_driver_sql("SHOW fsync").scalar() == "on"
    store.close()


def test_defaults_of_a_postgresql_database_do_not_matter(new_postgres):
    """Its time is under an event's checksum: with fewer digits every event was said to be altered."""
    import psycopg

    address = new_postgres()
    name = address.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(address, autocommit=True) as connection:
        for setting in ("extra_float_digits = -15", "client_encoding = 'LATIN1'", "bytea_output = 'escape'"):
            connection.execute(f"ALTER DATABASE {name} SET {setting}")
    store = Store(database_url(address))
    store.append([Note(1), Note(2, key="für 😀")], 0)
    assert [row.key for row in store.read(0, 2)] == [None, "für 😀"]
    store.close()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_log_begins_only_where_every_text_can_be_kept(postgres, encoding):
    """A subject with other characters was a 500, or opening the database a traceback."""
    import psycopg

    name = f"in_{encoding.lower()}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
    with pytest.raises(StoreError, match=f"has the encoding {encoding}"):
        Store(database_url(address_of(postgres, name)))


def test_two_writers_leave_no_gap_and_no_double(database):
    """Two stores on one database append at once; a third reads while they do and never misses an event."""
    url = database_url(database)
    Store(url).close()
    errors: list[BaseException] = []

    def write(who: int) -> None:
        try:
            store, seen = Store(url), 0
            for i in range(40):
                others, outcomes = store.append([Note(who * 1000 + i), Note(i, key=f"shared:{i}")], seen)
                numbers = [row.number for row in others] + [o.number for o in outcomes if not isinstance(o, str)]
                # what others wrote and what we wrote follow on what we knew, without a gap
                assert numbers == list(range(seen + 1, seen + 1 + len(numbers)))
                seen += len(numbers)
            store.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(who,)) for who in (1, 2)]
    for thread in threads:
        thread.start()
    reader, seen = Store(url), 0
    while any(thread.is_alive() for thread in threads):
        for rows in reader.follow(seen):
            assert [row.number for row in rows] == list(range(seen + 1, seen + 1 + len(rows)))
            seen = rows[-1].number
    for thread in threads:
        thread.join()
    assert not errors
    rows = [row for chunk in reader.follow(0) for row in chunk]
    assert [row.number for row in rows] == list(range(1, 2 * 40 + 40 + 1))
    keys = [row.key for row in rows if row.key is not None]
    assert sorted(keys) == sorted({f"shared:{i}" for i in range(40)})
    reader.close()


def test_a_group_is_written_whole_or_not_at_all(database):
    store = Store(database_url(database))
    store.append([Note(1)], 0)

    class Bad(Note):
        def settle(self, found):
            raise StoreError("stop")

    with pytest.raises(StoreError, match="stop"):
        store.append([Note(2), Bad(3)], 1)
    assert store.head() == 1
    assert len(store.read(0, 10)) == 1
    _, outcomes = store.append([Note(4)], 1)
    assert outcomes[0].number == 2
    store.close()


def test_migrates_from_version_to_version(database):
    url = database_url(database)
    store = Store(url, migrate=False)
    with store.writing() as connection:
        assert tables.migrate(connection, target=1) == (0, 1)
        connection.execute(tables.events.insert().values(number=1, kind="action", at=0.0, payload="{}"))
        connection.execute(tables.head.update().values(number=1))
        assert not sa.inspect(connection).has_table("sidelight_subjects")
    store.close()
    newer = Store(url)
    assert newer.migrated == (1, tables.VERSION)
    assert newer.head() == 1
    assert newer.read(0, 1)[0].kind == "action"
    with newer.reading() as connection:
        assert sa.inspect(connection).has_table("sidelight_subjects")
        # what migrations made is what the tables say
        for table in tables.metadata.sorted_tables:
            found = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
            assert found == {column.name for column in table.columns}
    newer.close()
    again = Store(url)
    assert again.migrated == (tables.VERSION, tables.VERSION)
    with again.writing() as connection:
        connection.execute(tables.properties.update().values(value="99"))
    again.close()
    with pytest.raises(StoreError, match=r"version 99.*Upgrade"):
        Store(url)


def test_snapshots_notice_damage(database):
    store = Store(database_url(database))
    store.put_snapshot(Snapshot(7, 1.0, '{"a": 1}', b"learner"))
    assert store.snapshot(7) == Snapshot(7, 1.0, '{"a": 1}', b"learner")
    for changes in ({"learner": b"Learner"}, {"state": '{"a": 2}'}, {"digest": "0" * 64}):
        store.put_snapshot(Snapshot(7, 1.0, '{"a": 1}', b"learner"))
        with store.writing() as connection:
            connection.execute(tables.snapshots.update().values(**changes))
        assert store.snapshot(7) is None, changes
    assert store.snapshot(8) is None
    store.close()


def test_old_snapshots_are_thinned_but_stay_spread():
    kept: list[int] = []
    for number in range(100, 100_001, 100):
        kept = [number, *kept]
        dropped = set(thinned(kept))
        kept = [n for n in kept if n not in dropped]
        assert kept[:3] == [n for n in (number, number - 100, number - 200) if n > 0][: len(kept[:3])]
    assert len(kept) < 25
    # an old state can be rebuilt from a snapshot that is not much older than half its age
    for wanted in (50_000, 90_000, 99_000):
        start = max(n for n in kept if n <= wanted)
        assert 100_000 - start <= 4 * (100_000 - wanted)


def test_errors_say_what_to_do(tmp_path: Path):
    with pytest.raises(StoreError, match="missing or not writable"):
        Store(database_url(str(tmp_path / "nowhere" / "events.db")))
    with pytest.raises(StoreError, match="there is no database"):
        Store(database_url(str(tmp_path / "events.db")), create=False)
    foreign = tmp_path / "foreign.db"
    foreign.write_bytes(b"this is not a database at all" * 100)
    with pytest.raises(StoreError, match="damaged or not a database"):
        Store(database_url(str(foreign)))
    with pytest.raises(StoreError, match="does not answer"):
        Store(database_url("postgresql://nobody@127.0.0.1:9/none"))
    with pytest.raises(StoreError, match="SQLite file or in postgresql"):
        database_url("mysql://localhost/x")


def test_a_new_file_is_not_for_everybody_on_the_machine(tmp_path: Path):
    before = os.umask(0o002)
    try:
        store = Store(database_url(str(tmp_path / "events.db")))
    finally:
        os.umask(before)
    store.put_blob(b"something")
    rights = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert set(rights) == {"events.db", "events.db-wal", "events.db-shm"}
    assert set(rights.values()) == {0o660}
    store.close()


def test_passwords_stay_out_of_errors():
    with pytest.raises(StoreError) as caught:
        Store(database_url("postgresql://someone:secret-word@127.0.0.1:9/none"))
    assert "secret-word" not in str(caught.value)
