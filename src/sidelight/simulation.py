"""Learners in worlds: paired runs over seeds, on one core or many, with the same numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sidelight.arrays import whole_number
from sidelight.errors import InputError
from sidelight.learners.protocol import Learner
from sidelight.learners.rounds import play_rounds
from sidelight.linalg import Array
from sidelight.logs.progress import counting_bar
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summarize import summarize_log
from sidelight.worlds.protocol import World

if TYPE_CHECKING:
    import pyarrow as pa

    from sidelight.logs.summary import LogSummary

__all__ = ["WORKER_ENVIRONMENT", "Run", "simulate"]

#: Environment of worker processes: one BLAS thread each, since the seeds already use every core, and no restarts
#: because of memory: workers keep large logs on purpose, but loky takes growth by 300 MB for a leak, restarts the
#: worker and warns the user.
WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "LOKY_MAX_MEMORY_LEAK_SIZE": "1e18",
}

# Contexts, rewards and answers are drawn for this many rounds at a time, so memory does not grow with the horizon.
CHUNK = 4096


@dataclass
class Run:
    """What a learner factory is given: everything a learner may know before the first round.

    Attributes:
        world: the environment (a fair factory looks at nothing but its noise and bounds).
        recorded: which features the log recorded.
        log_rows: the number of rows of the log.
        horizon: T.
        seed: the seed of this run.
        rng: a generator of the learner's own.
    """

    world: Any
    recorded: Any
    log_rows: int
    horizon: int
    seed: int
    rng: np.random.Generator
    _log_stream: np.random.SeedSequence = field(repr=False)

    @cached_property
    def schema(self) -> Schema:
        """The schema of the log."""
        schema: Schema = self.world.schema(self.recorded)
        return schema

    @cached_property
    def summary(self) -> LogSummary:
        """The log that the old policy left, summarized; drawn when first asked for, the same for all learners."""
        log = self.world.sample_log(self.log_rows, self.recorded, np.random.default_rng(self._log_stream))
        return summarize_log(log, self.schema)

    @cached_property
    def true_cross_moments(self) -> Array:
        """``R12(a)`` (K, L, m) under the old policy: what nobody knows outside a simulation.

        Raises:
            InputError: the world has no ``cross_moments``.
        """
        if not hasattr(self.world, "cross_moments"):
            raise InputError(
                f"A {type(self.world).__name__} does not know its true cross moments: it has no "
                "cross_moments(recorded), which returns E[x_o x_hᵀ | a] of every arm. Add it, or take a learner that "
                "estimates them."
            )
        return np.asarray(self.world.cross_moments(self.recorded))


Factory: TypeAlias = Callable[[Run], Learner]


@dataclass(frozen=True)
class _Job:
    """All learners in the world of one seed; the arguments of ``simulate``, checked."""

    world: World | Callable[[int], World]
    learners: Mapping[str, Factory]
    horizon: int
    recorded: Any
    log_rows: int
    every: int
    seed: int


class _Drawn(NamedTuple):
    """What the world has ready for some rounds, whatever the learner does.

    X: (n, d) contexts   means, rewards: (n, K) of every arm of the world   actions: (n,) the old policy's arms
    probabilities: (n, K) its probabilities; None where the learner does not need them
    """

    X: Array
    means: Array
    rewards: Array
    actions: Any
    probabilities: Array | None


def simulate(
    world: World | Callable[[int], World],
    learners: Mapping[str, Factory],
    horizon: int,
    recorded: Any = 0,
    log_rows: int = 0,
    seeds: int | Iterable[int] = 8,
    workers: int | None = None,
    *,
    every: int | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> pa.Table:
    """Run learners in a world and return what they did as one tidy table.

    All learners of one seed meet the same log, contexts, noise and old-policy draws, so their differences are
    paired.  The numbers depend on the seeds alone, not on the number of workers.

    Args:
        world: a ``World``, or a function from seed to ``World``.
        learners: name → ``factory(run)``; the learner's ``needs`` says what it is told of the old policy.
        horizon: rounds per run.
        recorded: which features the log recorded: how many, counted from the first, or their names or positions.
        log_rows: rows of the old policy's log.
        seeds: the number of seeds (0, 1, …), or a list of seeds.
        workers: processes; default as many as there are cores and seeds.
        every: keep each ``every``-th round (the last always); default so that about 200 remain.
        progress: True for a bar, or a function called with rounds done and rounds in all.

    Returns:
        columns ``learner, seed, round, arm, reward, regret``; regret is cumulative.

    Examples:
        >>> import sidelight as sl
        >>> world = sl.worlds.PaperWorld.preset("paper_text", seed=0, n_arms=3, n_features=4)
        >>> table = sl.simulate(
        ...     world, {"OFUL": lambda run: sl.OFUL(3, 4, noise=0.05)}, horizon=50, seeds=2, workers=1, every=50
        ... )
        >>> table.column_names, table.num_rows
        (['learner', 'seed', 'round', 'arm', 'reward', 'regret'], 2)
    """
    import pyarrow as pa

    horizon, log_rows = whole_number(horizon, "horizon", 1), whole_number(log_rows, "log_rows", 0)
    _check_arguments(world, learners)
    step = max(1, horizon // 200) if every is None else whole_number(every, "every", 1)
    jobs = [_Job(world, dict(learners), horizon, recorded, log_rows, step, seed) for seed in _checked_seeds(seeds)]
    cores = os.cpu_count() or 1
    count = min(len(jobs), cores) if workers is None else whole_number(workers, "workers", 1)
    with _counting(progress, len(jobs) * len(learners) * horizon) as advance:
        here = (_run_seed(job, advance) for job in jobs)
        return pa.concat_tables(here if count <= 1 else _run_in_processes(jobs, count, advance))


def _check_arguments(world: Any, learners: Any) -> None:
    if not isinstance(learners, Mapping) or not learners:
        raise InputError("Give at least one learner: a mapping from name to a function of the run.")
    if not (_is_world(world) or callable(world)):
        raise InputError(f"world={world!r:.200} is neither a World nor a function from a seed to one.")
    for name, factory in learners.items():
        if not callable(factory):
            raise InputError(
                f"The learner {name!r} is a {type(factory).__name__}; give a function that makes it, for example "
                "lambda run: sl.OFUL(10, 5), so that every seed starts with a new one."
            )


def _checked_seeds(seeds: Any) -> list[int]:
    """The seeds that were asked for: those listed, or 0 to ``seeds − 1``."""
    if isinstance(seeds, int | np.integer):
        return list(range(whole_number(seeds, "seeds", 1)))
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        raise InputError(f"seeds={seeds!r} is neither a number of seeds nor a list of them.")
    wanted = [whole_number(seed, "a seed", 0) for seed in seeds]
    if not wanted:
        raise InputError("seeds is empty: give at least one.")
    if len(set(wanted)) < len(wanted):
        twice = next(seed for seed in wanted if wanted.count(seed) > 1)
        raise InputError(f"seeds lists {twice} twice: repeating a run adds no information.")
    return wanted


def _run_in_processes(jobs: Sequence[_Job], count: int, advance: Callable[[int], None]) -> list[pa.Table]:
    from concurrent.futures import as_completed

    from loky import get_reusable_executor

    executor = get_reusable_executor(max_workers=count, timeout=60, env=WORKER_ENVIRONMENT)
    futures = [executor.submit(_run_seed, job) for job in jobs]
    try:
        for future in as_completed(futures):
            future.result()
            advance(len(jobs[0].learners) * jobs[0].horizon)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return [future.result() for future in futures]


def _is_world(world: Any) -> bool:
    """Whether ``world`` is a world itself; a class or a function that makes the world of a seed is not."""
    return hasattr(world, "mean_rewards") and not isinstance(world, type)


def _check_world(world: Any) -> None:
    """Refuse what lacks a member that ``simulate`` calls, before the first log is drawn."""
    members = (name for name in vars(World) if not name.startswith("_"))
    missing = [name for name in members if not callable(getattr(world, name, None))]
    if missing:
        raise InputError(
            f"A {type(world).__name__} is not a world: it has no {', '.join(missing)}. sidelight.worlds.World says "
            "what each of them returns."
        )


def _arms_of(run: Run) -> tuple[Any, ...]:
    """The world's arms, in the order of every axis of length K: its own ``arms``, else those of its schema."""
    arms = getattr(run.world, "arms", None)
    if arms is None:
        arms = run.schema.arms
    if arms is None:
        raise InputError(
            f"A {type(run.world).__name__} does not say what its arms are: give its schema arms=…, or the world arms."
        )
    return tuple(arms)


