"""Derived features: formulas, terms, what is recorded, and that a log and a context cannot be encoded differently."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sidelight as sl
from sidelight.errors import ContextError, InputError, InvalidRowsError, SchemaError
from sidelight.logs.schema.entrywise import logarithm, sine
from sidelight.logs.schema.formula import read_formula
from sidelight.logs.schema.splines import Bends
from sidelight.logs.schema.units import contributions, in_units, values_to_json

STAGES = ["I", "II", "III"]


def log(n=600, seed=0):
    rng = np.random.default_rng(seed)
    day = np.datetime64("2023-01-15T00:00:00") + (rng.uniform(0, 700, n) * 86_400).astype("timedelta64[s]")
    return {
        "age": rng.normal(50, 12, n),
        "weight": rng.gamma(20, 4, n),
        "stage": rng.choice(STAGES, n),
        "smoker": rng.random(n) < 0.3,
        "visit": day,
        "arm": rng.integers(0, 3, n),
        "reward": rng.normal(size=n),
    }


def rows(columns, upto=7):
    names = [name for name in columns if name not in ("arm", "reward")]
    return [{name: columns[name][i] for name in names} for i in range(upto)]


FORMULA = (
    "age + spline(weight, 4) + stage*smoker + age:weight + age**2 + weight**0.5 + log(weight, 1) + bins(age, 4)"
    " + weekday(visit) + month(visit) + hour(visit) + days_since(visit) + missing(age) + stage:spline(weight, 3)"
)
RECORDED = ["age", "weight", "stage", "smoker", "visit"]


@pytest.fixture(scope="module")
def summary():
    return sl.summarize_log(log(), sl.Schema(FORMULA, RECORDED, categories=["stage"], intercept=True))


# ------------------------------------------------------------------------------------------------ formulas


def test_a_formula_names_columns_and_terms():
    formula = read_formula("age + spline(weight, 4) + stage:dose_before")
    assert formula.columns == ("age",)
    assert [term.label for term in formula.terms] == ["spline(weight, 4)", "stage:dose_before"]
    crossed = read_formula("a*b*c")
    assert crossed.columns == ("a", "b", "c")
    assert [term.label for term in crossed.terms] == ["a:b", "a:c", "b:c", "a:b:c"]
    assert read_formula("C(stage) + `blood pressure`").columns == ("stage", "blood pressure")
    assert read_formula("C(stage):x").categories == ("stage",)


@pytest.mark.parametrize(
    "text",
    [
        "spline(weight, 3)",
        "spline(weight, knots=[1.0, 2.5, 4.0])",
        "bins(age, [40.0, 65.0])",
        "bins(age, 7)",
        "log(income, 1.0)",
        "`blood pressure`**2",
        "x**-1.5",
        "x**0.5",
        "weekday(visit)",
        "hour(visit, 'Europe/Berlin')",
        "days_since(visit, '2020-01-01')",
        "missing(weight)",
        "missing(weight, 70.0)",
        "`a b`:stage:spline(x, 3)",
    ],
)
def test_what_a_term_is_called_reads_back(text):
    (term,) = read_formula(text).terms
    assert term.label == text
    assert read_formula(term.label).terms == (term,)


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("age +", "lacks a column or a function at its end"),
        ("age + splin(weight, 4)", r"calls splin, which is not one of its functions \(is it spline\?\)"),
        ("age - weight", "takes something away"),
        ("1 + age", "a constant is asked for with intercept=True"),
        ("age + spline(weight, 4", r"lacks a '\)' at its end"),
        ("spline(weight, 1)", "between 2 and 20"),
        ("spline(weight, knots=[1, 1, 2])", "at least three increasing numbers"),
        ("spline(weight, 4, [1, 2, 3])", "not both"),
        ("spline(weight, degree=4)", "arguments it does not take"),
        ("log(age)**2", "a column to the power of a number"),
        ("age:age", r"age\*\*2"),
        ("age @ b", "cannot be read from here on at '@ b'"),
        ("age**0", "other than 0"),
        ("days_since(visit, 'May')", "a day is written 2020-01-01"),
        ("hour(visit, 'Mars/Base')", "'Mars/Base', which is not known"),
        ("visit + weekday(visit)", "leave it out of the features"),
        ("visit:age + weekday(visit)", "multiplies with the date 'visit'"),
    ],
)
def test_formulas_that_cannot_be(formula, says):
    with pytest.raises(SchemaError, match=says):
        sl.Schema(formula, recorded=[])


def test_objects_and_formulas_are_one():
    by_formula = sl.Schema("age + spline(weight, knots=[60, 80, 100]) + stage:dose", [], categories={"stage": STAGES})
    terms = [sl.Spline("weight", knots=(60, 80, 100)), sl.Product("stage", "dose")]
    by_object = sl.Schema(["age"], [], categories={"stage": STAGES}, derived=terms)
    assert by_formula == by_object
    products = ("stage=I:dose", "stage=II:dose", "stage=III:dose")
    assert by_object.encoded_names == ("age", "weight", "bend1(weight)", *products)


def test_a_derived_feature_is_recorded_where_all_its_columns_are():
    schema = sl.Schema("age + age**2 + age:dose + spline(dose, knots=[1, 2, 3])", recorded=["age"], arms=[0, 1])
    assert schema.recorded_names == ("age", "age**2")
    names = schema.encoded_names
    assert [names[i] for i in schema.hidden_index] == ["dose", "age:dose", "bend1(dose)"]
    assert "derived and recorded: age**2, derived and hidden: age:dose" in repr(schema)
    assert "age:dose" in schema._repr_html_()
    later = schema.with_recorded(["age", "dose"])
    assert len(later.hidden_index) == 0
    with pytest.raises(SchemaError, match="did not record 'dose': give knots"):
        sl.summarize_log(log() | {"dose": log()["age"]}, sl.Schema("age + spline(dose, 3)", recorded=["age"]))


# ------------------------------------------------------------------------------------------------ encoding


def test_a_log_a_frame_and_a_context_are_encoded_alike(summary):
    columns = log()
    schema = summary.schema
    table = pa.table({name: columns[name] for name in RECORDED})
    together = schema.encode_many(table)
    assert together.shape == (600, schema.n_features)
    contexts = [{name: table[name][i].as_py() for name in RECORDED} for i in range(40)]
    np.testing.assert_array_equal(together[:40], [schema.encode(context) for context in contexts])
    np.testing.assert_array_equal(together[:40], schema.encode_many(contexts))
    np.testing.assert_array_equal(together, schema.encode_recorded(table))
    np.testing.assert_array_equal(together[3:4], schema.encode_many(table.slice(3, 1)))
    gram = together[columns["arm"] == 1].T @ together[columns["arm"] == 1]
    np.testing.assert_allclose(summary.grams[1], gram, rtol=1e-9, atol=1e-9 * np.abs(gram).max())


def test_every_term_computes_what_it_says(summary):
    schema = summary.schema
    context = {"age": 61.0, "weight": 80.0, "stage": "II", "smoker": True, "visit": "2024-03-05T18:00:00"}
    x = dict(zip(schema.encoded_names, schema.encode(context), strict=True))
    assert x["age**2"] == 61.0**2
    assert x["weight**0.5"] == pytest.approx(math.sqrt(80), abs=1e-12)
    assert x["log(weight, 1.0)"] == pytest.approx(math.log(81), abs=1e-12)
    assert x["age:weight"] == 61.0 * 80.0
    assert x["stage=II:smoker"] == 1.0
    assert x["stage=III:smoker"] == 0.0
    # 2024-03-05 is a Tuesday, March the third month
    assert x["sin weekday(visit)"] == pytest.approx(math.sin(2 * math.pi / 7), abs=1e-15)
    assert x["cos month(visit)"] == pytest.approx(math.cos(2 * math.pi * 2 / 12), abs=1e-15)
    assert x["sin hour(visit)"] == pytest.approx(-1.0, abs=1e-15)
    first = min(log()["visit"]).astype("datetime64[D]").item()
    assert x["days_since(visit)"] == (dt.date(2024, 3, 5) - first).days + 0.75
    assert x["missing(age)"] == 0.0
    inside = [name for name in x if name.startswith("age in [") and x[name] == 1.0]
    assert len(inside) == 1


def test_splines_are_natural_and_have_nothing_straight_in_them():
    sample = np.sort(np.random.default_rng(3).gamma(3, 2, 5_000))
    term = sl.Spline("x", 5).fitted(sample)
    assert len(term.knots) == 6
    assert term.knots == tuple(sorted(term.knots))
    assert sample[0] < term.knots[0] < np.median(sample) < term.knots[-1] < sample[-1]
    bends = np.array(term.bends.columns(sample, [True] * 4))
    # orthonormal on the hundred quantiles that they were made on, nearly so on the sample
    gram = bends @ bends.T / len(sample)
    np.testing.assert_allclose(gram, np.eye(4), atol=0.4)
    straight = np.array([np.ones(5_000), (sample - sample.mean()) / sample.std()])
    assert np.abs(straight @ bends.T / len(sample)).max() < 0.25
    # straight beyond the outer knots, two derivatives continuous inside
    far = np.array(term.bends.columns(np.array([-3.0, -2.0, -1.0, 100.0, 101.0, 102.0]), [True] * 4))
    np.testing.assert_allclose(far[:, 0] - 2 * far[:, 1] + far[:, 2], 0, atol=1e-9)
    np.testing.assert_allclose(far[:, 3] - 2 * far[:, 4] + far[:, 5], 0, atol=1e-9 * np.abs(far).max())
    h = 1e-4
    for knot in term.knots[1:-1]:
        at = np.array(term.bends.columns(knot + h * np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), [True] * 4))
        left = (at[:, 0] - 2 * at[:, 1] + at[:, 2]) / h**2
        right = (at[:, 2] - 2 * at[:, 3] + at[:, 4]) / h**2
        np.testing.assert_allclose(left, right, atol=1e-2 * max(1.0, np.abs(left).max()))


def test_a_natural_spline_spans_what_another_basis_spans():
    """The literature's basis, d_j − d_{K−1}, fits every curve of ours exactly, and the other way round."""
    knots = (1.0, 2.0, 4.0, 5.0, 9.0)
    x = np.linspace(-1, 12, 300)

    def cube(k):
        return np.maximum(x - k, 0.0) ** 3

    d = [(cube(knots[j]) - cube(knots[-1])) / (knots[-1] - knots[j]) for j in range(4)]
    textbook = np.column_stack([np.ones_like(x), x, *(d[j] - d[3] for j in range(3))])
    ours = np.column_stack([np.ones_like(x), x, *Bends.of(knots, np.linspace(1, 9, 65)).columns(x, [True] * 3)])
    for one, other in ((textbook, ours), (ours, textbook)):
        fitted = one @ np.linalg.lstsq(one, other, rcond=None)[0]
        np.testing.assert_allclose(fitted, other, atol=1e-8 * np.abs(other).max())


