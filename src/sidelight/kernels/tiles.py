"""The inner step of all products of matrices across a batch: four numbers times eight, added up in registers.

Products and additions are separate and in the order of the rows, as everywhere in ``simd``: the same bits on every
machine, and the bits of adding row by row.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

from sidelight.kernels.simd import _FOUR, _accumulate, _load, _splat, _store

__all__ = ["DOWN", "LANES", "add_tile"]

intrinsic: Any = _intrinsic
#: a tile has this many rows and columns
DOWN, LANES = 4, 8


@intrinsic
def add_tile(typing_context, out, A, first, step, apart, B, start, n):
    """``out[i, j] += Σ_{t<n} A[first + t·step + i·apart] · B[start + 8t + j]`` for ``i < 4``, ``j < 8``, in order of t.

    out: (4, 8)   A: any array, by position in memory   B: any array, read in rows of eight
    """
    arrays = (out, A, B)
    if not all(isinstance(k, types.Array) and k.layout == "C" and k.dtype == types.float64 for k in arrays):
        return None

    def code(context, builder, signature, arguments):
        target, left, right = (
            context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 1, 5)
        )
        first, step, apart, start, n = (arguments[k] for k in (2, 3, 4, 6, 7))
        number = lambda k: ir.Constant(n.type, k)  # noqa: E731
        tile = [[cgutils.alloca_once(builder, _FOUR) for _ in range(LANES // 4)] for _ in range(DOWN)]
        for i, row in enumerate(tile):
            for j, where in enumerate(row):
                builder.store(_load(builder, target, number(LANES * i + 4 * j)), where)
        left = builder.gep(left, [first])
        rows = [builder.gep(left, [builder.mul(number(i), apart)]) for i in range(DOWN)]
        right = builder.gep(right, [start])
        with cgutils.for_range_slice(builder, number(0), n, number(1), n.type) as (t, _):
            down, across = builder.mul(t, step), builder.mul(t, number(LANES))
            columns = [_load(builder, right, builder.add(across, number(4 * j))) for j in range(LANES // 4)]
            for source, row in zip(rows, tile, strict=True):
                factor = _splat(builder, builder.load(builder.gep(source, [down])))
                for where, column in zip(row, columns, strict=True):
                    _accumulate(builder, where, builder.fmul(factor, column))
        for i, row in enumerate(tile):
            for j, where in enumerate(row):
                _store(builder, builder.load(where), target, number(LANES * i + 4 * j))
        return context.get_dummy_value()

    return types.none(out, A, types.intp, types.intp, types.intp, B, types.intp, types.intp), code