def _check_learner(name: str, learner: Any, run: Run, arms: tuple[Any, ...]) -> None:
    """Refuse, before the first round, a learner whose features or arms do not fit the world's."""
    missing = [part for part in ("needs", "arms", "n_features", "decide", "observe") if not hasattr(learner, part)]
    if missing:
        raise InputError(
            f"The factory of {name!r} returned a {type(learner).__name__}, which is not a learner: it has no "
            f"{', '.join(missing)}."
        )
    if learner.n_features != run.schema.n_features:
        raise InputError(f"{name!r} takes {learner.n_features} features and the world has {run.schema.n_features}.")
    unknown = [arm for arm in learner.arms if arm not in set(arms)]
    if unknown:
        raise InputError(
            f"{name!r} has the arms {unknown[:8]!r} that the world does not know; the world's are "
            f"{list(arms[:8])!r}{' …' if len(arms) > 8 else ''}."
        )


def _run_seed(job: _Job, advance: Callable[[int], None] | None = None) -> pa.Table:
    """The rows of all learners for one seed, as one table; every learner meets the same draws."""
    import pyarrow as pa

    world: Any = job.world if _is_world(job.world) else job.world(job.seed)  # type: ignore[operator]
    _check_world(world)
    log_stream, _, own = np.random.SeedSequence(job.seed).spawn(3)
    run = Run(world, job.recorded, job.log_rows, job.horizon, job.seed, np.random.default_rng(own), log_stream)
    parts, labels = [], _arms_of(run)
    for name, factory in job.learners.items():
        # every learner gets its own fresh generator and, in _play, the same fresh online streams
        run.rng = np.random.default_rng(own)
        learner = factory(run)
        _check_learner(name, learner, run, labels)
        rounds, arms, rewards, regrets = _play(run, labels, learner, job.every, advance)
        n = len(rounds)
        parts.append(
            pa.table(
                {
                    "learner": pa.array([name] * n, pa.string()),
                    "seed": pa.array(np.full(n, job.seed, dtype=np.int64)),
                    "round": pa.array(rounds),
                    "arm": pa.array([labels[a] for a in arms]),
                    "reward": pa.array(rewards),
                    "regret": pa.array(regrets),
                }
            )
        )
    return pa.concat_tables(parts)


