"""Compiled algebra of the soft constraint: what a log says about each arm, and how well rounds fit what it says.

For one arm ``Λ = A(τ²G + s²A)⁻¹G`` and ``Λb = A(τ²G + s²A)⁻¹g`` with ``G = RᵀR``, ``g = Rᵀy`` (see ``side.evidence``).
"""

from __future__ import annotations

import math

import numpy as np

from sidelight.kernels.compiled import helper, kernel
from sidelight.kernels.elementary import log as natural_log
from sidelight.kernels.elimination import subtract_row
from sidelight.kernels.simd import clear
from sidelight.kernels.spd import backward, factor, padded, subtract_product


@helper
def near_root(x):  # type: ignore[no-untyped-def]
    """A power of two near ``1/√x``; 1 where ``x`` is not positive and finite."""
    if not 0.0 < x < math.inf:
        return 1.0
    return math.ldexp(1.0, -(math.frexp(math.sqrt(x))[1]))


@kernel
def lift(A, G):  # type: ignore[no-untyped-def]
    """Give directions without answers a negligible precision in ``A``, so that its Cholesky factor exists.

    It is measured in units of the columns' own scale, which for a column that is zero all over the log is the answers'.
    An arm with neither rows nor answers says nothing, whatever stands there.  A, G: (K, L, L)
    """
    K, L, _ = G.shape
    squares = np.zeros(L)
    for i in range(L):
        for a in range(K):
            squares[i] += G[a, i, i]
        if not squares[i] > 0.0:
            for a in range(K):
                squares[i] += A[a, i, i]
        if not squares[i] > 0.0:
            squares[i] = 1.0
    for a in range(K):
        floor = 0.0
        for i in range(L):
            floor += (1e-13 * A[a, i, i] + 1e-12 * G[a, i, i]) / squares[i] / L
        if not floor > 0.0:
            floor = 1.0
        for i in range(L):
            A[a, i, i] += floor * squares[i]


@kernel
def soft_evidence(G, g, A, B, tau2, s2, J, h):  # type: ignore[no-untyped-def]
    """``J = MᵀΛM`` and ``h = MᵀΛb`` of every arm.

    Stops at the first arm whose ``τ²G + s²A`` is not positive definite and returns its position; −1 if all are.

    G: (K, L, L)   g: (K, L)   A: (K, L, L), or (0, …) for ``τ² = 0``   B: (K, L, m)   tau2, s2: (K,), of which an
    infinite ``s²`` means that the log says nothing   J: (K, d, d)   h: (K, d)
    """
    K, L, m = B.shape
    first = padded(L)
    n = padded(L + 1)
    table = np.zeros((L, first + n))
    # −[Λ | Λb], B, −ΛB and BᵀΛB
    out = np.zeros((L, n))
    loadings = np.zeros((L, padded(m)))
    across = np.empty((L, padded(m)))
    corner = np.empty((m, padded(m)))
    for a in range(K):
        clear(out)
        if A.shape[0] == 0:
            for i in range(L):
                for j in range(L):
                    out[i, j] = -G[a, i, j] / s2[a]
                out[i, L] = -g[a, i] / s2[a]
        elif math.isfinite(s2[a]):
            for i in range(L):
                for j in range(L):
                    table[i, j] = tau2[a] * G[a, i, j] + s2[a] * A[a, i, j]
                    table[i, first + j] = G[a, i, j]
                table[i, first + L] = g[a, i]
            if math.isnan(factor(table)):
                return a
            backward(table, table, first, False)
            subtract_product(out, A[a], 0, table, first)
        for i in range(L):
            for j in range(i):
                out[i, j] = out[j, i]
            for j in range(m):
                loadings[i, j] = B[a, i, j]
        clear(across)
        clear(corner)
        for i in range(L):
            subtract_row(across, i, out, (i * n, 1, 0, L), loadings, (0, 0, padded(m)))
            h[a, i] = -out[i, L]
            for j in range(L):
                J[a, i, j] = -out[i, j]
            for j in range(m):
                J[a, i, L + j] = across[i, j]
                J[a, L + j, i] = across[i, j]
        for i in range(m):
            subtract_row(corner, i, loadings, (i, padded(m), 0, L), across, (0, 0, padded(m)))
            h[a, L + i] = 0.0
            for k in range(L):
                h[a, L + i] += B[a, k, i] * h[a, k]
            for j in range(i + 1):
                J[a, L + i, L + j] = -corner[i, j]
                J[a, L + j, L + i] = -corner[i, j]
    return -1


@helper
def spread_of_answers(A, R, tau2, table, spread):  # type: ignore[no-untyped-def]
    """``spread = −τ²RA⁻¹Rᵀ`` of one arm, on and above the diagonal.

    A, R: (L, L)   table: (L, padded(L) + n), zero beyond what is written here, to work in   spread: (L, n)
    """
    L, first = A.shape[0], padded(A.shape[0])
    tau = math.sqrt(tau2)
    for i in range(L):
        for j in range(L):
            table[i, j] = A[i, j]
            table[i, first + j] = tau * R[j, i]
    factor(table)
    subtract_product(spread, table, first, table, first)


