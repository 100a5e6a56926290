"""Compiled likelihoods of variances over arms: see ``learners.noise`` and ``side.spread`` for the formulas."""

from __future__ import annotations

import math

import numpy as np

from sidelight.kernels.compiled import helper, kernel
from sidelight.kernels.elementary import exp, log
from sidelight.kernels.elimination import scale_row, subtract_row
from sidelight.kernels.simd import clear, dot_at
from sidelight.kernels.spd import padded

__all__ = ["arm_noises", "own_residuals", "spread_value"]


@kernel
def own_residuals(squares, moments, grams, rounds, ridge, left, used):  # type: ignore[no-untyped-def]
    """Replace ``left`` and ``used`` by those of an arm's own least squares where these leave less per free round.

    A feature of which an arm's rounds, and the features before it, leave no more than rounding may have made is left
    out: one that is always zero there, one that repeats others, one that does not vary beside an intercept.

    squares, rounds, left, used: (K,)   moments: (K, m)   grams: (K, m, m), of features of scale one
    ridge: squares of less than this for each round, or relative to what they are left of, are rounding
    """
    K, m = moments.shape
    first = padded(m)
    width = first + 8
    table = np.empty((m, width))
    for a in range(K):
        if not rounds[a] >= 2.0 * m + 2.0:
            continue
        clear(table)
        for i in range(m):
            for j in range(m):
                table[i, j] = grams[a, i, j]
            table[i, first] = moments[a, i]
        taken, rest = 0, squares[a]
        for i in range(m):
            subtract_row(table, i, table, (i, width, 0, i), table, (0, i & ~7, width))
            pivot = table[i, i]
            if pivot > ridge * (rounds[a] + grams[a, i, i]):
                scale_row(table, i, 1.0 / math.sqrt(pivot), i & ~7, width)
                rest -= table[i, first] * table[i, first]
                taken += 1
            else:
                for j in range(i, width):
                    table[i, j] = 0.0
        rest = max(rest, 0.0)
        # where both leave nothing but rounding it must not decide which one is taken
        if taken > 0 and (rest + ridge * squares[a]) * (rounds[a] - used[a]) < left[a] * (rounds[a] - taken):
            left[a] = rest
            used[a] = taken


@kernel
def arm_noises(ratio, free, centre, spreads, weights, steps, out):  # type: ignore[no-untyped-def]
    """``E[log σ_a²/σ²]`` of every arm into ``out``, over the spreads that compete.

    For each spread ``v`` the most probable ``u_a = log σ_a²/σ²`` by ``steps`` Newton steps, and its evidence by
    Laplace's method.

    ratio: (K,) ``R_a/σ²``   free: (K,) ``ν_a``   centre: of all ``u_a``   spreads: (n,) ``v``
    weights: (n,) the logarithm of each one's prior weight   out: (K,)
    """
    n, K = spreads.shape[0], ratio.shape[0]
    u, values = np.empty((n, K)), np.empty(n)
    for j in range(n):
        spread = spreads[j]
        values[j] = weights[j]
        for a in range(K):
            at = centre
            for _ in range(steps):
                half = 0.5 * ratio[a] * exp(-at)
                slope = -0.5 * free[a] + half - (at - centre) / spread
                before = at
                at += min(max(slope / (half + 1.0 / spread), -1.0), 1.0)
                if at == before:  # every further step would be this one
                    break
            half = 0.5 * ratio[a] * exp(-at)
            off = at - centre
            values[j] += -0.5 * free[a] * at - half - 0.5 * off * off / spread - 0.5 * log(1.0 + spread * half)
            u[j, a] = at
    most = -math.inf
    for j in range(n):
        most = max(most, values[j])
    total = 0.0
    clear(out)
    for j in range(n):
        chance = exp(values[j] - most)
        total += chance
        for a in range(K):
            out[a] += chance * u[j, a]
    for a in range(K):
        out[a] /= total


@helper
def add_fits(effects, begin, arms, noises, fits):  # type: ignore[no-untyped-def]
    """``exp(−½(log s²_a − log(noise + effect·mean_a))²/error_a)`` of more effects, into ``fits`` from ``begin`` on.

    Logarithm and exponential are polynomials without branches, good to 1e-14, so that all noises and effects go through
    them in vectors.  Values below e⁻⁷⁰⁰ count as that.  Arguments as of ``spread_value``.
    """
    means, targets, _ = arms
    C, K, P = effects.shape[0], fits.shape[1], fits.shape[2]
    n = C * P
    sums, mantissas, exponents, powers = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    # the same memory as integers: a positive number is 2ᵏ · m, 1 ≤ m < 2, eleven bits of exponent and 52 of mantissa
    bits = (sums.view(np.int64), mantissas.view(np.int64), powers.view(np.int64))
    for a in range(K):
        for c in range(C):
            effect = means[a] * effects[c]
            for p in range(P):
                sums[c * P + p] = noises[p] + effect
        gaussian(targets[0, a], -0.5 / targets[1, a], sums, mantissas, exponents, powers, bits)
        for c in range(C):
            for p in range(P):
                fits[begin + c, a, p] = sums[c * P + p] * powers[c * P + p]


