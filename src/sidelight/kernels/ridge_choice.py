"""Which arm a context gets: every arm's estimate and width, and the arm of highest index (see ``ridge``)."""

from __future__ import annotations

import math

import numpy as np

from sidelight.arrays import LARGEST
from sidelight.kernels.compiled import inlined, kernel
from sidelight.kernels.ridge import reduce_context, take, take_row
from sidelight.kernels.simd import dot, dot_at, dot_row, quadratic_form
from sidelight.kernels.state import state_of

__all__ = ["choose", "choose_among", "choose_rows", "score", "score_parts"]

#: safety margin of pruning for rounding errors, relative to estimate and width; far above their size
MARGIN = 1e-9


@inlined
def width_of(covariances, a, z, radius):  # type: ignore[no-untyped-def]
    """``radius · ‖z‖_{A⁻¹}`` of arm ``a``."""
    return radius * math.sqrt(max(quadratic_form(covariances, a, z), 0.0))


@kernel
def score_parts(y, loadings, weights, covariances, radii, out):  # type: ignore[no-untyped-def]
    """Estimates ``x·ŵ`` and widths ``radius · ‖z‖_{A⁻¹}``, ``z = −loadings x``, into the rows of ``out`` (2, K)."""
    z = np.empty(covariances.shape[1])
    for a in range(weights.shape[0]):
        out[0, a] = dot_row(weights, a, y)
        reduce_context(y, loadings, a, False, z)
        out[1, a] = width_of(covariances, a, z, radii[a])


@kernel
def score(arena, sizes, x, out):  # type: ignore[no-untyped-def]
    """Every arm's estimate ``x·ŵ`` and width ``radius · ‖z‖_{A⁻¹}``, into the rows of ``out`` (2, K)."""
    s = state_of(arena, sizes)
    K, m, R = s.loadings.shape
    y, z = np.empty(s.order.shape[0]), np.empty(m)
    take(x, s.order, y)
    for a in range(K):
        out[0, a] = dot_row(s.weights, a, y)
        if R > 0 or a == 0:  # without loadings z is the same for all arms
            reduce_context(y, s.loadings, a, s.shifted, z)
        out[1, a] = width_of(s.covariances, a, z, s.radii[a])


@inlined
def choose_among(s, y, z, estimates, highest, limit):  # type: ignore[no-untyped-def]
    """The arm of highest index, its estimate and its width; the same as scoring all arms, ties included.

    With ``z̄ = x_h − centre x[:R]`` and ``spreads[a] ≥ ‖loadings_a − centre‖₂``, ``‖z_a‖ ≤ ‖z̄‖ + spread · ‖x[:R]‖``, and
    ``bounds[a] ≥ √λ_max(A⁻¹)``, so ``width ≤ radius · bound`` times that.  An arm whose estimate plus this bound is
    below an index already found cannot win: its ``z`` and its width are never computed.  The arm of the highest bound
    is evaluated first.

    Also the arm to be tried in doubt of the log, or −1: see ``to_doubt``.
    y: (d,) in internal order   z: (m,), estimates, highest: (K,) to work in
    """
    K, _, R = s.loadings.shape
    best = -1
    best_index = -np.inf
    best_width = 0.0
    reduce_context(y, s.centre, 0, s.shifted, z)
    reach = math.sqrt(dot(z, z))
    recorded = math.sqrt(dot_at(y, 0, y, 0, R))
    first = 0
    for a in range(K):
        estimate = dot_row(s.weights, a, y)
        most = s.radii[a] * s.bounds[a] * (reach + s.spreads[a] * recorded)
        estimates[a] = estimate
        # pruning may only skip arms that are surely below; the constant is for sums of squares that underflow
        highest[a] = estimate + most + MARGIN * (abs(estimate) + most) + 1e-120
        if highest[a] > highest[first]:
            first = a
    for visit in range(-1, K):
        # the most promising arm first, then all others in order
        a = first if visit < 0 else visit
        if highest[a] < best_index or visit == first:
            continue
        if R > 0:
            reduce_context(y, s.loadings, a, s.shifted, z)
        width = width_of(s.covariances, a, z, s.radii[a])
        index = estimates[a] + width
        if index > best_index or (index == best_index and a < best):
            best, best_index, best_width = a, index, width
    # if every index is NaN, fall back to arm 0 so that the caller always gets an arm
    best = max(best, 0)
    return best, estimates[best], best_width, to_doubt(s, estimates, best, best_index, limit)


@inlined
def to_doubt(s, estimates, best, best_index, limit):  # type: ignore[no-untyped-def]
    """The arm of least ``reluctance · (1 + count)^{3/2} · gap`` where that is at most ``limit``, or −1.

    ``gap`` is what trying the arm seems to cost here.
    """
    doubted = -1
    if limit > 0.0:
        least = limit
        for a in range(s.counts.shape[0]):
            rounds = 1.0 + s.counts[a]
            cost = (best_index - estimates[a]) * rounds
            # most arms cost too much already without the root, which takes longest
            if a == best or cost * s.reluctance[a] > least:
                continue
            cost = cost * math.sqrt(rounds) * s.reluctance[a]
            if cost <= least:
                least, doubted = cost, a
    return doubted


@kernel
def choose(arena, sizes, x, limit):  # type: ignore[no-untyped-def]
    """Position, estimate and width of the arm of highest index at ``x`` (d,), and the arm to try in doubt, or −1.

    The position is −1 where the sum of squares of ``x`` is not finite, or too large for what is computed from it, which
    costs less to see here than in Python.
    """
    s = state_of(arena, sizes)
    K, m, _ = s.loadings.shape
    y, z, estimates, highest = np.empty(s.order.shape[0]), np.empty(m), np.empty(K), np.empty(K)
    take(x, s.order, y)
    if not dot(y, y) <= LARGEST * LARGEST:
        return -1, math.nan, math.nan, -1
    return choose_among(s, y, z, estimates, highest, limit)


@kernel
def choose_rows(arena, sizes, X, limit, arms, scores):  # type: ignore[no-untyped-def]
    """``choose`` for every row of ``X`` (n, d).

    arms: (2, n) where positions go, and arms to try in doubt   scores: (2, n) estimates and widths
    """
    s = state_of(arena, sizes)
    K, m, _ = s.loadings.shape
    y, z, estimates, highest = np.empty(s.order.shape[0]), np.empty(m), np.empty(K), np.empty(K)
    for t in range(X.shape[0]):
        take_row(X, t, s.order, y)
        arms[0, t], scores[0, t], scores[1, t], arms[1, t] = choose_among(s, y, z, estimates, highest, limit)
