"""The page for whoever decides: one sentence, one picture, what must hold, what would overturn it."""

from __future__ import annotations

import datetime as dt
import math

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from sidelight.drawing.colours import FONT, variables
from sidelight.drawing.intervals import number
from sidelight.drawing.stages import Bar, Picture, contour_picture, stages_picture
from sidelight.errors import InputError
from sidelight.judging.lines import Findings, Line
from sidelight.judging.policies import BEST
from sidelight.judging.sensitivity import bias_bound, robustness_value
from sidelight.judging.wording import cells_of, display_name, interval_of, lead_of, percent, simpler_of, times_of
from sidelight.version import __version__

__all__ = ["bars_of", "decision_page", "picture_of"]

_SHOWN = 60
_LABELS = {"log": "The log alone", "answers": "With the old policy's answers", "complete": "With complete rows"}


def bars_of(verdict: Findings, policy: str) -> list[Bar]:
    """A bar for each stage of a policy, with what hidden features may do as the wide band."""
    return [_bar(verdict, line) for line in verdict.stages_of(policy)]


def _bar(verdict: Findings, line: Line) -> Bar:
    label = _LABELS[line.stage]
    if not line.known:
        return Bar(label, "", math.nan, math.nan, math.nan, math.nan, math.nan)
    low, high, band = line.low + line.hidden, line.high - line.hidden, line.hidden
    if not math.isfinite(line.hidden):
        low = high = line.gain
    remark = "nothing is hidden in these rows"
    if line.note:
        remark = line.note
    if line.stage == "answers":
        remark = "wide: whatever hidden features do to the reward"
        if verdict.reward_share is not None:
            remark = f"wide: hidden features explain up to {verdict.reward_share:.0%} of what is unexplained"
    elif line.stage == "log":
        band, remark = _band_of_log(verdict, line)
    return Bar(label, remark, line.gain, low, high, low - band, high + band)


def _band_of_log(verdict: Findings, line: Line) -> tuple[float, str]:
    """Half-width and label of the band around stage 1: hidden features as stated, else like the strongest recorded."""
    if verdict.reward_share is not None or verdict.choice_share is not None:
        return line.hidden, "wide: hidden features as strong as stated"
    found = verdict.benchmarks_of(line.policy)
    biases = [(bias_bound(line.size, b.reward_share, min(b.choice_share, 0.999)), b.feature) for b in found]
    if not biases:
        return 0.0, "narrow: if nothing hidden matters"
    band, feature = max(biases)
    return band, f"wide: a hidden feature as strong as '{feature}'"


def picture_of(verdict: Findings, kind: str, policy: str | None) -> Picture:
    """The picture of a verdict.

    Args:
        verdict: what was found.
        kind: ``"stages"`` (intervals stage by stage) or ``"contour"`` (which strengths overturn stage 1).
        policy: the headline if ``None``.
    """
    name = verdict.headline if policy is None else policy
    verdict.line(name)
    if kind == "stages":
        return stages_picture(bars_of(verdict, name), verdict.reward, f"The gain of {name}, stage by stage")
    if kind != "contour":
        raise InputError(f"kind={kind!r} is not one of 'stages', 'contour'.")
    line = verdict.line(name, "log")
    if not line.known or name not in verdict.estimates:
        raise InputError(f"there is no contour of {name!r}: {line.note or 'it is the reference'}.")
    estimate = verdict.estimates[name]
    margin = max(0.0, abs(line.gain) - verdict.half_of(name))
    strength = (margin / estimate.size) ** 2 if estimate.size > 0 else math.inf
    points = [(b.feature, b.reward_share, b.choice_share) for b in verdict.benchmarks_of(name)[:12]]
    robustness = robustness_value(margin, estimate.size)
    return contour_picture(strength, robustness, points, f"Hidden features that would overturn the gain of {name}")


def decision_page(verdict: Findings, command: str = "", unit: str | None = None, date: dt.date | None = None) -> str:
    """The page as HTML that needs no network and no script.

    Args:
        verdict: what was found.
        command: how to make the page again.
        unit: of the reward; its column's name if ``None``.
        date: today if ``None``.
    """
    line = verdict.line(verdict.headline)
    lines = verdict.lines[:_SHOWN]
    more = len(verdict.lines) - len(lines)
    environment = Environment(loader=PackageLoader("sidelight.drawing"), autoescape=True)
    name = display_name(verdict.headline, verdict.picked)
    unit = unit or verdict.reward
    tone, answer = _answer(verdict, line)
    bars, title = bars_of(verdict, verdict.headline), f"The gain of {verdict.headline}, stage by stage"
    bounded = line.known and math.isfinite(line.low)
    return environment.get_template("verdict.html").render(
        title=f"{answer} {name.rstrip(',')}",
        question=f"Would {name[0].lower() + name[1:]} do better than the old policy?",
        answer=answer,
        tone=tone,
        explained=_EXPLAINED if verdict.headline == BEST else "",
        sentence=lead_of(verdict),
        but=simpler_of(verdict),
        per_thousand=_per_thousand(line),
        range=interval_of(1_000 * line.low, 1_000 * line.high) if bounded and line.sign != 0 else "",
        unit=unit,
        picture=Markup(stages_picture(bars, unit, title).svg),
        narrow=Markup(stages_picture(bars, unit, title, 350).svg),
        caption=f"Dot: the estimate. Narrow bar: {percent(verdict.level)} interval from the number of rows. Wide band: "
        "what hidden features may do beyond that.",
        warnings=verdict.warnings,
        assumptions=verdict.assumptions,
        overturn=_overturn(verdict, line),
        simpler=_simpler(verdict),
        header=("policy", "stage", "value", "gain", f"{percent(verdict.level)} interval", ""),
        rows=[_row(one) for one in lines],
        more=f"{more:,} more lines are not shown." if more else "",
        together=_together(verdict),
        source=verdict.source,
        row_count=f"{verdict.rows:,}",
        date=(date or dt.date.today()).isoformat(),
        version=__version__,
        command=command,
        light=Markup(variables("light")),
        dark=Markup(variables("dark")),
        font=Markup(FONT),
    )


