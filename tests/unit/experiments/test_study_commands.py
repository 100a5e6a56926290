"""``sidelight figures`` and ``sidelight simulate`` as people type them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from sidelight.cli import figures as figures_command
from sidelight.cli.figures import figures
from sidelight.cli.simulate import simulate
from sidelight.experiments.catalogue import QUICK


def app_of(command: object) -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)  # type: ignore[type-var]
    return app


def test_figures_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(QUICK, own_horizon=80, own_log_rows=600, own_seeds=2, queries=(0, 20))
    monkeypatch.setattr(figures_command, "QUICK", small)
    run = CliRunner().invoke(
        app_of(figures), ["queries", "--quick", "-o", str(tmp_path), "--workers", "1", "--json"], catch_exceptions=False
    )
    assert run.exit_code == 0
    told = json.loads(run.stdout)
    entry = told["figures"][0]
    assert entry["figure"] == "queries"
    folder = tmp_path / "quick"
    assert {path.name for path in folder.iterdir() if path.is_file()} == {
        "queries.parquet", "queries.png", "queries.svg", "queries.html", "index.html",
    }  # fmt: skip
    table = pq.read_table(folder / "queries.parquet")
    last = [r for r in table.to_pylist() if r["round"] == 80 and r["series"] == "fused" and r["x"] == "20"]
    mean = next(e["mean"] for e in entry["final"] if e["series"] == "fused" and e["x"] == "20")
    assert mean == pytest.approx(sum(r["regret"] for r in last) / 2)
    # redrawn from the results, even where nothing could be run
    (folder / "queries.png").unlink()
    monkeypatch.setattr("sidelight.cli.figures.run_figures", None)
    again = CliRunner().invoke(
        app_of(figures), ["queries", "--quick", "-o", str(tmp_path), "--redraw", "--json"], catch_exceptions=False
    )
    assert json.loads(again.stdout)["figures"][0]["final"] == entry["final"]
    assert (folder / "queries.png").exists()


def test_simulate_from_options_and_from_a_file_agree(tmp_path: Path) -> None:
    by_options = ["--world", "dosing", "--learner", "OFUL", "--learner", "FusedOFUL", "--rounds", "50", "--seeds", "2"]
    by_options += ["--log-rows", "400", "--workers", "1", "--json"]
    first = json.loads(CliRunner().invoke(app_of(simulate), by_options, catch_exceptions=False).stdout)
    file = tmp_path / "study.toml"
    file.write_text(
        'rounds = 50\nseeds = 2\nlog_rows = 400\nworld = { kind = "dosing" }\n[learners.OFUL]\n[learners.FusedOFUL]\n'
    )
    kept = tmp_path / "deep" / "results.parquet"
    arguments = [str(file), "--workers", "1", "--json", "-o", str(kept)]
    second = json.loads(CliRunner().invoke(app_of(simulate), arguments, catch_exceptions=False).stdout)
    assert first["learners"] == second["learners"]
    assert first["recorded"] == ["stage", "weight", "white_cells", "age", "illnesses"]
    table = pq.read_table(kept)
    final = [r["regret"] for r in table.to_pylist() if r["round"] == 50 and r["learner"] == "FusedOFUL"]
    assert second["learners"][1]["mean"] == pytest.approx(sum(final) / 2)
    assert json.loads(table.schema.metadata[b"sidelight"])["plan"]["world"] == "dosing"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rounds = 'many'", "must be a whole number"),
        ("turns = 5", "'turns', which is not one of"),
        ("world = { seed = 3 }", "say which world"),
        ("[learners]\nOFUL = 3", "must be a table of settings"),
        ("rounds = [", "cannot read"),
        ("rounds = true", "must be a whole number of at least 1"),
        ("log_rows = -1", "must be a whole number of at least 0"),
        ("world = 3", "world = 3; say which world"),
        ("world = { kind = 3 }", "say which world"),
        ("world = { kind = 'confounded', confounding = 'strong' }", "'confounded' does not take these settings"),
        ("world = { kind = 'confounded', n_hidden = 40 }", "n_hidden=40"),
        ("learners = 'OFUL'", "learners = 'OFUL' is no list of learners"),
        ("[learners.a]\nkind = ['OFUL']", r"\[learners.a\] must be a table of settings with a kind"),
        ("recorded = 2.5", "recorded=2.5 is a single value"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, says: str) -> None:
    from sidelight.errors import InputError

    file = tmp_path / "study.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=says):
        CliRunner().invoke(app_of(simulate), [str(file)], catch_exceptions=False)


def test_lists_name_everything() -> None:
    out = CliRunner().invoke(app_of(simulate), ["--list"], catch_exceptions=False).stdout
    for word in ("paper_text", "dosing", "FusedOFUL", "probabilities", "[learners.fused]"):
        assert word in out
