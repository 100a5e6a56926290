"""Linear algebra that gives the same bits on every processor, and the algebra of side information: pure functions.

``product``, ``inverse``, ``solve``, ``log_det``, ``symmetric_eigen``, ``pseudo_inverse``, ``orthogonal``, ``triangle``
and ``log``, ``exp``, ``log1p``, ``power``, ``log_gamma``, ``chi_square_tail`` run compiled loops of
``kernels`` in a fixed order, ``square`` is one multiplication, and ``in_order`` adds one array after the other.
Everything that a learner computes when it observes, answers or refreshes uses these, never BLAS, LAPACK or the C
library.

Notation (one arm): ``M`` is ``(L, d)``, ``m = d − L``, ``N`` is a ``(d, m)`` basis of the kernel of ``M``.
"""

from __future__ import annotations

import functools
import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from sidelight.arrays import Array
from sidelight.kernels import dense, elementary, spd

__all__ = [
    "Array",
    "apply",
    "chi_square_tail",
    "eigenvalues",
    "exp",
    "in_order",
    "inverse",
    "kernel_of",
    "kernel_of_structured",
    "log",
    "log1p",
    "log_det",
    "log_gamma",
    "orthogonal",
    "orthonormal_kernel_of_structured",
    "power",
    "product",
    "pseudo_inverse",
    "singular_values",
    "solve",
    "solve_upper",
    "square",
    "structured_pseudo_inverse",
    "symmetric_eigen",
    "symmetrize",
    "triangle",
]

Numbers = TypeVar("Numbers", float, Array)


# ------------------------------------------------------------------------------- the same bits everywhere


def _own(A: ArrayLike) -> Array:
    """``A`` as a contiguous, writable float64 array, copied if it is not one: kernels are compiled for these only."""
    array = np.ascontiguousarray(A, dtype=np.float64)
    return array if array.flags.writeable else array.copy()


def _stack(A: ArrayLike) -> tuple[Array, tuple[int, ...]]:
    """``A`` (…, i, j) as a contiguous stack (n, i, j), and the leading shape."""
    array = _own(A)
    lead = array.shape[:-2]
    return array.reshape(math.prod(lead), *array.shape[-2:]), lead


def _common_lead(A: Array, B: Array) -> tuple[int, ...]:
    """The broadcast leading shape of two stacks of matrices; equal shapes skip NumPy's slower ``broadcast_shapes``."""
    if A.ndim == 2:
        return B.shape[:-2]
    lead = A.shape[:-2]
    return lead if B.ndim == 2 or B.shape[:-2] == lead else np.broadcast_shapes(lead, B.shape[:-2])


def _repeated(A: Array, lead: tuple[int, ...], n: int) -> Array:
    """``A`` as a contiguous stack (n, i, j) of the leading shape, or (1, i, j): one matrix serves a whole stack."""
    if A.ndim == 2:
        return _own(A)[None]
    own = A.shape[:-2]
    if math.prod(own) == 1:
        n = 1
    elif own != lead:
        A = np.broadcast_to(A, (*lead, *A.shape[-2:]))
    return _own(A).reshape(n, *A.shape[-2:])


def product(A: ArrayLike, B: ArrayLike) -> Array:
    """``A @ B`` with every entry added up in the order of the inner index; shapes as in ``numpy.matmul``.

    Args:
        A: (…, i, k), or (k,) for a row.
        B: (…, k, j), or (k,) for a column; leading axes are broadcast.
    """
    left, right = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    row, column = left.ndim == 1, right.ndim == 1
    left = left[None, :] if row else left
    right = right[:, None] if column else right
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(f"shapes {np.shape(A)} and {np.shape(B)} do not fit: the inner lengths differ.")
    if left.ndim == 2 and right.ndim == 2 and left.size and right.size:
        # most calls, in two thirds of the time: the shapes of stacks cost more than a product of small matrices
        one = np.empty((1, len(left), right.shape[1]))
        dense.multiply(_own(left)[None], _own(right)[None], one)
        if row:
            return one[0, 0, 0, ...] if column else one[0, 0]
        return one[0, :, 0] if column else one[0]
    lead = _common_lead(left, right)
    n = math.prod(lead)
    out = np.empty((n, left.shape[-2], right.shape[-1]))
    if out.size:
        if left.shape[-1]:
            dense.multiply(_repeated(left, lead, n), _repeated(right, lead, n), out)
        else:
            out[...] = 0.0
    if len(lead) != 1:
        out = out.reshape(*lead, *out.shape[1:])
    if row:
        out = out[..., 0, :]
    if column:
        out = out[..., 0]
    return out


