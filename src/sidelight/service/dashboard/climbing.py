"""The gate on the dashboard: the rungs, the evidence on this one, and the step that it calls for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from sidelight.drawing.intervals import number
from sidelight.drawing.live import band, share_bar, strip
from sidelight.judging.sequences import FIRST_LOOK
from sidelight.judging.shared_traffic import LEAST_PER_ROUTE
from sidelight.service.core.defaults import Defaults
from sidelight.service.core.fold import State
from sidelight.service.core.gate import Gate
from sidelight.service.dashboard.pieces import count, drawn, percent, piece, table
from sidelight.service.dashboard.rolling import Rolling
from sidelight.service.dashboard.window import LATE
from sidelight.service.views.status import describe_floor

__all__ = ["floor_card", "gate_card", "waits_card"]

#: the gate's verdict → words; those for "too early" depend on what is missing (``_too_early``)
_SAYS = {
    "better": "the learner is better than the old policy",
    "worse": "the learner is worse than the old policy",
    "open": "neither better nor worse can be told yet",
    "no shared traffic": "no traffic is shared by chance, so nothing can be told",
    "cannot tell": "these rows cannot tell",
}


def waits_card(defaults: Defaults, rolling: Rolling, now: float) -> Markup:
    """How long the service waits for a reward, how often in vain, and how many came later; empty without a wait."""
    if defaults.seconds is None:
        return Markup("")
    day = rolling.day
    rows = [["no reward in time", count(day.total("defaults", now))]]
    before = ""
    for name in LATE:
        words = "still later" if name == "more" else f"{before}up to {name} after the wait"
        rows.append([words, count(day.total(f"late:{name}", now))])
        before = f"{name} "  # "a day up to a week after the wait"
    caption = (
        f"Rewards are waited for {_duration(defaults.seconds)}, then {number(defaults.reward)} counts until one comes; "
        "the last 24 hours"
    )
    return table(caption, ["When the reward came", "Decisions"], rows)


def floor_card(state: State) -> Markup:
    """What the floor guarantees and how much reward may still be risked; empty without a floor."""
    floor = describe_floor(state)
    if floor is None:
        return Markup("")
    promise = (
        f"{percent(1.0 - floor['share'])} of what the old policy would earn"
        if floor["share"]
        else f"the old policy's reward less {number(floor['allowance'])} a decision"
    )
    facts = [
        ("Floor", f"at least {promise}"),
        ("Room left", f"{number(floor['room'])} in the reward's unit"),
        ("Kept by the floor", f"{count(floor['kept'])} of {count(floor['rounds'])} decisions of the learner"),
        (
            "Rewards it knows",
            f"{count(floor['counted'])}; {count(floor['awaited'])} have not come, {count(floor['behind'])} wait behind "
            "these",
        ),
    ]
    if floor["awaited"] and state.defaults.seconds is None:
        words = "a reward that never comes holds up all behind it for ever: set [gate] reward_after, so that waits end"
        facts.append(("Waits without end", words))
    return piece("facts", facts, Markup(""))


def _duration(seconds: float) -> str:
    for name, size in (("weeks", 604_800.0), ("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.4g} {name if seconds != size else name[:-1]}"
    return f"{seconds:.4g} seconds"


def _history(found: Mapping[str, Any]) -> Markup:
    """A picture of the gain and its bounds over time, from the first evaluation on."""
    points = found["history"]
    if len(points) < 2:
        return Markup("")
    first, last = points[0], points[-1]
    describes = (
        f"The gain for each unit and its bounds, from unit {count(first[0])} to {count(last[0])}: now "
        f"{number(last[1], sign=True)}, between {number(last[2])} and {number(last[3])}."
    )
    ticks = (f"unit {count(first[0])}", f"unit {count(last[0])}")
    return drawn(band([(gain, low, high) for _, gain, low, high in points], ticks, describes=describes))


def _looking_on(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and text of each fact about the evidence in shadow (the old policy's rows) and assist (what persons did)."""
    facts = [
        (
            "Rows",
            f"{count(found['units'])} of {found['from']}, {count(found['matched'])} with the learner's arm; "
            f"{count(found['waiting'])} wait for a reward, their own or an earlier row's",
        )
    ]
    if found["propensities"] == "estimated" and found["units"]:
        facts.append(("On condition", "a model of the old policy is right, so this may suggest a step and takes none"))
    if found["says"] == "cannot tell":
        facts.append(("Why", f"{found['problem']}. Only a first share that is drawn at random can tell"))
    return facts


