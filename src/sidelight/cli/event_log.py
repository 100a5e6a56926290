"""The event log on the command line: ``replay``, ``export``, ``backup``, ``restore``, ``migrate``, ``audit``, …"""

from __future__ import annotations

import enum
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from sqlalchemy import URL

from sidelight.cli.service_options import (
    DEFAULT_CONFIG,
    AsJson,
    ConfigFile,
    Database,
    progress_bar,
    read_config,
    read_store,
)
from sidelight.errors import InputError, ServiceError
from sidelight.labels import counted
from sidelight.service.core.fold import FOLD, State
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store
from sidelight.service.log.connections import database_url, untouched
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.store import Store
from sidelight.service.operations.copying import Untouched, back_up
from sidelight.service.operations.retention import forget as forget_subject
from sidelight.service.operations.retracting import decide_doubt
from sidelight.service.operations.retracting import retract as retract_told
from sidelight.service.views.audit import audit as audit_of
from sidelight.service.views.export import export_log
from sidelight.service.views.quarantine import describe_quarantine

# -------------------------------------------------------------------------------------------- replay


def replay(config: ConfigFile = DEFAULT_CONFIG, database: Database = None, as_json: AsJson = False) -> None:
    """Check a service: fold its event log again from the first event, and compare with a start from snapshots.

    To replay a randomized trial with learners: sidelight report --trial trial.csv
    """
    store = read_store(read_config(config, database))
    end = store.head()
    started = time.perf_counter()
    with progress_bar("replaying", as_json) as tick:
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
        "fold": FOLD,
        "from_base": whole.start,
        "from_snapshot": quick.start,
        "damaged_snapshots": quick.damaged,
        "equal": same,
    }
    if as_json:
        typer.echo(json.dumps(result))
    else:
        typer.echo(f"{counted(end, 'event')} in {seconds:.1f} s: learner {one[:16]}…, version {whole.state.version}.")
        typer.echo(
            f"The same bit for bit as from the snapshot after event {quick.start}."
            if same
            else f"DIFFERENT from the snapshot after event {quick.start}: learner {other[:16]}…"
        )
    if not same:
        raise ServiceError(
            "the snapshots do not agree with the events, and the servers go on from the snapshots: restore a back-up, "
            "and report this."
        )


# ---------------------------------------------------------------------------------- export and backup


class ExportNames(enum.Enum):
    """The naming of the columns of an export: as in the schema, or as the Open Bandit Pipeline expects."""

    schema = "schema"
    obp = "obp"


