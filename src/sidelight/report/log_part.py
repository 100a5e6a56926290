"""The parts of a report about the log: its rows, arms and features, and the features that it lacks."""

from __future__ import annotations

from sidelight.drawing import markup as html
from sidelight.labels import counted
from sidelight.logs.diagnosis.diagnosis import Diagnosis
from sidelight.logs.diagnosis.diagnosis_page import difference_words, hidden_words, queries_words
from sidelight.report.parts import Part

__all__ = ["hidden_part", "log_part"]

_SHOWN_ARMS = 200


def log_part(diagnosis: Diagnosis) -> Part:
    """The section on the log's rows, arms and recorded features, with the warnings of its diagnosis."""
    skipped = diagnosis.rows_read - diagnosis.rows_used
    smallest = diagnosis.smallest
    facts = [
        ("rows", f"{diagnosis.rows_used:,}" + (f", and {skipped:,} that could not be used" if skipped else "")),
        ("arms", f"{len(diagnosis.arms):,}; the smallest is {smallest.arm!r} with {counted(smallest.rows, 'row')}"),
        ("unexplained", f"residual variance {diagnosis.residual_variance:.4g} of the reward, given what was recorded"),
    ]
    if diagnosis.difference is not None:
        facts.append(("arms differ", difference_words(diagnosis)))
    largest = max((report.rows for report in diagnosis.arms), default=1) or 1
    rows = [
        (
            str(report.arm),
            html.bar(report.rows / largest, f"{report.rows:,}"),
            f"{report.share:.1%}",
            f"{report.condition:.3g}" if report.determined else "–",
            f"{report.residual_variance:.4g}",
        )
        for report in sorted(diagnosis.arms, key=lambda report: -report.rows)[:_SHOWN_ARMS]
    ]
    more = len(diagnosis.arms) - len(rows)
    caption = "The arms of the log" + (f"; {more:,} smaller ones are not shown" if more > 0 else "")
    pieces = [
        html.paragraph(f"{diagnosis.sentence} {diagnosis.worth.assumption}"),
        html.notes(diagnosis.warnings, alarming=True),
        html.facts(facts),
        html.table(caption, ("arm", "rows", "share", "conditioning", "residual variance"), rows),
    ]
    return Part("What the log holds", "log", pieces, {})


def hidden_part(diagnosis: Diagnosis) -> Part:
    """The section on the features that the log lacks, and what follows from that."""
    facts = [
        (f"recorded ({diagnosis.n_recorded})", ", ".join(diagnosis.recorded) or "nothing"),
        (f"hidden ({len(diagnosis.hidden)})", ", ".join(diagnosis.hidden) or "nothing"),
    ]
    if diagnosis.hidden:
        facts += [("what hides there", hidden_words(diagnosis)), ("answers to ask for", queries_words(diagnosis))]
        words = (
            "The old policy may have decided by what the log does not hold. An effect read off the log is then a "
            "mixture of the recorded feature's own effect and of what went along with it. Learners see every feature "
            "online, and are told what the old policy would have done there; that is how the mixture is undone."
        )
    else:
        words = "The log holds everything the learners see; nothing is confounded by a missing feature."
    return Part("What is hidden", "hidden", [html.paragraph(words), html.facts(facts)], {})
