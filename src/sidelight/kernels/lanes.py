"""All arms side by side, for problems whose reduced dimension is small.

With five dimensions left an arm's ``z`` and width are a hundred products: less than what it costs to begin and end the
loops over them.  So a copy of what a decision reads is kept with the arms along the last axis, and four arms go through
the arithmetic at a time.  One vector holds, row after row of ``lanes`` numbers (the arms, filled up to a multiple of
four with zeros): ``d`` rows of weights, ``m(m + 1)/2`` of covariances (``C_00, C_01, …``, off-diagonal ones doubled),
``R·m`` of loadings.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sidelight.kernels.simd import combine_rows, quadratic_forms

#: the largest reduced dimension for which this pays; beyond, arms are better left out one by one
WIDEST = 12


@njit(cache=True)
def lanes_of(K):  # type: ignore[no-untyped-def]
    """``K`` rounded up to a multiple of four."""
    return (K + 3) // 4 * 4


@njit(cache=True)
def put_arm(a, weights, covariances, packed):  # type: ignore[no-untyped-def]
    """Copy arm ``a``'s weights and covariance to where a decision reads them; nothing where ``packed`` is empty."""
    if packed.shape[0] == 0:
        return
    K, d = weights.shape
    m = covariances.shape[1]
    lanes = lanes_of(K)
    for i in range(d):
        packed[i * lanes + a] = weights[a, i]
    at = d * lanes + a
    for i in range(m):
        packed[at] = covariances[a, i, i]
        at += lanes
        for j in range(i + 1, m):
            packed[at] = 2.0 * covariances[a, i, j]
            at += lanes


@njit(cache=True)
def pack(loadings, weights, covariances):  # type: ignore[no-untyped-def]
    """The whole of it.  loadings: (K, m, R)   weights: (K, d)   covariances: (K, m, m)"""
    K, m, R = loadings.shape
    d = weights.shape[1]
    lanes = lanes_of(K)
    packed = np.zeros((d + m * (m + 1) // 2 + R * m) * lanes)
    at = (d + m * (m + 1) // 2) * lanes
    for r in range(R):
        for j in range(m):
            for a in range(K):
                packed[at + a] = loadings[a, j, r]
            at += lanes
    for a in range(K):
        put_arm(a, weights, covariances, packed)
    return packed


@njit(cache=True)
def score_lanes(y, m, R, shifted, packed, radii, estimates, widths, z):  # type: ignore[no-untyped-def]
    """Every arm's estimate ``x·ŵ`` and width ``radius · ‖z‖_{A⁻¹}``.

    y: (d,) the context in internal order   radii: (K,)   estimates, widths: (lanes,)   z: (m·lanes,)
    """
    d = y.shape[0]
    lanes = estimates.shape[0]
    combine_rows(estimates, y, d, packed, 0)
    first = d * lanes
    combine_rows(z, y, R, packed, first + m * (m + 1) // 2 * lanes)
    for i in range(m):
        start = y[d - m + i] if shifted else 0.0
        for k in range(i * lanes, (i + 1) * lanes):
            z[k] = start - z[k]
    quadratic_forms(widths, z, m, packed, first)
    for a in range(radii.shape[0]):
        widths[a] = radii[a] * math.sqrt(max(widths[a], 0.0))
