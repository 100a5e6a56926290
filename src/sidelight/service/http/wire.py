"""Strict parsing of JSON: UTF-8, no duplicate keys, no NaN, bounded nesting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from starlette.requests import ClientDisconnect, Request

from sidelight.service.problems import Problem, ambiguous, pointer

__all__ = ["header", "parse", "read_body"]


def parse(body: bytes) -> Any:
    """The JSON value of a body, by a parser that is slow but can say what is wrong.

    Raises:
        Problem: 400, and why it cannot be read; a number that JSON does not have is named by its place.
    """
    constants: list[_Constant] = []

    def constant(name: str) -> _Constant:
        constants.append(_Constant(name))
        return constants[-1]

    try:
        value = json.JSONDecoder(object_pairs_hook=_object, parse_constant=constant).decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _malformed(f"the body is not UTF-8 (byte {error.start}). Encode it as UTF-8.") from error
    except RecursionError as error:
        raise _malformed("the body is nested too deeply. A context is an object or an array of numbers.") from error
    except _Refused as error:
        raise _malformed(str(error)) from error
    except ValueError as error:
        said = str(error) if isinstance(error, json.JSONDecodeError) else "it has a number with too many digits"
        raise _malformed(f"the body is not JSON: {said}. Check it with any JSON tool.") from error
    if constants:
        raise _not_numbers(value)
    return value


class _Refused(ValueError):
    """JSON that Python's parser accepts and this service refuses."""


class _Constant:
    """``NaN``, ``Infinity`` or ``-Infinity``, which JSON does not have."""

    def __init__(self, name: str) -> None:
        self.name = name


def _not_numbers(value: Any) -> Problem:
    found = list(_constants(value))
    where, name = found[0]
    others = ", ".join(place for place, _ in found[1:20])
    more = f" The same is true of {others}." if others else ""
    return Problem(
        "malformed",
        f"{where or 'the body'} is {name}, which is not JSON. Every number must be finite.{more}"[:900],
        errors=[
            {"pointer": place, "detail": f"{name} is not JSON", "remedy": "Give a finite number"}
            for place, name in found[:1000]
        ],
    )


def _constants(value: Any) -> Iterator[tuple[str, str]]:
    """JSON pointer and name of every such constant, in the order of the body."""
    stack = [("", value)]
    while stack:
        where, item = stack.pop()
        if isinstance(item, _Constant):
            yield where, item.name
        elif type(item) is dict:
            stack += [(pointer(where, name[:200]), inner) for name, inner in reversed(item.items())]
        elif type(item) is list:
            stack += [(pointer(where, i), inner) for i, inner in reversed(list(enumerate(item)))]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Refused(f"an object has the key {name[:60]!r} twice, so its value is unclear. Keep one of them.")
            seen.add(name)
    return out


def _malformed(detail: str) -> Problem:
    return Problem("malformed", detail)


def header(request: Request, name: bytes) -> bytes | None:
    """The value of a header that may come once, or None.

    Raises:
        Problem: it comes twice, so which one counts is unclear: proxies and servers differ about that.
    """
    found: bytes | None = None
    for key, value in request.scope["headers"]:
        if key == name:
            if found is not None:
                raise ambiguous(name)
            found = value
    return found


async def read_body(request: Request, limit: int) -> bytes:
    """The body of a request that must be JSON, up to ``limit`` bytes.

    Raises:
        Problem: it is too large or says that it is something else than JSON.
    """
    kind = encoding = length = None
    for name, value in request.scope["headers"]:
        if name == b"content-type":
            kind = value if kind is None else b""
        elif name == b"content-length":
            length = value
        elif name == b"content-encoding":
            encoding = value
    if kind != b"application/json" and not _is_json(kind):
        raise Problem("unsupported-media-type", "send the body as JSON with `Content-Type: application/json`.")
    if encoding is not None and encoding.lower() != b"identity":
        raise Problem("unsupported-media-type", "send the body without Content-Encoding.")
    if length is not None and (len(length) > 15 or not length.isdigit() or int(length) > limit):
        raise _too_large(limit)
    receive = request.receive
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False):
        if len(body) > limit:
            raise _too_large(limit)
        return body
    parts, size = [body], len(body)
    while True:
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return b"".join(parts)
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])


def _is_json(kind: bytes | None) -> bool:
    if kind is None:
        return False
    name, _, parameters = kind.lower().partition(b";")
    allowed = (b"", b"charset=utf-8", b'charset="utf-8"')
    return name.strip() == b"application/json" and parameters.replace(b" ", b"") in allowed


def _too_large(limit: int) -> Problem:
    return Problem(
        "too-large",
        f"a body may have at most {limit} bytes. Send fewer decisions at once.",
        headers={"Connection": "close"},
    )
