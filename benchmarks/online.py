"""Microseconds a round, as ratios of one run: ``python -m benchmarks.online`` (``--help`` says what else it times).

One thread, processor time; the candidates take turns in short blocks, so that what else the machine does meets all of
them alike.
The reported figure is the median block; for the fused learner, whose refreshes are rare and dear, the mean.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

import sidelight as sl
from benchmarks.numpy_linucb import NumpyLinUCB
from sidelight.kernels.simd import dot
from sidelight.learners.rounds import play_rounds
from sidelight.simulation import WORKER_ENVIRONMENT

K = D = 30
RECORDED = 25
BLOCK = 1_000
ROUNDS = 20_000
LONG = 100_000
CALLED = ("NumPy", "decide + observe, L = 0", "decide + observe, L = 25, known")


@njit(cache=True)
def _floor(values: Any, factors: Any, repetitions: int) -> float:
    """Read every double and multiply it once, in vectors."""
    total = 0.0
    for _ in range(repetitions):
        total += dot(values, factors)
    return total


class Setting:
    """A world of the paper's kind, its log, and rounds drawn in advance."""

    def __init__(self, n_arms: int, n_features: int, recorded: int, rounds: int) -> None:
        self.world = sl.worlds.PaperWorld.preset("paper_text", seed=0, n_arms=n_arms, n_features=n_features)
        rng = np.random.default_rng(0)
        self.X = np.ascontiguousarray(self.world.contexts(rounds, rng))
        self.table = np.ascontiguousarray(self.world.potential_rewards(self.X, rng))
        self.answers = self.world.behavior_actions(self.X, rng).astype(np.int64)
        self.shape = (n_arms, n_features, recorded)

    def summary(self) -> Any:
        """Its log, summarized."""
        n_arms, n_features, recorded = self.shape
        log = self.world.sample_log(40 * n_arms * n_features, recorded, np.random.default_rng(1))
        return sl.summarize_log(log, self.world.schema(recorded))

    def known(self, summary: Any) -> Any:
        """A learner that knows ``R12``."""
        return sl.ProjectedOFUL(
            sl.SideInformation.from_log(summary, self.world.cross_moments(self.shape[2])), noise=0.05
        )


def _by_play(setting: Setting, learner: Any) -> Callable[[int, int], None]:
    rng = np.random.default_rng(0)

    def block(i: int, j: int) -> None:
        answers = setting.answers[i:j] if learner.needs == "action" else None
        play_rounds(learner, setting.X[i:j], setting.table[i:j], answers, rng)

    return block


def _by_calls(setting: Setting, learner: Any) -> Callable[[int, int], None]:
    X, table = setting.X, setting.table

    def block(i: int, j: int) -> None:
        for t in range(i, j):
            x = X[t]
            arm = learner.decide(x).arm
            learner.observe(x, arm, table[t, arm])

    return block


def _numpy(setting: Setting) -> Callable[[int, int], None]:
    learner, X, table = NumpyLinUCB(*setting.shape[:2]), setting.X, setting.table

    def block(i: int, j: int) -> None:
        for t in range(i, j):
            x = X[t]
            arm = learner.decide(x)
            learner.observe(x, arm, table[t, arm])

    return block


def _floor_block(n: int) -> Callable[[int, int], None]:
    values, factors = np.random.default_rng(0).normal(size=(2, n))

    def block(i: int, j: int) -> None:
        _floor(values, factors, j - i)

    return block


def measure(blocks: dict[str, Callable[[int, int], None]], rounds: int, size: int = BLOCK) -> dict[str, float]:
    """Microseconds a round of each, taking turns: the median block, or the mean where refreshes are to be counted.

    What is called round by round from Python runs fewer rounds at a time, so that all blocks are about a millisecond
    and a busy machine interrupts all of them alike.
    """
    times: dict[str, list[float]] = {name: [] for name in blocks}
    for i in range(0, rounds - size + 1, size):
        for name, block in blocks.items():
            n = size // 25 if name in CALLED else size
            started = time.process_time()
            block(i, i + n)
            times[name].append((time.process_time() - started) / n * 1e6)
    # the first blocks compile, or load what was compiled
    return {name: _typical(name)(values[2:]) for name, values in times.items()}


def _typical(name: str) -> Callable[[list[float]], float]:
    """A median would leave out the fused learner's refreshes, which are rare and dear; the least block has none."""
    return {"simulated, fused, a query every round": statistics.fmean, "without refresh": min}.get(
        name, statistics.median
    )


