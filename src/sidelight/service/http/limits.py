"""Limits on concurrent requests and on their time; and which hosts a service without tokens answers.

``guarded`` limits connections, before there is a request; ``Guard`` wraps the application.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

from sidelight.service.http.guarded import ALWAYS
from sidelight.service.metrics import Metrics
from sidelight.service.problems import MEDIA_TYPE, Problem, ambiguous
from sidelight.service.sections import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard", "local_host"]


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


class Guard:
    """ASGI middleware that sheds load, checks the ``Host``, enforces the deadline and counts requests.

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
        if self.running >= self.limits.concurrency and scope["path"] not in ALWAYS:
            self.metrics.shed.inc()
            problem = Problem("overloaded", f"more than {self.limits.concurrency} requests at once; try again later.")
            await send_problem(problem, send)
            return
        started = time.perf_counter()
        status = 0
        # A request without a body is there as soon as its headers are.
        arrived = True
        hosts: list[bytes] = []
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name in (b"content-length", b"transfer-encoding"):
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
            if len(hosts) > 1:
                raise ambiguous(b"host")
            if not self.host_allowed(hosts[0] if hosts else None):
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
    """Answer with a problem by plain ASGI messages, without the framework."""
    body = problem.body()
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in problem.headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
