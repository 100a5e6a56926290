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

from sidelight.kernels.sums import add_answer

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
def dot(x, y):  # type: ignore[no-untyped-def]
    """``x·y`` in eight running sums: a fixed order of additions that the processor can still do side by side."""
    n = x.shape[0]
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    i = 0
    while i + 8 <= n:
        s0 += x[i] * y[i]
        s1 += x[i + 1] * y[i + 1]
        s2 += x[i + 2] * y[i + 2]
        s3 += x[i + 3] * y[i + 3]
        s4 += x[i + 4] * y[i + 4]
        s5 += x[i + 5] * y[i + 5]
        s6 += x[i + 6] * y[i + 6]
        s7 += x[i + 7] * y[i + 7]
        i += 8
    rest = 0.0
    while i < n:
        rest += x[i] * y[i]
        i += 1
    return ((s0 + s4) + (s1 + s5)) + ((s2 + s6) + (s3 + s7)) + rest


@njit(cache=True)
def quadratic_form(C, z, t):  # type: ignore[no-untyped-def]
    """``zᵀCz`` from the upper triangle of the symmetric ``C``; t: (m,) scratch."""
    m = z.shape[0]
    for j in range(m):
        t[j] = 0.5 * C[j, j] * z[j]
    for i in range(m):
        zi = z[i]
        for j in range(i + 1, m):
            t[j] += C[i, j] * zi
    return max(2.0 * dot(z, t), 0.0)


@njit(cache=True)
def score_arms(x, order, loadings, shifted, weights, covariances, radii, estimates, widths):  # type: ignore[no-untyped-def]
    """Every arm's estimate ``x·ŵ`` and width ``radius · ‖z‖_{A⁻¹}``, into ``estimates`` and ``widths`` (K,)."""
    m = covariances.shape[1]
    y = np.empty(order.shape[0])
    z = np.empty(m)
    t = np.empty(m)
    take(x, order, y)
    same = loadings.shape[1] == 0
    if same:
        reduce_context(y, loadings[0], shifted, z)
    for a in range(weights.shape[0]):
        estimates[a] = dot(y, weights[a])
        if not same:
            reduce_context(y, loadings[a], shifted, z)
        widths[a] = radii[a] * math.sqrt(quadratic_form(covariances[a], z, t))


@njit(cache=True)
def choose_arm(x, order, loadings, shifted, weights, covariances, radii, bounds, counts, limit):  # type: ignore[no-untyped-def]
    """The arm of highest index, its estimate and its width; the same as scoring all arms, ties included.

    ``bounds[a] ≥ ‖N_a‖²_{A⁻¹}``'s largest eigenvalue, so ``width ≤ radius · √bound · ‖x‖``.  An arm whose estimate plus
    that bound is below an index already found cannot win and is not evaluated further.  Arms are visited from the
    highest bound down only once: the first full evaluation is the arm with the highest bound.

    Also the arm to be tried in doubt of the log, or −1: the one of least ``(1 + count) · gap``, where that is at most
    ``limit``; ``gap`` is what trying it seems to cost here.
    """
    K = weights.shape[0]
    m = covariances.shape[1]
    y = np.empty(order.shape[0])
    z = np.empty(m)
    t = np.empty(m)
    estimates = np.empty(K)
    highest = np.empty(K)
    take(x, order, y)
    norm = math.sqrt(dot(y, y))
    same = loadings.shape[1] == 0
    if same:
        reduce_context(y, loadings[0], shifted, z)
    first = 0
    for a in range(K):
        estimates[a] = dot(y, weights[a])
        highest[a] = estimates[a] + radii[a] * bounds[a] * norm
        if highest[a] > highest[first]:
            first = a
    best = -1
    best_index = -np.inf
    best_width = 0.0
    for visit in range(K + 1):
        # the most promising arm first, then all others in order
        a = first if visit == 0 else visit - 1
        if visit > 0 and a == first:
            continue
        # a margin far above rounding: pruning may only skip arms that are surely below
        if highest[a] + 1e-9 * (abs(highest[a]) + 1.0) < best_index:
            continue
        if not same:
            reduce_context(y, loadings[a], shifted, z)
        width = radii[a] * math.sqrt(quadratic_form(covariances[a], z, t))
        index = estimates[a] + width
        if index > best_index or (index == best_index and a < best):
            best, best_index, best_width = a, index, width
    doubted = -1
    if limit > 0.0:
        least = limit
        for a in range(K):
            cost = (best_index - estimates[a]) * (1.0 + counts[a])
            if a != best and cost <= least:
                least, doubted = cost, a
    return best, estimates[best], best_width, doubted