def _too_early(found: Mapping[str, Any], shadow: bool) -> str:
    """Why there is no verdict yet: the problem with the evidence, or how many units are still needed."""
    if found["problem"]:
        return f"nothing can be told yet: {found['problem']}"
    # units that wait for a reward, their own or an earlier one's, are no evidence yet
    there = f"{count(found['units'])} rows" if shadow else f"{count(found['units'] - found['waiting'])} units"
    needed = f"{FIRST_LOOK:,}" if shadow else f"{FIRST_LOOK:,}, {LEAST_PER_ROUTE} on each side,"
    return f"too early to tell: {there} count so far; at least {needed} are needed"


def gate_card(gate: Gate, killed: bool = False) -> Markup:
    """The gate's evidence, and its ladder where there is one; under the kill switch no step up is taken."""
    found = gate.evidence()
    early, shadow = found["says"] == "too early", gate.shadow is not None
    facts = [("Evidence", _too_early(found, shadow) if early else _SAYS[found["says"]])]
    picture = Markup("")
    if found["gain"] is not None:
        low, gain, high = found["low"], found["gain"], found["high"]
        facts.append(("Gain for each unit", f"{number(gain, sign=True)} ({number(low)} to {number(high)})"))
        edge = 1.15 * max(abs(low), abs(high))
        picture = _history(found) or drawn(strip(gain, low, high, (-edge, edge)))
    if shadow:
        facts += _looking_on(found)
    elif found["says"] != "no shared traffic":
        # units enter in the order of their decisions, so one with a reward may wait behind one without
        waiting = f"{count(found['waiting'])} wait for a reward, their own or an earlier unit's"
        facts.append(("Units", f"{count(found['units'])}, of which {waiting}"))
    if found["problem"] and found["says"] in ("better", "worse", "open"):
        facts.append(("Problem", found["problem"]))
    step = gate.proposal()
    if step is not None:
        way = "up" if step.after > step.before else "down"
        taken = "is being taken" if gate.automatic(step) else "waits for a person"
        if killed and way == "up":
            taken = "waits until the kill switch is off"
        facts.append(("Next step", f"{way} to {percent(step.share)} of the traffic; it {taken}"))
    if found["held"]:
        facts.append(("Held", "a person has stopped promotions"))
    if found.get("ratio_wrong"):
        facts.append(("Alarm", "the shares of the two routes are not as set: nothing is promoted"))
    if not gate.settings.on:
        facts.append(("Steps", "none follow from this: [gate] promote is off in the configuration"))
        return piece("facts", facts, picture)
    if gate.rung < 0 < gate.share:
        facts.append(("Steps", f"none: a share of {percent(gate.share)} is on no rung; set one of those below"))
    rows = [
        [
            f"{rung + 1}" + (" (now)" if rung == gate.rung else ""),
            percent(gate.settings.share_of(rung)),
            drawn(share_bar(gate.settings.share_of(rung), "" if rung <= gate.rung else "faint")),
        ]
        for rung in range(len(gate.settings.ladder))
    ]
    # sent with a step, so that it is refused if the gate has left the rung that the page shows
    seen = Markup('<data id="gate-rung" value="{}"></data>').format(gate.rung)
    return piece("facts", facts, picture) + table("The ladder", ["Rung", "Learner's share", "~"], rows) + seen
