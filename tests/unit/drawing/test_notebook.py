"""What notebooks show: something, escaped, and nothing that changes the notebook around it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import sidelight as sl
from sidelight.drawing.notebook import LONGEST, card
from sidelight.learners.protocol import Decision
from sidelight.worlds.randomization import RandomizationCheck, randomization_check
from sidelight.worlds.trial_results import ReplayedRun, ReplayResult

NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def things() -> dict[str, object]:
    """One object of every kind that has a card."""
    rng = np.random.default_rng(0)
    world = sl.worlds.TrafficWorld(seed=0)
    log = {NASTY: rng.normal(size=90), "arm": [NASTY, "b", "c"] * 30, "reward": rng.normal(size=90)}
    schema = sl.Schema([NASTY, "severity"], recorded=[NASTY])
    summary = sl.summarize_log(log, schema)
    learner = sl.FusedOFUL({NASTY: sl.BehaviorQueries(summary)})
    eras = sl.summarize_eras(world.sample_eras_log(3_000, rng), world.eras_schema)
    bandit = sl.BanditClassifier().fit(rng.normal(size=(9, 1)), [NASTY, "b", "c"] * 3, rng.normal(size=9))
    runs = [ReplayedRun(NASTY, seed, np.arange(3), np.zeros(3, int), np.ones(3), np.arange(3), 9) for seed in (0, 1)]
    return {
        "decision": sl.OFUL(2, 3, arms=[NASTY, "b"]).decide([1.0, 0.0, 2.0], allowed=[NASTY]),
        "check": randomization_check(rng.normal(size=(60, 1)), rng.integers(2, size=60), (NASTY,)),
        "replay": ReplayResult((NASTY, "b"), np.arange(3), runs),
        "schema": schema,
        "summary": summary,
        "diagnosis": summary.diagnose(),
        "learner": learner,
        "OFUL": sl.OFUL(2, 3, arms=[NASTY, "b"]),
        "queries": sl.BehaviorQueries(summary),
        "known": sl.KnownCrossMoments(summary, np.zeros((3, 1, 1))),
        "side": sl.SideInformation.from_log(summary, np.zeros((3, 1, 1))),
        "eras": eras,
        "classifier": bandit,
        "unfitted": sl.BanditClassifier(NASTY),
    }


def test_cards_are_escaped_and_keep_to_themselves(things):
    assert len(things) == 14
    for name, thing in things.items():
        html = thing._repr_html_()
        assert NASTY not in html, name
        if name != "eras":
            assert "&lt;script&gt;" in html, name
        assert "<body" not in html, name
        assert "<html" not in html, name
        (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
        selectors = [s.strip() for rule in re.findall(r"([^{}]+)\{", style) for s in rule.split(",")]
        assert selectors, name
        assert all(selector.startswith(".sidelight-card") for selector in selectors), name


def test_cards_show_the_numbers():
    shown = Decision("high", 1.25, 0.5, 0.75)._repr_html_()
    for part in ("Take high.", "1.25", "0.5 above the estimate", "0.75"):
        assert part in shown
    assert Decision("high", 1.25, 0.5, 0.75) == ("high", 1.25, 0.5, 0.75)
    runs = [
        ReplayedRun("fused", seed, np.arange(4), np.zeros(4, int), np.full(4, mean), np.arange(4), 10)
        for seed, mean in ((0, 2.0), (1, 4.0))
    ]
    empty = ReplayedRun("cold", 0, *(np.empty(0, int) for _ in range(2)), np.empty(0), np.empty(0, int), 10)
    shown = ReplayResult(("a",), np.arange(4), [*runs, empty])._repr_html_()
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", shown)
    assert cells[6:12] == ["fused", "8", "20", "3.00", "2.00", "4.00"]
    assert cells[12:] == ["cold", "0", "10", "–", "–", "–"]
    fine, bad = (RandomizationCheck(12.5, 7, p, "age", 0.03)._repr_html_() for p in (0.2, 1e-6))
    assert "Nothing speaks against a randomized trial" in fine
    assert "this is no randomized trial" in bad
    for shown, p in ((fine, "0.2"), (bad, "1e-06")):
        assert f"{p} (chi-squared 12.5, 7 degrees of freedom)" in shown
        assert "age, p = 0.03 taken alone" in shown


def test_a_long_table_is_cut_and_says_so():
    html = card("lead", (), "Arms", ("arm", "rows"), [(str(i), "1") for i in range(LONGEST + 3)])
    assert "3 more are not shown" in html
    assert html.count('scope="row"') == LONGEST


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (sl.worlds.DosingWorld(), "DosingWorld(4 arms, 11 features, noise=0.6, arms: '75 %'"),
        (
            sl.worlds.DriftedWorld(sl.worlds.ConfoundedWorld(seed=0), ["slandered", "moved"]),
            "its log slandered and moved",
        ),
        (sl.worlds.PaperWorld.preset("paper_text", seed=0), "30 arms, 30 features"),
        ("diagnosis", "Diagnosis(90 rows, 3 arms: '"),
        ("known", "KnownCrossMoments(3 arms, 1 of 2 features hidden)"),
    ],
    ids=["dosing", "drifted", "paper", "diagnosis", "known"],
)
def test_reprs_say_something_on_one_line(thing, words, things):
    thing = things[thing] if isinstance(thing, str) else thing
    assert words in repr(thing)
    assert "\n" not in repr(thing)


def test_an_estimator_shows_what_it_knows_of_each_arm(things):
    queries = sl.BehaviorQueries(things["summary"])
    for _ in range(7):
        queries.observe([0.3, -0.7], "b")
    assert re.search(r"<th[^>]*>b</th><td>30</td><td>7</td>", queries._repr_html_())
    assert "severity" in queries._repr_html_()


def test_scores_and_coefficients_come_with_labels(things):
    summary, learner = things["summary"], things["learner"]
    table = summary.to_table().to_pylist()
    assert [row["arm"] for row in table] == list(summary.arms)
    assert table[1][f"b[{NASTY}]"] == summary.coefficients[1, 0]
    x = [0.3, -0.7]
    scores = learner.score_table(x).to_pylist()
    estimates, widths = learner.scores(x)
    assert [row["arm"] for row in scores] == list(learner.arms)
    assert [row["index"] for row in scores] == (estimates + widths).tolist()


def test_an_arm_without_enough_rows_has_no_coefficients():
    log = {"a": [1.0, 2.0, 3.0], "b": [0.5, 0.1, 0.2], "arm": [0, 0, 1], "reward": [1.0, 2.0, 0.5]}
    summary = sl.summarize_log(log, sl.Schema(["a", "b"], recorded=["a", "b"]))
    rows = summary.to_table().to_pylist()
    assert np.isfinite(rows[0]["b[a]"])
    assert np.isnan(rows[1]["b[a]"])
