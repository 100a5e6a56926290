"""Several logs together: errors that may depend on each other in any way, weighed so that little is lost.

Logs that lack different columns learn their ``B̂`` from the same answers, so the errors ``δ_j = (B_j − B̂_j)w_h`` of one
arm are dependent.  Whatever the dependence, for shares ``α_j > 0`` with ``Σα_j = 1`` and ``D_j = Cov δ_j = τ²A⁻¹``

    Var(Σ u_jᵀδ_j) ≤ (Σ √(u_jᵀD_ju_j))² ≤ Σ u_jᵀD_ju_j/α_j     (Minkowski; Cauchy and Schwarz),

so the logs may be counted as independent ones with ``D_j/α_j`` in place of ``D_j``: covariance intersection (Julier and
Uhlmann, 1997).  Equal shares ``1/J`` would be valid and wasteful: a log that says next to nothing would double another
one's error.  The shares taken are those of most

    log det(P + Σ_jM̂_jᵀΛ_jM̂_j) + c·(mean of log α_j),

information and a weak pull ``c`` toward equal shares, arm by arm, with ``P`` what is known otherwise.  The pull decides
where the information is flat (logs of the same columns), and keeps a second opinion where a log is not what it claims.
Both terms are concave in the shares; where their sum is largest, the derivatives ``g_j`` of the first have
``g_j ≤ Σα_kg_k + c``, so that the information is at most ``c`` less than that of any of the logs alone.

With ``G = RᵀR``, ``U`` and ``δ_i`` the eigenvectors and eigenvalues of ``(τ²/s²)RA⁻¹Rᵀ``, ``n_i`` the rows of
``UᵀRM̂/s``,

    M̂ᵀΛM̂ = Σ_i n_in_iᵀ α/(α + δ_i).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sidelight.linalg import Array, inverse, product, solve, symmetric_eigen, symmetrize
from sidelight.side.evidence import LogGeometry

__all__ = ["EVENLY", "STEPS", "Directions", "error_directions", "information", "intersection_shares"]

#: steps of the search for the best shares; few suffice, since information is flat around its maximum
STEPS = 8
#: ``c``, in units of information
EVENLY = 1.0


class Directions(NamedTuple):
    """What a log says about one arm after the other, in directions whose errors are independent.

    Attributes:
        rows: (K, L, d)  ``n_i``, in the context's order.
        errors: (K, L)  ``δ_i``: the variance of the error of ``B̂`` in units of that of the log's own rows.
    """

    rows: Array
    errors: Array


def error_directions(geometry: LogGeometry, tau2: Array, s2: Array, positions: NDArray[np.int64]) -> Directions:
    """The directions of one log.

    Args:
        geometry: the log and the answers about it.
        tau2: (K,)  ``τ²``.
        s2: (K,)  ``s²``; an infinite one means that the log says nothing.
        positions: (d,)  its features, recorded first, as positions in the context.
    """
    R, (K, L, m) = geometry.R, geometry.B.shape
    errors, turned = np.zeros((K, L)), R
    if len(geometry.A):
        values, vectors = symmetric_eigen(symmetrize(product(R, solve(geometry.A, np.swapaxes(R, 1, 2)))))
        errors = np.maximum(values, 0.0) * (tau2 / s2)[:, None]
        turned = product(np.swapaxes(vectors, 1, 2), R)
    rows = np.empty((K, L, L + m))
    rows[:, :, positions] = np.concatenate([turned, product(turned, geometry.B)], axis=2)
    return Directions(rows / np.sqrt(s2)[:, None, None], errors)


def information(logs: Sequence[Directions], shares: Array, P: Array) -> Array:
    """``P + Σ_jM̂_jᵀΛ_jM̂_j``: (K, d, d).  shares: (K, J), positive   P: (K, d, d)"""
    total = P
    for j, (rows, errors) in enumerate(logs):
        share = shares[:, j, None]
        total = total + product(np.swapaxes(rows, 1, 2) * (share / (share + errors))[:, None, :], rows)
    return symmetrize(total)


def intersection_shares(logs: Sequence[Directions], P: Array) -> Array:
    """``α``: (K, J), positive, nearly of most information; 1 for a log that has no rows of an arm or no error to share.

    Those of the others add up to 1.  At the maximum ``α_j`` is proportional to ``α_jg_j + c/J``, ``g_j`` the derivative
    of the information with respect to it; step by step it is set to that.

    Args:
        logs: for all arms of the learner, rows of zeros where a log does not have an arm.
        P: (K, d, d)  what is known without the logs, positive definite.
    """
    sharing = np.stack([(rows.any(axis=2) & (errors > 0.0)).any(axis=1) for rows, errors in logs], axis=1)
    equal = sharing / np.maximum(sharing.sum(axis=1, keepdims=True), 1)
    shares = np.where(sharing, equal, 1.0)
    for _ in range(STEPS):
        covariance = inverse(information(logs, shares, P))
        found = EVENLY * equal
        for j, (rows, errors) in enumerate(logs):
            share = shares[:, j, None]
            part = share * errors / np.square(np.where(errors > 0.0, share + errors, 1.0))
            found[:, j] += (part * (rows * product(rows, covariance)).sum(axis=2)).sum(axis=1)
        shares = np.where(sharing, found / np.maximum(found.sum(axis=1, keepdims=True), 1e-300), 1.0)
    return shares
