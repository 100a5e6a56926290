"""Summaries and learners that older versions wrote are read, say what they said, and can be continued."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import sidelight as sl
from tests.upgrades.make_fixtures import contexts, learner_numbers, play, summary_numbers

FIXTURES = Path(__file__).parent / "fixtures"
SUMMARIES = sorted(FIXTURES.glob("*/summaries/*.summary"))
LEARNERS = sorted(FIXTURES.glob("*/learners/*.learner"))
#: Scores come from stored sums and caches, but a version may add in another order; rounding stays far below this.
TOLERANCE = 1e-9


def _name(path: Path) -> str:
    return f"{path.parts[-3]}-{path.stem}"


def _expected(path: Path) -> dict:
    return json.loads((path.parent / "expected.json").read_text())[path.stem]


@pytest.mark.parametrize("path", SUMMARIES, ids=_name)
def test_a_summary_says_what_it_said(path):
    expected, found = _expected(path), summary_numbers(sl.LogSummary.load(path))
    assert found.keys() == expected.keys()
    assert found["arms"] == expected["arms"]
    assert found["recorded"] == expected["recorded"]
    assert found["counts"] == expected["counts"]
    for name in expected.keys() - {"arms", "recorded", "counts"}:
        np.testing.assert_allclose(found[name], expected[name], rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize("path", SUMMARIES, ids=_name)
def test_a_summary_is_the_start_of_a_learner(path):
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.LogSummary.load(path)))
    play(learner, 5, 3)
    assert np.isfinite(learner.scores(contexts(learner, 1, 8)[0])).all()


@pytest.mark.parametrize("path", LEARNERS, ids=_name)
def test_a_learner_says_what_it_said(path):
    expected, found = _expected(path), learner_numbers(sl.load_learner(path))
    assert found["class"] == expected["class"]
    assert found["arms"] == expected["arms"]
    for name in ("estimates", "widths"):
        np.testing.assert_allclose(found[name], expected[name], rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)
    assert found["decisions"] == expected["decisions"]


@pytest.mark.parametrize("path", LEARNERS, ids=_name)
def test_a_learner_goes_on(path, tmp_path):
    """It learns on, and is again what it was after being saved by this version."""
    learner = sl.load_learner(path)
    before = learner_numbers(learner)
    play(learner, 80, 70)
    after = learner_numbers(learner)
    assert np.isfinite(after["estimates"]).all()
    assert np.isfinite(after["widths"]).all()
    assert after["estimates"] != before["estimates"]
    learner.save(tmp_path / "again.learner")
    assert learner_numbers(sl.load_learner(tmp_path / "again.learner")) == after


def test_every_class_of_learner_is_among_the_files():
    classes = {_expected(path)["class"] for path in LEARNERS}
    names = {"OFUL", "ZeroFilledOFUL", "ProjectedOFUL", "EpochOFUL", "RunningOFUL", "FusedOFUL", "FusedThompson"}
    assert classes >= names
