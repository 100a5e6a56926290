"""What a chart draws, as layers of Vega-Lite: lines with bands, points with intervals, a grid of cells."""

from __future__ import annotations

from typing import Any

from sidelight.drawing.axes import colour_of_series, has_intervals, square_domain, theme_colour, tooltip, x_axis, y_axis
from sidelight.drawing.charts import Chart
from sidelight.drawing.colours import GREY

__all__ = ["grid", "lines", "points"]

_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "stroke")


def lines(chart: Chart, theme: str) -> list[dict[str, Any]]:
    """Lines, bands where there are intervals, horizontal levels, and dots that carry the tooltips."""
    names = [s.name for s in chart.series]
    dash = {
        "field": "series",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": names, "range": [list(s.dash) for s in chart.series]},
    }
    weight = {
        "field": "series",
        "type": "ordinal",
        "legend": None,
        "scale": {"type": "ordinal", "domain": names, "range": [3.4 if s.heavy else 2.0 for s in chart.series]},
    }
    x, colour = x_axis(chart), colour_of_series(chart, theme)
    layers: list[dict[str, Any]] = []
    if has_intervals(chart):
        layers.append(
            {
                "mark": {"type": "area", "opacity": 0.13},
                "encoding": {"x": x, "y": y_axis(chart, "low"), "y2": {"field": "high"}, "color": colour},
            }
        )
    layers.append(
        {
            "mark": {"type": "line", "strokeCap": "butt", "interpolate": "linear"},
            "encoding": {"x": x, "y": y_axis(chart), "color": colour, "strokeDash": dash, "strokeWidth": weight},
        }
    )
    layers += _level_rules(chart, theme)
    dots = {
        "type": "point",
        "filled": True,
        "size": 46 if chart.markers else 90,
        "opacity": 1 if chart.markers else 0,
    }
    layers.append({"mark": dots, "encoding": {"x": x, "y": y_axis(chart), "color": colour, "tooltip": tooltip(chart)}})
    return layers


def points(chart: Chart, theme: str) -> list[dict[str, Any]]:
    """Points with their intervals, horizontal levels, and the diagonal where there is one."""
    x, colour = x_axis(chart), colour_of_series(chart, theme)
    names = [s.name for s in chart.series]
    aside: dict[str, Any] = {}
    if chart.x_scale == "category":
        aside = {"xOffset": {"field": "series", "type": "nominal", "sort": names, "scale": {"domain": names}}}
    shape = {
        "field": "series",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": names, "range": [_SHAPES[i % len(_SHAPES)] for i in range(len(names))]},
    }
    layers: list[dict[str, Any]] = []
    if chart.diagonal:
        low, high = square_domain(chart)
        layers.append(
            {
                "data": {"values": [{"x": low, "y": low}, {"x": high, "y": high}]},
                "mark": {
                    "type": "line",
                    "strokeDash": [4, 4],
                    "strokeWidth": 1.2,
                    "color": theme_colour("grey", GREY, theme),
                },
                "encoding": {"x": x_axis(chart), "y": y_axis(chart)},
            }
        )
    layers += _level_rules(chart, theme)
    layers.append(
        {
            "mark": {"type": "rule", "strokeWidth": 1.4 if chart.diagonal else 2.2, "opacity": 0.75},
            "encoding": {"x": x, "y": y_axis(chart, "low"), "y2": {"field": "high"}, "color": colour, **aside},
        }
    )
    layers.append(
        {
            "mark": {"type": "point", "filled": True, "size": 42 if chart.diagonal else 80, "opacity": 1},
            "encoding": {
                "x": x,
                "y": y_axis(chart),
                "color": colour,
                "shape": shape,
                "tooltip": tooltip(chart),
                **aside,
            },
        }
    )
    return layers


def grid(chart: Chart, theme: str) -> list[dict[str, Any]]:
    """Cells whose darkness is ``y``."""
    largest = max((row["y"] for row in chart.rows), default=1.0) or 1.0
    colour = chart.series[0].ink(theme)
    return [
        {
            "mark": {"type": "rect", "color": colour, "cornerRadius": 2},
            "encoding": {
                "x": {
                    "field": "x",
                    "type": "ordinal",
                    "title": chart.x_title,
                    "sort": list(chart.x_order),
                    "scale": {"paddingInner": 0.08},
                    "axis": {"labelAngle": 0, "labelOverlap": True, "domain": False, "ticks": False},
                },
                "y": {
                    "field": "row",
                    "type": "nominal",
                    "title": None,
                    "sort": list(chart.row_order),
                    "scale": {"paddingInner": 0.12},
                    "axis": {"labelLimit": 110, "domain": False, "ticks": False},
                },
                "opacity": {
                    "field": "y",
                    "type": "quantitative",
                    "legend": None,
                    "scale": {"domain": [0, largest], "range": [0.06, 1]},
                },
                "tooltip": [
                    {"field": "row", "type": "nominal", "title": "Arm"},
                    {"field": "x", "type": "nominal", "title": chart.x_title},
                    {"field": "y", "type": "quantitative", "title": chart.y_title, "format": ".1%"},
                ],
            },
        }
    ]


def _level_rules(chart: Chart, theme: str) -> list[dict[str, Any]]:
    """Horizontal lines with their names."""
    grey = theme_colour("grey", GREY, theme)
    layers: list[dict[str, Any]] = []
    for name, height in chart.levels.items():
        data = {"values": [{"y": height, "name": name}]}
        y = y_axis(chart)
        layers.append(
            {
                "data": data,
                "mark": {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.4, "color": grey},
                "encoding": {"y": y},
            }
        )
        layers.append(
            {
                "data": data,
                "mark": {
                    "type": "text",
                    "align": "left",
                    # the lowest below its line, the others above: learners run between them
                    "baseline": "top" if height == min(chart.levels.values()) else "bottom",
                    "x": 4,
                    "dy": 4 if height == min(chart.levels.values()) else -3,
                    "fontSize": 11.5,
                    "color": grey,
                },
                "encoding": {"y": y, "text": {"field": "name", "type": "nominal"}},
            }
        )
    return layers
