"""Uvicorn's HTTP protocol with limits on what a connection may cost before anybody knows who it is.

Headers: their size and the time they take. Bodies: the time they take, whatever was answered meanwhile, and what a
chunked one has around its content. Answers: the time they take to be read. Requests sent ahead of their answers,
connections in all and per address. A connection above the limit still reaches what must always be reached: health and
the kill switch.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from sidelight.service.problems import MEDIA_TYPE, Problem
from sidelight.service.sections import Limits

__all__ = ["ALWAYS", "guarded_protocol"]

#: what is answered even when there is too much to do: above all, the learner can be stopped then
ALWAYS = ("/health/live", "/health/ready", "/metrics", "/v1/kill")
#: requests that may wait behind the one that is being answered
PIPELINED = 8
#: bytes of chunk sizes, extensions and trailers that a body may have for each byte of its content, beyond
#: ``header_bytes``: a chunk of one byte needs five
FRAMING = 8
#: connections above the limit that are accepted for ``ALWAYS``: in all, per address, and for how many seconds
RESERVED, RESERVED_PER_ADDRESS, RESERVED_SECONDS = 64, 8, 2.0
#: seconds during which a refused body is thrown away, so that its sender reads the answer instead of a reset
LINGER_SECONDS = 2.0
#: how much of it is thrown away at most, as a multiple of the largest body
LINGER_BODIES = 8


class ClosingTransport:
    """A transport whose ``close`` lets the protocol end the connection; everything else is the transport's own."""

    __slots__ = ("_protocol", "_transport", "abort", "get_extra_info", "pause_reading", "resume_reading", "write")

    def __init__(self, transport: asyncio.Transport, protocol: Any) -> None:
        self._transport, self._protocol = transport, protocol
        # Bound methods instead of delegation, to save a call: every response writes twice.
        self.write = transport.write
        self.abort = transport.abort
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return bool(self._protocol.ending) or self._transport.is_closing()

    def close(self) -> None:
        """End the connection when the other side can have read the answer."""
        self._protocol.end()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def guarded_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """The protocol under these limits; all connections of one server share its counts."""
    addresses: Counter[str] = Counter()
    #: connections above the limit, the oldest first
    reserved: list[GuardedProtocol] = []

    class GuardedProtocol(HttpToolsProtocol):
        """One connection."""

        _address = ""
        _reserved = False
        _refused = False
        _in_headers = True
        _in_body = False
        #: bytes since the headers began, or since they ended, and the content of the body among these
        _received = 0
        _content = 0
        _discarded = 0
        _head_timer: asyncio.TimerHandle | None = None
        _body_timer: asyncio.TimerHandle | None = None
        _write_timer: asyncio.TimerHandle | None = None
        _end_timer: asyncio.TimerHandle | None = None
        _answering: RequestResponseCycle | None = None
        #: the connection is about to be closed: what comes in is thrown away
        ending = False

        # ------------------------------------------------------------------------------ connections

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(ClosingTransport(transport, self))  # type: ignore[arg-type]
            self._raw = transport
            self._address = self.client[0] if self.client else ""
            addresses[self._address] += 1
            seconds = limits.seconds
            ours = [other for other in reserved if other._address == self._address]
            if (
                len(self.connections) - len(reserved) > limits.connections
                or addresses[self._address] - len(ours) > limits.connections_per_address
            ):
                # Whoever asks for the kill switch does so at once; whoever only holds a place makes room for it.
                idle = (
                    [other for other in ours if other._answering is None] if len(ours) >= RESERVED_PER_ADDRESS else []
                )
                idle = idle or [other for other in reserved if other._answering is None and len(reserved) >= RESERVED]
                if idle:
                    idle[0]._give_up()
                    reserved.remove(idle[0])
                    ours = [other for other in reserved if other._address == self._address]
                self._reserved = True
                reserved.append(self)
                if len(reserved) > RESERVED or len(ours) >= RESERVED_PER_ADDRESS:
                    self._refuse_connection()
                    return
                seconds = min(RESERVED_SECONDS, seconds)
            self._head_timer = self.loop.call_later(seconds, self._headers_late)

        def connection_lost(self, exc: Exception | None) -> None:
            addresses[self._address] -= 1
            if not addresses[self._address]:
                del addresses[self._address]
            if self in reserved:
                reserved.remove(self)
            for name in ("_head_timer", "_body_timer", "_write_timer", "_end_timer"):
                self._stop(name)
            self.ending = True
            self._forsake()
            super().connection_lost(exc)

        def _forsake(self) -> None:
            """Mark every request of this connection as disconnected, so that nothing waits for it or writes to it.

            Uvicorn tells only the one whose headers came last, which is not the one being answered where requests are
            pipelined.
            """
            waiting = [cycle for cycle, _ in self.pipeline]
            self.pipeline.clear()
            if self._answering is not None and not self._answering.response_complete:
                waiting.append(self._answering)
            for cycle in waiting:
                cycle.disconnected = True
                cycle.message_event.set()

        def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
            self._answering = cycle
            super()._start_asgi_task(cycle, app)

        # ---------------------------------------------------------------------------------- reading

        def data_received(self, data: bytes) -> None:
            if self._refused or self.ending:
                self._discarded += len(data)
                if self._discarded > LINGER_BODIES * limits.body_bytes:
                    self._raw.abort()
                return
            self._received += len(data)
            super().data_received(data)
            if self._in_body and self._received - self._content > limits.header_bytes + FRAMING * self._content:
                self._give_up()
            if not self._in_headers or self._refused or self.transport.is_closing():
                return
            if self._received > limits.header_bytes:
                self._headers_long()
            elif self._head_timer is None and self._received:
                self._head_timer = self.loop.call_later(limits.seconds, self._headers_late)

        def eof_received(self) -> None:
            if self.ending:
                self._raw.close()

        def on_message_begin(self) -> None:
            if self._refused:
                return
            self._in_headers = True
            super().on_message_begin()

        def on_url(self, url: bytes) -> None:
            if not self._refused:
                super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            # Trailers come here, too. They are ignored: Uvicorn would append them to the headers, and a proxy that
            # checks headers need not check them.
            if self._in_headers and not self._refused:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            if self._refused:
                return
            self._in_headers = False
            self._received = self._content = 0
            self._stop("_head_timer")
            if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > limits.header_bytes:
                self._headers_long()
                return
            if len(self.pipeline) >= PIPELINED:
                self._enough()
                return
            if self._reserved and self.url.partition(b"?")[0].decode("latin-1") not in ALWAYS:
                self._refuse_connection()
                return
            super().on_headers_complete()
            if self._reserved:
                self.cycle.keep_alive = False
            self._in_body = True
            # One second more than the application has: it says what was wrong, if it is still listening.
            self._body_timer = self.loop.call_later(limits.seconds + 1.0, self._body_late)

        def on_body(self, body: bytes) -> None:
            self._content += len(body)
            if not self._refused:
                super().on_body(body)

        def on_message_complete(self) -> None:
            if self._refused:
                return
            # Until the next request begins, bytes that come in count as its headers.
            self._in_headers = True
            self._in_body = False
            self._received = 0
            self._stop("_body_timer")
            super().on_message_complete()

        # ---------------------------------------------------------------------------------- writing

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._write_timer is None:
                self._write_timer = self.loop.call_later(limits.seconds, self._give_up)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop("_write_timer")

        # ----------------------------------------------------------------------------------- ending

        def end(self) -> None:
            """Close the connection: at once where all was received, else when the other side has had time to read.

            A socket that is closed with unread bytes sends a reset, and a reset takes the answer away from its reader.
            """
            if self.ending:
                return
            self.ending = True
            unread = self._in_body or self._refused
            if not unread or not self._raw.can_write_eof() or self._raw.is_closing():
                self._raw.close()
                # A response that the client does not read is not kept for ever.
                self._end_timer = self.loop.call_later(limits.seconds, self._give_up)
                return
            self._raw.write_eof()
            self.flow.resume_reading()
            self._end_timer = self.loop.call_later(min(LINGER_SECONDS, limits.seconds), self._give_up)

        def _give_up(self) -> None:
            """Abort the connection; its requests are told first, so that none writes to a closed transport."""
            self._forsake()
            self._raw.abort()

        def _stop(self, name: str) -> None:
            timer: asyncio.TimerHandle | None = getattr(self, name)
            if timer is not None:
                timer.cancel()
                setattr(self, name, None)

        # --------------------------------------------------------------------------------- refusing

        def send_400_response(self, msg: str) -> None:
            self._refuse("malformed", "this is not HTTP/1.1 that can be read.")

        def _headers_long(self) -> None:
            self._refuse("headers-too-large", f"headers may have at most {limits.header_bytes} bytes.")

        def _headers_late(self) -> None:
            self._head_timer = None
            if self._received and not self.transport.is_closing():
                self._refuse("timeout", f"the headers did not arrive within {limits.seconds:g} seconds.")
            else:
                self.transport.close()

        def _body_late(self) -> None:
            self._body_timer = None
            self._give_up()

        def _refuse_connection(self) -> None:
            self._refuse("overloaded", "too many connections are open; try again later.")

        def _enough(self) -> None:
            """Answer the requests accepted so far, then close; anything sent after them is ignored."""
            self._refused = True
            self.pipeline[0][0].keep_alive = False

        def _refuse(self, kind: str, detail: str) -> None:
            self._refused = True
            self._stop("_head_timer")
            busy = self._answering is not None and not self._answering.response_complete
            if busy or self.pipeline:
                # Answers come in the order of the requests, so this one cannot be sent before those.
                last = self.pipeline[0][0] if self.pipeline else self._answering
                assert last is not None
                last.keep_alive = False
                return
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
