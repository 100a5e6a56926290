"""The demo end to end at a small size, and its sentence in all three cases."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from sidelight.cli.demo import BASELINE, contenders, demo, make_world, opening, worth
from sidelight.drawing.regret import standings
from sidelight.worlds.confounded import ConfoundedWorld

NAMES = [player.name for player in contenders()]


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command()(demo)
    return app


def table_of(cold: list[float], warm: list[float]) -> pa.Table:
    rows = [
        {"learner": name, "seed": seed, "round": t, "arm": 0, "reward": 0.0, "regret": value * t / 100}
        for name, values in ((BASELINE, cold), ("mine", warm))
        for seed, value in enumerate(values)
        for t in (25, 50, 75, 100)
    ]
    return pa.Table.from_pylist(rows)


def test_demo_draws_prints_and_says_what_the_log_was_worth(app: typer.Typer, tmp_path: Path) -> None:
    small = ["--out", str(tmp_path), "--seeds", "2", "--rounds", "60", "--log-rows", "3000", "--workers", "1"]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, small)
    assert result.exit_code == 0, result.output
    for name in NAMES:
        assert name in result.output
    assert "The log" in result.output or "What the log" in result.output
    assert (tmp_path / "regret.png").read_bytes().startswith(b"\x89PNG")
    assert all(name in (tmp_path / "regret.svg").read_text() for name in NAMES)
    assert "vegaEmbed" in (tmp_path / "index.html").read_text()
    assert [path.name for path in tmp_path.glob("*.html")] == ["index.html"]
    # one head start, and words that need no paper
    page = re.sub(r"<script.*?</script>", "", (tmp_path / "index.html").read_text(), flags=re.DOTALL)
    for text in (result.output, page):
        assert "R12" not in text
        assert "M w = b" not in text


def test_demo_as_json_is_what_simulate_gives(app: typer.Typer, tmp_path: Path) -> None:
    import sidelight as sl

    small = ["--out", str(tmp_path), "--seeds", "2", "--rounds", "40", "--log-rows", "2500", "--workers", "1", "--json"]
    result = CliRunner().invoke(app, small)
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output)
    assert [row["learner"] for row in figures["learners"]] == NAMES
    cold = contenders()[0]
    again = sl.simulate(make_world, {cold.name: cold.make}, 40, recorded=6, log_rows=2500, seeds=2, workers=1)
    assert figures["learners"][0]["mean"] == pytest.approx(standings(again, BASELINE)[0].mean, rel=1e-12)


def test_bad_options_are_usage_errors(app: typer.Typer) -> None:
    assert CliRunner().invoke(app, ["--seeds", "1"]).exit_code == 2


def test_sentence_of_a_log_that_helps() -> None:
    table = table_of([100.0, 110.0, 105.0, 95.0], [40.0, 45.0, 42.0, 38.0])
    sentence = worth(standings(table, BASELINE), "mine", 100)
    assert re.match(r"The log was worth 61 of reward \(95 % interval \d+ to \d+\)", sentence)
    low, high = map(int, re.search(r"interval (\d+) to (\d+)", sentence).groups())  # type: ignore[union-attr]
    assert low < 61 < high
    assert "in 100 rounds mine lost 41 against always taking the best arm, and starting without the log 102" in sentence


def test_sentence_of_a_log_that_harms() -> None:
    table = table_of([40.0, 45.0, 42.0, 38.0], [100.0, 110.0, 105.0, 95.0])
    assert worth(standings(table, BASELINE), "mine", 100).startswith("The log did harm: mine lost 61 more")


def test_sentence_when_the_seeds_cannot_tell() -> None:
    table = table_of([40.0, 45.0, 42.0, 38.0], [20.0, 80.0, 30.0, 50.0])
    assert worth(standings(table, BASELINE), "mine", 100).startswith("What the log was worth cannot be told from 4")


def test_opening_contrasts_the_two_readings() -> None:
    """The naive error is the confounding, which rows do not cure; the other is sampling error, of order √(L/n_a)·s."""
    world = make_world(0)
    naive, constraint = _errors(world, 5_000)
    more_naive, more_constraint = _errors(world, 80_000)
    assert naive > 0.1
    assert more_naive == pytest.approx(naive, rel=0.1)
    assert more_constraint < 0.4 * constraint


def _errors(world: ConfoundedWorld, rows: int) -> tuple[float, float]:
    numbers = re.findall(r"by (\d\.\d+)", " ".join(opening(world, rows)[0]))
    assert len(numbers) == 2
    return float(numbers[0]), float(numbers[1])


def test_contenders_start_cold_and_differ() -> None:
    assert NAMES[0] == BASELINE
    assert len(set(NAMES)) == len(NAMES) >= 5
    assert np.all([player.meaning for player in contenders()])
