"""Files that a command reads or writes: that they are there, and that no output destroys an input."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from sidelight.errors import InputError, SourceError
from sidelight.files import may_be_container
from sidelight.logs.sources.paths import find_files

__all__ = ["is_summary", "must_exist", "not_over_input"]


def not_over_input(out: Path, *inputs: str | os.PathLike[str] | None) -> None:
    """Refuse to write over an input file or a folder, or into one that does not exist, before anything long starts.

    Args:
        out: the file to be written.
        inputs: files, patterns and folders that are read; ``None`` for one that was not given.
    """
    for name in _input_files(inputs) if out.exists() else ():
        if os.path.exists(name) and os.path.samefile(out, name):
            raise InputError(f"{out} is what is read here; writing to it would destroy it. Name another file.")
    if out.is_dir():
        raise InputError(f"{out} is a folder: name a file in it to write to.")
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
        except SourceError:  # not a table, such as a schema; an error is raised where it is read
            yield os.fspath(name)


def must_exist(log: list[str]) -> None:
    """Raise ``SourceError`` for a path that does not exist, before anything is asked about its columns."""
    find_files(log)


def is_summary(path: str) -> bool:
    """Whether a file is a saved summary, or was one before it was damaged; a spreadsheet is another kind of archive."""
    return os.path.isfile(path) and may_be_container(path)
