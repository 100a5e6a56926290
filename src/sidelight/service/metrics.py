"""The Prometheus metrics of a server."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Metrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """The counters of one server, in a registry of their own so that two servers in one process do not mix."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        self.requests = Counter("sidelight_requests", "Requests answered", ["route", "status"], registry=r)
        self.seconds = Histogram(
            "sidelight_request_seconds", "Seconds to answer", ["route"], buckets=_SECONDS, registry=r
        )
        self.shed = Counter("sidelight_shed", "Requests refused because there were too many", registry=r)
        self.decisions = Counter("sidelight_decisions", "Decisions", ["route"], registry=r)
        self.rewards = Counter("sidelight_rewards", "Rewards", registry=r)
        self.default_rewards = Counter("sidelight_default_rewards", "Waits that ended without a reward", registry=r)
        self.late_rewards = Histogram(
            "sidelight_late_reward_seconds",
            "Seconds after the end of the wait at which a reward still came",
            buckets=(3_600.0, 86_400.0, 604_800.0, 2_592_000.0),
            registry=r,
        )
        self.answers = Counter("sidelight_answers", "Answers of the old policy", registry=r)
        self.overrides = Counter("sidelight_overrides", "Arms taken other than the one to take", registry=r)
        self.quarantined = Counter(
            "sidelight_quarantined", "Rewards and answers kept from the learner as out of bounds", registry=r
        )
        self.quarantine = Gauge(
            "sidelight_quarantine_waiting",
            "Of these, how many wait for a person (1,000 are listed at most)",
            registry=r,
        )
        self.learner_failures = Counter(
            "sidelight_learner_failures", "Decisions and events the learner failed at", registry=r
        )
        self.commits = Histogram("sidelight_commit_seconds", "Seconds of a transaction", buckets=_SECONDS, registry=r)
        self.group_size = Histogram(
            "sidelight_commit_group_size", "Requests in a transaction", buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
            registry=r,
        )  # fmt: skip
        self.event = Gauge("sidelight_event_number", "The last event folded in", registry=r)
        self.version = Gauge("sidelight_learner_version", "The last event that changed the learner", registry=r)
        self.ready = Gauge("sidelight_ready", "1 if decisions can be written", registry=r)
        self.killed = Gauge("sidelight_killed", "1 if the kill switch is on", registry=r)
        self.share = Gauge("sidelight_share", "The share of traffic that the learner decides in act mode", registry=r)
        self.gate_rung = Gauge(
            "sidelight_gate_rung", "The rung of the gate; -1 below the ladder or without", registry=r
        )
        self.gate_bounds = Gauge(
            "sidelight_gate_gain", "The learner's gain over the old policy on this rung", ["bound"], registry=r
        )
        self.gate_says = Gauge("sidelight_gate_verdict", "1 for what the gate's evidence says", ["says"], registry=r)
        self.gate_waiting = Gauge(
            "sidelight_gate_waiting",
            "Units of the gate that wait for a reward, their own or an earlier one's",
            registry=r,
        )
        self.gate_ratio = Gauge("sidelight_gate_ratio_wrong", "1 if the routes' shares are not as set", registry=r)
        self.alarms = Gauge("sidelight_alarm", "1 if something about the traffic is odd", ["kind"], registry=r)
        self.floor_room = Gauge(
            "sidelight_floor_room",
            "Reward that may be risked before the floor holds the learner back; NaN without a floor",
            registry=r,
        )
        self.store_errors = Counter("sidelight_store_errors", "Failures to write the event log", registry=r)
        self.snapshots = Counter("sidelight_snapshots", "Snapshots taken", registry=r)
        self.self_checked = Gauge(
            "sidelight_self_check_event_number", "The last event at which a replay gave the same state", registry=r
        )
        self.self_check_failures = Counter(
            "sidelight_self_check_failures",
            "Times that a replay gave another state",
            registry=r,
        )
        self.damaged_snapshots = Counter("sidelight_damaged_snapshots", "Snapshots found damaged", registry=r)
        self._routes: dict[str, Any] = {}
        self._answered: dict[tuple[str, int], Any] = {}
        self._timed: dict[str, Any] = {}

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered, with its duration in seconds."""
        counter = self._answered.get((route, status))
        if counter is None:
            counter = self._answered[route, status] = self.requests.labels(route, str(status))
        counter.inc()
        timer = self._timed.get(route)
        if timer is None:
            timer = self._timed[route] = self.seconds.labels(route)
        timer.observe(seconds)

    def decided(self, routes: list[str]) -> None:
        """Count decisions that were folded in, by route (who chose the arm)."""
        for route in set(routes):
            counter = self._routes.get(route)
            if counter is None:
                counter = self._routes[route] = self.decisions.labels(route)
            counter.inc(routes.count(route))

    def committed(self, requests: int, seconds: float) -> None:
        """Count a transaction: the requests in it, and its duration in seconds."""
        self.commits.observe(seconds)
        self.group_size.observe(requests)

    def stands(self, number: int, version: int, *, killed: bool, share: float) -> None:
        """Set the gauges of a server that can write: its last event, the learner's version, kill switch and share."""
        self.event.set(number)
        self.version.set(version)
        self.ready.set(1)
        self.killed.set(killed)
        self.share.set(share)

    def gate_stands(self, evidence: Mapping[str, Any] | None) -> None:
        """Set the gauges of the gate from ``Gate.evidence`` (None: no gate). A bound that is not known yet is NaN."""
        found = {} if evidence is None else evidence
        self.gate_rung.set(found.get("rung", -1))
        self.gate_waiting.set(found.get("waiting", 0))
        self.gate_ratio.set(bool(found.get("ratio_wrong", False)))
        for says in ("better", "worse", "open", "too early", "cannot tell", "no shared traffic"):
            self.gate_says.labels(says).set(says == found.get("says", "no shared traffic"))
        for bound in ("low", "gain", "high"):
            value = found.get(bound)
            self.gate_bounds.labels(bound).set(math.nan if value is None else value)

    def refused(self) -> list[tuple[str, int, int]]:
        """Which requests were answered with an error: route, status and how often, the most frequent first."""
        samples = [sample for metric in self.requests.collect() for sample in metric.samples]
        found = [
            (sample.labels["route"], int(sample.labels["status"]), int(sample.value))
            for sample in samples
            if sample.name.endswith("_total") and int(sample.labels["status"]) >= 400
        ]
        return sorted(found, key=lambda item: (-item[2], item[0], item[1]))

    def text(self) -> bytes:
        """All metrics in Prometheus' text format, as ``/metrics`` answers."""
        return generate_latest(self.registry)
