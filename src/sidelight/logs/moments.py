"""Per arm a count and the triangular factor of ``[x_o | r]``: update with a batch, merge with another part.

For arm ``a`` with rows ``X`` (n_a, p) and rewards ``r``, the factor is the upper-triangular ``R`` (p+1, p+1) with
nonnegative diagonal and ``RᵀR = [X | r]ᵀ[X | r]``. Two parts of a log are merged by the QR of their stacked
factors, which loses no digits of ill-conditioned columns, as a sum of Gram matrices would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Moments", "merge_factors", "triangular_factor"]


@dataclass
class Moments:
    """The sufficient statistics of ``K`` arms.

    Attributes:
        counts: (K,) int64, ``n_a``.
        sums: (K, p), ``Σ x_o``.
        factors: (K, p+1, p+1), ``R`` of ``[x_o | r]``.
    """

    counts: np.ndarray
    sums: np.ndarray
    factors: np.ndarray

    @classmethod
    def empty(cls, n_arms: int, n_columns: int) -> Moments:
        """No rows at all."""
        size = n_columns + 1
        return cls(
            np.zeros(n_arms, dtype=np.int64), np.zeros((n_arms, n_columns)), np.zeros((n_arms, size, size))
        )

    @property
    def n_columns(self) -> int:
        """``p``: the columns of ``x_o``."""
        return self.sums.shape[1]

    def add_rows(self, rows: np.ndarray, codes: np.ndarray) -> None:
        """Add rows of finite numbers.

        Args:
            rows: (n, p+1), ``[x_o | r]``.
            codes: (n,) the arm of each row, ``0 .. K-1``.
        """
        order = np.argsort(codes, kind="stable")
        counts = np.bincount(codes, minlength=len(self.counts))
        ends = np.cumsum(counts)
        for arm in np.flatnonzero(counts):
            block = rows[order[ends[arm] - counts[arm] : ends[arm]]]
            self.sums[arm] += block[:, :-1].sum(axis=0)
            self.factors[arm] = merge_factors(self.factors[arm], triangular_factor(block))
        self.counts += counts

    def merge(self, other: Moments) -> Moments:
        """Both parts together; the arms and columns are the same in both."""
        factors = np.stack([merge_factors(a, b) for a, b in zip(self.factors, other.factors, strict=True)])
        return Moments(
            self.counts + other.counts, self.sums + other.sums, factors.reshape(self.factors.shape)
        )

    def with_arms(self, positions: Sequence[int], n_arms: int) -> Moments:
        """The same rows where arm ``i`` is arm ``positions[i]`` of ``n_arms``."""
        moved = Moments.empty(n_arms, self.n_columns)
        at = np.asarray(positions, dtype=np.int64)
        moved.counts[at], moved.sums[at], moved.factors[at] = self.counts, self.sums, self.factors
        return moved

    def with_columns(self, map_: np.ndarray) -> Moments:
        """The same rows with the columns ``x_o T``.

        Args:
            map_: ``T`` (p, q).
        """
        p, q = map_.shape
        wide = np.zeros((p + 1, q + 1))
        wide[:p, :q] = map_
        wide[p, q] = 1.0
        factors = np.zeros((len(self.counts), q + 1, q + 1))
        for arm in np.flatnonzero(self.counts):
            factors[arm] = triangular_factor(self.factors[arm] @ wide)
        return Moments(self.counts.copy(), self.sums @ map_, factors)


def triangular_factor(rows: np.ndarray) -> np.ndarray:
    """``R`` (q, q) upper triangular with nonnegative diagonal and ``RᵀR = rowsᵀrows``, rows (n, q)."""
    n, q = rows.shape
    factor = np.zeros((q, q))
    if n and q:
        upper = np.linalg.qr(rows, mode="r")
        upper *= np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]
        factor[: len(upper)] = upper
    return factor


def merge_factors(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The factor of both parts: QR of the stacked triangles."""
    if not second.any():
        return first.copy()
    if not first.any():
        return second.copy()
    return triangular_factor(np.vstack([first, second]))