def table() -> dict[str, float]:
    """The table of ratios at d = K = 30."""
    setting = Setting(K, D, RECORDED, ROUNDS)
    summary, m = setting.summary(), D - RECORDED
    blocks = {
        "NumPy": _numpy(setting),
        "simulated, L = 0": _by_play(setting, sl.OFUL(K, D, noise=0.05)),
        "simulated, L = 25, known": _by_play(setting, setting.known(summary)),
        "simulated, L = 25, estimated every round": _by_play(
            setting, sl.RunningOFUL(sl.BehaviorQueries(summary, estimator="ipw"), noise=0.05)
        ),
        "simulated, fused, a query every round": _by_play(setting, sl.FusedOFUL(sl.BehaviorQueries(summary))),
        "decide + observe, L = 0": _by_calls(setting, sl.OFUL(K, D, noise=0.05)),
        "decide + observe, L = 25, known": _by_calls(setting, setting.known(summary)),
        "floor, L = 0": _floor_block(K * D * (D + 1) // 2 + K * D),
        "floor, L = 25": _floor_block(K * m * (m + 1) // 2 + K * D),
    }
    found = measure(blocks, ROUNDS)
    reference = _reference(setting)
    print(f"d = K = {D}, {ROUNDS} rounds, blocks of {BLOCK}; literal reference {reference:,.0f} µs a round")
    print(f"{'':42}{'µs':>8}{'× NumPy':>10}{'× reference':>13}{'of floor':>10}")
    for name, value in found.items():
        floor = found["floor, L = 25"] if "known" in name else found["floor, L = 0"]
        over = f"{value / floor:9.1f}×" if name in ("simulated, L = 0", "simulated, L = 25, known") else ""
        print(f"{name:42}{value:8.2f}{found['NumPy'] / value:10.2f}{reference / value:13,.0f}{over:>10}")
    return found


def _reference(setting: Setting, rounds: int = 3) -> float:
    """Microseconds a decision of the literal formulas, with side information, after ten rounds."""
    from tests.reference import projected_scores

    n_arms, n_features, recorded = setting.shape
    rng = np.random.default_rng(0)
    M = [np.hstack([np.eye(recorded), rng.normal(size=(recorded, n_features - recorded))]) for _ in range(n_arms)]
    b, ranks = [np.zeros(recorded)] * n_arms, [recorded] * n_arms
    history = [(setting.X[t], t % n_arms, 0.1) for t in range(10)]
    times = []
    for t in range(rounds):
        started = time.process_time()
        projected_scores(
            setting.X[t],
            history,
            M,
            b,
            ranks,
            lam=1.0,
            sigma=0.05,
            alpha=1.0,
            delta=0.05,
            kind="determinant",
            S_x=1.0,
            S_w=1.0,
        )
        times.append((time.process_time() - started) * 1e6)
    return statistics.median(times)


def scaling(sizes: tuple[int, ...] = (10, 30, 100, 300), n_arms: int = 10) -> None:
    """Time a round against what it may grow with: the nanoseconds per unit may fall but must not grow.

    The unit is ``K·m² + K·d``; for the estimate of every round ``K·m³`` more.  For the fused learner ``m = d``, and its
    figure is of blocks without a refresh; what a refresh takes stands beside it.
    """
    print(f"\nK = {n_arms}, L = 5d/6; microseconds a round, and nanoseconds per unit")
    heads = ("known", "OFUL", "every round", "fused")
    print(f"{'d':>5}" + "".join(f"{name:>13}{'ns/unit':>9}" for name in heads) + f"{'refresh ms':>12}")
    for d in sizes:
        L = d * 5 // 6
        m = d - L
        rounds = 600 if d <= 100 else 200
        setting = Setting(n_arms, d, L, rounds)
        rng = np.random.default_rng(2)
        B = 0.3 * rng.normal(size=(n_arms, L, m))
        side = sl.SideInformation([np.hstack([np.eye(L), B[a]]) for a in range(n_arms)], [np.zeros(L)] * n_arms)
        summary = setting.summary()
        fused = sl.FusedOFUL(sl.BehaviorQueries(summary))
        found = measure(
            {
                "known": _by_play(setting, sl.ProjectedOFUL(side, noise=0.05)),
                "OFUL": _by_play(setting, sl.OFUL(n_arms, d, noise=0.05)),
                "every round": _by_play(
                    setting, sl.RunningOFUL(sl.BehaviorQueries(summary, estimator="ipw"), noise=0.05)
                ),
                "without refresh": _by_play(setting, fused),
            },
            rounds,
            20,
        )
        found["fused"] = found.pop("without refresh")
        refreshes = []
        for _ in range(5):
            started = time.process_time()
            fused._relearn()
            refreshes.append(time.process_time() - started)
        refresh = statistics.median(refreshes) * 1e3
        plain = n_arms * (m * m + d)
        units = {"known": plain, "OFUL": n_arms * (d * d + d), "every round": plain + n_arms * m**3}
        units["fused"] = units["OFUL"]
        row = "".join(f"{found[name]:13.2f}{1e3 * found[name] / units[name]:9.2f}" for name in heads)
        print(f"{d:5}{row}{refresh:12.1f}")


def _timed(thing: Any, method: str) -> list[float]:
    """Let ``thing`` note how long each call of ``method`` takes; the list grows as it is called."""
    inner, times = getattr(thing, method), []  # type: ignore[var-annotated]

    def timed() -> Any:
        started = time.process_time()
        result = inner()
        times.append(time.process_time() - started)
        return result

    setattr(thing, method, timed)
    return times


def profile() -> None:
    """Where a fused run spends its time."""
    setting = Setting(K, D, RECORDED, LONG)
    learner = sl.FusedOFUL(sl.BehaviorQueries(setting.summary()))
    block = _by_play(setting, learner)
    block(0, 200)  # loads what was compiled
    before = learner.refreshes
    taken = [_timed(learner, "_relearn"), _timed(learner.logs[0].hidden, "_estimate_strengths")]
    spent, begin = 0.0, 200
    print("\nfused, from round 200 on; milliseconds of processor time of everything else, and of refreshes")
    for until in (ROUNDS, 2 * ROUNDS, LONG):
        started = time.process_time()
        block(begin, until)
        spent, begin = spent + time.process_time() - started, until
        refreshing = sum(sum(times) for times in taken)
        print(
            f"  until round {until:8,}{1e3 * (spent - refreshing):8.0f}{1e3 * refreshing:8.0f}"
            f"   ({learner.refreshes - before} refreshes)"
        )
    learner = sl.FusedOFUL(sl.BehaviorQueries(setting.summary()))
    block = _by_play(setting, learner)
    block(0, 200)
    watch = cProfile.Profile()
    watch.runcall(block, 200, ROUNDS)
    parts = ("_ridge_rounds", "_relearn", "estimate_prior", "refresh", "_judge", "_estimate_strengths")
    print(f"\nthe same until {ROUNDS:,} under a profiler, which slows refreshes down; milliseconds, callees included")
    for (path, _, name), (_, _, _, seconds, _) in pstats.Stats(watch).stats.items():  # type: ignore[attr-defined]
        if name in parts and "sidelight" in path and not (name in ("_relearn", "refresh") and "ridge" in path):
            print(f"  {name:20}{Path(path).name:18}{1e3 * seconds:8.0f}")


#: what a process does until its first decision and observation, and all that can be compiled; seconds of processor time
FIRST = {
    "OFUL": "l = sl.OFUL(30, 30)",
    "FusedOFUL": (
        "rng = np.random.default_rng(0); s = sl.Schema.for_arrays(30, recorded=25, n_arms=3); "
        "X = rng.normal(size=(900, 25)); "
        "log = sl.LogSummary.from_arrays(X, list(s.arms) * 300, rng.normal(size=900), s); "
        "l = sl.FusedOFUL(sl.BehaviorQueries(log))"
    ),
}
WARM = "import time; from sidelight.cli.warm import warm; warm(); print(time.process_time())"


def begin() -> None:
    """Processor time of a process until its first decision and observation, and of ``sidelight warm``."""
    start = "import time; import numpy as np, sidelight as sl; x = np.ones(30)"
    end = "l.observe(x, l.decide(x).arm, 0.1); print(time.process_time())"
    scripts = {f"first decision and observation of {name}": f"{start}; {make}; {end}" for name, make in FIRST.items()}
    for name, script in {**scripts, "sidelight warm": WARM}.items():
        seconds = []
        with tempfile.TemporaryDirectory() as folder:
            # the second time what was compiled is found
            for _ in range(2):
                done = subprocess.run(
                    [sys.executable, "-c", script],
                    env={**os.environ, "NUMBA_CACHE_DIR": folder},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                seconds.append(float(done.stdout.split()[-1]))
        print(f"{name}: {seconds[0]:.1f} s of processor time with nothing compiled, {seconds[1]:.1f} s afterwards")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.online")
    parser.add_argument("--profile", action="store_true", help="where a fused run spends its time, and nothing else")
    parser.add_argument("--begin", action="store_true", help="what compiling takes, and nothing else")
    parser.add_argument("--batches", action="store_true", help="rows of decide_many and observe_many, and nothing else")
    parser.add_argument("--peers", action="store_true", help="also other libraries, each in an environment of its own")
    options = parser.parse_args(sys.argv[1:])
    # NumPy's library reads its number of threads when it is loaded
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        os.environ.update(WORKER_ENVIRONMENT)
        subprocess.run([sys.executable, "-m", "benchmarks.online", *sys.argv[1:]], check=True)
        return
    if options.profile:
        profile()
        return
    if options.begin:
        begin()
        return
    if options.batches:
        from benchmarks.batches import batches

        batches(Setting)
        return
    found = table()
    scaling()
    if options.peers:
        from benchmarks.peers.run import peers

        peers(found)


if __name__ == "__main__":
    main()
