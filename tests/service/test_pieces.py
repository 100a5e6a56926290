"""Snapshots of large learners are written in pieces: whole or not there, and nobody waits for more than one of them."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest
import sqlalchemy as sa

from sidelight.errors import StoreError
from sidelight.service.core.deciding import Ask
from sidelight.service.log import migrations as tables
from sidelight.service.log import snapshots
from sidelight.service.log.committer import Committer
from sidelight.service.log.connections import database_url
from sidelight.service.log.store import Snapshot, Store
from sidelight.service.operations.copying import copy_store
from sidelight.service.operations.retention import forget
from tests.service.helpers import bits, engine_of, make_config, make_schema, random_context, replayed, run

#: 10 pieces
LEARNER = bytes(range(100))


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "PIECE", 10)


@pytest.fixture
def store(database: str) -> Any:
    opened = Store(database_url(database))
    yield opened
    opened.close()


def taken(number: int, learner: bytes = LEARNER) -> Snapshot:
    return Snapshot(number, 1.0, '{"a": 1}', learner)


def pieces_of(store: Store) -> list[tuple[int, int]]:
    p = tables.pieces
    with store.reading() as connection:
        query = sa.select(p.c.number, p.c.position).order_by(p.c.number, p.c.position)
        return [tuple(row) for row in connection.execute(query)]


@pytest.mark.parametrize("size", [1, 9, 10, 11, 95, 100])
def test_what_was_kept_is_read(store: Store, size: int):
    store.put_snapshot(taken(7, LEARNER[:size]))
    assert store.snapshot(7) == taken(7, LEARNER[:size])
    assert len(pieces_of(store)) == (0 if size <= 10 else -(-size // 10))


def test_a_snapshot_is_there_with_its_last_piece(store: Store):
    steps = store.keep_snapshot(taken(7))
    for i in range(10):
        next(steps)
        assert len(pieces_of(store)) == i + 1
        assert store.snapshot_numbers() == []
        assert store.snapshot(7) is None
    next(steps)
    assert store.snapshot(7) == taken(7)
    assert list(steps) == []


@pytest.mark.parametrize("harm", ["one is missing", "one is altered", "two changed places"])
def test_damage_is_noticed(store: Store, harm: str):
    store.put_snapshot(taken(7))
    p = tables.pieces
    with store.writing() as connection:
        if harm == "one is missing":
            connection.execute(p.delete().where(p.c.position == 4))
        elif harm == "one is altered":
            connection.execute(p.update().where(p.c.position == 4).values(content=b"x"))
        else:
            for old, new in ((4, 99), (5, 4), (99, 5)):
                connection.execute(p.update().where(p.c.position == old).values(position=new))
    assert store.snapshot(7) is None


def test_pieces_that_were_left_are_swept_by_the_next_snapshot(store: Store):
    interrupted = store.keep_snapshot(taken(7, LEARNER[::-1]))
    next(interrupted), next(interrupted)
    assert pieces_of(store) == [(7, 0), (7, 1)]
    store.put_snapshot(taken(9))
    assert {number for number, _ in pieces_of(store)} == {9}
    # and who was interrupted, and goes on, does not leave half a snapshot
    with pytest.raises(StoreError, match="meanwhile"):
        list(interrupted)
    assert store.snapshot_numbers() == [9]


def test_thinning_takes_the_pieces_along(store: Store):
    for number in range(1, 40):
        store.put_snapshot(taken(number, LEARNER[::-1] + bytes([number])))
    kept = store.snapshot_numbers()
    assert len(kept) < 12
    # in the last transactions of each snapshot those of the one before it that was thinned out
    assert {number for number, _ in pieces_of(store)} == set(kept)
    assert all(store.snapshot(number) for number in kept)


def test_two_servers_keep_the_same_state_at_once(store: Store, database: str):
    other = Store(database_url(database))
    both = [store.keep_snapshot(taken(7)), other.keep_snapshot(taken(7))]
    for _ in range(13):
        for steps in both:
            next(steps, None)
    assert store.snapshot(7) == taken(7)
    assert len(pieces_of(store)) == 10
    other.close()


def test_requests_are_written_between_two_pieces(tmp_path, database, rng, monkeypatch):
    """Every transaction of a snapshot is followed by the requests that came meanwhile; here one always has."""
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)
    order: list[str] = []
    write, keep_some = Committer._write, Committer._keep_some
    monkeypatch.setattr(Committer, "_write", lambda self, entries: (order.append("group"), write(self, entries)))

    def keep_some_while_a_request_comes(self) -> None:
        order.append("piece")
        keep_some(self)
        end = time.monotonic() + 60
        while self.keeping and not self._queue:
            assert time.monotonic() < end, "no request came"
            time.sleep(0.001)

    monkeypatch.setattr(Committer, "_keep_some", keep_some_while_a_request_comes)
    x = make_schema().encode(random_context(rng))[None]

    async def live() -> None:
        async with engine_of(config) as engine:
            for _ in range(3):
                await engine.decide(x, None)
            order.clear()
            assert engine.committer is not None
            snapshot = engine.state.snapshot(1.0)
            monkeypatch.setattr(snapshots, "PIECE", len(snapshot.learner) // 20)
            engine.keep(snapshot)
            assert not engine.snapshot_due(), "the next one waits until this one is written"
            while engine.committer.keeping:
                await engine.decide(x, None)
            assert engine.store.snapshot(snapshot.number) == snapshot

    run(live())
    # a group never waited for two pieces
    assert ("piece", "piece") not in itertools.pairwise(order)
    assert order.count("piece") >= 21
    assert order.count("group") >= 5
    assert "group" in order[: order.index("piece") + 3]


def test_a_stop_finishes_the_snapshot_that_was_begun(tmp_path, database, rng, monkeypatch):
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database)
    x = make_schema().encode(random_context(rng))[None]

    async def live() -> int:
        async with engine_of(config) as engine:
            await engine.decide(x, None)
            engine.keep(engine.state.snapshot(1.0))
            return engine.state.number

    number = run(live())
    store = Store(database_url(database))
    assert store.snapshot(number) is not None
    store.close()


def test_a_service_goes_on_from_them_and_forgets_them(tmp_path, database, rng, monkeypatch):
    monkeypatch.setattr(snapshots, "PIECE", 3000)
    config = make_config(tmp_path, kind="OFUL", mode="act", database=database, snapshot_every=5)
    encode = make_schema().encode

    async def live(forgets: bool) -> str:
        async with engine_of(config) as engine:
            for _ in range(30):
                await engine.decide(encode(random_context(rng))[None], [Ask(subject="anna")])
            while engine.committer is not None and engine.committer.keeping:
                await asyncio.sleep(0.01)
            assert pieces_of(engine.store)
            if forgets:
                # interrupted pieces of somebody else's, from before the deletion
                next(engine.store.keep_snapshot(taken(3, bytes(5000))))
                done = forget(engine.store, "anna", erase=False)
                assert [number for number, _ in pieces_of(engine.store) if number < (done.event or 0)] == []
            return bits(engine.state)

    run(live(False))
    run(live(True))
    assert run(live(False)) == replayed(config)


def test_a_copy_has_whole_snapshots_and_nothing_else(store: Store, tmp_path):
    store.put_snapshot(taken(7))
    next(store.keep_snapshot(taken(8, LEARNER[::-1])))
    copy = Store(database_url(str(tmp_path / "copy.db")))
    copy_store(store, copy)
    assert copy.snapshot(7) == taken(7)
    assert {number for number, _ in pieces_of(copy)} == {7}
    copy.close()
