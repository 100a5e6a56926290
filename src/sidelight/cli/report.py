"""``sidelight report``: one page about a log and what learners make of it."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import Annotated

import typer

from sidelight.cli.input_files import not_over_input
from sidelight.cli.log_options import given_options, typed_command
from sidelight.cli.report_studies import OwnTable, Runs, answers_study, trial_study, world_study
from sidelight.drawing.image_files import need_pictures
from sidelight.errors import InputError
from sidelight.report.document import report_files, write_report
from sidelight.report.results_part import simpler_sentences, worth_of
from sidelight.report.study import Study

_DATA = "Your own table"
_WORLD = "A simulated world"
_RUN = "How much"


def report(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    trial: Annotated[
        str | None,
        typer.Option(
            help="A randomized trial (CSV, Parquet): every row has the arm that was tried and its reward.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    answers: Annotated[
        str | None,
        typer.Option(
            help="A table in which each row's right arm is known (CSV, Parquet): reward 1 for it, 0 for the others.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    arm: Annotated[
        str, typer.Option(help="The column with the arm that was tried, or the right one.", rich_help_panel=_DATA)
    ] = "arm",
    reward: Annotated[str, typer.Option(help="The column with its reward.", rich_help_panel=_DATA)] = "reward",
    cuts: Annotated[
        str | None,
        typer.Option(help="With --answers: --arm is a number, cut here into arms: 21,49.", rich_help_panel=_DATA),
    ] = None,
    hidden: Annotated[
        list[str] | None,
        typer.Option(
            help="Features that the old policy saw and its log will lack; commas or repeated.", rich_help_panel=_DATA
        ),
    ] = None,
    recorded: Annotated[
        list[str] | None,
        typer.Option(help="Instead of --hidden: the features that its log will have.", rich_help_panel=_DATA),
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option(
            help="All features, hidden ones too; default every column that is not arm, reward or ignored.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="Columns that are no features: other outcomes, names.", rich_help_panel=_DATA),
    ] = None,
    categories: Annotated[
        list[str] | None,
        typer.Option(help="Number columns whose values are names; texts always are.", rich_help_panel=_DATA),
    ] = None,
    assume_randomized: Annotated[
        bool,
        typer.Option(
            "--assume-randomized",
            help="With --trial: arms were drawn at random, whatever the check of that says.",
            rich_help_panel=_DATA,
        ),
    ] = False,
    policy: Annotated[
        str, typer.Option(help="The old policy that writes the log: informed or random.", rich_help_panel=_DATA)
    ] = "informed",
    sharpness: Annotated[float, typer.Option(help="How firmly it decides.", rich_help_panel=_DATA)] = 2.0,
    world: Annotated[
        str | None, typer.Option(help="A world by name, as in sidelight simulate.", rich_help_panel=_WORLD)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=100, help="Online rounds; default 4000. Not with --trial.", rich_help_panel=_RUN)
    ] = None,
    log_rows: Annotated[
        int | None, typer.Option(min=10, help="Rows of the log; default all there are.", rich_help_panel=_RUN)
    ] = None,
    seeds: Annotated[int, typer.Option(min=2, help="Runs: splits of the table, or worlds.", rich_help_panel=_RUN)] = 8,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; default one for each core.", rich_help_panel=_RUN)
    ] = None,
    eras: Annotated[str | None, typer.Option("--eras", hidden=True)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Replay a trial (--trial), a table of right answers (--answers) or a simulated world (--world) with several
    learners, and write one HTML page about what the log was worth to them; it opens without a network.

    Example: sidelight report --trial trial.csv --arm segment --reward visit --hidden history,newbie --ignore spend

    To check the events of a running service instead: sidelight replay
    """
    _refuse_eras(eras)
    need_pictures()
    out.parent.mkdir(parents=True, exist_ok=True)
    _not_over_tables(out, trial, answers)
    _check_kind(context)
    runs = Runs(4_000 if rounds is None else rounds, log_rows, seeds, workers, quiet=as_json)
    named = {"features": features, "hidden": hidden, "recorded": recorded, "ignore": ignore, "categories": categories}
    replay = {"policy": policy, "sharpness": sharpness}
    started = time.perf_counter()
    words: list[str] = []
    notes: list[str] = []
    if trial:
        own = OwnTable.read(trial, arm, reward, named, replay, rewarded=True, numeric_arm=False)
        study, words, notes = trial_study(own, runs, assume_randomized)
    elif answers:
        own = OwnTable.read(answers, arm, reward, named, replay, rewarded=False, numeric_arm=cuts is not None)
        study, words, notes = answers_study(own, runs, _cuts(cuts))
    else:
        study = world_study(world or "confounded", runs)
    write_report(study, out, words=words, origin=_origin(context, trial or answers))
    _tell(study, out, notes, time.perf_counter() - started, as_json)


