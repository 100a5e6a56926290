"""The traffic: the numbers at the top, decisions and rewards per minute, arms over time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from sidelight.drawing.intervals import number
from sidelight.drawing.live import Line, columns, lines
from sidelight.service.dashboard.pieces import Tile, count, drawn, percent, piece, table
from sidelight.service.dashboard.rolling import Rolling
from sidelight.service.dashboard.window import ACTORS, Window

__all__ = ["arms_over_time", "per_minute", "per_minute_numbers", "tiles"]

#: arms with a colour of their own; all others share one
_COLOURED = 6
_TICKS = {
    "hour": ("1 h ago", "45 min", "30 min", "15 min", "now"),
    "day": ("24 h ago", "18 h", "12 h", "6 h", "now"),
}
_KINDS = {"taken": "Arms to take", "recommended": "Arms that the learner recommended", "rewarded": "Arms rewarded"}
WORDS = {"hour": "the last hour", "day": "the last 24 hours"}


def window_of(rolling: Rolling, span: str) -> Window:
    """The window of a span."""
    return rolling.day if span == "day" else rolling.hour


def _rewards(window: Window, now: float) -> list[float]:
    parts = [window.series(f"rewards:{actor}", now) for actor in ACTORS]
    return [sum(values) for values in zip(*parts, strict=True)]


def _mean(window: Window, actors: Sequence[str], now: float) -> tuple[float, float]:
    n = sum(window.total(f"worth:{actor}", now) for actor in actors)
    total = sum(window.total(f"sums:{actor}", now) for actor in actors)
    return (total / n if n else math.nan), n


def tiles(rolling: Rolling, now: float) -> Markup:
    """The numbers at the top."""
    hour = rolling.hour
    decisions, rewards = hour.total("decisions", now), sum(_rewards(hour, now))
    learner, n_learner = _mean(hour, ("learner",), now)
    others, n_others = _mean(hour, ACTORS[1:], now)
    overrides, failures = hour.total("overrides", now), hour.total("failures", now)
    made = [
        Tile(
            "decisions",
            "Decisions per minute",
            number(rolling.rate("decisions", now)),
            f"{count(decisions)} in an hour",
        ),
        Tile(
            "rewards",
            "Rewards per minute",
            number(sum(rolling.rate(f"rewards:{actor}", now) for actor in ACTORS)),
            f"{count(rewards)} in an hour",
        ),
        Tile("learner", "Mean reward, learner", number(learner), f"of {count(n_learner)} in an hour that came"),
        Tile("others", "Mean reward, others", number(others), f"of {count(n_others)} in an hour that came"),
        Tile(
            "overrides",
            "Overrides",
            count(overrides),
            f"{percent(overrides / decisions)} of decisions in an hour" if decisions else "in an hour",
        ),
    ]
    if failures:
        made.append(Tile("failures", "Learner failed", count(failures), "fallback acted, in an hour", "alarm"))
    return piece("tiles", made)


def per_minute(rolling: Rolling, span: str, now: float) -> Markup:
    """Decisions and rewards per minute; the last point is the last minute, as it is now."""
    window = window_of(rolling, span)
    minutes = window.step / 60.0
    decisions = [value / minutes for value in window.series("decisions", now)[:-1]] + [rolling.rate("decisions", now)]
    rewards = [value / minutes for value in _rewards(window, now)[:-1]]
    rewards.append(sum(rolling.rate(f"rewards:{actor}", now) for actor in ACTORS))
    describes = (
        f"Decisions and rewards per minute over {WORDS[span]}. Now {number(decisions[-1])} decisions and "
        f"{number(rewards[-1])} rewards per minute; at most {number(max(decisions))} decisions per minute."
    )
    both = [Line("Decisions", decisions, "line-decisions", filled=True), Line("Rewards", rewards, "line-rewards")]
    legend = piece("lines_legend", [(line.look, line.name, number(line.values[-1] or 0.0)) for line in both])
    return legend + drawn(lines(both, _TICKS[span], describes=describes, height=250))


def per_minute_numbers(rolling: Rolling, span: str, now: float) -> Markup:
    """Counts of decisions, rewards, overrides, questions and answers as a table, a row per twelfth of the span."""
    window = window_of(rolling, span)
    names = ["decisions", "overrides", "asked", "answers"]
    series = [window.series(names[0], now), _rewards(window, now), *(window.series(n, now) for n in names[1:])]
    size = (window.slots - 1) // 12
    rows = []
    for part in range(12):
        # the current, incomplete slot belongs to the newest row
        end = window.slots - part * size
        start = end - size - (part == 11)
        ago = part * size * window.step / 60.0
        until = (part + 1) * size * window.step / 60.0
        words = f"{ago:.0f} to {until:.0f} min ago" if span == "hour" else f"{ago / 60:.0f} to {until / 60:.0f} h ago"
        rows.append([words, *(count(sum(values[start:end])) for values in series)])
    return table(
        f"Events in {WORDS[span]}, counted", ["When", "Decisions", "Rewards", "Overrides", "Asked*", "Answers*"], rows
    )


def arms_over_time(rolling: Rolling, span: str, kind: str, now: float) -> Markup:
    """Shares of the arms over time: as decided, as recommended, or as taken according to the rewards."""
    window = window_of(rolling, span)
    rows = window.arms(now, kind)
    totals = [sum(column) for column in zip(*rows, strict=True)]
    every = _rewards(window, now) if kind == "rewarded" else window.series("decisions", now)
    everything = sum(every)
    if not everything:
        return piece("empty", f"No {'rewards' if kind == 'rewarded' else 'decisions'} in {WORDS[span]}.")
    names = list(rolling.arms)
    order = sorted((i for i, n in enumerate(totals) if n), key=lambda i: (-totals[i], i))
    shown = order[:_COLOURED]
    shares = []
    for row, n in zip(rows, every, strict=True):
        known = sum(row)
        coloured = [row[i] for i in shown]
        parts = [*coloured, *[0] * (_COLOURED - len(coloured)), known - sum(coloured), n - known]
        shares.append([part / n for part in parts] if n else [])
    entries = [(place, str(names[i]), totals[i]) for place, i in enumerate(shown)]
    rest = sum(totals[i] for i in order[_COLOURED:])
    if rest:
        n_rest = len(order) - _COLOURED
        entries.append((_COLOURED, f"{n_rest} other arm{'s' if n_rest > 1 else ''}", rest))
    untold = round(everything - sum(totals))
    if untold:
        entries.append((_COLOURED + 1, "not told yet", untold))
    legend = piece("shares_legend", [(place, name, percent(n / everything)) for place, name, n in entries])
    describes = f"{_KINDS[kind]} over {WORDS[span]}: " + ", ".join(
        f"{name} {percent(n / everything)}" for _, name, n in entries
    )
    picture = columns(shares, _TICKS[span], describes=describes + ".")
    return legend + drawn(picture)
