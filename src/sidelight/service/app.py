"""The HTTP application, a thin layer: it checks tokens, reads requests, calls the engine and writes responses."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sidelight.errors import StoreError
from sidelight.labels import Label, label_to_json
from sidelight.linalg import Array
from sidelight.logs.schema.units import units_to_json
from sidelight.service.core.deciding import Ask
from sidelight.service.core.engine import Engine
from sidelight.service.core.fold import State
from sidelight.service.core.server import Noted
from sidelight.service.core.teaching import LEARNER_ERRORS
from sidelight.service.dashboard.alarms import ALARMS
from sidelight.service.dashboard.routes import Dashboard
from sidelight.service.http.auth import EVERYBODY, Token, Tokens, list_tokens
from sidelight.service.http.bodies import Bodies, to_json
from sidelight.service.http.description import ENDPOINTS, describe
from sidelight.service.http.limits import Guard, local_host
from sidelight.service.http.messages import Messages
from sidelight.service.http.responses import (
    JSON,
    answer_failure,
    answer_http,
    answer_problem,
    json_response,
    noted_response,
    said_of,
)
from sidelight.service.http.rules import LabelSet
from sidelight.service.http.seldom import Seldom
from sidelight.service.http.wire import header, read_body
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Configuration
from sidelight.service.log.rows import is_deleted
from sidelight.service.problems import Problem, invalid, unknown_decision
from sidelight.service.views.explain import explain, score
from sidelight.service.views.history import describe_history, read_history
from sidelight.service.views.quarantine import describe_quarantine
from sidelight.service.views.status import describe_engine

__all__ = ["create_app"]

logger = logging.getLogger("sidelight.service")

T = TypeVar("T")

#: seconds between two reads of the tokens: a revoked one stops working within this time
_TOKENS_SECONDS = 1.0
#: bodies of more bytes are read in a thread, so that small ones do not wait for them
_LARGE_BODY = 32_768


class Service:
    """The request handlers of one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        config = engine.config
        self.limits = config.limits
        self.arms = LabelSet(engine.state.learner.arms)
        messages = Messages(engine.schema, self.arms, engine.state.learner.needs, config.limits)
        self.bodies = Bodies(messages)
        self.description = to_json(describe(messages, config.limits))
        self.tokens = Tokens(list_tokens(engine.store), config.loopback)
        self.dashboard = Dashboard(engine, self.tokens)
        self.digest = Seldom(engine.digest, lambda: engine.state.number)
        self.workers = ThreadPoolExecutor(2, thread_name_prefix="sidelight-work")

    # -------------------------------------------------------------------------------------- common

    def allow(self, request: Request, scope: str | None) -> Token:
        """The token of a request, if it has the scope."""
        if self.tokens.open:
            return EVERYBODY
        return self.tokens.check(header(request, b"authorization"), scope)

    def body(self, request: Request) -> Awaitable[bytes]:
        """The bytes of a request's body."""
        return read_body(request, self.limits.body_bytes)

    async def read(self, convert: Callable[[bytes], T], content: bytes) -> T:
        """The result of ``convert`` for a body: computed here if it is small, in a thread if it is large."""
        return convert(content) if len(content) <= _LARGE_BODY else await self.aside(convert, content)

    async def aside(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a slow function that does not touch the engine, run in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.workers, function, *arguments)

    def idempotency(self, request: Request, token: Token, content: bytes) -> tuple[str | None, str | None]:
        """The idempotency key, if there is one, and the request's fingerprint."""
        value = header(request, b"idempotency-key")
        if value is None:
            return None, None
        if not 0 < len(value) <= 200 or not all(33 <= byte <= 126 for byte in value):
            remedy = "Use 1 to 200 visible ASCII characters"
            raise Problem(
                "invalid",
                "Idempotency-Key must have 1 to 200 visible ASCII characters; a random UUID is a good one.",
                errors=[{"pointer": "", "detail": "Idempotency-Key is not a key", "remedy": remedy}],
            )
        key = hashlib.sha256(value).hexdigest()
        path = request.scope["path"].encode()
        return f"once:{token.id}:{key}", hashlib.sha256(path + b"\0" + content).hexdigest()

    async def watch_tokens(self) -> None:
        """Reload the tokens periodically, so that new ones work and revoked ones stop; it never returns."""
        while True:
            await asyncio.sleep(_TOKENS_SECONDS)
            try:
                tokens = await asyncio.get_running_loop().run_in_executor(None, list_tokens, self.engine.store)
            except StoreError as error:
                logger.warning("tokens cannot be read: %s", error)
            except Exception:
                # any exception: if this task ended, tokens could no longer be revoked
                logger.exception("tokens cannot be read")
            else:
                self.tokens.refresh(tokens)

    def host_allowed(self, host: bytes | None) -> bool:
        """Whether a request to this ``Host`` is answered: without tokens only this machine (against DNS rebinding)."""
        if not self.tokens.open:
            return True
        return local_host(host)

    # ----------------------------------------------------------------------------------- decisions

    async def decide(self, request: Request) -> Response:
        """POST /v1/decisions."""
        token = self.allow(request, "decide")
        content = await self.body(request)
        read = self.bodies.decision
        X, asks = read(content) if len(content) <= _LARGE_BODY else await self.aside(read, content)
        number, event, new = await self.engine.decide(X, asks, *self.idempotency(request, token, content))
        return json_response(self.bodies.decided(number, event)[0], 201 if new else 200)

    async def decide_batch(self, request: Request) -> Response:
        """POST /v1/decisions/batch."""
        token = self.allow(request, "decide")
        content = await self.body(request)

        def read(content: bytes) -> tuple[Array, list[Ask] | None, str | None, str | None]:
            return *self.bodies.decisions(content), *self.idempotency(request, token, content)

        number, event, new = await self.engine.decide(*await self.read(read, content))
        return json_response({"decisions": self.bodies.decided(number, event)}, 201 if new else 200)

    async def read_decision(self, request: Request) -> Response:
        """GET /v1/decisions/{id}."""
        self.allow(request, "read")
        if request.path_params["id"] == "batch":
            raise HTTPException(405)
        id = _decision_id(request.path_params["id"])
        event = await self.engine.decision(id)
        history = await self.engine.read(read_history, self.engine.store, id, self.engine.schema.n_features)
        body: dict[str, Any] = msgspec.to_builtins(self.bodies.decided(id.number, event)[id.position])
        x = event.contexts[id.position]
        deleted = is_deleted(x)
        allowed = None if event.allowed is None else event.allowed[id.position]
        body["context"] = None if deleted else units_to_json(x, self.engine.schema)
        body["allowed"] = None if allowed is None else [label_to_json(arm) for arm in allowed]
        body["subject"] = None if event.subjects is None else event.subjects[id.position]
        body |= describe_history(history, None if event.answers is None else event.answers[id.position])
        body["explanation"] = None
        if not deleted:
            try:
                look = functools.partial(_score_at, x)
                scored, version, exact = await self.engine.past.look_at(event.version, look)
            except LEARNER_ERRORS as error:
                if isinstance(error, Problem):
                    raise
                logger.error("decision %s cannot be explained: %s", id, type(error).__name__, exc_info=error)
            else:
                arms = await self.aside(explain, scored, self.engine.schema, x, allowed)
                body["explanation"] = {"as_of_version": version, "exact": exact, "arms": arms}
        return Response(await self.aside(to_json, body), media_type=JSON)

    # ------------------------------------------------------------------------------- what follows

    async def reward(self, request: Request) -> Response:
        """POST /v1/decisions/{id}/reward."""
        self.allow(request, "reward")
        id = _decision_id(request.path_params["id"])
        content = await self.body(request)
        return noted_response(id, await self.engine.reward(id, *await self.read(self.bodies.reward, content)))

    async def rewards(self, request: Request) -> Response:
        """POST /v1/rewards."""
        self.allow(request, "reward")
        items = await self.read(self.bodies.rewards, await self.body(request))

        async def note(id: str, reward: float, arm: Label | None, by: str | None) -> Noted:
            return await self.engine.reward(_decision_id(id), reward, arm, by)

        outcomes = await asyncio.gather(*(note(*item) for item in items), return_exceptions=True)
        results: list[dict[str, Any]] = []
        for (id, *_), outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, Problem):
                if outcome.status >= 500:
                    raise outcome
                results.append({"decision": id, "problem": outcome.content()})
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                results.append({"decision": id, **said_of(outcome)})
        return json_response({"results": results})

    async def action(self, request: Request) -> Response:
        """POST /v1/decisions/{id}/action."""
        self.allow(request, "reward")
        id = _decision_id(request.path_params["id"])
        content = await self.body(request)
        return noted_response(id, await self.engine.action(id, *await self.read(self.bodies.action, content)))

    async def behavior(self, request: Request) -> Response:
        """POST /v1/decisions/{id}/behavior."""
        self.allow(request, "reward")
        id = _decision_id(request.path_params["id"])
        content = await self.body(request)
        return noted_response(id, await self.engine.behavior(id, await self.read(self.bodies.answer, content)))

    async def behavior_at(self, request: Request) -> Response:
        """POST /v1/behavior."""
        token = self.allow(request, "reward")
        content = await self.body(request)
        x, answer = await self.read(self.bodies.behavior_at, content)
        return noted_response(
            None, await self.engine.behavior_at(x, answer, *self.idempotency(request, token, content))
        )

    # ------------------------------------------------------------------- retraction and quarantine

    async def retract(self, request: Request) -> Response:
        """POST /v1/decisions/{id}/retraction; with a token, or from the dashboard."""
        token = self.dashboard.allow(request, "admin")
        id = _decision_id(request.path_params["id"])
        reason, what = await self.read(self.bodies.retraction, await self.body(request))
        return noted_response(id, await self.engine.reviews.retract(id, token.name, reason, what))

    async def quarantine(self, request: Request) -> Response:
        """GET /v1/quarantine."""
        self.allow(request, "read")
        engine = self.engine
        waiting = engine.state.quarantine.copy()
        return json_response(await engine.read(describe_quarantine, engine.store, waiting, engine.schema.n_features))

    async def review(self, request: Request) -> Response:
        """POST /v1/quarantine/{event}; with a token, or from the dashboard."""
        token = self.dashboard.allow(request, "admin")
        id = DecisionId.parse(request.path_params["event"])
        release, reason = await self.read(self.bodies.review, await self.body(request))
        if id is None:
            raise Problem("unknown-event", "that is not an id: use one from GET /v1/quarantine.")
        return noted_response(None, await self.engine.reviews.decide_doubt(id, release, token.name, reason))

    # -------------------------------------------------------------------------------- the service

    async def status(self, request: Request) -> Response:
        """GET /v1/status."""
        self.allow(request, "read")
        odd = [alarm._asdict() for alarm in self.dashboard.renderer.alarms(time.time())]
        return json_response({**describe_engine(self.engine), "alarms": odd})

    async def state(self, request: Request) -> Response:
        """GET /v1/state."""
        self.allow(request, "read")
        return json_response(await self.digest.now())

    async def schema(self, request: Request) -> Response:
        """GET /v1/schema."""
        self.allow(request, None)
        return json_response(
            {
                "features": [feature.to_dict() for feature in self.engine.schema.features],
                "encoded": list(self.engine.schema.encoded_names),
                "arms": self.arms.json,
                "needs": self.engine.state.learner.needs,
            }
        )

    async def set_mode(self, request: Request) -> Response:
        """POST /v1/mode; with a token, or from the dashboard."""
        token = self.dashboard.allow(request, "admin")
        changes = await self.read(self.bodies.rails, await self.body(request))
        if changes.get("explore") and self.engine.state.learner.ledger is not None:
            raise invalid(
                "/explore",
                "is refused under a floor, which arms that are drawn evenly would break",
                "Leave it at 0, or take the floor out of [learner.settings]",
            )
        number = await self.engine.configure(Configuration(**changes, by=token.name))
        return json_response({"event": number, "rails": self.engine.state.rails.to_dict()})

    async def gate(self, request: Request) -> Response:
        """POST /v1/gate; with a token, or from the dashboard."""
        token = self.dashboard.allow(request, "admin")
        step, hold, seen = await self.read(self.bodies.gate, await self.body(request))
        rung = self.engine.state.gate.rung
        after = {None: None, "up": rung + 1, "down": rung - 1, "off": -1}[step]
        number = (await self.engine.reviews.step(after, hold, token.name, seen)).number
        return json_response({"event": number, "rails": self.engine.state.rails.to_dict()})

    async def kill(self, request: Request) -> Response:
        """POST /v1/kill; with a token, or from the dashboard."""
        token = self.dashboard.allow(request, "admin")
        killed = await self.read(self.bodies.switch, await self.body(request))
        number = await self.engine.configure(Configuration(killed=killed, by=token.name))
        logger.warning("kill switch: %s, by %s", self.engine.state.rails.killed, token.name)
        return json_response({"event": number, "rails": self.engine.state.rails.to_dict()})

    async def live(self, request: Request) -> Response:
        """GET /health/live."""
        return json_response({"live": True})

    async def ready(self, request: Request) -> Response:
        """GET /health/ready."""
        engine = self.engine
        if engine.why_not_ready() is not None:
            # No token is needed here, so the answer has no paths and no addresses; /v1/status has, for the scope read.
            raise Problem("storage", "the event log cannot be used; GET /v1/status says why, to who may read it.")
        if not engine.ready:
            raise Problem("starting", "the service is starting or stopping.")
        return json_response({"ready": True, "event": engine.state.number})

    async def metrics(self, request: Request) -> Response:
        """GET /metrics."""
        self.allow(request, "read")
        # set here as well: a server that waits for a database that hangs is not ready, although nothing has failed yet
        self.engine.metrics.ready.set(self.engine.ready)
        gate = self.engine.state.gate
        self.engine.metrics.gate_stands(gate.evidence())
        odd = {alarm.kind for alarm in self.dashboard.renderer.alarms(time.time())}
        for kind in ALARMS:
            self.engine.metrics.alarms.labels(kind).set(kind in odd)
        ledger = self.engine.state.learner.ledger
        self.engine.metrics.floor_room.set(math.nan if ledger is None else ledger.total)
        return Response(self.engine.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, request: Request) -> Response:
        """GET /openapi.json."""
        self.allow(request, None)
        return Response(self.description, media_type=JSON)


