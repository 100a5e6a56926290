"""How often the intervals of ``sl.judge`` hold the truth: ``python -m benchmarks.verdict [--logs N] [--stage S]``.

Stages 1 and 2 are measured on the same logs, in worlds whose rewards are linear in all features; the least favourable
ones among them have ``σ ≈ 0`` and ``w_h ∝ Σ_e⁻¹g``, in which the bounds are tight.  Stage 3 has curved rewards too,
stage 4 looks after every unit.  The policy that a log suggests has cells of its own.  Each log is a seed of its own; a
cell of 1,000 logs tells a coverage of 0.95 to within 0.014 (two standard errors).
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

import sidelight as sl
from sidelight.judging.answer_rows import Answers
from sidelight.judging.answers import ToldBy, line_of_answers
from sidelight.judging.complete import line_of_complete
from sidelight.judging.complete_rows import read_complete
from sidelight.judging.doubly_robust import Doubly
from sidelight.judging.lines import Line, line_of_log, line_unknown
from sidelight.judging.policies import Requested, suggested
from sidelight.judging.population import Population
from sidelight.judging.row_sums import Residuals, Sample, Tally, collect
from sidelight.judging.sequences import LARGEST_SHARE, asymptotic_width, mixing_variance
from sidelight.judging.valuing import Estimate, of_fixed, of_tally
from sidelight.logs.reduce.moments import triangular_factor

LOGS = 1_000


@dataclass(frozen=True)
class Cell:
    """A world and how much is known of it.

    Attributes:
        features: ``"normal"``, ``"binary"`` or ``"skewed"``.
        hidden: standard deviation of the hidden features' weights; ``"worst"`` for the least favourable world.
        sharpness: of the old policy, standard deviation of its weights.
        rows: of the log   answers: of the old policy.
        policy: ``"arm"`` (always the first) or ``"rule"`` (one of two arms by the sign of a recorded feature).
        seed: of the world's weights and policy.
        reference: rows of which the truth is computed; 100 times those of the log, so that its error does not count.
    """

    features: str = "normal"
    hidden: float | str = 1.0
    sharpness: float = 0.6
    rows: int = 20_000
    answers: int = 500
    policy: str = "arm"
    seed: int = 3
    reference: int = 1_000_000


#: 24 cells of stages 1 and 2
CELLS = [
    *(
        Cell(features, hidden, 0.6, rows, answers)
        for features in ("normal", "binary", "skewed")
        for hidden in (0.3, 1.0, "worst")
        for rows, answers in ((2_000, 200), (10_000, 500))
    ),
    *(Cell("normal", hidden, sharpness, 10_000) for hidden in (1.0, "worst") for sharpness in (0.2, 1.0)),
    Cell("normal", rows=10_000, policy="rule"),
    Cell("skewed", "worst", 0.6, 10_000, 2_000),
]
RECORDED, HIDDEN, ARMS = 5, 4, 4


def regressed(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Coefficients of Y on X, whose columns are well apart: millions of rows in a moment."""
    return np.linalg.solve(X.T @ X, X.T @ Y)


def with_constant(X: np.ndarray) -> np.ndarray:
    """(n, 1 + p)."""
    return np.column_stack([np.ones(len(X)), X])


def standard_lognormal(Z: np.ndarray) -> np.ndarray:
    """Log-normal numbers of mean 0 and variance 1 from standard normal ones."""
    return (np.exp(Z) - math.exp(0.5)) / math.sqrt(math.exp(2.0) - math.exp(1.0))


