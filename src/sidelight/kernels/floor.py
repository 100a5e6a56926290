"""Compiled sums of the floor: what one more round does to an arm, and what a decision needs to know of the sums."""

from __future__ import annotations

from sidelight.kernels.compiled import kernel
from sidelight.kernels.elementary import log1p

__all__ = ["add_round", "project"]


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
