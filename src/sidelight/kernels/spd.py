"""Compiled algebra of stacks of small positive definite matrices, for which calls to LAPACK cost more than the work.

Everything rests on one elimination: ``[A | X]`` becomes ``[Gᵀ | G⁻¹X]`` where ``A = GGᵀ``.  In such a table ``X``
begins at column ``padded(m)``, and rows are a multiple of eight long, so that they can be read in vectors.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sidelight.kernels.rows import scale_row, subtract_rows
from sidelight.kernels.simd import add_scaled, dot

#: a pivot, relative to the diagonal, below which rounding decides what a solution is
SINGULAR = 1e-12


@njit(cache=True)
def padded(n):  # type: ignore[no-untyped-def]
    """The least multiple of eight that is at least ``n``."""
    return (n + 7) & ~7


@njit(cache=True)
def factor(A):  # type: ignore[no-untyped-def]
    """Cholesky's ``A = GGᵀ``: ``[A | X]`` becomes ``[Gᵀ | G⁻¹X]``; returns ``log det A``, NaN where there is none.

    A: (m, width), of which what is below the diagonal has no meaning
    """
    m, width = A.shape
    log_det = 0.0
    product = 1.0
    for j in range(m):
        subtract_rows(A, j, A, j, width, 0, j, A, 0, j & ~7, width)
        pivot = A[j, j]
        if not pivot > 0.0:
            return math.nan
        # one logarithm for many pivots, before their product leaves the range of numbers
        product *= pivot
        if not 1e-100 < product < 1e100:
            log_det += math.log(product)
            product = 1.0
        scale_row(A, j, 1.0 / math.sqrt(pivot), j & ~7, width)
    return log_det + math.log(product)


@njit(cache=True)
def backward(A, first):  # type: ignore[no-untyped-def]
    """``[Gᵀ | X]`` becomes ``[Gᵀ | G⁻ᵀX]``.  A: (m, width)   first: the column at which ``X`` begins"""
    m, width = A.shape
    for i in range(m - 1, -1, -1):
        subtract_rows(A, i, A, i * width, 1, i + 1, m, A, 0, first, width)
        scale_row(A, i, 1.0 / A[i, i], first, width)


@njit(cache=True)
def subtract_gram(out, A, first):  # type: ignore[no-untyped-def]
    """``out −= XᵀX`` on and above the diagonal.

    out: (n, padded(n))   A: (m, width), ``X`` its ``n`` columns from ``first`` on
    """
    m, width = A.shape
    n, last = out.shape
    for i in range(n):
        subtract_rows(out, i, A, first + i, width, 0, m, A, first, i & ~7, last)


@njit(cache=True)
def invert_factor(A, T):  # type: ignore[no-untyped-def]
    """``T = G⁻¹``, lower triangular.  A: (m, width) holds ``Gᵀ``   T: (m, padded(m))"""
    m, width = A.shape
    T[:, :] = 0.0
    for i in range(m):
        subtract_rows(T, i, A, i, width, 0, i, T, 0, 0, padded(i))
        scale = 1.0 / A[i, i]
        scale_row(T, i, scale, 0, padded(i))
        T[i, i] = scale


@njit(cache=True)
def inverse_from(A, T):  # type: ignore[no-untyped-def]
    """On and below its diagonal ``T = G⁻¹`` becomes ``A⁻¹ = G⁻ᵀG⁻¹``.  A: (m, …) holds ``Gᵀ``   T: (m, padded(m))"""
    m, width = A.shape
    for i in range(m - 1, -1, -1):
        # a row is needed up to its diagonal alone, and those below it are known that far
        subtract_rows(T, i, A, i * width, 1, i + 1, m, T, 0, 0, padded(i + 1))
        scale_row(T, i, 1.0 / A[i, i], 0, padded(i + 1))


@njit(cache=True)
def invert(A, inverse):  # type: ignore[no-untyped-def]
    """``inverse = A⁻¹`` by Cholesky; returns ``log det A``, or NaN where A is not positive definite."""
    m = A.shape[0]
    W = np.zeros((m, padded(m)))
    for i in range(m):
        for j in range(m):
            W[i, j] = A[i, j]
    log_det = factor(W)
    if math.isnan(log_det):
        return log_det
    T = np.empty((m, padded(m)))
    invert_factor(W, T)
    inverse_from(W, T)
    for i in range(m):
        for j in range(i + 1):
            inverse[i, j] = T[i, j]
            inverse[j, i] = T[i, j]
    return log_det


@njit(cache=True)
def invert_stack(A, inverses):  # type: ignore[no-untyped-def]
    """``A_a⁻¹`` of positive definite matrices.  A, inverses: (K, m, m)"""
    for a in range(A.shape[0]):
        invert(A[a], inverses[a])


@njit(cache=True)
def log_det_stack(A, log_dets):  # type: ignore[no-untyped-def]
    """``log det A_a``, NaN where a matrix is not positive definite.  A: (K, m, m)   log_dets: (K,)"""
    K, m, _ = A.shape
    W = np.zeros((m, padded(m)))
    for a in range(K):
        for i in range(m):
            for j in range(m):
                W[i, j] = A[a, i, j]
        log_dets[a] = factor(W)


@njit(cache=True)
def solve_stack(A, X, solved):  # type: ignore[no-untyped-def]
    """``X_a`` becomes ``A_a⁻¹X_a`` and ``solved[a]`` true; where ``A_a`` is as good as singular both stay as they are.

    Scaled to a unit diagonal first, so that units do not decide what is singular.  A: (K, m, m)   X: (K, m, n)
    """
    K, m, n = X.shape
    first = padded(m)
    table = np.zeros((m, first + padded(n)))
    scale = np.empty(m)
    for a in range(K):
        for i in range(m):
            scale[i] = 1.0 / math.sqrt(A[a, i, i]) if A[a, i, i] > 0.0 else 1.0
        for i in range(m):
            for j in range(m):
                table[i, j] = A[a, i, j] * (scale[i] * scale[j])
            for j in range(n):
                table[i, first + j] = X[a, i, j] * scale[i]
        if math.isnan(factor(table)):
            continue
        least = 1.0
        for i in range(m):
            least = min(least, table[i, i] * table[i, i])
        if not least > SINGULAR:
            continue
        solved[a] = True
        backward(table, first)
        for i in range(m):
            for j in range(n):
                X[a, i, j] = table[i, first + j] * scale[i]


@njit(cache=True)
def congruence_stack(A, X, products):  # type: ignore[no-untyped-def]
    """``X_aᵀA_a⁻¹X_a``, NaN where ``A_a`` is not positive definite.

    A: (K, m, m)   X: (K, m, n)   products: (K, n, n)
    """
    K, m, n = X.shape
    first = padded(m)
    table = np.zeros((m, first + padded(n)))
    out = np.empty((n, padded(n)))
    for a in range(K):
        for i in range(m):
            for j in range(m):
                table[i, j] = A[a, i, j]
            for j in range(n):
                table[i, first + j] = X[a, i, j]
        if math.isnan(factor(table)):
            products[a] = math.nan
            continue
        out[:, :] = 0.0
        subtract_gram(out, table, first)
        for i in range(n):
            for j in range(i, n):
                products[a, i, j] = -out[i, j]
                products[a, j, i] = -out[i, j]


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
