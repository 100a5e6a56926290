"""Which columns of a triangular factor are independent, judged after scaling them to unit norm."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, islice

import numpy as np
from scipy.linalg import solve_triangular, svd

__all__ = ["independent_columns", "scaled_condition", "smallest_common_removal"]

# A column is a combination of others, s = Σ c_i s_i (all of unit norm), if what the others leave of it is at most this
# part of Σ|c_i|, the size of the numbers that cancel. For a combination that part is a few rounding units (2e-16 seen);
# for NIST's hardest polynomial (Filip) it is 3e-10.
_TOLERANCE = 1e-13


def _scaled(factor: np.ndarray) -> np.ndarray:
    """The columns at unit norm; a zero column stays."""
    # Dividing by the largest entry first keeps squares of 1e200 from overflowing.
    largest = np.abs(factor).max(axis=0, initial=0.0)
    scaled = factor / np.where(largest > 0, largest, 1.0)
    norms = np.sqrt((scaled * scaled).sum(axis=0))
    return scaled / np.where(norms > 0, norms, 1.0)


def independent_columns(factor: np.ndarray) -> np.ndarray:
    """Positions of a largest set of independent columns of ``factor`` (r, q), earlier columns preferred."""
    r, q = factor.shape
    scaled = _scaled(factor)
    diagonal = np.diag(scaled)
    if r == q and (diagonal > 0).all() and not np.tril(scaled, -1).any():
        # Column j of the inverse is (-c, 1) over the diagonal, c what the columns before j need to make it.
        sizes = np.abs(solve_triangular(scaled, np.eye(q))).sum(axis=0) * diagonal
        if (diagonal > _TOLERANCE * np.maximum(sizes, 1.0)).all():
            return np.arange(q)
    basis = np.zeros((r, 0))
    triangle = np.zeros((0, 0))
    kept: list[int] = []
    for j in range(q):
        rest = scaled[:, j]
        parts = np.zeros(len(kept))
        # Twice is enough: the second projection removes what rounding left of the first.
        for _ in range(2):
            more = basis.T @ rest
            rest = rest - basis @ more
            parts += more
        left = float(np.linalg.norm(rest))
        size = np.abs(solve_triangular(triangle, parts)).sum() if kept else 1.0
        if left > _TOLERANCE * max(size, 1.0):
            triangle = np.block([[triangle, parts[:, None]], [np.zeros((1, len(kept))), np.array([[left]])]])
            basis = np.column_stack([basis, rest / left])
            kept.append(j)
    return np.array(kept, dtype=np.int64)


def scaled_condition(factor: np.ndarray) -> float:
    """The condition number of ``factor`` after scaling its columns to unit norm."""
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
