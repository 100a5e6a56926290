"""How strong the hidden part would have to be: omitted-variable bounds for a linear functional.

Chernozhukov, Cinelli, Newey, Sharma and Syrgkanis (2022) for the value of a policy: with ``E ε²`` what the log's
regressions leave unexplained and ``E α_s²`` the second moment of the weights that turn the log's rows into the policy's
population,

    |V_s − V| ≤ C_Y C_D √(E ε² · E α_s²).

``reward_share`` is ``C_Y²``, the part of ``E ε²`` that hidden features explain; ``choice_share`` is ``C_D²/(1 +
C_D²)``, the part of the variation of the true weights that comes from them.  Both lie between 0 and 1.  ``size`` below
is ``√(E ε² · E α_s²)``, in units of the reward.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtr, stdtrit

from sidelight.linalg import Array

__all__ = [
    "bias_bound",
    "contour",
    "level_of_each",
    "odds",
    "quantile",
    "range_quantile",
    "robustness_value",
    "times_to_overturn",
]


def odds(share: float) -> float:
    """``C_D² = share/(1 − share)``; infinite for 1."""
    return share / (1.0 - share) if share < 1.0 else math.inf


def quantile(level: float, freedom: float) -> float:
    """Student's two-sided quantile."""
    return float(stdtrit(max(freedom, 1.0), 0.5 + level / 2.0))


def level_of_each(level: float, together: int) -> float:
    """The level at which each of ``together`` intervals must hold so that all of them do at ``level``.

    Šidák's ``level^(1/together)``, enough for normal estimates however they are correlated.  The best of several
    candidates may then be picked, and its interval still holds.
    """
    return float(level ** (1.0 / max(together, 1)))


def range_quantile(level: float, freedom: float, width: float) -> float:
    """Student's quantile for a truth somewhere in an estimated range: ``c`` with ``T(c + width) − T(−c) = level``.

    A truth can be missed at one end of a wide range only, so the quantile falls from the two-sided one to the one-sided
    one as the range widens (Imbens and Manski 2004).  It holds for every width because the estimated upper end is never
    below the lower one (Stoye 2009).

    Args:
        level: of the interval.
        freedom: degrees of freedom.
        width: of the range, upper end minus lower end, in standard errors of an end.
    """
    freedom = max(freedom, 1.0)
    low, high = float(stdtrit(freedom, level)), quantile(level, freedom)
    for _ in range(60):
        middle = (low + high) / 2.0
        enough = float(stdtr(freedom, middle + width) - stdtr(freedom, -middle)) >= level
        low, high = (low, middle) if enough else (middle, high)
    return high


def bias_bound(size: float, reward_share: float, choice_share: float) -> float:
    """``C_Y C_D · size``: how far the short value may be from the true one; 0 where either share is 0."""
    if reward_share == 0.0 or choice_share == 0.0 or size == 0.0:
        return 0.0
    return math.sqrt(reward_share) * math.sqrt(odds(choice_share)) * size


def robustness_value(margin: float, size: float) -> float:
    """The share at which ``reward_share = choice_share`` moves an estimate by ``margin``.

    Args:
        margin: how far the interval of the gain keeps from zero, ``max(0, |gain| − t·se)``.
        size: ``√(E ε² · E α_s²)``.

    Returns:
        ``½(√(f⁴ + 4f²) − f²)`` with ``f = margin/size``, written without cancellation; 0 where sampling alone
        overturns it, 1 where nothing is left for hidden features to explain.
    """
    if not margin > 0.0:
        return 0.0
    if size == 0.0:
        return 1.0
    f2 = (margin / size) ** 2
    return 2.0 / (1.0 + math.sqrt(1.0 + 4.0 / f2)) if f2 > 0.0 else 0.0


def times_to_overturn(margin: float, size: float, reward_share: float, choice_share: float) -> float:
    """How many times as strong as a yardstick hidden features must be to move an estimate by ``margin``.

    ``k`` times as strong means ``k`` times both shares, each at most 1; infinite if no ``k`` suffices.
    """
    if not margin > 0.0:
        return 0.0
    if reward_share <= 0.0 or choice_share <= 0.0 or size == 0.0:
        return math.inf

    def enough(k: float) -> bool:
        return bias_bound(size, min(1.0, k * reward_share), min(1.0, k * choice_share)) >= margin

    high = 1.0 / choice_share  # there C_D is infinite
    low = 0.0
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def contour(gain: float, half: float, size: float, steps: int = 50) -> tuple[Array, Array, Array]:
    """The bound of the gain nearest to (or beyond) zero over a grid of shares.

    Args:
        gain: the short gain.
        half: half the width of its sampling interval.
        size: ``√(E ε² · E α_s²)``.
        steps: points along each axis.

    Returns:
        ``reward_shares`` (steps,), ``choice_shares`` (steps,), and bounds (steps, steps), a row for each reward share:
        ``|gain| − half − C_Y C_D·size``, negative where hidden features of that strength overturn the sign.
    """
    reward, choice = np.linspace(0.0, 1.0, steps), np.linspace(0.0, 0.98, steps)
    bias = np.sqrt(reward)[:, None] * np.sqrt(choice / (1.0 - choice))[None, :] * size
    return reward, choice, abs(gain) - half - bias
