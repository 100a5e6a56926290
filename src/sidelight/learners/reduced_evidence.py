"""What an arm's constraint and rounds say about its weights, from sums in reduced coordinates."""

from __future__ import annotations

import numpy as np

from sidelight.linalg import Array, product
from sidelight.side.constraint import Reduction

__all__ = ["constraint_rows", "rounds_evidence"]


def rounds_evidence(reduction: Reduction, a: int, gram: Array, moment: Array) -> tuple[Array, Array]:
    """``J`` (d, d) and ``h`` (d,) of the rounds of arm ``a``, in internal order.

    Args:
        reduction: ``w = anchor + Nθ``.
        a: the arm's position.
        gram: (m, m)  ``Σ z zᵀ/σ_a²``.
        moment: (m,)  ``Σ z(r − x·anchor)/σ_a²``.
    """
    d, m = reduction.n_features, reduction.size
    if reduction.shifted:
        J, h = np.zeros((d, d)), np.zeros(d)
        J[d - m :, d - m :] = gram
        h[d - m :] = moment
        return J, h
    # w = anchor + Uθ with an orthonormal U, so that θ = Uᵀ(w − anchor)
    U = -reduction.loadings[a]
    J = product(U, product(gram, U.T))
    return J, product(U, moment) + product(J, reduction.anchors[a])


def constraint_rows(reduction: Reduction, a: int) -> Array:
    """``M`` of one arm, or rows that span the same.  (L, d)"""
    if reduction.shifted:
        return np.concatenate([np.eye(reduction.loadings.shape[1]), reduction.loadings[a]], axis=1)
    return np.asarray(np.eye(reduction.n_features) - product(reduction.loadings[a], reduction.loadings[a].T))
