"""A table with a dozen kinds of columns, from every kind of source: the same summary, the same decision online."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import warnings
from collections import namedtuple

import duckdb
import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import tomli_w

import sidelight as sl
from sidelight.errors import ContextError, SchemaError, SidelightError
from sidelight.logs.schema.schema_file import read_schema_file
from sidelight.service.http.contexts import Contexts
from sidelight.service.sending import context_body

N = 4_000
FORMULA = (
    "amount + vip + city + shop + price + code + spline(weight, 4) + missing(weight) + mood + missing(mood)"
    " + weekday(day) + days_since(day) + hour(at, 'Europe/Berlin') + month(at) + city:amount + log(price, 1)"
    " + bins(amount, 3) + score"
)
COLUMNS = ["amount", "vip", "city", "shop", "price", "code", "weight", "mood", "day", "at"]


def table() -> pa.Table:
    rng = np.random.default_rng(11)
    days = [dt.date(2022, 1, 3) + dt.timedelta(days=int(d)) for d in rng.integers(0, 600, N)]
    at = [dt.datetime(2022, 3, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=int(m)) for m in rng.integers(0, 900_000, N)]
    weight = [None if gone else float(w) for gone, w in zip(rng.random(N) < 0.6, rng.normal(70, 9, N), strict=True)]
    mood = [
        None if gone else str(m) for gone, m in zip(rng.random(N) < 0.1, rng.choice(["good", "bad"], N), strict=True)
    ]
    return pa.table(
        {
            "amount": rng.normal(20, 5, N),
            "vip": rng.random(N) < 0.2,
            "city": rng.choice(["Rome", "Paris", "Oslo"], N),
            "shop": [f"shop {i:03d}" for i in rng.integers(0, 200, N)],
            "price": pa.array([decimal.Decimal(int(p)).scaleb(-2) for p in rng.integers(100, 9_999, N)]),
            "code": [str(c) for c in rng.integers(0, 50, N)],
            "weight": weight,
            "mood": mood,
            "day": pa.array(days, pa.date32()),
            "at": pa.array(at, pa.timestamp("us", "Europe/Berlin")),
            "customer": [f"c{i:06d}" for i in range(N)],
            "arm": rng.choice(["a", "b"], N),
            "reward": rng.normal(size=N),
        }
    )


@pytest.fixture(scope="module")
def log():
    return table()


SCHEMA = sl.Schema(FORMULA, COLUMNS, arms=["a", "b"], intercept=True)


@pytest.fixture(scope="module")
def summary(log):
    with pytest.warns(sl.SidelightWarning, match="'city', 'shop', 'mood' of the Arrow table hold text"):
        return sl.summarize_log(log, SCHEMA)


def sources(log, folder):
    pacsv.write_csv(log, folder / "log.csv")
    pq.write_table(log, folder / "log.parquet", row_group_size=1_000)
    yield "csv", folder / "log.csv"
    yield "parquet", folder / "log.parquet"
    yield "pandas", log.to_pandas()
    yield "polars", pl.from_arrow(log)
    yield "lazy polars", pl.from_arrow(log).lazy()
    yield "duckdb", duckdb.arrow(log)


@pytest.mark.filterwarnings("ignore::sidelight.errors.SidelightWarning")
def test_every_source_gives_the_same_summary(log, summary, tmp_path):
    assert summary.n_rows == N
    for name, source in sources(log, tmp_path):
        found = sl.summarize_log(source, SCHEMA)
        assert found.schema.recorded_names == summary.schema.recorded_names, name
        assert found.schema == summary.schema, name
        scale = np.abs(summary.factors).max(axis=(0, 1))
        np.testing.assert_allclose(found.factors / scale, summary.factors / scale, atol=1e-12, err_msg=name)
        np.testing.assert_array_equal(found.counts, summary.counts)


def test_the_same_decision_by_every_kind_of_context(log, summary, tmp_path):
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary))
    frame, polar = log.to_pandas(), pl.from_arrow(log)
    for i in range(8):
        mapping = log.slice(i, 1).to_pylist()[0]
        x = summary.schema.encode({**mapping, "score": 0.5})
        decided = learner.decide(x)
        row = {**mapping, "score": 0.5}
        series = pd.Series({**frame.iloc[i].to_dict(), "score": 0.5})
        as_tuple = namedtuple("Row", row)(**row)
        text = row | {"day": row["day"].isoformat(), "at": row["at"].isoformat(), "price": float(row["price"])}
        one_row = polar[i : i + 1].with_columns(score=pl.lit(0.5))
        for context in (row, series, as_tuple, text, x, x.tolist(), one_row, frame.iloc[[i]].assign(score=0.5)):
            assert learner.decide(context) == decided, type(context)
        many = learner.decide_many(polar[i : i + 3].with_columns(score=pl.lit(0.5)))
        assert isinstance(many, pl.DataFrame)
        assert many.row(0) == tuple(decided)
        framed = frame.iloc[i : i + 3].assign(score=0.5)
        assert learner.decide_many(framed).index.equals(framed.index)
        assert tuple(learner.decide_many(framed).iloc[0]) == tuple(decided)
        assert learner.decide_many([row, row]) == [decided, decided]
        assert learner.decide_many([as_tuple, as_tuple]) == [decided, decided]


GAPPY = ["amount", "vip", "city", "shop", "price", "code", "weight", "mood", "day", "at", "score"]


def forms(row, schema):
    """One context with gaps, None, in every form in which it may be given."""
    absent = {name: value for name, value in row.items() if value is not None}
    nan = {name: float("nan") if value is None else value for name, value in row.items()}
    encoded = schema.encode(row)
    written = {name: v.isoformat() if isinstance(v, dt.date) else v for name, v in row.items()}
    yield "mapping", row
    yield "without the names", absent
    yield "NaN", nan
    yield "text", written
    yield "Series", pd.Series(row, dtype=object)
    yield "named tuple", namedtuple("Row", row)(**row)
    yield "pandas frame", pd.DataFrame([row])
    yield "polars frame", pl.DataFrame([row])
    yield "array", encoded
    yield "list", encoded.tolist()


@pytest.mark.filterwarnings("ignore::sidelight.errors.SidelightWarning")
def test_the_same_decision_by_every_kind_of_context_with_gaps(log):
    """Gaps of up to 60 % in every column (numbers, categories, dates, what is computed from them), while it learns."""
    schema = sl.Schema(FORMULA, COLUMNS, arms=["a", "b"], intercept=True, missing="impute")
    summary = sl.summarize_log(log, schema)
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary))
    http = Contexts(summary.schema, 1e9)
    decoder = msgspec.json.Decoder(http.either)
    rng = np.random.default_rng(21)
    missed = 0
    for i in range(40):
        share = rng.uniform(0.0, 0.6)
        row = log.slice(i, 1).to_pylist()[0] | {"score": float(rng.normal())}
        row = {name: row[name] if rng.random() >= share else None for name in GAPPY}
        missed += sum(value is None for value in row.values())
        learner.observe_behavior(row, "ab"[i % 2])
        decided = learner.decide(row)
        assert np.isfinite([decided.estimate, decided.width]).all()
        for name, context in forms(row, summary.schema):
            assert learner.decide(context) == decided, (name, row)
        # what the client makes of a row, and what any program makes of its decimals, is read as the row itself
        written = row | {"price": None if row["price"] is None else str(row["price"])}
        for context in (row, written, summary.schema.encode(row)):
            sent = decoder.decode(msgspec.json.encode(context_body(context)))
            np.testing.assert_array_equal(http.encode(sent), summary.schema.encode(row))
        framed = learner.decide_many(pd.DataFrame([row, row]))
        assert tuple(framed.iloc[1]) == tuple(decided)
        learner.observe(row, decided.arm, float(rng.normal()))
    assert missed > 80


def test_names_decide_and_not_positions(summary):
    learner = sl.OFUL(2, 3, schema=sl.Schema(["a", "b", "c"], []))
    backwards = pd.Series({"c": 3.0, "b": 2.0, "a": 1.0, "note": "x"})
    np.testing.assert_array_equal(learner.schema.encode(backwards), [1.0, 2.0, 3.0])
    structured = np.array([(3.0, 1.0, 2.0)], dtype=[("c", "f8"), ("a", "f8"), ("b", "f8")])
    np.testing.assert_array_equal(learner.schema.encode(structured[0]), [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(learner.schema.encode_many(structured), [[1.0, 2.0, 3.0]])
    with pytest.raises(ContextError, match=r"lacks 'a', 'b', 'c'.*no names; give numbers in order as an array"):
        learner.decide(pd.Series([1.0, 2.0, 3.0]))
    nameless = sl.OFUL(2, 3)
    for contexts in (pd.DataFrame({"a": [1.0], "b": [2.0], "c": [3.0]}), [{"a": 1.0}], pd.Series({"a": 1.0})):
        with pytest.raises(ContextError, match="schema"):
            nameless.decide_many(contexts) if not isinstance(contexts, pd.Series) else nameless.decide(contexts)


def test_extra_names_are_left_aside_alike():
    schema = sl.Schema(["a", "b"], [])
    one = {"b": 2.0, "id": "x", "a": 1.0}
    np.testing.assert_array_equal(schema.encode(one), [1.0, 2.0])
    np.testing.assert_array_equal(schema.encode_many([one]), [[1.0, 2.0]])
    np.testing.assert_array_equal(schema.encode_many(pd.DataFrame([one])), [[1.0, 2.0]])


def test_many_answers_at_once():
    world = sl.worlds.ConfoundedWorld(seed=3)
    rng = np.random.default_rng(0)
    summary = sl.summarize_log(world.sample_log(2_000, 6, rng), world.schema(6))
    X = world.contexts(30, rng)
    arms = world.behavior_actions(X, rng)
    one, many = (sl.FusedOFUL(sl.BehaviorQueries(summary)) for _ in range(2))
    labels = [None if i % 4 == 0 else summary.arms[arm] for i, arm in enumerate(arms)]
    for x, label in zip(X, labels, strict=True):
        if label is not None:
            one.observe_behavior(x, label)
    many.observe_behavior_many(X, labels)
    np.testing.assert_array_equal(one.scores(X[0]), many.scores(X[0]))
    before = many.scores(X[0])
    with pytest.raises(SidelightError, match="not one of this learner's arms"):
        many.observe_behavior_many(X[:2], [summary.arms[0], "nobody"])
    with pytest.raises(SidelightError, match="30 contexts and 2 answers"):
        many.observe_behavior_many(X, labels[:2])
    np.testing.assert_array_equal(before, many.scores(X[0]))


# --------------------------------------------------------------------------------------------- saying no


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize(
    ("column", "says"),
    [
        ("customer", r"4,000 different values in 4,000 rows .* an identifier, not a category"),
        ("day", r"holds dates|a date or a time, not a number"),
    ],
)
def test_identifiers_and_dates_are_no_categories(log, tmp_path, column, says, declared):
    pacsv.write_csv(log, tmp_path / "log.csv")
    schema = sl.Schema(["amount", column], ["amount", column], categories=[column] if declared else None)
    for source in (log, tmp_path / "log.csv"):
        with pytest.raises(SchemaError, match=says) as caught:
            sl.summarize_log(source, schema)
        if column == "day":
            assert "weekday(day)" in str(caught.value)


def test_warnings_point_to_the_line_of_the_caller(tmp_path):
    columns = {"ward": ["a", "b"] * 30, "age": [-999.0] * 6 + list(range(54)), "arm": ["x", "y"] * 30}
    columns["reward"] = [0.5, 1.5, 2.0] * 20
    pacsv.write_csv(pa.table(columns), tmp_path / "log.csv")
    schema = sl.Schema(["ward", "age"], ["ward", "age"])
    frame = pd.DataFrame(columns)
    calls = [
        lambda: sl.summarize_log(columns, schema),
        lambda: sl.summarize_log(tmp_path, schema),
        lambda: sl.summarize_eras(columns, schema),
        lambda: sl.judge(columns, schema),
        lambda: schema.fit(columns),
        lambda: sl.BanditClassifier().fit(frame[["ward", "age"]], frame["arm"], frame["reward"]),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", sl.SidelightWarning)
            call()
        told = [warning for warning in caught if issubclass(warning.category, sl.SidelightWarning)]
        assert any("'ward'" in str(warning.message) for warning in told)
        assert {warning.filename for warning in told} == {__file__}


@pytest.mark.parametrize("declared", [True, False])
def test_a_category_of_many_levels_may_come_in_small_files(tmp_path, declared):
    """In a file of one day most rows have a level of their own; in the log no level has few rows."""
    rng = np.random.default_rng(0)
    for day in range(30):
        rows = {"city": rng.choice([f"c{i}" for i in range(60)], 40), "amount": rng.normal(size=40)}
        rows |= {"arm": rng.choice(["a", "b"], 40), "reward": rng.normal(size=40)}
        pacsv.write_csv(pa.table(rows), tmp_path / f"{day:02}.csv")
    schema = sl.Schema(["amount", "city"], ["amount", "city"], categories=["city"] if declared else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sl.SidelightWarning)
        assert sl.summarize_log(tmp_path, schema).n_recorded == 61
        with pytest.raises(SchemaError, match=r"different values in 40 rows .* an identifier, not a category"):
            sl.summarize_log(tmp_path / "00.csv", schema)


def test_a_small_era_of_a_log_has_its_levels():
    """Thirty rows lack a column; that they have twenty-odd cities makes the city no identifier."""
    rng = np.random.default_rng(0)
    n = 2_000
    amount = np.where(np.arange(n) < 30, np.nan, rng.normal(size=n))
    columns = {"city": rng.choice([f"c{i}" for i in range(40)], n), "amount": amount}
    columns |= {"arm": rng.choice(["a", "b"], n), "reward": rng.normal(size=n)}
    schema = sl.Schema(["amount", "city"], ["amount", "city"], categories=["city"])
    eras = sl.summarize_eras(columns, schema)
    assert [summary.n_rows for summary in eras.values()] == [1_970, 30]
    assert [summary.n_recorded for summary in eras.values()] == [41, 40]
    few = {name: values[30:120] for name, values in columns.items()}
    verdict = sl.judge(few, sl.Schema(["city"], ["city"], categories=["city"]), policies=["a"])
    assert verdict.table.num_rows


def test_a_few_dates_may_be_a_category(log):
    cohorts = pa.array([dt.date(2020 + i % 3, 1, 1) for i in range(N)])
    schema = sl.Schema(["cohort"], ["cohort"], categories=["cohort"])
    assert sl.summarize_log(log.append_column("cohort", cohorts), schema).n_recorded == 3


@pytest.mark.parametrize("column", ["amount", "reward"])
@pytest.mark.parametrize("declared", [True, False])
def test_decimal_commas_are_told(log, tmp_path, column, declared):
    text = [str(round(v, 2)).replace(".", ",") for v in log[column].to_pylist()]
    text = [t if "," in t else f"{t},0" for t in text]
    wrong = log.set_column(log.column_names.index(column), column, pa.array(text))
    pacsv.write_csv(wrong, tmp_path / "log.csv", pacsv.WriteOptions(delimiter=";"))
    feature = sl.Number("amount") if declared else "amount"
    for source in (wrong, tmp_path / "log.csv"):
        with pytest.raises(SchemaError, match=rf"'{column}' of .* decimal comma, such as '.*read_csv"):
            sl.summarize_log(source, sl.Schema([feature], ["amount"]))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1,234.50", r"commas between thousands, such as '1,234.50'.*thousands=','"),
        ("1,234", r"decimal comma, such as '1,234'.*If the comma stands between thousands: thousands=','"),
        ("1,5", r"decimal comma, such as '1,5'.*decimal=','\) and give the frame\.$"),
    ],
)
@pytest.mark.parametrize("column", ["amount", "reward"])
def test_commas_between_thousands_are_told(log, column, text, says):
    wrong = log.set_column(log.column_names.index(column), column, pa.array([text] * N))
    with pytest.raises(SchemaError, match=says):
        sl.summarize_log(wrong, sl.Schema(["amount"], ["amount"]))


def test_a_gap_is_told_with_its_remedy(log):
    summary = sl.summarize_log(log, sl.Schema(["amount", "score"], ["amount"]))
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary))
    for context in ({"amount": None, "score": 1.0}, {"score": 1.0}):
        with pytest.raises(
            ContextError, match='unless the schema lets it be inferred from the others: missing="impute"'
        ):
            learner.decide(context)
    inferring = sl.FusedOFUL(sl.BehaviorQueries(summary), schema=summary.schema.with_missing("impute"))
    assert inferring.decide({"score": 1.0}).arm in ("a", "b")


def test_a_reward_in_text_is_told(log):
    wrong = log.set_column(log.column_names.index("reward"), "reward", pa.array(["good", "bad"] * (N // 2)))
    with pytest.raises(SchemaError, match=r"the reward, column 'reward' of .* is text such as 'good'.*1 for success"):
        sl.summarize_log(wrong, sl.Schema(["amount"], ["amount"]))


# ------------------------------------------------------------------------------------------- schema files


@pytest.mark.parametrize("name", ["schema.toml", "schema.json"])
def test_a_schema_file_keeps_everything(summary, tmp_path, name):
    def said(value):
        """TOML has no null: what is not said is left out."""
        if isinstance(value, dict):
            return {key: said(item) for key, item in value.items() if item is not None}
        return [said(item) for item in value] if isinstance(value, list) else value

    described = {"version": 2, **said(summary.schema.to_dict())}
    (tmp_path / name).write_text(json.dumps(described) if name.endswith("json") else tomli_w.dumps(described))
    assert read_schema_file(tmp_path / name) == summary.schema


def test_schema_files_of_both_versions(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text('features = ["a", "b"]\nrecorded = ["a"]\n')
    assert read_schema_file(path) == sl.Schema(["a", "b"], ["a"])
    path.write_text('version = 2\nfeatures = "a + spline(b, 3)"\nhidden = ["a"]\n')
    assert read_schema_file(path) == sl.Schema("a + spline(b, 3)", ["b"], intercept=True)
    path.write_text(
        'version = 2\nfeatures = ["a", {kind = "category", name = "c", levels = ["x", "y"]}]\nrecorded = ["a"]\n'
        'intercept = false\nderived = ["a:c", {term = "bins(a, 3)", edges = [1.0, 2.0]}]\n'
    )
    found = read_schema_file(path)
    assert found.encoded_names == ("a", "c=x", "c=y", "a:c=y", "a in [1, 2)", "a in [2, ∞)")
    for text, says in (
        ('version = 3\nfeatures = ["a"]\nrecorded = ["a"]\n', "version 3, and this Sidelight reads up to 2"),
        ('features = ["a"]\nrecorded = ["a"]\nderivd = "a**2"\n', r"it has derivd\. Did you mean 'derived'"),
        ('version = 2\nfeatures = ["loyalty"]\nhidden = ["loyalti"]\n', "Did you mean 'loyalty'"),
        ('features = [{kind = "numbr", name = "a"}]\nrecorded = []\n', "is no feature"),
        ("features = 5\nrecorded = []\n", r"has features = 5: give a list or a formula, features = \["),
        ('features = ["a"]\nhidden = "a"\n', r"has hidden = 'a': give a list, hidden = \["),
        ('features = ["a"]\nrecorded = []\narms = "low"\n', r"has arms = 'low': give a list, arms = \["),
        ('features = ["a"]\nrecorded = []\nderived = 4\n', "has derived = 4: give a list or a formula"),
        ('features = ["a"]\nrecorded = []\nderived = [{edges = [1]}]\n', "is no derived feature: it needs a term"),
        ('features = [{kind = "category", name = "c", levels = 3}]\nrecorded = []\n', "'c' has levels=3: give a list"),
        ('features = ["a"]\nrecorded = []\narms = [{date = "today"}, 1]\n', r"\{'date': 'today'\} is not a label"),
        (
            'features = ["a"]\nrecorded = []\narms = [{date = "2024-01-01", time = "12:00"}]\n',
            "is not a label: a table",
        ),
        ('schema = "a"\n', r"where a table of settings, \[schema\], is expected"),
    ):
        path.write_text(text)
        with pytest.raises(SchemaError, match=says):
            read_schema_file(path)
