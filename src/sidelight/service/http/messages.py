"""Every message of the service, described once for the schema that it serves.

These types define how requests are read fast (msgspec), how every error of a refused one is found (``checking``), and
the OpenAPI description (``description``). Conditions that a type cannot express are rules (``rules``).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sidelight.logs.schema.schema import Schema
from sidelight.service.checking import ObjectWords
from sidelight.service.http.contexts import Contexts, array_of
from sidelight.service.http.rules import Distinct, LabelSet, PlainText, Probabilities, ToldArm
from sidelight.service.rails import MODES, Mode
from sidelight.service.sections import Limits

__all__ = ["ACTORS", "Messages", "ref"]

Actor = Literal["service", "person", "old_policy"]
ACTORS: tuple[Actor, ...] = ("service", "person", "old_policy")
Route = Literal["learner", "old_policy", "fallback"]

_Chance = Annotated[float, Meta(ge=0.0, le=1.0)]
_MaybeChance = Annotated[float, Meta(ge=0.0, le=1.0)] | None
_By = Annotated[
    Literal[ACTORS],  # type: ignore[valid-type]
    Meta(description="who took the arm", extra={"noun": "anybody who takes arms", "order": ACTORS}),
]
_Mode = Annotated[Mode, Meta(extra={"noun": "a mode", "order": MODES})]


def ref(name: str) -> dict[str, str]:
    """A reference to a schema of the OpenAPI description."""
    return {"$ref": f"#/components/schemas/{name}"}


def _maybe(name: str) -> dict[str, Any]:
    return {"anyOf": [ref(name), {"type": "null"}]}


class Messages:
    """The messages of a service with this schema and these arms.

    Args:
        schema: the features.
        arms: the learner's arms.
        needs: what the learner learns from: ``"action"``, ``"probabilities"`` or None.
        limits: on numbers and batches.

    Attributes:
        contexts: how a context is written and encoded.
        words: the texts of errors about the fields of each kind of object.
        requests, answers: the types by name, as the OpenAPI description lists them.
    """

    def __init__(self, schema: Schema, arms: LabelSet, needs: str | None, limits: Limits) -> None:
        self.arms = arms
        self.contexts = Contexts(schema, limits.largest_number)
        self.words: dict[type, ObjectWords] = {self.contexts.named: self.contexts.words}
        self.distinct, self.probabilities, self.subject = Distinct(arms), Probabilities(), PlainText()
        self.told_arm = ToldArm(arms)
        self.requests: dict[str, type] = {}
        self.answers: dict[str, type] = {}
        self._requests(needs, limits)
        self._answers()

    def _request(self, name: str, fields: list[Any], words: ObjectWords | None = None) -> Any:
        made = msgspec.defstruct(name, fields, forbid_unknown_fields=True, gc=False, kw_only=True)
        self.requests[name] = made
        if words is not None:
            self.words[made] = words
        return made

    def _requests(self, needs: str | None, limits: Limits) -> None:
        arm = Annotated[Any, Meta(extra_json_schema=ref("Arm"), extra={"rule": self.arms})]
        K = len(self.arms)
        probabilities = Annotated[
            list[_Chance],
            Meta(
                min_length=K,
                max_length=K,
                description="one for each arm, in the arms' order; they sum to 1 (within 1e-6)",
                extra_json_schema={"contains": {"type": "number", "minimum": 1e-9}},
                extra={"rule": self.probabilities, "remedy": "Give one for each arm, in the arms' order"},
            ),
        ]
        answer = _answer_fields(arm, probabilities, needs)
        empty = "Say the old policy's arm or its probabilities"
        one = ("arm", "probabilities") if needs is None else ()
        told = ObjectWords(one_of=one, empty=empty, rule=self.told_arm)
        behavior = self._request("Behavior", answer, told)
        subject = Annotated[
            str,
            Meta(
                min_length=1,
                max_length=200,
                description="whom the decision is about, by your key",
                extra_json_schema={"pattern": r"^[A-Za-z0-9._:@/+ -]+$"},
                extra={
                    "rule": self.subject,
                    "noun": "a key",
                    "remedy": "Give text of 1 to 200 characters without control characters",
                },
            ),
        ]
        allowed: Any = Annotated[
            array_of(arm),
            Meta(
                min_length=1,
                max_length=K,
                description="the arms that may be taken here",
                extra_json_schema={"uniqueItems": True},
                extra={
                    "rule": self.distinct,
                    "noun": "an array of arms",
                    "remedy": "Name each arm once, at least one of them; leave it out to allow all arms",
                },
            ),
        ]
        decision = self._request(
            "DecisionRequest",
            [
                ("context", self.contexts.either),
                ("allowed", allowed | UnsetType, UNSET),
                ("behavior", behavior | UnsetType, UNSET),
                ("subject", subject | UnsetType, UNSET),
            ],
        )
        self._request("DecisionsRequest", [("decisions", _batch(decision, limits.batch))])
        reward = [
            ("reward", Annotated[self.contexts.number, Meta(extra={"missing": "Give the reward, a number"})]),
            ("arm", _described(arm, "the arm that was taken; by default the one decided") | UnsetType, UNSET),
            ("by", _By | UnsetType, UNSET),
        ]
        self._request("Reward", reward)
        use = "Use the id from the decision"
        id = Annotated[
            str,
            Meta(
                description="the decision's id; where there is no such decision, that is the result of this item alone",
                extra={"noun": "a decision's id", "remedy": use, "missing": use},
            ),
        ]
        item = self._request("RewardItem", [("decision", id), *reward])
        self._request("Rewards", [("rewards", _batch(item, limits.batch))])
        self._request("Action", reward[1:])
        chance = Annotated[
            float, Meta(ge=1e-6, le=1.0, extra={"noun": "a chance of asking", "remedy": "Give a number in (0, 1]"})
        ]
        self._request(
            "BehaviorAt",
            [("context", self.contexts.either), *answer, ("query_probability", chance | UnsetType, UNSET)],
            told,
        )
        share = Annotated[float, Meta(ge=0.0, le=1.0, extra={"noun": "a share", "remedy": "Give a number from 0 to 1"})]
        explore = Annotated[
            float,
            Meta(
                ge=0.0,
                le=0.5,
                description="in `act`, the chance with which an arm drawn evenly takes the place of the learner's",
                extra={"noun": "a chance of exploring", "remedy": "Give a number from 0 to 0.5"},
            ),
        ]
        self._request(
            "Mode",
            [
                ("mode", _Mode | UnsetType, UNSET),
                ("share", share | UnsetType, UNSET),
                ("fallback", arm | UnsetType, UNSET),
                ("explore", explore | UnsetType, UNSET),
            ],
            ObjectWords(
                one_of=("mode", "share", "fallback", "explore"),
                empty="Say what to change: mode, share, fallback or explore",
            ),
        )
        step = Annotated[
            Literal["up", "down", "off"],
            Meta(
                description="one rung up, one down, or off the ladder",
                extra={"noun": "a step", "order": ("up", "down", "off")},
            ),
        ]
        hold = Annotated[bool, Meta(description="true stops promotions, false lets them go on")]
        # JSON knows no whole numbers: 1.0 is rung 1, and 1.5 one that the gate is not on
        rung = Annotated[
            float,
            Meta(
                ge=-1,
                le=1_000_000,
                description="the rung that the step is from, as in the status (−1 is below the ladder): 409 where the "
                "gate is on another by now, so that a retry does not step twice",
                extra={"noun": "a rung", "remedy": "Give the `rung` that GET /v1/status says"},
            ),
        ]
        self._request(
            "Gate",
            [("step", step | UnsetType, UNSET), ("hold", hold | UnsetType, UNSET), ("rung", rung | UnsetType, UNSET)],
            ObjectWords(one_of=("step", "hold"), empty="Say what to do: step or hold"),
        )
        why = "Say why, in 1 to 200 characters without control characters"
        reason = Annotated[
            str,
            Meta(
                min_length=1,
                max_length=200,
                description="why, in a person's words; kept in the log",
                extra_json_schema={"pattern": r"^[A-Za-z0-9._:@/+ -]+$"},
                extra={"rule": self.subject, "noun": "a reason", "remedy": why, "missing": why},
            ),
        ]
        what = Annotated[
            Literal["reward", "action", "behavior"],
            Meta(
                description="what was wrong; by default the reward",
                extra={"noun": "something told about a decision", "order": ("reward", "action", "behavior")},
            ),
        ]
        self._request("Retraction", [("reason", reason), ("what", what | UnsetType, UNSET)])
        right = "true teaches it to the learner, false discards it"
        release = Annotated[bool, Meta(description=right, extra={"remedy": right, "missing": right})]
        self._request("Review", [("release", release), ("reason", reason)])
        on = "true stops the learner, false lets it decide again"
        self._request("Kill", [("killed", Annotated[bool, Meta(extra={"remedy": on, "missing": on})])])

    def _answer(self, name: str, fields: list[Any], closed: bool = True) -> Any:
        made = msgspec.defstruct(name, fields, forbid_unknown_fields=closed, gc=False)
        self.answers[name] = made
        return made

    def _answers(self) -> None:
        arm = Annotated[Any, Meta(extra_json_schema=ref("Arm"))]
        whose = "the arm to take; null where the old policy acts and has not said its arm"
        maybe_arm = Annotated[Any, Meta(extra_json_schema=_maybe("Arm") | {"description": whose})]
        decision: list[Any] = [
            ("id", str),
            ("arm", maybe_arm),
            ("by", Annotated[Route, Meta(description="who chose the arm to take")]),
            ("recommended", arm),
            ("estimate", float | None),
            ("width", float | None),
            ("propensity", _MaybeChance),
            ("wants_query", bool),
            ("query_probability", _Chance),
            ("mode", _Mode),
            ("version", int),
        ]
        self.decided = self._answer("Decision", decision)
        self._answer("Decisions", [("decisions", array_of(self.decided))])
        share = self._answer("Contribution", [("feature", str), ("value", Any), ("contribution", float | None)])
        explained = self._answer(
            "ExplainedArm",
            [
                ("arm", arm),
                *((name, float | None) for name in ("estimate", "width", "index")),
                ("allowed", bool),
                ("log_share", float | None | UnsetType, UNSET),
                ("features", array_of(share) | UnsetType, UNSET),
            ],
        )
        exact = Annotated[bool, Meta(description="whether this is the learner as it was when it decided")]
        explanation = self._answer(
            "Explanation", [("as_of_version", int), ("exact", exact), ("arms", array_of(explained))]
        )
        context = Annotated[dict[str, Any] | None, Meta(description="in your units; null if it was deleted")]
        self._answer(
            "DecisionRecord", [*decision, ("context", context), ("explanation", explanation | None)], closed=False
        )
        kept = Annotated[str, Meta(description="why it was written and kept from the learner, if it was")]
        gone = "true where the same was said before and was retracted since: saying it again does not bring it back"
        noted: list[Any] = [
            ("event", int),
            ("repeated", bool),
            ("quarantine", kept | UnsetType, UNSET),
            ("retracted", Annotated[bool, Meta(description=gone)] | UnsetType, UNSET),
        ]
        self._answer("Noted", [("decision", str), *noted])
        self._answer("Event", noted)
        problem = Annotated[Any, Meta(extra_json_schema=ref("Problem"))]
        result = self._answer(
            "Result",
            [
                ("decision", str),
                *((name, kind | UnsetType, UNSET) for name, kind, *_ in noted),
                ("problem", problem | UnsetType, UNSET),
            ],
        )
        self._answer("Results", [("results", array_of(result))])
        rails = self._answer(
            "Rails",
            [
                ("mode", _Mode),
                ("share", _Chance | UnsetType, UNSET),
                ("fallback", arm | UnsetType, UNSET),
                ("killed", bool | UnsetType, UNSET),
            ],
            closed=False,
        )
        self._answer("Changed", [("event", int), ("rails", rails)])
        self._answer(
            "Status",
            [("ready", bool), ("event", int), ("version", int | UnsetType, UNSET), ("rails", rails | UnsetType, UNSET)],
            closed=False,
        )
        waits = self._answer(
            "Waiting",
            [
                ("id", Annotated[str, Meta(description="what to call it in a review")]),
                ("what", Literal["reward", "action", "behavior"]),
                ("decision", str | None),
                ("at", float),
                ("why", str),
                ("reward", float | UnsetType, UNSET),
            ],
        )
        self._answer("Quarantine", [("waiting", int), ("newest", array_of(waits))])
        self._answer("State", [("event", int), ("version", int), ("digest", str)])


def _answer_fields(arm: Any, probabilities: Any, needs: str | None) -> list[Any]:
    """What the old policy does: its arm, its probabilities, or both; what the learner needs must be there."""

    def field(name: str, kind: Any, needed: str, remedy: str) -> tuple[Any, ...]:
        if needs != needed:
            return (name, kind | UnsetType, UNSET)
        word = {"action": "actions"}.get(needed, needed)
        extra = {
            "is_missing": f"is missing, and this learner learns from the old policy's {word}",
            "missing": remedy,
        }
        return (name, Annotated[kind, Meta(extra=extra)])

    return [
        field("arm", arm, "action", "Say its arm"),
        field("probabilities", probabilities, "probabilities", "Say the probability of every arm"),
    ]


def _described(kind: Any, words: str) -> Any:
    return Annotated[kind, Meta(description=words)]


def _batch(item: Any, most: int) -> Any:
    noun = {"noun": "an array with at least one entry", "missing": "Send at least one"}
    return Annotated[array_of(item), Meta(min_length=1, max_length=most, extra=noun)]