_EXPLAINED = (
    "It takes, case by case, the arm for which the log's rows promise most; chosen on one half of them, valued on the "
    "other."
)


def _together(verdict: Findings) -> str:
    most = max((line.together for line in verdict.lines), default=1)
    if most == 1:
        return ""
    return (
        f"The intervals of the {most} fixed arms hold together, so any of them may be picked; an arm that is asked for "
        "by name has a narrower one."
    )


def _answer(verdict: Findings, line: Line) -> tuple[str, str]:
    if not line.known or line.sign == 0:
        return "open", "Cannot be told."
    word = "Yes" if line.sign > 0 else "No"
    tone = "good" if line.sign > 0 else "bad"
    if line.stage == "log" and verdict.reward_share is None and verdict.choice_share is None:
        if any(b.times <= 1.0 for b in verdict.yardsticks):
            # a hidden feature as strong as a recorded one would overturn it, so do not colour it as a clear answer
            return "open", f"{word}, but only if nothing hidden matters."
        return tone, f"{word}, if nothing hidden matters."
    if line.note:
        return tone, f"{word}, if the model of the old policy is right."
    return tone, f"{word}."


def _per_thousand(line: Line) -> str:
    """The gain for 1,000 decisions; where the sign is open, the interval alone."""
    if not line.known or (line.sign == 0 and not math.isfinite(line.low)):
        return ""
    return number(1_000 * line.gain, sign=True) if line.sign else interval_of(1_000 * line.low, 1_000 * line.high)


def _row(line: Line) -> tuple[str, ...]:
    cells = cells_of(line)
    name = "best: what the log suggests" if line.policy == BEST else line.policy
    return name, cells.stage, cells.value, cells.gain, cells.interval, line.note.split(". About")[0]


def _overturn(verdict: Findings, line: Line) -> list[str]:
    found: list[str] = []
    for later in verdict.stages_of(verdict.headline):
        if not later.known:
            found.append(f"{_LABELS[later.stage]}: {later.note}.")
    log = next((one for one in verdict.stages_of(verdict.headline) if one.stage == "log"), None)
    if log is not None and log.known and log.robustness is not None:
        if log.robustness == 0.0:
            found.append("Sampling alone: from the log, the sign of the gain is not clear even if nothing is hidden.")
        else:
            found.append(
                f"For the log alone: hidden features that explain {log.robustness:.1%} of what the recorded ones leave "
                "unexplained, and as much of who got which arm."
            )
            for b in verdict.yardsticks[:4]:
                if b.times < 100.0:
                    verb = "would" if b.times <= 1 else f"would not; it would take {times_of(b.times)} that to do so"
                    found.append(f"A hidden feature as strong as '{b.feature}' {verb}.")
    if line.stage == "answers" and line.known:
        found.append("With answers: nothing that is linear in the features, as long as what must hold does.")
    if line.stage == "complete" and line.known:
        wrong = "a wrong model of the old policy" if line.note else "wrong propensities"
        found.append(f"With complete rows: {wrong}, or decisions about other people than those in the rows.")
    return found or ["There is no number to overturn."]


def _simpler(verdict: Findings) -> list[str]:
    found: list[str] = []
    simpler = verdict.simpler
    if simpler is not None and simpler.same:
        found.append(f"The policy takes the same arm everywhere: {simpler.policy} is all that it comes to.")
    elif simpler is not None:
        span = interval_of(simpler.low, simpler.high)
        word = "is as good, as far as can be told" if simpler.as_good else "is worse"
        found.append(
            f"The best-looking fixed arm, {simpler.policy}, {'is better' if simpler.better else word}: the policy "
            f"gains {number(simpler.difference, sign=True)} over it ({span})."
        )
    else:
        arms = [line for line in verdict.lines if line.role == "arm" and line.stage == "log" and line.known]
        if arms:
            best = max(arms, key=lambda one: one.gain)
            found.append(f"The best-looking fixed arm of the log is {best.policy}: {number(best.gain, sign=True)}.")
    if math.isfinite(verdict.word):
        found.append(
            f"The log's regression for each arm, taken at its word, promises {number(verdict.word, sign=True)}; that "
            "is neither valued on other rows nor does it allow for anything hidden."
        )
    return found or ["Nothing simpler could be compared."]
