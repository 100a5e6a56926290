"""Events with their numbers and the contexts that they are about, as the fold takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sidelight.linalg import Array
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Action, Behavior, Decisions, DefaultReward, Event, Release, Reward
from sidelight.service.log.rows import Row, Unreadable, event_from_row
from sidelight.service.log.store import Store

__all__ = ["Numbered", "numbered"]


class Numbered(NamedTuple):
    """An event with its number, its time and, for what refers to a decision, that decision's context.

    ``chain`` is the log's chained digest after it; None where the event was written before there were seals.
    """

    number: int
    at: float
    event: Event
    context: Array | None
    chain: bytes | None = None


def numbered(store: Store, rows: Iterable[Row], n_features: int) -> Iterator[Numbered]:
    """Rows as events, with the contexts of the decisions they refer to.

    Raises:
        Unreadable: an event cannot be read, or a decision that an event refers to is not in the log.
    """
    events = [(row, event_from_row(row, n_features)) for row in rows]
    known: dict[int, Event] = {row.number: event for row, event in events if isinstance(event, Decisions)}
    wanted = {id.number for _, event in events if (id := _decision_of(event)) is not None}
    for number, row in store.rows(wanted - known.keys()).items():
        known[number] = event_from_row(row, n_features)
    for row, event in events:
        id = _decision_of(event)
        context = None if id is None else _context(known.get(id.number), id, row.number)
        yield Numbered(row.number, row.at, event, context, row.chain)


def _decision_of(event: Event) -> DecisionId | None:
    return event.decision if isinstance(event, Reward | Action | Behavior | DefaultReward | Release) else None


def _context(event: Event | None, id: DecisionId, number: int) -> Array:
    if not isinstance(event, Decisions) or id.position >= len(event):
        raise Unreadable(
            f"event {number} refers to the decision {id}, which is not in the log: it was deleted or altered from "
            "outside. Restore a back-up."
        )
    context: Array = event.contexts[id.position]
    return context
