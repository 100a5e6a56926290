"""Preparation of a start: opening the store, writing the first event, taking over logs of an older version."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from sidelight.errors import StoreError
from sidelight.learners.saving import learner_bytes
from sidelight.service.config import Config
from sidelight.service.core.fold import FOLD, ContextsDeleted, Numbered, State, Unlearned
from sidelight.service.core.recovery import catch_up, recover
from sidelight.service.log.bases import newest_base, put_base
from sidelight.service.log.connections import database_url
from sidelight.service.log.events import Configuration, FoldChange
from sidelight.service.log.rows import event_from_row
from sidelight.service.log.store import Draft, Store
from sidelight.service.log.surroundings import Surroundings
from sidelight.version import __version__

__all__ = ["check_belongs", "check_log", "lacks_tokens", "open_store", "prepare", "take_over"]

logger = logging.getLogger("sidelight.service")


def open_store(config: Config, database: str | None = None, surroundings: Surroundings | None = None) -> Store:
    """The store of a configuration, made and migrated where needed."""
    url = database_url(config.storage.database if database is None else database, config.folder)
    return Store(url, surroundings=surroundings)


def prepare(store: Store, config: Config) -> None:
    """Write the first event into an empty log, or check that a log belongs to this configuration.

    Raises:
        StoreError: the log was started with another schema, learner or log summary, or it is damaged.
    """
    if store.first() is None:
        rails = config.rails()
        digest = store.put_blob(learner_bytes(config.build_learner()))
        event = Configuration(
            learner=digest,
            schema=config.load_schema().to_dict(),
            mode=rails.mode,
            share=rails.share,
            fallback=rails.fallback,
            killed=rails.killed,
            explore=rails.explore or None,
            source="file",
            file=_described(config)
            | {
                "rails": rails.to_dict(),
                "fold": FOLD,
                "sidelight": __version__,
                "summary": summary_digest(config),
            },
        )
        # Two servers may start on an empty database at once: the second one finds the event of the first.
        store.append([_First(Draft.of(event, "first"))], store.origin, fold=FOLD)
    check_belongs(store, config)


def _described(config: Config) -> dict[str, Any]:
    """The parts of the learner's configuration that must not change while a log is used."""
    learner = config.learner
    return {"learner": learner.kind, "answers": learner.answers, "settings": learner.settings}


def check_belongs(store: Store, config: Config) -> None:
    """Check that a log that has begun belongs to a configuration.

    Raises:
        StoreError: the log was started with another schema, learner or log summary, or it is damaged.
    """
    row = store.first()
    first = None if row is None else event_from_row(row, 0)
    if not isinstance(first, Configuration):
        raise StoreError("the event log does not start with a configuration: it was altered. Restore a back-up.")
    if first.schema != config.load_schema().to_dict():
        raise StoreError(
            "the event log was started with another schema (features, recorded ones or arms) than the configuration "
            "now says. A log belongs to one schema: use another database, or undo the change."
        )
    for name, now in _described(config).items():
        if (first.file or {}).get(name) != now:
            raise StoreError(
                f"the event log was started with {name} = {(first.file or {}).get(name)!r} and the configuration says "
                f"{now!r}. The learner is a fold over all events of one log: use another database, or undo "
                "the change."
            )
    _check_summary(store, first, summary_digest(config))


def summary_digest(config: Config) -> str | None:
    """SHA-256 of the log summary's file, of all names and files where there are several; None where there is none."""
    files = config.summary_files()
    if not files:
        return None
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    if list(digests) == [""]:
        return digests[""]
    return hashlib.sha256("\n".join(f"{name}\t{digest}" for name, digest in digests.items()).encode()).hexdigest()


def _check_summary(store: Store, first: Configuration, summary: str | None) -> None:
    """Compare with the log summary that the learner was made from, as far as the log says which it was.

    Raises:
        StoreError: it is another one.
    """
    recorded = (first.file or {}).get("summary")
    for row in store.of_kind(FoldChange.kind):
        event = event_from_row(row, 0)
        if isinstance(event, FoldChange):
            recorded = recorded or event.summary
    if recorded is not None and recorded != summary:
        raise StoreError(
            "the event log was started from another log summary than the one that the configuration names now "
            f"(SHA-256 {recorded[:12]}…, now {(summary or 'none')[:12]}…). The learner began with the old one, and a "
            "new one would be ignored: put the old file back, or start a new log in another database."
        )


