"""The options that say what the columns of a log are, shared by commands, and the schema made from them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from sidelight.errors import SchemaError
from sidelight.labels import typed_labels
from sidelight.logs.schema.formula import read_terms
from sidelight.logs.schema.schema import Schema
from sidelight.logs.schema.schema_file import read_schema_file

__all__ = [
    "AsJson",
    "SchemaOptions",
    "Skip",
    "given_options",
    "names_of",
    "only_for_logs",
    "split_names",
    "takes_schema",
    "typed_command",
]

_COLUMNS = "What its columns are"

Skip = Annotated[bool, typer.Option("--skip-invalid", help="Leave out rows that cannot be used, and count them.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


@dataclass(frozen=True)
class SchemaOptions:
    """What the columns of a log are: a file that says it, or the other options.  Every field is an option."""

    recorded: Annotated[
        str | None, typer.Option(help="Features the log recorded, comma-separated.", rich_help_panel=_COLUMNS)
    ] = None
    hidden: Annotated[
        str | None,
        typer.Option(help="Features it lacks but the learner will see, comma-separated.", rich_help_panel=_COLUMNS),
    ] = None
    arm: Annotated[str, typer.Option(help="The column with the chosen arm.", rich_help_panel=_COLUMNS)] = "arm"
    reward: Annotated[str, typer.Option(help="The column with its reward.", rich_help_panel=_COLUMNS)] = "reward"
    arms: Annotated[
        str | None, typer.Option(help="The arms in order, comma-separated; else discovered.", rich_help_panel=_COLUMNS)
    ] = None
    categories: Annotated[
        str | None,
        typer.Option(
            help="Features that are categories, comma-separated; city or city=Paris|Rome to name the levels, which "
            "hidden ones need.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None
    intercept: Annotated[
        bool, typer.Option("--intercept/--no-intercept", help="Add a constant feature.", rich_help_panel=_COLUMNS)
    ] = True
    derived: Annotated[
        str | None,
        typer.Option(
            help="Features computed from columns, a formula: 'spline(age, 4) + stage:dose + weekday(visit)'.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None
    propensity: Annotated[
        str | None, typer.Option(help="The column with the old policy's probability.", rich_help_panel=_COLUMNS)
    ] = None
    schema_file: Annotated[
        Path | None,
        typer.Option(
            "--schema", help="A TOML or JSON file with the schema, instead of these options.", rich_help_panel=_COLUMNS
        ),
    ] = None

    def schema(self, context: typer.Context) -> Schema:
        """The schema from the file or from the options; both at once are refused, since one would be ignored."""
        if self.schema_file is not None:
            self._said_once(context, self.schema_file)
            return read_schema_file(self.schema_file)
        if self.recorded is None and self.hidden is None and self.derived is None:
            raise SchemaError(
                "which features did the log record? Name them, --recorded age,weight, and those it lacks, --hidden "
                "severity; or give a file with --schema."
            )
        levels: dict[str, Any] = {}
        for item in names_of(self.categories):
            name, given, values = item.partition("=")
            levels[name] = typed_labels([value.strip() for value in values.split("|")]) if given else None
        seen, unseen = names_of(self.recorded), names_of(self.hidden)
        both = sorted(set(seen) & set(unseen))
        if both:
            raise SchemaError(f"{', '.join(both)} cannot be both recorded and hidden.")
        labels = typed_labels(names_of(self.arms)) if self.arms else None
        listed = list(dict.fromkeys([*seen, *unseen]))
        more: dict[str, Any] = {"categories": levels, "propensity": self.propensity}
        if self.derived is not None:
            # a column that only the formula names is recorded, unless it is among the hidden ones
            formula = read_terms(self.derived)
            inputs = {name for term in formula.terms for name in term.inputs} | set(formula.columns)
            seen += [name for name in inputs if name not in listed]
            dates = {name for term in formula.terms for name, kind in term.inputs.items() if kind == "date"}
            listed = [name for name in listed if name not in dates]
            more["derived"] = self.derived
        return Schema(listed, seen, self.arm, self.reward, labels, self.intercept, **more)

    def _said_once(self, context: typer.Context, file: Path) -> None:
        """Refuse --schema beside options about columns; one of the two would be ignored."""
        of_the_schema = {field.name for field in fields(self)} - {"schema_file"}
        given = [option for name, option in given_options(context).items() if name in of_the_schema]
        if given:
            one = len(given) == 1
            raise typer.BadParameter(
                f"{', '.join(given)} {'says' if one else 'say'} what the columns are, and so does {file}. Put "
                f"{'it' if one else 'them'} into the file, or leave --schema out.",
                param_hint=given[0],
            )


def takes_schema(**fixed: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command's parameter ``columns: SchemaOptions`` be one option for each of its fields.

    fixed: values of the fields that are not options of this command
    """
    hints = get_type_hints(SchemaOptions, include_extras=True)
    options = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(SchemaOptions)
        if field.name not in fixed
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in signature(command, eval_str=True).parameters.values()]
        parameters = [option for p in own for option in (options if p.name == "columns" else [p])]

        @wraps(command)
        def run(**given: Any) -> None:
            columns = SchemaOptions(**{option.name: given.pop(option.name) for option in options}, **fixed)
            command(columns=columns, **given)

        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def only_for_logs(context: typer.Context, path: str, more: Sequence[str] = ()) -> None:
    """Refuse options about reading a log when a summary is given; they would be ignored. ``more`` go with summaries."""
    meant_for_summaries = ("log", "html", "noise", "as_json", *more)
    given = [option for name, option in given_options(context).items() if name not in meant_for_summaries]
    if given:
        one = len(given) == 1
        raise typer.BadParameter(
            f"{', '.join(given)} {'says' if one else 'say'} how to read a log, but {path} is a summary, for which that "
            f"is settled. Leave {'it' if one else 'them'} out, or give the log itself.",
            param_hint=given[0],
        )


def given_options(context: typer.Context) -> dict[str, str]:
    """Parameters that were given on the command line: name → option."""
    return {
        str(parameter.name): parameter.opts[0]
        for parameter in context.command.params
        if getattr(context.get_parameter_source(str(parameter.name)), "name", None) == "COMMANDLINE"
    }


def typed_command(context: typer.Context) -> str:
    """The command as it was typed, quoted for a shell: how to make a page again."""
    words = context.obj if isinstance(context.obj, list) else [str(context.info_name)]
    return shlex.join(["sidelight", *words])


def split_names(given: Sequence[str] | None, columns: Sequence[str]) -> list[str]:
    """Names from an option that may be repeated: an entry that is a column's name is one, any other is split at commas.

    Each name once, in the order given.
    """
    found = [name for entry in given or [] for name in ([entry] if entry in columns else names_of(entry))]
    return list(dict.fromkeys(found))


def names_of(text: str | None) -> list[str]:
    """The names of a comma-separated option, without blanks around them and without empty ones."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]
