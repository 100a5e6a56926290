"""Limits on what a client may cost: headers, connections, requests at once, time.

``GuardedProtocol`` sits below HTTP parsing, where a request does not exist yet; ``Guard`` sits around the application.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sidelight.service.metrics import Metrics
from sidelight.service.problems import MEDIA_TYPE, Problem
from sidelight.service.sections import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard", "guarded_protocol", "local_host"]

#: what is answered even when there is too much to do: above all, the learner can be stopped then
_ALWAYS = ("/health/live", "/health/ready", "/metrics", "/v1/kill")


#: a name or an IPv4 address, or an IPv6 address in brackets; then perhaps a port, and nothing else
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<name>[^\[\]:]*))(?::[0-9]{0,5})?")


def local_host(host: bytes | None) -> bool:
    """Whether a ``Host`` header names this machine: localhost or a loopback address, in the one way to write it."""
    found = _HOST.fullmatch((host or b"").decode("latin-1"))
    if found is None:
        return False
    name = (found["six"] or found["name"]).lower()
    if name in ("", "localhost"):
        return True
    try:
        # As a number, not as text: 127.example.org is a name that anybody can let point here.
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def guarded_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """Uvicorn's HTTP protocol with limits on headers: their size, and the time they take to arrive."""

    class GuardedProtocol(HttpToolsProtocol):
        """Refuses headers that are too long or never end."""

        _in_headers = True
        _received = 0
        _refused = False
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > 4 * limits.concurrency:
                self._refuse("overloaded", "too many connections are open; try again later.")
                return
            self._timer = self.loop.call_later(limits.seconds, self._too_slow)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._refused:
                return
            self._received += len(data)
            super().data_received(data)
            if not self._in_headers or self._refused or self.transport.is_closing():
                return
            if self._received > limits.header_bytes:
                self._too_long()
            elif self._timer is None and self._received:
                self._timer = self.loop.call_later(limits.seconds, self._too_slow)

        def on_message_begin(self) -> None:
            self._in_headers = True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_headers = False
            self._received = 0
            self._stop_timer()
            if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > limits.header_bytes:
                self._too_long()
                return
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if not self._refused:
                super().on_body(body)

        def on_message_complete(self) -> None:
            # Until the next request begins, bytes that come in count as its headers.
            self._in_headers = True
            self._received = 0
            if not self._refused:
                super().on_message_complete()

        def send_400_response(self, msg: str) -> None:
            self._refuse("malformed", "this is not HTTP/1.1 that can be read.")

        def _too_long(self) -> None:
            self._refuse("headers-too-large", f"headers may have at most {limits.header_bytes} bytes.")

        def _too_slow(self) -> None:
            self._timer = None
            if self._received and not self.transport.is_closing():
                self._refuse("timeout", f"the headers did not arrive within {limits.seconds:g} seconds.")
            else:
                self.transport.close()

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _refuse(self, kind: str, detail: str) -> None:
            self._refused = True
            self._stop_timer()
            problem = Problem(kind, detail)
            body = problem.body()
            headers = {
                "content-type": MEDIA_TYPE,
                "content-length": str(len(body)),
                "connection": "close",
                **problem.headers,
            }
            lines = [f"HTTP/1.1 {problem.status} {problem.kind}", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
            self.transport.write("\r\n".join(lines).encode("latin-1") + body)
            self.transport.close()

    return GuardedProtocol


class Guard:
    """Around the application: sheds load, limits time, counts.

    Args:
        app: the application.
        limits: the limits.
        metrics: where to count.
        host_allowed: says whether a request to this ``Host`` may be answered.
    """

    def __init__(
        self, app: ASGIApp, limits: Limits, metrics: Metrics, host_allowed: Callable[[bytes | None], bool]
    ) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.host_allowed = host_allowed
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        if self.running >= self.limits.concurrency and scope["path"] not in _ALWAYS:
            self.metrics.shed.inc()
            problem = Problem("overloaded", f"more than {self.limits.concurrency} requests at once; try again later.")
            await send_problem(problem, send)
            return
        started = time.perf_counter()
        status = 0
        arrived = False

        async def counting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        async def noticing() -> Message:
            nonlocal arrived
            message = await receive()
            arrived = not message.get("more_body", False)
            return message

        self.running += 1
        try:
            host = next((value for name, value in scope["headers"] if name == b"host"), None)
            if not self.host_allowed(host):
                raise Problem(
                    "host-not-allowed", "there are no tokens, so only requests addressed to localhost are answered."
                )
            async with asyncio.timeout(self.limits.seconds):
                await self.app(scope, noticing, counting)
        except Problem as problem:
            await send_problem(problem, counting)
        except TimeoutError:
            if status == 0:
                await send_problem(self._late(arrived), counting)
        except ClientDisconnect:
            status = 499
        finally:
            self.running -= 1
            route = scope.get("route")
            name = "unmatched" if route is None else route.path
            self.metrics.answered(name, status or 500, time.perf_counter() - started)

    def _late(self, arrived: bool) -> Problem:
        seconds = f"{self.limits.seconds:g} seconds"
        if not arrived:
            return Problem("timeout", f"the body did not arrive within {seconds}.", headers={"Connection": "close"})
        return Problem(
            "slow",
            f"this took more than {seconds} and may or may not have been done. Retry with the same Idempotency-Key.",
        )


async def send_problem(problem: Problem, send: Any) -> None:
    """Answer with a problem, below any framework."""
    body = problem.body()
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in problem.headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
