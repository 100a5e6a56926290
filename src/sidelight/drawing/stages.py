"""Two pictures of a verdict as plain SVG, drawn without the extra ``figures``: intervals by stage, and a contour."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from sidelight.drawing.colours import ALARM, FONT, GOOD, GREY, INK, LINE, PALETTE, PAPER
from sidelight.drawing.intervals import number
from sidelight.files import write_atomically

__all__ = ["Bar", "Picture", "contour_picture", "stages_picture"]

_WIDTH = 640
_LEFT, _RIGHT = 12, 12
#: in a picture narrower than this, the remark of a row has a line of its own
_NARROW = 480


@dataclass(frozen=True)
class Bar:
    """One stage: the gain, its sampling interval, and the wider band that allows for hidden features.

    Attributes:
        label: what was used, such as "the log alone". remark: what the wide band allows for, such as "hidden features
        as strong as 'age'"; or why there is no number. gain: the estimate; NaN where it cannot be told. low, high: the
        sampling interval. band_low, band_high: with what hidden features may do; equal to ``low`` and ``high`` where
        nothing is allowed for.
    """

    label: str
    remark: str
    gain: float
    low: float
    high: float
    band_low: float
    band_high: float


@dataclass(frozen=True)
class Picture:
    """A picture as SVG text; notebooks show it, ``save`` writes it."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write the SVG file."""
        write_atomically(path, self.svg.encode())

    def __repr__(self) -> str:
        return f"Picture({len(self.svg):,} characters of SVG)"


