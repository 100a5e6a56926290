"""Per arm a count and the triangular factor of ``[x_o | r]``: update with a batch, merge with another part.

For arm ``a`` with rows ``X`` (n_a, p) and rewards ``r``, the factor is the upper-triangular ``R`` (p+1, p+1)
with nonnegative diagonal and ``RᵀR = [X | r]ᵀ[X | r]``. Two parts of a log are merged by the QR of their stacked
factors, which loses no digits of ill-conditioned columns, as a sum of Gram matrices would.

Large batches use a faster algorithm for the same factor (:mod:`sidelight.kernels.moments`): the columns are first
preconditioned, divided by a factor of earlier rows (the base), so that their Gram matrix is well conditioned and loses
few digits. Where the batch is so unlike earlier rows that this fails, it is factorized by QR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sidelight.kernels.moments import fold_gram, group_rows, preconditioned_grams

__all__ = ["BatchMoments", "Moments", "batch_moments", "merge_factors", "rows_per_batch", "triangular_factor"]

# What a batch may take up as float64; 131,072 rows of 27 columns are 28 MB.
_BATCH_BYTES = 32 << 20
_BATCH_ROWS = 131_072
# A base's diagonal is at least this part of its column's norm: smaller entries are only rounding error.
_FLOOR = 1e-8
# How far a Gram matrix may be from the identity: the product with the rounding unit is the error it costs.
_SPREAD = 1e4
# Rows per column before an arm's own factor is a good base.
_BASE_ROWS = 4
# Rows that are grouped by arm at a time; about as many as fit into the L2 cache.
_SPAN = 16_384
# Rows of up to this many numbers are factorized in extended precision, if there are at most this many arms.
_CAREFUL = 4_096
_FEW_ARMS = 64
# Batches with fewer rows are reduced by NumPy: that is fast enough, and no kernel has to be compiled.
_SMALL = 20_000


@dataclass
class Moments:
    """The sufficient statistics of ``K`` arms.

    Attributes:
        counts: (K,) int64, ``n_a``.
        sums: (K, p), ``Σ x_o``.
        factors: (K, p+1, p+1), ``R`` of ``[x_o | r]``.
        reward_sums: (K,), ``Σ r``; NaN, the default, where it is not known.
    """

    counts: np.ndarray
    sums: np.ndarray
    factors: np.ndarray
    reward_sums: np.ndarray = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if len(self.reward_sums) != len(self.counts):
            self.reward_sums = np.full(len(self.counts), np.nan)

    @classmethod
    def empty(cls, n_arms: int, n_columns: int) -> Moments:
        """The moments of zero rows: the neutral element of adding moments up."""
        size = n_columns + 1
        counts, sums = np.zeros(n_arms, dtype=np.int64), np.zeros((n_arms, n_columns))
        return cls(counts, sums, np.zeros((n_arms, size, size)), np.zeros(n_arms))

    @property
    def n_columns(self) -> int:
        """``p``: the columns of ``x_o``."""
        return int(self.sums.shape[1])

    def bases(self) -> tuple[np.ndarray, np.ndarray]:
        """A base for the next batches.

        Returns:
            ``bases`` (K, p+1, p+1) with a diagonal that can be divided by, and ``ready`` (K,): whether the
            arm has enough rows for its factor to serve as a base.
        """
        ready = self.counts >= _BASE_ROWS * self.factors.shape[1]
        return _base_of(self.factors), ready

    def fold(self, batch: BatchMoments) -> None:
        """Add what :func:`batch_moments` made of a batch."""
        for arm in np.flatnonzero(batch.by_gram).tolist():
            gram = np.ascontiguousarray(batch.grams[arm, :-1, :-1])
            self.factors[arm] = fold_gram(self.factors[arm], batch.bases[arm], gram)
        careful = len(self.counts) <= _FEW_ARMS
        for arm, factor in batch.direct.items():
            self.factors[arm] = merge_factors(self.factors[arm], factor, careful)
        self.counts += batch.counts
        self.sums += batch.sums[:, :-1]
        self.reward_sums += batch.sums[:, -1]

    def merge(self, other: Moments) -> Moments:
        """Both parts together; the arms and columns are the same in both."""
        careful = len(self.counts) <= _FEW_ARMS
        pairs = zip(self.factors, other.factors, strict=True)
        factors = np.stack([merge_factors(a, b, careful) for a, b in pairs])
        return Moments(
            self.counts + other.counts,
            self.sums + other.sums,
            factors.reshape(self.factors.shape),
            self.reward_sums + other.reward_sums,
        )

    def with_arms(self, positions: Sequence[int], n_arms: int) -> Moments:
        """The same rows where arm ``i`` is arm ``positions[i]`` of ``n_arms``."""
        moved = Moments.empty(n_arms, self.n_columns)
        at = np.asarray(positions, dtype=np.int64)
        moved.counts[at], moved.sums[at], moved.factors[at] = self.counts, self.sums, self.factors
        moved.reward_sums[at] = self.reward_sums
        return moved

    def of_arms(self, positions: np.ndarray) -> Moments:
        """The rows of the arms at ``positions`` alone, in that order."""
        return Moments(
            self.counts[positions], self.sums[positions], self.factors[positions], self.reward_sums[positions]
        )

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
        return Moments(self.counts.copy(), self.sums @ map_, factors, self.reward_sums.copy())


def rows_per_batch(n_columns: int) -> int:
    """Rows of ``n_columns`` columns and a reward that take up a few megabytes."""
    return max(4_096, min(_BATCH_ROWS, _BATCH_BYTES // (8 * (n_columns + 1))))


def triangular_factor(rows: np.ndarray, careful: bool = True) -> np.ndarray:
    """``R`` (q, q) upper triangular with nonnegative diagonal and ``RᵀR = rowsᵀrows``, rows (n, q).

    Args:
        rows: (n, q), finite.
        careful: small problems are computed in extended precision, where the machine has it: what a log of few rows
            loses to rounding is then the rounding of the factor itself. Ten times slower, so not for thousands of arms.
    """
    n, q = rows.shape
    factor = np.zeros((q, q))
    if n and q:
        small = careful and n * q <= _CAREFUL and np.finfo(np.longdouble).eps < np.finfo(np.float64).eps
        upper: np.ndarray = _extended_factor(rows) if small else np.linalg.qr(rows, mode="r")  # type: ignore[assignment]
        upper *= np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]
        factor[: len(upper)] = upper
    return factor


def _extended_factor(rows: np.ndarray) -> np.ndarray:
    """Householder's triangle of ``rows`` (n, q), the first min(n, q) rows of it, rounded once at the end."""
    A = rows.astype(np.longdouble)
    r = min(A.shape)
    for k in range(r):
        mirror = A[k:, k].copy()
        norm = np.sqrt((mirror * mirror).sum())
        if norm == 0:
            continue
        mirror[0] += norm if mirror[0] >= 0 else -norm
        A[k:, k:] -= np.outer(mirror, (2 / (mirror * mirror).sum()) * (mirror @ A[k:, k:]))
    return np.triu(A[:r]).astype(np.float64)


