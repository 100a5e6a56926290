"""The sections of the configuration file, one record each: every field with its type, its range and what it means.

From these come the checks (``fields``), the defaults and the table in ``docs/service/configuration.md``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from sidelight.errors import InputError
from sidelight.learners.registry import kinds_made_from
from sidelight.service.rails import MODES

__all__ = [
    "LEARNERS",
    "BoundsConfig",
    "GateConfig",
    "LearnerConfig",
    "Limits",
    "LogsConfig",
    "ModeConfig",
    "ServerConfig",
    "StorageConfig",
    "TelemetryConfig",
    "ladder_fault",
]

#: the learners that a file may name; not those that take a constraint on the weights, which it cannot hold
LEARNERS = tuple(kinds_made_from("hidden", "summary", "schema"))


def _one_of(choices: Any, description: str) -> Meta:
    return Meta(description=description, extra={"choices": tuple(choices)})


@dataclass(frozen=True)
class ServerConfig:
    """Where the service listens."""

    host: Annotated[
        str,
        Meta(min_length=1, description="an address; any but this machine's own (loopback) needs at least one token"),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="a port; 0 takes a free one")] = 8321


@dataclass(frozen=True)
class StorageConfig:
    """Where the events are kept."""

    database: Annotated[
        str, Meta(min_length=1, description="a file (SQLite) beside this one, or `postgresql://user@host/name`")
    ] = "sidelight.db"
    snapshot_every: Annotated[
        int, Meta(ge=1, description="events between two snapshots; fewer make starting faster")
    ] = 10_000
    poll_seconds: Annotated[
        float, Meta(gt=0, le=3_600, description="how often to look for what other servers wrote")
    ] = 0.25


@dataclass(frozen=True)
class LearnerConfig:
    """Which learner decides, and what it starts from."""

    kind: Annotated[str, _one_of(LEARNERS, "the learner; `OFUL` needs no log")] = "FusedOFUL"
    summary: Annotated[str, Meta(description="the log summary's file, from `sidelight summarize`; empty for none")] = ""
    summaries: Annotated[
        dict[str, str],
        Meta(description="several log summaries by name, one for each log or era, instead of `summary`"),
    ] = field(default_factory=dict)
    answers: Annotated[
        str,
        _one_of(
            ("queries", "probabilities"),
            "what the old policy tells when asked: its action (`queries`) or its `probabilities`",
        ),
    ] = "queries"
    old_policy: Annotated[
        str,
        Meta(
            description="a folder with the learner of the service before this one, if it is the old policy: then it is "
            "asked instead of the caller. `sidelight successor` makes it"
        ),
    ] = ""
    settings: Annotated[
        dict[str, Any], Meta(description="arguments of the learner: `alpha`, `noise`, `regularization` and the like")
    ] = field(default_factory=dict)


@dataclass(frozen=True)
class ModeConfig:
    """``[mode]``: who acts at the start, the learner's share, and the fallback arm."""

    mode: Annotated[str, _one_of(MODES, "who acts at first; see [who acts](modes.md)")] = "shadow"
    share: Annotated[
        float, Meta(ge=0, le=1, description="the share of the traffic that the learner decides in `act`")
    ] = 1.0
    fallback: Annotated[
        Any, Meta(description="the arm to take where neither the learner nor the old policy says one; needed")
    ] = None
    killed: Annotated[bool, Meta(description="start with the kill switch on")] = False
    explore: Annotated[
        float,
        Meta(
            ge=0,
            le=0.5,
            description="in `act`, the chance with which an arm drawn evenly takes the place of the learner's, so that "
            "the export can evaluate any policy",
        ),
    ] = 0.0
    propensities: Annotated[
        str,
        _one_of(
            ("taken", "all"),
            "which chances of a learner that draws are written down: of the arm to take, or of all arms (slower with "
            "`FusedThompson` and many arms)",
        ),
    ] = "taken"


def ladder_fault(ladder: Sequence[float]) -> str | None:
    """What is wrong with a ladder of shares, to be said after its value; None where nothing is."""
    if not ladder or any(not a < b for a, b in itertools.pairwise(ladder)):
        return "must be shares that grow, such as [0.01, 0.05, 0.2, 1.0]"
    if not (ladder[0] > 0.0 and ladder[-1] <= 1.0):
        return "must lie above 0 and at most at 1"
    return None


_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


