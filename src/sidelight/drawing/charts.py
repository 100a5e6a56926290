"""Charts as data: rows and how to read them; :mod:`sidelight.drawing.vega_lite` draws them.

How a line looks is in :mod:`sidelight.drawing.series`, how a picture becomes a file in
:mod:`sidelight.drawing.image_files`. Their names can be imported from here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sidelight.drawing.image_files import javascript, pictures
from sidelight.drawing.series import DASHES, RAMP, Series, ramp_variables

__all__ = ["DASHES", "RAMP", "Chart", "Control", "Series", "javascript", "pictures", "ramp_variables"]


@dataclass(frozen=True)
class Control:
    """A choice that the reader makes on the page: only rows whose ``field`` is the chosen option are drawn."""

    field: str
    label: str
    options: tuple[str, ...]
    chosen: str


@dataclass(frozen=True)
class Chart:
    """What a picture shows, as data: rows, series, axes.

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

    def settled(self) -> Chart:
        """The chart with every control at its default, for picture files, which are not interactive."""
        rows = [row for row in self.rows if all(row[c.field] == c.chosen for c in self.controls)]
        return replace(self, rows=rows, controls=())