def export(
    out: Annotated[Path, typer.Argument(help="The file to write: .parquet, .csv or .arrow.")],
    config: ConfigFile = DEFAULT_CONFIG,
    database: Database = None,
    after: Annotated[int, typer.Option(help="Only rewards after this event.", min=0)] = 0,
    only_known: Annotated[
        bool, typer.Option("--only-known", help="Leave out rows whose propensity is unknown (overrides).")
    ] = False,
    names: Annotated[
        ExportNames,
        typer.Option(help="Columns by the schema's names, or as the Open Bandit Pipeline takes them (obp)."),
    ] = ExportNames.schema,
    subjects: Annotated[bool, typer.Option("--subjects", help="Write subjects as they are, not hashed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write every rewarded decision to a file, for `sidelight summarize`; the service may run meanwhile."""
    settings = read_config(config, database)
    with progress_bar("exporting", as_json) as tick:
        done = export_log(
            read_store(settings),
            settings.load_schema(),
            out,
            after=after,
            only_known=only_known,
            names=names.value,
            subjects=subjects,
            progress=tick,
        )
    if as_json:
        typer.echo(json.dumps(asdict(done)))
        return
    typer.echo(f"Wrote {counted(done.rows, 'rewarded decision')} to {out}, up to event {done.last}.")
    if done.unknown:
        typer.echo(f"{done.unknown} of them have no propensity (people chose, or an old policy that does not tell).")
    if done.dropped:
        typer.echo(f"{done.dropped} were left out.")
    if done.corrected:
        typer.echo(
            f"{done.corrected} take the place of default rewards in exports up to event {after}: drop the rows there "
            "that have the same decision."
        )


def backup(
    out: Annotated[str, typer.Argument(help="A new file, or postgresql://… of an empty database.")],
    config: ConfigFile = DEFAULT_CONFIG,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Copy everything to a new database, as it is at one moment, while the service runs.

    The copy is a database like any other: point a configuration at it to restore, or copy it on to PostgreSQL.
    """
    last = _copy(read_store(read_config(config, database)), database_url(out), as_json)
    typer.echo(json.dumps({"events": last}) if as_json else f"Copied {counted(last, 'event')} to {out}.")


def restore(
    source: Annotated[str, typer.Argument(help="The back-up: a file, or postgresql://….")],
    config: ConfigFile = DEFAULT_CONFIG,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Copy a back-up to where the configuration keeps its events, and check it by a replay.

    The place must be new or empty: move a damaged file away first. Nothing is ever overwritten.
    """
    settings = read_config(config, database)
    target = database_url(settings.storage.database, settings.folder)
    place = database_url(source)
    beside = Untouched(place)
    last = _copy(Store.existing(untouched(place)), target, as_json, beside.check)
    store = read_store(settings)
    with progress_bar("checking", as_json) as tick:
        whole = recover(store, use_snapshots=False, progress=tick).state.snapshot(0.0).digest
    if whole != recover(store).state.snapshot(0.0).digest:
        raise ServiceError(
            "the back-up is in place, but its snapshots do not agree with its events, and `sidelight serve` would go "
            "on from the snapshots: try an older one, and report this."
        )
    if as_json:
        typer.echo(json.dumps({"events": last, "digest": whole}))
    else:
        typer.echo(
            f"Restored {counted(last, 'event')}, and a replay gives the learner of the snapshots. Next: sidelight serve"
        )


def _copy(source: Store, url: URL, quiet: bool, check: Callable[[], None] = lambda: None) -> int:
    """Copy into a new database, and close the source; returns the number of its last event."""
    try:
        with progress_bar("copying", quiet) as tick:
            return back_up(source, url, tick, check)
    finally:
        source.close()


def migrate(config: ConfigFile = DEFAULT_CONFIG, database: Database = None, as_json: AsJson = False) -> None:
    """Bring the tables of the database to this version; `sidelight serve` does so at its start.

    Servers of an older version can write no more afterwards: stop them first, and make a back-up.
    """
    settings = read_config(config, database)
    store = open_store(settings)
    before, now = store.migrated
    store.close()
    if as_json:
        typer.echo(json.dumps({"from": before, "to": now}))
    else:
        typer.echo(f"The database has version {now} already." if before == now else f"From version {before} to {now}.")


# --------------------------------------------------------------------------------------- audit, forget


def audit(
    decision: Annotated[str, typer.Argument(help="The decision's id.")],
    config: ConfigFile = DEFAULT_CONFIG,
    database: Database = None,
) -> None:
    """Print one decision as JSON with everything that led to it and everything that followed.

    The learner is rebuilt as it was then, and asked again.
    """
    settings = read_config(config, database)
    id = _decision_id(decision)
    store = read_store(settings)
    typer.echo(json.dumps(audit_of(store, settings.load_schema(), id), indent=2, ensure_ascii=False))


def _decision_id(text: str) -> DecisionId:
    found = DecisionId.parse(text)
    if found is None:
        raise InputError(f"{text!r} is not a decision's id: it looks like 1042, 1042.17 or 1042.17@5e0f3a1c.")
    return found


class Told(enum.Enum):
    """What can be retracted of a decision."""

    reward = "reward"
    action = "action"
    behavior = "behavior"


def retract(
    decision: Annotated[str, typer.Argument(help="The decision's id.")],
    reason: Annotated[str, typer.Option(help="Why it was wrong; kept in the log.")],
    what: Annotated[Told, typer.Option(help="What was wrong.")] = Told.reward,
    by: Annotated[str | None, typer.Option(help="Who says so; kept in the log.")] = None,
    config: ConfigFile = DEFAULT_CONFIG,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Retract the reward of one decision, its action, or the old policy's answer; servers may run meanwhile.

    The learner becomes as if it had never received it.
    """
    id = _decision_id(decision)
    read = read_config(config, database)
    number, new = retract_told(read_store(read), id, read.load_schema().n_features, by, reason, what.value)
    if as_json:
        typer.echo(json.dumps({"decision": decision, "event": number, "repeated": not new}))
    elif new:
        typer.echo(f"The {what.value} of {decision} is retracted by event {number}.")
    else:
        typer.echo("It was retracted before.")


def quarantine(
    event: Annotated[str | None, typer.Argument(help="What to release or discard, by its id in the list.")] = None,
    release: Annotated[
        bool | None, typer.Option("--release/--discard", help="Teach it to the learner after all, or not.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why; kept in the log.")] = None,
    by: Annotated[str | None, typer.Option(help="Who says so; kept in the log.")] = None,
    config: ConfigFile = DEFAULT_CONFIG,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List what was kept from the learner as out of bounds, or release or discard one; servers may run meanwhile."""
    read = read_config(config, database)
    store, d = read_store(read), read.load_schema().n_features
    if event is None:
        found = describe_quarantine(store, recover(store).state.quarantine, d)
        if as_json:
            typer.echo(json.dumps(found))
            return
        n = found["waiting"]
        typer.echo(f"{counted(n, 'waits', 'wait')} in quarantine." if n else "Nothing waits in quarantine.")
        for item in found["newest"]:
            value = f" {item['reward']!r}" if "reward" in item else ""
            whose = "without a decision" if item["decision"] is None else f"of decision {item['decision']}"
            typer.echo(f"{item['id']}: {item['what']}{value} {whose}: {item['why']}")
        return
    id = DecisionId.parse(event)
    if id is None or release is None or reason is None:
        raise InputError("name what to review by its id in the list, --release or --discard it, and say the --reason.")
    number, new = decide_doubt(store, id, d, release, by, reason)
    if as_json:
        typer.echo(json.dumps({"event": number, "repeated": not new}))
    else:
        done = "released" if release else "discarded"
        typer.echo(f"{event} is {done} by event {number}." if new else f"It was {done} before.")


def forget(
    subject: Annotated[str, typer.Option(help="The key that came with the decisions as `subject`.")],
    config: ConfigFile = DEFAULT_CONFIG,
    database: Database = None,
    verify: Annotated[
        bool, typer.Option(help="Fold the events again first, and compare with what the servers run on.")
    ] = True,
    erase: Annotated[
        bool, typer.Option(help="Remove what the database itself still keeps of them; servers go on meanwhile.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Delete the contexts of every decision about one person; what the learner learned stays in its sums."""
    store = read_store(read_config(config, database))
    with progress_bar("verifying", as_json) as tick:
        done = forget_subject(store, subject, verify=verify, erase=erase, progress=tick)
    if as_json:
        typer.echo(json.dumps(asdict(done)))
        return
    if done.event is None:
        typer.echo("There are no decisions about this subject.")
        if not done.erased:
            typer.echo(
                "If a call that was interrupted has deleted some, the database may still hold them: `sidelight erase` "
                "removes that."
            )
        return
    typer.echo(
        f"Deleted {counted(done.decisions, 'context')}. Replays now start after event {done.event}, from a base kept "
        "twice."
    )
    if not done.erased:
        typer.echo(
            "The database may still hold them, where somebody reads it as it was: `sidelight erase` tries again."
        )
    elif not store.sqlite:
        typer.echo(
            "Bytes of them may lie in free space of PostgreSQL's files: `sidelight erase` rewrites those; choose a "
            "quiet hour."
        )
    typer.echo("Exports and back-ups made before still hold them: delete those, or make them again.")


def erase(config: ConfigFile = DEFAULT_CONFIG, database: Database = None, as_json: AsJson = False) -> None:
    """Rewrite the database's files, so that no deleted data remains in them.

    PostgreSQL locks its tables meanwhile (VACUUM FULL), and servers wait: choose a quiet hour. SQLite needs this only
    where forget could not do it, because something read the file at that time.
    """
    erased = read_store(read_config(config, database)).erase_deleted(rewrite=True)
    if as_json:
        typer.echo(json.dumps({"erased": erased}))
    elif erased:
        typer.echo("Nothing that was deleted lingers in the database's files.")
    if not erased:
        raise ServiceError(
            "the files could not be rewritten: another process is reading the database, or the disk is full. Try "
            "again when that has ended."
        )
