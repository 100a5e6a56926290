"""The decision service on the command line: ``init``, ``serve``, ``replay``, ``tokens``, ``export``, ``backup``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidelight.errors import InputError, MissingExtraError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidelight.logs.schema import Schema
    from sidelight.service.config import Config
    from sidelight.service.store import Store

ConfigFile = Annotated[Path, typer.Option("--config", "-c", help="The configuration file.")]
Database = Annotated[
    str | None, typer.Option(help="Use this database instead: a file, or postgresql://user@host/name.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
_DEFAULT = Path("sidelight.toml")


# ---------------------------------------------------------------------------------------------- init


def init(
    summary: Annotated[
        Path | None, typer.Option(help="The log summary to start from; `sidelight summarize` makes one.")
    ] = None,
    features: Annotated[str | None, typer.Option(help="Without a log: the features, comma-separated numbers.")] = None,
    arms: Annotated[str | None, typer.Option(help="Without a log: the arms, comma-separated.")] = None,
    intercept: Annotated[bool, typer.Option("--intercept", help="Without a log: add a constant feature.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="The configuration to write.")] = _DEFAULT,
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
    _need_extra()
    from sidelight.service.config import initial_config, load_config, save_config
    from sidelight.service.rails import MODES

    if out.exists() and not force:
        raise InputError(f"{out} is there already: choose another --out, or --force to replace it.")
    if summary is not None:
        from sidelight.logs.summary import LogSummary

        loaded = LogSummary.load(summary)
        schema: Schema = loaded.schema
        frequent = loaded.arms[int(loaded.counts.argmax())]
    else:
        schema, frequent = _plain_schema(features, arms, intercept)
    chosen = frequent if fallback is None else _label(fallback, schema)
    asking = sys.stdin.isatty() and sys.stdout.isatty()
    mode = mode or _ask(asking, f"Who acts at first ({', '.join(MODES)})?", "shadow")
    if answers is None and summary is not None:
        answers = _ask(asking, "What does the old policy tell when asked (queries, probabilities)?", "queries")
    database = database or _ask(asking, "Where are the events kept (a file, or postgresql://...)?", "sidelight.db")
    relative = "" if summary is None else _relative(summary, out.parent)
    config = initial_config(
        schema,
        summary_path=relative,
        kind=learner,
        answers=answers or "queries",
        database=database,
        mode=mode,
        share=share,
        fallback=chosen,
        host=host,
        port=port,
    )
    save_config(config, out)
    try:
        load_config(out)
    except InputError:
        out.unlink()
        raise
    typer.echo(
        f"Wrote {out}: {config.learner.kind}, {mode} mode, fallback {chosen!r}, events in {config.storage.database}."
    )
    typer.echo(f"Next: sidelight serve --check -c {out}, then sidelight serve -c {out}")


def _plain_schema(features: str | None, arms: str | None, intercept: bool) -> tuple[Schema, Any]:
    from sidelight.logs.labels import typed_labels
    from sidelight.logs.schema import Schema

    if not features or not arms:
        raise InputError("give --summary (a log to start from), or --features and --arms to start without one.")
    labels = typed_labels([part.strip() for part in arms.split(",") if part.strip()])
    names = [part.strip() for part in features.split(",") if part.strip()]
    return Schema(names, recorded=[], arms=labels, intercept=intercept), labels[0]


def _label(text: str, schema: Schema) -> Any:
    for arm in schema.arms or ():
        if text == str(arm):
            return arm
    raise InputError(f"--fallback {text!r} is not one of the arms {list(schema.arms or ())!r}.")


def _ask(asking: bool, question: str, default: str) -> str:
    return str(typer.prompt(question, default=default)) if asking else default


def _relative(path: Path, folder: Path) -> str:
    try:
        return str(path.resolve().relative_to(folder.resolve()))
    except ValueError:
        return str(path.resolve())


# --------------------------------------------------------------------------------------------- serve


def serve(
    config: ConfigFile = _DEFAULT,
    database: Database = None,
    host: Annotated[str | None, typer.Option(help="Listen at this address instead.")] = None,
    port: Annotated[int | None, typer.Option(help="Listen at this port instead.", min=0, max=65535)] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check the configuration; write nothing.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
) -> None:
    """Run the decision service until it is told to stop."""
    _need_extra()
    import logging

    settings = _config(config, database, host, port)
    if check:
        from sidelight.service.config import check_config

        for line in check_config(settings):
            typer.echo(line)
        typer.echo(f"{config} is good.")
        return
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    from sidelight.service.server import run

    run(settings, say=lambda line: print(line, flush=True))


# -------------------------------------------------------------------------------------------- replay


def replay(config: ConfigFile = _DEFAULT, database: Database = None, as_json: AsJson = False) -> None:
    """Fold the event log again from its first event, and compare with what a start from snapshots gives."""
    _need_extra()
    import hashlib

    from sidelight.service.fold import State
    from sidelight.service.recovery import recover

    store = _store(_config(config, database))
    end = store.head()
    started = time.perf_counter()
    with _progress("replaying", as_json) as tick:
        whole = recover(store, upto=end, use_snapshots=False, progress=tick)
    seconds = time.perf_counter() - started
    quick = recover(store, upto=end)

    def digest(state: State) -> str:
        return hashlib.sha256(state.snapshot(0.0).learner).hexdigest()

    one, other = digest(whole.state), digest(quick.state)
    same = whole.state.snapshot(0.0).digest == quick.state.snapshot(0.0).digest
    result = {
        "events": end,
        "seconds": round(seconds, 3),
        "version": whole.state.version,
        "learner": one,
        "from_snapshot": quick.start,
        "damaged_snapshots": quick.damaged,
        "equal": same,
    }
    if as_json:
        typer.echo(json.dumps(result))
    else:
        typer.echo(f"{end} events in {seconds:.1f} s: learner {one[:16]}…, version {whole.state.version}.")
        typer.echo(
            f"The same bit for bit as from the snapshot after event {quick.start}."
            if same
            else f"DIFFERENT from the snapshot after event {quick.start}: learner {other[:16]}…"
        )
    if not same:
        raise ServiceError("the snapshots do not agree with the events. Delete the snapshots, and report this.")


# -------------------------------------------------------------------------------------------- tokens

tokens_app = typer.Typer(no_args_is_help=True, add_completion=False)


@tokens_app.command("create")
def tokens_create(
    name: Annotated[str, typer.Argument(help="Whose token it is.")],
    scope: Annotated[list[str], typer.Option(help="What it allows; repeat for several: decide, reward, read, admin.")],
    config: ConfigFile = _DEFAULT,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Make a token. It is shown this once."""
    _need_extra()
    from sidelight.service.auth import create_token

    token = create_token(_store(_config(config, database), create=True), name, scope)
    if as_json:
        typer.echo(json.dumps({"token": token, "name": name, "scopes": sorted(set(scope))}))
        return
    typer.echo(token)
    typer.echo("Keep it now: it cannot be shown again.", err=True)


