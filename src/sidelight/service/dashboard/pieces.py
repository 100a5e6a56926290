"""Helpers for the parts of the dashboard: numbers as text, and the macros of ``templates``.

All HTML is in the templates, which escape whatever is not markup already.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sidelight.drawing.intervals import number, rounded

__all__ = ["Tile", "count", "drawn", "give_or_take", "moment", "percent", "piece", "render", "table"]

_TEMPLATES = Environment(
    loader=PackageLoader("sidelight.service.dashboard"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_PIECES = _TEMPLATES.get_template("pieces.html").module


def render(name: str, **values: Any) -> str:
    """A whole page from its template."""
    return _TEMPLATES.get_template(name).render(**values)


def piece(name: str, *values: Any) -> Markup:
    """The HTML of a macro of ``pieces.html``, called with these values."""
    made: Markup = getattr(_PIECES, name)(*values)
    return made


def drawn(picture: str) -> Markup:
    """A picture from ``drawing``, which is markup already: its own text is escaped there."""
    return Markup(picture)


class Tile(NamedTuple):
    """A number that matters, with its name above and a note below."""

    name: str
    label: str
    value: str
    note: str
    look: str = ""


def count(value: float) -> str:
    """A whole number with thousands set apart."""
    return f"{round(value):,}"


def percent(share: float) -> str:
    """A share as per cent, with one digit where it is small."""
    value = 100.0 * share
    return f"{value:.1f}\u00a0%" if 0.0 < value < 9.95 else f"{value:.0f}\u00a0%"


def give_or_take(value: float, half: float) -> Markup:
    """``value ± half``, both with as many digits as the uncertainty ``half`` justifies."""
    if not (math.isfinite(value) and math.isfinite(half)):
        return piece("noted", number(value), "± –")
    digits = 1 - math.floor(math.log10(half)) if half > 0.0 else 3
    # three places are enough to compare arms, unless even the uncertainty is smaller than that
    places = max(0, min(6, digits if half < 0.001 else min(digits, 3)))
    return piece("noted", rounded(value, places), f"± {rounded(half, places)}")


def moment(at: float) -> Markup:
    """A point in time; the page shows it in the reader's own time zone."""
    then = dt.datetime.fromtimestamp(at, dt.UTC)
    return piece("moment", f"{then:%Y-%m-%dT%H:%M:%SZ}", f"{then:%d %b %H:%M:%S} UTC")


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[Any]], look: str = "") -> Markup:
    """A table whose first column names the row.

    A header that ends in ``*`` is left out on narrow screens (nothing in it is said there alone); one that ends in
    ``~`` holds pictures.
    """
    return piece("table", caption, [(name.rstrip("*~"), _kind(name)) for name in header], list(rows), look)


def _kind(name: str) -> str:
    return " ".join(word for mark, word in (("*", "wide"), ("~", "picture")) if mark in name[-2:])
