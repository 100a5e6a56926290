"""How often the log's error is larger than ``radius="theory"`` allows for: ``‖Λ^{1/2}(b − M̂w)‖ > γ``.

    python -m benchmarks.misses                            the whole grid, 150 logs of two arms a cell
    python -m benchmarks.misses --worlds product square    some worlds
    python -m benchmarks.misses --logs 2000 --seed 7       more logs, other ones
    python -m benchmarks.misses --rows                     also one line for every cell
    python -m benchmarks.misses --results FILE             keep counts there, and go on where it stood
    python -m benchmarks.misses --learned 12               instead: mean ξᵀΛξ/L of the automatic learner, 12 logs

``γ² = χ²_L(1 − δ)`` should be exceeded in at most a share ``δ``.  ``Λ`` is that of the learner (``FusedLog.refresh``)
with the tightest bounds that hold, ``S_w = ‖w_h‖`` and, for a known R12, ``S_x`` the largest ``‖x_h‖``.  The noise is
small beside what the hidden features do, so that nothing is covered because noise is taken for it.  Every log has an
intercept, weights of its own and a policy that looks at hidden features (in the world ``even`` at recorded ones alone,
so that nothing there depends on the recorded features that the classical covariance takes for constant).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import sidelight as sl
from benchmarks.claims import binomial_interval
from sidelight.learners.fused.log import FusedLog
from sidelight.learners.fused.unexplained import Known
from sidelight.logs.reduce.sandwich import MeatSums
from sidelight.theory import log_error_radius

#: what is hidden, by the first recorded features ``z`` and independent ``u``, and what the noise is
WORLDS = {
    "even": "x_h = 0.6z + u, policy by recorded features",
    "normal": "x_h = 0.6z + u",
    "product": "x_h = z·u",
    "square": "x_h = z² − 1",
    "skewed": "exponential features",
    "flags": "flags, set in a tenth of the rows",
    "heavy": "as normal, noise with Student's t, 3 degrees of freedom",
    "uneven": "as normal, noise growing with z as its power 1.5",
    "signs": "x_h the sign of z with one in ten turned over",
}
SOURCES = ("queries", "probabilities", "companion", "known")
SIZES = ((2, 1), (4, 2), (6, 3))
ANSWERS = (30, 60, 250, 1_000)
NOISE = 0.3
DELTA = 0.05


@dataclass(frozen=True)
class Cell:
    """One world, one size, one way to learn the hidden half."""

    world: str
    recorded: int
    hidden: int
    rows: int
    answers: int
    source: str = "queries"
    noise: float = NOISE


def cells(worlds: Iterable[str] = WORLDS) -> list[Cell]:
    """The grid: all worlds with queries, some with the other sources, and a log of 5,000 rows."""
    grid = []
    for world in worlds:
        for L, m in SIZES:
            grid += [Cell(world, L, m, 900, answers) for answers in ANSWERS]
            grid.append(Cell(world, L, m, 5_000, 60))
            grid += [Cell(world, L, m, 900, 250, source) for source in SOURCES[1:3]]
            if world in ("signs", "flags"):
                grid.append(Cell(world, L, m, 900, 0, "known"))
    return grid


def contexts(cell: Cell, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, L + m)  recorded features, the first of them 1, then hidden ones."""
    L, m = cell.recorded, cell.hidden
    z = rng.normal(size=(n, L))
    if cell.world == "skewed":
        z = rng.exponential(size=(n, L)) - 1.0
    elif cell.world == "flags":
        z = (rng.random((n, L)) < 0.1).astype(float)
    elif cell.world == "signs":
        z = np.sign(z)
    z[:, 0] = 1.0
    first, u = z[:, 1 + np.arange(m) % (L - 1)], rng.normal(size=(n, m))
    hidden = 0.6 * first + u
    if cell.world == "product":
        hidden = first * u
    elif cell.world == "square":
        hidden = np.square(first) - 1.0
        hidden[:, 1:] = 0.6 * first[:, 1:] + u[:, 1:]
    elif cell.world == "skewed":
        hidden = 0.6 * first + rng.exponential(size=(n, m)) - 1.0
    elif cell.world == "flags":
        hidden = (rng.random((n, m)) < 0.1 + 0.5 * first).astype(float)
    elif cell.world == "signs":
        hidden = first * np.where(rng.random((n, m)) < 0.1, -1.0, 1.0)
    return np.concatenate([z, hidden], axis=1)


def probabilities(cell: Cell, X: np.ndarray) -> np.ndarray:
    """(n, 2)  of the old policy."""
    L = cell.recorded
    score = 0.7 * X[:, 1] if cell.world == "even" else X[:, L] - 0.3 * X[:, 1]
    chance = 1.0 / (1.0 + np.exp(-score))
    return np.column_stack([1.0 - chance, chance])


