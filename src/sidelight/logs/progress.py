"""A progress bar that counts: rows, rounds, runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

__all__ = ["counting_bar"]


@contextlib.contextmanager
def counting_bar(title: str, unit: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on standard error; yields a function of the units done and those expected (``None``: not known)."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[count]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task(title, total=None, count="")

        def report(done: int, total: int | None) -> None:
            of = "" if total is None else f" of {total:,}"
            bar.update(task, completed=done, total=total, count=f"{done:,}{of} {unit}")

        yield report
