"""Odd bodies and odd HTTP against a process that serves: each has an answer that blames the caller, and harms nobody.

Whatever is sent, the answer is no 5xx, it comes soon or the connection is closed, and the next caller is served.
"""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.service.helpers import Server, make_config, post, random_context

GOOD = {"age": 0.1, "dose": 0.2, "ward": "north", "severity": True, "pain": 0.3}
#: an integer of 5,000 digits: more than Python converts, and than any number holds
HUGE = "9" * 5000


def body(**more: str) -> bytes:
    """A decision's request, with parts that are text already."""
    parts = {"context": json.dumps(GOOD), **more}
    return ("{" + ",".join(f'"{name}":{text}' for name, text in parts.items()) + "}").encode()


def context(**more: str) -> bytes:
    """A decision's request whose context has parts that are text already."""
    parts = {name: json.dumps(value) for name, value in GOOD.items()} | more
    return ('{"context":{' + ",".join(f'"{name}":{text}' for name, text in parts.items()) + "}}").encode()


#: what → body of POST /v1/decisions and the statuses that are right
BODIES: dict[str, tuple[bytes, set[int]]] = {
    "nothing": (b"", {400}),
    "a byte order mark": (b"\xef\xbb\xbf" + body(), {400, 201}),
    "not UTF-8": (b'{"context":"\xff\xfe"}', {400}),
    "deep arrays": (b"[" * 100_000, {400, 422}),
    "deep objects": (b'{"a":' * 100_000, {400, 422}),
    "deep in a context": (context(age="[" * 50_000 + "]" * 50_000), {400, 422}),
    "a number of 5,000 digits": (context(age=HUGE), {400, 422}),
    "an integer that no double holds": (context(age="1" + "0" * 400), {400, 422}),
    "an exponent that no double holds": (context(age="1e400"), {400, 422}),
    "a tiny exponent": (context(age="1e-400"), {201, 422}),
    "an integer of 70 bits": (context(age=str(2**70)), {201, 400, 422}),
    "NaN": (context(age="NaN"), {400}),
    "Infinity": (context(age="-Infinity"), {400}),
    "a number in quotes": (context(age='"1.0"'), {201}),
    "text in place of a number": (context(age='"one"'), {422}),
    "no text in place of a number": (context(age='""'), {422}),
    "a boolean for a number": (context(age="true"), {201, 422}),
    "a number for a category": (context(ward="3"), {422}),
    "an unknown category": (context(ward='"moon"'), {201, 422}),
    "a NUL in a category": (context(ward='"\\u0000"'), {201, 422}),
    "a NUL in the subject": (body(subject='"a\\u0000b"'), {400, 422, 201}),
    "half a surrogate in the subject": (body(subject='"\\ud800"'), {400, 422}),
    "an empty subject": (body(subject='""'), {422, 201}),
    "a subject of a megabyte": (body(subject='"' + "x" * 1_000_000 + '"'), {413, 422}),
    "no arm allowed": (body(allowed="[]"), {422}),
    "100,000 arms allowed": (body(allowed="[" + ",".join(['"low"'] * 100_000) + "]"), {413, 422}),
    "an arm as an object": (body(allowed='[{"a":1}]'), {422}),
    "an unknown field": (body(surprise="1"), {422}),
    "the context twice": (body() [:-1] + b',"context":{}}', {422, 400}),
    "a feature twice": (context()[:-2] + b',"age":5}}', {201, 400, 422}),
    "an array": (b"[]", {400, 422}),
    "text": (b'"decide"', {400, 422}),
    "two documents": (body() + body(), {400}),
    "a comment": (b"/* hello */" + body(), {400}),
    "gzip": (gzip.compress(body()), {400, 415}),
}  # fmt: skip


def head(line: str, *headers: str, host: str = "Host: localhost") -> bytes:
    return "\r\n".join([line, *([host] if host else []), *headers, "", ""]).encode("latin-1")


