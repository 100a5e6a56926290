"""Closing the loop: rewarded decisions as a file that ``summarize_log`` reads, while the service runs."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sidelight.errors import InputError, SchemaError
from sidelight.files import file_to_replace
from sidelight.labels import Label
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.schema import Schema
from sidelight.logs.schema.units import in_units
from sidelight.logs.sources.writing import TableWriter, kind_written
from sidelight.service.core.told import assumed_reward, taken_by
from sidelight.service.log.events import Action, Decisions, DefaultReward, Event, Release, Reward
from sidelight.service.log.rows import Row, event_from_row, is_deleted
from sidelight.service.log.store import Store
from sidelight.service.views.chances import Switches, arm_chances, route_chance

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Exported", "export_log", "own_column"]

PROPENSITY = "propensity"
#: columns that the service adds to features, arm and reward
_OWN = (
    "event",
    "decision",
    "at",
    "mode",
    "by",
    "override",
    "decided",
    "recommended",
    "subject",
    "route",
    "route_probability",
    "assumed",
    "corrects",
    "propensities",
)
#: kinds of event that teach the learner a reward, and the prefixes of the keys of a reward, its release and retraction
_TEACHING = (Reward.kind, DefaultReward.kind, Release.kind)
_REWARDS = ("reward", "release:reward", "retracted:reward")
#: the names that the Open Bandit Pipeline uses
_OBP = ("context", "action", "reward", "pscore", "position")


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        rows: rewarded decisions, those with the default reward included.
        last: the last event that was looked at; a later export may start after it.
        unknown: rows without a propensity: overrides, what a person confirmed, the old policy's own actions where it
            did not tell.
        dropped: rows left out: their context was deleted, or they are not wanted (who acted, unknown propensity).
        corrected: rows whose decision has the default reward in an export up to ``after``; that row holds no more.
    """

    rows: int
    last: int
    unknown: int
    dropped: int
    corrected: int = 0


def export_log(
    store: Store,
    schema: Schema,
    path: str | os.PathLike[str],
    *,
    after: int = 0,
    only_known: bool = False,
    acted: Literal["learner", "old_policy"] | None = None,
    names: Literal["schema", "obp"] = "schema",
    subjects: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Exported:
    """Write every rewarded decision to a file: Parquet, CSV or Arrow, as its name ends.

    The rewards are those that the learner was taught, by what the log says now: none in quarantine, none retracted.

    Args:
        store: the event log; it may be written to meanwhile.
        schema: the schema of the service.
        path: the file; it appears when it is complete.
        after: only rewards after this event.
        only_known: leave out rows whose propensity is unknown.
        acted: only arms that this policy chose and that were taken: the learner in ``act`` mode, or the old policy.
        names: ``"schema"``: features, arm and reward by the names of the schema; ``"obp"``: ``context`` (the encoded
            features, a list), ``action`` (the arm's position), ``reward``, ``pscore`` and ``position`` (0: one arm is
            shown), as the Open Bandit Pipeline takes them; Parquet or Arrow.
        subjects: write subjects as they are; otherwise a hash of each with a key of this export, so that rows of one
            subject can be told to be of one and not whose they are.
        progress: called with (events read, events in all).
    """
    target = file_to_replace(path)
    try:
        str(target).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{str(target)!r} is not UTF-8, and Arrow, which writes the file, takes no other name. Choose one that is."
        ) from error
    kind = kind_written(target)
    if names == "obp" and kind == "csv":
        raise InputError(
            f"{target.name}: a context is a list of numbers, which CSV cannot hold. Write .parquet or .arrow."
        )
    arrow = _arrow_schema(schema, kind, names)
    key = None if subjects else secrets.token_bytes(16)
    temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}.part"
    rows = unknown = dropped = corrected = 0
    end = store.head()
    try:
        with TableWriter(temporary, kind, arrow) as writer:
            for batch, read, lost in _batches(store, schema, arrow, after, end, _Wanted(acted, names, kind, key)):
                propensities = batch.column("pscore" if names == "obp" else _propensity_name(schema))
                missing = propensities.null_count
                if only_known:
                    batch = batch.filter(propensities.is_valid())
                    lost += missing
                else:
                    unknown += missing
                rows += len(batch)
                dropped += lost
                corrected += sum(batch.column(own_column(schema, "corrects")).to_pylist())
                if len(batch):
                    writer.write(batch)
                if progress is not None:
                    progress(read, end)
        os.replace(temporary, target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error}. Choose a folder that exists and has space.") from error
    finally:
        temporary.unlink(missing_ok=True)
    return Exported(rows, end, unknown, dropped, corrected)


