"""Small cards for notebooks: what ``_repr_html_`` returns.

A card lives inside somebody else's page, so its style is scoped to its own class, takes its colours from that page, and
sets nothing on ``body``. Text is escaped by the pieces of :mod:`sidelight.drawing.markup`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sidelight.drawing.markup import facts, notes, paragraph, table

__all__ = ["LONGEST", "card", "shortened"]

#: rows that a card's table shows
LONGEST = 40

_STYLE = """<style>
.sidelight-card dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .3rem 0; }
.sidelight-card dt { opacity: .65; }
.sidelight-card dd { margin: 0; }
.sidelight-card table { border-collapse: collapse; margin: .3rem 0; font-variant-numeric: tabular-nums; }
.sidelight-card caption { text-align: left; opacity: .65; }
.sidelight-card th, .sidelight-card td { padding: .15rem .8rem .15rem 0; text-align: right; }
.sidelight-card th:first-child { text-align: left; }
.sidelight-card p { margin: .2rem 0; }
</style>"""


def card(
    lead: str,
    pairs: Iterable[tuple[str, str]] = (),
    caption: str = "",
    header: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
    warnings: Sequence[str] = (),
) -> str:
    """A card: a sentence, facts, one table, warnings; each may be missing.

    Args:
        lead: the main result, in one sentence.
        pairs: names and values.
        caption: of the table.
        header: its columns.
        rows: its cells, the first of each row naming the row; beyond ``LONGEST`` they are only counted.
        warnings: sentences that should not be overlooked.
    """
    pieces = [paragraph(lead)]
    pairs = list(pairs)
    if pairs:
        pieces.append(facts(pairs))
    if warnings:
        pieces.append(notes(list(warnings), alarming=True))
    if rows:
        shown, more = shortened(rows)
        pieces.append(table(caption + more, header, shown))
    return f'{_STYLE}<div class="sidelight-card">{"".join(pieces)}</div>'


def shortened(rows: Sequence[Sequence[str]]) -> tuple[Sequence[Sequence[str]], str]:
    """The rows that are shown, and words about those that are not."""
    more = len(rows) - LONGEST
    return rows[:LONGEST], f" ({more:,} more are not shown)" if more > 0 else ""
