"""The words under a figure follow from its numbers, in every case; pictures are drawn from the results alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sidelight.drawing.charts import Chart, Control
from sidelight.drawing.intervals import Interval, number, span, student
from sidelight.drawing.series import Series
from sidelight.drawing.vega_lite import specification
from sidelight.experiments.analysis import analyse
from sidelight.experiments.catalogue import QUICK, catalogue
from sidelight.experiments.figure_settings import Figure
from sidelight.experiments.pictures import chart_of, draw, gallery

FIGURES = {figure.name: figure for figure in catalogue(QUICK)}


def table_of(figure: Figure, ends: dict[str, float], spread: float = 0.01, seeds: int = 4) -> pa.Table:
    """A figure's table in which each series ends where it is told, at every x, with a little noise over seeds."""
    rows = []
    for cell in figure.cells:
        horizon = cell.setting.horizon
        for seed in range(seeds):
            wobble = 1 + spread * (seed - (seeds - 1) / 2) * (1 + 0.1 * (len(cell.series) % 3))
            for t in (horizon // 2, horizon):
                rows.append(
                    {
                        "series": cell.series,
                        "x": "" if cell.x is None else str(cell.x),
                        "horizon": horizon,
                        "seed": seed,
                        "round": t,
                        "regret": ends.get(cell.series, ends.get("*", 50.0)) * wobble * t / horizon,
                    }
                )
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize(
    ("ends", "word"),
    [
        ({"L = 0": 100.0, "L = 0, each arm first": 90.0, "*": 50.0}, "holds"),
        ({"L = 0": 100.0, "L = 0, each arm first": 90.0, "*": 50.0, "L = 5, estimated": 130.0}, "holds in part"),
        # below the baseline that never looks, above the one that does
        ({"L = 0": 100.0, "L = 0, each arm first": 60.0, "*": 50.0, "L = 5, estimated": 80.0}, "holds in part"),
        ({"L = 0": 100.0, "L = 0, each arm first": 30.0, "*": 50.0}, "does not hold"),
        ({"L = 0": 100.0, "L = 0, each arm first": 90.0, "*": 150.0}, "does not hold"),
    ],
)
def test_claim_a(ends: dict[str, float], word: str) -> None:
    findings = analyse(FIGURES["a-paper_text"], table_of(FIGURES["a-paper_text"], ends))
    assert findings.verdict is not None
    assert findings.verdict.word == word
    assert "100" in findings.words[0]
    assert f"is {number(ends['L = 0, each arm first'])}. " in findings.words[1]


def test_claim_a_says_where_the_log_helps_and_where_it_does_harm() -> None:
    """Against the baseline that tries every arm once, estimated lines alone."""
    figure = FIGURES["a-paper_text"]
    ends = {"L = 0": 100.0, "L = 0, each arm first": 60.0, "*": 50.0, "L = 5, estimated": 80.0}
    verdict = analyse(figure, table_of(figure, ends)).verdict
    assert verdict is not None
    most = max(QUICK.recorded)
    assert verdict.why.endswith(f"an estimated log surely helps with L = {most} and surely does harm with L = 5")


@pytest.mark.parametrize("name", ["a-paper_text", "b-paper_text", "c-paper_text"])
@pytest.mark.parametrize("ran", [(), ("L = 5, estimated",)])
def test_a_claim_cannot_be_told_where_no_learner_could_start_from_its_log(name: str, ran: tuple[str, ...]) -> None:
    figure = FIGURES[name]
    table = table_of(figure, {"*": 50.0})
    kept = [s in ran or s.startswith(("L = 0", "no log")) for s in table["series"].to_pylist()]
    findings = analyse(figure, table.filter(pa.array(kept)))
    assert findings.verdict is not None
    assert findings.verdict.sentence.startswith("Whether it holds cannot be told here: ")
    assert chart_of(figure, table.filter(pa.array(kept)), findings).rows


def leads(chart: Chart) -> list[tuple[float, float]]:
    """Where the thin lines from lines to labels begin and end, in pixels from the top."""
    layers = specification(chart, "light")["layer"]
    found = [layer["encoding"] for layer in layers if layer["mark"]["type"] == "rule" and "y2" in layer["encoding"]]
    return [(one["y"]["value"], one["y2"]["value"]) for one in found]


def test_a_label_that_had_to_move_is_joined_to_its_line() -> None:
    def chart(*ends: float) -> Chart:
        rows = [{"series": str(i), "x": x, "y": x * end} for i, end in enumerate(ends) for x in (0, 1)]
        return Chart("lines", rows, [Series(str(i), i) for i in range(len(ends))], "x", "y")

    assert leads(chart(1.0, 50.0, 100.0)) == []  # each has room beside its line
    close = leads(chart(48.0, 50.0, 52.0, 100.0))
    assert len(close) == 4
    assert len({start for start, _ in close}) == 4  # begins where the line ends
    assert min(np.diff(sorted(end for _, end in close))) >= 17.0  # and ends at the label


def test_claim_cannot_be_told_from_noise() -> None:
    figure = FIGURES["a-paper_text"]
    table = table_of(figure, {"*": 100.0})
    jitter = np.random.default_rng(0).normal(scale=30, size=table.num_rows)
    table = table.set_column(
        table.column_names.index("regret"), "regret", pa.array(table["regret"].to_numpy() + jitter)
    )
    verdict = analyse(figure, table).verdict
    assert verdict is not None
    assert verdict.word == "cannot be told"


def test_claim_b() -> None:
    figure = FIGURES["b-authors_code"]
    for ends, word in (
        ({"α = 0.001": 40.0, "α = 0.01": 35.0, "α = 0.2": 80.0}, "holds"),
        ({"α = 0.001": 80.0, "α = 0.01": 70.0, "α = 0.2": 40.0}, "does not hold"),
    ):
        colds = {"no log, α = 0.01": 100.0, "no log, α = 0.01, each arm first": 90.0}
        findings = analyse(figure, table_of(figure, ends | colds))
        assert findings.verdict is not None
        assert findings.verdict.word == word
        assert findings.words[0].endswith("Without a log it is 100, and 90.0 if every arm is played once first.")


def test_claim_c() -> None:
    figure = FIGURES["c-authors_code"]
    small, large = (f"{rows:,} rows" for rows in QUICK.log_sizes)
    ways = ("known", "estimated")

    def word(few: float, many: float, looks: float = 100.0) -> str:
        ends = {f"{small}, {w}": few for w in ways} | {f"{large}, {w}": many for w in ways}
        ends |= {"no log": 100.0, "no log, each arm first": looks}
        verdict = analyse(figure, table_of(figure, ends)).verdict
        assert verdict is not None
        return verdict.word

    assert word(33, 30) == "holds"
    assert word(60, 30) == "does not hold"
    assert word(130, 90) == "does not hold"
    assert word(33, 30, looks=20) == "does not hold"  # below the baseline that never looks, above the one that does


def test_own_figures_say_where_the_log_pays() -> None:
    ends = {"no log (OFUL)": 100.0, "fused": 40.0, "zero-filled": 160.0, "*": 70.0}
    words = " ".join(analyse(FIGURES["log-size"], table_of(FIGURES["log-size"], ends)).words)
    assert "fused: surely pays from 100 rows on" in words
    assert "zero-filled: pays at no size tried, and surely does harm at 100, 1,000, 10,000, 100,000" in words
    words = " ".join(analyse(FIGURES["lies"], table_of(FIGURES["lies"], ends)).words)
    assert "fused: −60" in words
    assert "surely worse than no log with: none" in words
    for name in ("confounding", "queries"):
        assert analyse(FIGURES[name], table_of(FIGURES[name], ends)).words


def test_numbers_in_tables_are_those_of_the_results() -> None:
    figure = FIGURES["lies"]
    table = table_of(figure, {"fused": 37.0, "*": 64.0})
    findings = analyse(figure, table)
    finals = [
        r["regret"]
        for r in table.to_pylist()
        if r["series"] == "fused" and r["x"] == "moved" and r["round"] == QUICK.own_horizon
    ]
    assert findings.final["fused", "moved"].mean == pytest.approx(np.mean(finals))
    t = 3.182446305284263  # Student's 97.5 % quantile for 3 degrees of freedom
    half = t * np.std(finals, ddof=1) / 2
    assert findings.final["fused", "moved"].high == pytest.approx(np.mean(finals) + half)


def test_pictures_are_drawn_from_results_alone(tmp_path: Path) -> None:
    parts = []
    for name in ("a-paper_text", "log-size", "lies"):
        figure = FIGURES[name]
        table = table_of(figure, {"L = 0": 100.0, "L = 0, each arm first": 90.0, "*": 50.0})
        findings = analyse(figure, table)
        png, svg, page = draw(figure, table, findings, tmp_path, 4)
        assert png.read_bytes().startswith(b"\x89PNG")
        assert "<svg" in svg.read_text()[:200]
        text = page.read_text()
        assert "https://cdn" not in text
        assert "<table" in text
        parts.append((figure, table, findings, 4))
    index = gallery(parts, tmp_path).read_text()
    for shown in (index, page.read_text()):
        assert "Regret is what a learner loses" in shown
        assert "R12 says how the hidden features go" in shown
    assert all(f'id="{name}"' in index for name in ("a-paper_text", "log-size", "lies"))
    assert "Here it holds" in index


@pytest.mark.parametrize("theme", ["light", "dark", "page"])
def test_specifications_are_valid_vega_lite(theme: str) -> None:
    altair = pytest.importorskip("altair")
    for name in ("a-paper_text", "log-size", "queries", "lies"):
        figure = FIGURES[name]
        table = table_of(figure, {"*": 50.0})
        spec = specification(chart_of(figure, table, analyse(figure, table)), theme, title="T", subtitle=["S"])  # type: ignore[arg-type]
        altair.LayerChart.from_dict(spec, validate=True)
    grid = Chart(
        "grid",
        [{"series": "s", "x": "1", "row": "a", "y": 0.5, "learner": "l"}],
        [Series("s", 4)],
        "x",
        "y",
        controls=(Control("learner", "Learner", ("l",), "l"),),
        x_order=("1",),
        row_order=("a",),
    )
    altair.LayerChart.from_dict(specification(grid, theme), validate=True)  # type: ignore[arg-type]


def test_each_series_differs_by_more_than_colour() -> None:
    for figure in FIGURES.values():
        table = table_of(figure, {"*": 50.0})
        chart = chart_of(figure, table, analyse(figure, table))
        if chart.kind == "lines" and figure.kind == "curves" and figure.name[0] in "ac":
            pairs = [(s.colour, s.dash) for s in chart.series]
            assert len(set(pairs)) == len(pairs)


@pytest.mark.parametrize(("ends", "scale"), [({"*": 50.0}, "linear"), ({"*": 500.0, "no log": 10.0}, "log")])
def test_wide_intervals_are_drawn_as_wide_as_they_are(ends: dict[str, float], scale: str) -> None:
    """Down to 0 where the axis has one, to a fifth of the value where it is logarithmic."""
    figure = FIGURES["log-size"]
    ends = {figure.baseline if series == "no log" else series: end for series, end in ends.items()}
    table = table_of(figure, ends, spread=0.5)
    findings = analyse(figure, table)
    chart = chart_of(figure, table, findings)
    assert chart.y_scale == scale
    for row, interval in zip(chart.rows, findings.final.values(), strict=True):
        assert interval.low < 0.2 * interval.mean
        assert row["low"] == (max(interval.low, 0.0) if scale == "linear" else 0.2 * interval.mean)


def test_intervals_and_numbers() -> None:
    one = student(np.array([3.0]))
    assert one.mean == 3.0
    assert np.isnan(one.low)
    assert span(one) == "–"
    assert student(np.array([1.0, 1.2, 0.9])).certain == 1
    assert Interval(0.1, -1, 2).certain == 0
    assert [number(v) for v in (1234.5, 12.345, 0.012345, 0.0, -3.21)] == ["1,234", "12.3", "0.0123", "0", "−3.21"]
    assert number(2.0, sign=True) == "+2.00"