_TYPE, _SIZE = "Content-Type: application/json", f"Content-Length: {len(body())}"
_POST = "POST /v1/decisions HTTP/1.1"
#: what → bytes on the wire; None for no answer at all, which closing the connection is
WIRE: dict[str, tuple[bytes, set[int | None]]] = {
    "two lengths": (head(_POST, _TYPE, _SIZE, "Content-Length: 3") + body(), {400, None}),
    "length and chunks": (head(_POST, _TYPE, _SIZE, "Transfer-Encoding: chunked") + b"0\r\n\r\n", {400, None}),
    "a negative length": (head(_POST, _TYPE, "Content-Length: -1"), {400, None}),
    "a length with a sign": (head(_POST, _TYPE, f"Content-Length: +{len(body())}") + body(), {400, None}),
    "a length of 40 digits": (head(_POST, _TYPE, "Content-Length: " + "9" * 40), {400, 413, None}),
    "a chunk with an extension": (
        head(_POST, _TYPE, "Transfer-Encoding: chunked") + f"{len(body()):x};x=y\r\n".encode() + body()
        + b"\r\n0\r\nTrailer: 1\r\n\r\n", {201, 400, None},
    ),
    "an unknown coding": (head(_POST, _TYPE, "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", {400, 415, 501, None}),
    "a space before the colon": (head(_POST, _TYPE, f"Content-Length : {len(body())}") + body(), {400, None}),
    "a folded header": (head(_POST, _TYPE, "X-A: b\r\n c", _SIZE) + body(), {201, 400, None}),
    "a thousand headers": (
        head(_POST, *[f"X-{i}: 1" for i in range(1000)], _TYPE, _SIZE) + body(), {201, 400, 431, None},
    ),
    "a header of 100 kB": (head(_POST, "X-A: " + "b" * 100_000, _TYPE, _SIZE) + body(), {400, 431, None}),
    "two keys": (head(_POST, "Idempotency-Key: a", "Idempotency-Key: b", _TYPE, _SIZE) + body(), {400}),
    "no host": (head(_POST, _TYPE, _SIZE, host="") + body(), {400, 201, None}),
    "two hosts": (head(_POST, "Host: 127.0.0.1", _TYPE, _SIZE) + body(), {400}),
    "HTTP/1.0": (head("POST /v1/decisions HTTP/1.0", _TYPE, _SIZE) + body(), {201, 400, None}),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 404, 405, None}),
    "HTTP/9.9": (head("GET / HTTP/9.9"), {400, 200, 303, 307, 404, 405, 505, None}),
    "an absolute address": (head("GET http://evil.org/v1/status HTTP/1.1"), {200, 400, 404, None}),
    "an asterisk": (head("OPTIONS * HTTP/1.1"), {200, 400, 404, 405, None}),
    "a tunnel": (head("CONNECT 127.0.0.1:22 HTTP/1.1"), {400, 404, 405, None}),
    "a NUL in the path": (head("GET /v1/decisions/%00 HTTP/1.1"), {400, 404}),
    "dots in the path": (head("GET /v1/../../etc/passwd HTTP/1.1"), {400, 404}),
    "encoded dots in the path": (head("GET /v1/%2e%2e/%2e%2e/etc/passwd HTTP/1.1"), {400, 404}),
    "not UTF-8 in the path": (head("GET /v1/decisions/%ff%fe HTTP/1.1"), {400, 404}),
    "an id of 19 digits": (head("GET /v1/decisions/9999999999999999999 HTTP/1.1"), {400, 404}),
    "an id of 18 digits": (head("GET /v1/decisions/999999999999999999 HTTP/1.1"), {404}),
    "a position past the end": (head("GET /v1/decisions/1.999999 HTTP/1.1"), {404}),
    "a method in small letters": (head("get /health/live HTTP/1.1"), {400, 405, 501, None}),
    "another protocol": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), {400, None}),
    "waiting to be told to go on": (head(_POST, _TYPE, _SIZE, "Expect: 100-continue") + body(), {100, 201}),
    "rubbish behind a request": (head("GET /health/live HTTP/1.1") + b"\x00\x01rubbish\r\n\r\n", {200}),
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("odd")
    make_config(folder, kind="OFUL", mode="act")
    found = Server(folder)
    yield found
    found.kill()


