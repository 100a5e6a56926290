"""The fused posterior, literally: rows in loops, explicit inverses, no caches.  Slow and obvious on purpose.

It shares the estimators of the hidden half with the package (they are compared elsewhere), and nothing else.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import eigh, sqrtm
from scipy.stats import chi2
from scipy.stats import f as f_distribution

import sidelight as sl


@dataclass
class RawLog:
    """A log as raw rows.

    Attributes:
        recorded: positions of the recorded features in the context, in any order of features.
        x_o: (n, L)   arms: (n,)   rewards: (n,)
        summary: what Sidelight makes of the rows.
    """

    recorded: list[int]
    x_o: np.ndarray
    arms: np.ndarray
    rewards: np.ndarray
    summary: sl.LogSummary
    d: int
    K: int

    @property
    def order(self) -> list[int]:
        return [*self.recorded, *(j for j in range(self.d) if j not in self.recorded)]

    @cached_property
    def gram(self) -> np.ndarray:
        G = np.zeros((self.K, len(self.recorded), len(self.recorded)))
        for x, a in zip(self.x_o, self.arms, strict=True):
            G[a] += np.outer(x, x)
        return G

    @cached_property
    def b(self) -> np.ndarray:
        g = np.zeros((self.K, len(self.recorded)))
        for x, a, r in zip(self.x_o, self.arms, self.rewards, strict=True):
            g[a] += x * r
        return np.array([np.linalg.inv(G) @ v for G, v in zip(self.gram, g, strict=True)])

    @cached_property
    def s2(self) -> np.ndarray:
        """Residual variance of each arm; every arm here has at least 30 degrees of freedom, so none borrows."""
        out = []
        for a in range(self.K):
            rows = self.arms == a
            residual = self.rewards[rows] - self.x_o[rows] @ self.b[a]
            freedom = int(rows.sum()) - len(self.recorded)
            assert freedom >= 30
            out.append(float(residual @ residual) / freedom)
        return np.array(out)

    @cached_property
    def meat(self) -> np.ndarray:
        """``Σ(ε/(1 − h))²x_ox_oᵀ``, row by row."""
        N = np.zeros_like(self.gram)
        for x, a, r in zip(self.x_o, self.arms, self.rewards, strict=True):
            left = 1.0 - x @ np.linalg.inv(self.gram[a]) @ x
            N[a] += ((r - x @ self.b[a]) / left) ** 2 * np.outer(x, x)
        return N

    @cached_property
    def meat_freedom(self) -> np.ndarray:
        """``E‖Ŵ − Ω‖²`` of rows against that of a Wishart matrix, with every row's own matrix where ``G = I``."""
        out = []
        for a in range(self.K):
            rows = self.arms == a
            T = np.linalg.inv(np.linalg.cholesky(self.gram[a]))
            Z = self.x_o[rows] @ T.T
            weights = ((self.rewards[rows] - self.x_o[rows] @ self.b[a]) / (1.0 - np.square(Z).sum(axis=1))) ** 2
            parts = weights[:, None, None] * Z[:, :, None] * Z[:, None, :]
            mean = parts.sum(axis=0)
            variation = np.square(parts - mean / len(Z)).sum()
            out.append((np.trace(mean @ mean) + np.trace(mean) ** 2) / variation)
        return np.array(out)

    def summarized(self) -> sl.LogSummary:
        """The same rows, read again for the sandwich."""
        return sl.summarize_log((self.x_o, self.arms, self.rewards), self.summary.schema, sandwich=True)


def draw_log(
    rng: np.random.Generator, d: int, recorded: list[int], K: int, weights: np.ndarray, sigma: float, rows: int = 60
) -> RawLog:
    """A policy that looks at all features, and a log without some of them."""
    X = rng.normal(size=(K * rows, d)) + 0.3
    X[:, 1:] += 0.5 * X[:, :1]
    arms = rng.permutation(np.repeat(np.arange(K), rows))
    X += 0.4 * np.eye(d)[arms % d]
    rewards = np.einsum("nd,nd->n", X, weights[arms]) + sigma * rng.normal(size=len(X))
    schema = sl.Schema.for_arrays(d, recorded=recorded, n_arms=K)
    summary = sl.LogSummary.from_arrays(X[:, recorded], arms, rewards, schema)
    return RawLog(recorded, X[:, recorded], arms, rewards, summary, d, K)


