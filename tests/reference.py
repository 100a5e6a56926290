"""The paper's formulas, literally: pseudo-inverses, explicit loops, no caches.  Slow and obvious on purpose.

Every fast path of Sidelight is compared with this file.  It shares no code with the package.  Where the
paper is silent or wrong, the corrected formula is used and said so.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import svd


def pinv(A: np.ndarray, rank: int) -> np.ndarray:
    """Moore–Penrose inverse with the rank given explicitly, in extended precision where the machine has it.

    An oracle must be more exact than what it judges: ``A† ← A†(2I − AA†)`` twice doubles the correct digits of the
    singular value decomposition as far as ``longdouble`` holds them.
    """
    if rank == 0 or A.size == 0:
        return np.zeros(A.shape[::-1], dtype=np.longdouble)
    u, s, vt = svd(A.astype(np.float64), full_matrices=False, lapack_driver="gesvd")
    inverse = ((vt[:rank].T / s[:rank]) @ u[:, :rank].T).astype(np.longdouble)
    for _ in range(2):
        inverse = 2 * inverse - inverse @ A @ inverse
    return inverse


def side_matrices(M: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """``M†`` and ``P = I − M†M``."""
    M_dagger = pinv(M, rank)
    return M_dagger, np.eye(M.shape[1]) - M_dagger @ M


def least_squares(X: np.ndarray, r: np.ndarray) -> np.ndarray:
    """``b^LS = (Σ x xᵀ)⁻¹ Σ x r``, the paper's equation for the offline estimate."""
    gram, cross = np.zeros((X.shape[1], X.shape[1]), dtype=np.longdouble), np.zeros(X.shape[1], dtype=np.longdouble)
    for x, value in zip(X, r, strict=True):
        gram += np.outer(x, x)
        cross += x * value
    return pinv(gram, X.shape[1]) @ cross


def log_det_in_kernel(V: np.ndarray, P: np.ndarray, m: int, lam: float) -> float:
    """``log det(UᵀVU/λ)`` with orthonormal ``U``: the product of the m non-zero eigenvalues of ``PVP``."""
    if m == 0:
        return 0.0
    values = np.sort(np.linalg.eigvalsh((P @ V @ P).astype(np.float64)))[-m:]
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
    mu: float | np.ndarray = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 1, lines 5 to 7, from the whole history, for every arm.

    ``mu`` is a prior mean (a number, (d,) or (K, d)): the ridge term becomes ``λ‖P(w − μ)‖²``, which adds ``λPμ``
    to the right-hand side.
    """
    K, d = len(M), len(x)
    means = np.broadcast_to(mu, (K, d))
    estimates, widths = np.empty(K), np.empty(K)
    for a in range(K):
        V, Y, n = lam * np.eye(d, dtype=np.longdouble), np.zeros(d, dtype=np.longdouble), 0
        for x_i, a_i, r_i in history:
            if a_i == a:
                V += np.outer(x_i, x_i)
                Y += x_i * r_i
                n += 1
        M_dagger, P = side_matrices(M[a], ranks[a])
        m = d - ranks[a]
        PVP = pinv(P @ V @ P, m)
        right = Y - (V - lam * np.eye(d)) @ M_dagger @ b[a] + lam * P @ means[a]
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


# An answer of the old policy: the context (recorded features first), its probabilities (one-hot where it named an
# action), and the chance with which it was asked.
Answer = tuple[np.ndarray, np.ndarray, float]


def cross_moments_ipw(answers: list[Answer], L: int, P: np.ndarray) -> np.ndarray:
    """``R̂12(a) = (1/t) Σ π(a)/(q P(a)) x_o x_hᵀ`` with ``t = Σ 1/q``; zeros before the first answer."""
    K, d = len(P), 0 if not answers else len(answers[0][0])
    R = np.zeros((K, L, d - L))
    for x, p, q in answers:
        for a in range(K):
            R[a] += p[a] / q / P[a] * np.outer(x[:L], x[L:])
    return R / sum(1 / q for _, _, q in answers)


def cross_moments_control_variate(answers: list[Answer], L: int, P: np.ndarray, mu_o: np.ndarray) -> np.ndarray:
    """``Σ̂12 + μ_o μ̂_hᵀ`` with ``Σ̂12 = R̂12 − μ̂_o μ̂_hᵀ``: the appendix's form, ``μ_o`` (K, L) from the log."""
    R = cross_moments_ipw(answers, L, P)
    t = sum(1 / q for _, _, q in answers)
    for a in range(len(P)):
        mean = sum(p[a] / q / P[a] * x for x, p, q in answers) / t
        sigma12 = R[a] - np.outer(mean[:L], mean[L:])
        R[a] = sigma12 + np.outer(mu_o[a], mean[L:])
    return R


