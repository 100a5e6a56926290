"""Compiled algebra of one ridge regression per arm in reduced coordinates.

For arm ``a``: ``w = anchor + Nθ``, ``z = Nᵀx = x_h − loadings x[:R]`` (without ``x_h`` unless ``shifted``; loadings are
(K, m, R) here, the other way round than in a ``Reduction``, so that each entry of ``z`` reads one row),
``A = NᵀV₀N + Σ z zᵀ``, ``θ̂ = A⁻¹(NᵀV₀(μ − anchor) + Σ z(r − x·anchor))``, ``ŵ = anchor + Nθ̂``.

The sums are the truth; ``covariances = A⁻¹``, ``weights = ŵ`` and ``log_dets = log det A/det A₀`` are caches,
kept by rank one and recomputed from the sums on a fixed schedule; ``bounds`` are of ``√λ_max(A⁻¹)``.  No fastmath: the
same inputs give the same bits.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sidelight.kernels.compiled import inlined, uncounted
from sidelight.kernels.elementary import log, log1p
from sidelight.kernels.lanes import bound_indices, lanes_of, put_arm
from sidelight.kernels.simd import (
    absolute_sum_at,
    add_at,
    add_rows_at,
    dot,
    dot_at,
    dot_row,
    quadratic_form,
    subtract_products,
)
from sidelight.kernels.spd import invert

DETERMINANT, PRINTED, POSTERIOR = 0, 1, 2
# What pruning allows for rounding, relative to estimate and width: far above what rounding does.
MARGIN = 1e-9
# Every arm's caches are recomputed from its sums after this many rank-one updates.
REFRESH_EVERY = 1024


@inlined
def take(x, order, out):  # type: ignore[no-untyped-def]
    """``out[i] = x[order[i]]``: the context in internal order."""
    for i in range(order.shape[0]):
        out[i] = x[order[i]]


@inlined
def take_row(X, t, order, out):  # type: ignore[no-untyped-def]
    """``take`` of row ``t``, without a view of it that would have to be counted."""
    for i in range(order.shape[0]):
        out[i] = X[t, order[i]]


@inlined
def reduce_context(y, loadings, a, shifted, z):  # type: ignore[no-untyped-def]
    """``z = Nᵀx`` for arm ``a``.  y: (d,) the context in internal order   loadings: (K, m, R)"""
    subtract_products(z, y, y.shape[0] - loadings.shape[1] if shifted else -1, loadings, a)


@inlined
def width_of(covariances, a, z, radius):  # type: ignore[no-untyped-def]
    """``radius · ‖z‖_{A⁻¹}`` of arm ``a``."""
    return radius * math.sqrt(max(quadratic_form(covariances, a, z), 0.0))


@njit(cache=True)
def score_arms(x, order, loadings, shifted, weights, covariances, radii, estimates, widths):  # type: ignore[no-untyped-def]
    """Every arm's estimate ``x·ŵ`` and width ``radius · ‖z‖_{A⁻¹}``, into ``estimates`` and ``widths`` (K,)."""
    y = np.empty(order.shape[0])
    z = np.empty(covariances.shape[1])
    take(x, order, y)
    same = loadings.shape[2] == 0
    if same:
        reduce_context(y, loadings, 0, shifted, z)
    for a in range(weights.shape[0]):
        estimates[a] = dot_row(weights, a, y)
        if not same:
            reduce_context(y, loadings, a, shifted, z)
        widths[a] = width_of(covariances, a, z, radii[a])


@njit(cache=True)
def room_to_choose(weights, covariances, packed):  # type: ignore[no-untyped-def]
    """What ``choose_among`` works in: context and ``z``; estimates and bounds; the same in single precision."""
    K, d = weights.shape
    m = covariances.shape[1]
    rough = packed.shape[0] > 0
    return (
        np.empty(d),
        np.empty(m),
        np.empty(K),
        np.empty(K),
        np.empty(d if rough else 0, dtype=np.float32),
        np.empty((m + 1) * lanes_of(K) if rough else 0, dtype=np.float32),
    )


