"""What the commands of the decision service share: their options, the configuration, the store, a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from sidelight.errors import InputError
from sidelight.labels import Label, show_labels
from sidelight.logs.schema.schema import Schema
from sidelight.service.config import Config, load_config
from sidelight.service.log.connections import database_url
from sidelight.service.log.store import Store

ConfigFile = Annotated[Path, typer.Option("--config", "-c", help="The configuration file.")]
Database = Annotated[
    str | None, typer.Option(help="Use this database instead: a file, or postgresql://user@host/name.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
DEFAULT_CONFIG = Path("sidelight.toml")


class progress_bar:  # noqa: N801 - reads as a verb where it is used
    """A progress bar on a terminal, nothing elsewhere."""

    def __init__(self, what: str, quiet: bool) -> None:
        self._what = what
        self._bar: Any = None
        self._show = sys.stderr.isatty() and not quiet

    def __enter__(self) -> Callable[[int, int], None]:
        if self._show:
            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=None)
        return self._tick

    def _tick(self, done: int, total: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def read_config(path: Path, database: str | None, host: str | None = None, port: int | None = None) -> Config:
    """The configuration in a file, with settings replaced by those given as options."""
    config = load_config(path)
    if database is not None:
        if "://" not in database:
            database = str(Path(database).resolve())
        config = replace(config, storage=replace(config.storage, database=database))
    if host is not None:
        config = replace(config, service=replace(config.service, host=host))
    if port is not None:
        config = replace(config, service=replace(config.service, port=port))
    return config


def arm_of(text: str, schema: Schema, option: str) -> Label:
    """The arm that a text on the command line names.

    Raises:
        InputError: there is none; the message names the option.
    """
    for arm in schema.arms or ():
        if text == str(arm):
            return arm
    raise InputError(f"{option} {text!r} is not one of the arms: {show_labels(schema.arms or ())}.")


def read_store(config: Config, create: bool = False) -> Store:
    """The store of a configuration, as it is: it must be there, unless ``create``, and it is not migrated."""
    return Store.existing(database_url(config.storage.database, config.folder), create=create)
