"""A lower bound on the variance of rewards in few rows: forty visitors without a purchase do not prove a rate of 0.

A variance that is estimated from ``n`` rows of kurtosis ``κ`` has the relative variance ``(κ − 1)/n``.  The
kurtosis of purchases at a rate ``p`` is about ``1/p``, so an arm with few rows often has none, and its residuals do not
vary.  Until the relative standard error of an arm's own variance is below one half, the variance of all arms together
is therefore a lower bound; with more rows that bound falls in proportion to ``1/n``.
"""

from __future__ import annotations

import numpy as np

from sidelight.linalg import Array

__all__ = ["NORMAL", "kurtosis_of_rates", "least_share", "usual_kurtosis"]

#: The kurtosis of normal residuals, also a lower bound: a small group's own is too low, since its rows were fitted.
NORMAL = 3.0

# (κ − 1)/n below which the bound starts to fall: a relative standard error of one half
_KNOWN = 0.25


def least_share(kurtosis: float, rows: Array | float) -> Array:
    """The lower bound on the variance of ``rows`` rows, as a part (0 to 1) of the variance of all arms together.

    Args:
        kurtosis: of residuals, ``E ε⁴/(E ε²)²``.
        rows: on how many rows, of equal weight, the variance was estimated.
    """
    needed = (max(kurtosis, NORMAL) - 1.0) / _KNOWN
    return np.asarray(np.minimum(1.0, needed / np.maximum(rows, 1.0)))


def usual_kurtosis(powers: Array, otherwise: float = NORMAL) -> float:
    """The kurtosis within arms, each counting by its rows; ``otherwise`` where none is known.

    powers: (K, 3) of each arm ``n, Σ ε², Σ ε⁴``
    """
    n, squares, fourths = powers[powers[:, 1] > 0.0].T
    return float((n * n * fourths / squares**2).sum() / n.sum()) if n.sum() > 0 else otherwise


def kurtosis_of_rates(rate: float) -> float:
    """The kurtosis of a reward that is 1 with probability ``rate`` and else 0."""
    variance = rate * (1.0 - rate)
    return 1.0 / variance - 3.0 if variance > 0.0 else NORMAL
