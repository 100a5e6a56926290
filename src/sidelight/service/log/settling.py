"""Settling a group of proposals at the end of the log, as a pure function that does not depend on the database."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sidelight.errors import StoreError
from sidelight.service.log.events import OUTDATES, Decisions, Event, NewEpoch
from sidelight.service.log.rows import Row, event_content
from sidelight.service.log.sealing import SALT_BYTES, Head, chain_after, seal_of

__all__ = [
    "MOST_DECIDED",
    "Diverged",
    "Draft",
    "Outdated",
    "Proposal",
    "Settled",
    "Since",
    "Written",
    "check_known",
    "chosen_epoch",
    "place_drafts",
    "settle_group",
]


#: how many of its last events with decisions a server remembers, to tell whether a draft counts them all
MOST_DECIDED = 1_024


class Diverged(StoreError):
    """This server's state does not follow from the log: it must not decide any more until it is restarted."""


class Draft(NamedTuple):
    """An event that is ready to be written but has no number yet.

    Attributes:
        key: names what may exist only once.
        chosen_at: the last event that was known when this was decided; it is not written if a later one is of
            ``OUTDATES``. None where that does not matter.
        counted: how many events with decisions of this server after ``chosen_at`` this one takes into account (it was
            decided after them, and they were being written); it is not written if one of them was not, or if another
            server's decisions stand after ``chosen_at``. None where that does not matter.
        about: number and chained digest of the event that this tells about, as it was read from the log; it is not
            written where the log has lost that event by now. None where it tells about none.
    """

    event: Event
    key: str | None
    payload: str
    contexts: bytes | None
    subjects: list[str | None] | None = None
    chosen_at: int | None = None
    counted: int | None = None
    about: tuple[int, bytes | None] | None = None

    @classmethod
    def of(
        cls,
        event: Event,
        key: str | None = None,
        chosen_at: int | None = None,
        counted: int | None = None,
        about: tuple[int, bytes | None] | None = None,
    ) -> Draft:
        """A draft of ``event``."""
        payload, contexts = event_content(event)
        return cls(event, key, payload, contexts, getattr(event, "subjects", None), chosen_at, counted, about)

    def lost_its_event(self, seen: int, others: Mapping[int, bytes | None]) -> bool:
        """Whether the event that this tells about is not in the log any more.

        Whoever appends has checked that the log still holds what this server has seen. An event that another server
        wrote after that was read without being seen, and a log that goes back loses it unnoticed.

        Args:
            seen: the last event that this server knew.
            others: number and chained digest of the events after it.
        """
        return self.about is not None and self.about[0] > seen and others.get(self.about[0]) != self.about[1]

    def overtaken(self, configured: int, elsewhere: int, decided: Sequence[int]) -> bool:
        """Whether the log differs from what was known when this was decided, in what matters to it.

        Args:
            configured: the last event of ``OUTDATES``.
            elsewhere: the last event with decisions of another server.
            decided: the last events with decisions of this server, ``MOST_DECIDED`` of them where there are so many.
        """
        if self.chosen_at is None or self.chosen_at < configured:
            return self.chosen_at is not None
        if self.counted is None:
            return False
        since = len(decided) - bisect_right(decided, self.chosen_at)
        return self.chosen_at < elsewhere or since != self.counted or since >= MOST_DECIDED


class Proposal(Protocol):
    """Something that wants to be written, if what the log already holds allows it."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys whose events, if there are any, ``settle`` wants to see."""

    def settle(self, found: Mapping[str, Row]) -> Draft | Any:
        """Decide under the lock: a draft is written; anything else is handed back as the outcome."""


class Written(NamedTuple):
    """The outcome of a proposal that was written.

    Attributes:
        number: of the event.
        draft: what was written.
        at: the time that the event carries.
        epoch: of its ids.
        chain: the chained digest after it.
    """

    number: int
    draft: Draft
    at: float
    epoch: int = 0
    chain: bytes = b""


class Outdated:
    """The outcome of a draft that missed an event that may change it, or is about a lost event: do it again."""


class Since(NamedTuple):
    """What the log has by now that a proposal may have been made without.

    Attributes:
        configured: the last event of ``OUTDATES``.
        decided: the last events with decisions of this server.
        elsewhere: the last one with decisions of another server.
        others: the events at the end of the log that this server had not seen before.
    """

    configured: int
    decided: Sequence[int]
    elsewhere: int
    others: Sequence[Row]


@dataclass(frozen=True)
class Settled:
    """The outcomes of a group, and what to write for it.

    Attributes:
        outcomes: one per proposal: ``Written``, ``Outdated``, or what ``settle`` returned.
        rows: the events to write, in order.
        about: ``(number, position, subject)`` of decisions about somebody.
        head: the end of the log once they are written.
    """

    outcomes: list[Any]
    rows: list[Row]
    about: list[tuple[int, int, str]]
    head: Head


