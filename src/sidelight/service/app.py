"""The HTTP application: thin.  Reads, checks who asks, hands over to the engine, answers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sidelight.errors import StoreError
from sidelight.labels import label_to_json
from sidelight.logs.schema.units import units_to_json
from sidelight.service.core.contexts import ContextReader, Labels
from sidelight.service.core.engine import Engine, unknown_decision
from sidelight.service.core.fold import LEARNER_ERRORS
from sidelight.service.dashboard.routes import Dashboard
from sidelight.service.http.auth import EVERYBODY, Token, Tokens, list_tokens
from sidelight.service.http.bodies import Bodies
from sidelight.service.http.description import describe
from sidelight.service.http.limits import Guard
from sidelight.service.http.wire import parse, read_body
from sidelight.service.log.events import Configuration, DecisionId
from sidelight.service.problems import MEDIA_TYPE, Problem
from sidelight.service.views.explain import explain
from sidelight.service.views.history import describe_history

__all__ = ["create_app"]

logger = logging.getLogger("sidelight.service")

_JSON = "application/json"
#: a revoked token stops working within this time
_TOKENS_SECONDS = 1.0


class Service:
    """The request handlers of one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        config = engine.config
        self.limits = config.limits
        self.reader = ContextReader(engine.schema, config.limits.largest_number)
        self.arms = Labels(engine.state.learner.arms)
        self.bodies = Bodies(self.reader, self.arms, engine.state.learner.needs, config.limits)
        self.tokens = Tokens(list_tokens(engine.store), config.loopback)
        self.dashboard = Dashboard(engine, self.tokens)

    # -------------------------------------------------------------------------------------- common

    def allow(self, request: Request, scope: str | None) -> Token:
        """The token of a request, if it has the scope."""
        if self.tokens.open:
            return EVERYBODY
        authorization = None
        for name, value in request.scope["headers"]:
            if name == b"authorization":
                authorization = value
        return self.tokens.check(authorization, scope)

    async def body(self, request: Request) -> tuple[Any, bytes]:
        """The JSON of a request, and its bytes."""
        content = await read_body(request, self.limits.body_bytes)
        return parse(content), content

    def idempotency(self, request: Request, token: Token, content: bytes) -> tuple[str | None, str | None]:
        """The idempotency key, if there is one, and the request's fingerprint."""
        for name, value in request.scope["headers"]:
            if name == b"idempotency-key":
                if not 0 < len(value) <= 200 or not all(33 <= byte <= 126 for byte in value):
                    raise Problem(
                        "invalid",
                        "Idempotency-Key must have 1 to 200 visible ASCII characters; a random UUID is a good one.",
                        errors=[
                            {
                                "pointer": "",
                                "detail": "Idempotency-Key is not a key",
                                "remedy": "Use 1 to 200 visible ASCII characters",
                            }
                        ],
                    )
                key = hashlib.sha256(value).hexdigest()
                path = request.scope["path"].encode()
                return f"once:{token.id}:{key}", hashlib.sha256(path + b"\0" + content).hexdigest()
        return None, None

    async def watch_tokens(self) -> None:
        """Take over tokens that were made or revoked, for ever."""
        while True:
            await asyncio.sleep(_TOKENS_SECONDS)
            try:
                tokens = await asyncio.get_running_loop().run_in_executor(None, list_tokens, self.engine.store)
            except StoreError as error:
                logger.warning("tokens cannot be read: %s", error)
            else:
                self.tokens.refresh(tokens)

    def host_allowed(self, host: bytes | None) -> bool:
        """Without tokens only requests addressed to this machine, so that a web page elsewhere cannot pose as one."""
        if not self.tokens.open:
            return True
        name = (host or b"").decode("latin-1").lower()
        name = name[1 : name.rfind("]")] if name.startswith("[") else name.partition(":")[0]
        if name in ("", "localhost"):
            return True
        try:
            # As a number, not as text: 127.example.org is a name that anybody can let point here.
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

    # ----------------------------------------------------------------------------------- decisions

    async def decide(self, request: Request) -> Response:
        """POST /v1/decisions."""
        token = self.allow(request, "decide")
        body, content = await self.body(request)
        X, asks = self.bodies.decision(body)
        number, event, new = await self.engine.decide(X, asks, *self.idempotency(request, token, content))
        return Response(self.bodies.decided(number, event)[0], 201 if new else 200, media_type=_JSON)

    async def decide_batch(self, request: Request) -> Response:
        """POST /v1/decisions/batch."""
        token = self.allow(request, "decide")
        body, content = await self.body(request)
        X, asks = self.bodies.decisions(body)
        number, event, new = await self.engine.decide(X, asks, *self.idempotency(request, token, content))
        text = '{"decisions":[' + ",".join(self.bodies.decided(number, event)) + "]}"
        return Response(text, 201 if new else 200, media_type=_JSON)

    async def read_decision(self, request: Request) -> Response:
        """GET /v1/decisions/{id}."""
        self.allow(request, "read")
        if request.path_params["id"] == "batch":
            raise HTTPException(405, headers={"Allow": "POST"})
        id = _decision_id(request)
        event = await self.engine.decision(id)
        history = await self.engine.history(id)
        body: dict[str, Any] = json.loads(self.bodies.decided(id.number, event)[id.position])
        x = event.contexts[id.position]
        deleted = bool(x[0] != x[0])
        allowed = None if event.allowed is None else event.allowed[id.position]
        body["context"] = None if deleted else units_to_json(x, self.engine.schema)
        body["allowed"] = None if allowed is None else [label_to_json(arm) for arm in allowed]
        body["subject"] = None if event.subjects is None else event.subjects[id.position]
        body |= describe_history(history, None if event.answers is None else event.answers[id.position])
        body["explanation"] = None
        if not deleted:
            state = await self.engine.state_at(event.version)
            exact = state is not None
            learner = (state or self.engine.state).learner
            try:
                arms = explain(learner, self.engine.schema, x, allowed)
            except LEARNER_ERRORS as error:
                logger.error("decision %s cannot be explained: %s", id, type(error).__name__, exc_info=error)
            else:
                version = event.version if exact else self.engine.state.version
                body["explanation"] = {"as_of_version": version, "exact": exact, "arms": arms}
        return _json(body)

    # ------------------------------------------------------------------------------- what follows

    async def reward(self, request: Request) -> Response:
        """POST /v1/decisions/{id}/reward."""
        self.allow(request, "reward")
        id = _decision_id(request)
        body, _ = await self.body(request)
        number, new = await self.engine.reward(id, *self.bodies.reward(body))
        return _noted(id, number, new)

    async def rewards(self, request: Request) -> Response:
        """POST /v1/rewards."""
        self.allow(request, "reward")
        body, _ = await self.body(request)
        items = self.bodies.rewards(body)
        outcomes = await asyncio.gather(*(self.engine.reward(*item) for item in items), return_exceptions=True)
        results: list[dict[str, Any]] = []
        for (id, *_), outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, Problem):
                if outcome.status >= 500:
                    raise outcome
                results.append({"decision": str(id), "problem": json.loads(outcome.body())})
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                results.append({"decision": str(id), "event": outcome[0], "repeated": not outcome[1]})
        return _json({"results": results})

    async def action(self, request: Request) -> Response:
        """POST /v1/decisions/{id}/action."""
        self.allow(request, "reward")
        id = _decision_id(request)
        body, _ = await self.body(request)
        number, new = await self.engine.action(id, *self.bodies.action(body))
        return _noted(id, number, new)

    async def behavior(self, request: Request) -> Response:
        """POST /v1/decisions/{id}/behavior."""
        self.allow(request, "reward")
        id = _decision_id(request)
        body, _ = await self.body(request)
        number, new = await self.engine.behavior(id, self.bodies.answer(body, ""))
        return _noted(id, number, new)

    async def behavior_at(self, request: Request) -> Response:
        """POST /v1/behavior."""
        token = self.allow(request, "reward")
        body, content = await self.body(request)
        x, answer = self.bodies.behavior_at(body)
        number, new = await self.engine.behavior_at(x, answer, *self.idempotency(request, token, content))
        return _json({"event": number, "repeated": not new}, 201 if new else 200)

    # -------------------------------------------------------------------------------- the service

    async def status(self, request: Request) -> Response:
        """GET /v1/status."""
        self.allow(request, "read")
        return _json(self.engine.status())

    async def state(self, request: Request) -> Response:
        """GET /v1/state."""
        self.allow(request, "read")
        return _json(self.engine.digest())

    async def schema(self, request: Request) -> Response:
        """GET /v1/schema."""
        self.allow(request, None)
        return _json(
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
        body, _ = await self.body(request)
        number = await self.engine.configure(Configuration(**self.bodies.rails(body), by=token.name))
        return _json({"event": number, "rails": self.engine.state.rails.to_dict()})

    async def kill(self, request: Request) -> Response:
        """POST /v1/kill; with a token, or from the dashboard."""
        token = self.dashboard.allow(request, "admin")
        body, _ = await self.body(request)
        number = await self.engine.configure(Configuration(killed=self.bodies.switch(body), by=token.name))
        logger.warning("kill switch: %s, by %s", self.engine.state.rails.killed, token.name)
        return _json({"event": number, "rails": self.engine.state.rails.to_dict()})

    async def live(self, request: Request) -> Response:
        """GET /health/live."""
        return _json({"live": True})

    async def ready(self, request: Request) -> Response:
        """GET /health/ready."""
        engine = self.engine
        if engine.error is not None:
            raise Problem("storage", str(engine.error))
        if not engine.ready:
            raise Problem("starting", "the service is starting or stopping.")
        return _json({"ready": True, "event": engine.state.number})

    async def metrics(self, request: Request) -> Response:
        """GET /metrics."""
        self.allow(request, "read")
        return Response(self.engine.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, request: Request) -> Response:
        """GET /openapi.json."""
        self.allow(request, None)
        return _json(request.app.openapi())


def create_app(engine: Engine) -> FastAPI:
    """The application of an engine."""
    service = Service(engine)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.dashboard.start()
        await engine.start()
        watcher = asyncio.create_task(service.watch_tokens())
        try:
            yield
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
            await engine.stop()
            service.dashboard.stop()

    # The pages FastAPI would serve for browsing load scripts from elsewhere, so they are off.
    app = FastAPI(title="Sidelight", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    for method, path, handler in (
        ("POST", "/v1/decisions", service.decide),
        ("POST", "/v1/decisions/batch", service.decide_batch),
        ("GET", "/v1/decisions/{id}", service.read_decision),
        ("POST", "/v1/decisions/{id}/reward", service.reward),
        ("POST", "/v1/decisions/{id}/action", service.action),
        ("POST", "/v1/decisions/{id}/behavior", service.behavior),
        ("POST", "/v1/rewards", service.rewards),
        ("POST", "/v1/behavior", service.behavior_at),
        ("GET", "/v1/status", service.status),
        ("GET", "/v1/state", service.state),
        ("GET", "/v1/schema", service.schema),
        ("POST", "/v1/mode", service.set_mode),
        ("POST", "/v1/kill", service.kill),
        ("GET", "/health/live", service.live),
        ("GET", "/health/ready", service.ready),
        ("GET", "/metrics", service.metrics),
        ("GET", "/openapi.json", service.openapi),
        *service.dashboard.routes(),
    ):
        app.add_api_route(path, handler, methods=[method], response_class=Response, response_model=None)
    description = describe(service.reader, service.arms, engine.state.learner.needs, engine.config.limits)
    app.openapi = lambda: description  # type: ignore[method-assign]
    app.add_exception_handler(Problem, _answer_problem)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer_failure)
    app.add_middleware(Guard, limits=service.limits, metrics=engine.metrics, host_allowed=service.host_allowed)
    app.state.service = service
    return app


async def _answer_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE)


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path[:80]
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow") or ", ".join(_methods(request))
        problem = Problem("method-not-allowed", f"{path} takes {allowed}.", headers={"Allow": allowed})
    else:
        problem = Problem("not-found", f"there is nothing at {path}. /openapi.json lists every address.")
    return Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE)


def _methods(request: Request) -> list[str]:
    found: set[str] = set()
    for route in request.app.routes:
        match, _ = route.matches(request.scope)
        if match.value:
            found |= set(route.methods or ())
    return sorted(found)


async def _answer_failure(request: Request, error: Exception) -> Response:
    problem = Problem("internal", "something went wrong here, and it was logged. It is not your request's fault.")
    return Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE)


def _decision_id(request: Request) -> DecisionId:
    text = request.path_params["id"]
    id = DecisionId.parse(text)
    if id is None:
        raise unknown_decision(text[:40])
    return id


def _json(body: Any, status: int = 200) -> Response:
    return Response(json.dumps(body, ensure_ascii=False, allow_nan=False).encode(), status, media_type=_JSON)


def _noted(id: DecisionId, number: int, new: bool) -> Response:
    return _json({"decision": str(id), "event": number, "repeated": not new}, 201 if new else 200)
