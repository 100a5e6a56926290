"""``sidelight simulate``: any learners in any world, from options or from a small TOML file."""

from __future__ import annotations

import io
import json
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.table import Table

from sidelight.arrays import whole_number
from sidelight.cli.input_files import not_over_input
from sidelight.drawing.intervals import number, span
from sidelight.drawing.regret import Standing, standings
from sidelight.errors import InputError
from sidelight.experiments.jobs import machine
from sidelight.experiments.registry import HIDDEN, WORLDS, default_recorded, learner_factory, make_world
from sidelight.files import write_atomically
from sidelight.labels import counted
from sidelight.learners.registry import KINDS
from sidelight.simulation import simulate as run
from sidelight.version import __version__

_EXAMPLE = """
Example: sidelight simulate --world confounded --learner OFUL --learner FusedOFUL --rounds 2000

The same from a file, with settings of world and learners: sidelight simulate study.toml

    rounds = 2000
    seeds = 8
    log_rows = 20000
    world = { kind = "confounded", confounding = 3.0 }
    [learners.cold]
    kind = "OFUL"
    noise = "true"
    [learners.fused]
    kind = "FusedOFUL"
    hidden = "queries"
"""


@dataclass
class Plan:
    """The settings of one call of ``simulate``: world, learners, rounds, seeds, log."""

    world: str = "confounded"
    world_values: dict[str, Any] = field(default_factory=dict)
    learners: dict[str, dict[str, Any]] = field(default_factory=dict)
    rounds: int = 2_000
    seeds: int = 8
    log_rows: int = 20_000
    recorded: Any = None


