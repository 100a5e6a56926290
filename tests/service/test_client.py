"""The client against a running service: what the API takes, the client can say."""

from __future__ import annotations

import decimal
import warnings
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest

from sidelight.errors import InputError, ServiceError, SidelightWarning
from sidelight.service.client import Client, Decision, ServiceProblem
from tests.service.helpers import ARMS, make_config, random_context, serving


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder: Path = tmp_path_factory.mktemp("client")
    make_config(folder, kind="RunningOFUL", mode="act")
    with serving(folder) as server, Client(server.url) as client:
        yield client


def test_many_decisions_say_what_single_ones_can(service, rng):
    contexts = [random_context(rng) for _ in range(3)]
    made = service.decide_many(
        contexts,
        allowed=[["high"], None, ("low", "mid")],
        behavior=[None, "mid", "low"],
        probabilities=[None, None, [0.5, 0.25, 0.25]],
        subject=["p-1", None, "p-3"],
    )
    read = [service.decision(decision.id) for decision in made]
    assert [entry["allowed"] for entry in read] == [["high"], None, ["low", "mid"]]
    assert [entry["subject"] for entry in read] == ["p-1", None, "p-3"]
    assert made[0].arm == "high"
    assert [decision.wants_query for decision in made] == [True, False, False], "what is known is not asked"
    single = service.decide(contexts[2], allowed=["low", "mid"], behavior="low", probabilities=[0.5, 0.25, 0.25])
    assert read[2]["behavior"] == service.decision(single.id)["behavior"]
    assert read[0]["behavior"] is None
    assert len(service.decide_many(context for context in contexts)) == 3


@pytest.mark.parametrize(
    "beside",
    [{"allowed": [["low"]]}, {"behavior": ["low"] * 3}, {"probabilities": []}, {"subject": ["a"]}, {"subject": "ab"}],
)
def test_what_is_beside_many_contexts_has_an_entry_for_each(service, beside):
    contexts = [random_context(np.random.default_rng(3))] * 2
    with pytest.raises(InputError, match=f"{next(iter(beside))} is .* for 2 contexts"):
        service.decide_many(contexts, **beside)


def test_many_rewards_say_who_took_which_arm(service, rng):
    made = service.decide_many([random_context(rng) for _ in range(3)])
    first, second, third = (decision.id for decision in made)
    other = {decision.id: next(arm for arm in ARMS if arm != decision.arm) for decision in made[:2]}
    results = service.rewards({first: 0.5, second: 1.5, third: 2.5}, arm=other, by={first: "old_policy"})
    assert [result["repeated"] for result in results] == [False] * 3
    told = [service.decision(id)["reward"] for id in (first, second, third)]
    assert [(entry["arm"], entry["by"]) for entry in told] == [
        (other[first], "old_policy"),
        (other[second], "person"),
        (made[2].arm, "service"),
    ]
    for wrong in ({"arm": {third: "low"}}, {"by": {third: "person"}}):
        with pytest.raises(InputError, match="has no reward here"):
            service.rewards({first: 0.5}, **wrong)


def test_gaps_of_a_frames_columns_say_nothing(service, rng):
    """Where a column says nothing it holds NaN, not None; a frame without rows is said to have none."""
    frame = pd.DataFrame([random_context(rng) for _ in range(2)])
    beside = pd.DataFrame({"arm": ["low", None], "who": [None, "p-2"]})
    made = service.decide_many(frame, behavior=beside["arm"], subject=beside["who"])
    read = [service.decision(decision.id) for decision in made]
    assert [entry["subject"] for entry in read] == [None, "p-2"]
    assert [entry["behavior"] is None for entry in read] == [False, True]
    taken = pd.Series({made[0].id: "high", made[1].id: np.nan})
    rewards = pd.Series({decision.id: 1.0 for decision in made})
    assert [result["repeated"] for result in service.rewards(rewards, arm=taken)] == [False, False]
    assert service.decision(made[1].id)["reward"]["arm"] == made[1].arm
    with pytest.raises(ServiceProblem, match="has 0 entries"):
        service.decide_many(frame[:0])


@pytest.mark.parametrize("context", ["abc", None, 5, np.ones((1, 7)), [1.0, "x"]])
def test_what_is_no_context_is_an_input_error(service, context):
    for call in (lambda: service.decide(context), lambda: service.decide_many([context])):
        with pytest.raises(InputError, match="is not a context: give every feature by name"):
            call()


def test_a_reward_may_be_a_decimal(service, rng):
    id = service.decide(random_context(rng)).id
    assert service.reward(id, decimal.Decimal("0.25"))
    assert service.decision(id)["reward"]["reward"] == 0.25
    with pytest.raises(InputError, match="/reward is inf"):
        service.reward(id, decimal.Decimal("Infinity"))


def test_what_was_retracted_and_is_sent_again_is_said_to_be_retracted(service, rng):
    """Told by the client, in a batch's result, and for an answer that came with the decision."""
    made = service.decide(random_context(rng), behavior="low")
    taken = next(arm for arm in ARMS if arm != made.arm)
    told = {
        "reward": lambda: service.reward(made.id, 0.5),
        "action": lambda: service.action(made.id, taken),
        "behavior": lambda: service.behavior(made.id, "low"),
    }
    told["action"]()
    told["reward"]()
    for what, again in told.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert not again()
        assert "retracted" not in service.rewards({made.id: 0.5})[0] or what != "reward"
        service.retract(made.id, "a slip", what=what)
        with pytest.warns(SidelightWarning, match=f"The {what} of decision {made.id} was retracted by a person"):
            assert not again()
    assert service.rewards({made.id: 0.5})[0]["retracted"] is True


