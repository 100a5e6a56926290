"""Pieces of a self-contained HTML page: no network, no script, readable on paper and in the dark.

Every piece is a string of HTML made from plain values; text is escaped here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from sidelight.drawing.colours import FONT, variables

__all__ = ["bar", "facts", "notes", "page", "paragraph", "section", "table"]


def page(title: str, lead: str, pieces: Iterable[str], footer: str = "") -> str:
    """A complete HTML document around these sections.

    Args:
        title: its heading.
        lead: the main result, in one sentence.
        pieces: what the functions below return, in order.
        footer: small print.
    """
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
{"".join(pieces)}
<footer>{escape(footer)}</footer>
</main>
</body>
</html>
"""


def section(title: str, *pieces: str) -> str:
    """A heading and what belongs under it."""
    return f"<section><h2>{escape(title)}</h2>{''.join(pieces)}</section>\n"


def paragraph(text: str) -> str:
    """The text, escaped, as an HTML paragraph."""
    return f"<p>{escape(text)}</p>\n"


def notes(texts: Sequence[str], alarming: bool = False) -> str:
    """A list of sentences, such as warnings; marked as alarming if asked for."""
    if not texts:
        return ""
    kind = "alarm" if alarming else "note"
    return f'<ul class="{kind}">' + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>\n"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, one pair per line."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)
    return f"<dl>{rows}</dl>\n"


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column names the row; a cell made by :func:`bar` stays as it is."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{cell if cell.startswith(_BAR) else escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>\n"
    )


def bar(share: float, label: str) -> str:
    """A bar of this share of the cell, with its value in words beside it."""
    width = max(0.0, min(1.0, share)) * 100
    return f'{_BAR}<i style="width:{width:.1f}%"></i></span> <span class="beside">{escape(label)}</span>'


_BAR = '<span class="bar" aria-hidden="true">'

_STYLE = f"""
:root {{ {variables("light")} }}
@media (prefers-color-scheme: dark) {{ :root {{ {variables("dark")} }} }}
body {{ background: var(--paper); color: var(--ink); font: 16px/1.55 {FONT}; margin: 0; }}
main {{ max-width: 58rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }}
h1 {{ font-size: 1.6rem; margin: .2rem 0 .6rem; }}
h2 {{ font-size: 1.15rem; margin: 1.8rem 0 .4rem; }}
.lead {{ font-size: 1.15rem; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.2rem; margin: 0; }}
dt {{ color: var(--grey); }}
dd {{ margin: 0; font-variant-numeric: tabular-nums; }}
ul.alarm li::marker {{ content: "!  "; color: var(--alarm); font-weight: 700; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; color: var(--grey); padding-bottom: .4rem; }}
th, td {{ padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); text-align: right; }}
td {{ white-space: nowrap; }}
th:first-child {{ text-align: left; }}
.bar {{ display: inline-block; width: 7rem; height: .7rem; background: var(--line); vertical-align: baseline; }}
.beside {{ display: inline-block; min-width: 5rem; }}
.bar i {{ display: block; height: 100%; background: var(--colour-4); }}
footer {{ color: var(--grey); font-size: .85rem; margin-top: 2rem; }}
@media print {{ :root {{ {variables("light")} }} body {{ font-size: 11pt; }} }}
"""
