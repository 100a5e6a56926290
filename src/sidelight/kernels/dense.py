"""Products, symmetric eigenvalues and orthogonal factors of small dense matrices, in a fixed order of operations.

BLAS and LAPACK choose blocks and fused instructions by processor; these loops do not, so results have the same bits
everywhere.  Inner loops run along rows and add nothing up, so that the compiler may use vectors without reordering.
"""

from __future__ import annotations

import math

import numpy as np

from sidelight.kernels.compiled import helper, kernel
from sidelight.kernels.elimination import copy_columns, subtract_four
from sidelight.kernels.simd import clear
from sidelight.kernels.spd import padded

__all__ = ["householder", "multiply", "orthogonalize_rows", "symmetric_eigen"]


@kernel
def multiply(A, B, out):  # type: ignore[no-untyped-def]
    """``out[n] = A[n] B[n]``; a stack of one matrix serves all ``n``.

    A: (n or 1, i, k)   B: (n or 1, k, j)   out: (n, i, j).  Every entry adds its ``k`` products in order.
    """
    n, rows, columns = out.shape
    inner = A.shape[2]
    # padded with zeros to multiples of four rows and eight columns, which are added up in registers
    width = padded(columns)
    left, right = np.zeros(((rows + 3) & ~3, inner)), np.zeros((inner, width))
    negative = np.empty((left.shape[0], width))
    for a in range(n):
        if a == 0 or A.shape[0] > 1:
            for i in range(rows):
                for k in range(inner):
                    left[i, k] = A[a, i, k]
        if a == 0 or B.shape[0] > 1:
            copy_columns(B[a], right, columns)
        clear(negative)
        for i in range(0, rows, 4):
            subtract_four(negative, i, left, (i * inner, inner, 1, 0, inner), right, (0, 0, width))
        for i in range(rows):
            for j in range(columns):
                out[a, i, j] = -negative[i, j]


@helper
def _tridiagonal(V, d, e):  # type: ignore[no-untyped-def]
    """Householder reduction of the symmetric ``V`` to diagonal ``d`` and subdiagonal ``e[1:]``; ``V`` becomes ``Q``.

    As ``tred2`` of EISPACK (Bowdler, Martin, Reinsch and Wilkinson 1968).  V: (n, n)   d, e: (n,)
    """
    n = d.shape[0]
    for j in range(n):
        d[j] = V[n - 1, j]
    for i in range(n - 1, 0, -1):
        scale = 0.0
        h = 0.0
        for k in range(i):
            scale += abs(d[k])
        if scale == 0.0:
            e[i] = d[i - 1]
            for j in range(i):
                d[j] = V[i - 1, j]
                V[i, j] = 0.0
                V[j, i] = 0.0
        else:
            for k in range(i):
                d[k] /= scale
                h += d[k] * d[k]
            f = d[i - 1]
            g = -math.sqrt(h) if f > 0.0 else math.sqrt(h)
            e[i] = scale * g
            h -= f * g
            d[i - 1] = f - g
            for j in range(i):
                e[j] = 0.0
            for j in range(i):
                f = d[j]
                V[j, i] = f
                g = e[j] + V[j, j] * f
                for k in range(j + 1, i):
                    g += V[k, j] * d[k]
                    e[k] += V[k, j] * f
                e[j] = g
            f = 0.0
            for j in range(i):
                e[j] /= h
                f += e[j] * d[j]
            hh = f / (h + h)
            for j in range(i):
                e[j] -= hh * d[j]
            for j in range(i):
                f = d[j]
                g = e[j]
                for k in range(j, i):
                    V[k, j] -= f * e[k] + g * d[k]
                d[j] = V[i - 1, j]
                V[i, j] = 0.0
        d[i] = h
    for i in range(n - 1):
        V[n - 1, i] = V[i, i]
        V[i, i] = 1.0
        h = d[i + 1]
        if h != 0.0:
            for k in range(i + 1):
                d[k] = V[k, i + 1] / h
            for j in range(i + 1):
                g = 0.0
                for k in range(i + 1):
                    g += V[k, i + 1] * V[k, j]
                for k in range(i + 1):
                    V[k, j] -= g * d[k]
        for k in range(i + 1):
            V[k, i + 1] = 0.0
    for j in range(n):
        d[j] = V[n - 1, j]
        V[n - 1, j] = 0.0
    V[n - 1, n - 1] = 1.0
    e[0] = 0.0