def actions(cell: Cell, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (rng.random(len(X)) < probabilities(cell, X)[:, 1]).astype(int)


def rewards(cell: Cell, X: np.ndarray, arms: np.ndarray, w: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noise = rng.normal(size=len(X))
    if cell.world == "heavy":
        noise = rng.standard_t(3, size=len(X)) / np.sqrt(3.0)
    elif cell.world == "uneven":
        noise *= np.abs(X[:, 1]) ** 1.5
    return np.einsum("nd,nd->n", X, w[arms]) + cell.noise * noise


def weights(cell: Cell, rng: np.random.Generator) -> np.ndarray:
    """(2, d)  of both arms; the hidden ones have norm 1."""
    w = rng.normal(size=(2, cell.recorded + cell.hidden))
    w[:, cell.recorded :] /= np.linalg.norm(w[:, cell.recorded :], axis=1, keepdims=True)
    return w


@cache
def cross_moments(cell: Cell) -> tuple[np.ndarray, float]:
    """(2, L, m)  ``R12`` by four million contexts, and the largest ``‖x_h‖`` among them."""
    rng, L, total, shares, widest = np.random.default_rng(1), cell.recorded, 0.0, 0.0, 0.0
    for _ in range(20):
        X = contexts(cell, 200_000, rng)
        P = probabilities(cell, X)
        total = total + np.einsum("na,ni,nj->aij", P, X[:, :L], X[:, L:])
        shares = shares + P.sum(axis=0)
        widest = max(widest, float(np.linalg.norm(X[:, L:], axis=1).max()))
    return np.asarray(total / np.asarray(shares)[:, None, None]), widest


def estimator(cell: Cell, log: sl.LogSummary, w: np.ndarray, rng: np.random.Generator) -> tuple[Any, float]:
    """The estimator of the hidden half after all answers, and ``S_x``."""
    if cell.source == "known":
        R12, widest = cross_moments(cell)
        return sl.KnownCrossMoments(log, R12), widest
    X = contexts(cell, cell.answers, rng)
    arms = actions(cell, X, rng)
    if cell.source == "companion":
        schema = log.schema.with_recorded([feature.name for feature in log.schema.features])
        rows = sl.LogSummary.from_arrays(X, arms, rewards(cell, X, arms, w, rng), schema)
        return sl.CompanionLog(log, rows, pooling=0.0), 1.0
    if cell.source == "probabilities":
        hidden: Any = sl.BehaviorProbabilities(log, pooling=0.0)
        for x, p in zip(X, probabilities(cell, X), strict=True):
            hidden.observe(x, p)
        return hidden, 1.0
    hidden = sl.BehaviorQueries(log, pooling=0.0)
    for a in range(2):  # as kernels add answers
        own, sums = X[arms == a], hidden.sums
        sums.S[a] += own.T @ own
        sums.S_squared[a] += own[:, : cell.recorded].T @ own[:, : cell.recorded]
        sums.sums[a] += own.sum(axis=0)
        sums.counts[a] += len(own)
    hidden.took(len(X))
    return hidden, 1.0


def draw_log(cell: Cell, w: np.ndarray, rng: np.random.Generator) -> sl.LogSummary:
    """A log of the cell's world, with what the sandwich needs.  w: (2, d)"""
    L, X = cell.recorded, contexts(cell, cell.rows, rng)
    arms = actions(cell, X, rng)
    paid, schema = rewards(cell, X, arms, w, rng), sl.Schema.for_arrays(w.shape[1], recorded=L, n_arms=2)
    sums = MeatSums(sl.LogSummary.from_arrays(X[:, :L], arms, paid, schema))
    sums.add(X[:, :L], arms, paid)
    return sums.summary()


def error(log: sl.LogSummary, hidden: Any, w: np.ndarray) -> np.ndarray:
    """(2, L)  ``ξ = b − M̂w`` of both arms."""
    L = log.n_recorded
    found = log.least_squares(np.arange(2)) - w[:, :L] - np.einsum("alm,am->al", hidden.regression(), w[:, L:])
    return np.asarray(found)


def learned(cell: Cell, rng: np.random.Generator, rounds: int = 300) -> np.ndarray:
    """(2,)  ``ξᵀΛξ/L``, mean over arms, after so many rounds of ``FusedOFUL``; classically and with the sandwich."""
    w = weights(cell, rng)
    log, X = draw_log(cell, w, rng), contexts(cell, rounds, rng)
    answers, noise, means = actions(cell, X, rng), cell.noise * rng.normal(size=rounds), X @ w.T
    found = np.empty(2)
    for sandwich in (False, True):
        learner = sl.FusedOFUL(sl.BehaviorQueries(log), sandwich=sandwich)
        draws = np.random.default_rng(1)
        for t, x in enumerate(X):
            learner.observe_behavior(x, int(answers[t]))
            arm = learner.decide(x, rng=draws).arm
            learner.observe(x, arm, float(means[t, arm] + noise[t]))
        learner._relearn()
        fused = learner.logs[0]
        xi = error(log, fused.hidden, w)
        assert fused.evidence is not None
        squares = np.einsum("ai,aij,aj->a", xi, fused.evidence.precision, xi)
        found[int(sandwich)] = squares.mean() / cell.recorded
    return found


def norms(cell: Cell, delta: float, rng: np.random.Generator) -> np.ndarray:
    """(2, 2)  ``‖Λ^{1/2}ξ‖/γ`` of both arms of one log, classically and with the sandwich."""
    L, d = cell.recorded, cell.recorded + cell.hidden
    w = weights(cell, rng)
    log = draw_log(cell, w, rng)
    hidden, widest = estimator(cell, log, w, rng)
    xi = error(log, hidden, w)
    squares = np.empty((2, 2))
    for sandwich in (False, True):
        fused = FusedLog(None, hidden, {0: 0, 1: 1}, proven=True)
        known = Known(np.zeros((2, d)), np.zeros((2, d, d)), weight_bound=1.0, context_bound=widest, delta=delta)
        fused.refresh(known, shared=1, bias_bound=0.0, sandwich=sandwich)
        assert fused.evidence is not None
        squares[int(sandwich)] = np.einsum("ai,aij,aj->a", xi, fused.evidence.precision, xi)
    return np.asarray(np.sqrt(squares) / float(log_error_radius(L, delta)))


def misses(cell: Cell, logs: int, seed: int = 0, delta: float = DELTA, first: int = 0) -> np.ndarray:
    """(2,)  In how many arms of the logs from ``first`` to ``logs`` the error is larger than ``γ``; two arms a log."""
    found = [norms(cell, delta, np.random.default_rng([seed, i])) > 1.0 for i in range(first, logs)]
    return np.asarray(np.sum(found, axis=(0, 2)))


def table(found: dict[Cell, Sequence[int]], logs: int) -> str:
    """Shares in percent by world and number of answers, over all sizes, and how many cells are surely above ``δ``."""
    lines = []
    for k, title in enumerate(("classical", "`sandwich=True`")):
        columns = [*(f"{n:,}" for n in ANSWERS), "60, 5,000 rows", *SOURCES[1:]]
        lines += [f"| {title} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for world, says in WORLDS.items():
            own = [cell for cell in found if cell.world == world]
            kinds = [[c for c in own if (c.rows, c.answers, c.source) == (900, n, "queries")] for n in ANSWERS]
            kinds += [[c for c in own if c.rows != 900]]
            kinds += [[c for c in own if c.source == source] for source in SOURCES[1:]]
            shares = [f"{50 * sum(found[c][k] for c in kind) / logs / len(kind):.1f}" if kind else "" for kind in kinds]
            if own:
                lines.append(f"| {world}: {says} | {' | '.join(shares)} |")
        above = [cell for cell in found if _surely_above(found[cell][k], 2 * logs)]
        lines += ["", f"{title}: {len(above)} of {len(found)} cells surely above.", ""]
    return "\n".join(lines)


def _surely_above(count: int, trials: int) -> bool:
    """Whether so many in one cell would happen with probability below 1e-4 if the share were ``δ``."""
    from scipy.stats import binom

    return bool(binom.sf(count - 1, trials, DELTA) < 1e-4)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--logs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, help="where counts are kept; cells that stand there are not run again")
    parser.add_argument("--rows", action="store_true", help="one line for every cell")
    parser.add_argument("--learned", type=int, metavar="LOGS", help="the automatic learner, so many logs of 5,000 rows")
    options = parser.parse_args(given)
    if options.learned:
        for world in options.worlds:
            cell = Cell(world, 2, 1, 5_000, 0)
            seeds = range(options.learned)
            found = np.mean([learned(cell, np.random.default_rng([options.seed, i])) for i in seeds], axis=0)
            print(f"{world}: classical {found[0]:.2f}, sandwich {found[1]:.2f}", flush=True)
        return
    kept = json.loads(options.results.read_text()) if options.results and options.results.exists() else {}
    found = {}
    for cell in cells(options.worlds):
        key = f"{cell} seed={options.seed}"
        done, *counts = kept.get(key, [0, 0, 0])
        if done < options.logs:
            more = misses(cell, options.logs, options.seed, first=done)
            done, counts = options.logs, [count + int(n) for count, n in zip(counts, more, strict=True)]
            kept[key] = [done, *counts]
            if options.results:
                options.results.write_text(json.dumps(kept, indent=0))
        found[cell] = counts
        if options.rows:
            shares = []
            for count in counts:
                low, high = binomial_interval(count, 2 * done)
                shares.append(f"{count / (2 * done):.3f} ({low:.3f} to {high:.3f})")
            print(f"{cell}: classical {shares[0]}, sandwich {shares[1]}", flush=True)
    print(table(found, options.logs))


if __name__ == "__main__":
    main()
