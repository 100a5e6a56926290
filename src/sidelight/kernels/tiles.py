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

from sidelight.kernels.simd import _FOUR, _accumulate, _load, _splat, _store, _zero

__all__ = ["DOWN", "LANES", "add_tile", "quadratic_lanes", "set_tile"]

intrinsic: Any = _intrinsic
#: a tile has this many rows and columns
DOWN, LANES = 4, 8


def _is_array(kind):
    return isinstance(kind, types.Array) and kind.layout == "C" and kind.dtype == types.float64


def _data(context, builder, signature, arguments, *which):
    return [context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in which]


def _empty_tile(builder):
    return [[_zero(builder, _FOUR) for _ in range(LANES // 4)] for _ in range(DOWN)]


def _eight(builder, data, row):
    """Row ``row`` of an array in rows of eight, as vectors."""
    word = row.type
    start = builder.mul(row, ir.Constant(word, LANES))
    return [_load(builder, data, builder.add(start, ir.Constant(word, 4 * j))) for j in range(LANES // 4)]


def _add_products(builder, tile, rows, step, right, start, stop):
    """``tile[i] += rows[i][t·step] · right[t]`` for ``start ≤ t < stop``, where ``right[t]`` is a row of eight."""
    with cgutils.for_range_slice(builder, start, stop, ir.Constant(stop.type, 1), stop.type) as (t, _):
        columns, down = _eight(builder, right, t), builder.mul(t, step)
        for source, row in zip(rows, tile, strict=True):
            factor = _splat(builder, builder.load(builder.gep(source, [down])))
            for where, column in zip(row, columns, strict=True):
                _accumulate(builder, where, builder.fmul(factor, column))


def _rows_of(builder, left, first, apart):
    left = builder.gep(left, [first])
    return [builder.gep(left, [builder.mul(ir.Constant(first.type, i), apart)]) for i in range(DOWN)]


def _tile_from(begin):
    """A function that adds products to a tile which ``begin(builder, where, pointer)`` begins."""

    def tile_products(typing_context, out, at, A, first, step, apart, B, start, n):
        if not (_is_array(out) and _is_array(A) and _is_array(B)):
            return None

        def code(context, builder, signature, arguments):
            target, left, right = _data(context, builder, signature, arguments, 0, 2, 6)
            _, at, _, first, step, apart, _, start, n = arguments
            place = [[builder.add(at, ir.Constant(at.type, LANES * i + 4 * j)) for j in (0, 1)] for i in range(DOWN)]
            tile = _empty_tile(builder)
            for row, places in zip(tile, place, strict=True):
                for where, position in zip(row, places, strict=True):
                    begin(builder, where, target, position)
            right = builder.gep(right, [start])
            rows = _rows_of(builder, left, first, apart)
            _add_products(builder, tile, rows, step, right, ir.Constant(n.type, 0), n)
            for row, places in zip(tile, place, strict=True):
                for where, position in zip(row, places, strict=True):
                    _store(builder, builder.load(where), target, position)
            return context.get_dummy_value()

        word = types.intp
        return types.none(out, word, A, word, word, word, B, word, word), code

    return tile_products


def _as_it_is(builder, where, target, position):
    builder.store(_load(builder, target, position), where)


def _from_zero(builder, where, target, position):
    pass


#: ``add_tile(out, at, A, first, step, apart, B, start, n)``: ``out[at + 8i + j] += Σ_{t<n} A[first + t·step + i·apart]
#: · B[start + 8t + j]`` for ``i < 4``, ``j < 8``, in the order of t.  Arrays of any shape, by position in memory.
add_tile = intrinsic(_tile_from(_as_it_is))
#: the same with ``=`` for ``+=``
set_tile = intrinsic(_tile_from(_from_zero))


@intrinsic
def quadratic_lanes(typing_context, out, C, first, m, Z, start):
    """``out_j = Σ_ik C[first + i·m + k] Z[start + 8i + j] Z[start + 8k + j]``: one symmetric matrix, eight vectors.

    out: (8,)   C, Z: any arrays, by position in memory; of the matrix the upper half is read
    """
    if not (_is_array(out) and _is_array(C) and _is_array(Z)):
        return None

    def code(context, builder, signature, arguments):
        target, matrix, vectors = _data(context, builder, signature, arguments, 0, 1, 4)
        first, m, vectors = arguments[2], arguments[3], builder.gep(vectors, [arguments[5]])
        number = lambda k: ir.Constant(m.type, k)  # noqa: E731
        totals = [_zero(builder, _FOUR) for _ in range(LANES // 4)]
        whole = builder.and_(m, number(-DOWN))
        with cgutils.for_range_slice(builder, number(0), whole, number(DOWN), m.type) as (i, _):
            rows = _rows_of(builder, matrix, builder.add(first, builder.mul(i, m)), m)
            tile, right = _empty_tile(builder), builder.add(i, number(DOWN))
            _add_products(builder, tile, rows, number(1), vectors, right, m)
            for where in (where for row in tile for where in row):
                _accumulate(builder, where, builder.load(where))  # beside the diagonal every entry counts twice
            _add_products(builder, tile, rows, number(1), vectors, i, right)
            for k, row in enumerate(tile):
                for total, where, z in zip(
                    totals, row, _eight(builder, vectors, builder.add(i, number(k))), strict=True
                ):
                    _accumulate(builder, total, builder.fmul(builder.load(where), z))
        # the corner that is left: at most three rows and columns
        with cgutils.for_range_slice(builder, whole, m, number(1), m.type) as (i, _):
            row = builder.gep(matrix, [builder.add(first, builder.mul(i, m))])
            line = [_zero(builder, _FOUR) for _ in totals]
            _add_products(builder, [line], [row], number(1), vectors, whole, m)
            for total, where, z in zip(totals, line, _eight(builder, vectors, i), strict=True):
                _accumulate(builder, total, builder.fmul(builder.load(where), z))
        for j, total in enumerate(totals):
            _store(builder, builder.load(total), target, number(4 * j))
        return context.get_dummy_value()

    return types.none(out, C, types.intp, types.intp, Z, types.intp), code
