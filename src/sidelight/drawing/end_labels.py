"""The names of series beside a chart, and where they go when lines end close together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from sidelight.drawing.axes import y_axis
from sidelight.drawing.charts import Chart

__all__ = ["end_labels", "places"]


def places(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions at least ``gap`` apart, within ``low`` and ``high``, with the least squared distances from ``wanted``.

    Labels keep the order of ``wanted``, which ascends. With ``p_i = q_i + i·gap`` this is isotonic regression of
    ``wanted_i − i·gap``, by pooling neighbours that would stand in the wrong order; clipping it to the frame keeps it
    optimal. Where the labels do not all fit, they start at ``low``.

    Args:
        wanted: where each label would stand alone, ascending.
        gap: the height of a label.
        low: the lowest position.
        high: the highest position.
    """
    pools: list[list[float]] = []  # sum and number of the pooled values
    for i, value in enumerate(wanted):
        pools.append([value - i * gap, 1.0])
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            total, number = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += number
    highest = max(low, high - gap * (len(wanted) - 1))
    levels = [min(max(total / number, low), highest) for total, number in pools for _ in range(int(number))]
    return [level + i * gap for i, level in enumerate(levels)]


def end_labels(chart: Chart, theme: str, height: int) -> list[dict[str, Any]]:
    """The name of every series: at the end of its line, or in a column beside the points. Names that had to move
    from their line's end are joined to it."""
    names = [s.name for s in chart.series if any(row["series"] == s.name for row in chart.rows)]
    if chart.diagonal and len(names) == 1:
        return []
    last: dict[str, float] = {}
    for row in chart.rows:
        last[row["series"]] = row["y"]
    low, high = y_axis(chart)["scale"].get("domain", [min(last.values()), max(last.values())])
    to_pixel = _pixels(low, high, height, chart.y_scale)
    gap = 17.0
    if chart.kind == "points":
        wanted = {name: 10 + gap * i for i, name in enumerate(names)}
    else:
        wanted = {name: to_pixel(last[name]) for name in names}
    ends = sorted(names, key=lambda name: wanted[name])
    positions = places([wanted[name] for name in ends], gap, 2.0, height - 2.0)
    # where lines end close together, a thin line leads from each to its label
    apart = max((abs(pixel - wanted[name]) for name, pixel in zip(ends, positions, strict=True)), default=0.0)
    leads = chart.kind != "points" and apart > gap / 2
    margin = 24 if chart.kind == "points" else 34 if leads else 10
    layers: list[dict[str, Any]] = []
    for name, pixel in zip(ends, positions, strict=True):
        colour = next(s.ink(theme) for s in chart.series if s.name == name)
        if leads:
            ends_at = {
                "x": {"value": {"expr": "width + 3"}},
                "x2": {"value": {"expr": f"width + {margin - 4}"}},
                "y": {"value": wanted[name]},
                "y2": {"value": pixel},
            }
            lead = {"type": "rule", "color": colour, "strokeWidth": 1, "opacity": 0.7, "clip": False}
            layers.append({"data": {"values": [{}]}, "mark": lead, "encoding": ends_at})
        mark = {
            "type": "text",
            "align": "left",
            "baseline": "middle",
            "x": {"expr": f"width + {margin}"},
            "y": pixel,
            "fontSize": 12.5,
            "fontWeight": 600,
            "color": colour,
            "clip": False,
        }
        layers.append({"data": {"values": [{"label": name}]}, "mark": mark, "encoding": {"text": {"field": "label"}}})
    return layers


def _pixels(low: float, high: float, height: int, scale: str) -> Callable[[float], float]:
    """From a value on the vertical axis to its distance in pixels from the top."""
    if scale == "log":
        a, b = math.log(low), math.log(high)
        return lambda v: height * (1 - (math.log(max(v, low)) - a) / ((b - a) or 1))
    return lambda v: height * (1 - (v - low) / ((high - low) or 1))
