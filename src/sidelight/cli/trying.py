"""``sidelight try``: look at a file, propose what its columns are, and say what the log proves and what it is worth."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import tomli_w
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sidelight.cli.input_files import not_over_input
from sidelight.cli.log_options import split_names, typed_command
from sidelight.cli.log_reading import complete_rows, summarized
from sidelight.cli.looking import Copied, Look, headless, look_at, write_prepared
from sidelight.cli.proposing import Proposal, Said, propose, unclear
from sidelight.drawing.intervals import number
from sidelight.errors import InputError, SchemaError, SidelightError
from sidelight.files import write_atomically
from sidelight.judging.judge import judge
from sidelight.judging.verdict import Verdict
from sidelight.labels import counted
from sidelight.logs.diagnosis.curvature import Proposal as Term
from sidelight.logs.diagnosis.curvature import propose_terms
from sidelight.logs.diagnosis.diagnosis import Diagnosis
from sidelight.logs.schema.encoding import MISSING
from sidelight.logs.schema.schema_file import SCHEMA_FILE_VERSION

__all__ = ["gain_lines", "schema_text", "try_"]

HEADER = "# Written by sidelight try."
_COLUMNS = "What its columns are"
_WIDTH = 33


def try_(
    context: typer.Context,
    log: Annotated[list[str], typer.Argument(help="A CSV, Parquet or Arrow file; a folder or pattern for several.")],
    arm: Annotated[str | None, typer.Option(help="The column with what was done.", rich_help_panel=_COLUMNS)] = None,
    reward: Annotated[
        str | None, typer.Option(help="The column with what came of it.", rich_help_panel=_COLUMNS)
    ] = None,
    recorded: Annotated[
        list[str] | None,
        typer.Option(help="The features, if you want to name them all; commas or repeated.", rich_help_panel=_COLUMNS),
    ] = None,
    hidden: Annotated[
        list[str] | None,
        typer.Option(
            help="Features that the old policy saw and the log lacks, or shall be taken to lack; in the file or not.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="Columns to use though they would be left out.", rich_help_panel=_COLUMNS)
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Columns to leave out.", rich_help_panel=_COLUMNS)] = None,
    categories: Annotated[
        list[str] | None, typer.Option(help="Number columns whose values are names.", rich_help_panel=_COLUMNS)
    ] = None,
    propensity: Annotated[
        str | None, typer.Option(help="The column with the old policy's probability.", rich_help_panel=_COLUMNS)
    ] = None,
    intercept: Annotated[
        bool, typer.Option("--intercept/--no-intercept", help="Whether to add a constant.", rich_help_panel=_COLUMNS)
    ] = True,
    curved: Annotated[
        bool,
        typer.Option(
            "--curved",
            help="Add the nonlinear effects and interactions that the log gives evidence for.",
            rich_help_panel=_COLUMNS,
        ),
    ] = False,
    noise: Annotated[float | None, typer.Option(help="Deviation of a reward given everything, if known.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The schema to write.")] = Path("schema.toml"),
    html: Annotated[Path | None, typer.Option(help="Also write the verdict's page here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a schema that somebody else wrote.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Take the proposal without asking.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for a program to read; takes the proposal.")
    ] = False,
) -> None:
    """Look at a file of past decisions: what its columns are, what the log proves, what it is worth, what to do next.

    Example: sidelight try my.csv --arm offer --reward revenue --yes
    """
    not_over_input(out, *log)
    if html is not None:
        not_over_input(html, *log)
    look = look_at(log)
    lists = {"recorded": recorded, "hidden": hidden, "categories": categories, "keep": keep, "ignore": ignore}
    named = {name: tuple(split_names(given, look.columns)) for name, given in lists.items()}
    said = Said(arm, reward, propensity, intercept=intercept, **named)
    console = Console(quiet=as_json, highlight=False, soft_wrap=False)
    asking = is_terminal() and not yes and not as_json
    console.print(_opening(look))
    proposal = _completed(propose(look, said), said, look, console, asking)
    console.print(_proposal_table(proposal))
    if not (yes or as_json or asking):
        raise InputError("this is no terminal to ask in: look at the proposal above, and add --yes to take it.")
    schema = proposal.schema()
    _may_write(out, force)
    source, warnings = _prepared(look, out, console)
    write_atomically(out, schema_text(proposal, look).encode())
    console.print(f"Written to {out}. Edit it where it is wrong, and go on with --schema {out}.")
    if asking and not typer.confirm("Go on with these columns?", default=True):
        console.print(f"Next: sidelight diagnose {_quoted(source)} --schema {_quoted([str(out)])}")
        return
    summary = summarized(source, schema, True, None, quiet=as_json)
    terms: list[Term] = []
    if curved:
        terms = propose_terms(source[0] if len(source) == 1 else source, summary.schema, "skip")
        console.print(_terms_text(terms))
    if terms:
        schema = schema.with_derived([term.term for term in terms])
        write_atomically(out, schema_text(proposal, look, terms).encode())
        summary = summarized(source, schema, True, None, quiet=as_json)
    complete = complete_rows(source, summary.schema, None, quiet=as_json) if noise is None else None
    diagnosis = summary.diagnose(noise, complete)
    verdict, reason = _judged(source, schema, has_hidden=complete is not None)
    if html is not None and verdict is not None:
        verdict.to_html(html, typed_command(context))
    lacking = any(reason.endswith(MISSING) for reason in summary.skipped)
    told = None if complete is None else source[0] if len(source) == 1 else log[0] if len(log) == 1 else None
    steps = next_steps(source, out, bool(diagnosis.hidden), bool(summary.skipped), lacking, told)
    if not as_json:
        _show(console, diagnosis, verdict, reason, html, steps)
        return
    everything: dict[str, Any] = {
        "file": list(look.files),
        "columns": [{"name": c.name, "role": c.role, "why": c.why, "hidden": c.hidden} for c in proposal.columns],
        "schema": _described(proposal, terms),
        "proposals": [asdict(term) for term in terms],
        "schema_file": str(out),
        "source": source,
        "warnings": warnings,
        "diagnosis": diagnosis.to_dict(),
        "verdict": None if verdict is None else verdict.to_dict(),
        "verdict_missing": reason,
        "next": steps,
    }
    typer.echo(json.dumps(everything, indent=2, ensure_ascii=False, allow_nan=False))


def _completed(proposal: Proposal, said: Said, look: Look, console: Console, asking: bool) -> Proposal:
    """The proposal with every role filled, by asking for what could not be guessed.

    Raises:
        SchemaError: something is missing, and nobody can be asked.
    """
    if not proposal.missing:
        return proposal
    console.print(_proposal_table(proposal))
    if not asking:
        questions = " ".join(unclear(proposal, role, look) for role in proposal.missing)
        raise SchemaError(questions + headless(look.columns))
    while proposal.missing:
        role = proposal.missing[0]
        answer = typer.prompt(unclear(proposal, role, look).split(" Say so")[0])
        if answer in look.columns:
            said = replace(said, **{role: answer})
            proposal = propose(look, said)
        else:
            console.print(f"There is no column {answer!r}.")
    return proposal


def _show(
    console: Console,
    diagnosis: Diagnosis,
    verdict: Verdict | None,
    reason: str | None,
    html: Path | None,
    steps: Sequence[str],
) -> None:
    """Print what the log is worth, what it proves or the reason why that cannot be told, and the next steps."""
    console.print()
    console.rule("What the log is worth", align="left")
    console.print(diagnosis)
    console.print()
    console.rule("What the log proves", align="left")
    if verdict is None:
        console.print(reason)
    else:
        console.print(Text(verdict.sentence, style="bold"))
        console.print()
        for line in gain_lines(verdict):
            console.print(Text(line), soft_wrap=True)
        for warning in verdict.warnings:
            console.print(Text(f"! {warning}", style="yellow"))
        if html is not None:
            console.print(f"As a page: {html}")
    console.print()
    console.rule("Next", align="left")
    for step in steps:
        console.print(Text(step), soft_wrap=True)


def is_terminal() -> bool:
    """Whether input and output are a terminal, so that questions can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