def test_logarithms_are_accurate():
    x = np.exp(np.random.default_rng(0).uniform(-700, 700, 20_000))
    x = np.concatenate([x, 1 + np.linspace(-0.3, 0.4, 10_001), [5e-324, 1.0, np.finfo(float).max]])
    np.testing.assert_allclose(logarithm(x), np.log(x), rtol=5e-16, atol=2e-16)


def test_powers_are_whole_and_half_ones():
    x = {"a": 2.25}
    for exponent, value in ((0.5, 1.5), (1.5, 3.375), (-0.5, 1 / 1.5), (-2, 1 / 2.25**2), (3, 2.25**3)):
        schema = sl.Schema([], ["a"], derived=[sl.Power("a", exponent)])
        assert schema.encode(x).tolist() == [value]
        if exponent != 3:
            with pytest.raises(ContextError, match="not defined"):
                schema.encode({"a": 0.0 if exponent < 0 else -1.0})
    with pytest.raises(SchemaError, match="a whole or half number"):
        sl.Power("a", 0.3)


def test_sines_are_accurate():
    turns = np.linspace(-3, 3, 20_001)
    np.testing.assert_allclose(sine(turns), np.sin(2 * np.pi * (turns - np.round(turns))), atol=4e-16)


def test_too_few_values_for_a_spline_say_so():
    columns = log() | {"age": np.resize([1.0, 2.0, 3.0], 600)}
    with pytest.raises(SchemaError, match=r"'age' has 3 different values, too few for the 5 knots of spline\(age, 4\)"):
        sl.summarize_log(columns, sl.Schema("spline(age, 4)", ["age"]))
    # ties are no obstacle where there are enough values
    columns["age"] = np.where(np.arange(600) < 500, 0.0, np.arange(600.0))
    assert sl.summarize_log(columns, sl.Schema("spline(age, 4)", ["age"])).n_recorded == 4


