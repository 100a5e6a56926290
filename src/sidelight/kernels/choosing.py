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
from sidelight.kernels.simd import dot, dot_row
from sidelight.kernels.tiles import DOWN, LANES, quadratic_lanes, set_tile

#: contexts that are decided together: so many read an arm's matrix while it is near
ROWS = 64
#: fewer of eight contexts than this are evaluated one by one
FEW = 3
#: of so many blocks of contexts one tries again what did not pay in those before
TRY_AGAIN = 16
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
    """``z = Nᵀx`` of arm ``a`` for the eight contexts of a panel, where there are loadings.  out: (m·8,)"""
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
def norms_of(stack):  # type: ignore[no-untyped-def]
    """The Euclidean norm of every member of a stack."""
    out = np.empty(stack.shape[0])
    for a in range(stack.shape[0]):
        flat = stack[a].reshape(stack[a].size)
        out[a] = math.sqrt(dot(flat, flat))
    return out


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
    """``choose_rows``, the same to the bit, for at least four arms and dimensions; ``packed`` is not used.

    Rounding: an estimate is off by at most ``n · ROUNDING · ‖ŵ‖‖x‖``, a form by ``n · ROUNDING · √m (bound · ‖z‖)²``
    (since ``|z|ᵀ|C||z| ≤ ‖C‖_F‖z‖² ≤ √m λ_max(C)‖z‖²``), so that its root is off by at most the root of that.
    """
    K, m, R = loadings.shape
    d = order.shape[0]
    single = np.empty(room_to_choose(weights, covariances))
    exact = np.empty(K)
    z = np.empty(m)
    Y = np.zeros((ROWS, d))
    panels = np.zeros((ROWS // LANES, d * LANES))
    found = np.empty(max(K, m) * LANES)
    forms = np.empty(LANES)
    guesses, high = np.empty((2, K, ROWS))
    size, reach, recorded, floor = np.empty((4, ROWS))
    first = np.empty(ROWS, dtype=np.int64)
    of_size = (2.0 * d + 16.0) * ROUNDING * norms_of(weights)
    of_reach = (math.sqrt((2.0 * m + 16.0) * ROUNDING * math.sqrt(m)) + MARGIN) * radii * bounds
    of_recorded = (2.0 * R + 16.0) * ROUNDING * norms_of(loadings) * radii * bounds + of_reach * spreads
    state = (order, loadings, shifted, centre, spreads, weights, covariances, radii, bounds, packed, counts)
    by_bounds = by_products = True
    for start in range(0, X.shape[0], ROWS):
        n = min(ROWS, X.shape[0] - start)
        # what leaves out little is left alone, and tried again from time to time
        again = start // ROWS % TRY_AGAIN == 0
        if not (by_products or again):
            for row in range(start, start + n):
                arms[row], estimates[row], widths[row], doubted[row] = choose_among(
                    X[row], *state, reluctance, limit, single
                )
            continue
        for t in range(ROWS):
            y = Y[t]
            if t < n:
                take(X[start + t], order, y)
            size[t] = math.sqrt(dot(y, y))
            recorded[t] = math.sqrt(dot(y[:R], y))
            floor[t] = -np.inf
        for p in range((n + LANES - 1) // LANES):
            t = p * LANES
            lay_out(Y, t, n, panels, p)
            multiply(weights, 0, K, d, panels, p, found)
            for a in range(K):
                for k in range(LANES):
                    guesses[a, t + k] = found[a * LANES + k]
            if R > 0:
                reduce_panel(panels, p, centre, 0, shifted, found)
                forms[:] = 0.0
                for j in range(m):
                    for k in range(LANES):
                        forms[k] += found[j * LANES + k] * found[j * LANES + k]
                for k in range(LANES):
                    reach[t + k] = math.sqrt(forms[k])
            else:
                reach[t : t + LANES] = size[t : t + LANES]
        for a in range(K):
            most = (1.0 + MARGIN) * radii[a] * bounds[a]
            for t in range(ROWS):
                off = of_size[a] * size[t] + 1e-120
                high[a, t] = guesses[a, t] + off + most * (reach[t] + spreads[a] * recorded[t])
                floor[t] = max(floor[t], guesses[a, t] - off)
        if by_bounds or again:
            # the most promising arm first, so that bounds can leave out others
            for t in range(n):
                first[t] = 0
                for a in range(1, K):
                    if high[a, t] > high[first[t], t]:
                        first[t] = a
                a = first[t]
                reduce_context(Y[t], Y[t, d - m :], loadings, a, shifted, z)
                index = dot_row(weights, a, Y[t]) + width_of(covariances, a, z, radii[a])
                floor[t] = max(floor[t], index)
        visited = 0
        for a in range(K):
            for p in range((n + LANES - 1) // LANES):
                t = p * LANES
                active = 0
                for k in range(LANES):
                    active += not high[a, t + k] < floor[t + k]
                if active < FEW:
                    continue
                visited += 1
                forms_of(panels, p, loadings, a, shifted, covariances, found, forms)
                for k in range(LANES):
                    off = (
                        of_size[a] * size[t + k]
                        + of_reach[a] * reach[t + k]
                        + of_recorded[a] * recorded[t + k]
                        + 1e-120
                    )
                    index = guesses[a, t + k] + radii[a] * math.sqrt(max(forms[k], 0.0))
                    high[a, t + k] = index + off
                    floor[t + k] = max(floor[t + k], index - off)
        by_bounds = 2 * LANES * visited < K * n
        evaluated = 0
        for t in range(n):
            y = Y[t]
            best = -1
            best_index = -np.inf
            best_width = 0.0
            for a in range(K):
                if high[a, t] < floor[t]:
                    continue
                evaluated += 1
                exact[a] = dot_row(weights, a, y)
                reduce_context(y, y[d - m :], loadings, a, shifted, z)
                width = width_of(covariances, a, z, radii[a])
                if exact[a] + width > best_index:
                    best, best_index, best_width = a, exact[a] + width, width
            row = start + t
            if best < 0:
                # numbers beyond what bounds are made for
                arms[row], estimates[row], widths[row], doubted[row] = choose_among(
                    X[row], *state, reluctance, limit, single
                )
                continue
            arms[row], estimates[row], widths[row] = best, exact[best], best_width
            if limit > 0.0:
                for a in range(K):
                    exact[a] = dot_row(weights, a, y)
            doubted[row] = to_doubt(exact, best, best_index, counts, reluctance, limit)
        by_products = 2 * evaluated < K * n
