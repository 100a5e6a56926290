"""Reading the event log: its end, and events in order, by number, key or kind, each checked against its seal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, select

from sidelight.errors import StoreError
from sidelight.service.log import migrations as tables
from sidelight.service.log.database import Database, Rejected
from sidelight.service.log.rows import Row
from sidelight.service.log.sealing import Head, chain_after, is_sealed_anew, seal_matches
from sidelight.service.log.statements import SQLALCHEMY, SQLITE, Statements

__all__ = ["Lookups"]

#: most values in one condition of a query
_CHUNK = 500
_NO_HEAD = "the event log has no head row: it was altered from outside. Restore a back-up."


class Lookups(Database):
    """A database whose events can be read.  Any thread may."""

    @property
    def statements(self) -> Statements:
        """What transactions do with the head row and with events."""
        return SQLITE if self.sqlite else SQLALCHEMY

    # ------------------------------------------------------------------------------------ its end

    def end(self) -> Head:
        """The end of the log as it is now."""
        with self.reading() as connection:
            return self.end_within(connection)

    def end_within(self, connection: Connection) -> Head:
        """``end`` inside a transaction of the caller."""
        return self._head_within(connection)

    def lock(self, connection: Connection) -> Head:
        """The end of the log; until the transaction ends, nobody else moves it."""
        return self._head_within(connection, lock=True)

    def _head_within(self, connection: Connection, *, lock: bool = False) -> Head:
        head = self.statements.head(connection, lock=lock)
        if head is None:
            raise StoreError(_NO_HEAD)
        return head

    def head(self) -> int:
        """The number of the last event, ``origin`` where there is none."""
        return self.end().number

    def chain_at(self, number: int) -> bytes | None:
        """The chained digest after event ``number``; None where the log has no such event."""
        with self.reading() as connection:
            return self.chain_within(connection, self._head_within(connection), number)

    def chain_within(self, connection: Connection, head: Head, number: int) -> bytes | None:
        """``chain_at`` inside a transaction of the caller."""
        if number >= head.number:
            return head.chain if number == head.number else None
        if number <= self.sealed_after:
            return self.identity
        query = select(tables.events.c.chain).where(tables.events.c.number == number)
        chain = connection.execute(query).scalar_one_or_none()
        return None if chain is None else bytes(chain)

    def read(self, after: int, upto: int) -> list[Row]:
        """The events ``after < number ≤ upto``, in order."""
        with self.reading() as connection:
            return self.read_within(connection, after, upto)

    def follow(self, after: int, upto: int | None = None, chunk: int = 2000) -> Iterator[list[Row]]:
        """Chunks of events after ``after``, up to the head as it is now.

        Raises:
            StoreError: there is a gap, or an event does not follow from the one before.
        """
        after = max(after, self.origin)
        end = self.head() if upto is None else upto
        chain: bytes | None = None
        while after < end:
            rows = self.read(after, min(after + chunk, end))
            if not rows or rows[0].number != after + 1 or rows[-1].number != after + len(rows):
                gap = next((n for n, row in enumerate(rows, after + 1) if row.number != n), after + len(rows) + 1)
                raise StoreError(f"the event log lacks event {gap}: it was deleted from outside. Restore a back-up.")
            for row in rows:
                follows = chain is None or row.seal is None or is_sealed_anew(row.seal)
                if not follows and row.chain != chain_after(chain or b"", row.seal or b""):
                    raise StoreError(
                        f"event {row.number} does not follow from the one before: events were exchanged from outside. "
                        "Restore a back-up."
                    )
                chain = row.chain
            yield rows
            after = rows[-1].number

    def rows(self, numbers: Iterable[int]) -> dict[int, Row]:
        """The events with these numbers, as far as they exist."""
        with self.reading() as connection:
            return self.rows_within(connection, numbers)

    def rows_within(self, connection: Connection, numbers: Iterable[int]) -> dict[int, Row]:
        """``rows`` inside a transaction of the caller."""
        wanted = sorted(set(numbers))
        return {row.number: row for row in self._rows_with(connection, tables.events.c.number, wanted)}

    def first(self) -> Row | None:
        """The first event, if there is one."""
        return next(iter(self.read(self.origin, self.origin + 1)), None)

    def ends(self) -> tuple[Head, int, bytes | None]:
        """The end of the log by its head row, and by its events: the largest number and the chained digest there.

        One statement, so that both are of one moment while others write.
        """
        e, last = tables.events, tables.events.alias()
        newest = select(sa.func.max(last.c.number)).scalar_subquery()
        query = select(tables.head, newest.label("last"), e.c.chain.label("last_chain")).select_from(
            tables.head.outerjoin(e, e.c.number == newest)
        )
        with self.reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise StoreError(_NO_HEAD)
        head = Head(row.number, bytes(row.chain or b""), row.epoch, row.fold, row.place)
        chain = None if row.last_chain is None else bytes(row.last_chain)
        return head, self.origin if row.last is None else int(row.last), chain

    def configurations(self) -> list[Row]:
        """Every configuration event, in order."""
        return self.of_kind("configuration")

    def of_kind(self, kind: str) -> list[Row]:
        """Every event of one of the rare kinds, in order: of all but decisions and what follows them."""
        e = tables.events
        query = select(e).where(e.c.kind == kind, sa.text(tables.RARE)).order_by(e.c.number)
        with self.reading() as connection:
            return [self._row(row) for row in connection.execute(query)]

    def find(self, keys: Iterable[str]) -> dict[str, Row]:
        """The events with these keys, as far as they exist."""
        with self.reading() as connection:
            return self.find_within(connection, list(keys))

    def find_within(self, connection: Connection, keys: Sequence[str]) -> dict[str, Row]:
        """``find`` inside a transaction of the caller."""
        return {str(row.key): row for row in self._rows_with(connection, tables.events.c.key, keys)}

    def _rows_with(self, connection: Connection, column: sa.Column[Any], values: Sequence[Any]) -> Iterator[Row]:
        """The events that have one of these values in a column, in no order."""
        for start in range(0, len(values), _CHUNK):
            query = select(tables.events).where(column.in_(values[start : start + _CHUNK]))
            yield from map(self._row, connection.execute(query))

    def read_within(self, connection: Connection, after: int, upto: int) -> list[Row]:
        """``read`` inside a transaction of the caller."""
        number = tables.events.c.number
        query = select(tables.events).where(number > after, number <= upto).order_by(number)
        return list(map(self._row, connection.execute(query)))

    def _row(self, row: Any) -> Row:
        number, kind, at, key, payload, contexts, epoch, seal, chain = row
        content = (number, kind, at, key, payload, None if contexts is None else bytes(contexts), epoch)
        seal = None if seal is None else bytes(seal)
        if not (number <= self.sealed_after if seal is None else seal_matches(seal, content)):
            raise Rejected(
                f"event {number} ({kind}) was altered: its content does not match its checksum. Restore a back-up."
            )
        return Row(*content, seal, None if chain is None else bytes(chain))