def first_status(port: int, sent: bytes, *, half_closed: bool = False) -> int | None:
    """The status of the first answer; None where the connection ends without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            connection.sendall(sent)
            if half_closed:
                connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            return None
        return int(answer.split()[1]) if answer.startswith(b"HTTP/1.") else None


def serves(server: Server) -> bool:
    """Whether an ordinary caller is served, and the service thinks so too."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        made = post(client, "/v1/decisions", {"context": GOOD}).status_code
        return (made, client.get("/health/ready").status_code) == (201, 200)


@pytest.mark.parametrize("what", BODIES)
def test_odd_bodies(server: Server, what: str):
    sent, right = BODIES[what]
    with httpx.Client(base_url=server.url, timeout=60) as client:
        answer = client.post("/v1/decisions", content=sent, headers={"Content-Type": "application/json"})
    assert answer.status_code in right, answer.text
    if answer.status_code != 201:
        assert answer.headers["content-type"] == "application/problem+json"
        assert len(answer.content) < max(len(sent), 2_000), "nobody is sent more than they sent"
    assert serves(server)


@pytest.mark.parametrize("what", WIRE)
def test_odd_http(server: Server, what: str):
    sent, right = WIRE[what]
    assert first_status(server.port, sent) in right
    assert serves(server)


def test_a_chunk_size_of_40_digits(tmp_path: Path):
    """Nothing is wrong with it so far, so the rest is waited for: as long as this server's requests may take."""
    make_config(tmp_path, kind="OFUL", mode="act", limits={"seconds": 2.0})
    found = Server(tmp_path)
    try:
        sent = head(_POST, _TYPE, "Transfer-Encoding: chunked") + b"f" * 40 + b"\r\n"
        assert first_status(found.port, sent) in {400, 408, None}
        assert serves(found)
    finally:
        found.kill()


def test_a_caller_who_says_nothing_more_is_answered(server: Server):
    """Half-closed connections are how some clients say that the request is whole."""
    sent = head(_POST, _TYPE, _SIZE, "Connection: close") + body()
    assert first_status(server.port, sent, half_closed=True) in (201, None)
    assert first_status(server.port, head(_POST, _TYPE, _SIZE) + body()[:-5], half_closed=True) in (400, None)
    assert serves(server)


def test_callers_who_leave_at_any_byte(server: Server):
    whole = head(_POST, _TYPE, _SIZE, "Idempotency-Key: left") + body()
    for end in range(0, len(whole) + 1, 7):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(whole[:end])
    assert serves(server)
    # whether it was written for who left or not, the key stands for one decision
    with httpx.Client(base_url=server.url, timeout=60) as client:
        headers = {"Content-Type": "application/json", "Idempotency-Key": "left"}
        one, two = (client.post("/v1/decisions", content=body(), headers=headers) for _ in range(2))
    assert one.json()["id"] == two.json()["id"]


def test_odd_text_in_postgresql(tmp_path: Path, new_postgres: Callable[[], str], rng: np.random.Generator):
    """What a database does not take is the caller's fault, told in words, and no reason to call the database broken."""
    make_config(tmp_path, kind="OFUL", mode="act", database=new_postgres())
    found, json_type = Server(tmp_path), {"Content-Type": "application/json"}
    try:
        with httpx.Client(base_url=found.url, timeout=60) as client:
            for text in ("a\\u0000b", "\\u0000", "\\ud800", "\\ud83d\\ude00", "\\uffff", "x" * 200, "' OR 1=1"):
                answer = client.post("/v1/decisions", content=body(subject=f'"{text}"'), headers=json_type)
                assert answer.status_code in (201, 400, 422), answer.text
                made = post(client, "/v1/decisions", {"context": random_context(rng)}).json()["id"]
                assert post(client, f"/v1/decisions/{made}/reward", {"reward": 1.0}).status_code == 201
                told = f'{{"reason":"{text}"}}'.encode()
                answer = client.post(f"/v1/decisions/{made}/retraction", content=told, headers=json_type)
                assert answer.status_code in (201, 400, 422), answer.text
                assert serves(found)
    finally:
        found.kill()