class _Wanted(NamedTuple):
    """Which rows and columns are written; subjects are hashed with ``key``, or written as they are where it is None."""

    acted: str | None
    names: str
    kind: str
    key: bytes | None

    def subject(self, name: str | None) -> str | None:
        """The subject as it is written to the file: hashed, unless there is no key."""
        if name is None or self.key is None:
            return name
        return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=self.key, digest_size=12).hexdigest()


class _Rewarded(NamedTuple):
    """A reward that counts for the learner at the end of the export.

    Attributes:
        row: the event that taught it.
        reward: its value.
        by: who took its arm; None where nobody has said.
        assumed: whether it is the default one.
        replaces: the event of the default reward whose place it takes; None where there was none.
    """

    row: Row
    reward: Reward
    by: str | None
    assumed: bool
    replaces: int | None = None


def _rewards(store: Store, chunk: list[Row], d: int, end: int) -> list[_Rewarded]:
    """The rewards of a chunk that the learner was taught by event ``end``, in their order.

    What is in quarantine counts from its release on, what was retracted never did, and the default reward stands for
    the arm that was taken until a reward that counts has come.
    """
    told = [(row, _told(event_from_row(row, d))) for row in chunk if row.kind in _TEACHING]
    ids = {event.decision for _, event in told if event is not None}
    keys = [f"{name}:{id}" for id in ids for name in ("default", "action", *_REWARDS)]
    # events after the end of this export belong to the next one
    found = {key: row for key, row in store.find(keys).items() if row.number <= end} if keys else {}
    out: list[_Rewarded] = []
    for row, event in told:
        if event is None:
            continue
        reward, release, retracted = (found.get(f"{name}:{event.decision}") for name in _REWARDS)
        kept = reward is not None and getattr(event_from_row(reward, 0), "quarantine", None) is not None
        counts = None if retracted is not None else release if kept else reward
        assumed = assumed_reward(found, event.decision)
        if isinstance(event, DefaultReward):
            if counts is None and assumed is not None:
                taken = found.get(f"action:{event.decision}")
                action = None if taken is None else event_from_row(taken, 0)
                # an action that was retracted before the wait ended names another arm
                by = action.by if isinstance(action, Action) and action.arm == assumed[2] else None
                out.append(_Rewarded(row, Reward(event.decision, event.reward, assumed[2]), by, True))
        elif counts is not None and counts.number == row.number:
            default = None if assumed is None else assumed[0].number
            out.append(_Rewarded(row, event, event.by, False, default))
    return out


def _told(event: Event) -> Reward | DefaultReward | None:
    """The reward that an event is about; None where it is about another thing."""
    told = event.released if isinstance(event, Release) else event
    return told if isinstance(told, Reward | DefaultReward) else None


