"""Compiled algebra of the estimators from answers.

The formulas and their letters are those of ``hidden.pooling`` and ``hidden.regression_error``.

``S``: (K, d, d) are the arms' sums, the regressors first, of which there are ``L``: the recorded features, or the
coordinates of ``hidden.frame``.  ``pull``: (L, L) is the prior's precision, and ``W_a = S11(a) + pull``.
"""

from __future__ import annotations

import math

import numpy as np

from sidelight.kernels.compiled import helper, kernel
from sidelight.kernels.elementary import log
from sidelight.kernels.elimination import copy_columns, subtract_four, subtract_row
from sidelight.kernels.simd import clear, dot_at
from sidelight.kernels.spd import (
    backward,
    factor,
    invert_factor,
    padded,
)

#: a matrix with a smaller pivot, relative to its diagonal, counts as singular: rounding would decide the solution
SINGULAR = 1e-12
#: a column of which those before it leave no more than this part is rounding
REPEATED = 1e-14


@kernel
def regress(S, pull, toward, B, solved):  # type: ignore[no-untyped-def]
    """``B_a = W_a⁻¹(S12(a) + toward)``, and ``solved[a] = True``; where ``W_a`` is singular, both stay as they were.

    ``W_a`` counts as singular if a pivot is below ``SINGULAR`` after scaling to a unit diagonal, so that the units of
    features do not matter.  toward: (L, m)   B: (K, L, m)   solved: (K,)
    """
    K, L, m = B.shape
    first = padded(L)
    table = np.zeros((L, first + padded(m)))
    scale = np.empty(L)
    for a in range(K):
        for i in range(L):
            square = S[a, i, i] + pull[i, i]
            scale[i] = 1.0 / math.sqrt(square) if square > 0.0 else 1.0
        for i in range(L):
            for j in range(L):
                table[i, j] = (S[a, i, j] + pull[i, j]) * (scale[i] * scale[j])
            for j in range(m):
                table[i, first + j] = (S[a, i, L + j] + toward[i, j]) * scale[i]
        if math.isnan(factor(table)):
            continue
        least = 1.0
        for i in range(L):
            least = min(least, table[i, i] * table[i, i])
        if not least > SINGULAR:
            continue
        solved[a] = True
        backward(table, table, first, False)
        for i in range(L):
            for j in range(m):
                B[a, i, j] = table[i, first + j] * scale[i]


@helper
def subtract_times(out, C, X):  # type: ignore[no-untyped-def]
    """``out −= CX``.  out, X: (L, width), ``width`` a multiple of eight   C: (L or more, L or more), its first ones"""
    L, width = X.shape
    down = C.shape[1]
    for i in range(0, L - 3, 4):
        subtract_four(out, i, C, (i * down, down, 1, 0, L), X, (0, 0, width))
    for i in range(L & ~3, L):
        subtract_row(out, i, C, (i * down, 1, 0, L), X, (0, 0, width))


@helper
def unexplained(S, B, left):  # type: ignore[no-untyped-def]
    """``S12 − S11B`` into ``left``.  S: (d, d)   B, left: (L, padded(m)), zero beyond the first ``m`` columns"""
    d, L = S.shape[0], B.shape[0]
    clear(left)
    for i in range(L):
        for j in range(d - L):
            left[i, j] = S[i, L + j]
    subtract_times(left, S, B)


@helper
def residual_squares(S, B, left, own):  # type: ignore[no-untyped-def]
    """``own = Σ ω(x_h − Bᵀx_o)(x_h − Bᵀx_o)ᵀ = S22 − S12ᵀB − Bᵀ(S12 − S11B)``.

    S: (d, d)   B: (L, padded(m)), zero beyond the first ``m`` columns   left: as ``B``, to work in
    own: (m, padded(m)), symmetric in its first ``m`` columns
    """
    d = S.shape[0]
    L, width = B.shape
    m = d - L
    unexplained(S, B, left)
    clear(own)
    for i in range(m):
        for j in range(m):
            own[i, j] = S[L + i, L + j]
        subtract_row(own, i, S, (L + i, d, 0, L), B, (0, 0, width))
        subtract_row(own, i, B, (i, width, 0, L), left, (0, 0, width))
    for i in range(m):
        for j in range(i):
            own[i, j] = 0.5 * (own[i, j] + own[j, i])
            own[j, i] = own[i, j]


