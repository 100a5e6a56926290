"""Compiled algebra of the prior over arms: see ``side.prior`` for the formulas and their letters."""

from __future__ import annotations

import math

import numpy as np

from sidelight.kernels.compiled import helper, inlined, kernel
from sidelight.kernels.elementary import log
from sidelight.kernels.simd import clear
from sidelight.kernels.spd import backward, factor, padded, subtract_product

#: prior scale of the differences between the blocks' log variances
TIE = 1.5
#: prior centre of a derived block's variance, relative to the first block's: most bends and products have no effect
BENT = 1.0 / 1024.0
#: prior centre of the variance of the weights along preferences, relative to that across them, and the standard
#: deviation of its logarithm: most policies chose by something else, some knew the weights
PREFERENCE, PREFERENCE_DEVIATION = 1.0 / 16.0, 1.5


@kernel
def shrink_arms(evidence, omega, S, t):  # type: ignore[no-untyped-def]
    """``Σ_a X_aᵀS_aX_a`` into ``S`` and ``Σ_a X_aᵀt_a`` into ``t``, ``X_a = [I, Z_aᵀ]`` the design of arm ``a``'s mean.

    Returns ``Σ_a[−½log det W_a + ½(Dh_a)ᵀW_a⁻¹(Dh_a)]``; −∞ if rounding leaves a ``W_a`` that is not positive definite,
    so that the search takes another ``Ω``.

    All of it is in the sum over arms of ``EᵀE``, ``E = G⁻¹[I | D⁻¹Zᵀ | Dh]`` where ``W = GGᵀ``.

    evidence: (K, d, d + q + 1) ``[J | Zᵀ | h]`` of every arm
    omega: (d,) diagonal of ``Ω``   S: (d + q, d + q)   t: (d + q,)
    """
    K, d, last = evidence.shape
    p, first = last - 1, padded(d)
    D = np.empty(d)
    for i in range(d):
        D[i] = math.sqrt(omega[i])
    # [W | I | D⁻¹Zᵀ | Dh] of an arm, which becomes [Gᵀ | E]
    table = np.empty((d, first + padded(last)))
    # −ΣEᵀE, and ΣXᵀD⁻²X where preferences are involved
    negative, own = np.zeros((last, padded(last))), np.zeros((p - d, p))
    value = 0.0
    for a in range(K):
        clear(table)
        for i in range(d):
            for j in range(i, d):
                table[i, j] = D[i] * evidence[a, i, j] * D[j]
            table[i, i] += 1.0
            table[i, first + i] = 1.0
            table[i, first + p] = D[i] * evidence[a, i, p]
            for j in range(d, p):
                scaled = evidence[a, i, j] / D[i]
                table[i, first + j] = scaled
                own[j - d, i] += scaled / D[i]
                for k in range(d, j + 1):
                    own[j - d, k] += scaled * table[i, first + k]
        log_det = factor(table)
        if math.isnan(log_det):
            clear(S)
            clear(t)
            return -math.inf
        value -= 0.5 * log_det
        subtract_product(negative, table, first, table, first)
    for i in range(p):
        left = 1.0 / D[i] if i < d else 1.0
        t[i] = -negative[i, p] * left
        for j in range(i + 1):
            product = negative[j, i] * left
            if i == j and i < d:
                product += K * left
            S[i, j] = product / D[j] if j < d else product
            if i >= d:
                S[i, j] += own[i - d, j]
            S[j, i] = S[i, j]
    return value - 0.5 * negative[p, p]


@helper
def mean_variances(hyper, design, kappa2):  # type: ignore[no-untyped-def]
    """``κ²`` (d + q,) of every coefficient ``β`` of the mean.

    Derived features have ``κ²`` in proportion to their ``ω``: many of them have no effect in any arm, and with one
    ``κ²`` for all they would shrink the means of the plain columns to zero as well.

    hyper: (b + 3,) ``Hyper.numbers``   design: as in ``prior_values``
    """
    block, sizes, derived, constant, _, _ = design
    b, d = hyper.shape[0] - 3, block.shape[0]
    for i in range(d):
        k = block[i]
        kappa2[i] = hyper[b] * (hyper[k] / hyper[0]) if k >= b - derived else hyper[b]
    if constant >= 0:
        kappa2[constant] = hyper[b + 1]
    for k in range(sizes.shape[0]):
        kappa2[d + k] = hyper[b + 2] * hyper[k] / sizes[k]