# ------------------------------------------------------------------------------------------------ what is shown


def _opening(look: Look) -> str:
    how = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}.get(look.delimiter)
    form = (
        look.format
        + (f", {how}-separated" if how else "")
        + (f", {look.encoding}" if look.encoding not in ("", "utf8") else "")
    )
    some = counted(look.rows, "row")
    rows = some if look.whole else f"the first {some}"
    many = f" and {len(look.files) - 1} more" if len(look.files) > 1 else ""
    nameless = f" (and {look.unnamed} without a name, left out)" if look.unnamed else ""
    return f"{look.files[0]}{many} ({form}): {counted(len(look.profiles), 'column')}{nameless}; {rows} looked at.\n"


def _proposal_table(proposal: Proposal) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("column")
    table.add_column("is taken as", no_wrap=True)
    table.add_column("because", style="dim")
    for column in proposal.columns:
        role = column.role + (", hidden" if column.hidden else "")
        style = "bold" if column.role in ("arm", "reward") else "" if column.used else "dim"
        table.add_row(Text(column.name), Text(role), Text(column.why), style=style)
    return table


def _terms_text(terms: Sequence[Term]) -> str:
    if not terms:
        return "This log shows no nonlinear effect of a recorded column, and no interaction of two."
    width = max(len(term.term) for term in terms)
    lines = [f"  {term.term:{width}}  explains {term.explains:.2%} of what straight effects leave" for term in terms]
    return "\n".join(["Taken into the schema, since the log asks for it:", *lines])


