"""The dashboard's endpoints: the page and its files, signing in and out, and the stream of changes."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from sidelight.drawing.colours import FONT, variables
from sidelight.drawing.series import ramp_variables
from sidelight.service.core.engine import Engine
from sidelight.service.dashboard.learning import SHOWN
from sidelight.service.dashboard.pieces import render
from sidelight.service.dashboard.rendering import Renderer, View
from sidelight.service.dashboard.rolling import Rolling
from sidelight.service.dashboard.sessions import Sessions
from sidelight.service.dashboard.sharing import verdict_page
from sidelight.service.dashboard.watching import ErrorLog
from sidelight.service.http.auth import EVERYBODY, Token, Tokens
from sidelight.service.http.reading import Reader
from sidelight.service.http.wire import header, read_body
from sidelight.service.log.events import GateStep
from sidelight.service.log.rows import event_from_row
from sidelight.service.problems import Problem
from sidelight.version import __version__

__all__ = ["Dashboard"]

logger = logging.getLogger("sidelight.service")

#: no inline script or style, nothing from elsewhere, no frame around it
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: event streams that may be open at once, so that viewers do not slow decisions down
_VIEWERS = 32
#: of these, with one token
_VIEWERS_PER_TOKEN = 12
#: seconds that a stream lasts at most, before the browser asks for the next
_STREAM_SECONDS = 5.0
#: seconds between two pushes of changed parts
_PUSH_SECONDS = 1.0

_MODES = (
    ("shadow", "Shadow", "the old policy acts, the learner only says what it would do"),
    ("assist", "Assist", "the learner proposes, a person confirms"),
    ("act", "Act", "the learner decides its share of the traffic"),
)

Handler = Callable[[Request], Awaitable[Response]]


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    """What the page sends to sign in."""

    token: Annotated[str, msgspec.Meta(max_length=500, extra={"missing": "Send the token as text"})]


_READER = Reader({"SignIn": SignIn}, {}, {})


class Dashboard:
    """The page at ``/``.

    Args:
        engine: the engine that is shown.
        tokens: the valid tokens.
    """

    def __init__(self, engine: Engine, tokens: Tokens) -> None:
        self.engine, self.tokens = engine, tokens
        self.sessions = Sessions(tokens)
        self.rolling = Rolling(engine.state.learner.arms, engine.state.learner.n_features)
        self.rolling.fill(engine.store, engine.state.number, engine.state.learner.n_features)
        self.errors = ErrorLog()
        self.renderer = Renderer(engine, self.rolling, self.errors)
        # Render once now, so that no decision waits for what is loaded at the first use.
        Renderer(engine, self.rolling, self.errors).parts(View.of({}, self.renderer.features))
        self._watching: Counter[str] = Counter()
        self._stopping = asyncio.Event()
        # A stream ends before the limit on a request's time would cut it; the browser opens the next one at once. So a
        # token is checked every few seconds, and a server that stops waits no longer than that for a stream.
        self._stream_seconds = min(_STREAM_SECONDS, 0.8 * engine.config.limits.seconds)
        self._files = _files()
        self._version = hashlib.sha256(b"".join(content for content, _ in self._files.values())).hexdigest()[:12]

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of each address."""
        return [
            ("GET", "/", self.page),
            ("GET", "/verdict", self.verdict),
            ("POST", "/dashboard/session", self.sign_in),
            ("DELETE", "/dashboard/session", self.sign_out),
            ("GET", "/dashboard/session", self.session),
            ("GET", "/dashboard/events", self.events),
            ("GET", "/dashboard/arms", self.every_arm),
            ("GET", "/dashboard/{name}", self.file),
        ]

    def start(self) -> None:
        """Subscribe to the engine's events and to the process's log."""
        self.engine.listeners.append(self.rolling.take)
        logging.getLogger("sidelight.service").addHandler(self.errors)

    def end_streams(self) -> None:
        """End all streams at once, because the server is about to stop.  Call it in the event loop."""
        self._stopping.set()

    def stop(self) -> None:
        """Unsubscribe from engine and log, and end every stream."""
        self.end_streams()
        if self.rolling.take in self.engine.listeners:
            self.engine.listeners.remove(self.rolling.take)
        logging.getLogger("sidelight.service").removeHandler(self.errors)

    def allow(self, request: Request, scope: str) -> Token:
        """The token of a request, from its session cookie or bearer header, if it has the scope.

        Raises:
            Problem: 401 or 403.
        """
        if self.tokens.open:
            return EVERYBODY
        authorization = header(request, b"authorization")
        if authorization is not None:
            return self.tokens.check(authorization, scope)
        return self.tokens.require(self.sessions.token(request), scope)

    # ------------------------------------------------------------------------------------- handlers

    async def page(self, request: Request) -> Response:
        """GET and HEAD /: the dashboard, or the page to sign in."""
        try:
            token = self.allow(request, "read")
        except Problem:
            return _html(
                render("sign-in.html", title="Sign in – Sidelight", script="sign-in.js", version=self._version)
            )
        learner = self.engine.state.learner
        content = render(
            "dashboard.html",
            title="Sidelight",
            script="dashboard.js",
            version=self._version,
            package_version=__version__,
            modes=_MODES,
            features=self.renderer.features,
            n_arms=len(learner.arms),
            shown_arms=SHOWN,
            may_switch="admin" in token.scopes,
            has_ladder=self.engine.state.gate.settings.on,
            watcher=None if token is EVERYBODY else token.name,
        )
        return _html(content)

    async def verdict(self, request: Request) -> Response:
        """GET /verdict: what the evidence says, as a page to be shared."""
        self.allow(request, "read")
        engine, now = self.engine, time.time()
        rows = await engine.read(engine.store.of_kind, GateStep.kind)
        steps = [(row.at, event_from_row(row, 0)) for row in rows]
        content = verdict_page(
            engine.state.gate,
            [(at, step) for at, step in steps if isinstance(step, GateStep) and step.before != step.after],
            self.renderer.alarms(now),
            engine.schema.reward,
            engine.state.number,
            dt.datetime.fromtimestamp(now, dt.UTC),
            killed=engine.state.rails.killed,
        )
        # its style is in the page, so that it can be saved and sent on; it has no script
        policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
        return Response(
            content, headers=_HEADERS | {"Content-Security-Policy": policy}, media_type="text/html; charset=utf-8"
        )

    async def file(self, request: Request) -> Response:
        """GET /dashboard/{name}: a script, a style sheet, the icon; they hold nothing secret."""
        found = self._files.get(request.path_params["name"])
        if found is None:
            raise Problem("not-found", "the dashboard has no such file.")
        content, kind = found
        lasting = request.query_params.get("v") == self._version
        caching = "public, max-age=31536000, immutable" if lasting else "no-cache"
        return Response(content, headers=_HEADERS | {"Cache-Control": caching}, media_type=kind)

    async def sign_in(self, request: Request) -> Response:
        """POST /dashboard/session: a token in, a cookie out."""
        text = _READER.read("SignIn", await read_body(request, 1000), lambda message: message.token)
        token = self.tokens.check(b"Bearer " + text.strip().encode("utf-8", "replace"), "read")
        response = Response(status_code=204, headers=_HEADERS)
        self.sessions.open(token, request, response)
        return response

    async def sign_out(self, request: Request) -> Response:
        """DELETE /dashboard/session."""
        response = Response(status_code=204, headers=_HEADERS)
        self.sessions.close(request, response)
        return response

    async def session(self, request: Request) -> Response:
        """GET /dashboard/session: whether this browser may watch; no error, since the page asks when it is in doubt."""
        try:
            self.allow(request, "read")
        except Problem:
            may_watch = False
        else:
            may_watch = True
        return Response(json.dumps({"may_watch": may_watch}), headers=_HEADERS, media_type="application/json")

    async def every_arm(self, request: Request) -> Response:
        """GET /dashboard/arms: the table of all arms."""
        self.allow(request, "read")
        return _html(self.renderer.every_arm(View.of(request.query_params, self.renderer.features)))

    async def events(self, request: Request) -> Response:
        """GET /dashboard/events: a stream of the parts that changed."""
        token = self.allow(request, "read")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            # Such a page could not read the stream, but it could use up the limit on viewers.
            raise Problem("no-token", "a page of another origin may not watch.")
        if self._watching.total() >= _VIEWERS:
            raise Problem("overloaded", f"{_VIEWERS} people watch already; try again later.")
        if token is not EVERYBODY and self._watching[token.id] >= _VIEWERS_PER_TOKEN:
            raise Problem("overloaded", f"{_VIEWERS_PER_TOKEN} people watch with this token already; try again later.")
        view = View.of(request.query_params, self.renderer.features)
        headers = _HEADERS | {"X-Accel-Buffering": "no"}
        return _Watched(self._watching, token.id, self._stream(view, token), headers)

    async def _stream(self, view: View, token: Token) -> AsyncIterator[str]:
        yield "retry: 200\n\n"
        end = time.monotonic() + self._stream_seconds
        sent: dict[str, Any] = {}
        while True:
            now = self.renderer.parts(view) | {"state": self._state(token)}
            changed = {name: part for name, part in now.items() if sent.get(name) != part}
            if changed:
                yield f"data: {json.dumps(changed, ensure_ascii=False)}\n\n"
                sent = now
            left = end - time.monotonic()
            if left <= 0 or self._stopping.is_set():
                return
            await self._pause(min(_PUSH_SECONDS, left))

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    def _state(self, token: Token) -> dict[str, Any]:
        return {**self.engine.state.rails.to_dict(), "may_switch": "admin" in token.scopes}


