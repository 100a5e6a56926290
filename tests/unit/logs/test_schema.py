"""The schema: what is encoded where, and that a log and a context cannot be encoded differently."""

from __future__ import annotations

import datetime as dt
import decimal
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidelight.errors import ContextError, SchemaError, UnknownArmError
from sidelight.logs.schema.features import Category, Number
from sidelight.logs.schema.schema import Schema

CITIES = ["Rome", "Paris", "Zürich"]


def mixed(**changes):
    settings_ = {"recorded": ["age", "city"], "arms": ["low", "high"], "categories": {"city": CITIES}}
    return Schema(["age", "smoker", "city"], **{**settings_, **changes})


def test_layout_without_intercept():
    schema = mixed()
    assert schema.encoded_names == ("age", "smoker", "city=Rome", "city=Paris", "city=Zürich")
    assert schema.recorded_index.tolist() == [0, 2, 3, 4]
    assert schema.hidden_index.tolist() == [1]
    assert (schema.n_features, schema.n_recorded) == (5, 4)
    assert schema.resolved
    np.testing.assert_array_equal(
        schema.encode({"age": 40, "smoker": True, "city": "Paris"}), [40.0, 1.0, 0.0, 1.0, 0.0]
    )


def test_an_intercept_is_recorded_and_takes_the_first_level():
    schema = mixed(intercept=True)
    assert schema.encoded_names == ("intercept", "age", "smoker", "city=Paris", "city=Zürich")
    assert schema.recorded_index.tolist() == [0, 1, 3, 4]
    np.testing.assert_array_equal(schema.encode({"age": 2, "smoker": 0, "city": "Rome"}), [1, 2, 0, 0, 0])
    nothing_recorded = Schema(["a"], [], intercept=True)
    assert nothing_recorded.recorded_index.tolist() == [0]


def test_recorded_keeps_the_order_of_the_features():
    schema = Schema(["c", "a", "b"], recorded=["b", "c"])
    assert schema.recorded == ("c", "b")
    assert schema.recorded_index.tolist() == [0, 2]


def test_for_arrays():
    schema = Schema.for_arrays(5, [4, 1], n_arms=3)
    assert schema.encoded_names == ("x0", "x1", "x2", "x3", "x4")
    assert schema.recorded_index.tolist() == [1, 4]
    assert schema.arms == (0, 1, 2)
    assert Schema.for_arrays(5, 2).hidden_index.tolist() == [2, 3, 4]
    assert not Schema.for_arrays(5, 2).resolved
    with pytest.raises(SchemaError, match="recorded=6 features of 5"):
        Schema.for_arrays(5, 6)
    with pytest.raises(SchemaError, match=r"\[7\] are outside 0 .. 4"):
        Schema.for_arrays(5, [1, 7])


numbers = st.one_of(
    st.floats(-1e9, 1e9),
    st.integers(-(2**53), 2**53),
    st.booleans(),
    st.decimals(-1000, 1000, allow_nan=False, places=3),
)


