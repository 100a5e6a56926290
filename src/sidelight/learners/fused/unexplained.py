"""How much of the variance that a log left unexplained is the hidden features' doing, ``τ²``, where little tells it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sidelight.linalg import Array, eigenvalues

__all__ = ["UNTOLD", "least_tau2", "most_square", "most_tau2", "usual_tau2"]

#: the part of what a log left unexplained that is taken for the hidden features' doing while nothing tells it
UNTOLD = 0.5
#: how much larger than recorded ones hidden weights may be expected to be, as a factor of their mean square
LARGER = 4.0


def most_tau2(means: Array, moments: Array, s2: Array, weight_bound: float) -> Array:
    """(K_j,)  The most that ``‖w_h − μ_h‖ ≤ S_w`` allows: ``min(s², (‖μ_h‖ + S_w)² λ_max(Σ_e))``.

    Args:
        means: (K_j, m)  ``μ_h``, prior means of the hidden weights.
        moments: (K_j, m, m)  ``Σ_e``, of what the recorded features leave of the hidden ones.
        s2: (K_j,)  what the log left unexplained.
        weight_bound: ``S_w``.
    """
    return np.minimum(most_square(means, weight_bound) * eigenvalues(moments)[:, -1], s2)


def most_square(means: Array, weight_bound: float) -> Array:
    """(K_j,)  ``(‖μ_h‖ + S_w)²``: the most that ``‖w_h‖²`` can be."""
    return np.asarray(np.square(np.linalg.norm(means, axis=1) + weight_bound))


def least_tau2(s2: Array, freedom: Array, told: NDArray[np.bool_], plays: Array, m: int) -> Array:
    """(K_j,)  What ``s²`` itself says about ``τ²``, as far as few rounds have told about an arm's hidden weights.

    An arm whose ``s²`` is above the least of all arms has more noise or more hidden effects, and nobody knows which
    before it was played.  To take it for noise would make the log sure of what it cannot know, and the shrunk hidden
    weights that follow would confirm it.

    Args:
        s2: (K_j,)  what the log left unexplained.
        freedom: (K_j,)  rows of the log that its regression did not use up.
        told: (K_j,)  whether there are so many rows that its ``s²`` can be compared with others'.
        plays: (K_j,)  rounds of each arm.
        m: how many features are hidden.
    """
    if np.count_nonzero(told) < 2:
        return np.zeros(len(s2))
    # three sampling errors of s² are chance
    chance = 3.0 * np.sqrt(2.0 / np.maximum(freedom, 1.0)) * s2
    above = np.maximum(s2 - float(s2[told].min()) - chance, 0.0)
    return np.where(told, above * (2.0 * m / (2.0 * m + plays)), 0.0)


def usual_tau2(moments: Array, scales: Array, square: float) -> Array:
    """(K_j,)  What ``τ²`` would be if hidden weights had ``LARGER`` times the mean square of recorded ones.

    Args:
        moments: (K_j, m, m)  ``Σ_e`` of those hidden features that are columns themselves.
        scales: (m,)  of these features.
        square: mean square of the recorded ones, in features of scale one.
    """
    return np.asarray(LARGER * square * (np.einsum("aii->ai", moments) / np.square(scales)).sum(axis=1))
