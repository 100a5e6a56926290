"""The decision service on the command line: ``init``, ``serve``, ``tokens``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from sidelight.cli.input_files import not_over_input
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
from sidelight.labels import typed_labels
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summary import LogSummary
from sidelight.service.config import initial_config, load_config, save_config
from sidelight.service.http.auth import create_token, list_tokens, revoke_token
from sidelight.service.rails import MODES
from sidelight.service.run import run
from sidelight.service.views.checkup import check_config

# ---------------------------------------------------------------------------------------------- init


def init(
    summary: Annotated[
        list[str] | None,
        typer.Option(
            help="The log summary to start from; `sidelight summarize` makes one. Several logs or eras: "
            "--summary NAME=FILE for each."
        ),
    ] = None,
    features: Annotated[str | None, typer.Option(help="Without a log: the features, comma-separated numbers.")] = None,
    arms: Annotated[str | None, typer.Option(help="Without a log: the arms, comma-separated.")] = None,
    intercept: Annotated[
        bool, typer.Option("--intercept/--no-intercept", help="Without a log: add a constant.")
    ] = True,
    out: Annotated[Path, typer.Option("--out", "-o", help="The configuration to write.")] = DEFAULT_CONFIG,
    mode: Annotated[str | None, typer.Option(help="Who acts at first: shadow, assist or act.")] = None,
    share: Annotated[float, typer.Option(help="In act: the share of the traffic that the learner decides.")] = 1.0,
    fallback: Annotated[
        str | None, typer.Option(help="The arm to take in doubt; default the log's most frequent.")
    ] = None,
    learner: Annotated[str | None, typer.Option(help="The learner; default FusedOFUL, or OFUL without a log.")] = None,
    answers: Annotated[
        str | None, typer.Option(help="What the old policy tells when asked: queries (its action) or probabilities.")
    ] = None,
    database: Annotated[str | None, typer.Option(help="A file for SQLite, or postgresql://user@host/name.")] = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at.")] = 8321,
    force: Annotated[bool, typer.Option("--force", help="Replace a configuration that is there.")] = False,
) -> None:
    """Set up a decision service: write its configuration from a log summary and a few questions (or options)."""
    not_over_input(out)
    if out.exists() and not force:
        raise InputError(f"{out} is there already: choose another --out, or --force to replace it.")
    named = named_summaries(summary or [])
    if named:
        loaded = [LogSummary.load(path) for path in named.values()]
        schema: Schema = loaded[0].schema
        counts = sum(era.counts for era in loaded if era.arms == loaded[0].arms)
        frequent = loaded[0].arms[int(np.argmax(counts))]
    else:
        schema, frequent = _plain_schema(features, arms, intercept)
    chosen = frequent if fallback is None else arm_of(fallback, schema, "--fallback")
    asking = sys.stdin.isatty() and sys.stdout.isatty()
    mode = mode or _ask(asking, f"Who acts at first ({', '.join(MODES)})?", "shadow")
    if answers is None and named:
        answers = _ask(asking, "What does the old policy tell when asked (queries, probabilities)?", "queries")
    database = database or _ask(asking, "Where are the events kept (a file, or postgresql://...)?", "sidelight.db")
    relative = {name: _relative(path, out.parent) for name, path in named.items()}
    config = initial_config(
        schema,
        summary_path=relative.get("", ""),
        summaries={name: path for name, path in relative.items() if name},
        kind=learner,
        answers=answers or "queries",
        database=database,
        mode=mode,
        share=share,
        fallback=chosen,
        host=host,
        port=port,
    )
    # written beside its place and checked first: with --force, an existing file is replaced only by a valid one
    unchecked = out.with_name(f".{out.name}.unchecked")
    save_config(config, unchecked)
    try:
        load_config(unchecked)
        unchecked.replace(out)
    finally:
        unchecked.unlink(missing_ok=True)
    typer.echo(
        f"Wrote {out}: {config.learner.kind}, {mode} mode, fallback {chosen!r}, events in {config.storage.database}."
    )
    typer.echo(f"Next: sidelight serve --check -c {out}, then sidelight serve -c {out}")


def named_summaries(given: list[str]) -> dict[str, Path]:
    """Name → file for the values of ``--summary``; a single one without a name is called ``""``.

    Raises:
        InputError: of several, one has no name or two have the same.
    """
    if len(given) == 1 and ("=" not in given[0] or Path(given[0]).exists()):
        return {"": Path(given[0])}
    named: dict[str, Path] = {}
    for item in given:
        name, sign, path = item.partition("=")
        if not sign or not name or not path:
            raise InputError(
                f"--summary {item}: of several logs each needs a name, --summary {Path(item).stem or 'old'}={item}. "
                "The learner says by name how far it trusts each."
            )
        if name in named:
            raise InputError(f"--summary {item}: there is another one called {name!r}.")
        named[name] = Path(path)
    return named


def _plain_schema(features: str | None, arms: str | None, intercept: bool) -> tuple[Schema, Any]:
    if not features or not arms:
        raise InputError("give --summary (a log to start from), or --features and --arms to start without one.")
    labels = typed_labels([part.strip() for part in arms.split(",") if part.strip()])
    names = [part.strip() for part in features.split(",") if part.strip()]
    return Schema(names, recorded=[], arms=labels, intercept=intercept), labels[0]


def _ask(asking: bool, question: str, default: str) -> str:
    return str(typer.prompt(question, default=default)) if asking else default


def _relative(path: Path, folder: Path) -> str:
    try:
        return str(path.resolve().relative_to(folder.resolve()))
    except ValueError:
        return str(path.resolve())


# --------------------------------------------------------------------------------------------- serve


def serve(
    config: ConfigFile = DEFAULT_CONFIG,
    database: Database = None,
    host: Annotated[str | None, typer.Option(help="Listen at this address instead.")] = None,
    port: Annotated[int | None, typer.Option(help="Listen at this port instead.", min=0, max=65535)] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check the configuration; write nothing.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
) -> None:
    """Run the decision service until it is told to stop."""
    settings = read_config(config, database, host, port)
    if check:
        for line in check_config(settings):
            typer.echo(line)
        typer.echo(f"{config} is good.")
        return

    run(settings, say=lambda line: print(line, flush=True), verbose=verbose)


# -------------------------------------------------------------------------------------------- tokens

tokens_app = typer.Typer(no_args_is_help=True, add_completion=False)


@tokens_app.command("create")
def tokens_create(
    name: Annotated[str, typer.Argument(help="Whose token it is.")],
    scope: Annotated[list[str], typer.Option(help="What it allows; repeat for several: decide, reward, read, admin.")],
    config: ConfigFile = DEFAULT_CONFIG,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Make a token. It is shown only once."""
    token = create_token(read_store(read_config(config, database), create=True), name, scope)
    if as_json:
        typer.echo(json.dumps({"token": token, "name": name, "scopes": sorted(set(scope))}))
        return
    typer.echo(token)
    typer.echo("Keep it now: it cannot be shown again.", err=True)


