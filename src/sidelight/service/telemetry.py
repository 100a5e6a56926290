"""OpenTelemetry traces, where they are configured: a span per request, and one per transaction that links to them.

OpenTelemetry is imported only here, and only if traces are configured. A span holds the route, the status and the
duration; never a body, a context or a decision's id.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sidelight.errors import MissingExtraError, how_to_install
from sidelight.service.sections import TelemetryConfig

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["CommitSpans", "TracedRequests", "trace_provider"]


def trace_provider(config: TelemetryConfig) -> TracerProvider | None:
    """The provider that exports spans; None where traces are not configured.

    Raises:
        MissingExtraError: traces are wanted, and OpenTelemetry is not installed.
    """
    if not config.traces:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingExtraError(
            f"[telemetry] traces needs OpenTelemetry ({error}): {how_to_install('telemetry')}; or remove the setting."
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": config.service_name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=config.traces)))
    return provider


class TracedRequests:
    """ASGI middleware: a span per request, the child of the caller's span where it sent a ``traceparent``."""

    def __init__(self, app: ASGIApp, provider: TracerProvider) -> None:
        self.app = app
        self._tracer = provider.get_tracer("sidelight")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in (b"traceparent", b"tracestate")
        }
        parent = TraceContextTextMapPropagator().extract(carrier)
        with self._tracer.start_as_current_span(
            scope["method"], context=parent, kind=SpanKind.SERVER, record_exception=False, set_status_on_exception=False
        ) as span:
            span.set_attribute("http.request.method", scope["method"])

            async def noting(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(Status(StatusCode.ERROR))
                await send(message)

            try:
                await self.app(scope, receive, noting)
            finally:
                route = scope.get("route")
                if route is not None:
                    span.set_attribute("http.route", route.path)
                    span.update_name(f"{scope['method']} {route.path}")


class CommitSpans:
    """Spans of the commit thread."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("sidelight")

    def origin(self) -> Any:
        """The span that is current now: the request's."""
        from opentelemetry.trace import get_current_span

        return get_current_span().get_span_context()

    def committed(self, origins: Sequence[Any], seconds: float, others: int, failed: bool) -> None:
        """Record a span for a transaction that has just ended, linked to the requests in it."""
        from opentelemetry.trace import Link, Status, StatusCode

        end = time.time_ns()
        span = self._tracer.start_span(
            "commit",
            start_time=end - int(seconds * 1e9),
            links=[Link(origin) for origin in origins if origin is not None and origin.is_valid],
            attributes={"sidelight.requests": len(origins), "sidelight.events_of_others": others},
        )
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end)