def lacks_tokens(config: Config, store: Store | None) -> str | None:
    """Why a server must not start: others can reach it, and there are no tokens; None where it may.

    Args:
        config: says where the server listens.
        store: the event log; None where there is none yet.
    """
    if config.loopback or (store is not None and store.has_tokens()):
        return None
    return (
        f"there are no tokens, and [service] host = {config.service.host!r} can be reached from elsewhere: "
        'anybody could decide. Make a token with `sidelight tokens create`, or use host = "127.0.0.1".'
    )


def check_log(store: Store) -> list[str]:
    """Check the parts of a log that a start from a snapshot does not read.

    Returns:
        warnings: what is wrong but does not prevent the service from running.

    Raises:
        StoreError: the log is damaged, and only a back-up can restore it.
    """
    # Before the end of the log: other servers may write, and a snapshot was never ahead of the log when it was kept.
    snapshots = store.snapshot_numbers()
    head, last, chain = store.ends()
    if last > head.number:
        raise StoreError(
            f"the event log says that it ends at event {head.number}, and there are events up to {last}: it was "
            "altered from outside, or a part of the database is older than the rest. Restore a back-up."
        )
    if last < head.number:
        raise StoreError(
            f"the event log says that it ends at event {head.number}, and its last event is {last}: events are lost. "
            "Restore a back-up."
        )
    if head.number > store.sealed_after and head.chain != chain:
        raise StoreError(
            f"the chained digest of event {head.number} is not the log's: it was altered. Restore a back-up."
        )
    notes: list[str] = []
    row = store.first()
    event = None if row is None else event_from_row(row, 0)
    if isinstance(event, Configuration) and event.learner is not None:
        try:
            store.blob(event.learner)
        except StoreError as error:
            if newest_base(store) is None:
                raise
            notes.append(f"{error} Replays start from a base, so the service goes on without it.")
    ahead = [number for number in snapshots if number > head.number]
    if ahead:
        notes.append(
            f"there are snapshots after event {ahead[0]}, and the log ends at event {head.number}: events were lost, "
            "and what was acknowledged with them. The snapshots are passed over, and ids get a new epoch."
        )
        store.begin_epoch(f"there was a snapshot after event {ahead[0]}, which is lost")
        for number in ahead:
            store.drop_snapshot(number)
    return notes


def take_over(store: Store, config: Config) -> bool:
    """Continue the log with this version's fold, from a base of the older fold's state and an event that records it.

    Returns:
        whether there was something to take over.

    Raises:
        StoreError: a newer version folds this log.
    """
    while True:
        head = store.end()
        if head.fold == FOLD:
            return False
        if head.fold > FOLD:
            raise StoreError(
                f"the event log is folded by version {head.fold}, and this Sidelight folds by version {FOLD}: a newer "
                "one serves it. Upgrade Sidelight, or point it at another database."
            )
        state = recover_older(store, head.fold)
        event = FoldChange(FOLD, head.fold, __version__, summary_digest(config))
        try:
            _write_base(store, state, event, head.fold)
        except (ContextsDeleted, Unlearned, _TakenOver):
            continue
        logger.warning("the log is folded by version %d from event %d on (before: %d)", FOLD, state.number, head.fold)
        return True


def recover_older(store: Store, fold: int) -> State:
    """The newest state of an older fold, as this version reads it, with what came after folded in by this one."""
    return recover(store, fold=fold).state


def _write_base(store: Store, state: State, event: FoldChange, before: int) -> None:
    with store.writing(patience=600) as connection:
        head = store.lock(connection)
        if head.fold != before:
            raise _TakenOver
        catch_up(store, state, head.number)
        rows, _ = store.write_drafts(connection, head._replace(fold=event.fold), [Draft.of(event)])
        row = rows[0]
        state.apply(Numbered(row.number, row.at, event, None, row.chain))
        put_base(connection, state.snapshot(row.at))


class _TakenOver(Exception):
    """Another server has taken the log over first."""


class _First:
    """The first event, written only where there is none."""

    keys: tuple[str, ...] = ("first",)

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def settle(self, found: Any) -> Any:
        return None if "first" in found else self._draft
