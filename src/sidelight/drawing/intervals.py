"""Means over seeds and their intervals, and how they are written."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

__all__ = ["LEVEL", "Interval", "number", "rounded", "significant", "span", "student"]

LEVEL = 0.95
"""The level of every interval that is drawn or printed."""


class Interval(NamedTuple):
    """A mean and the bounds of its interval; the bounds are ``nan`` where there is one value only."""

    mean: float
    low: float
    high: float

    @property
    def certain(self) -> int:
        """+1 if the whole interval is positive, −1 if all of it is negative, 0 if the interval contains zero."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    @property
    def drawn(self) -> Interval:
        """The interval with bounds that can be drawn: the mean itself where there is one value only."""
        return Interval(self.mean, self.mean, self.mean) if math.isnan(self.low) else self


def student(values: NDArray[np.float64]) -> Interval:
    """Mean over seeds with Student's interval.  values: (n,)"""
    values = np.asarray(values, dtype=np.float64)
    mean = float(values.mean())
    if len(values) < 2:
        return Interval(mean, math.nan, math.nan)

    half = float(stdtrit(len(values) - 1, 0.5 + LEVEL / 2)) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def number(value: float, sign: bool = False) -> str:
    """A number with as many digits as a reader needs: three significant ones, all of those before the point.

    Below 0.0001 it is written as 1.23e-05, so that small units do not read as zero; below 1e-12, where a difference of
    two equal numbers may lie, it is 0.
    """
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if size < 1e-12:
        return "0"
    if size < 1e-4:
        return ("−" if value < 0 else "+" if sign else "") + f"{size:.2e}"
    return rounded(value, max(0, 2 - math.floor(math.log10(size))) if size < 100 else 0, sign)


def significant(value: float) -> float:
    """A number rounded to six significant digits, for the data of a chart."""
    return float(f"{value:.6g}")


def rounded(value: float, places: int, sign: bool = False) -> str:
    """A number with this many decimal places, thousands set apart; what rounds to zero has no sign."""
    text = f"{abs(value):,.{places}f}"
    if not any(digit in "123456789" for digit in text):
        return text
    return ("−" if value < 0 else "+" if sign else "") + text


def span(interval: Interval, sign: bool = False) -> str:
    """``low to high``, a dash where there is no interval."""
    if math.isnan(interval.low):
        return "–"
    return f"{number(interval.low, sign)} to {number(interval.high, sign)}"
