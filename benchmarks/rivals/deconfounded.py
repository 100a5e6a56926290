"""Deconfounded Warm-Start Thompson Sampling (Jaiswal, Keyvanshokooh, Cao 2025, arXiv 2505.17283).

Linear Thompson sampling whose prior on the recorded features' weights is the Doubly Debiased Lasso (Guo, Ćevid,
Bühlmann 2022) of the log, arm by arm, with its variances; the hidden features keep a wide prior. Recorded features
whose debiased weight is significant for no arm are left out of the context.

The transform is that of the estimator's authors (``zijguo/Doubly-Debiased-Lasso``, ``R/method.R``): singular values are
trimmed to their median, and what is outside the columns' range is left as it is (a log has more rows than columns).
Chosen here: the lasso penalties are ``A σ √(2 log p / n)`` after the transform, ``A`` tuned between 1.1, the rule of
theory, and 0.1, about as little as the authors' cross-validation leaves where rows are many; significance is at 5 %,
and all features are kept where none is significant; the sampling deviation is ``alpha`` times the log's residual
deviation (the paper's ``v``), tuned; the wide prior has precision ``regularization``, tuned. All of it needs nothing
but the log's triangular factors: rows enter through ``X = QR``, and the transforms act within the range of ``[X, r]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

import sidelight as sl
from benchmarks.rivals.ridge import Rival, Sums, noise_of

Array = Any
PENALTY = 1.1
SIGNIFICANT = 1.959964


def trim(X: Array) -> Array:
    """The spectral transform ``U diag(min(d, median d)/d) Uᵀ`` of the columns of ``X = U diag(d) Vᵀ``.  (n, n)"""
    U, d, _ = np.linalg.svd(X, full_matrices=False)
    kept = d > d[0] * 1e-12
    U, d = U[:, kept], d[kept]
    return (U * (np.minimum(d, np.median(d)) / d)) @ U.T


def lasso(X: Array, y: Array, penalty: float) -> Array:
    """``argmin ½‖y − Xβ‖² + penalty·Σ|β_j|·‖X_j‖`` by coordinate descent.  (p,)"""
    return _descend(X.T @ X, X.T @ y, penalty, 1e-10 * float(np.linalg.norm(y)))


@njit(cache=True)
def _descend(gram: Array, moment: Array, penalty: float, enough: float, sweeps: int = 500) -> Array:
    """Coordinate descent of the lasso from ``XᵀX`` (p, p) and ``Xᵀy`` (p,), until no fit moves by ``enough``."""
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    beta = np.zeros(len(moment))
    for _ in range(sweeps):
        largest = 0.0
        for j in range(len(beta)):
            partial = moment[j] - np.sum(gram[j] * beta) + gram[j, j] * beta[j]
            new = np.sign(partial) * max(abs(partial) - penalty * scale[j], 0.0) / max(gram[j, j], 1e-300)
            largest = max(largest, abs(new - beta[j]) * scale[j])
            beta[j] = new
        if largest <= enough:
            break
    return beta


def doubly_debiased_lasso(
    X: Array, y: Array, n: int, wanted: Array | None = None, penalty: float = PENALTY
) -> tuple[Array, Array]:
    """Estimates and their deviations, of ``wanted`` coordinates (default all), from rows ``X``, ``y`` that stand for
    ``n`` rows (as after a QR); ``penalty`` is ``A`` above.

    The initial estimate is a lasso on spectrally transformed rows; each coordinate is then corrected along the residual
    of its own transformed regression on the others.
    """
    p = X.shape[1]
    Q = trim(X)
    level = np.sqrt(2.0 * np.log(max(p, 2)))
    sigma = float(np.linalg.norm(y - X @ np.linalg.lstsq(X, y, rcond=None)[0])) / np.sqrt(max(n - p, 1))
    initial = lasso(Q @ X, Q @ y, penalty * sigma * level)
    estimates, deviations = initial.copy(), np.full(p, np.inf)
    for j in range(p) if wanted is None else wanted:
        others = np.delete(np.arange(p), j)
        if not len(others):
            transform, direction = np.eye(len(X)), X[:, j]
        else:
            transform = trim(X[:, others])
            # outside the others' range (empty where p > n, the paper's case) rows are left as they are
            transform = transform + np.eye(len(X)) - _onto(X[:, others])
            residual_scale = float(np.linalg.norm(X[:, j])) / np.sqrt(n)
            nodewise = lasso(transform @ X[:, others], transform @ X[:, j], penalty * residual_scale * level)
            direction = transform @ (X[:, j] - X[:, others] @ nodewise)
        column = transform @ X[:, j]
        strength = float(direction @ column)
        if abs(strength) < 1e-12 * float(X[:, j] @ X[:, j] + 1e-300):
            continue  # nothing in the log tells this coordinate from the others
        rest = transform @ (y - X[:, others] @ initial[others])
        estimates[j] = direction @ rest / strength
        deviations[j] = sigma * np.linalg.norm(transform @ direction) / abs(strength)
    return (estimates, deviations) if wanted is None else (estimates[wanted], deviations[wanted])


def _onto(X: Array) -> Array:
    """The orthogonal projection onto the columns of ``X``.  (n, n)"""
    U, d, _ = np.linalg.svd(X, full_matrices=False)
    U = U[:, d > d[0] * 1e-12]
    return U @ U.T


class DeconfoundedWarmStart(Rival):
    """Thompson sampling from the debiased log.

    Args:
        summary: the log.
        alpha: sampling deviation, in multiples of the log's residual deviation.
        regularization: precision of the prior where the log says nothing, in noise units.
        penalty: ``A`` of the lassos.
    """

    def __init__(
        self, summary: sl.LogSummary, alpha: float = 1.0, regularization: float = 0.1, penalty: float = PENALTY
    ) -> None:
        super().__init__(summary)
        K, d = summary.n_arms, summary.n_features
        recorded = np.asarray(summary.recorded)
        noise = noise_of(summary)
        precisions = np.tile(regularization * np.eye(d), (K, 1, 1))
        means = np.zeros((K, d))
        useful = np.zeros(len(recorded), dtype=bool)
        for a in range(K):
            if not summary.determined[a]:
                continue
            factor = np.asarray(summary.moments.factors[a])
            n = int(summary.counts[a])
            estimates, deviations = doubly_debiased_lasso(factor[:, :-1], factor[:, -1], n, penalty=penalty)
            useful |= np.abs(estimates) > SIGNIFICANT * deviations
            known = np.isfinite(deviations) & (deviations > 0)
            means[a, recorded[known]] = estimates[known]
            precisions[a, recorded[known], recorded[known]] = noise**2 / deviations[known] ** 2
        self.kept = kept = np.setdiff1d(np.arange(d), recorded[~useful]) if useful.any() else np.arange(d)
        precisions, means = precisions[:, kept[:, None], kept], means[:, kept]
        self.sums = Sums(precisions, np.einsum("kij,kj->ki", precisions, means))
        self.deviation = alpha * noise

    def _choose(self, x: Array, rng: np.random.Generator | None) -> int:
        z = x[self.kept]
        draws = (rng or np.random.default_rng(0)).standard_normal(len(self.arms))
        return int((self.sums.estimates(z) + self.deviation * self.sums.norms(z) * draws).argmax())

    def _learn(self, a: int, x: Array, reward: float) -> None:
        self.sums.add(a, x[self.kept], reward)
