"""The OpenAPI description, generated from the messages of this service, with its features and arms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from sidelight.service.http.messages import Messages, ref
from sidelight.service.problems import KINDS, MEDIA_TYPE, PROBLEM_SCHEMA
from sidelight.service.sections import Limits
from sidelight.version import __version__

__all__ = ["ENDPOINTS", "Endpoint", "describe"]

#: how the id of a decision, or of an event, is spelt
_ID_PATTERN = r"^[1-9][0-9]{0,17}(\.[1-9][0-9]{0,5})?(@[1-9a-f][0-9a-f]{0,7})?$"
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "makes a retry safe: the same key and body never decide twice",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]{1,200}$"},
}
_ID = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "the decision's id",
    "schema": {"type": "string", "pattern": _ID_PATTERN},
}
_EVENT = {
    "name": "event",
    "in": "path",
    "required": True,
    "description": "what waits in quarantine, by the id that the list gives it",
    "schema": {"type": "string", "pattern": _ID_PATTERN},
}
#: kinds of problem that any endpoint may answer with
_ALWAYS = ("ambiguous-headers", "host-not-allowed", "headers-too-large", "overloaded", "slow", "storage", "internal")


@dataclass(frozen=True)
class Endpoint:
    """An endpoint of the service.

    Attributes:
        handler: the name of the method that answers it.
        method, path: of the request; ``{id}`` in the path is a decision's id.
        operation: its name in the description.
        summary: what it does; ``{batch}`` stands for the largest batch.
        request: the name of the message it takes, or None.
        answer: the name of the message it answers with; empty for plain text.
        writes: whether it writes an event: then 201 says that it did now, 200 that it was there before.
        key: whether it takes an idempotency key.
        open: whether it answers without a token.
        conflicts: whether it may answer 409; endpoints about a decision or with a key always may.
    """

    handler: str
    method: str
    path: str
    operation: str
    summary: str
    request: str | None
    answer: str
    writes: bool = False
    key: bool = False
    open: bool = False
    conflicts: bool = False

    @property
    def about(self) -> bool:
        """Whether it is about one decision."""
        return "{id}" in self.path

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters in its path, as OpenAPI describes them."""
        named = [_ID] if self.about else [_EVENT] if "{event}" in self.path else []
        return {"parameters": named} if named else {}


#: every endpoint but the dashboard's
ENDPOINTS = (
    Endpoint("decide", "POST", "/v1/decisions", "decide", "Decide for one context", "DecisionRequest", "Decision",
             writes=True, key=True),
    Endpoint("decide_batch", "POST", "/v1/decisions/batch", "decideBatch",
             "Decide for up to {batch} contexts, all or none", "DecisionsRequest", "Decisions", writes=True, key=True),
    Endpoint("read_decision", "GET", "/v1/decisions/{id}", "readDecision", "A decision and its explanation", None,
             "DecisionRecord"),
    Endpoint("reward", "POST", "/v1/decisions/{id}/reward", "reward", "The reward of a decision", "Reward", "Noted",
             writes=True),
    Endpoint("action", "POST", "/v1/decisions/{id}/action", "action", "The arm that was taken", "Action", "Noted",
             writes=True),
    Endpoint("behavior", "POST", "/v1/decisions/{id}/behavior", "behavior", "What the old policy would have done",
             "Behavior", "Noted", writes=True),
    Endpoint("retract", "POST", "/v1/decisions/{id}/retraction", "retract",
             "Take back what was told about a decision", "Retraction", "Noted", writes=True),
    Endpoint("quarantine", "GET", "/v1/quarantine", "quarantine", "What was kept from the learner", None, "Quarantine"),
    Endpoint("review", "POST", "/v1/quarantine/{event}", "review", "Release it, or discard it", "Review", "Event",
             writes=True, conflicts=True),
    Endpoint("rewards", "POST", "/v1/rewards", "rewards", "Up to {batch} rewards, one by one", "Rewards", "Results"),
    Endpoint("behavior_at", "POST", "/v1/behavior", "behaviorAt", "What the old policy would do at a context",
             "BehaviorAt", "Event", writes=True, key=True),
    Endpoint("status", "GET", "/v1/status", "status", "Where the service stands", None, "Status"),
    Endpoint("state", "GET", "/v1/state", "state", "The digest of the learner and the rails", None, "State"),
    Endpoint("schema", "GET", "/v1/schema", "schema", "Features and arms", None, "Anything"),
    Endpoint("set_mode", "POST", "/v1/mode", "setMode", "Change who acts", "Mode", "Changed"),
    Endpoint("gate", "POST", "/v1/gate", "gate", "Move the learner's share on its ladder, or hold it", "Gate",
             "Changed", conflicts=True),
    Endpoint("kill", "POST", "/v1/kill", "kill", "The kill switch", "Kill", "Changed"),
    Endpoint("live", "GET", "/health/live", "live", "Is the process up", None, "Anything", open=True),
    Endpoint("ready", "GET", "/health/ready", "ready", "Can decisions be written", None, "Anything", open=True),
    Endpoint("metrics", "GET", "/metrics", "metrics", "Prometheus metrics", None, ""),
    Endpoint("openapi", "GET", "/openapi.json", "description", "This description", None, "Anything"),
)  # fmt: skip


