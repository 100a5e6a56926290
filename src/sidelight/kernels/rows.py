"""Rows of matrices in vectors of four, in an order of additions that is written out: what an elimination is made of."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

from sidelight.kernels.simd import _FOUR, _accumulate, _is_stack, _load, _splat, _store, _zero, intrinsic

__all__ = ["scale_row", "subtract_rows"]


@intrinsic
def subtract_rows(typing_context, Y, i, C, at, step, start, stop, X, shift, first, last):
    """``Y[i, first:last] −= Σ_k c_k X[k, shift + first:shift + last]`` over ``start ≤ k < stop``, in that order.

    Y, C, X: matrices, which may be the same   at, step: ``c_k`` is number ``at + k·step`` of ``C``, row after row
    last − first: a multiple of eight
    """
    if not all(_is_stack(kind, 2) for kind in (Y, C, X)):
        return None
    if not all(number == types.intp for number in (i, at, step, start, stop, shift, first, last)):
        return None

    def code(context, builder, signature, arguments):
        _, i, _, at, step, start, stop, _, shift, first, last = arguments

        def matrix(position, offset):
            array = context.make_array(signature.args[position])(context, builder, arguments[position])
            width = cgutils.unpack_tuple(builder, array.shape)[1]
            return builder.gep(array.data, [offset(width)]), width

        target, _ = matrix(0, lambda width: builder.mul(i, width))
        factors, _ = matrix(2, lambda width: at)
        rows, width = matrix(7, lambda width: shift)
        word = i.type
        number = lambda k: ir.Constant(word, k)  # noqa: E731

        def columns(j, vectors):
            sums = [_zero(builder, _FOUR) for _ in range(vectors)]
            with cgutils.for_range_slice(builder, start, stop, number(1), word) as (k, _):
                factor = _splat(builder, builder.load(builder.gep(factors, [builder.mul(k, step)])))
                row = builder.gep(rows, [builder.add(builder.mul(k, width), j)])
                for q, where in enumerate(sums):
                    _accumulate(builder, where, builder.fmul(factor, _load(builder, row, number(4 * q))))
            for q, where in enumerate(sums):
                column = builder.add(j, number(4 * q))
                _store(builder, builder.fsub(_load(builder, target, column), builder.load(where)), target, column)

        # as many columns at a time as there are registers to add them up in, then what is left
        whole = builder.add(first, builder.and_(builder.sub(last, first), number(-32)))
        with cgutils.for_range_slice(builder, first, whole, number(32), word) as (j, _):
            columns(j, 8)
        left = builder.sub(last, whole)
        for vectors in (2, 4, 6):
            with builder.if_then(builder.icmp_signed("==", left, number(4 * vectors))):
                columns(whole, vectors)
        return context.get_dummy_value()

    return types.none(Y, i, C, at, step, start, stop, X, shift, first, last), code


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
