"""What ``sidelight serve --check`` says: everything that a configuration describes is built, and nothing is written."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from sqlalchemy import URL

from sidelight.errors import InputError, StoreError
from sidelight.service.config import Config
from sidelight.service.core.ladder import GateSettings
from sidelight.service.core.old_policy import load_old_policy
from sidelight.service.core.starting import check_belongs, lacks_tokens
from sidelight.service.log.connections import database_url, sqlite_flaw, untouched
from sidelight.service.log.store import Store

__all__ = ["check_config"]


def check_config(config: Config) -> list[str]:
    """One line for each thing that was built.

    Raises:
        SidelightError: something cannot be built as the file says, or the event log was begun with something else.
    """
    schema = config.load_schema()
    learner = config.build_learner()
    rails = config.rails()
    load_old_policy(config)
    url = database_url(config.storage.database, config.folder)
    if url.get_backend_name() == "sqlite" and not (folder := Path(str(url.database)).parent).is_dir():
        raise InputError(f"[storage] database: there is no folder {folder}. Make it, or name another file.")
    warnings = []
    if url.get_backend_name() == "sqlite" and (flaw := sqlite_flaw()) is not None:
        warnings.append(flaw)
    if learner.ledger is not None and config.gate.wait_seconds is None:
        warnings.append(
            "[learner.settings] floor without [gate] reward_after: one decision whose reward never comes keeps all "
            "rewards behind it from the floor, which then holds the learner back for ever. Set reward_after, such as "
            '"7d", and default_reward.'
        )
    return [
        f"schema: {schema.n_features} encoded features, {schema.n_recorded} recorded in the log, "
        f"{len(schema.arms or ())} arms",
        f"learner: {learner!r}",
        f"mode: {rails.mode}, share {rails.share:g}, fallback {rails.fallback!r}"
        + (", killed" if rails.killed else ""),
        f"storage: {url.render_as_string(hide_password=True)}",
        *_compare_with_log(config, url),
        *_gate_notes(config),
        *(f"warning: {words}" for words in warnings),
    ]


def _compare_with_log(config: Config, url: URL) -> list[str]:
    """Lines about the event log, where there is one, and its tokens; it is read as it is.

    Raises:
        StoreError: it was begun with another schema, learner or log summary.
    """
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return ["log: none yet", *_token_note(config, None)]
    try:
        store = Store.existing(untouched(url))
    except StoreError as error:
        # the first start may resolve it: tables of an older version, a database server that is not up yet
        return [f"warning: the event log cannot be compared with this file. {str(error)[0].upper()}{str(error)[1:]}"]
    try:
        tokens = _token_note(config, store)
        if store.first() is None:
            return ["log: none yet", *tokens]
        check_belongs(store, config)
        return [f"log: up to event {store.head()}, begun with this schema, learner and log summary", *tokens]
    finally:
        store.close()


def _token_note(config: Config, store: Store | None) -> list[str]:
    """A line where the server would refuse to start for want of a token."""
    wrong = lacks_tokens(config, store)
    return [] if wrong is None else [f"warning: `sidelight serve` will not start: {wrong}"]


def _gate_notes(config: Config) -> list[str]:
    """A line where the gate takes no step by itself, because the learner's share in the file is on no rung."""
    settings, rails = GateSettings.from_dict(asdict(config.gate)), config.rails()
    if not settings.on or rails.mode != "act" or settings.rung_of(rails.share) >= 0:
        return []
    rungs = ", ".join(f"{settings.share_of(i):g}" for i in range(len(settings.ladder)))
    return [
        f"warning: [gate] promote is {settings.promote!r} and [mode] share = {rails.share:g} is on no rung ({rungs}): "
        "no step follows until the share is one of these."
    ]
