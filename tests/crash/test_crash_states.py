"""Power cuts, enumerated: a small part.  ``make crash`` goes through 100,000 states and every sync that can fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.crash.states import SYNC, build, compiler, explore, initial_disk, record

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C compiler to build the recorder with")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("recorder"))


@pytest.fixture(scope="module")
def session(library: Path, tmp_path_factory: pytest.TempPathFactory) -> list:
    return record(library, tmp_path_factory.mktemp("session"), rounds=2)


def test_the_record_is_what_happened(session):
    """Replayed to its end, it gives the session's files; and the session came to its end."""
    disk = initial_disk()
    for op in session:
        disk.take(op)
    assert disk.acks[-1] == "stopped"
    assert "forgotten" in disk.acks
    assert any(line.startswith("backup") for line in disk.acks)
    assert "sidelight.db-wal" not in disk.certain, "the last connection has moved everything into the file"
    assert sum(op.what == SYNC for op in session) > 20


def test_nothing_acknowledged_is_lost_and_no_state_is_corrupt(session):
    states, found = explore(session, np.random.default_rng(1), subsets=1, every=37)
    assert found == []
    assert states > 200


@pytest.mark.parametrize("fails", [12])
def test_a_sync_that_fails_loses_nothing_that_was_acknowledged(library, tmp_path, fails):
    ops = record(library, tmp_path, rounds=2, fail_sync=fails)
    assert any(op.failed for op in ops)
    states, found = explore(ops, np.random.default_rng(1), subsets=1, every=41)
    assert found == []
    assert states > 20


#: what somebody could take away, as Python that runs before the session
FAULTS = {
    "commits are not synced": """
from sidelight.service.log import connections
prepared = connections._prepare_sqlite_writer
def unsynced(connection, record):
    prepared(connection, record)
    connection.execute("PRAGMA synchronous = OFF")
connections._prepare_sqlite_writer = unsynced
""",
    "the log is synced only now and then": """
from sidelight.service.log import connections
prepared = connections._prepare_sqlite_writer
def unsynced(connection, record):
    prepared(connection, record)
    connection.execute("PRAGMA synchronous = NORMAL")
connections._prepare_sqlite_writer = unsynced
""",
    "two transactions where one is meant": """
from sidelight.service.log.store import Store
advance = Store.advance
def torn(self, connection, head):
    connection.exec_driver_sql("COMMIT")
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    advance(self, connection, head)
Store.advance = torn
""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(library, tmp_path, name):
    ops = record(library, tmp_path, rounds=2, prepare=FAULTS[name])
    _, found = explore(ops, np.random.default_rng(2), subsets=1, every=5, most=1)
    assert found
