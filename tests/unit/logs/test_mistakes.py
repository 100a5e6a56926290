"""Mistakes that newcomers make with real columns: each is named, with what to do."""

from __future__ import annotations

import datetime as dt
import warnings
from itertools import combinations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest

import sidelight as sl
from sidelight.errors import ContextError, InputError, InvalidRowsError, SchemaError, SourceError, StandInWarning
from sidelight.logs.reduce.rank import smallest_common_removal
from sidelight.logs.schema.stand_ins import stand_in

N = 60


def table(**columns):
    rng = np.random.default_rng(0)
    base = {
        "age": rng.normal(50.0, 9.0, N),
        "tier": rng.choice(["a", "b", "c"], N),
        "arm": np.tile(["x", "y"], N // 2),
        "reward": rng.normal(size=N),
    }
    return pd.DataFrame(base | columns)


def summarize(frame, features="age + tier + severity", recorded=("age", "tier"), **options):
    return sl.summarize_log(frame, sl.Schema(features, recorded, categories=["tier"], intercept=True, **options))


@pytest.mark.filterwarnings("ignore:column 'tier'")
@pytest.mark.parametrize(
    "term", ["tier**2", "log(tier)", "bins(tier, [1, 2])", "spline(tier, knots=[1, 2, 3])", "log(tier):age"]
)
def test_a_function_that_is_told_everything_of_a_category(term):
    """Such a function needs nothing of the log, and the column is found to hold text when the log is read."""
    with pytest.raises(SchemaError, match="is a function of a number, and 'tier' is a category"):
        sl.summarize_log(table(), sl.Schema(f"age + {term}", ["age", "tier"]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sl.Spline("age", knots=["low", 2, 3]), "'low' is not a number"),
        (lambda: sl.Spline("age", knots=5), "5 is not a list of numbers"),
        (lambda: sl.Spline("age", "four"), "between 2 and 20 columns"),
        (lambda: sl.Bins("age", edges="40"), "'40' is not a list of numbers"),
        (lambda: sl.Bins("age", "four"), "between 2 and 100 intervals"),
        (lambda: sl.Logarithm("age", float("nan")), "nan is not a number"),
        (lambda: sl.Power("age", "two"), "'two' is not a number"),
        (lambda: sl.Missing("age", "none"), "'none' is not a number"),
        (lambda: sl.Product("age", 3), "not 3"),
        (lambda: sl.DaysSince("visit", 3), "a day is written 2020-01-01"),
        (lambda: sl.Schema("log(age, 'x')", ["age"]), "'x' is not a number"),
        (lambda: sl.Schema("missing(age, 'x')", ["age"]), "'x' is not a number"),
        (lambda: sl.Schema("bins(age, ['x'])", ["age"]), "'x' is not a number"),
        (lambda: sl.Schema("hour(visit, 3)", ["visit"]), "which is not known"),
        (lambda: sl.Schema(["age"], ["age"], binary="yes"), "binary"),
    ],
)
def test_settings_of_derived_features_of_the_wrong_type(make, words):
    with pytest.raises(SchemaError, match=words):
        make()


@pytest.mark.filterwarnings("ignore:column 'tier'")
def test_a_function_of_a_number_of_a_category():
    """Text that nobody declared is a category as well, found when the log is read."""
    with pytest.raises(SchemaError, match=r"spline\(tier, 4\) is a function of a number, and 'tier' is a category"):
        sl.summarize_log(table(), sl.Schema("age + spline(tier, 4) + severity", ["age", "tier"]))
    # whether a category is missing is asked of any column
    assert "missing(tier)" in summarize(table(), "age + tier + missing(tier) + severity").schema.encoded_names


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (pd.date_range("2024-01-01", periods=N), "the reward, column 'reward', holds timestamp.* a reward is a number"),
        (pd.to_timedelta(np.arange(N), "D"), "the reward, column 'reward', holds duration"),
    ],
)
def test_a_date_as_the_reward(values, says):
    with pytest.raises(SchemaError, match=says):
        summarize(table(reward=values))


