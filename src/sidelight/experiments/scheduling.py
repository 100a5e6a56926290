"""Run what is missing: in this process, in several, or on a Dask cluster. The numbers are the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import AbstractContextManager
from typing import Any, Protocol

from loky import get_reusable_executor

from sidelight.errors import InputError, MissingExtraError, how_to_install
from sidelight.experiments.figure_settings import Figure, LogSetting, MomentSetting, RunSetting, digest
from sidelight.experiments.jobs import cross_moments, draw_log, run_setting
from sidelight.experiments.results import Results
from sidelight.learners.registry import KINDS
from sidelight.simulation import WORKER_ENVIRONMENT

__all__ = ["missing_runs", "run_figures"]

Task = tuple[Callable[..., Any], tuple[Any, ...]]
Report = Callable[[int, int, str], None]


class _Place(Protocol):
    """Where tasks run: this process, processes of this machine, or a cluster."""

    def results(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Any]]:
        """Positions of tasks and what they returned, as they finish."""
        ...


def missing_runs(figures: Iterable[Figure], seeds: int, results: Results) -> list[tuple[RunSetting, int]]:
    """Every run of these figures that has no result yet; a run that several figures share is listed once."""
    wanted: dict[str, tuple[RunSetting, int]] = {}
    for figure in figures:
        for cell in figure.cells:
            for seed in range(seeds):
                wanted.setdefault(f"{digest(cell.setting)}-{seed}", (cell.setting, seed))
    return [(setting, seed) for setting, seed in wanted.values() if not results.has_run(setting, seed)]


def run_figures(
    figures: Sequence[Figure],
    results: Results,
    *,
    seeds: int = 5,
    workers: int | None = None,
    scheduler: str | None = None,
    report: Report | None = None,
) -> int:
    """Run what the figures lack and write each result as it finishes; returns the number of runs made.

    It may be stopped at any time: another call continues with the missing runs.

    Args:
        figures: what to run.
        results: where results are kept.
        seeds: runs of each setting.
        workers: processes; default one for each core.
        scheduler: the address of a Dask scheduler, to run there instead.
        report: called with the work done, the work in all, and what is being done.
    """
    runs = missing_runs(figures, seeds, results)
    if not runs:
        return 0
    groups, drawing = _inputs_to_make(runs, results)
    # the longest runs first, so that no process works alone at the end
    playing = sorted(runs, key=lambda run: -_work(run[0]))
    total = (
        sum(_drawing_work(log) for log in drawing)
        + len(groups) * _MOMENT_WORK
        + sum(_work(setting) for setting, _ in playing)
    )
    done = 0

    def advance(work: int, what: str) -> None:
        nonlocal done
        done += work
        if report is not None:
            report(done, total, what)

    with _place(workers, scheduler, len(groups) + len(drawing) + len(playing)) as place:
        first: list[Task] = [(cross_moments, (group,)) for group in groups]
        first += [(draw_log, (log,)) for log in drawing]
        for i, made in place.results(first):
            if i < len(groups):
                for moment_setting, moments in zip(groups[i], made, strict=True):
                    results.keep_moments(moment_setting, moments)
                advance(_MOMENT_WORK, "drawing logs")
            else:
                log = drawing[i - len(groups)]
                results.keep_log(log, made)
                advance(_drawing_work(log), "drawing logs")
        for i, table in place.results([_task(setting, seed, results) for setting, seed in playing]):
            setting, seed = playing[i]
            results.keep_run(setting, seed, table)
            advance(_work(setting), "running learners")
    return len(playing)


def _inputs_to_make(
    runs: Sequence[tuple[RunSetting, int]], results: Results
) -> tuple[list[tuple[MomentSetting, ...]], list[LogSetting]]:
    """The cross moments, those of one world together, and the logs that these runs need and no file holds yet."""
    logs: dict[str, LogSetting] = {}
    moments: dict[Any, dict[str, MomentSetting]] = {}
    for setting, seed in runs:
        log, told = setting.log(seed), setting.moments(seed)
        if log is not None and results.log(log) is None:
            logs.setdefault(digest(log), log)
        if told is not None and results.moments(told) is None:
            moments.setdefault((told.world, told.seed), {})[digest(told)] = told
    # the largest first, so that no process works alone at the end
    return [tuple(group.values()) for group in moments.values()], sorted(logs.values(), key=lambda log: -log.rows)


def _task(setting: RunSetting, seed: int, results: Results) -> Task:
    """One run, with the log and the cross moments that it is given."""
    log, told = setting.log(seed), setting.moments(seed)
    known = None if told is None else results.moments(told)
    return run_setting, (setting, seed, None if log is None else results.log(log), known)


_MOMENT_WORK = 100_000


def _work(setting: RunSetting) -> int:
    """The estimated cost of a run, in rounds of OFUL; it sets the order of runs and the progress bar."""
    return setting.horizon * KINDS[setting.learner.kind].cost + 500


def _drawing_work(log: LogSetting) -> int:
    return log.rows // 4 + 500


# ------------------------------------------------------------------------------------------------ places


class _Here:
    """Runs tasks in this process, one after the other."""

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *details: Any) -> None:
        pass

    def results(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Any]]:
        for i, (function, arguments) in enumerate(tasks):
            yield i, function(*arguments)


class _Processes:
    """Runs tasks in processes of this machine."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *details: Any) -> None:
        pass

    def results(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Any]]:
        executor = get_reusable_executor(max_workers=self._count, timeout=60, env=WORKER_ENVIRONMENT)
        waiting: dict[Future[Any], int] = {executor.submit(f, *a): i for i, (f, a) in enumerate(tasks)}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException:
            for future in waiting:
                future.cancel()
            raise


class _Cluster:
    """Runs tasks on a Dask cluster, found by the address of its scheduler."""

    def __init__(self, address: str) -> None:
        try:
            import distributed
        except ImportError:
            raise MissingExtraError(
                f"A cluster needs dask and distributed, which are not installed: {how_to_install('cluster')}."
            ) from None
        try:
            self._client: Any = _untyped(distributed).Client(address, timeout=10)
        except (OSError, TimeoutError, ValueError) as error:
            raise InputError(
                f"no Dask scheduler answers at {address!r} ({error}). Start one with `dask scheduler`, workers with "
                "`dask worker ADDRESS`, and pass the address it prints."
            ) from error

    def __enter__(self) -> _Cluster:
        return self

    def __exit__(self, *details: Any) -> None:
        self._client.close()

    def results(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Any]]:
        import distributed

        waiting = {self._client.submit(f, *a, pure=False): i for i, (f, a) in enumerate(tasks)}
        for future in _untyped(distributed).as_completed(list(waiting)):
            yield waiting[future], future.result()
            future.release()


def _untyped(module: Any) -> Any:
    """A module that has no type annotations, imported so that mypy does not check calls to it."""
    return module


def _place(workers: int | None, scheduler: str | None, tasks: int) -> AbstractContextManager[_Place]:
    if scheduler is not None:
        return _Cluster(scheduler)
    count = min(os.cpu_count() or 1, tasks) if workers is None else workers
    return _Here() if count <= 1 else _Processes(count)
