"""Algebra of four small matrices at once: each number is a vector of four, one for each matrix.

Matrices of tens of rows are too small to keep vectors busy one by one.  Side by side all sums are vectors, whatever the
length of a row, and every matrix has the steps that it would have alone, in the same order on every machine.
Such a stack is an array (rows, columns, LANES).
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

from sidelight.arrays import Array
from sidelight.kernels.compiled import helper
from sidelight.kernels.elementary import log

__all__ = ["LANES", "add_squares", "eliminate", "in_lanes", "subtract_lanes", "total"]

LANES = 4
#: columns whose sums are kept in registers together
TOGETHER = 4

# its annotations describe the functions that write the code, not the code they write
intrinsic: Any = _intrinsic
_FOUR = ir.VectorType(ir.DoubleType(), LANES)


@intrinsic
def _subtract(typing_context, Y, i, C, at, X, span, columns):
    """``Y[i, c] −= Σ_k C[k, at]·X[k, c]``, four columns at a time and then one by one."""

    def code(context, builder, signature, arguments):
        _, i_, _, at_, _, span_, columns_ = arguments
        word = i_.type
        number = lambda k: ir.Constant(word, k)  # noqa: E731

        def stack(kind, value):
            array = context.make_array(kind)(context, builder, value)
            return builder.bitcast(array.data, _FOUR.as_pointer()), cgutils.unpack_tuple(builder, array.shape)[1]

        def place(where, row, column):
            data, width = where
            return builder.gep(data, [builder.add(builder.mul(row, width), column)])

        target, factors, source = (stack(signature.args[k], arguments[k]) for k in (0, 2, 4))
        start, stop = cgutils.unpack_tuple(builder, span_)
        first, last = cgutils.unpack_tuple(builder, columns_)

        def block(c, n):
            sums = [cgutils.alloca_once(builder, _FOUR) for _ in range(n)]
            for where in sums:
                builder.store(ir.Constant(_FOUR, None), where)
            with cgutils.for_range_slice(builder, start, stop, number(1), word) as (k, _):
                factor = builder.load(place(factors, k, at_), align=8)
                row = place(source, k, c)
                for q, where in enumerate(sums):
                    x = builder.load(builder.gep(row, [number(q)]), align=8)
                    builder.store(builder.fadd(builder.load(where), builder.fmul(factor, x)), where)
            for q, where in enumerate(sums):
                y = builder.gep(place(target, i_, c), [number(q)])
                builder.store(builder.fsub(builder.load(y, align=8), builder.load(where)), y, align=8)

        whole = builder.add(first, builder.and_(builder.sub(last, first), number(-TOGETHER)))
        with cgutils.for_range_slice(builder, first, whole, number(TOGETHER), word) as (c, _):
            block(c, TOGETHER)
        with cgutils.for_range_slice(builder, whole, last, number(1), word) as (c, _):
            block(c, 1)
        return context.get_dummy_value()

    return types.none(Y, types.intp, C, types.intp, X, span, columns), code


@helper
def subtract_lanes(Y, i, C, at, X, span, columns):
    """``Y[i, c] −= Σ_k C[k, at]·X[k, c]`` in every lane, over ``start ≤ k < stop`` in order and ``first ≤ c < last``.

    Y, C, X: (rows, columns, LANES), which may be the same   span: ``(start, stop)``   columns: ``(first, last)``
    """
    _subtract(Y, i, C, at, X, span, columns)


@helper
def scale_lanes(Y, i, scales, first, last):
    """``Y[i, c] *= scales`` for ``first ≤ c < last``.  Y: (rows, columns, LANES)   scales: (LANES,)"""
    for c in range(first, last):
        for lane in range(LANES):
            Y[i, c, lane] *= scales[lane]


@helper
def eliminate(A, E):
    """``A = GGᵀ`` becomes ``Gᵀ``, and ``E = [I | X]`` becomes ``[G⁻¹ | G⁻¹X]``.

    Returns ``Σ log det A`` over the lanes, NaN where a matrix is not positive definite.

    A: (d, d, LANES), of which what is below the diagonal has no meaning   E: (d, d + n, LANES)
    """
    d, width = E.shape[0], E.shape[1]
    products, scales = np.ones(LANES), np.empty(LANES)
    log_det = 0.0
    for j in range(d):
        subtract_lanes(A, j, A, j, A, (0, j), (j, d))
        for c in range(0, j, TOGETHER):
            # column c of G⁻¹ is zero above its diagonal
            subtract_lanes(E, j, A, j, E, (c, j), (c, min(c + TOGETHER, j)))
        subtract_lanes(E, j, A, j, E, (0, j), (d, width))
        for lane in range(LANES):
            pivot = A[j, j, lane]
            if not pivot > 0.0:
                return math.nan
            # one logarithm for many pivots, before their product leaves the range of numbers
            products[lane] *= pivot
            if not 1e-100 < products[lane] < 1e100:
                log_det += log(products[lane])
                products[lane] = 1.0
            scales[lane] = 1.0 / math.sqrt(pivot)
        scale_lanes(A, j, scales, j, d)
        scale_lanes(E, j, scales, 0, j + 1)
        scale_lanes(E, j, scales, d, width)
    for lane in range(LANES):
        log_det += log(products[lane])
    return log_det


@helper
def add_squares(E, negative):
    """``negative −= EᵀE`` on and below its diagonal, ``E = [G⁻¹ | G⁻¹X]`` as ``eliminate`` leaves it."""
    d = E.shape[0]
    for i in range(E.shape[1]):
        subtract_lanes(negative, i, E, i, E, (i if i < d else 0, d), (0, i + 1))


@helper
def total(stack, i, j):
    """The sum of one number over the lanes.  stack: (rows, columns, LANES)"""
    return (stack[i, j, 0] + stack[i, j, 2]) + (stack[i, j, 1] + stack[i, j, 3])


def in_lanes(stack: Array) -> Array:
    """Matrices (K, rows, columns) side by side: (groups, rows, columns, LANES), zeros where there is none left."""
    K, *shape = stack.shape
    out = np.zeros((-(-K // LANES), *shape, LANES))
    for lane in range(LANES):
        own = stack[lane::LANES]
        out[: len(own), ..., lane] = own
    return out