def pooling_metric(R11: np.ndarray, P: np.ndarray) -> np.ndarray:
    """``D = Σ P(a) R11(a)``, every feature's own a billionth larger, for features that repeat each other."""
    D = sum(P[a] * R11[a] for a in range(len(P)))
    for i in range(len(D)):
        D[i, i] += 1e-9 * D[i, i]
    return D


def pool_worth(answers: list[Answer], L: int, metric: np.ndarray) -> float:
    """What to scale the weights of all arms together by; a context is one answer, of weight ``Σp/q``."""
    sizes = squares = 0.0
    for x, p, q in answers:
        size = sum(x[i] ** 2 / metric[i, i] for i in range(L))
        sizes += sum(p) / q * size
        squares += (sum(p) / q) ** 2 * size
    return sizes / squares if squares > 0 else 1.0


def pooled_regression(answers: list[Answer], L: int, K: int, kappa: float, metric: np.ndarray) -> np.ndarray:
    """Per arm ridge regression of ``x_h`` on ``x_o`` toward the pooled one, with ``κ`` pseudo-answers.

    An arm's weights are scaled so that ``Σω²‖x_o‖² = Σω‖x_o‖²`` in units of the log's: weights of one stay as they are.
    """
    m = len(answers[0][0]) - L
    S11, S12 = np.zeros((K, L, L)), np.zeros((K, L, m))
    sizes, squares = np.zeros(K), np.zeros(K)
    for x, p, q in answers:
        size = sum(x[i] ** 2 / metric[i, i] for i in range(L))
        for a in range(K):
            S11[a] += p[a] / q * np.outer(x[:L], x[:L])
            S12[a] += p[a] / q * np.outer(x[:L], x[L:])
            sizes[a] += p[a] / q * size
            squares[a] += (p[a] / q) ** 2 * size
    g = pool_worth(answers, L, metric)
    pooled = np.linalg.inv(g * S11.sum(0) + metric) @ (g * S12.sum(0))
    pull = kappa * metric
    out = np.zeros((K, L, m))
    for a in range(K):
        f = sizes[a] / squares[a] if squares[a] > 0 else 1.0
        out[a] = np.linalg.inv(f * S11[a] + pull) @ (f * S12[a] + pull @ pooled)
    return out


def structured(B: np.ndarray) -> np.ndarray:
    """``[I, B]``."""
    return np.concatenate([np.eye(B.shape[0]), B], axis=1)


def number_of_episodes(T: int) -> int:
    """One initial round, then episodes of 1, 2, 4, … rounds until ``T``; at least one is counted."""
    episodes, reached = 0, 1
    while reached < T:
        reached += 2**episodes
        episodes += 1
    return max(episodes, 1)


