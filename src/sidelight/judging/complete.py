"""Stage 3, with complete rows: the doubly robust value of any policy, of all features or a learner's.

Nothing is hidden in a row that has every feature.  The score of a row under policy ``π`` is

    μ̂(x, π(x)) + 1{a = π(x)} (r − μ̂(x, a))/e(a|x),

``μ̂`` and, if it is not known, ``e`` fitted on other rows (five folds).  With a known ``e`` its mean is right whatever
``μ̂`` is.  With an estimated one it is right if the model of the old policy is, and the verdict says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

from sidelight.drawing.intervals import number
from sidelight.judging.complete_rows import CompleteRows
from sidelight.judging.lines import Line, Overlap, line_unknown
from sidelight.judging.sensitivity import quantile
from sidelight.linalg import Array

__all__ = ["Doubly", "best_fixed", "line_of_complete", "softmax_regression"]

#: Rows in which the logged arm is the policy's, in units of rows of equal weight, below which nothing is said.
LEAST_MATCHED = 30
#: A chance below this counts as never; the share of rows with such a chance that is accepted.
NEVER, MOST_NEVER = 0.01, 0.01

_FOLDS = 5
_CONDITIONAL = "conditional on the model of the old policy"


@dataclass
class Doubly:
    """Doubly robust scores of complete rows, whatever the policy.

    Args:
        rows: the complete rows.

    Attributes:
        mu: (n, K) ``μ̂(x, a)`` of each row by the folds that it is not in.
        chance: (n, K) ``ê(a|x)`` likewise; for known propensities only the logged arm's column counts.
        known: whether propensities were logged.
    """

    rows: CompleteRows
    mu: Array = field(init=False)
    chance: Array = field(init=False)
    known: bool = field(init=False)

    def __post_init__(self) -> None:
        rows = self.rows
        n, K = len(rows.codes), len(rows.arms)
        Z = standardized(rows.X)
        curved = with_squares(Z, K)
        self.known = rows.propensities is not None
        self.mu, self.chance = np.zeros((n, K)), np.full((n, K), np.nan)
        fold = folds(n)
        for k in range(_FOLDS):
            there, rest = fold == k, fold != k
            self.mu[there] = curved[there] @ ridge_by_arm(curved[rest], rows.codes[rest], rows.rewards[rest], K).T
            if not self.known:
                self.chance[there] = softmax(Z[there] @ softmax_regression(Z[rest], rows.codes[rest], K).T)
        if rows.propensities is not None:
            self.chance[np.arange(n), rows.codes] = rows.propensities

    def scores(self, taken: np.ndarray) -> tuple[Array, Array]:
        """Scores (n,) of a policy that takes ``taken`` (n,), and the weights ``1{a = π(x)}/e(a|x)``."""
        rows, at = self.rows, np.arange(len(taken))
        matched = rows.codes == taken
        weights = np.where(matched, 1.0 / np.maximum(self.chance[at, rows.codes], 1e-3), 0.0)
        return self.mu[at, taken] + weights * (rows.rewards - self.mu[at, rows.codes]), weights

    @property
    def residual_variance(self) -> float:
        """Mean squared error of ``μ̂`` at the logged arm."""
        rows = self.rows
        return float(np.mean((rows.rewards - self.mu[np.arange(len(rows.codes)), rows.codes]) ** 2))


def line_of_complete(
    name: str, role: str, taken: np.ndarray, doubly: Doubly, level: float, against: tuple[float, float] | None
) -> tuple[Line, Overlap, Array]:
    """Stage 3 for one policy.

    Args:
        name: what the verdict calls it.
        role: see ``Line``.
        taken: (n,) what it takes in the complete rows.
        doubly: the fitted scores.
        level: of the interval.
        against: the old policy's value and its variance if the rows are not its own (a pilot); ``None`` if they are.

    Returns:
        The line, how far the rows overlap with the policy, and the scores (n,) for comparisons of policies.
    """
    rows, n = doubly.rows, len(taken)
    scores, weights = doubly.scores(taken)
    overlap = overlap_of(name, taken, weights, doubly)
    if overlap.problem:
        needed = rounds_needed(doubly, level)
        return line_unknown(name, "complete", role, n, f"{overlap.problem}. {needed}"), overlap, scores
    value = float(scores.mean())
    if against is None:
        differences, extra, gain = scores - rows.rewards, 0.0, value - float(rows.rewards.mean())
    else:
        differences, extra, gain = scores, against[1], value - against[0]
    error = math.sqrt(float(differences.var(ddof=1)) / n + extra)
    half = quantile(level, overlap.effective - 1.0) * error
    note = "" if doubly.known else _CONDITIONAL
    line = Line(name, "complete", value, gain, gain - half, gain + half, None, error, 0.0, n, note, role)
    return line, overlap, scores


def overlap_of(name: str, taken: np.ndarray, weights: Array, doubly: Doubly) -> Overlap:
    """Whether the rows show what the policy wants to do."""
    rows, n = doubly.rows, len(taken)
    matched = int((weights > 0).sum())
    effective = float(weights.sum() ** 2 / (weights @ weights)) if matched else 0.0
    smallest = float(1.0 / weights.max()) if matched else 0.0
    worst, reached = _least_reached(taken, weights, len(rows.arms))
    problem = ""
    if doubly.known:
        wanted = taken == worst
        error = float(weights[wanted].std()) / math.sqrt(max(int(wanted.sum()), 1))
        if reached < 1.0 - max(4.0 * error, 0.05):
            problem = (
                f"these rows cannot tell, because the old policy never tries arm {rows.arms[worst]!r} in about "
                f"{1 - reached:.0%} of the contexts in which this policy takes it"
            )
    else:
        wanted_chance = doubly.chance[np.arange(n), taken]
        smallest = float(wanted_chance.min())
        never = wanted_chance < NEVER
        if never.mean() > MOST_NEVER:
            arm = rows.arms[int(np.bincount(taken[never], minlength=len(rows.arms)).argmax())]
            problem = (
                f"these rows cannot tell, because the old policy all but never tries arm {arm!r} in {never.mean():.0%} "
                "of the contexts"
            )
    if not problem and effective < LEAST_MATCHED:
        problem = (
            f"these rows cannot tell, because in only {matched:,} of {n:,} the old policy did what this one would "
            f"(worth {effective:.0f} rows of equal weight; {LEAST_MATCHED} are needed)"
        )
    return Overlap(name, n, matched, effective, smallest, problem)


def _least_reached(taken: np.ndarray, weights: Array, K: int) -> tuple[int, float]:
    """The arm whose weights add up to the smallest part of the contexts in which the policy takes it."""
    wanted = np.bincount(taken, minlength=K).astype(float)
    found = np.bincount(taken, weights=weights, minlength=K)
    reached = np.where(wanted > 0, found / np.maximum(wanted, 1.0), np.inf)
    # an arm that is hardly wanted decides nothing
    reached[wanted < 0.02 * len(taken)] = np.inf
    worst = int(reached.argmin())
    return worst, float(reached[worst])


def rounds_needed(doubly: Doubly, level: float) -> str:
    """How many rounds with arms drawn at random would tell, and at which share of the traffic.

    With each of ``K`` arms drawn with chance ``1/K`` a score varies by about ``K s² + Var μ̂``.  The gain to be told is
    the one that the fit suggests, at least a tenth of the standard deviation of rewards.
    """
    K, s2 = len(doubly.rows.arms), doubly.residual_variance
    deviation = float(doubly.rows.rewards.std())
    suggested = abs(float(doubly.mu.max(axis=1).mean()) - float(doubly.rows.rewards.mean()))
    target = max(suggested, 0.1 * deviation) or 1.0
    spread = K * s2 + float(doubly.mu.var())
    rounds = max(math.ceil((quantile(level, 100.0) / target) ** 2 * spread), 100)
    rounds = round(rounds, 1 - len(str(rounds))) if rounds >= 100 else rounds
    return (
        f"About {rounds:,} rounds with an arm drawn at random (each of {K} with chance 1/{K}) would tell a gain of "
        f"{number(target)}: at a share of 10% of the traffic, {10 * rounds:,} rounds"
    )


# --------------------------------------------------------------------------------------------------- fitted on folds


def folds(n: int) -> np.ndarray:
    """(n,) the fold of each row, by a fixed permutation."""
    return np.asarray(np.random.default_rng(20_260_101).permutation(n) % _FOLDS)


def standardized(X: Array) -> Array:
    """(n, p) a constant, and the columns of X that vary, at mean 0 and deviation 1."""
    deviation = X.std(axis=0)
    varies = deviation > 1e-9 * np.sqrt(np.mean(X * X, axis=0))
    return np.column_stack([np.ones(len(X)), (X[:, varies] - X[:, varies].mean(axis=0)) / deviation[varies]])


def with_squares(Z: Array, K: int) -> Array:
    """Z with the squares of columns that have more than two values, if there are 20 rows for each coefficient."""
    squares = np.square(Z[:, 1:])
    bends = squares.std(axis=0) > 1e-6
    # the square of a column with two values is a linear function of it
    for j in np.flatnonzero(bends).tolist():
        bends[j] = len(np.unique(Z[:2_000, 1 + j])) > 2
    if len(Z) < 20 * K * (Z.shape[1] + int(bends.sum())):
        return Z
    added = squares[:, bends]
    return np.column_stack([Z, (added - added.mean(axis=0)) / added.std(axis=0)])


def ridge_by_arm(Z: Array, codes: np.ndarray, rewards: Array, K: int, penalty: float = 1.0) -> Array:
    """(K, p) ridge regressions, each arm pulled towards the one over all arms."""
    p = Z.shape[1]
    pull = penalty * np.eye(p)
    pooled = np.linalg.solve(Z.T @ Z + pull, Z.T @ rewards)
    out = np.tile(pooled, (K, 1))
    for a in range(K):
        own = Z[codes == a]
        if len(own):
            out[a] += np.linalg.solve(own.T @ own + pull, own.T @ (rewards[codes == a] - own @ pooled))
    return out


def softmax(logits: Array) -> Array:
    """Rows of probabilities."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def softmax_regression(Z: Array, codes: np.ndarray, K: int, penalty: float = 1.0) -> Array:
    """(K, p) multinomial logistic regression of the arm on Z (n, p), constant first, with a weak ridge penalty."""
    n, p = Z.shape
    observed = np.zeros((n, K))
    observed[np.arange(n), codes] = 1.0
    pull = np.full((K, p), penalty / n)
    pull[:, 0] = 1e-6 / n

    def loss(flat: Array) -> tuple[float, Array]:
        W = flat.reshape(K, p)
        logits = Z @ W.T
        top = logits.max(axis=1, keepdims=True)
        log_sum = top[:, 0] + np.log(np.exp(logits - top).sum(axis=1))
        value = float(np.mean(log_sum - logits[np.arange(n), codes]) + 0.5 * (pull * W * W).sum())
        gradient = (np.exp(logits - log_sum[:, None]) - observed).T @ Z / n + pull * W
        return value, gradient.ravel()

    start = np.zeros((K, p))
    start[:, 0] = np.log(np.maximum(np.bincount(codes, minlength=K), 0.5) / n)
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return np.asarray(found.x.reshape(K, p))


def best_fixed(doubly: Doubly, known: Sequence[bool]) -> int | None:
    """Position of the arm with the largest doubly robust value among those that can be told."""
    values = [
        float(doubly.scores(np.full(len(doubly.rows.codes), a))[0].mean()) if there else -math.inf
        for a, there in enumerate(known)
    ]
    return int(np.argmax(values)) if any(known) else None