def apply(A: ArrayLike, v: ArrayLike) -> Array:
    """``A v`` for stacks of matrices and vectors.  A: (…, i, k)   v: (…, k); leading axes are broadcast → (…, i)"""
    return product(A, np.asarray(v, dtype=np.float64)[..., None])[..., 0]


def solve_upper(R: Array, y: Array) -> Array:
    """``R⁻¹y`` by substitution.  R: (k, k) upper triangular, nonzero diagonal   y: (k,)"""
    x = np.array(y, dtype=np.float64)
    for i in range(len(x) - 1, -1, -1):
        x[i] = (x[i] - (R[i, i + 1 :] * x[i + 1 :]).sum()) / R[i, i]
    return x


def _not_definite() -> np.linalg.LinAlgError:
    return np.linalg.LinAlgError("The matrix is not positive definite.")


def inverse(A: ArrayLike) -> Array:
    """``A⁻¹`` (…, m, m) of symmetric positive definite matrices, symmetric to the bit; else LinAlgError."""
    stack, lead = _stack(A)
    out = np.empty_like(stack)
    if out.size:
        log_dets = np.empty(len(stack))
        spd.invert_stack(stack, out, log_dets)
        if np.isnan(log_dets).any():
            raise _not_definite()
    return out.reshape(*lead, *stack.shape[1:])


def solve(A: ArrayLike, B: ArrayLike) -> Array:
    """``A⁻¹B`` for symmetric positive definite ``A``; else LinAlgError.

    Args:
        A: (…, m, m).
        B: (…, m, n), or (m,) for one right side; leading axes are broadcast.
    """
    right = np.asarray(B, dtype=np.float64)
    vector = right.ndim == 1
    out, log_dets = solve_with_log_det(A, right[:, None] if vector else right)
    if np.isnan(log_dets).any():
        raise _not_definite()
    return out[..., 0] if vector else out


def solve_with_log_det(A: ArrayLike, B: ArrayLike) -> tuple[Array, Array]:
    """``A⁻¹B`` (…, m, n) and ``log det A`` (…) of symmetric positive definite matrices; NaN where one is not.

    A: (…, m, m)   B: (…, m, n), leading axes are broadcast
    """
    left, right = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    lead = _common_lead(left, right)
    lefts = _stack(left if left.shape[:-2] == lead else np.broadcast_to(left, (*lead, *left.shape[-2:])))[0]
    whole = right if right.shape[:-2] == lead else np.broadcast_to(right, (*lead, *right.shape[-2:]))
    out, log_dets = np.array(whole, order="C"), np.zeros(len(lefts))
    if out.size:
        spd.solve_stack(lefts, out.reshape(len(lefts), *out.shape[-2:]), log_dets)
    return out, log_dets.reshape(lead)


def log_det(A: ArrayLike) -> Array:
    """``log det A`` (…) of symmetric positive definite matrices; NaN where one is not."""
    stack, lead = _stack(A)
    out = np.zeros(len(stack))
    if stack.size:
        spd.solve_stack(stack, np.empty((*stack.shape[:2], 0)), out)
    return out.reshape(lead)


def symmetric_eigen(A: ArrayLike) -> tuple[Array, Array]:
    """Eigenvalues (…, n), ascending, and eigenvectors (…, n, n) in columns, of symmetric matrices.

    Householder reduction and implicit QL; the upper triangle is read.
    """
    stack, lead = _stack(A)
    values, vectors = np.empty(stack.shape[:2]), np.empty_like(stack)
    if not np.isfinite(stack).all():
        raise np.linalg.LinAlgError("The matrix has entries that are not finite.")
    if stack.size:
        dense.symmetric_eigen(stack, values, vectors)
    return values.reshape(*lead, *values.shape[1:]), vectors.reshape(*lead, *vectors.shape[1:])


def eigenvalues(A: ArrayLike) -> Array:
    """Eigenvalues (…, n), ascending, of symmetric matrices."""
    return symmetric_eigen(A)[0]


def pseudo_inverse(A: ArrayLike, rcond: float = 1e-15) -> Array:
    """``A⁺`` (…, n, n) of Gram matrices and covariances; eigenvalues below ``rcond`` of the largest count as zero.

    Negative ones count as zero too: a positive semidefinite matrix has none, so they are rounding errors, and their
    inverses would make the result indefinite, which no precision matrix is.
    """
    values, vectors = symmetric_eigen(A)
    if values.size == 0:
        return np.zeros_like(vectors)
    kept = values > rcond * np.abs(values).max(axis=-1, keepdims=True)
    inverted = np.where(kept, 1.0 / np.where(kept, values, 1.0), 0.0)
    return product(vectors * inverted[..., None, :], np.swapaxes(vectors, -1, -2))


