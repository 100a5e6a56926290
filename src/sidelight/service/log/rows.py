"""Events as rows of the store: JSON, and contexts as bytes beside it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple, get_args

import msgspec
import numpy as np

from sidelight.errors import StoreError
from sidelight.labels import Label, label_from_json, label_to_json
from sidelight.linalg import Array
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Behavior, Decisions, Event, Release

__all__ = ["Row", "Unreadable", "event_content", "event_from_row", "event_to_row", "is_deleted"]

_FLOATS = np.dtype("<f8")

#: kinds whose rows are their fields as JSON
_PLAIN: dict[str, type[Any]] = {cls.kind: cls for cls in get_args(Event) if cls not in (Decisions, Behavior, Release)}


class Unreadable(StoreError):
    """An event that no second try reads: altered, written by a newer Sidelight, or about what is not in the log."""


class Row(NamedTuple):
    """An event as the store keeps it: its fields are the columns of the table, in their order.

    Attributes:
        number: its place in the log, from 1, without gaps.
        kind: the kind of event.
        at: seconds since 1970 when it was written; no part of the fold.
        key: what may exist only once (a decision's reward, an idempotency key); None where nothing limits it.
        payload: JSON.
        contexts: the contexts as little-endian doubles, apart from the rest so that they can be deleted.
        epoch: of the log when it was written.
        seal, chain: its checksum and the chained digest after it (``sealing``); None where it was written before there
            were seals.
    """

    number: int
    kind: str
    at: float
    key: str | None
    payload: str
    contexts: bytes | None = None
    epoch: int = 0
    seal: bytes | None = None
    chain: bytes | None = None


#: types of labels that are their own JSON
_PLAIN_LABELS = frozenset({str, int, type(None)})
#: fields of plain events that are labels
_LABELS = ("arm", "fallback", "replaces_arm")
# shortest digits that read back as the same bits, as Python's json writes them, but faster
_encode = msgspec.json.Encoder().encode
_dump = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def event_to_row(event: Event, number: int, at: float, key: str | None) -> Row:
    """The event as a row."""
    payload, contexts = event_content(event)
    return Row(number, event.kind, at, key, payload, contexts)


def is_deleted(x: Array) -> bool:
    """Whether a context was deleted on request: nothing but NaN is left; a context with gaps has at least one value."""
    return bool(x[0] != x[0]) and bool(np.isnan(x).all())


def _bytes(contexts: Array) -> bytes:
    return (contexts if sys.byteorder == "little" else contexts.astype(_FLOATS)).tobytes()


def event_content(event: Event) -> tuple[str, bytes | None]:
    """The event's JSON and its contexts; neither depends on the number it will get."""
    if isinstance(event, Decisions):
        return _decisions_payload(event), _bytes(event.contexts)
    if isinstance(event, Behavior):
        body: dict[str, Any] = {"answer": _answer_to_json(event.answer)}
        if event.decision is not None:
            body["decision"] = list(event.decision)
        if event.fingerprint is not None:
            body["fingerprint"] = event.fingerprint
        if event.quarantine is not None:
            body["quarantine"] = event.quarantine
        return _dump(body), None if event.context is None else _bytes(event.context)
    if isinstance(event, Release):
        payload, context = event_content(event.released)
        body = {"event": event.event, "position": event.position, "kind": event.released.kind}
        body |= {name: value for name in ("by", "reason") if (value := getattr(event, name)) is not None}
        return f'{_dump(body)[:-1]},"released":{payload}}}', context
    body = {f.name: value for f in fields(event) if (value := getattr(event, f.name)) is not None}
    for name in _LABELS:
        if name in body:
            body[name] = label_to_json(body[name])
    if "decision" in body:
        body["decision"] = list(body["decision"])
    return _dump(body), None


def event_from_row(row: Row, n_features: int) -> Event:
    """The inverse of :func:`event_to_row`; ``n_features`` is ``d``."""
    try:
        body = json.loads(row.payload)
        contexts = None if row.contexts is None else np.frombuffer(row.contexts, dtype=_FLOATS).astype(np.float64)
        if row.kind == "decisions":
            return _decisions_from_json(body, contexts, n_features, row)
        if row.kind == "behavior":
            return Behavior(
                _answer_from_json(body["answer"]),
                None if "decision" not in body else DecisionId(*body["decision"]),
                contexts,
                body.get("fingerprint"),
                body.get("quarantine"),
            )
        if row.kind == "release":
            payload = _dump(body.pop("released"))
            released = event_from_row(
                Row(row.number, body.pop("kind"), row.at, None, payload, row.contexts), n_features
            )
            return Release(released=released, **body)  # type: ignore[arg-type]
        for name in _LABELS:
            if name in body:
                body[name] = label_from_json(body[name])
        if "decision" in body:
            body["decision"] = DecisionId(*body["decision"])
        plain: Event = _PLAIN[row.kind](**body)
        return plain
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(
            f"event {row.number} ({row.kind!r}) cannot be read: {error!r}. It was altered, or written by a newer "
            "Sidelight: restore the database from a back-up, or upgrade."
        ) from error


# ---------------------------------------------------------------------------------------- decisions


def _decisions_payload(event: Decisions) -> str:
    if (
        len(event.routes) == 1
        and event.allowed is None
        and event.answers is None
        and event.subjects is None
        and event.fingerprint is None
        and event.chances is None
    ):
        return _single_payload(event)
    body: dict[str, Any] = {
        "propensities": _shared(event.propensities),
        "routes": _shared(event.routes),
        "asked": _shared(event.asked),
        "query_probabilities": _shared(event.query_probabilities),
        "version": event.version,
        "mode": event.mode,
        "share": event.share,
    }
    if event.allowed is not None:
        body["allowed"] = [None if a is None else [label_to_json(arm) for arm in a] for a in event.allowed]
    if event.answers is not None:
        body["answers"] = [None if answer is None else _answer_to_json(answer) for answer in event.answers]
    if event.subjects is not None:
        body["subjects"] = event.subjects
    if event.fingerprint is not None:
        body["fingerprint"] = event.fingerprint
    if event.quarantine is not None:
        body["quarantine"] = event.quarantine
    if event.chances is not None:
        body["chances"] = event.chances
    columns = {
        "arms": _labels(event.arms),
        "recommended": _labels(event.recommended),
        "estimates": event.estimates,
        "widths": event.widths,
    }
    return f"{_encode(columns).decode()[:-1]},{_dump(body)[1:]}"


def _decisions_from_json(body: dict[str, Any], contexts: Array | None, n_features: int, row: Row) -> Decisions:
    n = len(body["recommended"])
    allowed, answers = body.get("allowed"), body.get("answers")
    return Decisions(
        contexts=np.full((n, n_features), np.nan) if contexts is None else contexts.reshape(n, n_features),
        arms=[None if arm is None else label_from_json(arm) for arm in body["arms"]],
        recommended=[label_from_json(arm) for arm in body["recommended"]],
        estimates=body["estimates"],
        widths=body["widths"],
        propensities=_spread(body["propensities"], n),
        routes=_spread(body["routes"], n),
        asked=_spread(body["asked"], n),
        query_probabilities=_spread(body["query_probabilities"], n),
        version=body["version"],
        mode=body["mode"],
        share=body["share"],
        allowed=None
        if allowed is None
        else [None if a is None else [label_from_json(arm) for arm in a] for a in allowed],
        answers=None if answers is None else [None if a is None else _answer_from_json(a) for a in answers],
        subjects=body.get("subjects"),
        fingerprint=body.get("fingerprint"),
        epoch=row.epoch,
        quarantine=body.get("quarantine"),
        chances=body.get("chances"),
        chain=row.chain,
    )


class _Single(msgspec.Struct, gc=False):
    """The fields of a single decision, in the order and form in which ``_decisions_payload`` writes them."""

    arms: Sequence[Any]
    recommended: Sequence[Any]
    estimates: list[float | None]
    widths: list[float | None]
    propensities: float | None
    routes: str
    asked: bool
    query_probabilities: float
    version: int
    mode: str
    share: float


def _single_payload(event: Decisions) -> str:
    """JSON of a single decision: the most frequent event by far, written without the general path."""
    return _encode(
        _Single(
            _labels(event.arms),
            _labels(event.recommended),
            event.estimates,
            event.widths,
            event.propensities[0],
            event.routes[0],
            event.asked[0],
            event.query_probabilities[0],
            event.version,
            event.mode,
            event.share,
        )
    ).decode()


def _labels(labels: Sequence[Label | None]) -> Sequence[Any]:
    """Labels as JSON values; the same sequence where all of them are JSON already."""
    if type(labels[0]) is str if len(labels) == 1 else _PLAIN_LABELS.issuperset(map(type, labels)):
        return labels
    return [None if label is None else label_to_json(label) for label in labels]


def _shared(values: list[Any]) -> Any:
    """A list whose entries are all the same is written as that entry: most batches say the same thing throughout."""
    first = values[0]
    return first if values.count(first) == len(values) else values


def _spread(value: Any, n: int) -> list[Any]:
    return value if isinstance(value, list) else [value] * n


def _answer_to_json(answer: Answer) -> dict[str, Any]:
    body: dict[str, Any] = {"probability": answer.probability}
    if answer.arm is not None:
        body["arm"] = label_to_json(answer.arm)
    if answer.probabilities is not None:
        body["probabilities"] = list(answer.probabilities)
    return body


def _answer_from_json(body: dict[str, Any]) -> Answer:
    probabilities = body.get("probabilities")
    return Answer(
        None if "arm" not in body else label_from_json(body["arm"]),
        None if probabilities is None else tuple(probabilities),
        body["probability"],
    )
