"""``sidelight warm``: compile every kernel now, so that nobody waits for it later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import typer
from rich.console import Console

from sidelight.experiments.registry import HIDDEN, learner_factory
from sidelight.hidden.companion import CompanionLog
from sidelight.hidden.queries import BehaviorQueries
from sidelight.judging.old_rows import PolicyModel
from sidelight.kernels.compiled import is_kernel
from sidelight.kernels.notice import silence
from sidelight.learners.floor import Floor
from sidelight.learners.fused.learner import FusedOFUL
from sidelight.learners.oful import OFUL
from sidelight.learners.projected import ProjectedOFUL
from sidelight.learners.protocol import Learner
from sidelight.learners.registry import KINDS
from sidelight.learners.running import RunningOFUL
from sidelight.logs.summarize import summarize_log
from sidelight.side.constraint import SideInformation
from sidelight.simulation import Run, simulate
from sidelight.worlds.confounded import ConfoundedWorld


def warm() -> None:
    """Compile the inner loops by running every learner on a few rows; the machine code is kept on disk."""
    silence()
    console = Console(highlight=False, stderr=True)
    started = time.perf_counter()
    exercises = dict(_exercises())
    with console.status("compiling") as status:
        for name, exercise in exercises.items():
            status.update(f"compiling what {name} needs")
            exercise()
    kernels = list(compiled_kernels())
    console.print(
        f"{len(kernels)} compiled loops are ready, in {time.perf_counter() - started:.0f} s. They are kept beside the "
        "source, or where NUMBA_CACHE_DIR says; a new version of Sidelight compiles its own."
    )


def compiled_kernels() -> Iterator[str]:
    """The names of all functions in ``sidelight.kernels`` that numba compiles into machine code of their own."""
    package = import_module("sidelight.kernels")
    for module in iter_modules(package.__path__, "sidelight.kernels."):
        for name, member in vars(import_module(module.name)).items():
            if is_kernel(member) and member.__module__ == module.name:
                yield f"{module.name}.{name}"


def _exercises() -> Iterator[tuple[str, Callable[[], object]]]:
    """One small job for each learner and each way of learning the hidden half, in the order in which data flows."""
    world = ConfoundedWorld(seed=0, n_arms=2, n_features=4, n_hidden=2, confounding=0.5)

    def general(run: Run) -> Learner:
        rng = np.random.default_rng(0)
        return ProjectedOFUL(SideInformation(rng.normal(size=(2, 1, 4)), np.zeros((2, 1))))

    def companion(run: Run) -> Learner:
        everything = world.sample_log(200, 4, np.random.default_rng(1))
        return RunningOFUL(CompanionLog(run.summary, everything))

    # enough rows for the algorithm for large batches
    yield "a log", lambda: summarize_log(world.sample_log(100_000, 2, np.random.default_rng(0)), world.schema(2))
    learners: dict[str, Callable[[Run], Learner]] = {}
    for name, kind in KINDS.items():
        if kind.made_from == "hidden":
            learners |= {f"{name}, {way}": learner_factory(name, {"hidden": way}) for way in HIDDEN}
        else:
            learners[name] = learner_factory(name)
    learners |= {
        "ProjectedOFUL with any M": general,
        "RunningOFUL with a companion log": companion,
        "OFUL, automatic": learner_factory("OFUL", {"regularization": "auto", "radius": "posterior"}),
    }
    for name, factory in learners.items():
        yield name, partial(simulate, world, {name: factory}, 130, recorded=2, log_rows=500, seeds=1, workers=1)

    def from_python() -> None:
        learner, x = OFUL(2, 4), np.ones(4)
        learner.observe(x, learner.decide(x).arm, 0.0)
        learner.scores(x)
        learner.decide_many(x[None])
        learner.observe_many(x[None], [0], [0.0])
        # enough arms and rows for products of matrices
        learner, X = OFUL(4, 4), np.ones((64, 4))
        learner.decide_many(X)
        learner.observe_many(X, [0] * 64, np.zeros(64))

    yield "decide and observe", from_python

    def under_a_floor() -> None:
        log = summarize_log(world.sample_log(500, 2, np.random.default_rng(0)), world.schema(2))
        learner, x = FusedOFUL(BehaviorQueries(log), floor=Floor(0.1, noise=1.0, weight_bound=1.0)), np.ones(4)
        arm = learner.arms[0]
        learner.record_decision(x, learner.decide(x, default=arm).arm, arm)
        learner.observe(x, arm, 0.0)
        learner.decide(x, default=arm)

    yield "a floor", under_a_floor
    yield "the old policy's rows", lambda: PolicyModel(2, 4).observe(np.ones(4), 0)


if __name__ == "__main__":
    typer.run(warm)