class World:
    """A linear world with ``K = 4`` arms, five recorded and four hidden features."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        rng = np.random.default_rng(cell.seed)
        self.W = rng.normal(size=(ARMS, 1 + RECORDED + HIDDEN)) * 0.5
        self.phi = rng.normal(size=(ARMS, RECORDED + HIDDEN)) * cell.sharpness
        self.noise = 0.5
        worst = cell.hidden == "worst"
        self.W[:, 1 + RECORDED :] *= 0.0 if worst else float(cell.hidden)
        self.reference = self.draw(cell.reference, np.random.default_rng(98))
        if worst:
            g, S, _, _ = self._arm_moments(0)
            w = np.linalg.solve(S, g)
            self.W[0, 1 + RECORDED :] = w / math.sqrt(w @ S @ w)
            self.noise = 1e-3

    def contexts(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """X (n, 9), hidden features correlated with recorded ones."""
        d = RECORDED + HIDDEN
        kind = self.cell.features
        X = rng.normal(size=(n, d)) if kind == "normal" else rng.exponential(size=(n, d)) - 1.0
        if kind == "binary":
            X = (rng.random((n, d)) < 0.3).astype(float)
        X[:, RECORDED:] += 0.5 * X[:, :HIDDEN]
        return X

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Contexts, and what the old policy, a softmax of linear functions, takes there."""
        X = self.contexts(n, rng)
        return X, (X @ self.phi.T + rng.gumbel(size=(n, ARMS))).argmax(axis=1)

    def means(self, X: np.ndarray) -> np.ndarray:
        """(n, K) mean rewards."""
        return self.W[:, 0] + X @ self.W[:, 1:].T

    def taken(self, X: np.ndarray) -> np.ndarray:
        """(n,) what the judged policy takes."""
        return np.zeros(len(X), dtype=int) if self.cell.policy == "arm" else np.where(X[:, 0] > 0.0, 0, 1)

    def _arm_moments(self, a: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """``g_a``, ``Σ_e(a)``, ``ℓ_a`` and ``P_a`` from the reference rows."""
        X, arm = self.reference
        x_o, x_h = with_constant(X[:, :RECORDED]), X[:, RECORDED:]
        own, chosen = arm == a, (self.taken(X) == a).astype(float)
        x_o_own, x_h_own = x_o[own], x_h[own]
        B = regressed(x_o_own, x_h_own)
        e = x_h_own - x_o_own @ B
        ell = chosen @ x_o / len(X)
        return B.T @ ell - chosen @ x_h / len(X), e.T @ e / own.sum(), ell, float(own.mean())

    def truth(self) -> tuple[float, float, float]:
        """The gain of the policy, and the true ``reward_share`` and ``choice_share``."""
        X, arm = self.reference
        mu, at = self.means(X), np.arange(len(X))
        gain = float((mu[at, self.taken(X)] - mu[at, arm]).mean())
        x_o = with_constant(X[:, :RECORDED])
        explained = residual = weights = more = 0.0
        for a in range(ARMS):
            g, S, ell, P = self._arm_moments(a)
            w = self.W[a, 1 + RECORDED :]
            own = arm == a
            # what a regression on recorded features leaves; its curved part is theirs too
            r = mu[own, a]
            x_own = x_o[own]
            left = r - x_own @ regressed(x_own, r)
            explained += P * float(w @ S @ w)
            residual += P * (float(left @ left) / own.sum() + self.noise**2)
            if (self.taken(X) == a).any():
                R11 = x_own.T @ x_own / own.sum()
                weights += float(ell @ np.linalg.solve(P * R11, ell))
                more += float(g @ np.linalg.solve(P * S, g))
        odds = more / weights
        return gain, min(1.0, explained / residual), odds / (1.0 + odds)


@lru_cache(maxsize=2)
def world_of(cell: Cell) -> tuple[World, tuple[float, float, float]]:
    """The world of a cell, whatever its rows and answers, and what is true in it."""
    world = World(cell)
    return world, world.truth()


SCHEMA = sl.Schema.for_arrays(RECORDED + HIDDEN, RECORDED, ARMS)
LEVEL = 0.95


@dataclass(frozen=True)
class Drawn:
    """A log and answers: contexts with all features, arms, rewards."""

    X: np.ndarray
    arm: np.ndarray
    reward: np.ndarray
    asked: np.ndarray
    answer: np.ndarray


def drawn(cell: Cell, world: World, seed: int) -> Drawn:
    """The log and the answers of one seed."""
    rng = np.random.default_rng([seed, 2])
    X, arm = world.draw(cell.rows, rng)
    reward = world.means(X)[np.arange(len(X)), arm] + world.noise * rng.normal(size=len(X))
    return Drawn(X, arm, reward, *world.draw(cell.answers, rng))


def rule(columns: Any) -> np.ndarray:
    return np.where(columns["x0"] > 0.0, 0, 1)


def by_judge(cell: Cell, data: Drawn) -> tuple[Line, Line, Estimate]:
    """The lines of stages 1 and 2 and the short value, by ``sl.judge`` from tables."""
    log = {f"x{j}": data.X[:, j] for j in range(RECORDED)} | {"arm": data.arm, "reward": data.reward}
    asked = {f"x{j}": data.asked[:, j] for j in range(RECORDED + HIDDEN)} | {"arm": data.answer}
    policy: Any = 0 if cell.policy == "arm" else {"rule": rule}
    name = "always 0" if cell.policy == "arm" else "rule"
    verdict = sl.judge(log, SCHEMA, answers=asked, policies=policy, level=LEVEL)
    return verdict.line(name, "log"), verdict.line(name, "answers"), verdict.estimates[name]


_INNER = SCHEMA.of_recorded().with_arms(range(ARMS))
_FULL = SCHEMA.with_recorded([f"x{j}" for j in range(RECORDED + HIDDEN)]).of_recorded().with_arms(range(ARMS))


def by_parts(cell: Cell, data: Drawn) -> tuple[Line, Line, Estimate]:
    """The same by the parts of ``sl.judge`` that concern this policy: no tables read, no other policy judged."""
    x_o = with_constant(data.X[:, :RECORDED])
    owns = [data.arm == a for a in range(ARMS)]
    factors = np.stack([triangular_factor(np.column_stack([x_o[own], data.reward[own]])) for own in owns])
    population = Population(
        _INNER.recorded_names,
        {},
        tuple(range(ARMS)),
        np.array([own.sum() for own in owns]),
        np.stack([x_o[own].sum(axis=0) for own in owns]),
        factors,
        np.arange(RECORDED + 1),
    )
    residuals, sample, tally = Residuals(population), Sample(), Tally(population)
    fixed = cell.policy == "arm"
    taken = np.where(data.X[:, 0] > 0.0, 0, 1)
    kept = np.ones(len(x_o), dtype=bool)
    collect(residuals, sample, kept, (x_o, data.arm, data.reward), [] if fixed else [([tally], taken)])
    estimate = of_fixed(population, 0, residuals, sample) if fixed else of_tally(tally, residuals, sample)
    name = "always 0" if fixed else "rule"
    one = line_of_log(name, "asked", estimate, LEVEL, (None, None))
    chances = (data.answer[:, None] == np.arange(ARMS)).astype(float)
    answers = Answers(_FULL, with_constant(data.asked), chances, np.ones(len(data.asked)))
    told = ToldBy(answers, {id(population): _INNER}, {id(population): residuals.kurtosis}, LEVEL, None)
    policy = Requested(name, "arm", 0) if fixed else Requested(name, "function", rule)
    return one, line_of_answers(one, policy, estimate, told), estimate


def judged(cell: Cell, seed: int, by: Any = by_parts) -> dict[str, float]:
    """One log: which intervals hold the truth, and how wide they are."""
    world, (gain, reward_share, choice_share) = world_of(replace(cell, rows=0, answers=0))
    one, two, estimate = by(cell, drawn(cell, world, seed))
    # what a verdict says at other strengths follows from the same estimate
    low, high = estimate.bounds(LEVEL, math.sqrt(reward_share * choice_share / (1.0 - choice_share)))
    wide = np.diff(estimate.bounds(LEVEL, 1.0))[0] / 2  # reward_share = 1, choice_share = 0.5
    half = two.high - two.gain if two.known else math.nan
    return {
        "naive": float(one.low <= gain <= one.high),
        "log": float(low <= gain <= high),
        "told": float(two.known),
        "answers": float(two.low <= gain <= two.high) if two.known else math.nan,
        "half": half,
        "ratio": half / wide,
        "bias": two.hidden / wide if two.known else math.nan,
        "decided": float(two.sign != 0) if two.known else 0.0,
        "wrong sign": float(two.sign * gain < 0) if two.known else 0.0,
    }


def measure(cell: Cell, logs: int = LOGS) -> dict[str, Any]:
    """Coverage of stages 1 and 2 over ``logs`` logs."""
    found = [judged(cell, seed) for seed in range(logs)]
    mean = {name: float(np.nanmean([one[name] for one in found])) for name in found[0]}
    _, (_, reward_share, choice_share) = world_of(replace(cell, rows=0, answers=0))
    return {
        "features": cell.features,
        "hidden": str(cell.hidden),
        "sharpness": cell.sharpness,
        "policy": cell.policy,
        "rows": cell.rows,
        "answers": cell.answers,
        "true shares": f"{reward_share:.2f}, {choice_share:.2f}",
        "logs": logs,
        "naive": mean["naive"],
        "stage 1": mean["log"],
        "stage 2": mean["answers"],
        "told": mean["told"],
        "half-width": mean["half"],
        "of stage 1": mean["ratio"],
        "decided": mean["decided"],
        "wrong sign": mean["wrong sign"],
    }


# ------------------------------------------------------------------------------------------------- complete rows


@dataclass(frozen=True)
class CompleteCell:
    """Complete rows: features, rewards linear or curved, propensities known or estimated with the right model."""

    features: str = "normal"
    curved: bool = False
    known: bool = True
    rows: int = 1_000
    sharpness: float = 0.5


COMPLETE_CELLS = [
    *(
        CompleteCell(features, curved, known)
        for features in ("normal", "binary", "skewed")
        for curved in (False, True)
        for known in (True, False)
    ),
    CompleteCell("normal", True, True, 4_000, 1.0),
    CompleteCell("skewed", True, True, 4_000, 1.0),
    *(CompleteCell("lognormal", False, known, 1_500, 1.0) for known in (True, False)),
    CompleteCell("lognormal", False, True, 1_500, 2.0),
]
_PHI = np.random.default_rng(5).normal(size=(3, 5)) * 0.7
_W = np.random.default_rng(6).normal(size=(3, 5)) * 0.5
_NAMES = [f"x{j}" for j in range(5)]
_KNOWN = sl.Schema(_NAMES, _NAMES[:3], arms=range(3), propensity="chance")
_UNKNOWN = sl.Schema(_NAMES, _NAMES[:3], arms=range(3))


def complete_rows(cell: CompleteCell, n: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows, and the mean rewards (n, 3) of all arms."""
    X = rng.normal(size=(n, 5)) if cell.features == "normal" else rng.exponential(size=(n, 5)) - 1.0
    if cell.features == "binary":
        X = (rng.random((n, 5)) < 0.3).astype(float)
    elif cell.features == "lognormal":
        X = standard_lognormal(rng.normal(size=(n, 5)))
    mu = X @ _W.T
    if cell.curved:
        mu = mu + 0.5 * X[:, [0]] ** 2 * [1.0, -1.0, 0.5] + 0.4 * np.abs(X[:, [3]]) * [-1.0, 1.0, 0.0]
    logits = cell.sharpness * X @ _PHI.T
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    arm = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    at = np.arange(n)
    rows = {name: X[:, j] for j, name in enumerate(_NAMES)}
    return rows | {"arm": arm, "reward": mu[at, arm] + 0.5 * rng.normal(size=n), "chance": p[at, arm]}, mu


def full_rule(columns: Any) -> np.ndarray:
    return np.where(columns["x0"] + columns["x3"] > 0.0, 1, 2)


@lru_cache(maxsize=4)
def complete_truth(cell: CompleteCell) -> float:
    rows, mu = complete_rows(cell, 1_000_000, np.random.default_rng(1))
    return float((mu[np.arange(len(mu)), full_rule(rows)] - rows["reward"]).mean())


_LOG = sl.summarize_log(complete_rows(CompleteCell(), 500, np.random.default_rng(0))[0], _UNKNOWN)
_BASE = line_unknown("rule", "log", "asked", 0, "")


def complete_by_judge(rows: dict[str, np.ndarray], known: bool) -> Line:
    """The line of stage 3 by ``sl.judge``."""
    schema = _KNOWN if known else _UNKNOWN
    return sl.judge(_LOG, schema, complete=rows, policies={"rule": full_rule}, level=LEVEL).line("rule", "complete")


def complete_by_parts(rows: dict[str, np.ndarray], known: bool) -> Line:
    """The same without a log and other policies."""
    doubly = Doubly(read_complete(rows, _KNOWN if known else _UNKNOWN, range(3), "raise"))
    found = doubly.value([Requested("rule", "function", full_rule)], (_LOG.schema, (Population.of(_LOG),)))
    return line_of_complete(_BASE, doubly, found, LEVEL, None)[0]


def measure_complete(cell: CompleteCell, logs: int = LOGS) -> dict[str, Any]:
    """Coverage of stage 3, and its width where propensities are estimated against where they are known."""
    truth = complete_truth(replace(cell, known=True, rows=0))
    held, told, widths, against = [], [], [], []
    for seed in range(logs):
        rows, _ = complete_rows(cell, cell.rows, np.random.default_rng([seed, 7]))
        line = complete_by_parts(rows, cell.known)
        told.append(line.known)
        if line.known:
            held.append(line.low <= truth <= line.high)
            widths.append(line.high - line.low)
            if not cell.known and seed < 50:
                other = complete_by_parts(rows, True)
                against.append((line.high - line.low) / (other.high - other.low))
    return {
        "features": cell.features,
        "rewards": "curved" if cell.curved else "linear",
        "propensities": "known" if cell.known else "estimated",
        "sharpness": cell.sharpness,
        "rows": cell.rows,
        "logs": logs,
        "stage 3": float(np.mean(held)),
        "told": float(np.mean(told)),
        "half-width": float(np.mean(widths)) / 2,
        "of known": float(np.mean(against)) if against else None,
    }


# ------------------------------------------------------------------------------------------- what the log suggests


@dataclass(frozen=True)
class BestCell:
    """A log that hides nothing, and the policy that it suggests.

    Attributes:
        features: ``"normal"``, ``"skewed"`` or ``"lognormal"``.
        effect: standard deviation of the arms' weights; 0: all arms pay alike, and every gain is chance.
        arms: how many   sharpness: of the old policy, a softmax   rows: of the log.
    """

    features: str = "normal"
    effect: float = 0.0
    arms: int = 3
    sharpness: float = 0.5
    rows: int = 1_000


BEST_CELLS = [
    *(BestCell(features, effect) for features in ("normal", "skewed", "lognormal") for effect in (0.0, 0.1, 0.5)),
    *(BestCell("lognormal", effect, 3, 2.0, 2_000) for effect in (0.0, 0.1, 0.5)),
    *(BestCell("normal", effect, 10, 0.5, 4_000) for effect in (0.0, 0.1)),
    BestCell("normal", 0.0, 2, 0.5, 300),
]
_BEST_NAMES = [f"x{j}" for j in range(4)]


class BestWorld:
    """Four recorded features, and one that the log lacks and that does nothing."""

    def __init__(self, cell: BestCell) -> None:
        self.cell = cell
        rng = np.random.default_rng(4)
        self.W = rng.normal(size=(cell.arms, 1 + len(_BEST_NAMES))) * cell.effect
        self.phi = rng.normal(size=(cell.arms, len(_BEST_NAMES))) * cell.sharpness
        self.reference, _ = self.draw(100_000, np.random.default_rng(97))
        self.means = with_constant(self.reference) @ self.W.T
        self.old = float((self.chances(self.reference) * self.means).sum(axis=1).mean())

    def chances(self, X: np.ndarray) -> np.ndarray:
        """(n, K) of the old policy."""
        logits = X @ self.phi.T
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Contexts (n, 4) of mean 0 and variance 1, and the old policy's chances (n, K)."""
        X = rng.normal(size=(n, len(_BEST_NAMES)))
        if self.cell.features == "skewed":
            X = rng.exponential(size=X.shape) - 1.0
        elif self.cell.features == "lognormal":
            X = standard_lognormal(X)
        return X, self.chances(X)

    def log(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Complete rows with propensities."""
        X, p = self.draw(self.cell.rows, rng)
        at = np.arange(len(X))
        arm = (rng.random(len(X))[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, self.cell.arms - 1)
        reward = (with_constant(X) @ self.W.T)[at, arm] + 0.5 * rng.normal(size=len(X))
        rows = {name: X[:, j] for j, name in enumerate(_BEST_NAMES)}
        return rows | {"hidden": rng.normal(size=len(X)), "arm": arm, "reward": reward, "chance": p[at, arm]}

    def gain(self, estimate: Estimate) -> float:
        """What the choices of the two halves gain in truth, each counting by the rows that it is valued on."""
        (first, _), (second, _) = estimate.parts
        X, at, found = with_constant(self.reference), np.arange(len(self.reference)), 0.0
        for own, other in ((first, second), (second, first)):
            taken, _ = suggested(other, own, X)
            found += own.n_rows / estimate.rows * (float(self.means[at, taken].mean()) - self.old)
        return found


def measure_best(cell: BestCell, logs: int = LOGS) -> dict[str, Any]:
    """Coverage of ``"best"`` from the log alone, and from the same rows given as complete ones."""
    world = BestWorld(cell)
    names = [*_BEST_NAMES, "hidden"]
    schema = sl.Schema(names, _BEST_NAMES, arms=range(cell.arms), propensity="chance")
    found: dict[str, list[tuple[float, float]]] = {"log": [], "complete": []}
    for seed in range(logs):
        log = world.log(np.random.default_rng([seed, 13]))
        verdict = sl.judge(log, schema, complete=log, level=LEVEL)
        gain = world.gain(verdict.estimates["best"])
        for stage, held in found.items():
            line = verdict.line("best", stage)
            if line.known:
                held.append((line.low <= gain <= line.high, ((line.gain - gain) / line.error) ** 2))
    row: dict[str, Any] = {
        "features": cell.features,
        "effect": cell.effect,
        "arms": cell.arms,
        "sharpness": cell.sharpness,
        "rows": cell.rows,
        "logs": logs,
    }
    for stage, held in found.items():
        row[f"{stage}: told"] = len(held) / logs
        row[f"{stage}: holds"], row[f"{stage}: z²"] = map(float, np.mean(held, axis=0)) if held else (None, None)
    return row


# ------------------------------------------------------------------------------------------------ looking all the time


@dataclass(frozen=True)
class SequenceCell:
    """Two routes without a difference, looked at after every unit from the first look on."""

    rewards: str = "normal"
    share: float = 0.5
    drift: bool = False
    units: int = 20_000


SEQUENCE_CELLS = [
    *(SequenceCell(rewards, share) for rewards in ("normal", "binary", "skewed") for share in (0.5, 0.1)),
    SequenceCell("normal", 0.1, drift=True),
    SequenceCell("binary", 0.5, drift=True),
]


def scores_of(treated: np.ndarray, share: float, reward: np.ndarray) -> np.ndarray:
    """``ψ`` of every unit as ``Comparison`` computes it, at once."""
    past = {}
    for route in (True, False):
        there = treated == route
        total = np.concatenate([[0.0], np.cumsum(np.where(there, reward, 0.0))[:-1]])
        count = np.concatenate([[0], np.cumsum(there)[:-1]])
        past[route] = (total / np.maximum(count, 1), count > 0)
    (new, new_known), (old, old_known) = past[True], past[False]
    either = np.where(old_known, old, new)
    m = (1.0 - share) * np.where(new_known, new, either) + share * np.where(old_known, old, either)
    m = np.where(new_known | old_known, m, 0.0)
    return np.where(treated, 1.0 / share, -1.0 / (1.0 - share)) * (reward - m)


def ever_wrong(score: np.ndarray, treated: np.ndarray, alpha: float = 0.025, target: float = 10_000.0) -> bool:
    """Whether an asymptotic sequence ever excludes 0 once it may speak; as ``Comparison(AsymptoticSequence())``."""
    # more than 100 units set the scale while all are equal
    first = max(100, int(np.argmax(score != score[0])) + 1)
    scale = float(score[:first].var())
    later = score[first:]
    t = np.arange(1, len(later) + 1)
    mean = np.cumsum(later) / t
    before = np.concatenate([[0.0], mean[:-1]])
    squares = (later - before) ** 2
    V = np.cumsum(squares)
    width = asymptotic_width(t, V, mixing_variance(alpha, scale * target), alpha)
    on_new = np.cumsum(treated)[first:]
    speaks = (t >= 1_000) & (on_new >= 50) & (t + first - on_new >= 50)
    speaks &= np.maximum.accumulate(squares) <= LARGEST_SHARE * V
    return bool((speaks & (np.abs(mean) > width)).any())


def measure_sequence(cell: SequenceCell, logs: int = LOGS) -> dict[str, Any]:
    """How often a difference is found where there is none."""
    wrong = 0
    for seed in range(logs):
        rng = np.random.default_rng([seed, 11])
        n = cell.units
        base = {
            "normal": lambda r, n: r.normal(1.0, 1.0, n),
            "binary": lambda r, n: (r.random(n) < 0.05).astype(float),
            "skewed": lambda r, n: np.exp(1.2 * r.normal(size=n)),
        }[cell.rewards](rng, n)
        reward = base + (2.0 * np.sin(np.arange(n) / 1_500.0) if cell.drift else 0.0)
        treated = rng.random(n) < cell.share
        wrong += ever_wrong(scores_of(treated, cell.share, reward), treated)
    return {
        "rewards": cell.rewards,
        "share": cell.share,
        "drift": cell.drift,
        "units": cell.units,
        "runs": logs,
        "false verdicts": wrong / logs,
    }


# ------------------------------------------------------------------------------------------------------------ widths

BASE_WORLDS = 20


def measure_widths(sharpness: float, logs: int = LOGS) -> dict[str, Any]:
    """Half-widths of stage 2 over those of stage 1 at ``reward_share=1, choice_share=0.5``, over worlds."""
    cells = [
        Cell(seed=seed, policy=policy, sharpness=sharpness, reference=200_000)
        for seed in range(BASE_WORLDS)
        for policy in ("arm", "rule")
    ]
    each = max(2, logs // (50 * len(cells)))
    found = [[judged(cell, seed) for seed in range(each)] for cell in cells]
    ratios = np.array([np.nanmean([one["ratio"] for one in logs_]) for logs_ in found])
    return {
        "sharpness": sharpness,
        "worlds": BASE_WORLDS,
        "logs": each * len(cells),
        "of stage 1": float(ratios.mean()),
        "least": float(ratios.min()),
        "most": float(ratios.max()),
        "within 0.65": float((ratios <= 0.65).mean()),
        "of it bias": float(np.nanmean([one["bias"] for logs_ in found for one in logs_])),
        "naive": float(np.mean([one["naive"] for logs_ in found for one in logs_])),
        "stage 2": float(np.nanmean([one["answers"] for logs_ in found for one in logs_])),
    }


GRIDS: dict[str, tuple[list[Any], Any]] = {
    "answers": (CELLS, measure),
    "complete": (COMPLETE_CELLS, measure_complete),
    "best": (BEST_CELLS, measure_best),
    "sequences": (SEQUENCE_CELLS, measure_sequence),
    "widths": ([0.15, 0.3, 0.45, 0.6], measure_widths),
}


def show(row: dict[str, Any]) -> str:
    return " | ".join("–" if v is None else f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict", description=__doc__)
    parser.add_argument("--logs", type=int, default=LOGS, help="logs in each cell")
    parser.add_argument("--stage", choices=sorted(GRIDS), action="append", help="which grid; may be repeated")
    given = parser.parse_args(arguments)
    for stage in given.stage or GRIDS:
        cells, measured = GRIDS[stage]
        for i, cell in enumerate(cells):
            started = time.perf_counter()
            row = measured(cell, given.logs)
            if i == 0:
                print("| " + " | ".join(row) + " |\n|" + "---|" * len(row))
            print(f"| {show(row)} |", flush=True)
            print(f"{stage} {i + 1}/{len(cells)}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
