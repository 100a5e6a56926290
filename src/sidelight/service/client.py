"""A small client: typed, with retries and idempotency keys, so that a retry never decides twice.

>>> from sidelight.service.client import Client
>>> with Client("http://127.0.0.1:8321", token="sl_…") as service:      # doctest: +SKIP
...     decision = service.decide({"age": 61, "dose": 2.5})
...     service.reward(decision.id, 1.0)
"""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import quote

import httpx

from sidelight.errors import InputError, ServiceError, SidelightWarning
from sidelight.logs.schema.naming import rows_by_name
from sidelight.service.sending import Context, ask_body, context_body, given, one_each, to_json

__all__ = ["Client", "Decision", "ServiceProblem"]

_AGAIN = {408, 429, 502, 503, 504}


class ServiceProblem(ServiceError):
    """The service refused.

    Attributes:
        status: the HTTP status.
        kind: the last part of the problem's type, e.g. ``conflict``.
        errors: the fields at fault, each with ``pointer``, ``detail`` and ``remedy``.
    """

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status = status
        self.kind = str(body.get("type", "")).rpartition(":")[2]
        self.detail = str(body.get("detail", "no details"))
        self.errors: list[dict[str, str]] = list(body.get("errors", []))
        super().__init__(f"{status}: {self.detail}")


@dataclass(frozen=True)
class Decision:
    """A decision of the service.

    Attributes:
        id: to name it later.
        arm: the arm to take; None where the old policy acts and the service was not told what it does.
        by: who chose it: ``learner``, ``old_policy`` or ``fallback``.
        recommended: what the learner would take.
        estimate, width: of the recommended arm; None where the learner failed.
        propensity: the chance that ``arm`` came out; None where it is unknown.
        wants_query: whether the service would like to know what the old policy does here.
        query_probability: the chance with which it asked.
        mode: the mode when it was decided.
        version: the learner's version.
    """

    id: str
    arm: Any
    by: str
    recommended: Any
    estimate: float | None
    width: float | None
    propensity: float | None
    wants_query: bool
    query_probability: float
    mode: str
    version: int

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Decision:
        """The decision in the service's response; fields that only a newer service sends are ignored."""
        return cls(**{field.name: body[field.name] for field in fields(cls)})


