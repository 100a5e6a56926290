"""Bytes to JSON values, strictly: UTF-8, no duplicate keys, no NaN, no bottomless nesting."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from sidelight.service.problems import Problem

__all__ = ["parse", "read_body"]


def parse(body: bytes) -> Any:
    """The JSON value of a body.

    The fast parser keeps the last of two equal keys without a word. Each key has a colon of its own, so as many colons
    as keys means that no key was lost; anything else, a colon inside a text included, goes the careful way.

    Raises:
        Problem: it cannot be read, and why.
    """
    try:
        value = from_json(body, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        return _careful(body)
    return value if _keys(value) == body.count(b":") else _careful(body)


def _keys(body: Any) -> int:
    """How many keys there are, as deep as any request of this service goes; deeper ones are not counted.

    Too few is safe: then there are more colons than keys, and the careful way decides.
    """
    if type(body) is not dict:
        return 0
    count = len(body)
    for value in body.values():
        if type(value) is dict:
            count += len(value)
        elif type(value) is list:
            for item in value:
                if type(item) is dict:
                    count += len(item)
                    for inner in item.values():
                        if type(inner) is dict:
                            count += len(inner)
    return count


def _careful(body: bytes) -> Any:
    """Slower, and able to say what is wrong."""
    try:
        return _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _malformed(f"the body is not UTF-8 (byte {error.start}). Encode it as UTF-8.") from error
    except RecursionError as error:
        raise _malformed("the body is nested too deeply. A context is an object or an array of numbers.") from error
    except _Refused as error:
        raise _malformed(str(error)) from error
    except ValueError as error:
        said = str(error) if isinstance(error, json.JSONDecodeError) else "it has a number with too many digits"
        raise _malformed(f"the body is not JSON: {said}. Check it with any JSON tool.") from error


class _Refused(ValueError):
    """JSON by Python's standards, but not by ours."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Refused(f"an object has the key {name[:60]!r} twice, so its value is unclear. Keep one of them.")
            seen.add(name)
    return out


def _constant(name: str) -> Any:
    raise _Refused(f"{name} is not JSON. Every number must be finite; leave out what is unknown.")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


def _malformed(detail: str) -> Problem:
    return Problem("malformed", detail)


async def read_body(request: Request, limit: int) -> bytes:
    """The body of a request that must be JSON, up to ``limit`` bytes.

    Raises:
        Problem: it is too large or says that it is something else than JSON.
    """
    kind = encoding = length = None
    for name, value in request.scope["headers"]:
        if name == b"content-type":
            kind = value
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
