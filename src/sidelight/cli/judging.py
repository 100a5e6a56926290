"""``sidelight judge``: what a policy would be worth, and how sure that is, before anyone lets a learner act."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sidelight.cli.input_files import is_summary, must_exist, not_over_input
from sidelight.cli.log_options import AsJson, SchemaOptions, Skip, only_for_logs, takes_schema, typed_command
from sidelight.cli.log_reading import check_hidden, source_of
from sidelight.drawing.intervals import number
from sidelight.errors import SidelightWarning
from sidelight.judging.judge import judge as judged
from sidelight.judging.policies import BEST
from sidelight.judging.verdict import Verdict
from sidelight.judging.wording import cells_of, percent
from sidelight.logs.summary import LogSummary

__all__ = ["judge"]

_FOR_SUMMARIES = (
    "answers",
    "complete",
    "pilot",
    "policy",
    "reward_share",
    "choice_share",
    "level",
    "unit",
    "skip_invalid",
)
_MORE = "What else is known"
_STRENGTH = "How strong hidden features are"


@takes_schema(intercept=False)
def judge(
    context: typer.Context,
    log: Annotated[
        list[str], typer.Argument(help="A log: files, globs or a folder; or a summary.", metavar="LOG...|SUMMARY")
    ],
    *,
    answers: Annotated[
        str | None,
        typer.Option(
            help="Rows with every feature and, as the arm, what the old policy would do.", rich_help_panel=_MORE
        ),
    ] = None,
    complete: Annotated[
        str | None,
        typer.Option(
            help="Rows with every feature, arm and reward (and --propensity, if known).", rich_help_panel=_MORE
        ),
    ] = None,
    pilot: Annotated[
        bool,
        typer.Option("--pilot", help="The complete rows are not the old policy's: a pilot.", rich_help_panel=_MORE),
    ] = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="best (what the log suggests), or an arm to take always; may be repeated.", metavar="POLICY"),
    ] = None,
    reward_share: Annotated[
        float | None,
        typer.Option(help="Most that they explain of the unexplained reward (0 to 1).", rich_help_panel=_STRENGTH),
    ] = None,
    choice_share: Annotated[
        float | None,
        typer.Option(help="Most that they explain of the old policy's choice (0 to 1).", rich_help_panel=_STRENGTH),
    ] = None,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    eras: Annotated[
        str | None,
        typer.Option("--eras", "--by", help="Eras of the log: 'missing', or the column that names them."),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write the page for whoever decides to this file.")] = None,
    unit: Annotated[str | None, typer.Option(help="Unit of the reward, for the page: EUR, visits, days.")] = None,
    columns: SchemaOptions,
    skip_invalid: Skip = False,
    as_json: AsJson = False,
) -> None:
    """Say what a policy would be worth, how sure that is, and what would overturn it.

    Example: sidelight judge log.csv --recorded age,weight --hidden severity --html verdict.html
    """
    if html is not None:
        not_over_input(html, *log, answers, complete, columns.schema_file)
    source: Any
    schema = None
    if len(log) == 1 and is_summary(log[0]):
        only_for_logs(context, log[0], _FOR_SUMMARIES)
        source = LogSummary.load(log[0])
    else:
        must_exist(log)
        schema = columns.schema(context)
        check_hidden(log, schema)
        source = source_of(log)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SidelightWarning)
        verdict = judged(
            source,
            schema,
            answers,
            complete,
            policy or [BEST],
            reward_share,
            choice_share,
            level,
            by=eras,
            on_invalid="skip" if skip_invalid else "raise",
            progress=not as_json and sys.stderr.isatty(),
            pilot=pilot,
        )
    if html is not None:
        verdict.to_html(html, typed_command(context), unit)
    if as_json:
        typer.echo(json.dumps(verdict.to_dict(), indent=2, allow_nan=False))
        return
    Console(highlight=False, soft_wrap=False).print(terminal_page(verdict))
    if html is not None:
        typer.echo(f"\nAs a page: {html}")


def terminal_page(verdict: Verdict) -> RenderableType:
    """The verdict as something Rich prints."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for i, name in enumerate(
        ("policy", "stage", "value", "gain", f"{percent(verdict.level)} interval", "overturned at", "")
    ):
        table.add_column(name, justify="left" if i in (0, 1, 6) else "right")
    for line in verdict.lines:
        table.add_row(*(Text(cell) for cell in cells_of(line)))
    parts: list[RenderableType] = [Text(verdict.sentence, style="bold"), Text(), table, Text()]
    if verdict.yardsticks:
        strengths = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title_justify="left")
        strengths.title = f"Recorded features as yardsticks for {verdict.headline!r}"
        for name in ("feature", "of the unexplained", "of the choice", "times to overturn"):
            strengths.add_column(name, justify="left" if name == "feature" else "right")
        for b in verdict.yardsticks[:12]:
            strengths.add_row(
                Text(b.feature), f"{b.reward_share:.1%}", f"{b.choice_share:.1%}", number(b.times) if b.times else "–"
            )
        parts += [strengths, Text()]
    parts += [Text(text, style="dim") for text in verdict.assumptions]
    parts += [Text(f"! {warning}", style="yellow") for warning in verdict.warnings]
    return Group(*parts)
