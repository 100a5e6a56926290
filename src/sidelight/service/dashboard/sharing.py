"""The gate's verdict as a page to share: one answer, one picture, and the assumptions behind it.

It has the form of the page that ``sidelight judge`` writes, and needs no script and no network, so that it can be saved
and sent on.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from sidelight.drawing.colours import FONT, variables
from sidelight.drawing.intervals import number
from sidelight.drawing.stages import Bar, stages_picture
from sidelight.service.core.gate import Gate
from sidelight.service.dashboard.alarms import Alarm
from sidelight.service.dashboard.pieces import count, percent
from sidelight.service.log.events import GateStep
from sidelight.version import __version__

__all__ = ["verdict_page"]

_ANSWERS = {
    "better": ("good", "Yes."),
    "worse": ("bad", "No."),
    "open": ("open", "Cannot be told yet."),
    "too early": ("open", "Too early to tell."),
    "cannot tell": ("open", "Cannot be told from these rows."),
    "no shared traffic": ("open", "Nothing is being tested."),
}


def verdict_page(
    gate: Gate,
    steps: Sequence[tuple[float, GateStep]],
    odd: Sequence[Alarm],
    unit: str,
    event: int,
    now: dt.datetime,
    *,
    killed: bool = False,
) -> str:
    """The page as HTML.

    Args:
        gate: the gate as it stands.
        steps: of the ladder so far, with their times.
        odd: the current alarms about the traffic.
        unit: of the reward.
        event: the last event of the log.
        now: the time, in UTC.
        killed: whether the kill switch is on; then no step up is taken.
    """
    found = gate.evidence()
    tone, answer = _ANSWERS[found["says"]]
    if found["says"] == "too early" and found["problem"]:
        answer = "Cannot be told yet."
    if found.get("propensities") == "estimated" and found["says"] in ("better", "worse"):
        answer = f"{answer[:-1]}, if the model of the old policy is right."
    bars = [_bar(f"{_place(step.evidence)}, until {_date(at)}", step.evidence) for at, step in steps[-4:]]
    bars.append(_bar(f"{_place(found)}, now", found))
    title = "What the learner gains over the old policy"
    known = found["gain"] is not None
    return (
        Environment(loader=PackageLoader("sidelight.drawing"), autoescape=True)
        .get_template("verdict.html")
        .render(
            title=f"{answer} The learner against the old policy",
            question="Does the learner do better than the old policy?",
            answer=answer,
            tone=tone,
            sentence=_sentence(found),
            per_thousand=number(1_000 * found["gain"], sign=True) if known else "",
            range=f"{number(1_000 * found['low'])} to {number(1_000 * found['high'])}" if known else "",
            unit=unit,
            picture=Markup(stages_picture(bars, unit, title).svg),
            narrow=Markup(stages_picture(bars, unit, title, 350).svg),
            caption="Dot: the estimate. Bar: bounds that hold however often this page is looked at, but for the error "
            "rate that was agreed.",
            warnings=[f"{alarm.words}. {alarm.remedy}." for alarm in odd],
            assumptions=_assumptions(gate, found),
            overturn=_overturn(found),
            simpler_title="What happens next",
            simpler=_next(gate, killed),
            table_title="The ladder so far",
            header=("when", "from", "to", "gain", "bounds", "why"),
            rows=[_row(at, step) for at, step in reversed(steps[-20:])],
            more="" if steps else "No step was taken yet.",
            source=f"The event log up to event {event:,}",
            row_count=count(found.get("units", 0)),
            date=f"{now:%Y-%m-%d %H:%M} UTC",
            version=__version__,
            command="",
            light=Markup(variables("light")),
            dark=Markup(variables("dark")),
            font=Markup(FONT),
        )
    )


def _place(found: Mapping[str, Any]) -> str:
    if "from" in found:
        return "The old policy's rows" if found["from"].startswith("the old") else "What persons did"
    return f"{percent(found['share'])} of the traffic" if found.get("share") else "No shared traffic"


def _date(at: float) -> str:
    return f"{dt.datetime.fromtimestamp(at, dt.UTC):%d %b}"


def _bar(label: str, found: Mapping[str, Any]) -> Bar:
    if found.get("gain") is None:
        return Bar(label, "", math.nan, math.nan, math.nan, math.nan, math.nan)
    remark = "on condition that the model is right" if found.get("propensities") == "estimated" else ""
    low, high = float(found["low"]), float(found["high"])
    return Bar(label, remark, float(found["gain"]), low, high, low, high)


def _sentence(found: Mapping[str, Any]) -> str:
    units = count(found["units"])
    if found["gain"] is None:
        problem = found.get("problem") or ""
        # not str.capitalize, which would make the letters of an arm's label lower case
        why = f" {problem[0].upper()}{problem[1:]}." if problem else ""
        waiting = f"{count(found['waiting'])} of which wait for a reward, their own or an earlier one's"
        return f"{_place(found)}: {units} units so far, {waiting}.{why}"
    low, high = number(found["low"], sign=True), number(found["high"], sign=True)
    over = f"over {units} decisions of the old policy" if "from" in found else f"over {units} units"
    return (
        f"{_place(found)}, {over}: the learner gains {number(found['gain'], sign=True)} a decision over the old policy "
        f"(between {low} and {high})."
    )


def _assumptions(gate: Gate, found: Mapping[str, Any]) -> list[str]:
    rate = percent(gate.settings.error_rate)
    shared = [
        f"The bounds are wrong at any time with a chance of at most {rate}, over all rungs and ladders together; they "
        "hold from 1,000 units on.",
        "What counts is the reward that is reported, and the default one where none came in time.",
    ]
    if "from" not in found:
        return [
            "Who decides is drawn by chance for each unit: a subject, or a request without one. Nothing else has to be "
            "known about the old policy.",
            *shared,
        ]
    if found["propensities"] == "told":
        return ["The old policy draws its arms with the chances that it tells.", *shared]
    return [
        "A model of the old policy (a softmax regression of its arms on the contexts) is right. That cannot be tested "
        "here, so these rows may suggest a step and prove none.",
        *shared,
    ]


def _overturn(found: Mapping[str, Any]) -> list[str]:
    out = [
        "A world that changes: this is the average over the units so far, not a promise for the next ones.",
        "A loss so rare that none has come yet: what has not been seen is in no bound.",
    ]
    if found.get("propensities") == "estimated":
        out.insert(0, "A first share of the traffic that is drawn at random, which needs no model of the old policy.")
    return out


def _next(gate: Gate, killed: bool) -> list[str]:
    step = gate.proposal()
    if not gate.settings.on:
        return ["Nothing by itself: [gate] promote is off in the configuration."]
    if gate.rung < 0 < gate.share:
        return [f"Nothing by itself: a share of {percent(gate.share)} is on no rung of the ladder. Set one that is."]
    if step is None:
        return ["A person has stopped promotions." if gate.held else "Nothing: the evidence calls for no step."]
    taken = "It is being taken." if gate.automatic(step) else "It waits for a person."
    way = "up" if step.after > step.before else "down"
    if killed and way == "up":
        taken = "It waits until the kill switch is off."
    return [f"A step {way} to {percent(step.share)} of the traffic, because {step.reason}. {taken}"]


def _row(at: float, step: GateStep) -> tuple[str, ...]:
    found = step.evidence
    known = found.get("gain") is not None
    bounds = f"{number(found['low'])} to {number(found['high'])}" if known else "–"
    gain = number(found["gain"], sign=True) if known else "–"
    before, after = (f"rung {rung + 1}" if rung >= 0 else "off" for rung in (step.before, step.after))
    return _date(at), before, after, gain, bounds, step.reason