@dataclass(frozen=True)
class GateConfig:
    """How the learner earns its share of the traffic; see [the gate](gate.md)."""

    promote: Annotated[
        str,
        _one_of(("off", "suggest", "automatic"), "steps up the ladder: none, each confirmed by a person, or by itself"),
    ] = "off"
    demote: Annotated[str, _one_of(("off", "suggest", "automatic"), "the same for steps down")] = "automatic"
    ladder: Annotated[list[float], Meta(description="the learner's shares, growing")] = field(
        default_factory=lambda: [0.01, 0.05, 0.2, 0.5, 1.0]
    )
    smallest_gain: Annotated[
        float, Meta(ge=0, description="what the learner must be better by, in the reward's unit")
    ] = 0.0
    error_rate: Annotated[
        float, Meta(gt=0, lt=0.5, description="the chance of ever taking a step up, or one down, that is wrong")
    ] = 0.05
    holdout: Annotated[
        float, Meta(ge=0.01, lt=0.5, description="the share that stays with the old policy at the top")
    ] = 0.01
    reward_after: Annotated[
        str,
        Meta(
            description="how long to wait for a reward (`45s`, `30m`, `12h`, `7d`, `2w`); then the default reward "
            "counts, for the evidence and for the learner, until one comes. Needed where `promote` is on"
        ),
    ] = ""
    default_reward: Annotated[float, Meta(description="what counts where no reward came in time")] = 0.0

    def problems(self) -> list[str]:
        """What the fields say together that cannot be, for an error message."""
        found = []
        if (wrong := ladder_fault(self.ladder)) is not None:
            found.append(f"[gate] ladder = {self.ladder} {wrong}")
        elif len(self.ladder) > 1 and self.ladder[-2] >= 1.0 - self.holdout:
            found.append(
                f"[gate] ladder = {self.ladder}: with holdout = {self.holdout:g} the learner's share is at most "
                f"{1.0 - self.holdout:g}, so only the last rung may lie there or above"
            )
        if self.promote != "off" and not self.reward_after.strip():
            found.append(
                "[gate] reward_after is needed where promote is on: one decision whose reward never comes would hold "
                "up all evidence behind it"
            )
        try:
            _ = self.wait_seconds
        except InputError as error:
            found.append(str(error).removesuffix("."))
        return found

    @property
    def wait_seconds(self) -> float | None:
        """``reward_after`` in seconds; None where the wait for a reward has no end.

        Raises:
            InputError: it is not a time.
        """
        text = self.reward_after.strip()
        if not text:
            return None
        number, unit = text[:-1], text[-1]
        try:
            seconds = float(number) * _UNITS[unit]
        except (KeyError, ValueError):
            seconds = 0.0
        if not 0.0 < seconds < float("inf"):
            raise InputError(f"[gate] reward_after = {self.reward_after!r} is not a time such as 45s, 30m, 12h or 7d.")
        return seconds


@dataclass(frozen=True)
class BoundsConfig:
    """Bounds beyond which a value is quarantined until a person has reviewed it; see [quarantine](quarantine.md)."""

    automatic: Annotated[
        bool,
        Meta(
            description="keep outliers from the learner: values far outside the range that the log has for the feature "
            "(or for the reward), or, where no log has it, the range of what the learner was taught"
        ),
    ] = True
    reward: Annotated[list[float], Meta(description="least and largest reward; empty for the automatic bounds")] = (
        field(default_factory=list)
    )
    features: Annotated[
        dict[str, Any], Meta(description="least and largest value by feature, such as `age = [0, 120]`")
    ] = field(default_factory=dict)

    def problems(self) -> list[str]:
        """What the fields say together that cannot be, for an error message."""
        pairs = {f"features.{name}": pair for name, pair in self.features.items()}
        if self.reward:
            pairs["reward"] = self.reward
        return [
            f"[bounds] {name} = {pair!r} must be two numbers, the least and the largest"
            for name, pair in pairs.items()
            if not (
                isinstance(pair, list)
                and len(pair) == 2
                and all(type(end) in (int, float) for end in pair)
                and pair[0] < pair[1]
            )
        ]


@dataclass(frozen=True)
class LogsConfig:
    """What the process writes to standard error; see [monitoring](monitoring.md)."""

    format: Annotated[
        str, _one_of(("text", "json"), "`text` for people, `json` for programs (one object per line)")
    ] = "text"
    level: Annotated[str, _one_of(("debug", "info", "warning", "error"), "the least serious lines to write")] = (
        "warning"
    )
    decisions: Annotated[bool, Meta(description="a line for every decision: its id, arm and who chose it")] = False
    personal: Annotated[bool, Meta(description="let lines hold contexts, subjects and the messages of exceptions")] = (
        False
    )


@dataclass(frozen=True)
class TelemetryConfig:
    """``[telemetry]``: where spans are sent, and under which name."""

    traces: Annotated[
        str,
        Meta(description="where spans go (OTLP over HTTP), such as `http://localhost:4318/v1/traces`; empty: nowhere"),
    ] = ""
    service_name: Annotated[str, Meta(description="what the spans call this service")] = "sidelight"


@dataclass(frozen=True)
class Limits:
    """Limits on requests and connections; see [security](../security.md)."""

    body_bytes: Annotated[int, Meta(gt=0, description="the largest body")] = 4_000_000
    header_bytes: Annotated[int, Meta(gt=0, description="the largest headers, the request line included")] = 16_384
    batch: Annotated[
        int,
        Meta(
            gt=0,
            le=1_000_000,
            description="the most decisions, rewards or answers in one request",
            extra={"why": "because ids have six digits for the position"},
        ),
    ] = 1_000
    concurrency: Annotated[int, Meta(gt=0, description="the most requests at once; more are refused with 503")] = 512
    connections: Annotated[
        int, Meta(gt=0, description="the most open connections; above them only health and the kill switch are reached")
    ] = 2_048
    connections_per_address: Annotated[int, Meta(gt=0, description="of these, the most from one address")] = 1_536
    seconds: Annotated[
        float, Meta(gt=0, le=86_400, description="how long a request may take, from its first byte to its answer")
    ] = 10.0
    largest_number: Annotated[
        float,
        Meta(
            gt=0,
            le=1e15,
            description="the largest magnitude of a feature or a reward",
            extra={"why": "or sums of squares overflow"},
        ),
    ] = 1e9
