"""Who takes the gate's steps: looks at the evidence after every event, and ends waits for rewards that do not come.

Whatever follows is an event with a key of its own, so that of several servers exactly one writes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from sidelight.service.core.fold import State
from sidelight.service.core.proposals import DefaultRewardProposal, GateProposal, ReferringProposal
from sidelight.service.log.events import DecisionId, Decisions, GateStep
from sidelight.service.log.store import Store
from sidelight.service.log.surroundings import Surroundings
from sidelight.service.problems import Problem

__all__ = ["Gatekeeper"]

logger = logging.getLogger("sidelight.service")

#: waits that are ended in one go
_MOST_AT_ONCE = 256
#: seconds between two looks at the waits, at most and at least
_LOOK_SECONDS = (60.0, 0.25)


class Server(Protocol):
    """What the gatekeeper needs of an engine."""

    store: Store
    state: State

    async def submit(self, proposal: ReferringProposal) -> Any:
        """Have a proposal written."""

    async def decision(self, id: DecisionId) -> Decisions:
        """The event that holds a decision."""

    async def read(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function returns that reads the store."""


class Gatekeeper:
    """Takes steps and ends waits for one server.

    Args:
        server: the engine.
        wait: seconds after which a decision without a reward counts with the default one; None never.
        default_reward: that reward.
        surroundings: the clock.
    """

    def __init__(self, server: Server, wait: float | None, default_reward: float, surroundings: Surroundings) -> None:
        self._server, self._wait, self._default = server, wait, default_reward
        self._clock = surroundings
        self._proposed = -1
        self._tasks: set[asyncio.Task[None]] = set()

    def consider(self) -> None:
        """After events were folded in: take the step that the evidence calls for, if that needs no person."""
        gate = self._server.state.gate
        if gate is None or gate.tests == self._proposed:
            return
        step = gate.proposal()
        if step is None or not gate.automatic(step):
            return
        self._proposed = gate.tests
        event = GateStep(step.before, step.after, step.share, step.reason, step.evidence)
        self._run(self._take(GateProposal.of(event, gate.tests)))

    async def _take(self, proposal: GateProposal) -> None:
        try:
            await self._server.submit(proposal)
        except Problem as problem:
            logger.warning("a step of the gate was not written, and is proposed again: %s", problem)
            self._proposed = -1
        else:
            event = proposal.draft.event
            assert isinstance(event, GateStep)
            logger.warning("the gate: %s; the learner's share is %g from now on", event.reason, event.share)

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def watch(self) -> None:
        """End waits, for ever."""
        if self._wait is None:
            return
        most, least = _LOOK_SECONDS
        while True:
            await asyncio.sleep(min(max(self._wait / 20.0, least), most))
            try:
                await self.end_waits()
            except Problem as problem:
                logger.warning("waits for rewards cannot be ended: %s", problem)

    async def end_waits(self) -> int:
        """Write default rewards for the oldest units whose wait is over; returns how many."""
        gate = self._server.state.gate
        if gate is None or self._wait is None:
            return 0
        waiting = [unit for unit in list(gate.waiting)[: 4 * _MOST_AT_ONCE] if unit.reward is None][:_MOST_AT_ONCE]
        rows = await self._server.read(self._server.store.rows, {unit.number for unit in waiting})
        now, ended = self._clock.now(), 0
        for unit in waiting:
            row = rows.get(unit.number)
            if row is None or now - row.at < self._wait:
                continue
            id = DecisionId(unit.number, unit.position, row.epoch)
            decision = await self._server.decision(id)
            await self._server.submit(DefaultRewardProposal(id, decision, self._default))
            ended += 1
        return ended

    async def stop(self) -> None:
        """Wait for steps that are being written."""
        for task in list(self._tasks):
            await asyncio.gather(task, return_exceptions=True)
