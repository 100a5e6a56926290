"""``sidelight figures``: recompute and draw the figures of the paper, and four of our own."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn, track

from sidelight.drawing.image_files import need_pictures
from sidelight.experiments.analysis import analyse
from sidelight.experiments.catalogue import FULL, PRESETS, QUICK, Scale, catalogue, choose
from sidelight.experiments.figure_settings import Figure
from sidelight.experiments.pictures import draw, gallery
from sidelight.experiments.results import Results
from sidelight.experiments.scheduling import run_figures
from sidelight.labels import counted

_SCALE = "How large"
_PLACE = "Where it runs"


def figures(
    which: Annotated[
        list[str] | None,
        typer.Argument(
            help="Figures by name, or the beginning of one: a, b-paper_text, a-fused, log-size, confounding, queries, "
            "lies. Default all.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for results and pictures.")] = Path("results"),
    quick: Annotated[bool, typer.Option(help="Small settings: all pictures in under a minute.")] = False,
    preset: Annotated[
        str | None, typer.Option(help="Only this preset of the paper's figures: paper_text or authors_code.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each setting; default 5, own figures 10.", rich_help_panel=_SCALE)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=10, help="Rounds of the paper's figures; default 100,000.", rich_help_panel=_SCALE)
    ] = None,
    log_rows: Annotated[
        int | None,
        typer.Option(min=1_000, help="Rows of their log; default 1,000,000.", rich_help_panel=_SCALE),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; default one for each core.", rich_help_panel=_PLACE)
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler: run there instead.", rich_help_panel=_PLACE)
    ] = None,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Draw from the results that are there; run nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what the figures show as JSON.")] = False,
) -> None:
    """Recompute and draw the figures: results as Parquet, pictures as PNG, SVG and pages.

    A run that was stopped goes on where it was. Example: sidelight figures a b c --preset authors_code
    """
    need_pictures()
    started = time.perf_counter()
    scale = _scaled(QUICK if quick else FULL, rounds, log_rows)
    wanted = choose(catalogue(scale), which or [])
    if preset is not None:
        if preset not in PRESETS:
            raise typer.BadParameter(f"{preset!r} is not one of {', '.join(PRESETS)}.", param_hint="--preset")
        wanted = tuple(f for f in wanted if f.name.endswith(preset))
        if not wanted:
            raise typer.BadParameter("none of these figures has presets.", param_hint="--preset")
    folder = out / "quick" if quick else out
    results = Results(folder)
    console = Console(quiet=as_json, highlight=False, soft_wrap=True)
    if not redraw:
        _run(wanted, results, seeds, workers, scheduler, console)
    described = _draw(wanted, results, seeds, folder, console)
    seconds = time.perf_counter() - started
    if as_json:
        typer.echo(json.dumps({"figures": described, "seconds": round(seconds, 1), "folder": str(folder)}, indent=2))
    else:
        console.print(f"\n{counted(len(wanted), 'figure')} in {seconds:.0f} s. Open {folder / 'index.html'}")


def _scaled(scale: Scale, rounds: int | None, log_rows: int | None) -> Scale:
    """The scale with other rounds and rows of the paper's figures, where they are given."""
    if rounds is not None:
        scale = replace(scale, horizon=rounds)
    if log_rows is not None:
        sizes = (*(size for size in scale.log_sizes if size < log_rows), log_rows)
        scale = replace(scale, log_rows=log_rows, log_sizes=sizes)
    return scale


def _run(
    wanted: tuple[Figure, ...],
    results: Results,
    seeds: int | None,
    workers: int | None,
    scheduler: str | None,
    console: Console,
) -> None:
    """Run what the figures need and what no earlier run has left, with a bar."""
    columns = (TextColumn("{task.description:17}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # figures with one number of seeds are run together, so that what they share is run once
    groups: dict[int, list[Figure]] = {}
    for figure in wanted:
        groups.setdefault(seeds or figure.seeds, []).append(figure)
    for count, figures_of in groups.items():
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("looking", total=None)

            def report(done: int, total: int, what: str, bar: Any = bar, task: Any = task) -> None:
                bar.update(task, completed=done, total=total, description=what)

            run_figures(figures_of, results, seeds=count, workers=workers, scheduler=scheduler, report=report)


def _draw(
    wanted: tuple[Figure, ...], results: Results, seeds: int | None, folder: Path, console: Console
) -> list[dict[str, Any]]:
    parts, described = [], []
    for figure in track(wanted, "drawing          ", console=console, transient=True):
        count = seeds or figure.seeds
        table = results.gather(figure, count)
        findings = analyse(figure, table)
        files = draw(figure, table, findings, folder, count)
        parts.append((figure, table, findings, count))
        verdict = findings.verdict
        described.append(
            {
                "figure": figure.name,
                "title": figure.title,
                "words": list(findings.words),
                "claim": figure.claim or None,
                "verdict": None if verdict is None else {"word": verdict.word, "why": verdict.why},
                "final": [
                    {"series": s, "x": x or None, "mean": i.mean, "low": _plain(i.low), "high": _plain(i.high)}
                    for (s, x), i in findings.final.items()
                ],
                "files": [str(results.figure_path(figure)), *map(str, files)],
            }
        )
        console.print(f"\n[bold]{figure.name}[/bold]  {figure.title}")
        for text in findings.words:
            console.print(f"  {text}")
        if verdict is not None:
            console.print(f"  The paper's claim: {figure.claim} [bold]{verdict.sentence}[/bold]")
    gallery(parts, folder)
    return described


def _plain(value: float) -> float | None:
    return None if value != value else value
