"""Sums of products eight at a time in single precision, for bounds: what they are off by is accounted for."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

from sidelight.kernels.simd import _load, _parts, _splat, _store, _zero, intrinsic

__all__ = ["bound_lanes", "combine_rows"]

_EIGHT = ir.VectorType(ir.FloatType(), 8)
#: numbers beyond may have overflowed (this one is exact in single precision)
_LARGEST = 2.0**120


def _is_single(kind):
    return isinstance(kind, types.Array) and kind.ndim == 1 and kind.layout == "C" and kind.dtype == types.float32


def _fuse(builder, where, x, y):
    """Add ``x y`` in single precision, rounded once where the machine can and twice where not: for bounds alone."""
    kind = ir.FunctionType(_EIGHT, [_EIGHT] * 3)
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.fmuladd.v8f32")
    builder.store(builder.call(function, [x, y, builder.load(where)]), where)


@intrinsic
def combine_rows(typing_context, out, start, width, y, y_first, n, M, first, fresh):
    """``out[start + j] = Σ_i y[y_first + i] M[first + i·width + j]``, ``i < n`` in order; added to it if not ``fresh``.

    width: a multiple of eight   M: a vector that holds the rows one after the other
    """
    if not (_is_single(out) and _is_single(y) and _is_single(M)):
        return None

    def code(context, builder, signature, arguments):
        _, start, width, _, y_first, n, _, first, fresh = arguments
        target, factors, rows = (_parts(context, builder, signature.args[k], arguments[k])[0] for k in (0, 3, 6))
        target, factors, rows = (
            builder.gep(data, [at]) for data, at in ((target, start), (factors, y_first), (rows, first))
        )
        word = width.type
        number = lambda k: ir.Constant(word, k)  # noqa: E731

        def columns(j, vectors):
            sums = [_zero(builder, _EIGHT) for _ in range(vectors)]
            with builder.if_then(builder.not_(fresh)):
                for k, where in enumerate(sums):
                    builder.store(_load(builder, target, builder.add(j, number(8 * k)), _EIGHT), where)
            with cgutils.for_range_slice(builder, number(0), n, number(1), word) as (i, _):
                factor = _splat(builder, builder.load(builder.gep(factors, [i])), _EIGHT)
                row = builder.gep(rows, [builder.add(builder.mul(i, width), j)])
                for k, where in enumerate(sums):
                    _fuse(builder, where, factor, _load(builder, row, number(8 * k), _EIGHT))
            for k, where in enumerate(sums):
                _store(builder, builder.load(where), target, builder.add(j, number(8 * k)))

        # as many columns at a time as there are registers to add them up in
        begin = number(0)
        for vectors in (12, 8, 4, 1):
            many = builder.sdiv(builder.sub(width, begin), number(8 * vectors))
            end = builder.add(begin, builder.mul(many, number(8 * vectors)))
            with cgutils.for_range_slice(builder, begin, end, number(8 * vectors), word) as (j, _):
                columns(j, vectors)
            begin = end
        return context.get_dummy_value()

    place = types.intp
    return types.none(out, place, place, y, place, place, M, place, types.boolean), code


@intrinsic
def bound_lanes(typing_context, room, x, start, m, lanes, C, first, off_estimate, off_square, off_width, off):
    """Upper bounds of indices, side by side, and a lower bound of the highest, which is returned.

    With ``z_j = x[start + j] − room[(1 + j)·lanes + …]`` (without the first where ``start`` is negative) and ``q =
    Σ_{i ≤ j} C_ij z_i z_j`` (off-diagonal entries held doubled), the bounds of an arm are ``e ± off_estimate·w + √(q ±
    off_square·g²) ± off_width·g ± off``.  What is not a number, or may have overflowed, bounds nothing.

    room: ``lanes`` estimates ``e``, where the upper bounds go, then what ``z`` is made of and where it goes
    C: a vector with rows ``w`` and ``g`` at its beginning and ``C_00, C_01, …, C_11, …`` from ``first`` on
    """
    if not (_is_single(room) and _is_single(x) and _is_single(C)):
        return None

    def code(context, builder, signature, arguments):
        _, _, start, m, lanes, _, first, *margins = arguments
        room, x, matrices = (_parts(context, builder, signature.args[k], arguments[k])[0] for k in (0, 1, 5))
        off_estimate, off_square, off_width, least = (_splat(builder, value, _EIGHT) for value in margins)
        word = lanes.type
        number = lambda k: ir.Constant(word, k)  # noqa: E731
        constant = lambda value: ir.Constant(_EIGHT, [value] * 8)  # noqa: E731
        root = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_EIGHT, [_EIGHT]), "llvm.sqrt.v8f32")
        lowest = cgutils.alloca_once(builder, _EIGHT)
        builder.store(constant(float("-inf")), lowest)

        shifted = builder.icmp_signed(">=", start, number(0))
        source = builder.gep(x, [builder.select(shifted, start, number(0))])

        def groups(k, n):
            """``n`` times eight arms from ``k`` on."""
            each = [builder.add(k, number(8 * g)) for g in range(n)]
            with cgutils.for_range_slice(builder, number(0), m, number(1), word) as (j, _):
                value = builder.select(
                    shifted, builder.load(builder.gep(source, [j])), ir.Constant(ir.FloatType(), 0.0)
                )
                values, row = _splat(builder, value, _EIGHT), builder.mul(builder.add(j, number(1)), lanes)
                for g in each:
                    where = builder.add(row, g)
                    _store(builder, builder.fsub(values, _load(builder, room, where, _EIGHT)), room, where)
            totals, at = [_zero(builder, _EIGHT) for _ in each], cgutils.alloca_once(builder, word)
            builder.store(first, at)

            def z_of(i, g):
                return _load(builder, room, builder.add(builder.mul(builder.add(i, number(1)), lanes), g), _EIGHT)

            with cgutils.for_range_slice(builder, number(0), m, number(1), word) as (i, _):
                inners = [_zero(builder, _EIGHT) for _ in each]
                with cgutils.for_range_slice(builder, i, m, number(1), word) as (j, _):
                    row = builder.load(at)
                    builder.store(builder.add(row, lanes), at)
                    for g, inner in zip(each, inners, strict=True):
                        _fuse(builder, inner, _load(builder, matrices, builder.add(row, g), _EIGHT), z_of(j, g))
                for g, total, inner in zip(each, totals, inners, strict=True):
                    _fuse(builder, total, builder.load(inner), z_of(i, g))
            for g, total in zip(each, totals, strict=True):
                finish(g, builder.load(total))

        def finish(k, q):
            estimate = _load(builder, room, k, _EIGHT)
            reach = _load(builder, matrices, builder.add(k, lanes), _EIGHT)
            off = builder.fmul(off_estimate, _load(builder, matrices, k, _EIGHT))
            off = builder.fadd(builder.fadd(off, builder.fmul(off_width, reach)), least)
            spread = builder.fmul(off_square, builder.fmul(reach, reach))
            high = builder.call(root, [builder.fadd(q, spread)])
            high = builder.fadd(builder.fadd(estimate, off), high)
            says = builder.fcmp_ordered(">", high, constant(-_LARGEST))
            _store(builder, builder.select(says, high, constant(float("inf"))), room, k)
            less = builder.fsub(q, spread)
            less = builder.select(builder.fcmp_ordered(">", less, constant(0.0)), less, constant(0.0))
            low = builder.fadd(builder.fsub(estimate, off), builder.call(root, [less]))
            low = builder.select(builder.fcmp_ordered("<", low, constant(_LARGEST)), low, constant(float("-inf")))
            so_far = builder.load(lowest)
            builder.store(builder.select(builder.fcmp_ordered(">", low, so_far), low, so_far), lowest)

        wide = builder.and_(lanes, number(-32))
        with cgutils.for_range_slice(builder, number(0), wide, number(32), word) as (k, _):
            groups(k, 4)
        with cgutils.for_range_slice(builder, wide, lanes, number(8), word) as (k, _):
            groups(k, 1)
        found = builder.load(lowest)
        best = builder.extract_element(found, ir.IntType(32)(0))
        for k in range(1, 8):
            other = builder.extract_element(found, ir.IntType(32)(k))
            best = builder.select(builder.fcmp_ordered(">", other, best), other, best)
        return best

    single = types.float32
    place = types.intp
    return single(room, x, place, place, place, C, place, single, single, single, single), code
