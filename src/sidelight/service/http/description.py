"""The OpenAPI description, made from the deployed schema: it names the features and the arms of this very service."""

from __future__ import annotations

from typing import Any

from sidelight.service.config import Limits
from sidelight.service.core.contexts import ContextReader, Labels
from sidelight.service.http.bodies import ACTORS
from sidelight.service.problems import KINDS, MEDIA_TYPE, PROBLEM_SCHEMA
from sidelight.service.rails import MODES
from sidelight.version import __version__

__all__ = ["describe"]


def describe(reader: ContextReader, arms: Labels, needs: str | None, limits: Limits) -> dict[str, Any]:
    """The whole description (OpenAPI 3.1)."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sidelight decision service",
            "version": __version__,
            "description": "Decisions by a contextual bandit that starts from a confounded log. Errors are RFC 9457 "
            "problem details.",
        },
        "paths": _paths(limits),
        "components": {
            "schemas": _schemas(reader, arms, needs, limits),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "sl_<id>_<secret>"}},
        },
        "security": [{"token": []}],
    }


def _paths(limits: Limits) -> dict[str, Any]:
    decision_id = {
        "name": "id",
        "in": "path",
        "required": True,
        "description": "the decision's id",
        "schema": {"type": "string", "pattern": r"^[1-9][0-9]{0,17}(\.[1-9][0-9]{0,5})?$"},
    }
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "makes a retry safe: the same key and body never decide twice",
        "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]{1,200}$"},
    }
    about = {"parameters": [decision_id]}
    return {
        "/v1/decisions": {
            "post": _operation(
                "decide", "Decide for one context", "DecisionRequest", {"201": "Decision", "200": "Decision"}, [key]
            )
        },
        "/v1/decisions/batch": {
            "post": _operation(
                "decideBatch",
                f"Decide for up to {limits.batch} contexts, all or none",
                "DecisionsRequest",
                {"201": "Decisions", "200": "Decisions"},
                [key],
            )
        },
        "/v1/decisions/{id}": {
            **about,
            "get": _operation(
                "readDecision", "A decision and its explanation", None, {"200": "DecisionRecord"}, [], about=True
            ),
        },
        "/v1/decisions/{id}/reward": {
            **about,
            "post": _operation(
                "reward", "The reward of a decision", "Reward", {"201": "Noted", "200": "Noted"}, about=True
            ),
        },
        "/v1/decisions/{id}/action": {
            **about,
            "post": _operation(
                "action", "The arm that was taken", "Action", {"201": "Noted", "200": "Noted"}, about=True
            ),
        },
        "/v1/decisions/{id}/behavior": {
            **about,
            "post": _operation(
                "behavior",
                "What the old policy would have done",
                "Behavior",
                {"201": "Noted", "200": "Noted"},
                about=True,
            ),
        },
        "/v1/rewards": {
            "post": _operation("rewards", f"Up to {limits.batch} rewards, one by one", "Rewards", {"200": "Results"})
        },
        "/v1/behavior": {
            "post": _operation(
                "behaviorAt",
                "What the old policy would do at a context",
                "BehaviorAt",
                {"201": "Event", "200": "Event"},
                [key],
            )
        },
        "/v1/status": {"get": _operation("status", "Where the service stands", None, {"200": "Status"})},
        "/v1/state": {"get": _operation("state", "The digest of the learner and the rails", None, {"200": "State"})},
        "/v1/schema": {"get": _operation("schema", "Features and arms", None, {"200": "Anything"})},
        "/v1/mode": {"post": _operation("setMode", "Change who acts", "Mode", {"200": "Changed"})},
        "/v1/kill": {"post": _operation("kill", "The kill switch", "Kill", {"200": "Changed"})},
        "/health/live": {"get": _operation("live", "Is the process up", None, {"200": "Anything"}, open_to_all=True)},
        "/health/ready": {
            "get": _operation("ready", "Can decisions be written", None, {"200": "Anything"}, open_to_all=True)
        },
        "/metrics": {"get": _operation("metrics", "Prometheus metrics", None, {"200": ""})},
        "/openapi.json": {"get": _operation("description", "This description", None, {"200": "Anything"})},
    }


def _operation(
    name: str,
    summary: str,
    body: str | None,
    answers: dict[str, str],
    parameters: list[dict[str, Any]] | None = None,
    *,
    about: bool = False,
    open_to_all: bool = False,
) -> dict[str, Any]:
    kinds = ["host-not-allowed", "headers-too-large", "overloaded", "slow", "storage", "internal"]
    if not open_to_all:
        kinds += ["no-token", "scope-missing"]
    if about:
        kinds += ["unknown-decision"]
    if body is not None:
        kinds += ["malformed", "timeout", "too-large", "unsupported-media-type", "invalid"]
    if about or parameters:
        kinds += ["conflict"]
    responses: dict[str, Any] = {}
    for status, schema in answers.items():
        said = {"200": "done before, or nothing new", "201": "done and written"}[status] if "201" in answers else "done"
        content = (
            {"application/json": {"schema": _ref(schema)}} if schema else {"text/plain": {"schema": {"type": "string"}}}
        )
        responses[status] = {"description": said, "content": content}
    for kind in kinds:
        code, title = KINDS[kind]
        response = responses.setdefault(
            str(code), {"description": title, "content": {MEDIA_TYPE: {"schema": _ref("Problem")}}}
        )
        if code == 503:
            response["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "seconds"}}
    operation: dict[str, Any] = {"operationId": name, "summary": summary, "responses": responses}
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(body)}}}
    if open_to_all:
        operation["security"] = []
    return operation


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: dict[str, Any], required: list[str], closed: bool = True) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    return out | {"additionalProperties": False} if closed else out


def _maybe(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _schemas(reader: ContextReader, arms: Labels, needs: str | None, limits: Limits) -> dict[str, Any]:
    arm, number = _ref("Arm"), {"type": "number"}
    chance = {"type": "number", "minimum": 0, "maximum": 1}
    text, whole, yes = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
    by = {"enum": list(ACTORS), "description": "who took the arm"}
    probabilities = {
        "type": "array",
        "description": "one for each arm, in the arms' order; they sum to 1 (within 1e-6)",
        "items": chance,
        "contains": {"type": "number", "minimum": 1e-9},
        "minItems": len(arms),
        "maxItems": len(arms),
    }
    needed = {"action": ["arm"], "probabilities": ["probabilities"], None: []}[needs]
    decision = {
        "id": text,
        "arm": _maybe(arm)
        | {"description": "the arm to take; null where the old policy acts and has not said its arm"},
        "by": {"enum": ["learner", "old_policy", "fallback"], "description": "who chose the arm to take"},
        "recommended": arm,
        "estimate": _maybe(number),
        "width": _maybe(number),
        "propensity": _maybe(chance),
        "wants_query": yes,
        "query_probability": chance,
        "mode": {"enum": list(MODES)},
        "version": whole,
    }
    ask = {
        "context": _ref("Context"),
        "allowed": {
            "type": "array",
            "items": arm,
            "minItems": 1,
            "maxItems": len(arms),
            "uniqueItems": True,
            "description": "the arms that may be taken here",
        },
        "behavior": _ref("Behavior"),
        "subject": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "pattern": r"^[A-Za-z0-9._:@/+ -]+$",
            "description": "whom the decision is about, by your key",
        },
    }
    reward = {
        "reward": reader.number_schema(),
        "arm": arm | {"description": "the arm that was taken; by default the one decided"},
        "by": by,
    }
    rails = _object({"mode": {"enum": list(MODES)}, "share": chance, "fallback": arm, "killed": yes}, ["mode"], False)
    batch = {"minItems": 1, "maxItems": limits.batch}
    return {
        "Arm": arms.json_schema(),
        "Context": reader.json_schema(),
        "Behavior": _object({"arm": arm, "probabilities": probabilities}, needed) | {"minProperties": 1},
        "BehaviorAt": _object(
            {
                "context": _ref("Context"),
                "arm": arm,
                "probabilities": probabilities,
                "query_probability": {"type": "number", "minimum": 1e-6, "maximum": 1},
            },
            ["context", *needed],
        )
        | ({"anyOf": [{"required": ["arm"]}, {"required": ["probabilities"]}]} if needs is None else {}),
        "DecisionRequest": _object(ask, ["context"]),
        "DecisionsRequest": _object(
            {"decisions": {"type": "array", "items": _ref("DecisionRequest"), **batch}}, ["decisions"]
        ),
        "Decision": _object(decision, list(decision)),
        "Decisions": _object({"decisions": {"type": "array", "items": _ref("Decision")}}, ["decisions"]),
        "DecisionRecord": _object(
            decision
            | {
                "context": _maybe({"type": "object", "description": "in your units; null if it was deleted"}),
                "explanation": _maybe(_ref("Explanation")),
            },
            [*decision, "context", "explanation"],
            closed=False,
        ),
        "Explanation": _object(
            {
                "as_of_version": whole,
                "exact": yes | {"description": "whether this is the learner as it was when it decided"},
                "arms": {
                    "type": "array",
                    "items": _object(
                        {
                            "arm": arm,
                            "estimate": _maybe(number),
                            "width": _maybe(number),
                            "index": _maybe(number),
                            "allowed": yes,
                            "log_share": _maybe(number),
                            "features": {
                                "type": "array",
                                "items": _object(
                                    {"feature": text, "value": {}, "contribution": _maybe(number)},
                                    ["feature", "value", "contribution"],
                                ),
                            },
                        },
                        ["arm", "estimate", "width", "index", "allowed"],
                    ),
                },
            },
            ["as_of_version", "exact", "arms"],
        ),
        "Reward": _object(reward, ["reward"]),
        "Rewards": _object(
            {
                "rewards": {
                    "type": "array",
                    "items": _object(
                        reward | {"decision": {"type": "string", "pattern": r"^[1-9][0-9]{0,17}(\.[1-9][0-9]{0,5})?$"}},
                        ["decision", "reward"],
                    ),
                    **batch,
                }
            },
            ["rewards"],
        ),
        "Action": _object({"arm": arm, "by": by}, []),
        "Noted": _object({"decision": text, "event": whole, "repeated": yes}, ["decision", "event", "repeated"]),
        "Event": _object({"event": whole, "repeated": yes}, ["event", "repeated"]),
        "Results": _object(
            {
                "results": {
                    "type": "array",
                    "items": _object(
                        {"decision": text, "event": whole, "repeated": yes, "problem": _ref("Problem")}, ["decision"]
                    ),
                }
            },
            ["results"],
        ),
        "Mode": _object({"mode": {"enum": list(MODES)}, "share": chance, "fallback": arm}, []) | {"minProperties": 1},
        "Kill": _object({"killed": yes}, ["killed"]),
        "Changed": _object({"event": whole, "rails": rails}, ["event", "rails"]),
        "Status": _object({"ready": yes, "event": whole, "version": whole, "rails": rails}, ["ready", "event"], False),
        "State": _object({"event": whole, "version": whole, "digest": text}, ["event", "version", "digest"]),
        "Anything": {"type": "object"},
        "Problem": PROBLEM_SCHEMA,
    }