def _check_kind(context: typer.Context) -> None:
    """Refuse two kinds of report at once, and options that the kind asked for would ignore."""
    given = given_options(context)
    kinds = [option for name, option in given.items() if name in ("trial", "answers", "world")]
    if len(kinds) > 1:
        raise InputError(f"{' and '.join(kinds)} are different kinds of report; give one of them.")
    if "trial" in given and "rounds" in given:
        raise InputError(
            "--rounds: a trial has as many rounds as its table has rows for them, each of which is offered once. Leave "
            "--rounds out; --log-rows says how many rows are kept for the log."
        )
    for name, kind, why in (
        ("cuts", "answers", "cuts a number into the right arm of each row"),
        ("assume_randomized", "trial", "is about how a trial drew its arms"),
    ):
        if name in given and kind not in given:
            raise InputError(f"{given[name]} {why}: it goes with --{kind}.")
    about_table = [option for name, option in given.items() if name in _ABOUT_TABLE]
    if about_table and not {"trial", "answers"} & set(given):
        raise InputError(
            f"{', '.join(about_table)}: what is the table? Give it with --trial (every row has the arm that was tried "
            "and its reward) or --answers (every row has the right arm). A simulated world has columns of its own."
        )


_ABOUT_TABLE = ("arm", "reward", "hidden", "recorded", "features", "ignore", "categories", "policy", "sharpness")


def _cuts(text: str | None) -> list[float] | None:
    """The boundaries between arms, from an option such as ``21,49``."""
    if text is None:
        return None
    try:
        return [float(cut) for cut in text.split(",")]
    except ValueError:
        raise InputError(f"--cuts {text}: give numbers between commas, such as 21,49.") from None


def _refuse_eras(eras: str | None) -> None:
    if eras is not None:
        raise InputError(
            f"--eras {eras}: a report replays complete rows, or a simulated world, and writes its own log from them, "
            "in which all rows have the same columns. For a log whose columns were added over the years: "
            f"sidelight diagnose my.csv … --eras {eras} (what each era is worth), sidelight judge my.csv … --eras "
            f"{eras} (what a policy would be worth), sidelight summarize my.csv … --eras {eras} (to start a service)."
        )


def _not_over_tables(out: Path, *tables: str | None) -> None:
    """Refuse to write the page or its results over a table that is read."""
    page, *results = report_files(out)
    not_over_input(page, *tables)
    for written in results:
        try:
            not_over_input(written, *tables)
        except InputError as error:
            raise InputError(f"{error} The results of {page} go to a file of the same name, {written}.") from error


def _tell(study: Study, out: Path, notes: list[str], seconds: float, as_json: bool) -> None:
    """Print what was found, as text or as JSON."""
    sentence, start = worth_of(study)
    if as_json:
        described = {
            "page": str(out),
            "results": str(out.with_suffix(".parquet")),
            "sentence": sentence,
            "simpler": simpler_sentences(study),
            "head_start": None if start is None else start.sentence,
            "diagnosis": None if study.diagnosis is None else study.diagnosis.sentence,
            "notes": notes,
            "seconds": round(seconds, 1),
        }
        typer.echo(json.dumps(described, indent=2, ensure_ascii=False))
        return
    for line in (*notes, sentence, *simpler_sentences(study)):
        typer.echo(line)
    if start is not None:
        typer.echo(start.sentence)
    typer.echo(f"\n{seconds:.0f} s. Open {out} (results: {out.with_suffix('.parquet')})")


def _origin(context: typer.Context, source: str | None) -> str:
    """When, from which file and by which command the page was made."""
    now = dt.datetime.now(dt.UTC)
    file = "" if source is None else f" from {Path(source).name}"
    return f"Written {now:%Y-%m-%d %H:%M} UTC{file} by: {typed_command(context)}"
