"""Rules that read the log once, and what a report says if one of them is as good as the learner."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import sidelight as sl
from sidelight.drawing.intervals import Interval
from sidelight.errors import InputError
from sidelight.report.results_part import headline, parts, simpler_sentences
from sidelight.report.simpler import FIXED_ARM, WORD, FixedRule, best_fixed_arm, log_at_its_word, simpler_rules
from sidelight.report.study import Study, of_world


@pytest.fixture(scope="module")
def run():
    rng = np.random.default_rng(3)
    n = 3_000
    x, arms = rng.normal(size=n), rng.integers(0, 3, n)
    rewards = np.array([0.0, 0.5, 0.2])[arms] + x * np.array([1.0, 0.0, -1.0])[arms] + 0.1 * rng.normal(size=n)
    log = {"x": x, "arm": np.array(["a", "b", "c"])[arms], "reward": rewards}
    schema = sl.Schema(["h", "x"], ["x"], intercept=True, arms=["a", "b", "c", "d"])
    return SimpleNamespace(summary=sl.summarize_log(log, schema))


def test_the_log_at_its_word_plays_the_largest_regression(run):
    """``a`` for large x, ``c`` for small ones, ``b`` between; the arm without rows never; hidden features ignored."""
    rule = log_at_its_word(run)
    chosen = [rule.decide(run.summary.schema.encode({"h": h, "x": x})).arm for h, x in [(9, 2), (-9, 0), (0, -2)]]
    assert chosen == ["a", "b", "c"]
    assert isinstance(rule, sl.Learner)
    before = rule.scores(np.ones(3))[0]
    rule.observe(np.ones(3), "a", 100.0)
    np.testing.assert_array_equal(rule.scores(np.ones(3))[0], before)
    assert rule.decide(run.summary.schema.encode({"h": 0, "x": 2}), allowed=["b", "c"]).arm == "b"


def test_the_best_arm_is_the_same_everywhere(run):
    rule = best_fixed_arm(run)
    assert {decision.arm for decision in rule.decide_many(np.random.default_rng(0).normal(size=(50, 3)))} == {"b"}


def test_without_a_regression_there_is_no_rule():
    with pytest.raises(InputError, match="no arm of the log has enough rows"):
        FixedRule(np.full((2, 3), np.nan), [0, 1])


def study_of(word: float, fixed: float, fused: float) -> Study:
    """Regrets after 10 rounds, nearly the same in each of 4 seeds."""
    rows = [
        {"learner": name, "seed": seed, "round": 10, "arm": 0, "reward": 0.0, "regret": final + 0.1 * seed * (1 + i)}
        for i, (name, final) in enumerate({"cold": 60.0, WORD: word, FIXED_ARM: fixed, "fused": fused}.items())
        for seed in range(4)
    ]
    return Study(pa.Table.from_pylist(rows), "cold", "fused", simpler=(WORD, FIXED_ARM))


def test_the_sentence_names_what_is_as_good_or_better():
    found = simpler_sentences(study_of(word=20.0, fixed=50.0, fused=30.0))
    assert len(found) == 1
    assert found[0].startswith(f"Something simpler does better: {WORD} is better than fused")
    assert "difference in regret after 10 rounds" in found[0]
    found = simpler_sentences(study_of(word=50.0, fixed=30.1, fused=30.0))
    assert [text.split(":")[0] for text in found] == ["Something simpler may do"]
    assert found[0] in headline(study_of(word=50.0, fixed=30.1, fused=30.0))


def test_where_nothing_simpler_does_the_page_says_so():
    study = study_of(word=50.0, fixed=60.0, fused=30.0)
    assert simpler_sentences(study) == []
    worth = next(part for part in parts(study) if part.anchor == "worth")
    assert "Nothing simpler does as well" in "".join(worth.pieces)


def test_rewards_are_compared_the_other_way_round():
    """In a trial more is better: an interval above zero means that the rule is ahead."""
    table = study_of(1, 1, 1).table.drop_columns(["regret"])
    beyond = {WORD: Interval(0.3, 0.1, 0.5), FIXED_ARM: Interval(-0.3, -0.5, -0.1)}
    found = simpler_sentences(Study(table, "cold", "fused", simpler=(WORD, FIXED_ARM), beyond=beyond))
    assert len(found) == 1
    assert "the log at its word is better than fused (difference in reward per round +0.300" in found[0]


def test_a_report_of_a_world_has_the_rules_and_the_old_policy(tmp_path):
    world = sl.worlds.ConfoundedWorld(seed=0, n_arms=3, n_features=5, n_hidden=2)
    learners = {
        "cold": lambda run: sl.OFUL(3, 5, regularization="auto", noise="auto", radius="posterior"),
        **simpler_rules(),
        "fused": lambda run: sl.FusedOFUL(sl.BehaviorQueries(run.summary)),
    }
    study = of_world(world, learners, 60, 3, 600, baseline="cold", best="fused", seeds=2, workers=1)
    assert study.simpler == (WORD, FIXED_ARM)
    assert study.probed == ["cold", "fused"]
    assert not study.accepts
    made = {part.anchor: part for part in parts(study)}
    assert "the old policy" in "".join(made["learners"].pieces)
    assert "accepted" not in "".join(piece for part in made.values() for piece in part.pieces)
    regret = made["learners"].specifications["regret"]
    values = [row for data in regret["datasets"].values() for row in data] if "datasets" in regret else regret
    assert "the old policy" in str(values)
