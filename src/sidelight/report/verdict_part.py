"""The part of a report about what the log proves by itself, before any learner has acted."""

from __future__ import annotations

from sidelight.drawing import markup as html
from sidelight.errors import SidelightError
from sidelight.judging.judge import judge
from sidelight.judging.verdict import Verdict
from sidelight.judging.wording import cells_of, percent
from sidelight.logs.summary import LogSummary
from sidelight.report.parts import Part

__all__ = ["verdict_of", "verdict_part"]

_SHOWN = 60


def verdict_of(summary: LogSummary) -> Verdict | None:
    """What the log proves of fixed arms; ``None`` where it cannot be judged at all (one arm, equal rewards)."""
    try:
        return judge(summary)
    except SidelightError:
        return None


def verdict_part(verdict: Verdict) -> Part:
    """What always taking an arm would gain over the old policy, by the log alone, and what would overturn it."""
    lines = verdict.lines[:_SHOWN]
    more = len(verdict.lines) - len(lines)
    rows = [(c.policy, c.value, c.gain, c.interval, c.robustness, c.note) for c in map(cells_of, lines)]
    caption = "What each policy would be worth, by the log alone; intervals of the arms hold together"
    caption += f"; {more:,} more are not shown" if more > 0 else ""
    header = ("policy", "value", "gain", f"{percent(verdict.level)} interval", "overturned at", "")
    pieces = [
        html.paragraph(verdict.sentence),
        html.notes(list(verdict.warnings), alarming=True),
        html.facts([("holds if", " ".join(verdict.assumptions))]),
        html.table(caption, header, rows),
    ]
    return Part("What the log proves", "verdict", pieces, {})
