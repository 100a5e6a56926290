"""Stage 3, with complete rows: what is said of a policy, from its doubly robust scores (``judging.doubly_robust``).

A line with the value and its interval; or why the rows cannot tell, and how many rounds with random arms could.
"""

from __future__ import annotations

import math

import numpy as np

from sidelight.drawing.intervals import number
from sidelight.judging.doubly_robust import Doubly, PolicyScores, Valuation
from sidelight.judging.lines import Line, Overlap, line_unknown
from sidelight.judging.sensitivity import level_of_each, quantile

__all__ = ["LEAST_MATCHED", "MOST_NEVER", "line_of_complete"]

#: Least effective number of rows in which the logged arm is the policy's; with fewer, no value is given.
LEAST_MATCHED = 30
#: The share of rows that is accepted in which the policy's arm has a chance below ``NEVER``.
MOST_NEVER = 0.01
_CONDITIONAL = "conditional on the model of the old policy"


def line_of_complete(
    base: Line, doubly: Doubly, found: Valuation, level: float, against: tuple[float, float] | None
) -> tuple[Line, Overlap | None]:
    """Stage 3 for one policy.

    Args:
        base: another line of the same policy: its name, role, arm.
        doubly: the fitted scores.
        found: the policies' scores on these rows.
        level: of the interval.
        against: the old policy's value and its variance if the rows are not its own (a pilot); ``None`` if they are.

    Returns:
        The line, and how far the rows overlap with the policy if that can be told.
    """
    name, n, own = base.policy, found.rows, found.scores[base.policy]

    def unknown(why: str) -> Line:
        return line_unknown(name, "complete", base.role, n, why, base.arm, base.together)

    if own.problem is not None:
        return unknown(own.problem), None
    overlap = overlap_of(name, own, doubly)
    if overlap.problem:
        return unknown(f"{overlap.problem}. {rounds_needed(doubly, found, level)}"), overlap
    value = found.value(name)
    if against is None:
        gain, variance = found.gain(name)
    else:
        gain, variance = value - against[0], found.variance(name) + against[1]
    if not doubly.known and n > doubly.fitted.sampled:
        # ê is fitted to a sample of the rows: its error adds at most the variance of the mean of w(r − μ̂) over it
        variance += float(own.corrections.sum()) / n / doubly.fitted.sampled
    error = math.sqrt(variance)
    half = quantile(level_of_each(level, base.together), overlap.effective - 1.0) * error
    note = "" if doubly.known else _CONDITIONAL
    line = Line(
        name,
        "complete",
        value,
        gain,
        gain - half,
        gain + half,
        None,
        error,
        0.0,
        n,
        note,
        base.role,
        base.arm,
        together=base.together,
    )
    return line, overlap


def overlap_of(name: str, own: PolicyScores, doubly: Doubly) -> Overlap:
    """Whether the rows show what the policy wants to do."""
    arms, n = doubly.rows.arms, len(doubly.rows)
    effective = own.effective
    smallest = (1.0 / own.largest if own.matched else 0.0) if doubly.known else own.smallest
    problem = ""
    if doubly.known:
        worst, reached = _least_reached(own, n)
        wanted = max(float(own.wanted[worst]), 1.0)
        spread = max(float(own.squares[worst]) / wanted - (float(own.found[worst]) / wanted) ** 2, 0.0)
        if reached < 1.0 - max(4.0 * math.sqrt(spread / wanted), 0.05):
            problem = (
                f"these rows cannot tell, because the old policy never tries arm {arms[worst]!r} in about "
                f"{1 - reached:.0%} of the contexts in which this policy takes it"
            )
    else:
        never = np.maximum(own.never, own.tried.never())
        if never.sum() > MOST_NEVER * n:
            worst = int(never.argmax())
            column = doubly.fitted.decisive(worst)
            problem = (
                f"these rows cannot tell, because the old policy all but never tries arm {arms[worst]!r} in "
                f"{never.sum() / n:.0%} of the contexts; {column!r} tells most about which arm is taken"
            )
    if not problem and effective < LEAST_MATCHED:
        problem = (
            f"these rows cannot tell, because in only {own.matched:,} of {n:,} the old policy did what this one would "
            f"(worth {effective:.0f} rows of equal weight; {LEAST_MATCHED} are needed)"
        )
    return Overlap(name, n, own.matched, effective, smallest, problem)


def _least_reached(own: PolicyScores, n: int) -> tuple[int, float]:
    """The arm whose weights add up to the smallest part of the contexts in which the policy takes it."""
    reached = np.where(own.wanted > 0, own.found / np.maximum(own.wanted, 1.0), np.inf)
    # arms that the policy rarely takes are ignored
    reached[own.wanted < 0.02 * n] = np.inf
    worst = int(reached.argmin())
    return worst, float(reached[worst])


def rounds_needed(doubly: Doubly, found: Valuation, level: float) -> str:
    """A sentence: how many rounds with arms drawn at random would decide, and at which share of the traffic.

    With each of ``K`` arms drawn with chance ``1/K`` a score varies by about ``K s² + Var μ̂``.  The gain to be
    detected is the one that the fit suggests, at least a tenth of the standard deviation of rewards.
    """
    K, n = len(doubly.rows.arms), found.rows
    reward = len(found.names)
    deviation = math.sqrt(float(found.products[reward, reward]) / n)
    suggested = abs(found.best / n - float(found.mean[reward]))
    target = max(suggested, 0.1 * deviation) or 1.0
    spread = K * found.residual + found.mu_squares / (n * K) - (found.mu / (n * K)) ** 2
    rounds = max(math.ceil((quantile(level, 100.0) / target) ** 2 * spread), 100)
    rounds = round(rounds, 1 - len(str(rounds)))  # one digit: more would suggest a precision that is not there
    return (
        f"About {rounds:,} rounds with an arm drawn at random (each of {K} with chance 1/{K}) would tell a gain of "
        f"{number(target)}: at a share of 10% of the traffic, {10 * rounds:,} rounds"
    )