def _play(
    run: Run, labels: tuple[Any, ...], learner: Learner, every: int, advance: Callable[[int], None] | None
) -> tuple[Array, list[int], Array, Array]:
    """Play one learner for all rounds; rounds, positions of arms, rewards and cumulative regrets of the rounds kept.

    labels: the world's arms
    """
    online = np.random.SeedSequence(run.seed).spawn(3)[1]
    *streams, learner_rng = (np.random.default_rng(s) for s in online.spawn(4))
    rounds: list[int] = []
    arms: list[int] = []
    rewards: list[float] = []
    regrets: list[float] = []
    total = 0.0
    for start in range(0, run.horizon, CHUNK):
        n = min(CHUNK, run.horizon - start)
        drawn = _draw(run.world, labels, n, streams, with_probabilities=learner.needs == "probabilities")
        played = _play_drawn(learner, labels, drawn, learner_rng)
        gaps = drawn.means.max(axis=1) - drawn.means[np.arange(n), played]
        cumulative = total + np.cumsum(gaps)
        total = float(cumulative[-1])
        number = np.arange(start + 1, start + n + 1)
        for i in np.flatnonzero((number % every == 0) | (number == run.horizon)):
            rounds.append(int(number[i]))
            arms.append(int(played[i]))
            rewards.append(float(drawn.rewards[i, played[i]]))
            regrets.append(float(cumulative[i]))
        if advance is not None:
            advance(n)
    return np.array(rounds), arms, np.array(rewards), np.array(regrets)