@inlined
def choose_among(  # type: ignore[no-untyped-def]
    loadings,
    shifted,
    centre,
    spreads,
    weights,
    covariances,
    radii,
    bounds,
    packed,
    counts,
    reluctance,
    limit,
    y,
    z,
    estimates,
    highest,
    x_rough,
    rough,
):
    """The arm of highest index, its estimate and its width; the same as scoring all arms, ties included.

    With ``z̄ = x_h − centre x[:R]`` and ``spreads[a] ≥ ‖loadings_a − centre‖₂``, ``‖z_a‖ ≤ ‖z̄‖ + spread · ‖x[:R]‖``, and
    ``bounds[a] ≥ √λ_max(A⁻¹)``, so ``width ≤ radius · bound`` times that.  An arm whose estimate plus this bound is
    below an index already found cannot win: its ``z`` and its width are never computed.  The arm of the highest bound
    is evaluated first.  Where ``packed`` is not empty a rough look bounds the indices instead (see ``lanes``).

    Also the arm to be tried in doubt of the log, or −1: that of least ``reluctance · (1 + count)^{3/2} · gap``, where
    it is at most ``limit``; ``gap`` is what trying it seems to cost here.  The rest: see ``room_to_choose``.
    """
    K, R = weights.shape[0], centre.shape[2]
    best = -1
    best_index = -np.inf
    best_width = 0.0
    if packed.shape[0] > 0:
        return choose_roughly(
            loadings,
            shifted,
            weights,
            covariances,
            radii,
            packed,
            counts,
            reluctance,
            limit,
            y,
            z,
            estimates,
            x_rough,
            rough,
        )
    reduce_context(y, centre, 0, shifted, z)
    reach = math.sqrt(dot(z, z))
    recorded = math.sqrt(dot_at(y, 0, y, 0, R))
    first = 0
    for a in range(K):
        estimate = dot_row(weights, a, y)
        most = radii[a] * bounds[a] * (reach + spreads[a] * recorded)
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
            reduce_context(y, loadings, a, shifted, z)
        width = width_of(covariances, a, z, radii[a])
        index = estimates[a] + width
        if index > best_index or (index == best_index and a < best):
            best, best_index, best_width = a, index, width
    # where no index is a number, an arm all the same
    best = max(best, 0)
    return best, estimates[best], best_width, to_doubt(estimates, best, best_index, counts, reluctance, limit)


@uncounted
def choose_roughly(  # type: ignore[no-untyped-def]
    loadings,
    shifted,
    weights,
    covariances,
    radii,
    packed,
    counts,
    reluctance,
    limit,
    y,
    z,
    estimates,
    x_rough,
    rough,
):
    """``choose_among`` after a rough look at all arms side by side: only those that may be highest are evaluated.

    Leaves ``z`` as that of the arm it returns.
    """
    K, m, R = loadings.shape
    best = last = -1
    best_index = -np.inf
    best_estimate = 0.0
    best_width = 0.0
    sure = bound_indices(y, m, R, shifted, packed, x_rough, rough)
    for a in range(K):
        if rough[a] < sure:
            continue
        estimate = dot_row(weights, a, y)
        reduce_context(y, loadings, a, shifted, z)
        width = width_of(covariances, a, z, radii[a])
        last = a
        if estimate + width > best_index:
            best, best_index, best_estimate, best_width = a, estimate + width, estimate, width
    best = max(best, 0)
    if last != best:
        reduce_context(y, loadings, best, shifted, z)
    if limit <= 0.0:
        return best, best_estimate, best_width, -1
    for a in range(K):
        estimates[a] = dot_row(weights, a, y)
    return best, best_estimate, best_width, to_doubt(estimates, best, best_index, counts, reluctance, limit)