def _described(proposal: Proposal, terms: Sequence[Term] = ()) -> dict[str, Any]:
    """The schema as a table of settings."""
    derived = [*proposal.derived, *(term.term for term in terms)]
    return proposal.described() | ({"derived": derived} if derived else {})


def schema_text(proposal: Proposal, look: Look, terms: Sequence[Term] = ()) -> str:
    """The schema as TOML, with a comment for every column that says what it was taken for and why."""
    lines = [f"{HEADER} What each column of {look.files[0]} was taken for, and why:"]
    width = max(len(column.name) for column in proposal.columns)
    for column in proposal.columns:
        role = column.role + (" (hidden)" if column.hidden else "")
        lines.append(f"#   {column.name:{width}}  {role}: {column.why}".replace("\n", " "))
    return "\n".join(lines) + "\n\n" + tomli_w.dumps({"version": SCHEMA_FILE_VERSION, **_described(proposal, terms)})


def gain_lines(verdict: Verdict) -> list[str]:
    """The gain of every policy over the old one as a picture of text: intervals on one axis, zero marked.

    Intervals are those of sampling alone; the last column says how strong hidden features would have to be to overturn
    the sign of the gain.
    """
    known = [
        line
        for line in verdict.lines
        if line.known and line.role != "old policy" and math.isfinite(line.high - line.low)
    ]
    if not known:
        return []
    low = min(0.0, *(line.low for line in known))
    high = max(0.0, *(line.high for line in known))
    size = (high - low) or 1.0

    def place(value: float) -> int:
        return round((value - low) / size * (_WIDTH - 1))

    names = [line.policy if line.stage == "log" else f"{line.policy}, {line.stage} rows" for line in known]
    widest = min(36, max(map(len, names)))
    ends = f"{number(low, sign=True):<{_WIDTH - 10}}{number(high, sign=True):>10}"
    out = [
        f"Gain over the old policy, {verdict.level:.0%} intervals of sampling alone; │ is no gain.",
        f"{'':{widest}}  {ends}  {'gain':>9}  overturned if hidden features explain",
    ]
    for line, name in zip(known, names, strict=True):
        cells = [" "] * _WIDTH
        for at in range(place(line.low), place(line.high) + 1):
            cells[at] = "─"
        cells[place(0.0)] = "┼" if cells[place(0.0)] == "─" else "│"
        cells[place(line.gain)] = "●"
        shown = name if len(name) <= widest else name[: widest - 1] + "…"
        strength = "–" if line.robustness is None else f"{line.robustness:.1%}"
        out.append(f"{shown:{widest}}  {''.join(cells)}  {number(line.gain, sign=True):>9}  {strength}")
    return out


# -------------------------------------------------------------------------------------------------- what is done


