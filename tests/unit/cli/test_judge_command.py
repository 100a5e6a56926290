"""``sidelight judge``: the verdict in the terminal, as JSON and as a page."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

import sidelight as sl
from sidelight.cli import main

COLUMNS = ("--recorded", "age,stage", "--hidden", "severity", "--categories", "stage")


@pytest.fixture
def run(capsys):
    def run_(*arguments):
        try:
            main([str(argument) for argument in arguments])
            code = 0
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_


def drawn(n, seed):
    rng = np.random.default_rng(seed)
    age, severity = rng.normal(60, 8, n), rng.normal(size=n)
    stage = np.array(["I", "II"])[rng.integers(0, 2, n)]
    p = 1 / (1 + np.exp(-0.8 * severity))
    arm = (rng.random(n) < p).astype(int)
    reward = 0.5 * arm * (stage == "II") + 0.3 * severity + 0.02 * age + 0.3 * rng.normal(size=n)
    return {
        "age": age,
        "stage": stage,
        "severity": severity,
        "arm": arm,
        "reward": reward,
        "p": np.where(arm, p, 1 - p),
    }


@pytest.fixture
def files(tmp_path):
    log = drawn(3_000, 0)
    csv.write_csv(pa.table({k: log[k] for k in ("age", "stage", "arm", "reward")}), tmp_path / "log.csv")
    more = drawn(800, 1)
    csv.write_csv(pa.table({k: more[k] for k in ("age", "stage", "severity", "arm")}), tmp_path / "answers.csv")
    csv.write_csv(pa.table(drawn(2_000, 2)), tmp_path / "complete.csv")
    return tmp_path


def test_all_stages_as_json_and_as_a_page(run, files):
    page = files / "verdict.html"
    code, out, err = run(
        *("judge", files / "log.csv", *COLUMNS, "--answers", files / "answers.csv"),
        *("--complete", files / "complete.csv", "--propensity", "p", "--json", "--html", page, "--unit", "days"),
    )
    assert code == 0, err
    found = json.loads(out)
    stages = {(line["policy"], line["stage"]) for line in found["lines"]}
    assert {("best", "log"), ("best", "answers"), ("best", "complete"), ("always 1", "complete")} <= stages
    schema = sl.Schema(["age", "stage", "severity"], ["age", "stage"], categories=["stage"])
    told = sl.judge(drawn(3_000, 0), schema, answers=drawn(800, 1)).line("best", "answers")
    line = next(li for li in found["lines"] if li["policy"] == "best" and li["stage"] == "answers")
    assert (line["low"], line["high"]) == pytest.approx((told.low, told.high), rel=1e-6)
    html = page.read_text()
    for words in (
        "days for every 1,000 decisions",
        "What must hold",
        "What would overturn it",
        "log.csv",
        "3,000 rows",
    ):
        assert words in html
    assert "<script" not in html
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")


def test_the_terminal_says_the_sentence_and_the_yardsticks(run, files):
    code, out, _ = run(
        "judge", files / "log.csv", *COLUMNS, "--policy", "1", "--reward-share", "0.2", "--choice-share", "0.1"
    )
    assert code == 0
    words = " ".join(out.split())
    assert "hidden features being at most as strong as stated" in words
    assert "Policy 'always 1'" in words
    assert "Recorded features as yardsticks" in words


def test_a_summary_and_text_that_needs_escaping(run, files):
    log = drawn(2_000, 3)
    arms = np.array(["<b>old</b>", 'new & "shiny"'])[log["arm"]]
    table = {**log, "arm": arms}
    csv.write_csv(pa.table(table), files / "odd.csv")
    page = files / "odd.html"
    code, _, err = run("judge", files / "odd.csv", *COLUMNS, "--html", page, "--unit", "<i>")
    assert code == 0, err
    html = page.read_text()
    assert "<b>old</b>" not in html
    assert "&lt;b&gt;old&lt;/b&gt;" in html
    assert "<i>" not in html
    code, _, err = run("summarize", files / "log.csv", *COLUMNS, "-o", files / "log.summary", "--categories", "stage")
    assert code == 0, err
    code, out, err = run("judge", files / "log.summary", "--level", "0.9", "--json")
    assert code == 0, err
    assert json.loads(out)["level"] == 0.9
    code, _, err = run("judge", files / "log.summary", "--recorded", "age")
    assert code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--reward", "outcome"), "no column 'outcome'"),
        (("--policy", "7"), "neither 'best' nor one of the arms"),
        (("--level", "95"), "level=95"),
        (("--answers", "missing.csv"), "missing.csv"),
        (("--html", "nowhere/page.html"), "no folder"),
    ],
)
def test_what_is_wrong_is_said(run, files, arguments, message):
    code, _, err = run("judge", files / "log.csv", *COLUMNS, *arguments)
    assert code == 1
    assert message in " ".join(err.split())


def test_no_features_is_asked_about(run, files):
    code, _, err = run("judge", files / "log.csv")
    assert code == 1
    assert "which features did the log record" in err


@pytest.mark.parametrize("command", ["judge", "try"])
def test_the_page_names_the_command_that_made_it(run, files, command):
    """What was given to ``main``, not what started this process."""
    page = files / "page.html"
    more = COLUMNS if command == "judge" else ("--yes", "-o", files / "schema.toml")
    assert run(command, files / "log.csv", *more, "--html", page)[0] == 0
    assert f"sidelight {command} {files / 'log.csv'} {more[0]} " in page.read_text()


def test_the_old_policy_has_a_value_and_no_gain_over_itself(run, files):
    _, printed, _ = run("judge", files / "log.csv", *COLUMNS)
    (line,) = [line for line in printed.splitlines() if line.startswith("old policy")]
    assert line.split()[-3:] == ["–", "–", "–"]
