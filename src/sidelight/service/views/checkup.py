"""What ``sidelight serve --check`` says: everything that a configuration describes is built, and nothing is written."""

from __future__ import annotations

from pathlib import Path

from sidelight.errors import InputError
from sidelight.service.config import Config
from sidelight.service.core.old_policy import load_old_policy
from sidelight.service.log.connections import database_url, sqlite_flaw

__all__ = ["check_config"]


def check_config(config: Config) -> list[str]:
    """One line for each thing that was built.

    Raises:
        SidelightError: something cannot be built as the file says.
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
        *(f"warning: {words}" for words in warnings),
    ]
