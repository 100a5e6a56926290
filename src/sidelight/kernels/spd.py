"""Compiled algebra of stacks of small positive definite matrices, for which calls to LAPACK cost more than the work."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sidelight.kernels.reduced import invert


@njit(cache=True)
def solve_stack(J, h, quadratic, log_det):  # type: ignore[no-untyped-def]
    """For each matrix of the stack ``hᵀJ⁻¹h`` and ``log det J``; NaN where it is not positive definite.

    J: (K, d, d)   h: (K, d)   quadratic, log_det: (K,) results
    """
    K, d = h.shape
    G = np.empty((d, d))
    v = np.empty(d)
    for a in range(K):
        total = 0.0
        for j in range(d):
            for i in range(j, d):
                G[i, j] = J[a, i, j]
        # left-looking by columns, so that the inner loops run along rows of G
        for j in range(d):
            for i in range(j, d):
                s = G[i, j]
                for k in range(j):
                    s -= G[i, k] * G[j, k]
                G[i, j] = s
            pivot = G[j, j]
            if not pivot > 0.0:
                total = math.nan
                break
            root = math.sqrt(pivot)
            total += 2.0 * math.log(root)
            for i in range(j, d):
                G[i, j] /= root
        log_det[a] = total
        quadratic[a] = math.nan
        if math.isnan(total):
            continue
        square = 0.0
        for i in range(d):
            s = h[a, i]
            for k in range(i):
                s -= G[i, k] * v[k]
            v[i] = s / G[i, i]
            square += v[i] * v[i]
        quadratic[a] = square


@njit(cache=True)
def shrink_stack(J, h, D, inverse_sum, solved):  # type: ignore[no-untyped-def]
    """With ``W_a = I + DJ_aD``: ``Σ_a W_a⁻¹`` into ``inverse_sum``, ``W_a⁻¹Dh_a`` into ``solved``.

    Returns ``Σ_a log det W_a`` and ``Σ_a (Dh_a)ᵀW_a⁻¹(Dh_a)``.  J: (K, d, d)   h: (K, d)   D: (d,)
    """
    K, d = h.shape
    W = np.empty((d, d))
    inverse = np.empty((d, d))
    log_det = 0.0
    quadratic = 0.0
    for i in range(d):
        for j in range(d):
            inverse_sum[i, j] = 0.0
    for a in range(K):
        for i in range(d):
            for j in range(d):
                W[i, j] = D[i] * J[a, i, j] * D[j]
            W[i, i] += 1.0
        log_det += invert(W, inverse)
        for i in range(d):
            total = 0.0
            for j in range(d):
                total += inverse[i, j] * D[j] * h[a, j]
                inverse_sum[i, j] += inverse[i, j]
            solved[a, i] = total
            quadratic += D[i] * h[a, i] * total
    return log_det, quadratic
