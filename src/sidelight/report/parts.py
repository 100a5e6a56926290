"""What the sections of a report share: a part of the page, colours of learners, and tables of numbers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from sidelight.drawing import markup as html
from sidelight.drawing.intervals import LEVEL, Interval, number, span
from sidelight.drawing.series import Series, learner_series
from sidelight.report.study import Study

__all__ = ["Part", "banded", "interval_rows", "numbers_of", "series_of"]

#: most rows of a table of numbers; of a longer one, this many are shown, evenly spaced
_MOST_ROWS = 25


class Part(NamedTuple):
    """A section of the page, and the specification of its picture by name, if it has one."""

    title: str
    anchor: str
    pieces: list[str]
    specifications: dict[str, dict[str, Any]]


def series_of(study: Study) -> list[Series]:
    """Each learner's colour and dash: the baseline grey and solid, the judged one heavy."""
    return learner_series(study.learners, study.baseline, study.best)


def interval_rows(name: str, xs: Any, intervals: list[Interval]) -> list[dict[str, Any]]:
    """Rows of a chart for one line; without an interval its bounds are the value itself."""
    rows = []
    for x, interval in zip(xs, intervals, strict=True):
        mean, low, high = map(float, interval.drawn)
        rows.append({"series": name, "x": _plain(x), "y": mean, "low": low, "high": high})
    return rows


def banded(rows: list[dict[str, Any]], names: Collection[str]) -> list[dict[str, Any]]:
    """Rows of a chart in which only these series keep their bands: those of many lines cover each other."""
    return [row if row["series"] in names else {**row, "low": row["y"], "high": row["y"]} for row in rows]


def _plain(x: Any) -> Any:
    return x.item() if hasattr(x, "item") else x


def numbers_of(caption: str, x_title: str, rows: list[dict[str, Any]], names: list[str]) -> str:
    """The numbers of lines: a row for each x, a column for each line."""
    xs = sorted({row["x"] for row in rows})
    if len(xs) > _MOST_ROWS:
        xs = [xs[i] for i in np.unique(np.linspace(0, len(xs) - 1, _MOST_ROWS).astype(int))]
    value = {(row["series"], row["x"]): row for row in rows}
    body = []
    for x in xs:
        cells = [f"{x:,}" if isinstance(x, int) else f"{x:,g}"]
        for name in names:
            row = value.get((name, x))
            if row is None:
                cells += ["–", "–"]
                continue
            held = Interval(row["y"], row["low"], row["high"])
            cells += [number(held.mean), span(held) if held.low != held.high else "–"]
        body.append(cells)
    header = [x_title, *(title for name in names for title in (name, f"{LEVEL:.0%}"))]
    return html.table(caption, header, body)
