"""The evidence of ``benchmarks.gate`` as compiled loops, to the bit what the fold computes, some hundred times faster.

The fold takes a tenth of a millisecond for a decision and its reward, so 1,000 runs of every scenario take hours. What
decides is a few sums, and they are written here a second time: ``rung`` adds units as ``Comparison`` and
``AsymptoticSequence`` do and says at which look the gate would step, ``rows`` does it for ``OldRows``. Error rates,
salts and shares of rungs come from a real ``Gate``. ``benchmarks.gate`` plays its first runs by both and stops where
one bit differs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from sidelight import linalg
from sidelight.judging.complete import LEAST_MATCHED
from sidelight.judging.old_rows import _HARDLY, _OVERLAP_ROWS, SMALLEST_CHANCE
from sidelight.judging.sequences import _SCALE_UNITS, FIRST_LOOK, LARGEST_SHARE, AsymptoticSequence
from sidelight.judging.shared_traffic import LEAST_PER_ROUTE, LEAST_UNVARIED
from sidelight.kernels.elementary import log
from sidelight.linalg import Array
from sidelight.service.core.gate import RATIO_ERROR

__all__ = ["Sums", "rows", "rung"]

_TARGET = AsymptoticSequence().target_rows
_RATIO_BAR = float(linalg.log(1.0 / RATIO_ERROR))
_LN2 = 0.6931471805599453
_STRENGTH = 100.0


class Sums(NamedTuple):
    """Where a sequence stands."""

    count: int
    mean: float
    variation: float
    least_variation: float = 0.0

    @classmethod
    def of(cls, sequence: AsymptoticSequence) -> Sums:
        """Of the fold's own."""
        return cls(sequence.count, sequence.mean, sequence.variation, sequence.least_variation)


@njit(nogil=True)
def _width(count, variation, rho, alpha):  # type: ignore[no-untyped-def]
    """``asymptotic_width``."""
    root = math.sqrt(variation * rho + 1.0)
    return math.sqrt(2.0 * root * root / rho * log(1.0 + root / (2.0 * alpha))) / count


@njit(nogil=True)
def _mixing(alpha, target):  # type: ignore[no-untyped-def]
    """``mixing_variance``."""
    twice = -2.0 * log(2.0 * alpha)
    return (twice + log(1.0 + twice)) / target


@njit(nogil=True)
def _add(score, s):  # type: ignore[no-untyped-def]
    """``AsymptoticSequence.observe``.

    s: (9,)  count, mean, variation, largest, the scale's three sums, variance, least variation
    """
    if s[7] <= 0.0:
        s[4] += 1.0
        difference = score - s[5]
        s[5] += difference / s[4]
        s[6] += difference * (score - s[5])
        if s[4] >= _SCALE_UNITS and s[6] > 0.0:
            s[7] = s[6] / s[4]
        return
    difference = score - s[1]
    s[0] += 1.0
    s[2] += difference * difference
    s[3] = max(s[3], difference * difference)
    s[1] += difference / s[0]


@njit(nogil=True)
def _settled(squares, largest, count):  # type: ignore[no-untyped-def]
    """``Comparison._settled`` of a route."""
    return count >= LEAST_UNVARIED if squares == 0.0 else largest <= LARGEST_SHARE * squares


@njit(nogil=True)
def _rung(treated, rewards, look, decided, routes, share, alphas, margin, top, s):  # type: ignore[no-untyped-def]
    counts, sums, squares, largest, weights = np.zeros(2, np.int64), np.zeros(2), np.zeros(2), np.zeros(2), 0.0
    mantissa, exponent, new, old, seen = 1.0, 0, 0, 0, 0
    up_rho, down_rho = 0.0, 0.0
    for j in range(len(rewards)):
        z, reward = treated[j], rewards[j]
        side, begun, entered = 1 if z else 0, counts[0] + counts[1] > 0, s[0]
        if begun:
            both = counts[0] > 0 and counts[1] > 0
            known = sums[0] / counts[0] if counts[0] > 0 else sums[1] / counts[1]
            mean_new = sums[1] / counts[1] if counts[1] > 0 else known
            mean_old = sums[0] / counts[0] if both else known
            baseline = (1.0 - share) * mean_new + share * mean_old
            weight = 1.0 / share if z else -1.0 / (1.0 - share)
            _add(weight * (reward - baseline), s)
        before = sums[side] / counts[side] if counts[side] > 0 else reward
        counts[side] += 1
        sums[side] += reward
        square = (reward - before) * (reward - sums[side] / counts[side])
        squares[side] += square
        largest[side] = max(largest[side], square)
        if s[0] > entered:
            weight = 1.0 / share if z else 1.0 / (1.0 - share)
            weights += weight * weight
            s[8] = weights * ((squares[0] + squares[1]) / (counts[0] + counts[1]))
        if not look[j] or s[0] < FIRST_LOOK or min(counts[0], counts[1]) < LEAST_PER_ROUTE:
            continue
        if not (_settled(squares[0], largest[0], counts[0]) and _settled(squares[1], largest[1], counts[1])):
            continue
        if s[3] > LARGEST_SHARE * s[2]:
            continue
        if up_rho == 0.0:
            up_rho, down_rho = _mixing(alphas[0], s[7] * _TARGET), _mixing(alphas[1], s[7] * _TARGET)
        variation = max(s[2], s[8])
        if s[1] < 0.0 and s[1] + _width(s[0], variation, down_rho, alphas[1]) < 0.0:
            return -1, j
        if not top and s[1] > margin and s[1] - _width(s[0], variation, up_rho, alphas[0]) > margin:
            while seen < decided[j]:
                p = share if routes[seen] else 1.0 - share
                before = new if routes[seen] else old
                mantissa, shift = math.frexp(mantissa * ((_STRENGTH * p + before) / (_STRENGTH + new + old) / p))
                exponent += shift
                if routes[seen]:
                    new += 1
                else:
                    old += 1
                seen += 1
            if log(mantissa) + exponent * _LN2 <= _RATIO_BAR:
                return 1, j
    return 0, len(rewards)


