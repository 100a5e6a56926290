"""What an observation changes: sums and caches of its arm; and the caches computed afresh from the sums.

The sums are the truth.  The caches are kept by rank one and recomputed from the sums every ``REFRESH_EVERY``
observations of an arm: ``covariances = A⁻¹``, ``weights = ŵ``, ``log_dets = log det A/det A₀``, and ``bounds`` of
``√λ_max(A⁻¹)`` (see ``ridge`` for the model).
"""

from __future__ import annotations

import math

import numpy as np

from sidelight.kernels.compiled import helper, inlined, kernel
from sidelight.kernels.elementary import log1p
from sidelight.kernels.ridge import radius_of, reduce_context, take, take_row
from sidelight.kernels.simd import dot_at, dot_row
from sidelight.kernels.spd import invert_into
from sidelight.kernels.state import state_of

__all__ = ["BINARY_VARIANCE", "REFRESH_EVERY", "observe", "observe_rows", "rate_weight", "refresh", "take_in"]

#: rounds whose rewards are 0 or 1 are weighted so that the noise of each has this variance, if its rate is right
BINARY_VARIANCE = 0.25
#: every arm's caches are recomputed from its sums after this many rank-one updates
REFRESH_EVERY = 1024


@inlined
def add_context(s, y, r):  # type: ignore[no-untyped-def]
    """Add one round to the sums over all arms, of contexts and rewards."""
    d = y.shape[0]
    for i in range(d):
        s.context_sums[i] += y[i] * y[i]
        s.context_sums[d + i] += y[i]
    s.context_sums[2 * d] += r
    s.context_sums[2 * d + 1] += r * r


@inlined
def add_round(s, a, y, r, weight, z):  # type: ignore[no-untyped-def]
    """Add one round to the sums of its arm; ``z`` (m,) becomes the reduced context."""
    residual = r - dot_row(s.anchors, a, y)
    s.squares[a] += weight * residual * residual
    reduce_context(y, s.loadings, a, s.shifted, z)
    m = z.shape[0]
    for i in range(m):
        s.moments[a, i] += weight * residual * z[i]
        scaled = weight * z[i]
        for j in range(m):
            s.grams[a, i, j] += scaled * z[j]
    s.counts[a] += 1


@helper
def rate_weight(rate, least):  # type: ignore[no-untyped-def]
    """``¼/p(1 − p)``: what a round counts for whose reward is 0 or 1, where ``p = rate`` is expected.

    A rate of almost 0 or 1 would make one round count for all others, so ``p`` is kept at least ``least`` from both.
    """
    p = min(max(rate, least), 1.0 - least)
    return BINARY_VARIANCE / (p * (1.0 - p))


@helper
def width_bound(covariances, a, sums):  # type: ignore[no-untyped-def]
    """An upper bound of ``√λ_max(A⁻¹)``: the root of the trace, or of the largest column sum, whichever is less.

    covariances: (K, m, m)   a: the arm   sums: (m,) to work in
    """
    m = covariances.shape[1]
    for j in range(m):
        sums[j] = 0.0
    trace = 0.0
    for i in range(m):
        trace += covariances[a, i, i]
        for j in range(m):
            sums[j] += abs(covariances[a, i, j])
    largest = 0.0
    for j in range(m):
        largest = max(largest, sums[j])
    return math.sqrt(max(min(trace, largest), 0.0))


@inlined
def take_in(s, a, y, r, weight, z, u):  # type: ignore[no-untyped-def]
    """One observation of arm ``a``: sums, caches by rank one, radius.

    Its noise has the variance ``σ_a²/weight``, so it counts for ``weight`` rounds; times ``rate_weight`` where rewards
    are 0 or 1.  Returns whether the arm has had ``REFRESH_EVERY`` updates, so that a refresh is due, and
    whether the reward was further off than ``surprise`` standard deviations of what was expected.
    y: (d,) in internal order   z, u: (m,) to work in
    """
    d = y.shape[0]
    _, m, R = s.loadings.shape
    estimate = dot_row(s.weights, a, y)
    if s.least_rate > 0.0:
        weight *= rate_weight(estimate, s.least_rate)
    scale = math.sqrt(weight)
    add_context(s, y, r)
    add_round(s, a, y, r, weight, z)
    error = scale * (r - estimate)
    for i in range(m):
        u[i] = dot_at(s.covariances, (a * m + i) * m, z, 0, m)
    square = max(dot_at(z, 0, u, 0, m), 0.0)
    q = weight * square
    # u/√(1 + q), so that what is subtracted is symmetric to the bit
    root = math.sqrt(1.0 / (1.0 + q))
    step = error * root
    for i in range(m):
        u[i] *= scale * root
    for i in range(m):
        for j in range(m):
            s.covariances[a, i, j] -= u[i] * u[j]
    if s.shifted:
        for i in range(m):
            s.weights[a, d - m + i] += step * u[i]
    for i in range(m):
        moved = step * u[i]
        for j in range(R):
            s.weights[a, j] -= moved * s.loadings[a, i, j]
    if s.doubt > 0.0:
        s.spent[0] += s.radii[a] * math.sqrt(square)
    s.updates[a] += 1
    # the covariance only shrinks between refreshes, so that the older bound stays one, and soon one that is as good
    if s.updates[a] < 16 or s.updates[a] & 7 == 0:
        s.bounds[a] = min(s.bounds[a], width_bound(s.covariances, a, z))
    s.log_dets[a] += log1p(q)
    s.radii[a] = s.alpha * radius_of(
        s.kind, s.counts[a], s.log_dets[a], s.dimensions[a], s.noises[a], s.prior_term, s.growth, s.union
    )
    return s.updates[a] >= REFRESH_EVERY, abs(error) > s.surprise * s.noises[a] * math.sqrt(1.0 + q)


