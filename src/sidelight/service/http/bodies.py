"""Request bodies to checked arguments of the engine, and the engine's decisions to answers.

Written by hand rather than with a model per body: this is the path of every decision, and it says exactly which field
is wrong and what would be right. ``description.py`` publishes the same rules; a fuzzer holds the two together.
"""

from __future__ import annotations

import json
import math
from typing import Any

from sidelight.labels import Label
from sidelight.linalg import Array
from sidelight.service.config import Limits
from sidelight.service.core.contexts import ContextReader, Labels, as_object, shown, unknown_fields
from sidelight.service.core.deciding import Ask
from sidelight.service.log.events import Answer, DecisionId, Decisions
from sidelight.service.problems import invalid, pointer
from sidelight.service.rails import MODES

__all__ = ["ACTORS", "Bodies"]

ACTORS = ("service", "person", "old_policy")

_DECISION = {"context", "allowed", "behavior", "subject"}
_BEHAVIOR = {"arm", "probabilities"}
_REWARD = {"reward", "arm", "by"}
_PLAIN = Ask()


class Bodies:
    """Reads and writes bodies for one schema.

    Args:
        reader: for contexts.
        arms: the learner's arms.
        needs: what the learner learns from: ``"action"``, ``"probabilities"`` or None.
        limits: on batches.
    """

    def __init__(self, reader: ContextReader, arms: Labels, needs: str | None, limits: Limits) -> None:
        self.reader, self.arms, self.needs, self.limits = reader, arms, needs, limits
        self._arm_text = {label: json.dumps(form) for label, form in zip(arms.labels, arms.json, strict=True)}

    # ------------------------------------------------------------------------------------ decisions

    def decision(self, body: Any) -> tuple[Array, list[Ask] | None]:
        """One decision: its context (1, d) and what was asked beside it."""
        as_object(body)
        if "context" not in body:
            raise invalid("/context", "is missing", "Every decision needs a context")
        x = self.reader.read(body["context"], "/context").reshape(1, -1)
        return x, None if len(body) == 1 else [self._ask(body, "")]

    def decisions(self, body: Any) -> tuple[Array, list[Ask] | None]:
        """A batch: contexts (n, d)."""
        items = self._batch(body, "decisions")
        for i, item in enumerate(items):
            if type(item) is not dict or "context" not in item:
                as_object(item, pointer("/decisions", i))
                raise invalid(pointer("/decisions", i, "context"), "is missing", "Every decision needs a context")
        X = self.reader.read_many([item["context"] for item in items], "/decisions/{}/context")
        if all(len(item) == 1 for item in items):
            return X, None
        return X, [_PLAIN if len(item) == 1 else self._ask(item, f"/decisions/{i}") for i, item in enumerate(items)]

    def _batch(self, body: Any, name: str) -> list[Any]:
        as_object(body)
        unknown_fields(body, {name}, "")
        items = body.get(name)
        if type(items) is not list or not items:
            raise invalid(pointer("", name), "must be an array with at least one entry", "Send at least one")
        if len(items) > self.limits.batch:
            raise invalid(pointer("", name), f"has {len(items)} entries", f"Send at most {self.limits.batch} at once")
        return items

    def _ask(self, body: dict[str, Any], where: str) -> Ask:
        unknown_fields(body, _DECISION, where)
        allowed = None
        if "allowed" in body:
            allowed = self._allowed(body["allowed"], pointer(where, "allowed"))
        answer = None
        if "behavior" in body:
            answer = self.answer(body["behavior"], pointer(where, "behavior"))
        subject = body.get("subject")
        if "subject" in body and (type(subject) is not str or not 0 < len(subject) <= 200 or not _clean(subject)):
            raise invalid(
                pointer(where, "subject"),
                f"{shown(subject)} is not a key",
                "Give text of 1 to 200 characters without control characters",
            )
        return Ask(allowed, answer, subject)

    def _allowed(self, value: Any, where: str) -> list[Label]:
        if type(value) is not list or not value:
            raise invalid(where, "must be an array with at least one arm", "Leave it out to allow all arms")
        allowed = [self.arms.read(arm, pointer(where, i)) for i, arm in enumerate(value)]
        if len(set(allowed)) < len(allowed):
            raise invalid(where, "names an arm twice", "Name each arm once")
        return allowed

    def answer(self, body: Any, where: str) -> Answer:
        """What the old policy does: its arm, its probabilities, or both."""
        as_object(body, where)
        unknown_fields(body, _BEHAVIOR, where)
        if not body:
            raise invalid(where, "is empty", "Say the old policy's arm or its probabilities")
        arm = self.arms.read(body["arm"], pointer(where, "arm")) if "arm" in body else None
        probabilities = None
        if "probabilities" in body:
            probabilities = self._probabilities(body["probabilities"], pointer(where, "probabilities"))
        if self.needs == "action" and arm is None:
            raise invalid(
                pointer(where, "arm"),
                "is missing, and this learner learns from the old policy's actions",
                "Say its arm",
            )
        if self.needs == "probabilities" and probabilities is None:
            raise invalid(
                pointer(where, "probabilities"),
                "is missing, and this learner learns from the old policy's probabilities",
                "Say the probability of every arm",
            )
        return Answer(arm, probabilities)

    def _probabilities(self, value: Any, where: str) -> tuple[float, ...]:
        K = len(self.arms)
        if type(value) is not list or len(value) != K:
            raise invalid(where, f"must be an array of {K} probabilities", "Give one for each arm, in the arms' order")
        for i, p in enumerate(value):
            if type(p) not in (int, float) or not 0.0 <= p <= 1.0:
                raise invalid(pointer(where, i), f"{shown(p)} is not a probability", "Give a number from 0 to 1")
        total = math.fsum(value)
        if abs(total - 1.0) > 1e-6:
            raise invalid(where, f"sum to {total:.6g}", "Probabilities of all arms sum to 1")
        # Rounded ones rarely do so exactly.
        return tuple(p / total for p in value)

    # -------------------------------------------------------------------------------- what follows

    def reward(
        self, body: Any, where: str = "", also: frozenset[str] = frozenset()
    ) -> tuple[float, Label | None, str | None]:
        """A reward, the arm that was taken, and who took it."""
        as_object(body, where)
        unknown_fields(body, _REWARD | also, where)
        if "reward" not in body:
            raise invalid(pointer(where, "reward"), "is missing", "Give the reward, a number")
        value = self.reader.number(body["reward"], pointer(where, "reward"))
        return (value, *self._taken(body, where))

    def rewards(self, body: Any) -> list[tuple[DecisionId, float, Label | None, str | None]]:
        """A batch of rewards."""
        out = []
        for i, item in enumerate(self._batch(body, "rewards")):
            where = pointer("/rewards", i)
            value, arm, by = self.reward(item, where, frozenset({"decision"}))
            text = item.get("decision")
            id = DecisionId.parse(text) if type(text) is str else None
            if id is None:
                raise invalid(
                    pointer(where, "decision"), f"{shown(text)} is not a decision's id", "Use the id from the decision"
                )
            out.append((id, value, arm, by))
        return out

    def action(self, body: Any) -> tuple[Label | None, str | None]:
        """The arm that was taken, and who took it."""
        as_object(body)
        unknown_fields(body, {"arm", "by"}, "")
        return self._taken(body, "")

    def _taken(self, body: dict[str, Any], where: str) -> tuple[Label | None, str | None]:
        arm = self.arms.read(body["arm"], pointer(where, "arm")) if "arm" in body else None
        by = body.get("by")
        if "by" in body and (type(by) is not str or by not in ACTORS):
            raise invalid(pointer(where, "by"), f"{shown(by)} is nobody", f"It is one of {', '.join(ACTORS)}")
        return arm, by

    def behavior_at(self, body: Any) -> tuple[Array, Answer]:
        """A context and what the old policy does there."""
        as_object(body)
        unknown_fields(body, _BEHAVIOR | {"context", "query_probability"}, "")
        if "context" not in body:
            raise invalid("/context", "is missing", "Say where the old policy would do this")
        x = self.reader.read(body["context"], "/context")
        answer = self.answer({name: body[name] for name in _BEHAVIOR if name in body}, "")
        chance = body.get("query_probability", 1.0)
        if type(chance) not in (int, float) or not 1e-6 <= chance <= 1.0:
            raise invalid("/query_probability", f"{shown(chance)} is not a chance of asking", "Give a number in (0, 1]")
        return x, Answer(answer.arm, answer.probabilities, float(chance))

    def rails(self, body: Any) -> dict[str, Any]:
        """Changes of mode, share, fallback."""
        as_object(body)
        unknown_fields(body, {"mode", "share", "fallback"}, "")
        if not body:
            raise invalid("", "is empty", "Say what to change: mode, share or fallback")
        if "mode" in body and (type(body["mode"]) is not str or body["mode"] not in MODES):
            raise invalid("/mode", f"{shown(body['mode'])} is not a mode", f"It is one of {', '.join(MODES)}")
        if "share" in body and (type(body["share"]) not in (int, float) or not 0 <= body["share"] <= 1):
            raise invalid("/share", f"{shown(body['share'])} is not a share", "Give a number from 0 to 1")
        out = dict(body)
        if "share" in body:
            out["share"] = float(body["share"])
        if "fallback" in body:
            out["fallback"] = self.arms.read(body["fallback"], "/fallback")
        return out

    def switch(self, body: Any) -> bool:
        """The kill switch: on or off."""
        as_object(body)
        unknown_fields(body, {"killed"}, "")
        if type(body.get("killed")) is not bool:
            raise invalid("/killed", "must be true or false", "true stops the learner, false lets it decide again")
        killed: bool = body["killed"]
        return killed

    # ------------------------------------------------------------------------------------- answers

    def decided(self, number: int, event: Decisions) -> list[str]:
        """The JSON of every decision of an event."""
        text = self._arm_text
        shared = f'"mode":"{event.mode}","version":{event.version}}}'
        estimates, widths = event.number_texts
        ids = [f"{number}.{i}" for i in range(len(event))]
        ids[0] = str(number)
        tails = list(zip(event.routes, event.propensities, event.asked, event.query_probabilities, strict=True))
        texts = {
            tail: f',"by":"{tail[0]}","propensity":{_number(tail[1])},"wants_query":{"true" if tail[2] else "false"},'
            f'"query_probability":{tail[3]!r},{shared}'
            for tail in set(tails)
        }
        return [
            f'{{"id":"{id}","arm":{"null" if arm is None else text[arm]},"recommended":{text[recommended]},'
            f'"estimate":{estimate},"width":{width}{texts[tail]}'
            for id, arm, recommended, estimate, width, tail in zip(
                ids, event.arms, event.recommended, estimates, widths, tails, strict=True
            )
        ]


def _number(value: float | None) -> str:
    return "null" if value is None else repr(value)


def _clean(text: str) -> bool:
    return text.isprintable() and not any(0xD800 <= ord(c) <= 0xDFFF for c in text)
