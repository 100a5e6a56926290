"""Rows of matrices, combined in vectors of four: what an elimination is made of (``spd``, ``dense``).

The order of additions is written out, as in ``simd``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

from sidelight.kernels.compiled import helper
from sidelight.kernels.vector_code import FOUR, accumulate, intrinsic, is_array, load, running_sum, splat, store

__all__ = ["copy_columns", "scale_row", "subtract_four", "subtract_row"]


def _matrix(context, builder, kind, value):
    """Pointer to the first element, and the length of a row."""
    array = context.make_array(kind)(context, builder, value)
    return array.data, cgutils.unpack_tuple(builder, array.shape)[1]


def _subtract(context, builder, signature, arguments, rows, down, widest):
    """Write ``subtract_row`` for ``rows`` rows at once: each number of ``X`` is read once for all of them.

    down: how many numbers further on each row's factors begin   widest: vectors of a row that are added up at a time
    """
    Y, i, C, at, step, start, stop, X, shift, first, last = arguments
    word = i.type
    number = lambda k: ir.Constant(word, k)  # noqa: E731

    (target, target_width), (factors, _), (source, width) = (
        _matrix(context, builder, kind, value) for kind, value in zip(signature, (Y, C, X), strict=True)
    )
    targets = [builder.gep(target, [builder.mul(builder.add(i, number(r)), target_width)]) for r in range(rows)]
    factors = [builder.gep(factors, [builder.add(at, builder.mul(down, number(r)))]) for r in range(rows)]
    source = builder.gep(source, [shift])

    def columns(j, vectors):
        # few accumulators would leave the adders idle, so odd and even rows have accumulators of their own
        apart = 2 if rows * vectors <= 4 else 1
        sums = [[[running_sum(builder, FOUR) for _ in range(vectors)] for _ in range(rows)] for _ in range(apart)]

        def add(k, sums):
            row = builder.gep(source, [builder.add(builder.mul(k, width), j)])
            x = [load(builder, row, number(4 * q)) for q in range(vectors)]
            for c, into in zip(factors, sums, strict=True):
                factor = splat(builder, builder.load(builder.gep(c, [builder.mul(k, step)])))
                for value, where in zip(x, into, strict=True):
                    accumulate(builder, where, builder.fmul(factor, value))

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
                store(builder, builder.fsub(load(builder, y, column), total), y, column)

    # as many columns at a time as there are registers to add them up in, then what is left
    whole = builder.add(first, builder.and_(builder.sub(last, first), number(-4 * widest)))
    with cgutils.for_range_slice(builder, first, whole, number(4 * widest), word) as (j, _):
        columns(j, widest)
    left = builder.sub(last, whole)
    for vectors in range(2, widest, 2):
        with builder.if_then(builder.icmp_signed("==", left, number(4 * vectors))):
            columns(whole, vectors)
    return context.get_dummy_value()


def _fits(Y, i, C, numbers, X, columns, n):
    """Whether the arguments are three matrices, a position, ``n`` numbers and three more."""
    counts = (i, *numbers.types, *columns.types)
    return len(counts) == n + 4 and all(is_array(k, 2) for k in (Y, C, X)) and all(k == types.intp for k in counts)


@intrinsic
def _one_row(typing_context, Y, i, C, numbers, X, columns):
    if not _fits(Y, i, C, numbers, X, columns, 4):
        return None

    def code(context, builder, signature, arguments):
        Y_, i_, C_, numbers_, X_, columns_ = arguments
        at, step, start, stop = cgutils.unpack_tuple(builder, numbers_)
        shown = cgutils.unpack_tuple(builder, columns_)
        return _subtract(context, builder, (Y, C, X), (Y_, i_, C_, at, step, start, stop, X_, *shown), 1, i_, 8)

    return types.none(Y, i, C, numbers, X, columns), code


@intrinsic
def _four_rows(typing_context, Y, i, C, numbers, X, columns):
    if not _fits(Y, i, C, numbers, X, columns, 5):
        return None

    def code(context, builder, signature, arguments):
        Y_, i_, C_, numbers_, X_, columns_ = arguments
        at, down, step, start, stop = cgutils.unpack_tuple(builder, numbers_)
        shown = cgutils.unpack_tuple(builder, columns_)
        return _subtract(context, builder, (Y, C, X), (Y_, i_, C_, at, step, start, stop, X_, *shown), 4, down, 2)

    return types.none(Y, i, C, numbers, X, columns), code


# functions of their own, so that their long code is written once per kernel and not wherever they are called


@helper
def subtract_row(Y, i, C, numbers, X, columns):
    """``Y[i, first:last] −= Σ_k c_k X[k, shift + first:shift + last]`` over ``start ≤ k < stop``.

    In that order; where few columns are left, every other ``k`` is added up apart.

    Y, X: matrices, which may be the same
    C, numbers: ``numbers = (at, step, start, stop)``; ``c_k`` is number ``at + k·step`` of the matrix ``C``, row after
    row, which is no part of the tuple because its references would be counted for every row
    columns: ``(shift, first, last)``, ``last − first`` a multiple of eight
    """
    _one_row(Y, i, C, numbers, X, columns)


@helper
def subtract_four(Y, i, C, numbers, X, columns):
    """``subtract_row`` for rows ``i`` to ``i + 3``: the ``c_k`` of each next one begin ``down`` numbers further on.

    numbers: ``(at, down, step, start, stop)``
    """
    _four_rows(Y, i, C, numbers, X, columns)


@intrinsic
def scale_row(typing_context, Y, i, factor, first, last):
    """``Y[i, first:last] *= factor``, ``last − first`` a multiple of four.

    In vectors as long as those that have just written the row: of a plain loop the compiler makes longer ones, which
    would have to wait until all that was written has reached the cache.
    """
    if not (is_array(Y, 2) and factor == types.float64 and all(k == types.intp for k in (i, first, last))):
        return None

    def code(context, builder, signature, arguments):
        (data, width), (_, row, number, start, stop) = _matrix(context, builder, Y, arguments[0]), arguments
        target, factors = builder.gep(data, [builder.mul(row, width)]), splat(builder, number)
        with cgutils.for_range_slice(builder, start, stop, ir.Constant(row.type, 4), row.type) as (j, _):
            store(builder, builder.fmul(load(builder, target, j), factors), target, j)
        return context.get_dummy_value()

    return types.none(Y, i, factor, first, last), code


@helper
def copy_columns(source, target, n):
    """``target[:, :n] = source[:, :n]``; a slice would compile numba's error messages about shapes as well."""
    for i in range(source.shape[0]):
        for j in range(n):
            target[i, j] = source[i, j]
