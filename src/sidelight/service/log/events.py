"""The events of the service: frozen records, and their place in a row of the store.

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

import functools
import json
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from sidelight.errors import StoreError
from sidelight.labels import Label, label_from_json, label_to_json
from sidelight.linalg import Array

__all__ = [
    "OUTDATES",
    "Action",
    "Answer",
    "Behavior",
    "Configuration",
    "DecisionId",
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
    "Row",
    "event_from_row",
    "event_to_row",
    "is_deleted",
]

_FLOATS = np.dtype("<f8")
_HEX = frozenset("0123456789abcdef")


class DecisionId(tuple[int, ...]):
    """A decision's name: the number of its event, its position in it, and the epoch of the log.

    Written ``1042`` or ``1042.17``; after the log was restored from a back-up or had lost its end ``1042.17@5e0f3a1c``,
    because another decision may have been called ``1042.17`` in what was lost. As a tuple it is ``(number, position)``
    in epoch 0, which every log begins with, and ``(number, position, epoch)`` in others.
    """

    __slots__ = ()

    def __new__(cls, number: int, position: int = 0, epoch: int = 0) -> Self:
        """An id of its parts."""
        return super().__new__(cls, (number, position, epoch) if epoch else (number, position))

    @property
    def number(self) -> int:
        """The number of its event."""
        return self[0]

    @property
    def position(self) -> int:
        """Its position in the event, from 0."""
        return self[1]

    @property
    def epoch(self) -> int:
        """The epoch in which it was decided; 0 unless the log was restored or had lost its end before."""
        return self[2] if len(self) > 2 else 0

    def __getnewargs__(self) -> tuple[int, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"DecisionId({str(self)!r})"

    def __str__(self) -> str:
        name = f"{self.number}.{self.position}" if self.position else str(self.number)
        return f"{name}@{self.epoch:x}" if self.epoch else name

    @classmethod
    def parse(cls, text: str) -> DecisionId | None:
        """The inverse of ``str``; None where the text is not an id in its one spelling."""
        name, at, epoch = text.partition("@")
        number, dot, position = name.partition(".")
        if not (number.isascii() and number.isdigit() and 0 < len(number) <= 18):
            return None
        if dot and not (position.isascii() and position.isdigit() and 0 < len(position) <= 6):
            return None
        if at and not (0 < len(epoch) <= 8 and set(epoch) <= _HEX):
            return None
        found = cls(int(number), int(position) if dot else 0, int(epoch, 16) if at else 0)
        return found if str(found) == text else None


@dataclass(frozen=True)
class Answer:
    """What the old policy does at a context: its arm, its probabilities or both, and the chance that it was asked."""

    arm: Label | None = None
    probabilities: tuple[float, ...] | None = None
    probability: float = 1.0


@dataclass
class Decisions:
    """Contexts that came in together and the arms that were decided.  All lists have one entry per context.

    Nobody changes one; it is not frozen because making a frozen record of so many fields takes 7 µs longer, of every
    decision.

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

    def __len__(self) -> int:
        return len(self.recommended)

    @property
    def number_texts(self) -> tuple[list[str], list[str]]:
        """Estimates and widths as JSON."""
        return (
            ["null" if value is None else repr(value) for value in self.estimates],
            ["null" if value is None else repr(value) for value in self.widths],
        )


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
        gate: the settings of the gate, as ``core.gate.GateSettings``; None leaves what was.
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
        evidence: what the sequences said when the step was proposed.
        by: the name of the token of the person who took it; None where the gate did.
        held: whether promotions stop from here on (True) or go on (False); None leaves what was.
        mode: the mode from here on: who steps onto the ladder acts; None leaves what was.
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

#: events that change who acts, or what a base holds: what was chosen before them is chosen anew
OUTDATES = (Configuration, GateStep, Forgotten)

_Plain: TypeAlias = (
    Action | Reward | Configuration | Forgotten | Retraction | FoldChange | NewEpoch | GateStep | DefaultReward
)
#: kinds whose rows are their fields as JSON
_PLAIN: dict[str, type[_Plain]] = {
    cls.kind: cls
    for cls in (
        Action,
        Reward,
        Configuration,
        Forgotten,
        Retraction,
        FoldChange,
        NewEpoch,
        GateStep,
        DefaultReward,
    )
}