def test_a_length_of_time_as_a_number():
    with pytest.raises(SchemaError, match=r"a length of time, not a number. .*total_seconds"):
        summarize(table(age=pd.to_timedelta(np.arange(N), "D")))


def test_dates_that_are_not_iso():
    days = [(dt.date(2024, 1, 1) + dt.timedelta(days=i)).strftime("%d.%m.%Y") for i in range(N)]
    with pytest.raises(SchemaError, match=r"dates that are not written as 2024-02-29 .* such as '01.01.2024'"):
        sl.summarize_log(table(visit=days), sl.Schema(["age", "visit", "severity"], ["age", "visit"]))


def test_measurements_as_arms():
    with pytest.raises(SchemaError, match=r"60 different values in 60 rows .* not an arm"):
        summarize(table(arm=np.arange(N) / 7.0))
    # declared arms are arms, however many there are
    assert summarize(table(arm=np.arange(N)), arms=range(N)).n_rows == N


def test_rewards_that_are_declared_to_be_0_or_1():
    with pytest.raises(InvalidRowsError, match=r"neither 0 nor 1, which the schema says .*binary=True"):
        summarize(table(), binary=True)
    clicks = np.tile([0.0, 0.0, 1.0, 1.0], N // 4)
    assert summarize(table(reward=clicks), binary=True).binary_rewards
    clicks[0] = 0.5
    schema = sl.Schema(["age", "severity"], ["age"], binary=True)
    summary = sl.summarize_log(table(reward=clicks), schema, on_invalid="skip")
    assert summary.n_rows == N - 1


def test_a_type_that_no_table_has():
    with pytest.raises(SourceError, match="column 'age' of the pandas frame holds complex128"):
        summarize(table(age=np.arange(N) + 1j))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("age,tier,arm,reward\n1,a,x,2\n".encode("utf-16"), "is UTF-16 text"),
        ("age,tier,arm,reward\n1,a,x,2\n".encode("utf-16-le"), "is UTF-16 text"),
        (b'[{"age": 1, "tier": "a", "arm": "x", "reward": 2}]', "is JSON, not a table"),
        (b"\xef\xbb\xbf{}", "is JSON, not a table"),
    ],
)
def test_files_of_another_kind_that_are_called_csv(content, says, tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=says):
        summarize(str(path))


def test_a_file_without_a_header(tmp_path):
    table().to_csv(tmp_path / "log.csv", index=False, header=False)
    with pytest.raises(SchemaError, match="Its first line seems to hold values"):
        summarize(str(tmp_path / "log.csv"))


def test_a_formula_with_a_left_side():
    with pytest.raises(SchemaError, match=r"the reward is named by reward="):
        sl.Schema("reward ~ age", recorded=["age"])


def test_contexts_and_rewards_that_are_no_numbers():
    learner = sl.FusedOFUL(sl.BehaviorQueries(summarize(table())))
    context = {"age": 50, "tier": "a", "severity": 0.1}
    with pytest.raises(ContextError, match="feature 'age' is missing"):
        learner.decide({**context, "age": pd.NA})
    with pytest.raises(ContextError, match=r"feature 'age' is 1000.* too large"):
        learner.decide({**context, "age": 10**400})
    with pytest.raises(InputError, match="too large"):
        learner.observe(context, "x", 10**400)
    with pytest.raises(ContextError, match="row 1: feature 'tier' is 'z'"):
        learner.decide_many([context, {**context, "tier": "z"}])
    with pytest.raises(ContextError, match="several rows; decide_many takes many"):
        learner.decide(pd.DataFrame([context, context]))


