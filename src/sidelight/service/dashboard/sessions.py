"""Sessions: a token that is typed in once is exchanged for a session cookie that scripts cannot read.

The token itself is never stored, neither here nor in the browser: the cookie holds 256 random bits that mean nothing
anywhere else, and this process remembers their digest and the token's id. A revoked token ends its sessions at once.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from sidelight.service.http.auth import Token, Tokens

__all__ = ["HEADER", "Sessions"]

#: header that our page sends with a changing request, and a page of another origin cannot (against CSRF)
HEADER = "x-sidelight-dashboard"

#: seconds until a session expires
_SECONDS = 12 * 3600.0
#: sessions of one token that are open at once; a further one ends that token's oldest
_MOST = 100


class _Session(NamedTuple):
    token: str
    until: float


class Sessions:
    """The sessions of one server.

    Args:
        tokens: the valid tokens.
        seconds: how long a session lasts.
    """

    def __init__(self, tokens: Tokens, seconds: float = _SECONDS) -> None:
        self._tokens = tokens
        self._seconds = seconds
        #: digest of a cookie → its session, the oldest first
        self._open: dict[str, _Session] = {}

    def token(self, request: Request) -> Token | None:
        """The token that the session of a request was opened with, if it is still valid.

        A request that changes something must say that it comes from our own page: a browser attaches the cookie
        whoever asks it to (pages of other ports of this host included), but lets no other origin set a header.
        """
        value = _cookie(request)
        session = None if value is None else self._open.get(_digest(value))
        if session is None or session.until < time.time():
            return None
        if request.method not in ("GET", "HEAD"):
            site = request.headers.get("sec-fetch-site", "same-origin")
            if request.headers.get(HEADER) != "1" or site != "same-origin":
                return None
        return self._tokens.by_id(session.token)

    def open(self, token: Token, request: Request, response: Response) -> None:
        """Begin a session: ``response`` sets the cookie."""
        value = secrets.token_urlsafe(32)
        self._open[_digest(value)] = _Session(token.id, time.time() + self._seconds)
        own = [key for key, session in self._open.items() if session.token == token.id]
        for key in own[:-_MOST]:
            del self._open[key]
        _set(response, request, value, int(self._seconds))

    def close(self, request: Request, response: Response) -> None:
        """End the session of a request, if it has one."""
        value = _cookie(request)
        if value is not None:
            self._open.pop(_digest(value), None)
        _set(response, request, "", 0)


def _name(request: Request) -> str:
    # Cookies do not tell ports apart, so two services on one host must not use one name.
    server = request.scope.get("server")
    return f"sidelight_{server[1] if server else 0}"


def _cookie(request: Request) -> str | None:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(_name(request))
    except CookieError:
        return None
    return None if found is None else found.value


def _set(response: Response, request: Request, value: str, seconds: int) -> None:
    response.set_cookie(
        _name(request), value, seconds, path="/", secure=request.url.scheme == "https", httponly=True, samesite="strict"
    )


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
