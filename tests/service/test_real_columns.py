"""A service whose schema has dates, derived features, gaps and two eras: the same decision as in Python."""

from __future__ import annotations

import datetime as dt
from collections import namedtuple
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest

import sidelight as sl
from sidelight.learners.saving import learner_bytes
from sidelight.service.client import Client
from sidelight.service.config import initial_config, load_config, save_config
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from sidelight.service.http.auth import SCOPES, create_token
from tests.service.helpers import post, serving

FORMULA = (
    "age + spline(weight, 4) + missing(weight) + stage*age + log(dose, 1) + weekday(visit) + days_since(visit)"
    " + hour(visit, 'Europe/Berlin') + pain"
)
RECORDED = ["age", "weight", "stage", "dose", "visit"]


def log(n=900):
    rng = np.random.default_rng(2)
    weight = np.where(rng.random(n) < 0.2, np.nan, rng.normal(70, 9, n))
    weight[: n // 3] = np.nan
    return {
        "age": rng.normal(50, 9, n),
        "weight": weight,
        "stage": rng.choice(["I", "II", "III"], n),
        "dose": rng.uniform(0, 3, n),
        "visit": np.datetime64("2023-01-02T08:00") + rng.integers(0, 500_000, n).astype("timedelta64[m]"),
        "era": np.where(np.arange(n) < n // 3, "old", "new"),
        "arm": rng.choice(["low", "high"], n),
        "reward": rng.normal(size=n),
    }


CONTEXT = {"age": 61.0, "weight": 78.5, "stage": "II", "dose": 1.5, "visit": "2024-07-01T09:30:00+02:00", "pain": 2.0}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("columns")
    schema = sl.Schema(FORMULA, RECORDED, arms=["low", "high"], categories=["stage"], intercept=True)
    eras = sl.summarize_eras(log(), schema, by="era")
    names = {str(key): f"{key}.summary" for key in eras}
    for key, summary in eras.items():
        summary.save(folder / f"{key}.summary")
    first = next(iter(eras.values()))
    save_config(initial_config(first.schema, summaries=names, mode="act", port=0), folder / "sidelight.toml")
    config = load_config(folder / "sidelight.toml")
    store = open_store(config)
    token = create_token(store, "all", SCOPES)
    with serving(folder) as server:
        yield server, token, config
    store.close()


def test_a_service_decides_as_python_does(service):
    server, token, config = service
    learner = config.build_learner()
    assert list(learner.estimators()) == ["new", "old"]
    schema = config.load_schema()
    expected = learner.decide(CONTEXT)
    gap = learner.decide({**CONTEXT, "weight": None})
    moment = dt.datetime.fromisoformat(CONTEXT["visit"])
    with Client(server.url, token=token) as client:
        for context in (
            CONTEXT,
            {**CONTEXT, "visit": moment},
            pd.Series({**CONTEXT, "visit": pd.Timestamp(moment)}),
            namedtuple("Row", CONTEXT)(**CONTEXT),
            schema.encode(CONTEXT).tolist(),
        ):
            decided = client.decide(context)
            assert decided.recommended == expected.arm
            assert (decided.estimate, decided.width) == pytest.approx((expected.estimate, expected.width), rel=1e-12)
        quoted = {name: str(v) if isinstance(v, float) else v for name, v in CONTEXT.items()}
        for context in (quoted, {**CONTEXT, "age": "0061.00"}):
            decided = client.decide_many([context, CONTEXT])
            assert [d.estimate for d in decided] == [client.decide(CONTEXT).estimate] * 2
            assert client.decide(context).estimate == decided[0].estimate
        for context in ({**CONTEXT, "weight": None}, {k: v for k, v in CONTEXT.items() if k != "weight"}):
            assert client.decide(context).estimate == pytest.approx(gap.estimate, rel=1e-12)
        both = client.decide_many(pd.DataFrame([CONTEXT, CONTEXT]))
        assert [decision.recommended for decision in both] == [expected.arm] * 2


@pytest.mark.parametrize(
    ("changes", "pointer", "says"),
    [
        ({"visit": "yesterday"}, "/context/visit", "is no date"),
        ({"visit": 17}, "/context/visit", "17"),
        ({"dose": -1.0}, "/context", "log(dose, 1.0) is not defined for 'dose' = -1.0"),
        ({"stage": "IV"}, "/context/stage", "'IV' is not one of the levels"),
        ({"age": "old"}, "/context/age", "'old' is not a number"),
        ({"age": "61,5"}, "/context/age", "'61,5' is not a number"),
        ({"age": "nan"}, "/context/age", "'nan' is not a number"),
        ({"age": "1e300"}, "/context/age", "'1e300' is larger than 1e+09"),
        ({"age": "6.1e1"}, "/context/age", "'6.1e1' is not a plain decimal"),
        ({"age": " 61"}, "/context/age", "' 61' is not a plain decimal"),
        ({"age": "6" * 100}, "/context/age", "is not short enough"),
        ({"age": [61]}, "/context/age", "[61] is not a number"),
        ({"customer": "c1"}, "/context/customer", "is not a feature of this service"),
    ],
)
def test_what_is_wrong_is_said(service, changes, pointer, says):
    server, token, _ = service
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}) as client:
        answer = post(client, "/v1/decisions", {"context": {**CONTEXT, **changes}})
        assert answer.status_code == 422
        errors = answer.json()["errors"]
        assert any(error["pointer"].startswith(pointer) and says in error["detail"] for error in errors), errors


