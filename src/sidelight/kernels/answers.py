"""Compiled algebra of the estimators from answers: see ``hidden.answers`` for the formulas and their letters.

``S``: (K, d, d) are the arms' sums, recorded features first, of which the first ``L`` rows are read; ``pull``: (L, L)
is ``κD``, and ``W_a = S11(a) + κD``.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sidelight.kernels.simd import add_scaled, dot
from sidelight.kernels.spd import backward, factor, inverse_from, invert_factor, padded, subtract_product

#: a pivot, relative to the diagonal, below which rounding decides what a solution is
SINGULAR = 1e-12


@njit(cache=True)
def regress(S, pull, toward, B, solved):  # type: ignore[no-untyped-def]
    """``B_a = W_a⁻¹(S12(a) + toward)`` and ``solved[a]`` true; neither where ``W_a`` is as good as singular.

    Scaled to a unit diagonal first, so that units do not decide what is singular.  toward: (L, m)   B: (K, L, m)
    """
    K, L, m = B.shape
    first = padded(L)
    table = np.zeros((L, first + padded(m)))
    scale = np.empty(L)
    for a in range(K):
        for i in range(L):
            square = S[a, i, i] + pull[i, i]
            scale[i] = 1.0 / math.sqrt(square) if square > 0.0 else 1.0
        for i in range(L):
            for j in range(L):
                table[i, j] = (S[a, i, j] + pull[i, j]) * (scale[i] * scale[j])
            for j in range(m):
                table[i, first + j] = (S[a, i, L + j] + toward[i, j]) * scale[i]
        if math.isnan(factor(table)):
            continue
        least = 1.0
        for i in range(L):
            least = min(least, table[i, i] * table[i, i])
        if not least > SINGULAR:
            continue
        solved[a] = True
        backward(table, first)
        for i in range(L):
            for j in range(m):
                B[a, i, j] = table[i, first + j] * scale[i]


@njit(cache=True)
def used_up(S, pull, inside, used):  # type: ignore[no-untyped-def]
    """``tr(inside_a W_a⁻¹)``, or ``L`` where ``W_a`` has no inverse.  inside: (K, L, L) symmetric   used: (K,)"""
    K = used.shape[0]
    L = pull.shape[0]
    W = np.zeros((L, padded(L)))
    T = np.empty((L, padded(L)))
    for a in range(K):
        for i in range(L):
            for j in range(L):
                W[i, j] = S[a, i, j] + pull[i, j]
        used[a] = L
        if math.isnan(factor(W)):
            continue
        invert_factor(W, T)
        inverse_from(W, T)
        used[a] = 0.0
        for i in range(L):
            used[a] += 2.0 * dot(T[i, : i + 1], inside[a, i]) - T[i, i] * inside[a, i, i]


@njit(cache=True)
def answers_precision(S, S_squared, pull, shared, A):  # type: ignore[no-untyped-def]
    """``A_a = W_a(S²(a) + shared)⁻¹W_a``, NaN where there is none.  S_squared, A: (K, L, L)   shared: (L, L)"""
    K, L, _ = A.shape
    first = padded(L)
    table = np.zeros((L, 2 * first))
    out = np.empty((L, first))
    for a in range(K):
        for i in range(L):
            for j in range(L):
                table[i, j] = S_squared[a, i, j] + shared[i, j]
                table[i, first + j] = S[a, i, j] + pull[i, j]
        if math.isnan(factor(table)):
            A[a] = math.nan
            continue
        out[:, :] = 0.0
        subtract_product(out, table, first, table, first)
        for i in range(L):
            for j in range(i, L):
                A[a, i, j] = -out[i, j]
                A[a, j, i] = -out[i, j]


@njit(cache=True)
def pooling_likelihoods(S, D, gap, mean, strength, levels, values):  # type: ignore[no-untyped-def]
    """``½Σ_a[tr gap_aᵀ(S_a + κD_ρ)⁻¹gap_a − m log det(S_a + κD_ρ)]`` for all ``ρ``, into ``values``; NaN where none is.

    ``D_ρ = D − (1 − ρ)μμᵀ``, a change of rank one.  With ``W = S_a + κD``, ``c = κ(1 − ρ)`` and ``f = 1 − cμᵀW⁻¹μ``:

        log det(W − cμμᵀ) = log det W + log f,    (W − cμμᵀ)⁻¹ = W⁻¹ + W⁻¹μμᵀW⁻¹ c/f.

    S: (K, L, L)   D: (L, L)   gap: (K, L, m)   mean: (L,) ``μ``   strength: ``κ``   levels, values: (n,), levels ``ρ``
    """
    K, L, m = gap.shape
    first = padded(L)
    table = np.zeros((L, first + padded(m + 1)))
    across = np.empty(m + 1)
    values[:] = 0.0
    for a in range(K):
        for i in range(L):
            for j in range(L):
                table[i, j] = S[a, i, j] + strength * D[i, j]
            for j in range(m):
                table[i, first + j] = gap[a, i, j]
            table[i, first + m] = mean[i]
        log_det = factor(table)
        squares = 0.0
        across[:] = 0.0
        for i in range(L):
            row = table[i, first : first + m]
            squares += dot(row, row)
            add_scaled(across, table[i, first + m], table[i, first : first + m + 1])
        toward = dot(across[:m], across)
        for k in range(levels.shape[0]):
            change = strength * (1.0 - levels[k])
            left = 1.0 - change * across[m]
            if left > 0.0:
                values[k] += 0.5 * (squares + change / left * toward - m * (log_det + math.log(left)))
            else:
                values[k] = math.nan