@given(st.lists(st.tuples(numbers, st.booleans(), st.sampled_from(CITIES)), min_size=1, max_size=8), st.booleans())
@settings(max_examples=80, deadline=None)
def test_a_log_and_a_context_are_encoded_alike(rows, intercept):
    schema = mixed(intercept=intercept, recorded=["age", "smoker", "city"])
    # Arrow columns have one type each; a column of each kind of number in the rows.
    for kind in {type(row[0]) for row in rows}:
        chosen = [row for row in rows if type(row[0]) is kind]
        table = pa.table(
            {
                "age": pa.array([row[0] for row in chosen]),
                "smoker": pa.array([row[1] for row in chosen]),
                "city": pa.array([row[2] for row in chosen]).dictionary_encode(),
            }
        )
        contexts = [{"age": a, "smoker": s, "city": c} for a, s, c in chosen]
        together = schema.encode_many(table)
        np.testing.assert_array_equal(together, np.array([schema.encode(context) for context in contexts]))
        np.testing.assert_array_equal(together, schema.encode_many(contexts))
        np.testing.assert_array_equal(together, schema.encode_recorded(table))
        np.testing.assert_array_equal(together, schema.encode_many(pd.DataFrame(contexts)))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, 3], pa.int8()),
        pa.array([1, 2, 3], pa.uint64()),
        pa.array([1, 2, 3], pa.float16()),
        pa.array([1, 2, 3], pa.float32()),
        pa.array([decimal.Decimal("1.0"), decimal.Decimal("2.0"), decimal.Decimal("3.0")]),
        pa.array(["1", " 2", "3.0"]),
        pa.array([1, 2, 3]).dictionary_encode(),
        pa.array(["1", "2", "3"]).dictionary_encode(),
        pa.array(["1", "2", "3"], pa.large_string()),
    ],
    ids=str,
)
def test_number_columns_of_any_type(column):
    schema = Schema(["a"], ["a"])
    np.testing.assert_array_equal(schema.encode_many(pa.table({"a": column})), [[1.0], [2.0], [3.0]])


def test_encoded_arrays_pass_and_wrong_ones_do_not():
    schema = Schema.for_arrays(3, 1)
    given_ = np.array([1.0, 2.0, 3.0])
    encoded = schema.encode(given_)
    np.testing.assert_array_equal(encoded, given_)
    encoded[0] = 9
    assert given_[0] == 1.0
    with pytest.raises(ContextError, match=r"3 values \('x0', 'x1', 'x2'\), but this has shape \(2,\)"):
        schema.encode([1.0, 2.0])
    with pytest.raises(ContextError, match="'x1' is nan"):
        schema.encode([1.0, np.nan, 2.0])
    with pytest.raises(ContextError, match="'x2' is inf in row 1"):
        schema.encode_many(np.array([[1, 2, 3], [1, 2, np.inf]]))


@pytest.mark.parametrize(
    ("context", "says"),
    [
        ({"age": 1, "smoker": 1}, "lacks 'city'"),
        ({"age": 1, "smokr": 1, "city": "Rome"}, "'smoker' where it says 'smokr'"),
        ({"age": 1, "smoker": 1, "city": "Oslo"}, "'Oslo', a level that is not one of the declared levels: 'Rome'"),
        ({"age": 1, "smoker": 1, "city": None}, "'city' is missing"),
        ({"age": None, "smoker": 1, "city": "Rome"}, "'age' is missing"),
        ({"age": float("inf"), "smoker": 1, "city": "Rome"}, "'age' is inf"),
        ({"age": "old", "smoker": 1, "city": "Rome"}, "'age' is 'old', which is not a number"),
        ({"age": [1], "smoker": 1, "city": "Rome"}, r"'age' is \[1\] \(list\)"),
    ],
)
def test_contexts_that_cannot_be_encoded(context, says):
    with pytest.raises(ContextError, match=says):
        mixed().encode(context)