def orthogonal(A: ArrayLike, complete: bool = False) -> Array:
    """``Q`` of ``A = QR``: (…, n, min(n, p)), or all of (…, n, n), whose further columns are orthogonal to ``A``'s.

    Args:
        A: (…, n, p).
        complete: whether to return a whole basis.
    """
    stack, lead = _stack(A)
    K, n, p = stack.shape
    Q, R = np.zeros((K, n, n if complete else min(n, p))), np.empty((K, min(n, p), p))
    if K and n:
        dense.householder(stack, Q, R)
    return Q.reshape(*lead, *Q.shape[1:])


def triangle(A: ArrayLike) -> Array:
    """``R`` (…, min(n, p), p) of ``A = QR``, upper triangular, its rows with LAPACK's signs.  A: (…, n, p)"""
    stack, lead = _stack(A)
    K, n, p = stack.shape
    R = np.zeros((K, min(n, p), p))
    if R.size:
        dense.householder(stack, np.empty((K, n, 0)), R)
    return R.reshape(*lead, *R.shape[1:])


def singular_values(M: ArrayLike) -> tuple[Array, Array, Array]:
    """``M = left · diag(σ) · right`` with ``σ`` (n,) descending.  M: (n, d)   left: (n, n)   right: (n, d)

    Rows of ``right`` that belong to ``σ = 0`` are zero; by Jacobi's method, which keeps the digits of small ``σ``.
    """
    W = np.array(M, dtype=np.float64)
    J = np.eye(len(W))
    if not np.isfinite(W).all():
        raise np.linalg.LinAlgError("The matrix has entries that are not finite.")
    scale = float(np.abs(W).max(initial=0.0))
    if scale > 0:
        W /= scale
        dense.orthogonalize_rows(W, J)
    sigma = np.sqrt(np.square(W).sum(axis=1))
    order = np.argsort(-sigma, kind="stable")
    right = (W / np.where(sigma > 0, sigma, 1.0)[:, None])[order]
    return np.ascontiguousarray(J[order].T), scale * sigma[order], right


def _elementwise(kind: int, x: ArrayLike, y: ArrayLike) -> Any:
    """A function of ``kernels.elementary`` over broadcast arrays; a float where all arguments are numbers."""
    left, right = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if left.shape != right.shape:
        left, right = np.broadcast_arrays(left, right)
    out = np.empty(left.size)
    elementary.elementwise(kind, _own(left).reshape(-1), _own(right).reshape(-1), out)
    return out.reshape(left.shape) if left.ndim else float(out[0])


def _one_by_one(kind: int, x: ArrayLike) -> Any:
    """A function of one argument of ``kernels.elementary``, entry by entry; a float if ``x`` is a number."""
    values = np.asarray(x, dtype=np.float64)
    flat, out = _own(values).reshape(-1), np.empty(values.size)
    elementary.elementwise(kind, flat, flat, out)
    return out.reshape(values.shape) if values.ndim else float(out[0])


def log(x: ArrayLike) -> Any:
    """Natural logarithm of a number or of every entry; −∞ at 0, NaN below."""
    return _log_of_number(float(x)) if isinstance(x, int | float) else _one_by_one(elementary.LOG, x)


@functools.lru_cache(maxsize=4096)
def _log_of_number(x: float) -> float:
    """Natural logarithm of one number by the kernel's operations in plain Python, so that nothing has to be compiled.

    Cached, because the search for a prior needs the same few hundred numbers thousands of times.
    """
    return float(elementary.log(x))


def log1p(x: ArrayLike) -> Any:
    """``log(1 + x)`` of a number or of every entry, accurate also near 0."""
    return _one_by_one(elementary.LOG1P, x)


def exp(x: ArrayLike) -> Any:
    """``e`` to the power of a number or of every entry."""
    return _one_by_one(elementary.EXP, x)


def power(x: ArrayLike, y: ArrayLike) -> Any:
    """``x`` to the power ``y``, for ``x ≥ 0``; numbers or arrays."""
    return _elementwise(elementary.POWER, x, y)


def square(x: Numbers) -> Numbers:
    """``x·x``.  Python takes ``x**2`` of a number from the C library, whose last bit depends on the processor."""
    return x * x


def in_order(A: Array) -> Array:
    """``Σ_a A_a`` over the first axis, added up in order, so that no processor adds in another one.  (n, …), n ≥ 1"""
    total: Array = A[0].copy()
    for part in A[1:]:
        total += part
    return total


def log_gamma(x: ArrayLike) -> Any:
    """``log Γ(x)`` for ``x > 0``, of a number or of every entry."""
    return _one_by_one(elementary.LOG_GAMMA, x)


