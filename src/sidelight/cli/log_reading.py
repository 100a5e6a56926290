"""Logs as commands read them: errors name the option that fixes them, and notes go to standard error."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from sidelight.cli.looking import mistyped
from sidelight.errors import InputError, SchemaError, SidelightError, SidelightWarning, StandInWarning
from sidelight.labels import counted
from sidelight.logs.eras import Eras, summarize_eras
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.schema import Schema
from sidelight.logs.sources.opening import open_source
from sidelight.logs.sources.paths import file_columns, find_files
from sidelight.logs.summarize import summarize_log
from sidelight.logs.summary import LogSummary

__all__ = ["check_hidden", "complete_rows", "source_of", "summarized", "summarized_eras"]


def source_of(log: list[str]) -> str | list[str]:
    """The files of a log as the library takes them; one by its name, so that messages show that."""
    return log[0] if len(log) == 1 else log


def summarized(log: list[str], schema: Schema, skip: bool, scheduler: str | None, quiet: bool) -> LogSummary:
    """The summary of a log; errors about columns name the option that fixes them."""
    check_hidden(log, schema)
    with _stand_ins_said():
        try:
            on_invalid = "skip" if skip else "raise"
            summary = summarize_log(source_of(log), schema, on_invalid, progress=not quiet, client=scheduler)
        except SchemaError as error:
            for option, column in (("--arm", schema.arm), ("--reward", schema.reward)):
                if f"no column {column!r}" in str(error):
                    raise SchemaError(f"{error} Which of them is it? Say so with {option} NAME.") from error
            undeclared = re.search(r"declare it: categories=\['(.*)'\]", str(error))
            if undeclared:
                raise SchemaError(f"{error} Here: --categories {undeclared[1]}, or in the schema's file.") from error
            raise
        _say_what_is_text(schema, summary.schema, " ".join(log))
    return summary


def summarized_eras(log: list[str], schema: Schema, by: str, skip: bool, scheduler: str | None, quiet: bool) -> Eras:
    """The summaries of a log's eras; ``by`` is ``"missing"`` or the column that names them."""
    if scheduler is not None:
        raise InputError("--eras reads the log on this machine: leave --scheduler out.")
    check_hidden(log, schema)
    with _stand_ins_said():
        eras = summarize_eras(source_of(log), schema, by, "skip" if skip else "raise", progress=not quiet)
        _say_what_is_text(schema, next(iter(eras.values())).schema, " ".join(log))
    return eras


@contextmanager
def _stand_ins_said() -> Iterator[None]:
    """Say at the end, on standard error, which numbers seem to stand for missing values; each once.

    Other warnings of the library are left out: the commands say themselves what was skipped.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("ignore", SidelightWarning)
        warnings.simplefilter("always", StandInWarning)
        yield
    for message in dict.fromkeys(str(warning.message) for warning in said if warning.category is StandInWarning):
        typer.echo(f"{message[0].upper()}{message[1:]}", err=True)


def check_hidden(log: list[str], schema: Schema) -> None:
    """Check that a hidden feature is not a column of the log with a typing error.

    If a recorded column has nearly the same name, the hidden one may well be another feature: that is only a note.

    Raises:
        SchemaError: the log has an unused column of nearly the same name.
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


def _say_what_is_text(given: Schema, found: Schema, origin: str) -> None:
    """Say which columns turned out to be text, and so are categories, on standard error."""
    declared = {feature.name for feature in given.features if isinstance(feature, Category)}
    for feature in found.features:
        if isinstance(feature, Category) and feature.name not in declared:
            typer.echo(
                f"Column {feature.name!r} of {origin} holds text, so it is a category with "
                f"{counted(len(feature.levels or ()), 'level')}. To say so yourself: --categories {feature.name}",
                err=True,
            )


def complete_rows(log: list[str], schema: Schema, scheduler: str | None, quiet: bool) -> LogSummary | None:
    """The rows that have every feature, if the files have columns for the hidden ones; None if they do not.

    Also None with fewer than ten rows for each coefficient: too few to measure anything.
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
