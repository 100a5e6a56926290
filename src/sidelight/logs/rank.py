"""Which columns of a triangular factor are independent, judged after scaling them to unit norm."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, islice

import numpy as np

__all__ = ["independent_columns", "scaled_condition", "smallest_common_removal"]

# What a column must keep, relative to its norm, after the columns before it are projected out. A repeated column
# keeps a few rounding errors (1e-16 times the number of columns); NIST's hardest polynomial (Filip) keeps 1e-9.
_TOLERANCE = 1e-13


def _scaled(factor: np.ndarray) -> np.ndarray:
    norms = np.sqrt((factor * factor).sum(axis=0))
    return factor / np.where(norms > 0, norms, 1.0)


def independent_columns(factor: np.ndarray) -> np.ndarray:
    """Positions of a largest set of independent columns of ``factor`` (q, q), earlier columns preferred."""
    q = factor.shape[1]
    # Scaling twice keeps squares of 1e200 from overflowing.
    largest = np.abs(factor).max(axis=0, initial=0.0)
    scaled = _scaled(factor / np.where(largest > 0, largest, 1.0))
    diagonal = np.abs(np.diag(scaled))
    tolerance = _TOLERANCE * max(1.0, q / 10)
    if (diagonal > tolerance).all():
        return np.arange(q)
    basis = np.zeros((q, 0))
    kept = []
    for j in range(q):
        column = scaled[:, j].copy()
        # Twice is enough: the second projection removes what rounding left of the first.
        for _ in range(2):
            column -= basis @ (basis.T @ column)
        norm = np.linalg.norm(column)
        if norm > tolerance:
            kept.append(j)
            basis = np.column_stack([basis, column / norm])
    return np.array(kept, dtype=np.int64)


def scaled_condition(factor: np.ndarray) -> float:
    """The condition number of ``factor`` after scaling its columns to unit norm."""
    from scipy.linalg import svd

    if factor.shape[1] == 0:
        return 1.0
    values = svd(_scaled(factor), compute_uv=False, lapack_driver="gesvd")
    return float(values[0] / values[-1]) if values[-1] > 0 else float("inf")


def smallest_common_removal(factors: Sequence[np.ndarray], n_columns: int, tries: int = 20_000) -> tuple[int, ...]:
    """A smallest set of columns whose removal leaves every factor with independent columns.

    For one factor that is what is left of any largest independent set. For several it is a search: sets of growing
    size, later columns first, ``tries`` of them; then what a greedy walk from the left leaves, which always mends
    but may be larger than necessary.
    """
    if not factors:
        return ()

    def mends(kept: Sequence[int]) -> bool:
        return all(len(independent_columns(factor[:, kept])) == len(kept) for factor in factors)

    kept: list[int] = []
    for j in range(n_columns):
        if mends([*kept, j]):
            kept.append(j)
    greedy = tuple(j for j in range(n_columns) if j not in kept)
    least = max(n_columns - len(independent_columns(factor)) for factor in factors)
    if len(greedy) == least:
        return greedy
    later_first = range(n_columns - 1, -1, -1)
    sets = (s for size in range(least, len(greedy)) for s in combinations(later_first, size))
    for removed in islice(sets, tries):
        if mends([j for j in range(n_columns) if j not in removed]):
            return tuple(sorted(removed))
    return greedy
