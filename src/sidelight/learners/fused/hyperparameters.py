"""What all logs of a fused learner together say about its units, its noise and its prior."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sidelight.learners.log_facts import add_answers, add_log, add_regression
from sidelight.linalg import Array, eigenvalues
from sidelight.linalg import log as natural_log
from sidelight.side.coordinates import Tally, Units
from sidelight.side.prior import Prior
from sidelight.side.spread import LogSpread, SpreadLikelihood

if TYPE_CHECKING:
    from sidelight.learners.fused.log import FusedLog

__all__ = [
    "add_logs",
    "likeliest_noise",
    "most_gain",
    "most_noise",
    "preferences_of_logs",
    "smaller_noises",
    "spread_of_logs",
]

#: parts of the least residual variance of the logs that compete with a noise above it, and by how much the logarithm of
#: the likelihood must be larger for one of them to be taken
SMALLER_NOISES, SURELY = (1.0, 0.25, 0.0625), 3.0
#: how many standard deviations of its error that residual variance must be below a noise for them to differ at all
DEVIATIONS = 4.0


def add_logs(tally: Tally, logs: Sequence[FusedLog]) -> None:
    """Add what logs and answers have seen of every feature, and the logs' rewards, to a tally."""
    for log in logs:
        add_log(tally, log.hidden.summary, log.order[: log.L])
        if log.hidden.sums is None:
            add_regression(tally, log.hidden, log.order)
        else:
            add_answers(tally, log.hidden.sums, log.order)


def most_noise(logs: Sequence[FusedLog], first: float, units: Units) -> float:
    """What the logs left unexplained of the arm of which they left least: all of it bounds ``σ²`` from above.

    The mean over arms would take the hidden features' doing for noise, and weights that are shrunk for its sake would
    leave residuals that confirm it.

    Args:
        logs: the logs.
        first: ``σ²`` before any round.
        units: of features and rewards; the rewards' variance is all that is known where the logs' rewards are zero.
    """
    told = any(float(log.hidden.summary.reward_squares.sum()) > 0.0 for log in logs)
    if not told:
        return units.reward_variance
    least = [float(log.s2[log.well_told()].min()) for log in logs if np.count_nonzero(log.well_told()) > 1]
    return min([first, *least])


def smaller_noises(logs: Sequence[FusedLog], variance: float, most: float, least: float = 0.0) -> list[float]:
    """The parts of the least residual variance of the logs that compete with a noise above it.

    Not all of it where it may be below the noise by its own error: the least of many arms is, by some deviations.

    Args:
        logs: the logs.
        variance: ``σ²``, from the rounds.
        most: ``most_noise``.
        least: that a noise can be.
    """
    told = [(float(log.s2[a]), float(log.counts[a] - log.L)) for log in logs for a in np.flatnonzero(log.well_told())]
    error = float(np.sqrt(2.0 / min(told)[1])) if told else 0.0
    parts = [part for part in SMALLER_NOISES if part * most >= least]
    return [part * most for part in parts if part * most * (1.0 + DEVIATIONS * error) < variance]


def likeliest_noise(
    likelihood: Callable[[Array], tuple[float, Callable[[], Prior]]],
    current: tuple[Array, float],
    smaller_than_it: Sequence[float],
    rounds: tuple[Array, Array],
) -> tuple[Array, Prior] | None:
    """The smaller noise that is surely more likely than the current one, with its prior; None if none is.

    A search is left out where it cannot succeed (``most_gain``).  The current noise has a prior already, which was
    searched for nearby; it is searched for far and wide only once a smaller noise is more likely than with that one.

    Args:
        likelihood: log likelihood of a noise (K,) with the prior that is most likely at it, searched far and wide, and
            how that prior is made.
        current: (K,)  ``σ_a²`` as estimated, and its log likelihood with the prior that it has.
        smaller_than_it: ``σ²`` of all arms that compete with it, ``smaller_noises``.
        rounds: (K,)  of each arm, and (K,) what its own least squares leave of them (``least_residuals``).
    """
    variances, value = current
    found, best, sure = None, value + SURELY, False
    for variance in smaller_than_it:
        smaller = np.full(len(variances), variance)
        # the bound is one for noises that are smaller in every arm that was played
        below = (smaller <= variances) | (rounds[0] == 0.0)
        if below.all() and most_gain(variances, smaller, *rounds) <= SURELY:
            continue
        value, prior = likelihood(smaller)
        if value > best and not sure:
            best, sure = max(best, likelihood(variances)[0] + SURELY), True
        if value > best:
            found, best = (smaller, prior), value
    return None if found is None else (found[0], found[1]())


