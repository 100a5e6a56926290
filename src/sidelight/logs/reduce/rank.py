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
# Coefficients of a combination below this are rounding.
_PART = 1e-9
# Sets of columns that are tried at most in the search for a smallest one to remove.
_TRIES = 20_000


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
    walk = _Walk(scaled)
    return np.array([j for j in range(q) if walk.take(j)], dtype=np.int64)


class _Walk:
    """The columns of a matrix one after the other; those that are independent of the ones taken before are taken.

    scaled: (r, q)  columns of unit norm
    """

    def __init__(self, scaled: np.ndarray) -> None:
        r, q = scaled.shape
        self.scaled = scaled
        self.taken: list[int] = []
        self._basis = np.zeros((r, min(r, q)), order="F")
        self._triangle = np.zeros((min(r, q), min(r, q)))

    def parts(self, j: int) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates of column ``j`` in the orthonormal basis of the columns taken, and its residual."""
        basis = self._basis[:, : len(self.taken)]
        rest, parts = self.scaled[:, j], np.zeros(len(self.taken))
        # Twice is enough: the second projection removes what rounding left of the first.
        for _ in range(2):
            more = basis.T @ rest
            rest = rest - basis @ more
            parts += more
        return parts, rest

    def coefficients(self, parts: np.ndarray) -> np.ndarray:
        """``c`` with ``Σ c_i s_i`` over the columns taken, of what :meth:`parts` says in their basis."""
        k = len(self.taken)
        return np.asarray(solve_triangular(self._triangle[:k, :k], parts)) if k else parts

    def leaves(self, j: int) -> bool:
        """Whether column ``j`` is independent of the columns taken, up to rounding."""
        parts, rest = self.parts(j)
        size = np.abs(self.coefficients(parts)).sum()
        return float(np.linalg.norm(rest)) > _TOLERANCE * max(float(size), 1.0)

    def take(self, j: int) -> bool:
        """Take column ``j`` if it is independent of those taken before."""
        if not self.leaves(j):
            return False
        k = len(self.taken)
        if k < self._basis.shape[1]:
            parts, rest = self.parts(j)
            left = float(np.linalg.norm(rest))
            self._triangle[:k, k], self._triangle[k, k] = parts, left
            self._basis[:, k] = rest / left
        self.taken.append(j)
        return True


def scaled_condition(factor: np.ndarray) -> float:
    """The condition number of ``factor`` after scaling its columns to unit norm."""
    if factor.shape[1] == 0:
        return 1.0
    values = svd(_scaled(factor), compute_uv=False, lapack_driver="gesvd")
    return float(values[0] / values[-1]) if values[-1] > 0 else float("inf")


def _null_space(factor: np.ndarray) -> np.ndarray:
    """(q, k)  For each column that is a combination of earlier ones: 1 there, and minus the combination."""
    q = factor.shape[1]
    walk = _Walk(_scaled(factor))
    found = []
    for j in range(q):
        if not walk.take(j):
            vector = np.zeros(q)
            vector[walk.taken] = -walk.coefficients(walk.parts(j)[0])
            vector[j] = 1.0
            found.append(np.where(np.abs(vector) > _PART, vector, 0.0))
    return np.array(found).reshape(len(found), q).T


def smallest_common_removal(factors: Sequence[np.ndarray], n_columns: int) -> tuple[int, ...]:
    """A smallest set of columns whose removal leaves every factor with independent columns.

    For one factor that is what is left of any largest independent set. For several it is a search: sets of growing
    size, later columns first, ``_TRIES`` of them; then the columns that a greedy walk from the left leaves out,
    which always suffices but may be more than necessary.

    Removing ``S`` leaves independent columns if and only if the rows ``S`` of the factor's null space have full column
    rank, so columns without a part in any combination are not tried.
    """
    if not factors:
        return ()
    walks = [_Walk(_scaled(factor)) for factor in factors]
    kept: list[int] = []
    for j in range(n_columns):
        if all(walk.leaves(j) for walk in walks):
            kept.append(j)
            for walk in walks:
                walk.take(j)
    greedy = tuple(j for j in range(n_columns) if j not in set(kept))
    spaces = [_null_space(factor) for factor in factors]
    least = max(space.shape[1] for space in spaces)
    if len(greedy) == least:
        return greedy

    def mends(removed: tuple[int, ...]) -> bool:
        if not all(_has_full_rank(space[list(removed)]) for space in spaces):
            return False
        left = [j for j in range(n_columns) if j not in removed]
        return all(len(independent_columns(factor[:, left])) == len(left) for factor in factors)

    involved = [j for j in range(n_columns - 1, -1, -1) if any(space[j].any() for space in spaces)]
    sets = (s for size in range(least, len(greedy)) for s in combinations(involved, size))
    for removed in islice(sets, _TRIES):
        if mends(removed):
            return tuple(sorted(removed))
    return greedy


def _has_full_rank(rows: np.ndarray) -> bool:
    """Whether the columns of a small matrix are independent, with a generous tolerance for rounding."""
    if rows.shape[0] < rows.shape[1]:
        return False
    if rows.shape[1] == 0:
        return True
    if not rows.any(axis=0).all():
        return False
    values = svd(rows, compute_uv=False, lapack_driver="gesvd")
    return bool(values[-1] > _PART * values[0])
