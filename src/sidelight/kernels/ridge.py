"""One ridge regression per arm in reduced coordinates: the model, contexts in its coordinates, radii.

For arm ``a``: ``w = anchor + Nθ``, ``z = Nᵀx = x_h − loadings x[:R]`` (without ``x_h`` unless ``shifted``),
``A = NᵀV₀N + Σ z zᵀ``, ``θ̂ = A⁻¹(NᵀV₀(μ − anchor) + Σ z(r − x·anchor))``, ``ŵ = anchor + Nθ̂``.  The index of an arm is
``x·ŵ + radius · ‖z‖_{A⁻¹}``.

``ridge_choice`` scores and chooses, ``ridge_updates`` takes observations in, ``ridge_rounds`` plays many rounds; all
of them work on ``state.State``.
"""

from __future__ import annotations

import math

from sidelight.kernels.compiled import helper, inlined, kernel
from sidelight.kernels.elementary import log
from sidelight.kernels.simd import subtract_products

__all__ = ["DETERMINANT", "POSTERIOR", "PRINTED", "radii_of", "radius_of", "reduce_context", "take", "take_row"]

DETERMINANT, PRINTED, POSTERIOR = 0, 1, 2


@inlined
def take(x, order, out):  # type: ignore[no-untyped-def]
    """``out[i] = x[order[i]]``: the context in internal order."""
    for i in range(order.shape[0]):
        out[i] = x[order[i]]


@inlined
def take_row(X, t, order, out):  # type: ignore[no-untyped-def]
    """``take`` for row ``t`` of ``X`` (n, d), without a view of the row, whose references would be counted."""
    for i in range(order.shape[0]):
        out[i] = X[t, order[i]]


@inlined
def reduce_context(y, loadings, a, shifted, z):  # type: ignore[no-untyped-def]
    """``z = Nᵀx`` for arm ``a``.  y: (d,) the context in internal order   loadings: (K, m, R)"""
    subtract_products(z, y, y.shape[0] - loadings.shape[1] if shifted else -1, loadings, a)


@helper
def radius_of(kind, count, log_det, dimension, noise, prior_term, growth, union):  # type: ignore[no-untyped-def]
    """``√β`` of one arm: the formulas of ``theory.determinant_radius`` and ``theory.printed_radius``, which call it.

    ``prior_term = λS_w²``, ``growth = S_x²/λ``, ``union = log 1/δ_a`` (of ``PRINTED``: ``log K/δ``).
    """
    if kind == DETERMINANT:
        return math.sqrt(noise * noise * (log_det + 2.0 * union) + prior_term)
    if kind == PRINTED:
        spread = dimension * (union + log(1.0 + count * growth))
        return noise * math.sqrt(max(spread, 0.0)) + math.sqrt(prior_term)
    return noise


@kernel
def radii_of(kind, parts, out):  # type: ignore[no-untyped-def]
    """``radius_of`` for every column of ``parts`` (7, n), its arguments after ``kind``, into ``out`` (n,)."""
    for i in range(out.shape[0]):
        out[i] = radius_of(
            kind, parts[0, i], parts[1, i], parts[2, i], parts[3, i], parts[4, i], parts[5, i], parts[6, i]
        )
