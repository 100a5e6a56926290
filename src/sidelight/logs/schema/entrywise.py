"""Sine and logarithm of arrays by sums and products alone: the same bits on every processor, without numba."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["logarithm", "sine"]

# log 2 in two parts, the first with zeros at its end, so that its multiples by an exponent are exact
_LOG2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LOG2_LOW = float.fromhex("0x1.a39ef35793c76p-33")


def sine(turns: np.ndarray) -> np.ndarray:
    """The sine of an angle in turns, within 2e-16, by products and sums alone: the same bits on every processor."""
    t = turns - np.floor(turns + 0.5)  # -1/2 … 1/2
    t = np.where(t > 0.25, 0.5 - t, np.where(t < -0.25, -0.5 - t, t))  # the sine is the same
    x = t * (2.0 * math.pi)
    square = x * x
    out = np.zeros_like(x)
    for k in range(10, 0, -1):  # x - x³/3! + x⁵/5! - …, from the smallest part
        out = square * (1.0 + out) / (-(2 * k) * (2 * k + 1))
    return x + x * out


def logarithm(x: np.ndarray) -> np.ndarray:
    """The natural logarithm of positive finite numbers, within 4e-16 of it or of its magnitude."""
    mantissa, exponent = np.frexp(x)
    small = mantissa < math.sqrt(0.5)
    mantissa = np.where(small, 2.0 * mantissa, mantissa)  # √½ … √2
    exponent = exponent - small
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    square = ratio * ratio
    series = np.zeros_like(ratio)
    for k in range(23, 1, -2):  # 2(s + s³/3 + s⁵/5 + …), from the smallest part
        series = square * (1.0 / k + series)
    out: np.ndarray = exponent * _LOG2_HIGH + (2.0 * ratio + (2.0 * ratio * series + exponent * _LOG2_LOW))
    return out
