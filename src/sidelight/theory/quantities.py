"""The types of arguments of the package's formulas: numbers, arrays of them, and probabilities.

Symbols are those of the package's docstring.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import InputError

__all__ = ["Floats", "Numbers", "probability"]

Floats: TypeAlias = NDArray[np.float64]
Numbers: TypeAlias = float | NDArray[Any]
"""A number, or an array over arms or rounds; results have the same shape."""


def probability(value: Numbers, name: str) -> Floats:
    """``value`` as an array, checked to be a probability of failure in (0, 1]."""
    array = np.asarray(value, dtype=np.float64)
    if not ((array > 0) & (array <= 1)).all():
        raise InputError(f"{name}={array}: a probability of failure lies between 0 (excluded) and 1.")
    return array
