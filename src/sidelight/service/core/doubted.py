"""A person's review of something in the log: retraction, if it is wrong, or release from quarantine, if it is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sidelight.linalg import Array
from sidelight.service.core.proposals import Known, Outcome
from sidelight.service.core.told import assumed_reward
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Action, Behavior, Decisions, Release, Retraction, Reward
from sidelight.service.log.rows import Row, event_from_row
from sidelight.service.log.store import Draft
from sidelight.service.problems import Problem

__all__ = ["Doubted", "ReleaseProposal", "RetractionProposal"]


@dataclass(frozen=True)
class Doubted:
    """A reward, action or answer in the log that a person retracts or releases.

    Attributes:
        row: the event.
        event: what the learner learns from it: the event itself, or one decision's answer.
        position: of the decision in it, where the event is a batch of decisions.
    """

    row: Row
    event: Reward | Action | Behavior
    position: int = 0

    @property
    def id(self) -> DecisionId:
        """Its id: event number, position and epoch, as for decisions."""
        return DecisionId(self.row.number, self.position, self.row.epoch)

    @property
    def name(self) -> str:
        """What the keys of its release and retraction end with: its own key if it is about a decision, else its id."""
        key = None if self.event.decision is None or self.row.kind == Decisions.kind else self.row.key
        return key or f"event:{self.id}"

    @classmethod
    def at(cls, row: Row | None, id: DecisionId, n_features: int) -> Doubted:
        """The reward, action or answer with this id.

        Raises:
            Problem: there is none, or it is nothing that a learner learns from.
        """
        event = None if row is None or row.epoch != id.epoch else event_from_row(row, n_features)
        if row is not None and isinstance(event, Reward | Action | Behavior) and id.position == 0:
            return cls(row, event)
        if row is not None and isinstance(event, Decisions) and event.answers is not None and id.position < len(event):
            answer, reasons = event.answers[id.position], event.quarantine
            if answer is not None:
                reason = None if reasons is None else reasons[id.position]
                return cls(row, Behavior(answer, id, quarantine=reason), id.position)
        raise Problem("unknown-event", f"event {str(id)!r} is no reward, action or answer of this log.")


class _AboutDoubted:
    """The common part of retraction and release."""

    context: Array | None = None

    def __init__(self, doubted: Doubted, by: str | None, reason: str | None) -> None:
        self.doubted, self.by, self.reason = doubted, by, reason
        self.release_key, self.retraction_key = f"release:{doubted.name}", f"retracted:{doubted.name}"
        self.keys: tuple[str, ...] = (self.release_key, self.retraction_key)


class RetractionProposal(_AboutDoubted):
    """Take a reward, an action or an answer back.

    Args:
        doubted: what is wrong.
        base: the event of the newest base; what the learner made of events up to there cannot be undone.
        by: who asks for it.
        reason: in that person's words.
        chosen_at: an event that was known before ``base`` was looked up: a later base outdates the proposal.
    """

    def __init__(self, doubted: Doubted, base: int | None, by: str | None, reason: str | None, chosen_at: int) -> None:
        super().__init__(doubted, by, reason)
        self.base, self.chosen_at = base, chosen_at

    def settle(self, found: Mapping[str, Row]) -> Outcome:
        """The draft of the retraction; ``Known`` where it was retracted before."""
        if self.retraction_key in found:
            return Known(found[self.retraction_key])
        row = self.doubted.row
        learned: Row | None = row
        if self.doubted.event.quarantine is not None:
            learned = found.get(self.release_key)
        if learned is not None and self.base is not None and learned.number <= self.base:
            return Problem(
                "conflict",
                f"the learner was taught this by event {learned.number}, and replays start from a base after event "
                f"{self.base} (somebody was forgotten, or Sidelight was upgraded): what the learner made of it is in "
                "the base's sums and cannot be taken out any more.",
            )
        event = Retraction(row.number, self.by, self.reason, self.doubted.position)
        return Draft.of(event, self.retraction_key, self.chosen_at, about=(row.number, row.chain))


class ReleaseProposal(_AboutDoubted):
    """Teach the learner what was quarantined after all."""

    def __init__(self, doubted: Doubted, context: Array | None, by: str | None, reason: str | None) -> None:
        super().__init__(doubted, by, reason)
        self.context = context
        if isinstance(doubted.event, Reward):
            id = doubted.event.decision
            self.keys += (f"default:{id}", f"action:{id}")

    def settle(self, found: Mapping[str, Row]) -> Outcome:
        """The draft of the release; ``Known`` where it was released before. A retraction is final."""
        doubted = self.doubted
        if self.retraction_key in found:
            return Problem("conflict", f"event {doubted.id} was retracted; it cannot be released any more.")
        if self.release_key in found:
            return Known(found[self.release_key])
        if doubted.event.quarantine is None:
            return Problem("conflict", f"event {doubted.id} is not in quarantine: the learner has learned from it.")
        released = replace(doubted.event, quarantine=None)
        if isinstance(released, Reward) and (assumed := assumed_reward(found, released.decision)) is not None:
            # the wait ended while it was in quarantine, and the default reward was taught
            row, default, stands = assumed
            released = replace(released, replaces=default.reward, replaces_arm=stands, waited_until=row.at)
        event = Release(doubted.row.number, doubted.position, released, self.by, self.reason)
        return Draft.of(event, self.release_key, about=(doubted.row.number, doubted.row.chain))
