"""Compiled sums of products: what the hidden estimators keep of every answer of the old policy."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def add_answer(x, order, weight, S, S_squared, sums):  # type: ignore[no-untyped-def]
    """``S += w x xᵀ``, ``S² += w² x_o x_oᵀ``, ``sums += w x`` for one arm, x taken in internal order.

    x: (d,)   order: (d,)   S: (d, d)   S_squared: (L, L)   sums: (d,)
    """
    d = order.shape[0]
    L = S_squared.shape[0]
    y = np.empty(d)
    for i in range(d):
        y[i] = x[order[i]]
    squared = weight * weight
    for i in range(d):
        wi = weight * y[i]
        sums[i] += wi
        for j in range(d):
            S[i, j] += wi * y[j]
    for i in range(L):
        wi = squared * y[i]
        for j in range(L):
            S_squared[i, j] += wi * y[j]


@njit(cache=True)
def add_probabilities(x, order, probabilities, weight, S, S_squared, sums):  # type: ignore[no-untyped-def]
    """``add_answer`` for every arm at once, arm ``a`` with weight ``w · p_a``."""
    for a in range(probabilities.shape[0]):
        if probabilities[a] > 0.0:
            add_answer(x, order, weight * probabilities[a], S[a], S_squared[a], sums[a])
