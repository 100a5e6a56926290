"""Decisions of people: retractions, reviews of the quarantine, steps of the gate."""

from __future__ import annotations

from sidelight.errors import InputError
from sidelight.service.core.doubted import Doubted, ReleaseProposal, RetractionProposal
from sidelight.service.core.proposals import GateProposal
from sidelight.service.core.server import Noted, Server
from sidelight.service.log.bases import base_number
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Configuration
from sidelight.service.problems import Problem

__all__ = ["Reviews"]


class Reviews:
    """Writes the decisions of people, for one server.

    Args:
        server: the engine.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    async def retract(self, id: DecisionId, by: str | None, reason: str | None, what: str = "reward") -> Noted:
        """Take back what was told about a decision: its ``reward``, ``action`` or ``behavior``.

        Raises:
            Problem: there is no such thing, or a base holds what the learner made of it.
        """
        decision = await self._server.decision(id)
        row = (await self._server.read(self._server.store.find, [f"{what}:{id}"])).get(f"{what}:{id}")
        given = what == "behavior" and decision.answers is not None and decision.answers[id.position] is not None
        if row is None and not given:
            raise Problem("conflict", f"decision {id} has no {what} that could be taken back.")
        return await self.decide_doubt(id if row is None else DecisionId(row.number, 0, row.epoch), False, by, reason)

    async def decide_doubt(self, id: DecisionId, release: bool, by: str | None, reason: str | None) -> Noted:
        """Release or retract a reward, an action or an answer, as a person decides.

        Args:
            id: of its event; for an answer that came with a decision, of the decision.
            release: teach the learner what was quarantined; otherwise retract it, quarantined or not.
            by: the name of the person's token.
            reason: in that person's words.

        Raises:
            Problem: there is nothing of that name, it is not in quarantine, or a base holds what is to be retracted.
        """

        async def propose() -> ReleaseProposal | RetractionProposal:
            known = self._server.state.number
            row = (await self._server.read(self._server.store.rows, [id.number])).get(id.number)
            doubted = Doubted.at(row, id, self._server.state.learner.n_features)
            if not release:
                base = await self._server.read(base_number, self._server.store)
                return RetractionProposal(doubted, base, by, reason, known)
            about = doubted.event.decision
            context = None if about is None else (await self._server.decision(about)).contexts[about.position]
            return ReleaseProposal(doubted, context, by, reason)

        return await self._server.in_force(self._server.noted(await self._server.submit_anew(propose)))

    async def step(self, after: int | None, held: bool | None, by: str, seen: float | None = None) -> Noted:
        """Move the gate to a rung, stop promotions or allow them again, as a person decides.

        Args:
            after: the rung; None stays.
            held: whether promotions stop; None leaves what was.
            by: the name of the person's token.
            seen: the rung on which that person saw the gate; None where it does not matter.

        Raises:
            Problem: there is no ladder, no such rung, no step from a share that is on none, or the gate is not where
                it was seen.
        """
        gate = self._server.state.gate
        if after == -1 and gate.settings.on and gate.rung < 0 < gate.share and seen in (None, gate.rung):
            # below the ladder already, at a share that a person set: leaving sets it to 0, and is no step
            number = await self._server.configure(Configuration(share=0.0, by=by))
            if held is None:
                return Noted(number, True, None)
            after = None

        async def step() -> GateProposal:
            gate = self._server.state.gate
            if seen is not None and gate.rung != seen:
                raise Problem(
                    "conflict",
                    f"the gate has moved: the learner's share is {gate.share:g} by now (rung {gate.rung} in "
                    f"/v1/status, not {seen:g}). Look again before you step.",
                )
            if after is not None and gate.settings.on and gate.rung < 0 < gate.share:
                raise Problem(
                    "conflict",
                    f"a share of {gate.share:g} is on no rung, so there is no step from it: set a share of the ladder "
                    f"({', '.join(f'{gate.settings.share_of(i):g}' for i in range(len(gate.settings.ladder)))}) "
                    "by POST /v1/mode.",
                )
            try:
                moved = gate.move(gate.rung if after is None else after, f"{by} decided so")
            except InputError as error:
                raise Problem("conflict", str(error)) from error
            return GateProposal.taking(moved, gate.tests, self._server.state.number, by, held)

        return await self._server.in_force(self._server.noted(await self._server.submit_anew(step)))
