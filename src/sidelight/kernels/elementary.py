"""Logarithms, exponentials, powers and the gamma function in plain arithmetic: the same bits on every processor.

A C library picks its variant of ``log`` or ``exp`` by processor (with or without fused multiply-add), and the variants
differ in the last bit.  Here every operation is an addition, multiplication, division or square root, each rounded once
by IEEE 754, in an order that is written down.  ``frexp`` and ``ldexp`` are exact.  Results are within one unit in the
last place (``log_gamma``: 1e-14, ``chi_square_tail``: 1e-11, relative).
"""

from __future__ import annotations

import math

from sidelight.kernels.compiled import helper, kernel

__all__ = ["CHI_SQUARE_TAIL", "EXP", "LOG", "LOG1P", "LOG_GAMMA", "POWER", "elementwise", "exp", "log", "log1p"]

# ln 2 in parts: the first has 32 bits, so that its product with an exponent is exact
_LN2_HIGH = 0.693147180369123816490
_LN2_LOW = 1.90821492927058770002e-10
_LN2_REST = 1.1612227229362532e-26
_SPLIT = 134217729.0  # 2²⁷ + 1
_HALF_LOG_2PI = 0.91893853320467274178

LOG, LOG1P, EXP, POWER, LOG_GAMMA, CHI_SQUARE_TAIL = range(6)


@helper
def two_product(a, b):  # type: ignore[no-untyped-def]
    """``a·b`` as a rounded product and its rounding error (Dekker), without a fused instruction."""
    p = a * b
    c = _SPLIT * a
    a_high = c - (c - a)
    a_low = a - a_high
    c = _SPLIT * b
    b_high = c - (c - b)
    b_low = b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


@helper
def log_parts(x):  # type: ignore[no-untyped-def]
    """``log x`` of a finite positive number as a sum of two, together good to about 2⁻⁶⁴ relative.

    With ``x = 2ᵏ(1 + f)`` and ``s = f/(2 + f)``: ``log(1 + f) = 2s + (2/3)s³ + (2/5)s⁵ + …``, of which the first two
    terms are carried in twice the precision.
    """
    mantissa, k = math.frexp(x)
    if mantissa < 0.70710678118654752440:
        mantissa *= 2.0
        k -= 1
    f = mantissa - 1.0
    t = 2.0 + f
    t_low = f - (t - 2.0)
    s = f / t
    p, p_low = two_product(s, t)
    s_low = (((f - p) - p_low) - s * t_low) / t
    z, z_low = two_product(s, s)
    z_low += 2.0 * s * s_low
    cube, cube_low = two_product(s, z)
    cube_low += s * z_low + s_low * z
    # 2/3 of it
    third, third_low = two_product(cube, 0.66666666666666662966)
    third_low += cube * 3.7007434154171882626e-17 + cube_low * 0.66666666666666662966
    tail = 2.0 / 27.0
    for n in range(25, 3, -2):
        tail = 2.0 / n + z * tail
    tail *= cube * z
    # largest first: k ln 2, 2s, 2s³/3, the rest; every sum with what it rounds off
    high = k * _LN2_HIGH
    a = high + 2.0 * s
    b = a - high
    low = (high - (a - b)) + (2.0 * s - b)
    c = a + third
    b = c - a
    low += (a - (c - b)) + (third - b)
    low += k * _LN2_LOW + (2.0 * s_low + (third_low + tail))
    low += k * _LN2_REST
    total = c + low
    return total, low - (total - c)


@helper
def log(x):  # type: ignore[no-untyped-def]
    """Natural logarithm; −∞ at 0, NaN below."""
    if not 0.0 < x < math.inf:
        return -math.inf if x == 0.0 else (x if x > 0.0 else math.nan)
    return log_parts(x)[0]


@helper
def log1p(x):  # type: ignore[no-untyped-def]
    """``log(1 + x)``, accurate also where ``x`` is tiny."""
    if not -1.0 < x < math.inf:
        return log(1.0 + x)
    u = 1.0 + x
    b = u - 1.0
    off = (1.0 - (u - b)) + (x - b)
    high, low = log_parts(u)
    return high + (low + off / u)


