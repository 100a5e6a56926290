"""The service over HTTP, in a process of its own: what it answers, whom it lets in, what it refuses."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from sidelight.errors import StoreError
from sidelight.service.app import create_app
from sidelight.service.core.starting import open_store
from sidelight.service.http.auth import SCOPES, create_token, revoke_token
from tests.service.helpers import ARMS, Server, engine_of, make_config, post, random_context, run, serving

CONTEXT = {"age": 1.0, "dose": -0.5, "ward": "south", "severity": True, "pain": 2}
ARRAY = [1, 1.0, -0.5, 1, 0, 1, 2]  # intercept, age, dose, ward=south, ward=east, severity, pain


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[tuple[Server, dict[str, str], Any]]:
    """A server in act mode with one token per scope, and one with all."""
    folder: Path = tmp_path_factory.mktemp("service")
    limits = {"body_bytes": 100_000, "batch": 50, "seconds": 2.0, "header_bytes": 8_000}
    config = make_config(folder, kind="RunningOFUL", mode="act", limits=limits)
    store = open_store(config)
    tokens = {scope: create_token(store, scope, [scope]) for scope in SCOPES}
    tokens["all"] = create_token(store, "all", SCOPES)
    with serving(folder) as server:
        yield server, tokens, store
    store.close()


@pytest.fixture
def client(service) -> Iterator[httpx.Client]:
    server, tokens, _ = service
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {tokens['all']}"}) as client:
        yield client


def decide(client: httpx.Client, **more: Any) -> dict[str, Any]:
    answer = post(client, "/v1/decisions", {"context": CONTEXT} | more)
    assert answer.status_code == 201, answer.text
    return answer.json()


# ------------------------------------------------------------------------------------------- deciding


def test_by_name_and_as_array_are_the_same_decision(client):
    by_name = decide(client)
    as_array = post(client, "/v1/decisions", {"context": ARRAY}).json()
    assert by_name["arm"] in ARMS
    assert by_name["by"] == "learner"
    assert by_name["propensity"] == 1.0
    assert by_name["wants_query"] is True
    for field in ("arm", "estimate", "width", "version"):
        assert by_name[field] == as_array[field]
    assert by_name["id"] != as_array["id"]


def test_allowed_arms_are_kept_to(client):
    for arm in ARMS:
        assert decide(client, allowed=[arm])["arm"] == arm


def test_a_batch_is_one_event_and_equals_single_decisions(client):
    rng = np.random.default_rng(1)
    contexts = [random_context(rng) for _ in range(20)]
    batch = post(client, "/v1/decisions/batch", {"decisions": [{"context": c} for c in contexts]})
    assert batch.status_code == 201
    decisions = batch.json()["decisions"]
    assert len({d["id"] for d in decisions}) == 20
    assert decisions[7]["id"] == decisions[0]["id"] + ".7"
    for context, decision in zip(contexts, decisions, strict=True):
        single = post(client, "/v1/decisions", {"context": context}).json()
        assert {k: v for k, v in single.items() if k != "id"} == {k: v for k, v in decision.items() if k != "id"}
    # each has a life of its own
    assert post(client, f"/v1/decisions/{decisions[7]['id']}/reward", {"reward": 1.0}).status_code == 201
    assert client.get(f"/v1/decisions/{decisions[7]['id']}").json()["reward"]["reward"] == 1.0
    assert client.get(f"/v1/decisions/{decisions[8]['id']}").json()["reward"] is None
    assert client.get(f"/v1/decisions/{decisions[0]['id']}.20").status_code == 404


def test_rewards_may_come_late_out_of_order_and_twice(client):
    first, second = decide(client), decide(client)
    assert post(client, f"/v1/decisions/{second['id']}/reward", {"reward": 2}).status_code == 201
    answer = post(client, f"/v1/decisions/{first['id']}/reward", {"reward": 0.1})
    assert answer.status_code == 201
    again = post(client, f"/v1/decisions/{first['id']}/reward", {"reward": 0.1})
    assert again.status_code == 200
    assert again.json() == answer.json() | {"repeated": True}
    other = post(client, f"/v1/decisions/{first['id']}/reward", {"reward": 0.2})
    assert other.status_code == 409
    assert other.headers["content-type"] == "application/problem+json"
    assert "0.1" in other.json()["detail"]


def test_rewards_in_batches_have_results_of_their_own(client):
    ids = [decide(client)["id"] for _ in range(3)]
    post(client, f"/v1/decisions/{ids[0]}/reward", {"reward": 5})
    body = {
        "rewards": [
            {"decision": ids[0], "reward": 1},
            {"decision": ids[1], "reward": 1},
            {"decision": "999999", "reward": 1},
        ]
    }
    results = post(client, "/v1/rewards", body).json()["results"]
    assert results[0]["problem"]["status"] == 409
    assert results[1]["repeated"] is False
    assert results[2]["problem"]["status"] == 404


def test_an_id_that_is_none_is_the_result_of_its_item_alone(client):
    """As for a single reward, an id that no decision can have is one of an unknown decision."""
    good, strange = decide(client)["id"], ["02", "", "x' OR 1=1", "2.x", "9" * 30, "１", "\u0000", "a" * 3_000]
    ids = [*strange[:4], good, *strange[4:]]
    body = {"rewards": [{"decision": id, "reward": 1} for id in ids]}
    for repeated in (False, True):  # the same batch again is safe, with a key or without
        answer = post(client, "/v1/rewards", body, **{"Idempotency-Key": "r-1"})
        assert answer.status_code == 200
        results = answer.json()["results"]
        assert [result["decision"] for result in results] == ids
        (noted,) = [result for result in results if "problem" not in result]
        assert (noted["decision"], noted["repeated"]) == (good, repeated)
        problems = [result["problem"] for result in results if "problem" in result]
        assert {problem["type"] for problem in problems} == {"urn:sidelight:problem:unknown-decision"}
        assert all(len(problem["detail"]) < 300 for problem in problems)


def test_a_retry_with_its_key_never_decides_twice(client):
    body = {"context": CONTEXT, "subject": "patient 7"}
    first = post(client, "/v1/decisions", body, **{"Idempotency-Key": "k-1"})
    again = post(client, "/v1/decisions", body, **{"Idempotency-Key": "k-1"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    other = post(client, "/v1/decisions", {"context": ARRAY}, **{"Idempotency-Key": "k-1"})
    assert other.status_code == 409
    assert other.json()["type"].endswith("key-reused")
    batch = {"decisions": [body, body]}
    answers = [post(client, "/v1/decisions/batch", batch, **{"Idempotency-Key": "k-2"}).json() for _ in range(2)]
    assert answers[0] == answers[1]


def test_what_is_no_object_is_told_what_an_object_holds(client):
    told = post(client, "/v1/decisions", {"context": CONTEXT, "behavior": "low"}).json()
    assert told["errors"][0]["remedy"] == 'Send a JSON object, {"arm": …}'
    told = post(client, "/v1/decisions", {"context": CONTEXT, "behavior": {"arm": "low"}})
    assert told.status_code == 201


def test_the_explanation_adds_up_in_the_users_units(client):
    for _ in range(12):
        made = decide(client)
        post(client, f"/v1/decisions/{made['id']}/reward", {"reward": 1.7})
    made = decide(client, allowed=["low", "mid"], subject="patient 9")
    for _ in range(3):
        later = decide(client)
        post(client, f"/v1/decisions/{later['id']}/reward", {"reward": -3.0})
    record = client.get(f"/v1/decisions/{made['id']}").json()
    assert record["context"] == CONTEXT | {"severity": 1.0}
    assert record["subject"] == "patient 9"
    explanation = record["explanation"]
    # the learner has moved on since, and the explanation is of the learner that decided
    assert explanation["exact"] is True
    assert explanation["as_of_version"] == made["version"]
    chosen = next(arm for arm in explanation["arms"] if arm["arm"] == made["recommended"])
    assert chosen["estimate"] == pytest.approx(made["estimate"], abs=1e-12)
    assert chosen["width"] == pytest.approx(made["width"], rel=1e-12)
    for arm in explanation["arms"]:
        assert sum(f["contribution"] for f in arm["features"]) == pytest.approx(arm["estimate"], abs=1e-9)
        assert {f["feature"] for f in arm["features"]} == {"intercept", *CONTEXT}
        assert arm["allowed"] == (arm["arm"] in ("low", "mid"))
    ward = next(f for f in chosen["features"] if f["feature"] == "ward")
    assert ward["value"] == "south"


def test_mode_share_and_kill_switch(client):
    try:
        answer = post(client, "/v1/mode", {"mode": "shadow"})
        assert answer.json()["rails"]["mode"] == "shadow"
        shadow = decide(client)
        assert (shadow["arm"], shadow["by"]) == (None, "old_policy")
        refused = post(client, f"/v1/decisions/{shadow['id']}/reward", {"reward": 1})
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == "/arm"
        assert post(client, f"/v1/decisions/{shadow['id']}/reward", {"reward": 1, "arm": "mid"}).status_code == 201
        assert decide(client, behavior={"arm": "high"})["arm"] == "high"
        post(client, "/v1/mode", {"mode": "act", "share": 0.0, "fallback": "mid"})
        ramped = decide(client)
        assert (ramped["arm"], ramped["by"], ramped["propensity"]) == ("mid", "fallback", 1.0)
        post(client, "/v1/mode", {"share": 1.0})
        assert decide(client)["by"] == "learner"
        post(client, "/v1/kill", {"killed": True})
        killed = decide(client)
        assert (killed["arm"], killed["by"]) == ("mid", "fallback")
        assert decide(client, allowed=["high"])["arm"] == "high"
        assert decide(client, behavior={"arm": "low"})["by"] == "old_policy"
    finally:
        post(client, "/v1/kill", {"killed": False})
        post(client, "/v1/mode", {"mode": "act", "share": 1.0, "fallback": "low"})


def test_status_metrics_and_health(client):
    decide(client)
    status = client.get("/v1/status").json()
    assert status["ready"] is True
    assert status["learner"] == "RunningOFUL"
    assert sum(arm["to_take"] for arm in status["arms"]) <= status["counts"]["decisions"]
    text = client.get("/metrics").text
    assert "sidelight_decisions_total" in text
    assert f"sidelight_event_number {float(status['event'])}" in text
    bare = httpx.Client(base_url=client.base_url)
    assert bare.get("/health/live").json() == {"live": True}
    assert bare.get("/health/ready").json()["ready"] is True


def test_not_ready_tells_no_paths(tmp_path):
    """Anybody may ask for health; why it is bad is for who may read."""
    config = make_config(tmp_path, kind="OFUL", mode="act")

    async def ask() -> tuple[httpx.Response, httpx.Response]:
        async with engine_of(config) as engine:
            app = create_app(engine)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
                engine.error = StoreError(f"cannot write to {tmp_path}/sidelight.db at postgresql://user@db.local/x")
                answers = await client.get("/health/ready"), await client.get("/v1/status")
                engine.error = None
                return answers

    ready, status = run(ask())
    assert ready.status_code == 503
    assert "storage" in ready.json()["type"]
    assert str(tmp_path) not in ready.text
    assert "db.local" not in ready.text
    assert "db.local" in status.json()["error"]


def test_a_header_that_may_come_once_comes_once(service, client):
    server, tokens, _ = service
    good, bad = f"Bearer {tokens['all']}", f"Bearer {tokens['read'][:-1]}x"
    for pair in ((good, bad), (bad, good), (good, good)):
        answer = httpx.get(f"{server.url}/v1/status", headers=[("Authorization", value) for value in pair])
        assert answer.status_code == 400, pair
        assert answer.json()["type"].endswith("ambiguous-headers")
    before = client.get("/v1/status").json()["event"]
    answer = client.post(
        "/v1/decisions",
        content=json.dumps({"context": ARRAY}),
        headers=[("Content-Type", "application/json"), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")],
    )
    assert answer.status_code == 400
    two_types = [("Content-Type", "application/json"), ("Content-Type", "text/plain")]
    assert client.post("/v1/decisions", content=json.dumps({"context": ARRAY}), headers=two_types).status_code == 415
    assert client.get("/v1/status").json()["event"] == before


# -------------------------------------------------------------------------------------------- scopes

_NEEDS = {
    "decide": [
        ("POST", "/v1/decisions", {"context": CONTEXT}),
        ("POST", "/v1/decisions/batch", {"decisions": [{"context": ARRAY}]}),
    ],
    "reward": [
        ("POST", "/v1/decisions/2/reward", {"reward": 1, "arm": "mid"}),
        ("POST", "/v1/decisions/2/action", {"arm": "mid"}),
        ("POST", "/v1/decisions/2/behavior", {"arm": "mid"}),
        ("POST", "/v1/rewards", {"rewards": [{"decision": "2", "reward": 1}]}),
        ("POST", "/v1/behavior", {"context": CONTEXT, "arm": "low"}),
    ],
    "read": [
        ("GET", "/v1/decisions/2", None),
        ("GET", "/v1/status", None),
        ("GET", "/v1/state", None),
        ("GET", "/v1/quarantine", None),
        ("GET", "/metrics", None),
    ],
    "admin": [
        ("POST", "/v1/mode", {"share": 1.0}),
        ("POST", "/v1/gate", {"hold": False}),
        ("POST", "/v1/decisions/2/retraction", {"reason": "a slip"}),
        ("POST", "/v1/quarantine/2", {"release": False, "reason": "a slip"}),
        ("POST", "/v1/kill", {"killed": False}),
    ],
}


@pytest.mark.parametrize("scope", SCOPES)
def test_a_stolen_scope_can_do_only_what_it_names(service, scope):
    server, tokens, _ = service
    client = httpx.Client(base_url=server.url)
    for needed, calls in _NEEDS.items():
        for method, path, body in calls:
            for token, expected in ((tokens[scope], needed == scope), (None, False), (tokens[scope][:-1] + "x", False)):
                headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
                answer = client.request(
                    method, path, content=None if body is None else json.dumps(body), headers=headers
                )
                if expected:
                    assert answer.status_code not in (401, 403), (path, answer.text)
                else:
                    assert answer.status_code == (403 if token == tokens[scope] else 401), (path, answer.text)


def test_every_address_is_described_and_guarded(service, client):
    """Nothing is reachable that the test above does not know."""
    paths = client.get("/openapi.json").json()["paths"]
    guarded = {
        path.replace("quarantine/2", "quarantine/{event}").replace("/2", "/{id}")
        for calls in _NEEDS.values()
        for _, path, _ in calls
    }
    free = {"/health/live", "/health/ready", "/v1/schema", "/openapi.json"}
    assert set(paths) == guarded | free
    bare = httpx.Client(base_url=service[0].url)
    assert bare.get("/v1/schema").status_code == bare.get("/openapi.json").status_code == 401
    assert bare.get("/docs").status_code == 404


def test_a_revoked_token_stops_working_soon(service):
    server, _, store = service
    token = create_token(store, "short-lived", ["read"])
    client = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"})
    _until(lambda: client.get("/v1/status").status_code == 200)
    revoke_token(store, "short-lived")
    _until(lambda: client.get("/v1/status").status_code == 401)


def _until(condition, seconds: float = 8.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


# ------------------------------------------------------------------------------------ hostile bodies

_HOSTILE: list[tuple[str, bytes, int]] = [
    ("NaN", b'{"context":{"age":NaN,"dose":0,"ward":"south","severity":0,"pain":0}}', 400),
    ("Infinity", b'{"context":[1,Infinity,0,0,0,0,0]}', 400),
    ("-Infinity", b'{"context":[1,-Infinity,0,0,0,0,0]}', 400),
    ("1e400", b'{"context":[1,1e400,0,0,0,0,0]}', 422),
    ("1e308", b'{"context":[1,1e308,0,0,0,0,0]}', 422),
    ("a thousand digits", b'{"context":[1,' + b"9" * 1000 + b",0,0,0,0,0]}", 422),
    ("ten thousand digits", b'{"context":[1,' + b"9" * 10_000 + b",0,0,0,0,0]}", 400),
    ("deep nesting", b'{"context":' + b"[" * 40_000 + b"]" * 40_000 + b"}", 400),
    ("deep objects", b'{"a":' * 9_000 + b"1" + b"}" * 9_000, 400),
    ("a huge array", b'{"context":[' + b"0," * 40_000 + b"0]}", 422),
    ("too large a batch", b'{"decisions":[' + b'{"context":[]},' * 200 + b'{"context":[]}]}', 422),
    ("UTF-16", '{"context":[1,0,0,0,0,0,0]}'.encode("utf-16"), 400),
    ("UTF-8 with BOM", b"\xef\xbb\xbf" + b'{"context":[1,0,0,0,0,0,0]}', 400),
    ("Latin-1", '{"context":{"ward":"süd"}}'.encode("latin-1"), 400),
    ("overlong UTF-8", b'{"context":{"ward":"\xc0\xaf"}}', 400),
    ("half a surrogate", b'{"context":[1,0,0,0,0,0,0],"subject":"\\ud800"}', 422),
    ("a null character", b'{"context":[1,0,0,0,0,0,0],"subject":"a\\u0000b"}', 422),
    ("a duplicate key", b'{"context":[1,0,0,0,0,0,0],"context":[1,1,1,0,0,0,0]}', 400),
    ("a duplicate feature", b'{"context":{"age":1,"age":2,"dose":0,"ward":"south","severity":0,"pain":0}}', 400),
    ("a duplicate spelt differently", b'{"context":[1,0,0,0,0,0,0],"\\u0063ontext":[1,1,1,0,0,0,0]}', 400),
    ("SQL as a level", b'{"context":{"age":1,"dose":0,"ward":"\'; DROP TABLE sidelight_head; --","severity":0}}', 422),
    ("a path as a level", b'{"context":{"age":1,"dose":0,"ward":"../../etc/passwd","severity":0,"pain":0}}', 422),
    ("an unknown feature", b'{"context":{"age":1,"dose":0,"ward":"south","severity":0,"pain":0,"__class__":1}}', 422),
    ("an unknown field", b'{"context":[1,0,0,0,0,0,0],"mode":"act"}', 422),
    ("a number in quotes", b'{"context":[1,"0",0,0,0,0,0]}', 422),
    ("a boolean in an array", b'{"context":[1,true,0,0,0,0,0]}', 422),
    ("null", b'{"context":null}', 422),
    ("an intercept that is not 1", b'{"context":[2,0,0,0,0,0,0]}', 422),
    ("no context", b"{}", 422),
    ("an array", b"[]", 422),
    ("a number", b"1", 422),
    ("nothing", b"", 400),
    ("half of it", b'{"context":[1,0,0', 400),
    ("two of them", b'{"context":[1,0,0,0,0,0,0]}{"context":[1,0,0,0,0,0,0]}', 400),
    ("no arms allowed", b'{"context":[1,0,0,0,0,0,0],"allowed":[]}', 422),
    ("an arm twice", b'{"context":[1,0,0,0,0,0,0],"allowed":["low","low"]}', 422),
    ("an unknown arm", b'{"context":[1,0,0,0,0,0,0],"allowed":["low","other"]}', 422),
    ("an arm that is an object", b'{"context":[1,0,0,0,0,0,0],"allowed":[{"date":"2020-01-01"}]}', 422),
    ("a subject that is long", b'{"context":[1,0,0,0,0,0,0],"subject":"' + b"x" * 201 + b'"}', 422),
    ("a behavior of the wrong kind", b'{"context":[1,0,0,0,0,0,0],"behavior":{"probabilities":[1,0,0]}}', 422),
    ("probabilities above 1", b'{"context":[1,0,0,0,0,0,0],"behavior":{"arm":"low","probabilities":[1.9,0,0]}}', 422),
    ("a sum below 1", b'{"context":[1,0,0,0,0,0,0],"behavior":{"arm":"low","probabilities":[0.5,0.4,0]}}', 422),
    (
        "an arm that its probabilities exclude",
        b'{"context":[1,0,0,0,0,0,0],"behavior":{"arm":"low","probabilities":[0,0.5,0.5]}}',
        422,
    ),
    ("probabilities of nothing", b'{"context":[1,0,0,0,0,0,0],"behavior":{"arm":"low","probabilities":[0,0,0]}}', 422),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status"), [(body, status) for _, body, status in _HOSTILE], ids=[n for n, _, _ in _HOSTILE]
)
def test_hostile_bodies_are_refused_with_a_remedy(client, body, status):
    before = client.get("/v1/status").json()["event"]
    path = "/v1/decisions/batch" if body.startswith(b'{"decisions"') else "/v1/decisions"
    answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert len(problem["detail"]) < 1_000
    if status == 422:
        assert problem["errors"][0]["remedy"]
    assert client.get("/v1/status").json()["event"] == before, "nothing may have been written"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/decisions/2/reward", {"reward": 1e300}),
        ("/v1/decisions/2/reward", {"reward": "1"}),
        ("/v1/decisions/2/reward", {"reward": True}),
        ("/v1/decisions/2/reward", {"reward": 1, "by": "me"}),
        ("/v1/decisions/2/behavior", {}),
        ("/v1/decisions/2/behavior", {"arm": "low", "context": ARRAY}),
        ("/v1/behavior", {"context": ARRAY, "arm": "low", "query_probability": 0}),
        ("/v1/behavior", {"arm": "low"}),
        ("/v1/mode", {"mode": "autopilot"}),
        ("/v1/mode", {"share": 1.5}),
        ("/v1/mode", {"killed": True}),
        ("/v1/mode", {}),
        ("/v1/kill", {"killed": 1}),
        ("/v1/gate", {"step": "sideways"}),
        ("/v1/gate", {"hold": 1}),
        ("/v1/rewards", {"rewards": [{"decision": 2, "reward": 1}]}),
        ("/v1/rewards", {"rewards": [{"decision": "2", "reward": 1, "arm": "x"}]}),
        (
            "/v1/decisions/2/behavior",
            {"arm": "low", "probabilities": [0.0, 0.5, 0.5]},
        ),
        (
            "/v1/behavior",
            {"context": ARRAY, "arm": "mid", "probabilities": [0.5, 0, 0.5]},
        ),
    ],
)
def test_other_bodies_are_checked_too(client, path, body):
    answer = post(client, path, body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["remedy"]


@pytest.mark.parametrize(
    "id", ["0", "-1", "01", "2.0", "2.x", "%2e%2e", "1e3", "9" * 30, "x' OR 1=1", "2%00", "１", "{id}"]
)
def test_strange_ids_are_unknown(client, id):
    assert client.get(f"/v1/decisions/{id}").status_code in (404, 400)
    assert post(client, f"/v1/decisions/{id}/reward", {"reward": 1}).status_code in (404, 400)


def test_media_types_and_methods(client):
    body = json.dumps({"context": ARRAY})
    for kind in (None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16"):
        headers = {} if kind is None else {"Content-Type": kind}
        assert client.post("/v1/decisions", content=body, headers=headers).status_code == 415
    gzip = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert client.post("/v1/decisions", content=body, headers=gzip).status_code == 415
    good = {"Content-Type": "application/json; charset=utf-8"}
    assert client.post("/v1/decisions", content=body, headers=good).status_code == 201
    for method in ("PUT", "DELETE", "PATCH", "GET"):
        answer = client.request(method, "/v1/decisions")
        assert answer.status_code == 405
        assert answer.headers["allow"] == "POST"


# --------------------------------------------------------------------------------------------- limits


def raw(port: int, content: bytes, wait: float = 6.0, more: bytes = b"") -> bytes:
    """Send bytes and read until the server closes or falls silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as connection:
        connection.sendall(content)
        if more:
            time.sleep(0.3)
            connection.sendall(more)
        received = b""
        try:
            while part := connection.recv(65536):
                received += part
        except (TimeoutError, ConnectionResetError):
            pass
        return received


