"""The diagnosis as a page: in the terminal and as HTML, from the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidelight.drawing import markup as html
from sidelight.drawing.notebook import card
from sidelight.labels import counted
from sidelight.logs.diagnosis.findings import ArmReport, Findings
from sidelight.logs.diagnosis.worth import two_digits
from sidelight.version import __version__

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["difference_words", "hidden_words", "html_page", "notebook_card", "queries_words", "terminal_page"]

_TITLE = "What this log is worth"
_SHOWN_IN_TERMINAL = 12
_SHOWN_IN_HTML = 200
#: assumptions that a diagnosis cannot test, and what tests them
_ASSUMED = (
    "the log is right, rewards are linear in the features, what arms pay does not change with time: fused learners "
    "test each of the three from their own rounds, by log_trust() and assumptions()"
)


def _facts(diagnosis: Findings) -> list[tuple[str, str]]:
    """Names and values of the facts that the terminal page and the HTML page both show."""
    smallest = diagnosis.smallest
    skipped = diagnosis.rows_read - diagnosis.rows_used
    facts = [
        ("rows", f"{diagnosis.rows_read:,} read, {diagnosis.rows_used:,} used, {skipped:,} skipped"),
        ("arms", f"{len(diagnosis.arms):,}; the smallest is {smallest.arm!r} with {counted(smallest.rows, 'row')}"),
        (
            "dimensions fixed",
            f"{diagnosis.n_recorded} of {diagnosis.n_features}: the log recorded {_names(diagnosis.recorded)}; "
            f"{_names(diagnosis.hidden) if diagnosis.hidden else 'nothing'} "
            f"{'is' if len(diagnosis.hidden) <= 1 else 'are'} hidden",
        ),
        ("residual variance", f"{diagnosis.residual_variance:.4g}, over all arms"),
        ("collinear columns", _collinear(diagnosis)),
        ("arms differ", difference_words(diagnosis)),
        ("hidden features", hidden_words(diagnosis)),
        ("queries needed", queries_words(diagnosis)),
        ("assumed", _ASSUMED),
    ]
    if diagnosis.effective_rows is not None:
        total = sum(diagnosis.effective_rows)
        facts.append(("propensities", f"the rows count for {total:,.0f} if weighted by 1/propensity"))
    return facts


def _names(names: tuple[str, ...], limit: int = 6) -> str:
    shown = ", ".join(names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _collinear(diagnosis: Findings) -> str:
    if diagnosis.to_drop:
        return f"leave out {', '.join(diagnosis.to_drop)}: the smallest set that resolves it"
    return "none (judged after scaling the columns, so units do not matter)"


def difference_words(diagnosis: Findings) -> str:
    """Whether the arms' regressions differ by more than chance, how much more, and what that can mean."""
    difference = diagnosis.difference
    if difference is None:
        return "cannot be told: fewer than two arms have unique coefficients"
    if difference.p_value > 0.01:
        return "the arms' regressions do not differ by more than chance: no sign of selection"
    chance = 1.0 - difference.beyond_chance
    told = "less than 1%" if chance < 0.01 else f"about {chance:.0%}"
    return (
        f"the arms' regressions differ, and chance explains {told} of how much: either arms have different effects, or "
        "who got which arm depended on something that is not in the log"
    )


def hidden_words(diagnosis: Findings) -> str:
    """How much of the unexplained variance is the hidden features' doing, and how that is known."""
    worth = diagnosis.worth
    if worth.source == "none":
        return "nothing is hidden"
    if worth.source == "open":
        return "cannot be told from the log alone: the residual variance may be noise or the hidden features' doing"
    known = "measured in rows that have the hidden columns" if worth.source == "measured" else "by the noise given"
    return f"hidden features explain {worth.hidden_share[0]:.0%} of the residual variance ({known})"


def queries_words(diagnosis: Findings) -> str:
    """How often to ask the old policy before more answers add little."""
    if not diagnosis.hidden:
        return "none: nothing is hidden"
    least, most = (two_digits(count) for count in diagnosis.queries)
    if diagnosis.worth.source == "open":
        return (
            f"at most about {most:,}; how many depends on how much of the residual variance is the hidden features' "
            "doing. The first few hundred help most"
        )
    if least < 100:
        return f"about {least:,}: hidden features explain little of what the log leaves unexplained"
    return (
        f"about {least:,}; more add little, because the log itself is then the larger source of error. The first few "
        "hundred help most"
    )


