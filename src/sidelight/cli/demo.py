"""``sidelight demo``: draw a confounded log, learn from it, and say what it was worth."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from sidelight.drawing.image_files import need_pictures, render
from sidelight.drawing.intervals import rounded
from sidelight.drawing.regret import Standing, regret_spec, standings
from sidelight.hidden.queries import BehaviorQueries
from sidelight.learners.epoch import EpochOFUL
from sidelight.learners.fused.learner import FusedOFUL
from sidelight.learners.oful import OFUL
from sidelight.learners.projected import ProjectedOFUL
from sidelight.learners.protocol import Learner
from sidelight.learners.running import RunningOFUL
from sidelight.learners.zero_filled import ZeroFilledOFUL
from sidelight.logs.summarize import summarize_log
from sidelight.logs.summary import LogSummary
from sidelight.report.document import write_report
from sidelight.side.constraint import SideInformation
from sidelight.simulation import Run, simulate
from sidelight.worlds.confounded import ConfoundedWorld

BASELINE = "No log"
TITLE = "What an old, confounded log is worth"


class Contender(NamedTuple):
    """A learner of the demo: its name in the picture, what it is, and how ``simulate`` makes it."""

    name: str
    meaning: str
    make: Callable[[Run], Learner]


def contenders() -> list[Contender]:
    """The learners of the demo, the baseline first and the recommended one last.

    All but the last are told the true noise and use λ = 1, with which plain OFUL loses about half as much here as with
    the automatic prior: the comparison is against the stronger baseline. The last is told nothing.
    """

    def told(run: Run) -> dict[str, Any]:
        return {"noise": run.world.noise, "radius": "posterior"}

    def asked(run: Run) -> BehaviorQueries:
        return BehaviorQueries(run.summary, estimator="ipw")

    def no_log(run: Run) -> Learner:
        return OFUL(run.world.n_arms, run.world.n_features, **told(run))

    def zero_filled(run: Run) -> Learner:
        return ZeroFilledOFUL(run.summary, **told(run))

    def algorithm_2(run: Run) -> Learner:
        return EpochOFUL(asked(run), run.horizon, **told(run))

    def every_round(run: Run) -> Learner:
        return RunningOFUL(asked(run), **told(run))

    def algorithm_1(run: Run) -> Learner:
        return ProjectedOFUL(SideInformation.from_log(run.summary, run.true_cross_moments), **told(run))

    def fused(run: Run) -> Learner:
        return FusedOFUL(BehaviorQueries(run.summary))

    return [
        Contender(BASELINE, "starts cold (OFUL)", no_log),
        Contender("Zeros", "the log, zeros for what it lacks", zero_filled),
        Contender("Told the secret", "the paper's algorithm 1, told what others must ask", algorithm_1),
        Contender("In episodes", "the paper's algorithm 2, which has to ask", algorithm_2),
        Contender("Every round", "what the paper's experiments ran, which has to ask", every_round),
        Contender("FusedOFUL", "Sidelight's own, which has to ask", fused),
    ]


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the page.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=2, help="Worlds, each with its own log and rounds.")] = 8,
    rounds: Annotated[int, typer.Option(min=10, help="Online rounds in each world.")] = 4_000,
    log_rows: Annotated[int, typer.Option(min=1_000, help="Rows of each world's log.")] = 20_000,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default one for each core.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON and draw no table.")] = False,
) -> None:
    """Draw confounded logs, learn from them online, and show what they were worth."""
    need_pictures()
    started = time.perf_counter()
    console = Console(quiet=as_json, highlight=False)
    players = contenders()
    best = players[-1].name
    story, summary = opening(make_world(0), log_rows)
    console.print("\n".join(story))
    console.print(f"\n{len(players)} learners in {seeds} such worlds, {rounds:,} rounds each:")
    table = simulate(
        make_world,
        {player.name: player.make for player in players},
        rounds,
        recorded=make_world(0).default_recorded,
        log_rows=log_rows,
        seeds=seeds,
        workers=workers,
        progress=not as_json,
    )
    rows = standings(table, BASELINE)
    sentence = worth(rows, best, rounds)
    subtitle = [
        f"Mean regret over {seeds} worlds with 10 arms and 10 features; the log has {log_rows:,} rows and lacks the 4",
        "features that its policy decided by. Bands: 95 % confidence intervals of the mean.",
    ]
    spec = regret_spec(table, title=TITLE, subtitle=subtitle, emphasis=best)
    files = [render(spec, out / "regret.png"), render(spec, out / "regret.svg")]
    meanings = {player.name: player.meaning for player in players}
    report: dict[str, Any] = {"baseline": BASELINE, "best": best, "diagnosis": summary.diagnose(), "meanings": meanings}
    files.append(write_report(table, out / "index.html", title=TITLE, words=story, **report))
    seconds = time.perf_counter() - started
    if as_json:
        settings = {"seeds": seeds, "rounds": rounds, "log_rows": log_rows, "baseline": BASELINE}
        figures = {"learners": [row.to_dict() for row in rows], "sentence": sentence, "seconds": round(seconds, 1)}
        typer.echo(json.dumps({**settings, **figures, "files": [str(file) for file in files]}, indent=2))
        return
    console.print(standings_table(rows, players))
    console.print(f"\n[bold]{sentence}[/bold]\n")
    console.print(f"{seconds:.0f} s. Open " + " or ".join(str(file) for file in files))


def make_world(seed: int) -> ConfoundedWorld:
    """One world for each seed: its own weights, old policy and log."""
    return ConfoundedWorld(seed=seed)


def opening(world: ConfoundedWorld, log_rows: int) -> tuple[list[str], LogSummary]:
    """What the log of one world looks like, and what it says if read naively and if read as a constraint; the log.

    Both errors are root mean squares of ``x_o·(b_a − ·)`` over contexts and arms: with ``w_ao`` for the naive reading,
    with ``M_a w_a`` (proposition 1) for the other.
    """
    recorded = world.default_recorded
    schema = world.schema(recorded)
    summary = summarize_log(world.sample_log(log_rows, recorded, np.random.default_rng(0)), schema)
    constraint = np.stack(
        [
            world.weights[a, schema.recorded_index]
            + np.linalg.solve(summary.second_moments[a], R12) @ world.weights[a, schema.hidden_index]
            for a, R12 in enumerate(world.cross_moments(recorded))
        ]
    )

    def error(truth: np.ndarray) -> float:
        shift = summary.coefficients - truth
        return float(np.sqrt(np.einsum("ai,aij,aj->a", shift, summary.second_moments, shift).mean()))

    story = [
        f"An old policy chose among {world.n_arms} arms by looking at {world.n_hidden} features that its log of "
        f"{log_rows:,} rows does not have; the log keeps the other {recorded}, the arm and the reward.",
        f"Taken at its word, the log mistakes the effects of its features by {error(world.weights[:, :recorded]):.3f} "
        f"of reward (noise {world.noise:g}), however long it is. Read together with what the old policy would do where "
        f"everything is seen, the same log is off by {error(constraint):.3f}, and that shrinks with every row.",
    ]
    return story, summary


def worth(rows: list[Standing], best: str, rounds: int) -> str:
    """One sentence: what the log was worth to the learner named ``best``, against starting cold."""
    by_name = {row.learner: row for row in rows}
    mine, cold = by_name[best], by_name[BASELINE]
    interval = f"95 % interval {abs(mine.difference_high):,.0f} to {abs(mine.difference_low):,.0f}"
    if mine.difference_high < 0:
        return (
            f"The log was worth {-mine.difference:,.0f} of reward ({interval}): in {rounds:,} rounds {best} lost "
            f"{mine.mean:,.0f} against always taking the best arm, and starting without the log {cold.mean:,.0f}."
        )
    if mine.difference_low > 0:
        interval = f"95 % interval {mine.difference_low:,.0f} to {mine.difference_high:,.0f}"
        return (
            f"The log did harm: {best} lost {mine.difference:,.0f} more than a start without it ({interval}) "
            f"in {rounds:,} rounds."
        )
    found, low, high = (rounded(v, 0, sign=True) for v in (mine.difference, mine.difference_low, mine.difference_high))
    return (
        f"What the log was worth cannot be told from {mine.seeds} seeds: {best}'s regret minus that without the log is "
        f"{found} (95 % interval {low} to {high})."
    )


def standings_table(rows: list[Standing], players: list[Contender]) -> Table:
    """The table that the demo prints."""
    meaning = {player.name: player.meaning for player in players}
    title = "Regret, what was lost against always taking the best arm: mean and 95 % interval"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("learner", no_wrap=True)
    table.add_column("regret", justify="right", no_wrap=True)
    table.add_column("minus no log", justify="right", no_wrap=True)
    table.add_column("what it does")
    for row in rows:
        paired = "–"
        if row.learner != BASELINE:
            paired = f"{rounded(row.difference, 0, sign=True)} ± {row.difference_high - row.difference:,.0f}"
        style = "bold" if row.learner == players[-1].name else None
        table.add_row(
            row.learner, f"{row.mean:,.0f} ± {row.high - row.mean:,.0f}", paired, meaning[row.learner], style=style
        )
    return table