class Client:
    """Calls a service.

    Args:
        url: where it is, e.g. ``http://127.0.0.1:8321``.
        token: a token with the scopes that the calls need (blanks around it do not count); None where the service has
            none.
        retries: how often to try again where that may help: no connection, too busy, storage in trouble.
        patience: the longest time in seconds to wait between two tries.
        timeout: seconds for one try.
        transport: for tests.

    Raises:
        InputError: the address does not begin with ``http://`` or ``https://``, or the token cannot be one.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        retries: int = 5,
        patience: float = 10.0,
        timeout: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InputError(f"url is {url!r}: give the whole address, such as http://127.0.0.1:8321.")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise InputError(f"retries={retries!r} must be a whole number of at least 0.")
        headers = {} if token is None else {"Authorization": f"Bearer {_token(token)}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, transport=transport)
        self._retries, self._patience = retries, patience

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # ---------------------------------------------------------------------------------- decisions

    def decide(
        self,
        context: Context,
        *,
        allowed: Sequence[Any] | None = None,
        behavior: Any = None,
        probabilities: Sequence[float] | None = None,
        subject: str | None = None,
        key: str | None = None,
    ) -> Decision:
        """A decision for one context.

        Args:
            context: every feature by name (a mapping, a pandas ``Series``, a named tuple), or the encoded numbers.
            allowed: the arms that may be taken.
            behavior: the arm that the old policy takes here, where it is known.
            probabilities: the old policy's probabilities, one for each arm, where they are known.
            subject: whom it is about, by your key.
            key: an idempotency key; by default a new one, so that only this call's own retries share it.
        """
        body = ask_body(context, allowed, behavior, probabilities, subject)
        return Decision.of(self._post("/v1/decisions", body, key or uuid.uuid4().hex))

    def decide_many(
        self,
        contexts: Iterable[Context],
        *,
        allowed: Sequence[Sequence[Any] | None] | None = None,
        behavior: Sequence[Any] | None = None,
        probabilities: Sequence[Sequence[float] | None] | None = None,
        subject: Sequence[str | None] | None = None,
        key: str | None = None,
    ) -> list[Decision]:
        """Decisions for many contexts, all or none.

        ``allowed``, ``behavior``, ``probabilities`` and ``subject`` have one entry per context; None where there is
        nothing to say.

        Args:
            contexts: each as in :meth:`decide`, or a frame.
            allowed: the arms that may be taken at each.
            behavior: the arm that the old policy takes at each, where it is known.
            probabilities: the old policy's probabilities at each, where they are known.
            subject: whom each is about, by your key.
            key: an idempotency key for all of them; by default a new one.

        Raises:
            InputError: an argument does not have one entry per context.
        """
        rows = rows_by_name(contexts)
        contexts = list(contexts) if rows is None else rows
        n = len(contexts)
        beside = zip(
            one_each("allowed", allowed, n),
            one_each("behavior", behavior, n),
            one_each("probabilities", probabilities, n),
            one_each("subject", subject, n),
            strict=True,
        )
        body = {"decisions": [ask_body(context, *said) for context, said in zip(contexts, beside, strict=True)]}
        answer = self._post("/v1/decisions/batch", body, key or uuid.uuid4().hex)
        made = [Decision.of(decision) for decision in answer["decisions"]]
        if len(made) != n:
            raise _of_another_request(f"{len(made)} decisions for {n} contexts")
        return made

    def decision(self, id: str) -> dict[str, Any]:
        """A decision with everything that followed, and its explanation."""
        return self._call("GET", f"/v1/decisions/{_part(id)}", None, {})

    # ---------------------------------------------------------------------------- what follows

    def reward(self, id: str, reward: float, *, arm: Any = None, by: str | None = None) -> bool:
        """The reward of a decision; returns whether it was new.

        A warning where the same reward was retracted before: to send it again does not bring it back. The same is true
        of ``action`` and ``behavior``; a result of ``rewards`` says ``"retracted": True``.

        Args:
            id: the decision.
            reward: the reward.
            arm: the arm that was taken, if it is not the one decided.
            by: who took it: ``person`` or ``old_policy``.
        """
        return self._tell(id, "reward", {"reward": reward} | given(arm=arm, by=by))

    def rewards(
        self, rewards: Mapping[str, float], *, arm: Mapping[str, Any] | None = None, by: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Rewards of many decisions; each has a result of its own, perhaps a ``problem``.

        Args:
            rewards: the rewards by the decisions' ids.
            arm: by id the arm that was taken, for those where it is not the one decided.
            by: by id who took it: ``person`` or ``old_policy``.

        Raises:
            InputError: an arm or an actor of a decision without a reward.
        """
        taken, who = dict({} if arm is None else arm), dict({} if by is None else by)
        for name, said in (("arm", taken), ("by", who)):
            if more := [id for id in said if id not in rewards]:
                raise InputError(
                    f"{name} names the decision {more[0]!r}, which has no reward here: give it, or leave it out."
                )
        body = {
            "rewards": [
                {"decision": id, "reward": reward} | given(arm=taken.get(id), by=who.get(id))
                for id, reward in rewards.items()
            ]
        }
        results: list[dict[str, Any]] = self._post("/v1/rewards", body)["results"]
        return results

    def action(self, id: str, arm: Any = None, *, by: str | None = None) -> bool:
        """The arm that was taken, before its reward is known; returns whether it was new."""
        return self._tell(id, "action", given(arm=arm, by=by))

    def behavior(self, id: str, arm: Any = None, *, probabilities: Sequence[float] | None = None) -> bool:
        """What the old policy would have done; returns whether it was new."""
        body = given(arm=arm, probabilities=None if probabilities is None else list(probabilities))
        return self._tell(id, "behavior", body)

    def _tell(self, id: str, what: str, body: dict[str, Any]) -> bool:
        """Send a reward, an action or an answer of a decision; returns whether it was new."""
        answer = self._post(f"/v1/decisions/{_part(id)}/{what}", body)
        if answer.get("decision", str(id)) != str(id):
            raise _of_another_request(f"decision {answer['decision']!r} instead of {str(id)!r}")
        if answer.get("retracted"):
            warnings.warn(
                f"The {what} of decision {id} was retracted by a person. It was sent again, and stays retracted: the "
                "learner does not learn from it.",
                SidelightWarning,
                stacklevel=3,
            )
        return not answer["repeated"]

    def behavior_at(
        self,
        context: Context,
        arm: Any = None,
        *,
        probabilities: Sequence[float] | None = None,
        query_probability: float = 1.0,
        key: str | None = None,
    ) -> bool:
        """What the old policy would do at a context without a decision; returns whether it was new."""
        body = {"context": context_body(context), "query_probability": query_probability}
        body |= given(arm=arm, probabilities=None if probabilities is None else list(probabilities))
        return not self._post("/v1/behavior", body, key or uuid.uuid4().hex)["repeated"]

    def retract(self, id: str, reason: str, *, what: str = "reward") -> bool:
        """Take back what was told about a decision; returns whether it was new.

        Args:
            id: the decision.
            reason: why, kept in the log.
            what: ``reward``, ``action`` or ``behavior``.
        """
        return not self._post(f"/v1/decisions/{_part(id)}/retraction", {"reason": reason, "what": what})["repeated"]

    def quarantine(self) -> dict[str, Any]:
        """What was kept from the learner as out of bounds: how many, and the newest."""
        return self._call("GET", "/v1/quarantine", None, {})

    def review(self, event: str, *, release: bool, reason: str) -> bool:
        """Release or discard what waits in quarantine; returns whether it was new.

        Args:
            event: its id in the quarantine.
            release: teach it to the learner; otherwise it is discarded.
            reason: why, kept in the log.
        """
        return not self._post(f"/v1/quarantine/{_part(event)}", {"release": release, "reason": reason})["repeated"]

    # ------------------------------------------------------------------------------- the service

    def status(self) -> dict[str, Any]:
        """``GET /v1/status``: readiness, mode, counts, arms, trust in the logs, as a dictionary."""
        return self._call("GET", "/v1/status", None, {})

    def set_mode(
        self,
        mode: str | None = None,
        *,
        share: float | None = None,
        fallback: Any = None,
        explore: float | None = None,
    ) -> dict[str, Any]:
        """``POST /v1/mode``: change mode, share of traffic, fallback arm or exploration; needs the scope ``admin``.

        It is sent once: a second time might undo what somebody else has changed in between.
        """
        body = given(mode=mode, share=share, fallback=fallback, explore=explore)
        return self._post("/v1/mode", body, repeat=False)

    def kill(self, killed: bool = True) -> dict[str, Any]:
        """``POST /v1/kill``: stop the learner on all servers, or let it decide again; needs the scope ``admin``.

        To let it decide again is sent once: a second time might let go of a switch that somebody has thrown in between.
        """
        return self._post("/v1/kill", {"killed": killed}, repeat=killed)

    # ------------------------------------------------------------------------------------ calling

    def _post(
        self, path: str, body: Mapping[str, Any], key: str | None = None, *, repeat: bool = True
    ) -> dict[str, Any]:
        if key is not None and not (key.isascii() and key.isprintable()):
            raise InputError(f"the key {key!r} cannot be sent: use visible ASCII characters, such as a random UUID.")
        return self._call("POST", path, body, {} if key is None else {"Idempotency-Key": key}, repeat=repeat)

    def _call(
        self, method: str, path: str, body: Any, headers: dict[str, str], *, repeat: bool = True
    ) -> dict[str, Any]:
        """Call, and call again where that is safe and may help.

        Nearly every call is safe to repeat: decisions carry a key, rewards and answers are the same the second time.
        ``repeat=False`` is for the others: they are repeated only where there was no connection to send them by.
        """
        content = None
        if body is not None:
            content = to_json(body)
            headers = {**headers, "Content-Type": "application/json"}
        for attempt in range(self._retries + 1):
            wait = min(0.1 * 2 ** min(attempt, 16), self._patience)
            last = attempt == self._retries
            try:
                answer = self._http.request(method, path, content=content, headers=headers)
            except httpx.TransportError as error:
                unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if last or not (repeat or unsent):
                    unknown = "" if repeat or unsent else " What was asked may or may not be done: see status()."
                    raise ServiceError(
                        f"the service at {self._http.base_url} does not answer: {error!r}.{unknown}"
                    ) from error
                time.sleep(wait)
                continue
            if answer.status_code < 400:
                return _result(answer)
            if answer.status_code not in _AGAIN or last or not repeat:
                raise ServiceProblem(answer.status_code, _problem(answer))
            time.sleep(min(_retry_after(answer, wait), self._patience))
        raise AssertionError