@kernel
def move_sums(S, scale, shift, c, fading, out):  # type: ignore[no-untyped-def]
    """``Σ ω v vᵀ`` becomes ``Σ ω z zᵀ`` with ``z = scale∘v − shift·(scale∘v)_c``; only scaled where ``c`` is −1.

    Of the first arms ``z_c`` then becomes ``z_c − fading_a·z``.

    S, out: (K, d, d)   scale, shift: (d,)   fading: (K or fewer, d or fewer)
    """
    K, d, _ = S.shape
    level = np.empty(d)
    for a in range(K):
        for i in range(d):
            for j in range(d):
                out[a, i, j] = S[a, i, j] * scale[i] * scale[j]
        if c < 0:
            continue
        for j in range(d):
            level[j] = out[a, c, j]
        for i in range(d):
            for j in range(d):
                out[a, i, j] -= shift[i] * level[j]
        for i in range(d):
            own = out[a, i, c]
            for j in range(d):
                out[a, i, j] -= own * shift[j]
        if a < fading.shape[0]:
            for j in range(d):
                level[j] = out[a, c, j]
            for i in range(fading.shape[1]):
                for j in range(d):
                    level[j] -= fading[a, i] * out[a, i, j]
            own = level[c]
            for i in range(fading.shape[1]):
                own -= fading[a, i] * level[i]
            level[c] = own
            for j in range(d):
                out[a, c, j] = level[j]
                out[a, j, c] = level[j]


@kernel
def add_up(S, S_squared, units, total, noise, own, squared):  # type: ignore[no-untyped-def]
    """``ΣS_a`` into ``total`` and ``ΣS²(a)`` into ``noise``; their traces, of every arm and last of all together.

    S_squared: (K, L, L)   units: (L,) what features count for in traces   total: (d, d)   noise: (L, L)
    own, squared: (K + 1,) traces of ``S11`` and ``S²``
    """
    K, d, _ = S.shape
    L = units.shape[0]
    clear(total)
    clear(noise)
    clear(own)
    clear(squared)
    for a in range(K):
        for i in range(d):
            for j in range(d):
                total[i, j] += S[a, i, j]
        for i in range(L):
            for j in range(L):
                noise[i, j] += S_squared[a, i, j]
        for i in range(L):
            own[a] += S[a, i, i] * units[i]
            squared[a] += S_squared[a, i, i] * units[i]
    for i in range(L):
        own[K] += total[i, i] * units[i]
        squared[K] += noise[i, i] * units[i]


@kernel
def pooled_residuals(total, B, residual):  # type: ignore[no-untyped-def]
    """Residual squares of one regression over all arms.  total: (d, d)   B: (L, m)   residual: (m, m)"""
    L, m = B.shape
    table = np.zeros((L, padded(m)))
    copy_columns(B, table, m)
    own = np.empty((m, padded(m)))
    residual_squares(total, table, np.empty((L, padded(m))), own)
    copy_columns(own, residual, m)


@kernel
def residual_moments(S, counts, B, pull, used, pooled, weight, Sigma):  # type: ignore[no-untyped-def]
    """``Σ_e`` of every arm: its residual squares and ``weight`` times ``pooled``, over the number of both.

    Of its ``counts`` answers ``tr(used S11(a)W_a⁻¹)`` do not count, and where ``W_a`` has no inverse ``2L``.

    B: (K, L, m)   used: (L, L)   pooled: (m, m)   Sigma: (K, m, m)
    """
    K, L, m = B.shape
    width = padded(L)
    S11 = np.zeros((L, width))
    product = np.empty((L, width))
    W = np.zeros((L, width))
    T = np.empty((L, width))
    table = np.zeros((L, padded(m)))
    left = np.empty((L, padded(m)))
    own = np.empty((m, padded(m)))
    for a in range(K):
        copy_columns(B[a], table, m)
        residual_squares(S[a], table, left, own)
        for i in range(L):
            for j in range(L):
                S11[i, j] = S[a, i, j]
                W[i, j] = S[a, i, j] + pull[i, j]
            # regressors that depend on each other leave a pivot of rounding errors: keep it away from zero
            W[i, i] *= 1.0 + SINGULAR
        free = counts[a] - 2.0 * L
        if not math.isnan(factor(W)):
            invert_factor(W, T)
            backward(W, T, 0, True)
            clear(product)
            subtract_times(product, used, S11)
            free = counts[a]
            for i in range(L):
                free += product[i, i] * T[i, i]
                for j in range(i):
                    free += (product[i, j] + product[j, i]) * T[i, j]
        number = max(free, 0.0) + weight
        for i in range(m):
            for j in range(m):
                Sigma[a, i, j] = (own[i, j] + weight * pooled[i, j]) / number