def test_values_outside_a_domain_are_invalid_rows(tmp_path):
    columns = log(50)
    columns["weight"][7] = -2.0
    schema = sl.Schema("age + log(weight)", ["age", "weight"])
    with pytest.raises(
        InvalidRowsError, match=r"row 7 .* 'weight' is -2\.0 \(outside of what log\(weight\) is defined"
    ):
        sl.summarize_log(columns, schema)
    skipped = sl.summarize_log(columns, schema, on_invalid="skip")
    assert skipped.skipped == {"weight: outside of what log(weight) is defined for": 1}
    with pytest.raises(ContextError, match=r"log\(weight\) is not defined for 'weight' = 0"):
        skipped.schema.encode({"age": 1, "weight": 0})
    with pytest.raises(ContextError, match=r"row 1: feature 'weight' is 0 \(outside"):
        skipped.schema.encode_many(pa.table({"age": [1, 1], "weight": [3, 0]}))


def test_gaps_that_have_a_feature_are_no_mistake():
    columns = log(400)
    gaps = np.arange(400) % 5 == 0
    columns["weight"][gaps] = np.nan
    stage = columns["stage"].astype(object)
    stage[gaps] = None
    columns["stage"] = stage
    schema = sl.Schema(
        "age + spline(weight, 3) + missing(weight) + stage + missing(stage)", ["age", "weight", "stage"], intercept=True
    )
    with pytest.warns(sl.SidelightWarning, match="'stage' of the mapping holds text, so it is a category"):
        summary = sl.summarize_log(columns, schema)
    assert summary.n_rows == 400
    names = summary.schema.recorded_names
    assert summary.means[0][names.index("missing(weight)")] == pytest.approx(0.2, abs=0.05)
    encode = summary.schema.encode
    gap, there = encode({"age": 5, "weight": None, "stage": None}), encode({"age": 5, "weight": 99, "stage": "I"})
    at = {name: i for i, name in enumerate(summary.schema.encoded_names)}
    assert gap[at["missing(weight)"]] == gap[at["missing(stage)"]] == 1.0
    assert there[at["missing(weight)"]] == there[at["missing(stage)"]] == 0.0
    assert gap[at["weight"]] == pytest.approx(np.median(columns["weight"][~gaps]), rel=0.05)
    assert gap[at["stage=II"]] == gap[at["stage=III"]] == 0.0
    np.testing.assert_array_equal(encode({"age": 5}), gap)
    with pytest.raises(ContextError, match="'weight' where it says 'wieght'"):
        encode({"age": 5, "wieght": 3.0})
    table = pa.table({"age": [5.0, 5.0], "weight": [None, 99.0], "stage": [None, "I"]})
    np.testing.assert_array_equal(summary.schema.encode_many(table), [gap, there])
    assert len(sl.summarize_eras(columns, summary.schema)) == 1


