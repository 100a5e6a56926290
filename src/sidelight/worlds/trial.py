"""A randomized trial as a bandit: ``ReplayWorld.from_trial`` and its ``replay``.

Only the arm that was tried has a reward, so an online round counts when the learner's arm is the one that was tried
(Li et al., 2011): the accepted rounds are distributed as if the learner had decided alone. A confounded log is drawn
from the other rows by keeping those whose tried arm the old policy would have drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidelight.errors import InputError
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summarize import summarize_log
from sidelight.logs.summary import LogSummary
from sidelight.worlds.log_batches import log_batch
from sidelight.worlds.protocol import Floats, Recorded
from sidelight.worlds.randomization import SUSPICIOUS, randomization_check
from sidelight.worlds.split import SplitTable
from sidelight.worlds.table_rows import Rows, read_rows
from sidelight.worlds.trial_results import ReplayedRun, ReplayResult, bootstrap_interval

ASSUME_RANDOMIZED = "assume_randomized=True"
"""What an error message advises a caller from Python who knows that the trial was randomized although a check fails."""


class TrialReplayWorld(SplitTable):
    """A randomized trial; :class:`~sidelight.worlds.split.SplitTable` has the sides, the old policy and the scaling.

    ``check`` holds the randomization check. ``sample_log``, ``behavior_*``, ``contexts`` and ``cross_moments`` are
    those of a world; ``rewards`` of an arbitrary arm are not known, so ``simulate`` cannot run it: :meth:`replay`
    does.
    """

    def __init__(self, rows: Rows, outcomes: Floats, arms: Any, *, assume_randomized: bool = False, **settings: Any):
        tried = np.isfinite(outcomes)
        if not (tried.sum(axis=1) == 1).all():
            raise InputError("a trial has exactly one reward in each row: that of the arm that was tried.")
        self._tried: NDArray[np.intp] = tried.argmax(axis=1)
        self.check = randomization_check(rows.X, self._tried, rows.schema.encoded_names)
        if self.check.p_value < SUSPICIOUS and not assume_randomized:
            raise InputError(
                f"the arm that was tried depends on the context (p = {self.check.p_value:.2g}, most on "
                f"{self.check.worst_feature!r}), so this is no randomized trial and replaying it would mislead. Use a "
                "table from a trial that drew arms regardless of the context. Several rows of one person do this too: "
                f"keep one of each. If the difference is known to be chance, pass {ASSUME_RANDOMIZED}."
            )
        super().__init__(rows, outcomes, arms, **settings)
        self._settings["assume_randomized"] = assume_randomized
        counts = np.bincount(self._tried, minlength=self.n_arms)
        if not counts.all():
            missing = [self.arms[a] for a in np.flatnonzero(counts == 0)]
            raise InputError(f"arms {missing} were never tried; leave them out of the schema.")
        self.assignment: Floats = counts / counts.sum()

    @classmethod
    def from_source(cls, source: Any, schema: Schema, **settings: Any) -> TrialReplayWorld:
        """Read a trial: ``schema.arm`` is the column with the arm that was tried, ``schema.reward`` its reward."""
        rows = read_rows(source, schema, numbers=(schema.reward,), labels=(schema.arm,))
        codes, found = rows.labels[schema.arm]
        arms = found if schema.arms is None else schema.arms
        position = {label: i for i, label in enumerate(arms)}
        unknown = [label for label in found if label not in position]
        if unknown:
            raise InputError(f"arm {unknown[0]!r} of the table is not one of the arms {', '.join(map(repr, arms))}.")
        tried = np.array([position[label] for label in found])[codes]
        outcomes = np.full((len(tried), len(arms)), np.nan)
        outcomes[np.arange(len(tried)), tried] = rows.numbers[schema.reward]
        return cls(rows, outcomes, arms, **settings)

    @property
    def acceptance(self) -> float:
        """The probability that a row becomes an online round: the smallest assignment probability, for every arm."""
        return float(self.assignment.min())

    def log_available(self, rng: np.random.Generator) -> NDArray[np.intp]:
        """Rows of the log's side, in random order, whose tried arm the old policy would have drawn.

        A row is kept with probability ``c π_b(a | x)/p_a``; ``c`` is the largest that keeps all of these below 1. Kept
        rows are then distributed as the old policy's.
        """
        rows = rng.permutation(self._log_rows)
        ratios = self._policy(self._X[rows]) / self.assignment
        chance = ratios[np.arange(len(rows)), self._tried[rows]] / ratios.max()
        kept: NDArray[np.intp] = rows[rng.random(len(rows)) < chance]
        return kept

    def sample_log(self, n: int, recorded: Recorded, rng: np.random.Generator) -> pa.Table:
        """``n`` different rows of the log's side, distributed as if the old policy had chosen the arms."""
        rows = self.log_available(rng)
        if n > len(rows):
            raise InputError(
                f"a log of {n} rows was asked for, but only {len(rows)} of the {self.log_size} rows on the log's side "
                "agree with the old policy. Ask for fewer, give it a larger share (split), or a less sharp policy."
            )
        chosen, tried = rows[:n], self._tried[rows[:n]]
        batch = log_batch(self.schema(recorded), self._X[chosen], tried, self._outcomes[chosen, tried])
        return pa.Table.from_batches([batch])

    def mean_rewards(self, X: Floats) -> Floats:
        """Raises ``InputError``: a trial has rewards of the arms that were tried only."""
        raise InputError(_UNKNOWN)

    def potential_rewards(self, X: Floats, rng: np.random.Generator) -> Floats:
        """Raises ``InputError``: a trial has rewards of the arms that were tried only."""
        raise InputError(_UNKNOWN)

    def rewards(self, X: Floats, arms: Any, rng: np.random.Generator) -> Floats:
        """Raises ``InputError``: a trial has rewards of the arms that were tried only."""
        raise InputError(_UNKNOWN)

    def replay(
        self,
        learners: Mapping[str, Callable[[ReplayRun], Any]],
        *,
        recorded: Recorded | None = None,
        log_rows: int | None = None,
        seeds: int | Iterable[int] = 5,
        progress: Callable[[int, int], None] | None = None,
    ) -> ReplayResult:
        """Run learners through the trial, each seed on a split of its own.

        A row is offered to the learner, which decides; it becomes a round when the decided arm is the one that was
        tried (and, where arms were assigned with unequal probabilities, a random draw agrees, so that every arm is
        accepted equally often). Other rows are discarded: neither their context nor their reward is shown again.

        Args:
            learners: Name → ``factory(run)``, as for ``simulate``; ``run`` is a :class:`ReplayRun`.
            recorded: What the log records; the schema's, if left out.
            log_rows: Rows of the log; as many as the log's side yields, if left out.
            seeds: A number, or the seeds.
            progress: Called with runs done and runs in all.
        """
        wanted = list(range(seeds)) if isinstance(seeds, int) else [int(seed) for seed in seeds]
        parts: list[ReplayedRun] = []
        for seed in wanted:
            world = self.reseeded(seed)
            for name, factory in learners.items():
                run = ReplayRun(world, self.default_recorded if recorded is None else recorded, log_rows, seed)
                parts.append(_play(world, name, factory(run), seed))
                if progress is not None:
                    progress(len(parts), len(wanted) * len(learners))
        return ReplayResult(self.arms, self.rows.kept, parts)

    def old_policy_value(self, repeats: int = 2000, level: float = 0.95) -> tuple[float, float, float]:
        """The old policy's mean reward on the whole table, ``E[π_b(a|x) r / p_a]``, with a bootstrap interval."""
        rows = np.arange(len(self._X))
        weights = self._policy(self._X)[rows, self._tried] / self.assignment[self._tried]
        return bootstrap_interval(self._outcomes[rows, self._tried], weights, repeats, level)

    def trial_value(self, repeats: int = 2000, level: float = 0.95) -> dict[Any, tuple[float, float, float]]:
        """Each arm's mean reward over the whole table, with a bootstrap interval."""
        values = {}
        for index, arm in enumerate(self.arms):
            rewards = self._outcomes[self._tried == index, index]
            values[arm] = bootstrap_interval(rewards, np.ones(len(rewards)), repeats, level)
        return values


