"""Errors as RFC 9457 problem details: what was wrong, where, and what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sidelight.errors import StoreError

__all__ = ["PROBLEM_SCHEMA", "Problem", "ambiguous", "invalid", "pointer", "storage_problem", "unknown_decision"]

MEDIA_TYPE = "application/problem+json"

#: kind → (status, title)
KINDS: dict[str, tuple[int, str]] = {
    "malformed": (400, "The body is not JSON that can be read"),
    "ambiguous-headers": (400, "A header that may come once came twice"),
    "host-not-allowed": (400, "Without tokens only requests to this machine itself are answered"),
    "no-token": (401, "A token is needed"),
    "scope-missing": (403, "The token does not allow this"),
    "not-found": (404, "There is nothing here"),
    "unknown-decision": (404, "There is no such decision"),
    "unknown-event": (404, "There is no such event, or none that a learner learns from"),
    "method-not-allowed": (405, "This address does not take this method"),
    "timeout": (408, "The request took too long to arrive"),
    "conflict": (409, "This contradicts what was recorded"),
    "gone": (410, "The context of this decision was deleted"),
    "too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "The body must be JSON"),
    "invalid": (422, "A field is not valid"),
    "key-reused": (409, "The idempotency key was used for another request"),
    "headers-too-large": (431, "The headers are too large"),
    "internal": (500, "The service failed"),
    "overloaded": (503, "The service has too much to do"),
    "storage": (503, "The service cannot write its event log"),
    "starting": (503, "The service is not ready"),
    "slow": (503, "The service could not finish in time"),
}


class Problem(Exception):
    """An answer that is an error.

    Attributes:
        kind: one of ``KINDS``.
        detail: what was seen and what to do, for a person.
        errors: fields at fault: ``pointer`` (JSON pointer into the body), ``detail``, ``remedy``.
        headers: headers of the answer.
        extra: further members.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        errors: list[dict[str, str]] | None = None,
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.status, self.title = KINDS[kind]
        self.detail = detail
        self.errors = errors
        self.headers = dict(headers or {})
        if self.status == 503:
            self.headers.setdefault("Retry-After", "1")
        if self.status == 401:
            self.headers.setdefault("WWW-Authenticate", 'Bearer realm="sidelight"')
        self.extra = extra

    def content(self) -> dict[str, Any]:
        """The members of the answer."""
        content: dict[str, Any] = {
            "type": f"urn:sidelight:problem:{self.kind}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            **self.extra,
        }
        if self.errors:
            content["errors"] = self.errors
        return content

    def body(self) -> bytes:
        """The JSON of the answer."""
        # ASCII only: text of the request may be quoted here, lone surrogates included.
        return json.dumps(self.content(), ensure_ascii=True, default=repr).encode()


def invalid(where: str, detail: str, remedy: str) -> Problem:
    """A 422 about a single field."""
    name = where or "the body"
    return Problem(
        "invalid",
        f"{name}: {detail}. {remedy}.",
        errors=[{"pointer": where, "detail": detail, "remedy": remedy}],
    )


def pointer(base: str, *parts: str | int) -> str:
    """A JSON pointer (RFC 6901) below ``base``."""
    return base + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457 problem details",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "detail", "remedy"],
                "properties": {
                    "pointer": {"type": "string"},
                    "detail": {"type": "string"},
                    "remedy": {"type": "string"},
                },
            },
        },
    },
}


def ambiguous(header: bytes) -> Problem:
    """A 400 for a duplicate header: which of two values counts is unclear, because proxies and servers differ."""
    return Problem("ambiguous-headers", f"the header {header.decode().title()} came twice: send it once.")


def storage_problem(error: StoreError) -> Problem:
    """A 503 for a store that cannot be used."""
    return Problem(
        "storage",
        f"{error} Nothing was acknowledged. Retry with the same Idempotency-Key: if it was written after all, it will "
        "not be written twice.",
        headers={"Retry-After": "2"},
    )


def unknown_decision(text: str) -> Problem:
    """A 404: there is no decision with this id."""
    return Problem("unknown-decision", f"there is no decision {text!r}: use the id that came with the decision.")
