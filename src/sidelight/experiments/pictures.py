"""From results to pictures: PNG, SVG, an interactive page for each figure, and one page with all of them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sidelight.drawing import interactive
from sidelight.drawing import markup as html
from sidelight.drawing.charts import Chart
from sidelight.drawing.curves import curves
from sidelight.drawing.image_files import pictures
from sidelight.drawing.intervals import LEVEL, Interval, number, significant, span, student
from sidelight.drawing.series import DASHES, Series
from sidelight.drawing.vega_lite import specification
from sidelight.experiments.analysis import Findings
from sidelight.experiments.figure_settings import Cell, Figure
from sidelight.experiments.jobs import machine
from sidelight.labels import counted
from sidelight.version import __version__

__all__ = ["chart_of", "draw", "gallery"]

#: characters in a line below a picture's title
_LINE = 104


def chart_of(figure: Figure, table: pa.Table, findings: Findings) -> Chart:
    """The chart of a figure from its tidy table."""
    shown = dict.fromkeys(table["series"].to_pylist())
    styles = {cell.series: cell for cell in reversed(figure.cells)}
    series = [
        Series(
            name,
            styles[name].colour,
            _dash(figure, styles[name], position),
            heavy=styles[name].heavy,
            ordered=figure.ordered,
        )
        for position, name in enumerate(dict.fromkeys(cell.series for cell in figure.cells))
        if name in shown
    ]
    if figure.kind == "curves":
        return Chart("lines", _curves(table), series, "Round", "Cumulative regret")
    rows = []
    for (name, x), interval in findings.final.items():
        place: Any = x if figure.x_scale == "category" else float(x)
        rows.append({"series": name, "x": place, "y": interval.mean, "low": interval.low, "high": interval.high})
    order = tuple(dict.fromkeys(str(cell.x) for cell in figure.cells)) if figure.x_scale == "category" else ()
    kind: Any = "points" if figure.kind == "points" else "lines"
    values = [row["y"] for row in rows]
    steep = min(values) > 0 and max(values) > 12 * min(values)
    return Chart(
        kind,
        _bounded(rows, steep),
        series,
        figure.x_title,
        "Regret at the end",
        x_scale=figure.x_scale,
        y_scale="log" if steep else "linear",
        markers=True,
        x_order=order,
    )


def _dash(figure: Figure, cell: Cell, position: int) -> tuple[int, ...]:
    """The dash of a line: one for all dashed lines where colours are ordered, else one for each."""
    if cell.series == figure.fair_baseline:
        return DASHES[2]
    if not cell.dashed:
        return DASHES[0]
    return DASHES[1] if figure.ordered else DASHES[1 + position % (len(DASHES) - 1)]


def _bounded(rows: list[dict[str, Any]], logarithmic: bool) -> list[dict[str, Any]]:
    """Rows with bounds that can be drawn: the value if there is no interval, and a lower one of at least 0.

    A logarithmic axis has no 0: there the lower bound is at least a fifth of the value.
    """
    out = []
    for row in rows:
        _, low, high = Interval(row["y"], row["low"], row["high"]).drawn
        out.append({**row, "low": max(low, 0.2 * row["y"] if logarithmic else 0.0), "high": high})
    return out


def _curves(table: pa.Table) -> list[dict[str, Any]]:
    rows = []
    for name, (rounds, regrets) in curves(table, by="series").items():
        # a hundred points draw the same curve as two hundred
        for i in np.unique(np.linspace(0, len(rounds) - 1, min(100, len(rounds))).astype(int)):
            mean, low, high = (significant(max(bound, 0.0)) for bound in student(regrets[:, i]).drawn)
            rows.append({"series": name, "x": int(rounds[i]), "y": mean, "low": low, "high": high})
    return rows


def _numbers(figure: Figure, findings: Findings) -> str:
    header = [figure.x_title if figure.kind != "curves" else "Line"]
    if figure.kind != "curves":
        header = [header[0] or "Log", "Learner"]
    header += ["Regret at the end", f"{LEVEL:.0%}", f"Minus “{figure.baseline}”", f"{LEVEL:.0%}"]
    rows = []
    for (series, x), interval in findings.final.items():
        paired = findings.against.get((series, x))
        first = [series] if figure.kind == "curves" else [_place(x), series]
        difference = ["–", "–"] if paired is None else [number(paired.mean, sign=True), span(paired, sign=True)]
        rows.append([*first, number(interval.mean), span(interval), *difference])
    return html.table(f"{figure.title}: regret at the end, mean over seeds", header, rows)


def _place(x: str) -> str:
    try:
        return f"{float(x):,g}" if float(x) < 1e4 else f"{float(x):,.0f}"
    except ValueError:
        return x


def _texts(figure: Figure, findings: Findings, seeds: int) -> list[str]:
    bands = f"Bands: {LEVEL:.0%} intervals of the mean over {counted(seeds, 'seed')}."
    if figure.kind != "curves":
        bands = (
            f"Intervals: {LEVEL:.0%} of the mean over {counted(seeds, 'seed')}, each with a world and a log of its own."
        )
    words = [*findings.words]
    if findings.verdict is not None:
        words.append(f"The paper's claim: {figure.claim} {findings.verdict.sentence}")
    return [*words, f"{figure.setting} {bands}"]


def _subtitle(figure: Figure, findings: Findings) -> list[str]:
    """Lines below a picture's title: the setting, and the verdict."""
    lines = textwrap.wrap(figure.setting, _LINE)
    if findings.verdict is not None:
        lines += textwrap.wrap(f"Claim: {figure.claim} {findings.verdict.sentence}", _LINE)
    return lines


