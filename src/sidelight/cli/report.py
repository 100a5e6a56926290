"""``sidelight report``: one page about a log and what learners make of it."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sidelight.cli.input_files import not_over_input
from sidelight.cli.tables import columns_of, read_table, schema_of, with_names
from sidelight.drawing.image_files import need_pictures
from sidelight.errors import InputError
from sidelight.experiments.registry import WORLDS, default_recorded, learner_factory, make_world
from sidelight.report.document import report_files, write_report
from sidelight.report.results_part import simpler_sentences, worth_of
from sidelight.report.simpler import COLD, SIMPLER, simpler_rules
from sidelight.report.study import Study, of_trial, of_world
from sidelight.worlds.replay import ReplayWorld
from sidelight.worlds.trial import ASSUME_RANDOMIZED

_DATA = "Your own table"
_WORLD = "A simulated world"
_RUN = "How much"

Names = list[str] | None


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
    if eras is not None:
        raise InputError(
            f"--eras {eras}: a report replays complete rows, or a simulated world, and writes its own log from them, "
            "in which all rows have the same columns. For a log whose columns were added over the years: "
            f"sidelight diagnose my.csv … --eras {eras} (what each era is worth), sidelight judge my.csv … --eras "
            f"{eras} (what a policy would be worth), sidelight summarize my.csv … --eras {eras} (to start a service)."
        )
    need_pictures()
    out.parent.mkdir(parents=True, exist_ok=True)
    page, *results = report_files(out)
    not_over_input(page, trial, answers)
    for written in results:
        try:
            not_over_input(written, trial, answers)
        except InputError as error:
            raise InputError(f"{error} The results of {page} go to a file of the same name, {written}.") from error
    given = [name for name, value in (("--trial", trial), ("--answers", answers), ("--world", world)) if value]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are different kinds of report; give one of them.")
    if trial and rounds is not None:
        raise InputError(
            f"--rounds {rounds}: a trial has as many rounds as its table has rows for them, each of which is offered "
            "once. Leave --rounds out; --log-rows says how many rows are kept for the log."
        )
    rounds = 4_000 if rounds is None else rounds
    started = time.perf_counter()
    words: list[str]
    notes: list[str] = []
    if trial or answers:
        named = {
            "features": features,
            "hidden": hidden,
            "recorded": recorded,
            "ignore": ignore,
            "categories": categories,
        }
        made = _own_table(trial, answers, arm, reward, cuts, named)
        made["assume_randomized"] = assume_randomized
        study, words = _own_study(
            made, policy=policy, sharpness=sharpness, rounds=rounds, log_rows=log_rows, seeds=seeds, workers=workers,
            quiet=as_json,
        )  # fmt: skip
        notes = made["notes"]
    else:
        study, words = _world_study(world or "confounded", rounds, log_rows or 20_000, seeds, workers, as_json)
    write_report(study, out, words=words, origin=_origin(context, trial or answers))
    seconds = time.perf_counter() - started
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
    for note in notes:
        typer.echo(note)
    typer.echo(sentence)
    for told in simpler_sentences(study):
        typer.echo(told)
    if start is not None:
        typer.echo(start.sentence)
    typer.echo(f"\n{seconds:.0f} s. Open {out} (results: {out.with_suffix('.parquet')})")


# -------------------------------------------------------------------------------------------- learners


def contenders() -> tuple[dict[str, Callable[[Any], Any]], dict[str, str]]:
    """The learners of a report, and what each is.

    The baseline differs from the fused learner by the log alone: it learns prior and noise in the same way. Noise is
    given to one more cold learner and to the zero-filled one: the deviation of the reward around a linear fit to all
    features. Two rules that never learn show whether something simpler would do.
    """
    told = {"noise": "true", "radius": "posterior"}
    auto = {"regularization": "auto", "noise": "auto", "radius": "posterior"}
    learners = {
        COLD: learner_factory("OFUL", auto),
        "OFUL, told the noise": learner_factory("OFUL", told),
        "Zero-filled": learner_factory("ZeroFilledOFUL", told),
        **simpler_rules(),
        "FusedOFUL": learner_factory("FusedOFUL"),
    }
    meanings = {
        COLD: "OFUL without the log; learns prior and noise as the fused one does",
        "OFUL, told the noise": "starts cold, no log; told the noise",
        **SIMPLER,
        "Zero-filled": "the log, with zeros for what it lacks",
        "FusedOFUL": "the log as evidence; asks the old policy: the one to use",
    }
    return learners, meanings


# ------------------------------------------------------------------------------------------- own tables


def _own_table(
    trial: str | None,
    answers: str | None,
    arm: str,
    reward: str,
    cuts: str | None,
    named: dict[str, Names],
) -> dict[str, Any]:
    """Read the table and describe it: table, schema, kind (trial or answers), arm, cuts, notes."""
    source = trial or answers
    assert source is not None
    table = read_table(source)
    outcome = [arm, *([reward] if trial else [])]
    chosen = columns_of(table, outcome, **named)
    table = with_names(table, chosen.categories)
    schema = schema_of(table, chosen, arm, reward, numeric_arm=cuts is not None)
    return {"table": table, "schema": schema, "trial": bool(trial), "arm": arm, "cuts": cuts, "notes": chosen.notes}


def _own_study(
    made: dict[str, Any],
    *,
    policy: str,
    sharpness: float,
    rounds: int,
    log_rows: int | None,
    seeds: int,
    workers: int | None,
    quiet: bool,
) -> tuple[Study, list[str]]:
    learners, meanings = contenders()
    settings: dict[str, Any] = {"policy": policy, "sharpness": sharpness}
    schema = made["schema"]
    hidden = [f.name for f in schema.features if f.name not in schema.recorded]
    words = [
        f"From a complete table: an old policy that decides by {', '.join(hidden)} wrote a log on one part of the rows "
        "which lacks them; learners that see everything then decided on the other part.",
    ]
    if made["trial"]:
        try:
            trial = ReplayWorld.from_trial(
                made["table"], schema, assume_randomized=made["assume_randomized"], **settings
            )
        except InputError as error:
            if "no randomized trial" in str(error):
                told = str(error).replace(ASSUME_RANDOMIZED, "--assume-randomized")
                raise InputError(
                    f"{told} A column that the arm has changed, such as another outcome, is no feature: name it with "
                    "--ignore."
                ) from error
            raise
        made["notes"] += _dropped(trial)
        with _bar(quiet) as progress:
            study = of_trial(
                trial, learners, baseline=COLD, best="FusedOFUL", seeds=seeds, log_rows=log_rows, meanings=meanings,
                progress=progress,
            )  # fmt: skip
        return study, [*words, *made["notes"]]
    cuts = [float(cut) for cut in made["cuts"].split(",")] if made["cuts"] else None
    world = ReplayWorld.from_answers(made["table"], schema, made["arm"], cuts=cuts, **settings)
    made["notes"] += _dropped(world)
    words += made["notes"]
    words.append(
        "Rewards are 1 for the right arm and 0 for any other. Regret is measured against the right arm of every row, "
        "which no rule that is linear in the features reaches; what counts is the difference between learners."
    )
    study = of_world(
        world.reseeded,
        learners,
        rounds,
        world.default_recorded,
        log_rows or world.log_size,
        baseline=COLD,
        best="FusedOFUL",
        seeds=seeds,
        workers=workers,
        meanings=meanings,
        facts=(("table", f"{world.log_size:,} rows for the log, {world.online_size:,} for the rounds, drawn anew"),),
        progress=not quiet,
    )
    return study, words


def _dropped(world: Any) -> list[str]:
    lost = world.rows.dropped
    if not lost:
        return []
    told = ", ".join(f"{count:,} for {name}" for name, count in sorted(lost.items(), key=lambda pair: -pair[1]))
    rows = sum(lost.values())
    return [f"{rows:,} row{'' if rows == 1 else 's'} left out because a value was missing: {told}."]


def _origin(context: typer.Context, source: str | None) -> str:
    """When, from which file and by which command the page was made."""
    now = dt.datetime.now(dt.UTC)
    given = context.obj if isinstance(context.obj, list) else ["report"]
    file = "" if source is None else f" from {Path(source).name}"
    return f"Written {now:%Y-%m-%d %H:%M} UTC{file} by: {shlex.join(['sidelight', *given])}"


class _bar:  # noqa: N801  # used like a function
    """Context manager: a progress bar over the runs of a trial, on standard error."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def __enter__(self) -> Callable[[int, int], None]:
        console = Console(quiet=self._quiet, stderr=True)
        columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._progress.__enter__()
        task = self._progress.add_task("runs", total=None)
        return lambda done, total: self._progress.update(task, completed=done, total=total)

    def __exit__(self, *details: Any) -> None:
        self._progress.__exit__(*details)


# --------------------------------------------------------------------------------------------- worlds


def _world_study(
    kind: str, rounds: int, log_rows: int, seeds: int, workers: int | None, quiet: bool
) -> tuple[Study, list[str]]:
    first = make_world(kind, 0)
    told = {"noise": "true", "radius": "posterior"}
    learners, meanings = contenders()
    learners["Algorithm 1"] = learner_factory("ProjectedOFUL", told)
    meanings["Algorithm 1"] = "the log as a constraint, told the true cross moments"
    order = [COLD, "OFUL, told the noise", "Zero-filled", "Algorithm 1", *SIMPLER, "FusedOFUL"]
    study = of_world(
        partial(_world_of_seed, kind),
        {name: learners[name] for name in order},
        rounds,
        default_recorded(first),
        log_rows,
        baseline=COLD,
        best="FusedOFUL",
        seeds=seeds,
        workers=workers,
        meanings=meanings,
        facts=(("world", f"{kind}: {WORLDS[kind]}"), ("runs", f"{seeds} worlds, {rounds:,} rounds each")),
        progress=not quiet,
    )
    return study, []


def _world_of_seed(kind: str, seed: int) -> Any:
    return make_world(kind, seed)