@dataclass(frozen=True)
class Row:
    """An event as the store keeps it.

    Attributes:
        number: its place in the log, from 1, without gaps.
        kind: the kind of event.
        at: seconds since 1970 when it was written; no part of the fold.
        key: what may exist only once (a decision's reward, an idempotency key); None where nothing limits it.
        payload: JSON.
        contexts: the contexts as little-endian doubles, apart from the rest so that they can be deleted.
        epoch: of the log when it was written.
        seal, chain: its checksum and the chained digest after it (``sealing``); None where it was written before there
            were seals.
    """

    number: int
    kind: str
    at: float
    key: str | None
    payload: str
    contexts: bytes | None = field(default=None, repr=False)
    epoch: int = 0
    seal: bytes | None = field(default=None, repr=False)
    chain: bytes | None = field(default=None, repr=False)


#: fields of plain events that are labels
_LABELS = ("arm", "fallback", "replaces_arm")
_dump = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def event_to_row(event: Event, number: int, at: float, key: str | None) -> Row:
    """The event as a row."""
    payload, contexts = event_content(event)
    return Row(number, event.kind, at, key, payload, contexts)


def is_deleted(x: Array) -> bool:
    """Whether a context was deleted on request: nothing but NaN is left; a context with gaps has at least one value."""
    return bool(x[0] != x[0]) and bool(np.isnan(x).all())


def event_content(event: Event) -> tuple[str, bytes | None]:
    """The event's JSON and its contexts; neither depends on the number it will get."""
    if isinstance(event, Decisions):
        return _decisions_payload(event), event.contexts.astype(_FLOATS, copy=False).tobytes()
    if isinstance(event, Behavior):
        body: dict[str, Any] = {"answer": _answer_to_json(event.answer)}
        if event.decision is not None:
            body["decision"] = list(event.decision)
        if event.fingerprint is not None:
            body["fingerprint"] = event.fingerprint
        if event.quarantine is not None:
            body["quarantine"] = event.quarantine
        context = None if event.context is None else event.context.astype(_FLOATS, copy=False).tobytes()
        return _dump(body), context
    if isinstance(event, Release):
        payload, context = event_content(event.released)
        body = {"event": event.event, "position": event.position, "kind": event.released.kind}
        body |= {name: value for name in ("by", "reason") if (value := getattr(event, name)) is not None}
        return f'{_dump(body)[:-1]},"released":{payload}}}', context
    body = {f.name: value for f in fields(event) if (value := getattr(event, f.name)) is not None}
    for name in _LABELS:
        if name in body:
            body[name] = label_to_json(body[name])
    if "decision" in body:
        body["decision"] = list(body["decision"])
    return _dump(body), None


def event_from_row(row: Row, n_features: int) -> Event:
    """The inverse of :func:`event_to_row`; ``n_features`` is ``d``."""
    try:
        body = json.loads(row.payload)
        contexts = None if row.contexts is None else np.frombuffer(row.contexts, dtype=_FLOATS).astype(np.float64)
        if row.kind == "decisions":
            return _decisions_from_json(body, contexts, n_features, row.epoch)
        if row.kind == "behavior":
            return Behavior(
                _answer_from_json(body["answer"]),
                None if "decision" not in body else DecisionId(*body["decision"]),
                contexts,
                body.get("fingerprint"),
                body.get("quarantine"),
            )
        if row.kind == "release":
            payload = _dump(body.pop("released"))
            released = event_from_row(
                Row(row.number, body.pop("kind"), row.at, None, payload, row.contexts), n_features
            )
            return Release(released=released, **body)  # type: ignore[arg-type]
        for name in _LABELS:
            if name in body:
                body[name] = label_from_json(body[name])
        if "decision" in body:
            body["decision"] = DecisionId(*body["decision"])
        return _PLAIN[row.kind](**body)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"event {row.number} ({row.kind!r}) cannot be read: {error!r}. It was altered, or written by a newer "
            "Sidelight: restore the database from a back-up, or upgrade."
        ) from error


# ---------------------------------------------------------------------------------------- decisions


