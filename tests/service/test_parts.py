"""The service's small parts: events in rows, strict JSON, contexts, tokens, the client's retries."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sidelight as sl
from sidelight.errors import InputError, ServiceError, StoreError
from sidelight.logs.schema.units import units_to_json
from sidelight.service.client import Client, ServiceProblem
from sidelight.service.config import Limits
from sidelight.service.core.contexts import ContextReader, Labels
from sidelight.service.http.auth import Token, Tokens, _digest, create_token, list_tokens
from sidelight.service.http.bodies import Bodies
from sidelight.service.http.wire import _careful, parse
from sidelight.service.log import events as ev
from sidelight.service.log.connections import database_url
from sidelight.service.log.store import Store
from sidelight.service.problems import Problem
from tests.service.helpers import make_schema

finite = st.floats(allow_nan=False, allow_infinity=False)


# -------------------------------------------------------------------------------------------- events


@settings(deadline=None, max_examples=50)
@given(
    rows=st.lists(st.tuples(st.lists(finite, min_size=3, max_size=3), finite, finite), min_size=1, max_size=4),
    arm=st.sampled_from(["a", 1, 2.5, True, dt.date(2020, 1, 2)]),
    extra=st.booleans(),
)
def test_decisions_survive_the_store_bit_for_bit(rows, arm, extra):
    n = len(rows)
    event = ev.Decisions(
        contexts=np.array([row[0] for row in rows]),
        arms=[None if extra else arm] * n,
        recommended=[arm] * n,
        estimates=[row[1] for row in rows],
        widths=[row[2] for row in rows],
        propensities=[None if extra else 0.1] * n,
        routes=["learner"] * n,
        asked=[extra] * n,
        query_probabilities=[0.3] * n,
        version=7,
        mode="act",
        share=1 / 3,
        allowed=[[arm], *[None] * (n - 1)] if extra else None,
        answers=[ev.Answer(arm, (0.25, 0.75), 0.1)] + [None] * (n - 1) if extra else None,
        subjects=["s", *[None] * (n - 1)] if extra else None,
        fingerprint="f" if extra else None,
    )
    back = ev.event_from_row(ev.event_to_row(event, 9, 1.0, None), 3)
    assert back.contexts.tobytes() == event.contexts.tobytes()
    for name in event.__dataclass_fields__:
        if name != "contexts":
            assert getattr(back, name) == getattr(event, name), name
    assert [type(a) for a in back.recommended] == [type(arm)] * n


def test_the_short_way_writes_the_same_text_as_the_long_way():
    event = ev.Decisions(
        np.ones((1, 2)), ["a"], ["a"], [0.1], [1e-17], [1.0], ["learner"], [True], [1.0], 3, "act", 1.0
    )
    short = ev._decisions_payload(event)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ev, "_single_payload", lambda event: (_ for _ in ()).throw(AssertionError))
        long = json.loads(ev._decisions_payload(dataclasses.replace(event, fingerprint="x")))
    long.pop("fingerprint")
    assert json.loads(short) == long


def test_altered_events_are_errors():
    row = ev.Row(3, "reward", 0.0, None, '{"decision": [1, 0]}')
    with pytest.raises(StoreError, match="event 3"):
        ev.event_from_row(row, 2)
    with pytest.raises(StoreError, match="event 3"):
        ev.event_from_row(ev.Row(3, "surprise", 0.0, None, "{}"), 2)


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("1", (1, 0)),
        ("12.7", (12, 7)),
        ("1.0", None),
        ("01", None),
        ("", None),
        ("1.", None),
        (".1", None),
        ("1.2.3", None),
        ("-1", None),
        ("¹", None),
        ("1" * 19, None),
    ],
)
def test_ids_have_one_spelling(text, id):
    assert ev.DecisionId.parse(text) == id
    if id is not None:
        assert str(ev.DecisionId(*id)) == text


# ---------------------------------------------------------------------------------------------- JSON

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | finite | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=60)
@given(json_values, st.booleans())
def test_the_fast_parser_agrees_with_the_careful_one(value, spaces):
    body = json.dumps(value, separators=None if spaces else (",", ":")).encode()
    fast, careful = parse(body), _careful(body)
    assert fast == careful == value
    assert json.dumps(fast) == json.dumps(careful), "floats to the last bit, and their types"


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_no_bytes_crash_the_parser(body):
    try:
        parse(body)
    except Problem as problem:
        assert problem.status == 400  # noqa: PT017 - most bytes are refused, some are JSON


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":1}',
        b'{"x":{"a":1,"b":2,"a":3}}',
        b'[{"a" : 1 , "a" : 2}]',
        b'{"a:":1,"b":2,"b":3}',
        b'{"a":":","b":1,"b":1}',
    ],
)
def test_duplicate_keys_are_always_found(body):
    with pytest.raises(Problem, match="twice"):
        parse(body)


# ------------------------------------------------------------------------------------------ contexts


def test_one_by_one_and_many_at_once_are_the_same():
    reader = ContextReader(make_schema(), 1e9)
    rng = np.random.default_rng(4)
    contexts = [
        {
            "age": float(rng.normal()),
            "dose": int(rng.integers(9)),
            "ward": w,
            "severity": bool(rng.integers(2)),
            "pain": 0,
        }
        for w in ["north", "south", "east"] * 3
    ]
    X = reader.read_many(contexts, "/{}")
    schema = make_schema()
    for x, context in zip(X, contexts, strict=True):
        assert (x == reader.read(context, "")).all()
        assert (x == schema.encode(context)).all()
        assert units_to_json(x, schema) == {k: float(v) if k != "ward" else v for k, v in context.items()}
    assert (reader.read_many([x.tolist() for x in X], "/{}") == X).all()
    mixed = [contexts[0], X[1].tolist(), contexts[2]]
    assert (reader.read_many(mixed, "/{}") == X[:3]).all()


def test_numbers_only_take_the_short_way_and_are_checked_alike():
    schema = sl.Schema(["a", "b"], recorded=["a"], arms=[1, 2])
    reader = ContextReader(schema, 1e6)
    assert reader.read({"a": 1, "b": True}, "").tolist() == [1.0, 1.0]
    for bad in (
        {"a": 1},
        {"a": 1, "b": "1"},
        {"a": 1, "b": 1e7},
        {"a": 1, "c": 1},
        {"a": 1, "b": 1, "c": 1},
        {"a": None, "b": 1},
    ):
        with pytest.raises(Problem) as caught:
            reader.read(bad, "/context")
        assert caught.value.errors[0]["pointer"].startswith("/context/")


def test_labels_keep_their_types():
    labels = Labels([1, "1", dt.date(2020, 1, 2)])
    assert labels.find(1) == 0
    assert labels.find(1.0) == 0
    assert labels.find(True) is None
    assert labels.find("1") == 1
    assert labels.find({"date": "2020-01-02"}) == 2
    assert labels.find({"date": ["2020"]}) is None
    assert labels.find([]) is None


# -------------------------------------------------------------------------------------------- tokens


def test_tokens_are_stored_hashed_and_compared_whole(tmp_path):
    store = Store(database_url(str(tmp_path / "t.db")))
    token = create_token(store, "app", ["read"])
    kept = list_tokens(store)[0]
    secret = token.split("_", 2)[2]
    assert kept.digest == _digest(secret)
    assert secret.encode() not in (tmp_path / "t.db").read_bytes() + (tmp_path / "t.db-wal").read_bytes()
    tokens = Tokens([kept], loopback=True)
    assert tokens.check(f"Bearer {token}".encode(), "read").name == "app"
    for bad in (
        None,
        b"",
        token.encode(),
        b"Basic " + token.encode(),
        f"Bearer {token}x".encode(),
        f"Bearer {token[:-1]}".encode(),
        f"Bearer sl_00000000_{secret}".encode(),
        b"Bearer \xff\xfe",
    ):
        with pytest.raises(Problem) as caught:
            tokens.check(bad, "read")
        assert caught.value.status == 401
        assert "Bearer" in caught.value.headers["WWW-Authenticate"]
    with pytest.raises(InputError, match="at least one scope"):
        create_token(store, "none", [])
    store.close()


def test_revoking_the_last_token_does_not_open_the_door():
    gone = Token("00000000", "x", frozenset({"read"}), "0" * 64, 0.0, 1.0)
    assert Tokens([], loopback=True).open
    assert not Tokens([], loopback=False).open
    assert not Tokens([gone], loopback=True).open


# -------------------------------------------------------------------------------------------- client

DECISION = {
    "id": "2", "arm": "a", "by": "learner", "recommended": "a", "estimate": 0.0, "width": 1.0, "propensity": 1.0,
    "wants_query": False, "query_probability": 0.0, "mode": "act", "version": 0,
}  # fmt: skip


def test_the_client_retries_with_the_same_key(monkeypatch):
    seen: list[str] = []
    waited: list[float] = []
    monkeypatch.setattr("sidelight.service.client.time.sleep", waited.append)

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Idempotency-Key"])
        if len(seen) == 1:
            raise httpx.ConnectError("no route")
        if len(seen) == 2:
            return httpx.Response(503, json={"type": "urn:sidelight:problem:storage"}, headers={"Retry-After": "3"})
        return httpx.Response(201, json=DECISION)

    client = Client("http://test", "sl_x", transport=httpx.MockTransport(answer))
    assert client.decide({"x": 1.0}).arm == "a"
    assert len(seen) == 3
    assert len(set(seen)) == 1
    assert waited == [0.1, 3.0]
    client.decide({"x": 1.0})
    assert len(set(seen)) == 2, "another call has another key"


def test_the_client_does_not_retry_what_cannot_get_better():
    calls = []

    def answer(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        return httpx.Response(409, json={"type": "urn:sidelight:problem:conflict", "detail": "no"})

    client = Client("http://test", transport=httpx.MockTransport(answer))
    with pytest.raises(ServiceProblem) as caught:
        client.reward("2", 1.0)
    assert (caught.value.status, caught.value.kind, len(calls)) == (409, "conflict", 1)


def test_the_client_gives_up_in_the_end(monkeypatch):
    monkeypatch.setattr("sidelight.service.client.time.sleep", lambda _: None)

    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("slow")

    client = Client("http://test", retries=1500, transport=httpx.MockTransport(answer))
    with pytest.raises(ServiceError, match="does not answer"):
        client.status()


# -------------------------------------------------------------------------------------------- bodies


def test_probabilities_sum_to_one_within_rounding():
    bodies = Bodies(ContextReader(make_schema(), 1e9), Labels(["low", "mid", "high"]), "probabilities", Limits())
    rounded = bodies.answer({"probabilities": [0.333333, 0.333333, 0.333334]}, "").probabilities
    assert sum(rounded) == pytest.approx(1.0, abs=1e-15)
    assert bodies.answer({"probabilities": [0.3333333, 0.3333333, 0.3333333]}, "")
    for wrong in ([0.5, 0.5, 0.1], [0.2, 0.2, 0.2], [0.33333, 0.33333, 0.33333], [0, 0, 0]):
        with pytest.raises(Problem, match="sum to"):
            bodies.answer({"probabilities": wrong}, "")
