"""The array type that signatures name, and what a number is; on their own, so that protocols load nothing but NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sidelight.errors import InputError

__all__ = ["LARGEST", "Array", "as_numbers", "is_number", "whole_number"]

#: float64, of any shape
Array = NDArray[np.float64]
#: values from the inverse of this to this have products that learners can compute with
LARGEST = 1e50


def is_number(value: Any) -> bool:
    """Whether a setting is a real number of Python or NumPy, and no truth value."""
    return isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)


def whole_number(value: Any, name: str, least: int) -> int:
    """``value`` as an integer; an error that names it if it is no whole number of at least ``least``."""
    if isinstance(value, bool) or not (isinstance(value, int | np.integer) and value >= least):
        raise InputError(f"{name}={value!r} must be a whole number of at least {least}.")
    return int(value)


def as_numbers(values: ArrayLike, name: str) -> Array:
    """``values`` as an array of its own; an error that names them if they are no numbers, or rows of unequal length."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an array of numbers; got {values!r:.200}.") from None
