"""The soft constraint: what a finite log says about each arm's weights, with its error accounted for.

For one arm, with ``e = x_h − Bᵀx_o``, ``Σ_e = E[eeᵀ|a]`` and ``τ² = w_hᵀΣ_e w_h``, the log's regression of the reward
on ``x_o`` and the answers' regression ``B̂`` of ``x_h`` on ``x_o`` leave

    ξ = b − M̂w,   M̂ = [I, B̂],   Cov ξ = s²G⁻¹ + τ²A⁻¹,   Λ = (Cov ξ)⁻¹ = A(τ²G + s²A)⁺G.

So the log is evidence ``J = M̂ᵀΛM̂``, ``h = M̂ᵀΛb`` about ``w``, in the form that ridge regression adds up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sidelight.hidden.protocol import HiddenEstimator
from sidelight.linalg import Array, symmetrize

__all__ = ["LogEvidence", "LogGeometry", "hidden_variance"]


@dataclass(frozen=True)
class LogEvidence:
    """What one log says about every arm for given variances, its recorded features first.

    Attributes:
        J: (K, d, d)  ``M̂ᵀΛM̂``.
        h: (K, d)  ``M̂ᵀΛb``.
        precision: (K, L, L)  ``Λ``.
        target: (K, L)  ``Λb``.
    """

    J: Array
    h: Array
    precision: Array
    target: Array


def hidden_variance(residual_moments: Array, means: Array, covariances: Array, cap: Array) -> Array:
    """``τ² = E[w_hᵀΣ_e w_h] = ŵ_hᵀΣ_eŵ_h + tr(Σ_e Cov w_h)``, at most ``s²``.

    The plug-in alone is overconfident while ``ŵ_h`` is shrunk, and ``τ² = s²`` is far too cautious.

    Args:
        residual_moments: (K, m, m)  ``Σ_e``.
        means: (K, m)  ``ŵ_h``.
        covariances: (K, m, m)  ``Cov w_h``.
        cap: (K,)  ``s²``.
    """
    plug_in = np.einsum("ai,aij,aj->a", means, residual_moments, means)
    spread = np.einsum("aij,aji->a", residual_moments, covariances)
    return np.asarray(np.clip(plug_in + spread, 0.0, cap))


class LogGeometry:
    """One log and the answers about it, decomposed once so that ``Λ`` for any ``τ²``, ``s²`` costs a product.

    With ``A = CCᵀ`` and ``C⁻¹GC⁻ᵀ = QDQᵀ``: ``Λ = CQ [D/(τ²D + s²)] QᵀCᵀ`` and ``Λb = CQ [1/(τ²D + s²)] QᵀC⁻¹g``, which
    divides by neither ``G`` nor ``A``.  For the sandwich ``G`` is replaced by ``s²G(meat)⁻¹G`` and ``g`` accordingly.

    Args:
        hidden: the estimator of the log's hidden half, which carries the log.
        meat: (K, L, L)  ``Σ ε²x_ox_oᵀ`` for the sandwich covariance; default the classical ``s²G``.
    """

    def __init__(self, hidden: HiddenEstimator, meat: Array | None = None) -> None:
        from sidelight.kernels.spd import whiten_stack

        summary = hidden.summary
        G, g = np.asarray(summary.grams, dtype=np.float64), np.asarray(summary.cross, dtype=np.float64)
        if meat is not None:
            G, g = _sandwiched(G, g, meat, np.asarray(summary.residual_variances))
        self.B = hidden.regression()
        A = hidden.precision()
        self.exact = A is None
        K, L, m = self.B.shape
        self.shape = (K, L, m)
        if L == 0:
            return
        # everything in units of the columns' own scale, so that rounding means the same for all of them
        squares = np.einsum("aii->i", G)
        if A is not None:
            # a column that is zero all over the log has the scale that the answers saw
            squares = np.where(squares > 0, squares, np.einsum("aii->i", A))
        scale = np.sqrt(np.where(squares > 0, squares, 1.0))
        self._scale = scale
        Gs, gs = G / np.outer(scale, scale), g / scale
        typical = np.einsum("aii->a", Gs)[:, None, None] / L + 1e-300
        # where B is exact any positive A serves, since τ² is then zero
        As = Gs + 1e-3 * typical * np.eye(L) if A is None else A / np.outer(scale, scale)
        # directions nobody answered about: a precision that is as good as none, so that the factor exists
        As = As + (1e-13 * np.einsum("aii->a", As)[:, None, None] / L + 1e-12 * typical) * np.eye(L)
        C, inner = np.zeros((K, L, L)), np.empty((K, L, L))
        if whiten_stack(symmetrize(As), Gs, C, inner) >= 0:
            raise np.linalg.LinAlgError("The answers' precision matrix is not positive definite.")
        values, Q = np.linalg.eigh(symmetrize(inner))
        self._root = C @ Q
        self._values = np.maximum(values, 0.0)
        self._target = np.einsum("aji,aj->ai", Q, np.linalg.solve(C, gs[..., None])[..., 0])

    def evidence(self, tau2: Array, s2: Array) -> LogEvidence:
        """``J`` and ``h`` for given ``τ²`` (K,) and ``s²`` (K,); an infinite ``s²`` means that the log says nothing."""
        K, L, m = self.shape
        precision, target = np.zeros((K, L, L)), np.zeros((K, L))
        if L:
            t = np.zeros(K) if self.exact else tau2
            with np.errstate(invalid="ignore"):
                weight = np.where(np.isfinite(s2)[:, None], 1.0 / (t[:, None] * self._values + s2[:, None]), 0.0)
            left = self._root * (weight * self._values)[:, None, :]
            precision = symmetrize(left @ np.swapaxes(self._root, 1, 2)) * np.outer(self._scale, self._scale)
            target = np.einsum("aij,aj->ai", self._root, weight * self._target) * self._scale
        B = self.B
        J = np.empty((K, L + m, L + m))
        J[:, :L, :L] = precision
        J[:, :L, L:] = precision @ B
        J[:, L:, :L] = np.swapaxes(J[:, :L, L:], 1, 2)
        J[:, L:, L:] = symmetrize(np.swapaxes(B, 1, 2) @ J[:, :L, L:])
        h = np.concatenate([target, np.einsum("alm,al->am", B, target)], axis=1)
        return LogEvidence(J, h, precision, target)


def _sandwiched(G: Array, g: Array, meat: Array, s2: Array) -> tuple[Array, Array]:
    """``G' = s²G N⁺G`` and ``g' = s²G N⁺g`` with ``N`` the meat: then ``s²G'⁻¹`` is the sandwich.

    A sandwich of few rows claims too much, so a tenth of ``N`` is the classical ``s²G``.
    """
    N = 0.9 * np.asarray(meat) + 0.1 * s2[:, None, None] * G
    values, vectors = np.linalg.eigh(symmetrize(N))
    cut = N.shape[-1] * 1e-14 * np.maximum(values[..., -1:], 1e-300)
    inverse = np.where(values > cut, 1.0 / np.where(values > cut, values, 1.0), 0.0)
    middle = (vectors * inverse[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    left = s2[:, None, None] * (G @ middle)
    return symmetrize(left @ G), np.einsum("aij,aj->ai", left, g)
