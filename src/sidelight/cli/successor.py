"""``sidelight successor``: the next era of a running service, with new features, new arms or retired ones."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from sidelight.cli.service_options import (
    DEFAULT_CONFIG,
    AsJson,
    ConfigFile,
    Database,
    arm_of,
    read_config,
    read_store,
)
from sidelight.errors import InputError
from sidelight.labels import counted, typed_labels
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.schema import Schema
from sidelight.service.operations.successor import make_successor, next_schema
from sidelight.service.rails import MODES


def successor(
    folder: Annotated[Path, typer.Argument(help="A new folder for the next service.")],
    feature: Annotated[
        list[str] | None,
        typer.Option(help="A new feature: a name for a number, or name=level,level for a category. Repeat for more."),
    ] = None,
    arm: Annotated[list[str] | None, typer.Option(help="A new arm. Repeat for more.")] = None,
    retire: Annotated[list[str] | None, typer.Option(help="An arm to retire. Repeat for more.")] = None,
    mode: Annotated[
        str, typer.Option(help="Who acts at first: shadow (the old learner goes on), assist or act.")
    ] = "shadow",
    fallback: Annotated[str | None, typer.Option(help="The arm to take in doubt; default the same as now.")] = None,
    new_database: Annotated[
        str | None, typer.Option(help="Where the next service keeps its events; default a file in the folder.")
    ] = None,
    config: ConfigFile = DEFAULT_CONFIG,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Set up the service that follows this one: its decisions become the log that the next one starts from.

    Every feature of this service is recorded in that log; new ones are what it hides. Tokens are taken over.
    """
    settings = read_config(config, database)
    if mode not in MODES:
        raise InputError(f"--mode {mode!r} is not one of {', '.join(MODES)}.")
    old = settings.load_schema()
    schema = next_schema(
        old,
        [_feature(text) for text in feature or ()],
        _typed(arm or [], old),
        [arm_of(text, old, "--retire") for text in retire or ()],
    )
    done = make_successor(
        read_store(settings),
        settings,
        schema,
        folder,
        mode=mode,
        fallback=None if fallback is None else arm_of(fallback, schema, "--fallback"),
        database=new_database or "sidelight.db",
    )
    if as_json:
        typer.echo(json.dumps(asdict(done) | {"folder": str(folder)}))
        return
    whose = "the learner's own" if done.acted == "learner" else "the old policy's"
    typer.echo(
        f"The next service starts from {counted(done.rows, 'rewarded decision')}, {whose}, up to event {done.last}."
    )
    if done.left_out:
        typer.echo(
            f"{done.left_out} were left out: others acted, the arm is retired, or the context is deleted or has gaps."
        )
    if done.moments:
        moments = "one moment" if done.moments == 1 else f"{done.moments} moments"
        typer.echo(f"It asks the old learner, at {moments} of its time, what the old policy would do.")
    typer.echo(f"Next: sidelight serve --check -c {folder / 'sidelight.toml'}; stop the old service, start this one.")


def _feature(text: str) -> Any:
    name, equals, levels = text.partition("=")
    if not equals:
        return name
    return Category(name, tuple(typed_labels([part.strip() for part in levels.split(",") if part.strip()])))


def _typed(texts: list[str], schema: Schema) -> list[Any]:
    """Labels of new arms: text if all old arms are text, otherwise numbers where they look like numbers."""
    if all(type(arm) is str for arm in schema.arms or ()):
        return list(texts)
    return list(typed_labels(texts))
