"""Compiled algebra of one ridge regression per arm in reduced coordinates.

For arm ``a``: ``w = anchor + Nθ``, ``z = Nᵀx = x_h − loadingsᵀx[:R]`` (without ``x_h`` unless ``shifted``),
``A = NᵀV₀N + Σ z zᵀ``, ``θ̂ = A⁻¹(NᵀV₀(μ − anchor) + Σ z(r − x·anchor))``, ``ŵ = anchor + Nθ̂``.

The sums are the truth; ``covariances = A⁻¹``, ``weights = ŵ`` and ``log_dets = log det A/det A₀`` are caches,
kept by rank one and recomputed from the sums on a fixed schedule.  No fastmath: the same inputs give the
same bits.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

DETERMINANT, PRINTED, POSTERIOR = 0, 1, 2
# Every arm's caches are recomputed from its sums after this many rank-one updates.
REFRESH_EVERY = 1024


@njit(cache=True)
def take(x, order, out):  # type: ignore[no-untyped-def]
    """``out[i] = x[order[i]]``: the context in internal order."""
    for i in range(order.shape[0]):
        out[i] = x[order[i]]


@njit(cache=True)
def reduce_context(x, loadings, shifted, z):  # type: ignore[no-untyped-def]
    """``z = Nᵀx`` for one arm.  x: (d,) internal order, loadings: (R, m), z: (m,)"""
    m = z.shape[0]
    offset = x.shape[0] - m
    for j in range(m):
        z[j] = x[offset + j] if shifted else 0.0
    for i in range(loadings.shape[0]):
        xi = x[i]
        for j in range(m):
            z[j] -= loadings[i, j] * xi


@njit(cache=True)
def quadratic_form(C, z, t):  # type: ignore[no-untyped-def]
    """``zᵀCz`` from the upper triangle of the symmetric ``C``; t: (m,) scratch."""
    m = z.shape[0]
    for j in range(m):
        t[j] = 0.0
    for i in range(m):
        zi = z[i]
        for j in range(i + 1, m):
            t[j] += C[i, j] * zi
    total = 0.0
    for j in range(m):
        total += z[j] * (C[j, j] * z[j] + 2.0 * t[j])
    return max(total, 0.0)


@njit(cache=True)
def score_arms(x, order, loadings, shifted, weights, covariances, radii, estimates, widths):  # type: ignore[no-untyped-def]
    """Every arm's estimate ``x·ŵ`` and width ``radius · ‖z‖_{A⁻¹}``, into ``estimates`` and ``widths`` (K,)."""
    d = order.shape[0]
    m = covariances.shape[1]
    y = np.empty(d)
    z = np.empty(m)
    t = np.empty(m)
    take(x, order, y)
    same = loadings.shape[1] == 0
    if same:
        reduce_context(y, loadings[0], shifted, z)
    for a in range(weights.shape[0]):
        total = 0.0
        for i in range(d):
            total += y[i] * weights[a, i]
        estimates[a] = total
        if not same:
            reduce_context(y, loadings[a], shifted, z)
        widths[a] = radii[a] * math.sqrt(quadratic_form(covariances[a], z, t))


@njit(cache=True)
def invert(A, inverse):  # type: ignore[no-untyped-def]
    """``inverse = A⁻¹`` by Cholesky; returns ``log det A``, or NaN where A is not positive definite."""
    m = A.shape[0]
    G = np.zeros((m, m))
    log_det = 0.0
    for j in range(m):
        pivot = A[j, j]
        for k in range(j):
            pivot -= G[j, k] * G[j, k]
        if not pivot > 0.0:
            return math.nan
        root = math.sqrt(pivot)
        log_det += 2.0 * math.log(root)
        G[j, j] = root
        for i in range(j + 1, m):
            total = A[i, j]
            for k in range(j):
                total -= G[i, k] * G[j, k]
            G[i, j] = total / root
    # T = G⁻¹ (lower triangular), then A⁻¹ = TᵀT
    T = np.zeros((m, m))
    for i in range(m):
        T[i, i] = 1.0 / G[i, i]
        for k in range(i):
            g = G[i, k] / G[i, i]
            for j in range(k + 1):
                T[i, j] -= g * T[k, j]
    for i in range(m):
        for j in range(m):
            inverse[i, j] = 0.0
    for k in range(m):
        for i in range(k + 1):
            tki = T[k, i]
            for j in range(k + 1):
                inverse[i, j] += tki * T[k, j]
    return log_det


@njit(cache=True)
def refresh_arm(  # type: ignore[no-untyped-def]
    loadings, shifted, anchor, prior, prior_moment, prior_log_det, gram, moment, covariance, weights
):
    """Recompute one arm's caches from its sums; returns ``log det A/det A₀``."""
    d = anchor.shape[0]
    m = prior.shape[0]
    log_det = invert(prior + gram, covariance) - prior_log_det
    for i in range(d):
        weights[i] = anchor[i]
    for j in range(m):
        theta = 0.0
        for k in range(m):
            theta += covariance[j, k] * (prior_moment[k] + moment[k])
        if shifted:
            weights[d - m + j] += theta
        for i in range(loadings.shape[0]):
            weights[i] -= loadings[i, j] * theta
    return log_det


@njit(cache=True)
def update_arm(x, r, order, loadings, shifted, anchor, gram, moment, covariance, weights):  # type: ignore[no-untyped-def]
    """One observation of one arm, by rank one; returns the growth of ``log det A``."""
    d = order.shape[0]
    m = covariance.shape[0]
    y = np.empty(d)
    z = np.empty(m)
    u = np.zeros(m)
    take(x, order, y)
    reduce_context(y, loadings, shifted, z)
    at_anchor = 0.0
    estimate = 0.0
    for i in range(d):
        at_anchor += y[i] * anchor[i]
        estimate += y[i] * weights[i]
    for i in range(m):
        zi = z[i]
        for j in range(m):
            u[j] += covariance[i, j] * zi
    q = 0.0
    for j in range(m):
        q += z[j] * u[j]
    gain = 1.0 / (1.0 + q)
    step = (r - estimate) * gain
    for i in range(m):
        gi = gain * u[i]
        zi = z[i]
        moment[i] += zi * (r - at_anchor)
        for j in range(m):
            covariance[i, j] -= gi * u[j]
            gram[i, j] += zi * z[j]
    for j in range(m):
        move = u[j] * step
        if shifted:
            weights[d - m + j] += move
        for i in range(loadings.shape[0]):
            weights[i] -= loadings[i, j] * move
    return math.log1p(q)


@njit(cache=True)
def radius_of(kind, count, log_det, dimension, noise, prior_term, growth, union):  # type: ignore[no-untyped-def]
    """``√β`` of one arm.

    ``prior_term = λS_w²``, ``growth = S_x²/λ``, ``union = K/δ``; see ``theory.determinant_radius`` and
    ``theory.printed_radius``, which this equals.
    """
    if kind == DETERMINANT:
        return math.sqrt(noise * noise * (log_det + 2.0 * math.log(union)) + prior_term)
    if kind == PRINTED:
        spread = dimension * math.log(union * (1.0 + count * growth))
        return noise * math.sqrt(max(spread, 0.0)) + math.sqrt(prior_term)
    return noise
