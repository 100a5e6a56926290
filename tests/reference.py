"""The paper's formulas, literally: pseudo-inverses, explicit loops, no caches.  Slow and obvious on purpose.

Every fast path of Sidelight is compared with this file.  It shares no code with the package.  Where the
paper is silent or wrong, the corrected formula is used and said so.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import svd


def pinv(A: np.ndarray, rank: int) -> np.ndarray:
    """Moore–Penrose inverse with the rank given explicitly."""
    if rank == 0 or A.size == 0:
        return np.zeros(A.shape[::-1])
    u, s, vt = svd(A, full_matrices=False, lapack_driver="gesvd")
    return (vt[:rank].T / s[:rank]) @ u[:, :rank].T


def side_matrices(M: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """``M†`` and ``P = I − M†M``."""
    M_dagger = pinv(M, rank)
    return M_dagger, np.eye(M.shape[1]) - M_dagger @ M


def least_squares(X: np.ndarray, r: np.ndarray) -> np.ndarray:
    """``b^LS = (Σ x xᵀ)⁻¹ Σ x r``, the paper's equation for the offline estimate."""
    gram, cross = np.zeros((X.shape[1], X.shape[1])), np.zeros(X.shape[1])
    for x, value in zip(X, r, strict=True):
        gram += np.outer(x, x)
        cross += x * value
    return np.linalg.solve(gram, cross)


def log_det_in_kernel(V: np.ndarray, P: np.ndarray, m: int, lam: float) -> float:
    """``log det(UᵀVU/λ)`` with orthonormal ``U``: the product of the m non-zero eigenvalues of ``PVP``."""
    if m == 0:
        return 0.0
    values = np.sort(np.linalg.eigvalsh(P @ V @ P))[-m:]
    return float(np.sum(np.log(values / lam)))


def radius(
    kind: str,
    *,
    log_det: float,
    n: int,
    m: int,
    K: int,
    sigma: float,
    lam: float,
    delta: float,
    S_x: float,
    S_w: float,
) -> float:
    """``√β``: determinant form, as printed (with ``N_a`` for ``t``), or the posterior's ``σ``."""
    if kind == "determinant":
        return math.sqrt(sigma**2 * (log_det + 2 * math.log(K / delta)) + lam * S_w**2)
    if kind == "printed":
        return math.sqrt(lam) * S_w + sigma * math.sqrt(m * math.log(K * (1 + n * S_x**2 / lam) / delta))
    return sigma


