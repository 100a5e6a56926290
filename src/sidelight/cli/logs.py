"""``sidelight summarize`` and ``diagnose``: a log, and what it is worth."""

from __future__ import annotations

import json
import os
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sidelight.cli.looking import mistyped
from sidelight.errors import InputError, SchemaError, SidelightError, SidelightWarning, SourceError, StandInWarning
from sidelight.files import may_be_container
from sidelight.labels import typed_labels
from sidelight.logs.diagnosis.curvature import Proposal, propose_terms
from sidelight.logs.eras import Eras, era_title, summarize_eras
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.formula import read_terms
from sidelight.logs.schema.schema import Schema
from sidelight.logs.schema.schema_file import read_schema_file
from sidelight.logs.sources.opening import open_source
from sidelight.logs.sources.paths import file_columns, find_files
from sidelight.logs.summarize import summarize_log
from sidelight.logs.summary import LogSummary

_LOG = "Where the log is"
_COLUMNS = "What its columns are"

Log = Annotated[list[str], typer.Argument(help="Parquet, CSV or Arrow files, globs, or a folder.", metavar="LOG...")]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema", help="A TOML or JSON file with the schema, instead of these options.", rich_help_panel=_COLUMNS
    ),
]
Recorded = Annotated[
    str | None, typer.Option(help="Features the log recorded, comma-separated.", rich_help_panel=_COLUMNS)
]
Hidden = Annotated[
    str | None,
    typer.Option(help="Features it lacks but the learner will see, comma-separated.", rich_help_panel=_COLUMNS),
]
Arm = Annotated[str, typer.Option(help="The column with the chosen arm.", rich_help_panel=_COLUMNS)]
Reward = Annotated[str, typer.Option(help="The column with its reward.", rich_help_panel=_COLUMNS)]
Arms = Annotated[
    str | None, typer.Option(help="The arms in order, comma-separated; else discovered.", rich_help_panel=_COLUMNS)
]
Categories = Annotated[
    str | None,
    typer.Option(
        help="Features that are categories, comma-separated; city or city=Paris|Rome to name the levels, which hidden "
        "ones need.",
        rich_help_panel=_COLUMNS,
    ),
]
Intercept = Annotated[
    bool, typer.Option("--intercept/--no-intercept", help="Add a constant feature.", rich_help_panel=_COLUMNS)
]
Derived = Annotated[
    str | None,
    typer.Option(
        help="Features computed from columns, a formula: 'spline(age, 4) + stage:dose + weekday(visit)'.",
        rich_help_panel=_COLUMNS,
    ),
]
Propensity = Annotated[
    str | None, typer.Option(help="The column with the old policy's probability.", rich_help_panel=_COLUMNS)
]
ByEra = Annotated[
    str | None,
    typer.Option(
        "--eras",
        help="Columns were added over the years: 'missing' makes an era of the rows that lack the same columns, a "
        "column's name one of each of its values.",
    ),
]
Skip = Annotated[bool, typer.Option("--skip-invalid", help="Leave out rows that cannot be used, and count them.")]
Scheduler = Annotated[str | None, typer.Option(help="Address of a Dask scheduler: read the log on its cluster.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
Noise = Annotated[float | None, typer.Option(help="Standard deviation of a reward given everything, if known.")]


def summarize(
    context: typer.Context,
    log: Log,
    out: Annotated[Path, typer.Option("--out", "-o", help="The summary to write.")] = Path("log.summary"),
    recorded: Recorded = None,
    hidden: Hidden = None,
    arm: Arm = "arm",
    reward: Reward = "reward",
    arms: Arms = None,
    categories: Categories = None,
    intercept: Intercept = True,
    derived: Derived = None,
    propensity: Propensity = None,
    schema_file: SchemaFile = None,
    eras: ByEra = None,
    skip_invalid: Skip = False,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Read a log of any size once and write what is worth keeping of it: one small file.

    Example: sidelight summarize 'log/*.parquet' --recorded age,weight --hidden severity -o log.summary
    """
    not_over_input(out, *log, schema_file)
    must_exist(log)
    schema_said_once(context, schema_file)
    schema = schema_from_options(
        schema_file, recorded, hidden, arm, reward, arms, categories, intercept, propensity, derived
    )
    started = time.perf_counter()
    if eras is not None:
        found = _summarized_eras(log, schema, eras, skip_invalid, scheduler, quiet=as_json)
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
        f"{summary.n_rows:,} rows in {seconds:.1f} s ({skipped:,} skipped), {summary.n_arms} arms, "
        f"{summary.n_recorded} of {summary.n_features} columns recorded."
    )
    for reason, count in sorted(summary.skipped.items(), key=lambda item: -item[1]):
        typer.echo(f"  skipped {count:,}: {reason}")
    typer.echo(f"Written to {out} ({size / 1024:.0f} kB). What it is worth: sidelight diagnose {out}")


def diagnose(
    context: typer.Context,
    log: Annotated[
        list[str], typer.Argument(help="A summary, or a log: files, globs or a folder.", metavar="SUMMARY|LOG...")
    ],
    html: Annotated[Path | None, typer.Option(help="Also write the page as HTML here.")] = None,
    noise: Noise = None,
    recorded: Recorded = None,
    hidden: Hidden = None,
    arm: Arm = "arm",
    reward: Reward = "reward",
    arms: Arms = None,
    categories: Categories = None,
    intercept: Intercept = True,
    derived: Derived = None,
    propensity: Propensity = None,
    schema_file: SchemaFile = None,
    eras: ByEra = None,
    skip_invalid: Skip = False,
    scheduler: Scheduler = None,
    curved: Annotated[
        bool,
        typer.Option("--curved/--no-curved", help="Also look for effects that bend or act together."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Say what a log is worth, and what is wrong with it.

    Example: sidelight diagnose log.summary --html diagnosis.html
    """
    if html is not None:
        not_over_input(html, *log, schema_file)
    complete = None
    proposals: list[Proposal] = []
    if len(log) == 1 and is_summary(log[0]):
        only_for_logs(context, log[0])
        summary = LogSummary.load(log[0])
    else:
        must_exist(log)
        schema_said_once(context, schema_file)
        schema = schema_from_options(
            schema_file, recorded, hidden, arm, reward, arms, categories, intercept, propensity, derived
        )
        if eras is not None:
            _diagnose_eras(_summarized_eras(log, schema, eras, skip_invalid, scheduler, as_json), noise, html, as_json)
            return
        summary = summarized(log, schema, skip_invalid, scheduler, quiet=as_json)
        if noise is None:
            complete = complete_rows(log, summary.schema, scheduler, quiet=as_json)
        if curved and scheduler is None:
            source: Any = log[0] if len(log) == 1 else log
            proposals = propose_terms(source, summary.schema, "skip" if skip_invalid else "raise")
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
            typer.echo(f"  {proposal.term:<24} {proposal.explains:.1%}")
        typer.echo(f"To take them: --derived '{' + '.join(proposal.term for proposal in proposals)}'")
    if html is not None:
        typer.echo(f"\nAs a page: {html}")
    if len(log) == 1 and is_summary(log[0]):
        typer.echo(
            f"\nNext, a service: sidelight init --summary {log[0]}\nOr in Python: learner = sl.FusedOFUL("
            f"sl.BehaviorQueries(sl.LogSummary.load({log[0]!r})))"
        )


def not_over_input(out: Path, *inputs: str | os.PathLike[str] | None) -> None:
    """Refuse to write over an input file, or into a folder that does not exist, before anything long starts.

    Args:
        out: the file to be written.
        inputs: files, patterns and folders that are read; ``None`` for one that was not given.
    """
    for name in _input_files(inputs) if out.exists() else ():
        if os.path.exists(name) and os.path.samefile(out, name):
            raise InputError(f"{out} is what is read here; writing to it would destroy it. Name another file.")
    if not out.absolute().parent.is_dir():
        raise InputError(
            f"There is no folder {str(out.parent)!r} to write {out.name} to. Choose a folder that exists, or make it."
        )


def _input_files(inputs: Sequence[str | os.PathLike[str] | None]) -> Iterator[str]:
    for name in inputs:
        if name is None:
            continue
        try:
            yield from (file.path for file in find_files(name))
        except SourceError:  # no table, such as a schema; what is wrong with it is said where it is read
            yield os.fspath(name)


def must_exist(log: list[str]) -> None:
    """Raise ``SourceError`` for a path that does not exist, before anything is asked about its columns."""
    find_files(log)


def only_for_logs(context: typer.Context, path: str, more: Sequence[str] = ()) -> None:
    """Refuse options about reading a log when a summary is given; they would be ignored. ``more`` go with summaries."""
    meant_for_summaries = ("log", "html", "noise", "as_json", *more)
    given = [option for name, option in _given(context).items() if name not in meant_for_summaries]
    if given:
        one = len(given) == 1
        raise typer.BadParameter(
            f"{', '.join(given)} {'says' if one else 'say'} how to read a log, but {path} is a summary, for which that "
            f"is settled. Leave {'it' if one else 'them'} out, or give the log itself.",
            param_hint=given[0],
        )


def schema_said_once(context: typer.Context, file: Path | None) -> None:
    """Refuse --schema beside options about columns; one of the two would be ignored."""
    of_the_schema = ("recorded", "hidden", "arm", "reward", "arms", "categories", "intercept", "propensity", "derived")
    given = [option for name, option in _given(context).items() if name in of_the_schema]
    if file is not None and given:
        one = len(given) == 1
        raise typer.BadParameter(
            f"{', '.join(given)} {'says' if one else 'say'} what the columns are, and so does {file}. Put "
            f"{'it' if one else 'them'} into the file, or leave --schema out.",
            param_hint=given[0],
        )


def _given(context: typer.Context) -> dict[str, str]:
    """Parameters that were given on the command line: name → option."""
    return {
        str(parameter.name): parameter.opts[0]
        for parameter in context.command.params
        if getattr(context.get_parameter_source(str(parameter.name)), "name", None) == "COMMANDLINE"
    }


def is_summary(path: str) -> bool:
    """Whether a file is a saved summary, or was one before it was damaged; a spreadsheet is another kind of archive."""
    return os.path.isfile(path) and may_be_container(path)


def summarized(log: list[str], schema: Schema, skip: bool, scheduler: str | None, quiet: bool) -> LogSummary:
    """The summary of a log; errors about columns name the option that mends them."""
    source: Any = log[0] if len(log) == 1 else log
    check_hidden(log, schema)
    on_invalid = "skip" if skip else "raise"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("ignore", SidelightWarning)  # the commands say themselves what was skipped
        warnings.simplefilter("always", StandInWarning)
        try:
            summary = summarize_log(source, schema, on_invalid, progress=not quiet, client=scheduler)
        except SchemaError as error:
            for option, column in (("--arm", schema.arm), ("--reward", schema.reward)):
                if f"no column {column!r}" in str(error):
                    raise SchemaError(f"{error} Which of them is it? Say so with {option} NAME.") from error
            undeclared = re.search(r"declare it: categories=\['(.*)'\]", str(error))
            if undeclared:
                raise SchemaError(f"{error} Here: --categories {undeclared[1]}, or in the schema's file.") from error
            raise
    say_what_is_text(schema, summary.schema, " ".join(log))
    say_stand_ins(said)
    return summary


def _summarized_eras(log: list[str], schema: Schema, by: str, skip: bool, scheduler: str | None, quiet: bool) -> Eras:
    if scheduler is not None:
        raise InputError("--eras reads the log on this machine: leave --scheduler out.")
    check_hidden(log, schema)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("ignore", SidelightWarning)
        warnings.simplefilter("always", StandInWarning)
        eras = summarize_eras(
            log[0] if len(log) == 1 else log, schema, by, "skip" if skip else "raise", progress=not quiet
        )
    say_what_is_text(schema, next(iter(eras.values())).schema, " ".join(log))
    say_stand_ins(said)
    return eras


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
    typer.echo(f"{rows:,} rows in {seconds:.1f} s, {len(eras)} eras:")
    for key, name in eras.names().items():
        summary = eras[key]
        typer.echo(
            f"  {name}: {summary.n_rows:,} rows, {summary.n_recorded} of {summary.n_features} columns recorded, in "
            f"{files[name]}"
        )
    options = " ".join(f"--summary {name}={path}" for name, path in files.items())
    typer.echo(f"A service that starts from all of them: sidelight init {options}")


def _diagnose_eras(eras: Eras, noise: float | None, html: Path | None, as_json: bool) -> None:
    diagnoses = eras.diagnose(noise)
    names = eras.names()
    if as_json:
        typer.echo(json.dumps(diagnoses.to_dict(), indent=2, allow_nan=False, default=str))
    for key, diagnosis in diagnoses.items():
        if html is not None:
            diagnosis.to_html(html.with_name(f"{html.stem}.{names[key]}{html.suffix}"))
        if not as_json:
            typer.echo(f"{era_title(key)}\n")
            Console(highlight=False, soft_wrap=False).print(diagnosis)


def check_hidden(log: list[str], schema: Schema) -> None:
    """Check that a hidden feature is not a column of the log with a typing error.

    Beside a recorded column that reads nearly the same it may well be another one, so that is only said.

    Raises:
        SchemaError: the log has an unused column that reads nearly the same.
    """
    available = file_columns(find_files(log)[0])
    known = {*schema.columns, *(feature.name for feature in schema.features)}
    unused = [name for name in available if name not in known]
    for feature in schema.features:
        if feature.name in schema.recorded or feature.name in available:
            continue
        close = mistyped(feature.name, unused)
        if close is not None:
            raise SchemaError(
                f"{feature.name!r} is hidden, and the log has a column {close!r} that nothing uses: did you mean that "
                "one? Where both exist, give them names that differ more."
            )
        beside = mistyped(feature.name, [name for name in schema.recorded if name in available])
        if beside is not None:
            typer.echo(
                f"Note: {feature.name!r} is hidden and {beside!r} is recorded, taken for two different features. If "
                f"{feature.name!r} is a typing error, correct it: --hidden names what the log does not have.",
                err=True,
            )


def say_what_is_text(given: Schema, found: Schema, origin: str) -> None:
    """Say which columns turned out to be text, and so are categories, on standard error."""
    declared = {feature.name for feature in given.features if isinstance(feature, Category)}
    for feature in found.features:
        if isinstance(feature, Category) and feature.name not in declared:
            typer.echo(
                f"Column {feature.name!r} of {origin} holds text, so it is a category with {len(feature.levels or ())} "
                f"levels. To say so yourself: --categories {feature.name}",
                err=True,
            )


def say_stand_ins(said: Sequence[warnings.WarningMessage]) -> None:
    """Say on standard error which numbers seem to stand for missing values, each once."""
    for message in dict.fromkeys(str(warning.message) for warning in said if warning.category is StandInWarning):
        typer.echo(f"{message[0].upper()}{message[1:]}", err=True)


def complete_rows(log: list[str], schema: Schema, scheduler: str | None, quiet: bool) -> LogSummary | None:
    """The rows that have every feature, if the files have columns for the hidden ones; None if they do not.

    Fewer than ten rows for each coefficient measure nothing, and count as none.
    """
    hidden = [feature.name for feature in schema.features if feature.name not in schema.recorded]
    if not hidden:
        return None
    try:
        open_source(log, hidden)
        names = [feature.name for feature in schema.features]
        summary = summarized(log, schema.with_recorded(names), True, scheduler, quiet)
    except SidelightError:
        return None
    return summary if summary.n_rows >= 10 * summary.n_arms * summary.n_features else None


def schema_from_options(
    file: Path | None,
    recorded: str | None,
    hidden: str | None,
    arm: str,
    reward: str,
    arms: str | None,
    categories: str | None,
    intercept: bool,
    propensity: str | None,
    derived: str | None = None,
) -> Schema:
    """The schema from a file or from the options."""
    if file is not None:
        return read_schema_file(file)
    if recorded is None and hidden is None and derived is None:
        raise SchemaError(
            "which features did the log record? Name them, --recorded age,weight, and those it lacks, --hidden "
            "severity; or give a file with --schema."
        )
    levels: dict[str, Any] = {}
    for item in names_of(categories) if categories else []:
        name, given, values = item.partition("=")
        levels[name] = typed_labels([value.strip() for value in values.split("|")]) if given else None
    seen, unseen = names_of(recorded) if recorded else [], names_of(hidden) if hidden else []
    both = sorted(set(seen) & set(unseen))
    if both:
        raise SchemaError(f"{', '.join(both)} cannot be both recorded and hidden.")
    labels = typed_labels(names_of(arms)) if arms else None
    listed = list(dict.fromkeys([*seen, *unseen]))
    if derived is None:
        return Schema(listed, seen, arm, reward, labels, intercept, categories=levels, propensity=propensity)
    # a column that only the formula names is recorded, unless it is among the hidden ones
    formula = read_terms(derived)
    inputs = {name for term in formula.terms for name in term.inputs} | set(formula.columns)
    seen += [name for name in inputs if name not in listed]
    dates = {name for term in formula.terms for name, kind in term.inputs.items() if kind == "date"}
    own = [name for name in listed if name not in dates]
    return Schema(own, seen, arm, reward, labels, intercept, categories=levels, propensity=propensity, derived=derived)


def names_of(text: str) -> list[str]:
    """The names of a comma-separated option, without blanks around them and without empty ones."""
    return [name.strip() for name in text.split(",") if name.strip()]
