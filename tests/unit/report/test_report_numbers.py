"""The report's numbers: the head start, looking into learners without disturbing them, and what a trial leaves out."""

from __future__ import annotations

import html
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidelight as sl
from sidelight.drawing.intervals import number
from sidelight.errors import InputError
from sidelight.report.document import report_html, write_report
from sidelight.report.head_start import HeadStart, head_start
from sidelight.report.probing import checkpoints, probed
from sidelight.report.results_part import parts, worth_of
from sidelight.report.study import Study, of_trial, of_world
from sidelight.worlds.replay import ReplayWorld

LEARNERS = {
    "OFUL": lambda run: sl.OFUL(3, 5, arms=run.world.arms, noise=0.3, radius="posterior"),
    "FusedOFUL": lambda run: sl.FusedOFUL(sl.BehaviorQueries(run.summary)),
}


def small_world(seed: int) -> sl.worlds.ConfoundedWorld:
    return sl.worlds.ConfoundedWorld(seed=seed, n_arms=3, n_features=5, n_hidden=2)


def test_head_start_of_a_learner_that_is_ahead() -> None:
    """A learner that does in round t what the cold one does in round t + 30 had a head start of 30 rounds."""
    rounds = np.arange(1, 201)
    cold = np.cumsum(1 / np.sqrt(np.arange(1, 301)))
    ahead = cold[30:230] - cold[29]
    curves = np.stack([cold[:200]] * 5)
    found = head_start(rounds, curves, np.stack([ahead] * 5))
    assert found.window == 50
    assert found.rounds == pytest.approx(30, abs=1)
    assert found.low == found.high == found.rounds
    assert head_start(rounds, curves, curves).rounds == 0
    never = head_start(rounds, curves, np.stack([0.01 * ahead] * 5))
    assert math.isinf(never.rounds)
    assert math.isinf(never.low)
    assert "more than 150 rounds" in never.sentence
    assert "the whole 95% interval lies above that" in never.sentence
    assert never.sentence.count("more than") == 1
    assert "95% interval 20 to 40" in HeadStart(30.0, 20.0, 40.0, 50, 150).sentence
    assert "95% interval from 20 to more than 150" in HeadStart(30.0, 20.0, math.inf, 50, 150).sentence


def test_head_start_of_few_runs_has_no_interval() -> None:
    rounds = np.arange(10, 101, 10)
    cold = np.stack([rounds * 1.0, rounds * 2.0])
    found = head_start(rounds, cold, cold)
    assert (found.low, found.high) == (0.0, math.inf)


@pytest.mark.parametrize("name", ["OFUL", "FusedOFUL", "EpochOFUL"])
def test_looking_changes_nothing(name: str, seed: int) -> None:
    """A learner that is looked into plays the same arms, though round by round where others play compiled rounds."""
    world = small_world(seed)
    learners = {
        **LEARNERS,
        "EpochOFUL": lambda run: sl.EpochOFUL(sl.BehaviorQueries(run.summary, estimator="ipw"), run.horizon, noise=0.3),
    }
    chosen = {name: learners[name]}
    plain = sl.simulate(world, chosen, 300, 3, 500, [seed], workers=1, every=1)
    wrapped, looks = probed(chosen, world, 300, seed)
    looked = sl.simulate(world, wrapped, 300, 3, 500, [seed], workers=1, every=1)
    assert looked["arm"].to_pylist() == plain["arm"].to_pylist()
    probes = looks.table(world.mean_rewards)
    assert set(probes["round"].to_pylist()) == set(checkpoints(300))
    first = probes.to_pylist()[0]
    X = world.contexts(60, np.random.default_rng([31_415, seed]))
    assert first["truth"] == pytest.approx(float(world.mean_rewards(X)[0, 0]))


@pytest.fixture(scope="module")
def study() -> Study:
    return of_world(
        small_world, LEARNERS, 200, 3, 800, baseline="OFUL", best="FusedOFUL", seeds=4, workers=1,
        meanings={"OFUL": "no log"}, facts=(("world", "a <small> one"),),
    )  # fmt: skip


def test_what_the_rounds_say_about_the_assumptions_is_told(study: Study) -> None:
    """Of the learner that reads the log: all three hold in an honest, linear world that stands still."""
    assert list(study.findings) == ["FusedOFUL"]
    told = {finding.tested: finding for finding in study.findings["FusedOFUL"]}
    assert list(told) == ["the log is right", "rewards are linear in the features", "the present stands still"]
    assert all(finding.holds for finding in told.values())
    page = report_html(study)
    assert all(html.escape(finding.says) in page for finding in told.values())