def projected_scores(
    x: np.ndarray,
    history: list[tuple[np.ndarray, int, float]],
    M: list[np.ndarray],
    b: list[np.ndarray],
    ranks: list[int],
    *,
    lam: float,
    sigma: float,
    alpha: float,
    delta: float,
    kind: str,
    S_x: float,
    S_w: float,
    mu: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 1, lines 5 to 7, from the whole history, for every arm.

    ``mu`` is a prior mean: the ridge term becomes ``λ‖P(w − μ)‖²``, which adds ``λPμ`` to the right-hand side.
    """
    K, d = len(M), len(x)
    estimates, widths = np.empty(K), np.empty(K)
    for a in range(K):
        V, Y, n = lam * np.eye(d), np.zeros(d), 0
        for x_i, a_i, r_i in history:
            if a_i == a:
                V += np.outer(x_i, x_i)
                Y += x_i * r_i
                n += 1
        M_dagger, P = side_matrices(M[a], ranks[a])
        m = d - ranks[a]
        PVP = pinv(P @ V @ P, m)
        right = Y - (V - lam * np.eye(d)) @ M_dagger @ b[a] + lam * P @ np.full(d, mu)
        w_P = PVP @ right
        estimates[a] = x @ (M_dagger @ b[a]) + x @ w_P
        beta = radius(
            kind,
            log_det=log_det_in_kernel(V, P, m, lam),
            n=n,
            m=m,
            K=K,
            sigma=sigma,
            lam=lam,
            delta=delta,
            S_x=S_x,
            S_w=S_w,
        )
        widths[a] = alpha * beta * math.sqrt(max(x @ PVP @ x, 0.0))
    return estimates, widths


def cross_moments_ipw(answers: list[tuple[np.ndarray, int]], L: int, K: int, P: np.ndarray) -> np.ndarray:
    """``R̂12(a) = (1/t) Σ 1{a_i^b = a}/P(a) x_o x_hᵀ``."""
    d = len(answers[0][0])
    R = np.zeros((K, L, d - L))
    for x, a in answers:
        R[a] += np.outer(x[:L], x[L:]) / P[a]
    return R / len(answers)


def cross_moments_control_variate(
    answers: list[tuple[np.ndarray, int]], L: int, K: int, P: np.ndarray, mu_o: np.ndarray
) -> np.ndarray:
    """``Σ̂12 + μ_o μ̂_hᵀ`` with ``Σ̂12 = R̂12 − μ̂_o μ̂_hᵀ``."""
    t = len(answers)
    d = len(answers[0][0])
    R = cross_moments_ipw(answers, L, K, P)
    means = np.zeros((K, d))
    for x, a in answers:
        means[a] += x / P[a] / t
    for a in range(K):
        sigma12 = R[a] - np.outer(means[a, :L], means[a, L:])
        R[a] = sigma12 + np.outer(mu_o[a], means[a, L:])
    return R


def pooled_regression(
    answers: list[tuple[np.ndarray, int]], L: int, K: int, kappa: float, metric: np.ndarray
) -> np.ndarray:
    """Per arm ridge regression of ``x_h`` on ``x_o`` toward the pooled one, with ``κ`` pseudo-answers."""
    m = len(answers[0][0]) - L
    S11, S12 = np.zeros((K, L, L)), np.zeros((K, L, m))
    for x, a in answers:
        S11[a] += np.outer(x[:L], x[:L])
        S12[a] += np.outer(x[:L], x[L:])
    pooled = np.linalg.inv(S11.sum(0) + metric) @ S12.sum(0)
    return np.array([np.linalg.inv(S11[a] + kappa * metric) @ (S12[a] + kappa * metric @ pooled) for a in range(K)])


def structured(B: np.ndarray) -> np.ndarray:
    """``[I, B]``."""
    return np.concatenate([np.eye(B.shape[0]), B], axis=1)


def epoch_scores(
    x: np.ndarray,
    history: list[tuple[np.ndarray, int, float]],
    B: np.ndarray,
    b: np.ndarray,
    error: np.ndarray,
    episodes: int,
    *,
    lam: float,
    sigma: float,
    alpha: float,
    delta: float,
    kind: str,
    S_x: float,
    S_w: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 2 within one episode: ``history`` is the episode's (or all, where data are kept).

    Bias term: ``S_w ΔM σ_max(Ṽ^{−1/2}Ûᵀ(V − λI)M̂†)``, and ``S_xS_wΔM`` added to the width.
    """
    K, L, m = B.shape
    d = L + m
    estimates, widths = np.empty(K), np.empty(K)
    for a in range(K):
        M = structured(B[a])
        M_dagger, P = side_matrices(M, L)
        V, Y, n = lam * np.eye(d), np.zeros(d), 0
        for x_i, a_i, r_i in history:
            if a_i == a:
                V += np.outer(x_i, x_i)
                Y += x_i * r_i
                n += 1
        PVP = pinv(P @ V @ P, m)
        estimates[a] = x @ M_dagger @ b[a] + x @ PVP @ (Y - (V - lam * np.eye(d)) @ M_dagger @ b[a])
        if kind == "determinant":
            beta = radius(
                kind,
                log_det=log_det_in_kernel(V, P, m, lam),
                n=n,
                m=m,
                K=K,
                sigma=sigma,
                lam=lam,
                delta=delta / (2 * episodes),
                S_x=S_x,
                S_w=S_w,
            )
            # Ṽ^{−1/2}Ûᵀ: any U with P = UUᵀ gives the same singular values
            u, _, _ = svd(P, lapack_driver="gesvd")
            U = u[:, :m]
            values, vectors = np.linalg.eigh(U.T @ V @ U)
            root = vectors @ np.diag(values**-0.5) @ vectors.T
            factor = np.linalg.norm(root @ U.T @ (V - lam * np.eye(d)) @ M_dagger, 2) if m and L else 0.0
            beta += S_w * error[a] * factor
        elif kind == "printed":
            spread = m * math.log(2 * episodes * K * (1 + n * S_x**2 / lam) / delta)
            beta = (sigma + S_x * S_w * error[a] * math.sqrt(n)) * math.sqrt(spread) + math.sqrt(lam) * S_w
        else:
            beta = sigma
        widths[a] = alpha * beta * math.sqrt(max(x @ PVP @ x, 0.0))
        if kind != "posterior":
            widths[a] += alpha * S_x * S_w * error[a]
    return estimates, widths