def most_gain(larger: Array, smaller: Array, rounds: Array, residuals: Array) -> float:
    """The most that the log likelihood of the rounds can gain by a smaller noise, whatever the prior.

    At a fixed prior the derivative of ``log p`` by ``1/σ²`` is ``½(nσ² − E‖r − Xw‖²)``, where the expectation is at
    least what least squares leave.  So from ``σ²`` to ``σ'²`` every prior gains at most
    ``½[n log(σ²/σ'²) − R(1/σ'² − 1/σ²)]``, and so does the best one, where ``σ'² ≤ σ²``.

    Args:
        larger: (K,)  ``σ_a²``.
        smaller: (K,)  ``σ'_a²``.
        rounds: (K,)  ``n``.
        residuals: (K,)  at most ``R``, the squared residuals of each arm's own least squares.
    """
    gains = rounds * natural_log(larger / smaller) - residuals * (1.0 / smaller - 1.0 / larger)
    return 0.5 * float(gains.sum())


def spread_of_logs(logs: Sequence[FusedLog], units: Units, first_block: NDArray[np.int64]) -> SpreadLikelihood | None:
    """The likelihood of the variance of weights that no log recorded, from logs that have arms to compare.

    Of those the logs that lack least besides.  They tell of the same arms' weights, so a mean is taken, in which larger
    logs weigh more.  Where no log recorded any feature (but the intercept), the prior has no second block that it would
    be about.

    Args:
        logs: the logs.
        units: of features and rewards.
        first_block: positions of the features that share the first variance of the prior, in the context's order.
    """
    never = np.ones(len(units.scales), dtype=bool)
    for log in logs:
        never[log.order[: log.L]] = False
    if not never.any() or never[first_block].all():
        return None
    found: dict[int, list[tuple[float, LogSpread]]] = {}
    for log in logs:
        hidden = log.order[log.L :]
        known = units.known[hidden]
        freedom = np.asarray(log.hidden.summary.degrees_of_freedom, dtype=np.float64)
        told = log.well_told()
        rows = log.hidden.n_answers if log.contexts is None else log.contexts.rows
        untold = log.hidden.sums is not None and rows < len(hidden)
        if not known.any() or np.count_nonzero(told) < 2 or untold:
            continue
        scales, own = units.scales[hidden][known], units.spreads[hidden][known]
        moments = log.residual_moments(units)[:, known][:, :, known] / scales[:, None] / scales
        if log.hidden.error_from_log:
            # Σ of such an estimator is what recorded features explain; the rest is what the log left out
            spreads = np.maximum((1.0 - np.einsum("aii->ai", moments)) / np.square(own), 0.1)
        else:
            spreads = np.maximum(eigenvalues(moments / own[:, None] / own), 0.0)
        part = LogSpread(log.s2[told] / units.reward_variance, freedom[told], spreads[told])
        found.setdefault(int(np.count_nonzero(~never[hidden])), []).append((float(freedom[told].sum()), part))
    if not found:
        return None
    return SpreadLikelihood(found[min(found)], units.reward_variance)


def preferences_of_logs(
    logs: Sequence[FusedLog], units: Units, blocks: Sequence[NDArray[np.int64]], n_arms: int
) -> Array:
    """(K, q, d)  What the old policy favoured for each arm among the features of each block.

    Of several logs the largest tells it, of equally large ones their mean.  In features of scale one; zero for arms
    that they do not know.
    """
    d, most = len(units.scales), max(float(log.counts.sum()) for log in logs)
    own, tellers = np.zeros((n_arms, d)), np.zeros((n_arms, 1))
    for log in logs:
        if float(log.counts.sum()) == most:
            own[np.ix_(log.arms, log.order)] += log.preferences(units.scales * units.spreads)
            tellers[log.arms] += 1.0
    own *= np.where(units.known, units.scales, 0.0) / np.maximum(tellers, 1.0)
    out = np.zeros((n_arms, len(blocks), d))
    for k, block in enumerate(blocks):
        if units.constant not in block:
            out[:, k, block] = own[:, block]
    return out