@helper
def scaled_system(prior, rounds, weight, log, units, table):  # type: ignore[no-untyped-def]
    """``[P | MᵀRᵀ, h]`` of one arm in scaled units; ``P``, ``h``: the prior's plus ``weight`` times the rounds'.

    prior, rounds: (d, d), (d,) each   log: R (L, L), B (L, m)   units: (d,)   table: (d, padded(d) + padded(L + 1))
    """
    P0, h0 = prior
    gram, moment = rounds
    R, B = log
    d, L = h0.shape[0], R.shape[0]
    first = padded(d)
    for i in range(d):
        for j in range(d):
            table[i, j] = P0[i, j] + weight * gram[i, j]
        for j in range(L):
            table[i, first + j] = R[j, i] if i < L else 0.0
        table[i, first + L] = h0[i] + weight * moment[i]
    for i in range(L, d):
        for k in range(L):
            for j in range(first, first + k + 1):
                table[i, j] += B[k, i - L] * table[k, j]
    for i in range(d):
        for j in range(d):
            table[i, j] *= units[i] * units[j]
        for j in range(first, first + L + 1):
            table[i, j] *= units[i]


@helper
def add_side_gains(table, L, p, v, a, sign, gains):  # type: ignore[no-untyped-def]
    """Add ``sign`` times what a bias along each direction adds to ``−2 log p(y)`` of arm ``a``.

    table: (L, …) factored, ``y`` less its mean in column ``L`` and ``Ru`` of the ``p`` directions after it
    v, gains: see ``marginals``
    """
    for j in range(p):
        size = 0.0
        along = 0.0
        for i in range(L):
            size += table[i, L + 1 + j] * table[i, L + 1 + j]
            along += table[i, L + 1 + j] * table[i, L]
        for i in range(j, v.shape[1], p):
            more = 1.0 + v[a, i] * size
            gains[i, a] += sign * (natural_log(more) - v[a, i] * along * along / more)


@kernel
def marginals(P0, h0, rounds, log, tau2, s2, values, sides):  # type: ignore[no-untyped-def]
    """``log p(online rewards)`` of every arm where the log counts with variance ``s²``, for several ``s²`` at once.

    And what is gained over the first of them where the log's coefficients are biased in one direction ``u`` alone, with
    variance ``v``: ``N + v(Ru)(Ru)ᵀ`` has the determinant ``(1 + vq) det N``, ``q = (Ru)ᵀN⁻¹Ru``.

    The log is one more observation ``y = RMw + ε``, ``Cov ε = s²I + τ²RA⁻¹Rᵀ``, and by Bayes' rule
    ``p(rounds | y) = p(rounds) p(y | rounds)/p(y)``.  For ``w`` of precision ``P`` and mean ``P⁻¹h``, ``y`` is normal
    with mean ``RMP⁻¹h`` and covariance ``N = s²I + R(τ²A⁻¹ + MP⁻¹Mᵀ)Rᵀ``, of which only ``s²I`` differs.

    P0, h0: (K, d, d), (K, d)  before rounds and log
    rounds: grams (K, d, d), moments (K, d) and the variance of their noise
    log: R (K, L, L) upper triangular, y (K, L), B (K, L, m) of ``M = [I, B]``, A (K, L, L), or (0, …) for ``τ² = 0``
    tau2: (K,)   s2, values: (n, K)
    sides: ``Ru`` (K, L, p) of every direction, ``v`` (K, q · p) for ``q`` sizes one after the other, and where the
    gains go (q · p, K)
    """
    RU, v, gains = sides
    p = RU.shape[2]
    grams, moments, variance = rounds
    R, y, B, A = log
    K, d = h0.shape
    L = y.shape[1]
    n = padded(L + 1)
    # [P | MᵀRᵀ, h] and [A | τRᵀ]
    width = padded(d) + n
    weights = np.zeros((d, width))
    answers = np.zeros((L, padded(L) + n))
    spread = np.zeros((L, n))
    base = np.zeros((L + 1, n))
    N = np.zeros((L, n))
    wide = np.zeros((L, padded(L + 1 + p)))
    units = np.empty(d)
    for a in range(K):
        for k in range(values.shape[0]):
            values[k, a] = 0.0
        for k in range(gains.shape[0]):
            gains[k, a] = 0.0
        seen = False
        for i in range(d):
            seen = seen or grams[a, i, i] != 0.0
        if not seen:
            # no round, nothing to fit
            continue
        # scaled by powers of two, so that the rounding of log determinants does not depend on units
        for i in range(d):
            units[i] = near_root(P0[a, i, i])
        unit = near_root(s2[0, a])
        clear(spread)
        if A.shape[0] > 0 and tau2[a] > 0.0:
            spread_of_answers(A[a], R[a], tau2[a], answers, spread)
        for after in range(2):
            sign = 0.5 - after
            weight = after / variance
            scaled_system((P0[a], h0[a]), (grams[a], moments[a]), weight, (R[a], B[a]), units, weights)
            log_det = factor(weights)
            for i in range(L):
                for j in range(n):
                    base[i, j] = spread[i, j]
            for j in range(n):
                base[L, j] = 0.0
            # −(N − s²I), its last column less the mean of y, and below that hᵀP⁻¹h
            subtract_product(base, weights, padded(d), weights, padded(d))
            for k in range(s2.shape[0]):
                values[k, a] += sign * (log_det + base[L, L])
                if math.isinf(s2[k, a]):
                    continue
                table = wide if k == 0 else N
                for i in range(L):
                    for j in range(L):
                        table[i, j] = -base[i, j]
                    table[i, i] += s2[k, a]
                    for j in range(L):
                        table[i, j] *= unit * unit
                    table[i, L] = unit * (y[a, i] + base[i, L])
                    if k == 0:
                        for j in range(p):
                            table[i, L + 1 + j] = unit * RU[a, i, j]
                among = factor(table)
                square = 0.0
                for i in range(L):
                    square += table[i, L] * table[i, L]
                values[k, a] += sign * (among + square)
                if k == 0:
                    add_side_gains(table, L, p, v, a, sign, gains)