# ------------------------------------------------------------------------------------------------ products


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    "formula",
    [
        "stage:dose",
        "stage + stage:dose",
        "dose + stage:dose",
        "stage*dose",
        "stage:sex",
        "stage*sex",
        "stage + stage:sex",
    ],
)
def test_products_repeat_nothing(formula, intercept):
    """With a constant no column is a combination of others, and the columns span all combinations."""
    rng = np.random.default_rng(1)
    columns = {"stage": rng.choice(STAGES, 300), "sex": rng.choice(["f", "m"], 300), "dose": rng.normal(size=300)}
    schema = sl.Schema(
        formula,
        [name for name in columns if name in formula],
        categories={name: levels for name, levels in (("stage", STAGES), ("sex", ["f", "m"])) if name in formula},
        intercept=intercept,
    )
    X = schema.encode_many({name: columns[name] for name in schema.recorded})
    rank = np.linalg.matrix_rank(X)
    if intercept or "sex" not in formula:
        assert rank == X.shape[1]
    onehot = [(columns["stage"] == level) * 1.0 for level in STAGES]
    other = [(columns["sex"] == s) * 1.0 for s in "fm"] if "sex" in formula else [columns["dose"]]
    products = np.column_stack([a * b for a, b in itertools.product(onehot, other)])
    assert np.linalg.matrix_rank(np.column_stack([X, products])) == rank