@helper
def exp_parts(x, more):  # type: ignore[no-untyped-def]
    """``exp(x + more)`` for a finite ``x`` and a ``more`` that is far smaller.

    ``x = k ln 2 + r`` and ``exp r = 1 + 2r/(R − r)``, ``R = r(exp r + 1)/(exp r − 1)`` by its polynomial in ``r²``.
    """
    if x > 709.9:
        return math.inf
    if x < -745.2:
        return 0.0
    k = math.floor(x * 1.44269504088896338700 + 0.5)
    high = x - k * _LN2_HIGH
    low = k * _LN2_LOW - more
    r = high - low
    t = r * r
    c = r - t * (
        1.66666666666666019037e-01
        + t
        * (
            -2.77777777770155933842e-03
            + t * (6.61375632143793436117e-05 + t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08))
        )
    )
    y = 1.0 - ((low - (r * c) / (2.0 - c)) - high)
    half = int(k) // 2  # in two steps: 2¹⁰²⁴ is out of range where the result is not
    return math.ldexp(y, half) * math.ldexp(1.0, int(k) - half)


@helper
def exp(x):  # type: ignore[no-untyped-def]
    """``e`` to the power ``x``."""
    return exp_parts(x, 0.0) if math.isfinite(x) else (0.0 if x < 0.0 else x)


@helper
def power(x, y):  # type: ignore[no-untyped-def]
    """``x`` to the power ``y`` for ``x ≥ 0``; NaN for a negative ``x``."""
    if y == 0.0 or x == 1.0:
        return 1.0
    if math.isnan(x) or math.isnan(y) or x < 0.0:
        return math.nan
    if x == 0.0 or x == math.inf:
        return 0.0 if (x == 0.0) == (y > 0.0) else math.inf
    high, low = log_parts(x)
    if abs(y) > 1e30 or abs(y * high) > 800.0:
        return math.inf if (y > 0.0) == (high > 0.0) else 0.0
    p, p_low = two_product(y, high)
    return exp_parts(p, p_low + y * low)


@helper
def log_gamma(x):  # type: ignore[no-untyped-def]
    """``log Γ(x)`` for ``x > 0``: Stirling's series from 16 on, reached by ``Γ(x + 1) = xΓ(x)``."""
    if not 0.0 < x < math.inf:
        return x if x == math.inf else math.nan
    product = 1.0
    down = 0.0
    while x < 16.0:
        product *= x
        x += 1.0
        if product < 1e-200:
            down += log(product)
            product = 1.0
    down += log(product)
    r = 1.0 / x
    t = r * r
    series = r * (
        1.0 / 12.0
        - t
        * (
            1.0 / 360.0
            - t * (1.0 / 1260.0 - t * (1.0 / 1680.0 - t * (1.0 / 1188.0 - t * (691.0 / 360360.0 - t / 156.0))))
        )
    )
    return (x - 0.5) * log(x) - x + _HALF_LOG_2PI + series - down


@helper
def chi_square_tail(x, freedom):  # type: ignore[no-untyped-def]
    """``P(χ² > x)`` with ``freedom`` degrees: the upper incomplete gamma ratio ``Q(freedom/2, x/2)``.

    A power series below the mean, Lentz's continued fraction above it.
    """
    if not (freedom > 0.0 and x > 0.0):
        return 1.0 if freedom > 0.0 else math.nan
    a, t = 0.5 * freedom, 0.5 * x
    if t == math.inf:
        return 0.0
    front = exp(a * log(t) - t - log_gamma(a))
    if t < a + 1.0:
        term = 1.0 / a
        total = term
        n = a
        while term > 1e-17 * total:
            n += 1.0
            term *= t / n
            total += term
        return max(1.0 - front * total, 0.0)
    b = t + 1.0 - a
    c = 1e300
    d = 1.0 / b
    h = d
    for i in range(1, 100_000):
        an = -i * (i - a)
        b += 2.0
        d = an * d + b
        d = 1e-300 if d == 0.0 else d
        c = b + an / c
        c = 1e-300 if c == 0.0 else c
        d = 1.0 / d
        h *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return front * h


@kernel
def elementwise(kind, x, y, out):  # type: ignore[no-untyped-def]
    """``out[i] = f(x[i])``, or ``f(x[i], y[i])``, with the function that ``kind`` names.  x, y, out: (n,)"""
    for i in range(x.shape[0]):
        if kind == LOG:
            out[i] = log(x[i])
        elif kind == LOG1P:
            out[i] = log1p(x[i])
        elif kind == EXP:
            out[i] = exp(x[i])
        elif kind == POWER:
            out[i] = power(x[i], y[i])
        elif kind == LOG_GAMMA:
            out[i] = log_gamma(x[i])
        else:
            out[i] = chi_square_tail(x[i], y[i])
