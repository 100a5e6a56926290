"""Charts as data, and the Vega-Lite specification of each.

A :class:`Chart` is rows and how to read them. :meth:`Chart.specification` makes the picture of it for paper (light or
dark: fixed size, every line labelled at its end, a title) or for a page (``"page"``: as wide as its place, colours
taken from the page's style sheet, so that one drawing serves light, dark and print).

How a line looks is in :mod:`sidelight.drawing.series`; how a specification becomes a file in
:mod:`sidelight.drawing.image_files`. Their names can be imported from here too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sidelight.drawing.colours import FONT, GREY, INK, LINE, PAPER
from sidelight.drawing.end_labels import places
from sidelight.drawing.image_files import javascript, pictures
from sidelight.drawing.series import DASHES, RAMP, Series, ramp_variables

__all__ = ["DASHES", "RAMP", "Chart", "Control", "Series", "javascript", "pictures", "ramp_variables"]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"

_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "stroke")


@dataclass(frozen=True)
class Control:
    """A choice that the reader makes on the page: only rows whose ``field`` is the chosen option are drawn."""

    field: str
    label: str
    options: tuple[str, ...]
    chosen: str


@dataclass(frozen=True)
class Chart:
    """What a picture shows, as data: rows, series, axes; :func:`specification` turns it into Vega-Lite.

    Attributes:
        kind: ``"lines"`` (with bands), ``"points"`` (with intervals), ``"grid"`` (cells whose darkness is ``y``).
        rows: each with ``series``, ``x``, ``y``, and ``low``, ``high`` where there is an interval; grids have ``row``.
        series: in the order of the legend.
        x_title, y_title: of the axes.
        x_scale: ``"linear"``, ``"log"`` or ``"category"``.
        y_scale: ``"linear"`` or ``"log"``.
        diagonal: draw the line ``y = x`` (estimates against truth).
        levels: horizontal lines: name → height.
        markers: draw the points of lines too (where there are few).
        controls: choices for the reader.
        x_order, row_order: categories in order.
        from_zero: the vertical axis begins at 0.
    """

    kind: Literal["lines", "points", "grid"]
    rows: Sequence[Mapping[str, Any]]
    series: Sequence[Series]
    x_title: str
    y_title: str
    x_scale: Literal["linear", "log", "category"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"
    diagonal: bool = False
    levels: Mapping[str, float] = field(default_factory=dict)
    markers: bool = False
    controls: tuple[Control, ...] = ()
    x_order: tuple[str, ...] = ()
    row_order: tuple[str, ...] = ()
    from_zero: bool = True

    def specification(
        self,
        theme: Literal["light", "dark", "page"],
        *,
        title: str = "",
        subtitle: Sequence[str] = (),
        width: int = 620,
        height: int = 380,
    ) -> dict[str, Any]:
        """The Vega-Lite specification.

        Args:
            theme: ``"light"`` or ``"dark"`` for a picture file, ``"page"`` for a place in a page.
            title: above a picture file.
            subtitle: lines below the title.
            width: of the plot in pixels; a page's place decides for itself.
            height: of the plot in pixels.
        """
        page = theme == "page"
        chart = self if page else self._settled()
        layers = {"lines": chart._lines, "points": chart._points, "grid": chart._grid}[self.kind](theme)
        if not page and self.kind != "grid":
            layers += chart._labels(theme, height)
        ink, grey, line, paper = (
            (f"var(--{name})" if page else colours[theme])
            for name, colours in (("ink", INK), ("grey", GREY), ("line", LINE), ("paper", PAPER))
        )
        spec: dict[str, Any] = {
            "$schema": SCHEMA,
            "background": "transparent" if page else paper,
            "width": "container" if page else width,
            "height": height,
            "padding": {"left": 2, "top": 6, "right": 12, "bottom": 4} if page else 16,
            "autosize": {"type": "fit", "contains": "padding"} if page else {"type": "pad"},
            "data": {"values": [dict(row) for row in chart.rows]},
            "transform": chart._transforms(page),
            "layer": layers,
            "config": {
                "font": FONT,
                "view": {"stroke": None},
                "axis": {
                    "labelColor": grey,
                    "titleColor": grey,
                    "titleFontWeight": 500,
                    "titleFontSize": 12.5,
                    "labelFontSize": 11.5,
                    "gridColor": line,
                    "domainColor": line,
                    "tickColor": line,
                    "titlePadding": 10,
                    "labelFlush": False,
                },
                "text": {"color": ink},
                "rule": {"color": grey},
            },
        }
        if page:
            spec["params"] = chart._parameters()
        elif title:
            spec["title"] = {
                "text": title,
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
        return spec

    # ------------------------------------------------------------------------------ what both share

    def _settled(self) -> Chart:
        """The chart with every control at its default, for picture files, which are not interactive."""
        rows = [row for row in self.rows if all(row[c.field] == c.chosen for c in self.controls)]
        return replace(self, rows=rows, controls=())

    def _transforms(self, page: bool) -> list[dict[str, Any]]:
        filters = [{"filter": f"datum[{c.field!r}] === choice_{i}"} for i, c in enumerate(self.controls)]
        if page and self.kind != "grid":
            filters.append({"filter": "indexof(shown, datum.series) >= 0"})
        return filters

    def _parameters(self) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = [{"name": f"choice_{i}", "value": c.chosen} for i, c in enumerate(self.controls)]
        if self.kind != "grid":
            out.append({"name": "shown", "value": [s.name for s in self.series]})
        return out

    def _colour(self, theme: str) -> dict[str, Any]:
        return {
            "field": "series",
            "type": "nominal",
            "scale": {"domain": [s.name for s in self.series], "range": [s.ink(theme) for s in self.series]},
            "legend": None,
        }

    def _x(self) -> dict[str, Any]:
        if self.x_scale == "category":
            return {
                "field": "x",
                "type": "nominal",
                "title": self.x_title or None,
                "sort": list(self.x_order),
                "axis": {"labelAngle": 0, "labelLimit": 120, "grid": False, "labelOverlap": True},
            }
        values = [row["x"] for row in self.rows]
        scale: dict[str, Any] = {"type": self.x_scale, "nice": False}
        axis: dict[str, Any] = {"grid": False, "tickCount": 6, "labelOverlap": True}
        if self.x_scale == "log":
            axis["values"] = _decades(min(values), max(values))
            axis["labelExpr"] = "format(datum.value, ',')"
        elif self.diagonal:
            scale["domain"] = self._square()
        return {"field": "x", "type": "quantitative", "title": self.x_title, "scale": scale, "axis": axis}

    def _square(self) -> list[float]:
        values = [v for row in self.rows for v in (row["x"], row["low"], row["high"])]
        return [min(values), max(values)]

    def _y(self, name: str = "y") -> dict[str, Any]:
        finite: list[float] = [
            v
            for row in self.rows
            for v in (row["y"], row.get("low"), row.get("high"))
            if v is not None and math.isfinite(v)
        ]
        finite += list(self.levels.values())
        scale: dict[str, Any] = {"type": self.y_scale, "nice": True}
        axis: dict[str, Any] = {"tickCount": 6}
        if self.diagonal:
            scale["domain"] = self._square()
        elif self.y_scale == "log":
            scale["nice"] = False
            scale["domain"] = [0.85 * min(v for v in finite if v > 0), 1.15 * max(finite)]
            axis["values"] = _decades(*scale["domain"])
        elif self.from_zero:
            # not rounded to nice ends, so that a label's place can be computed
            scale["nice"] = False
            scale["domain"] = [min(0.0, min(finite)), 1.03 * max(finite) or 1.0]
        else:
            scale["zero"] = False
        return {"field": name, "type": "quantitative", "title": self.y_title, "scale": scale, "axis": axis}

    def _tooltip(self) -> list[dict[str, Any]]:
        x_type = "nominal" if self.x_scale == "category" else "quantitative"
        tips: list[dict[str, Any]] = [
            {"field": "series", "type": "nominal", "title": "Series"},
            {
                "field": "x",
                "type": x_type,
                "title": self.x_title or "At",
                **({} if x_type == "nominal" else {"format": ","}),
            },
            {"field": "y", "type": "quantitative", "title": self.y_title, "format": ",.4~g"},
        ]
        if any(_usable(row.get("low")) for row in self.rows):
            tips += [
                {"field": bound, "type": "quantitative", "title": words, "format": ",.4~g"}
                for bound, words in (("low", "Interval from"), ("high", "to"))
            ]
        return tips

    # ------------------------------------------------------------------------------------- the kinds

    def _lines(self, theme: str) -> list[dict[str, Any]]:
        names = [s.name for s in self.series]
        dash = {
            "field": "series",
            "type": "nominal",
            "legend": None,
            "scale": {"domain": names, "range": [list(s.dash) for s in self.series]},
        }
        weight = {
            "field": "series",
            "type": "ordinal",
            "legend": None,
            "scale": {"type": "ordinal", "domain": names, "range": [3.4 if s.heavy else 2.0 for s in self.series]},
        }
        x, colour = self._x(), self._colour(theme)
        layers: list[dict[str, Any]] = []
        if any(_usable(row.get("low")) for row in self.rows):
            layers.append(
                {
                    "mark": {"type": "area", "opacity": 0.13},
                    "encoding": {"x": x, "y": self._y("low"), "y2": {"field": "high"}, "color": colour},
                }
            )
        layers.append(
            {
                "mark": {"type": "line", "strokeCap": "butt", "interpolate": "linear"},
                "encoding": {"x": x, "y": self._y(), "color": colour, "strokeDash": dash, "strokeWidth": weight},
            }
        )
        layers += self._level_rules(theme)
        dots = {
            "type": "point",
            "filled": True,
            "size": 46 if self.markers else 90,
            "opacity": 1 if self.markers else 0,
        }
        layers.append({"mark": dots, "encoding": {"x": x, "y": self._y(), "color": colour, "tooltip": self._tooltip()}})
        return layers

    def _points(self, theme: str) -> list[dict[str, Any]]:
        x, colour = self._x(), self._colour(theme)
        names = [s.name for s in self.series]
        aside: dict[str, Any] = {}
        if self.x_scale == "category":
            aside = {"xOffset": {"field": "series", "type": "nominal", "sort": names, "scale": {"domain": names}}}
        shape = {
            "field": "series",
            "type": "nominal",
            "legend": None,
            "scale": {"domain": names, "range": [_SHAPES[i % len(_SHAPES)] for i in range(len(names))]},
        }
        layers: list[dict[str, Any]] = []
        if self.diagonal:
            low, high = self._square()
            layers.append(
                {
                    "data": {"values": [{"x": low, "y": low}, {"x": high, "y": high}]},
                    "mark": {
                        "type": "line",
                        "strokeDash": [4, 4],
                        "strokeWidth": 1.2,
                        "color": "var(--grey)" if theme == "page" else GREY[theme],
                    },
                    "encoding": {"x": self._x(), "y": self._y()},
                }
            )
        layers += self._level_rules(theme)
        layers.append(
            {
                "mark": {"type": "rule", "strokeWidth": 1.4 if self.diagonal else 2.2, "opacity": 0.75},
                "encoding": {"x": x, "y": self._y("low"), "y2": {"field": "high"}, "color": colour, **aside},
            }
        )
        layers.append(
            {
                "mark": {"type": "point", "filled": True, "size": 42 if self.diagonal else 80, "opacity": 1},
                "encoding": {
                    "x": x,
                    "y": self._y(),
                    "color": colour,
                    "shape": shape,
                    "tooltip": self._tooltip(),
                    **aside,
                },
            }
        )
        return layers

    def _grid(self, theme: str) -> list[dict[str, Any]]:
        largest = max((row["y"] for row in self.rows), default=1.0) or 1.0
        colour = self.series[0].ink(theme)
        return [
            {
                "mark": {"type": "rect", "color": colour, "cornerRadius": 2},
                "encoding": {
                    "x": {
                        "field": "x",
                        "type": "ordinal",
                        "title": self.x_title,
                        "sort": list(self.x_order),
                        "scale": {"paddingInner": 0.08},
                        "axis": {"labelAngle": 0, "labelOverlap": True, "domain": False, "ticks": False},
                    },
                    "y": {
                        "field": "row",
                        "type": "nominal",
                        "title": None,
                        "sort": list(self.row_order),
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
                        {"field": "x", "type": "nominal", "title": self.x_title},
                        {"field": "y", "type": "quantitative", "title": self.y_title, "format": ".1%"},
                    ],
                },
            }
        ]

    def _level_rules(self, theme: str) -> list[dict[str, Any]]:
        grey = "var(--grey)" if theme == "page" else GREY[theme]
        layers: list[dict[str, Any]] = []
        for name, height in self.levels.items():
            data = {"values": [{"y": height, "name": name}]}
            y = self._y()
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
                        "baseline": "top" if height == min(self.levels.values()) else "bottom",
                        "x": 4,
                        "dy": 4 if height == min(self.levels.values()) else -3,
                        "fontSize": 11.5,
                        "color": grey,
                    },
                    "encoding": {"y": y, "text": {"field": "name", "type": "nominal"}},
                }
            )
        return layers

    # --------------------------------------------------------------------------- labels on picture files

    def _labels(self, theme: str, height: int) -> list[dict[str, Any]]:
        """The name of every series: at the end of its line, or in a column beside the points. Names that had to move
        from their line's end are joined to it."""
        names = [s.name for s in self.series if any(row["series"] == s.name for row in self.rows)]
        if self.diagonal and len(names) == 1:
            return []
        last: dict[str, float] = {}
        for row in self.rows:
            last[row["series"]] = row["y"]
        low, high = self._y()["scale"].get("domain", [min(last.values()), max(last.values())])
        to_pixel = _pixels(low, high, height, self.y_scale)
        gap = 17.0
        if self.kind == "points":
            wanted = {name: 10 + gap * i for i, name in enumerate(names)}
        else:
            wanted = {name: to_pixel(last[name]) for name in names}
        ends = sorted(names, key=lambda name: wanted[name])
        positions = places([wanted[name] for name in ends], gap, 2.0, height - 2.0)
        # where lines end close together, a thin line leads from each to its label
        apart = max((abs(pixel - wanted[name]) for name, pixel in zip(ends, positions, strict=True)), default=0.0)
        leads = self.kind != "points" and apart > gap / 2
        margin = 24 if self.kind == "points" else 34 if leads else 10
        layers: list[dict[str, Any]] = []
        for name, pixel in zip(ends, positions, strict=True):
            colour = next(s.ink(theme) for s in self.series if s.name == name)
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
            layers.append(
                {"data": {"values": [{"label": name}]}, "mark": mark, "encoding": {"text": {"field": "label"}}}
            )
        return layers


def _usable(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def _decades(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    whole = [float(10**k) for k in range(first, last + 1) if low <= 10.0**k <= high]
    if len(whole) >= 3:
        return whole
    fine = [m * 10.0**k for k in range(first, last + 1) for m in (1, 2, 5)]
    return [v for v in fine if low <= v <= high] or [low, high]


def _pixels(low: float, high: float, height: int, scale: str) -> Any:
    if scale == "log":
        a, b = math.log(low), math.log(high)
        return lambda v: height * (1 - (math.log(max(v, low)) - a) / ((b - a) or 1))
    return lambda v: height * (1 - (v - low) / ((high - low) or 1))
