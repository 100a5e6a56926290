"""What the old log proved before the learner acted: the verdict on the dashboard."""

from __future__ import annotations

import math

from markupsafe import Markup

from sidelight.drawing.intervals import number
from sidelight.drawing.live import strip
from sidelight.errors import SidelightError
from sidelight.judging.judge import judge
from sidelight.judging.lines import Line
from sidelight.judging.verdict import Verdict
from sidelight.judging.wording import cells_of, percent
from sidelight.service.config import Config
from sidelight.service.dashboard.pieces import count, drawn, piece, table

__all__ = ["proved", "verdict_card"]

#: lines that the card shows, the largest gains first
_SHOWN = 10
#: arms times columns up to which a verdict takes a fraction of a second, once
_MOST = 2_000


def proved(config: Config) -> Markup:
    """The verdict on every fixed arm, from the log summaries that the learner started from; a note without a log."""
    try:
        summaries = config.load_summaries()
        if not summaries:
            return piece("empty", "The learner started without a log.")
        first = next(iter(summaries.values()))
        if first.n_arms * first.n_recorded > _MOST:
            words = (
                f"With {first.n_arms:,} arms that takes a while: `sidelight judge SUMMARY` says what the log proves."
            )
            return piece("empty", words)
        verdict = judge(first if len(summaries) == 1 else summaries)
    except (SidelightError, OSError) as error:
        # the card is optional: a summary that cannot be judged must not take the dashboard down
        return piece("empty", f"The log cannot be judged: {error}")
    return verdict_card(verdict)


def verdict_card(verdict: Verdict) -> Markup:
    """A verdict as a part of the dashboard: its sentence, and the gain of every policy with its interval.

    There is no style of its own in it, which the dashboard's pages forbid.
    """
    lines = [line for line in verdict.lines if line.role != "old policy"]
    lines.sort(key=lambda line: -line.gain if line.known else math.inf)
    shown = lines[:_SHOWN]
    ends = [end for line in shown for end in (line.gain, line.low, line.high) if math.isfinite(end)]
    bounds = (min(0.0, *ends), max(0.0, *ends)) if ends else (0.0, 1.0)
    caption = (
        f"Gain over the old policy ({number(verdict.old.value)} in {verdict.reward!r} for each decision, "
        f"{count(verdict.rows)} rows), {percent(verdict.level)} intervals"
    )
    if ends:
        caption += f", drawn from {number(bounds[0])} to {number(bounds[1])}"
    header = ["Policy", "Known from", "Gain", "Interval*", "Drawn~", "Undone by*"]
    out = [piece("note", verdict.sentence), table(caption, header, [_row(line, bounds) for line in shown], "arms")]
    out.append(
        piece("note", "Undone by: the share of the unexplained reward, and of the choice, that hidden features need.")
    )
    if len(shown) < len(lines):
        out.append(piece("note", f"The {len(shown)} largest of {len(lines)}."))
    out.append(piece("note", f"What must hold. {' '.join(verdict.assumptions)}"))
    out += [piece("alarm", text) for text in verdict.warnings]
    return Markup("").join(out)


def _row(line: Line, bounds: tuple[float, float]) -> list[str]:
    cells = cells_of(line)
    if not line.known:
        return [cells.policy, cells.stage, cells.gain, cells.note, "", cells.robustness]
    low, high = max(line.low, bounds[0]), min(line.high, bounds[1])
    picture = drawn(strip(line.gain, low, high, bounds))
    return [cells.policy, cells.stage, cells.gain, cells.interval, picture, cells.robustness]
