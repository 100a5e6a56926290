"""``sidelight report`` on one's own tables, as people type it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import typer
from pyarrow import csv
from typer.testing import CliRunner

from sidelight.cli.log_options import split_names
from sidelight.cli.report import report
from sidelight.cli.tables import columns_of, read_table, schema_of, with_names
from sidelight.errors import InputError, SchemaError, SourceError


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(report)
    return app


def write_trial(path: Path, rng: np.random.Generator, n: int = 1_200, outcome: bool = True) -> Path:
    age, severity = rng.normal(size=n), rng.normal(size=n)
    arm = rng.integers(2, size=n)
    reward = 0.5 * severity * (2 * arm - 1) + 0.2 * age + 0.3 * rng.normal(size=n)
    columns = {
        "age": age,
        "severity": severity,
        "ward": rng.choice(["north", "south"], n),
        "treatment": arm,
        "y": reward,
    }
    columns |= {"name": [f"patient {i}" for i in range(n)]}
    if outcome:
        columns["cost"] = reward + 0.5 * arm + 0.1 * rng.normal(size=n)
    csv.write_csv(pa.table(columns), path)
    return path


def test_a_trial_from_its_csv(tmp_path: Path, app: typer.Typer, rng: np.random.Generator) -> None:
    source = write_trial(tmp_path / "trial.csv", rng)
    out = tmp_path / "out" / "page.html"
    arguments = [
        "--trial",
        str(source),
        "--arm",
        "treatment",
        "--reward",
        "y",
        "--hidden",
        "severity",
        "--ignore",
        "cost",
    ]
    arguments += ["--seeds", "2", "-o", str(out), "--json"]
    run = CliRunner().invoke(app, arguments, catch_exceptions=False, obj=["report", *arguments])
    told = json.loads(run.stdout)
    text = out.read_text()
    assert re.search(r"Written 20\d\d-\d\d-\d\d \d\d:\d\d UTC from trial\.csv by: sidelight report --trial ", text)
    assert "name was left out: 1,200 different texts are no category." in told["notes"]
    assert told["sentence"].split(":")[0] in text
    assert "name was left out: 1,200 different texts are no category" in text
    assert "severity" in text
    assert out.with_suffix(".parquet").exists()


def test_a_trial_with_a_rare_arm_says_what_is_left_out(
    tmp_path: Path, app: typer.Typer, rng: np.random.Generator
) -> None:
    source = write_trial(tmp_path / "trial.csv", rng, outcome=False)
    table = csv.read_csv(source)
    tried = table["treatment"].to_numpy()
    kept = np.flatnonzero(
        (tried == 1) | (rng.random(len(tried)) < 1 / 3)
    )  # the arm 0 is tried about a quarter of the time
    csv.write_csv(table.take(kept), source)
    share = float((tried[kept] == 0).mean())
    out = tmp_path / "page.html"
    arguments = ["--trial", str(source), "--arm", "treatment", "--reward", "y", "--hidden", "severity"]
    CliRunner().invoke(app, [*arguments, "--seeds", "2", "-o", str(out)], catch_exceptions=False)
    told = re.search(r"whichever arm a learner takes, (\d+)% of the rows offered count", out.read_text())
    assert told is not None
    assert int(told[1]) == pytest.approx(100 * share, abs=1)


def test_an_outcome_among_the_features_is_found(tmp_path: Path, app: typer.Typer, rng: np.random.Generator) -> None:
    source = write_trial(tmp_path / "trial.csv", rng)
    arguments = ["--trial", str(source), "--arm", "treatment", "--reward", "y", "--hidden", "severity"]
    with pytest.raises(InputError, match=r"'cost'.*--assume-randomized\..*--ignore"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    out = tmp_path / "page.html"
    arguments += ["--assume-randomized", "--seeds", "2", "-o", str(out), "--json"]
    CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "doubtful (p = " in out.read_text()


def test_a_table_of_right_answers(tmp_path: Path, app: typer.Typer, rng: np.random.Generator) -> None:
    n = 600
    weight, gene = rng.normal(size=n), rng.choice(["AA", "AG", "GG"], n)
    smoker = pa.array([None if i % 7 == 0 else int(i % 2) for i in range(n)])
    dose = 35 + 8 * weight - 10 * (gene == "AA") + 2 * rng.normal(size=n)
    source = tmp_path / "doses.csv"
    weighed = pa.array([None if i < 5 else weight[i] for i in range(n)])
    csv.write_csv(pa.table({"weight": weighed, "gene": gene, "smoker": smoker, "dose": dose}), source)
    out = tmp_path / "page.html"
    arguments = ["--answers", str(source), "--arm", "dose", "--cuts", "30,40", "--recorded", "weight,smoker"]
    arguments += [
        "--categories",
        "smoker",
        "--rounds",
        "150",
        "--seeds",
        "2",
        "--workers",
        "1",
        "-o",
        str(out),
    ]
    run = CliRunner().invoke(app, arguments, catch_exceptions=False)
    text = out.read_text()
    for told in (run.stdout, text):
        assert "5 rows left out because a value was missing: 5 for weight." in told
    assert "decides by gene wrote a log" in text
    assert "Cumulative regret" in text
    assert "30 to 40" in text
    assert "smoker=" in text


def test_a_report_has_no_eras_and_says_where_they_are(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["--eras", "period", "--trial", "any.csv"])
    assert isinstance(result.exception, InputError)
    assert "all rows have the same columns" in str(result.exception)
    for command in ("diagnose", "judge", "summarize"):
        assert f"sidelight {command} my.csv … --eras period" in str(result.exception)


def test_one_kind_of_report_at_a_time(app: typer.Typer) -> None:
    with pytest.raises(InputError, match="different kinds of report"):
        CliRunner().invoke(app, ["--trial", "a.csv", "--world", "dosing"], catch_exceptions=False)


def test_a_trial_has_the_rounds_of_its_table(app: typer.Typer) -> None:
    with pytest.raises(InputError, match="as many rounds as its table has rows"):
        CliRunner().invoke(app, ["--trial", "a.csv", "--rounds", "500"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--arm", "segment", "--hidden", "age"], "--arm, --hidden: what is the table. Give it with --trial"),
        (["--world", "dosing", "--hidden", "age"], "A simulated world has columns of its own"),
        (["--trial", "a.csv", "--cuts", "21,49"], "--cuts cuts a number .* it goes with --answers"),
        (["--answers", "a.csv", "--assume-randomized"], "--assume-randomized is about .* it goes with --trial"),
    ],
)
def test_options_that_would_be_ignored_are_refused(app: typer.Typer, arguments: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_cuts_that_are_no_numbers(tmp_path: Path, app: typer.Typer) -> None:
    (tmp_path / "doses.csv").write_text("age,gene,dose\n" + "".join(f"{40 + i},{i % 2},{i}\n" for i in range(50)))
    arguments = ["--answers", str(tmp_path / "doses.csv"), "--arm", "dose", "--hidden", "gene", "--cuts", "21,fifty"]
    with pytest.raises(InputError, match=r"--cuts 21,fifty: give numbers between commas"):
        CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "page.html")], catch_exceptions=False)


def test_columns_are_explained() -> None:
    table = pa.table({"a, b": [1.0, 2.0], "b": [1.0, 2.0], "arm": ["x", "y"], "reward": [0.0, 1.0]})
    assert split_names(["a, b"], table.column_names) == ["a, b"]
    assert split_names(["b,arm"], table.column_names) == ["b", "arm"]
    with pytest.raises(SchemaError, match="there is no column 'c'"):
        columns_of(table, ["arm", "reward"], None, ["c"], None)
    with pytest.raises(SchemaError, match="which features should the log lack"):
        columns_of(table, ["arm", "reward"], None, None, None)
    with pytest.raises(SchemaError, match="Name the columns with --arm"):
        columns_of(table, ["treatment"], None, ["b"], None)
    with pytest.raises(SchemaError, match="cannot be hidden"):
        columns_of(table, ["arm", "reward"], None, ["b"], ["b"])
    found = columns_of(table, ["arm", "reward"], None, ["b"], None)
    assert found.features == ["a, b", "b"]
    schema = schema_of(table, found, "arm", "reward", numeric_arm=False)
    assert schema.recorded == ("a, b",)
    assert with_names(table, ["b"])["b"].to_pylist() == ["1", "2"]


def test_recorded_and_hidden_are_two_ways_to_say_it() -> None:
    texts = [f"patient {i}" for i in range(300)]
    numbers = {name: [float(i) for i in range(300)] for name in "abcd"}
    table = pa.table({**numbers, "name": texts, "arm": ["x", "y"] * 150, "reward": [0.0, 1.0] * 150})
    outcome = ["arm", "reward"]
    found = columns_of(table, outcome, None, None, ["d"], recorded=["a", "c"])
    assert (found.features, found.hidden) == (["a", "b", "c"], ["b"])
    found = columns_of(table, outcome, None, ["d"], None, recorded=["a,c"])
    assert (found.features, found.hidden) == (["a", "c", "d"], ["d"])
    found = columns_of(table, outcome, ["a", "b", "d"], None, None, recorded=["d"])
    assert (found.features, found.hidden) == (["a", "b", "d"], ["a", "b"])
    with pytest.raises(SchemaError, match="'a' cannot be both recorded and hidden"):
        columns_of(table, outcome, None, ["a"], None, recorded=["a", "b"])
    with pytest.raises(SchemaError, match="--recorded names every feature"):
        columns_of(table, outcome, None, None, None, recorded=["a,b,c,d"])
    with pytest.raises(SchemaError, match="does the log have b"):
        columns_of(table, outcome, ["a", "b", "c"], ["c"], None, recorded=["a"])
    with pytest.raises(SchemaError, match="'arm' cannot be recorded"):
        columns_of(table, outcome, None, None, None, recorded=["a", "arm"])


def test_tables_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no file"):
        read_table(str(tmp_path / "none.csv"))
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    with pytest.raises(SourceError, match="more than once"):
        read_table(str(tmp_path / "twice.csv"))
    (tmp_path / "blank.csv").write_text("a,,\n1,2,3\n")
    assert read_table(str(tmp_path / "blank.csv")).column_names == ["a"]