def _decisions_payload(event: Decisions) -> str:
    if (
        len(event) == 1
        and event.allowed is None
        and event.answers is None
        and event.subjects is None
        and event.fingerprint is None
        and event.chances is None
    ):
        return _single_payload(event)
    plain = set(map(type, event.recommended)) <= {str, int}
    estimates, widths = event.number_texts
    body: dict[str, Any] = {
        "arms": event.arms if plain else [None if arm is None else label_to_json(arm) for arm in event.arms],
        "recommended": event.recommended if plain else [label_to_json(arm) for arm in event.recommended],
        "propensities": _shared(event.propensities),
        "routes": _shared(event.routes),
        "asked": _shared(event.asked),
        "query_probabilities": _shared(event.query_probabilities),
        "version": event.version,
        "mode": event.mode,
        "share": event.share,
    }
    if event.allowed is not None:
        body["allowed"] = [None if a is None else [label_to_json(arm) for arm in a] for a in event.allowed]
    if event.answers is not None:
        body["answers"] = [None if answer is None else _answer_to_json(answer) for answer in event.answers]
    if event.subjects is not None:
        body["subjects"] = event.subjects
    if event.fingerprint is not None:
        body["fingerprint"] = event.fingerprint
    if event.quarantine is not None:
        body["quarantine"] = event.quarantine
    if event.chances is not None:
        body["chances"] = event.chances
    return f'{{"estimates":[{",".join(estimates)}],"widths":[{",".join(widths)}],{_dump(body)[1:]}'


def _decisions_from_json(body: dict[str, Any], contexts: Array | None, n_features: int, epoch: int) -> Decisions:
    n = len(body["recommended"])
    allowed, answers = body.get("allowed"), body.get("answers")
    return Decisions(
        contexts=np.full((n, n_features), np.nan) if contexts is None else contexts.reshape(n, n_features),
        arms=[None if arm is None else label_from_json(arm) for arm in body["arms"]],
        recommended=[label_from_json(arm) for arm in body["recommended"]],
        estimates=body["estimates"],
        widths=body["widths"],
        propensities=_spread(body["propensities"], n),
        routes=_spread(body["routes"], n),
        asked=_spread(body["asked"], n),
        query_probabilities=_spread(body["query_probabilities"], n),
        version=body["version"],
        mode=body["mode"],
        share=body["share"],
        allowed=None
        if allowed is None
        else [None if a is None else [label_from_json(arm) for arm in a] for a in allowed],
        answers=None if answers is None else [None if a is None else _answer_from_json(a) for a in answers],
        subjects=body.get("subjects"),
        fingerprint=body.get("fingerprint"),
        epoch=epoch,
        quarantine=body.get("quarantine"),
        chances=body.get("chances"),
    )


def _single_payload(event: Decisions) -> str:
    """The most frequent event by far, without the machinery; it says the same as the long way."""
    (estimate,), (width,) = event.number_texts
    arm, recommended = event.arms[0], event.recommended[0]
    chance = event.propensities[0]
    return (
        f'{{"arms":[{"null" if arm is None else _label(arm)}],"recommended":[{_label(recommended)}],'
        f'"estimates":[{estimate}],"widths":[{width}],'
        f'"propensities":{"null" if chance is None else repr(chance)},"routes":"{event.routes[0]}",'
        f'"asked":{"true" if event.asked[0] else "false"},"query_probabilities":{event.query_probabilities[0]!r},'
        f'"version":{event.version},"mode":"{event.mode}","share":{event.share!r}}}'
    )


@functools.lru_cache(maxsize=4096)
def _typed_label(kind: str, label: Label) -> str:
    return _dump(label_to_json(label))


def _label(label: Label) -> str:
    # 1, 1.0 and True are one key of a cache, but three labels.
    return _typed_label(type(label).__name__, label)


def _shared(values: list[Any]) -> Any:
    """A list whose entries are all the same is written as that entry: most batches say the same thing throughout."""
    first = values[0]
    return first if values.count(first) == len(values) else values


def _spread(value: Any, n: int) -> list[Any]:
    return value if isinstance(value, list) else [value] * n


def _answer_to_json(answer: Answer) -> dict[str, Any]:
    body: dict[str, Any] = {"probability": answer.probability}
    if answer.arm is not None:
        body["arm"] = label_to_json(answer.arm)
    if answer.probabilities is not None:
        body["probabilities"] = list(answer.probabilities)
    return body


def _answer_from_json(body: dict[str, Any]) -> Answer:
    probabilities = body.get("probabilities")
    return Answer(
        None if "arm" not in body else label_from_json(body["arm"]),
        None if probabilities is None else tuple(probabilities),
        body["probability"],
    )
