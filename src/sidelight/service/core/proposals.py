"""Proposals: what requests want to write, and how each is settled if the log already has an event on the matter.

Here: decisions, settings and steps of the gate. ``told`` has rewards, actions and answers; ``doubted`` has retractions
and releases.

``settle`` runs in the commit thread under the log's lock, so checking that a reward is missing and writing it are
atomic, whichever server a retry reaches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sidelight.linalg import Array
from sidelight.service.core.ladder import Step
from sidelight.service.log.events import Behavior, Configuration, Decisions, Event, GateStep
from sidelight.service.log.rows import Row, event_from_row
from sidelight.service.log.store import Draft, Outdated, Proposal
from sidelight.service.problems import Problem

__all__ = ["ConfigurationProposal", "DecisionsProposal", "GateProposal", "Known", "Outcome", "ReferringProposal"]


@dataclass(frozen=True)
class Known:
    """The outcome of a proposal whose event, or one that makes it needless, was already in the log.

    Attributes:
        row: that event.
        retracted: whether it was retracted since; saying the same again does not bring it back.
    """

    row: Row
    retracted: bool = False


Outcome = Draft | Known | Problem


class ReferringProposal(Proposal, Protocol):
    """A proposal that knows which context the fold needs for its event."""

    @property
    def context(self) -> Array | None:
        """(d,)  the context; None where the event has its own, or none."""


class DecisionsProposal(NamedTuple):
    """Write decisions, unless this idempotency key already has."""

    draft: Draft
    context: Array | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The idempotency key, if any."""
        return () if self.draft.key is None else (self.draft.key,)

    def settle(self, found: Mapping[str, Row]) -> Outcome:
        """The draft; ``Known`` where the key was used by the same request before."""
        row = found.get(self.draft.key) if self.draft.key is not None else None
        if row is None:
            return self.draft
        # The key may belong to any request of this token; its contexts are not needed, and may have another shape.
        recorded = event_from_row(row._replace(contexts=None), 0) if row.kind == self.draft.event.kind else None
        if _same_request(recorded, self.draft.event):
            return Known(row)
        return Problem(
            "key-reused",
            "this Idempotency-Key came with another request before. A key belongs to one request and its retries: "
            "make a new one.",
        )


def _same_request(recorded: Event | None, asked: Event) -> bool:
    """Whether a recorded event came of the request that asks now, of which it may have forgotten the fingerprint."""
    if isinstance(recorded, Decisions) and isinstance(asked, Decisions):
        # The fingerprint is deleted when a subject is forgotten; then an equal key, for as many decisions, is a retry.
        return recorded.fingerprint in (None, asked.fingerprint) and len(recorded) == len(asked)
    if isinstance(recorded, Behavior) and isinstance(asked, Behavior):
        return recorded.fingerprint == asked.fingerprint
    return False


@dataclass(frozen=True)
class ConfigurationProposal:
    """Change the rails."""

    draft: Draft
    keys: tuple[str, ...] = ()
    context: Array | None = None

    @classmethod
    def of(cls, event: Configuration) -> ConfigurationProposal:
        """A proposal that writes this event, under no idempotency key."""
        return cls(Draft.of(event))

    def settle(self, found: Mapping[str, Row]) -> Outcome:
        """The draft, whatever the log says."""
        return self.draft


@dataclass(frozen=True)
class GateProposal:
    """Write a step of the gate, unless the same was taken from this rung already: two servers may propose it.

    A step that was proposed before somebody changed who acts is outdated: it would undo that change. So is one that
    finds another step taken from its rung, or that holds the ladder, too: a person who wants to leave the ladder must
    not be answered with the promotion of the same moment.
    """

    draft: Draft
    context: Array | None = None

    @classmethod
    def of(cls, event: GateStep, tests: int, chosen_at: int) -> GateProposal:
        """From the event, the number of rungs that were entered before it, and the last event that was known."""
        # below the ladder no rung is entered, so the number of rungs alone would be the key of two steps
        key = f"gate:{tests}:{event.before}" if event.before != event.after else None
        return cls(Draft.of(event, key, chosen_at))

    @classmethod
    def taking(
        cls, step: Step, tests: int, chosen_at: int, by: str | None = None, held: bool | None = None
    ) -> GateProposal:
        """Take a step: by the gate itself, or by a person, who may hold the ladder or let it go; see ``of``."""
        # a step onto the ladder sets the mode ``act``
        mode = "act" if step.before < 0 <= step.after else None
        event = GateStep(step.before, step.after, step.share, step.reason, step.evidence, by, held, mode)
        return cls.of(event, tests, chosen_at)

    @property
    def keys(self) -> tuple[str, ...]:
        """One key for each step of the ladder, so that two servers take it once."""
        return () if self.draft.key is None else (self.draft.key,)

    def settle(self, found: Mapping[str, Row]) -> Outcome | Outdated:
        """The draft; or the same step, where it was taken from this rung already."""
        row = found.get(self.draft.key) if self.draft.key is not None else None
        if row is None:
            return self.draft
        taken, wanted = event_from_row(row, 0), self.draft.event
        assert isinstance(taken, GateStep)
        assert isinstance(wanted, GateStep)
        same = taken.after == wanted.after and wanted.held in (None, taken.held)
        return Known(row) if same else Outdated()
