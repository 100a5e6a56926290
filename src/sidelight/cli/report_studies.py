"""The studies behind ``sidelight report``: of a user's own table, a trial or one with right answers, or of a world."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from sidelight.cli.tables import columns_of, read_table, schema_of, with_names
from sidelight.errors import InputError
from sidelight.experiments.registry import WORLDS, default_recorded, learner_factory, make_world
from sidelight.labels import counted
from sidelight.logs.progress import counting_bar
from sidelight.logs.schema.schema import Schema
from sidelight.report.simpler import COLD, SIMPLER, simpler_rules
from sidelight.report.study import Study, of_trial, of_world
from sidelight.worlds.replay import ReplayWorld
from sidelight.worlds.trial import ASSUME_RANDOMIZED

__all__ = ["OwnTable", "Runs", "answers_study", "trial_study", "world_study"]


@dataclass(frozen=True)
class Runs:
    """How much is run: rounds, rows of the log (None: as many as there are), seeds, processes; quiet: without a bar."""

    rounds: int
    log_rows: int | None
    seeds: int
    workers: int | None
    quiet: bool


@dataclass(frozen=True)
class OwnTable:
    """A user's table with complete rows, and what its columns are.

    Attributes:
        table: the rows.
        schema: of its columns; the hidden features are those that the old policy sees and its log lacks.
        arm: the column with the arm that was tried, or with the right one.
        notes: what was decided about columns, for the user.
        replay: how the old policy of the replay behaves: ``policy`` and ``sharpness``.
    """

    table: pa.Table
    schema: Schema
    arm: str
    notes: list[str]
    replay: dict[str, Any]

    @classmethod
    def read(
        cls,
        source: str,
        arm: str,
        reward: str,
        named: dict[str, list[str] | None],
        replay: dict[str, Any],
        *,
        rewarded: bool,
        numeric_arm: bool,
    ) -> OwnTable:
        """Read a table from a file.

        Args:
            source: the file.
            arm: the column with the arm.
            reward: the column with its reward.
            named: the columns that options name: ``features``, ``hidden``, ``recorded``, ``ignore``, ``categories``.
            replay: see the class.
            rewarded: whether the rows have rewards; those with the right arm have none.
            numeric_arm: whether the arm's column holds numbers that will be cut into arms.
        """
        table = read_table(source)
        chosen = columns_of(table, [arm, reward] if rewarded else [arm], **named)
        table = with_names(table, chosen.categories)
        schema = schema_of(table, chosen, arm, reward, numeric_arm=numeric_arm)
        return cls(table, schema, arm, chosen.notes, replay)

    @property
    def words(self) -> str:
        """A sentence that says what is replayed."""
        hidden = [feature.name for feature in self.schema.features if feature.name not in self.schema.recorded]
        return (
            f"From a complete table: an old policy that decides by {', '.join(hidden)} wrote a log on one part of the "
            "rows which lacks them; learners that see everything then decided on the other part."
        )


def contenders() -> tuple[dict[str, Callable[[Any], Any]], dict[str, str]]:
    """The learners of a report, and what each is.

    The baseline differs from the fused learner by the log alone: it learns prior and noise in the same way. Noise is
    given to one more cold learner and to the zero-filled one: the deviation of the reward around a linear fit to all
    features. Two rules that never learn show whether something simpler would do.
    """
    told = {"noise": "true", "radius": "posterior"}
    auto = {"regularization": "auto", "noise": "auto", "radius": "posterior"}
    learners = {
        COLD: learner_factory("OFUL", auto),
        "OFUL, told the noise": learner_factory("OFUL", told),
        "Zero-filled": learner_factory("ZeroFilledOFUL", told),
        **simpler_rules(),
        "FusedOFUL": learner_factory("FusedOFUL"),
    }
    meanings = {
        COLD: "OFUL without the log; learns prior and noise as the fused one does",
        "OFUL, told the noise": "starts cold, no log; told the noise",
        **SIMPLER,
        "Zero-filled": "the log, with zeros for what it lacks",
        "FusedOFUL": "the log as evidence; asks the old policy: the one to use",
    }
    return learners, meanings


def trial_study(own: OwnTable, runs: Runs, assume_randomized: bool) -> tuple[Study, list[str], list[str]]:
    """The study of a randomized trial, the words at the head of its page, and the notes for the user."""
    learners, meanings = contenders()
    try:
        trial = ReplayWorld.from_trial(own.table, own.schema, assume_randomized=assume_randomized, **own.replay)
    except InputError as error:
        if "no randomized trial" in str(error):
            told = str(error).replace(ASSUME_RANDOMIZED, "--assume-randomized")
            raise InputError(
                f"{told} A column that the arm has changed, such as another outcome, is no feature: name it with "
                "--ignore."
            ) from error
        raise
    notes = [*own.notes, *_dropped(trial)]
    with nullcontext() if runs.quiet else counting_bar("replaying", "runs") as progress:
        study = of_trial(
            trial,
            learners,
            baseline=COLD,
            best="FusedOFUL",
            seeds=runs.seeds,
            log_rows=runs.log_rows,
            meanings=meanings,
            progress=progress,
        )
    return study, [own.words, *notes], notes


def answers_study(own: OwnTable, runs: Runs, cuts: list[float] | None) -> tuple[Study, list[str], list[str]]:
    """The study of a table in which each row's right arm is known; words and notes as in ``trial_study``."""
    learners, meanings = contenders()
    world = ReplayWorld.from_answers(own.table, own.schema, own.arm, cuts=cuts, **own.replay)
    notes = [*own.notes, *_dropped(world)]
    study = of_world(
        world.reseeded,
        learners,
        runs.rounds,
        world.default_recorded,
        runs.log_rows or world.log_size,
        baseline=COLD,
        best="FusedOFUL",
        seeds=runs.seeds,
        workers=runs.workers,
        meanings=meanings,
        facts=(("table", f"{world.log_size:,} rows for the log, {world.online_size:,} for the rounds, drawn anew"),),
        progress=not runs.quiet,
    )
    right = (
        "Rewards are 1 for the right arm and 0 for any other. Regret is measured against the right arm of every row, "
        "which no rule that is linear in the features reaches; what counts is the difference between learners."
    )
    return study, [own.words, *notes, right], notes


def world_study(kind: str, runs: Runs) -> Study:
    """The study of a simulated world, a new one for every seed."""
    learners, meanings = contenders()
    learners["Algorithm 1"] = learner_factory("ProjectedOFUL", {"noise": "true", "radius": "posterior"})
    meanings["Algorithm 1"] = "the log as a constraint, told the true cross moments"
    order = [COLD, "OFUL, told the noise", "Zero-filled", "Algorithm 1", *SIMPLER, "FusedOFUL"]
    return of_world(
        partial(make_world, kind),
        {name: learners[name] for name in order},
        runs.rounds,
        default_recorded(make_world(kind, 0)),
        runs.log_rows or 20_000,
        baseline=COLD,
        best="FusedOFUL",
        seeds=runs.seeds,
        workers=runs.workers,
        meanings=meanings,
        facts=(("world", f"{kind}: {WORLDS[kind]}"), ("runs", f"{runs.seeds} worlds, {runs.rounds:,} rounds each")),
        progress=not runs.quiet,
    )


def _dropped(world: Any) -> list[str]:
    lost = world.rows.dropped
    if not lost:
        return []
    told = ", ".join(f"{count:,} for {name}" for name, count in sorted(lost.items(), key=lambda pair: -pair[1]))
    rows = sum(lost.values())
    return [f"{counted(rows, 'row')} left out because a value was missing: {told}."]
