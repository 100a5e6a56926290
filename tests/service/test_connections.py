"""What a connection may cost before anybody knows who it is: requests sent ahead, slow bodies, places."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl

import sidelight as sl
from sidelight.service.config import initial_config, save_config
from sidelight.service.core.starting import open_store
from sidelight.service.http.auth import SCOPES, create_token
from sidelight.service.http.guarded import PIPELINED, RESERVED_PER_ADDRESS
from sidelight.service.http.limits import Guard, local_host
from sidelight.service.metrics import Metrics
from sidelight.service.sections import Limits
from tests.service.helpers import Server, make_config, serving

SECONDS = 1.5


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[tuple[Server, str]]:
    folder: Path = tmp_path_factory.mktemp("connections")
    limits = {
        "body_bytes": 200_000,
        "seconds": SECONDS,
        "connections": 40,
        "connections_per_address": 12,
    }
    config = make_config(folder, kind="OFUL", mode="act", limits=limits)
    store = open_store(config)
    token = create_token(store, "all", SCOPES)
    store.close()
    with serving(folder) as server:
        yield server, token


def connect(server: Server, small: bool = False) -> socket.socket:
    connection = socket.socket()
    if small:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", server.port))
    return connection


def until_closed(connection: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
    return received


def closes_within(connection: socket.socket, seconds: float) -> float:
    """How long until the other side closes; fails after ``seconds``."""
    started = time.monotonic()
    connection.settimeout(seconds)
    until_closed(connection)
    return time.monotonic() - started


# ------------------------------------------------------------------------------------ Uvicorn's names


def test_uvicorn_has_the_names_that_the_guard_builds_on():
    """A new version of Uvicorn that renames one of them is found here, and not by an attacker."""
    protocol = httptools_impl.HttpToolsProtocol
    signatures = {
        "connection_made": ["transport"],
        "connection_lost": ["exc"],
        "data_received": ["data"],
        "eof_received": [],
        "on_message_begin": [],
        "on_url": ["url"],
        "on_header": ["name", "value"],
        "on_headers_complete": [],
        "on_body": ["body"],
        "on_message_complete": [],
        "on_response_complete": [],
        "_start_asgi_task": ["cycle", "app"],
        "pause_writing": [],
        "resume_writing": [],
        "send_400_response": ["msg"],
        "shutdown": [],
    }
    for name, parameters in signatures.items():
        assert list(inspect.signature(getattr(protocol, name)).parameters)[1:] == parameters, name
    made = inspect.getsource(protocol.__init__)
    for name in ("connections", "pipeline", "transport", "flow", "client", "headers", "cycle", "loop", "parser"):
        assert f"self.{name}" in made, name
    # Where the guard steps in: the cycle takes the protocol's transport, and closes it when the answer is complete.
    assert "transport=self.transport" in inspect.getsource(protocol.on_headers_complete)
    assert "self.pipeline.appendleft((self.cycle, app))" in inspect.getsource(protocol.on_headers_complete)
    assert "self._start_asgi_task(" in inspect.getsource(protocol.on_response_complete)
    cycle = httptools_impl.RequestResponseCycle
    made = inspect.getsource(cycle.__init__)
    for name in ("disconnected", "keep_alive", "message_event", "response_complete"):
        assert f"self.{name} =" in made, name
    sends = inspect.getsource(cycle.send)
    assert "if self.disconnected:\n            return" in sends
    assert "if not self.keep_alive:\n                    self.transport.close()" in sends
    assert {"pause_reading", "resume_reading", "drain"} <= set(vars(FlowControl))


# -------------------------------------------------------------------------------------------- costs


def test_only_a_few_requests_may_be_sent_ahead(service):
    server, _ = service
    one = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    with connect(server) as connection:
        connection.sendall(one * 500)
        received = until_closed(connection)
    answered = received.count(b"HTTP/1.1 200")
    assert 1 <= answered <= PIPELINED + 1 + 8, "those in the first packets, and no more"
    assert b"connection: close" in received


def test_bodies_of_requests_that_are_not_looked_at_reach_nobody(service):
    server, token = service
    body = json.dumps({"context": [1, 0, 0, 0, 0, 0, 0]}).encode()
    one = (
        b"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer "
        + token.encode()
        + b"\r\nContent-Length: %d\r\n\r\n" % len(body)
        + body
    )
    with connect(server) as connection:
        connection.sendall(one * (PIPELINED + 20))
        received = until_closed(connection)
    assert {part[:3] for part in received.split(b"HTTP/1.1 ")[1:]} == {b"201"}
    assert received.count(b"HTTP/1.1 201") <= PIPELINED + 1


def test_a_body_that_trickles_in_after_its_answer_is_cut_off(service):
    server, _ = service
    with connect(server) as connection:
        connection.sendall(
            b"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 401")
        started = time.monotonic()
        with pytest.raises(OSError):  # noqa: PT012
            while time.monotonic() < started + 3 * (SECONDS + 1.0):
                connection.sendall(b" ")
                time.sleep(0.1)
        assert time.monotonic() - started < SECONDS + 3.0


_CHUNKED = b"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"


def chunks(content: bytes, size: int) -> bytes:
    """Content as chunks of so many bytes, without the empty line after the last one."""
    parts = [content[i : i + size] for i in range(0, len(content), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n"


def test_what_stands_behind_a_body_is_no_header(service):
    """A proxy that removes or sets headers does not see trailers as such."""
    server, token = service
    body = json.dumps({"context": [1, 0, 0, 0, 0, 0, 0]}).encode()
    bearer = f"Authorization: Bearer {token}\r\n".encode()
    with connect(server) as connection:
        connection.sendall(_CHUNKED + b"\r\n" + chunks(body, 1000) + bearer + b"\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 401")
    for _ in range(2):
        with connect(server) as connection:
            connection.sendall(_CHUNKED + bearer + b"\r\n" + chunks(body, 1000) + b"Idempotency-Key: behind\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 201")


@pytest.mark.parametrize(
    "rest",
    [b"".join(b"X%d: y\r\n" % i for i in range(2_000)), b"X: " + b"y" * 20_000, b"1;" + b"y" * 20_000],
    ids=["many trailers", "a long trailer", "a long chunk extension"],
)
def test_what_a_body_has_around_its_content_is_limited(service, rest):
    """Trailers were kept without a limit and without a token: 160 MB of them took 1.8 GB."""
    server, _ = service
    with connect(server) as connection:
        start = b"" if rest.startswith(b"1;") else b"0\r\n"
        connection.sendall(_CHUNKED + b"\r\n" + start)
        assert connection.recv(65536).startswith(b"HTTP/1.1 401")
        sent = 0
        with pytest.raises(OSError):  # noqa: PT012
            while sent < 5_000_000:
                connection.sendall(rest)
                sent += len(rest)
                time.sleep(0.01)
        assert sent < 500_000, "it was cut off for its size, not for its time"
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/health/live").status_code == 200


def test_chunks_of_one_byte_are_a_body(service):
    server, token = service
    body = json.dumps({"context": [1, 0, 0, 0, 0, 0, 0]}).encode() + b" " * 50_000
    with connect(server) as connection:
        connection.sendall(_CHUNKED + f"Authorization: Bearer {token}\r\n\r\n".encode())
        connection.sendall(chunks(body, 1) + b"\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 201")


def test_a_reader_that_never_reads_is_cut_off(tmp_path):
    """Its answers are larger than the system's buffers, so the service would have to keep them."""
    names = [f"feature {i:03d} " + "x" * 9_000 for i in range(40)]
    config = initial_config(sl.Schema(names, recorded=[], arms=["a", "b"]), kind="OFUL", port=0)
    save_config(config, tmp_path / "sidelight.toml")
    path = tmp_path / "sidelight.toml"
    path.write_text(path.read_text().replace("seconds = 10.0", f"seconds = {SECONDS}"))
    with serving(tmp_path) as server:
        size = len(httpx.get(f"{server.url}/openapi.json").content)
        assert size > 600_000
        with connect(server, small=True) as connection:
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * (PIPELINED + 1))
            time.sleep(SECONDS + 2.5)
            received = until_closed(connection)
            assert len(received) < (PIPELINED + 1) * size, "the rest was thrown away with the connection"
        assert httpx.get(f"{server.url}/health/ready").status_code == 200
        server.stop()
        assert "Traceback" not in server.errors