def test_the_smallest_set_of_many_columns_is_found_quickly():
    """Two hundred levels, of which some are not in the rows of each arm: 20,000 sets of all columns took minutes."""
    rng = np.random.default_rng(0)
    factors = []
    for _ in range(3):
        levels = np.eye(200)[rng.integers(200, size=1_000)]
        X = np.column_stack([np.ones(1_000), rng.normal(size=(1_000, 5)), levels[:, 1:]])
        factors.append(np.linalg.qr(X, mode="r"))
    absent = {j for factor in factors for j in np.flatnonzero(np.abs(factor).max(axis=0) < 1e-12).tolist()}
    assert absent
    assert smallest_common_removal(factors, 205) == tuple(sorted(absent))


@pytest.mark.parametrize("seed", range(20))
def test_the_smallest_set_is_the_smallest(seed):
    rng = np.random.default_rng(seed)
    q, factors = int(rng.integers(3, 8)), []
    for _ in range(int(rng.integers(1, 4))):
        X = rng.integers(-1, 2, size=(40, q)).astype(float)
        for _ in range(int(rng.integers(0, 3))):
            j = int(rng.integers(q))
            others = [k for k in range(q) if k != j][: int(rng.integers(0, 3))]
            X[:, j] = X[:, others].sum(axis=1)
        factors.append(np.linalg.qr(X, mode="r"))

    def mends(removed):
        kept = [j for j in range(q) if j not in removed]
        return all(np.linalg.matrix_rank(factor[:, kept]) == len(kept) for factor in factors)

    found = smallest_common_removal(factors, q)
    assert mends(found)
    assert not any(mends(smaller) for k in range(len(found)) for smaller in combinations(range(q), k))


def test_a_column_in_brackets_is_no_json(tmp_path):
    """As some databases write the names of columns."""
    path = tmp_path / "log.csv"
    path.write_text("[age],arm,reward\n" + "".join(f"{i % 7},{i % 2},{i % 3}\n" for i in range(60)))
    summary = sl.summarize_log(path, sl.Schema(["[age]"], ["[age]"]))
    assert summary.n_rows == 60
    path.write_text('[{"age": 3, "arm": 0, "reward": 1}]')
    with pytest.raises(sl.SidelightError, match="is JSON"):
        sl.summarize_log(path, sl.Schema(["age"], ["age"]))


@pytest.mark.parametrize("rounded", [0, 1])
def test_measurements_with_repeated_values_as_arms(rounded):
    """Fewer than half of the values differ, and most have a few rows each."""
    rng = np.random.default_rng(3)
    values = rng.normal(50.0, 9.0, 300).round(rounded)
    values = values.astype(int) if rounded == 0 else values
    assert 20 <= len(np.unique(values)) <= (150 if rounded == 0 else 300)
    log = {"age": rng.normal(size=300), "weight": values, "reward": rng.normal(size=300)}
    with pytest.raises(SchemaError, match=r"column 'weight' .*that is a measurement or an identifier, not an arm"):
        sl.summarize_log(log, sl.Schema(["age"], ["age"], arm="weight"))
    named = sl.Schema(["age"], ["age"], arm="weight", arms=sorted(set(values.tolist())))
    assert sl.summarize_log(log, named).n_rows == 300


def test_numbers_as_arms_with_many_rows_each():
    """Doses and item numbers are arms, as texts with few rows are."""
    rng = np.random.default_rng(4)
    doses = rng.choice(np.arange(25) / 2.0, 2_000)
    items = rng.choice([f"item {i}" for i in range(40)], 200)
    for arms in (doses, items):
        log = {"age": rng.normal(size=len(arms)), "arm": arms, "reward": rng.normal(size=len(arms))}
        assert sl.summarize_log(log, sl.Schema(["age"], ["age"])).n_rows == len(arms)


