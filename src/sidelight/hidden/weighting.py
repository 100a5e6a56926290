"""``B_a`` from weighted means of products over the answers: the estimators ``ipw`` and ``control_variate``.

With ``t`` answers of weight ``ω`` and the arm's share ``P(a)`` in the log,

    R̂12(a) = (1/t) Σ ω x_o x_hᵀ / P(a),     B̂_a = R11(a)⁻¹R̂12(a),     R11 of the log.

All functions take the sums of the answers and the log that they are about.
"""

from __future__ import annotations

import numpy as np

from sidelight.hidden.pooling import regress
from sidelight.hidden.sums import AnswerSums
from sidelight.linalg import Array, square, symmetrize
from sidelight.logs.summary import LogSummary
from sidelight.theory import cross_moment_constants, delta_m

__all__ = ["cross_moments", "gram", "moment_regression", "pooled_moments", "proven_bound"]


def cross_moments(sums: AnswerSums, summary: LogSummary, centred: bool) -> Array:
    """``R̂12(a)``: (K, L, m), with the weights ``1/t`` (errata: ``1/(t − 1)`` is not the unbiased one).

    centred: whether to subtract ``(μ̂_o − μ_o)μ̂_hᵀ``, with the log's mean ``μ_o``, as ``control_variate`` does
    """
    t = sums.total_weight
    if t == 0:
        return np.zeros_like(sums.S12)
    P = np.where(summary.shares > 0, summary.shares, 1.0)[:, None, None]
    R12 = sums.S12 / (t * P)
    if centred:
        L = sums.L
        means = sums.sums / (t * P[:, :, 0])
        gap = means[:, :L] - summary.means
        R12 = R12 - gap[:, :, None] * means[:, None, L:]
    return np.asarray(R12)


def moment_regression(summary: LogSummary, R12: Array) -> Array:
    """``B̂ = R11(a)⁻¹R12(a)``: (K, L, m), with ``R11`` of the log; 0 for an arm that the log lacks."""
    moments = np.concatenate([summary.second_moments, R12], axis=2)
    nothing = np.zeros(R12.shape[1:])
    return regress(moments, np.zeros((len(nothing), len(nothing))), nothing, fallback=nothing)


def gram(sums: AnswerSums, summary: LogSummary) -> Array:
    """``A = tP(a)R11(a)``: (K, L, L), the Gram matrix that the answers have on average."""
    return np.asarray(sums.total_weight * summary.shares[:, None, None] * summary.second_moments)


def pooled_moments(sums: AnswerSums, prior: float) -> Array:
    """``R22(a)``: (K, m, m), pulled with the weight of ``prior`` answers toward that of all arms together.

    It stands for ``Σ_e``: the errors of ``R̂11`` and ``R̂12``, which a regression has in common, do not cancel here.
    """
    total, count = np.sum(sums.S22, axis=0), float(np.sum(sums.counts))
    own = np.diagonal(total) / max(count, 1.0)
    pooled = (total + np.diag(np.where(own > 0, own, 1.0))) / (count + 1.0)
    return symmetrize((sums.S22 + prior * pooled) / (sums.counts + prior)[:, None, None])


def proven_bound(sums: AnswerSums, summary: LogSummary, delta: float, horizon: int, context_bound: float) -> Array:
    """``ΔM = C_B1/√t + C_B2/t``: (K,), with ``tr R22(a) ≤ S_x² − tr R11(a)``; infinite before the first answer.

    The constants are those of ``theory.cross_moment_constants``.

    Args:
        sums: of the answers, with recorded and hidden features.
        summary: the log.
        delta: ``δ``: it holds for all arms and episodes with probability ``1 − δ/2``.
        horizon: number of rounds.
        context_bound: ``S_x``.
    """
    K, L, m = sums.S12.shape
    R11 = summary.second_moments
    constants = cross_moment_constants(
        R11,
        summary.shares,
        recorded_bound=context_bound,
        hidden_bound=context_bound,
        n_features=L + m,
        delta=delta,
        horizon=horizon,
        hidden_traces=np.maximum(square(context_bound) - np.einsum("aii->a", R11), 0.0),
    )
    # the constants come first: a log that has none is refused before there are answers
    t = sums.total_weight
    return np.full(K, np.inf) if t == 0 else np.asarray(delta_m(constants, t))
