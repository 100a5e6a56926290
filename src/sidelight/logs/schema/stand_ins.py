"""Sentinel values: a number such as -999 or 9999 that stands for a missing value, far from all other values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["StandIn", "stand_in", "stand_in_message"]

# A sentinel is in at least this many rows, and in at least this share of them.
_ROWS, _SHARE = 3, 0.001
# It needs at least this many different values beside it: in a column of -1, 0 and 1 each has a meaning of its own.
_OTHERS = 3
# -1, -8 and -9 must be at least this far from the other values, as a multiple of the span of those.
_APART = 0.1
_LIMITS = frozenset([2.0**15 - 1, -(2.0**15), 2.0**31 - 1, -(2.0**31), -(2.0**63)])


@dataclass(frozen=True)
class StandIn:
    """A number that seems to stand for a missing value.

    Attributes:
        value: the number.
        rows: how many rows have it.
        of: how many rows were examined.
        low, high: the span of all other values.
    """

    value: float
    rows: int
    of: int
    low: float
    high: float


def stand_in(values: np.ndarray) -> StandIn | None:
    """The number of a column that seems to stand for a missing value; None where there is none.

    It is the smallest or the largest value, is a usual sentinel (-1, or nothing but nines or eights, or the limit of an
    integer type), occurs more than a few times, and is further from the other values than their span. If it alone is
    negative, less distance is enough: any for -99 and below, a tenth of the span for others.

    values: (n,)  NaN where missing
    """
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    for value in (float(values.min()), float(values.max())):
        if not _written_so(value):
            continue
        others = values[values != value]
        rows = len(values) - len(others)
        if rows < max(_ROWS, _SHARE * len(values)) or len(np.unique(others[:1000])) < _OTHERS:
            continue
        low, high = float(others.min()), float(others.max())
        gap, span = max(low - value, value - high), high - low
        alone_below_zero = value < 0.0 <= low and (value <= -99.0 or gap > _APART * span)
        if gap > span or alone_below_zero:
            return StandIn(value, rows, len(values), low, high)
    return None


def stand_in_message(name: str, found: StandIn) -> str:
    """The warning about a sentinel value, with what to do.  name: of the column"""
    value = f"{found.value:.15g}"
    return (
        f"column {name!r} is {value} in {found.rows:,} of the first {found.of:,} rows, apart from all other values "
        f"({found.low:.6g} to {found.high:.6g}). If that stands for a missing value, it is still taken for a "
        f"number: leave such cells empty (pandas: frame[{name!r}].replace({value}, float('nan'))), and say what to do "
        f"with gaps: skip such rows (on_invalid='skip', --skip-invalid), or derived=['missing({name})']."
    )


def _written_so(value: float) -> bool:
    if value == -1.0 or value in _LIMITS:
        return True
    if value != int(value) or abs(value) > 1e15:
        return False
    digits = str(abs(int(value)))
    return set(digits) <= {"9"} or set(digits) <= {"8"}
