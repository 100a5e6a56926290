"""Ends waits for rewards that do not come: writes the default reward of decisions whose wait is over.

A default reward is an event with a key of its own, so that of several servers exactly one writes it.
"""

from __future__ import annotations

import asyncio
import logging

from sidelight.service.core.server import Server
from sidelight.service.core.told import DefaultRewardProposal, wait_ended_by, wait_keys
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Decisions
from sidelight.service.log.rows import Row, event_from_row
from sidelight.service.log.store import Outdated, Store, Written
from sidelight.service.log.surroundings import Surroundings
from sidelight.service.problems import Problem

__all__ = ["Waits"]

logger = logging.getLogger("sidelight.service")

#: most waits that are ended at once
_MOST_AT_ONCE = 256
#: events that are read at once to find them
_CHUNK = 500
#: seconds between two checks of the waits, at most and at least
_LOOK_SECONDS = (60.0, 0.25)
#: seconds between two checks, while no wait is set, whether one was set, perhaps on another server
_IDLE_SECONDS = 1.0


class Waits:
    """Ends the waits of one server's log.

    Args:
        server: the engine.
        surroundings: the clock.
    """

    def __init__(self, server: Server, surroundings: Surroundings) -> None:
        self._server, self._clock = server, surroundings
        #: up to this event every decision has a reward or a default
        self._looked = 0

    async def watch(self) -> None:
        """Write default rewards for decisions whose wait is over, in a loop that ends only by being cancelled."""
        most, least = _LOOK_SECONDS
        while True:
            seconds = self._server.state.defaults.seconds
            await asyncio.sleep(_IDLE_SECONDS if seconds is None else min(max(seconds / 20.0, least), most))
            try:
                # until a call writes none: it may write fewer than are due, where a reward or another server came first
                while await self.end():
                    pass
            except Problem as problem:
                logger.warning("waits for rewards cannot be ended: %s", problem)
            except Exception:
                # any exception: the waits of later decisions must still end
                logger.exception("waits for rewards cannot be ended")

    async def end(self) -> int:
        """Write default rewards for the oldest decisions whose wait is over; returns how many, at most 256."""
        defaults = self._server.state.defaults
        if defaults.seconds is None:
            return 0
        # the last event that has a default may have decisions that have none yet
        start = max(self._looked, defaults.waited - 1)
        store, now = self._server.store, self._clock.now()
        span = (now - defaults.seconds, now)
        # Not beyond what this server has folded in: it would not notice the loss of later events of other servers.
        upto, n_features = self._server.state.number, self._server.state.learner.n_features
        due, looked = await self._server.read(_due, store, start, upto, span, n_features)
        now_due = due[:_MOST_AT_ONCE]
        doubts = [self._server.doubt(decision.contexts[id.position]) for id, decision in now_due]
        outcomes = await asyncio.gather(
            *(
                self._server.submit(
                    DefaultRewardProposal(id, decision, defaults.reward, doubt, after=now_due[i - 1][0] if i else None)
                )
                for i, ((id, decision), doubt) in enumerate(zip(now_due, doubts, strict=True))
            )
        )
        if len(due) <= _MOST_AT_ONCE and not any(isinstance(outcome, Outdated) for outcome in outcomes):
            self._looked = looked
        return sum(isinstance(outcome, Written) for outcome in outcomes)


def _ripe(rows: list[Row], until: float, now: float) -> list[Row]:
    """The first rows, up to the last whose time is not after ``until``.

    A row from after ``now`` was written while a clock was wrong. Those behind it do not wait for that time to come: it
    is older than they are, so its wait is over when one of theirs is.
    """
    ripe = 0
    for i, row in enumerate(rows):
        if row.at <= until:
            ripe = i + 1
        elif row.at <= now:
            break
    return rows[:ripe]


def _due(
    store: Store, start: int, upto: int, span: tuple[float, float], n_features: int
) -> tuple[list[tuple[DecisionId, Decisions]], int]:
    """Decisions after event ``start`` whose wait is over and that have neither a reward nor a default.

    Args:
        store: the log.
        start: where to begin.
        upto: the last event to look at.
        span: the time up to which waits are over, and the present.
        n_features: ``d``.

    Returns:
        More than ``_MOST_AT_ONCE`` of them where there are more, and the last event that was looked at.
    """
    found: list[tuple[DecisionId, Decisions]] = []
    looked, rest = start, list[Row]()
    for rows in store.follow(start, upto, chunk=_CHUNK):
        rest += rows
        ripe = _ripe(rest, *span)
        events = [(row, event_from_row(row, n_features)) for row in ripe if row.kind == Decisions.kind]
        ids = [
            (DecisionId(row.number, i, row.epoch), event)
            for row, event in events
            if isinstance(event, Decisions)
            for i in range(len(event))
        ]
        # An event after ``upto`` that ended a wait may get lost without this server's notice: the default is proposed
        # anyway, and such an event is found under the log's lock.
        settled = store.find([key for id, _ in ids for key in wait_keys(id)])
        settled = {key: row for key, row in settled.items() if row.number <= upto}
        found += [(id, event) for id, event in ids if wait_ended_by(settled, id) is None]
        if ripe:
            looked, rest = ripe[-1].number, rest[len(ripe) :]
        # rows from the future may be followed by others whose wait is over, in a later chunk
        if any(row.at <= span[1] for row in rest) or len(found) > _MOST_AT_ONCE:
            break
    return found, looked
