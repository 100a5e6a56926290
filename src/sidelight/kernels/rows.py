"""Rows of matrices in vectors of four, in an order of additions that is written out: what an elimination is made of."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

from sidelight.kernels.compiled import helper
from sidelight.kernels.simd import _FOUR, _accumulate, _is_stack, _load, _splat, _store, _zero, intrinsic

__all__ = ["scale_row", "subtract_four", "subtract_row"]


def _subtract(context, builder, signature, arguments, rows, down, widest):
    """``subtract_row`` for so many rows at once: each number of ``X`` is read once for all of them."""
    Y, i, C, at, step, start, stop, X, shift, first, last = arguments
    word = i.type
    number = lambda k: ir.Constant(word, k)  # noqa: E731

    def matrix(kind, value):
        array = context.make_array(kind)(context, builder, value)
        return array.data, cgutils.unpack_tuple(builder, array.shape)[1]

    (target, target_width), (factors, _), (source, width) = (
        matrix(kind, value) for kind, value in zip(signature, (Y, C, X), strict=True)
    )
    targets = [builder.gep(target, [builder.mul(builder.add(i, number(r)), target_width)]) for r in range(rows)]
    factors = [builder.gep(factors, [builder.add(at, builder.mul(down, number(r)))]) for r in range(rows)]
    source = builder.gep(source, [shift])

    def columns(j, vectors):
        # few sums wait for each other: those of every other row are added up apart
        apart = 2 if rows * vectors <= 4 else 1
        sums = [[[_zero(builder, _FOUR) for _ in range(vectors)] for _ in range(rows)] for _ in range(apart)]

        def add(k, sums):
            row = builder.gep(source, [builder.add(builder.mul(k, width), j)])
            x = [_load(builder, row, number(4 * q)) for q in range(vectors)]
            for c, into in zip(factors, sums, strict=True):
                factor = _splat(builder, builder.load(builder.gep(c, [builder.mul(k, step)])))
                for value, where in zip(x, into, strict=True):
                    _accumulate(builder, where, builder.fmul(factor, value))

        even = builder.add(start, builder.and_(builder.sub(stop, start), number(-apart)))
        with cgutils.for_range_slice(builder, start, even, number(apart), word) as (k, _):
            for r in range(apart):
                add(builder.add(k, number(r)), sums[r])
        if apart == 2:
            with builder.if_then(builder.icmp_signed("<", even, stop)):
                add(even, sums[0])
        for r, y in enumerate(targets):
            for q in range(vectors):
                total = builder.load(sums[0][r][q])
                if apart == 2:
                    total = builder.fadd(total, builder.load(sums[1][r][q]))
                column = builder.add(j, number(4 * q))
                _store(builder, builder.fsub(_load(builder, y, column), total), y, column)

    # as many columns at a time as there are registers to add them up in, then what is left
    whole = builder.add(first, builder.and_(builder.sub(last, first), number(-4 * widest)))
    with cgutils.for_range_slice(builder, first, whole, number(4 * widest), word) as (j, _):
        columns(j, widest)
    left = builder.sub(last, whole)
    for vectors in range(2, widest, 2):
        with builder.if_then(builder.icmp_signed("==", left, number(4 * vectors))):
            columns(whole, vectors)
    return context.get_dummy_value()


def _fits(Y, i, coefficients, X, columns, n):
    """Whether the arguments are two matrices, a matrix with ``n`` numbers, and three numbers."""
    numbers = (i, *coefficients.types[1:], *columns.types)
    matrices = (Y, coefficients.types[0], X)
    return len(numbers) == n + 4 and all(_is_stack(k, 2) for k in matrices) and all(k == types.intp for k in numbers)


def _unpacked(builder, arguments):
    Y, i, coefficients, X, columns = arguments
    return Y, i, cgutils.unpack_tuple(builder, coefficients), X, cgutils.unpack_tuple(builder, columns)


@intrinsic
def _one_row(typing_context, Y, i, coefficients, X, columns):
    if not _fits(Y, i, coefficients, X, columns, 4):
        return None

    def code(context, builder, signature, arguments):
        Y_, i_, (C_, at, step, start, stop), X_, shown = _unpacked(builder, arguments)
        kinds = (Y, coefficients.types[0], X)
        return _subtract(context, builder, kinds, (Y_, i_, C_, at, step, start, stop, X_, *shown), 1, i_, 8)

    return types.none(Y, i, coefficients, X, columns), code


@intrinsic
def _four_rows(typing_context, Y, i, coefficients, X, columns):
    if not _fits(Y, i, coefficients, X, columns, 5):
        return None

    def code(context, builder, signature, arguments):
        Y_, i_, (C_, at, down, step, start, stop), X_, shown = _unpacked(builder, arguments)
        kinds = (Y, coefficients.types[0], X)
        return _subtract(context, builder, kinds, (Y_, i_, C_, at, step, start, stop, X_, *shown), 4, down, 2)

    return types.none(Y, i, coefficients, X, columns), code


# functions of their own, so that their long code is written once per kernel and not wherever they are called


@helper
def subtract_row(Y, i, coefficients, X, columns):
    """``Y[i, first:last] −= Σ_k c_k X[k, shift + first:shift + last]`` over ``start ≤ k < stop``.

    In that order; where few columns are left, every other ``k`` is added up apart.

    Y, X: matrices, which may be the same
    coefficients: ``(C, at, step, start, stop)``; ``c_k`` is number ``at + k·step`` of the matrix ``C``, row after row
    columns: ``(shift, first, last)``, ``last − first`` a multiple of eight
    """
    _one_row(Y, i, coefficients, X, columns)


@helper
def subtract_four(Y, i, coefficients, X, columns):
    """``subtract_row`` for rows ``i`` to ``i + 3``: the ``c_k`` of each next one begin ``down`` numbers further on.

    coefficients: ``(C, at, down, step, start, stop)``
    """
    _four_rows(Y, i, coefficients, X, columns)


@helper
def scale_row(Y, i, factor, first, last):
    """``Y[i, first:last] *= factor``."""
    for j in range(first, last):
        Y[i, j] *= factor
