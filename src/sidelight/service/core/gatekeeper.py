"""The gatekeeper: evaluates the gate's evidence after events were folded in, and takes its steps.

A step is an event with a key of its own, so that of several servers exactly one writes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from sidelight.service.core.proposals import GateProposal
from sidelight.service.core.server import Server
from sidelight.service.log.events import GateStep
from sidelight.service.log.store import Outdated
from sidelight.service.problems import Problem

__all__ = ["Gatekeeper"]

logger = logging.getLogger("sidelight.service")


class Gatekeeper:
    """Takes steps for one server.

    Args:
        server: the engine.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._proposed: tuple[int, int] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def consider(self) -> None:
        """After events were folded in: take the step that the evidence calls for, if that needs no person."""
        gate = self._server.state.gate
        if (gate.tests, gate.rung) == self._proposed:
            return
        step = gate.proposal()
        if step is None or not gate.automatic(step):
            return
        if self._server.state.rails.killed and step.after > step.before:
            # rewards of earlier decisions still come, but the share of a learner that is killed is not raised
            return
        self._proposed = (gate.tests, gate.rung)
        self._run(self._take(GateProposal.taking(step, gate.tests, self._server.state.number)))

    async def _take(self, proposal: GateProposal) -> None:
        try:
            outcome = await self._server.submit(proposal)
        except Problem as problem:
            logger.warning("a step of the gate was not written, and is proposed again: %s", problem)
            self._proposed = None
        except Exception:
            logger.exception("a step of the gate was not written, and is proposed again")
            self._proposed = None
        else:
            if isinstance(outcome, Outdated):
                # New settings, another step or a deletion came first. The evidence is evaluated again when that is
                # folded in, which may have happened already.
                self._proposed = None
                if self._server.state.number > (proposal.draft.chosen_at or 0):
                    self.consider()
                return
            event = proposal.draft.event
            assert isinstance(event, GateStep)
            logger.warning("the gate: %s; the learner's share is %g from now on", event.reason, event.share)

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Wait for steps that are being written."""
        for task in list(self._tasks):
            await asyncio.gather(task, return_exceptions=True)