def _score_at(x: Array, state: State) -> Any:
    return score(state.learner, x)


class _Shortcut:
    """ASGI middleware inside ``Guard``: requests whose address has no parameters go straight to their handlers.

    Starlette would compare the address with one route after another and catch the handler's exceptions twice, although
    ``Guard`` answers problems. For a decision this saves a tenth of the processor time of the whole request.

    Args:
        app: Starlette's router, which has all other requests.
        routes: all routes.
    """

    def __init__(self, app: ASGIApp, routes: list[Route]) -> None:
        self._app = app
        plain = [route for route in reversed(routes) if not route.param_convertors]
        self._found = {(method, route.path): route for route in plain for method in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._found.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        response = await route.endpoint(Request(scope, receive))
        await response(scope, receive, send)


def create_app(engine: Engine) -> Starlette:
    """The application of an engine."""
    service = Service(engine)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        service.dashboard.start()
        await engine.start()
        watcher = asyncio.create_task(service.watch_tokens())
        try:
            yield
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
            await engine.stop(timeout=engine.config.limits.seconds)
            service.dashboard.stop()
            service.workers.shutdown(wait=False, cancel_futures=True)

    routes = [Route(e.path, getattr(service, e.handler), methods=[e.method]) for e in ENDPOINTS]
    routes += [Route(path, handler, methods=[method]) for method, path, handler in service.dashboard.routes()]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={Problem: answer_problem, HTTPException: answer_http, Exception: answer_failure},
        middleware=[
            Middleware(Guard, limits=service.limits, metrics=engine.metrics, host_allowed=service.host_allowed),
            Middleware(_Shortcut, routes=routes),
        ],
    )
    app.state.service = service
    return app


def _decision_id(text: str) -> DecisionId:
    id = DecisionId.parse(text)
    if id is None:
        raise unknown_decision(text[:40])
    return id