def test_an_answer_told_by_itself_is_retracted_too(service, rng):
    made = service.decide(random_context(rng))
    assert service.behavior(made.id, "low")
    service.retract(made.id, "a slip", what="behavior")
    with pytest.warns(SidelightWarning, match="The behavior of decision"):
        assert not service.behavior(made.id, "low")


def test_an_id_is_one_part_of_an_address(service):
    for id in ("../status", "2/../../status", "?", "#", "%2e%2e/status"):
        with pytest.raises(ServiceProblem, match="404: there is no"):
            service.decision(id)


def test_an_address_a_token_or_a_key_that_cannot_be_sent_is_said_at_once(service, rng):
    """And not taken for a service that does not answer, after six tries and with the token in the message."""
    url = str(service._http.base_url)
    for wrong in ("127.0.0.1:8321", ""):
        with pytest.raises(InputError, match="give the whole address"):
            Client(wrong)
    for wrong in ("", "  ", "sl_é", "sl_a\nb"):
        with pytest.raises(InputError, match="the token is") as caught:
            Client(url, token=wrong)
        assert "sl_a" not in str(caught.value)
    for wrong in (-1, 2.0, True):
        with pytest.raises(InputError, match=r"retries=.* whole number of at least 0"):
            Client(url, retries=wrong)
    seen = []
    transport = httpx.MockTransport(
        lambda request: seen.append(request.headers["Authorization"]) or httpx.Response(200)
    )
    with Client(url, token="sl_abc\n", transport=transport) as from_a_file, pytest.raises(ServiceError):
        from_a_file.status()
    assert seen == ["Bearer sl_abc"]
    for key in ("é", "a\nb"):
        with pytest.raises(InputError, match="cannot be sent"):
            service.decide(random_context(rng), key=key)


def test_a_newer_service_and_something_in_between():
    """What a newer service adds is passed over; what is no answer of the service is said to be none."""
    decision = dict.fromkeys((field.name for field in fields(Decision)), 1) | {"id": "7", "since_tomorrow": True}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/decisions":
            return httpx.Response(201, json=decision)
        if request.url.path == "/v1/decisions/batch":
            return httpx.Response(201, json={"decisions": [decision]})
        if request.url.path == "/v1/status":
            return httpx.Response(307, headers={"Location": "https://elsewhere/"}, text="moved")
        return httpx.Response(200, html="<p>Sign in</p>")

    with Client("http://127.0.0.1:1", transport=httpx.MockTransport(answer)) as client:
        assert client.decide([1.0]).id == "7"
        assert client.decide_many([[1.0]])[0].id == "7"
        with pytest.raises(ServiceError, match="answered 307"):
            client.status()
        with pytest.raises(ServiceError, match=r"answered 200 with a body \(text/html"):
            client.quarantine()


def lost(request: httpx.Request) -> httpx.Response:
    """The answer is lost on its way; whether the request was carried out cannot be told."""
    raise httpx.ReadError("reset", request=request)


def busy(request: httpx.Request) -> httpx.Response:
    return httpx.Response(503, json={"detail": "this may or may not have been done"}, request=request)


@pytest.mark.parametrize("answer", [lost, busy])
def test_what_may_undo_a_change_of_somebody_else_is_sent_once(answer):
    """Between a request whose answer is lost and its repetition, somebody may have thrown the kill switch."""
    sent: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        sent.append(request.url.path)
        return answer(request)

    with Client("http://x", retries=2, patience=0.0, transport=httpx.MockTransport(respond)) as client:
        for ask in (lambda: client.kill(False), lambda: client.set_mode("act")):
            with pytest.raises(ServiceError, match="may or may not"):
                ask()
        assert sent == ["/v1/kill", "/v1/mode"]
        sent.clear()
        with pytest.raises(ServiceError):
            client.kill()
    assert sent == ["/v1/kill"] * 3, "to stop the learner is tried again"


def test_without_a_connection_everything_is_tried_again():
    sent: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        sent.append(request.url.path)
        raise httpx.ConnectError("refused", request=request)

    client = Client("http://x", retries=2, patience=0.0, transport=httpx.MockTransport(respond))
    with client, pytest.raises(ServiceError, match="does not answer"):
        client.kill(False)
    assert sent == ["/v1/kill"] * 3


def test_an_answer_of_another_request_is_noticed(service, rng):
    """A proxy that mixes answers up must not have one patient's decision taken for another's."""
    made = service.decide_many([random_context(rng) for _ in range(2)])
    fields_of = [{field.name: getattr(one, field.name) for field in fields(Decision)} for one in made]

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/reward"):
            return httpx.Response(201, json={"decision": "7", "event": 9, "repeated": False})
        return httpx.Response(201, json={"decisions": fields_of})

    with Client("http://x", transport=httpx.MockTransport(respond)) as client:
        with pytest.raises(ServiceError, match="2 decisions for 3 contexts"):
            client.decide_many([random_context(rng) for _ in range(3)])
        with pytest.raises(ServiceError, match="decision '7' instead of '8'"):
            client.reward("8", 1.0)
        assert client.reward("7", 1.0)