@tokens_app.command("list")
def tokens_list(config: ConfigFile = DEFAULT_CONFIG, database: Database = None, as_json: AsJson = False) -> None:
    """List all tokens, without their secrets."""
    tokens = list_tokens(read_store(read_config(config, database)))
    if as_json:
        rows = [
            {"id": t.id, "name": t.name, "scopes": sorted(t.scopes), "created": t.created, "revoked": t.revoked}
            for t in tokens
        ]
        typer.echo(json.dumps(rows))
        return
    if not tokens:
        typer.echo("No tokens: the service answers this machine only.")
    for t in tokens:
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(t.created))
        state = "valid" if t.revoked is None else "revoked " + time.strftime("%Y-%m-%d", time.localtime(t.revoked))
        typer.echo(f"{t.id}  {made}  {state:18s}  {', '.join(sorted(t.scopes)):28s}  {t.name}")


@tokens_app.command("revoke")
def tokens_revoke(
    which: Annotated[str, typer.Argument(help="The token's id, or its name.")],
    config: ConfigFile = DEFAULT_CONFIG,
    database: Database = None,
) -> None:
    """Revoke a token; running servers refuse it within a second or two."""
    token = revoke_token(read_store(read_config(config, database)), which)
    typer.echo(f"Revoked {token.id} ({token.name}).")
