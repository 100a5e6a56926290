"""What complete rows teach about rewards and about the old policy: ``μ̂(x, a)`` and ``ê(a|x)``, each fold by the others.

``μ̂`` is a ridge regression for each arm, on the features and, with enough rows, their squares; it is made of sums, so
one pass over the rows fits all folds.  ``ê`` is a softmax of linear functions, fitted on at most ``SAMPLED`` rows.
"""

from __future__ import annotations

import numpy as np

from sidelight.judging.choice import decisive_column, softmax, softmax_regression
from sidelight.judging.complete_rows import Chunk, CompleteRows
from sidelight.linalg import Array
from sidelight.logs.reduce.moments import triangular_factor

__all__ = ["FOLDS", "SAMPLED", "Fitted", "folds", "ridge_of_sums"]

FOLDS = 5
#: Rows on which the model of the old policy is fitted at most, and numbers that they may hold (32 MB).
SAMPLED, _SAMPLED_NUMBERS = 100_000, 4 << 20
# Penalty of the ridge regressions, in units of rows.
_PENALTY = 1.0
# From this many rows per coefficient on, squares are fitted too.
_ROWS_FOR_SQUARES = 20
# Number of rows examined to see whether a column has more than two values.
_LOOKED_AT = 2_000


def folds(hashes: np.ndarray) -> np.ndarray:
    """(n,) the fold of each row, by the hash (n,) of its number."""
    return np.asarray((hashes >> np.uint64(8)) % np.uint64(FOLDS)).astype(np.int64)


