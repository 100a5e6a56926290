"""What logs, answers and exact constraints tell the automatic settings: units of features and rewards, noise, evidence.

``Automatic`` (``learners.automatic``) learns from these and from rounds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sidelight.hidden.protocol import CompleteEstimator
from sidelight.hidden.sums import AnswerSums
from sidelight.linalg import Array, orthogonal, product
from sidelight.logs.summary import LogSummary
from sidelight.side.coordinates import SAME, Tally, Units
from sidelight.side.prior import reference_variance

__all__ = ["NOISE_FLOOR", "add_answers", "add_log", "add_regression", "constraint_evidence", "log_variance"]

#: the noise's variance is at least this part of the rewards' (``Units.reward_square``; of a log ``reward_variance``).
#: Precisions are in units of it, so that rounding errors beside a prior are as many times larger: eight digits are left
#: of sixteen, less those of the number of a log's rows
NOISE_FLOOR = 1e-8
#: how much more a hidden feature is guessed to vary than recorded ones predict, and how many rows a guess counts for
GUESSED, GUESSED_ROWS = 4.0, 3.0
#: an exact constraint is evidence of infinite precision; this multiple of the prior's precision stays invertible
CERTAIN = 1e6


def log_variance(summary: LogSummary | None) -> float | None:
    """``σ²`` as a log has it: what its regressions leave; None where its rewards tell no unit, all of them zero."""
    if summary is None or not float(summary.reward_squares.sum()) > 0.0:
        return None
    return max(float(summary.pooled_residual_variance), NOISE_FLOOR * summary.reward_variance)


def add_log(tally: Tally, summary: LogSummary, positions: NDArray[np.int64]) -> None:
    """Add a log's rows to a tally.  positions: (L,) where its recorded features stand"""
    rows = float(summary.n_rows)
    sums = (summary.means * summary.counts[:, None]).sum(axis=0)
    tally.add(positions, rows, sums, summary.feature_squares)
    # NaN only in old files without an intercept, whose learners do not use it
    total = float(np.nan_to_num(summary.reward_sums).sum())
    tally.add_rewards(rows, total, float(summary.reward_squares.sum()))


def add_answers(tally: Tally, answers: AnswerSums | None, positions: NDArray[np.int64]) -> None:
    """Add the contexts that were answered, as far as the log does not record them.

    positions: (d,) where all features stand, recorded first
    """
    if answers is not None:
        L = answers.L
        squares = np.cumsum(np.einsum("aii->ai", answers.S), axis=0)[-1, L:]
        tally.add(positions[L:], float(answers.counts.sum()), np.cumsum(answers.sums, axis=0)[-1, L:], squares)


def add_regression(tally: Tally, hidden: CompleteEstimator, positions: NDArray[np.int64]) -> None:
    """Add what an estimator that keeps no answers says about the hidden features: a few rows, soon outnumbered.

    Their means are those of ``x_oᵀB_a``, and their variances ``GUESSED`` times its.

    positions: (d,) where all features stand, recorded first
    """
    summary, B = hidden.summary, hidden.regression()
    L, shares = summary.n_recorded, summary.shares
    if L == 0 or B.shape[2] == 0 or summary.n_rows == 0:
        return
    means = np.cumsum(shares[:, None] * product(summary.means[:, None, :], B)[:, 0, :], axis=0)[-1]
    squares = (B * product(summary.second_moments, B)).sum(axis=1)
    second = np.cumsum(shares[:, None] * squares, axis=0)[-1]
    spread = np.maximum(second - means * means, 0.0)
    rows = np.where(spread > SAME * second, GUESSED_ROWS, 0.0)
    tally.rows[positions[L:]] += rows
    tally.sums[positions[L:]] += rows * means
    tally.squares[positions[L:]] += rows * (means * means + GUESSED * spread)


def constraint_evidence(M: Array, anchor: Array, units: Units, of_log: bool) -> tuple[Array, Array]:
    """``J`` (d, d) and ``h`` (d,) of an exact constraint ``Mw = M·anchor``: ``CERTAIN`` times what a prior would say.

    They are about ``v``, in the features' own units: so much evidence in the user's units would leave no digits of
    what rounds say once it is centred.

    Args:
        M: (L, d)  rows that span what is constrained.
        anchor: (d,)  a solution.
        units: of features and rewards.
        of_log: whether ``M = [I, B]`` came from a log.  Then every direction that is constrained counts alike, whatever
            the size of ``B``, of which a few answers may make anything.  Else every row does.
    """
    certain, rows = CERTAIN / reference_variance(units, M.shape[1]), units.rows_of(M)
    silent = ~units.known
    if of_log:
        recorded = units.first(len(M))
        # x_o·(Mw) = z_o·(rows·v): [I, B] in the features' own units, so that its rows are independent
        rows = recorded.inverse_rows(rows)[recorded.known]
        rows[:, silent] = 0.0
        Q = orthogonal(rows.T)
        J = certain * product(Q, Q.T)
    else:
        sizes = np.square(M / units.scales).sum(axis=1)
        weighted = np.where(sizes > 0.0, certain / np.where(sizes > 0.0, sizes, 1.0), 0.0)[:, None] * rows
        J = product(rows.T, weighted)
    J[silent], J[:, silent] = 0.0, 0.0
    return J, product(J, units.scaled_weights(anchor))
