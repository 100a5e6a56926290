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

__all__ = ["LogEvidence", "hidden_variance", "log_evidence"]


@dataclass(frozen=True)
class LogEvidence:
    """What one log says about every arm, recorded features of that log first.

    Attributes:
        J: (K, d, d)  ``M̂ᵀΛM̂``.
        h: (K, d)  ``M̂ᵀΛb``.
        precision: (K, L, L)  ``Λ``.
        target: (K, L)  ``Λb``.
        B: (K, L, m)  ``B̂``.
        tau2, s2: (K,)  the two variances.
    """

    J: Array
    h: Array
    precision: Array
    target: Array
    B: Array
    tau2: Array
    s2: Array


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


def log_evidence(
    hidden: HiddenEstimator,
    tau2: Array,
    s2: Array,
    *,
    inflation: float = 1.0,
    discount: Array | None = None,
    meat: Array | None = None,
) -> LogEvidence:
    """The evidence of one log (``J``, ``h``), given the two variances.

    Args:
        hidden: the estimator of the log's hidden half, which carries the log.
        tau2: (K,)  ``τ²``.
        s2: (K,)  ``s²``.
        inflation: factor on ``τ²``: the number of logs whose ``B̂`` share the same contexts (always safe).
        discount: (K,)  what the log still counts for, 1 in full trust.
        meat: (K, L, L)  ``Σ ε²x_ox_oᵀ`` for the sandwich covariance; default ``s²G``.
    """
    summary = hidden.summary
    G, g = np.asarray(summary.grams), np.asarray(summary.cross)
    B, A = hidden.regression(), hidden.precision()
    K, L, m = B.shape
    precision = np.zeros((K, L, L))
    target = np.zeros((K, L))
    if L:
        noise_part = s2[:, None, None] * G if meat is None else _regular(meat, s2, G)
        # everything in units of the columns' scale, so that a cut-off means the same for all of them
        scale = np.sqrt(np.maximum(np.einsum("aii->i", G), 1e-300))
        Gs, gs, Ns = G / np.outer(scale, scale), g / scale, noise_part / np.outer(scale, scale)
        if A is None:
            # B known: Cov ξ = G⁻¹(meat)G⁻¹, Λ = G(meat)⁻¹G = G/s²
            left = Gs @ _pseudo_inverse(Ns)
        else:
            As = A / np.outer(scale, scale)
            T = (inflation * tau2)[:, None, None]
            # Cov ξ = G⁻¹NG⁻¹ + τ²A⁻¹ ⇒ Λ = G(N + τ²GA⁻¹G)⁻¹G, and with N = s²G it is A(τ²G + s²A)⁺G
            left = As @ _pseudo_inverse(T * Gs + s2[:, None, None] * As) if meat is None else _general(Gs, Ns, As, T)
        precision = symmetrize(left @ Gs) * np.outer(scale, scale)
        target = np.einsum("aij,aj->ai", left, gs) * scale
    if discount is not None:
        precision = precision * discount[:, None, None]
        target = target * discount[:, None]
    Bt = np.swapaxes(B, 1, 2)
    J = np.empty((K, L + m, L + m))
    J[:, :L, :L] = precision
    J[:, :L, L:] = precision @ B
    J[:, L:, :L] = np.swapaxes(J[:, :L, L:], 1, 2)
    J[:, L:, L:] = symmetrize(Bt @ J[:, :L, L:])
    h = np.concatenate([target, np.einsum("alm,al->am", B, target)], axis=1)
    return LogEvidence(J, h, precision, target, B, tau2, s2)


def _pseudo_inverse(S: Array) -> Array:
    """Of symmetric positive semi-definite matrices; directions that nothing was seen of get zero."""
    values, vectors = np.linalg.eigh(symmetrize(S))
    cut = S.shape[-1] * 1e-14 * np.maximum(values[..., -1:], 1e-300)
    inverse = np.where(values > cut, 1.0 / np.where(values > cut, values, 1.0), 0.0)
    return np.asarray((vectors * inverse[..., None, :]) @ np.swapaxes(vectors, -1, -2))


def _general(G: Array, N: Array, A: Array, tau2: Array) -> Array:
    """``Λ G⁺`` for a sandwich: ``(N + τ²GA⁺G)⁺`` between two ``G``."""
    return np.asarray(G @ _pseudo_inverse(N + tau2 * (G @ _pseudo_inverse(A) @ G)))


def _regular(meat: Array, s2: Array, G: Array) -> Array:
    """A sandwich of few rows is singular; a tenth of the classical value keeps it from claiming certainty."""
    return np.asarray(0.9 * meat + 0.1 * s2[:, None, None] * G)