def test_levels_found_late_in_products_change_nothing(monkeypatch):
    """Batches in which new levels turn up give the same sums as levels that are known from the start."""
    from sidelight.logs import summarize as module

    monkeypatch.setattr(module, "batch_rows", lambda schema: 50)
    columns = log(600)
    order = np.argsort(columns["stage"], kind="stable")[::-1]
    columns = {name: values[order] for name, values in columns.items()}
    terms = "age + stage*smoker + stage:spline(weight, 3)"
    open_ = sl.summarize_log(columns, sl.Schema(terms, RECORDED[:4], categories=["stage"], intercept=True))
    known = sl.summarize_log(columns, sl.Schema(terms, RECORDED[:4], categories={"stage": STAGES}, intercept=True))
    assert open_.schema.recorded_names == known.schema.recorded_names
    np.testing.assert_allclose(open_.grams, known.grams, rtol=1e-10, atol=1e-10 * np.abs(known.grams).max())


def test_parts_of_a_log_with_other_levels_are_added():
    columns = log(600)
    terms = "age + stage*smoker + stage:spline(weight, knots=[60, 80, 100])"
    schema = sl.Schema(terms, RECORDED[:4], categories=["stage"], intercept=True)
    whole = sl.summarize_log(columns, schema)
    parts = []
    for levels in (["II", "III"], ["I"]):
        rows_ = np.isin(columns["stage"], levels)
        parts.append(sl.summarize_log({name: values[rows_] for name, values in columns.items()}, schema))
    for total in (parts[0] + parts[1], parts[1] + parts[0]):
        assert total.schema == whole.schema
        np.testing.assert_allclose(total.grams, whole.grams, rtol=1e-9, atol=1e-9 * np.abs(whole.grams).max())
        np.testing.assert_allclose(total.cross, whole.cross, rtol=1e-9, atol=1e-9 * np.abs(whole.cross).max())


# ------------------------------------------------------------------------------------------ kept and used


def test_what_was_found_is_kept(summary, tmp_path):
    again = sl.Schema.from_dict(json.loads(json.dumps(summary.schema.to_dict())))
    assert again == summary.schema
    summary.save(tmp_path / "s.summary")
    loaded = sl.LogSummary.load(tmp_path / "s.summary")
    assert loaded.schema == summary.schema
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary))
    learner.save(tmp_path / "l.learner")
    context = {"age": 40, "weight": 70, "stage": "III", "smoker": 0, "visit": dt.date(2024, 1, 1)}
    same = sl.load_learner(tmp_path / "l.learner")
    assert same.decide(context) == learner.decide(context)
    np.testing.assert_array_equal(same.schema.encode(context), summary.schema.encode(context))


def test_knots_of_one_part_serve_another(summary):
    columns = log(600)
    first = {name: values[:300] for name, values in columns.items()}
    second = {name: values[300:] for name, values in columns.items()}
    schema = summary.schema
    total = sl.summarize_log(first, schema) + sl.summarize_log(second, schema)
    np.testing.assert_allclose(total.grams, summary.grams, rtol=1e-9, atol=1e-9 * np.abs(summary.grams).max())
    fitted = sl.Schema("age + spline(weight, 4)", ["age", "weight"]).fit(columns)
    assert not fitted.unfitted
    assert sl.summarize_log(first, fitted).schema.derived == fitted.derived
    other = sl.Schema("age + spline(weight, 4)", ["age", "weight"])
    with pytest.raises(SchemaError, match="different schemas"):
        sl.summarize_log(first, other) + sl.summarize_log(second, other)


def test_knots_do_not_depend_on_batches(monkeypatch):
    from sidelight.logs.schema import fitting

    monkeypatch.setattr(fitting, "_SAMPLE", 100)
    columns = log(999)
    schema = sl.Schema("spline(age, 4) + bins(weight, 5)", ["age", "weight"])
    found = []
    for rows_ in (7, 64, 5_000):
        monkeypatch.setattr(fitting, "_ROWS", rows_)
        found.append(schema.fit(columns).derived)
    assert found[0] == found[1] == found[2]


