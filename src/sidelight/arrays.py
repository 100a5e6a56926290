"""The array type that signatures name; a module of its own, so that protocols load nothing but NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array"]

#: float64, of any shape
Array = NDArray[np.float64]
