"""Quadratic forms of the features along which rewards may be curved, chosen from the rounds so far.

With ``e`` the errors of a linear prediction, the mean of ``e z zᵀ`` is proportional to ``CQC`` where rewards have a
curved part ``zᵀQz`` and features the covariance ``C``.  Most curvature that people meet has few directions (a U-shape
one, a product of two features two), so the two eigenvectors of largest size of ``C⁻¹ mean(e z zᵀ)`` find it among
``d(d + 1)/2`` products after a number of rounds that grows like ``d`` and not like ``d²``.  The forms are

* the square of the arm's own prediction (Ramsey's RESET test): returns that diminish or grow, whatever they depend on;
* the two directions of the arm's own errors;
* the two directions of the errors of all arms together.

Each is centred at the features' means and has mean zero and, for normal features, variance one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sidelight.kernels.misfit import FORMS, SQUARES
from sidelight.linalg import Array, apply, in_order, inverse, product

__all__ = ["NOTHING", "Forms", "forms_of", "largest_pairs"]

#: steps of the subspace iteration, which begins at the largest entry
STEPS = 5
#: part of a feature's mean square that is added to its variance, so that features which nearly repeat each other, or
#: hardly vary among the contexts of an arm, have small weights
RIDGE = 1e-3
#: sums of squares of a feature below this part of the largest are what rounding left of none
NOTHING = 1e-12


class Forms(NamedTuple):
    """``g = Σ_i curvature_i (direction_i·z)² − level`` for every arm.

    Attributes:
        directions: (K, FORMS, SQUARES, d)   curvatures: (K, FORMS, SQUARES)   levels: (K, FORMS)
    """

    directions: Array
    curvatures: Array
    levels: Array


def forms_of(bent: Array, grams: Array, counts: Array, weights: Array, constant: int | None) -> Forms:
    """The forms that the rounds so far suggest.

    Args:
        bent: (K, d, d)  ``Σ e z zᵀ``.
        grams: (K, d, d)  ``Σ z zᵀ``.
        counts: (K,)  rounds of every arm, at least one.
        weights: (K, d)  of the linear prediction.
        constant: position of the intercept, if there is one.
    """
    K, d = weights.shape
    directions, curvatures = np.zeros((K, FORMS, SQUARES, d)), np.zeros((K, FORMS, SQUARES))
    # the arms one by one, and all of them together
    counts = np.append(counts, float(counts.sum()))[:, None, None]
    moments = np.concatenate([grams, in_order(grams)[None]]) / counts
    covariances, means = _centred(moments, moments, constant)
    # a feature that did not vary in the rounds, although its scale is known from elsewhere: only rounding is left
    squares = np.einsum("aii->ai", moments)
    still = squares <= NOTHING * squares.max(axis=1, keepdims=True)
    own = weights.copy()
    if constant is not None:
        own[:, constant] = 0.0
    size = (own * apply(covariances[:K], own)).sum(axis=1)
    directions[:, 0, 0] = own / np.sqrt(np.where(size > 0.0, size, 1.0))[:, None]
    curvatures[:, 0, 0] = np.where(size > 0.0, 1.0, 0.0)
    errors, _ = _centred(np.concatenate([bent, in_order(bent)[None]]) / counts, moments, constant)
    for one in (covariances, errors):
        one[still[:, :, None] | still[:, None, :]] = 0.0
    found, sizes = largest_pairs(errors, covariances, _precisions(covariances, moments))
    directions[:, 1], curvatures[:, 1] = found[:K], sizes[:K]
    directions[:, 2], curvatures[:, 2] = found[K], sizes[K]
    if constant is not None:
        directions[:, :2, :, constant] = -(directions[:, :2] * means[:K, None, None, :]).sum(axis=3)
        directions[:, 2, :, constant] = -(directions[:, 2] * means[K]).sum(axis=2)
    norm = np.sqrt(2.0 * np.square(curvatures).sum(axis=2))
    curvatures /= np.where(norm > 0.0, norm, 1.0)[:, :, None]
    V = directions.reshape(K, FORMS * SQUARES, d)
    seconds = (V * product(V, moments[:K])).sum(axis=2).reshape(curvatures.shape)
    return Forms(directions, curvatures, (curvatures * seconds).sum(axis=2))


def largest_pairs(S: Array, C: Array, P: Array) -> tuple[Array, Array]:
    """Two directions ``v`` of ``Sv = μCv`` with the largest ``|μ|``, (n, 2, d), and their ``μ``, (n, 2); ``vᵀCv = 1``.

    By subspace iteration, so that two values of equal size and opposite sign, as of a product of two features, do no
    harm.  Zero where there is none.

    Args:
        S: (n, d, d)  symmetric.
        C: (n, d, d)  positive semidefinite.
        P: (n, d, d)  ``C⁻¹``.
    """
    n, d, _ = S.shape
    own = np.sqrt(np.maximum(np.einsum("aii->ai", C), 0.0))
    unit = np.where(own > 0.0, 1.0 / np.where(own > 0.0, own, 1.0), 0.0)
    relative = np.abs(S) * unit[:, :, None] * unit[:, None, :]
    each, (i, j) = np.arange(n), divmod(relative.reshape(n, -1).argmax(axis=1), d)
    V = np.zeros((n, SQUARES, d))
    V[each, 1, j] = unit[each, j]
    V[:, 1] = np.where((i == j)[:, None], apply(P, S[each, i]), V[:, 1])
    V[each, 0, i] = unit[each, i]
    for _ in range(STEPS):
        V = product(product(V, S), P)
        largest = np.abs(V).max(axis=2, keepdims=True)
        V = np.where(largest > 0.0, V / np.where(largest > 0.0, largest, 1.0), 0.0)
    V = _orthonormal(V, C)
    T = product(product(V, S), np.swapaxes(V, 1, 2))
    # the eigenvalues of symmetric matrices of two rows, and their first eigenvectors
    middle, half = 0.5 * (T[:, 0, 0] + T[:, 1, 1]), 0.5 * (T[:, 0, 0] - T[:, 1, 1])
    off = 0.5 * (T[:, 0, 1] + T[:, 1, 0])
    root = np.sqrt(half * half + off * off)
    first = np.where((half >= 0.0)[:, None], np.stack([half + root, off], axis=1), np.stack([off, root - half], axis=1))
    length = np.sqrt(np.square(first).sum(axis=1))
    first = np.where((length > 0.0)[:, None], first / np.where(length > 0.0, length, 1.0)[:, None], [1.0, 0.0])
    turn = np.stack([first, np.stack([-first[:, 1], first[:, 0]], axis=1)], axis=1)
    return product(turn, V), np.stack([middle + root, middle - root], axis=1)


def _orthonormal(V: Array, C: Array) -> Array:
    """Rows that span the same, with ``VCVᵀ = I``; rows of zeros where there are fewer.  (n, 2, d)"""
    first, second = V[:, 0], V[:, 1]
    first = _normal(first, C)
    second = second - (first * apply(C, second)).sum(axis=1)[:, None] * first
    return np.stack([first, _normal(second, C)], axis=1)


def _normal(v: Array, C: Array) -> Array:
    """``v/√(vᵀCv)``; zero where that is.  (n, d)"""
    size = (v * apply(C, v)).sum(axis=1)
    return np.asarray(np.where(size > 0.0, 1.0 / np.sqrt(np.where(size > 0.0, size, 1.0)), 0.0)[:, None] * v)


def _centred(sums: Array, moments: Array, constant: int | None) -> tuple[Array, Array]:
    """Means of ``y(z − z̄)(z − z̄)ᵀ`` (n, d, d), zero for the intercept, and ``z̄`` (n, d).

    Args:
        sums: (n, d, d)  means of ``y z zᵀ``.
        moments: (n, d, d)  means of ``z zᵀ``.
        constant: position of the intercept; without one nothing is subtracted.
    """
    if constant is None:
        return sums, np.zeros(moments.shape[:2])
    means, first = moments[:, constant], sums[:, constant]
    mixed = means[:, :, None] * first[:, None, :]
    outer = sums[:, constant, constant][:, None, None] * (means[:, :, None] * means[:, None, :])
    out = sums - mixed - np.swapaxes(mixed, 1, 2) + outer
    out[:, constant], out[:, :, constant] = 0.0, 0.0
    return out, means


def _precisions(covariances: Array, moments: Array) -> Array:
    """Inverses of the covariances with a larger diagonal.  (K, d, d)

    Args:
        covariances: (K, d, d)  around the means.
        moments: (K, d, d)  second moments, whose diagonal says how much is added; 1 where it is zero but for rounding.
    """
    diagonal = np.einsum("aii->ai", moments)
    more = np.where(diagonal > NOTHING * diagonal.max(axis=1, keepdims=True), RIDGE * diagonal, 1.0)
    return np.asarray(inverse(covariances + more[:, :, None] * np.eye(covariances.shape[1])))
