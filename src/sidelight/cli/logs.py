"""``sidelight summarize`` and ``diagnose``: a log, and what it is worth."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sidelight.cli.input_files import is_summary, must_exist, not_over_input
from sidelight.cli.log_options import AsJson, SchemaOptions, Skip, only_for_logs, takes_schema
from sidelight.cli.log_reading import complete_rows, source_of, summarized, summarized_eras
from sidelight.labels import counted
from sidelight.logs.diagnosis.curvature import Proposal, propose_terms
from sidelight.logs.eras import Eras, era_title
from sidelight.logs.summary import LogSummary

Log = Annotated[list[str], typer.Argument(help="Parquet, CSV or Arrow files, globs, or a folder.", metavar="LOG...")]
ByEra = Annotated[
    str | None,
    typer.Option(
        "--eras",
        help="Columns were added over the years: 'missing' makes an era of the rows that lack the same columns, a "
        "column's name one of each of its values.",
    ),
]
Scheduler = Annotated[str | None, typer.Option(help="Address of a Dask scheduler: read the log on its cluster.")]
Noise = Annotated[float | None, typer.Option(help="Standard deviation of a reward given everything, if known.")]


@takes_schema()
def summarize(
    context: typer.Context,
    log: Log,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The summary to write.")] = Path("log.summary"),
    columns: SchemaOptions,
    eras: ByEra = None,
    skip_invalid: Skip = False,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Read a log of any size once and write what is worth keeping of it: one small file.

    Example: sidelight summarize 'log/*.parquet' --recorded age,weight --hidden severity -o log.summary
    """
    not_over_input(out, *log, columns.schema_file)
    must_exist(log)
    schema = columns.schema(context)
    started = time.perf_counter()
    if eras is not None:
        found = summarized_eras(log, schema, eras, skip_invalid, scheduler, quiet=as_json)
        _say_eras(found, found.save(out), time.perf_counter() - started, as_json)
        return
    summary = summarized(log, schema, skip_invalid, scheduler, quiet=as_json)
    summary.save(out)
    seconds = time.perf_counter() - started
    size = os.path.getsize(out)
    if as_json:
        described = {
            "file": str(out),
            "bytes": size,
            "rows": summary.n_rows,
            "skipped": summary.skipped,
            "arms": summary.schema.to_dict()["arms"],
            "counts": summary.counts.tolist(),
            "recorded": list(summary.schema.recorded_names),
            "seconds": round(seconds, 3),
        }
        typer.echo(json.dumps(described, indent=2))
        return
    skipped = sum(summary.skipped.values())
    typer.echo(
        f"{counted(summary.n_rows, 'row')} in {seconds:.1f} s ({skipped:,} skipped), {counted(summary.n_arms, 'arm')}, "
        f"{summary.n_recorded} of {counted(summary.n_features, 'column')} recorded."
    )
    for reason, count in sorted(summary.skipped.items(), key=lambda item: -item[1]):
        typer.echo(f"  skipped {count:,}: {reason}")
    typer.echo(f"Written to {out} ({size / 1024:.0f} kB). What it is worth: sidelight diagnose {out}")


@takes_schema()
def diagnose(
    context: typer.Context,
    log: Annotated[
        list[str], typer.Argument(help="A summary, or a log: files, globs or a folder.", metavar="SUMMARY|LOG...")
    ],
    *,
    html: Annotated[Path | None, typer.Option(help="Also write the page as HTML here.")] = None,
    noise: Noise = None,
    columns: SchemaOptions,
    eras: ByEra = None,
    skip_invalid: Skip = False,
    scheduler: Scheduler = None,
    curved: Annotated[
        bool,
        typer.Option("--curved/--no-curved", help="Also look for nonlinear effects and interactions."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Say what a log is worth, and what is wrong with it.

    Example: sidelight diagnose log.summary --html diagnosis.html
    """
    if html is not None:
        not_over_input(html, *log, columns.schema_file)
    complete = None
    proposals: list[Proposal] = []
    if len(log) == 1 and is_summary(log[0]):
        only_for_logs(context, log[0])
        summary = LogSummary.load(log[0])
    else:
        must_exist(log)
        schema = columns.schema(context)
        if eras is not None:
            _diagnose_eras(summarized_eras(log, schema, eras, skip_invalid, scheduler, as_json), noise, html, as_json)
            return
        summary = summarized(log, schema, skip_invalid, scheduler, quiet=as_json)
        if noise is None:
            complete = complete_rows(log, summary.schema, scheduler, quiet=as_json)
        if curved and scheduler is None:
            proposals = propose_terms(source_of(log), summary.schema, "skip" if skip_invalid else "raise")
    diagnosis = summary.diagnose(noise, complete)
    if html is not None:
        diagnosis.to_html(html)
    if as_json:
        described = diagnosis.to_dict() | {"proposals": [asdict(proposal) for proposal in proposals]}
        typer.echo(json.dumps(described, indent=2, allow_nan=False))
        return

    Console(highlight=False, soft_wrap=False).print(diagnosis)
    if proposals:
        typer.echo("\nEffects that the schema does not have, and how much of what it leaves unexplained each explains:")
        for proposal in proposals:
            typer.echo(f"  {proposal.term:<24} {proposal.explains:.2%}")
        typer.echo(f"To take them: --derived '{' + '.join(proposal.term for proposal in proposals)}'")
    if html is not None:
        typer.echo(f"\nAs a page: {html}")
    if len(log) == 1 and is_summary(log[0]):
        typer.echo(
            f"\nNext, a service: sidelight init --summary {log[0]}\nOr in Python: learner = sl.FusedOFUL("
            f"sl.BehaviorQueries(sl.LogSummary.load({log[0]!r})))"
        )


def _say_eras(eras: Eras, files: dict[str, Path], seconds: float, as_json: bool) -> None:
    rows = sum(summary.n_rows for summary in eras.values())
    if as_json:
        described = [
            {
                "name": name,
                "era": list(key) if isinstance(key, tuple) else key,
                "file": str(files[name]),
                "rows": eras[key].n_rows,
                "skipped": eras[key].skipped,
                "recorded": list(eras[key].schema.recorded_names),
            }
            for key, name in eras.names().items()
        ]
        typer.echo(json.dumps({"seconds": round(seconds, 3), "rows": rows, "eras": described}, indent=2, default=str))
        return
    typer.echo(f"{counted(rows, 'row')} in {seconds:.1f} s, {counted(len(eras), 'era')}:")
    for key, name in eras.names().items():
        summary = eras[key]
        typer.echo(
            f"  {name}: {counted(summary.n_rows, 'row')}, {summary.n_recorded} of "
            f"{counted(summary.n_features, 'column')} recorded, in {files[name]}"
        )
    options = " ".join(f"--summary {name}={path}" for name, path in files.items())
    typer.echo(f"A service that starts from all of them: sidelight init {options}")


def _diagnose_eras(eras: Eras, noise: float | None, html: Path | None, as_json: bool) -> None:
    diagnoses = eras.diagnose(noise)
    names = eras.names()
    if as_json:
        typer.echo(json.dumps(diagnoses.to_dict(), indent=2, allow_nan=False, default=str))
    for key, diagnosis in diagnoses.items():
        page = None if html is None else html.with_name(f"{html.stem}.{names[key]}{html.suffix}")
        if page is not None:
            diagnosis.to_html(page)
        if not as_json:
            typer.echo(f"{era_title(key)}\n")
            Console(highlight=False, soft_wrap=False).print(diagnosis)
            typer.echo("" if page is None else f"\nAs a page: {page}\n")
