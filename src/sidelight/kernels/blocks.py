"""A batch of observations, arm by arm: many rows of one arm go into its sums as a product of matrices.

The sums come out with the bits of adding row by row (see ``tiles``); what is derived from them is computed once, from
the sums, instead of by rank one after every row.  Arms with few rows go row by row.  Arms do not depend on each other,
so that different ones may be given to different threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sidelight.kernels.reduced import reduce_context, refresh, take, take_in
from sidelight.kernels.simd import add_scaled, dot_row
from sidelight.kernels.tiles import DOWN, LANES, add_tile

#: rows that are laid out side by side at a time: enough to pay for reading and writing the sums, few enough for caches
ROWS = 128
#: numbers that stay in a cache between one arm's rows and the next one's
NEAR = 250_000


@njit(cache=True, nogil=True)
def add_sums(X, rewards, order, context_sums):  # type: ignore[no-untyped-def]
    """What ``take_in`` adds to ``context_sums`` (2d + 2,), for all rows in their order."""
    d = order.shape[0]
    squares, sums = np.empty(d), np.empty(d)
    for i in range(d):
        squares[order[i]] = context_sums[i]
        sums[order[i]] = context_sums[d + i]
    for t in range(X.shape[0]):
        for j in range(d):
            squares[j] += X[t, j] * X[t, j]
            sums[j] += X[t, j]
        context_sums[2 * d] += rewards[t]
        context_sums[2 * d + 1] += rewards[t] * rewards[t]
    take(squares, order, context_sums[:d])
    take(sums, order, context_sums[d:])


@njit(cache=True)
def add_block(  # type: ignore[no-untyped-def]
    a, rows, X, rewards, order, loadings, shifted, anchors, grams, moments, squares, panels, y
):
    """``grams[a] += ZᵀZ``, ``moments[a] += Zᵀ(r − X·anchor)``, ``squares[a] += ‖r − X·anchor‖²`` over ``rows`` of X.

    panels: (⌈m/8⌉, ROWS, 8) to work in, of which panel ``p`` holds columns ``8p …`` of Z   y: (d,)
    """
    m = grams.shape[1]
    filled = np.zeros(panels.shape[0] * LANES)
    z = filled[:m]
    # sums of their own: those of neighbouring arms share lines of the cache, which threads would fight for
    square = squares[a]
    moment = moments[a].copy()
    for first in range(0, rows.shape[0], ROWS):
        n = min(ROWS, rows.shape[0] - first)
        for t in range(n):
            row = rows[first + t]
            take(X[row], order, y)
            residual = rewards[row] - dot_row(anchors, a, y)
            square += residual * residual
            reduce_context(y, loadings, a, shifted, z)
            add_scaled(moment, residual, z)
            for p in range(panels.shape[0]):
                for j in range(LANES):
                    panels[p, t, j] = filled[LANES * p + j]
        add_gram(panels, n, grams[a])
    squares[a] = square
    moments[a] = moment


@njit(cache=True)
def add_gram(panels, n, gram):  # type: ignore[no-untyped-def]
    """``gram += ZᵀZ`` of the first ``n`` rows; the upper triangle is computed, the lower one copied."""
    m = gram.shape[0]
    tile = np.zeros((DOWN, LANES))
    size = panels.shape[1] * LANES
    for p in range(panels.shape[0]):
        columns = min(LANES, m - LANES * p)
        for i in range(0, min(m, LANES * (p + 1)), DOWN):
            down = min(DOWN, m - i)
            for k in range(down):
                for j in range(columns):
                    tile[k, j] = gram[i + k, LANES * p + j]
            add_tile(tile, 0, panels, i // LANES * size + i % LANES, LANES, 1, panels, p * size, n)
            for k in range(down):
                # of a tile across the diagonal, what is below it was begun from sums that are already done
                for j in range(max(i + k - LANES * p, 0), columns):
                    gram[i + k, LANES * p + j] = tile[k, j]
                    gram[LANES * p + j, i + k] = tile[k, j]


@njit(cache=True, nogil=True)
def observe_arms(arms, starts, rows, together, X, rewards, observing, priors):  # type: ignore[no-untyped-def]
    """The observations of some arms: of arm ``a`` the rows ``rows[starts[a] : starts[a + 1]]``, in that order.

    Where there are at least ``together`` of them they go in as one block, else one by one.  ``observing``: the state as
    ``take_in`` takes it, with ``context_sums`` and ``spent``, which belong to all arms, replaced by ones of this
    call's own (see ``add_sums``).  ``priors``: precisions, moments and log determinants as ``refresh`` takes them.
    """
    order, loadings, shifted, anchors, dimensions, numbers, grams, moments, squares = observing[:9]
    caches = observing[11:]
    counts = caches[0]
    d = order.shape[0]
    m = grams.shape[1]
    y, z, u = np.empty(d), np.empty(m), np.empty(m)
    panels = np.empty(((m + LANES - 1) // LANES, ROWS, LANES))
    # numba has no unpacking inside a tuple
    refreshing = (loadings, shifted, anchors) + priors + (dimensions, numbers, grams, moments) + caches  # noqa: RUF005
    learning = observing[1:] + (z, u, False)  # noqa: RUF005
    # all arms' rows of one part of X, then those of the next: an arm's alone are too far apart for the caches
    part = max(NEAR // d, 2 * ROWS * grams.shape[0])
    begin = starts[:-1].copy()
    for stop in range(part, X.shape[0] + part, part):
        for a in arms:
            if starts[a + 1] - starts[a] >= together:
                end = begin[a]
                while end < starts[a + 1] and rows[end] < stop:
                    end += 1
                own = rows[begin[a] : end]
                add_block(a, own, X, rewards, order, loadings, shifted, anchors, grams, moments, squares, panels, y)
                counts[a] += own.shape[0]
                begin[a] = end
    for a in arms:
        if starts[a + 1] - starts[a] >= together:
            refresh(a, *refreshing)
            continue
        for t in rows[starts[a] : starts[a + 1]]:
            take(X[t], order, y)
            due, _ = take_in(a, y, rewards[t], *learning)
            if due:
                refresh(a, *refreshing)