_UNKNOWN = (
    "a trial knows the reward of the arm that was tried and of no other, so this world cannot be simulated. "
    "Use world.replay(learners)."
)


@dataclass
class ReplayRun:
    """What a learner may know before the first round; the attributes of ``simulate``'s run."""

    world: TrialReplayWorld
    recorded: Recorded
    log_rows: int | None
    seed: int

    @property
    def horizon(self) -> int:
        """About how many rounds will be accepted."""
        return max(1, round(self.world.online_size * self.world.acceptance))

    @cached_property
    def rng(self) -> np.random.Generator:
        """A generator of the learner's own."""
        return np.random.default_rng([self.seed, 1])

    @cached_property
    def schema(self) -> Schema:
        """The schema of the log."""
        return self.world.schema(self.recorded)

    @cached_property
    def summary(self) -> LogSummary:
        """The confounded log, summarized; the same for all learners of one seed."""
        rng = np.random.default_rng([self.seed, 2])
        rows = self.log_rows
        if rows is None:
            rows = len(self.world.log_available(np.random.default_rng([self.seed, 2])))
        return summarize_log(self.world.sample_log(rows, self.recorded, rng), self.schema)

    @cached_property
    def true_cross_moments(self) -> Floats:
        """``R12(a)`` ``(K, L, m)`` of the old policy over the online side."""
        return self.world.cross_moments(self.recorded)


def _play(world: TrialReplayWorld, name: str, learner: Any, seed: int) -> ReplayedRun:
    """Offer every row of the online side once, in an order that depends on the seed alone."""
    order_rng, coin_rng, answer_rng, learner_rng = np.random.default_rng([seed, 3]).spawn(4)
    order = order_rng.permutation(world._online_rows)
    coins = coin_rng.random(len(order)) < world.acceptance / world.assignment[world._tried[order]]
    X = world._X[order]
    needs = learner.needs
    answers = world.behavior_actions(X, answer_rng) if needs == "action" else None
    probabilities = world.behavior_probabilities(X) if needs == "probabilities" else None
    index = {arm: i for i, arm in enumerate(world.arms)}
    accepted: list[int] = []
    for position, x in enumerate(X):
        if not coins[position]:
            continue
        row = order[position]
        arm = learner.decide(x, rng=learner_rng).arm
        if index[arm] != world._tried[row]:
            continue
        # the old policy is asked in accepted rounds only: rejected rows are no rounds
        if answers is not None and learner.wants_query(x):
            learner.observe_behavior(x, answers[position])
        elif probabilities is not None and learner.wants_query(x):
            learner.observe_behavior(x, probabilities=probabilities[position])
        learner.observe(x, arm, float(world._outcomes[row, index[arm]]))
        accepted.append(position)
    where = np.array(accepted, dtype=np.intp)
    rows = order[where]
    tried = world._tried[rows]
    return ReplayedRun(name, seed, rows, tried, world._outcomes[rows, tried], where + 1, len(order))
