"""Answers: JSON, what a write came to, and errors in the one form that all of them have (RFC 9457)."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sidelight.service.core.server import Noted
from sidelight.service.http.bodies import to_json
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.problems import MEDIA_TYPE, Problem

__all__ = [
    "JSON",
    "answer_failure",
    "answer_http",
    "answer_problem",
    "json_response",
    "noted_response",
    "said_of",
]

JSON = "application/json"


def json_response(body: Any, status: int = 200) -> Response:
    """The HTTP response whose content is ``body``, encoded as JSON."""
    return Response(to_json(body), status, media_type=JSON)


def said_of(noted: Noted) -> dict[str, Any]:
    """What a caller is told about a write."""
    body: dict[str, Any] = {"event": noted.number, "repeated": not noted.new}
    if noted.quarantine is not None:
        body["quarantine"] = noted.quarantine
    if noted.retracted:
        body["retracted"] = True
    return body


def noted_response(id: DecisionId | None, noted: Noted) -> Response:
    """The answer to a write, about a decision or not: 201 where it is new, 200 where it was there before."""
    body = {} if id is None else {"decision": str(id)}
    return json_response(body | said_of(noted), 201 if noted.new else 200)


# -------------------------------------------------------------------------------------------- errors


async def answer_problem(request: Request, problem: Exception) -> Response:
    """The HTTP response to a request that a handler refused with a ``Problem``: its status, headers and JSON body."""
    assert isinstance(problem, Problem)
    return Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE)


async def answer_http(request: Request, error: Exception) -> Response:
    """The HTTP response to an unknown address (404), or to a method that an address does not take (405)."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:80]
    if error.status_code == 405:
        allowed = ", ".join(_methods(request))
        problem = Problem("method-not-allowed", f"{path} takes {allowed}.", headers={"Allow": allowed})
    else:
        problem = Problem("not-found", f"there is nothing at {path}. /openapi.json lists every address.")
    return Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE)


def _methods(request: Request) -> list[str]:
    """The methods of all routes that match a request's path, for ``Allow``; ``batch`` is not taken for an id."""
    if request.scope["path"] == "/v1/decisions/batch":
        return ["POST"]
    found: set[str] = set()
    for route in request.app.routes:
        match, _ = route.matches(request.scope)
        if match.value:
            found |= set(route.methods or ())
    return sorted(found)


async def answer_failure(request: Request, error: Exception) -> Response:
    """The HTTP response (500) to an exception that nothing expected, which Starlette logs."""
    problem = Problem("internal", "something went wrong here, and it was logged. It is not your request's fault.")
    return Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE)
