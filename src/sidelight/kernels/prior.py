"""Compiled values of priors over arms: see ``side.prior`` for the formulas and their letters."""

from __future__ import annotations

import math

import numpy as np

from sidelight.kernels.compiled import helper, inlined, kernel
from sidelight.kernels.elementary import log
from sidelight.kernels.simd import clear
from sidelight.kernels.spd import backward, factor, padded

#: prior scale of the differences between the blocks' log variances
TIE = 1.5
#: prior centre of a derived block's variance, relative to the first block's: most bends and products have no effect
BENT = 1.0 / 1024.0
#: prior centre of the variance of the weights along preferences, relative to that across them, and the standard
#: deviation of its logarithm: most policies chose by something else, some knew the weights
PREFERENCE, PREFERENCE_DEVIATION = 1.0 / 16.0, 1.5


@helper
def level_root(own, size, variance):  # type: ignore[no-untyped-def]
    """``√ρ`` of ``side.levels``: what multiplies levels.

    own: ``gᵀDg``   size: ``|g|²``   variance: ``ω_level``
    """
    return math.sqrt((1.0 + size / (1.0 + size) * variance / (own / size)) / (1.0 + size))


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
def prior_values(S, t, hypers, design, g, hidden, out):  # type: ignore[no-untyped-def]
    """Three numbers for each of several priors with the same ``Ω``, into ``out`` (n, 3).

    ``½tᵀP⁻¹t − ½log det(κ²P)``; the log density of the hyperprior; and the mean square over arms and hidden
    features of the mean ``μ_j + γz_aj``, with ``β̂ = P⁻¹t``.  All of it, and ``hidden``, in terms of ``T⁻¹β`` where
    levels have a variance of their own (``side.levels``).

    S: (p, p)   t: (p,)   hypers: (n, b + 3) ``Hyper.numbers``
    design: (d,) the block of every feature, (q,) mean squares of the preferences, how many blocks are derived, the
    position of the intercept or −1, the variance of a weight that others are relative to, a block that is silent or −1
    g: (d,) of the level, or zeros
    hidden: (m,) positions of the hidden features, (m,), (m,) mean and mean square over arms of their preferences
    """
    n, p = hypers.shape[0], t.shape[0]
    block, sizes, derived, _, reference, silent = design
    positions, centres, squares = hidden
    d, first = block.shape[0], padded(p)
    table, root, kappa2 = np.zeros((p, first + 8)), np.empty(p), np.empty(p)
    # T = I + u gᵀ, and Su
    u, Su, size, more_t = np.zeros(p), np.zeros(p), 0.0, 0.0
    for i in range(d):
        size += g[i] * g[i]
    for c in range(n):
        mean_variances(hypers[c], design, kappa2)
        for i in range(p):
            root[i] = math.sqrt(kappa2[i])
        # κ²-scaled, so that a vague mean does not make P singular
        for i in range(p):
            for j in range(i, p):
                table[i, j] = root[i] * S[i, j] * root[j]
            table[i, first] = root[i] * t[i]
        if size > 0.0:
            own = 0.0
            for i in range(d):
                own += kappa2[i] * g[i] * g[i]
            more = (level_root(own, size, hypers[c, hypers.shape[1] - 2]) - 1.0) / own
            clear(Su)
            more_t, across = 0.0, 0.0
            for i in range(d):
                u[i] = more * kappa2[i] * g[i]
                more_t += u[i] * t[i]
                for j in range(p):
                    Su[j] += u[i] * S[i, j]
            for i in range(d):
                across += u[i] * Su[i]
            # half of uᵀSu ggᵀ is added with either side
            for i in range(p):
                Su[i] = root[i] * (Su[i] + 0.5 * across * g[i] if i < d else Su[i])
            for i in range(d):
                scaled = root[i] * g[i]
                table[i, first] += more_t * scaled
                for j in range(i, d):
                    table[i, j] += scaled * Su[j] + Su[i] * (root[j] * g[j])
                for j in range(d, p):
                    table[i, j] += scaled * Su[j]
        for i in range(p):
            table[i, i] += 1.0
        value = -0.5 * factor(table)
        for i in range(p):
            value += 0.5 * table[i, first] * table[i, first]
        backward(table, table, first, False)
        gamma = root[d + 1] * table[d + 1, first] if sizes.shape[0] > 1 else 0.0
        mean_square = 0.0
        for k in range(positions.shape[0]):
            mu = root[positions[k]] * table[positions[k], first]
            mean_square += mu * (mu + 2.0 * gamma * centres[k]) + gamma * gamma * squares[k]
        out[c, 0] = value
        out[c, 1] = expected(hypers[c], derived, reference, silent)
        out[c, 2] = mean_square / max(positions.shape[0], 1)
