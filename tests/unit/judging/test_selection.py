"""An arm picked because it looks best: its interval allows for the choice; and ranges, which are missed at one end."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest
from scipy.special import stdtr, stdtrit
from tests.statistical.binomial import most

import sidelight as sl
from sidelight.judging.sensitivity import level_of_each, quantile, range_quantile

SCHEMA = sl.Schema(["x"], ["x"], arms=range(12))
LOGS = 120


def log_of(seed, n=1_500):
    """Twelve arms that all pay the same."""
    rng = np.random.default_rng([seed, 5])
    return {"x": rng.normal(size=n), "arm": rng.integers(0, 12, n), "reward": rng.normal(size=n)}


def test_the_best_of_twelve_equal_arms_rarely_wins(seed):
    """Picked by its looks and judged alone it would win in about one of four logs; with a 95 % interval 1 of 40 may."""
    wins = alone = 0
    for i in range(LOGS):
        summary = sl.summarize_log(log_of(1_000 * seed + i), SCHEMA)
        verdict = sl.judge(summary)
        line = verdict.line(verdict.headline)
        assert line.gain == max(one.gain for one in verdict.lines)
        wins += line.sign > 0
        alone += sl.judge(summary, policies=line.arm).line(verdict.headline).sign > 0
    # fails with probability 0.001 if one in 40 wins
    assert wins <= most(LOGS, 0.025, 0.001)
    assert alone > 2 * most(LOGS, 0.025, 0.001)


def test_arms_that_were_asked_for_stand_alone_and_others_together():
    log = log_of(0)
    verdict = sl.judge(log, SCHEMA, policies=["best", 3])
    for arm in range(12):
        line = verdict.line(f"always {arm}")
        assert line.together == (1 if arm == 3 else 12)
        estimate = verdict.estimates[f"always {arm}"]
        expected = quantile(0.95 if arm == 3 else 0.95 ** (1 / 12), estimate.freedom) * estimate.error
        assert line.high - line.gain == pytest.approx(expected)
        assert verdict.half_of(f"always {arm}") == pytest.approx(expected)
    assert verdict.line("best").together == 1
    assert verdict.table.column("together").to_pylist().count(12) == 11


def test_the_sentence_says_that_the_arm_was_picked():
    summary = sl.summarize_log(log_of(0), SCHEMA)
    verdict = sl.judge(summary)
    assert verdict.picked == 12
    assert "the best-looking of 12 fixed arms" in verdict.sentence
    assert "wide enough for the choice among 12 arms" in verdict.sentence
    assert verdict.to_dict()["picked"] == 12
    assert "the best-looking of 12" in verdict.to_html()
    named = sl.judge(summary, policies=3)
    assert named.picked == 0
    assert "best-looking" not in named.sentence
    assert "wide enough" not in named.sentence


def test_a_learner_and_complete_rows_keep_the_choice_in_mind():
    log = log_of(0, 4_000)
    complete = {**log_of(1, 4_000), "chance": np.full(4_000, 1 / 12)}
    schema = sl.Schema(["x"], ["x"], arms=range(12), propensity="chance")
    verdict = sl.judge({**log, "chance": np.full(4_000, 1 / 12)}, schema, complete=complete, policies=["best", 3])
    wide, narrow = verdict.line("always 4", "complete"), verdict.line("always 3", "complete")
    assert (wide.together, narrow.together) == (12, 1)
    assert (wide.high - wide.gain) / wide.error > 1.35 * (narrow.high - narrow.gain) / narrow.error


@pytest.mark.parametrize("freedom", [5.0, 80.0])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_quantile_of_a_range(level, freedom):
    assert range_quantile(level, freedom, 0.0) == pytest.approx(quantile(level, freedom))
    assert range_quantile(level, freedom, np.inf) == pytest.approx(float(stdtrit(freedom, level)))
    last = np.inf
    for width in (0.0, 0.3, 1.0, 3.0, 10.0):
        c = range_quantile(level, freedom, width)
        assert float(stdtr(freedom, c + width) - stdtr(freedom, -c)) == pytest.approx(level)
        # narrower in standard errors as the range widens, and never narrower than an interval without a range
        assert c <= last
        assert c + width / 2 >= quantile(level, freedom) - 1e-9
        last = c


def test_the_level_of_each():
    assert level_of_each(0.95, 1) == 0.95
    assert level_of_each(0.95, 4) ** 4 == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("bonus", "slope", "says"),
    [
        (0.5, 0.0, "Something simpler is the same: always 1, which is what the policy takes everywhere"),
        (0.1, 0.02, "Something simpler is as good, as far as the log tells: always 1"),
        (0.0, 1.0, ""),
    ],
)
def test_what_the_sentence_says_of_the_best_fixed_arm(bonus, slope, says):
    rng = np.random.default_rng(4)
    x, arm = rng.normal(size=4_000), rng.integers(0, 2, 4_000)
    log = {"x": x, "arm": arm, "reward": bonus * arm + slope * arm * x + 0.3 * rng.normal(size=4_000)}
    verdict = sl.judge(log, sl.Schema(["x"], ["x"]))
    assert says in verdict.sentence
    assert ("Something simpler" in verdict.sentence) == bool(says)
    assert ("takes the same arm everywhere" in verdict.to_html()) == says.startswith("Something simpler is the same")


def test_a_fixed_arm_that_is_better_is_called_better():
    rng = np.random.default_rng(5)
    arm = rng.integers(0, 2, 4_000)
    log = {"x": rng.normal(size=4_000), "arm": arm, "reward": arm + 0.3 * rng.normal(size=4_000)}
    verdict = sl.judge(log, sl.Schema(["x"], ["x"]), policies=lambda c: np.where(c["x"] > -1.5, 1, 0))
    assert verdict.simpler.better
    assert "Something simpler is better: always 1" in verdict.sentence
    assert "always 1, is better" in verdict.to_html()


def test_halves_that_choose_for_each_other_err_together(seed):
    """Where all arms pay alike a policy chosen on one half and valued on the other gains the same on both, by chance.

    Halves that counted as independent had a mean ``z²`` of 1.6.  Its standard error over 300 logs is 0.08.
    """
    names = [f"x{j}" for j in range(8)]
    schema, z2 = sl.Schema(names, names, arms=range(3)), []
    for i in range(300):
        rng = np.random.default_rng([seed, i, 6])
        log = {name: rng.normal(size=800) for name in names}
        line = sl.judge(log | {"arm": rng.integers(0, 3, 800), "reward": rng.normal(size=800)}, schema).line("best")
        z2.append((line.gain / line.error) ** 2)
    assert 0.6 < np.mean(z2) < 1.3


@pytest.mark.parametrize("known", [True, False], ids=["known", "estimated"])
def test_the_log_as_its_own_complete_rows_does_not_praise_its_own_choice(seed, known, tmp_path):
    """What a log suggests was valued on the rows that suggest it: a gain "at 95 %" in more than half of these logs."""
    schema = sl.Schema(["x", "h"], ["x"], arms=range(6), propensity="chance" if known else None)
    missed = told = 0
    for i in range(40):
        rng = np.random.default_rng([seed, i, 7])
        log = {"x": rng.normal(size=900), "h": rng.normal(size=900), "arm": rng.integers(0, 6, 900)}
        log |= {"reward": rng.normal(size=900), "chance": np.full(900, 1 / 6)}
        line = sl.judge(log, schema, complete=log).line("best", "complete")
        told += line.known
        missed += line.known and not line.low <= 0.0 <= line.high
    assert told >= 30
    assert missed <= most(40, 0.05, 0.001)


def test_the_same_file_is_the_same_rows(tmp_path, monkeypatch):
    """By whatever path; rows that lack something are skipped without moving others to another half."""
    rng = np.random.default_rng(3)
    log = {"x": rng.normal(size=600), "h": rng.normal(size=600), "arm": rng.integers(0, 3, 600)}
    log |= {"reward": rng.normal(size=600)}
    log["h"][rng.random(600) < 0.1] = np.nan
    csv.write_csv(pa.table(log), tmp_path / "log.csv")
    monkeypatch.chdir(tmp_path)
    schema = sl.Schema(["x", "h"], ["x"], arms=range(3))
    read = sl.judge("log.csv", schema, complete=[tmp_path / "log.csv"], on_invalid="skip")
    given = sl.judge(log, schema, complete=log, on_invalid="skip")
    one, other = read.line("best", "complete"), given.line("best", "complete")
    assert (one.gain, one.error) == pytest.approx((other.gain, other.error), rel=1e-9)
    assert "one half of them" in read.assumptions[-1]
    copied = sl.judge(log, schema, complete=dict(log), on_invalid="skip")
    assert copied.line("best", "complete").gain != one.gain
    assert "not among the log's" in copied.assumptions[-1]
