"""Small pieces of HTML that the parts of the dashboard are made of; text is escaped here and in ``drawing``."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from html import escape

from sidelight.drawing.intervals import number

__all__ = ["count", "empty", "give_or_take", "moment", "percent", "raw", "table", "tile"]


class raw(str):  # noqa: N801
    """HTML already: a table leaves it as it is."""


def count(value: float) -> str:
    """A whole number with thousands set apart."""
    return f"{round(value):,}"


def percent(share: float) -> str:
    """A share as per cent, with one digit where it is small."""
    value = 100.0 * share
    return f"{value:.1f}\u00a0%" if 0.0 < value < 9.95 else f"{value:.0f}\u00a0%"


def give_or_take(value: float, half: float) -> raw:
    """``value ± half``, both with the digits that ``half`` has reason for."""
    if not (math.isfinite(value) and math.isfinite(half)):
        return raw(f"{number(value)} <small>± –</small>")
    digits = 1 - math.floor(math.log10(half)) if half > 0.0 else 3
    # three places are enough to compare arms, unless even the uncertainty is smaller than that
    places = max(0, min(6, digits if half < 0.001 else min(digits, 3)))
    text, beside = (f"{v:,.{places}f}".replace("-", "−") for v in (value, half))
    return raw(f"{text} <small>± {beside}</small>")


def moment(at: float) -> raw:
    """A point in time; the page shows it in the reader's own time zone."""
    then = dt.datetime.fromtimestamp(at, dt.UTC)
    return raw(f'<time datetime="{then:%Y-%m-%dT%H:%M:%SZ}">{then:%d %b %H:%M:%S} UTC</time>')


def empty(words: str) -> str:
    """What a part says while it has nothing to show."""
    return f'<p class="empty">{escape(words)}</p>'


def tile(name: str, label: str, value: str, note: str, look: str = "") -> str:
    """A number that matters, with its name above and a note below."""
    return (
        f'<div class="tile {look}"><dt>{escape(label)}</dt><dd class="value" id="tile-{name}">{escape(value)}</dd>'
        f'<dd class="note">{escape(note)}</dd></div>'
    )


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]], look: str = "") -> str:
    """A table whose first column names the row; ``raw`` cells stay as they are.

    A header that ends in ``*`` is left out on narrow screens (nothing in it is said there alone); one that ends in
    ``~`` holds pictures.
    """
    kinds = [_kind(name) for name in header]
    head = "".join(
        f'<th scope="col"{kind}>{escape(name.rstrip("*~"))}</th>' for name, kind in zip(header, kinds, strict=True)
    )
    body = "".join(
        f'<tr><th scope="row">{_cell(first)}</th>'
        + "".join(f"<td{kind}>{_cell(cell)}</td>" for cell, kind in zip(rest, kinds[1:], strict=True))
        + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<table class="{look}"><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _kind(name: str) -> str:
    classes = " ".join(word for mark, word in (("*", "wide"), ("~", "picture")) if mark in name[-2:])
    return f' class="{classes}"' if classes else ""


def _cell(cell: str) -> str:
    return cell if isinstance(cell, raw) else escape(cell)
