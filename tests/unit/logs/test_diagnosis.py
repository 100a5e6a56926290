"""The diagnosis: its numbers are right, its sentences say what is wrong, and all three forms agree."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sidelight.errors import InputError
from sidelight.logs.diagnosis.diagnosis import difference_of_regressions, queries_needed
from sidelight.logs.diagnosis.worth import Worth, _measured_model, hidden_share, two_digits, worth_in_rounds
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summarize import summarize_log
from sidelight.logs.summary import LogSummary


def log(n=4_000, K=4, d=6, L=4, noise=0.5, seed=0, same=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    w = rng.normal(size=(1 if same else K, d))
    arms = rng.integers(0, K, n)
    r = (X * w[0 if same else arms]).sum(axis=1) + noise * rng.normal(size=n)
    return LogSummary.from_arrays(X[:, :L], arms, r, Schema.for_arrays(d, L, K))


def test_numbers():
    summary = log()
    found = summary.diagnose()
    assert (found.rows_read, found.rows_used, found.skipped) == (4_000, 4_000, {})
    assert (found.n_recorded, found.n_features) == (4, 6)
    assert found.recorded == ("x0", "x1", "x2", "x3")
    assert found.hidden == ("x4", "x5")
    assert found.smallest.rows == summary.counts.min()
    assert [report.arm for report in found.arms] == [0, 1, 2, 3]
    (warning,) = found.warnings
    assert "no constant feature" in warning
    assert found.to_drop == ()


def test_three_forms_of_one_page(tmp_path):
    found = log(L=4).diagnose(noise=0.5)
    text, described, page = str(found), found.to_dict(), found.to_html(tmp_path / "d.html")
    assert (tmp_path / "d.html").read_text(encoding="utf-8") == page
    json.dumps(described, allow_nan=False)
    assert described["sentence"] == found.sentence
    assert found.sentence in page
    assert found.sentence in text
    assert "fewer than 100 online rounds" in found.sentence
    assert "assumes" in page
    assert "assumes" in " ".join(text.split())
    for word in ("4 of 6", "residual variance", "queries needed", "collinear", "log_trust()", "assumptions()"):
        assert word in text
        assert word in page
    assert "http" not in page.replace("http-equiv", "")
    assert described["arms"][2]["rows"] == found.arms[2].rows


def test_a_range_below_a_hundred_rounds_is_not_told_apart():
    def worth(low, high, source="told"):
        return Worth(low, high, True, 1_000, 1.0, (0.5, 0.5), source, "")

    assert worth(8, 43).sentence == "This log is worth fewer than 100 online rounds."
    assert worth(8, 430).sentence == "This log is worth between 8 and 430 online rounds."
    # with nothing hidden a logged row is an online round, however few there are
    assert worth(8, 43, "none").sentence == "This log is worth between 8 and 43 online rounds."
    assert worth(0.1, 0.4).sentence == "This log is worth less than one online round."


def test_the_page_escapes_what_users_name():
    columns = {"<b>": [1.0, 2, 3, 4], "arm": ["<script>", "[bold]"] * 2, "reward": [1.0, 2, 1, 2]}
    found = summarize_log(columns, Schema(["<b>", "h"], ["<b>"])).diagnose()
    assert "<script>" not in found.to_html()
    assert "&lt;script&gt;" in found.to_html()
    assert "[bold]" in str(found)


def test_arms_that_do_not_differ_and_arms_that_do():
    """``Q`` is ``χ²`` where the arms have one regression; three arms more than noise apart are beyond chance."""
    alike = difference_of_regressions(log(same=True, seed=3))
    apart = difference_of_regressions(log(seed=3))
    assert alike is not None
    assert apart is not None
    assert alike.degrees == apart.degrees == 12
    assert alike.p_value > 1e-4
    assert apart.p_value < 1e-12
    assert apart.beyond_chance > 0.9
    assert "no sign of selection" in str(log(same=True, seed=3).diagnose())
    share = 1 - apart.beyond_chance
    told = "less than 1%" if share < 0.01 else f"about {share:.0%}"
    assert f"the arms' regressions differ, and chance explains {told} of how much" in " ".join(
        str(log(seed=3).diagnose()).split()
    )


def test_the_difference_is_the_one_of_its_definition():
    summary = log(n=300, K=3, d=3, L=2)
    found = difference_of_regressions(summary)
    assert found is not None
    precision = summary.grams / summary.residual_variances[:, None, None]
    common = np.linalg.solve(precision.sum(axis=0), np.einsum("aij,aj->i", precision, summary.coefficients))
    apart = summary.coefficients - common
    np.testing.assert_allclose(found.statistic, np.einsum("ai,aij,aj->", apart, precision, apart), rtol=1e-8)


def test_queries():
    """``A = (τ²/s²) G``: with the noise known, the share of the residual variance that is not noise."""
    summary = log(noise=0.5)
    s2 = summary.pooled_residual_variance
    assert queries_needed(summary, noise=0.5) == (int(np.ceil((s2 - 0.25) / s2 * 4_000)),) * 2
    assert queries_needed(summary, noise=100.0) == (0, 0)
    assert queries_needed(log(L=6)) == (0, 0)
    least, most = queries_needed(summary)
    assert 0 < least < most < 4_000


def test_worth_grows_with_rows_columns_and_noise():
    for end in ("low", "high"):
        rounds = [getattr(worth_in_rounds(log(n=n, noise=2.0), noise=2.0), end) for n in (100, 1_000, 10_000, 200_000)]
        assert 0 < rounds[0] < rounds[1] < rounds[2]
        # From here on the answers of the old policy are what is scarce.
        assert rounds[3] == pytest.approx(rounds[2], rel=0.2)
        by_columns = [getattr(worth_in_rounds(log(L=L), noise=0.5), end) for L in (1, 3, 5, 6)]
        assert by_columns == sorted(by_columns)
        assert by_columns[-1] > 3 * by_columns[0]
        noisy = [getattr(worth_in_rounds(log(noise=noise, n=50_000), noise=noise), end) for noise in (0.2, 1.0, 4.0)]
        assert noisy == sorted(noisy)


def test_worth_is_the_same_however_many_matrices_are_solved_at_a_time(monkeypatch):
    whole = worth_in_rounds(log(noise=0.5), noise=0.5)
    monkeypatch.setattr("sidelight.logs.diagnosis.worth._NUMBERS", 100)
    assert worth_in_rounds(log(noise=0.5), noise=0.5) == whole


def test_a_complete_log_is_worth_about_its_rows():
    """Nothing hidden and arms tried equally: a logged row is an online round, whatever the horizon."""
    summary = log(n=2_000, L=6, noise=2.0)
    for horizon in (50, 1_000, 20_000):
        found = worth_in_rounds(summary, horizon=horizon)
        assert found.known
        assert found.source == "none"
        assert found.low == pytest.approx(2_000, rel=0.1)
        # a learner's round tells at least three tenths of what a round with a random arm would
        assert found.low < found.high <= 1.1 * 2_000 / 0.3


def test_worth_does_not_depend_on_units_or_on_where_zero_is():
    rng = np.random.default_rng(1)
    n = 5_000
    X = rng.normal(size=(n, 3))
    arms = rng.integers(0, 3, n)
    r = (X * rng.normal(size=(3, 3))[arms]).sum(axis=1) + rng.normal(size=n)
    schema = Schema(["a", "b", "c", "h"], ["a", "b", "c"], intercept=True)

    def worth(Z, rewards):
        columns = {**{name: Z[:, j] for j, name in enumerate("abc")}, "arm": arms, "reward": rewards}
        return worth_in_rounds(summarize_log(columns, schema), noise=0.3 * np.std(rewards)).low

    plain = worth(X, r)
    assert plain > 1
    assert worth(X * [1e6, 1.0, 1e-3], r) == pytest.approx(plain, rel=1e-6)
    assert worth(X + np.array([50.0, 0, -7]), r) == pytest.approx(plain, rel=1e-3)
    assert worth(X, 1000 * r) == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize(
    "summary",
    [
        log(n=3, K=2),
        log(K=1),
        log(L=0),
        log(noise=0.0, L=6),
        LogSummary.from_arrays(np.ones((10, 2)), [0] * 10, np.zeros(10), Schema.for_arrays(3, 2, 2)),
        LogSummary.from_arrays(np.zeros((0, 2)), [], [], Schema.for_arrays(3, 2, 2)),
    ],
    ids=["three rows", "one arm", "nothing recorded", "no noise", "constants and zero rewards", "no rows"],
)
def test_odd_logs_have_a_diagnosis_too(summary):
    found = summary.diagnose()
    assert np.isfinite([found.worth.low, found.worth.high]).all()
    assert 0 <= found.worth.low <= found.worth.high
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.sentence in found.to_html()
    assert "online round" in str(found)


def test_many_arms_are_cut_short():
    text = str(log(n=3_000, K=40).diagnose())
    assert "... and 28 arms with more rows" in text


def test_noise_must_be_positive():
    with pytest.raises(InputError, match="noise=-1 must be a positive"):
        log().diagnose(noise=-1)


def test_two_digits():
    assert [two_digits(x) for x in (0.4, 1.2, 17.4, 383, 12_345, 987_654)] == [0, 1, 17, 380, 12_000, 990_000]


@pytest.mark.parametrize(
    ("schema", "warned"),
    [
        (Schema(["age"], ["age"], intercept=True), False),
        (Schema(["age"], ["age"]), True),
        (Schema(["one", "age"], ["one", "age"]), False),  # a column of the log is constant, whatever it is called
        (Schema(["ward"], ["ward"], categories=["ward"]), False),  # every row is in one ward: they add up to one
    ],
    ids=["intercept", "none", "a column", "a category"],
)
def test_a_missing_constant_is_noticed(schema, warned):
    rng = np.random.default_rng(0)
    rows = 300
    table = {
        "one": np.full(rows, 3.0),
        "age": rng.normal(40, 10, rows),
        "ward": ["north", "south", "east"] * 100,
        "arm": np.arange(rows) % 2,
        "reward": rng.normal(5, 1, rows),
    }
    found = summarize_log(table, schema).diagnose()
    assert any("no constant feature" in warning for warning in found.warnings) == warned


def complete_log(hidden: float, seed: int = 0, n: int = 6_000):
    """A log whose hidden feature explains ``hidden``² of what ``x`` leaves, and the same rows with it."""
    rng = np.random.default_rng(seed)
    x, h = rng.normal(size=(2, n))
    arms = rng.integers(0, 3, n)
    rewards = x * np.array([1.0, -1.0, 0.3])[arms] + hidden * h * np.array([1, -1, 1])[arms]
    rewards += np.sqrt(1 - hidden**2) * rng.normal(size=n)
    columns = {"x": x, "h": h, "arm": arms, "reward": rewards}
    schema = Schema(["x", "h"], ["x"], intercept=True)
    return summarize_log(columns, schema), summarize_log(columns, schema.with_recorded(["x", "h"]))


def test_hidden_columns_say_how_much_is_hidden():
    """Where the rows have them, the share is measured: 36 % here, and the words say so instead of guessing."""
    summary, complete = complete_log(0.6)
    shares, source = hidden_share(summary, complete=complete)
    assert source == "measured"
    assert shares[0] == shares[1] == pytest.approx(0.36, abs=0.03)
    found = summary.diagnose(complete=complete)
    assert found.worth.known
    assert f"hidden features explain {shares[0]:.0%} of the residual variance (measured" in " ".join(str(found).split())
    assert found.queries == (int(np.ceil(shares[0] * 6_000)),) * 2
    # told the same noise, the share is the same
    told = hidden_share(summary, noise=float(np.sqrt(complete.pooled_residual_variance)))
    assert told == (pytest.approx(shares), "told")


def test_without_noise_or_hidden_columns_there_is_no_number():
    summary, _ = complete_log(0.6)
    found = summary.diagnose()
    assert not found.worth.known
    assert "cannot be told from the log alone" in found.sentence
    assert not any(character.isdigit() for character in found.sentence)
    assert (found.to_dict()["worth"]["low"], found.to_dict()["worth"]["high"]) == (None, None)
    assert "few" not in str(found).split("queries needed")[1].split(";")[0]


def test_the_stronger_the_hidden_part_the_less_a_log_is_worth():
    worths = [worth_in_rounds(*complete_log(0.1)[:1], complete=complete_log(0.1)[1])]
    worths += [worth_in_rounds(a, complete=b) for a, b in map(complete_log, (0.5, 0.9))]
    assert worths[0].low > 2 * worths[1].low > 4 * worths[2].low
    assert worths[0].high > 2 * worths[1].high > 4 * worths[2].high


def test_complete_rows_must_be_complete():
    summary, _ = complete_log(0.6)
    with pytest.raises(InputError, match="record 2 of 3 columns"):
        summary.diagnose(complete=summary)


def test_complete_rows_are_matched_by_arm():
    """By position the last arm's rows were missing or another's: a file whose hidden column lacks one arm broke."""
    summary, complete = complete_log(0.6)
    whole = _measured_model(summary, complete, 0.36)
    turned = _measured_model(summary, complete.moved_to(complete.schema.with_arms([2, 1, 0])), 0.36)
    assert turned.matrices == pytest.approx(whole.matrices)
    for gone in range(3):
        arms = [arm for arm in complete.arms if arm != gone]
        some = complete.moments.of_arms(np.array(arms))
        for rest in (
            LogSummary(complete.schema.with_arms(arms), some),
            LogSummary(complete.schema, some.with_arms(arms, 3)),
        ):
            model = _measured_model(summary, rest, 0.36)
            pooled = np.linalg.solve(model.moments[:2, :2], model.moments[:2, 2:])
            assert model.matrices[gone, :, 2:] == pytest.approx(pooled, abs=1e-6)
            assert worth_in_rounds(summary, complete=rest).known


@pytest.mark.parametrize("exact", [True, False])
def test_columns_that_give_the_reward_away_are_named(exact):
    """A reward that is the difference of two columns: no number about the log means anything."""
    rng = np.random.default_rng(5)
    before, age, arms = rng.normal(70, 15, 2_000), rng.normal(50, 9, 2_000), rng.integers(0, 2, 2_000)
    after = before + arms + rng.normal(0, 8, 2_000)
    reward = after - before + (0.0 if exact else 0.5) * rng.normal(size=2_000)
    schema = Schema(["before", "after", "age", "mood"], ["before", "after", "age"], arms=[0, 1], intercept=True)
    rows = np.column_stack([np.ones(2_000), before, after, age])
    found = LogSummary.from_arrays(rows, arms, reward, schema).diagnose(noise=0.1)
    assert found.warnings[0].startswith(
        f"The recorded columns explain {'all' if exact else '99.6%'} of how rewards differ"
    )
    assert "'after', 'before' above all" in found.warnings[0] or "'before', 'after' above all" in found.warnings[0]
    assert "cannot be told" in found.sentence
    whole = Schema(["before", "age", "mood"], ["before", "age"], arms=[0, 1], intercept=True)
    without = LogSummary.from_arrays(rows[:, [0, 1, 3]], arms, reward, whole).diagnose(noise=0.1)
    assert not any("explain" in warning for warning in without.warnings)
    assert "worth" in without.sentence
