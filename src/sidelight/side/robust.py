"""Both halves of the covariance of ``ξ = b − M̂w`` where the spread of residuals depends on the recorded features.

A logged reward leaves ``ε = e·w_h + η``, and ``E[η | x, a] = 0``, so the log's own squared residuals bound those of the
answers, whatever ``w_h`` is:

    W = E[ε²x_ox_oᵀ | a] = E[(e·w_h)²x_ox_oᵀ | a] + E[η²x_ox_oᵀ | a] ⪰ E[(e·w_h)²x_ox_oᵀ | a].

With ``n`` rows the log's half is ``G⁻¹(nW)G⁻¹``.  The answers' half is at most ``A⁻¹NA⁻¹``, where ``N`` is ``W`` for
each answer: ``N = X^{1/2}W(X^{1/2})ᵀ`` with ``X = AR11⁻¹``, ``R11 = G/n``.  That is ``cW`` if ``A = cR11``, and
``s²A`` if ``W = s²R11``, where nothing is lost by few answers; it is the same in all units and coordinates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sidelight.linalg import Array, inverse, product, pseudo_inverse, solve, symmetric_eigen, symmetrize, triangle
from sidelight.logs.summary import LogSummary

__all__ = ["Sandwich", "sandwiched"]

#: part of the classical ``s²G`` in the middle of the sandwich: one of few rows claims too much
CLASSICAL = 0.1
#: relative to ``s²``, what the hidden features are thought to explain at least, so that the answers' precision exists
LEAST = 1e-6


class Sandwich:
    """``W`` of every arm of a log, and the precision of the answers that follows.

    Args:
        summary: the log.
        meat: (K, L, L)  its ``Σ ε²x_ox_oᵀ``.
        s2: (K,)  ``s²``, at least its residual variances; the meat has what it is above them.

    Attributes:
        middle: (K, L, L)  ``nW``: the squared residuals, a tenth of them the classical ``s²G``.
    """

    def __init__(self, summary: LogSummary, meat: Array, s2: Array) -> None:
        G, own = np.asarray(summary.grams), np.asarray(summary.residual_variances)
        more = np.where(np.isfinite(own), np.maximum(s2 - own, 0.0), 0.0)[:, None, None]
        s2 = s2[:, None, None]
        self.middle = (1.0 - CLASSICAL) * (np.asarray(meat) + more * G) + CLASSICAL * s2 * G
        R11 = np.asarray(summary.second_moments)
        # coordinates in which R11 = I, from features of scale one, so that no unit decides what is rounding; a column
        # of zeros in an arm has the scale of all arms
        own = np.einsum("aii->ai", R11)
        own = np.where(own > 0.0, own, np.einsum("aii->i", R11))
        scale = np.sqrt(np.where(own > 0.0, own, 1.0))
        values, vectors = symmetric_eigen(symmetrize(R11 / scale[:, :, None] / scale[:, None, :]))
        self._seen = seen = values > R11.shape[-1] * 1e-13 * np.maximum(values[..., -1:], 1e-300)
        root = np.sqrt(np.where(seen, values, 1.0))
        self._into = np.swapaxes(vectors / root[:, None, :], 1, 2) / scale[:, None, :]
        self._back = scale[:, :, None] * vectors * root[:, None, :]
        # in directions that no row has, where the log says nothing, the answers' half is classical
        n = np.maximum(np.asarray(summary.counts, dtype=np.float64), 1.0)[:, None, None]
        W = symmetrize(product(product(self._into, self.middle / n), np.swapaxes(self._into, 1, 2)))
        W = np.where(seen[:, :, None] & seen[:, None, :], W, np.eye(W.shape[-1]) * s2)
        self._values, self._vectors = symmetric_eigen(symmetrize(W))

    def of_answers(self, A: Array, tau2: Array, s2: Array, whole: bool) -> Array:
        """``A'`` (K, L, L) for which ``τ²A'⁻¹ = A⁻¹NA⁻¹``.

        As far as ``τ²`` is known, ``W`` is taken for ``τ²R11 + (W − s²R11)₊`` and at most itself: what it has above the
        classical ``s²R11`` may be the hidden features' doing.

        Args:
            A: (K, L, L)  precision of the answers, positive definite.
            tau2: (K,)  ``τ²``, more than 0.
            s2: (K,)  ``s²``.
            whole: take all of ``W``, which needs no ``τ²``.
        """
        own, tau2, s2 = np.maximum(self._values, 0.0), tau2[:, None], s2[:, None]
        if not whole:
            own = np.minimum(own, tau2 + np.maximum(own - s2, 0.0))
        ratios = tau2 / np.maximum(own, LEAST * s2)
        inside = symmetrize(product(product(self._into, A), np.swapaxes(self._into, 1, 2)))
        for a in np.flatnonzero(~self._seen.all(axis=1)):
            _apart(inside[a], A[a], self._back[a], self._seen[a])
        values, vectors = symmetric_eigen(inside)
        # A is positive definite, but for rounding in directions that hardly any answer has
        values = np.maximum(values, 1e-15 * values[..., -1:])
        half = product(vectors * np.sqrt(values)[:, None, :], np.swapaxes(vectors, 1, 2))
        turned = product(self._back, product(half, self._vectors))
        return symmetrize(product(turned * ratios[:, None, :], np.swapaxes(turned, 1, 2)))


def _apart(inside: Array, A: Array, back: Array, seen: NDArray[np.bool_]) -> None:
    """Make of the precision ``inside`` (L, L), in place, that of the directions ``seen`` (L,), whatever the others are.

    Which coordinates the others have is arbitrary where no row has them, and must not matter.  From the covariance of
    what is seen: of a difference of precisions nothing is left where answers say much about features that repeat each
    other and little about what one row has of them.

    A: (L, L)  in features' own units   back: (L, L)  the directions in these, in columns
    """
    some, others = np.flatnonzero(seen), np.flatnonzero(~seen)
    own = np.ascontiguousarray(back[:, some])
    try:
        found = solve(A, own)
    except np.linalg.LinAlgError:
        # so many answers that rounding errors exceed what keeps it positive definite
        found = product(pseudo_inverse(A), own)
    inside[np.ix_(some, some)] = inverse(symmetrize(product(own.T, found)))
    inside[np.ix_(some, others)], inside[np.ix_(others, some)] = 0.0, 0.0


def sandwiched(G: Array, g: Array, middle: Array, s2: Array) -> tuple[Array, Array]:
    """``R'``, ``y'`` with ``R'ᵀR' = s²GN⁺G``, ``R'ᵀy' = s²GN⁺g``, ``N`` the middle: ``s²(R'ᵀR')⁻¹`` is the sandwich."""
    # what is left out as rounding does not depend on units
    own = np.einsum("aii->ai", middle)
    scale = 1.0 / np.sqrt(np.where(own > 0.0, own, 1.0))
    values, vectors = symmetric_eigen(symmetrize(middle * scale[:, :, None] * scale[:, None, :]))
    cut = middle.shape[-1] * 1e-14 * np.maximum(values[..., -1:], 1e-300)
    root = np.sqrt(np.where(values > cut, s2[:, None] / np.where(values > cut, values, 1.0), 0.0))
    scaled = scale[:, :, None] * np.concatenate([G, g[..., None]], axis=2)
    upper = triangle(product(np.swapaxes(vectors * root[:, None, :], 1, 2), scaled))
    return np.ascontiguousarray(upper[..., :-1]), np.ascontiguousarray(upper[..., -1])