def test_a_level_not_seen_in_the_log_says_so():
    schema = Schema(["city"], ["city"], categories=["city"]).resolve(["a"], {"city": ["Rome", "Paris"]})
    assert schema.encoded_names == ("city=Paris", "city=Rome")
    with pytest.raises(ContextError, match="was not seen in the log"):
        schema.encode({"city": "Oslo"})
    with pytest.raises(
        ContextError, match=r"row 1: feature 'city' is 'Oslo' \(a level that was not seen in the log: 'Paris', 'Rome'"
    ):
        schema.encode_many(pa.table({"city": ["Rome", "Oslo"]}))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"features": ["a", "a"], "recorded": []}, "'a' are listed twice"),
        ({"features": ["a"], "recorded": ["b"]}, "recorded 'b' is not among the features 'a'"),
        ({"features": ["weight"], "recorded": ["wieght"]}, "Did you mean 'weight'"),
        ({"features": ["a"], "recorded": ["a", "a"]}, "recorded lists 'a' twice"),
        ({"features": [], "recorded": []}, "no features and no intercept"),
        ({"features": "age,", "recorded": []}, "the formula 'age,' cannot be read at ','"),
        ({"features": ["a"], "recorded": "a"}, "recorded must be a list"),
        ({"features": ["a", 3], "recorded": ["a"]}, "not 3"),
        ({"features": ["a"], "recorded": ["a"], "arms": ["x", "x"]}, "arms lists a label twice"),
        ({"features": ["a"], "recorded": ["a"], "arms": []}, "arms is empty"),
        ({"features": ["a"], "recorded": ["a"], "arms": 3}, r"give range\(3\)"),
        ({"features": ["a"], "recorded": ["a"], "arms": [float("nan")]}, "nan cannot be a label"),
        ({"features": ["a"], "recorded": ["a"], "arm": "a"}, "named as the arm and as a feature"),
        ({"features": ["a"], "recorded": ["a"], "arm": "r", "reward": "r"}, "the reward and as the arm"),
        ({"features": ["a"], "recorded": ["a"], "categories": ["b"]}, "categories 'b' are not among the features"),
        ({"features": ["a"], "recorded": ["a"], "categories": {"a": []}}, "has no levels"),
        ({"features": ["intercept"], "recorded": [], "intercept": True}, "rename the feature"),
    ],
)
def test_schemas_that_do_not_fit(arguments, says):
    with pytest.raises(SchemaError, match=says):
        Schema(**arguments)


def test_unknown_levels_must_be_found_first():
    schema = Schema(["city"], ["city"], categories=["city"])
    assert not schema.resolved
    with pytest.raises(SchemaError, match="levels of 'city' are not known yet"):
        schema.n_features


LABELS = ["text", 3, 2.5, True, dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30), decimal.Decimal("1.10")]


@pytest.mark.parametrize("label", LABELS, ids=repr)
def test_labels_of_any_type_survive_json(label):
    schema = Schema(
        ["a", Category("c", (label, "other")), "n"], ["c"], arms=[label, "b"], intercept=True, propensity="p"
    )
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    assert again.arms is not None
    assert (again.arms[0], type(again.arms[0])) == (label, type(label))
    assert again.encoded_names == schema.encoded_names


def test_arm_index():
    schema = Schema(["a"], ["a"], arms=["x", 1, 2.5])
    assert [schema.arm_index(label) for label in ("x", 1, np.int64(1), 2.5)] == [0, 1, 1, 2]
    with pytest.raises(UnknownArmError, match=r"'y' is not one of the arms: 'x', 1, 2\.5"):
        schema.arm_index("y")


def test_discovered_arms_have_an_order_of_their_own():
    schema = Schema(["a"], ["a"])
    found = schema.resolve(["b", 2, 10, "a", 1.5])
    assert found.arms == (1.5, 2, 10, "a", "b")
    assert found.resolve([99]).arms == (99,)
    declared = Schema(["a"], ["a"], arms=["z", "y"])
    assert declared.resolve(["q"]).arms == ("z", "y")


def test_specs_can_be_written_out():
    schema = Schema([Number("a"), Category("c", ("x", "y"), baseline="y")], ["a", "c"])
    assert schema.encoded_names == ("a", "c=x")
    assert schema.encode({"a": 1, "c": "y"}).tolist() == [1.0, 0.0]
    with pytest.raises(SchemaError, match="baseline 'z', which is not one of its levels"):
        Category("c", ("x", "y"), baseline="z")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Schema(["a", "b"], None), r"recorded must be the names .* not None\. For a log .* give \[\]"),
        (lambda: Schema(["a"], 3), "recorded must be the names .* not 3"),
        (lambda: Schema(None, ["a"]), "features must be a list of names or a formula, not None"),
        (
            lambda: Schema(["a"], ["a"], categories=5),
            "categories must be a list of names or a mapping to levels, not 5",
        ),
    ],
)
def test_what_is_no_list_is_named(make, says):
    with pytest.raises(SchemaError, match=says):
        make()