class _Watched(StreamingResponse):
    """A streaming response that counts towards the limits on streams from when it is granted until it ends."""

    def __init__(self, watching: Counter[str], who: str, content: AsyncIterator[str], headers: dict[str, str]) -> None:
        super().__init__(content, headers=headers, media_type="text/event-stream")
        self._watching, self._who = watching, who
        watching[who] += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, and decrement the token's count when it ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._watching[self._who] -= 1


def _html(content: str) -> Response:
    return Response(content, headers=_HEADERS, media_type="text/html; charset=utf-8")


def _files() -> dict[str, tuple[bytes, str]]:
    """File name → content and media type; the style sheet's colours are those of ``drawing``."""
    folder = resources.files("sidelight.service.dashboard") / "files"

    def read(name: str) -> str:
        return (folder / name).read_text("utf-8")

    colours = (
        f":root {{ {variables('light')} {ramp_variables('light')} --font: {FONT}; }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {variables('dark')} {ramp_variables('dark')} }} }}\n"
    )
    script, plain = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
    return {
        "dashboard.js": (read("dashboard.js").encode(), script),
        "sign-in.js": (read("sign-in.js").encode(), script),
        "style.css": ((colours + read("style.css")).encode(), plain),
        "icon.svg": (read("icon.svg").encode(), "image/svg+xml"),
    }
