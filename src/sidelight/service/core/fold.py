"""The fold: the state of the service as a function of its events, and nothing else.

``FOLD`` is its version. A change that makes the same events give another state (here, or in what a learner computes)
must increment it: the first server of the new version then keeps a base, from which its replays start, and servers of
the old one decide no more on that log.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

from sidelight.errors import StoreError
from sidelight.learners.saving import learner_bytes, learner_from_bytes
from sidelight.linalg import Array
from sidelight.service.core.defaults import Defaults
from sidelight.service.core.gate import Gate
from sidelight.service.core.ladder import GateSettings
from sidelight.service.core.seen import Quarantine, Seen, Withheld
from sidelight.service.core.teaching import Teaching, decision_place, name_of
from sidelight.service.log.events import (
    Action,
    Behavior,
    Configuration,
    Decisions,
    DefaultReward,
    Event,
    FoldChange,
    Forgotten,
    GateStep,
    NewEpoch,
    Release,
    Retraction,
    Reward,
)
from sidelight.service.log.numbering import Numbered, numbered
from sidelight.service.log.rows import is_deleted
from sidelight.service.log.snapshots import Snapshot
from sidelight.service.rails import Rails

__all__ = [
    "FOLD",
    "ContextsDeleted",
    "NotRebuildable",
    "Numbered",
    "OlderFold",
    "State",
    "Unlearned",
    "numbered",
]

#: 1: Sidelight 0.1.0
FOLD = 2


class NotRebuildable(StoreError):
    """A past state can no longer be rebuilt by folding events."""


class ContextsDeleted(NotRebuildable):
    """An event needs a context that was deleted after it: only a state from after the deletion can go on."""


class Unlearned(NotRebuildable):
    """A state may hold what was retracted after it: only folding the log again takes that out."""


class OlderFold(NotRebuildable):
    """A state was made by an older version of the fold: this one would compute other numbers."""


class State(Teaching):
    """The learner and the rails after event ``number``.

    Attributes:
        rails: who may act.
        forgotten: decisions whose contexts were deleted; what is told about them later teaches nothing.
        chain: the log's chained digest after ``number``; None where it is not known. No part of the digest.
    """

    def __init__(self, learner: Any, rails: Rails, number: int = 0, version: int = 0) -> None:
        self.rails = rails
        super().__init__(learner, Gate.at_share(GateSettings(), self._shared()), number, version)
        self.forgotten: set[tuple[int, int]] = set()
        self.chain: bytes | None = None

    # ---------------------------------------------------------------------------------- the fold

    def apply(self, numbered: Numbered) -> None:
        """Fold the next event in.

        Raises:
            ContextsDeleted: it needs what was deleted later; nothing has changed.
            StoreError: it is not the next one; nothing has changed.
        """
        number, _, event, context, chain = numbered
        if number != self.number + 1:
            raise StoreError(
                f"event {number} was to be folded in after event {self.number}: the log and this server do not agree. "
                "Start the server again, and report this."
            )
        if isinstance(event, Decisions):
            evidence = self._is_evidence(event)
            if self._lacks(event, evidence):
                raise _deleted(number)
        else:
            context = self._context(number, event, context)
        self.number, self.chain = number, chain
        self.failure = None
        match event:
            case Decisions():
                self._decisions(event)
                if self.learner.ledger is not None:
                    self._count_for_floor(event)
                if evidence:
                    self._enter_evidence(event)
            case Reward():
                self._reward(event, context)
            case Action():
                self._moved(event, context)
                self.counts["actions"] += 1
                self.counts["overrides"] += event.override
                self.counts["answers"] += event.answer
                if event.answer:
                    self._teach(event, context)
            case Behavior():
                self.counts["answers"] += 1
                self._teach(event, context)
            case Configuration():
                self._configure(event)
            case Forgotten():
                self.counts["forgotten"] += len(event.decisions)
                gone = {(number, position) for number, position in event.decisions}
                self.forgotten |= gone
                self.gate.forget(gone)
                for place in gone:
                    self.defaults.receipts.pop(place, None)
                    self.withheld.pop(place)
                    self._drop_for_floor(place)
            case Retraction():
                self.counts["retractions"] += 1
                self.quarantine.settle(event.event, event.position)
                if (decision := self.withheld.retracted(event.event)) is not None:
                    self._drop_for_floor(decision)
            case Release():
                self.counts["released"] += 1
                self.quarantine.settle(event.event, event.position)
                if event.quarantine is None:
                    self._teach(event.released, context)
                elif isinstance(event.released, Reward):
                    self._settle_evidence(event.released, context)
                    self._drop_for_floor(decision_place(event.released))
            case GateStep():
                self._step(event)
            case DefaultReward():
                self._default(event, context)
            case FoldChange() | NewEpoch():
                pass

    def _context(self, number: int, event: Event, context: Array | None) -> Array | None:
        """The context that an event tells about; None where an earlier event deleted it."""
        decision = getattr(event, "decision", None)
        if decision is not None and self.forgotten and tuple(decision[:2]) in self.forgotten:
            return None
        if context is not None and is_deleted(context):
            raise _deleted(number)
        return context

    def _lacks(self, event: Decisions, evidence: bool) -> bool:
        """Whether a later deletion removed something from decisions that the fold needs.

        Answers are learned at contexts; the gate tells units apart by subjects, and failures by estimates. All three
        are deleted together. A floor counts every context.
        """
        if evidence or self.learner.ledger is not None:
            return any(map(is_deleted, event.contexts))
        return event.answers is not None and any(
            answer is not None and is_deleted(x) for x, answer in zip(event.contexts, event.answers, strict=True)
        )

    def _decisions(self, event: Decisions) -> None:
        routes, arms = event.routes, event.arms
        self.counts["decisions"] += len(routes)
        if len(routes) == 1:
            self.counts[routes[0]] += 1
            self.arm_counts[name_of(arms[0])] += 1
        else:
            self.counts.update(routes)
            for arm, n in Counter(arms).items():
                self.arm_counts[name_of(arm)] += n
        if event.answers is None:
            return
        for i, (x, answer) in enumerate(zip(event.contexts, event.answers, strict=True)):
            if answer is None:
                continue
            self.counts["answers"] += 1
            reason = None if event.quarantine is None else event.quarantine[i]
            if reason is None:
                self._answer(x, answer)
            else:
                self._withhold(reason, i)

    def _configure(self, event: Configuration) -> None:
        changes = {
            name: getattr(event, name)
            for name in ("mode", "share", "fallback", "killed", "explore")
            if getattr(event, name) is not None
        }
        self.rails = replace(self.rails, **changes)
        if event.gate is not None:
            self.gate.configure(GateSettings.from_dict(event.gate), self._shared())
        if event.waits is not None:
            if self.defaults.seconds is None and event.waits["seconds"] is not None:
                # waits of earlier decisions never end, so gate and floor, which count in order, would wait for ever
                self.gate.abandon()
                if self.learner.ledger is not None:
                    self._learn(self.learner.ledger.abandon)
            self.defaults.configure(event.waits, self.number)
        if {"mode", "share"} & changes.keys():
            self.gate.follow(self._shared(), self.rails.mode)

    # ------------------------------------------------------------------------------------ the gate

    def _shared(self) -> float:
        """The learner's share of traffic where both routes are drawn; 0 where nothing is drawn."""
        return self.rails.share if self.rails.mode == "act" else 0.0

    def _is_evidence(self, event: Decisions) -> bool:
        """Whether decisions are evidence for the gate: their route was drawn, or the learner only recommended."""
        if self.rails.killed:
            return False
        if event.mode != "act":
            return event.mode == self.rails.mode
        return self.gate.promotion is not None and 0.0 < event.share < 1.0

    def _enter_evidence(self, event: Decisions) -> None:
        """Enter decisions into the evidence: as units where their route was drawn, in shadow and assist as rows."""
        if event.mode != "act":
            self.gate.look_on(event.mode, self.learner.arms, self.learner.n_features)
            assert self.gate.shadow is not None
            for position in range(len(event)):
                self.gate.shadow.decided(self.number, event, position)
            return
        for position, route in enumerate(event.routes):
            if event.estimates[position] is not None:  # the learner did not fail there
                subject = None if event.subjects is None else event.subjects[position]
                self.gate.decided(self.number, position, route == "learner", event.share, subject)

    def _step(self, event: GateStep) -> None:
        self.counts["gate steps"] += event.before != event.after
        if event.held is not None:
            self.gate.hold(event.held)
        if event.before != event.after:
            self.gate.enter(event.after)
            self.rails = replace(self.rails, share=event.share, mode=event.mode or self.rails.mode)

    # --------------------------------------------------------------------------------- snapshots

    def snapshot(self, at: float) -> Snapshot:
        """The state as a snapshot."""
        state = {
            "version": self.version,
            "rails": self.rails.to_dict(),
            "counts": self.counts,
            "arm_counts": self.arm_counts,
            "reward_sums": self.reward_sums,
            "forgotten": sorted(self.forgotten),
            "seen": self.seen.to_dict(),
            "quarantine": self.quarantine.to_list(),
            "withheld": self.withheld.to_list(),
        }
        state["gate"] = self.gate.to_dict()
        if self.defaults != Defaults():
            state["defaults"] = self.defaults.to_dict()
        body = json.dumps(state, sort_keys=True)
        return Snapshot(self.number, at, body, learner_bytes(self.learner), FOLD, self.chain)

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> State:
        """The inverse of ``snapshot``."""
        body = json.loads(snapshot.state)
        state = cls(
            learner_from_bytes(snapshot.learner), Rails.from_dict(body["rails"]), snapshot.number, body["version"]
        )
        state.counts.update(body["counts"])
        state.arm_counts.update(body["arm_counts"])
        state.reward_sums.update(body["reward_sums"])
        state.forgotten.update((number, position) for number, position in body.get("forgotten", ()))
        if body.get("gate") is not None:  # not in states of Sidelight 0.1.0
            state.gate = Gate.from_dict(body["gate"])
        state.defaults = Defaults.from_dict(body.get("defaults") or {})
        if "seen" in body:  # not in states of Sidelight 0.1.0
            state.seen = Seen.from_dict(body["seen"])
            state.quarantine = Quarantine.from_list(body["quarantine"])
        state.withheld = Withheld.from_list(body.get("withheld", []))
        return state


def _deleted(number: int) -> ContextsDeleted:
    return ContextsDeleted(
        f"event {number} needs a context that was deleted: states before the deletion cannot be rebuilt. A replay "
        "starts from the base that was kept when it was deleted."
    )