@helper
def _hypotenuse(a, b):  # type: ignore[no-untyped-def]
    """``√(a² + b²)`` without overflow."""
    a, b = abs(a), abs(b)
    large, small = max(a, b), min(a, b)
    if large == 0.0:
        return 0.0
    ratio = small / large
    return large * math.sqrt(1.0 + ratio * ratio)


@helper
def _implicit_ql(W, d, e):  # type: ignore[no-untyped-def]
    """Eigenvalues into ``d``, ascending, and eigenvectors as the *rows* of ``W``, of a tridiagonal matrix.

    As ``tql2`` of EISPACK, with vectors in rows, so that a rotation reads memory in order.  W holds ``Qᵀ`` at first.
    """
    n = d.shape[0]
    for i in range(1, n):
        e[i - 1] = e[i]
    e[n - 1] = 0.0
    f = 0.0
    largest = 0.0
    for at in range(n):
        largest = max(largest, abs(d[at]) + abs(e[at]))
        m = at
        while m < n - 1 and abs(e[m]) > 2.220446049250313e-16 * largest:
            m += 1
        turns = 0
        while m > at and turns < 60:
            turns += 1
            g = d[at]
            p = (d[at + 1] - g) / (2.0 * e[at])
            r = _hypotenuse(p, 1.0)
            r = -r if p < 0.0 else r
            d[at] = e[at] / (p + r)
            d[at + 1] = e[at] * (p + r)
            first = d[at + 1]
            h = g - d[at]
            for i in range(at + 2, n):
                d[i] -= h
            f += h
            p = d[m]
            c = c2 = c3 = 1.0
            s = s2 = 0.0
            second = e[at + 1]
            for i in range(m - 1, at - 1, -1):
                c3, c2, s2 = c2, c, s
                g = c * e[i]
                h = c * p
                r = _hypotenuse(p, e[i])
                e[i + 1] = s * r
                s = e[i] / r
                c = p / r
                p = c * d[i] - s * g
                d[i + 1] = h + s * (c * g + s * d[i])
                low, high = W[i], W[i + 1]
                for k in range(n):
                    h = high[k]
                    high[k] = s * low[k] + c * h
                    low[k] = c * low[k] - s * h
            p = -s * s2 * c3 * second * e[at] / first
            e[at] = s * p
            d[at] = c * p
            if not abs(e[at]) > 2.220446049250313e-16 * largest:
                break
        d[at] += f
        e[at] = 0.0
    for i in range(n - 1):
        k = i
        for j in range(i + 1, n):
            if d[j] < d[k]:
                k = j
        if k != i:
            d[i], d[k] = d[k], d[i]
            for j in range(n):
                W[i, j], W[k, j] = W[k, j], W[i, j]


@kernel
def symmetric_eigen(A, values, vectors):  # type: ignore[no-untyped-def]
    """``A[a] = vectors[a] diag(values[a]) vectors[a]ᵀ``, values ascending; the lower triangle of ``A`` is not read.

    A: (K, n, n) finite   values: (K, n)   vectors: (K, n, n), in columns
    """
    K, n, _ = A.shape
    V, W = np.empty((n, n)), np.empty((n, n))
    e = np.empty(n)
    for a in range(K):
        if n == 0:
            continue
        for i in range(n):
            for j in range(i, n):
                V[i, j] = A[a, i, j]
                V[j, i] = A[a, i, j]
        _tridiagonal(V, values[a], e)
        for i in range(n):
            for j in range(n):
                W[i, j] = V[j, i]
        _implicit_ql(W, values[a], e)
        for i in range(n):
            for j in range(n):
                vectors[a, i, j] = W[j, i]