@pytest.mark.parametrize(
    ("value", "others", "says"),
    [
        (-999.0, (18.0, 90.0), True),
        (-1.0, (18.0, 90.0), True),
        (9999.0, (0.0, 40.0), True),
        (-99.0, (1_200.0, 90_000.0), True),
        (2.0**31 - 1, (0.0, 5_000.0), True),
        (-1.0, (-1.0, 40.0), False),  # next to the others
        (-1.0, (0.0, 40.0), False),
        (99.0, (0.0, 98.0), False),
        (-999.0, (-5_000.0, 5_000.0), False),
        (120.0, (0.0, 1.0), False),  # far away, and not written as such numbers are
    ],
)
def test_a_number_that_stands_for_a_missing_value(value, others, says):
    rng = np.random.default_rng(5)
    age = rng.uniform(*others, N).round(1)
    age[::12] = value
    for column in ("age", "reward"):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            summarize(table(**{column: age}))
        found = [str(entry.message) for entry in said if issubclass(entry.category, StandInWarning)]
        assert len(found) == says
        if says:
            assert f"column '{column}' is {value:.15g} in 5 of the first 60 rows" in found[0]


def test_flags_and_single_values_stand_for_nothing():
    assert stand_in(np.tile([-1.0, 0.0, 1.0], 50)) is None
    assert stand_in(np.r_[np.arange(50.0), -999.0]) is None
    assert stand_in(np.r_[np.arange(50.0), [-999.0] * 3, np.nan]).rows == 3
    assert stand_in(np.full(5, np.nan)) is None


def test_values_beyond_what_learners_compute_with():
    """A log is refused by learners, not by the summary; a context and a reward by their reader."""
    frame = table()
    for factor, unit in ((1e60, "larger"), (1e-60, "smaller"), (1e-200, "smaller")):
        summary = summarize(frame.assign(age=frame["age"] * factor))
        with pytest.raises(InvalidRowsError, match=f"column 'age' .* Give them in a {unit} unit"):
            sl.FusedOFUL(sl.BehaviorQueries(summary))
        with pytest.raises(InvalidRowsError, match="column 'age'"):
            sl.ZeroFilledOFUL(summary, regularization="auto")
        with pytest.raises(InvalidRowsError, match="column 'age'"):
            sl.RunningOFUL(sl.BehaviorQueries(summary), regularization="auto")
    learner = sl.FusedOFUL(sl.BehaviorQueries(summarize(frame)))
    context = {"age": 50.0, "tier": "a", "severity": 1e60}
    with pytest.raises(ContextError, match="'severity' of the context is 1e\\+60, too large"):
        learner.decide(context)
    with pytest.raises(ContextError, match=r"Row 1: Feature 'severity'"):
        learner.decide_many(pd.DataFrame([context | {"severity": 0.0}, context]))
    with pytest.raises(InputError, match="The reward -1e\\+60 is too large"):
        learner.observe(context | {"severity": 0.0}, "x", -1e60)
    assert learner.decide(context | {"severity": 1e40}).arm in ("x", "y")


@pytest.mark.parametrize("source", ["columns", "csv"])
def test_times_with_and_without_a_zone_in_one_column(tmp_path, source):
    times = ["2024-02-29T13:45:00+01:00", "2024-03-01", "2024-03-02 08:00", "2024-03-03T09:30:00Z"] * 10
    log = {"at": times, "arm": ["a", "b"] * 20, "reward": [float(i % 7) for i in range(40)]}
    if source == "csv":
        path = tmp_path / "log.csv"
        pyarrow.csv.write_csv(pa.table(log), path)
        log = path
    schema = sl.Schema("hour(at)", recorded=["at"], intercept=True)
    with pytest.raises(SchemaError, match=r"'at' has times with a zone .*\+01:00.* and without one .*2024-03-02 08:00"):
        sl.summarize_log(log, schema)


def test_dates_without_a_time_stand_beside_either_kind_of_times():
    for time in ("2024-02-29T13:45:00+01:00", "2024-02-29 13:45"):
        log = {"at": [time, "2024-03-01"] * 20, "arm": [0, 1, 1, 0] * 10, "reward": np.arange(40.0)}
        assert sl.summarize_log(log, sl.Schema("days_since(at)", recorded=["at"])).n_rows == 40