@helper
def invert_surely(A, covariance):  # type: ignore[no-untyped-def]
    """``A⁻¹`` into ``covariance``, and ``log det A``; with a larger diagonal where rounding lost the prior."""
    log_det = invert_into(A, covariance)
    more = 1e-15
    while math.isnan(log_det) and more < 1.0:
        for i in range(A.shape[0]):
            A[i, i] += more * A[i, i]
        log_det = invert_into(A, covariance)
        more *= 10.0
    return log_det


@kernel
def refresh(arena, sizes, first, last):  # type: ignore[no-untyped-def]
    """Recompute the caches of arms ``first ≤ a < last`` from their sums, in place."""
    s = state_of(arena, sizes)
    d = s.anchors.shape[1]
    _, m, R = s.loadings.shape
    A, right, theta, left = np.empty((m, m)), np.empty(m), np.empty(m), np.empty(m)
    for a in range(first, last):
        for i in range(m):
            right[i] = s.prior_moments[a, i] + s.moments[a, i]
            for j in range(m):
                A[i, j] = s.prior_precisions[a, i, j] + s.grams[a, i, j]
        if math.isnan(s.prior_log_dets[a]):  # the prior is a new one
            s.prior_log_dets[a] = invert_into(s.prior_precisions[a], s.covariances[a])
        s.log_dets[a] = invert_surely(A, s.covariances[a]) - s.prior_log_dets[a]
        for i in range(d):
            s.weights[a, i] = s.anchors[a, i]
        # a product with A⁻¹ loses the digits of what rounds say where they leave other directions open, in which A⁻¹ is
        # large; one step of iterative refinement has them again
        for j in range(m):
            theta[j] = dot_at(right, 0, s.covariances, (a * m + j) * m, m)
        for j in range(m):
            left[j] = right[j] - dot_at(theta, 0, A, j * m, m)
        for j in range(m):
            theta[j] += dot_at(left, 0, s.covariances, (a * m + j) * m, m)
            if s.shifted:
                s.weights[a, d - m + j] += theta[j]
            for i in range(R):
                s.weights[a, i] -= theta[j] * s.loadings[a, j, i]
        s.updates[a] = 0
        s.bounds[a] = width_bound(s.covariances, a, right)
        s.radii[a] = s.alpha * radius_of(
            s.kind, s.counts[a], s.log_dets[a], s.dimensions[a], s.noises[a], s.prior_term, s.growth, s.union
        )


@kernel
def observe(arena, sizes, x, a, r, weight):  # type: ignore[no-untyped-def]
    """Arm ``a`` was taken at ``x`` and paid ``r``; returns whether a refresh is due, and whether ``r`` surprises.

    weight: ``σ_a²`` over the variance of this round's noise
    """
    s = state_of(arena, sizes)
    m = s.loadings.shape[1]
    y, z, u = np.empty(s.order.shape[0]), np.empty(m), np.empty(m)
    take(x, s.order, y)
    return take_in(s, a, y, r, weight, z, u)


@kernel
def observe_rows(arena, sizes, X, arms, rewards, together, span):  # type: ignore[no-untyped-def]
    """``observe`` for rows ``start ≤ t < stop``, ``span = (start, stop, calm)``.

    Arms with ``together`` (K,) true (never where rounds are weighted) have their rows added to the sums alone: a
    refresh of them must follow.  Comes back early after a row whose arm is due for a refresh, and after a surprise once
    ``calm`` rows were taken in.  Returns the row to go on with, whether that arm is due, and whether it was a surprise.
    """
    s = state_of(arena, sizes)
    m = s.loadings.shape[1]
    y, z, u = np.empty(s.order.shape[0]), np.empty(m), np.empty(m)
    start, stop, calm = span
    for t in range(start, stop):
        take_row(X, t, s.order, y)
        a = arms[t]
        if together[a]:
            add_context(s, y, rewards[t])
            add_round(s, a, y, rewards[t], 1.0, z)
        else:
            due, surprised = take_in(s, a, y, rewards[t], 1.0, z, u)
            surprised = surprised and t + 1 - start >= calm
            if due or surprised:
                return t + 1, due, surprised
    return stop, False, False
