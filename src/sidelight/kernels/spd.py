"""Compiled algebra of stacks of small positive definite matrices, for which calls to LAPACK cost more than the work."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sidelight.kernels.simd import add_scaled, dot

#: a pivot, relative to the diagonal, below which rounding decides what a solution is
SINGULAR = 1e-12


@njit(cache=True)
def factor(A, G):  # type: ignore[no-untyped-def]
    """The lower triangle of ``G`` becomes Cholesky's, ``A = GGᵀ``; returns ``log det A``, NaN where there is none."""
    m = A.shape[0]
    log_det = 0.0
    for j in range(m):
        pivot = A[j, j] - dot(G[j, :j], G[j])
        if not pivot > 0.0:
            return math.nan
        root = math.sqrt(pivot)
        log_det += 2.0 * math.log(root)
        G[j, j] = root
        for i in range(j + 1, m):
            G[i, j] = (A[i, j] - dot(G[j, :j], G[i])) / root
    return log_det


@njit(cache=True)
def forward(G, X):  # type: ignore[no-untyped-def]
    """``X`` becomes ``G⁻¹X``.  G: (m, m) lower triangular   X: (m, n)"""
    for i in range(X.shape[0]):
        for k in range(i):
            add_scaled(X[i], -G[i, k], X[k])
        for j in range(X.shape[1]):
            X[i, j] /= G[i, i]


@njit(cache=True)
def backward(G, X):  # type: ignore[no-untyped-def]
    """``X`` becomes ``G⁻ᵀX``.  G: (m, m) lower triangular   X: (m, n)"""
    for i in range(X.shape[0] - 1, -1, -1):
        for j in range(X.shape[1]):
            X[i, j] /= G[i, i]
        for k in range(i):
            add_scaled(X[k], -G[i, k], X[i])


@njit(cache=True)
def invert(A, inverse):  # type: ignore[no-untyped-def]
    """``inverse = A⁻¹`` by Cholesky; returns ``log det A``, or NaN where A is not positive definite."""
    m = A.shape[0]
    G = np.zeros((m, m))
    log_det = factor(A, G)
    if math.isnan(log_det):
        return log_det
    # T = G⁻¹ (lower triangular), then A⁻¹ = TᵀT
    T = np.zeros((m, m))
    for i in range(m):
        T[i, i] = 1.0 / G[i, i]
        for k in range(i):
            add_scaled(T[i], -(G[i, k] / G[i, i]), T[k, : k + 1])
    for i in range(m):
        for j in range(m):
            inverse[i, j] = 0.0
    for k in range(m):
        for i in range(k + 1):
            add_scaled(inverse[i], T[k, i], T[k, : k + 1])
    return log_det


@njit(cache=True)
def measure_stack(J, h, quadratic, log_det):  # type: ignore[no-untyped-def]
    """For each matrix of the stack ``hᵀJ⁻¹h`` and ``log det J``; NaN where it is not positive definite.

    J: (K, d, d)   h: (K, d)   quadratic, log_det: (K,) results
    """
    K, d = h.shape
    G = np.empty((d, d))
    v = np.empty(d)
    for a in range(K):
        log_det[a] = factor(J[a], G)
        quadratic[a] = log_det[a]
        if math.isnan(log_det[a]):
            continue
        for i in range(d):
            v[i] = (h[a, i] - dot(v[:i], G[i])) / G[i, i]
        quadratic[a] = dot(v, v)


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


@njit(cache=True)
def solve_stack(A, X, solved):  # type: ignore[no-untyped-def]
    """``X_a`` becomes ``A_a⁻¹X_a`` and ``solved[a]`` true; where ``A_a`` is as good as singular both stay as they are.

    Scaled to a unit diagonal first, so that units do not decide what is singular.  A: (K, m, m)   X: (K, m, n)
    """
    K, m, n = X.shape
    scaled = np.empty((m, m))
    G = np.empty((m, m))
    scale = np.empty(m)
    for a in range(K):
        for i in range(m):
            scale[i] = math.sqrt(A[a, i, i]) if A[a, i, i] > 0.0 else 1.0
        for i in range(m):
            for j in range(m):
                scaled[i, j] = A[a, i, j] / (scale[i] * scale[j])
        if math.isnan(factor(scaled, G)):
            continue
        least = 1.0
        for i in range(m):
            least = min(least, G[i, i] * G[i, i])
        if not least > SINGULAR:
            continue
        solved[a] = True
        for i in range(m):
            for j in range(n):
                X[a, i, j] /= scale[i]
        forward(G, X[a])
        backward(G, X[a])
        for i in range(m):
            for j in range(n):
                X[a, i, j] /= scale[i]


@njit(cache=True)
def whiten_stack(A, G, C, inner):  # type: ignore[no-untyped-def]
    """``A_a = C_aC_aᵀ`` and ``inner_a = C_a⁻¹G_aC_a⁻ᵀ``; returns the first ``a`` that has no such factor, or −1.

    A, G: (K, m, m)   C: (K, m, m) zeros at first   inner: (K, m, m)
    """
    K, m, _ = A.shape
    half = np.empty((m, m))
    for a in range(K):
        if math.isnan(factor(A[a], C[a])):
            return a
        for i in range(m):
            for j in range(m):
                half[i, j] = G[a, i, j]
        forward(C[a], half)
        for i in range(m):
            for j in range(m):
                inner[a, i, j] = half[j, i]
        forward(C[a], inner[a])
    return -1


@njit(cache=True)
def pooling_likelihood(S, D, gap, strength):  # type: ignore[no-untyped-def]
    """``½Σ_a[tr gap_aᵀ(S_a + κD)⁻¹gap_a − m log det(S_a + κD)]``, NaN where a matrix is not positive definite.

    S: (K, L, L)   D: (L, L)   gap: (K, L, m)   strength: ``κ``
    """
    K, L, m = gap.shape
    W = np.empty((L, L))
    G = np.empty((L, L))
    X = np.empty((L, m))
    total = 0.0
    for a in range(K):
        for i in range(L):
            for j in range(L):
                W[i, j] = S[a, i, j] + strength * D[i, j]
            for j in range(m):
                X[i, j] = gap[a, i, j]
        total -= m * factor(W, G)
        forward(G, X)
        for i in range(L):
            total += dot(X[i], X[i])
    return 0.5 * total
