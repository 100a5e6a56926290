"""Axes, colours and tooltips of a chart, as Vega-Lite encodes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sidelight.drawing.charts import Chart

__all__ = ["colour_of_series", "has_intervals", "square_domain", "theme_colour", "tooltip", "x_axis", "y_axis"]


def theme_colour(name: str, colours: Mapping[str, str], theme: str) -> str:
    """A colour by its name: for a page the variable of its style sheet, else the one of ``theme``."""
    return f"var(--{name})" if theme == "page" else colours[theme]


def has_intervals(chart: Chart) -> bool:
    """Whether any row has an interval."""
    return any(low is not None and math.isfinite(low) for low in (row.get("low") for row in chart.rows))


def colour_of_series(chart: Chart, theme: str) -> dict[str, Any]:
    """The encoding of the channel ``color``: every series in its own colour of ``theme``, without a legend."""
    return {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": [s.name for s in chart.series], "range": [s.ink(theme) for s in chart.series]},
        "legend": None,
    }


def x_axis(chart: Chart) -> dict[str, Any]:
    """The encoding of the channel ``x``: categories in the chart's order, or numbers on a linear or log scale."""
    if chart.x_scale == "category":
        return {
            "field": "x",
            "type": "nominal",
            "title": chart.x_title or None,
            "sort": list(chart.x_order),
            "axis": {"labelAngle": 0, "labelLimit": 120, "grid": False, "labelOverlap": True},
        }
    values = [row["x"] for row in chart.rows]
    scale: dict[str, Any] = {"type": chart.x_scale, "nice": False}
    axis: dict[str, Any] = {"grid": False, "tickCount": 6, "labelOverlap": True}
    if chart.x_scale == "log":
        axis["values"] = _decades(min(values), max(values))
        axis["labelExpr"] = "format(datum.value, ',')"
    elif chart.diagonal:
        scale["domain"] = square_domain(chart)
    return {"field": "x", "type": "quantitative", "title": chart.x_title, "scale": scale, "axis": axis}


def y_axis(chart: Chart, name: str = "y") -> dict[str, Any]:
    """The vertical axis of the rows' ``name``; its domain holds every value, interval and level."""
    finite: list[float] = [
        v
        for row in chart.rows
        for v in (row["y"], row.get("low"), row.get("high"))
        if v is not None and math.isfinite(v)
    ]
    finite += list(chart.levels.values())
    scale: dict[str, Any] = {"type": chart.y_scale, "nice": True}
    axis: dict[str, Any] = {"tickCount": 6}
    if chart.diagonal:
        scale["domain"] = square_domain(chart)
    elif chart.y_scale == "log":
        scale["nice"] = False
        scale["domain"] = [0.85 * min(v for v in finite if v > 0), 1.15 * max(finite)]
        axis["values"] = _decades(*scale["domain"])
    elif chart.from_zero:
        # not rounded to nice ends, so that a label's place can be computed
        scale["nice"] = False
        scale["domain"] = [min(0.0, min(finite)), 1.03 * max(finite) or 1.0]
    else:
        scale["zero"] = False
    return {"field": name, "type": "quantitative", "title": chart.y_title, "scale": scale, "axis": axis}


def square_domain(chart: Chart) -> list[float]:
    """The least and the greatest number on either axis: both have this domain where a diagonal is drawn."""
    values = [v for row in chart.rows for v in (row["x"], row["low"], row["high"])]
    return [min(values), max(values)]


def tooltip(chart: Chart) -> list[dict[str, Any]]:
    """What a tooltip says about a row."""
    x_type = "nominal" if chart.x_scale == "category" else "quantitative"
    tips: list[dict[str, Any]] = [
        {"field": "series", "type": "nominal", "title": "Series"},
        {
            "field": "x",
            "type": x_type,
            "title": chart.x_title or "At",
            **({} if x_type == "nominal" else {"format": ","}),
        },
        {"field": "y", "type": "quantitative", "title": chart.y_title, "format": ",.4~g"},
    ]
    if has_intervals(chart):
        tips += [
            {"field": bound, "type": "quantitative", "title": words, "format": ",.4~g"}
            for bound, words in (("low", "Interval from"), ("high", "to"))
        ]
    return tips


def _decades(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis: powers of ten, with 2 and 5 times these where they are fewer than three."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    whole = [float(10**k) for k in range(first, last + 1) if low <= 10.0**k <= high]
    if len(whole) >= 3:
        return whole
    fine = [m * 10.0**k for k in range(first, last + 1) for m in (1, 2, 5)]
    return [v for v in fine if low <= v <= high] or [low, high]
