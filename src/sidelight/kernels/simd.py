"""Sums of products four at a time, in an order of additions that is the same on every machine.

The compiler may not reorder additions of floats, so it leaves plain loops of them scalar.  Here the order is written
out in vectors of four; machines without such registers split them and get the same bits.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

from sidelight.kernels.compiled import helper, inlined

__all__ = [
    "clear",
    "copy_columns",
    "dot",
    "dot_at",
    "dot_row",
    "quadratic_form",
    "scale_row",
    "subtract_four",
    "subtract_products",
    "subtract_row",
]

# its annotations describe the functions that write the code, not the code they write
intrinsic: Any = _intrinsic
_DOUBLE = ir.DoubleType()
_FOUR = ir.VectorType(_DOUBLE, 4)
_LANES = ir.VectorType(ir.IntType(32), 4)


def _parts(context, builder, array_type, value):
    """Pointer to the first element, and the length of the first axis."""
    array = context.make_array(array_type)(context, builder, value)
    return array.data, cgutils.unpack_tuple(builder, array.shape)[0]


def _load(builder, data, i, kind=_FOUR):
    pointer = builder.bitcast(builder.gep(data, [i]), kind.as_pointer())
    return builder.load(pointer, align=32 // kind.count)


def _store(builder, value, data, i):
    pointer = builder.bitcast(builder.gep(data, [i]), value.type.as_pointer())
    builder.store(value, pointer, align=32 // value.type.count)


def _splat(builder, value, kind=_FOUR):
    nothing = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(nothing, value, ir.IntType(32)(0))
    lanes = ir.VectorType(ir.IntType(32), kind.count)
    return builder.shuffle_vector(one, nothing, ir.Constant(lanes, [0] * kind.count))


def _total(builder, v):
    """``(v₀ + v₂) + (v₁ + v₃)``."""
    a, b, c, d = (builder.extract_element(v, ir.IntType(32)(k)) for k in range(4))
    return builder.fadd(builder.fadd(a, c), builder.fadd(b, d))


def _zero(builder, kind):
    """A running sum; the slot is made once and set to zero here, also where this is inside a loop."""
    zero = ir.Constant(kind, 0.0) if kind is _DOUBLE else ir.Constant(kind, None)
    slot = cgutils.alloca_once(builder, kind)
    builder.store(zero, slot)
    return slot


def _accumulate(builder, where, value):
    builder.store(builder.fadd(builder.load(where), value), where)


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


def _is_vector(kind):
    return isinstance(kind, types.Array) and kind.ndim == 1 and kind.layout == "C" and kind.dtype == types.float64


def _is_stack(kind, ndim):
    return isinstance(kind, types.Array) and kind.ndim == ndim and kind.layout == "C" and kind.dtype == types.float64


def _is_block(kind):
    return isinstance(kind, types.Array) and kind.layout == "C" and kind.dtype == types.float64


def _one_of(context, builder, array_type, value, index):
    """Pointer to ``stack[index]`` and its shape, without a view, whose references would have to be counted."""
    array = context.make_array(array_type)(context, builder, value)
    _, *shape = cgutils.unpack_tuple(builder, array.shape)
    size = shape[0]
    for length in shape[1:]:
        size = builder.mul(size, length)
    return builder.gep(array.data, [builder.mul(index, size)]), shape


def _dot(builder, left, right, n):
    sums, rest = [_zero(builder, _FOUR), _zero(builder, _FOUR)], _zero(builder, _DOUBLE)

    def four(i, k=0):
        _accumulate(builder, sums[k], builder.fmul(_load(builder, left, i), _load(builder, right, i)))

    def eight(i):
        four(i)
        four(builder.add(i, ir.Constant(i.type, 4)), 1)

    def one(i):
        xi, yi = builder.load(builder.gep(left, [i])), builder.load(builder.gep(right, [i]))
        _accumulate(builder, rest, builder.fmul(xi, yi))

    _walk(builder, n, eight, four, one)
    both = builder.fadd(builder.load(sums[0]), builder.load(sums[1]))
    return builder.fadd(_total(builder, both), builder.load(rest))


def _four_dots(builder, matrix, n, right):
    """The products of four rows of length ``n`` with one vector, as a vector of four."""
    word = n.type
    number = lambda k: ir.Constant(word, k)  # noqa: E731
    rows = [builder.gep(matrix, [builder.mul(number(k), n)]) for k in range(4)]
    sums, rest = [_zero(builder, _FOUR) for _ in rows], _zero(builder, _FOUR)
    whole = builder.and_(n, number(-4))
    with cgutils.for_range_slice(builder, number(0), whole, number(4), word) as (i, _):
        y = _load(builder, right, i)
        for row, where in zip(rows, sums, strict=True):
            _accumulate(builder, where, builder.fmul(_load(builder, row, i), y))
    with cgutils.for_range_slice(builder, whole, n, number(1), word) as (i, _):
        column = ir.Constant(_FOUR, ir.Undefined)
        for k, row in enumerate(rows):
            column = builder.insert_element(column, builder.load(builder.gep(row, [i])), ir.IntType(32)(k))
        _accumulate(builder, rest, builder.fmul(column, _splat(builder, builder.load(builder.gep(right, [i])))))

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
    if not (_is_vector(z) and _is_vector(y) and first == types.intp and _is_stack(B, 3) and a == types.intp):
        return None

    def code(context, builder, signature, arguments):
        target, _ = _parts(context, builder, signature.args[0], arguments[0])
        right, _ = _parts(context, builder, signature.args[1], arguments[1])
        first = arguments[2]
        matrix, (m, R) = _one_of(context, builder, signature.args[3], arguments[3], arguments[4])
        word = m.type
        number = lambda k: ir.Constant(word, k)  # noqa: E731
        shifted = builder.icmp_signed(">=", first, number(0))
        source = builder.gep(right, [builder.select(shifted, first, number(0))])
        whole = builder.and_(m, number(-4))
        with cgutils.for_range_slice(builder, number(0), whole, number(4), word) as (j, _):
            products = _four_dots(builder, builder.gep(matrix, [builder.mul(j, R)]), R, right)
            start = builder.select(shifted, _load(builder, source, j), ir.Constant(_FOUR, None))
            _store(builder, builder.fsub(start, products), target, j)
        with cgutils.for_range_slice(builder, whole, m, number(1), word) as (j, _):
            product = _dot(builder, builder.gep(matrix, [builder.mul(j, R)]), right, R)
            start = builder.select(shifted, builder.load(builder.gep(source, [j])), ir.Constant(_DOUBLE, 0.0))
            builder.store(builder.fsub(start, product), builder.gep(target, [j]))
        return context.get_dummy_value()

    return types.none(z, y, first, B, a), code


@intrinsic
def dot_at(typing_context, x, i, y, j, n):
    """``Σ_k x[i + k] y[j + k]`` for ``k < n``, positions counted through all axes: no view has to be made of a row."""
    if not (_is_block(x) and _is_block(y)):
        return None

    def code(context, builder, signature, arguments):
        left, right = (
            builder.gep(_parts(context, builder, signature.args[k], arguments[k])[0], [arguments[k + 1]])
            for k in (0, 2)
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
    if not (_is_stack(C, 3) and _is_vector(z) and a == types.intp):
        return None

    def code(context, builder, signature, arguments):
        matrix, (m, _) = _one_of(context, builder, signature.args[0], arguments[0], arguments[1])
        vector, _ = _parts(context, builder, signature.args[2], arguments[2])
        word = m.type
        number = lambda k: ir.Constant(word, k)  # noqa: E731
        inside, beside, rest = _zero(builder, _FOUR), _zero(builder, _FOUR), _zero(builder, _DOUBLE)
        whole = builder.and_(m, number(-4))
        with cgutils.for_range_slice(builder, number(0), whole, number(4), word) as (i, _):
            rows = [builder.gep(matrix, [builder.mul(builder.add(i, number(k)), m)]) for k in range(4)]
            z_rows = [builder.load(builder.gep(vector, [builder.add(i, number(k))])) for k in range(4)]
            splats = [_splat(builder, value) for value in z_rows]

            def block(j, into, rows=rows, splats=splats):
                parts = [builder.fmul(_load(builder, r, j), s) for r, s in zip(rows, splats, strict=True)]
                column = builder.fadd(builder.fadd(parts[0], parts[1]), builder.fadd(parts[2], parts[3]))
                _accumulate(builder, into, builder.fmul(column, _load(builder, vector, j)))

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
                _accumulate(builder, rest, builder.fmul(twice, builder.load(builder.gep(vector, [j]))))
        # the corner that is left: at most three rows and columns
        with cgutils.for_range_slice(builder, whole, m, number(1), word) as (i, _):
            row = builder.gep(matrix, [builder.mul(i, m)])
            zi = builder.load(builder.gep(vector, [i]))
            with cgutils.for_range_slice(builder, whole, m, number(1), word) as (j, _):
                product = builder.fmul(builder.load(builder.gep(row, [j])), builder.load(builder.gep(vector, [j])))
                _accumulate(builder, rest, builder.fmul(zi, product))
        right = builder.load(beside)
        total = _total(builder, builder.fadd(builder.load(inside), builder.fadd(right, right)))
        return builder.fadd(total, builder.load(rest))

    return types.float64(C, a, z), code


# rows of matrices: what an elimination is made of


def _matrix(context, builder, kind, value):
    """Pointer to the first element, and the length of a row."""
    array = context.make_array(kind)(context, builder, value)
    return array.data, cgutils.unpack_tuple(builder, array.shape)[1]


def _subtract(context, builder, signature, arguments, rows, down, widest):
    """``subtract_row`` for so many rows at once: each number of ``X`` is read once for all of them."""
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


def _fits(Y, i, C, numbers, X, columns, n):
    """Whether the arguments are three matrices, a position, ``n`` numbers and three more."""
    counts = (i, *numbers.types, *columns.types)
    return len(counts) == n + 4 and all(_is_stack(k, 2) for k in (Y, C, X)) and all(k == types.intp for k in counts)


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


@helper
def copy_columns(source, target, n):
    """``target[:, :n] = source[:, :n]``; a slice would compile numba's error messages about shapes as well."""
    for i in range(source.shape[0]):
        for j in range(n):
            target[i, j] = source[i, j]


@intrinsic
def scale_row(typing_context, Y, i, factor, first, last):
    """``Y[i, first:last] *= factor``, ``last − first`` a multiple of four.

    In vectors as long as those that have just written the row: of a plain loop the compiler makes longer ones, which
    would have to wait until all that was written has reached the cache.
    """
    if not (_is_stack(Y, 2) and factor == types.float64 and all(k == types.intp for k in (i, first, last))):
        return None

    def code(context, builder, signature, arguments):
        (data, width), (_, row, number, start, stop) = _matrix(context, builder, Y, arguments[0]), arguments
        target, factors = builder.gep(data, [builder.mul(row, width)]), _splat(builder, number)
        with cgutils.for_range_slice(builder, start, stop, ir.Constant(row.type, 4), row.type) as (j, _):
            _store(builder, builder.fmul(_load(builder, target, j), factors), target, j)
        return context.get_dummy_value()

    return types.none(Y, i, factor, first, last), code


@helper
def clear(x):
    """Set all of ``x`` to zero."""
    x.fill(0.0)