def merge_factors(first: np.ndarray, second: np.ndarray, careful: bool = True) -> np.ndarray:
    """The factor of both parts: QR of the stacked triangles."""
    if not second.any():
        return first.copy()
    if not first.any():
        return second.copy()
    return triangular_factor(np.vstack([first, second]), careful)


@dataclass
class BatchMoments:
    """The moments of one batch: per arm a Gram matrix in the coordinates of its base, or a factor of its own.

    Attributes:
        counts: (K,) rows of each arm.
        sums: (K, p+1) ``Σ [x_o | r]``.
        grams: (K, p+2, p+2) ``[W | 1]ᵀ[W | 1]`` with ``W = A P⁻¹``.
        bases: (K, p+1, p+1) ``P``.
        by_gram: (K,) the arms whose rows are in ``grams``.
        direct: arm → factor, for the arms whose rows are not.
    """

    counts: np.ndarray
    sums: np.ndarray
    grams: np.ndarray
    bases: np.ndarray
    by_gram: np.ndarray
    direct: dict[int, np.ndarray]


def batch_moments(
    columns: Sequence[np.ndarray], codes: np.ndarray, bases: np.ndarray, ready: np.ndarray
) -> BatchMoments | None:
    """The moments of one batch; safe to run in several threads at once.

    Args:
        columns: the p+1 columns ``[x_o | r]``, each (n,) contiguous float64.
        codes: (n,) int64, the arm of each row, negative for a row to leave out.
        bases: (K, p+1, p+1) from :meth:`Moments.bases`.
        ready: (K,) from :meth:`Moments.bases`.

    Returns:
        The moments, or ``None`` if some value of a row that counts is not finite.
    """
    n, q, n_arms = len(codes), len(columns), len(ready)
    counts = np.bincount(codes[codes >= 0], minlength=n_arms).astype(np.int64)
    rows_of = _RowsOf(columns, codes)
    if n < _SMALL:
        by_gram = np.zeros(n_arms, dtype=bool)
        grams = np.zeros((n_arms, 0, 0))
    else:
        own = (counts >= 4 * _BASE_ROWS * q) & ~ready
        if own.any():
            bases = bases.copy()
            for arm in np.flatnonzero(own).tolist():
                bases[arm] = _base_of(triangular_factor(rows_of.arm(arm, _BASE_ROWS * q), careful=False))
        by_gram = (ready | own) & (counts > 0)
        grams = _grams(columns, codes, bases, by_gram)
    direct: dict[int, np.ndarray] = {}
    sums = np.zeros((n_arms, q))
    for arm in np.flatnonzero(counts).tolist():
        if by_gram[arm] and _is_harmless(grams[arm, :q, :q]):
            sums[arm] = grams[arm, q, :q] @ bases[arm]
            continue
        rows = rows_of.arm(arm)
        if not np.isfinite(rows).all():
            return None
        by_gram[arm] = False
        direct[arm] = triangular_factor(rows, careful=n_arms <= _FEW_ARMS)
        sums[arm] = rows.sum(axis=0)
    return BatchMoments(counts, sums, grams, bases, by_gram, direct)