def _token(text: str) -> str:
    """A token without the blanks around it (read from a file, it ends with a line break)."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise InputError(
            f"the token is {'not one' if token else 'empty'}: `sidelight tokens create` prints one, sl_ and visible "
            "ASCII characters. Leave it out (None) where the service has no tokens."
        )
    return token


def _part(name: Any) -> str:
    """An id, percent-encoded as one segment of a URL's path."""
    return quote(str(name), safe="@")


def _result(answer: httpx.Response) -> dict[str, Any]:
    """The decoded body of a response that is not an error.

    Raises:
        ServiceError: the response is not the service's: a redirect, or a page of a proxy in between.
    """
    try:
        body = answer.json() if answer.status_code < 300 else None
    except ValueError:
        body = None
    if not isinstance(body, dict):
        kind = answer.headers.get("Content-Type", "no type")
        raise ServiceError(
            f"{answer.url} answered {answer.status_code} with a body ({kind}) that is not the service's: check the "
            "address, http or https, and what stands in between."
        )
    return body


def _of_another_request(what: str) -> ServiceError:
    """The error for a response that cannot be that of the request."""
    return ServiceError(
        f"the answer is that of another request ({what}): check what stands between here and the service."
    )


def _problem(answer: httpx.Response) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {"detail": answer.text[:200]}


def _retry_after(answer: httpx.Response, otherwise: float) -> float:
    try:
        return max(float(answer.headers.get("Retry-After", "")), 0.0)
    except ValueError:
        return otherwise