def importance_bound(R11: np.ndarray, P: np.ndarray, d: int, T: int, delta: float, S_x: float, t: float) -> np.ndarray:
    """``ΔM(a) = C_B1(a)/√t + C_B2(a)/t`` of the importance-weighted ``R̂12``, corrected.

    4/3 for the printed 3/4, ``1/√P(a)`` in ``C_B1`` with traces conditional on the arm (``tr R22(a)`` by what
    ``tr R11(a)`` leaves of ``S_x²``), and the union over arms and episodes inside the logarithm.
    """
    K = len(P)
    error = np.zeros(K)
    for a in range(K):
        smallest = np.linalg.eigvalsh(R11[a])[0]
        trace = np.trace(R11[a])
        spread = math.sqrt(trace * max(S_x**2 - trace, 0.0))
        logarithm = math.log(2 * d * K * number_of_episodes(T) / delta)
        C_B1 = math.sqrt(2 * S_x**2 * spread * logarithm / P[a]) / smallest
        C_B2 = 4 / 3 * S_x**2 * logarithm / P[a] / smallest
        error[a] = C_B1 / math.sqrt(t) + C_B2 / t
    return error


def current_episode(history: list[tuple[np.ndarray, int, float]], T: int) -> int | None:
    """The number of observations at which the running episode began, None in the initial round."""
    started = None
    start = 1
    while start <= len(history) and start < T:
        started = start
        start = 2 * start
    return started


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
    mu: float | np.ndarray = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 2 within one episode: ``history`` is the episode's (or all, where data are kept).

    ``S_w`` bounds ``‖w − μ‖``, so ``S_w + ‖μ‖`` bounds ``‖w‖``, which is what an error of ``M̂`` acts on.
    Bias term: ``(S_w + ‖μ‖) ΔM σ_max(Ṽ^{−1/2}Ûᵀ(V − λI)M̂†)``, and ``S_xS_wΔM`` added to the width.
    """
    K, L, m = B.shape
    d = L + m
    means = np.broadcast_to(mu, (K, d))
    S_all = S_w + float(np.max(np.linalg.norm(means, axis=1)))
    estimates, widths = np.empty(K), np.empty(K)
    for a in range(K):
        M = structured(B[a])
        M_dagger, P = side_matrices(M, L)
        V, Y, n = lam * np.eye(d, dtype=np.longdouble), np.zeros(d, dtype=np.longdouble), 0
        for x_i, a_i, r_i in history:
            if a_i == a:
                V += np.outer(x_i, x_i)
                Y += x_i * r_i
                n += 1
        PVP = pinv(P @ V @ P, m)
        right = Y - (V - lam * np.eye(d)) @ M_dagger @ b[a] + lam * P @ means[a]
        estimates[a] = x @ M_dagger @ b[a] + x @ PVP @ right
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
            u, _, _ = svd(P.astype(np.float64), lapack_driver="gesvd")
            U = u[:, :m]
            values, vectors = np.linalg.eigh((U.T @ V @ U).astype(np.float64))
            root = vectors @ np.diag(values**-0.5) @ vectors.T
            moved = root @ U.T @ (V - lam * np.eye(d)) @ M_dagger
            factor = np.linalg.norm(moved.astype(np.float64), 2) if m and L else 0.0
            beta += S_all * error[a] * factor
        elif kind == "printed":
            spread = m * math.log(2 * episodes * K * (1 + n * S_x**2 / lam) / delta)
            beta = (sigma + S_x * S_all * error[a] * math.sqrt(n)) * math.sqrt(spread) + math.sqrt(lam) * S_w
        else:
            beta = sigma
        widths[a] = alpha * beta * math.sqrt(max(x @ PVP @ x, 0.0))
        if kind != "posterior":
            widths[a] += alpha * S_x * S_all * error[a]
    return estimates, widths


def parallel_sum(A, G, tau2, s2):
    """``Λ = A(τ²G + s²A)⁺G = (s²G⁻¹ + τ²A⁻¹)⁻¹``, without inverting ``A`` or ``G``.

    This is the precision of ``b − M̂w`` when the log's Gram matrix is ``G`` with noise ``s²`` and the
    queries' Gram matrix is ``A`` with noise ``τ²``.  Either may be singular: a direction that one of
    them has not seen gets precision zero.

    Args:
        A: (…, L, L)  positive semi-definite.
        G: (…, L, L)  positive semi-definite.
        tau2: ``τ²``, the variance of what the recorded features do not predict of the hidden ones' effect.
        s2: ``s²``, the residual variance of the log.
    """
    A, G = np.asarray(A, dtype=np.float64), np.asarray(G, dtype=np.float64)
    if A.shape[-1] == 0:
        return np.zeros_like(G)
    # units differ between columns: scaling to unit diagonal makes the cut-off below mean the same for all
    scale = np.sqrt(np.maximum(np.diagonal(tau2 * G + s2 * A, axis1=-2, axis2=-1), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    outer = scale[..., :, None] * scale[..., None, :]
    total = (tau2 * G + s2 * A) / outer
    values, vectors = np.linalg.eigh((total + np.swapaxes(total, -1, -2)) / 2)
    cut = values.shape[-1] * np.finfo(np.float64).eps * np.maximum(values[..., -1:], 0.0)
    inverse = np.where(values > cut, 1.0 / np.where(values > cut, values, 1.0), 0.0)
    left = (A / scale[..., None, :]) @ vectors
    right = (G / scale[..., None, :]) @ vectors
    out = (left * inverse[..., None, :]) @ np.swapaxes(right, -1, -2)
    return (out + np.swapaxes(out, -1, -2)) / 2


def doubly_robust(X, codes, rewards, taken, chance, fold, K):
    """Doubly robust scores (n,), fold by fold with all rows at hand: ridge for each arm around the pooled one.

    Columns at mean 0 and deviation 1, then their squares at root mean square 1; ``chance`` (n,) of the logged arm, or
    ``None``: a softmax of linear functions by plain Newton steps.
    """
    n = len(X)
    Z = np.column_stack([np.ones(n), (X - X.mean(axis=0)) / X.std(axis=0)])
    C = Z
    if n >= 20 * K * (2 * Z.shape[1] - 1):
        squares = Z[:, 1:] ** 2 - 1
        C = np.column_stack([Z, squares / np.sqrt((squares**2).mean(axis=0))])
    mu, e = np.zeros((n, K)), np.zeros((n, K))
    r = rewards - rewards.mean()
    pull = np.eye(C.shape[1])
    for k in range(fold.max() + 1):
        rest, there = fold != k, fold == k
        pooled = np.linalg.solve(C[rest].T @ C[rest] + pull, C[rest].T @ r[rest])
        for a in range(K):
            own = rest & (codes == a)
            more = np.linalg.solve(C[own].T @ C[own] + pull, C[own].T @ (r[own] - C[own] @ pooled))
            mu[there, a] = rewards.mean() + C[there] @ (pooled + more)
        if chance is None:
            W = np.zeros((K, Z.shape[1]))
            observed = np.eye(K)[codes[rest]]
            penalty = np.tile([1e-6, *np.ones(Z.shape[1] - 1)], K)
            for _ in range(30):
                p = np.exp(Z[rest] @ W.T)
                p /= p.sum(axis=1, keepdims=True)
                gradient = ((p - observed).T @ Z[rest]).ravel() + penalty * W.ravel()
                H = np.einsum("na,ab,ni,nj->aibj", p, np.eye(K), Z[rest], Z[rest])
                H -= np.einsum("na,nb,ni,nj->aibj", p, p, Z[rest], Z[rest])
                H = H.reshape(W.size, W.size) + np.diag(penalty)
                W -= np.linalg.solve(H, gradient).reshape(W.shape)
            p = np.exp(Z[there] @ W.T)
            e[there] = p / p.sum(axis=1, keepdims=True)
    at = np.arange(n)
    propensity = e[at, codes] if chance is None else chance
    weights = (codes == taken) / np.maximum(propensity, 1e-3)
    return mu[at, taken] + weights * (rewards - mu[at, codes])


def arm_noises(variance, left, free, spreads, weights, steps):
    """``σ_a²`` (K,): posterior means of ``log σ_a²/σ²`` over the spreads, each by Newton's and Laplace's methods."""
    ratio = left / variance
    centre = np.log((20.0 + ratio.sum()) / (20.0 + free.sum()))
    values, modes = [], []
    for spread, weight in zip(spreads, weights, strict=True):
        u = np.full(len(left), centre)
        for _ in range(steps):
            half = 0.5 * ratio * np.exp(-u)
            slope = -0.5 * free + half - (u - centre) / spread
            u = u + np.clip(slope / (half + 1.0 / spread), -1.0, 1.0)
        half = 0.5 * ratio * np.exp(-u)
        each = -0.5 * free * u - half - 0.5 * (u - centre) ** 2 / spread - 0.5 * np.log(1.0 + spread * half)
        values.append(each.sum() + weight)
        modes.append(u)
    chances = np.exp(np.array(values) - max(values))
    return variance * np.exp(chances @ np.array(modes) / chances.sum())


def spread_likelihood(omega, s2, freedom, spreads, nodes, grid, noise_spreads, noise_weights, error):
    """``log Σ_{σ², v} π Π_a Σ_{q, n} N(log s²_a; log(σ²e^{√v n} + ωq), 2/ν_a + error²)``, see ``side.spread``."""
    from math import lgamma

    values = []
    for v, weight in zip(noise_spreads, noise_weights, strict=True):
        for centre in grid:
            around = (grid == centre).astype(float) if v == 0 else np.exp(-0.5 * (grid - centre) ** 2 / v)
            around = around / around.sum()
            total = weight
            for a in range(len(s2)):
                mean = spreads[a].sum()
                shape = mean**2 / (2.0 * np.square(spreads[a]).sum())
                chances = np.exp(shape * (nodes - np.exp(nodes)) + shape * np.log(shape) - lgamma(shape))
                chances = chances / chances.sum()
                expected = np.log(np.exp(grid)[:, None] + omega * mean * np.exp(nodes))
                fit = np.exp(-0.5 * (np.log(s2[a]) - expected) ** 2 / (2.0 / freedom[a] + error**2)) @ chances
                total += np.log(max(around @ fit, 1e-300))
            values.append(total)
    return max(values) + np.log(np.exp(np.array(values) - max(values)).sum())


def arms_preferences(X: np.ndarray, arms: np.ndarray, K: int) -> np.ndarray:
    """``p_a = D⁻¹(E[x | a] − E[x])`` of a log's rows, with a thousandth of variances on top, shrunk by James and Stein.

    X: (N, p)  recorded features that vary.
    """
    N, p = X.shape
    centred = X - X.mean(axis=0)
    D = centred.T @ centred / N
    D = D + np.diag(1e-3 * np.diag(D))
    out = np.zeros((K, p))
    for a in range(K):
        n = np.sum(arms == a)
        if n:
            shift = centred[arms == a].mean(axis=0)
            found = np.linalg.solve(D, shift)
            out[a] = max(0.0, 1.0 - p / (n * shift @ found)) * found
    return out


def within_arms(Z: np.ndarray, Y: np.ndarray, arms: np.ndarray, level: int, v: float) -> np.ndarray:
    """``Σ_a[Z_a Y_a]ᵀ(I + v l_a l_aᵀ)⁻¹[Z_a Y_a]``, ``l_a`` the column ``level`` of ``Z``; all of its own square."""
    both = np.column_stack([Z, Y])
    total = np.zeros((both.shape[1], both.shape[1]))
    for a in np.unique(arms):
        own = both[arms == a]
        inverse = np.linalg.inv(np.eye(len(own)) + v * np.outer(own[:, level], own[:, level]))
        total += own.T @ inverse @ own
    total[level, level] = np.square(Z[:, level]).sum()
    return total


def own_likelihood(total, D, level, strength, answers):
    """Log likelihood of the pooled regression with pull ``κ₀D``, its level all but free; see ``hidden.pooling``."""
    n = len(D)
    T = total[:n, :n] + strength * D
    T[level, level] = total[level, level] + 1e-6
    value = 0.0
    for j in range(n, len(total)):
        explained = total[j, :n] @ np.linalg.solve(T, total[:n, j]) / total[j, j]
        value -= 0.5 * (answers + 1.0) * np.log(1.0 - explained + 1.0 / answers)
        value -= 0.5 * (np.linalg.slogdet(T)[1] - (n - 1) * np.log(strength))
    return value


# ------------------------------------------------------------------------------------------- gaps in contexts


def conditional_normal(X: np.ndarray, x: np.ndarray, shrinkage: float) -> tuple[np.ndarray, np.ndarray]:
    """``x̂ = E[x | present]`` and ``Σ`` of what is missing (NaN) in ``x``, for normal features with ``X``'s moments.

    Correlations from ``n`` rows count for ``n/(n + shrinkage)`` of themselves; a constant column says nothing.
    """
    n, d = X.shape
    C = np.cov(X.T)
    for i in range(d):
        for j in range(d):
            if i != j:
                C[i, j] *= n / (n + shrinkage)
    mean = X.mean(axis=0)
    gone = np.isnan(x)
    there = ~gone & (np.diag(C) > 0)
    regression = C[np.ix_(gone, there)] @ np.linalg.inv(C[np.ix_(there, there)])
    out = x.copy()
    out[gone] = mean[gone] + regression @ (x[there] - mean[there])
    return out, C[np.ix_(gone, gone)] - regression @ C[np.ix_(there, gone)]


def gap_variance(covariance: np.ndarray, w: np.ndarray, spread: np.ndarray) -> float:
    """``E[wᵀΣw]`` of weights of mean ``w`` and covariance ``spread``."""
    return float(w @ covariance @ w + np.trace(covariance @ spread))


def weighted_ridge(X: np.ndarray, r: np.ndarray, weights: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """``ŵ = V⁻¹Σ c x r`` and ``V = λI + Σ c x xᵀ``: rounds whose noise has the variance ``σ²/c``."""
    V = ridge * np.eye(X.shape[1])
    Y = np.zeros(X.shape[1])
    for x, reward, c in zip(X, r, weights, strict=True):
        V = V + c * np.outer(x, x)
        Y = Y + c * reward * x
    return np.linalg.solve(V, Y), V


def completed_answer(x, L, recorded, regression, residual):
    """An answered context as it counts: missing recorded features from the present ones, then missing hidden ones.

    recorded: mean and covariance of the recorded features   regression: slopes (L, m) and levels (m,) of the hidden
    ones   residual: (m, m)  what it leaves
    Returns the context and the covariance (d, d) of its hidden features.
    """
    y, more = x.copy(), np.zeros((len(x), len(x)))
    (mean, covariance), (slopes, levels) = recorded, regression
    gone = np.isnan(y[:L])
    if gone.any():
        there = ~gone
        solved = np.linalg.pinv(covariance[np.ix_(there, there)], rcond=1e-10)
        y[:L][gone] = mean[gone] + covariance[np.ix_(gone, there)] @ solved @ (y[:L][there] - mean[there])
    gone = np.isnan(y[L:])
    if gone.any():
        there, expected = ~gone, y[:L] @ slopes + levels
        C = residual[np.ix_(gone, there)] @ np.linalg.inv(residual[np.ix_(there, there)])
        y[L:][gone] = expected[gone] + C @ (y[L:][there] - expected[there])
        at = L + np.flatnonzero(gone)
        more[np.ix_(at, at)] = residual[np.ix_(gone, gone)] - C @ residual[np.ix_(there, gone)]
    return y, more