def _text(x: float, y: float, words: str, anchor: str = "start", kind: str = "small") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(x: float, top: float, bottom: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'


def stages_picture(bars: Sequence[Bar], unit: str, title: str, width: int = _WIDTH) -> Picture:
    """The interval of the gain, a row for each stage, around the line of the old policy.

    Args:
        bars: the stages in order.
        unit: of the gain.
        title: for screen readers.
        width: in pixels; letters keep their size.
    """
    low, high = _range(bars)
    ticks = _ticks(low, high, 5 if width >= _NARROW else 3)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    room = 64 if width >= _NARROW else 82
    bottom = 34 + room * len(bars)

    def x(value: float) -> float:
        inside = min(max(value, low), high)
        return _LEFT + 20 + (inside - low) / (high - low) * (width - _LEFT - _RIGHT - 40)

    def lines(value: float, kind: str) -> list[str]:
        """A line down the picture that leaves out the words above each bar, so that it crosses none of them."""
        tops = [34 + room * i for i in range(len(bars))]
        return [_line(x(value), top + room - 46, top + room, kind) for top in tops]

    parts = []
    for tick in ticks:
        parts += lines(tick, "grid")
        parts.append(_text(x(tick), bottom + 16, "0" if tick == 0 else number(tick, sign=True), "middle"))
    parts += [_line(x(0), 20, 33, "zero"), *lines(0, "zero")]
    anchor = "start" if x(0) < 90 else "end" if x(0) > width - 90 else "middle"
    parts.append(_text(x(0), 14, "the old policy", anchor))
    for i, bar in enumerate(bars):
        parts.append(_row(bar, 34 + room * i, x, width))
    parts.append(_text(width - _RIGHT, bottom + 34, f"gain for each decision, in {unit}", "end"))
    return _picture(parts, bottom + 40, title, width)


def _row(bar: Bar, top: float, x: Callable[[float], float], width: int) -> str:
    label = _text(_LEFT, top + 12, bar.label, kind="label")
    if width >= _NARROW:
        remark, middle = _text(width - _RIGHT, top + 12, _cut(bar.remark), "end"), top + 32
    else:
        remark, middle = _text(_LEFT, top + 28, _cut(bar.remark, 54)), top + 48
    if not math.isfinite(bar.gain):
        return label + remark + _text(_LEFT + 20, middle + 6, "cannot be told", kind="unknown")
    kind = "good" if bar.band_low > 0 else "bad" if bar.band_high < 0 else "open"
    band = (
        f'<rect class="band {kind}" x="{x(bar.band_low):.1f}" y="{middle - 9}" '
        f'width="{max(x(bar.band_high) - x(bar.band_low), 1):.1f}" height="18" rx="3"/>'
    )
    core = (
        f'<rect class="core {kind}" x="{x(bar.low):.1f}" y="{middle - 4}" '
        f'width="{max(x(bar.high) - x(bar.low), 1.5):.1f}" height="8" rx="2"/>'
    )
    point = f'<circle class="point" cx="{x(bar.gain):.1f}" cy="{middle}" r="5"/>'
    return label + remark + band + core + point


def _cut(text: str, limit: int = 62) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _range(bars: Sequence[Bar]) -> tuple[float, float]:
    """Range of the axis: zero and every interval; an infinite or far wider band is cut at three times the others."""
    core = [abs(value) for bar in bars for value in (bar.low, bar.high) if math.isfinite(value)]
    bands = sorted(abs(v) for bar in bars for v in (bar.band_low, bar.band_high) if math.isfinite(v))
    limit = 3.0 * max(max(core, default=1.0), bands[len(bands) // 2] if bands else 0.0) or 1.0
    values = [v for bar in bars for v in (bar.low, bar.high, bar.band_low, bar.band_high) if math.isfinite(v)]
    low, high = max(min([0.0, *values]), -limit), min(max([0.0, *values]), limit)
    if high - low <= 0.0:
        low, high = -1.0, 1.0
    return low, high


def _ticks(low: float, high: float, about: int) -> list[float]:
    rough = (high - low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= rough)
    return [i * step for i in range(math.floor(low / step), math.ceil(high / step) + 1)]


def contour_picture(
    strength: float, robustness: float, points: Sequence[tuple[str, float, float]], title: str
) -> Picture:
    """Where hidden features overturn a gain: above the curve ``reward_share·C_D² = f²``.

    Args:
        strength: ``f²``, the squared margin of the gain over ``E ε² · E α_s²``.
        robustness: the share at which both are equal on the curve.
        points: recorded features as yardsticks: name, reward share, choice share.
        title: for screen readers.
    """
    size, left, top = 420, 60, 16
    largest = max([0.05, *(max(reward, choice) for _, reward, choice in points), 1.5 * robustness])
    limit = min(1.0, 1.15 * largest)

    def at(choice: float, reward: float) -> tuple[float, float]:
        return left + min(choice, limit) / limit * size, top + size - min(reward, limit) / limit * size

    parts = [f'<rect class="frame" x="{left}" y="{top}" width="{size}" height="{size}"/>']
    curve = [at(choice, reward) for choice, reward in _curve(strength, limit)]
    if curve:
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in curve)
        corners = f"{left + size},{top} {curve[0][0]:.1f},{top}"
        parts.append(f'<polygon class="band bad" points="{path} {corners}"/><polyline class="curve" points="{path}"/>')
        parts.append(_text(left + size - 8, top + 18, "overturned here", "end"))
    for name, reward, choice in points:
        a, b = at(choice, reward)
        anchor, shift = ("end", -8) if a > left + 0.7 * size else ("start", 8)
        parts.append(f'<circle class="point" cx="{a:.1f}" cy="{b:.1f}" r="4"/>')
        parts.append(_text(a + shift, b - 6, name, anchor))
    for i in range(5):
        share = limit * i / 4
        a, b = at(share, share)
        parts.append(_text(a, top + size + 16, f"{share:.0%}", "middle"))
        parts.append(_text(left - 6, b + 4, f"{share:.0%}", "end"))
    below = top + size + 36
    parts.append(_text(left, below, "share of the choice that hidden features explain"))
    words = "share of the unexplained reward that they explain"
    parts.append(f'<text class="small" transform="translate(14 {top + size}) rotate(-90)">{words}</text>')
    return _picture(parts, below + 12, title, left + size + 20)


def _curve(strength: float, limit: float) -> list[tuple[float, float]]:
    """Points (choice, reward) with ``reward·choice/(1 − choice) = strength`` inside the square of side ``limit``."""
    if not math.isfinite(strength):
        return []
    first = strength / (limit + strength)  # there the reward share is the limit
    if not first < limit:
        return []
    choices = [first + (limit - first) * i / 200 for i in range(201)]
    return [(c, strength * (1 - c) / c if c > 0 else limit) for c in choices]


def _picture(parts: Sequence[str], height: float, title: str, width: float = _WIDTH) -> Picture:
    body = "".join(parts)
    return Picture(
        f'<svg xmlns="http://www.w3.org/2000/svg" class="sidelight-verdict" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img" aria-label="{escape(title)}"><title>{escape(title)}</title><style>{_STYLE}</style>{body}</svg>'
    )


def _rules(theme: str) -> str:
    own = ".sidelight-verdict"
    fills = {"good": GOOD[theme], "bad": ALARM[theme], "open": PALETTE[theme][4]}
    marks = " ".join(f"{own} .{kind} {{ fill: {colour}; }}" for kind, colour in fills.items())
    return (
        f"{own} text {{ fill: {INK[theme]}; stroke: {PAPER[theme]}; }} {own} .small {{ fill: {GREY[theme]}; }} "
        f"{own} .grid {{ stroke: {LINE[theme]}; }} {own} .zero, {own} .frame {{ stroke: {GREY[theme]}; }} "
        f"{own} .curve {{ stroke: {ALARM[theme]}; }} {marks} "
        f"{own} .point {{ fill: {INK[theme]}; stroke: {PAPER[theme]}; }}"
    )


_STYLE = (
    f".sidelight-verdict {{ width: 100%; max-width: 46rem; height: auto; font: 13px {FONT}; }} "
    ".sidelight-verdict text { paint-order: stroke; stroke-width: 4px; stroke-linejoin: round; } "
    ".sidelight-verdict .label { font-weight: 600; } .sidelight-verdict .small { font-size: 11.5px; } "
    ".sidelight-verdict .unknown { font-size: 17px; font-weight: 600; } "
    ".sidelight-verdict .zero { stroke-width: 1.5; stroke-dasharray: 4 3; } "
    ".sidelight-verdict .band { opacity: .25; } .sidelight-verdict .frame, .sidelight-verdict .curve { fill: none; } "
    ".sidelight-verdict .curve { stroke-width: 2; } .sidelight-verdict .point { stroke-width: 1.5; } "
    f"{_rules('light')} @media (prefers-color-scheme: dark) {{ {_rules('dark')} }}"
)