@helper
def expected(hyper, derived, reference, silent):  # type: ignore[no-untyped-def]
    """Log density of the hyperprior, up to a constant.

    hyper: (b + 3,) ``Hyper.numbers``   silent: a block whose variance matters to nothing, or −1
    """
    b = hyper.shape[0] - 3
    first = log(hyper[0] / reference)
    tie = 0.0
    for k in range(1, b):
        if k == silent:
            continue
        # heavy tails, so that the tie gives way once the data separate the blocks
        below = log(BENT) if k >= b - derived else 0.0
        gap = log(hyper[k] / reference) - first - below
        tie += 2.0 * log(1.0 + 0.5 * (gap / TIE) * (gap / TIE))
    # a weak pull of ``ω`` and ``κ²`` toward the rewards' own scale
    pull = square(first / 4.0) + square(log(hyper[b] / reference) / 4.0)
    # the level has a variance of its own: the log's mean reward may be far from the arms' levels, if the policy chose
    # well or badly
    pull += square(log(hyper[b + 1] / hyper[b]) / 4.0)
    pull += square(log(hyper[b + 2] / PREFERENCE) / PREFERENCE_DEVIATION)
    return -0.5 * (tie + pull)


@inlined
def square(x):  # type: ignore[no-untyped-def]
    """``x²``, with the argument evaluated once."""
    return x * x


@kernel
def prior_values(S, t, hypers, design, hidden, out):  # type: ignore[no-untyped-def]
    """Three numbers for each of several priors with the same ``Ω``, into ``out`` (n, 3).

    ``½tᵀP⁻¹t − ½log det(κ²P)``; the log density of the hyperprior; and the mean square over arms and hidden
    features of the mean ``μ_j + γz_aj``, with ``β̂ = P⁻¹t``.

    S: (p, p)   t: (p,)   hypers: (n, b + 3) ``Hyper.numbers``
    design: (d,) the block of every feature, (q,) mean squares of the preferences, how many blocks are derived, the
    position of the intercept or −1, the variance of a weight that others are relative to, a block that is silent or −1
    hidden: (m,) positions of the hidden features, (m,), (m,) mean and mean square over arms of their preferences
    """
    n, p = hypers.shape[0], t.shape[0]
    block, sizes, derived, _, reference, silent = design
    positions, centres, squares = hidden
    first = padded(p)
    table, root, kappa2 = np.zeros((p, first + 8)), np.empty(p), np.empty(p)
    for c in range(n):
        mean_variances(hypers[c], design, kappa2)
        for i in range(p):
            root[i] = math.sqrt(kappa2[i])
        # κ²-scaled, so that a vague mean does not make P singular
        for i in range(p):
            for j in range(i, p):
                table[i, j] = root[i] * S[i, j] * root[j]
            table[i, i] += 1.0
            table[i, first] = root[i] * t[i]
        value = -0.5 * factor(table)
        for i in range(p):
            value += 0.5 * table[i, first] * table[i, first]
        backward(table, table, first, False)
        gamma = root[block.shape[0] + 1] * table[block.shape[0] + 1, first] if sizes.shape[0] > 1 else 0.0
        mean_square = 0.0
        for k in range(positions.shape[0]):
            mu = root[positions[k]] * table[positions[k], first]
            mean_square += mu * (mu + 2.0 * gamma * centres[k]) + gamma * gamma * squares[k]
        out[c, 0] = value
        out[c, 1] = expected(hypers[c], derived, reference, silent)
        out[c, 2] = mean_square / max(positions.shape[0], 1)
