"""What a report is drawn from: what learners did, what the log was, what the old policy earned.

A :class:`Study` is made by running learners in a simulated world (:func:`of_world`) or through a randomized trial
(:func:`of_trial`), or by hand from the table that ``simulate`` returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from sidelight.drawing.intervals import Interval, number, span
from sidelight.errors import InputError
from sidelight.logs.diagnosis.diagnosis import Diagnosis
from sidelight.logs.summary import LogSummary
from sidelight.report.probing import Finding, Looks, probed
from sidelight.report.simpler import SIMPLER
from sidelight.simulation import simulate
from sidelight.worlds.randomization import SUSPICIOUS
from sidelight.worlds.trial import TrialReplayWorld
from sidelight.worlds.trial_results import ReplayResult

__all__ = ["Study", "of_trial", "of_world"]

_POLICY_ROWS = 20_000
"""Contexts over which the old policy's and the best possible reward are averaged."""


@dataclass(frozen=True)
class Study:
    """Everything a report shows; what is ``None`` or empty is left out of the page.

    Attributes:
        table: ``learner, seed, round, arm, reward`` and, where the truth is known, ``regret`` (cumulative).
        baseline: the learner without the log.
        best: the learner whose use of the log is judged.
        meanings: learner → what it is.
        diagnosis: of the log.
        probes: ``learner, round, context, arm, estimate, width`` and ``truth`` where it is known, from the first seed.
        old_policy: its mean reward per round, with an interval where it is estimated.
        best_possible: the mean reward of the best arm in every round.
        facts: further names and values for the reader.
        differences: learner → mean reward per round less the baseline's, where rewards and not regrets are compared.
        means: learner → mean reward per round, likewise.
        levels: further rewards to compare with, drawn as horizontal lines: those of always taking one arm.
        simpler: learners of the table that are simpler than the one judged; if one is as good, the report says so.
        beyond: simpler learner → mean reward per round less that of the one judged, likewise.
        log: the summary of the first seed's log, from which the page shows what the log proves by itself.
        findings: learner → the results of its tests of its assumptions, in the first seed's run.
    """

    table: pa.Table
    baseline: str
    best: str
    meanings: Mapping[str, str] = field(default_factory=dict)
    diagnosis: Diagnosis | None = None
    probes: pa.Table | None = None
    old_policy: Interval | None = None
    best_possible: float | None = None
    facts: tuple[tuple[str, str], ...] = ()
    differences: Mapping[str, Interval] = field(default_factory=dict)
    means: Mapping[str, Interval] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    simpler: tuple[str, ...] = ()
    beyond: Mapping[str, Interval] = field(default_factory=dict)
    log: LogSummary | None = None
    findings: Mapping[str, Sequence[Finding]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (self.baseline, self.best):
            if name not in self.learners:
                raise InputError(f"{name!r} is not one of the learners of these results ({', '.join(self.learners)}).")

    @property
    def learners(self) -> list[str]:
        """Their names, in the table's order."""
        return list(dict.fromkeys(self.table["learner"].to_pylist()))

    @property
    def probed(self) -> list[str]:
        """Names of the learners that were probed, in the table's order."""
        seen = set() if self.probes is None else set(self.probes["learner"].to_pylist())
        return [name for name in self.learners if name in seen]

    @property
    def knows_truth(self) -> bool:
        """Whether the table has a column ``regret``: the world's mean rewards are known."""
        return "regret" in self.table.column_names

    @property
    def accepts(self) -> bool:
        """Whether rounds are the accepted rows of a trial: the table then says how many rows were offered."""
        return "offered" in self.table.column_names

    @property
    def seeds(self) -> int:
        """How many runs each learner had."""
        return len(set(self.table["seed"].to_pylist()))


def of_world(
    world: Any,
    learners: Mapping[str, Callable[[Any], Any]],
    horizon: int,
    recorded: Any,
    log_rows: int,
    *,
    baseline: str,
    best: str,
    seeds: int | Iterable[int] = 8,
    workers: int | None = None,
    meanings: Mapping[str, str] | None = None,
    facts: tuple[tuple[str, str], ...] = (),
    progress: bool | Callable[[int, int], None] = False,
) -> Study:
    """Run learners in a world, probe the first seed's, and measure the old policy.

    Args:
        world: a ``World`` or a function from seed to ``World``, as for ``simulate``.
        learners: name → ``factory(run)``.
        horizon: rounds per run.
        recorded: what the log recorded.
        log_rows: rows of the log.
        baseline: the learner without the log.
        best: the learner whose use of the log is judged.
        seeds: how many, or which.
        workers: processes.
        meanings: learner → what it is.
        facts: names and values for the reader.
        progress: True for a bar, or a function called with rounds done and rounds in all.
    """
    wanted = list(range(seeds)) if isinstance(seeds, int) else [int(s) for s in seeds]
    first = world if hasattr(world, "mean_rewards") else world(wanted[0])
    table = simulate(world, learners, horizon, recorded, log_rows, wanted, workers, progress=progress)
    looked_into = {name: make for name, make in learners.items() if name not in SIMPLER}
    looks, summary = probe_world(first, looked_into, horizon, recorded, log_rows, wanted[0])
    X = first.contexts(_POLICY_ROWS, np.random.default_rng([20_240, wanted[0]]))
    means = first.mean_rewards(X)
    earned = float((first.behavior_probabilities(X) * means).sum(axis=1).mean())
    return Study(
        table,
        baseline,
        best,
        meanings or {},
        summary.diagnose(first.noise),
        looks.table(first.mean_rewards),
        Interval(earned, float("nan"), float("nan")),
        float(means.max(axis=1).mean()),
        facts,
        simpler=tuple(name for name in learners if name in SIMPLER),
        log=summary,
        findings=looks.findings(),
    )


def probe_world(
    world: Any, learners: Mapping[str, Callable[[Any], Any]], horizon: int, recorded: Any, log_rows: int, seed: int
) -> tuple[Looks, LogSummary]:
    """Repeat the runs of one seed, recording estimates and widths at checkpoints."""
    seen: dict[str, LogSummary] = {}

    def keeping(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def factory(run: Any) -> Any:
            seen["log"] = run.summary
            return make(run)

        return factory

    wrapped, looks = probed({name: keeping(make) for name, make in learners.items()}, world, horizon, seed)
    simulate(world, wrapped, horizon, recorded, log_rows, [seed], workers=1)
    return looks, seen["log"]


def of_trial(
    world: TrialReplayWorld,
    learners: Mapping[str, Callable[[Any], Any]],
    *,
    baseline: str,
    best: str,
    seeds: int = 5,
    log_rows: int | None = None,
    meanings: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Study:
    """Run learners through a randomized trial; nothing that needs the truth is in the study.

    Args:
        world: the trial, from ``ReplayWorld.from_trial``.
        learners: name → ``factory(run)``.
        baseline: the learner without the log.
        best: the learner whose use of the log is judged.
        seeds: splits of the table into log and rounds.
        log_rows: rows of the log; as many as there are, if left out.
        meanings: learner → what it is.
        progress: called with runs done and runs in all.
    """
    seen: dict[str, LogSummary] = {}
    looked: list[Looks] = []

    def first_seed(name: str, make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def factory(run: Any) -> Any:
            if run.seed != 0 or name in SIMPLER:
                return make(run)
            seen.setdefault("log", run.summary)
            wrapped, looks = probed({name: make}, run.world, run.horizon, run.seed)
            looked.append(looks)
            return wrapped[name](run)

        return factory

    result = world.replay(
        {name: first_seed(name, make) for name, make in learners.items()},
        log_rows=log_rows,
        seeds=seeds,
        progress=progress,
    )

    return Study(
        result.rounds(),
        baseline,
        best,
        meanings or {},
        seen["log"].diagnose(world.noise),
        pa.concat_tables([looks.table(None) for looks in looked]),
        Interval(*world.old_policy_value()),
        None,
        tuple(_trial_facts(world, result, seen["log"])),
        {name: Interval(*result.difference(name, baseline)) for name in result.learners if name != baseline},
        _means(result),
        _best_arm(world),
        tuple(name for name in result.learners if name in SIMPLER),
        {name: Interval(*result.difference(name, best)) for name in result.learners if name in SIMPLER},
        seen["log"],
        {name: found for looks in looked for name, found in looks.findings().items()},
    )


def _best_arm(world: TrialReplayWorld) -> dict[str, float]:
    values = {arm: value[0] for arm, value in world.trial_value(repeats=1).items()}
    best = max(values, key=lambda arm: values[arm])
    return {f"always {best}": values[best]}


def _means(result: ReplayResult) -> dict[str, Interval]:
    told = result.summary().to_pylist()
    return {row["learner"]: Interval(row["mean_reward"], row["low"], row["high"]) for row in told}


def _trial_facts(world: TrialReplayWorld, result: ReplayResult, log: LogSummary) -> list[tuple[str, str]]:
    told = result.summary().to_pylist()
    offered, accepted = (sum(row[key] for row in told) for key in ("offered", "accepted"))
    check = world.check
    values = {arm: Interval(*value) for arm, value in world.trial_value().items()}
    arms = "; ".join(f"{arm}: {number(value.mean)} ({span(value)})" for arm, value in values.items())
    return [
        (
            "randomized?",
            f"nothing speaks against it (p = {check.p_value:.2g}; the feature that differs most between arms is "
            f"{check.worst_feature}, p = {check.worst_p_value:.2g})"
            if check.p_value >= SUSPICIOUS
            else f"doubtful (p = {check.p_value:.2g}, most on {check.worst_feature})",
        ),
        (
            "rounds",
            f"{accepted:,} of {offered:,} rows offered were accepted: those where the learner's arm was the one tried"
            + (
                f". Some arms were tried more often than others: their rows were left out at random, so that "
                f"whichever arm a learner takes, {world.acceptance:.0%} of the rows offered count, as for "
                "the arm tried least"
                if world.assignment.max() > 1.05 * world.acceptance
                else ""
            ),
        ),
        (
            "log",
            f"{log.n_rows:,} in the first split, of {world.log_size:,} rows that never become rounds: those whose arm "
            "the old policy would have drawn (a smaller sharpness keeps more)",
        ),
        ("each arm, always", arms),
    ]
