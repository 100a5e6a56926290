"""The service's small parts: events in rows, strict JSON, contexts, tokens, the client's retries."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json

import httpx
import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sidelight as sl
from sidelight.errors import InputError, ServiceError, StoreError
from sidelight.logs.schema.units import units_to_json
from sidelight.service.checking import field_errors
from sidelight.service.client import Client, ServiceProblem
from sidelight.service.config import Limits
from sidelight.service.http import reading
from sidelight.service.http.auth import Token, Tokens, _digest, create_token, list_tokens, revoke_token
from sidelight.service.http.bodies import Bodies
from sidelight.service.http.contexts import Contexts
from sidelight.service.http.messages import Messages
from sidelight.service.http.rules import LabelSet
from sidelight.service.http.wire import parse
from sidelight.service.log import events as ev
from sidelight.service.log import rows as store_rows
from sidelight.service.log.connections import database_url
from sidelight.service.log.decision_id import DecisionId
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
    back = store_rows.event_from_row(store_rows.event_to_row(event, 9, 1.0, None), 3)
    assert back.contexts.tobytes() == event.contexts.tobytes()
    for name in event.__dataclass_fields__:
        if name != "contexts":
            assert getattr(back, name) == getattr(event, name), name
    assert [type(a) for a in back.recommended] == [type(arm)] * n


def test_the_short_way_writes_the_same_text_as_the_long_way():
    event = ev.Decisions(
        np.ones((1, 2)), ["a"], ["a"], [0.1], [1e-17], [1.0], ["learner"], [True], [1.0], 3, "act", 1.0
    )
    short = store_rows._decisions_payload(event)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_rows, "_single_payload", lambda event: (_ for _ in ()).throw(AssertionError))
        long = json.loads(store_rows._decisions_payload(dataclasses.replace(event, fingerprint="x")))
    long.pop("fingerprint")
    assert json.loads(short) == long


def test_altered_events_are_errors():
    row = store_rows.Row(3, "reward", 0.0, None, '{"decision": [1, 0]}')
    with pytest.raises(StoreError, match="event 3"):
        store_rows.event_from_row(row, 2)
    with pytest.raises(StoreError, match="event 3"):
        store_rows.event_from_row(store_rows.Row(3, "surprise", 0.0, None, "{}"), 2)


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
    assert DecisionId.parse(text) == id
    if id is not None:
        assert str(DecisionId(*id)) == text


# ---------------------------------------------------------------------------------------------- JSON

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | finite | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=60)
@given(json_values, st.booleans())
def test_the_parser_reads_json(value, spaces):
    body = json.dumps(value, separators=None if spaces else (",", ":")).encode()
    assert parse(body) == value
    assert json.dumps(parse(body)) == json.dumps(value), "floats to the last bit, and their types"


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_no_bytes_crash_the_parser(body):
    for read, statuses in ((parse, (400,)), (bodies_of().decision, (400, 422))):
        try:
            read(body)
        except Problem as problem:
            assert problem.status in statuses  # noqa: PT017 - most bytes are refused, some are JSON


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


CONTEXT = {"age": 1.0, "dose": 2, "ward": "south", "severity": True, "pain": 0}


@pytest.mark.parametrize(
    ("once", "twice"),
    [
        ('{"context":[1', '{"context":[1,1,1,1,1,1,1],"context":[1'),
        ('"ward": "south"', '"ward": "north", "ward": "south"'),
        ('"arm": "low"', '"arm": "high", "arm": "low"'),
        ('"subject": "a:b"', '"subject": "x", "subject": "a:b"'),
        ('"allowed"', '"allowed": ["mid"], "allowed"'),
    ],
)
def test_duplicate_keys_of_a_message_are_refused(once, twice):
    """Also beside a colon in a text, which makes the count of colons useless."""
    bodies = bodies_of()
    messages = [
        {"context": CONTEXT, "allowed": ["low", "mid"], "behavior": {"arm": "low"}, "subject": "a:b"},
        {"context": [1, 0, 0, 0, 0, 0, 0]},
    ]
    text = next(t for t in map(json.dumps, messages) if once.replace(":[", ": [") in t or once in t)
    text = text.replace('{"context": [1', '{"context":[1')
    assert bodies.decision(text.encode())[0].shape == (1, 7)
    with pytest.raises(Problem, match="twice") as caught:
        bodies.decision(text.replace(once, twice).encode())
    assert caught.value.status == 400


BATCH = [
    {"context": CONTEXT},
    {"context": [1, 0, 0, 0, 0, 0, 0], "allowed": ["low", "mid"]},
    {"context": CONTEXT, "behavior": {"arm": "low"}, "subject": "a"},
    {"context": CONTEXT, "subject": "b"},
]


@pytest.mark.parametrize("items", [BATCH, BATCH[:1] * 3, BATCH[1:2] * 2, BATCH[2:], BATCH[::3]])
def test_a_batch_is_parsed_twice_only_where_a_key_may_be_lost(items, monkeypatch):
    bodies = bodies_of()
    text = json.dumps({"decisions": items})
    monkeypatch.setattr(reading, "parse", lambda content: pytest.fail("parsed a second time"))
    assert bodies.decisions(text.encode())[0].shape == (len(items), 7)
    monkeypatch.undo()
    for at, character in enumerate(text):
        if character == "{" and at:
            name, value = next(iter(json.JSONDecoder().raw_decode(text[at:])[0].items()))
            with pytest.raises(Problem, match="twice"):
                bodies.decisions(f"{text[: at + 1]}{json.dumps(name)}:{json.dumps(value)},{text[at + 1 :]}".encode())


def test_what_is_not_json_is_named_by_its_place():
    with pytest.raises(Problem) as caught:
        parse(b'{"context": {"age": NaN, "dose": 1, "a/b": [0, -Infinity]}}')
    assert caught.value.status == 400
    assert [error["pointer"] for error in caught.value.errors] == ["/context/age", "/context/a~1b/1"]
    assert caught.value.detail.startswith("/context/age is NaN")


# --------------------------------------------------------------------------------- the two looks at a body


def bodies_of(schema: sl.Schema | None = None, needs: str | None = "action", **limits: float) -> Bodies:
    schema = make_schema() if schema is None else schema
    return Bodies(Messages(schema, LabelSet(schema.arms), needs, Limits(**limits)))


odd = st.sampled_from(
    [None, True, 0, 1, 1.5, -1e300, 10**30, "", "low", "south", "2", "a\u0000", [], [1], {}, {"date": "x"}]
)
contexts = st.fixed_dictionaries(
    {},
    optional={name: odd | st.just(value) for name, value in [*CONTEXT.items(), ("other", 1)]},
)
asks = st.fixed_dictionaries(
    {},
    optional={
        "context": contexts | st.just(CONTEXT) | st.lists(odd, min_size=6, max_size=8) | odd | st.just([1] + [0] * 6),
        "allowed": st.lists(st.sampled_from(["low", "mid", "high", "x", 1]), max_size=4) | odd,
        "behavior": st.fixed_dictionaries(
            {},
            optional={
                "arm": odd,
                "probabilities": st.lists(odd, max_size=4) | st.sampled_from([[0.5, 0.25, 0.25], [0, 0.5, 0.5]]),
                "x": odd,
            },
        )
        | odd,
        "subject": odd,
        "reward": odd,
    },
)


@settings(deadline=None, max_examples=300)
@given(ask=asks | odd, needs=st.sampled_from([None, "action", "probabilities"]), largest=st.sampled_from([1.0, 1e9]))
def test_the_fast_reading_and_the_second_look_agree(ask, needs, largest):
    """What is read has no errors, and what is refused has at least one: both follow the same description."""
    bodies = bodies_of(needs=needs, largest_number=largest)
    body = json.dumps(ask).encode()
    for name, read in (
        ("DecisionRequest", bodies.decision),
        ("Behavior", bodies.answer),
        ("Reward", bodies.reward),
        ("BehaviorAt", bodies.behavior_at),
        ("Mode", bodies.rails),
    ):
        kind = msgspec.inspect.type_info(bodies.messages.requests[name])
        errors = field_errors(kind, json.loads(body), bodies.messages.words)
        try:
            read(body)
        except Problem as problem:
            assert problem.status == 422  # noqa: PT017
            assert problem.errors == [error._asdict() for error in errors] != []  # noqa: PT017
            assert len(problem.detail) < 1_000  # noqa: PT017
        else:
            assert not errors, name


@pytest.mark.parametrize("needs", [None, "action", "probabilities"])
def test_an_arm_that_its_own_probabilities_exclude_is_refused(needs):
    bodies = bodies_of(needs=needs)

    def told(arm: str, probabilities: list[float]) -> bytes:
        return json.dumps({"context": CONTEXT, "behavior": {"arm": arm, "probabilities": probabilities}}).encode()

    (ask,) = bodies.decision(told("mid", [0.0, 1e-300, 1.0]))[1]
    assert ask.answer.arm == "mid"
    with pytest.raises(Problem) as caught:
        bodies.decision(told("mid", [0.25, 0.0, 0.75]))
    (error,) = caught.value.errors
    assert error["pointer"] == "/behavior/arm"
    assert error["detail"] == (
        "'mid' is told as the old policy's arm, and /behavior/probabilities gives it 0: [0.25, 0.0, 0.75]"
    )
    assert "drawn from" in error["remedy"]
    with pytest.raises(Problem, match="'low' is told"):
        bodies.answer(b'{"arm": "low", "probabilities": [0, 0.5, 0.5]}')


def test_every_error_is_named_at_once():
    with pytest.raises(Problem) as caught:
        bodies_of().decision(
            json.dumps(
                {
                    "context": {"age": "61 years", "ward": "west", "dose": 1e12, "height": 3},
                    "allowed": ["low", "low", "none"],
                    "behavior": {"probabilities": [0.5, 0.5, 2]},
                    "mode": "act",
                }
            ).encode()
        )
    assert [error["pointer"] for error in caught.value.errors] == [
        "/context/age",
        "/context/dose",
        "/context/ward",
        "/context/severity",
        "/context/pain",
        "/context/height",
        "/allowed/2",
        "/allowed/1",
        "/behavior/arm",
        "/behavior/probabilities/2",
        "/mode",
    ]
    assert all(error["detail"] and error["remedy"] for error in caught.value.errors)
    assert "Also wrong: /context/dose, /context/ward, /context/severity, /context/pain" in caught.value.detail


def test_all_missing_features_are_named():
    names = [f"feature {i}" for i in range(300)]
    bodies = bodies_of(sl.Schema(names, recorded=names[:1], arms=[1, 2]), None)
    with pytest.raises(Problem) as caught:
        bodies.decision(b'{"context": {"feature 7": 1}}')
    missing = [f"/context/{name}" for name in names if name != "feature 7"]
    assert [error["pointer"] for error in caught.value.errors] == missing
    assert len(caught.value.detail) < 1_000
    assert "more" in caught.value.detail


def test_a_body_of_errors_has_a_bounded_answer():
    body = json.dumps({"decisions": [{"context": {"x": None}}] * 1000}).encode()
    with pytest.raises(Problem) as caught:
        bodies_of().decisions(body)
    assert len(caught.value.errors) == 1000


# ------------------------------------------------------------------------------------------ contexts


def test_one_by_one_and_many_at_once_are_the_same():
    bodies = bodies_of()

    def one(context):
        return bodies.decision(json.dumps({"context": context}).encode())[0][0]

    def many(contexts):
        return bodies.decisions(json.dumps({"decisions": [{"context": c} for c in contexts]}).encode())[0]

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
    X = many(contexts)
    schema = make_schema()
    for x, context in zip(X, contexts, strict=True):
        assert (x == one(context)).all()
        assert (x == schema.encode(context)).all()
        assert units_to_json(x, schema) == {k: float(v) if k != "ward" else v for k, v in context.items()}
    assert (many([x.tolist() for x in X]) == X).all()
    mixed = [contexts[0], X[1].tolist(), contexts[2]]
    assert (many(mixed) == X[:3]).all()


def test_numbers_only_take_the_short_way_and_are_checked_alike():
    schema = sl.Schema(["a", "b"], recorded=["a"], arms=[1, 2])
    bodies = bodies_of(schema, None, largest_number=1e6)
    assert bodies.decision(b'{"context": {"b": true, "a": 1}}')[0].tolist() == [[1.0, 1.0]]
    assert bodies.decision(b'{"context": {"b": "-2.50", "a": 1}}')[0].tolist() == [[1.0, -2.5]]
    assert Contexts(schema, 1e6).encode([0.5, 2]).tolist() == [0.5, 2.0]
    batch = [{"a": 1, "b": 2.5}, {"a": True, "b": -3}, {"b": "0.25", "a": "7"}]
    for items, expected in ((batch[:2], [[1.0, 2.5], [1.0, -3.0]]), (batch, [[1.0, 2.5], [1.0, -3.0], [7.0, 0.25]])):
        X = bodies.decisions(json.dumps({"decisions": [{"context": c} for c in items]}).encode())[0]
        assert X.tolist() == expected
        assert X.dtype == np.float64
        assert X.flags.writeable
    for bad in (
        {"a": 1},
        {"a": 1, "b": "one"},
        {"a": 1, "b": "1e3"},
        {"a": 1, "b": "10000000"},
        {"a": 1, "b": 1e7},
        {"a": 1, "c": 1},
        {"a": 1, "b": 1, "c": 1},
        {"a": None, "b": 1},
    ):
        with pytest.raises(Problem) as caught:
            bodies.decision(json.dumps({"context": bad}).encode())
        assert caught.value.errors[0]["pointer"].startswith("/context/")


def test_labels_keep_their_types():
    labels = LabelSet([1, "1", dt.date(2020, 1, 2)])
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
    for name in ("", "  ", "x" * 201, "a\nb", "bell\x07", "\u202eright to left", "half \ud800"):
        with pytest.raises(InputError, match="can be shown"):
            create_token(store, name, ["read"])
    with pytest.raises(InputError, match="already"):
        create_token(store, "app", ["decide"])
    revoke_token(store, "app")
    assert create_token(store, "app", ["decide"]), "the name of a revoked token is free"
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


def test_the_client_names_what_cannot_be_sent():
    client = Client("http://test", transport=httpx.MockTransport(lambda request: httpx.Response(500)))
    with pytest.raises(InputError, match=r"^/context/pain is -inf: the service takes finite"):
        client.decide({"age": 1.0, "dose": float("nan"), "pain": np.float64("-inf"), "ward": "south"})
    with pytest.raises(InputError, match=r"^/decisions/1/context/2 is inf"):
        client.decide_many([[1.0, 2.0, 3.0], [1.0, float("nan"), float("inf")]])
    with pytest.raises(InputError, match="/reward is inf"):
        client.reward("2", np.inf)
    with pytest.raises(InputError, match="/context/age is <object"):
        client.decide({"age": object()})


@pytest.mark.parametrize("gap", [None, float("nan"), np.float64("nan"), pd.NA, pd.NaT])
def test_the_client_sends_gaps_as_null(gap):
    """Whether a feature may be missing is for the service to say."""
    sent = []

    def answer(request):
        sent.append(json.loads(request.content)["context"])
        return httpx.Response(422, json={})

    client = Client("http://test", transport=httpx.MockTransport(answer))
    for context in ({"age": 1.0, "dose": gap}, [1.0, gap]):
        with pytest.raises(ServiceProblem):
            client.decide(context)
    assert sent == [{"age": 1.0, "dose": None}, [1.0, None]]


def test_the_client_sends_what_numpy_and_pandas_hold():
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return httpx.Response(201, json=DECISION)

    client = Client("http://test", transport=httpx.MockTransport(answer))
    client.decide({"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": "é"})
    assert seen == [{"context": {"a": 0.5, "b": 3, "c": True, "d": "é"}}]


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
    bodies = bodies_of(needs="probabilities")

    def answer(probabilities):
        return bodies.answer(json.dumps({"probabilities": probabilities}).encode())

    rounded = answer([0.333333, 0.333333, 0.333334]).probabilities
    assert sum(rounded) == pytest.approx(1.0, abs=1e-15)
    assert answer([0.3333333, 0.3333333, 0.3333333])
    for wrong in ([0.5, 0.5, 0.1], [0.2, 0.2, 0.2], [0.33333, 0.33333, 0.33333], [0, 0, 0]):
        with pytest.raises(Problem, match="sum to"):
            answer(wrong)
