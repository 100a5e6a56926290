"""Linear algebra of side information: pure functions of arrays, no state.

Notation (one arm): ``M`` is ``(L, d)``, ``m = d − L``, ``N`` is a ``(d, m)`` basis of the kernel of ``M``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

__all__ = [
    "kernel_of",
    "kernel_of_structured",
    "orthonormal_kernel_of_structured",
    "parallel_sum",
    "structured_pseudo_inverse",
    "symmetrize",
]


def symmetrize(A: Array) -> Array:
    """``(A + Aᵀ)/2`` over the last two axes: rounding must not make a Gram matrix lopsided."""
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
    """
    return np.asarray(np.linalg.qr(kernel_of_structured(B))[0])


def structured_pseudo_inverse(B: Array) -> Array:
    """``M† = [I; Bᵀ](I + BBᵀ)⁻¹`` for ``M = [I, B]``.  B: (L, m) → M†: (L + m, L).

    ``I + BBᵀ`` has eigenvalues of at least one, so the solve is safe for every B and ``‖M†‖ ≤ 1``.
    """
    L = B.shape[0]
    stacked = np.concatenate([np.eye(L), B.T], axis=0)
    return np.asarray(np.linalg.solve(np.eye(L) + B @ B.T, stacked.T).T)


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
    from scipy.linalg import svd

    L, d = M.shape
    if L == 0:
        return 0, np.eye(d), np.zeros(d), 0.0
    # gesvd, not the divide-and-conquer driver, which has failed to converge on well-conditioned input
    left, sigma, right = svd(M, full_matrices=True, lapack_driver="gesvd")
    if rtol is None:
        rtol = max(L, d) * float(np.finfo(np.float64).eps)
    rank = int(np.sum(sigma > rtol * sigma[0])) if sigma[0] > 0 else 0
    anchor = right[:rank].T @ ((left[:, :rank].T @ b) / sigma[:rank])
    contradiction = float(np.linalg.norm(M @ anchor - b))
    return rank, np.ascontiguousarray(right[rank:].T), anchor, contradiction


def parallel_sum(A: Array, G: Array, tau2: float, s2: float) -> Array:
    """``Λ = A(τ²G + s²A)⁺G = (s²G⁻¹ + τ²A⁻¹)⁻¹``, without inverting ``A`` or ``G``.

    This is the precision of ``b − M̂w`` when the log's Gram matrix is ``G`` with noise ``s²`` and the
    queries' Gram matrix is ``A`` with noise ``τ²``.  Either may be singular: a direction that one of
    them has not seen gets precision zero.

    Args:
        A: (…, L, L)  positive semi-definite.
        G: (…, L, L)  positive semi-definite.
        tau2: ``τ²``, the variance of what the recorded features do not predict of the hidden ones' effect.
        s2: ``s²``, the residual variance of the log.
    """
    A, G = np.asarray(A, dtype=np.float64), np.asarray(G, dtype=np.float64)
    if A.shape[-1] == 0:
        return np.zeros_like(G)
    # units differ between columns: scaling to unit diagonal makes the cut-off below mean the same for all
    scale = np.sqrt(np.maximum(np.diagonal(tau2 * G + s2 * A, axis1=-2, axis2=-1), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    outer = scale[..., :, None] * scale[..., None, :]
    values, vectors = np.linalg.eigh(symmetrize((tau2 * G + s2 * A) / outer))
    cut = values.shape[-1] * np.finfo(np.float64).eps * np.maximum(values[..., -1:], 0.0)
    inverse = np.where(values > cut, 1.0 / np.where(values > cut, values, 1.0), 0.0)
    left = (A / scale[..., None, :]) @ vectors
    right = (G / scale[..., None, :]) @ vectors
    return symmetrize((left * inverse[..., None, :]) @ np.swapaxes(right, -1, -2))
