"""A progress bar in rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

__all__ = ["row_bar"]


@contextlib.contextmanager
def row_bar(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on standard error; yields a function of the rows done and the rows expected (``None``: not known)."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task(title, total=None, rows="")

        def report(done: int, total: int | None) -> None:
            of = "" if total is None else f" of {total:,}"
            bar.update(task, completed=done, total=total, rows=f"{done:,}{of} rows")

        yield report
