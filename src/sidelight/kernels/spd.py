"""Compiled algebra of stacks of small positive definite matrices, for which calls to LAPACK cost more than the work.

Everything rests on one elimination: ``[A | X]`` becomes ``[Gᵀ | G⁻¹X]`` where ``A = GGᵀ``.  In such a table ``X``
begins at column ``padded(m)``, and rows are a multiple of eight long, so that they can be read in vectors.
"""

from __future__ import annotations

import math

import numpy as np

from sidelight.arrays import Array
from sidelight.kernels.compiled import helper, kernel
from sidelight.kernels.elementary import log
from sidelight.kernels.elimination import scale_row, subtract_four, subtract_row
from sidelight.kernels.simd import clear

#: from what length on rows are eliminated four at a time
WIDE = 96


@helper
def padded(n):  # type: ignore[no-untyped-def]
    """The least multiple of eight that is at least ``n``."""
    return (n + 7) & ~7


@helper
def in_fours(m, width):  # type: ignore[no-untyped-def]
    """How many of ``m`` rows are eliminated four at a time, which saves memory reads where rows are long; else 0."""
    return m & ~3 if width >= WIDE else 0


@helper
def factor(A):  # type: ignore[no-untyped-def]
    """Cholesky's ``A = GGᵀ``: ``[A | X]`` becomes ``[Gᵀ | G⁻¹X]``; returns ``log det A``, NaN where there is none.

    A: (m, width), of which what is below the diagonal has no meaning
    """
    m, width = A.shape
    fours = in_fours(m, width)
    log_det = 0.0
    product = 1.0
    for j in range(m):
        begin = j & ~3 if j < fours else 0
        if j < fours and j == begin:
            subtract_four(A, j, A, (j, 1, width, 0, j), A, (0, j & ~7, width))
        subtract_row(A, j, A, (j, width, begin, j), A, (0, j & ~7, width))
        pivot = A[j, j]
        if not pivot > 0.0:
            return math.nan
        # one logarithm for many pivots, before their product leaves the range of numbers
        product *= pivot
        if not 1e-100 < product < 1e100:
            log_det += log(product)
            product = 1.0
        scale_row(A, j, 1.0 / math.sqrt(pivot), j & ~7, width)
    return log_det + log(product)


@helper
def backward(A, Y, first, lower):  # type: ignore[no-untyped-def]
    """``Y`` becomes ``G⁻ᵀY`` in its columns from ``first`` on, or, if ``lower``, on and below its diagonal alone.

    A: (m, width) holds ``Gᵀ``   Y: (m, …); it may be ``A`` itself, ``[Gᵀ | X]``
    """
    m, width = A.shape
    fours = in_fours(m, width)
    for i in range(m - 1, -1, -1):
        last = padded(i + 1) if lower else Y.shape[1]
        end = (i & ~3) + 4 if i < fours else m
        if i < fours and i == end - 1:
            subtract_four(Y, i - 3, A, ((i - 3) * width, width, 1, end, m), Y, (0, first, last))
        subtract_row(Y, i, A, (i * width, 1, i + 1, end), Y, (0, first, last))
        scale_row(Y, i, 1.0 / A[i, i], first, last)


@helper
def subtract_product(out, C, at, A, first):  # type: ignore[no-untyped-def]
    """``out −= CᵀX`` on and above the diagonal.

    out: (n, padded)   C: (m, …), its ``n`` columns from ``at`` on   A: (m, …), ``X`` its columns from ``first`` on
    """
    m, width = C.shape
    n, last = out.shape
    for i in range(0, n - 3, 4):
        subtract_four(out, i, C, (at + i, 1, width, 0, m), A, (first, i & ~7, last))
    for i in range(n & ~3, n):
        subtract_row(out, i, C, (at + i, width, 0, m), A, (first, i & ~7, last))


@helper
def invert_factor(A, T):  # type: ignore[no-untyped-def]
    """``T = G⁻¹``, lower triangular.  A: (m, width) holds ``Gᵀ``   T: (m, padded(m))"""
    m, width = A.shape
    fours = in_fours(m, width)
    clear(T)
    for i in range(m):
        begin = i & ~3 if i < fours else 0
        if i < fours and i == begin:
            subtract_four(T, i, A, (i, 1, width, 0, i), T, (0, 0, padded(i)))
        subtract_row(T, i, A, (i, width, begin, i), T, (0, 0, padded(i)))
        scale = 1.0 / A[i, i]
        scale_row(T, i, scale, 0, padded(i))
        T[i, i] = scale


@helper
def invert_into(A, inverse):  # type: ignore[no-untyped-def]
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
    backward(W, T, 0, True)  # A⁻¹ = G⁻ᵀG⁻¹
    for i in range(m):
        for j in range(i + 1):
            inverse[i, j] = T[i, j]
            inverse[j, i] = T[i, j]
    return log_det


@kernel
def invert_stack(A, inverses, log_dets):  # type: ignore[no-untyped-def]
    """``invert_into`` for every matrix of a stack.  A, inverses: (K, m, m)   log_dets: (K,)"""
    for a in range(A.shape[0]):
        log_dets[a] = invert_into(A[a], inverses[a])


def invert(A: Array, inverse: Array) -> float:
    """``inverse = A⁻¹`` by Cholesky; returns ``log det A``, or NaN where A is not positive definite.  Both: (m, m)"""
    log_det = np.empty(1)
    invert_stack(A[None], inverse[None], log_det)
    return float(log_det[0])


@kernel
def solve_stack(A, X, log_dets):  # type: ignore[no-untyped-def]
    """``X_a`` becomes ``A_a⁻¹X_a``, and ``log_dets[a] = log det A_a``.

    Where ``A_a`` is not positive definite, ``log_dets[a]`` is NaN and ``X_a`` stays as it was.

    A: (K, m, m)   X: (K, m, n), with ``n = 0`` for the determinants alone   log_dets: (K,)
    """
    K, m, n = X.shape
    first = padded(m)
    table = np.zeros((m, first + padded(n)))
    for a in range(K):
        for i in range(m):
            for j in range(m):
                table[i, j] = A[a, i, j]
            for j in range(n):
                table[i, first + j] = X[a, i, j]
        log_dets[a] = factor(table)
        if math.isnan(log_dets[a]):
            continue
        backward(table, table, first, False)
        for i in range(m):
            for j in range(n):
                X[a, i, j] = table[i, first + j]