@helper
def triangle_of(columns, n, R):  # type: ignore[no-untyped-def]
    """``R`` of ``P = QR`` by modified Gram and Schmidt; returns whether no column depends on those before it.

    columns: (L, n or more)  those of ``P``, which are overwritten   R: (L, padded(L)), on and above the diagonal
    """
    L, width = columns.shape
    for k in range(L):
        size = R[k, k]
        R[k, k] = math.sqrt(dot_at(columns, k * width, columns, k * width, n))
        # at first R has the columns' own squares
        if not R[k, k] > REPEATED * math.sqrt(size):
            return False
        scale = 1.0 / R[k, k]
        for i in range(n):
            columns[k, i] *= scale
        for j in range(k + 1, L):
            along = dot_at(columns, k * width, columns, j * width, n)
            R[k, j] = along
            for i in range(n):
                columns[j, i] -= along * columns[k, i]
    return True


@kernel
def answers_precision(S, S_squared, pull, shared, E, A):  # type: ignore[no-untyped-def]
    """``A_a``, the inverse of ``E_aW_a⁻¹(S²(a) + shared)W_a⁻¹E_aᵀ``; returns whether all arms have one.

    Where ``W_a`` or the sum is not positive definite, ``A_a`` is filled with NaN.

    S: (K, n or more, …)   S_squared: (K, n, n)   pull, shared: (n, n)   E: (K, L, n)   A: (K, L, L)
    """
    K, L, n = E.shape
    first = padded(n)
    width = padded(L)
    second = first + width
    table = np.zeros((n, second + first))
    noise = np.zeros((n, first))
    # with W = GGᵀ and S² + shared = NNᵀ the covariance is PᵀP of P = (G⁻¹N)ᵀG⁻¹Eᵀ, and A follows from the triangle of
    # P: beside what features that repeat each other leave open, W⁻¹ or PᵀP would lose the digits of what they say
    columns = np.empty((L, first))
    R = np.zeros((L, width))
    T = np.empty((L, width))
    whole = True
    for a in range(K):
        for i in range(n):
            for j in range(n):
                noise[i, j] = S_squared[a, i, j] + shared[i, j]
        definite = not math.isnan(factor(noise))
        for i in range(n):
            for j in range(n):
                table[i, j] = S[a, i, j] + pull[i, j]
                table[i, second + j] = noise[j, i] if j <= i else 0.0
            for j in range(L):
                table[i, first + j] = E[a, j, i]
        if not definite or math.isnan(factor(table)):
            A[a] = math.nan
            whole = False
            continue
        clear(columns)
        for j in range(L):
            subtract_row(columns, j, table, (first + j, second + first, 0, n), table, (second, 0, first))
            R[j, j] = dot_at(columns, j * first, columns, j * first, n)
        if not triangle_of(columns, n, R):
            A[a] = math.nan
            whole = False
            continue
        invert_factor(R, T)
        backward(R, T, 0, True)
        for i in range(L):
            for j in range(i + 1):
                A[a, i, j] = T[i, j]
                A[a, j, i] = T[i, j]
    return whole