def simulate(
    file: Annotated[Path | None, typer.Argument(help="A TOML file that says what to run.", show_default=False)] = None,
    world: Annotated[str | None, typer.Option(help="The world; --list names them all. Default confounded.")] = None,
    learner: Annotated[
        list[str] | None, typer.Option(help="A learner, repeated for more; default OFUL and FusedOFUL.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each run; default 2,000.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each learner; default 8.")] = None,
    log_rows: Annotated[int | None, typer.Option(min=0, help="Rows of the log; default 20,000.")] = None,
    recorded: Annotated[
        str | None, typer.Option(help="Features the log recorded: a number, or names with commas.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default one for each core.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Keep the results as Parquet here.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Name the worlds and learners, and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Run learners in a simulated world and print what each lost.

    Worlds and learners: sidelight simulate --list, which also prints an example of a TOML file with settings of both.
    """
    if show:
        _print_lists()
        return

    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        not_over_input(out, file)
    plan = _from_file(file) if file is not None else Plan()
    _override(plan, world, learner, rounds, seeds, log_rows, recorded)
    started = time.perf_counter()
    first = make_world(plan.world, 0, plan.world_values)
    kept = default_recorded(first) if plan.recorded is None else plan.recorded
    factories: dict[str, Callable[[Any], Any]] = {
        name: learner_factory(values.get("kind", name), {k: v for k, v in values.items() if k != "kind"})
        for name, values in plan.learners.items()
    }
    table = run(
        partial(_world, plan.world, plan.world_values),
        factories,
        plan.rounds,
        kept,
        plan.log_rows,
        plan.seeds,
        workers,
        progress=not as_json,
    )
    if out is not None:
        _keep(table, out, plan)
    baseline = next(iter(plan.learners))
    rows = standings(table, baseline)
    seconds = time.perf_counter() - started
    if as_json:
        settings = {"world": {"kind": plan.world, **plan.world_values}, "rounds": plan.rounds, "seeds": plan.seeds}
        settings |= {"log_rows": plan.log_rows, "recorded": _plain(kept), "baseline": baseline}
        described = {**settings, "learners": [row.to_dict() for row in rows], "seconds": round(seconds, 1)}
        typer.echo(json.dumps(described, indent=2, ensure_ascii=False))
        return

    console = Console(highlight=False)
    console.print(_table(rows, baseline, plan))
    console.print(f"\n{seconds:.0f} s." + (f" Results: {out}" if out is not None else ""))


def _world(kind: str, values: dict[str, Any], seed: int) -> Any:
    return make_world(kind, seed, values)


def _plain(recorded: Any) -> Any:
    return list(recorded) if isinstance(recorded, tuple) else recorded


def _override(
    plan: Plan,
    world: str | None,
    learner: list[str] | None,
    rounds: int | None,
    seeds: int | None,
    log_rows: int | None,
    recorded: str | None,
) -> None:
    """Replace settings of the file by those given as options, and fill in defaults."""
    if world is not None:
        plan.world, plan.world_values = world, {}
    if learner:
        plan.learners = {name: {"kind": name} for name in learner}
    if not plan.learners:
        plan.learners = {"OFUL": {"kind": "OFUL"}, "FusedOFUL": {"kind": "FusedOFUL"}}
    plan.rounds = plan.rounds if rounds is None else rounds
    plan.seeds = plan.seeds if seeds is None else seeds
    plan.log_rows = plan.log_rows if log_rows is None else log_rows
    if recorded is not None:
        plan.recorded = int(recorded) if recorded.isdigit() else [name.strip() for name in recorded.split(",")]


def _from_file(path: Path) -> Plan:
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}.") from error
    known = {"world", "learners", "rounds", "seeds", "log_rows", "recorded"}
    unknown = sorted(set(told) - known)
    if unknown:
        raise InputError(f"{path} has {unknown[0]!r}, which is not one of {', '.join(sorted(known))}.")
    world = told.get("world", "confounded")
    values = {"kind": world} if isinstance(world, str) else dict(world) if isinstance(world, dict) else {}
    if not isinstance(values.get("kind"), str):
        raise InputError(f'{path}: world = {world!r}; say which world, world = {{ kind = "confounded" }}.')
    plan = Plan(values.pop("kind"), values)
    plan.learners = _learners(told.get("learners", {}), path)
    for key in ("rounds", "seeds", "log_rows"):
        if key in told:
            setattr(plan, key, whole_number(told[key], f"{path}: {key}", 0 if key == "log_rows" else 1))
    plan.recorded = told.get("recorded")
    return plan


def _learners(told: Any, path: Path) -> dict[str, dict[str, Any]]:
    """Name → settings of the learners of a file: a list of kinds, or a table for each."""
    if isinstance(told, list):
        told = {str(kind): {"kind": kind} for kind in told}
    if not isinstance(told, dict):
        raise InputError(f'{path}: learners = {told!r} is no list of learners, learners = ["OFUL", "FusedOFUL"].')
    for name, settings in told.items():
        if not isinstance(settings, dict) or not isinstance(settings.get("kind", name), str):
            raise InputError(f'{path}: [learners.{name}] must be a table of settings with a kind, kind = "OFUL".')
    return {name: {"kind": name, **settings} for name, settings in told.items()}


def _keep(table: Any, out: Path, plan: Plan) -> None:
    about = {"plan": asdict(plan), "version": __version__, "machine": machine()}
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"sidelight": json.dumps(about)}), buffer, compression="zstd")
    write_atomically(out, buffer.getvalue())


def _table(rows: list[Standing], baseline: str, plan: Plan) -> Table:
    title = f"Regret after {counted(plan.rounds, 'round')} in {plan.world}, mean over {counted(plan.seeds, 'seed')}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("learner", no_wrap=True)
    for name in ("regret", "95 %", f"minus {baseline}", "95 %"):
        table.add_column(name, justify="right", style="dim" if name == "95 %" else None)
    for row in rows:
        cells = ["–", "–"] if row.learner == baseline else [number(row.difference, True), span(row.paired, True)]
        table.add_row(row.learner, number(row.mean), span(row.final), *cells)
    return table


def _print_lists() -> None:
    console = Console(highlight=False)
    learners = {name: kind.meaning for name, kind in KINDS.items()}
    for title, entries in (("worlds", WORLDS), ("learners", learners), ("hidden = …", HIDDEN)):
        table = Table(box=None, show_header=False, title=f"[bold]{title}[/bold]", title_justify="left", pad_edge=False)
        for name, meaning in entries.items():
            table.add_row(name, meaning)
        console.print(table)
    console.print(_EXAMPLE, markup=False)
