"""A rough look at all arms side by side, for problems whose reduced dimension is small.

With five dimensions left an arm's ``z`` and width are a hundred products: less than what it costs to begin and end the
loops over them.  So a copy of what a decision reads is kept in single precision with the arms along the last axis, and
eight arms go through the arithmetic at a time.  What comes out is an upper bound of each arm's index that is off by
rounding alone; the few arms that may be highest are then evaluated in full.

One vector holds, row after row of ``lanes`` numbers (the arms, filled up to a multiple of eight): the norm of the
weights, the largest width per unit of ``z``, ``m(m + 1)/2`` rows of squared radius times covariance (``C_00, C_01, …``,
off-diagonal ones doubled), for each of the first ``R`` features its weight and its ``m`` loadings, the other features'
weights; at its end the largest norm of an arm's loadings.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sidelight.kernels.compiled import inlined
from sidelight.kernels.simd import dot_at
from sidelight.kernels.single import bound_lanes, combine_rows

#: the largest reduced dimension for which this pays; beyond, arms are better left out one by one
WIDEST = 12
#: twice what rounding to single precision changes, relatively; and what underflow may hide, squares of it included
UNIT = 2.0**-23
HIDDEN = 1e-21


@njit(cache=True)
def lanes_of(K):  # type: ignore[no-untyped-def]
    """``K`` rounded up to a multiple of eight."""
    return (K + 7) // 8 * 8


@inlined
def put_arm(a, R, weights, covariances, radii, bounds, packed):  # type: ignore[no-untyped-def]
    """Copy what a decision reads of arm ``a`` to where it reads it; nothing where ``packed`` is empty."""
    if packed.shape[0] == 0:
        return
    K, d = weights.shape
    m = covariances.shape[1]
    lanes = lanes_of(K)
    packed[lanes + a] = radii[a] * bounds[a]
    at = 2 * lanes + a
    scale = radii[a] * radii[a]
    for i in range(m):
        packed[at] = scale * covariances[a, i, i]
        at += lanes
        for j in range(i + 1, m):
            packed[at] = 2.0 * scale * covariances[a, i, j]
            at += lanes
    for i in range(R):
        packed[at + i * (m + 1) * lanes] = weights[a, i]
    at += R * (m + 1) * lanes
    for i in range(d - R):
        packed[at + i * lanes] = weights[a, R + i]
    packed[a] = math.sqrt(dot_at(weights, a * d, weights, a * d, d))


@njit(cache=True)
def pack(loadings, weights, covariances, radii, bounds):  # type: ignore[no-untyped-def]
    """The whole of it.  loadings: (K, m, R)   weights: (K, d)   covariances: (K, m, m)   radii, bounds: (K,)"""
    K, m, R = loadings.shape
    d = weights.shape[1]
    lanes = lanes_of(K)
    packed = np.zeros((2 + d + m * (m + 1) // 2 + R * m) * lanes + 1, dtype=np.float32)
    # whoever is not there is of unknown height: no bound
    packed[K:lanes] = np.inf
    steepest = 0.0
    for a in range(K):
        squares = 0.0
        at = (2 + m * (m + 1) // 2) * lanes + a
        for r in range(R):
            at += lanes
            for j in range(m):
                loading = loadings[a, j, r]
                packed[at] = loading
                squares += loading * loading
                at += lanes
        steepest = max(steepest, squares)
        put_arm(a, R, weights, covariances, radii, bounds, packed)
    packed[-1] = math.sqrt(steepest)
    return packed


@inlined
def bound_indices(y, m, R, shifted, packed, x, room):  # type: ignore[no-untyped-def]
    """At least every arm's index ``x·ŵ + radius · ‖z‖_{A⁻¹}``, into ``room[:K]``; returns at most the highest index.

    With the estimate ``e``, ``z`` and ``q = radius² zᵀA⁻¹z`` as single precision has them, ``‖z‖ ≤ s = ‖x_h‖ +
    max‖B‖‖x[:R]‖`` and ``g = radius · bound ≥ radius · √λ_max(A⁻¹)``, rounding is off by at most ``ε₁‖w‖‖x‖`` in ``e``,
    ``ε₂s`` in ``z`` and ``ε₃g²s²`` in ``q``, where ``ε`` counts the roundings in a row, so the index is within

        e ± ε₁‖w‖‖x‖ + √(q ± ε₃g²s²) ± ε₂gs.

    y: (d,) the context in internal order   x: (d,), room: ((m + 1)·lanes,) to work in, in single precision
    """
    d = y.shape[0]
    lanes = room.shape[0] // (m + 1)
    recorded, hidden = dot_at(y, 0, y, 0, R), dot_at(y, R, y, R, d - R)
    for i in range(d):
        x[i] = y[i]
    block = (2 + m * (m + 1) // 2) * lanes
    combine_rows(room, 0, (m + 1) * lanes, x, 0, R, packed, block, True)
    combine_rows(room, 0, lanes, x, R, d - R, packed, block + R * (m + 1) * lanes, False)
    norm = math.sqrt(recorded + hidden)
    size = 1.001 * (math.sqrt(hidden) + packed[-1] * math.sqrt(recorded))
    return bound_lanes(
        room,
        x,
        d - m if shifted else -1,
        m,
        lanes,
        packed,
        2 * lanes,
        np.float32((d + 4) * UNIT * norm + HIDDEN),
        np.float32(4.0 * (m + 4) * math.sqrt(m) * UNIT * size * size),
        np.float32((R + 5) * UNIT * size + HIDDEN),
        np.float32(m * HIDDEN * (1.0 + norm + size)),
    )
