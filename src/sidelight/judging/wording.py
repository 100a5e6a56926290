"""The verdict in words."""

from __future__ import annotations

import math
from typing import NamedTuple

from sidelight.drawing.intervals import number
from sidelight.judging.lines import Findings, Line

__all__ = [
    "Cells",
    "cells_of",
    "display_name",
    "interval_of",
    "lead_of",
    "percent",
    "sentence_of",
    "simpler_of",
    "times_of",
]


def display_name(policy: str, picked: int = 0) -> str:
    """A policy's name as the subject of a sentence; ``picked``: among how many arms it was picked as the best."""
    name = "The policy that the log suggests" if policy == "best" else f"Policy {policy!r}"
    return f"{name}, the best-looking of {picked} fixed arms," if picked > 1 else name


def percent(level: float) -> str:
    """A level as text: 95%, 99.9%."""
    return f"{100 * level:g}%"


class Cells(NamedTuple):
    """A line of a verdict as text for a table; a dash where there is no number, and for the old policy's own gain."""

    policy: str
    stage: str
    value: str
    gain: str
    interval: str
    robustness: str
    note: str


def cells_of(line: Line) -> Cells:
    """The cells of a table's row about one line."""
    compared = line.known and line.role != "old policy"
    return Cells(
        line.policy,
        line.stage,
        number(line.value),
        number(line.gain, sign=True) if compared else "–",
        interval_of(line.low, line.high) if compared else "–",
        "–" if line.robustness is None else f"{line.robustness:.1%}",
        line.note,
    )


def interval_of(low: float, high: float) -> str:
    """The ends of an interval of a gain, with their signs."""
    return f"{number(low, sign=True)} to {number(high, sign=True)}"


def sentence_of(verdict: Findings) -> str:
    """What the headline would be worth, how sure that is, what would overturn it, and what is as good."""
    line = verdict.line(verdict.headline)
    parts = [_main(verdict, line)]
    if not line.known:
        return " ".join(parts)
    if line.stage == "log" and verdict.reward_share is None and verdict.choice_share is None:
        parts.append(_overturned(verdict, line))
    unknown = [later for later in verdict.stages_of(verdict.headline) if not later.known and later.stage != "log"]
    parts += [_cannot(later) for later in unknown]
    parts.append(simpler_of(verdict))
    return " ".join(part for part in parts if part)


def simpler_of(verdict: Findings) -> str:
    """A sentence that a fixed arm is better than the headline, or not shown to be worse; else empty."""
    simpler, gain = verdict.simpler, verdict.line(verdict.headline).gain
    if simpler is None or simpler.policy == verdict.headline or not gain > 0 or not simpler.as_good:
        return ""
    if simpler.same:
        return f"Something simpler is the same: {simpler.policy}, which is what the policy takes everywhere."
    by = f"the policy is {number(abs(simpler.difference))} {'better' if simpler.difference >= 0 else 'worse'}"
    if simpler.better:
        return f"Something simpler is better: {simpler.policy} ({by})."
    tells = "the log tells" if simpler.stage == "log" else f"{_STAGE[simpler.stage]} tell"
    return f"Something simpler is as good, as far as {tells}: {simpler.policy} ({by}, which may be chance)."


_STAGE = {"log": "the log", "answers": "the old policy's answers", "complete": "the complete rows"}


def _cannot(line: Line) -> str:
    if line.note.startswith("cannot be told"):
        return f"With {_STAGE[line.stage]} it {line.note}."
    return f"{line.note[0].upper()}{line.note[1:]}."


def lead_of(verdict: Findings) -> str:
    """The first sentence of the verdict: what the headline would be worth, and how sure that is."""
    return _main(verdict, verdict.line(verdict.headline))


def _main(verdict: Findings, line: Line) -> str:
    name = display_name(line.policy, verdict.picked)
    if not line.known:
        why = line.note if line.note.startswith("cannot be told") else f"cannot be told: {line.note}"
        return f"What {name[0].lower() + name[1:]} would be worth {why}."
    interval = f"{percent(verdict.level)} interval {interval_of(line.low, line.high)}"
    if line.together > 1:
        interval += f", wide enough for the choice among {line.together} arms"
    if not math.isfinite(line.low):
        interval = "no interval: no limit on choice_share below 1 was stated"
    gain = f"{number(abs(line.gain))} in {verdict.reward!r} for each decision"
    condition = _condition(verdict, line)
    if line.sign == 0:
        return (
            f"Whether {name[0].lower() + name[1:]} would do better than the old policy cannot be told from "
            f"{_STAGE[line.stage]}: {number(line.gain, sign=True)} in {verdict.reward!r} for each decision, "
            f"{interval}{condition}."
        )
    verb = "gains" if line.sign > 0 else "loses"
    return f"{name} {verb} {gain} against the old policy ({interval}){condition}."


def _condition(verdict: Findings, line: Line) -> str:
    if line.stage == "complete":
        return f", {line.note}" if line.note else ""
    if line.stage == "answers":
        return ", whatever the hidden features do to the reward" if verdict.reward_share is None else ""
    if verdict.reward_share is None and verdict.choice_share is None:
        return ", if nothing hidden matters"
    return ", hidden features being at most as strong as stated"


def _overturned(verdict: Findings, line: Line) -> str:
    if line.sign == 0 or line.robustness is None:
        return ""
    share = line.robustness
    found = (
        f"Hidden features would overturn this if they explained more than {share:.1%} of what the log leaves "
        f"unexplained and of the choice"
    )
    strongest = next((b for b in verdict.yardsticks if math.isfinite(b.times)), None)
    if strongest is None:
        return found + "."
    if strongest.times <= 1.0:
        return found + f"; a hidden feature as strong as {strongest.feature!r} would."
    return found + f"; it would take one {times_of(strongest.times)} as strong as {strongest.feature!r}."


def times_of(times: float) -> str:
    """How many times as strong, as text."""
    return f"{times:.1f} times" if times < 10 else f"{times:.0f} times"