@kernel
def householder(A, Q, R):  # type: ignore[no-untyped-def]
    """``A[a] = Q[a] R[a]`` by Householder reflections, with LAPACK's signs.

    A: (K, n, p)   Q: (K, n, q) the first ``q ≤ n`` columns of the orthogonal factor, q = 0 for none
    R: (K, min(n, p), p), zero below the diagonal
    """
    K, n, p = A.shape
    q = Q.shape[2]
    steps = min(n, p)
    # in rows, so that reflections read memory in order
    columns = np.empty((p, n))
    heads, diagonal, target = np.empty(steps), np.empty(steps), np.empty(n)
    for a in range(K):
        clear(heads)
        clear(diagonal)
        for i in range(n):
            for j in range(p):
                columns[j, i] = A[a, i, j]
        for k in range(steps):
            v = columns[k]
            largest = 0.0
            for i in range(k, n):
                largest = max(largest, abs(v[i]))
            if largest == 0.0:
                continue
            total = 0.0
            for i in range(k, n):
                v[i] /= largest
                total += v[i] * v[i]
            norm = math.sqrt(total)
            norm = norm if v[k] >= 0.0 else -norm
            # v becomes the reflector, scaled so that 2vvᵀ/vᵀv = vvᵀ/(norm · v_k)
            v[k] += norm
            heads[k] = norm * v[k]
            for j in range(k + 1, p):
                _reflect(v, heads[k], k, columns[j])
            diagonal[k] = -norm * largest
        for j in range(steps):
            for k in range(p):
                R[a, j, k] = columns[k, j] if j < k else (diagonal[j] if j == k else 0.0)
        for j in range(q):
            for i in range(n):
                target[i] = 0.0
            target[j] = 1.0
            for k in range(steps - 1, -1, -1):
                if heads[k] != 0.0:
                    _reflect(columns[k], heads[k], k, target)
            for i in range(n):
                Q[a, i, j] = target[i]


@helper
def _reflect(v, head, k, target):  # type: ignore[no-untyped-def]
    """``target −= v (v·target)/head`` over the entries from ``k`` on."""
    total = 0.0
    for i in range(k, v.shape[0]):
        total += v[i] * target[i]
    total /= head
    for i in range(k, v.shape[0]):
        target[i] -= total * v[i]


@kernel
def orthogonalize_rows(W, J):  # type: ignore[no-untyped-def]
    """Rotate rows of ``W`` until all are orthogonal; ``J`` takes part, so that ``JᵀW`` stays what it was.

    One-sided Jacobi (Hestenes 1958): rows end up as singular values times right singular vectors; with ``J = I``
    at first the rows of ``J`` as left ones.  Small singular values keep their digits.  W: (n, d)   J: (n, n)
    """
    n, d = W.shape
    for _ in range(60):
        turned = False
        for i in range(n - 1):
            for j in range(i + 1, n):
                first, second, across = 0.0, 0.0, 0.0
                for k in range(d):
                    first += W[i, k] * W[i, k]
                    second += W[j, k] * W[j, k]
                    across += W[i, k] * W[j, k]
                if not abs(across) > 1e-16 * math.sqrt(first) * math.sqrt(second):
                    continue
                turned = True
                zeta = (second - first) / (2.0 * across)
                t = 1.0 / (abs(zeta) + math.sqrt(1.0 + zeta * zeta))
                t = -t if zeta < 0.0 else t
                c = 1.0 / math.sqrt(1.0 + t * t)
                s = c * t
                for k in range(d):
                    low = W[i, k]
                    W[i, k] = c * low - s * W[j, k]
                    W[j, k] = s * low + c * W[j, k]
                for k in range(n):
                    low = J[i, k]
                    J[i, k] = c * low - s * J[j, k]
                    J[j, k] = s * low + c * J[j, k]
        if not turned:
            break