@inlined
def to_doubt(estimates, best, best_index, counts, reluctance, limit):  # type: ignore[no-untyped-def]
    """The arm of least ``reluctance · (1 + count)^{3/2} · gap`` where that is at most ``limit``, or −1."""
    doubted = -1
    if limit > 0.0:
        least = limit
        for a in range(counts.shape[0]):
            cost = (best_index - estimates[a]) * (1.0 + counts[a]) * math.sqrt(1.0 + counts[a]) * reluctance[a]
            if a != best and cost <= least:
                least, doubted = cost, a
    return doubted


@njit(cache=True)
def width_bound(covariance):  # type: ignore[no-untyped-def]
    """An upper bound of ``√λ_max(A⁻¹)``: the root of the trace, or of the largest row sum, whichever is less."""
    trace = 0.0
    rows = 0.0
    for i in range(covariance.shape[0]):
        trace += covariance[i, i]
        rows = max(rows, absolute_sum_at(covariance, i * covariance.shape[0], covariance.shape[0]))
    return math.sqrt(max(min(trace, rows), 0.0))


@njit(cache=True)
def radius_of(kind, count, log_det, dimension, noise, prior_term, growth, union):  # type: ignore[no-untyped-def]
    """``√β`` of one arm.

    ``prior_term = λS_w²``, ``growth = S_x²/λ``, ``union = log K/δ``; see ``theory.determinant_radius`` and
    ``theory.printed_radius``, which this equals.
    """
    if kind == DETERMINANT:
        return math.sqrt(noise * noise * (log_det + 2.0 * union) + prior_term)
    if kind == PRINTED:
        spread = dimension * (union + log(1.0 + count * growth))
        return noise * math.sqrt(max(spread, 0.0)) + math.sqrt(prior_term)
    return noise


@inlined
def update_arm(  # type: ignore[no-untyped-def]
    a, y, z, u, r, residual, loadings, shifted, grams, moments, covariances, weights, roughly
):
    """One observation of arm ``a``, by rank one.

    Returns what the reward was off by, ``q = zᵀA⁻¹z`` before it, and the new bound of ``√λ_max(A⁻¹)``.
    y: (d,) internal order   z: (m,) reduced   u: (m,) to work in   residual: ``r − x·anchor``
    roughly: whether any bound will do
    """
    d = y.shape[0]
    _, m, R = loadings.shape
    error = r - dot_at(weights, a * d, y, 0, d)
    for i in range(m):
        u[i] = dot_at(covariances, (a * m + i) * m, z, 0, m)
    q = max(dot_at(z, 0, u, 0, m), 0.0)
    # u/√(1 + q), so that what is subtracted is symmetric to the bit
    root = math.sqrt(1.0 / (1.0 + q))
    step = error * root
    for i in range(m):
        u[i] *= root
    add_at(moments, a * m, residual, z, 0, m)
    trace = 0.0
    rows = np.inf if roughly else 0.0
    for i in range(m):
        row = (a * m + i) * m
        add_at(covariances, row, -u[i], u, 0, m)
        add_at(grams, row, z[i], z, 0, m)
        trace += covariances[a, i, i]
        if not roughly:
            rows = max(rows, absolute_sum_at(covariances, row, m))
    if shifted:
        add_at(weights, a * d + d - m, step, u, 0, m)
    if R > 0:
        add_rows_at(weights, a * d, -step, u, loadings, a * m * R, m, R)
    return error, q, math.sqrt(max(min(trace, rows), 0.0))


