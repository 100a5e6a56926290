"""The Vega-Lite specification of a chart, for a picture file or for a place in a page.

A picture file (light or dark) has a fixed size, a title, and the name of every line at its end. On a page (``"page"``)
a chart is as wide as its place and takes its colours from the style sheet, so that one drawing serves light, dark and
print. How a specification becomes a file is in :mod:`sidelight.drawing.image_files`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sidelight.drawing.axes import theme_colour
from sidelight.drawing.charts import Chart
from sidelight.drawing.colours import FONT, GREY, INK, LINE, PAPER
from sidelight.drawing.end_labels import end_labels
from sidelight.drawing.marks import grid, lines, points

__all__ = ["axis_style", "specification", "title_of"]

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"


def specification(
    chart: Chart,
    theme: Literal["light", "dark", "page"],
    *,
    title: str = "",
    subtitle: Sequence[str] = (),
    height: int = 380,
) -> dict[str, Any]:
    """The Vega-Lite specification of a chart.

    Args:
        chart: what is drawn.
        theme: ``"light"`` or ``"dark"`` for a picture file, ``"page"`` for a place in a page.
        title: above a picture file.
        subtitle: lines below the title.
        height: of the plot in pixels.
    """
    page = theme == "page"
    if not page:
        chart = chart.settled()
    layers = {"lines": lines, "points": points, "grid": grid}[chart.kind](chart, theme)
    if not page and chart.kind != "grid":
        layers += end_labels(chart, theme, height)
    ink, grey, line, paper = (
        theme_colour(name, colours, theme)
        for name, colours in (("ink", INK), ("grey", GREY), ("line", LINE), ("paper", PAPER))
    )
    spec: dict[str, Any] = {
        "$schema": _SCHEMA,
        "background": "transparent" if page else paper,
        "width": "container" if page else 620,
        "height": height,
        "padding": {"left": 2, "top": 6, "right": 12, "bottom": 4} if page else 16,
        "autosize": {"type": "fit", "contains": "padding"} if page else {"type": "pad"},
        "data": {"values": [dict(row) for row in chart.rows]},
        "transform": _transforms(chart, page),
        "layer": layers,
        "config": {
            "font": FONT,
            "view": {"stroke": None},
            "axis": {**axis_style(grey, line), "labelFlush": False},
            "text": {"color": ink},
            "rule": {"color": grey},
        },
    }
    if page:
        spec["params"] = _parameters(chart)
    elif title:
        spec["title"] = title_of(title, subtitle, ink, grey)
    return spec


def _transforms(chart: Chart, page: bool) -> list[dict[str, Any]]:
    """Filters: on a page only rows of the chosen options and of the series that are shown."""
    filters = [{"filter": f"datum[{c.field!r}] === choice_{i}"} for i, c in enumerate(chart.controls)]
    if page and chart.kind != "grid":
        filters.append({"filter": "indexof(shown, datum.series) >= 0"})
    return filters


def _parameters(chart: Chart) -> list[dict[str, Any]]:
    """What a page's controls set: the chosen options, and the series that are shown."""
    out: list[dict[str, Any]] = [{"name": f"choice_{i}", "value": c.chosen} for i, c in enumerate(chart.controls)]
    if chart.kind != "grid":
        out.append({"name": "shown", "value": [s.name for s in chart.series]})
    return out


def axis_style(grey: str, line: str) -> dict[str, Any]:
    """How axes look: colours of their words and of their lines, sizes in pixels."""
    return {
        "labelColor": grey,
        "titleColor": grey,
        "titleFontWeight": 500,
        "titleFontSize": 12.5,
        "labelFontSize": 11.5,
        "gridColor": line,
        "domainColor": line,
        "tickColor": line,
        "titlePadding": 10,
    }


def title_of(text: str, subtitle: Sequence[str], ink: str, grey: str) -> dict[str, Any]:
    """The title of a picture file with the lines below it."""
    return {
        "text": text,
        "subtitle": list(subtitle),
        "anchor": "start",
        "frame": "group",
        "offset": 16,
        "fontSize": 17,
        "fontWeight": 600,
        "subtitleFontSize": 12.5,
        "subtitlePadding": 6,
        "subtitleLineHeight": 17,
        "color": ink,
        "subtitleColor": grey,
    }
