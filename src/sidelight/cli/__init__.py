"""The ``sidelight`` command.

Each command is a plain function with Typer annotations in a module of this package. ``COMMANDS`` names the module, so
that ``sidelight --help`` imports none of them: modules of commands import what they need at their top, and only the
module of the command that was asked for is imported. To add a command, write its function and add its line here.

Exit codes: 0 done, 1 something is wrong with the data, the settings (a :class:`~sidelight.errors.SidelightError`) or
the machine (an ``OSError``, such as a full disk), whose message is printed without a traceback, 2 usage.
"""

from __future__ import annotations

import importlib
import importlib.util
import keyword
import os
import sys
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

from sidelight.errors import MissingExtraError, SidelightError, how_to_install
from sidelight.version import __version__

__all__ = ["COMMANDS", "Command", "build", "main"]


class Command(NamedTuple):
    """Where a command lives and what ``--help`` says about it."""

    module: str
    """the module in this package; its function is called like the command, dashes as underscores (``try_`` for ``try``,
    which Python keeps for itself). For a command with commands of its own it has a ``typer.Typer`` called
    ``<command>_app`` instead"""
    help: str
    section: str
    extra: str | None = None
    """the extra without which the module cannot be imported"""


#: What an extra brings that its commands import, and what it is for.
EXTRAS = {
    "service": (
        "the decision service",
        ("starlette", "msgspec", "uvicorn", "httptools", "sqlalchemy", "prometheus_client"),
    ),
}

_LOG = "Your log"
_STUDY = "Studies"
_SERVICE = "Decision service"

COMMANDS: dict[str, Command] = {
    "demo": Command("demo", "See what a confounded log is worth, in a minute.", "Start here"),
    "try": Command("trying", "Look at a file of past decisions, and say what it proves.", "Start here"),
    "summarize": Command("logs", "Read a log of any size and keep the evidence per arm.", _LOG),
    "diagnose": Command("logs", "Say what a log is worth and what is wrong with it.", _LOG),
    "judge": Command("judging", "Say what a policy would be worth, and how sure that is.", _LOG),
    "decide": Command("scoring", "Let a saved learner decide for a file of contexts.", _LOG),
    "simulate": Command("simulate", "Run learners in a simulated world.", _STUDY),
    "figures": Command("figures", "Recompute and draw the figures.", _STUDY),
    "report": Command("report", "Replay a trial, a table or a world with learners, as one HTML page.", _STUDY),
    "init": Command("service", "Set up a decision service in a folder.", _SERVICE, "service"),
    "serve": Command("service", "Run the decision service.", _SERVICE, "service"),
    "replay": Command(
        "event_log", "Check the service: fold its events again (for trials see report).", _SERVICE, "service"
    ),
    "tokens": Command("service", "Manage access tokens.", _SERVICE, "service"),
    "export": Command("event_log", "Write rewarded decisions as Parquet.", _SERVICE, "service"),
    "backup": Command("event_log", "Copy the event log while the service runs.", _SERVICE, "service"),
    "restore": Command("event_log", "Put a back-up in the place of a lost event log.", _SERVICE, "service"),
    "migrate": Command("event_log", "Bring the event log's database to this version.", _SERVICE, "service"),
    "audit": Command("event_log", "Show everything that led to one decision.", _SERVICE, "service"),
    "quarantine": Command("event_log", "Review what was kept from the learner as out of bounds.", _SERVICE, "service"),
    "retract": Command("event_log", "Take the reward of one decision back.", _SERVICE, "service"),
    "forget": Command("event_log", "Delete the contexts of one person.", _SERVICE, "service"),
    "erase": Command("event_log", "Rewrite the database's files without what was deleted.", _SERVICE, "service"),
    "successor": Command(
        "successor", "Set up the next service: new features, new or retired arms.", _SERVICE, "service"
    ),
    "warm": Command("warm", "Compile the inner loops now, so that nobody waits for it later.", "Installation"),
}


def build(arguments: Sequence[str]) -> typer.Typer:
    """The application for these arguments: the command they name is loaded, all others are a name and a help line."""
    application = typer.Typer(
        name="sidelight",
        epilog="sidelight COMMAND --help says more about each. To see what this is about: sidelight demo",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @application.callback(help="Contextual bandits that start from an old, confounded log.")
    def options(
        version: Annotated[
            bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_version)
        ] = False,
    ) -> None:
        pass

    typed = _typed_so_far()
    wanted = next((argument for argument in typed or arguments if not argument.startswith("-")), None)
    for name, command in COMMANDS.items():
        if name != wanted or (typed and _missing(command.extra)):
            application.command(name, help=command.help, rich_help_panel=command.section)(_nothing)
            continue
        _need(command.extra)
        module = importlib.import_module(f"{__name__}.{command.module}")
        attribute = name.replace("-", "_") + "_" * keyword.iskeyword(name)
        if hasattr(module, f"{attribute}_app"):
            application.add_typer(getattr(module, f"{attribute}_app"), name=name, help=command.help)
        else:
            application.command(name, rich_help_panel=command.section)(getattr(module, attribute))
    return application


def _typed_so_far() -> list[str]:
    """While a shell asks for completions: the words after ``sidelight`` on its line; it passes them by environment."""
    if "_SIDELIGHT_COMPLETE" not in os.environ:
        return []
    # bash and PowerShell pass the first, zsh and fish the second
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    return line.split()[1:]


def _missing(extra: str | None) -> list[str]:
    """Packages of an extra that are not installed."""
    packages = () if extra is None else EXTRAS[extra][1]
    return [name for name in packages if importlib.util.find_spec(name) is None]


def _need(extra: str | None) -> None:
    """Raise MissingExtraError, which says how to install the extra, if a package of it is missing."""
    missing = _missing(extra)
    if extra is not None and missing:
        what = EXTRAS[extra][0]
        raise MissingExtraError(f"{what} needs {', '.join(missing)}: {how_to_install(extra)}.")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sidelight {__version__}")
        raise typer.Exit


def _nothing() -> None:
    """Placeholder for a command that is listed in the help but was not called."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exits with 0, 1 (your data or settings) or 2 (usage)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # commands find what was typed in their context's obj
        build(given)(given, prog_name="sidelight", obj=given)
    except SidelightError as error:
        print(f"sidelight: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output went away (sidelight ... | head): nothing is wrong here.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        # a full disk, a missing permission, a file system that went away
        where = "" if error.filename is None else f" ({os.fsdecode(error.filename)})"
        print(f"sidelight: {error.strerror or error}{where}", file=sys.stderr)
        sys.exit(1)