@kernel
def own_likelihoods(total, D, level, strengths, answers, values):  # type: ignore[no-untyped-def]
    """Log likelihood of the pooled regression for every ``κ₀`` of ``strengths``, into ``values``.

    −∞ for a ``κ₀`` at which ``T`` is not positive definite.

    With ``T = S11 + κ₀D`` and ``e_j = 1 − S12_jᵀT⁻¹S12_j/S22_jj`` of every hidden feature ``j`` that varies:
    ``−½Σ_j[(t + 1) log(e_j + 1/t) + log det T − p log κ₀]``, ``p`` the regressors that are pulled.

    total: (n + m, n + m)   D: (n, n)   level: position of the regressor that is as good as free and its pull, the
    former −1 for none   answers: ``t``   strengths, values: (N,)
    """
    constant, flat = level
    n = D.shape[0]
    m = total.shape[0] - n
    pulled = n - (constant >= 0)
    first = padded(n)
    table = np.zeros((n, first + padded(m)))
    explained = np.empty(m)
    for k in range(strengths.shape[0]):
        for i in range(n):
            for j in range(n):
                table[i, j] = total[i, j] + strengths[k] * D[i, j]
            for j in range(m):
                table[i, first + j] = total[i, n + j]
        if constant >= 0:
            table[constant, constant] = total[constant, constant] + flat
        log_det = factor(table)
        values[k] = -math.inf
        if math.isnan(log_det):
            continue
        clear(explained)
        for i in range(n):
            for j in range(m):
                explained[j] += table[i, first + j] * table[i, first + j]
        value = 0.0
        for j in range(m):
            square = total[n + j, n + j]
            if square > 0.0:
                # one pseudo-answer of each hidden feature's own size
                left = max(1.0 - explained[j] / square, 0.0) + 1.0 / answers
                value -= 0.5 * ((answers + 1.0) * log(left) + (log_det - pulled * log(strengths[k])))
        values[k] = value


@kernel
def between_arms(S, D, gap, mean, strength, levels, residuals, values):  # type: ignore[no-untyped-def]
    """Log likelihood of ``κ`` with every ``ρ`` of ``levels``, into ``values``: see ``hidden.strengths``.

        −½m(Σ_a log det(S_a + κD_ρ)/det κD_ρ) − ½N log det[R − Σ_a gap_aᵀ(S_a + κD_ρ)⁻¹gap_a],

    up to a constant, with ``det κD_ρ ∝ κᴸρ``; a ``10⁻¹²`` of the diagonal of ``R`` is added to the difference.  NaN for
    a ``ρ`` at which a matrix is not positive definite.

    ``D_ρ = D − (1 − ρ)μμᵀ``, a change of rank one.  With ``W = S_a + κD``, ``c = κ(1 − ρ)`` and ``f = 1 − cμᵀW⁻¹μ``:

        log det(W − cμμᵀ) = log det W + log f,    (W − cμμᵀ)⁻¹ = W⁻¹ + W⁻¹μμᵀW⁻¹ c/f.

    D: (L, L)   gap: (K, L, m)   mean: (L,) ``μ``   strength: ``κ``   levels: (n,)  ``ρ``
    residuals: (m, m) ``R``, and ``N``   values: (n,)
    """
    K, L, m = gap.shape
    first = padded(L)
    width = first + padded(m + 1)
    table = np.zeros((L, width))
    squares = np.empty((m, m))
    across = np.empty(m + 1)
    whole, free = residuals
    explained, log_dets = np.zeros((levels.shape[0], m, m)), np.zeros(levels.shape[0])
    rest = np.zeros((m, padded(m)))
    for a in range(K):
        for i in range(L):
            for j in range(L):
                table[i, j] = S[a, i, j] + strength * D[i, j]
            for j in range(m):
                table[i, first + j] = gap[a, i, j]
            table[i, first + m] = mean[i]
        log_det = factor(table)
        clear(squares)
        clear(across)
        for i in range(L):
            for j in range(m):
                for k in range(m):
                    squares[j, k] += table[i, first + j] * table[i, first + k]
            for k in range(m + 1):
                across[k] += table[i, first + m] * table[i, first + k]
        for k in range(levels.shape[0]):
            change = strength * (1.0 - levels[k])
            left = 1.0 - change * across[m]
            if left > 0.0:
                log_dets[k] += log_det + log(left)
                for i in range(m):
                    moved = change / left * across[i]
                    for j in range(m):
                        explained[k, i, j] += squares[i, j]
                        explained[k, i, j] += moved * across[j]
            else:
                log_dets[k] = math.nan
    for k in range(levels.shape[0]):
        for i in range(m):
            for j in range(i, m):
                rest[i, j] = ((whole[i, j] - explained[k, i, j]) + (whole[j, i] - explained[k, j, i])) / 2.0
            rest[i, i] += 1e-12 * whole[i, i]
        values[k] = -0.5 * m * (log_dets[k] - K * (L * log(strength) + log(levels[k]))) - 0.5 * free * factor(rest)
