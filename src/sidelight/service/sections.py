"""The sections of the configuration file, one record each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "LearnerConfig",
    "Limits",
    "LogsConfig",
    "ModeConfig",
    "ServerConfig",
    "StorageConfig",
    "TelemetryConfig",
]


@dataclass(frozen=True)
class ServerConfig:
    """Where the service listens.

    Attributes:
        host: an address; without tokens it must be this machine's own (loopback).
        port: a port; 0 takes a free one.
    """

    host: str = "127.0.0.1"
    port: int = 8321


@dataclass(frozen=True)
class StorageConfig:
    """Where the events are kept.

    Attributes:
        database: a file (SQLite), relative to the configuration file, or ``postgresql://…``.
        snapshot_every: events between two snapshots; fewer make starting faster.
        poll_seconds: how often to look for what other servers wrote.
    """

    database: str = "sidelight.db"
    snapshot_every: int = 10_000
    poll_seconds: float = 0.25


@dataclass(frozen=True)
class LearnerConfig:
    """Which learner decides, and what it starts from.

    Attributes:
        kind: a learner's name.
        summary: the log summary's file, relative to the configuration file; empty for none.
        answers: what the old policy tells when asked: its action (``queries``) or its ``probabilities``.
        old_policy: a folder with the learner of the service before this one, if it is the old policy: then it is asked
            instead of the caller. ``sidelight successor`` makes it.
        settings: arguments of the learner: ``alpha``, ``noise``, ``regularization`` and the like.
    """

    kind: str = "FusedOFUL"
    summary: str = ""
    answers: str = "queries"
    old_policy: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModeConfig:
    """Who acts.

    Attributes:
        mode: ``shadow``, ``assist`` or ``act``.
        share: the share of the traffic that the learner decides in ``act``.
        fallback: the arm to take where neither the learner nor the old policy says one.
        killed: start with the kill switch on.
    """

    mode: str = "shadow"
    share: float = 1.0
    fallback: Any = None
    killed: bool = False


@dataclass(frozen=True)
class LogsConfig:
    """What the process writes to standard error.

    Attributes:
        format: ``text`` for people, ``json`` for programs (one object per line).
        level: ``debug``, ``info``, ``warning`` or ``error``.
        decisions: a line for every decision: its id, arm and who chose it.
        personal: let lines hold contexts, subjects and the messages of exceptions.
    """

    format: str = "text"
    level: str = "warning"
    decisions: bool = False
    personal: bool = False


@dataclass(frozen=True)
class TelemetryConfig:
    """OpenTelemetry.

    Attributes:
        traces: where spans go (OTLP over HTTP), e.g. ``http://localhost:4318/v1/traces``; empty for nowhere.
        service_name: what the spans call this service.
    """

    traces: str = ""
    service_name: str = "sidelight"


@dataclass(frozen=True)
class Limits:
    """What a request may cost.

    Attributes:
        body_bytes: the largest body.
        header_bytes: the largest headers, the request line included.
        batch: the most decisions, rewards or answers in one request.
        concurrency: the most requests at once; more are refused with 503.
        seconds: how long a request may take, from its first byte to its answer.
        largest_number: the largest magnitude of a feature or a reward.
    """

    body_bytes: int = 4_000_000
    header_bytes: int = 16_384
    batch: int = 1_000
    concurrency: int = 512
    seconds: float = 10.0
    largest_number: float = 1e9
