"""Compiled algebra of stacks of small positive definite matrices, for which calls to LAPACK cost more than the work.

Everything rests on one elimination: ``[A | X]`` becomes ``[Gᵀ | G⁻¹X]`` where ``A = GGᵀ``.  In such a table ``X``
begins at column ``padded(m)``, and rows are a multiple of eight long, so that they can be read in vectors.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sidelight.kernels.simd import add_scaled, dot, scale_row, subtract_rows

#: a pivot, relative to the diagonal, below which rounding decides what a solution is
SINGULAR = 1e-12


@njit(cache=True)
def padded(n):  # type: ignore[no-untyped-def]
    """The least multiple of eight that is at least ``n``."""
    return (n + 7) & ~7


@njit(cache=True)
def factor(A, G):  # type: ignore[no-untyped-def]
    """Cholesky's ``A = GGᵀ``: ``[A | X]`` becomes ``[Gᵀ | G⁻¹X]``; returns ``log det A``, NaN where there is none.

    A: (m, width), of which what is below the diagonal has no meaning   G: (m, padded(m)), lower triangular
    """
    m = G.shape[0]
    width = A.shape[1]
    log_det = 0.0
    product = 1.0
    for j in range(m):
        subtract_rows(A, j, G, 0, j, A, 0, j & ~7, width)
        pivot = A[j, j]
        if not pivot > 0.0:
            return math.nan
        # one logarithm for many pivots, before their product leaves the range of numbers
        product *= pivot
        if not 1e-100 < product < 1e100:
            log_det += math.log(product)
            product = 1.0
        scale = 1.0 / math.sqrt(pivot)
        scale_row(A, j, scale, j & ~7, width)
        for i in range(j, m):
            G[i, j] = A[j, i]
    return log_det + math.log(product)


@njit(cache=True)
def backward(A, first):  # type: ignore[no-untyped-def]
    """``[Gᵀ | X]`` becomes ``[Gᵀ | G⁻ᵀX]``.  A: (m, width)   first: the column at which ``X`` begins"""
    m, width = A.shape
    for i in range(m - 1, -1, -1):
        subtract_rows(A, i, A, i + 1, m, A, 0, first, width)
        scale_row(A, i, 1.0 / A[i, i], first, width)


@njit(cache=True)
def subtract_gram(out, A, first, n, transposed):  # type: ignore[no-untyped-def]
    """``out −= XᵀX`` on and above the diagonal.

    out: (n, padded(n))   A: (m, width), ``X`` its ``n`` columns from ``first`` on   transposed: (n, m), becomes ``Xᵀ``
    """
    m = A.shape[0]
    for k in range(m):
        for i in range(n):
            transposed[i, k] = A[k, first + i]
    for i in range(n):
        subtract_rows(out, i, transposed, 0, m, A, first, i & ~7, padded(n))


@njit(cache=True)
def invert_factor(G, T):  # type: ignore[no-untyped-def]
    """``T = G⁻¹``, lower triangular.  G, T: (m, padded(m))"""
    m = G.shape[0]
    T[:, :] = 0.0
    for i in range(m):
        subtract_rows(T, i, G, 0, i, T, 0, 0, padded(i))
        scale = 1.0 / G[i, i]
        scale_row(T, i, scale, 0, padded(i))
        T[i, i] = scale


@njit(cache=True)
def inverse_from(A, T):  # type: ignore[no-untyped-def]
    """On and below its diagonal ``T = G⁻¹`` becomes ``A⁻¹ = G⁻ᵀG⁻¹``.  A: (m, padded(m)) holds ``Gᵀ``"""
    m = T.shape[0]
    for i in range(m - 1, -1, -1):
        # a row is needed up to its diagonal alone, and those below it are known that far
        subtract_rows(T, i, A, i + 1, m, T, 0, 0, padded(i + 1))
        scale_row(T, i, 1.0 / A[i, i], 0, padded(i + 1))


@njit(cache=True)
def invert(A, inverse):  # type: ignore[no-untyped-def]
    """``inverse = A⁻¹`` by Cholesky; returns ``log det A``, or NaN where A is not positive definite."""
    m = A.shape[0]
    W = np.zeros((m, padded(m)))
    G = np.zeros((m, padded(m)))
    for i in range(m):
        for j in range(m):
            W[i, j] = A[i, j]
    log_det = factor(W, G)
    if math.isnan(log_det):
        return log_det
    T = np.empty((m, padded(m)))
    invert_factor(G, T)
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
    G = np.zeros((m, padded(m)))
    for a in range(K):
        for i in range(m):
            for j in range(m):
                W[i, j] = A[a, i, j]
        log_dets[a] = factor(W, G)


@njit(cache=True)
def shrink_stack(J, h, D, inverse_sum, solved_sum):  # type: ignore[no-untyped-def]
    """With ``W_a = I + DJ_aD``: ``Σ_a W_a⁻¹`` into ``inverse_sum``, ``Σ_a W_a⁻¹Dh_a`` into ``solved_sum``.

    Returns ``Σ_a log det W_a`` and ``Σ_a (Dh_a)ᵀW_a⁻¹(Dh_a)``.  J: (K, d, d)   h: (K, d)   D: (d,)
    """
    K, d = h.shape
    W = np.zeros((d, padded(d)))
    G = np.zeros((d, padded(d)))
    T = np.empty((d, padded(d)))
    total = np.zeros((d, padded(d)))
    v = np.empty(d)
    log_det = 0.0
    quadratic = 0.0
    solved_sum[:] = 0.0
    for a in range(K):
        for i in range(d):
            for j in range(d):
                W[i, j] = D[i] * J[a, i, j] * D[j]
            W[i, i] += 1.0
            v[i] = D[i] * h[a, i]
        log_det += factor(W, G)
        invert_factor(G, T)
        for i in range(d):
            # G⁻¹Dh, of which the square is the quadratic form and G⁻ᵀ the solution
            u = dot(v[: i + 1], T[i])
            quadratic += u * u
            add_scaled(solved_sum, u, T[i, : i + 1])
        inverse_from(W, T)
        for i in range(d):
            add_scaled(total[i], 1.0, T[i, : i + 1])
    for i in range(d):
        for j in range(i + 1):
            inverse_sum[i, j] = total[i, j]
            inverse_sum[j, i] = total[i, j]
    return log_det, quadratic


@njit(cache=True)
def solve_stack(A, X, solved):  # type: ignore[no-untyped-def]
    """``X_a`` becomes ``A_a⁻¹X_a`` and ``solved[a]`` true; where ``A_a`` is as good as singular both stay as they are.

    Scaled to a unit diagonal first, so that units do not decide what is singular.  A: (K, m, m)   X: (K, m, n)
    """
    K, m, n = X.shape
    first = padded(m)
    table = np.zeros((m, first + padded(n)))
    G = np.zeros((m, first))
    scale = np.empty(m)
    for a in range(K):
        for i in range(m):
            scale[i] = 1.0 / math.sqrt(A[a, i, i]) if A[a, i, i] > 0.0 else 1.0
        for i in range(m):
            for j in range(m):
                table[i, j] = A[a, i, j] * (scale[i] * scale[j])
            for j in range(n):
                table[i, first + j] = X[a, i, j] * scale[i]
        if math.isnan(factor(table, G)):
            continue
        least = 1.0
        for i in range(m):
            least = min(least, G[i, i] * G[i, i])
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
    G = np.zeros((m, first))
    transposed = np.empty((n, m))
    out = np.empty((n, padded(n)))
    for a in range(K):
        for i in range(m):
            for j in range(m):
                table[i, j] = A[a, i, j]
            for j in range(n):
                table[i, first + j] = X[a, i, j]
        if math.isnan(factor(table, G)):
            products[a] = math.nan
            continue
        out[:, :] = 0.0
        subtract_gram(out, table, first, n, transposed)
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
    G = np.zeros((L, first))
    across = np.empty(m + 1)
    values[:] = 0.0
    for a in range(K):
        for i in range(L):
            for j in range(L):
                table[i, j] = S[a, i, j] + strength * D[i, j]
            for j in range(m):
                table[i, first + j] = gap[a, i, j]
            table[i, first + m] = mean[i]
        log_det = factor(table, G)
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
