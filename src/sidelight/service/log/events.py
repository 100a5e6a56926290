"""The events of the service, as frozen records; ``rows`` converts them to and from rows of the store.

The learner is a fold over these in the order of their numbers, so a record holds everything the learner is fed.
An event may stand for many decisions: a batch is one event, which makes it atomic and cheap.

==============  ==================================================================  ===========================
kind            what happened                                                       what it feeds the learner
==============  ==================================================================  ===========================
decisions       contexts came in, arms went out                                     old-policy answers, if given
action          somebody took an arm for a decision, perhaps another one            perhaps an answer
reward          the reward of a decision, for the arm that was taken                ``observe``, perhaps an answer
behavior        what the old policy would do, for a decision or a context           ``observe_behavior``
configuration   the learner at the start; mode, share, fallback, kill switch        –
forgotten       contexts of a person were deleted                                   –
retraction      a reward or an answer was wrong                                     as if it had never come
release         what was kept from the learner as out of bounds was right           what it would have then
gate            the learner's share of traffic went up or down a rung, or is held   –
default         no reward came within the wait: the default one counts             ``observe``, until one comes
fold            servers with a new version of the fold went on from here            –
epoch           the log was restored, or had lost its end: ids look different       –
==============  ==================================================================  ===========================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from sidelight.labels import Label
from sidelight.linalg import Array
from sidelight.service.log.decision_id import DecisionId

__all__ = [
    "OUTDATES",
    "Action",
    "Answer",
    "Behavior",
    "Configuration",
    "Decisions",
    "DefaultReward",
    "Event",
    "FoldChange",
    "Forgotten",
    "GateStep",
    "NewEpoch",
    "Release",
    "Retraction",
    "Reward",
]


@dataclass(frozen=True)
class Answer:
    """What the old policy does at a context: its arm, its probabilities or both, and the chance that it was asked."""

    arm: Label | None = None
    probabilities: tuple[float, ...] | None = None
    probability: float = 1.0


@dataclass(slots=True)
class Decisions:
    """Contexts that came in together and the arms that were decided.  All lists have one entry per context.

    Treat it as immutable: it is not declared frozen only because constructing a frozen record with this many fields
    takes 7 µs longer per decision.

    Attributes:
        contexts: (n, d)  encoded, in the schema's order, NaN for gaps; a row of nothing but NaN was deleted on request.
        arms: the arm to take; None where the old policy acts and has not said yet what it does (shadow).
        recommended: the learner's choice.
        estimates, widths: of the recommended arm, when it was decided; None where the learner failed, or where the
            context was deleted.
        propensities: the chance that ``arms`` came out as it did, over learner, ramp and fallback; None where nobody
            knows it (the old policy's, if it does not tell).
        routes: who chose the arm to take: ``learner``, ``old_policy`` or ``fallback``.
        asked: whether the service asked for the old policy's action here.
        query_probabilities: the chance with which it asked.
        allowed: the arms that were allowed, or None for all.
        answers: what the old policy does there, where the caller said so.
        subjects: whom the decision was about, by the caller's key.
        version: the learner's version: the number of the last event that had changed it.
        mode: the mode at that time.
        share: the share of traffic that the learner decided at that time.
        fingerprint: of the request, where it came with an idempotency key.
        chances: (K) of each arm, with which the learner draws it, where the configuration wants them written down and
            it draws; None elsewhere.
        epoch: of the log when this was written; a part of its decisions' ids, kept in the row.
        chain: the log's chained digest after this event, kept in the row; None where it was not read from there.
        quarantine: why the learner learns nothing from an answer that came along; None where it does.
    """

    kind: ClassVar[str] = "decisions"
    contexts: Array
    arms: list[Label | None]
    recommended: list[Label]
    estimates: list[float | None]
    widths: list[float | None]
    propensities: list[float | None]
    routes: list[str]
    asked: list[bool]
    query_probabilities: list[float]
    version: int
    mode: str
    share: float
    allowed: list[list[Label] | None] | None = None
    answers: list[Answer | None] | None = None
    subjects: list[str | None] | None = None
    fingerprint: str | None = None
    epoch: int = 0
    quarantine: list[str | None] | None = None
    chances: list[list[float] | None] | None = None
    chain: bytes | None = None

    def __len__(self) -> int:
        return len(self.recommended)


@dataclass(frozen=True)
class Action:
    """The arm that was taken for a decision.

    Attributes:
        by: who took it: ``service``, ``person`` or ``old_policy``.
        override: whether it is another arm than the one to take.
        answer: whether the arm is also the old policy's answer at this context.
        probability: the chance with which that answer was asked for.
        quarantine: why the learner learns nothing from it; None where it does.
        replaces, replaces_arm: the default reward that the learner was taught for another arm, and that arm; None
            where it was taught none, or the arm was this one.
    """

    kind: ClassVar[str] = "action"
    decision: DecisionId
    arm: Label
    by: str
    override: bool = False
    answer: bool = False
    probability: float = 1.0
    quarantine: str | None = None
    replaces: float | None = None
    replaces_arm: Label | None = None


@dataclass(frozen=True)
class Reward:
    """The reward that followed a decision.

    Attributes:
        arm: the arm that was taken.
        by: who took it.
        override: whether it is another arm than the one to take.
        answer: whether the arm is also the old policy's answer at this context.
        probability: the chance with which that answer was asked for.
        quarantine: why the learner learns nothing from it (a value far out of bounds); None where it does.
        replaces, replaces_arm: the default reward that the learner was taught when the wait was over, and for which
            arm; None where the reward came in time.
        waited_until: when that was, in seconds since 1970.
    """

    kind: ClassVar[str] = "reward"
    decision: DecisionId
    reward: float
    arm: Label
    by: str = "service"
    override: bool = False
    answer: bool = False
    probability: float = 1.0
    quarantine: str | None = None
    replaces: float | None = None
    replaces_arm: Label | None = None
    waited_until: float | None = None


@dataclass(frozen=True)
class Behavior:
    """What the old policy would do: at a decision's context, or at a context of its own.

    Attributes:
        fingerprint: of the request, where it came with an idempotency key.
        quarantine: why the learner learns nothing from it; None where it does.
    """

    kind: ClassVar[str] = "behavior"
    answer: Answer
    decision: DecisionId | None = None
    context: Array | None = None
    fingerprint: str | None = None
    quarantine: str | None = None


@dataclass(frozen=True)
class Configuration:
    """Settings that take effect from this event on; None leaves what was.

    Attributes:
        learner: digest of the initial learner among the store's blobs; only in the first event.
        schema: the schema's description, beside the learner.
        mode, share, fallback, killed, explore: see ``rails.Rails``.
        source: ``file`` or ``request``: where the settings came from.
        file: the rails as the configuration file gave them, to notice later that the file was changed.
        by: the name of the token that asked for it.
        gate: the settings of the gate, as ``core.ladder.GateSettings``; None leaves what was.
        waits: for how many ``seconds`` (None: without end) a reward is waited for, and the default ``reward`` that
            counts afterwards; None leaves what was.
    """

    kind: ClassVar[str] = "configuration"
    learner: str | None = None
    schema: dict[str, Any] | None = None
    mode: str | None = None
    share: float | None = None
    fallback: Label | None = None
    killed: bool | None = None
    source: str = "request"
    file: dict[str, Any] | None = None
    by: str | None = None
    gate: dict[str, Any] | None = None
    waits: dict[str, Any] | None = None
    explore: float | None = None


@dataclass(frozen=True)
class GateStep:
    """The learner's share of traffic moves on the ladder, or the ladder is held or let go.

    Attributes:
        before, after: rungs, −1 below the ladder; equal where nothing but ``held`` changes.
        share: the learner's share from here on.
        reason: why, in words.
        evidence: ``Gate.evidence`` when the step was proposed.
        by: the name of the token of the person who took it; None where the gate did.
        held: whether promotions stop from here on (True) or go on (False); None leaves what was.
        mode: the mode from here on (a step onto the ladder sets ``act``); None leaves what was.
    """

    kind: ClassVar[str] = "gate"
    before: int
    after: int
    share: float
    reason: str
    evidence: dict[str, Any]
    by: str | None = None
    held: bool | None = None
    mode: str | None = None


@dataclass(frozen=True)
class DefaultReward:
    """The wait for a decision's reward is over: the default reward counts, for the learner and for the gate.

    A reward that still comes takes its place in the learner, not in the evidence.

    Attributes:
        arm: the arm that was taken, as far as is known; None where nobody said, and then the learner is not taught.
    """

    kind: ClassVar[str] = "default"
    decision: DecisionId
    reward: float
    arm: Label | None = None


@dataclass(frozen=True)
class Forgotten:
    """The contexts of these decisions were deleted: whatever is told about them later teaches the learner nothing.

    Attributes:
        decisions: ``(number, position)`` of each; whom they were about is not kept.
    """

    kind: ClassVar[str] = "forgotten"
    decisions: list[list[int]]


@dataclass(frozen=True)
class Retraction:
    """A reward, an action or an answer was wrong: the learner is from here on as if it had never come.

    Attributes:
        event: the number of what is retracted.
        by: the name of the token that asked for it.
        reason: in that person's words.
        position: of the decision in it whose answer is meant, where the event is a batch of decisions.
    """

    kind: ClassVar[str] = "retraction"
    event: int
    by: str | None = None
    reason: str | None = None
    position: int = 0


@dataclass(frozen=True)
class Release:
    """What was quarantined is right: the learner learns from it here, later than it would have.

    Attributes:
        event: the number of what was quarantined.
        position: of the decision in it whose answer is meant, where the event is a batch of decisions.
        released: what the learner learns from.
        by: the name of the token that asked for it.
        reason: in that person's words.
        quarantine: why the learner learns nothing from it after all (it was retracted later); None where it does.
    """

    kind: ClassVar[str] = "release"
    event: int
    position: int
    released: Reward | Action | Behavior
    by: str | None = None
    reason: str | None = None
    quarantine: str | None = None

    @property
    def decision(self) -> DecisionId | None:
        """The decision that it is about."""
        return self.released.decision


@dataclass(frozen=True)
class FoldChange:
    """Servers whose fold computes other numbers from the same events go on from here, from a base kept at this event.

    Attributes:
        fold: the version of the fold from here on.
        before: the version up to here.
        sidelight: the version of Sidelight that wrote this.
        summary: digest of the log summary that the configuration names; None where it names none.
    """

    kind: ClassVar[str] = "fold"
    fold: int
    before: int
    sidelight: str
    summary: str | None = None


@dataclass(frozen=True)
class NewEpoch:
    """From here on ids of decisions carry another epoch, because ids after the last known event were given before.

    Attributes:
        epoch: a random number, so that a back-up that is restored twice does not give the same ids twice.
        reason: what was noticed.
    """

    kind: ClassVar[str] = "epoch"
    epoch: int
    reason: str


Event: TypeAlias = (
    Decisions
    | Action
    | Reward
    | Behavior
    | Configuration
    | Forgotten
    | Retraction
    | Release
    | FoldChange
    | NewEpoch
    | GateStep
    | DefaultReward
)

#: events that change who acts, or what a base holds: a draft decided before one of them is decided again
OUTDATES = (Configuration, GateStep, Forgotten)
