"""The inner loops of the log pass: rows grouped by arm, Gram matrices in well-conditioned coordinates.

A Gram matrix of raw columns squares their condition number and loses half the digits. Here the columns are first
divided by a triangular factor ``P`` of rows seen earlier, ``W = A P⁻¹``, whose columns are nearly orthonormal: then
``WᵀW`` and its Cholesky factor ``C`` are accurate, and ``C P`` is the triangular factor of ``A`` as accurately as a
Householder QR would give it, at the speed of matrix products.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from sidelight.kernels.compiled import helper, kernel

__all__ = ["fold_gram", "group_rows", "preconditioned_grams"]

# Rows of one product: few enough for the first cache, many enough for a matrix product to pay.
_TILE = 64


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """A column's address as a pointer to its numbers."""
    signature: Any = types.CPointer(types.float64)(types.uintp)  # type: ignore[no-untyped-call]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return signature, generate


_as_pointer: Any = _pointer


@kernel
def group_rows(codes: np.ndarray, n_arms: int, span: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each row goes when every stretch of ``span`` rows is sorted by arm, order kept within an arm.

    Args:
        codes: (n,) int64, the arm of each row, negative for a row to leave out.
        n_arms: ``K``.
        span: the rows of a stretch.

    Returns:
        ``positions`` (n,) int32 within the stretch, and ``starts`` (stretches, K+1): arm ``a`` of a stretch lies at
        ``starts[a] .. starts[a+1]``; rows left out lie after the last arm.
    """
    n = codes.shape[0]
    stretches = (n + span - 1) // span
    positions = np.empty(n, dtype=np.int32)
    starts = np.zeros((stretches, n_arms + 1), dtype=np.int64)
    fill = np.empty(n_arms + 1, dtype=np.int64)
    for s in range(stretches):
        first, last = s * span, min(n, (s + 1) * span)
        begin = starts[s]
        for t in range(first, last):
            if codes[t] >= 0:
                begin[codes[t] + 1] += 1
        for a in range(n_arms):
            begin[a + 1] += begin[a]
        for a in range(n_arms + 1):
            fill[a] = begin[a]
        for t in range(first, last):
            # The rows left out fill up from the end of the last arm.
            arm = codes[t] if codes[t] >= 0 else n_arms
            positions[t] = fill[arm]
            fill[arm] += 1
    return positions, starts


@helper
def _divide_rows(P: np.ndarray, tile: np.ndarray) -> None:
    """``tile`` (q, T), one column of ``A`` per row, becomes ``A P⁻¹``: column by column, by substitution."""
    q, T = P.shape[0], tile.shape[1]
    for j in range(q):
        target = tile[j]
        i = 0
        # Eight columns at a time: one load and store of the target for eight products.
        while i + 8 <= j:
            p0, p1, p2, p3 = P[i, j], P[i + 1, j], P[i + 2, j], P[i + 3, j]
            p4, p5, p6, p7 = P[i + 4, j], P[i + 5, j], P[i + 6, j], P[i + 7, j]
            t0, t1, t2, t3 = tile[i], tile[i + 1], tile[i + 2], tile[i + 3]
            t4, t5, t6, t7 = tile[i + 4], tile[i + 5], tile[i + 6], tile[i + 7]
            for t in range(T):
                target[t] -= ((p0 * t0[t] + p1 * t1[t]) + (p2 * t2[t] + p3 * t3[t])) + (
                    (p4 * t4[t] + p5 * t5[t]) + (p6 * t6[t] + p7 * t7[t])
                )
            i += 8
        while i < j:
            p = P[i, j]
            source = tile[i]
            for t in range(T):
                target[t] -= p * source[t]
            i += 1
        reciprocal = 1.0 / P[j, j]
        for t in range(T):
            target[t] *= reciprocal


@kernel
def preconditioned_grams(
    addresses: np.ndarray,
    n_rows: int,
    positions: np.ndarray,
    starts: np.ndarray,
    span: int,
    bases: np.ndarray,
    use: np.ndarray,
) -> np.ndarray:
    """Per arm ``[W | 1]ᵀ[W | 1]`` with ``W = A P⁻¹``, over the rows of one batch.

    Args:
        addresses: (q,) where each column's ``n_rows`` float64 numbers lie; the caller keeps them alive.
        n_rows: ``n``.
        positions: (n,) from :func:`group_rows`.
        starts: (stretches, K+1) from :func:`group_rows`.
        span: the rows of a stretch.
        bases: (K, q, q) the triangular ``P`` of each arm, nonzero diagonal.
        use: (K,) which arms to compute.

    Returns:
        (K, q+1, q+1); the last row holds the column sums of ``W``. Not finite where a value of the arm is not.
    """
    q = addresses.shape[0]
    n_arms = starts.shape[1] - 1
    grams = np.zeros((n_arms, q + 1, q + 1))
    grouped = np.empty((q, span))
    tile = np.zeros((q + 1, _TILE))
    product = np.empty((q + 1, q + 1))
    for s in range(starts.shape[0]):
        first, last = s * span, min(n_rows, (s + 1) * span)
        # Columns are read in order and scattered by arm: each stretch stays in the cache.
        for j in range(q):
            column = carray(_as_pointer(addresses[j]), n_rows)
            target = grouped[j]
            for t in range(first, last):
                target[positions[t]] = column[t]
        for a in range(n_arms):
            if not use[a]:
                continue
            for low in range(starts[s, a], starts[s, a + 1], _TILE):
                m = min(_TILE, starts[s, a + 1] - low)
                for j in range(q):
                    for t in range(m):
                        tile[j, t] = grouped[j, low + t]
                    for t in range(m, _TILE):
                        tile[j, t] = 0.0
                for t in range(_TILE):
                    tile[q, t] = 1.0 if t < m else 0.0
                _divide_rows(bases[a], tile[:q])
                np.dot(tile, tile.T, product)
                for i in range(q + 1):
                    for j in range(q + 1):
                        grams[a, i, j] += product[i, j]
    return grams


@kernel
def fold_gram(R: np.ndarray, P: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """The triangular factor of ``RᵀR + Pᵀ gram P``, with nonnegative diagonal.

    ``RᵀR + Pᵀ gram P = Pᵀ(ZᵀZ + gram)P`` with ``Z = R P⁻¹``; with the Cholesky factor ``C`` of the middle, the
    result is ``C P``. A pivot that rounding made negative belongs to a column that repeats others: its row is zero.

    Args:
        R: (q, q) what is known so far, upper triangular (zeros if nothing is).
        P: (q, q) upper triangular, nonzero diagonal.
        gram: (q, q) symmetric.
    """
    q = R.shape[0]
    Z, middle, folded = np.empty((q, q)), np.empty((q, q)), np.zeros((q, q))
    for i in range(q):
        for j in range(q):
            Z[i, j] = R[i, j]
            middle[i, j] = gram[i, j]
    for j in range(q):
        for i in range(j):
            p = P[i, j]
            for r in range(i + 1):
                Z[r, j] -= Z[r, i] * p
        for r in range(j + 1):
            Z[r, j] /= P[j, j]
    for i in range(q):
        for j in range(i, q):
            total = 0.0
            for r in range(i + 1):
                total += Z[r, i] * Z[r, j]
            middle[i, j] += total
    for i in range(q):
        scale = middle[i, i]
        for r in range(i):
            scale -= middle[r, i] * middle[r, i]
        if scale <= 0.0:
            for j in range(i, q):
                middle[i, j] = 0.0
            continue
        root = math.sqrt(scale)
        middle[i, i] = root
        for j in range(i + 1, q):
            total = middle[i, j]
            for r in range(i):
                total -= middle[r, i] * middle[r, j]
            middle[i, j] = total / root
    for i in range(q):
        for r in range(i, q):
            c = middle[i, r]
            for j in range(r, q):
                folded[i, j] += c * P[r, j]
    return folded
