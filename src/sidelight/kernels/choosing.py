"""A batch of decisions: products of matrices leave out what cannot win, and the rest is decided as in a single call.

For eight contexts at a time, estimates and widths are found up to rounding (see ``tiles``), each with a bound of what
rounding may have done.  An arm whose index is surely below another's is out; the one or two that are left are evaluated
by the functions that a single decision uses.  So arm, estimate and width are those of single calls to the bit.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sidelight.kernels.reduced import MARGIN, choose_among, reduce_context, room_to_choose, take, to_doubt, width_of
from sidelight.kernels.simd import dot_at, dot_row
from sidelight.kernels.tiles import DOWN, LANES, quadratic_lanes, set_tile

#: contexts that are decided together: so many read an arm's matrix while it is near
ROWS = 64
#: fewer of eight contexts than this are evaluated one by one
FEW = 3
#: what an arm costs for eight contexts at once, in evaluations for a single one
EIGHT = 2.5
#: of so many blocks of contexts one, a shorter one, tries again what did not pay in those before
TRY_AGAIN, TRIAL = 16, 16
#: for sums of squares that underflow
SMALL = 1e-120
#: bounds what rounding does to a sum of n products, relative to the sum of their sizes: ``n · ROUNDING``
ROUNDING = 1e-15


@njit(cache=True)
def lay_out(Y, first, n, panels, p):  # type: ignore[no-untyped-def]
    """Eight rows side by side: ``panels[p, 8j + k] = Y[first + k, j]``, zero from row ``n`` on."""
    for k in range(LANES):
        for j in range(Y.shape[1]):
            panels[p, LANES * j + k] = Y[first + k, j] if first + k < n else 0.0


@njit(cache=True)
def multiply(A, first, down, across, panels, p, out):  # type: ignore[no-untyped-def]
    """``out = A panel`` for the (down, across) matrix at position ``first`` of ``A``; down is at least 4.

    panels[p]: (across·8,) or longer   out: (down·8,) or longer
    """
    for step in range(0, down, DOWN):
        # the last four rows begin where four are left
        i = min(step, down - DOWN)
        set_tile(out, i * LANES, A, first + i * across, 1, across, panels, p * panels.shape[1], across)


@njit(cache=True)
def reduce_panel(panels, p, loadings, a, shifted, out):  # type: ignore[no-untyped-def]
    """``z = Nᵀx`` of arm ``a``, or ``−z``, for the eight contexts of a panel, where there are loadings.  out: (m·8,)"""
    _, m, R = loadings.shape
    multiply(loadings, a * m * R, m, R, panels, p, out)
    if shifted:
        hidden = panels.shape[1] - m * LANES
        for j in range(m * LANES):
            out[j] = panels[p, hidden + j] - out[j]


@njit(cache=True)
def forms_of(panels, p, loadings, a, shifted, covariances, found, forms):  # type: ignore[no-untyped-def]
    """``zᵀA⁻¹z`` of arm ``a`` for the eight contexts of a panel, into ``forms`` (8,).  found: (m·8,) to work in"""
    _, m, R = loadings.shape
    if R > 0:
        reduce_panel(panels, p, loadings, a, shifted, found)
        quadratic_lanes(forms, covariances, a * m * m, m, found, 0)
    else:
        quadratic_lanes(forms, covariances, a * m * m, m, panels, (p + 1) * panels.shape[1] - m * LANES)


@njit(cache=True)
def rounding_of(loadings, spreads, weights, radii, bounds, off):  # type: ignore[no-untyped-def]
    """What rounding may do to arm ``a``'s index, as factors of ``‖x‖``, of the reach and of ``‖x[:R]‖``: off (3, K).

    An estimate is off by at most ``n · ROUNDING · ‖ŵ‖‖x‖``, a form by ``n · ROUNDING · √m (bound · ‖z‖)²`` (since
    ``|z|ᵀ|C||z| ≤ ‖C‖_F‖z‖² ≤ √m λ_max(C)‖z‖²``) and its root by at most the root of that, ``z`` by
    ``n · ROUNDING · ‖B‖‖x[:R]‖``.
    """
    K, m, R = loadings.shape
    d = weights.shape[1]
    root = math.sqrt((2.0 * m + 16.0) * ROUNDING * math.sqrt(m)) + MARGIN
    for a in range(K):
        most = radii[a] * bounds[a]
        loaded = math.sqrt(dot_at(loadings, a * m * R, loadings, a * m * R, m * R))
        off[0, a] = (2.0 * d + 16.0) * ROUNDING * math.sqrt(dot_at(weights, a * d, weights, a * d, d))
        off[1, a] = root * most
        off[2, a] = most * (root * spreads[a] + (2.0 * R + 16.0) * ROUNDING * loaded)


@njit(cache=True)
def guess_rows(Y, n, weights, centre, shifted, panels, found, guesses, size, reach, recorded):  # type: ignore[no-untyped-def]
    """Panels of the first ``n`` rows of ``Y``, their estimates up to rounding, ``‖x‖``, ``‖z̄‖`` and ``‖x[:R]‖``."""
    K, d = weights.shape
    _, m, R = centre.shape
    for t in range(Y.shape[0]):
        size[t] = math.sqrt(dot_at(Y, t * d, Y, t * d, d))
        recorded[t] = math.sqrt(dot_at(Y, t * d, Y, t * d, R))
        reach[t] = size[t]
    for p in range((n + LANES - 1) // LANES):
        t = p * LANES
        lay_out(Y, t, n, panels, p)
        multiply(weights, 0, K, d, panels, p, found)
        for a in range(K):
            for k in range(LANES):
                guesses[a, t + k] = found[a * LANES + k]
        if R > 0:
            reduce_panel(panels, p, centre, 0, shifted, found)
            for k in range(LANES):
                total = 0.0
                for j in range(m):
                    total += found[j * LANES + k] * found[j * LANES + k]
                reach[t + k] = math.sqrt(total)


@njit(cache=True)
def bound_rows(spreads, radii, bounds, off, guesses, size, reach, recorded, floor, high):  # type: ignore[no-untyped-def]
    """``high`` (K, rows): no index is above; ``floor`` (rows,): the highest is not below.  See ``choose_among``."""
    for t in range(floor.shape[0]):
        floor[t] = -np.inf
    for a in range(radii.shape[0]):
        most = (1.0 + MARGIN) * radii[a] * bounds[a]
        for t in range(floor.shape[0]):
            error = off[0, a] * size[t] + SMALL
            high[a, t] = guesses[a, t] + error + most * (reach[t] + spreads[a] * recorded[t])
            floor[t] = max(floor[t], guesses[a, t] - error)


@njit(cache=True)
def index_of(a, y, loadings, shifted, weights, covariances, radii, z):  # type: ignore[no-untyped-def]
    """Estimate and width of arm ``a`` as a single decision computes them."""
    reduce_context(y, loadings, a, shifted, z)
    return dot_row(weights, a, y), width_of(covariances, a, z, radii[a])


@njit(cache=True)
def raise_floor(Y, n, loadings, shifted, weights, covariances, radii, high, floor, z, first, known):  # type: ignore[no-untyped-def]
    """The most promising arm of every row, exactly, so that bounds can leave out others.

    first: (rows,) that arm   known: (2, rows) its estimate and width
    """
    for t in range(n):
        first[t] = 0
        for a in range(radii.shape[0]):
            if high[a, t] > high[first[t], t]:
                first[t] = a
        known[0, t], known[1, t] = index_of(first[t], Y[t], loadings, shifted, weights, covariances, radii, z)
        floor[t] = max(floor[t], known[0, t] + known[1, t])


@njit(cache=True)
def narrow_down(  # type: ignore[no-untyped-def]
    n, panels, loadings, shifted, covariances, radii, off, guesses, size, reach, recorded, found, forms, high, floor
):
    """The indices up to rounding of all arms that may win, eight rows at a time.

    Returns for how many such eights, and in how many rows an arm that came next might have won.
    """
    visited = 0
    candidates = 0
    for a in range(radii.shape[0]):
        for p in range((n + LANES - 1) // LANES):
            active = 0
            for t in range(p * LANES, (p + 1) * LANES):
                # also where one of them is not a number
                active += not high[a, t] < floor[t]
            candidates += active
            if active < FEW:
                continue
            visited += 1
            forms_of(panels, p, loadings, a, shifted, covariances, found, forms)
            for k in range(LANES):
                t = p * LANES + k
                error = off[0, a] * size[t] + off[1, a] * reach[t] + off[2, a] * recorded[t] + SMALL
                index = guesses[a, t] + radii[a] * math.sqrt(max(forms[k], 0.0))
                high[a, t] = index + error
                floor[t] = max(floor[t], index - error)
    return visited, candidates


@njit(cache=True, nogil=True)
def choose_together(  # type: ignore[no-untyped-def]
    X,
    order,
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
    arms,
    estimates,
    widths,
    doubted,
):
    """``choose_rows``, the same to the bit, for at least four arms and dimensions; ``packed`` is not used."""
    K, m, _ = loadings.shape
    d = order.shape[0]
    exact = np.empty(K)
    z = np.empty(m)
    Y = np.zeros((ROWS, d))
    panels = np.zeros((ROWS // LANES, d * LANES))
    found = np.empty(max(K, m) * LANES)
    forms = np.empty(LANES)
    guesses = np.empty((K, ROWS))
    high = np.empty((K, ROWS))
    size = np.empty(ROWS)
    reach = np.empty(ROWS)
    recorded = np.empty(ROWS)
    floor = np.empty(ROWS)
    off = np.empty((3, K))
    first = np.empty(ROWS, dtype=np.int64)
    known = np.empty((2, ROWS))
    state = (loadings, shifted, centre, spreads, weights, covariances, radii, bounds, packed, counts, reluctance, limit)
    room = room_to_choose(weights, covariances, packed)
    single = state + room
    rounding_of(loadings, spreads, weights, radii, bounds, off)
    by_bounds = by_products = True
    blocks = 0
    stop = 0
    while stop < X.shape[0]:
        start = stop
        # what leaves out little is left alone, and tried again from time to time
        again = blocks % TRY_AGAIN == 0
        n = min(TRIAL if again else ROWS, X.shape[0] - start)
        stop = start + n
        blocks += 1
        if not (by_products or again):
            for t in range(start, stop):
                take(X[t], order, room[0])
                arms[t], estimates[t], widths[t], doubted[t] = choose_among(*single)
            continue
        for t in range(n):
            take(X[start + t], order, Y[t])
            first[t] = -1
        guess_rows(Y, n, weights, centre, shifted, panels, found, guesses, size, reach, recorded)
        bound_rows(spreads, radii, bounds, off, guesses, size, reach, recorded, floor, high)
        if by_bounds or again:
            raise_floor(Y, n, loadings, shifted, weights, covariances, radii, high, floor, z, first, known)
        visited, candidates = narrow_down(
            n,
            panels,
            loadings,
            shifted,
            covariances,
            radii,
            off,
            guesses,
            size,
            reach,
            recorded,
            found,
            forms,
            high,
            floor,
        )
        by_bounds = 2 * LANES * visited < K * n
        evaluated = n if first[0] >= 0 else 0
        for t in range(n):
            y = Y[t]
            best = -1
            best_index = -np.inf
            best_width = 0.0
            for a in range(K):
                if high[a, t] < floor[t]:
                    continue
                if a == first[t]:
                    exact[a], width = known[0, t], known[1, t]
                else:
                    evaluated += 1
                    exact[a], width = index_of(a, y, loadings, shifted, weights, covariances, radii, z)
                if exact[a] + width > best_index:
                    best, best_index, best_width = a, exact[a] + width, width
            arms[start + t] = best
            estimates[start + t] = exact[best]
            widths[start + t] = best_width
            if limit > 0.0:
                for a in range(K):
                    exact[a] = dot_row(weights, a, y)
            doubted[start + t] = to_doubt(exact, best, best_index, counts, reluctance, limit)
        # row by row every candidate would have been evaluated
        by_products = EIGHT * visited + evaluated < candidates
