"""Microseconds a row of ``decide_many`` and ``observe_many``: ``python -m benchmarks.online --batches``.

Against a loop of single calls, and against products of matrices as one writes them in NumPy from the same state:
``X ŵ`` and ``Z P_a ∘ Z`` per arm; ``V += ZᵀZ``, ``b += Zᵀr`` per arm and one inverse.  NumPy's library has one thread.

What counts is processor time of all threads, so that other work on the machine does not show.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import sidelight as sl
from sidelight.learners.rounds import play_rounds

#: arms, features, recorded ones
SHAPES = ((30, 30, 0), (30, 30, 25), (10, 100, 0), (10, 300, 0), (10, 300, 250))
SIZES = (1_000, 10_000)
#: rows of 300 features that are kept at most
LARGEST = 10_000
#: NumPy takes so many rows at a time, to stay in the caches
CHUNK = 2_048
TURNS = 3


def _learner(n_arms: int, n_features: int, recorded: int) -> Any:
    if not recorded:
        return sl.OFUL(n_arms, n_features, noise=0.05)
    return sl.ProjectedOFUL(sl.SideInformation.structured(*_log(n_arms, n_features, recorded)), noise=0.05)


def _log(n_arms: int, n_features: int, recorded: int) -> tuple[sl.LogSummary, Any]:
    """A log of noise, and what it hides: how long a row takes does not depend on what is in it."""
    rng, rows = np.random.default_rng(0), 4 * n_arms * recorded
    schema = sl.Schema.for_arrays(n_features, recorded=list(range(recorded)), n_arms=n_arms)
    arms = np.arange(rows) % n_arms
    log = sl.LogSummary.from_arrays(rng.normal(size=(rows, recorded)), arms, rng.normal(size=rows), schema)
    B = 0.1 * rng.normal(size=(recorded, n_features - recorded))
    return log, B + 0.02 * rng.normal(size=(n_arms, *B.shape))


def _reduced(learner: Any, Y: Any, a: int) -> Any:
    B = learner.reduction.loadings[a]
    return Y[:, len(B) :] - Y[:, : len(B)] @ B if len(B) else Y


def numpy_decide(learner: Any, X: Any) -> Any:
    """Arms, estimates and widths."""
    parts = []
    for i in range(0, len(X), CHUNK):
        Y = X[i : i + CHUNK, learner.reduction.order]
        forms = np.empty((len(Y), learner.n_arms))
        for a in range(learner.n_arms):
            Z = _reduced(learner, Y, a)
            forms[:, a] = np.einsum("ni,ni->n", Z @ learner.covariances[a], Z)
        estimates, widths = Y @ learner.weights.T, learner.radii * np.sqrt(forms)
        arms = (estimates + widths).argmax(axis=1)[:, None]
        parts.append((arms, *(np.take_along_axis(values, arms, axis=1) for values in (estimates, widths))))
    return [np.concatenate(column)[:, 0] for column in zip(*parts, strict=True)]


def numpy_observe(learner: Any, X: Any, arms: Any, rewards: Any) -> None:
    """Sums, covariance, log determinant and weights."""
    for a in range(learner.n_arms):
        rows = np.flatnonzero(arms == a)
        if len(rows):
            Y = X[rows][:, learner.reduction.order]
            Z = _reduced(learner, Y, a)
            learner.grams[a] += Z.T @ Z
            learner.moments[a] += Z.T @ (rewards[rows] - Y @ learner.reduction.anchors[a])
            A = learner.prior_precisions[a] + learner.grams[a]
            learner.covariances[a] = np.linalg.inv(A)
            learner.log_dets[a] = np.linalg.slogdet(A)[1] - learner.prior_log_dets[a]
            theta = learner.covariances[a] @ (learner.prior_moments[a] + learner.moments[a])
            learner.weights[a] = learner.reduction.anchors[a] + learner.reduction.basis(a) @ theta


def _seconds(work: Callable[[], None]) -> float:
    """Processor time of all threads."""
    started = time.process_time()
    work()
    return time.process_time() - started


def _turns(works: dict[str, Callable[[], tuple[Callable[[], None], int]]]) -> dict[str, float]:
    """The least of some turns, in microseconds a row; each turn gets what it works on before its clock starts."""
    found = dict.fromkeys(works, np.inf)
    for _ in range(TURNS):
        for name, make in works.items():
            work, rows = make()
            found[name] = min(found[name], _seconds(work) / rows * 1e6)
    return found


def _deciding(learner: Any, X: Any) -> dict[str, Any]:
    few = X[:200]
    return {
        "single calls": lambda: (lambda: [learner.decide(x) for x in few] and None, len(few)),
        "NumPy": lambda: (lambda: numpy_decide(learner, X) and None, len(X)),
        "batch": lambda: (lambda: learner.decide_many(X) and None, len(X)),
    }


def _observing(learner: Any, X: Any, arms: Any, rewards: Any) -> dict[str, Any]:
    labels = arms.tolist()

    def calls(twin: Any) -> None:
        for t in range(min(len(X), 200)):
            twin.observe(X[t], labels[t], rewards[t])

    def fresh(work: Callable[[Any], None], rows: int = len(X)) -> Callable[[], tuple[Callable[[], None], int]]:
        def make() -> tuple[Callable[[], None], int]:
            twin = copy.deepcopy(learner)
            return lambda: work(twin), rows

        return make

    works = {
        "single calls": fresh(calls, min(len(X), 200)),
        "batch": fresh(lambda twin: twin.observe_many(X, labels, rewards)),
    }
    if not isinstance(learner, sl.FusedOFUL):
        works["NumPy"] = fresh(lambda twin: numpy_observe(twin, X, arms, rewards))
    return works


def batches(make_setting: Callable[[int, int, int, int], Any]) -> None:
    """The table, of learners that have seen 2,000 rounds of the world that ``online.Setting`` makes."""
    heads = ("single calls", "NumPy", "batch")
    print(f"microseconds a row, least of {TURNS} turns\n{'':41}{'rows':>8}" + "".join(f"{head:>14}" for head in heads))
    for kind, shape in (*(("", shape) for shape in SHAPES), (", fused", (30, 30, 25))):
        n_arms, n_features, recorded = shape
        setting = make_setting(*shape, min(SIZES[-1], LARGEST * 300 // n_features))
        learner = sl.FusedOFUL(sl.BehaviorQueries(_log(*shape)[0])) if kind else _learner(*shape)
        rng, X = np.random.default_rng(1), setting.X
        play_rounds(learner, X[:2_000], setting.table[:2_000], None, rng)
        arms = rng.integers(n_arms, size=len(X))
        rewards = setting.table[np.arange(len(X)), arms]
        name = f"K = {n_arms}, d = {n_features}, L = {recorded}{kind}"
        for what in ("decide", "observe"):
            for n in (n for n in SIZES if n <= len(X)):
                some = X[:n]
                works = (
                    _deciding(learner, some) if what == "decide" else _observing(learner, some, arms[:n], rewards[:n])
                )
                found = _turns(works)
                line = "".join(f"{found[head]:14.2f}" if head in found else f"{'':14}" for head in heads)
                print(f"{what:9}{name:32}{n:8,}{line}", flush=True)