def _grams(columns: Sequence[np.ndarray], codes: np.ndarray, bases: np.ndarray, use: np.ndarray) -> np.ndarray:
    """(K, q+1, q+1) ``[W | 1]ᵀ[W | 1]`` for the arms to use."""
    span = min(_SPAN, len(codes))
    positions, starts = group_rows(codes, len(use), span)
    addresses = np.array([column.ctypes.data for column in columns], dtype=np.uintp)
    grams: np.ndarray = preconditioned_grams(addresses, len(codes), positions, starts, span, bases, use)
    return grams


class _RowsOf:
    """The rows of one arm as a matrix, for the arms that need it."""

    def __init__(self, columns: Sequence[np.ndarray], codes: np.ndarray) -> None:
        self._columns, self._codes = columns, codes

    def arm(self, arm: int, limit: int | None = None) -> np.ndarray:
        """(n_a, q) rows ``[x_o | r]`` of this arm, the first ``limit`` of them."""
        where = np.flatnonzero(self._codes == arm)[:limit]
        rows = np.empty((len(where), len(self._columns)))
        for j, column in enumerate(self._columns):
            rows[:, j] = column[where]
        return rows


def _base_of(factors: np.ndarray) -> np.ndarray:
    """Factors (..., q, q) whose diagonal can be divided by: at least ``_FLOOR`` of the column's norm, 1 if it is 0."""
    bases = factors.copy()
    norms = np.sqrt((factors * factors).sum(axis=-2))
    diagonal = np.einsum("...ii->...i", bases)
    np.maximum(diagonal, _FLOOR * norms, out=diagonal)
    diagonal[norms == 0] = 1.0
    return bases


def _is_harmless(gram: np.ndarray) -> bool:
    """Whether rounding ``gram`` (q, q) costs no more than ``_SPREAD`` rounding units; not if it is not finite.

    The rows so far have the identity in these coordinates, so a Gram matrix below ``_SPREAD`` is harmless. A larger
    one is if it is itself a multiple of something close to the identity.
    """
    diagonal = np.diag(gram)
    largest = diagonal.max()
    if not np.isfinite(largest):
        return False
    if largest <= _SPREAD:
        return True
    try:
        pivots = np.diag(np.linalg.cholesky(gram))
    except np.linalg.LinAlgError:
        return False
    return bool(pivots.min() ** 2 * _SPREAD >= largest)