@helper
def gaussian(target, scale, sums, mantissas, exponents, powers, bits):  # type: ignore[no-untyped-def]
    """``exp(scale · (target − log sums)²)`` of all numbers, as the product of what ``sums`` and ``powers`` become.

    scale: negative   sums, mantissas, exponents, powers: (n,)   bits: all of these but the exponents, as integers
    """
    sum_bits, mantissa_bits, power_bits = bits
    n = sums.shape[0]
    for i in range(n):
        exponents[i] = float((sum_bits[i] >> 52) - 1023)
        mantissa_bits[i] = (sum_bits[i] & 0xFFFFFFFFFFFFF) | (1023 << 52)
    for i in range(n):
        # log m = log √2 + 2 artanh s, |s| < 0.172
        s = (mantissas[i] - 1.4142135623730951) / (mantissas[i] + 1.4142135623730951)
        z = s * s
        series = 1.0 / 17.0 + z * (1.0 / 19.0)
        series = 1.0 / 13.0 + z * (1.0 / 15.0 + z * series)
        series = 1.0 / 9.0 + z * (1.0 / 11.0 + z * series)
        series = 1.0 / 5.0 + z * (1.0 / 7.0 + z * series)
        series = 1.0 + z * (1.0 / 3.0 + z * series)
        gap = target - (exponents[i] * 0.6931471805599453 + (0.34657359027997264 + 2.0 * s * series))
        x = max(scale * (gap * gap), -700.0)
        # e^x = 2ᵏe^r, |r| ≤ ½ log 2
        k = math.floor(x * 1.4426950408889634 + 0.5)
        r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10
        series = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0)
        series = 1.0 / 3628800.0 + r * (1.0 / 39916800.0 + r * series)
        series = 1.0 / 40320.0 + r * (1.0 / 362880.0 + r * series)
        series = 1.0 / 720.0 + r * (1.0 / 5040.0 + r * series)
        series = 1.0 / 24.0 + r * (1.0 / 120.0 + r * series)
        series = 0.5 + r * (1.0 / 6.0 + r * series)
        sums[i] = 1.0 + r * (1.0 + r * series)
        exponents[i] = k
    for i in range(n):
        power_bits[i] = (int(exponents[i]) + 1023) << 52


@kernel
def spread_value(effects, at, arms, noises, table, around, weights):  # type: ignore[no-untyped-def]
    """``log p(s² | ω)``, up to a constant.

    effects: (C,) those of which arms' fits are still to be computed   at: ``(begin, first)``, where their fits go in
    ``table``, and from where on it has those of ``ωe^u``, ``u`` the nodes
    arms: (K,) means of the effects, (2, K) ``log s²_a`` and the variance of its error, (K, n) weights of every node
    noises: (P,) ``σ²`` of the grid   table: (…, K, P)   around: (Q, P) the noise of arms around each ``σ²``, for every
    spread   weights: (Q,) the logarithm of each row's weight
    """
    begin, first = at
    _, _, chances = arms
    add_fits(effects, begin, arms, noises, table)
    K, n = chances.shape
    Q, P = around.shape
    # how well each arm fits each noise, its hidden effects integrated out
    fits = np.zeros((K, P))
    for q in range(n):
        for a in range(K):
            chance = chances[a, q]
            for p in range(P):
                fits[a, p] += chance * table[first + q, a, p]
    values = np.empty(Q)
    most = -math.inf
    for i in range(Q):
        value = weights[i]
        product = 1.0
        for a in range(K):
            each = max(dot_at(around, i * P, fits, a * P, P), 1e-300)
            # one logarithm for many factors, before their product leaves the range of numbers
            if not each > 1e-100:
                value += log(each)
                continue
            product *= each
            if not 1e-200 < product < 1e200:
                value += log(product)
                product = 1.0
        values[i] = value + log(product)
        most = max(most, values[i])
    total = 0.0
    for i in range(Q):
        total += exp(values[i] - most)
    return most + log(total)