# ------------------------------------------------------------------------------------------------- gaps

GAPPY = {"age": 61.0, "dose": 1.5, "stage": "II", "pain": 2.0}


@pytest.fixture(scope="module")
def imputing(tmp_path_factory):
    """A service that infers every gap but the dose's."""
    folder: Path = tmp_path_factory.mktemp("gaps")
    rng = np.random.default_rng(3)
    n = 900
    age = rng.normal(50, 9, n)
    table = {
        "age": age,
        "dose": 0.02 * age + rng.normal(size=n),
        "stage": rng.choice(["I", "II", "III"], n),
        "arm": rng.choice(["low", "high"], n),
        "reward": rng.normal(size=n),
    }
    schema = sl.Schema(
        ["age", "dose", "stage", "pain"],
        ["age", "dose", "stage"],
        arms=["low", "high"],
        intercept=True,
        categories=["stage"],
        missing={"age": "impute", "stage": "impute", "pain": "impute"},
    )
    summary = sl.summarize_log(table, schema)
    summary.save(folder / "log.summary")
    save_config(
        initial_config(summary.schema, summaries={"log": "log.summary"}, mode="act", port=0), folder / "sidelight.toml"
    )
    config = load_config(folder / "sidelight.toml")
    store = open_store(config)
    token = create_token(store, "all", SCOPES)
    with serving(folder) as server:
        yield server, token, config
    store.close()


def gappy_contexts(schema):
    """The same context with gaps in its several forms, and without."""
    gap = {**GAPPY, "age": None, "stage": None}
    absent = {"dose": 1.5, "pain": 2.0}
    array = [None if np.isnan(value) else float(value) for value in schema.encode(gap)]
    return [gap, absent, array]


def test_a_service_decides_on_contexts_with_gaps_as_python_does(imputing):
    server, token, config = imputing
    learner, schema = config.build_learner(), config.load_schema()
    rng = np.random.default_rng(4)
    with Client(server.url, token=token) as client:
        for t in range(30):
            context = {
                "age": None if t % 3 == 0 else float(rng.normal(50, 9)),
                "dose": float(rng.normal()),
                "stage": None if t % 5 == 0 else ["I", "II", "III"][t % 3],
                "pain": float("nan") if t % 4 == 1 else float(rng.normal()),
            }
            decided = client.decide(context, behavior=["low", "high"][t % 2])
            learner.observe_behavior(context, ["low", "high"][t % 2])
            client.reward(decided.id, reward := float(rng.normal()))
            learner.observe(context, decided.arm, reward)
        expected = learner.decide({"dose": 1.5, "pain": 2.0})
        for context in (*gappy_contexts(schema), pd.Series({**GAPPY, "age": np.nan, "stage": None})):
            decided = client.decide(context)
            assert decided.estimate == pytest.approx(expected.estimate, rel=1e-12)
        many = client.decide_many(pd.DataFrame([{**GAPPY, "age": np.nan, "stage": None}, GAPPY]))
        assert many[0].estimate == pytest.approx(expected.estimate, rel=1e-12)
        told = client.decision(many[0].id)
        assert told["context"]["age"] is None
        assert told["context"]["stage"] is None
        parts = {part["feature"]: part for part in told["explanation"]["arms"][0]["features"]}
        assert parts["age"]["value"] is None
        assert parts["age"]["contribution"] is not None
        summed = sum(part["contribution"] for part in parts.values())
        assert summed == pytest.approx(told["explanation"]["arms"][0]["estimate"])
    store = open_store(config)
    try:
        again = recover(store, use_snapshots=False).state.learner
    finally:
        store.close()
    assert learner_bytes(again) == learner_bytes(learner)


@pytest.mark.parametrize(
    ("context", "pointer", "says"),
    [
        ({**GAPPY, "dose": None}, "/context/dose", "is null"),
        ({"age": 61.0, "pain": None, "stage": "II"}, "/context/dose", "is missing"),
        ({**GAPPY, "stage": "IV", "age": None}, "/context/stage", "'IV' is not one of the levels"),
        ([1.0, None, None, None, None, 2.0], "/context/2", "is missing"),
        ([None, 61.0, 1.5, 0.0, 0.0, 2.0], "/context/0", "intercept"),
    ],
)
def test_a_gap_that_may_not_be_is_named(imputing, context, pointer, says):
    server, token, _ = imputing
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}) as client:
        answer = post(client, "/v1/decisions", {"context": context})
        assert answer.status_code == 422, answer.text
        errors = answer.json()["errors"]
        assert [error["pointer"] for error in errors] == [pointer], errors
        assert says in errors[0]["detail"]