@njit(cache=True)
def width_bound(covariance, loadings, shifted):  # type: ignore[no-untyped-def]
    """An upper bound of ``√λ_max(N A⁻¹ Nᵀ)``: the root of the trace, or of the largest row sum, whichever is less."""
    m = covariance.shape[0]
    trace = 0.0
    rows = 0.0
    for i in range(m):
        trace += covariance[i, i]
        total = 0.0
        for j in range(m):
            total += abs(covariance[i, j])
        rows = max(rows, total)
    inner = min(trace, rows)
    # ‖N‖² ≤ 1 + ‖loadings‖_F² where x_h enters as it is, else the columns are orthonormal or zero
    outer = 0.0
    if shifted:
        for i in range(loadings.shape[0]):
            for j in range(m):
                outer += loadings[i, j] * loadings[i, j]
    return math.sqrt(inner * (1.0 + outer))


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
    at_anchor = dot(y, anchor)
    estimate = dot(y, weights)
    for i in range(m):
        zi = z[i]
        for j in range(m):
            u[j] += covariance[i, j] * zi
    q = dot(z, u)
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
def observe_arm(  # type: ignore[no-untyped-def]
    a,
    x,
    r,
    order,
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
    squares,
    context_squares,
    spent,
    counts,
    updates,
    covariances,
    weights,
    log_dets,
    radii,
    bounds,
):
    """One observation of arm ``a``: sums, caches and radius.  ``numbers``: (6,) as in ``set_radius``.

    ``spent``: (1,) the sum of widths at which arms were observed, the scale of the learner's own regret.
    """
    d = order.shape[0]
    at_anchor = 0.0
    for i in range(d):
        xi = x[order[i]]
        at_anchor += xi * anchors[a, i]
        context_squares[i] += xi * xi
    squares[a] += (r - at_anchor) * (r - at_anchor)
    grown = update_arm(x, r, order, loadings[a], shifted, anchors[a], grams[a], moments[a], covariances[a], weights[a])
    spent[0] += radii[a] * math.sqrt(math.expm1(grown))
    counts[a] += 1
    updates[a] += 1
    if updates[a] >= REFRESH_EVERY:
        refresh(
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
        )
    else:
        # the covariance only shrinks between refreshes, so the bound stays one
        log_dets[a] += grown
        set_radius(a, counts, log_dets, dimensions, numbers, radii)


@njit(cache=True)
def set_radius(a, counts, log_dets, dimensions, numbers, radii):  # type: ignore[no-untyped-def]
    """``radii[a] = α√β``.  numbers: kind, noise, prior term, growth, union, alpha."""
    radii[a] = numbers[5] * radius_of(
        int(numbers[0]), counts[a], log_dets[a], dimensions[a], numbers[1], numbers[2], numbers[3], numbers[4]
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
):
    """Recompute all caches of arm ``a`` from its sums."""
    log_dets[a] = refresh_arm(
        loadings[a],
        shifted,
        anchors[a],
        priors[a],
        prior_moments[a],
        prior_log_dets[a],
        grams[a],
        moments[a],
        covariances[a],
        weights[a],
    )
    updates[a] = 0
    bounds[a] = width_bound(covariances[a], loadings[a], shifted)
    set_radius(a, counts, log_dets, dimensions, numbers, radii)


@njit(cache=True)
def play_rounds(  # type: ignore[no-untyped-def]
    X,
    table,
    answers,
    draws,
    doubt,
    t,
    phase,
    room,
    answer_room,
    played,
    answer_order,
    S,
    S_squared,
    sums,
    answer_counts,
    order,
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
    squares,
    context_squares,
    spent,
    counts,
    updates,
    covariances,
    weights,
    log_dets,
    radii,
    bounds,
):
    """Rounds ``t, t+1, …``: the old policy's answer (phase 0), then a decision and its reward (phase 1).

    Comes back when ``room`` events or ``answer_room`` answers have been taken in, so that the learner can do what is
    due; returns the round and phase to go on with, and what was taken in.  Where an arm may be tried in doubt of the
    log (``doubt · spent`` is the limit of ``choose_arm``), ``draws`` (n,) decide by a fair coin.
    """
    n = X.shape[0]
    events = 0
    taken = 0
    asking = answers.shape[0] > 0
    while t < n:
        x = X[t]
        if phase == 0:
            phase = 1
            if asking:
                a = answers[t]
                add_answer(x, answer_order, 1.0, S[a], S_squared[a], sums[a])
                answer_counts[a] += 1.0
                events += 1
                taken += 1
                if events >= room or taken >= answer_room:
                    return t, 1, events, taken
        a, _, _, doubted = choose_arm(
            x, order, loadings, shifted, weights, covariances, radii, bounds, counts, doubt * spent[0]
        )
        if doubted >= 0 and draws[t] < 0.5:
            a = doubted
        played[t] = a
        observe_arm(
            a,
            x,
            table[t, a],
            order,
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
            squares,
            context_squares,
            spent,
            counts,
            updates,
            covariances,
            weights,
            log_dets,
            radii,
            bounds,
        )
        events += 1
        t += 1
        phase = 0
        if events >= room:
            return t, 0, events, taken
    return t, 0, events, taken