@inlined
def take_in(  # type: ignore[no-untyped-def]
    a,
    y,
    r,
    loadings,
    shifted,
    anchors,
    dimensions,
    numbers,
    grams,
    moments,
    squares,
    context_sums,
    spent,
    counts,
    updates,
    covariances,
    weights,
    log_dets,
    radii,
    bounds,
    packed,
    z,
    u,
    reduced,
):
    """One observation of arm ``a``: sums, caches and radius.  ``y``: (d,) the context in internal order.

    ``numbers``: (7 + K,) as in ``set_radius``.  ``context_sums``: (2d + 2,) ``Σx²``, ``Σx``, ``Σr``, ``Σr²`` over all
    arms.  ``spent``: (1,) the sum of widths at which arms were observed, the scale of
    the learner's own regret.  ``z, u``: (m,) to work in; ``reduced``: whether ``z`` is made already.  Returns whether
    the arm has had ``REFRESH_EVERY`` updates, so that a refresh is due, and whether the reward was further off than
    ``numbers[6]`` standard deviations of what was expected.
    """
    d = y.shape[0]
    for i in range(d):
        context_sums[i] += y[i] * y[i]
        context_sums[d + i] += y[i]
    context_sums[2 * d] += r
    context_sums[2 * d + 1] += r * r
    residual = r - dot_row(anchors, a, y)
    squares[a] += residual * residual
    if not reduced:
        reduce_context(y, loadings, a, shifted, z)
    error, q, bound = update_arm(
        a, y, z, u, r, residual, loadings, shifted, grams, moments, covariances, weights, packed.shape[0] > 0
    )
    spent[0] += radii[a] * math.sqrt(q)
    counts[a] += 1
    updates[a] += 1
    # the covariance only shrinks between refreshes, so that the older bound stays one
    bounds[a] = min(bounds[a], bound)
    log_dets[a] += log1p(q)
    set_radius(a, counts, log_dets, dimensions, numbers, radii)
    put_arm(a, loadings.shape[2], weights, covariances, radii, bounds, packed)
    return updates[a] >= REFRESH_EVERY, abs(error) > numbers[6] * numbers[7 + a] * math.sqrt(1.0 + q)


@njit(cache=True)
def set_radius(a, counts, log_dets, dimensions, numbers, radii):  # type: ignore[no-untyped-def]
    """``radii[a] = α√β``.

    numbers: (7 + K,) kind, noise of all arms together, prior term, growth, log union, alpha, what counts as a surprise,
    and the noise ``σ_a`` of every arm.
    """
    radii[a] = numbers[5] * radius_of(
        int(numbers[0]), counts[a], log_dets[a], dimensions[a], numbers[7 + a], numbers[2], numbers[3], numbers[4]
    )


@njit(cache=True)
def refresh(  # type: ignore[no-untyped-def]
    a,
    loadings,
    shifted,
    anchors,
    priors,
    prior_moments,
    prior_log_dets,
    dimensions,
    numbers,
    grams,
    moments,
    counts,
    updates,
    covariances,
    weights,
    log_dets,
    radii,
    bounds,
    packed,
):
    """Recompute all caches of arm ``a`` from its sums."""
    d = anchors.shape[1]
    _, m, R = loadings.shape
    A = priors[a] + grams[a]
    log_det = invert(A, covariances[a])
    more = 1e-15
    while math.isnan(log_det) and more < 1.0:
        # contexts so large that the prior is lost in rounding: a little more of it than rounding takes
        for i in range(m):
            A[i, i] += more * A[i, i]
        log_det = invert(A, covariances[a])
        more *= 10.0
    log_dets[a] = log_det - prior_log_dets[a]
    right = prior_moments[a] + moments[a]
    for i in range(d):
        weights[a, i] = anchors[a, i]
    for j in range(m):
        theta = dot_at(right, 0, covariances, (a * m + j) * m, m)
        if shifted:
            weights[a, d - m + j] += theta
        if R > 0:
            add_at(weights, a * d, -theta, loadings, (a * m + j) * R, R)
    updates[a] = 0
    bounds[a] = width_bound(covariances[a])
    set_radius(a, counts, log_dets, dimensions, numbers, radii)
    put_arm(a, loadings.shape[2], weights, covariances, radii, bounds, packed)