def rung(
    treated: Array,
    rewards: Array,
    look: Array,
    decided: Array,
    routes: Array,
    share: float,
    alphas: tuple[float, float],
    margin: float,
    top: bool,
) -> tuple[int, int, Sums]:
    """The step to which one visit to a rung leads.

    Args:
        treated: (n,) routes of the units whose wait ends during the visit, in the order of their decisions.
        rewards: (n,) theirs.
        look: (n,) whether the gate is looked at when this unit has entered and the next has not.
        decided: (n,) how many units of the visit were decided on by then.
        routes: (m,) whether each unit of the visit came on the learner's route, m ≥ n.
        share: the learner's.
        alphas: error rates of promotion and demotion.
        margin: the smallest gain.
        top: whether there is no rung above.

    Returns:
        1, −1 or 0 (no step); the position of the last unit that had entered; where the sequence stands then.
    """
    sums = np.zeros(9)
    step, last = _rung(treated, rewards, look, decided, routes, share, np.array(alphas), margin, top, sums)
    return int(step), int(last), Sums(int(sums[0]), *sums[[1, 2, 8]].tolist())


@njit(nogil=True)
def _rows(wanted, matched, rewards, estimate, chances, alpha, margin, K, s):  # type: ignore[no-untyped-def]
    weights, squares, times = np.zeros(K), np.zeros(K), np.zeros(K)
    own, plain, mean, hits, rho = 0.0, 0.0, 0.0, 0, 0.0
    count, centre, varied, reach = 0.0, 0.0, 0.0, 0.0
    for i in range(len(rewards)):
        a, reward = wanted[i], rewards[i]
        guess = estimate if own <= plain else mean
        weight = 1.0 / max(chances[i], SMALLEST_CHANCE)
        entered = s[0]
        _add(guess + (weight if matched[i] else 0.0) * (reward - guess) - reward, s)
        difference = reward - guess - centre
        centre += difference / (count + 1.0)
        varied += difference * (reward - guess - centre)
        count += 1.0
        if s[0] > entered:
            chance = min(max(chances[i], SMALLEST_CHANCE), 1.0)
            reach += (1.0 - chance) / chance
            s[8] = reach * (varied / count)
        times[a] += 1.0
        if matched[i]:
            if hits:
                own += (reward - estimate) * (reward - estimate)
                plain += (reward - mean) * (reward - mean)
            hits += 1
            mean += (reward - mean) / hits
            weights[a] += weight
            squares[a] += weight * weight
        n, cannot = i + 1, False
        if n >= _OVERLAP_ROWS:
            for k in range(K):
                if times[k] < _HARDLY * n:
                    continue
                reached = weights[k] / times[k]
                error = math.sqrt(max(squares[k] / times[k] - reached * reached, 0.0) / times[k])
                cannot = cannot or reached < 1.0 - max(4.0 * error, 0.05)
        if n >= FIRST_LOOK and (squares.sum() == 0.0 or weights.sum() ** 2 / squares.sum() < LEAST_MATCHED):
            cannot = True
        if cannot or s[0] < FIRST_LOOK or s[3] > LARGEST_SHARE * s[2]:
            continue
        if rho == 0.0:
            rho = _mixing(alpha, s[7] * _TARGET)
        if s[1] > margin and s[1] - _width(s[0], max(s[2], s[8]), rho, alpha) > margin:
            return i
    return -1


def rows(
    wanted: Array, matched: Array, rewards: Array, estimate: float, chances: Array, alpha: float, margin: float, K: int
) -> tuple[int, Sums]:
    """The row after which the old policy's rows, with chances that it told, promote the learner; −1 for never.

    Args:
        wanted: (n,) the learner's arm.
        matched: (n,) whether the old policy took it.
        rewards: (n,)
        estimate: the learner's, of its arm.
        chances: (n,) with which the old policy takes the learner's arm.
        alpha: the error rate.
        margin: the smallest gain.
        K: how many arms.
    """
    sums = np.zeros(9)
    at = _rows(wanted, matched, rewards, estimate, chances, alpha, margin, K, sums)
    return int(at), Sums(int(sums[0]), *sums[[1, 2, 8]].tolist())