def test_a_source_that_can_be_read_once_needs_knots():
    table = pa.table({name: values for name, values in log(100).items() if name != "visit"})
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    with pytest.raises(InputError, match="can be read only once"):
        sl.summarize_log(reader, sl.Schema("age + spline(weight, 4)", ["age", "weight"]))
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    given = sl.Schema("age + spline(weight, knots=[60, 80, 100]) + stage", ["age", "weight", "stage"])
    with pytest.warns(sl.SidelightWarning, match="text"):
        assert sl.summarize_log(reader, given).n_rows == 100


def test_eras_share_knots_and_lack_what_derives_from_a_gap():
    columns = log(400)
    columns["weight"][:200] = np.nan
    schema = sl.Schema("age + spline(weight, 3) + age:weight", ["age", "weight"], intercept=True)
    eras = sl.summarize_eras(columns, schema)
    assert set(eras) == {("age", "weight"), ("age",)}
    assert eras[("age",)].schema.recorded_names == ("intercept", "age")
    assert eras[("age", "weight")].n_recorded == 6
    assert eras[("age",)].schema.derived == eras[("age", "weight")].schema.derived


@given(st.integers(0, 10_000), st.sampled_from([None, "Europe/Berlin", "Asia/Kolkata", "America/New_York"]))
@settings(max_examples=60, deadline=None)
def test_times_of_any_zone_are_read_alike(hours, zone):
    moment = dt.datetime(2023, 3, 1, tzinfo=dt.UTC) + dt.timedelta(hours=hours, minutes=hours % 60)
    schema = sl.Schema([sl.Date("t", zone)], ["t"], derived="hour(t) + weekday(t) + days_since(t, '2023-01-01')")
    instants = pa.array([moment])
    expected = schema.encode({"t": moment})
    elsewhere = moment.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30)))
    for other in (elsewhere, elsewhere.isoformat(), instants[0]):
        np.testing.assert_array_equal(schema.encode({"t": other}), expected)
    for column in (instants, instants.cast(pa.timestamp("ms", "Asia/Tokyo")), pa.array([elsewhere.isoformat()])):
        np.testing.assert_array_equal(schema.encode_many(pa.table({"t": column}))[0], expected)


def test_what_is_derived_has_prior_variances_of_its_own():
    """Bends of recorded and of hidden features are two blocks, so that in straight worlds they alone are shrunk."""
    rng = np.random.default_rng(0)
    knots = [-1.0, 0.0, 1.0]
    schema = sl.Schema(
        ["a", "b", "h"], ["a", "b"], intercept=True, derived=[sl.Spline("a", knots=knots), sl.Spline("h", knots=knots)]
    )
    a, b, arm = rng.normal(size=3_000), rng.normal(size=3_000), rng.integers(0, 3, 3_000)
    log = {"a": a, "b": b, "arm": arm, "reward": (arm + 1) * a - b + 0.3 * rng.normal(size=3_000)}
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(log, schema)))
    names = [learner.schema.encoded_names[i] for i in learner.reduction.order]
    blocks = [[names[i] for i in block] for block in learner.automatic.blocks]
    assert blocks[:3] == [["a", "b"], ["h"], ["intercept"]]
    assert blocks[3:] == [list(learner.schema.term_names(term)) for term in learner.schema.derived]
    straight, bends = learner.automatic.hyper.variances[0], learner.automatic.hyper.variances[3]
    assert bends < straight / 16
    # a file whose prior had other blocks is read, and searched for anew
    state = learner.state()
    state["auto_hyper"] = state["auto_hyper"][:4]
    learner.restore(state)
    assert learner.automatic.hyper is None
    x = learner.schema.encode({"a": 0.1, "b": 0.2, "h": 0.3})
    for t in range(40):
        learner.observe(x + 0.1 * t, t % 3, float(t))
    assert learner.automatic.hyper is not None


@pytest.mark.parametrize("year", [1912, 1969, 2024, 2037, 2038, 2061, 9999])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Sydney", "Africa/Monrovia"])
def test_clocks_change_in_a_column_when_they_do_in_a_context(year, zone):
    """Also after 2037, where zone files end with a rule instead of a list of changes."""
    start = dt.datetime(year, 1, 1, 0, 30, tzinfo=dt.UTC)
    moments = [start + dt.timedelta(hours=37 * i) for i in range(230)]
    schema = sl.Schema([sl.Date("t", zone)], ["t"], derived="hour(t) + days_since(t, '2023-01-01')")
    expected = np.array([schema.encode({"t": moment}) for moment in moments])
    for unit in ("s", "us"):
        column = pa.array(moments, pa.timestamp(unit, "UTC"))
        np.testing.assert_array_equal(schema.encode_many(pa.table({"t": column})), expected)


