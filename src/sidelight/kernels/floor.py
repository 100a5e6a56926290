"""Compiled sums of the floor: adding a round to an arm's sums, and the lower bounds that a decision needs."""

from __future__ import annotations

import math

from sidelight.kernels.compiled import kernel
from sidelight.kernels.elementary import log1p

__all__ = ["add_round", "least", "project"]


@kernel
def project(arms, Z, inverses, moments, out):  # type: ignore[no-untyped-def]
    """``out[0, i] = z_i·ŵ_a`` and ``out[1, i] = ‖z_i‖²_{V_a⁻¹}`` with ``a = arms[i]`` and ``ŵ_a = V_a⁻¹ Σ r x``.

    arms: (n,)   Z: (n, d)   inverses: (K, d, d)  ``V⁻¹``   moments: (K, d)  ``Σ r x``   out: (2, n)
    """
    d = Z.shape[1]
    for i in range(arms.shape[0]):
        a = arms[i]
        mean = 0.0
        square = 0.0
        for j in range(d):
            u = 0.0
            for k in range(d):
                u += inverses[a, j, k] * Z[i, k]
            mean += u * moments[a, j]
            square += Z[i, j] * u
        out[0, i] = mean
        out[1, i] = max(square, 0.0)


@kernel
def add_round(a, x, reward, grams, moments, inverses, log_dets, u):  # type: ignore[no-untyped-def]
    """Add a round of arm ``a`` to its sums, its inverse (Sherman and Morrison) and ``log det(V/λ)``.

    x: (d,)   grams, inverses: (K, d, d)   moments: (K, d)   log_dets: (K,)   u: (d,)  room for ``V⁻¹x``
    """
    d = x.shape[0]
    growth = 0.0
    for j in range(d):
        total = 0.0
        for k in range(d):
            total += inverses[a, j, k] * x[k]
            grams[a, j, k] += x[j] * x[k]
        u[j] = total
        moments[a, j] += reward * x[j]
    for j in range(d):
        growth += x[j] * u[j]
    for j in range(d):
        for k in range(d):
            inverses[a, j, k] -= u[j] * u[k] / (1.0 + growth)
    log_dets[a] += log1p(growth)


#: halvings of the range of ``μ``, 2^±20 around the first one: it ends within 0.1 % of the best
_HALVINGS = 16
#: Newton steps for a ball's multiplier, each of which about doubles its digits
_STEPS = 8


@kernel
def least(spectra, Z, moments, slack, bound, first, enough):  # type: ignore[no-untyped-def]
    """The best found lower bound of ``Σ_a z_a·w_a`` over all ``‖w_a‖ ≤ S`` with ``Σ (r − x·w)² ≤ Θ``: the dual of that.

    For every ``μ > 0`` and ``λ_a ≥ 0``, with ``q_a = z_a − 2μ Σ r x``,

        μ(Σ r² − Θ) − Σ_a {¼ q_aᵀ(μG_a + λ_aI)⁻¹q_a + λ_aS²}

    is such a bound (``learners.ledger``). It is concave in all of them; the best ``λ_a`` for a ``μ`` makes the least
    ``w_a = −½(μG_a + λ_aI)⁻¹q_a`` no longer than ``S``, and ``Σ (r − x·w)² − Θ`` there is the slope in ``μ``.

    spectra: (K, d)  eigenvalues of ``G_a``   Z, moments: (K, d)  ``z_a`` and ``Σ r x`` in its eigenvectors
    slack: ``Σ r² − Θ``   bound: ``S``   first: the ``μ`` to begin with   enough: stop once the bound is at least that
    """
    K, d = Z.shape
    best = -math.inf
    low, high = first / 1048576.0, first * 1048576.0
    for _ in range(_HALVINGS):
        mu = math.sqrt(low) * math.sqrt(high)
        value = mu * slack
        slope = slack
        for a in range(K):
            # where one direction alone would be as long as S: the multiplier is no less
            ball = 0.0
            for j in range(d):
                q = Z[a, j] - 2.0 * mu * moments[a, j]
                ball = max(ball, 0.5 * abs(q) / bound - mu * max(spectra[a, j], 0.0))
            for _ in range(_STEPS):
                square = 0.0
                steep = 0.0
                for j in range(d):
                    q = Z[a, j] - 2.0 * mu * moments[a, j]
                    if q != 0.0:
                        D = mu * max(spectra[a, j], 0.0) + ball
                        w = 0.5 * q / D
                        square += w * w
                        steep += w * w / D
                length = math.sqrt(square)
                if length <= bound * (1.0 + 1e-9):
                    break
                ball += square / steep * (length - bound) / bound
            for j in range(d):
                q = Z[a, j] - 2.0 * mu * moments[a, j]
                if q != 0.0:
                    e = max(spectra[a, j], 0.0)
                    w = -0.5 * q / (mu * e + ball)
                    value += 0.5 * q * w
                    slope += e * w * w - 2.0 * moments[a, j] * w
            value -= ball * bound * bound
        best = max(best, value)
        if best >= enough:
            break
        if slope > 0.0:
            low = mu
        else:
            high = mu
    return best