def settle_group(
    head: Head,
    proposals: Sequence[Proposal],
    found: dict[str, Row],
    since: Since,
    now: float,
    salts: bytes,
) -> Settled:
    """Decide what of a group is written at the end of the log.

    Args:
        head: the end of the log, which nobody else moves meanwhile.
        proposals: in the order in which they came.
        found: the events that have one of the proposals' keys; those of this group are added.
        since: what may outdate a proposal.
        now: the time that the events will carry.
        salts: ``SALT_BYTES`` random bytes for each proposal.
    """
    configured, decided = since.configured, list(since.decided)
    seen, unseen = head.number - len(since.others), {row.number: row.chain for row in since.others}
    end = _End(head, now, salts)
    outcomes: list[Any] = []
    rows: list[Row] = []
    about: list[tuple[int, int, str]] = []
    for proposal in proposals:
        draft = proposal.settle(found)
        if not isinstance(draft, Draft):
            outcomes.append(draft)
            continue
        if draft.overtaken(configured, since.elsewhere, decided) or draft.lost_its_event(seen, unseen):
            outcomes.append(Outdated())
            continue
        row = end.write(draft)
        rows.append(row)
        if isinstance(draft.event, Decisions):
            decided.append(row.number)
        elif isinstance(draft.event, OUTDATES):
            configured = row.number
        outcomes.append(Written(row.number, draft, now, row.epoch, end.chain))
        if draft.key is not None:
            found[draft.key] = row
        if draft.subjects is not None:
            about += [(row.number, j, subject) for j, subject in enumerate(draft.subjects) if subject is not None]
    return Settled(outcomes, rows, about, end.head())


def place_drafts(head: Head, drafts: Sequence[Draft], now: float, salts: bytes) -> tuple[list[Row], Head]:
    """Drafts as the next rows of the log, and the end of the log after them."""
    end = _End(head, now, salts)
    rows = [end.write(draft) for draft in drafts]
    return rows, end.head()


class _End:
    """The end of the log while rows are added to it.

    Args:
        head: the end as it is.
        now: the time that the rows carry.
        salts: ``SALT_BYTES`` random bytes for each row.
    """

    __slots__ = ("_before", "_now", "_salts", "chain", "epoch", "number")

    def __init__(self, head: Head, now: float, salts: bytes) -> None:
        self._before, self._now, self._salts = head, now, salts
        self.number, self.chain, self.epoch = head.number, head.chain, head.epoch

    def write(self, draft: Draft) -> Row:
        """A draft as the next row, numbered, sealed and chained."""
        start = (self.number - self._before.number) * SALT_BYTES
        event = draft.event
        self.number += 1
        if isinstance(event, NewEpoch):
            self.epoch = event.epoch
        content = (self.number, event.kind, self._now, draft.key, draft.payload, draft.contexts, self.epoch)
        seal = seal_of(content, self._salts[start : start + SALT_BYTES])
        self.chain = chain_after(self.chain, seal)
        return Row(*content, seal, self.chain)

    def head(self) -> Head:
        """The head row after the rows that were written so far."""
        return self._before._replace(number=self.number, chain=self.chain, epoch=self.epoch)


def chosen_epoch(random: bytes) -> int:
    """A new epoch, 1 … 2³¹ − 1, from four random bytes."""
    return int.from_bytes(random[:4], "big") % 0x7FFF_FFFF + 1


def check_known(head: Head, seen: int, known: bytes | None, there: bytes | None, fold: int | None) -> None:
    """Check that a server and the log still share their past.

    Args:
        head: the end of the log.
        seen: the last event that the server knows.
        known: the chained digest that it knows for it; None to check nothing.
        there: the digest that the log has for that event; None where it has no such event.
        fold: the version of the server's fold; None to check nothing.

    Raises:
        Diverged: they do not, or servers with another fold decide on this log.
    """
    if fold is not None and head.fold != fold:
        later = head.fold > fold
        raise Diverged(
            f"the event log is folded by version {head.fold}, and this server folds by version {fold}: its learner is "
            "not that of the other servers, so it decides no more. "
            + ("Upgrade Sidelight here." if later else "Start it again.")
        )
    if known is not None and there != known:
        what = (
            f"the event log ends at event {head.number}"
            if head.number < seen
            else f"event {seen} of the log is another one"
        )
        raise Diverged(
            f"{what}, and this server has seen event {seen}: the log went back (a standby that lagged took over, or a "
            "back-up was put in its place), and what this server has learned is not in it. It decides no more. Check "
            "that this is the right database, then start the server again; it goes on from the log."
        )
