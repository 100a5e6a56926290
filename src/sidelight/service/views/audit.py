"""The audit of one decision: what was asked, what was in force, what the learner knew then, and what followed."""

from __future__ import annotations

from typing import Any

from sidelight.errors import InputError
from sidelight.labels import label_to_json
from sidelight.logs.schema.schema import Schema
from sidelight.logs.schema.units import units_to_json
from sidelight.service.core.fold import NotRebuildable, State
from sidelight.service.core.recovery import fold_at, recover
from sidelight.service.core.teaching import LEARNER_ERRORS
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Configuration, Decisions, GateStep
from sidelight.service.log.rows import event_from_row, is_deleted
from sidelight.service.log.store import Store
from sidelight.service.views.explain import explain, score
from sidelight.service.views.history import describe_history, read_history

__all__ = ["audit"]


def audit(store: Store, schema: Schema, id: DecisionId) -> dict[str, Any]:
    """Everything that led to a decision and what came of it, as JSON.

    The learner is rebuilt as it was when it decided (``learner.exact``) and asked again: ``learner.reproduced`` says
    whether it gives the recorded estimate and width to the last bit.

    Raises:
        InputError: there is no such decision.
    """
    row = store.rows([id.number]).get(id.number)
    event = None if row is None or row.epoch != id.epoch else event_from_row(row, schema.n_features)
    if row is None or not isinstance(event, Decisions) or id.position >= len(event):
        raise InputError(f"there is no decision {str(id)!r}: use the id that came with the decision.")
    i = id.position
    x = event.contexts[i]
    deleted = is_deleted(x)
    answer = None if event.answers is None else event.answers[i]
    allowed = None if event.allowed is None else event.allowed[i]
    arm = event.arms[i]
    return {
        "decision": str(id),
        "event": row.number,
        "at": row.at,
        "asked": {
            "context": None if deleted else units_to_json(x, schema),
            "context_deleted": deleted,
            "allowed": None if allowed is None else [label_to_json(label) for label in allowed],
            "subject": None if event.subjects is None else event.subjects[i],
            "with_idempotency_key": row.key is not None,
        },
        "decided": {
            "arm": None if arm is None else label_to_json(arm),
            "by": event.routes[i],
            "recommended": label_to_json(event.recommended[i]),
            "estimate": event.estimates[i],
            "width": event.widths[i],
            "propensity": event.propensities[i],
            "wants_query": event.asked[i],
            "query_probability": event.query_probabilities[i],
            "mode": event.mode,
            "share": event.share,
        },
        "in_force": _in_force(store, row.number),
        "learner": _learner(store, schema, event, i, row.number, deleted),
        "followed": describe_history(read_history(store, id, schema.n_features), answer),
    }


def _in_force(store: Store, number: int) -> dict[str, Any]:
    """The configuration that the log was started with, and every change of it before event ``number``."""
    events = [(row, event_from_row(row, 0)) for row in store.configurations() if row.number < number]
    changes: list[dict[str, Any]] = []
    start: dict[str, Any] = {}
    for row, event in events:
        assert isinstance(event, Configuration)
        body: dict[str, Any] = {"event": row.number, "at": row.at, "by": event.by, "source": event.source}
        for name in ("mode", "share", "killed", "explore"):
            if getattr(event, name) is not None:
                body[name] = getattr(event, name)
        if event.fallback is not None:
            body["fallback"] = label_to_json(event.fallback)
        changes.append(body)
        if event.learner is not None:
            start = {"initial_learner": event.learner, "schema": event.schema, **(event.file or {})}
            start.pop("rails", None)
    steps = [(row, event_from_row(row, 0)) for row in store.of_kind(GateStep.kind) if row.number < number]
    for row, event in steps:
        assert isinstance(event, GateStep)
        changes.append(
            {
                "event": row.number,
                "at": row.at,
                "by": event.by,
                "source": "gate" if event.by is None else "request",
                "rung": event.after,
                # a hold by itself does not change the share
                **({} if event.before == event.after else {"share": event.share}),
                **({} if event.mode is None else {"mode": event.mode}),
                **({} if event.held is None else {"held": event.held}),
                "reason": event.reason,
                "evidence": event.evidence,
            }
        )
    changes.sort(key=lambda change: change["event"])
    return {"start": start, "changes": changes}


def _learner(store: Store, schema: Schema, event: Decisions, i: int, number: int, deleted: bool) -> dict[str, Any]:
    """The learner that decided, rebuilt by replay."""
    decided_by = fold_at(store, number)
    body: dict[str, Any] = {"version": event.version, "fold": decided_by, "exact": False, "reproduced": None}
    try:
        recovered = recover(store, upto=max(event.version, store.origin + 1))
        body["events_behind_the_log"] = _behind(store, event.version, number)
    except NotRebuildable as error:
        return body | {"why_not": str(error)}
    state: State = recovered.state
    body |= {
        "kind": type(state.learner).__name__,
        "exact": True,
        "digest": state.snapshot(0.0).digest,
        "replayed_from": recovered.start,
    }
    if deleted:
        return body | {"why_not": "the context was deleted, so the learner cannot be asked again."}
    x = event.contexts[i]
    try:
        estimates, widths = state.learner.scores(x)
        estimates = state.learner.shown(estimates)
        arm = state.learner.arms.index(event.recommended[i])
        body["reproduced"] = bool(estimates[arm] == event.estimates[i] and widths[arm] == event.widths[i])
        body["arms"] = explain(score(state.learner, x), schema, x, None if event.allowed is None else event.allowed[i])
    except LEARNER_ERRORS as error:
        body["why_not"] = f"the learner fails at this context: {error}"
    return body


def _behind(store: Store, version: int, number: int) -> int:
    """How many changes of the learner were in the log before the decision and not yet in the server that made it."""
    before = recover(store, upto=number - 1).state
    if before.version == version:
        return 0
    return sum(row.kind != "configuration" for row in store.read(version, before.version))
