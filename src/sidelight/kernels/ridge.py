"""One ridge regression per arm in reduced coordinates: score, choose, observe, refresh, and many rounds of them.

For arm ``a``: ``w = anchor + Nθ``, ``z = Nᵀx = x_h − loadings x[:R]`` (without ``x_h`` unless ``shifted``),
``A = NᵀV₀N + Σ z zᵀ``, ``θ̂ = A⁻¹(NᵀV₀(μ − anchor) + Σ z(r − x·anchor))``, ``ŵ = anchor + Nθ̂``.

The sums are the truth; ``covariances = A⁻¹``, ``weights = ŵ`` and ``log_dets = log det A/det A₀`` are caches, kept by
rank one and recomputed from the sums every ``REFRESH_EVERY`` observations of an arm; ``bounds`` are of ``√λ_max(A⁻¹)``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sidelight.arrays import LARGEST
from sidelight.kernels.compiled import helper, inlined, kernel
from sidelight.kernels.elementary import log, log1p
from sidelight.kernels.simd import dot, dot_at, dot_row, quadratic_form, subtract_products
from sidelight.kernels.spd import invert_into
from sidelight.kernels.state import state_of
from sidelight.kernels.sums import Answers, add_one_answer

__all__ = [
    "DETERMINANT",
    "POSTERIOR",
    "PRINTED",
    "Answers",
    "Rounds",
    "choose",
    "choose_rows",
    "observe",
    "observe_rows",
    "play",
    "radii_of",
    "refresh",
    "score",
    "score_parts",
]

DETERMINANT, PRINTED, POSTERIOR = 0, 1, 2
#: rounds whose rewards are 0 or 1 are weighted so that the noise of each has this variance, if its rate is right
BINARY_VARIANCE = 0.25
#: safety margin of pruning for rounding errors, relative to estimate and width; far above their size
MARGIN = 1e-9
#: every arm's caches are recomputed from its sums after this many rank-one updates
REFRESH_EVERY = 1024


class Rounds(NamedTuple):
    """Rounds drawn in advance.

    Attributes:
        X: (n, d) contexts   rewards: (n, K) what each arm would pay.
        answers: (n,) positions of the old policy's arms, or (0,) where nobody asks.
        draws: (n,) in [0, 1), or (0,)   played: (n,) where the positions of the arms played go.
    """

    X: Any
    rewards: Any
    answers: Any
    draws: Any
    played: Any


# ---------------------------------------------------------------------------------------------- radii


@helper
def radius_of(kind, count, log_det, dimension, noise, prior_term, growth, union):  # type: ignore[no-untyped-def]
    """``√β`` of one arm: the formulas of ``theory.determinant_radius`` and ``theory.printed_radius``, which call it.

    ``prior_term = λS_w²``, ``growth = S_x²/λ``, ``union = log 1/δ_a`` (of ``PRINTED``: ``log K/δ``).
    """
    if kind == DETERMINANT:
        return math.sqrt(noise * noise * (log_det + 2.0 * union) + prior_term)
    if kind == PRINTED:
        spread = dimension * (union + log(1.0 + count * growth))
        return noise * math.sqrt(max(spread, 0.0)) + math.sqrt(prior_term)
    return noise


@kernel
def radii_of(kind, parts, out):  # type: ignore[no-untyped-def]
    """``radius_of`` for every column of ``parts`` (7, n), its arguments after ``kind``, into ``out`` (n,)."""
    for i in range(out.shape[0]):
        out[i] = radius_of(
            kind, parts[0, i], parts[1, i], parts[2, i], parts[3, i], parts[4, i], parts[5, i], parts[6, i]
        )


# ------------------------------------------------------------------------------------------- deciding


@inlined
def take(x, order, out):  # type: ignore[no-untyped-def]
    """``out[i] = x[order[i]]``: the context in internal order."""
    for i in range(order.shape[0]):
        out[i] = x[order[i]]


@inlined
def reduce_context(y, loadings, a, shifted, z):  # type: ignore[no-untyped-def]
    """``z = Nᵀx`` for arm ``a``.  y: (d,) the context in internal order   loadings: (K, m, R)"""
    subtract_products(z, y, y.shape[0] - loadings.shape[1] if shifted else -1, loadings, a)


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
        for i in range(s.order.shape[0]):
            y[i] = X[t, s.order[i]]
        arms[0, t], scores[0, t], scores[1, t], arms[1, t] = choose_among(s, y, z, estimates, highest, limit)


# ------------------------------------------------------------------------------------------- learning


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


@inlined
def rate_weight(s, estimate):  # type: ignore[no-untyped-def]
    """``¼/p(1 − p)``, what a round counts for whose reward is 0 or 1, with ``p = estimate``; 1 for other rewards.

    A rate of almost 0 or 1 would make one round count for all others, so ``p`` keeps ``least_rate`` from both.
    """
    if s.least_rate <= 0.0:
        return 1.0
    p = min(max(estimate, s.least_rate), 1.0 - s.least_rate)
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

    Its noise has the variance ``σ_a²/weight`` (times what ``rate_weight`` says, for rewards of 0 and 1), so it counts
    for ``weight`` rounds.  Returns whether the arm has had ``REFRESH_EVERY`` updates, so that a refresh is due, and
    whether the reward was further off than ``surprise`` standard deviations of what was expected.
    y: (d,) in internal order   z, u: (m,) to work in
    """
    d = y.shape[0]
    _, m, R = s.loadings.shape
    estimate = dot_row(s.weights, a, y)
    weight *= rate_weight(s, estimate)
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
    A, right = np.empty((m, m)), np.empty(m)
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
        for j in range(m):
            theta = dot_at(right, 0, s.covariances, (a * m + j) * m, m)
            if s.shifted:
                s.weights[a, d - m + j] += theta
            for i in range(R):
                s.weights[a, i] -= theta * s.loadings[a, j, i]
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
        for i in range(s.order.shape[0]):
            y[i] = X[t, s.order[i]]
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


