"""The store: an append-only log of events in SQLite or PostgreSQL, with the data that belongs to it.

Numbers are gap-free and in commit order: a group of events is numbered and written in one transaction that holds the
lock on the head row, so a reader that has seen number ``n`` will never find a smaller one appear later. Every event is
sealed and chained to the one before (``sealing``), and a writer says which event it saw last, so a server notices
when the log is not the one that it has folded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection

from sidelight.errors import StoreError
from sidelight.service.log import migrations as tables
from sidelight.service.log.connections import place_of
from sidelight.service.log.database import Unsynced
from sidelight.service.log.events import OUTDATES, Decisions, NewEpoch
from sidelight.service.log.rows import Row
from sidelight.service.log.sealing import SALT_BYTES, Head, seal_of
from sidelight.service.log.settling import (
    Diverged,
    Draft,
    Outdated,
    Proposal,
    Since,
    Written,
    check_known,
    chosen_epoch,
    place_drafts,
    settle_group,
)
from sidelight.service.log.snapshots import Shelf, Snapshot

__all__ = ["COPY", "Diverged", "Draft", "Outdated", "Proposal", "Snapshot", "Store", "Written"]

logger = logging.getLogger("sidelight.service")

#: ``Head.place`` of a copy that was not written to since it was made
COPY = "copy"

_OUTDATING = {event.kind for event in OUTDATES}


class Store(Shelf):
    """The event log and its companions.  One thread appends; any thread reads.

    Attributes:
        origin: the number before the first event's: 0, or where the log of the service before this one had ended, so
            that no decision of one has the id of a decision of the other.
        identity: 16 random bytes that no other log has; the chain starts from them.
        sealed_after: events up to this one were written before there were seals.
    """

    def start_after(self, number: int) -> None:
        """Let the first event of an empty log have the number after this one.

        Raises:
            StoreError: the log is not empty.
        """
        with self.writing() as connection:
            head = self.lock(connection)
            if head.number != 0:
                raise StoreError("the event log has begun: its first number cannot be chosen any more.")
            self.set_property(connection, "origin", str(number))
            self.set_property(connection, "sealed_after", str(number))
            self.advance(connection, head._replace(number=number))
        self.reread()

    # ------------------------------------------------------------------------------------ writing

    def append(
        self,
        proposals: Sequence[Proposal],
        seen: int,
        configured: int = 0,
        known: bytes | None = None,
        fold: int | None = None,
        decided: Sequence[int] = (),
        elsewhere: int = 0,
    ) -> tuple[list[Row], list[Any]]:
        """Settle and write a group in one transaction.

        Args:
            proposals: in the order in which they came.
            seen: the last number the caller knows.
            configured: the last event of ``OUTDATES`` that the caller knows.
            known: the chained digest that the caller knows for ``seen``; None to check nothing.
            fold: the version of the caller's fold; None to check nothing. The first event sets the log's.
            decided: the caller's last events with decisions.
            elsewhere: the last one of another server, as far as the caller knows.

        Returns:
            the rows that others wrote after ``seen``, and one outcome per proposal: ``Written``, ``Outdated``, or what
            ``settle`` returned. Written numbers follow on the others' rows without a gap.

        Raises:
            Diverged: the log is not the one that the caller knows.
        """
        try:
            return self._append(proposals, seen, configured, known, fold, decided, elsewhere)
        except Unsynced:
            raise
        except Diverged as error:
            self._note_lost_tail(seen, known, error)
            raise

    def _append(
        self,
        proposals: Sequence[Proposal],
        seen: int,
        configured: int,
        known: bytes | None,
        fold: int | None,
        decided: Sequence[int],
        elsewhere: int,
    ) -> tuple[list[Row], list[Any]]:
        clock = self.surroundings
        with self.writing() as connection:
            head = self.lock(connection)
            if head.number == self.origin and fold is not None:
                head = head._replace(fold=fold)
            check_known(head, seen, known, known and self.chain_within(connection, head, seen), fold)
            others = self.read_within(connection, seen, head.number) if head.number > seen else []
            now = clock.now()
            moved, head = self._after_a_move(connection, head, now)
            others += moved
            configured = max((row.number for row in others if row.kind in _OUTDATING), default=configured)
            elsewhere = max((row.number for row in others if row.kind == Decisions.kind), default=elsewhere)
            wanted = [key for proposal in proposals for key in proposal.keys]
            found = self.find_within(connection, wanted) if wanted else {}
            salts = clock.random_bytes(SALT_BYTES * len(proposals))
            settled = settle_group(head, proposals, found, Since(configured, decided, elsewhere, others), now, salts)
            if settled.rows:
                self.insert(connection, settled.rows)
                if settled.about:
                    connection.execute(
                        tables.subjects.insert(),
                        [{"number": n, "position": i, "subject": subject} for n, i, subject in settled.about],
                    )
            if settled.rows or moved:
                self.advance(connection, settled.head)
        return others, settled.outcomes

    def _after_a_move(self, connection: Connection, head: Head, now: float) -> tuple[list[Row], Head]:
        """A new epoch where the database is another one than last time: a restored back-up, a standby that took over.

        Its last events may have been lost on the way, and their ids would be given again.
        """
        place = self.place(connection)
        if place == head.place:
            return [], head
        before, head = head.place, head._replace(place=place)
        if before is None or head.number == self.origin:
            return [], head
        reason = "the log was restored from a copy" if before == COPY else "the database was moved or taken over"
        return self.write_drafts(connection, head, [self._epoch_draft(reason)], now)

    def place(self, connection: Connection) -> str | None:
        """Where the database is; another one after a failover or in a restored copy."""
        return place_of(connection)

    def _epoch_draft(self, reason: str) -> Draft:
        return Draft.of(NewEpoch(chosen_epoch(self.surroundings.random_bytes(4)), reason))

    def _note_lost_tail(self, seen: int, known: bytes | None, error: StoreError) -> None:
        """Begin a new epoch if the log has lost events that a server of it knows: their ids must not be given again."""
        if known is None or self.properties().get("identity") != self.identity.hex():
            return
        with self.writing() as connection:
            head = self.lock(connection)
            if self.chain_within(connection, head, seen) == known:
                return
            self.write_drafts(connection, head, [self._epoch_draft(f"a server had seen event {seen}, which was lost")])
        logger.error("%s", error)

    def begin_epoch(self, reason: str) -> None:
        """Begin a new epoch, so that ids of decisions from here on carry another suffix."""
        with self.writing() as connection:
            self.write_drafts(connection, self.lock(connection), [self._epoch_draft(reason)])

    def write_drafts(
        self, connection: Connection, head: Head, drafts: Sequence[Draft], now: float | None = None
    ) -> tuple[list[Row], Head]:
        """Write events at the end of the log, under the lock; returns their rows and the end after them."""
        clock = self.surroundings
        salts = clock.random_bytes(SALT_BYTES * len(drafts))
        rows, after = place_drafts(head, drafts, clock.now() if now is None else now, salts)
        self.insert(connection, rows)
        self.advance(connection, after)
        return rows, after

    def resealed(self, row: Row, payload: str, contexts: bytes | None) -> Row:
        """An event from which something was deleted: another content, sealed anew; its chain stays."""
        salt = self.surroundings.random_bytes(SALT_BYTES)
        seal = seal_of((row.number, row.kind, row.at, row.key, payload, contexts, row.epoch), salt, anew=True)
        # An event from before there were seals has no chain: it gets the log's identity, from which the chain starts.
        return row._replace(payload=payload, contexts=contexts, seal=seal, chain=row.chain or self.identity)

    def rewrite(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Replace the content of events by that of :meth:`resealed` ones, in the caller's transaction."""
        if rows:
            self.statements.rewrite(connection, rows)

    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Write rows, under the lock."""
        self.statements.insert(connection, rows)

    def advance(self, connection: Connection, head: Head) -> None:
        """Make this the end of the log, under the lock."""
        self.statements.advance(connection, head)

    def probe(self) -> None:
        """Write without changing anything: raises where writing is impossible."""
        with self.writing() as connection:
            self.advance(connection, self.lock(connection))

    def news(self, seen: int, known: bytes | None, fold: int) -> Iterator[list[Row]]:
        """``follow`` for a server: what others wrote after the event that it saw last.

        Raises:
            Diverged: the log is not the one that it knows.
        """
        with self.reading() as connection:
            head = self._head_within(connection)
            there = self.chain_within(connection, head, seen)
        try:
            check_known(head, seen, known, there, fold)
        except Diverged as error:
            self._note_lost_tail(seen, known, error)
            raise
        yield from self.follow(seen, head.number)
