"""Compiled algebra of the prior over arms: see ``side.prior`` for the formulas and their letters."""

from __future__ import annotations

import math

import numpy as np

from sidelight.kernels.compiled import kernel
from sidelight.kernels.simd import add_at, clear, dot_at
from sidelight.kernels.spd import backward, factor, inverse_from, invert_factor, padded


@kernel
def shrink_arms(J, h, Z, omega, S, t):  # type: ignore[no-untyped-def]
    """``Σ_a X_aᵀS_aX_a`` into ``S`` and ``Σ_a X_aᵀt_a`` into ``t``, ``X_a = [I, Z_aᵀ]`` the design of arm ``a``'s mean.

    Returns ``Σ_a[−½log det W_a + ½(Dh_a)ᵀW_a⁻¹(Dh_a)]``; −∞ if rounding leaves a ``W_a`` that is not positive definite,
    so that the search takes another ``Ω``.

    J: (K, d, d)   h: (K, d)   Z: (K, q, d)   omega: (d,) diagonal of ``Ω``   S: (d + q, d + q)   t: (d + q,)
    """
    K, d = h.shape
    q = Z.shape[1]
    D = np.empty(d)
    for i in range(d):
        D[i] = math.sqrt(omega[i])
    W = np.zeros((d, padded(d)))
    T = np.empty((d, padded(d)))
    inverses = np.zeros((d, padded(d)))
    v = np.empty(d)
    # of the rows of Z: D⁻¹z, G⁻¹D⁻¹z and W⁻¹D⁻¹z, where W = GGᵀ
    scaled, halves, solved = np.empty((q, d)), np.empty((q, d)), np.empty((q, d))
    value = 0.0
    width = padded(d)
    clear(S)
    clear(t)
    for a in range(K):
        for i in range(d):
            for j in range(d):
                W[i, j] = D[i] * J[a, i, j] * D[j]
            W[i, i] += 1.0
            v[i] = D[i] * h[a, i]
            for k in range(q):
                scaled[k, i] = Z[a, k, i] / D[i]
        log_det = factor(W)
        if math.isnan(log_det):
            clear(S)
            clear(t)
            return -math.inf
        value -= 0.5 * log_det
        invert_factor(W, T)
        clear(solved)
        for i in range(d):
            # G⁻¹Dh: its square is the quadratic form, and G⁻ᵀ of it the solution
            u = dot_at(v, 0, T, i * width, i + 1)
            value += 0.5 * u * u
            add_at(t, 0, u, T, i * width, i + 1)
            for k in range(q):
                halves[k, i] = dot_at(scaled, k * d, T, i * width, i + 1)
                add_at(solved, k * d, halves[k, i], T, i * width, i + 1)
                t[d + k] += halves[k, i] * u
        for k in range(q):
            for i in range(d):
                S[d + k, i] += (scaled[k, i] - solved[k, i]) / D[i]
            for j in range(k + 1):
                S[d + k, d + j] += dot_at(scaled, k * d, scaled, j * d, d) - dot_at(halves, k * d, halves, j * d, d)
        inverse_from(W, T)
        for i in range(d):
            add_at(inverses, i * width, 1.0, T, i * width, i + 1)
    for i in range(d):
        t[i] /= D[i]
        for j in range(i + 1):
            S[i, j] = ((K if i == j else 0.0) - inverses[i, j]) / (D[i] * D[j])
    for i in range(d + q):
        for j in range(i):
            S[j, i] = S[i, j]
    return value


@kernel
def mean_values(S, t, kappa2, values, means):  # type: ignore[no-untyped-def]
    """``½tᵀP⁻¹t − ½log det(κ²P)`` into ``values`` and ``β̂ = P⁻¹t`` into ``means``, for several ``κ²`` at once.

    S: (p, p)   t: (p,)   kappa2, means: (n, p)   values: (n,)
    """
    n, p = kappa2.shape
    first = padded(p)
    table, root = np.zeros((p, first + 8)), np.empty(p)
    for c in range(n):
        for i in range(p):
            root[i] = math.sqrt(kappa2[c, i])
        # κ²-scaled, so that a vague mean does not make P singular
        for i in range(p):
            for j in range(i, p):
                table[i, j] = root[i] * S[i, j] * root[j]
            table[i, i] += 1.0
            table[i, first] = root[i] * t[i]
        value = -0.5 * factor(table)
        for i in range(p):
            value += 0.5 * table[i, first] * table[i, first]
        values[c] = value
        backward(table, first)
        for i in range(p):
            means[c, i] = root[i] * table[i, first]
