"""Rows of matrices in vectors of four, in an order of additions that is written out: what an elimination is made of."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

from sidelight.kernels.simd import _FOUR, _accumulate, _is_stack, _load, _splat, _store, _zero, intrinsic

__all__ = ["scale_row", "subtract_four", "subtract_rows"]


def _subtract(context, builder, signature, arguments, rows, down, widest):
    """``subtract_rows`` for so many rows at once: each number of ``X`` is read once for all of them."""
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


def _fit(matrices, numbers):
    return all(_is_stack(kind, 2) for kind in matrices) and all(kind == types.intp for kind in numbers)


@intrinsic
def subtract_rows(typing_context, Y, i, C, at, step, start, stop, X, shift, first, last):
    """``Y[i, first:last] −= Σ_k c_k X[k, shift + first:shift + last]`` over ``start ≤ k < stop``.

    In that order; where few columns are left, every other ``k`` is added up apart.

    Y, C, X: matrices, which may be the same   at, step: ``c_k`` is number ``at + k·step`` of ``C``, row after row
    last − first: a multiple of eight
    """
    if not _fit((Y, C, X), (i, at, step, start, stop, shift, first, last)):
        return None

    def code(context, builder, signature, arguments):
        return _subtract(context, builder, (Y, C, X), arguments, 1, arguments[1], 8)

    return types.none(Y, i, C, at, step, start, stop, X, shift, first, last), code


@intrinsic
def subtract_four(typing_context, Y, i, C, at, down, step, start, stop, X, shift, first, last):
    """``subtract_rows`` for rows ``i`` to ``i + 3``: the ``c_k`` of each next one begin ``down`` numbers further on."""
    if not _fit((Y, C, X), (i, at, down, step, start, stop, shift, first, last)):
        return None

    def code(context, builder, signature, arguments):
        *before, down = arguments[:5]
        return _subtract(context, builder, (Y, C, X), (*before, *arguments[5:]), 4, down, 2)

    return types.none(Y, i, C, at, down, step, start, stop, X, shift, first, last), code


@intrinsic
def scale_row(typing_context, Y, i, factor, first, last):
    """``Y[i, first:last] *= factor``.  Y: a matrix   last − first: a multiple of eight"""
    if not (_is_stack(Y, 2) and factor == types.float64 and i == first == last == types.intp):
        return None

    def code(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        width = cgutils.unpack_tuple(builder, array.shape)[1]
        _, i, factor, first, last = arguments
        row = builder.gep(array.data, [builder.mul(i, width)])
        factors = _splat(builder, factor)
        with cgutils.for_range_slice(builder, first, last, ir.Constant(i.type, 8), i.type) as (j, _):
            for at in (j, builder.add(j, ir.Constant(i.type, 4))):
                _store(builder, builder.fmul(factors, _load(builder, row, at)), row, at)
        return context.get_dummy_value()

    return types.none(Y, i, factor, first, last), code
