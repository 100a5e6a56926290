"""Sums of products four at a time, in an order of additions that is the same on every machine.

The compiler may not reorder additions of floats, so it leaves plain loops of them scalar.  Here the order is written
out in vectors of four; machines without such registers split them and get the same bits.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

from sidelight.kernels.compiled import helper, inlined
from sidelight.kernels.vector_code import DOUBLE, FOUR, accumulate, intrinsic, is_array, load, running_sum, splat, store

__all__ = [
    "clear",
    "dot",
    "dot_at",
    "dot_row",
    "quadratic_form",
    "subtract_products",
]

_LANES = ir.VectorType(ir.IntType(32), 4)


def _data(context, builder, array_type, value):
    """Pointer to the first element of an array."""
    return context.make_array(array_type)(context, builder, value).data


def _total(builder, v):
    """``(v₀ + v₂) + (v₁ + v₃)``."""
    a, b, c, d = (builder.extract_element(v, ir.IntType(32)(k)) for k in range(4))
    return builder.fadd(builder.fadd(a, c), builder.fadd(b, d))


def _walk(builder, n, eight, four, one):
    """Call ``eight(i)``, then at most once ``four(i)``, then ``one(i)`` for what is left of ``range(n)``."""
    word = n.type
    whole = builder.and_(n, ir.Constant(word, -8))
    with cgutils.for_range_slice(builder, ir.Constant(word, 0), whole, ir.Constant(word, 8), word) as (i, _):
        eight(i)
    with builder.if_then(builder.icmp_signed("!=", builder.and_(n, ir.Constant(word, 4)), ir.Constant(word, 0))):
        four(whole)
    rest = builder.and_(n, ir.Constant(word, -4))
    with cgutils.for_range_slice(builder, rest, n, ir.Constant(word, 1), word) as (i, _):
        one(i)


def _one_of(context, builder, array_type, value, index):
    """Pointer to ``stack[index]`` and its shape, without a view, whose references would have to be counted."""
    array = context.make_array(array_type)(context, builder, value)
    _, *shape = cgutils.unpack_tuple(builder, array.shape)
    size = shape[0]
    for length in shape[1:]:
        size = builder.mul(size, length)
    return builder.gep(array.data, [builder.mul(index, size)]), shape


def _dot(builder, left, right, n):
    sums, rest = [running_sum(builder, FOUR), running_sum(builder, FOUR)], running_sum(builder, DOUBLE)

    def four(i, k=0):
        accumulate(builder, sums[k], builder.fmul(load(builder, left, i), load(builder, right, i)))

    def eight(i):
        four(i)
        four(builder.add(i, ir.Constant(i.type, 4)), 1)

    def one(i):
        xi, yi = builder.load(builder.gep(left, [i])), builder.load(builder.gep(right, [i]))
        accumulate(builder, rest, builder.fmul(xi, yi))

    _walk(builder, n, eight, four, one)
    both = builder.fadd(builder.load(sums[0]), builder.load(sums[1]))
    return builder.fadd(_total(builder, both), builder.load(rest))


def _four_dots(builder, matrix, n, right):
    """The products of four rows of length ``n`` with one vector, as a vector of four."""
    word = n.type
    number = lambda k: ir.Constant(word, k)  # noqa: E731
    rows = [builder.gep(matrix, [builder.mul(number(k), n)]) for k in range(4)]
    sums, rest = [running_sum(builder, FOUR) for _ in rows], running_sum(builder, FOUR)
    whole = builder.and_(n, number(-4))
    with cgutils.for_range_slice(builder, number(0), whole, number(4), word) as (i, _):
        y = load(builder, right, i)
        for row, where in zip(rows, sums, strict=True):
            accumulate(builder, where, builder.fmul(load(builder, row, i), y))
    with cgutils.for_range_slice(builder, whole, n, number(1), word) as (i, _):
        column = ir.Constant(FOUR, ir.Undefined)
        for k, row in enumerate(rows):
            column = builder.insert_element(column, builder.load(builder.gep(row, [i])), ir.IntType(32)(k))
        accumulate(builder, rest, builder.fmul(column, splat(builder, builder.load(builder.gep(right, [i])))))

    def pick(v, w, lanes):
        return builder.shuffle_vector(v, w, ir.Constant(_LANES, lanes))

    a, b, c, d = (builder.load(where) for where in sums)
    # add neighbours, then halves: lane k ends up with the sum of row k
    ab = builder.fadd(pick(a, b, [0, 4, 2, 6]), pick(a, b, [1, 5, 3, 7]))
    cd = builder.fadd(pick(c, d, [0, 4, 2, 6]), pick(c, d, [1, 5, 3, 7]))
    total = builder.fadd(pick(ab, cd, [0, 1, 4, 5]), pick(ab, cd, [2, 3, 6, 7]))
    return builder.fadd(total, builder.load(rest))


@intrinsic
def subtract_products(typing_context, z, y, first, B, a):
    """``z_j = y[first + j] − (B[a] y)_j``; without the first term where ``first`` is negative.

    z: (m,) or longer   y: (d,)   B: (K, m, R)   a: a position
    """
    if not (is_array(z, 1) and is_array(y, 1) and first == types.intp and is_array(B, 3) and a == types.intp):
        return None

    def code(context, builder, signature, arguments):
        target = _data(context, builder, signature.args[0], arguments[0])
        right = _data(context, builder, signature.args[1], arguments[1])
        first = arguments[2]
        matrix, (m, R) = _one_of(context, builder, signature.args[3], arguments[3], arguments[4])
        word = m.type
        number = lambda k: ir.Constant(word, k)  # noqa: E731
        shifted = builder.icmp_signed(">=", first, number(0))
        source = builder.gep(right, [builder.select(shifted, first, number(0))])
        whole = builder.and_(m, number(-4))
        with cgutils.for_range_slice(builder, number(0), whole, number(4), word) as (j, _):
            products = _four_dots(builder, builder.gep(matrix, [builder.mul(j, R)]), R, right)
            start = builder.select(shifted, load(builder, source, j), ir.Constant(FOUR, None))
            store(builder, builder.fsub(start, products), target, j)
        with cgutils.for_range_slice(builder, whole, m, number(1), word) as (j, _):
            product = _dot(builder, builder.gep(matrix, [builder.mul(j, R)]), right, R)
            start = builder.select(shifted, builder.load(builder.gep(source, [j])), ir.Constant(DOUBLE, 0.0))
            builder.store(builder.fsub(start, product), builder.gep(target, [j]))
        return context.get_dummy_value()

    return types.none(z, y, first, B, a), code


@intrinsic
def dot_at(typing_context, x, i, y, j, n):
    """``Σ_k x[i + k] y[j + k]`` for ``k < n``, positions counted through all axes: no view has to be made of a row."""
    if not (is_array(x) and is_array(y)):
        return None

    def code(context, builder, signature, arguments):
        left, right = (
            builder.gep(_data(context, builder, signature.args[k], arguments[k]), [arguments[k + 1]]) for k in (0, 2)
        )
        return _dot(builder, left, right, arguments[4])

    return types.float64(x, types.intp, y, types.intp, types.intp), code


@inlined
def dot(x, y):
    """``Σ x_i y_i`` over the length of ``x``; ``y`` may be longer."""
    return dot_at(x, 0, y, 0, x.shape[0])


@inlined
def dot_row(W, a, y):
    """``dot(W[a], y)``.  W: (K, n)   a: a position   y: (n,) or longer"""
    return dot_at(W, a * W.shape[1], y, 0, W.shape[1])


@intrinsic
def quadratic_form(typing_context, C, a, z):
    """``zᵀC[a]z`` of symmetric matrices, read by half: four rows at a time, from their diagonal block rightwards.

    C: (K, m, m)   a: a position   z: (m,)
    """
    if not (is_array(C, 3) and is_array(z, 1) and a == types.intp):
        return None

    def code(context, builder, signature, arguments):
        matrix, (m, _) = _one_of(context, builder, signature.args[0], arguments[0], arguments[1])
        vector = _data(context, builder, signature.args[2], arguments[2])
        word = m.type
        number = lambda k: ir.Constant(word, k)  # noqa: E731
        inside, beside, rest = running_sum(builder, FOUR), running_sum(builder, FOUR), running_sum(builder, DOUBLE)
        whole = builder.and_(m, number(-4))
        with cgutils.for_range_slice(builder, number(0), whole, number(4), word) as (i, _):
            rows = [builder.gep(matrix, [builder.mul(builder.add(i, number(k)), m)]) for k in range(4)]
            z_rows = [builder.load(builder.gep(vector, [builder.add(i, number(k))])) for k in range(4)]
            splats = [splat(builder, value) for value in z_rows]

            def block(j, into, rows=rows, splats=splats):
                parts = [builder.fmul(load(builder, r, j), s) for r, s in zip(rows, splats, strict=True)]
                column = builder.fadd(builder.fadd(parts[0], parts[1]), builder.fadd(parts[2], parts[3]))
                accumulate(builder, into, builder.fmul(column, load(builder, vector, j)))

            block(i, inside)
            with cgutils.for_range_slice(builder, builder.add(i, number(4)), whole, number(4), word) as (j, _):
                block(j, beside)
            with cgutils.for_range_slice(builder, whole, m, number(1), word) as (j, _):
                parts = [
                    builder.fmul(builder.load(builder.gep(r, [j])), value)
                    for r, value in zip(rows, z_rows, strict=True)
                ]
                column = builder.fadd(builder.fadd(parts[0], parts[1]), builder.fadd(parts[2], parts[3]))
                twice = builder.fadd(column, column)
                accumulate(builder, rest, builder.fmul(twice, builder.load(builder.gep(vector, [j]))))
        # the corner that is left: at most three rows and columns
        with cgutils.for_range_slice(builder, whole, m, number(1), word) as (i, _):
            row = builder.gep(matrix, [builder.mul(i, m)])
            zi = builder.load(builder.gep(vector, [i]))
            with cgutils.for_range_slice(builder, whole, m, number(1), word) as (j, _):
                product = builder.fmul(builder.load(builder.gep(row, [j])), builder.load(builder.gep(vector, [j])))
                accumulate(builder, rest, builder.fmul(zi, product))
        right = builder.load(beside)
        total = _total(builder, builder.fadd(builder.load(inside), builder.fadd(right, right)))
        return builder.fadd(total, builder.load(rest))

    return types.float64(C, a, z), code


@helper
def clear(x):
    """Set all of ``x`` to zero."""
    x.fill(0.0)