def test_a_body_over_the_limit_is_answered_and_not_reset(service):
    server, token = service
    for size in (200_001, 1_000_000):
        for extra in (b"Content-Length: %d\r\n\r\n" % size, b"Transfer-Encoding: chunked\r\n\r\n"):
            content = b" " * size
            if b"chunked" in extra:
                content = b"%x\r\n" % size + content + b"\r\n0\r\n\r\n"
            with connect(server) as connection:
                connection.sendall(
                    b"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                    b"Authorization: Bearer " + token.encode() + b"\r\n" + extra
                )
                connection.sendall(content)
                answer = until_closed(connection)
            assert answer.startswith(b"HTTP/1.1 413"), (size, extra, answer[:60])
            assert b"at most 200000 bytes" in answer


def test_health_and_the_kill_switch_are_reached_when_all_places_are_taken(service):
    server, token = service
    headers = {"Authorization": f"Bearer {token}"}
    held = [connect(server) for _ in range(12)]
    try:
        # beside these, as many again that only hold a place of the reserve
        held += [connect(server) for _ in range(RESERVED_PER_ADDRESS + 4)]
        for connection in held[:12]:
            connection.sendall(b"GET /v1/status HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert httpx.get(f"{server.url}/health/live").status_code == 200
        answer = httpx.post(f"{server.url}/v1/kill", json={"killed": False}, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["connection"] == "close"
        refused = httpx.get(f"{server.url}/v1/status", headers=headers)
        assert refused.status_code == 503
        assert "too many connections" in refused.json()["detail"]
    finally:
        for connection in held:
            connection.close()
    end = time.monotonic() + 5
    while httpx.get(f"{server.url}/v1/status", headers=headers).status_code != 200:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_an_idle_connection_ends(service):
    server, _ = service
    with connect(server) as connection:
        assert closes_within(connection, SECONDS + 2.0) >= SECONDS - 0.5


# ------------------------------------------------------------------------------------ around the application


def guarded(app: Any, scope: dict[str, Any], seconds: float = 0.05) -> list[dict[str, Any]]:
    """The messages with which the guard answers one request."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(10)
        raise AssertionError

    guard = Guard(app, Limits(seconds=seconds), Metrics(), lambda host: True)
    asyncio.run(guard({"type": "http", "method": "GET", "path": "/x", "headers": [], **scope}, receive, send))
    return sent


async def sleeps(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.sleep(10)


async def waits_for_its_body(scope: Any, receive: Any, send: Any) -> None:
    await receive()


def test_a_slow_answer_is_the_services_fault_and_a_slow_body_the_callers():
    assert guarded(sleeps, {})[0]["status"] == 503
    assert guarded(waits_for_its_body, {"headers": [(b"content-length", b"5")]})[0]["status"] == 408


@pytest.mark.parametrize(
    ("host", "local"),
    [
        (b"[::1].evil.org", False),
        (b"[::1]evil.org:80", False),
        (b"[::1]:80:80", False),
        (b"[::1", False),
        (b"::1", False),
        (b"127.0.0.1.evil.org", False),
        (b"localhost.evil.org", False),
        (b"evil.org:127.0.0.1", False),
        (b"localhost:abc", False),
        (b"[::ffff:8.8.8.8]", False),
        (b"[::1]", True),
        (b"[::1]:8321", True),
        (b"127.8.9.1:1", True),
        (b"LocalHost", True),
        (None, True),
    ],
)
def test_a_host_is_this_machine_only_as_a_whole(host, local):
    assert local_host(host) is local
