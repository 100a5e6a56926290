"""The commands on a log: what they print, what they write, and how they fail."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import sidelight as sl
from sidelight.cli import COMMANDS, main
from sidelight.service.config import load_config

COLUMNS = ["--recorded", "a,b", "--hidden", "h"]


@pytest.fixture
def run(capsys):
    """Run the command line: exit code, standard output, standard error."""

    def run_(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return stopped.value.code or 0, captured.out, captured.err

    return run_


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    n = 200
    a, b = rng.normal(size=(2, n))
    return pa.table(
        {"a": a, "b": b, "arm": np.array(["x", "y"])[np.arange(n) % 2], "reward": a - b + rng.normal(size=n)}
    )


@pytest.fixture
def log(table, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


def test_summarize_then_diagnose(run, log, tmp_path):
    out = tmp_path / "log.summary"
    code, printed, _ = run("summarize", log, *COLUMNS, "-o", out)
    assert code == 0
    assert "200 rows" in printed
    assert f"sidelight diagnose {out}" in printed
    assert sl.LogSummary.load(out).arms == ("x", "y")
    code, printed, _ = run("diagnose", out, "--html", tmp_path / "page.html", "--noise", 0.9)
    assert code == 0
    assert "This log is worth fewer than 100 online rounds" in printed
    assert "3 of 4" in printed  # the constant among them
    assert "This log is worth fewer than 100 online rounds" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "cannot be told from the log alone" in run("diagnose", out)[1]


def test_json_is_all_that_is_printed(run, log, tmp_path):
    code, printed, shown = run("summarize", log, *COLUMNS, "-o", tmp_path / "s", "--json")
    described = json.loads(printed)
    assert (code, shown) == (0, "")
    assert described["rows"] == 200
    assert described["arms"] == ["x", "y"]
    code, printed, _ = run("diagnose", tmp_path / "s", "--json", "--noise", 1.0)
    described = json.loads(printed)
    assert described["n_recorded"] == 3
    s2 = described["worth"]["residual_variance"]
    assert described["worth"]["hidden_share"] == [pytest.approx(max(0.0, 1 - 1 / s2))] * 2
    assert "online round" in described["sentence"]


def test_diagnose_reads_a_log_too(run, log):
    code, printed, shown = run("diagnose", log, *COLUMNS)
    assert code == 0
    assert "200 read" in printed
    assert "200 of 200 rows" in shown


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--recorded", "a"], "--recorded says"),
        (["--arm", "arm", "--intercept"], "--arm, --intercept say"),
        (["--schema", "x.toml", "--noise", "2"], "--schema says"),
        (["--skip-invalid", "--json"], "--skip-invalid says"),
    ],
)
def test_a_summary_takes_no_options_of_a_log(run, log, tmp_path, options, named):
    out = tmp_path / "log.summary"
    assert run("summarize", log, *COLUMNS, "-o", out)[0] == 0
    code, printed, shown = run("diagnose", out, *options)
    said = " ".join(shown.replace("│", " ").split())
    assert (code, printed) == (2, "")
    assert f"{named} how to read a log" in said
    assert run("diagnose", out, "--noise", 2, "--json", "--html", tmp_path / "p.html")[0] == 0


def test_arms_categories_and_intercept(run, table, tmp_path):
    table = table.append_column("city", pa.array(["Rome", "Oslo", "Rome", "Paris"] * 50))
    pacsv.write_csv(table, tmp_path / "log.csv")
    arguments = ["--recorded", "a,city", "--hidden", "kind", "--categories", "city, kind=p|q", "--arms", "y,x"]
    code, printed, _ = run("summarize", tmp_path / "log.csv", *arguments, "--intercept", "-o", tmp_path / "s", "--json")
    assert code == 0
    assert json.loads(printed)["recorded"] == ["intercept", "a", "city=Paris", "city=Rome"]
    found = sl.LogSummary.load(tmp_path / "s")
    assert found.arms == ("y", "x")
    assert found.schema.encoded_names[-1] == "kind=q"


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_a_schema_file(run, log, tmp_path, suffix):
    schema = {"features": ["a", "b", "h"], "recorded": ["a"], "arms": ["x", "y"]}
    text = json.dumps(schema) if suffix == "json" else "\n".join(f"{k} = {json.dumps(v)}" for k, v in schema.items())
    (tmp_path / f"schema.{suffix}").write_text(text)
    code, printed, _ = run("summarize", log, "--schema", tmp_path / f"schema.{suffix}", "-o", tmp_path / "s", "--json")
    assert code == 0
    assert json.loads(printed)["recorded"] == ["a"]
    (tmp_path / "wrong.json").write_text('{"features": ["a"], "recorded": ["a"], "colour": 3}')
    code, _, shown = run("summarize", log, "--schema", tmp_path / "wrong.json")
    assert code == 1
    assert "it has colour" in shown


@pytest.mark.parametrize("command", ["summarize", "diagnose"])
def test_a_schema_is_said_once(run, log, tmp_path, command):
    (tmp_path / "schema.toml").write_text('features = ["a", "h"]\nrecorded = ["a"]\n')
    code, printed, shown = run(command, log, "--schema", tmp_path / "schema.toml", "--arms", "y,x", "--intercept")
    said = " ".join(shown.replace("│", " ").split())
    assert (code, printed) == (2, "")
    assert "--arms, --intercept say what the columns are, and so does" in said
    assert run("diagnose", log, "--schema", tmp_path / "schema.toml", "--noise", 1.0, "--skip-invalid")[0] == 0


def test_text_is_a_category_and_said_to_be_one(run, table, tmp_path):
    pacsv.write_csv(table.append_column("city", pa.array(["Rome", "Oslo"] * 100)), tmp_path / "log.csv")
    code, printed, shown = run("diagnose", tmp_path / "log.csv", "--recorded", "a,city")
    assert code == 0
    assert "city=Rome" in printed
    assert "'city' of" in shown
    assert "holds text, so it is a category" in shown


def test_rows_that_cannot_be_used(run, table, tmp_path):
    rewards = table["reward"].to_pylist()
    rewards[17] = None
    pq.write_table(table.set_column(3, "reward", pa.array(rewards)), tmp_path / "log.parquet")
    code, printed, shown = run("summarize", tmp_path / "log.parquet", *COLUMNS, "-o", tmp_path / "s")
    assert code == 1
    assert printed == ""
    assert "sidelight: row 17 of" in shown
    assert "Traceback" not in shown
    assert not (tmp_path / "s").exists()
    code, printed, _ = run("summarize", tmp_path / "log.parquet", *COLUMNS, "-o", tmp_path / "s", "--skip-invalid")
    assert code == 0
    assert "skipped 1: reward: missing or NaN" in printed


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["summarize"], 2, "Missing argument"),
        (["summarize", "nowhere.parquet", *COLUMNS], 1, "there is no file or folder 'nowhere.parquet'"),
        (["summarize", "nowhere.parquet"], 1, "there is no file or folder 'nowhere.parquet'"),
        (["diagnose", "nowhere.summary"], 1, "there is no file or folder 'nowhere.summary'"),
        (["diagnose", "LOG"], 1, "which features did the log record?"),
        (["summarize", "LOG"], 1, "which features did the log record?"),
        (["summarize", "LOG", "--recorded", "a", "--hidden", "a"], 1, "a cannot be both recorded and hidden"),
        (["summarize", "LOG", *COLUMNS, "-o", "/nowhere/s"], 1, "Choose a folder that exists"),
        (["summarize", "LOG", "--colour", "red"], 2, "No such option"),
        (["sumarize"], 2, "No such command 'sumarize'"),
        (["diagnose", "LOG", *COLUMNS, "--noise", "-3"], 1, "noise=-3.0 must be a positive"),
    ],
)
def test_failures(run, log, arguments, code, says):
    found, _, shown = run(*[str(log) if argument == "LOG" else argument for argument in arguments])
    assert found == code
    assert says in " ".join(shown.replace("│", " ").split())


def test_decide(run, tmp_path, table):
    schema = sl.Schema(["a", "city"], [], arms=["low", "high"], categories={"city": ["Rome", "Oslo"]})
    learner = sl.OFUL(2, 3, schema=schema, arms=["low", "high"], noise=0.5)
    rng = np.random.default_rng(1)
    for _ in range(50):
        x = np.array([rng.normal(), 1.0, 0.0])
        learner.observe(x, "high", x[0])
    learner.save(tmp_path / "learner")
    n = 300
    contexts = pa.table({"id": np.arange(n), "a": rng.normal(size=n), "city": ["Rome", "Oslo", "Rome"] * 100})
    pq.write_table(contexts, tmp_path / "contexts.parquet")
    out = tmp_path / "decisions.parquet"
    code, printed, _ = run("decide", tmp_path / "learner", tmp_path / "contexts.parquet", out, "--keep", "id")
    assert code == 0
    assert "300 decisions" in printed
    found = pq.read_table(out)
    assert found.column_names == ["id", "arm", "estimate", "width", "propensity"]
    expected = learner.decide_many(schema.encode_many(contexts))
    assert found["arm"].to_pylist() == [decision.arm for decision in expected]
    np.testing.assert_array_equal(found["estimate"].to_numpy(), [decision.estimate for decision in expected])
    assert found["id"].to_pylist() == list(range(n))
    pacsv.write_csv(contexts, tmp_path / "contexts.csv")
    code, printed, _ = run("decide", tmp_path / "learner", tmp_path / "contexts.csv", tmp_path / "2.parquet", "--json")
    assert json.loads(printed)["rows"] == n
    assert pq.read_table(tmp_path / "2.parquet")["arm"].equals(found["arm"])
    pq.write_table(contexts.set_column(2, "city", pa.array(["Rome"] * 200 + ["Madrid"] * 100)), tmp_path / "3.parquet")
    code, _, shown = run("decide", tmp_path / "learner", tmp_path / "3.parquet", tmp_path / "4.parquet")
    assert code == 1
    assert (
        "3.parquet: feature 'city' is 'Madrid' (a level that is not one of the declared levels: 'Rome', 'Oslo')"
        in shown
    )
    assert "row 200 of" in shown


def test_decide_names_the_row_and_writes_nothing(run, tmp_path):
    schema = sl.Schema(["a"], [], arms=[0, 1])
    sl.OFUL(2, 1, schema=schema).save(tmp_path / "learner")
    a = np.zeros(20_000)
    a[17_000] = np.nan
    pq.write_table(pa.table({"a": a}), tmp_path / "c.parquet")
    out = tmp_path / "d.parquet"
    code, _, shown = run("decide", tmp_path / "learner", tmp_path / "c.parquet", out)
    assert code == 1
    assert "row 17,000 of" in shown
    assert 'missing = "impute"' in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.parquet", "learner"]
    pq.write_table(pa.table({"b": a}), tmp_path / "c.parquet")
    code, _, shown = run("decide", tmp_path / "learner", tmp_path / "c.parquet", out)
    assert code == 1
    assert "has no column 'a'" in shown
    code, _, shown = run("decide", tmp_path / "c.parquet", tmp_path / "c.parquet", out)
    assert code == 1
    assert "c.parquet" in shown


def test_summarize_on_a_cluster(run, log, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as local:
        arguments = ["--scheduler", local.scheduler_address, "-o", tmp_path / "s", "--json"]
        code, printed, _ = run("summarize", log, *COLUMNS, *arguments)
    assert code == 0
    assert json.loads(printed)["rows"] == 200


def test_help_is_quick_and_lists_every_command():
    program = (
        "import atexit, sys, time; atexit.register(lambda: print(time.process_time(), file=sys.stderr)); "
        "from sidelight.cli import main; main(['--help'])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert shown.returncode == 0
    for name in ("demo", "summarize", "diagnose", "decide", "warm"):
        assert f" {name} " in shown.stdout
        assert COMMANDS[name].help.split()[0] in shown.stdout
    # Half a second is the promise on an idle machine; tests share theirs, so it is the processor's time that counts.
    assert float(shown.stderr.split()[-1]) < 1
    loads = (
        "import sys; from sidelight.cli import build; build(['--help']); "
        "print([name for name in ('numpy', 'pyarrow', 'scipy', 'numba') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True).stdout.strip() == "[]"


def test_version(run):
    code, printed, _ = run("--version")
    assert code == 0
    assert printed.strip() == f"sidelight {sl.__version__}"


def test_a_typing_error_in_a_hidden_feature_is_told(run, table, tmp_path):
    pq.write_table(table.append_column("loyalty", table["a"]), tmp_path / "log.parquet")
    code, _, shown = run("summarize", tmp_path / "log.parquet", "--recorded", "a,b", "--hidden", "loyalti")
    assert code == 1
    assert "'loyalti' is hidden, and the log has a column 'loyalty'" in shown
    # beside a recorded column it may be another one: said, not refused
    beside = ["--recorded", "a,b,loyalty", "--hidden", "loyalti", "-o", tmp_path / "beside.summary"]
    code, _, shown = run("summarize", tmp_path / "log.parquet", *beside)
    assert code == 0
    assert "'loyalti' is hidden and 'loyalty' is recorded, taken for two different features" in shown
    pq.write_table(table.append_column("dose_1", table["a"]), tmp_path / "log.parquet")
    out = tmp_path / "s"
    assert run("summarize", tmp_path / "log.parquet", "--recorded", "a,b", "--hidden", "dose_2", "-o", out)[0] == 0
    pq.write_table(table.append_column("loyalty", table["a"]), tmp_path / "log.parquet")
    assert run("summarize", tmp_path / "log.parquet", "--recorded", "a,b", "--hidden", "loyalty", "-o", out)[0] == 0


def test_derived_features_and_no_intercept(run, log, tmp_path):
    arguments = ["--recorded", "a,b", "--hidden", "c", "--derived", "spline(a, 3) + a:c", "--no-intercept"]
    code, printed, _ = run("summarize", log, *arguments, "-o", tmp_path / "s", "--json")
    assert code == 0
    assert json.loads(printed)["recorded"] == ["a", "b", "bend1(a)", "bend2(a)"]
    schema = sl.LogSummary.load(tmp_path / "s").schema
    assert [schema.encoded_names[i] for i in schema.hidden_index] == ["c", "a:c"]
    code, printed, _ = run(
        "summarize", log, "--recorded", "a", "--derived", "log(b, 9)", "-o", tmp_path / "s", "--json"
    )
    assert json.loads(printed)["recorded"] == ["intercept", "a", "log(b, 9.0)"]


@pytest.mark.parametrize(("name", "start"), [("d.csv", b'"arm"'), ("d.parquet", b"PAR1"), ("d.arrow", b"ARROW1")])
def test_decisions_are_written_as_the_name_ends(run, log, tmp_path, name, start):
    learner = sl.OFUL(2, 2, schema=sl.Schema(["a", "b"], []), arms=["x", "y"])
    learner.save(tmp_path / "l.learner")
    code, _, _ = run("decide", tmp_path / "l.learner", log, tmp_path / name)
    assert code == 0
    assert (tmp_path / name).read_bytes().startswith(start)
    code, _, shown = run("decide", tmp_path / "l.learner", log, tmp_path / "d.xlsx")
    assert code == 1
    assert "call it .parquet, .csv or .arrow" in shown


def test_eras_from_the_log_to_the_service(run, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    b = [None if i < 80 else v for i, v in enumerate(table["b"].to_pylist())]
    year = pa.array([2019] * 80 + [2021] * 120)
    pq.write_table(table.set_column(1, "b", pa.array(b)).append_column("year", year), "log.parquet")
    code, printed, _ = run("summarize", "log.parquet", *COLUMNS, "--eras", "year", "-o", "log.summary", "--json")
    described = json.loads(printed)
    assert code == 0
    assert [(era["name"], era["rows"]) for era in described["eras"]] == [("2021", 120), ("2019", 80)]
    assert described["eras"][1]["recorded"] == ["intercept", "a"]
    code, printed, _ = run("summarize", "log.parquet", *COLUMNS, "--eras", "missing", "-o", "m.summary")
    assert code == 0
    assert "sidelight init --summary era1=m.era1.summary --summary era2=m.era2.summary" in printed
    code, printed, _ = run("diagnose", "log.parquet", *COLUMNS, "--eras", "year", "--noise", 0.9, "--html", "d.html")
    assert code == 0
    assert printed.index("Era: 2021") < printed.index("Era: 2019")
    assert (tmp_path / "d.2019.html").exists()
    assert "As a page: d.2019.html" in printed
    named = ["--summary", "new=log.2021.summary", "--summary", "old=log.2019.summary"]
    assert run("init", *named, "--database", "events.db")[0] == 0
    config = load_config(tmp_path / "sidelight.toml")
    assert config.learner.summaries == {"new": "log.2021.summary", "old": "log.2019.summary"}
    learner = config.build_learner()
    assert list(learner.estimators()) == ["new", "old"]
    code, _, shown = run("init", "--summary", "log.2021.summary", "--summary", "log.2019.summary", "--force")
    assert code == 1
    assert "each needs a name, --summary log.2021=log.2021.summary" in shown
    code, _, shown = run("init", *named, "--learner", "RunningOFUL", "--force")
    assert code == 1
    assert "starts from one log, and there are 2 summaries: new, old" in shown


def test_eras_print_and_save(table, tmp_path):
    schema = sl.Schema(["a", "b"], ["a", "b"])
    b = [None if i < 80 else v for i, v in enumerate(table["b"].to_pylist())]
    eras = sl.summarize_eras(table.set_column(1, "b", pa.array(b)), schema)
    diagnoses = eras.diagnose(noise=1.0)
    assert list(diagnoses) == [("a", "b"), ("a",)]
    assert str(diagnoses).count("Era: rows that have") == 2
    assert [entry["rows_used"] for entry in diagnoses.to_dict()] == [120, 80]
    files = eras.save(tmp_path / "log.summary")
    assert [sl.LogSummary.load(path).n_rows for path in files.values()] == [120, 80]


def test_every_era_has_a_file_of_its_own(table, tmp_path):
    """A value of the era's column may read like the name that an era without a value gets."""
    named = table.append_column("era", pa.array(["era2"] * 120 + [None] * 50 + ["a b"] * 20 + ["a-b"] * 10))
    eras = sl.summarize_eras(named, sl.Schema(["a", "b"], ["a", "b"]), by="era")
    assert eras.names() == {"era2": "era2", None: "era3", "a b": "a-b", "a-b": "era4"}
    files = eras.save(tmp_path / "log.summary")
    assert [sl.LogSummary.load(path).n_rows for path in files.values()] == [120, 50, 20, 10]


def test_one_row_is_a_row(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("a,b,arm,reward,year\n1,2,x,3,2020\n")
    _, printed, _ = run("summarize", "log.csv", *COLUMNS, "--eras", "year")
    assert "1 row in" in printed
    assert ", 1 era:\n  2020: 1 row, 3 of 4 columns recorded, in log.2020.summary" in printed
    _, printed, _ = run("summarize", "log.csv", "--recorded", "a", "--no-intercept")
    assert "1 row in" in printed
    assert "(0 skipped), 1 arm, 1 of 1 column recorded." in printed