def test_a_learner_that_tests_nothing_has_no_findings() -> None:
    """One of one's own has what the protocol asks for, and neither ``log_trust`` nor ``assumptions``."""

    class Own:
        arms = (0, 1, 2)

        def scores(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.zeros(3), np.ones(3)

    wrapped, looks = probed({"own": lambda _: Own()}, small_world(1), 10, 0)
    wrapped["own"](None)
    assert looks.findings() == {}


def test_a_log_of_another_world_is_called_wrong() -> None:
    other = small_world(99)
    rows = other.sample_log(3_000, recorded=3, rng=np.random.default_rng(5))
    alien = sl.summarize_log(rows, other.schema(3))
    learners = {**LEARNERS, "FusedOFUL": lambda _: sl.FusedOFUL(sl.BehaviorQueries(alien))}
    # in 600 rounds the noise of this seed looks a little like curved rewards, which would excuse the log
    found = of_world(small_world(1), learners, 1_000, 3, 800, baseline="OFUL", best="FusedOFUL", seeds=1, workers=1)
    log, linear, still = found.findings["FusedOFUL"]
    assert log.holds is False
    assert "wrong" in log.says
    assert linear.holds
    assert still.holds
    assert "Does not hold" in report_html(found)


def test_a_world_has_every_part(study: Study, tmp_path: Path) -> None:
    anchors = [part.anchor for part in parts(study)]
    assert anchors == [
        "log",
        "hidden",
        "verdict",
        "learners",
        "rewards",
        "worth",
        "chosen",
        "findings-part",
        "estimates-part",
        "widths-part",
    ]
    path = write_report(study, tmp_path / "r.html", title="A & B")
    text = path.read_text()
    assert "A &amp; B" in text
    assert "a &lt;small&gt; one" in text
    assert worth_of(study)[0].split(":")[0] in text
    assert study.log is not None
    verdict = sl.judge(study.log)
    assert html.escape(verdict.sentence) in text.replace("&#39;", "&#x27;")
    assert number(verdict.line(verdict.headline).low, sign=True) in text
    # nothing is loaded from elsewhere
    assert not any(f'{attribute}="http' in text for attribute in ("src", "href"))
    table = pq.read_table(path.with_suffix(".parquet"))
    assert table.num_rows == study.table.num_rows
    assert pq.read_table(path.with_suffix(".probes.parquet")).num_rows == study.probes.num_rows  # type: ignore[union-attr]


def test_the_sentence_is_the_paired_difference(study: Study) -> None:
    final = {(r["learner"], r["seed"]): r["regret"] for r in study.table.to_pylist() if r["round"] == 200}
    gaps = [final["FusedOFUL", s] - final["OFUL", s] for s in range(4)]
    sentence, start = worth_of(study)
    shown = f"{abs(np.mean(gaps)):.3g}"
    assert shown[:3] in sentence
    assert start is not None


def test_a_bare_table_is_enough(study: Study, tmp_path: Path) -> None:
    bare = Study(study.table, "OFUL", "FusedOFUL")
    assert [part.anchor for part in parts(bare)] == ["learners", "rewards", "worth", "chosen"]
    assert write_report(study.table, tmp_path / "bare.html", keep_results=False).exists()
    assert not (tmp_path / "bare.parquet").exists()
    with pytest.raises(InputError, match="'Fused' is not one of the learners"):
        Study(study.table, "OFUL", "Fused")


def trial_table(rng: np.random.Generator, n: int = 3_000) -> pa.Table:
    age, severity = rng.normal(size=n), rng.normal(size=n)
    arm = rng.integers(2, size=n)
    reward = 0.5 * severity * (2 * arm - 1) + 0.2 * age + 0.3 * rng.normal(size=n)
    return pa.table({"age": age, "severity": severity, "arm": np.array(["a", "b"])[arm], "reward": reward})


def test_a_trial_leaves_out_what_needs_the_truth(rng: np.random.Generator) -> None:
    schema = sl.Schema(["age", "severity"], ["age"], "arm", "reward", intercept=True)
    trial = ReplayWorld.from_trial(trial_table(rng), schema)
    learners = {
        "OFUL": lambda run: sl.OFUL(2, 3, arms=run.world.arms, noise=0.3, radius="posterior"),
        "FusedOFUL": LEARNERS["FusedOFUL"],
    }
    study = of_trial(trial, learners, baseline="OFUL", best="FusedOFUL", seeds=2)
    assert not study.knows_truth
    anchors = [part.anchor for part in parts(study)]
    told = ["log", "hidden", "verdict", "learners", "rewards", "worth", "chosen", "findings-part", "widths-part"]
    assert anchors == told
    text = report_html(study)
    assert "Cumulative regret" not in text
    assert "True mean reward" not in text
    assert "reward per round" in text
    # the mean that is shown is that of the accepted rounds, and a reader who subtracts two of them finds the difference
    rows = study.table.to_pylist()
    runs = [[r["reward"] for r in rows if r["learner"] == "FusedOFUL" and r["seed"] == seed] for seed in (0, 1)]
    assert study.means["FusedOFUL"].mean == pytest.approx(np.mean([np.mean(run) for run in runs]))
    gap = study.means["FusedOFUL"].mean - study.means["OFUL"].mean
    assert study.differences["FusedOFUL"].mean == pytest.approx(gap)