def head(token: str, length: str, extra: str = "") -> bytes:
    return (
        f"POST /v1/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {length}\r\n{extra}\r\n"
    ).encode()


def test_limits_on_what_a_client_may_send(service):
    server, tokens, _ = service
    token, port = tokens["all"], server.port
    # a gigabyte is claimed, and refused before it is sent
    assert raw(port, head(token, "1000000000")).startswith(b"HTTP/1.1 413")
    assert raw(port, head(token, "9" * 25)).startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))
    # a body without a length that never ends
    chunks = b"".join(b"4000\r\n" + b" " * 0x4000 + b"\r\n" for _ in range(10))
    endless = head(token, "0").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    assert raw(port, endless + chunks).startswith(b"HTTP/1.1 413")
    # headers
    assert raw(port, head(token, "2", f"X-Long: {'x' * 9_000}\r\n")).startswith(b"HTTP/1.1 431")
    assert raw(port, b"GET /" + b"a" * 20_000).startswith(b"HTTP/1.1 431")
    assert raw(port, head(token, "2", "".join(f"X-{i}: y\r\n" for i in range(2_000)))).startswith(b"HTTP/1.1 431")
    # headers that never end, a body that never comes
    assert raw(port, b"GET /v1/status HTTP/1.1\r\nX-Slow: ").startswith(b"HTTP/1.1 408")
    assert raw(port, head(token, "30"), more=b"{").startswith(b"HTTP/1.1 408")
    # not HTTP at all
    assert raw(port, b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1").startswith(b"HTTP/1.1 400")
    # contradicting lengths, the stuff of smuggling
    both = head(token, "4", "Transfer-Encoding: chunked\r\n") + b"0\r\n\r\n"
    assert raw(port, both).startswith((b"HTTP/1.1 400", b"HTTP/1.1 422"))
    # and it still works
    assert httpx.get(server.url + "/health/ready").status_code == 200


def test_pipelined_and_kept_alive_requests_work(service):
    server, tokens, _ = service
    body = json.dumps({"context": CONTEXT}).encode()
    one = head(tokens["all"], str(len(body))) + body
    answers = raw(server.port, one * 5 + b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answers.count(b"HTTP/1.1 201") == 5
    assert answers.count(b"HTTP/1.1 200") == 1


def test_too_many_requests_are_shed(tmp_path):
    config = make_config(tmp_path, kind="OFUL", mode="act", limits={"concurrency": 2, "seconds": 3.0})
    assert config.limits.concurrency == 2
    with serving(tmp_path) as server:
        assert "answering this machine only" in "".join(server.said)
        slow = []
        for _ in range(2):
            connection = socket.create_connection(("127.0.0.1", server.port))
            connection.sendall(
                b"POST /v1/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 99\r\n\r\n"
            )
            slow.append(connection)
        time.sleep(0.3)
        shed = httpx.get(server.url + "/v1/status")
        assert shed.status_code == 503
        assert int(shed.headers["retry-after"]) >= 1
        assert shed.json()["type"].endswith("overloaded")
        # health is answered even then, and so is the kill switch
        assert httpx.get(server.url + "/health/live").status_code == 200
        assert httpx.post(server.url + "/v1/kill", json={"killed": True}).status_code == 200
        for connection in slow:
            connection.close()
        _until(lambda: httpx.get(server.url + "/v1/status").status_code == 200)
        # a page on another site cannot reach a service without tokens by another name for this machine
        for host in ("attacker.example", "127.attacker.example", "127.0.0.1.attacker.example", "localhost.example"):
            foreign = httpx.get(server.url + "/v1/status", headers={"Host": host})
            assert foreign.status_code == 400, host
        for host in ("localhost", "LOCALHOST:8321", "127.0.0.1", "127.1.2.3:80", "[::1]", "[::1]:8321"):
            assert httpx.get(server.url + "/v1/status", headers={"Host": host}).status_code == 200, host
        # nor can it post without the browser asking first
        form = httpx.post(server.url + "/v1/kill", content=b'{"killed":true}', headers={"Content-Type": "text/plain"})
        assert form.status_code == 415
        assert server.stop() == 0


def test_without_tokens_only_loopback(tmp_path):
    make_config(tmp_path, kind="OFUL", host="0.0.0.0")
    with serving(tmp_path) as server:
        assert server.url == ""
        assert "there are no tokens" in server.errors
        assert server.process.returncode == 1
