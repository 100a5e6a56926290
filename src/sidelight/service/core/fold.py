"""The fold: the state of the service as a function of its events, and nothing else.

``FOLD`` is its version. A change that makes the same events give another state (here, or in what a learner computes)
must increment it: the first server of the new version then keeps a base, from which its replays start, and servers of
the old one decide no more on that log.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sidelight.errors import StoreError
from sidelight.labels import label_to_json
from sidelight.learners.saving import learner_bytes, learner_from_bytes
from sidelight.linalg import Array
from sidelight.service.core.defaults import NOT_TAUGHT, Defaults
from sidelight.service.core.flooring import risked
from sidelight.service.core.gate import Gate
from sidelight.service.core.ladder import GateSettings
from sidelight.service.core.seen import Quarantine, Seen, Withheld
from sidelight.service.log.events import (
    Action,
    Answer,
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
    "LEARNER_ERRORS",
    "RETRACTED",
    "ArmTotals",
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
#: why a retracted event teaches nothing
RETRACTED = "retracted"

#: what a learner may raise on valid input: a matrix that is numerically singular, or any exception from a bug. One
#: event that it cannot learn from must not prevent every later start of the service.
LEARNER_ERRORS = (Exception,)
#: errors of the machine, not of the learner: a retry may succeed, so the state after one is not the fold of the log
MACHINE_ERRORS = (MemoryError, OSError, ImportError, RecursionError)


class NotRebuildable(StoreError):
    """A past state can no longer be rebuilt by folding events."""


class ContextsDeleted(NotRebuildable):
    """An event needs a context that was deleted after it: only a state from after the deletion can go on."""


class Unlearned(NotRebuildable):
    """A state may hold what was retracted after it: only folding the log again takes that out."""


class OlderFold(NotRebuildable):
    """A state was made by an older version of the fold: this one would compute other numbers."""


class ArmTotals(NamedTuple):
    """How often an arm was to be taken, how many rewards came for it, and their mean: None where none came."""

    to_take: int
    rewards: int
    mean_reward: float | None


class State:
    """The learner and the rails after event ``number``.

    Attributes:
        learner: the learner.
        rails: who may act.
        number: the last event that was folded in.
        version: the last event that changed the learner.
        counts: decisions, rewards, answers, overrides, failures and others so far; for the status only.
        arm_counts, reward_sums: how often each arm was to be taken or (``rewarded:``) rewarded, and the sum of its
            rewards, by its JSON form; see ``arm_totals``.
        forgotten: decisions whose contexts were deleted; what is told about them later teaches nothing.
        failure: what the learner raised at the last event, which then taught it nothing; no part of snapshots.
        chain: the log's chained digest after ``number``; None where it is not known. No part of the digest.
        gate: the evidence about the learner, and the ladder of its share where there is one.
        defaults: how long rewards are waited for, what counts afterwards, and what a late one must correct.
        seen: what the learner was taught, as ranges beyond which a value is wild.
        quarantine: what was kept from the learner and waits for a person.
        withheld: the rewards among it.
    """

    def __init__(self, learner: Any, rails: Rails, number: int = 0, version: int = 0) -> None:
        self.learner = learner
        self.rails = rails
        self.number = number
        self.version = version
        self.counts: Counter[str] = Counter()
        self.arm_counts: Counter[str] = Counter()
        self.reward_sums: Counter[str] = Counter()
        self.forgotten: set[tuple[int, int]] = set()
        self.failure: Exception | None = None
        self.chain: bytes | None = None
        self.gate = Gate.at_share(GateSettings(), self._shared())
        self.defaults = Defaults()
        schema = learner.schema
        self.seen = Seen(learner.n_features, 0 if schema is not None and schema.intercept else None)
        self.quarantine = Quarantine()
        self.withheld = Withheld()

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
                    self._drop_for_floor(_place(event.released))
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
            self.arm_counts[_name(arms[0])] += 1
        else:
            self.counts.update(routes)
            self.arm_counts.update(map(_name, arms))
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

    def _count_for_floor(self, event: Decisions) -> None:
        """Enter decisions in the floor's account: they count from when they are taken, not from when rewards come."""
        old = {i: arm for i, _, arm in risked(event)}
        for i, x in enumerate(event.contexts):
            place = self.number, i
            self._learn(self.learner.record_decision, x, event.arms[i], old.get(i), decision=place)
            self.counts["kept by the floor"] += i in old and event.arms[i] != event.recommended[i]

    def _drop_for_floor(self, decision: tuple[int, int]) -> None:
        """Count no reward of a decision for the floor: retracted, its arm unknown, or its context forgotten."""
        if self.learner.ledger is not None:
            self._learn(self.learner.ledger.drop, decision)

    def _looked_at(self, context: Array | None) -> Array | None:
        """A context for the evidence: in shadow and assist its gaps are filled, because choices are modelled."""
        # the sum of squares is NaN if any value is; it takes a fifth of the time of testing each value
        if self.gate.shadow is None or context is None or not math.isnan(context.dot(context)):
            return context
        return np.asarray(self.learner.filled(context))

    def _reward(self, event: Reward, context: Array | None) -> None:
        self.counts["rewards"] += 1
        self.counts["overrides"] += event.override
        self.counts["answers"] += event.answer
        if event.quarantine == RETRACTED:
            # the evidence keeps what it has counted: corrections reach the learner only
            self._settle_evidence(event, context)
            self._drop_for_floor(_place(event))
        self._teach(event, context)

    def _teach(self, event: Reward | Action | Behavior, context: Array | None) -> None:
        """Teach the learner what an event says, unless it is in quarantine."""
        if event.quarantine is not None:
            self._withhold(event.quarantine)
            if isinstance(event, Reward) and event.quarantine != RETRACTED:
                self.withheld.put(_place(event), self.number, event.reward)
            return
        if isinstance(event, Behavior):
            self._answer(context if event.context is None else event.context, event.answer)
            return
        if isinstance(event, Reward):
            self._settle_evidence(event, context)
            self._take_reward(event, context)
        if event.answer:
            self._answer(context, Answer(arm=event.arm, probability=event.probability))

    def _take_reward(self, event: Reward, context: Array | None) -> None:
        """Teach the learner a reward, in the place of the default one where that was taught."""
        self._add_reward(event.arm, event.reward)
        if event.replaces is not None:
            self.counts["late rewards"] += 1
            self._add_reward(event.replaces_arm, event.replaces, -1)
        if context is None:
            self.counts["without context"] += 1
            return
        if event.replaces is None:
            self._learn(self.learner.observe, context, event.arm, event.reward)
        else:
            self._learn(self.defaults.correct, self.learner, context, event, event.reward)
            self.defaults.receipts.pop(event.decision[:2], None)
        self._settle_for_floor(event)
        self.seen.add(context, event.reward)

    def _settle_for_floor(self, event: Reward | DefaultReward) -> None:
        if self.learner.ledger is not None:
            self._learn(self.learner.settle_decision, _place(event), event.arm, event.reward)

    def _withhold(self, reason: str, position: int = 0) -> None:
        """Quarantine the event unless it was retracted; in either case nothing is taught."""
        if reason != RETRACTED:
            self.counts["quarantined"] += 1
            self.quarantine.put(self.number, position, reason)

    def _settle_evidence(self, event: Reward, context: Array | None) -> None:
        number, position = event.decision.number, event.decision.position
        self.withheld.pop((number, position))
        self.gate.settled(number, position, event.reward, event.arm, self._looked_at(context))

    def _add_reward(self, arm: Any, reward: float, sign: int = 1) -> None:
        """Count a reward of an arm, or take one back."""
        self.arm_counts["rewarded:" + _name(arm)] += sign
        self.reward_sums[_name(arm)] += sign * reward  # type: ignore[assignment]

    def _default(self, event: DefaultReward, context: Array | None) -> None:
        """Fold a ``default`` event: teach the learner the default reward until the real one comes."""
        self.counts["default rewards"] += 1
        self.defaults.waited = max(self.defaults.waited, event.decision.number)
        number, position = event.decision.number, event.decision.position
        withheld = self.withheld.get((number, position))
        counts = event.reward if withheld is None else withheld
        self.gate.settled(number, position, counts, event.arm, self._looked_at(context))
        if event.arm is None:
            self._drop_for_floor((number, position))
            return
        if withheld is None:  # else the floor waits until a person has reviewed it
            self._settle_for_floor(event)
        self._add_reward(event.arm, event.reward)
        if context is not None:
            self._learn(self.defaults.teach, self.learner, context, event)
            if self.failure is not None:
                self.defaults.receipts[event.decision[:2]] = NOT_TAUGHT

    def _moved(self, event: Action, context: Array | None) -> None:
        """Move a default reward that was taught for one arm to the arm that was taken."""
        if event.replaces is None:
            return
        self._add_reward(event.arm, event.replaces)
        self._add_reward(event.replaces_arm, event.replaces, -1)
        if context is not None:
            self._learn(self.defaults.correct, self.learner, context, event, event.replaces)

    def _answer(self, context: Array | None, answer: Answer) -> None:
        needs = self.learner.needs
        if context is None or needs is None:
            return
        observe = self.learner.observe_behavior
        if needs == "probabilities" and answer.probabilities is not None:
            probabilities = np.array(answer.probabilities)
            self._learn(observe, context, probabilities=probabilities, probability=answer.probability)
        elif needs == "action" and answer.arm is not None:
            self._learn(observe, context, answer.arm, probability=answer.probability)
        else:
            return
        self.seen.add(context)

    def _learn(self, observe: Callable[..., object], *arguments: Any, **named: Any) -> None:
        try:
            observe(*arguments, **named)
        except MACHINE_ERRORS:
            raise
        except LEARNER_ERRORS as error:
            # The event is in the log and fails in every replay as well, so states stay equal.
            self.counts["failures"] += 1
            self.failure = error
        self.version = self.number

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

    def arm_totals(self, arm: Any) -> ArmTotals:
        """Number of decisions and rewards of an arm, and the mean reward."""
        name = _name(arm)
        rewards = self.arm_counts["rewarded:" + name]
        return ArmTotals(self.arm_counts[name], rewards, self.reward_sums[name] / rewards if rewards else None)

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


def _place(event: Reward | DefaultReward) -> tuple[int, int]:
    """Number and position of the decision that an event is about."""
    return event.decision.number, event.decision.position


def _name(arm: Any) -> str:
    if type(arm) is str:
        return arm
    return "" if arm is None else json.dumps(label_to_json(arm))