def _draw(
    world: World, labels: tuple[Any, ...], n: int, streams: Sequence[np.random.Generator], with_probabilities: bool
) -> _Drawn:
    """``n`` rounds of a world.  streams: generators of the contexts, the rewards and the old policy's answers"""
    contexts, rewards, behavior = streams
    X = np.ascontiguousarray(world.contexts(n, contexts))
    return _Drawn(
        X,
        world.mean_rewards(X),
        _potential_rewards(world, labels, X, rewards),
        world.behavior_actions(X, behavior),
        world.behavior_probabilities(X) if with_probabilities else None,
    )


def _play_drawn(
    learner: Learner, labels: tuple[Any, ...], drawn: _Drawn, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Positions (n,) of the arms played: in compiled code where the learner's class allows it, else round by round."""
    index = {arm: i for i, arm in enumerate(labels)}
    # positions of the learner's arms among the world's: neither their number nor their order need be the same
    at = np.array([index[arm] for arm in learner.arms], dtype=np.int64)
    if learner.needs != "probabilities":
        own = {arm: i for i, arm in enumerate(learner.arms)}
        asked = learner.needs == "action"
        if not asked or all(action in own for action in drawn.actions):
            answers = np.array([own[action] for action in drawn.actions], dtype=np.int64) if asked else None
            found = play_rounds(learner, drawn.X, np.ascontiguousarray(drawn.rewards[:, at]), answers, rng)
            if found is not None:
                return np.asarray(at[found])
    return _play_one_by_one(learner, index, drawn, rng)


def _play_one_by_one(
    learner: Learner, index: Mapping[Any, int], drawn: _Drawn, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Positions (n,) of the arms played: a round is the old policy's answer if asked for, a decision, its reward.

    index: position of each of the world's arms
    """
    played = np.empty(len(drawn.X), dtype=np.int64)
    # a learner under a floor is told what the old policy would do before it decides
    floored = getattr(learner, "floor", None) is not None
    for t, x in enumerate(drawn.X):
        action = drawn.actions[t]
        if learner.needs is not None and learner.wants_query(x):
            if drawn.probabilities is None:
                learner.observe_behavior(x, action)
            else:
                learner.observe_behavior(x, probabilities=drawn.probabilities[t])
        if floored:
            decision = learner.decide(x, rng=rng, default=action)
            learner.record_decision(x, decision.arm, action)  # type: ignore[attr-defined]
        else:
            decision = learner.decide(x, rng=rng)
        played[t] = index[decision.arm]
        learner.observe(x, decision.arm, drawn.rewards[t, played[t]])
    return played


def _potential_rewards(world: World, labels: tuple[Any, ...], X: Array, rng: np.random.Generator) -> Array:
    """(n, K) the reward that each arm would give in each context, with the same noise for every arm."""
    direct = getattr(world, "potential_rewards", None)
    if direct is not None:
        return np.asarray(direct(X, rng))
    # the protocol's ``rewards`` consumes the generator independently of the arms, so one state serves all of them
    state = rng.bit_generator.state
    columns = []
    for arm in labels:
        rng.bit_generator.state = state
        columns.append(world.rewards(X, np.array([arm] * len(X)), rng))
    return np.stack(columns, axis=1)


@contextmanager
def _counting(progress: bool | Callable[[int, int], None], total: int) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of rounds just done; a bar or the caller's function is told of all so far."""
    done = 0
    with ExitStack() as stack:
        report: Callable[[int, int], None] | None = progress if callable(progress) else None
        if progress is True:
            report = stack.enter_context(counting_bar("simulating", "rounds"))

        def advance(n: int) -> None:
            nonlocal done
            done += n
            if report is not None:
                report(done, total)

        yield advance
