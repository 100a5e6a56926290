"""Compiled algebra of arms' evidence with their own deviations integrated out: see ``side.deviations``."""

from __future__ import annotations

import math

import numpy as np

from sidelight.kernels.compiled import helper, kernel
from sidelight.kernels.elimination import subtract_row
from sidelight.kernels.simd import clear
from sidelight.kernels.spd import backward, factor, invert_factor, padded, subtract_product

__all__ = ["shrink_arms"]


@helper
def shrink_first(evidence, omega, g, reduced, along, sums):  # type: ignore[no-untyped-def]
    """Integrate out the deviations of every arm's first ``n`` weights, whatever the variances of the others are.

    What is left is evidence about the others, which ``shrink_rest`` goes on with: so many priors that differ in the
    variances of the others alone share this part, which is nearly all of the work where the others are few.

    All that is asked for is in ``N_a = EᵀE``, ``E = G⁻¹[I | D⁻¹Zᵀ | Dh | Dg]``, where ``W_a = GGᵀ`` (``side.prior``).
    This is the elimination of the first ``n`` rows of ``[W_a | I | D⁻¹Zᵀ | Dh | Dg]``: they add their part to ``N_a``,
    and leave to the other rows the evidence ``J_rr − J_rf(J_ff + Ω_f⁻¹)⁻¹J_fr``, and likewise changed right sides,
    which depend on the others' variances through a factor ``D_r`` alone.

    Returns the part of ``Σ_a[−½log det W_a]`` that these rows add; −∞ if rounding leaves a ``W_a`` that is not positive
    definite.

    evidence: (K, d, d + q + 1) ``[J | Zᵀ | h]`` of every arm   omega: (n,) diagonal of ``Ω`` of the first weights
    g: (d,) of the level, or zeros (``side.levels``)
    reduced: (K, m, m + d + q + 2) of the ``m = d − n`` others: what is left of their evidence, then of their right
    sides divided by ``D_r``, without ``I`` and ``D⁻¹Zᵀ``
    along: (K, d + q + 2) part of the last row of ``N_a``, that of ``Dg``
    sums: (d + q + 1, d + q + 1) part of the other rows, added up over arms, on and above the diagonal
    """
    K, d, last = evidence.shape
    n, p = omega.shape[0], last - 1
    m, q = d - n, p - d
    # the right sides [D_fJ_fr | D⁻¹Zᵀ | Dh | Dg] have h at the position ``right``
    first, width, right = padded(n), padded(m + q + 2), m + q
    D = np.sqrt(omega)
    table, T = np.zeros((n, first + width)), np.empty((n, first))
    products, inverses = np.empty((m + q + 2, width)), np.zeros((n, n))
    clear(sums)
    clear(reduced)
    clear(along)
    value = 0.0
    for a in range(K):
        for i in range(n):
            for j in range(i, n):
                table[i, j] = D[i] * evidence[a, i, j] * D[j]
            table[i, i] += 1.0
            for j in range(m):
                table[i, first + j] = D[i] * evidence[a, i, n + j]
            for j in range(q):
                table[i, first + m + j] = evidence[a, i, d + j] / D[i]
            table[i, first + right] = D[i] * evidence[a, i, p]
            table[i, first + right + 1] = D[i] * g[i]
        log_det = factor(table)
        if math.isnan(log_det):
            return -math.inf
        value -= 0.5 * log_det
        clear(products)
        subtract_product(products, table, first, table, first)
        # W⁻¹, below the diagonal, and W⁻¹ times the right sides
        invert_factor(table, T)
        backward(table, T, 0, True)
        backward(table, table, first, False)
        for i in range(n):
            for j in range(i + 1):
                inverses[i, j] += T[i, j]
            for j in range(q + 1):
                sums[i, d + j] += table[i, first + m + j]
            along[a, i] = table[i, first + right + 1]
        for i in range(q + 1):
            for j in range(i, q + 1):
                sums[d + i, d + j] -= products[m + i, m + j]
            along[a, d + i] = -products[m + i, right + 1]
        along[a, p + 1] = -products[right + 1, right + 1]
        for i in range(m):
            for j in range(i, m):
                reduced[a, i, j] = evidence[a, n + i, n + j] + products[i, j]
            for j in range(q + 2):
                reduced[a, i, m + d + j] = products[i, m + j]
            reduced[a, i, m + p] += evidence[a, n + i, p]
            reduced[a, i, m + p + 1] += g[n + i]
        for j in range(n):
            for i in range(m):
                reduced[a, i, m + j] = -table[j, first + i]
    for i in range(n):
        for j in range(i + 1):
            sums[j, i] = inverses[i, j]
    return value


