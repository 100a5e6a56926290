"""Many rounds in one call: the same kernels as a single decision and observation, in a loop."""

from __future__ import annotations

import numpy as np
from numba import njit

from sidelight.kernels.reduced import choose_among, refresh, room_to_choose, take_in, take_row
from sidelight.kernels.simd import fetch_row
from sidelight.kernels.sums import add_answer


@njit(cache=True)
def play_rounds(  # type: ignore[no-untyped-def]
    X,
    table,
    answers,
    draws,
    doubt,
    reluctance,
    t,
    phase,
    room,
    answer_room,
    calm,
    played,
    answer_order,
    S,
    S_squared,
    sums,
    answer_counts,
    order,
    loadings,
    shifted,
    centre,
    spreads,
    anchors,
    priors,
    prior_moments,
    prior_log_dets,
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
):
    """Rounds ``t, t+1, …``: the old policy's answer (phase 0), then a decision and its reward (phase 1).

    Comes back when ``room`` events or ``answer_room`` answers have been taken in, or after ``calm`` events at a reward
    that surprises, so that the learner can do what is due; returns the round and phase to go on with, what was taken
    in, and whether it ended with a surprise.  Where an arm may be tried in doubt of the
    log (``doubt · spent`` is the limit of ``choose_among``), ``draws`` (n,) decide by a fair coin.
    """
    n = X.shape[0]
    events = 0
    taken = 0
    asking = answers.shape[0] > 0
    y, z, estimates, highest, x_rough, rough = room_to_choose(weights, covariances, packed)
    u = np.empty(covariances.shape[1])
    while t < n:
        ahead = min(t + 4, n - 1)
        fetch_row(table, ahead)
        fetch_row(X, ahead)
        if phase == 0:
            phase = 1
            if asking:
                a = answers[t]
                add_answer(X[t], answer_order, 1.0, S[a], S_squared[a], sums[a])
                answer_counts[a] += 1.0
                events += 1
                taken += 1
                if events >= room or taken >= answer_room:
                    return t, 1, events, taken, False
        take_row(X, t, order, y)
        a, _, _, doubted = choose_among(
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
            doubt * spent[0],
            y,
            z,
            estimates,
            highest,
            x_rough,
            rough,
        )
        reduced = packed.shape[0] > 0
        if doubted >= 0 and draws[t] < 0.5:
            a = doubted
            reduced = False
        played[t] = a
        due, surprised = take_in(
            a,
            y,
            table[t, a],
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
        )
        if due:
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
                packed,
            )
        events += 1
        t += 1
        phase = 0
        surprised = surprised and events >= calm
        if surprised or events >= room:
            return t, 0, events, taken, surprised
    return t, 0, events, taken, False


@njit(cache=True, nogil=True)
def choose_rows(  # type: ignore[no-untyped-def]
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
    """``choose_among`` for every row of ``X`` (n, d), into ``arms``, ``estimates``, ``widths`` and ``doubted`` (n,)."""
    y, z, all_estimates, highest, x_rough, rough = room_to_choose(weights, covariances, packed)
    for t in range(X.shape[0]):
        take_row(X, t, order, y)
        arms[t], estimates[t], widths[t], doubted[t] = choose_among(
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
            all_estimates,
            highest,
            x_rough,
            rough,
        )


@njit(cache=True)
def observe_rows(  # type: ignore[no-untyped-def]
    start,
    stop,
    calm,
    X,
    arms,
    rewards,
    order,
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
):
    """``take_in`` for rows ``start … stop − 1``.

    Comes back after a row whose arm is due for a refresh, and after one that surprises when ``calm`` were taken in.

    Returns the row to go on with, whether that arm is due, and whether it was a surprise.
    """
    y, z, u = np.empty(order.shape[0]), np.empty(covariances.shape[1]), np.empty(covariances.shape[1])
    for t in range(start, stop):
        take_row(X, t, order, y)
        due, surprised = take_in(
            arms[t],
            y,
            rewards[t],
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
            False,
        )
        surprised = surprised and t + 1 - start >= calm
        if due or surprised:
            return t + 1, due, surprised
    return stop, False, False
