"""The successor of a service: its decisions become a log, and a service with other features or arms starts from it.

The service recorded everything that its learner saw, so only new features (such as those of a new sensor) are hidden in
this log. Where the old learner acted, it is the successor's old policy, which can be asked at any context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import sqlalchemy as sa

from sidelight.errors import InputError, StoreError
from sidelight.labels import Label, show_labels
from sidelight.learners.registry import KINDS
from sidelight.learners.saving import learner_bytes
from sidelight.logs.schema.features import Feature
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summary import LogSummary
from sidelight.service.config import Config, initial_config, save_config
from sidelight.service.core.fold import NotRebuildable
from sidelight.service.core.ladder import GateSettings
from sidelight.service.core.old_policy import OldPolicy
from sidelight.service.core.recovery import Retracted, fold_tail, recover
from sidelight.service.log import migrations as tables
from sidelight.service.log.connections import database_url
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Decisions
from sidelight.service.log.rows import event_from_row
from sidelight.service.log.store import Store
from sidelight.service.views.export import export_log, own_column

__all__ = ["Successor", "make_successor", "next_schema"]

#: rows of the log that are summarized at once
_CHUNK = 10_000
#: snapshots of the old learner that represent the whole time in which it acted
_MOMENTS = 16
#: event numbers reserved for what the old service writes from now on
_ROOM = 1_000_000


@dataclass(frozen=True)
class Successor:
    """The result of setting up a successor.

    Attributes:
        rows: rewarded decisions that the next service starts from.
        acted: who had taken them: ``learner`` or ``old_policy``.
        left_out: rewarded decisions by somebody else, of a retired arm, or whose context was deleted or has gaps.
        last: the last event that was looked at.
        moments: number of snapshots of the old learner that represent the old policy.
    """

    rows: int
    acted: str
    left_out: int
    last: int
    moments: int


def next_schema(
    schema: Schema, features: Sequence[str | Feature], arms: Sequence[Label], retired: Sequence[Label]
) -> Schema:
    """The schema of the next era: every old feature is recorded, derived ones included, the new ones are not.

    Gaps of old features stay what they were; those of new ones are inferred where all old features' are.

    Raises:
        InputError: an arm to retire is not there, or nothing changes.
    """
    old = list(schema.arms or ())
    unknown = [arm for arm in retired if arm not in old]
    if unknown:
        raise InputError(f"{unknown[0]!r} cannot be retired: the arms are {show_labels(old)}.")
    again = [arm for arm in arms if arm in old]
    if again:
        raise InputError(f"{again[0]!r} is an arm already: {show_labels(old)}.")
    if not (features or arms or retired):
        raise InputError("nothing changes: name a new feature, a new arm or an arm to retire.")
    names = [feature.name for feature in schema.features]
    return Schema(
        [*schema.features, *features],
        recorded=names,
        arm=schema.arm,
        reward=schema.reward,
        arms=[arm for arm in old if arm not in retired] + list(arms),
        intercept=schema.intercept,
        derived=schema.derived,
        missing="impute" if set(schema.imputed) == set(names) else dict.fromkeys(schema.imputed, "impute"),
        binary=schema.binary,
    )


def make_successor(
    store: Store,
    config: Config,
    schema: Schema,
    folder: Path,
    *,
    mode: str = "shadow",
    fallback: Label | None = None,
    database: str = "sidelight.db",
) -> Successor:
    """Write log, summary, old policy and configuration of the next service into a new folder.

    Args:
        store: the events of the service that is to be succeeded; it may run meanwhile.
        config: its configuration.
        schema: from :func:`next_schema`.
        folder: where the next service will live.
        mode: who acts at first in the next service; in ``shadow`` the old learner goes on.
        fallback: the arm to take in doubt; by default the same, or the most frequent if that one is retired.
        database: where the next service keeps its events.

    Raises:
        InputError: there are no rewarded decisions to start from.
        StoreError: the new database holds events, or cannot be opened; nothing was written.
    """
    url = database_url(database, folder)
    old, log = config.load_schema(), folder / "log.parquet"
    with _empty_folder(folder):
        _check_empty(url)
        acted, done = "learner", export_log(store, old, log, acted="learner")
        if not done.rows:
            acted, done = "old_policy", export_log(store, old, log, acted="old_policy")
        summary = _summary(store, log, old, schema) if done.rows else None
        if summary is None:
            log.unlink()
            raise InputError(
                "there are no rewarded decisions of the learner or of the old policy whose arm stays and whose context "
                "has no gaps: nothing to start from."
            )
    summary.save(folder / "log.summary")
    learners = _moments(store, log, own_column(old, "decision"), done.last) if acted == "learner" else []
    if learners:
        OldPolicy.save(learners, learner_bytes(recover(store, upto=done.last).state.learner), folder / "old-policy")
    save_config(
        _next_config(config, schema, summary, mode, fallback, database, "old-policy" if learners else ""),
        folder / "sidelight.toml",
    )
    _begin(store, Store(url), done.last)
    return Successor(summary.n_rows, acted, done.dropped + done.rows - summary.n_rows, done.last, len(learners))


@contextmanager
def _empty_folder(folder: Path) -> Iterator[None]:
    """Make a folder, or take an empty one; a folder made here is removed if the work in it fails and leaves nothing."""
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    taken = [path.name for path in folder.iterdir()]
    if taken:
        raise InputError(f"{folder} holds {show_labels(taken)}: a successor starts in an empty folder.")
    try:
        yield
    except BaseException:
        if new and not any(folder.iterdir()):
            folder.rmdir()
        raise


def _summary(store: Store, log: Path, old: Schema, schema: Schema) -> LogSummary | None:
    """What a log tells of the arms that ``schema`` has; None where no row is left.

    The contexts are those of the events: what ``schema`` records is what they hold, column by column, while columns of
    which only derived features are known (a date) are not in the log. Rows with gaps are left out, as of every log.
    """
    names = [own_column(old, "decision"), schema.arm, schema.reward]
    whole: LogSummary | None = None
    for batch in pq.ParquetFile(log).iter_batches(_CHUNK, columns=names):
        texts, arms, rewards = (batch.column(name).to_pylist() for name in names)
        X = _contexts(store, [DecisionId.parse(text) for text in texts], old.n_features)
        kept = [i for i, x in enumerate(X) if arms[i] in (schema.arms or ()) and np.isfinite(x).all()]
        if kept:
            part = LogSummary.from_arrays(X[kept], [arms[i] for i in kept], [rewards[i] for i in kept], schema)
            whole = part if whole is None else whole + part
    return whole


def _contexts(store: Store, ids: Sequence[DecisionId | None], d: int) -> np.ndarray:
    """(n, d) the encoded contexts of decisions; NaN where one was deleted meanwhile."""
    rows = store.rows(sorted({id.number for id in ids if id is not None}))
    events = {number: event_from_row(row, d) for number, row in rows.items()}
    X = np.full((len(ids), d), np.nan)
    for x, id in zip(X, ids, strict=True):
        event = None if id is None else events[id.number]
        if id is not None and isinstance(event, Decisions):
            x[:] = event.contexts[id.position]
    return X


def _next_config(
    config: Config, schema: Schema, summary: LogSummary, mode: str, fallback: Label | None, database: str, policy: str
) -> Config:
    old = config.rails().fallback
    if fallback is None:
        fallback = old if old in (schema.arms or ()) else summary.arms[int(summary.counts.argmax())]
    kind = config.learner.kind if KINDS[config.learner.kind].made_from == "hidden" else None
    gate = GateSettings.from_dict(asdict(config.gate))
    made = initial_config(
        summary.schema,
        summary_path="log.summary",
        kind=kind,
        # The old learner is asked for its actions; any other old policy gives the kind of answer that it gave before.
        answers="queries" if policy else config.learner.answers,
        settings=dict(config.learner.settings) if kind else None,
        database=database,
        mode=mode,
        # a new learner starts at the first rung of the ladder, even if a person later sets only the mode
        share=gate.share_of(0) if gate.on else 1.0,
        fallback=fallback,
        host=config.service.host,
        port=config.service.port,
    )
    storage = replace(config.storage, database=database)
    return replace(
        made,
        learner=replace(made.learner, old_policy=policy),
        mode=replace(made.mode, explore=config.mode.explore, propensities=config.mode.propensities),
        gate=config.gate,
        bounds=config.bounds,
        storage=storage,
        limits=config.limits,
        logs=config.logs,
        telemetry=config.telemetry,
    )


def _moments(store: Store, log: Path, column: str, end: int) -> list[bytes]:
    """Saved learners as of decisions equally many rows apart, as far as they can be rebuilt; else the last learner."""
    ids = [DecisionId.parse(text) for text in pq.read_table(log, columns=[column])[column].to_pylist()]
    numbers = sorted(id.number for id in ids if id is not None)
    wanted = [numbers[(2 * i + 1) * len(numbers) // (2 * _MOMENTS)] for i in range(min(_MOMENTS, len(numbers)))]
    events = {number: event_from_row(row, 0) for number, row in _without_contexts(store, wanted).items()}
    versions = sorted(event.version for event in (events[n] for n in wanted) if isinstance(event, Decisions))
    learners: list[bytes] = []
    retracted = Retracted(store, end)
    state = None
    for version in versions:
        if state is None:
            try:
                state = recover(store, upto=max(version, store.origin + 1), use_snapshots=False).state
            except NotRebuildable:
                continue
        fold_tail(store, state, version, retracted)
        learners.append(learner_bytes(state.learner))
    return learners or [learner_bytes(recover(store, upto=end).state.learner)]


def _without_contexts(store: Store, numbers: Sequence[int]) -> dict[int, Any]:
    return {number: row._replace(contexts=None) for number, row in store.rows(numbers).items()}


def _check_empty(url: sa.URL) -> None:
    if url.get_backend_name() == "sqlite":
        path = Path(str(url.database))
        if not path.parent.is_dir():
            raise StoreError(f"there is no folder {path.parent} for the next service's database: make it first.")
        if not path.exists():
            # The database is not created yet: if a later step fails, the folder stays empty, and a retry is not
            # refused.
            return
    target = Store(url)
    try:
        if target.head() != 0:
            where = url.render_as_string(hide_password=True)
            raise StoreError(f"the database at {where} already holds events: a successor starts in an empty one.")
    finally:
        target.close()


def _begin(source: Store, target: Store, last: int) -> None:
    """Start an empty log numbered above the old service's future events, and copy the old tokens.

    Whoever could call the old service can call the next one; and a late reward for a decision of the old service is
    unknown here, not mistaken for another decision's.
    """
    target.start_after((last // _ROOM + 2) * _ROOM)
    with source.reading() as reading, target.writing() as writing:
        rows = [dict(row._mapping) for row in reading.execute(sa.select(tables.tokens))]
        if rows:
            writing.execute(tables.tokens.insert(), rows)
    target.close()
