"""Any calls in any order, with the same keys, ids and tokens everywhere: a model says what each must be answered.

``SIDELIGHT_FUZZ_EXAMPLES`` sets how many histories are tried.
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import httpx
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from sidelight.service.core.starting import open_store
from sidelight.service.http.auth import SCOPES, create_token
from tests.service.helpers import ARMS, make_config, replayed, serving

CONTEXTS = [
    [1, 0.5, -1.0, 0, 1, 1, 2],
    {"age": 0.5, "dose": -1.0, "ward": "east", "severity": True, "pain": 2},
    {"age": 0, "dose": 0, "ward": "north", "severity": 0, "pain": 0},
]
BAD_CONTEXTS = [{}, [2, 0, 0, 0, 0, 0, 0], {"age": 1}, None]

keys = st.sampled_from([None, "k1", "k2", "k3"])
tokens = st.sampled_from(["all", "other", *SCOPES])
arms = st.sampled_from([*ARMS, None])
actors = st.sampled_from([None, "person", "old_policy", "service"])
values = st.sampled_from([0.0, 1.0, -2.5])
places = st.integers(0, 12)

_runs = itertools.count()


class Calls(RuleBasedStateMachine):
    """One history of calls."""

    url = ""
    secrets: dict[str, str] = {}  # noqa: RUF012 - filled once by the test
    scopes: dict[str, frozenset[str]] = {}  # noqa: RUF012
    client: httpx.Client

    @initialize()
    def begin(self) -> None:
        self.run = f"run-{next(_runs)}"
        #: ids of this history, first one that nobody has
        self.ids = ["999999999"]
        self.decided: dict[str, str | None] = {}
        self.by: dict[str, str] = {}
        self.modes: dict[str, str] = {}
        self.rewards: dict[str, dict[str, Any]] = {}
        self.used: dict[tuple[str, str], tuple[str, str, dict[str, Any]]] = {}
        self.start = self.status()["counts"]
        self.made = {"decisions": 0, "rewards": 0}
        self.last = self.status()["event"]

    # ------------------------------------------------------------------------------------- calling

    def status(self) -> dict[str, Any]:
        return self.client.get("/v1/status", headers=self.bearer("all")).json()

    def bearer(self, token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secrets[token]}"}

    def post(self, path: str, body: Any, token: str, scope: str, key: str | None = None) -> httpx.Response | None:
        """The answer; None where the token may not, and was told so."""
        headers = {"Content-Type": "application/json", **self.bearer(token)}
        if key is not None:
            headers["Idempotency-Key"] = f"{self.run}-{key}"
        answer = self.client.post(path, content=json.dumps(body), headers=headers)
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
        if scope not in self.scopes[token]:
            assert answer.status_code == 403, answer.text
            return None
        assert answer.status_code < 500, answer.text
        return answer

    def settled(self, path: str, body: Any, token: str, key: str | None, answer: httpx.Response) -> bool:
        """Whether a call with a key was new; checks the answer to one that was not."""
        text = json.dumps(body)
        before = None if key is None else self.used.get((token, key))
        if before is None:
            assert answer.status_code == 201, answer.text
            if key is not None:
                self.used[token, key] = (path, text, answer.json())
            return True
        if before[:2] == (path, text):
            assert answer.status_code == 200, answer.text
            assert answer.json() | {"repeated": None} == before[2] | {"repeated": None}
        else:
            assert answer.status_code == 409, answer.text
            assert answer.json()["type"].endswith("key-reused")
        return False

    def note(self, decision: dict[str, Any]) -> None:
        self.ids.append(decision["id"])
        self.decided[decision["id"]] = decision["arm"]
        self.by[decision["id"]] = decision["by"]
        self.modes[decision["id"]] = decision["mode"]
        self.made["decisions"] += 1

    def id(self, place: int) -> str:
        return self.ids[place % len(self.ids)]

    # -------------------------------------------------------------------------------------- rules

    @rule(context=st.sampled_from(CONTEXTS), token=tokens, key=keys, answer=arms, subject=st.sampled_from([None, "s1"]))
    def decide(self, context, token, key, answer, subject):
        body = {"context": context}
        if answer is not None:
            body["behavior"] = {"arm": answer}
        if subject is not None:
            body["subject"] = subject
        made = self.post("/v1/decisions", body, token, "decide", key)
        if made is not None and self.settled("/v1/decisions", body, token, key, made):
            self.note(made.json())

    @rule(context=st.sampled_from(BAD_CONTEXTS), token=tokens, key=keys)
    def decide_badly(self, context, token, key):
        """A refused request uses no key."""
        made = self.post("/v1/decisions", {"context": context}, token, "decide", key)
        assert made is None or made.status_code == 422

    @rule(n=st.integers(1, 3), token=tokens, key=keys)
    def decide_batch(self, n, token, key):
        body = {"decisions": [{"context": CONTEXTS[i % len(CONTEXTS)]} for i in range(n)]}
        made = self.post("/v1/decisions/batch", body, token, "decide", key)
        if made is not None and self.settled("/v1/decisions/batch", body, token, key, made):
            for decision in made.json()["decisions"]:
                self.note(decision)

    @rule(context=st.sampled_from(CONTEXTS), arm=st.sampled_from(ARMS), token=tokens, key=keys)
    def behavior_at(self, context, arm, token, key):
        body = {"context": context, "arm": arm}
        made = self.post("/v1/behavior", body, token, "reward", key)
        if made is not None:
            self.settled("/v1/behavior", body, token, key, made)

    @rule(place=places, value=values, arm=arms, by=actors, token=tokens)
    def reward(self, place, value, arm, by, token):
        id = self.id(place)
        body = {"reward": value} | _given(arm=arm, by=by)
        answer = self.post(f"/v1/decisions/{id}/reward", body, token, "reward")
        if answer is not None:
            self.rewarded(id, value, arm, answer.status_code)

    def rewarded(self, id: str, value: float, arm: str | None, status: int) -> None:
        if id not in self.decided:
            assert status == 404
        elif id in self.rewards:
            same = self.rewards[id]["reward"] == value and arm in (None, self.rewards[id]["arm"])
            # who took it may differ too, which the model does not follow
            assert status in ((200, 409) if same else (409,))
        else:
            assert status in (201, 409, 422), "409 where another arm was taken, 422 where nobody said which"
            if status == 201:
                record = self.read(id)
                self.rewards[id] = record["reward"]
                assert record["reward"]["reward"] == value
                assert arm in (None, record["reward"]["arm"])
                self.made["rewards"] += 1

    @rule(chosen=st.lists(places, min_size=1, max_size=3, unique=True), value=values, token=tokens)
    def rewards_together(self, chosen, value, token):
        ids = list(dict.fromkeys(self.id(place) for place in chosen))
        body = {"rewards": [{"decision": id, "reward": value, "arm": "mid"} for id in ids]}
        answer = self.post("/v1/rewards", body, token, "reward")
        if answer is None:
            return
        assert answer.status_code == 200
        results = answer.json()["results"]
        assert [result["decision"] for result in results] == ids
        for id, result in zip(ids, results, strict=True):
            status = result["problem"]["status"] if "problem" in result else 200 if result["repeated"] else 201
            self.rewarded(id, value, "mid", status)

    @rule(place=places, arm=arms, by=actors, token=tokens)
    def action(self, place, arm, by, token):
        id = self.id(place)
        answer = self.post(f"/v1/decisions/{id}/action", _given(arm=arm, by=by), token, "reward")
        if answer is not None:
            assert answer.status_code in ((200, 201, 409, 422) if id in self.decided else (404,)), answer.text
            if answer.status_code in (200, 201):
                taken = self.read(id)["action"]["arm"]
                assert arm in (None, taken)

    @rule(place=places, arm=st.sampled_from(ARMS), token=tokens)
    def behavior(self, place, arm, token):
        id = self.id(place)
        answer = self.post(f"/v1/decisions/{id}/behavior", {"arm": arm}, token, "reward")
        if answer is not None:
            assert answer.status_code in ((200, 201, 409) if id in self.decided else (404,)), answer.text

    @rule(mode=st.sampled_from(["shadow", "assist", "act"]), share=st.sampled_from([0.0, 0.5, 1.0]), token=tokens)
    def set_mode(self, mode, share, token):
        answer = self.post("/v1/mode", {"mode": mode, "share": share}, token, "admin")
        if answer is not None:
            assert answer.json()["rails"] | {"mode": mode, "share": share} == answer.json()["rails"]

    @rule(killed=st.booleans(), token=tokens)
    def kill(self, killed, token):
        answer = self.post("/v1/kill", {"killed": killed}, token, "admin")
        if answer is not None:
            assert answer.json()["rails"]["killed"] is killed

    @rule(token=tokens, path=st.sampled_from(["/v1/status", "/v1/state", "/metrics", "/v1/schema", "/openapi.json"]))
    def look(self, token, path):
        answer = self.client.get(path, headers=self.bearer(token))
        free = path in ("/v1/schema", "/openapi.json") or "read" in self.scopes[token]
        assert answer.status_code == (200 if free else 403)

    @rule(place=places)
    def read_one(self, place):
        id = self.id(place)
        if id in self.decided:
            record = self.read(id)
            assert record["arm"] == self.decided[id]
            assert record["by"] == self.by[id]
            assert record["mode"] == self.modes[id]
            if id in self.rewards:
                assert record["reward"] == self.rewards[id]
        else:
            assert self.client.get(f"/v1/decisions/{id}", headers=self.bearer("all")).status_code == 404

    def read(self, id: str) -> dict[str, Any]:
        answer = self.client.get(f"/v1/decisions/{id}", headers=self.bearer("all"))
        assert answer.status_code == 200, answer.text
        return answer.json()

    # ------------------------------------------------------------------------------------ always

    @invariant()
    def nobody_else_suffers(self) -> None:
        assert self.client.get("/health/ready").status_code == 200

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        if not hasattr(self, "made"):
            return
        status = self.status()
        for name, n in self.made.items():
            assert status["counts"].get(name, 0) - self.start.get(name, 0) == n, name
        assert status["event"] >= self.last
        self.last = status["event"]


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def test_any_calls_in_any_order(tmp_path: Path):
    config = make_config(tmp_path, kind="RunningOFUL", mode="act")
    store = open_store(config)
    Calls.scopes = {scope: frozenset({scope}) for scope in SCOPES} | {"all": frozenset(SCOPES)}
    Calls.scopes["other"] = frozenset(SCOPES)
    Calls.secrets = {name: create_token(store, name, scopes) for name, scopes in Calls.scopes.items()}
    store.close()
    examples = int(os.environ.get("SIDELIGHT_FUZZ_EXAMPLES", "12"))
    with serving(tmp_path) as server, httpx.Client(base_url=server.url) as client:
        Calls.client = client
        run_state_machine_as_test(
            Calls,
            settings=settings(
                max_examples=examples,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
                derandomize="SIDELIGHT_FUZZ_EXAMPLES" not in os.environ,
            ),
        )
        digest = client.get("/v1/state", headers={"Authorization": f"Bearer {Calls.secrets['all']}"}).json()["digest"]
        assert server.stop() == 0
    assert replayed(config) == digest, "the log says the same as the server did"