@tokens_app.command("list")
def tokens_list(config: ConfigFile = _DEFAULT, database: Database = None, as_json: AsJson = False) -> None:
    """List all tokens, without their secrets."""
    _need_extra()
    from sidelight.service.auth import list_tokens

    tokens = list_tokens(_store(_config(config, database)))
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
    config: ConfigFile = _DEFAULT,
    database: Database = None,
) -> None:
    """Revoke a token; running servers refuse it within a second or two."""
    _need_extra()
    from sidelight.service.auth import revoke_token

    token = revoke_token(_store(_config(config, database)), which)
    typer.echo(f"Revoked {token.id} ({token.name}).")


# ---------------------------------------------------------------------------------- export and backup


def export(
    out: Annotated[Path, typer.Argument(help="The Parquet file to write.")],
    config: ConfigFile = _DEFAULT,
    database: Database = None,
    after: Annotated[int, typer.Option(help="Only rewards after this event.", min=0)] = 0,
    only_known: Annotated[
        bool, typer.Option("--only-known", help="Leave out rows whose propensity is unknown (overrides).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write every rewarded decision as Parquet, for `sidelight summarize`; the service may run meanwhile."""
    _need_extra()
    from dataclasses import asdict

    from sidelight.service.export import export_log

    settings = _config(config, database)
    with _progress("exporting", as_json) as tick:
        done = export_log(
            _store(settings), settings.load_schema(), out, after=after, only_known=only_known, progress=tick
        )
    if as_json:
        typer.echo(json.dumps(asdict(done)))
        return
    typer.echo(f"Wrote {done.rows} rewarded decisions to {out}, up to event {done.last}.")
    if done.unknown:
        typer.echo(f"{done.unknown} of them have no propensity (overrides, or an old policy that does not tell).")
    if done.dropped:
        typer.echo(f"{done.dropped} were left out.")


def backup(
    out: Annotated[str, typer.Argument(help="A new file, or postgresql://… of an empty database.")],
    config: ConfigFile = _DEFAULT,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Copy everything to a new database, as it is at one moment, while the service runs.

    The copy is a database like any other: point a configuration at it to restore, or copy it on to PostgreSQL.
    """
    _need_extra()
    from sidelight.service.copying import copy_store
    from sidelight.service.store import Store, database_url

    url = database_url(out)
    if url.get_backend_name() == "sqlite" and Path(str(url.database)).exists():
        raise InputError(f"{out} is there already: a back-up goes into a new file.")
    source, target = _store(_config(config, database)), Store(url)
    with _progress("copying", as_json) as tick:
        last = copy_store(source, target, progress=tick)
    target.close()
    typer.echo(json.dumps({"events": last}) if as_json else f"Copied {last} events to {out}.")


# -------------------------------------------------------------------------------------------- common


class _progress:  # noqa: N801 - reads as a verb where it is used
    """A progress bar on a terminal, nothing elsewhere."""

    def __init__(self, what: str, quiet: bool) -> None:
        self._what = what
        self._bar: Any = None
        self._show = sys.stderr.isatty() and not quiet

    def __enter__(self) -> Callable[[int, int], None]:
        if self._show:
            from rich.console import Console
            from rich.progress import Progress

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


def _config(path: Path, database: str | None, host: str | None = None, port: int | None = None) -> Config:
    from dataclasses import replace

    from sidelight.service.config import load_config

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


def _store(config: Config, create: bool = False) -> Store:
    from sidelight.service.store import Store, database_url

    return Store(database_url(config.storage.database, config.folder), create=create)


def _need_extra() -> None:
    import importlib.util

    missing = [
        name
        for name in ("fastapi", "uvicorn", "httptools", "sqlalchemy", "prometheus_client")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise MissingExtraError(
            f"the decision service needs {', '.join(missing)}: install it with pip install 'sidelight[service]'."
        )