def _batches(
    store: Store, schema: Schema, arrow: pa.Schema, after: int, end: int, wanted: _Wanted
) -> Iterator[tuple[pa.Table, int, int]]:
    import pyarrow as pa

    own = [own_column(schema, name) for name in _OWN]
    d, arms = schema.n_features, list(schema.arms or ())
    switches = Switches(store)
    for chunk in store.follow(after, end):
        rewards = _rewards(store, chunk, d, end)
        decisions = store.rows(item.reward.decision.number for item in rewards)
        parsed = {number: event_from_row(row, d) for number, row in decisions.items()}
        records: list[dict[str, Any]] = []
        lost = 0
        for row, reward, said, assumed, replaces in rewards:
            event = parsed[reward.decision.number]
            assert isinstance(event, Decisions)
            i = reward.decision.position
            x = event.contexts[i]
            decided, taken = event.arms[i], reward.arm
            by = taken_by(event, i, taken) if said is None else said
            if is_deleted(x) or (wanted.acted is not None and _actor(event, i, taken, by) != wanted.acted):
                lost += 1
                continue
            # The propensity is that of the arm to take; whoever took another one did not say how likely that was, nor
            # did a person who confirmed a proposal: that it was confirmed depends on what the person saw.
            known = decided is not None and taken == decided and event.mode != "assist"
            propensity = event.propensities[i] if known else None
            rails = switches.at(reward.decision.number, event)
            chances = arm_chances(event, i, rails, arms) if known else None
            listed = None if chances is None else [float(value) for value in chances]
            subject = None if event.subjects is None else event.subjects[i]
            values = (
                row.number,
                str(reward.decision),
                dt.datetime.fromtimestamp(row.at, dt.UTC),
                event.mode,
                by,
                # not the event's own flag: an override that an action reported first is flagged only in the action
                decided is not None and taken != decided,
                None if decided is None else str(decided),
                str(event.recommended[i]),
                wanted.subject(subject),
                event.routes[i],
                route_chance(event, i, rails),
                assumed,
                replaces is not None and replaces <= after,
                json.dumps(listed) if wanted.kind == "csv" and listed is not None else listed,
            )
            record: dict[str, Any] = dict(zip(own, values, strict=True))
            if wanted.names == "obp":
                record |= dict(zip(_OBP, (x.tolist(), arms.index(taken), reward.reward, propensity, 0), strict=True))
            else:
                record |= in_units(x, schema)
                record |= {schema.arm: taken, schema.reward: reward.reward, _propensity_name(schema): propensity}
            records.append(record)
        yield pa.Table.from_pylist(records, schema=arrow), chunk[-1].number, lost


def _actor(event: Decisions, i: int, taken: Label, by: str) -> str | None:
    """The policy whose choice was taken; None where a person or the fallback chose, or a person confirmed."""
    if by == "old_policy":
        return "old_policy"
    learners = event.mode == "act" and event.routes[i] == "learner" and taken == event.arms[i]
    return "learner" if learners else None


def own_column(schema: Schema, name: str) -> str:
    """What a column of the service's own is called: ``name``, with underscores behind where a feature is called so."""
    taken = {feature.name for feature in schema.features} | {schema.arm, schema.reward, schema.propensity}
    while name in taken:
        name += "_"
    return name


def _propensity_name(schema: Schema) -> str:
    return schema.propensity or own_column(schema, PROPENSITY)


def _arrow_schema(schema: Schema, kind: str, names: str) -> pa.Schema:
    import pyarrow as pa

    text, number = pa.string(), pa.float64()
    listed = text if kind == "csv" else pa.list_(number)
    types = (
        *(pa.int64(), text, pa.timestamp("us", "UTC"), text, text, pa.bool_(), text),
        *(text, text, text, number, pa.bool_(), pa.bool_(), listed),
    )
    fields: dict[str, Any] = {own_column(schema, name): kind for name, kind in zip(_OWN, types, strict=True)}
    if names == "obp":
        obp = zip(_OBP, (pa.list_(number), pa.int64(), number, number, pa.int64()), strict=True)
        return pa.schema([*fields.items(), *obp])
    for feature in schema.features:
        if feature.own:
            fields[feature.name] = _label_type(feature.levels or ()) if isinstance(feature, Category) else pa.float64()
    fields |= {name: pa.float64() for term in schema.derived for name in schema.term_names(term)}
    fields |= {
        schema.arm: _label_type(schema.arms or ()),
        schema.reward: pa.float64(),
        _propensity_name(schema): pa.float64(),
    }
    return pa.schema(list(fields.items()))


def _label_type(labels: tuple[Label, ...]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(list(labels)).type
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaError(
            f"labels of several kinds cannot be one column of a Parquet file: {list(labels)[:5]!r}. Use one kind."
        ) from error
