"""The gate on the dashboard: the rungs, the evidence on this one, and the step that it calls for."""

from __future__ import annotations

from markupsafe import Markup

from sidelight.drawing.intervals import number
from sidelight.drawing.live import share_bar, strip
from sidelight.service.core.gate import Gate
from sidelight.service.dashboard.pieces import count, drawn, percent, piece, table

__all__ = ["gate_card"]

_SAYS = {
    "better": "the learner is better than the old policy",
    "worse": "the learner is worse than the old policy",
    "open": "neither better nor worse can be told yet",
    "too early": "too early to tell: 1,000 units, 50 on each side, are needed",
    "no shared traffic": "no traffic is shared on a rung, so nothing can be told",
}


def gate_card(gate: Gate | None) -> Markup:
    """What the gate knows; where there is none, how to have one."""
    if gate is None:
        return piece("empty", "There is no gate: [gate] promote is off in the configuration.")
    found = gate.evidence()
    facts = [("Evidence", _SAYS[found["says"]])]
    picture = Markup("")
    if found["gain"] is not None:
        low, gain, high = found["low"], found["gain"], found["high"]
        facts.append(("Gain for each unit", f"{number(gain, sign=True)} ({number(low)} to {number(high)})"))
        edge = 1.15 * max(abs(low), abs(high))
        picture = drawn(strip(gain, low, high, (-edge, edge)))
    if found["says"] != "no shared traffic":
        facts.append(("Units", f"{count(found['units'])}, of which {count(found['waiting'])} wait for a reward"))
    step = gate.proposal()
    if step is not None:
        way = "up" if step.after > step.before else "down"
        taken = "is being taken" if gate.automatic(step) else "waits for a person"
        facts.append(("Next step", f"{way} to {percent(step.share)} of the traffic; it {taken}"))
    if found["held"]:
        facts.append(("Held", "a person has stopped promotions"))
    if found.get("ratio_wrong"):
        facts.append(("Alarm", "the shares of the two routes are not as set: nothing is promoted"))
    rows = [
        [
            f"{rung + 1}" + (" (now)" if rung == gate.rung else ""),
            percent(gate.settings.share_of(rung)),
            drawn(share_bar(gate.settings.share_of(rung), "" if rung <= gate.rung else "faint")),
        ]
        for rung in range(len(gate.settings.ladder))
    ]
    return piece("facts", facts, picture) + table("The ladder", ["Rung", "Learner's share", "~"], rows)