def describe(messages: Messages, limits: Limits) -> dict[str, Any]:
    """The whole description (OpenAPI 3.1)."""
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        path = paths.setdefault(endpoint.path, endpoint.parameters)
        path[endpoint.method.lower()] = _operation(endpoint, limits)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sidelight decision service",
            "version": __version__,
            "description": "Decisions by a contextual bandit that starts from a confounded log. Errors are RFC 9457 "
            "problem details.",
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(messages),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "sl_<id>_<secret>"}},
        },
        "security": [{"token": []}],
    }


def _operation(endpoint: Endpoint, limits: Limits) -> dict[str, Any]:
    kinds = list(_ALWAYS)
    if not endpoint.open:
        kinds += ["no-token", "scope-missing"]
    if endpoint.about:
        kinds += ["unknown-decision"]
    elif endpoint.parameters:
        kinds += ["unknown-event"]
    if endpoint.request is not None:
        kinds += ["malformed", "timeout", "too-large", "unsupported-media-type", "invalid"]
    if endpoint.about or endpoint.key or endpoint.conflicts:
        kinds += ["conflict"]
    said = {"201": "done and written", "200": "done before, or nothing new"} if endpoint.writes else {"200": "done"}
    content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
    if endpoint.answer:
        content = {"application/json": {"schema": ref(endpoint.answer)}}
    responses: dict[str, Any] = {status: {"description": words, "content": content} for status, words in said.items()}
    for kind in kinds:
        code, title = KINDS[kind]
        response = responses.setdefault(
            str(code), {"description": title, "content": {MEDIA_TYPE: {"schema": ref("Problem")}}}
        )
        if code == 503:
            response["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "seconds"}}
    operation: dict[str, Any] = {
        "operationId": endpoint.operation,
        "summary": endpoint.summary.format(batch=limits.batch),
        "responses": responses,
    }
    if endpoint.key:
        operation["parameters"] = [_KEY]
    if endpoint.request is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": ref(endpoint.request)}},
        }
    if endpoint.open:
        operation["security"] = []
    return operation


def _schemas(messages: Messages) -> dict[str, Any]:
    kinds = messages.requests | messages.answers
    _, schemas = msgspec.json.schema_components(kinds.values(), ref_template="#/components/schemas/{name}")
    for kind, words in messages.words.items():
        if words.one_of:
            every = set(words.one_of) == set(schemas[kind.__name__]["properties"])
            some = {"minProperties": 1} if every else {"anyOf": [{"required": [name]} for name in words.one_of]}
            schemas[kind.__name__] |= some
    return schemas | {
        "Arm": {"enum": messages.arms.json},
        "Anything": {"type": "object"},
        "Problem": PROBLEM_SCHEMA,
    }