def answers_half(raw: RawLog, a: int, A: np.ndarray, tau2: float, whole: bool) -> np.ndarray:
    """``A⁻¹NA⁻¹``, ``N = X^{1/2}W(X^{1/2})ᵀ``, ``X = AR11⁻¹``; ``W``, or what of it may be the hidden features' doing.

    ``Wv = oR11v`` has solutions with ``V R11 V = I``, so that ``W = R11V diag(o) VᵀR11``.
    """
    n = int((raw.arms == a).sum())
    R11 = raw.gram[a] / n
    W = 0.9 * raw.meat[a] / n + 0.1 * raw.s2[a] * R11
    o, V = eigh(W, R11)
    if not whole:
        o = np.array([min(value, tau2 + max(value - raw.s2[a], 0.0)) for value in o])
        W = R11 @ V @ np.diag(o) @ V.T @ R11
    root = np.real(sqrtm(A @ np.linalg.inv(R11)))
    return np.linalg.inv(A) @ root @ W @ root.T @ np.linalg.inv(A)


def scarcity(L: int, freedom: float, delta: float, matrix: bool = False) -> float:
    """The quantile of ``ξᵀĈ⁻¹ξ`` over that of ``ξᵀC⁻¹ξ``: Snedecor's F, with ``matrix`` Hotelling's ``T²``."""
    if matrix:
        freedom = max(freedom, L)
        k = freedom - L + 1
        return L * freedom / k * f_distribution.isf(delta, L, k) / chi2.isf(delta, L)
    return L * f_distribution.isf(delta, L, max(freedom, 1.0)) / chi2.isf(delta, L)


def known_error(raw: RawLog, a: int, B: np.ndarray, second: np.ndarray) -> np.ndarray:
    """``n·Cov(x_o(x_o·v))`` for normal ``x_o`` and ``v = Bw_h``, ``E[w_hw_hᵀ]`` given, by moments one by one."""
    x_o = raw.x_o[raw.arms == a]
    mu, Psi, L = x_o.mean(axis=0), B @ second @ B.T, x_o.shape[1]
    S = x_o.T @ x_o / len(x_o) - np.outer(mu, mu)
    total = np.zeros((L, L))
    for i, j, k, h in np.ndindex(L, L, L, L):
        # E[x_ix_jx_kx_h] − E[x_ix_k]E[x_jx_h] of normal variables
        fourth = mu[i] * mu[j] * mu[k] * mu[h]
        for (p, q), (r, t) in (((i, j), (k, h)), ((i, k), (j, h)), ((i, h), (j, k))):
            fourth += S[p, q] * S[r, t] + S[p, q] * mu[r] * mu[t] + mu[p] * mu[q] * S[r, t]
        total[i, j] += (fourth - (S[i, k] + mu[i] * mu[k]) * (S[j, h] + mu[j] * mu[h])) * Psi[k, h]
    return len(x_o) * total