class Fitted:
    """``μ̂`` and ``ê`` of every fold, fitted on the other folds' rows.

    Args:
        rows: complete rows.

    Attributes:
        mean_reward: over all rows.
        sampled: on how many rows ``ê`` was fitted; 0 if propensities are known.
    """

    def __init__(self, rows: CompleteRows) -> None:
        self._K, n, self._names = len(rows.arms), len(rows), rows.schema.encoded_names[1:]
        factors = rows.summary.factors
        # the constant comes first, so the rows of the pooled factor below the first hold the deviations from the mean
        pooled = triangular_factor(factors.reshape(-1, factors.shape[-1]), careful=False)
        self.mean_reward = float(pooled[0, 0] * pooled[0, -1]) / n
        deviation = np.sqrt(np.square(pooled[1:, 1:-1]).sum(axis=0) / n)
        means = pooled[0, 0] * pooled[0, 1:-1] / n
        self._varies = deviation > 1e-9 * np.hypot(deviation, means)
        self._means, self._deviations = means[self._varies], deviation[self._varies]
        self._bends = np.zeros(len(self._means), dtype=bool)
        limit = min(SAMPLED, max(1_000, _SAMPLED_NUMBERS // (1 + len(self._means))))
        most = np.uint64(min(1.0, limit / n) * (2.0**64 - 2.0**12))
        sums: Array | None = None
        sample: list[tuple[Array, np.ndarray, np.ndarray]] = []
        for chunk in rows.chunks():
            Z = self._standardized(chunk.X)
            if sums is None:
                self._look_for_curves(Z, n)
                p = Z.shape[1] + int(self._bends.sum()) + 1
                sums = np.zeros((FOLDS, self._K, p, p))
            fold = folds(chunk.hashes)
            self._add(sums, Z, chunk, fold)
            if not rows.known:
                kept = np.ones(len(Z), dtype=bool) if n <= limit else chunk.hashes <= most
                sample.append((Z[kept], chunk.codes[kept], fold[kept]))
        assert sums is not None  # a summary has rows
        # scale squares to standard deviation 1 like the other columns, which is known only after the pass
        total = sums.sum(axis=(0, 1))
        size = np.sqrt(np.diag(total) / n)
        size[-1] = 1.0
        self._size = np.where(size > 0.0, size, 1.0)[:-1]
        scale = np.append(self._size, 1.0)
        sums /= np.outer(scale, scale)
        everything = sums.sum(axis=0)
        self._beta = np.stack([ridge_of_sums(everything - own) for own in sums])
        self._grams = everything[:, :-1, :-1]
        self.sampled = 0
        self._W: Array | None = None
        if not rows.known:
            Z = np.concatenate([part[0] for part in sample])
            codes, fold = (np.concatenate([part[i] for part in sample]) for i in (1, 2))
            self.sampled = len(Z)
            # start from the fit to the whole sample, which is close to the fit to all folds but one
            start = softmax_regression(Z, codes, self._K)
            self._W = np.stack(
                [softmax_regression(Z[fold != k], codes[fold != k], self._K, start=start) for k in range(FOLDS)]
            )

    def _standardized(self, X: Array) -> Array:
        """(n, p) a constant, and the columns of X that vary, at mean 0 and deviation 1."""
        return np.column_stack([np.ones(len(X)), (X[:, 1:][:, self._varies] - self._means) / self._deviations])

    def _look_for_curves(self, Z: Array, n: int) -> None:
        """Choose the columns whose squares are fitted: those with more than two values, if rows suffice for all."""
        # the square of a column with two values is a linear function of it
        bends = np.array([len(np.unique(column)) > 2 for column in Z[:_LOOKED_AT, 1:].T], dtype=bool)
        if n >= _ROWS_FOR_SQUARES * self._K * (Z.shape[1] + int(bends.sum())):
            self._bends = bends

    def _curved(self, Z: Array) -> Array:
        return np.column_stack([Z, np.square(Z[:, 1:][:, self._bends]) - 1.0]) if self._bends.any() else Z

    def _add(self, sums: Array, Z: Array, chunk: Chunk, fold: np.ndarray) -> None:
        """Add ``[z | r − r̄]ᵀ[z | r − r̄]`` of every fold and arm."""
        columns = np.column_stack([self._curved(Z), chunk.rewards - self.mean_reward])
        group = fold * self._K + chunk.codes
        order = np.argsort(group, kind="stable")
        columns, starts = columns[order], np.searchsorted(group[order], np.arange(FOLDS * self._K + 1))
        for g in range(FOLDS * self._K):
            own = columns[starts[g] : starts[g + 1]]
            if len(own):
                sums[g // self._K, g % self._K] += own.T @ own

    def decisive(self, arm: int) -> str:
        """The column that tells most about whether the old policy takes the arm; ``ê`` must be fitted, not known."""
        assert self._W is not None
        return self._names[int(np.flatnonzero(self._varies)[decisive_column(self._W.mean(axis=0), arm)])]

    @property
    def n_columns(self) -> int:
        """``p``, the number of columns that ``μ̂`` is linear in."""
        return int(self._grams.shape[1])

    def columns(self, chunk: Chunk) -> Array:
        """(n, p) the columns that ``μ̂`` is linear in."""
        return self._curved(self._standardized(chunk.X)) / self._size

    def freedom(self) -> Array:
        """(K,) how many coefficients each arm's rows determine, ``tr (Σzzᵀ + I)⁻¹Σzzᵀ``."""
        pull = _PENALTY * np.eye(self.n_columns)
        return np.array([float(np.trace(np.linalg.solve(gram + pull, gram))) for gram in self._grams])

    def error(self, ell: Array, variances: Array) -> float:
        """The variance of ``Σ_a ℓ_a·β_a``, ``β_a`` fitted on all rows: ``Σ_a s_a² ℓ_aᵀ(Σzzᵀ + I)⁻¹ℓ_a``.

        Args:
            ell: (K, p) means over all rows of ``z 1{π=a}``, or differences of them.
            variances: (K,) ``s_a²``.
        """
        pull = _PENALTY * np.eye(ell.shape[1])
        return sum(
            float(s2 * (own @ np.linalg.solve(gram + pull, own)))
            for s2, own, gram in zip(variances, ell, self._grams, strict=True)
            if own.any()
        )

    def predicted(self, chunk: Chunk) -> tuple[Array, Array]:
        """``μ̂`` (n, K) and the chances (n, K) of rows; of known propensities only the logged arm's column counts."""
        Z, fold, at = self._standardized(chunk.X), folds(chunk.hashes), np.arange(len(chunk.X))
        curved = self._curved(Z) / self._size
        mu, chance = np.zeros((len(Z), self._K)), np.full((len(Z), self._K), np.nan)
        for k in range(FOLDS):
            there = fold == k
            mu[there] = self.mean_reward + curved[there] @ self._beta[k].T
            if self._W is not None:
                chance[there] = softmax(Z[there] @ self._W[k].T)
        if chunk.propensities is not None:
            chance[at, chunk.codes] = chunk.propensities
        return mu, chance


def ridge_of_sums(sums: Array) -> Array:
    """(K, p) ridge regressions, each arm shrunk towards the one over all arms.

    Args:
        sums: (K, p + 1, p + 1) ``[z | r]ᵀ[z | r]`` of every arm.
    """
    K, p = len(sums), sums.shape[1] - 1
    pull = _PENALTY * np.eye(p)
    total = sums.sum(axis=0)
    pooled = np.linalg.solve(total[:p, :p] + pull, total[:p, p])
    own = np.linalg.solve(sums[:, :p, :p] + pull, (sums[:, :p, p] - sums[:, :p, :p] @ pooled)[..., None])
    return np.asarray(pooled + own.reshape(K, p))
