"""Pieces of machine code in vectors of four floats, of which ``simd`` and ``elimination`` are made.

These functions write instructions, they compute nothing.  ``builder`` is what they write with, ``data`` a pointer to
the first element of an array, ``i`` a position behind it.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

__all__ = ["DOUBLE", "FOUR", "accumulate", "intrinsic", "is_array", "load", "running_sum", "splat", "store"]

# numba's annotations describe the functions that write the code, not the code they write
intrinsic: Any = _intrinsic
DOUBLE = ir.DoubleType()
FOUR = ir.VectorType(DOUBLE, 4)
_WORD = ir.IntType(32)


def load(builder, data, i):
    """The four floats from ``data[i]`` on."""
    pointer = builder.bitcast(builder.gep(data, [i]), FOUR.as_pointer())
    return builder.load(pointer, align=8)


def store(builder, value, data, i):
    """Write four floats to ``data[i]`` and what follows."""
    pointer = builder.bitcast(builder.gep(data, [i]), FOUR.as_pointer())
    builder.store(value, pointer, align=8)


def splat(builder, value):
    """A vector of four floats, each of them ``value``."""
    nothing = ir.Constant(FOUR, ir.Undefined)
    one = builder.insert_element(nothing, value, _WORD(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_WORD, 4), [0] * 4))


def running_sum(builder, kind):
    """A place for a running sum, of floats or of vectors; made once, and set to zero here, also inside a loop."""
    zero = ir.Constant(kind, 0.0) if kind is DOUBLE else ir.Constant(kind, None)
    slot = cgutils.alloca_once(builder, kind)
    builder.store(zero, slot)
    return slot


def accumulate(builder, where, value):
    """Write the addition of ``value`` to the running sum at ``where``."""
    builder.store(builder.fadd(builder.load(where), value), where)


def is_array(kind, ndim=None):
    """Whether a type of numba's is an array of floats, row after row, with so many axes; ``None``: with any number."""
    if not (isinstance(kind, types.Array) and kind.layout == "C" and kind.dtype == types.float64):
        return False
    return ndim is None or kind.ndim == ndim
