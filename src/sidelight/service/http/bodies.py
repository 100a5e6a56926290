"""Conversion of request bodies to arguments of the engine, and of the engine's decisions to response bodies."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from sidelight.labels import Label
from sidelight.linalg import Array
from sidelight.service.core.deciding import Ask
from sidelight.service.http.messages import Messages
from sidelight.service.http.reading import Reader
from sidelight.service.http.rules import Unfit
from sidelight.service.log.events import Answer, Decisions

__all__ = ["Bodies", "to_json"]

_PLAIN = Ask()


def to_json(body: Any) -> bytes:
    """A response body as JSON; a number that is not finite becomes null."""
    return _ENCODER.encode(body)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in an answer")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


class Bodies:
    """Reads the request bodies of one service, and makes its responses."""

    def __init__(self, messages: Messages) -> None:
        self.messages = messages
        self.contexts = messages.contexts
        counted = {messages.contexts.named: len(messages.contexts.names)}
        self.read = Reader(messages.requests, messages.words, counted).read
        self._arm_form: dict[Label | None, Any] = dict(zip(messages.arms.labels, messages.arms.json, strict=True))
        self._arm_form[None] = None
        #: the part of an id that says the place in a batch, for as many places as there were in one
        self._places = [""]

    # ------------------------------------------------------------------------------------ decisions

    def decision(self, content: bytes) -> tuple[Array, list[Ask] | None]:
        """One decision: its context (1, d), and its further fields; None where there are none."""
        return self.read("DecisionRequest", content, self._decision)

    def _decision(self, message: Any) -> tuple[Array, list[Ask] | None]:
        x = self.contexts.encode(message.context)
        ask = self._ask(message)
        return x[np.newaxis], None if ask is _PLAIN else [ask]

    def decisions(self, content: bytes) -> tuple[Array, list[Ask] | None]:
        """A batch: contexts (n, d), and the further fields of each; None where there are none."""
        return self.read("DecisionsRequest", content, self._decisions)

    def _decisions(self, message: Any) -> tuple[Array, list[Ask] | None]:
        items = message.decisions
        X = self.contexts.encode_many([item.context for item in items])
        plain = all(item.allowed is item.behavior is item.subject is UNSET for item in items)
        return X, None if plain else [self._ask(item) for item in items]

    def _ask(self, message: Any) -> Ask:
        allowed, behavior, subject = message.allowed, message.behavior, message.subject
        if allowed is UNSET and behavior is UNSET and subject is UNSET:
            return _PLAIN
        return Ask(
            None if allowed is UNSET else self.messages.distinct.read(allowed),
            None if behavior is UNSET else self._answer(behavior),
            None if subject is UNSET else self.messages.subject.read(subject),
        )

    # -------------------------------------------------------------------------------- what follows

    def answer(self, content: bytes) -> Answer:
        """What the old policy does: its arm, its probabilities, or both."""
        return self.read("Behavior", content, self._answer)

    def _answer(self, message: Any) -> Answer:
        arm, probabilities = message.arm, message.probabilities
        if arm is UNSET and probabilities is UNSET:
            raise Unfit
        if arm is not UNSET and probabilities is not UNSET:
            self.messages.told_arm.check(arm, probabilities)
        return Answer(
            None if arm is UNSET else self.messages.arms.read(arm),
            None if probabilities is UNSET else self.messages.probabilities.read(probabilities),
        )

    def reward(self, content: bytes) -> tuple[float, Label | None, str | None]:
        """A reward, the arm that was taken, and who took it."""
        return self.read("Reward", content, lambda message: (message.reward, *self._taken(message)))

    def rewards(self, content: bytes) -> list[tuple[str, float, Label | None, str | None]]:
        """A batch of rewards, each with the id of its decision as it was sent."""
        return self.read(
            "Rewards",
            content,
            lambda message: [(item.decision, item.reward, *self._taken(item)) for item in message.rewards],
        )

    def action(self, content: bytes) -> tuple[Label | None, str | None]:
        """The arm that was taken, and who took it."""
        return self.read("Action", content, self._taken)

    def _taken(self, message: Any) -> tuple[Label | None, str | None]:
        arm, by = message.arm, message.by
        return None if arm is UNSET else self.messages.arms.read(arm), None if by is UNSET else by

    def behavior_at(self, content: bytes) -> tuple[Array, Answer]:
        """A context (d,) and what the old policy does there."""

        def convert(message: Any) -> tuple[Array, Answer]:
            answer = self._answer(message)
            chance = 1.0 if message.query_probability is UNSET else message.query_probability
            return self.contexts.encode(message.context), Answer(answer.arm, answer.probabilities, chance)

        return self.read("BehaviorAt", content, convert)

    def rails(self, content: bytes) -> dict[str, Any]:
        """The requested changes of mode, share, fallback or exploration."""

        def convert(message: Any) -> dict[str, Any]:
            plain = {name: getattr(message, name) for name in ("mode", "share", "explore")}
            changes = {name: value for name, value in plain.items() if value is not UNSET}
            if message.fallback is not UNSET:
                changes["fallback"] = self.messages.arms.read(message.fallback)
            if not changes:
                raise Unfit
            return changes

        return self.read("Mode", content, convert)

    def switch(self, content: bytes) -> bool:
        """Whether the kill switch is to be on."""
        return self.read("Kill", content, lambda message: bool(message.killed))

    def gate(self, content: bytes) -> tuple[str | None, bool | None, float | None]:
        """What a person does with the gate: a step, whether promotions are held, and the rung that it was seen on."""

        def convert(message: Any) -> tuple[str | None, bool | None, float | None]:
            step, hold, rung = (None if v is UNSET else v for v in (message.step, message.hold, message.rung))
            if step is None and hold is None:
                raise Unfit
            return step, hold, rung

        return self.read("Gate", content, convert)

    def retraction(self, content: bytes) -> tuple[str, str]:
        """The reason of a retraction, and what is retracted: ``reward``, ``action`` or ``behavior``."""
        return self.read("Retraction", content, lambda m: (self._reason(m), "reward" if m.what is UNSET else m.what))

    def review(self, content: bytes) -> tuple[bool, str]:
        """Whether a quarantined event is to be released, and the reason."""
        return self.read("Review", content, lambda message: (bool(message.release), self._reason(message)))

    def _reason(self, message: Any) -> str:
        return self.messages.subject.read(message.reason)

    # ------------------------------------------------------------------------------------- answers

    def decided(self, number: int, event: Decisions) -> list[Any]:
        """One response body per decision of an event."""
        start, epoch, n = str(number), f"@{event.epoch:x}" if event.epoch else "", len(event.routes)
        places = self._places
        while len(places) < n:
            places.append(f".{len(places)}")
        ids = [f"{start}{place}{epoch}" for place in places[:n]]
        if n == 1:
            # most events have one decision, for which this takes a quarter of the time
            return [self._decided_first(ids[0], event)]
        form = self._arm_form.__getitem__
        return list(
            map(
                self.messages.decided,
                ids,
                map(form, event.arms),
                event.routes,
                map(form, event.recommended),
                event.estimates,
                event.widths,
                event.propensities,
                event.asked,
                event.query_probabilities,
                repeat(event.mode),
                repeat(event.version),
            )
        )

    def _decided_first(self, id: str, event: Decisions) -> Any:
        """The response body of an event's first decision."""
        return self.messages.decided(
            id,
            self._arm_form[event.arms[0]],
            event.routes[0],
            self._arm_form[event.recommended[0]],
            event.estimates[0],
            event.widths[0],
            event.propensities[0],
            event.asked[0],
            event.query_probabilities[0],
            event.mode,
            event.version,
        )