def _skipped_rows(diagnosis: Findings) -> list[tuple[str, str]]:
    return [(reason, f"{count:,}") for reason, count in sorted(diagnosis.skipped.items(), key=lambda i: -i[1])]


def _arm_cells(report: ArmReport) -> tuple[str, str, str, str, str]:
    condition = f"{report.condition:.3g}" if report.determined else "–"
    if report.determined:
        remark = ""
    elif report.rows == 0:
        remark = "no rows"
    elif report.collinear:
        remark = f"collinear: leave out {', '.join(report.collinear)}"
    else:
        remark = "fewer rows than columns"
    return f"{report.rows:,}", f"{report.share:.1%}", condition, f"{report.residual_variance:.4g}", remark


_ARM_HEADER = ("arm", "rows", "share", "conditioning", "residual variance", "remark")


def terminal_page(diagnosis: Findings) -> RenderableType:
    """The page as something Rich prints."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    for name, value in _facts(diagnosis):
        facts.add_row(name, Text(value))
    for reason, count in _skipped_rows(diagnosis):
        facts.add_row("  skipped", Text(f"{count}  {reason}"))
    arms = Table(box=None, pad_edge=False, title="Arms, the smallest first", title_justify="left", padding=(0, 2, 0, 0))
    for i, name in enumerate(_ARM_HEADER):
        arms.add_column(name, justify="left" if i in (0, 5) else "right")
    for report in sorted(diagnosis.arms, key=lambda r: r.rows)[:_SHOWN_IN_TERMINAL]:
        arms.add_row(Text(str(report.arm)), *(Text(cell) for cell in _arm_cells(report)))
    parts: list[RenderableType] = [
        Text(diagnosis.sentence, style="bold"),
        Text(diagnosis.worth.assumption, style="dim"),
        Text(),
        facts,
        Text(),
        arms,
    ]
    rest = len(diagnosis.arms) - _SHOWN_IN_TERMINAL
    if rest > 0:
        parts.append(Text(f"... and {counted(rest, 'arm')} with more rows", style="dim"))
    if diagnosis.warnings:
        parts.append(Text())
        parts.extend(Text(f"! {warning}", style="yellow") for warning in diagnosis.warnings)
    return Group(*parts)


def notebook_card(diagnosis: Findings) -> str:
    """The page for a notebook cell: a piece of HTML that leaves the notebook's own style alone."""
    rows = [(str(report.arm), *_arm_cells(report)) for report in sorted(diagnosis.arms, key=lambda r: r.rows)]
    facts = [("assuming", diagnosis.worth.assumption), *_facts(diagnosis)]
    return card(diagnosis.sentence, facts, "Arms, the smallest first", _ARM_HEADER, rows, diagnosis.warnings)


def html_page(diagnosis: Findings) -> str:
    """The page as HTML that needs no network."""
    largest = max(report.rows for report in diagnosis.arms) or 1
    rows = []
    for report in sorted(diagnosis.arms, key=lambda r: r.rows)[:_SHOWN_IN_HTML]:
        n, *rest = _arm_cells(report)
        rows.append((str(report.arm), html.bar(report.rows / largest, n), *rest))
    pieces = [html.paragraph(diagnosis.worth.assumption), html.notes(diagnosis.warnings, alarming=True)]
    pieces.append(html.section("The log", html.facts(_facts(diagnosis))))
    if diagnosis.skipped:
        skipped = html.table("Rows that were left out", ("reason", "rows"), _skipped_rows(diagnosis))
        pieces.append(html.section("Skipped rows", skipped))
    more = len(diagnosis.arms) - _SHOWN_IN_HTML
    caption = "The smallest first" + (f"; {counted(more, 'arm')} with more rows not shown" if more > 0 else "")
    pieces.append(html.section("Arms", html.table(caption, _ARM_HEADER, rows)))
    return html.page(_TITLE, diagnosis.sentence, pieces, f"Sidelight {__version__}")