def test_a_moment_beyond_the_calendar_says_so():
    schema = sl.Schema([sl.Date("t", "Asia/Tokyo")], ["t"], derived="weekday(t)")
    with pytest.raises(ContextError, match="beyond the calendar on the clocks of Asia/Tokyo"):
        schema.encode({"t": "9999-12-31T23:00:00+00:00"})
    assert np.isfinite(schema.encode_many(pa.table({"t": pa.array([253402297200], pa.timestamp("s", "UTC"))}))).all()


@pytest.mark.parametrize("formula", ["missing(stage):spline(weight, 3)", "spline(weight, 3):missing(stage)"])
def test_every_factor_of_a_product_finds_what_it_needs(formula):
    """The gaps of a category need no sample, whichever factor they are."""
    columns = log()
    stages = columns["stage"].astype(object)
    stages[::5] = None
    schema = sl.Schema(f"stage + weight + missing(stage) + {formula}", ["stage", "weight"], categories=["stage"])
    found = sl.summarize_log(pa.table({**columns, "stage": pa.array(stages)}), schema).schema
    assert found.resolved
    assert schema.unfitted
    x = found.encode({"stage": None, "weight": 80.0})
    bend = found.encoded_names.index(found.term_names(found.derived[1])[1])
    assert x[bend] != 0.0
    assert found.encode({"stage": "II", "weight": 80.0})[bend] == 0.0


def test_a_baseline_that_no_row_has_is_a_level_without_a_column():
    stage = sl.Category("stage", baseline="0")
    for derived in ((), ("age**2", "stage:age")):
        schema = sl.Schema(["age", stage], ["age", "stage"], derived=derived)
        found = sl.summarize_log(log(), schema).schema
        context = {"stage": "0", "age": 3.0}
        expected = [{"age": 3.0, "age**2": 9.0}.get(name, 0.0) for name in found.encoded_names]
        np.testing.assert_array_equal(found.encode(context), expected)
        np.testing.assert_array_equal(found.encode_many(pa.table({"stage": ["0"], "age": [3.0]}))[0], expected)


def test_gaps_are_gaps_in_the_users_units():
    """Not the baseline, nor the number that a gap counts as: an exported row must have the gap again."""
    columns = log()
    schema = sl.Schema(
        "age + stage + missing(age, 50) + missing(stage)", ["age", "stage"], categories=["stage"], intercept=True
    )
    found = sl.summarize_log(columns, schema).schema
    gone = {"age": None, "stage": None}
    assert in_units(found.encode(gone), found) == {**gone, "missing(age)": 1.0, "missing(stage)": 1.0}
    there = {"age": 61.0, "stage": "I"}
    assert in_units(found.encode(there), found) == {**there, "missing(age)": 0.0, "missing(stage)": 0.0}


def test_everything_that_contributes_has_its_value(summary):
    schema = summary.schema
    context = rows(log())[0]
    x = schema.encode(context)
    values = values_to_json(x, schema)
    assert values.keys() == contributions(x, x, schema).keys()
    columns = dict(zip(schema.encoded_names, x.tolist(), strict=True))
    assert values["intercept"] == 1.0
    assert values["stage"] == context["stage"]
    assert values["days_since(visit)"] == columns["days_since(visit)"] > 1.0
    assert values["weekday(visit)"] == {name: columns[name] for name in ("sin weekday(visit)", "cos weekday(visit)")}
    assert values["log(weight, 1.0)"] == math.log(context["weight"] + 1.0)


def test_a_product_is_kept_once_in_whichever_order_its_factors_are_written():
    assert [t.label for t in sl.Schema("age*weight + weight:age", recorded=["age"]).derived] == ["age:weight"]
    schema = sl.Schema(["a", "b", "c"], ["a"], derived=["b:a:c", sl.Product("a", "b")])
    assert [t.label for t in schema.with_derived(["b:a", "c:b:a", "b:c"]).derived] == ["b:a:c", "a:b", "b:c"]