@dataclass
class ReferenceFused:
    """``V = λI + σ²ΣM̂ᵀΛM̂ + Σxxᵀ`` etc. with ``λ``, ``μ``, ``σ`` given.

    Attributes:
        logs: raw rows with the estimator of their hidden half.
        delta, settings: ``δ`` and ``J`` of that radius.
        weight_bound: given for ``radius="theory"``, where ``τ²`` is the largest that it allows.
    """

    logs: list[tuple[RawLog, Any]]
    K: int
    d: int
    lam: float
    mu: np.ndarray
    sigma: float
    alpha: float = 1.0
    bias_bound: float = 0.0
    sandwich: bool = False
    weight_bound: float | None = None
    context_bound: float = 1.0
    delta: float = 0.05
    settings: int = 1
    rounds: list[tuple[np.ndarray, int, float]] = field(default_factory=list)
    refreshes: int = 0

    def __post_init__(self) -> None:
        self.logs = [(raw, copy.deepcopy(estimator)) for raw, estimator in self.logs]
        self.tau2 = [0.5 * raw.s2 for raw, _ in self.logs]
        # what cancels in b − M̂w where x_o has no constant
        self.level = [np.zeros(self.K) for _ in self.logs]
        # on top of Σε²x_ox_oᵀ, where R12 is known; at first half of it again
        self.more = [0.5 * raw.s2[:, None, None] * np.array(raw.gram) for raw, _ in self.logs]
        self.evidence = self._evidence()
        self.refresh()

    # -------------------------------------------------------------------------------- events

    def answer(self, x: np.ndarray, arm: Any, probability: float = 1.0) -> None:
        for _, estimator in self.logs:
            estimator.observe(x, arm, probability)

    def observe(self, x: np.ndarray, a: int, r: float) -> None:
        self.rounds.append((x, a, r))

    # -------------------------------------------------------------------------------- algebra

    def follow(self, refreshes: int) -> None:
        """When to refresh is the learner's business; what then happens is not."""
        if refreshes > self.refreshes:
            self.refresh()
        assert refreshes == self.refreshes

    def refresh(self) -> None:
        """τ² from the posterior as it was, then what the logs say with it."""
        self.refreshes += 1
        _, w, covariance = self.posterior()
        for j, (raw, estimator) in enumerate(self.logs):
            h = raw.order[len(raw.recorded) :]
            Sigma_e = estimator.residual_moments()
            known = isinstance(estimator, sl.KnownCrossMoments)
            for a in range(self.K):
                if self.weight_bound is not None:
                    largest = (float(np.linalg.norm(self.mu[a][h])) + self.weight_bound) ** 2
                    tau2 = min(largest * np.linalg.eigvalsh(Sigma_e[a]).max(), raw.s2[a])
                    self.tau2[j][a] = self.context_bound**2 * largest if known else tau2
                    continue
                if known:
                    second = np.outer(w[a][h], w[a][h]) + covariance[a][np.ix_(h, h)]
                    self.more[j][a] = known_error(raw, a, estimator.regression()[a], second)
                    continue
                if estimator.n_answers == 0:
                    continue  # no second moments of hidden features yet: half of s², as at first
                second = np.outer(w[a][h], w[a][h]) + covariance[a][np.ix_(h, h)]
                tau2 = np.trace(Sigma_e[a] @ second)
                self.tau2[j][a] = min(tau2, raw.s2[a])
                level = estimator.level_moments()
                if level is not None and not self.sandwich:
                    share = self.tau2[j][a] * np.trace(level[a] @ second) / tau2
                    self.level[j][a] = min(share, 0.99 * raw.s2[a])
                    self.tau2[j][a] -= self.level[j][a]
        self.evidence = self._evidence()

    def _evidence(self) -> tuple[np.ndarray, np.ndarray]:
        shares = np.full((self.K, len(self.logs)), 1.0 / len(self.logs))
        if self.weight_bound is None and len(self.logs) > 1:
            shares = np.array([self._shares_of(a) for a in range(self.K)])
        self.parts = [self._evidence_of(j, shares[:, j]) for j in range(len(self.logs))]
        return sum(J for J, _ in self.parts), sum(h for _, h in self.parts)

    def _shares_of(self, a: int) -> np.ndarray:
        """Eight steps ``α_j ← α_j ∂log det V/∂α_j + 1/J``, scaled to sum 1.

        ``V = (λI + Σxxᵀ)/σ² + Σ_jM̂ᵀ(s²G⁻¹ + τ²A⁻¹/α_j)⁻¹M̂``
        """
        V0 = self.lam * np.eye(self.d) / self.sigma**2
        for x, arm, _ in self.rounds:
            V0 = V0 + (arm == a) * np.outer(x, x) / self.sigma**2
        logs = []
        for (raw, estimator), tau2, level in zip(self.logs, self.tau2, self.level, strict=True):
            M = np.zeros((len(raw.recorded), self.d))
            M[:, raw.order] = np.hstack([np.eye(len(M)), estimator.regression()[a]])
            own = (raw.s2[a] - level[a]) * np.linalg.inv(raw.gram[a])
            logs.append((M, own, tau2[a] * np.linalg.inv(estimator.precision()[a])))
        shares = np.full(len(logs), 1.0 / len(logs))
        for _ in range(8):
            inner = [np.linalg.inv(C + D / share) for (_, C, D), share in zip(logs, shares, strict=True)]
            V = V0 + sum(M.T @ Lambda @ M for (M, _, _), Lambda in zip(logs, inner, strict=True))
            for j, ((M, _, D), Lambda) in enumerate(zip(logs, inner, strict=True)):
                shares[j] = np.trace(np.linalg.inv(V) @ M.T @ Lambda @ D @ Lambda @ M) / shares[j]
            shares = (shares + 1.0 / len(logs)) / (shares.sum() + 1.0)
        return shares

    def _evidence_of(self, j: int, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``J = M̂ᵀ(s²G⁻¹ + τ²A⁻¹/α)⁻¹M̂`` and ``h = M̂ᵀ(…)⁻¹b`` of one log, in the context's order."""
        J, h = np.zeros((self.K, self.d, self.d)), np.zeros((self.K, self.d))
        raw, estimator = self.logs[j]
        L, proven = len(raw.recorded), self.weight_bound is not None
        B, A = estimator.regression(), estimator.precision()
        for a in range(self.K):
            n = int((raw.arms == a).sum())
            inverse, N = np.linalg.inv(raw.gram[a]), raw.s2[a] * raw.gram[a]
            if self.sandwich:
                N = 0.9 * raw.meat[a] + 0.1 * raw.s2[a] * raw.gram[a]
            C, few, own = inverse @ N @ inverse, 1.0, raw.s2[a] - self.level[j][a]
            if isinstance(estimator, sl.KnownCrossMoments):
                if proven and not self.sandwich:
                    own += self.tau2[j][a]
                else:
                    more = self.tau2[j][a] * raw.gram[a] if proven else self.more[j][a]
                    C = C + inverse @ more @ inverse
            if proven:
                delta = self.delta_of_refresh() / len(self.logs)
                freedom = raw.meat_freedom[a] if self.sandwich else n - L
                few = scarcity(L, freedom, delta, matrix=self.sandwich)
            if self.sandwich:
                C = few * (C + n * self.bias_bound**2 * inverse)
            else:
                C = C * (few * own + n * self.bias_bound**2) / raw.s2[a]
            if A is not None and not A[a].any():
                continue  # nobody answered: the log says nothing yet
            if A is not None:
                more = self.tau2[j][a] * np.linalg.inv(A[a])
                if self.sandwich:
                    precision = estimator.cautious_precision()[a] if proven else A[a]
                    more = (few if proven else 1.0) * answers_half(raw, a, precision, self.tau2[j][a], whole=proven)
                if proven:
                    more = scarcity(L, estimator.answer_counts()[a] - L, delta) * more
                C = C + more / shares[a]
            M = np.zeros((L, self.d))
            M[:, raw.order[:L]] = np.eye(L)
            M[:, raw.order[L:]] = B[a]
            J[a] += M.T @ np.linalg.inv(C) @ M
            h[a] += M.T @ np.linalg.inv(C) @ raw.b[a]
            if isinstance(estimator, sl.CompanionLog) and self.weight_bound is None:
                noise = max(raw.s2[a] - self.level[j][a] - self.tau2[j][a], 0.05 * raw.s2[a])
                J[a] += estimator.rows.grams[a] / noise
                h[a] += estimator.rows.cross[a] / noise
        return J, h

    def posterior(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``V``, ``ŵ`` and ``σ²V⁻¹`` of every arm."""
        J, h = self.evidence
        V, w, covariance = [], [], []
        for a in range(self.K):
            Va = self.lam * np.eye(self.d) + self.sigma**2 * J[a]
            Ya = self.lam * self.mu[a] + self.sigma**2 * h[a]
            for x, arm, r in self.rounds:
                if arm == a:
                    Va = Va + np.outer(x, x)
                    Ya = Ya + x * r
            V.append(Va)
            w.append(np.linalg.inv(Va) @ Ya)
            covariance.append(self.sigma**2 * np.linalg.inv(Va))
        return np.array(V), np.array(w), np.array(covariance)

    def scores(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        _, w, covariance = self.posterior()
        return w @ x, self.alpha * np.sqrt(np.einsum("i,aij,j->a", x, covariance, x))

    def delta_of_refresh(self) -> float:
        """``δ_k = δ/(2KJk(k + 1))``, ``k`` from 1."""
        k = max(self.refreshes, 1)
        return self.delta / (2 * self.K * self.settings * k * (k + 1))

    def theory_widths(self, x: np.ndarray) -> np.ndarray:
        """``√β‖x‖_{V⁻¹} + Σ_j γσ²‖Λ^{1/2}M̂V⁻¹x‖``, ``δ_k`` shared by the logs in the second term."""
        delta_k = self.delta_of_refresh()
        V, _, _ = self.posterior()
        total, out = self.evidence[0], []
        for a in range(self.K):
            V0 = self.lam * np.eye(self.d) + self.sigma**2 * total[a]
            ratio = np.linalg.slogdet(V[a])[1] - np.linalg.slogdet(V0)[1]
            beta = self.lam * self.weight_bound**2 + self.sigma**2 * (ratio + 2 * np.log(1 / delta_k))
            v = np.linalg.inv(V[a]) @ x
            width = np.sqrt(beta * (x @ v))
            for j, (raw, _) in enumerate(self.logs):
                gamma = np.sqrt(chi2.isf(delta_k / len(self.logs), len(raw.recorded))) + (self.bias_bound > 0)
                alone = self.parts[j][0][a]
                width += gamma * self.sigma**2 * np.sqrt(max(v @ alone @ v, 0.0))
            out.append(self.alpha * width)
        return np.array(out)