#: an explanation of the paper's terms for every page of figures
TERMS = (
    "Regret is what a learner loses over all rounds against always taking the arm with the largest mean reward. L is "
    "the number of features that the log recorded. R12 says how the hidden features go with the recorded ones for each "
    "arm: the log lacks it, so it is either known to the learner or estimated from the old policy's answers."
)


def draw(figure: Figure, table: pa.Table, findings: Findings, folder: Path, seeds: int) -> list[Path]:
    """Write ``<figure>.png``, ``.svg`` and ``.html``; returns the files."""
    chart = chart_of(figure, table, findings)
    drawn = specification(chart, "light", title=figure.title, subtitle=_subtitle(figure, findings))
    files = pictures(drawn, folder / figure.name)
    part, drawing = _part(figure, chart, findings, seeds)
    page = html.page(
        figure.title,
        findings.words[0],
        [interactive.STYLE, html.paragraph(TERMS), part, interactive.script({figure.name: drawing})],
        _small_print(),
    )
    path = folder / f"{figure.name}.html"
    path.write_text(page, encoding="utf-8")
    return [*files, path]


def gallery(parts: Sequence[tuple[Figure, pa.Table, Findings, int]], folder: Path) -> Path:
    """Write ``index.html``: every figure with its words, its picture and its numbers."""
    contents = _contents([figure for figure, *_ in parts], [findings for _, _, findings, _ in parts])
    pieces = [interactive.STYLE, html.paragraph(TERMS), contents]
    specifications = {}
    for figure, table, findings, seeds in parts:
        part, specifications[figure.name] = _part(figure, chart_of(figure, table, findings), findings, seeds)
        pieces.append(html.section(_heading(figure), part))
    tested = [findings.verdict.word for _, _, findings, _ in parts if findings.verdict is not None]
    lead = f"{counted(len(parts), 'figure')}." + (
        f" The paper's claims were tested {counted(len(tested), 'time')}: {tested.count('holds')} hold, "
        f"{tested.count('holds in part')} hold in part, "
        f"{tested.count('does not hold')} do not, {tested.count('cannot be told')} cannot be told."
        if tested
        else ""
    )
    pieces.append(interactive.script(specifications))
    path = folder / "index.html"
    path.write_text(html.page("Figures", lead, pieces, _small_print()), encoding="utf-8")
    return path


def _heading(figure: Figure) -> str:
    preset = next((p for p in ("paper_text", "authors_code") if figure.name.endswith(p)), "")
    letter = figure.name[0] if preset else ""
    return (f"({letter}) " if letter else "") + figure.title + (f" – {preset}" if preset else "")


def _contents(figures: Sequence[Figure], findings: Sequence[Findings]) -> str:
    items = "".join(
        f'<li><a href="#{escape(figure.name)}">{escape(_heading(figure))}</a>'
        + (f" <small>{escape(found.verdict.word)}</small>" if found.verdict else "")
        + "</li>"
        for figure, found in zip(figures, findings, strict=True)
    )
    return f'<nav aria-label="Figures"><ul class="contents">{items}</ul></nav>'


def _part(figure: Figure, chart: Chart, findings: Findings, seeds: int) -> tuple[str, dict[str, Any]]:
    return interactive.figure(
        figure.name,
        chart,
        describes=f"{figure.title}. {findings.words[0]} All numbers are in the table below.",
        words=_texts(figure, findings, seeds),
        numbers=_numbers(figure, findings),
    )


def _small_print() -> str:
    here = machine()
    return (
        f"Sidelight {__version__}. Drawn with Python {here['python']} on {here['processor']} ({here['cores']} cores); "
        "each result file names the machine that computed it. In the paper's figures all seeds share weights, policy "
        "and log, as in the authors' code, so intervals tell of the online rounds alone."
    )