@kernel
def play(arena, sizes, rounds, answers, cursor):  # type: ignore[no-untyped-def]
    """Rounds ``t, t+1, …``: the old policy's answer (phase 0), then a decision and its reward (phase 1).

    Comes back when ``room`` events or ``answer_room`` answers have been taken in, when the arm just played is due for a
    refresh, or after ``calm`` events at a reward that surprises, so that the learner can do what is due; returns the
    round and phase to go on with, what was taken in, the arm that is due or −1, and whether it ended with a surprise.
    Where an arm may be tried in doubt of the log (``doubt · spent`` is the limit of ``to_doubt``), ``draws`` decide by
    a fair coin.

    rounds: ``Rounds``   answers: ``Answers``   cursor: ``(t, phase, room, answer_room, calm)``
    """
    s = state_of(arena, sizes)
    t, phase, room, answer_room, calm = cursor
    K, m, _ = s.loadings.shape
    y, z, estimates, highest, u = np.empty(s.order.shape[0]), np.empty(m), np.empty(K), np.empty(K), np.empty(m)
    n = rounds.X.shape[0]
    events = 0
    taken = 0
    while t < n:
        if phase == 0:
            phase = 1
            if rounds.answers.shape[0] > 0:
                a = rounds.answers[t]
                add_one_answer(answers, rounds.X[t], a, 1.0, y)
                events += 1
                taken += 1
                if events >= room or taken >= answer_room:
                    return t, 1, events, taken, -1, False
        for i in range(s.order.shape[0]):
            y[i] = rounds.X[t, s.order[i]]
        a, _, _, doubted = choose_among(s, y, z, estimates, highest, s.doubt * s.spent[0])
        if doubted >= 0 and rounds.draws[t] < 0.5:
            a = doubted
        rounds.played[t] = a
        due, surprised = take_in(s, a, y, rounds.rewards[t, a], 1.0, z, u)
        events += 1
        t += 1
        phase = 0
        surprised = surprised and events >= calm
        if due or surprised or events >= room:
            return t, 0, events, taken, a if due else -1, surprised
    return t, 0, events, taken, -1, False
