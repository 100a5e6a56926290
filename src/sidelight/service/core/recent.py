"""A cache of the last decisions of a server, for the rewards that follow; older ones are read from the store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from sidelight.service.log.events import Decisions, Event
from sidelight.service.log.rows import Row, event_from_row
from sidelight.service.log.store import Written

__all__ = ["RecentDecisions"]

#: bytes of decisions that are kept
_MOST_BYTES = 8_000_000
#: bytes of overhead of one entry beside its content
_ENTRY_BYTES = 400


class RecentDecisions:
    """Events with decisions that were written a short while ago, by their number."""

    def __init__(self) -> None:
        # As text and bytes, not as records: a hundred thousand small objects would slow every garbage collection.
        self._kept: OrderedDict[int, tuple[str, bytes, int, int]] = OrderedDict()
        self._size = 0
        #: the row that was parsed last, with the length of its contexts, and its event
        self._parsed: tuple[tuple[Row, int], Event] | None = None

    def __contains__(self, number: int) -> bool:
        return number in self._kept

    def add(self, written: Written) -> None:
        """Keep an event, and drop the oldest ones where there is no room."""
        draft = written.draft
        contexts = draft.contexts or b""
        size = len(contexts) + len(draft.payload) + _ENTRY_BYTES
        self._kept[written.number] = (draft.payload, contexts, size, written.epoch)
        self._size += size
        while self._size > _MOST_BYTES and len(self._kept) > 1:
            _, (_, _, oldest, _) = self._kept.popitem(last=False)
            self._size -= oldest

    def row(self, number: int) -> Row | None:
        """An event as the store has it; None where it is not kept here."""
        kept = self._kept.get(number)
        if kept is None:
            return None
        payload, contexts, _, epoch = kept
        return Row(number, Decisions.kind, 0.0, None, payload, contexts, epoch)

    def parsed(self, row: Row, n_features: int) -> Event:
        """The event of a row, kept here or not; the last one is parsed once.

        The rewards of a batch come together, and each of them names its event.
        """
        if self._parsed is None or self._parsed[0] != (row, n_features):
            self._parsed = (row, n_features), event_from_row(row, n_features)
        return self._parsed[1]

    def drop(self, forgotten: Iterable[Sequence[int]]) -> None:
        """Remove the events of these forgotten decisions, each ``(number, position)``."""
        self._parsed = None
        for number, _ in forgotten:
            if (gone := self._kept.pop(number, None)) is not None:
                self._size -= gone[2]
