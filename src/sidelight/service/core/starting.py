"""Before the first request: the store of a configuration, and the first event of its log."""

from __future__ import annotations

from typing import Any

from sidelight.errors import StoreError
from sidelight.learners.saving import learner_bytes
from sidelight.service.config import Config
from sidelight.service.log.connections import database_url
from sidelight.service.log.events import Configuration, event_from_row
from sidelight.service.log.store import Draft, Store

__all__ = ["open_store", "prepare"]


def open_store(config: Config, database: str | None = None) -> Store:
    """The store of a configuration, made and migrated where needed."""
    return Store(database_url(config.storage.database if database is None else database, config.folder))


def prepare(store: Store, config: Config) -> None:
    """Write the first event into an empty log, or check that a log belongs to this configuration.

    Raises:
        StoreError: the log was started with another schema or another learner.
    """
    rails = config.rails()
    schema = config.load_schema().to_dict()
    described = {
        "learner": config.learner.kind,
        "answers": config.learner.answers,
        "settings": config.learner.settings,
        "rails": rails.to_dict(),
    }
    if store.first() is None:
        digest = store.put_blob(learner_bytes(config.build_learner()))
        event = Configuration(
            learner=digest,
            schema=schema,
            mode=rails.mode,
            share=rails.share,
            fallback=rails.fallback,
            killed=rails.killed,
            source="file",
            file=described,
        )
        # Two servers may start on an empty database at once: whoever comes second finds the first one's event.
        store.append([_First(Draft.of(event, "first"))], store.origin)
    row = store.first()
    assert row is not None
    first = event_from_row(row, 0)
    assert isinstance(first, Configuration)
    if first.schema != schema:
        raise StoreError(
            "the event log was started with another schema (features, recorded ones or arms) than the configuration "
            "now says. A log belongs to one schema: use another database, or undo the change."
        )
    for name in ("learner", "answers", "settings"):
        if (first.file or {}).get(name) != described[name]:
            raise StoreError(
                f"the event log was started with {name} = {(first.file or {}).get(name)!r} and the configuration says "
                f"{described[name]!r}. The learner is a fold over all events of one log: use another database, or undo "
                "the change."
            )


class _First:
    """The first event, written only where there is none."""

    keys: tuple[str, ...] = ("first",)

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def settle(self, found: Any) -> Any:
        return None if "first" in found else self._draft
