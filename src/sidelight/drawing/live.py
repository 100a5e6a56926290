"""Small pictures that are drawn many times a minute: SVG as text, without a drawing library on either side.

They take all their colours from the style sheet of the page (by class), carry no inline style, and stretch to the width
of their place while letters and lines keep their size: the picture is drawn in per cent, its paths in a coordinate
system of their own that is stretched with ``preserveAspectRatio="none"``. So they work under a content policy that
forbids inline styles and scripts, and the server need not know how wide the reader's screen is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Line", "band", "columns", "lines", "share_bar", "spark", "strip"]

#: room above the highest value, so that a line is never cut in half
_HEADROOM = 1.08


@dataclass(frozen=True)
class Line:
    """One line of :func:`lines`.

    Attributes:
        name: as the reader sees it.
        values: one per place on the horizontal axis; None where there is nothing.
        look: its class in the style sheet, for colour and dash.
        filled: whether the area below it is tinted.
    """

    name: str
    values: Sequence[float | None]
    look: str
    filled: bool = False


def lines(drawn: Sequence[Line], ticks: Sequence[str], *, describes: str, height: int = 170) -> str:
    """Lines over one time axis, from zero.

    Args:
        drawn: all of one length, at least 2.
        ticks: words for the horizontal axis, spread evenly over it, the first at its left end.
        describes: a sentence for screen readers.
        height: of the plot in pixels.
    """
    highest = max((value for line in drawn for value in line.values if value is not None), default=0.0)
    top, steps = _scale(highest * _HEADROOM)
    size = len(drawn[0].values) - 1
    paths = "".join(_path(line, size, top) for line in drawn)
    labels = [f"{step:,.10g}" for step in steps]
    return _frame(paths, size, [step / top for step in steps], labels, ticks, describes, height)


def band(points: Sequence[tuple[float, float, float]], ticks: Sequence[str], *, describes: str) -> str:
    """A line with an interval around it, on an axis that holds zero.

    Args:
        points: ``(value, low, high)``, at least 2 of them.
        ticks: words for the horizontal axis.
        describes: a sentence for screen readers.
    """
    lowest, highest = min(0.0, *(p[1] for p in points)), max(0.0, *(p[2] for p in points))
    _, steps = _scale((highest - lowest) or 1.0)
    step = steps[1]
    first, last = math.floor(lowest / step + 1e-9), math.ceil(highest / step - 1e-9)
    bottom, span = first * step, max(last - first, 1) * step

    def at(place: int, value: float) -> str:
        return f"{place} {100.0 * (1.0 - (value - bottom) / span):.2f}"

    there = "L".join(at(i, high) for i, (_, _, high) in enumerate(points))
    back = "L".join(at(i, low) for i, (_, low, _) in reversed(list(enumerate(points))))
    middle = "L".join(at(i, value) for i, (value, _, _) in enumerate(points))
    zero = 100.0 * (1.0 + bottom / span)
    size = len(points) - 1
    paths = (
        f'<path class="line-decisions tint" d="M{there}L{back}z"/><path class="line-decisions stroke" d="M{middle}"/>'
        f'<path class="zero stroke" d="M0 {zero:.2f}H{size}"/>'
    )
    marks = [(i - first) / max(last - first, 1) for i in range(first, last + 1)]
    labels = [f"{step * i:,.4g}".replace("-", "\u2212") for i in range(first, last + 1)]
    return _frame(paths, size, marks, labels, ticks, describes, height=130)


def columns(shares: Sequence[Sequence[float]], ticks: Sequence[str], *, describes: str, height: int = 170) -> str:
    """A column per place on the time axis, divided into shares of 1 from the bottom up.

    Args:
        shares: one sequence per column; an empty one leaves a gap. Part ``i`` has the class ``part-i``.
        ticks: words for the horizontal axis.
        describes: a sentence for screen readers.
        height: of the plot in pixels.
    """
    parts: dict[int, list[str]] = {}
    for place, column in enumerate(shares):
        top = 100.0
        for part, share in enumerate(column):
            if share <= 0.0:
                continue
            tall = 100.0 * share
            top -= tall
            parts.setdefault(part, []).append(f"M{place} {top:.2f}h.86v{tall:.2f}h-.86z")
    paths = "".join(f'<path class="part-{part}" d="{"".join(path)}"/>' for part, path in sorted(parts.items()))
    return _frame(
        paths,
        len(shares),
        [0.0, 0.25, 0.5, 0.75, 1.0],
        ["0", "25 %", "50 %", "75 %", "100 %"],
        ticks,
        describes,
        height,
    )


def spark(values: Sequence[float], *, highest: float | None = None) -> str:
    """A line without axes, as high as a line of text; hidden from screen readers, which have the number beside it."""
    top = max(values, default=0.0) if highest is None else highest
    size = max(len(values) - 1, 1)
    path = _path(Line("", values, "spark", filled=True), size, top or 1.0)
    return f'<svg class="sparkline" aria-hidden="true" viewBox="0 0 {size} 100" preserveAspectRatio="none">{path}</svg>'


def strip(value: float, low: float, high: float, bounds: tuple[float, float]) -> str:
    """A point and its interval on an axis that all strips of a table share.

    Args:
        value: the point.
        low: where its interval begins; if it is infinite, the interval is drawn to the edge.
        high: where it ends.
        bounds: the ends of the axis; zero is marked if it lies between.
    """
    at = _position(bounds)
    zero = "" if not bounds[0] < 0.0 < bounds[1] else f'<line class="zero" x1="{at(0)}" x2="{at(0)}" y1="0" y2="100%"/>'
    return (
        f'<svg class="strip" aria-hidden="true">{zero}'
        f'<line class="whisker" x1="{at(low)}" x2="{at(high)}" y1="50%" y2="50%"/>'
        f'<circle class="point" cx="{at(value)}" cy="50%" r="4.5"/></svg>'
    )


def share_bar(share: float, look: str = "") -> str:
    """A bar filled to a share of its width."""
    width = 100.0 * max(0.0, min(1.0, share if math.isfinite(share) else 0.0))
    return (
        f'<svg class="share {look}" aria-hidden="true"><rect class="all" width="100%" height="100%" rx="3"/>'
        f'<rect class="filled" width="{width:.1f}%" height="100%" rx="3"/></svg>'
    )


# ------------------------------------------------------------------------------------------- pieces


def _frame(
    paths: str,
    size: float,
    heights: Sequence[float],
    labels: Sequence[str],
    ticks: Sequence[str],
    describes: str,
    height: int,
) -> str:
    """A plot as SVG: axes around ``paths``, drawn in ``size`` by 100 units; rules at ``heights``, 0 (bottom) to 1."""
    pixels = [10 + (1.0 - share) * height for share in heights]
    rules = "".join(f'<line class="rule" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>' for y in pixels)
    left = "".join(
        f'<text x="100%" dx="-8" y="{y:.1f}" dy=".32em" text-anchor="end">{escape(label)}</text>'
        for y, label in zip(pixels, labels, strict=True)
    )
    last = len(ticks) - 1
    below = "".join(
        f'<text x="{100.0 * i / last:.2f}%" y="{height + 30}" '
        f'text-anchor="{"start" if i == 0 else "end" if i == last else "middle"}">{escape(tick)}</text>'
        for i, tick in enumerate(ticks)
    )
    return (
        f'<div class="plot" role="img" aria-label="{escape(describes)}">'
        f'<svg class="scale" height="{height + 36}" aria-hidden="true">{left}</svg>'
        f'<svg class="area" height="{height + 36}" aria-hidden="true">{rules}'
        f'<svg x="0" y="10" width="100%" height="{height}" viewBox="0 0 {size} 100" preserveAspectRatio="none">'
        f"{paths}</svg>{below}</svg></div>"
    )


def _path(line: Line, size: float, top: float) -> str:
    runs: list[list[str]] = [[]]
    for place, value in enumerate(line.values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append(f"{place} {100.0 * (1.0 - value / top):.2f}")
    drawn = [run for run in runs if run]
    stroke = "".join("M" + "L".join(run) + (f"L{run[0]}" if len(run) == 1 else "") for run in drawn)
    out = ""
    if line.filled:
        area = "".join(
            f"M{run[0].split()[0]} 100L{'L'.join(run)}L{run[-1].split()[0]} 100z" for run in drawn if len(run) > 1
        )
        out = f'<path class="{line.look} tint" d="{area}"/>' if area else ""
    return out + (f'<path class="{line.look} stroke" d="{stroke}"/>' if stroke else "")


def _scale(highest: float) -> tuple[float, list[float]]:
    """The end of an axis from 0 that holds ``highest``, and its 3 to 6 steps in round numbers."""
    if not (math.isfinite(highest) and highest > 0.0):
        return 1.0, [0.0, 0.5, 1.0]
    raw = highest / 5.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= raw)
    count = math.ceil(highest / step - 1e-9)
    return step * count, [step * i for i in range(count + 1)]


def _position(bounds: tuple[float, float]) -> _Position:
    return _Position(bounds[0], (bounds[1] - bounds[0]) or 1.0)


@dataclass(frozen=True)
class _Position:
    start: float
    length: float

    def __call__(self, value: float) -> str:
        share = (value - self.start) / self.length
        # the point has a radius, so the ends of the axis keep clear of the edges
        return f"{3.0 + 94.0 * max(0.0, min(1.0, share)):.2f}%"
