"""Compiled rounds of the every-round variant with the ``1/t`` estimator: only what changed is recomputed.

``B_a = c K_a`` with ``K_a = R11(a)⁻¹ Σ x_o x_hᵀ`` over the arm's answers and ``c = 1/(t P(a))``.  With ``N = [−B; I]``

    NᵀVN = V_hh − c(KᵀV_oh + V_hoK) + c²KᵀV_ooK,        Nᵀ(Y − V anchor) = R_h − c KᵀR_o,

(``K`` is kept as (m, L), so that each hidden feature reads one row), whose coefficients change only for the arm that
was asked about or played.  ``t`` changes every round for all arms.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sidelight.kernels.compiled import helper, inlined, kernel
from sidelight.kernels.elementary import log
from sidelight.kernels.ridge import DETERMINANT, radius_of, take_row
from sidelight.kernels.simd import dot, dot_at, dot_row, subtract_products
from sidelight.kernels.sums import add_one_answer

#: safety margin of bounds of log determinants for rounding errors
MARGIN = 1e-6


class Running(NamedTuple):
    """The state of the every-round variant, in internal order; ``n`` arms, ``L`` recorded and ``m`` hidden features.

    Attributes:
        order: (d,)   shares: (n,) ``P(a)``   anchors: (n, d) ``[b; 0]``   inverses: (n, L, L) ``R11(a)⁻¹``.
        kind, noise, prior_term, growth, union, alpha: as in ``state.Numbers``.
        prior: (d, d) ``V₀``   least: its least eigenvalue ``λ``.
        V: (n, d, d) with the prior inside   Y, R: (n, d) ``Σ x r`` and ``Y − V anchor``   squares, counts: (n,).
        K: (n, m, L)   P: (n, 3, m, m), q: (n, 2, m) the coefficients   P0: (n, 3, m, m) those of the prior's matrix.
    """

    order: Any
    shares: Any
    anchors: Any
    inverses: Any
    kind: Any
    noise: Any
    prior_term: Any
    growth: Any
    union: Any
    alpha: Any
    prior: Any
    least: Any
    V: Any
    Y: Any
    R: Any
    squares: Any
    counts: Any
    K: Any
    P: Any
    q: Any
    P0: Any


@helper
def matrix_coefficients(V, K, P):  # type: ignore[no-untyped-def]
    """``P`` (3, m, m) of one arm from ``V`` (d, d) symmetric and ``K`` (m, L)."""
    m, L = K.shape
    d = L + m
    column = np.empty(L)
    for i in range(m):
        for j in range(m):
            P[0, i, j] = V[L + i, L + j]
            P[1, i, j] = dot_at(K, i * L, V, (L + j) * d, L) + dot_at(K, j * L, V, (L + i) * d, L)
    for j in range(m):
        for k in range(L):
            column[k] = dot_at(K, j * L, V, k * d, L)
        for i in range(m):
            P[2, i, j] = dot_at(K, i * L, column, 0, L)


@helper
def coefficients(s):  # type: ignore[no-untyped-def]
    """Compute ``P``, ``q`` and ``P0`` of all arms afresh.  s: ``Running``"""
    n, m, L = s.K.shape
    for a in range(n):
        matrix_coefficients(s.V[a], s.K[a], s.P[a])
        matrix_coefficients(s.prior, s.K[a], s.P0[a])
        for i in range(m):
            s.q[a, 0, i] = s.R[a, L + i]
            s.q[a, 1, i] = dot_at(s.K, (a * m + i) * L, s.R, a * (L + m), L)


@helper
def asked(y, V, R, inverse, K, P, q):  # type: ignore[no-untyped-def]
    """The arm was named at ``y`` (internal order): ``K += u x_hᵀ`` with ``u = R11⁻¹x_o``."""
    m, L = K.shape
    u = np.empty(L)
    Vu = np.empty(L)
    left = np.empty(m)
    right = np.empty(m)
    for i in range(L):
        u[i] = dot_row(inverse, i, y)
    d = L + m
    for i in range(L):
        Vu[i] = dot_at(u, 0, V, i * d, L)
    square = dot(u, Vu)
    for j in range(m):
        left[j] = dot_at(u, 0, V, (L + j) * d, L)
        right[j] = dot_row(K, j, Vu)
    along = dot(u, R)
    for i in range(m):
        xi = y[L + i]
        q[1, i] += xi * along
        for j in range(m):
            xj = y[L + j]
            P[1, i, j] += xi * left[j] + left[i] * xj
            P[2, i, j] += xi * right[j] + right[i] * xj + xi * xj * square
    for j in range(m):
        for i in range(L):
            K[j, i] += y[L + j] * u[i]


@helper
def observed(y, r, anchor, V, R, K, P, q):  # type: ignore[no-untyped-def]
    """The arm was played at ``y``: ``V += yyᵀ``, ``R += y(r − y·anchor)``."""
    m, L = K.shape
    k = np.empty(m)
    for j in range(m):
        k[j] = dot_row(K, j, y)
    residual = r - dot(y, anchor)
    d = y.shape[0]
    for i in range(d):
        R[i] += residual * y[i]
        for j in range(d):
            V[i, j] += y[i] * y[j]
    for i in range(m):
        xi = y[L + i]
        q[0, i] += xi * residual
        q[1, i] += k[i] * residual
        for j in range(m):
            P[0, i, j] += xi * y[L + j]
            P[1, i, j] += k[i] * y[L + j] + xi * k[j]
            P[2, i, j] += k[i] * k[j]


@helper
def factor(P, a, c, G):  # type: ignore[no-untyped-def]
    """``P₀ − cP₁ + c²P₂ = LDLᵀ`` of arm ``a``: ``G`` has ``L`` below, ``DLᵀ`` above and ``D⁻¹`` on its diagonal.

    Not Cholesky, whose square roots depend on each other and would take most of the time.  Returns the log determinant,
    or NaN where the matrix is not positive definite.
    """
    m = G.shape[0]
    log_det = 0.0
    # logarithms are slow: one for the product of many pivots, taken before it overflows or underflows
    product = 1.0
    for j in range(m):
        pivot = P[a, 0, j, j] - c * P[a, 1, j, j] + c * c * P[a, 2, j, j]
        for k in range(j):
            pivot -= G[j, k] * G[k, j]
        if not pivot > 0.0:
            return math.nan
        if not 1e-100 < pivot < 1e100:
            log_det += log(pivot)
        else:
            product *= pivot
            if not 1e-200 < product < 1e200:
                log_det += log(product)
                product = 1.0
        inverse = 1.0 / pivot
        G[j, j] = inverse
        for i in range(j + 1, m):
            total = P[a, 0, i, j] - c * P[a, 1, i, j] + c * c * P[a, 2, i, j]
            for k in range(j):
                total -= G[i, k] * G[k, j]
            G[i, j] = total * inverse
            G[j, i] = total
    return log_det + log(product)


@helper
def choose_running(s, y, t):  # type: ignore[no-untyped-def]
    """The arm of highest index after ``t`` answers, or −1 where a matrix is too ill-conditioned to be trusted.

    ``NᵀV₀N = V₀_hh + … ⪰ λI``, so an arm's radius is at most that with ``m log λ`` for the prior's log determinant: if
    its index is too small even then, the determinant is not computed.

    s: ``Running``   y: (d,) in internal order
    """
    n_arms, m, L = s.K.shape
    G = np.empty((m, m))
    z = np.empty(m)
    v = np.empty(m)
    best = -1
    best_index = -np.inf
    least = m * log(s.least) - MARGIN
    for a in range(n_arms):
        c = 1.0 / (t * s.shares[a])
        log_det = factor(s.P, a, c, G)
        if math.isnan(log_det):
            return -1
        subtract_products(z, y, -1, s.K, a)
        estimate = dot_row(s.anchors, a, y)
        width2 = 0.0
        # forward substitution for z and for the right-hand side at once: θ·z = (L⁻¹z)ᵀD⁻¹(L⁻¹q)
        for i in range(m):
            zi = y[L + i] + c * z[i]
            vi = s.q[a, 0, i] - c * s.q[a, 1, i]
            for k in range(i):
                zi -= G[i, k] * z[k]
                vi -= G[i, k] * v[k]
            z[i] = zi
            v[i] = vi
            width2 += zi * zi * G[i, i]
            estimate += zi * vi * G[i, i]
        width = s.alpha * math.sqrt(width2)
        if s.kind == DETERMINANT:
            if estimate + width * radius(s, a, log_det - least) < best_index:
                continue
            log_det -= factor(s.P0, a, c, G)
        index = estimate + width * radius(s, a, log_det)
        if index > best_index:
            best, best_index = a, index
    return best


@inlined
def radius(s, a, log_det):  # type: ignore[no-untyped-def]
    """``√β``, the radius of arm ``a``, of the kind that the settings name.  log_det: ``log det(Ṽ/λ)``"""
    excess = max(log_det, 0.0)
    return radius_of(s.kind, s.counts[a], excess, s.K.shape[1], s.noise, s.prior_term, s.growth, s.union)


@kernel
def play_running(s, rounds, answers, cursor):  # type: ignore[no-untyped-def]
    """Rounds until ``room`` events are taken in; returns round, phase, events and answers (see ``ridge_rounds.play``).

    ``P``, ``q`` and ``P0`` are computed afresh first, and kept by rank one from then on.
    Comes back with the same round in phase 1 and no progress where the decision must be made the careful way.

    s: ``Running``   rounds: ``ridge_rounds.Rounds``   answers: ``sums.Answers``
    cursor: ``(t, phase, room, answers so far)``
    """
    t, phase, room, n_answers = cursor
    coefficients(s)
    d = s.order.shape[0]
    y, answered = np.empty(d), np.empty(d)
    events = 0
    taken = 0
    while t < rounds.X.shape[0]:
        take_row(rounds.X, t, s.order, y)
        if phase == 0:
            phase = 1
            a = rounds.answers[t]
            add_one_answer(answers, rounds.X[t], a, 1.0, answered)
            asked(y, s.V[a], s.R[a], s.inverses[a], s.K[a], s.P[a], s.q[a])
            if s.kind == DETERMINANT:
                # the prior's coefficients follow K: kept as those of a matrix that no round changes
                matrix_coefficients(s.prior, s.K[a], s.P0[a])
            events += 1
            taken += 1
            if events >= room:
                return t, 1, events, taken
        a = choose_running(s, y, float(n_answers + taken))
        if a < 0:
            return t, 1, events, taken
        rounds.played[t] = a
        r = rounds.rewards[t, a]
        observed(y, r, s.anchors[a], s.V[a], s.R[a], s.K[a], s.P[a], s.q[a])
        for i in range(d):
            s.Y[a, i] += y[i] * r
        s.squares[a] += r * r
        s.counts[a] += 1
        events += 1
        t += 1
        phase = 0
        if events >= room:
            return t, 0, events, taken
    return t, 0, events, taken