def chi_square_tail(x: ArrayLike, freedom: ArrayLike) -> Any:
    """``P(χ² > x)`` with ``freedom`` degrees of freedom; numbers or arrays."""
    return _elementwise(elementary.CHI_SQUARE_TAIL, x, freedom)


# ---------------------------------------------------------------------------------------- side information


def symmetrize(A: Array) -> Array:
    """``(A + Aᵀ)/2`` over the last two axes: removes the asymmetry that rounding leaves in a Gram matrix."""
    return np.asarray((A + np.swapaxes(A, -1, -2)) / 2.0)


def kernel_of_structured(B: Array) -> Array:
    """``N = [−B; I]``, a basis of the kernel of ``[I, B]``.  B: (…, L, m) → N: (…, L + m, m).

    No pseudo-inverse and no orthogonalisation: ``[I, B] N = −B + B = 0`` by construction, and
    ``Nᵀx = x_h − Bᵀx_o``.  For any positive definite V, ``(PVP)† = N(NᵀVN)⁻¹Nᵀ`` with
    ``P = I − M†M``, whichever basis N of the kernel is taken.
    """
    m = B.shape[-1]
    identity = np.broadcast_to(np.eye(m), (*B.shape[:-2], m, m))
    return np.concatenate([-B, identity], axis=-2)


def orthonormal_kernel_of_structured(B: Array) -> Array:
    """``U``: an orthonormal basis of the kernel of ``[I, B]``.  B: (…, L, m) → U: (…, L + m, m).

    An estimated B may be huge (a handful of answers weighted by ``1/P(a)``), and ``NᵀN = I + BᵀB`` then squares its
    size: the digits of ``(NᵀVN)⁻¹`` are lost.  With U the matrix is as well conditioned as V.

    With ``[−B; I] = UT`` it is ``U = [−B; I]T⁻¹``, computed by substitution, so that each entry is accurate relative to
    its own size: a basis that is orthonormal to the last digit would lose the digits of a tiny B, such as that of a
    feature whose unit is not known yet.
    """
    T = triangle(kernel_of_structured(B))
    m = B.shape[-1]
    lower = np.zeros_like(T)
    for i in range(m - 1, -1, -1):
        lower[..., i, i] = 1.0
        if i + 1 < m:
            lower[..., i, :] -= product(T[..., i : i + 1, i + 1 :], lower[..., i + 1 :, :])[..., 0, :]
        lower[..., i, :] /= T[..., i, i, None]
    return np.concatenate([-product(B, lower), lower], axis=-2)


def structured_pseudo_inverse(B: Array) -> Array:
    """``M† = [I; Bᵀ](I + BBᵀ)⁻¹`` for ``M = [I, B]``.  B: (L, m) → M†: (L + m, L).

    Computed as ``(I − UUᵀ)[I; 0]`` with an orthonormal basis ``U`` of the kernel, since ``M†M = I − UUᵀ`` and
    ``M[I; 0] = I``: ``I + BBᵀ`` would lose its ``I`` where ``B`` is large, as it is for features of very different
    units.
    """
    L = B.shape[0]
    U = orthogonal(kernel_of_structured(B))
    return np.concatenate([np.eye(L), np.zeros((B.shape[1], L))]) - product(U, U[:L].T)


def kernel_of(M: Array, b: Array, rtol: float | None = None) -> tuple[int, Array, Array, float]:
    """Rank, kernel basis and anchor of any ``M w = b``, by one singular value decomposition.

    Args:
        M: (L, d)  rows may be dependent.
        b: (L,)
        rtol: singular values below ``rtol · σ_max`` count as zero; default ``max(L, d) · ε``.

    Returns:
        rank: the number of independent rows.
        U: (d, d − rank)  orthonormal basis of the kernel.
        anchor: (d,)  ``M†b``, the shortest solution.
        contradiction: ``‖M M†b − b‖``; not small means that no ``w`` satisfies all rows.
    """
    L, d = M.shape
    if L == 0:
        return 0, np.eye(d), np.zeros(d), 0.0
    left, sigma, right = singular_values(M)
    if rtol is None:
        rtol = max(L, d) * float(np.finfo(np.float64).eps)
    rank = int(np.sum(sigma > rtol * sigma[0])) if sigma[0] > 0 else 0
    anchor = product(right[:rank].T, product(left[:, :rank].T, b) / sigma[:rank])
    contradiction = float(np.sqrt(np.square(product(M, anchor) - b).sum()))
    return rank, np.ascontiguousarray(orthogonal(right[:rank].T, complete=True)[:, rank:]), anchor, contradiction
