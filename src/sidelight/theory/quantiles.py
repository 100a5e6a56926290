"""Quantiles of the χ² and F distributions, the same bits on every processor, and a correction for few observations."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from sidelight.errors import InputError
from sidelight.linalg import chi_square_tail, exp, log, log1p, log_gamma
from sidelight.theory.quantities import Floats, Numbers, probability

__all__ = ["chi_square_quantile", "f_quantile", "f_tail", "scarcity_factor"]

#: more degrees of freedom count as this many: the quantile changes by less than 1e-5 of itself
_MANY = 1e6
#: tail probabilities below this may be 0 in floating point
_TINY = 1e-250


def f_tail(x: float, first: float, second: float) -> float:
    """``P(F > x)`` with ``first`` and ``second`` degrees of freedom: ``I_{ν/(ν + nx)}(ν/2, n/2)``."""
    return _f_tail_and_slope(x, first, second)[0]


def _f_tail_and_slope(x: float, n: float, nu: float) -> tuple[float, float]:
    """``P(F > x)`` and ``x`` times the density."""
    a, b, ratio = 0.5 * nu, 0.5 * n, n * x / nu
    front = float(exp(_log_front(a, b) + b * float(log(ratio)) - (a + b) * float(log1p(ratio))))
    y = 1.0 / (1.0 + ratio)
    if y < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(y, a, b) / a, front
    return 1.0 - front * _beta_fraction(ratio * y, b, a) / b, front


@lru_cache(maxsize=4096)
def _log_front(a: float, b: float) -> float:
    """``−log B(a, b)``: the logarithm of the beta density's normalising factor."""
    return float(log_gamma(a + b)) - float(log_gamma(a)) - float(log_gamma(b))


def _beta_fraction(y: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function by Lentz's method; fast for ``y < (a+1)/(a+b+2)``."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * y / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    h = d
    for i in range(1, 20_000):
        for step in (
            i * (b - i) * y / ((a + 2 * i - 1.0) * (a + 2 * i)),
            -(a + i) * (a + b + i) * y / ((a + 2 * i) * (a + 2 * i + 1.0)),
        ):
            d = 1.0 + step * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + step / c
            c = c if abs(c) > tiny else tiny
            h *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return h


def _chi_tail_and_slope(x: float, n: float) -> tuple[float, float]:
    """``P(χ² > x)`` and ``x`` times the density."""
    front = 0.5 * n * float(log(0.5 * x)) - 0.5 * x - float(log_gamma(0.5 * n))
    return float(chi_square_tail(x, n)), float(exp(front))


def _solve(tail_and_slope: Callable[[float], tuple[float, float]], start: float, tail: float) -> float:
    """``x`` with the given tail probability, by Newton's method for ``log P`` in ``log x``.

    ``log P`` is concave there, so that from the second step on ``x`` comes down to the solution.  A first step after
    which ``P`` underflows is taken back by halves.
    """
    u, wanted, step = float(log(start)), float(log(tail)), 0.0
    for _ in range(200):
        value, slope = tail_and_slope(float(exp(u)))
        if value > _TINY:
            step = (float(log(value)) - wanted) * value / max(slope, 1e-300)
            step = min(max(step, -2.0), 2.0)
        else:
            step = -0.5 * abs(step)
        u += step
        if abs(step) < 1e-13:
            break
    return float(exp(u))


@lru_cache(maxsize=4096)
def chi_square_quantile(freedom: float, tail: float) -> float:
    """``χ²_L(1 − δ)`` for ``L = freedom`` and ``δ = tail``; 0 for ``δ = 1``."""
    wanted = float(probability(tail, "tail"))
    return _solve(lambda x: _chi_tail_and_slope(x, freedom), freedom, wanted) if wanted < 1.0 else 0.0


@lru_cache(maxsize=4096)
def f_quantile(first: float, second: float, tail: float) -> float:
    """``F_{n,ν}(1 − δ)`` for ``n = first``, ``ν = second`` and ``δ = tail``; 0 for ``δ = 1``."""
    wanted = float(probability(tail, "tail"))
    return _solve(lambda x: _f_tail_and_slope(x, first, second), 1.0, wanted) if wanted < 1.0 else 0.0


def scarcity_factor(n_recorded: int, freedom: Numbers, delta: float, *, matrix: bool = False) -> Floats:
    """The factor by which a covariance must be enlarged if it was estimated from few observations. Ours.

    For a normal ``ξ`` of ``L`` numbers, ``ξᵀĈ⁻¹ξ`` exceeds ``χ²_L(1 − δ)`` times this factor with probability ``δ``:

    - ``LF_{L,ν}(1 − δ)/χ²_L(1 − δ)`` if ``Ĉ`` is known up to a variance with ``ν`` degrees of freedom;
    - with ``matrix`` the same for all of ``Ĉ`` estimated, Hotelling's ``Lν/(ν − L + 1)·F_{L,ν−L+1}`` on top.

    Args:
        n_recorded: ``L``.
        freedom: ``ν``, any shape; taken as at least 1, with ``matrix`` as at least ``L``.
        delta: ``δ``.
        matrix: whether all of the covariance was estimated.
    """
    if n_recorded < 0:
        raise InputError(f"n_recorded={n_recorded} must be at least 0.")
    nu = np.clip(np.asarray(freedom, dtype=np.float64), float(max(n_recorded, 1)) if matrix else 1.0, _MANY)
    if n_recorded == 0:
        return np.ones_like(nu)
    own = nu - n_recorded + 1.0 if matrix else nu
    chi = chi_square_quantile(float(n_recorded), float(delta))
    quantiles = [f_quantile(float(n_recorded), float(k), float(delta)) for k in own.reshape(-1)]
    return np.asarray(nu / own * (n_recorded * np.array(quantiles).reshape(own.shape) / chi))
