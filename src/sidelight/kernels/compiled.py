"""How functions inside loops are compiled.

Numba counts the references to every array that a function is handed, two atomic instructions each; a round hands over
fifty.  A function that makes no array and keeps none has nothing to count.
"""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.core.options import DefaultOptions

__all__ = ["inlined", "uncounted"]

# the option is not among those that numba documents: without it the functions are slower and otherwise the same
_UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}

uncounted: Any = njit(cache=True, **_UNCOUNTED)
inlined: Any = njit(cache=True, forceinline=True, **_UNCOUNTED)
