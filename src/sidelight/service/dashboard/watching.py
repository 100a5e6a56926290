"""What a person should look at: alarms, overrides, changes of mode and share, errors, and rewards by subgroup."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from sidelight.drawing.intervals import Interval, number
from sidelight.drawing.live import strip
from sidelight.service.core.seen import Quarantine
from sidelight.service.dashboard.alarms import Alarm
from sidelight.service.dashboard.groups import Group
from sidelight.service.dashboard.pieces import count, drawn, give_or_take, moment, piece, table
from sidelight.service.dashboard.rolling import Rolling
from sidelight.service.rails import Rails

__all__ = ["ErrorLog", "banner", "changes", "errors", "odd", "overrides", "quarantine", "subgroups"]

_ODD = {
    "contexts": "Contexts",
    "answers": "Answers",
    "arm": "Arms",
    "shares": "Shares",
    "floor": "Floor",
}
_WHO = {"person": "a person", "old_policy": "the old policy", "service": "the service"}


class Said(NamedTuple):
    """A line of the service's log."""

    at: float
    level: str
    words: str


class ErrorLog(logging.Handler):
    """Keeps the last warnings and errors of the service; they hold no contexts, rewards or secrets."""

    def __init__(self, size: int = 10) -> None:
        super().__init__(logging.WARNING)
        self.lines: deque[Said] = deque(maxlen=size)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record of the log (``logging.Handler.emit``) for the list of last errors."""
        self.lines.append(Said(record.created, record.levelname.lower(), record.getMessage()[:400]))


def banner(rails: Rails, error: Exception | None) -> Markup:
    """A warning at the top of the page where decisions are refused or the kill switch is on; else empty."""
    return piece("banner", None if error is None else str(error), rails.killed)


def odd(found: Sequence[Alarm]) -> Markup:
    """What is odd about the traffic, and what to do."""
    if not found:
        return piece("empty", "Nothing odd: contexts, answers, allowed arms and shares are as they used to be.")
    return piece("facts", [(_ODD[alarm.kind], f"{alarm.words}. {alarm.remedy}.") for alarm in found], Markup(""))


def overrides(rolling: Rolling, now: float) -> Markup:
    """How many overrides there were, and a table of the last ones."""
    in_hour = rolling.hour.total("overrides", now)
    in_day = rolling.day.total("overrides", now)
    words = piece("paragraph", f"{count(in_hour)} in the last hour, {count(in_day)} in 24 hours.")
    if not rolling.overrides:
        return words + piece("empty", "Nobody has taken another arm than the one decided.")
    rows = [
        [f"decision {item.decision}", str(item.arm), _WHO.get(item.by, item.by), moment(item.at)]
        for item in list(reversed(rolling.overrides))[:5]
    ]
    return words + table("The last overrides, the newest first", ["Which", "Took", "Who", "When*"], rows)


def quarantine(waiting: Quarantine) -> Markup:
    """The quarantined values that wait for a person, and how to review them."""
    if not len(waiting):
        return piece("empty", "Nothing was kept from the learner.")
    rows = [[f"event {count(number)}", why] for number, _, why in waiting.newest(5)]
    words = f"{count(len(waiting))} rewards or answers wait for a person: sidelight quarantine, or POST /v1/quarantine."
    return piece("paragraph", words) + table("What waits, the newest first", ["Which", "Why"], rows)


def changes(rolling: Rolling) -> Markup:
    """The last changes of who acts."""
    return piece("changes", [(item.words, item.by, moment(item.at)) for item in list(reversed(rolling.changes))[:3]])


def errors(said: Sequence[Said], refused: Sequence[tuple[str, int, int]]) -> Markup:
    """The last warnings and errors, and which requests were refused.

    Args:
        said: lines of the service's log, the oldest first.
        refused: route, status and how often, since the start.
    """
    out = []
    if said:
        rows = [[line.level, line.words, moment(line.at)] for line in reversed(said)]
        out.append(table("Warnings and errors, the newest first", ["Level", "What", "When*"], rows, "errors"))
    else:
        out.append(piece("empty", "No warnings or errors since the start."))
    if refused:
        rows = [[route, str(status), count(n)] for route, status, n in refused[:8]]
        out.append(table("Requests that were refused since the start", ["Address", "Status", "Times"], rows))
    return Markup("").join(out)


def subgroups(feature: str, groups: Sequence[Group]) -> Markup:
    """Mean reward of each subgroup: in all, of the learner's choices and of all others'."""
    if not groups:
        return piece("empty", "No rewards yet." if feature else "There is no feature to divide rewards by.")
    ends = [end for group in groups for end in group.every[:3] if math.isfinite(end)]
    bounds = (min(ends), max(ends))
    rows = []
    for group in groups:
        low, high = (v if math.isfinite(v) else group.every.mean for v in (group.every.low, group.every.high))
        rows.append(
            [
                group.name,
                _mean(group.every),
                drawn(strip(group.every.mean, low, high, bounds)),
                _mean(group.learner, group.learner_count),
                _mean(group.others, group.others_count),
            ]
        )
    total = sum(group.size for group in groups)
    caption = f"Mean reward by {feature}, over the last {count(total)} rewards that came, with its 95\u00a0% interval"
    caption += f", drawn from {number(bounds[0])} to {number(bounds[1])}"
    return table(
        caption,
        ["Group", "Mean", "Interval*~", "Learner", "Others"],
        rows,
        "groups",
    )


def _mean(interval: Interval, n: int | None = None) -> str:
    if not math.isfinite(interval.mean):
        return "–"
    if n is not None:
        return piece("noted", number(interval.mean), f"of {count(n)}")
    half = (interval.high - interval.low) / 2.0
    return give_or_take(interval.mean, half) if math.isfinite(half) else number(interval.mean)