@helper
def shrink_rest(evidence, omega, g, order, head, S, t, along):  # type: ignore[no-untyped-def]
    """``Σ_a X_aᵀS_aX_a`` into ``S`` and ``Σ_a X_aᵀt_a`` into ``t``, ``X_a = [I, Z_aᵀ]`` the design of arm ``a``'s mean.

    It eliminates the rows that ``shrink_first`` has left.  Returns the part of ``Σ_a[−½log det W_a]`` that these add,
    plus all of ``½Σ_a(Dh_a)ᵀW_a⁻¹(Dh_a)``; −∞ if rounding leaves a ``W_a`` that is not positive definite, so that the
    search takes another ``Ω``.

    evidence: (K, d, d + q + 1) as for ``shrink_first``   omega: (d,) diagonal of ``Ω``   g: (d,) as there
    order: (d + q,) where the coefficients of ``evidence`` stand in ``S``, ``t`` and ``along``
    head: ``(reduced, along, sums)`` of ``shrink_first``   S: (d + q, d + q)   t: (d + q,)
    along: (K, d + q + 2) ``X_aᵀS_aΩg``, ``(Ωg)ᵀt_a`` and ``(Ωg)ᵀS_aΩg``
    """
    K, d, last = evidence.shape
    reduced, head_along, sums = head
    p, m = last - 1, reduced.shape[1]
    n, q = d - m, p - d
    first, width = padded(m), padded(p + 2)
    D, inverse = np.sqrt(omega), np.ones(p)
    for i in range(d):
        inverse[i] = 1.0 / D[i]
    table = np.zeros((m, first + width))
    # −ΣEᵀE of the second block, its last row for every arm, and ΣXᵀΩ⁻¹X where preferences are involved
    negative, rows, own = np.zeros((p + 1, width)), np.zeros((K, width)), np.zeros((q, p))
    value = 0.0
    for a in range(K):
        for i in range(m):
            scale = D[n + i]
            for j in range(i, m):
                table[i, j] = scale * reduced[a, i, j] * D[n + j]
            table[i, i] += 1.0
            for j in range(p + 2):
                table[i, first + j] = scale * reduced[a, i, m + j]
            table[i, first + n + i] = 1.0
            for j in range(d, p):
                table[i, first + j] += evidence[a, n + i, j] / scale
        for i in range(d):
            for j in range(q):
                scaled = evidence[a, i, d + j] * inverse[i]
                own[j, i] += scaled * inverse[i]
                for k in range(j + 1):
                    own[j, d + k] += scaled * (evidence[a, i, d + k] * inverse[i])
        log_det = factor(table)
        if math.isnan(log_det):
            return -math.inf
        value -= 0.5 * log_det
        subtract_product(negative, table, first, table, first)
        subtract_row(rows, a, table, (first + p + 1, table.shape[1], 0, m), table, (first, 0, width))
    for j in range(p):
        for i in range(j + 1):
            product = negative[i, j] - sums[i, j]
            if i == j and i < d:
                product += K
            product *= inverse[i] * inverse[j]
            if j >= d:
                product += own[j - d, i]
            S[order[i], order[j]] = product
            S[order[j], order[i]] = product
        t[order[j]] = (sums[j, p] - negative[j, p]) * inverse[j]
    most = 0.0
    for i in range(d):
        most += omega[i] * g[i] * g[i]
    for a in range(K):
        for i in range(p):
            at = g[i] if i < d else 0.0
            if i >= d:
                for j in range(d):
                    at += evidence[a, j, i] * g[j]
            along[a, order[i]] = at - (head_along[a, i] - rows[a, i]) * inverse[i]
        along[a, p] = head_along[a, p] - rows[a, p]
        along[a, p + 1] = most - (head_along[a, p + 1] - rows[a, p + 1])
    return value + 0.5 * (sums[p, p] - negative[p, p])


@kernel
def shrink_arms(evidence, omega, g, order, head, first, out):  # type: ignore[no-untyped-def]
    """``shrink_rest``, after ``shrink_first`` if that has not been done for these variances of the first part.

    Returns ``Σ_a[−½log det W_a + ½(Dh_a)ᵀW_a⁻¹(Dh_a)]``; −∞ if rounding leaves a ``W_a`` that is not positive definite.

    evidence, omega, g, order: as for ``shrink_rest``   head: ``(reduced, along, sums)`` of ``shrink_first``, written or
    read   first: (1,) the value of ``shrink_first``, NaN if it has not been done   out: ``(S, t, along)``
    """
    reduced, row, sums = head
    S, t, along = out
    if math.isnan(first[0]):
        n = evidence.shape[1] - reduced.shape[1]
        first[0] = shrink_first(evidence, omega[:n], g, reduced, row, sums)
    if first[0] == -math.inf:
        return first[0]
    return first[0] + shrink_rest(evidence, omega, g, order, head, S, t, along)