def _may_write(out: Path, force: bool) -> None:
    """Refuse, without --force, to replace a schema that was not written by this command."""
    if out.exists() and not force and not out.read_text(encoding="utf-8", errors="replace").startswith(HEADER):
        raise InputError(f"{out} is there already and was not written by this command. Name another --out, or --force.")


def _prepared(look: Look, out: Path, console: Console) -> tuple[list[str], list[str]]:
    """The files to read, and warnings about them.

    The files are those given, or a copy in which numbers and dates are written so that they can be read.
    """
    if not look.repairs and look.encoding in ("", "utf8"):
        return list(look.files), []
    target = out.with_name(f"{Path(look.files[0]).stem}.prepared.parquet")
    copied = write_prepared(look, target)
    how = {"comma": "decimal commas", "thousands": "thousands separators", "money": "currency or per cent signs"}
    reasons = sorted({how.get(profile.repair, f"dates as {profile.repair}") for profile in look.repairs})
    if look.encoding not in ("", "utf8"):
        reasons.append(f"text that is not UTF-8 (read as {look.encoding})")
    console.print(f"\n{counted(copied.rows, 'row')} copied to {target}: the file has {', '.join(reasons)}.")
    warnings = _warnings(look, copied)
    for warning in warnings:
        console.print(Text(f"! {warning}", style="yellow"))
    return [str(target)], warnings


def _warnings(look: Look, copied: Copied) -> list[str]:
    """What a reader of the copy must know: columns of several units, and values that were left empty."""
    out = []
    for profile in look.repairs:
        if len(profile.signs) > 1:
            signs = " and ".join(f"with {sign}" if sign else "without" for sign in profile.signs[::-1])
            out.append(
                f"Column {profile.name!r} has values {signs}. They were taken as numbers of one unit; if they are not, "
                "convert them first."
            )
    kinds = {profile.name: profile for profile in look.profiles}
    for name, (count, first) in copied.lost.items():
        notation = f"a date ({kinds[name].repair})" if kinds[name].kind == "date" else "a number"
        values = "1 value is" if count == 1 else f"{count:,} values are"
        out.append(f"In column {name!r} {values} not written as {notation}, such as {first!r}, and empty in the copy.")
    return out


def _judged(source: list[str], schema: Any, has_hidden: bool) -> tuple[Verdict | None, str | None]:
    """The verdict from the log alone, or why there is none; where the file has the hidden columns, from them too."""
    log: Any = source[0] if len(source) == 1 else source
    try:
        return judge(log, schema, complete=log if has_hidden else None, on_invalid="skip"), None
    except SidelightError as error:
        return None, f"What the log proves cannot be told: {error}"


def next_steps(
    source: list[str], schema: Path, hidden: bool, skipped: bool, lacking: bool = False, complete: str | None = None
) -> list[str]:
    """What to do after this, as commands.

    Args:
        source: the files of the log.
        schema: the schema that was written.
        hidden: whether features are hidden.
        skipped: whether some rows could not be used.
        lacking: whether some of them only lack values, so that they can be used as eras.
        complete: the file, folder or pattern, if it has the hidden columns too: the page is then about what they tell.
    """
    skip = " --skip-invalid" if skipped else ""
    rows = f" --complete {_quoted([complete])}" if complete is not None else ""
    files, described = _quoted(source), _quoted([str(schema)])
    steps = []
    if not hidden:
        steps.append(
            "Did the old policy see something that is not in the file? Name it, --hidden severity,income: the learner "
            "will see it, and what the log says is then corrected for it."
        )
    steps.append(
        f"A page for whoever decides:   sidelight judge {files} --schema {described}{rows}{skip} --html verdict.html"
    )
    steps += [
        f"Keep what is worth keeping:   sidelight summarize {files} --schema {described}{skip} -o log.summary",
        "Let a learner watch:          sidelight init --summary log.summary   (it starts in shadow mode)",
    ]
    if lacking:
        steps.append(
            "Use the skipped rows too:     "
            f"sidelight summarize {files} --schema {described} --eras missing -o log.summary   "
            "(rows that lack the same columns become an era of their own)"
        )
    return steps


def _quoted(paths: list[str]) -> str:
    return shlex.join(paths)
