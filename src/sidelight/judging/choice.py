"""A model of the old policy: a softmax of linear functions, and the contexts in which it never tries an arm.

The model is smooth and its coefficients are shrunk.  Where a rule decides (no arm 1 below a dose of 5) it is wrong: it
gives the arm a chance where no row has it.  So rows are counted too, in bins of the model's chance (:class:`Tried`).
"""

from __future__ import annotations

import functools

import numpy as np
from threadpoolctl import ThreadpoolController

from sidelight.linalg import Array

__all__ = ["LEAST_RATIO", "MOST_UNTRIED", "ChoiceModel", "Tried", "decisive_column", "softmax", "softmax_regression"]

#: An arm counts as never tried where its chance is below this part of its share of the log ...
LEAST_RATIO = 1e-3
#: ... and a policy cannot be valued from the log if it wants such an arm in more than this part of the contexts.
MOST_UNTRIED = 0.1

# Number of rows on which the model is fitted, fewer with many arms; rows per column that an arm needs.
_FITTED, _FITTED_TIMES_ARMS, _ROWS_PER_COLUMN = 4_000, 100_000, 10
# Ridge penalty of the model, in units of rows; next to none on the constant.
_PENALTY = 1.0


# Bins of a chance for each halving, and how many there are: the last one holds all smaller chances.
_BINS_PER_HALVING, _BINS = 4, 64
# Where the model expects at least this many rows of an arm and at most this part of them is there, it is never tried.
_EXPECTED, _AT_MOST = 15.0, 0.1


class Tried:
    """In how many contexts each arm was taken, and in how many the model of the old policy expects that, by its chance.

    Contexts in which an arm is least likely come first.  If the model expects fifteen rows of the arm or more in them
    and at most a tenth of that is there, the old policy never tries the arm in those contexts, whatever the model says:
    a Poisson variable of mean 15 is 1 or less five times in a million.

    Args:
        K: how many arms there are.
    """

    def __init__(self, K: int) -> None:
        self._contexts, self._expected, self._found = np.zeros((3, K, _BINS))

    def add(self, arms: np.ndarray, chances: Array, found: np.ndarray) -> None:
        """Add contexts.

        Args:
            arms: (n,) the arm in question, in each.
            chances: (n,) how likely it is, by a model that was fitted on other rows or has few coefficients.
            found: (n,) whether it was taken.
        """
        at = arms * _BINS + self.bins(chances)
        for sums, each in ((self._contexts, None), (self._expected, chances), (self._found, found)):
            sums += np.bincount(at, weights=each, minlength=sums.size).reshape(sums.shape)

    @staticmethod
    def bins(chances: Array) -> np.ndarray:
        """(n,) the bin of each chance; the smallest chances have the highest number."""
        halvings = -np.log2(np.maximum(chances, 2.0**-_BINS))
        return np.minimum((_BINS_PER_HALVING * halvings).astype(np.int64), _BINS - 1)

    def limits(self) -> np.ndarray:
        """(K,) the lowest bin from which on each arm is never taken though the model expects it; ``_BINS`` if none."""
        expected, found = (np.cumsum(one[:, ::-1], axis=1)[:, ::-1] for one in (self._expected, self._found))
        never = (expected >= _EXPECTED) & (found <= _AT_MOST * expected)
        return np.where(never.any(axis=1), never.argmax(axis=1), _BINS)

    def never(self) -> Array:
        """(K,) the number of contexts in which each arm is never taken though the model expects it."""
        beyond = np.arange(_BINS) >= self.limits()[:, None]
        return np.asarray(np.where(beyond, self._contexts - self._found, 0.0).sum(axis=1))


class ChoiceModel:
    """How likely the old policy is to take each arm, given recorded columns.

    Args:
        X: (n, L) columns of a sample of rows.
        codes: (n,) positions of the arms that were taken.
        K: how many arms there are.
    """

    def __init__(self, X: Array, codes: np.ndarray, K: int) -> None:
        deviation = X.std(axis=0)
        varies = deviation > 1e-9 * np.sqrt(np.mean(X * X, axis=0))
        Z = np.column_stack([np.ones(len(X)), (X[:, varies] - X[:, varies].mean(axis=0)) / deviation[varies]])
        step = max(1, -(-len(X) // min(_FITTED, _FITTED_TIMES_ARMS // K)))
        self._untried = np.zeros((len(X), K), dtype=bool)
        self._columns = np.flatnonzero(varies)
        self._W: Array | None = None
        # with few rows the model can separate an arm from all others by chance
        enough = np.bincount(codes[::step], minlength=K) >= _ROWS_PER_COLUMN * Z.shape[1]
        if enough.any():
            self._W = softmax_regression(Z[::step], codes[::step], K)
            chances = softmax(Z @ self._W.T)
            shares = np.bincount(codes, minlength=K) / len(codes)
            tried = Tried(K)
            for arm in range(K):
                tried.add(self.everywhere(arm), chances[:, arm], codes == arm)
            seldom = (Tried.bins(chances) >= tried.limits()) & (codes[:, None] != np.arange(K))
            self._untried = ((chances < LEAST_RATIO * shares) | seldom) & enough

    def everywhere(self, arm: int) -> np.ndarray:
        """(n,) one arm in every row of the sample."""
        return np.full(len(self._untried), arm)

    def decisive(self, arm: int) -> int:
        """The column (0 to L − 1) that tells most about whether the old policy takes the arm, after :meth:`untried`."""
        assert self._W is not None
        return int(self._columns[decisive_column(self._W, arm)])

    def untried(self, taken: np.ndarray) -> tuple[int, float]:
        """The arm that is wanted most often where it is never tried, and the part of all contexts where that is so.

        Args:
            taken: (n,) what a policy takes in the sample's rows.
        """
        never = self._untried[np.arange(len(taken)), taken]
        if not never.any():
            return 0, 0.0
        return int(np.bincount(taken[never]).argmax()), float(never.mean())


def decisive_column(W: Array, arm: int) -> int:
    """The column of deviation 1 whose coefficient for the arm differs most from its mean over arms; constant left out.

    W: (K, 1 + p) coefficients of a softmax regression, the constant's first.
    """
    return int(np.abs(W[arm] - W.mean(axis=0))[1:].argmax())


def softmax(logits: Array) -> Array:
    """Probabilities (n, K): the softmax of every row of ``logits`` (n, K)."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def softmax_regression(Z: Array, codes: np.ndarray, K: int, start: Array | None = None) -> Array:
    """(K, p) multinomial logistic regression of the arm on Z (n, p), constant first, with a weak ridge penalty.

    Args:
        Z: the columns.
        codes: (n,) positions of the arms.
        K: how many arms there are.
        start: (K, p) initial coefficients; by default those that give the arms' shares in every context.
    """
    from scipy.optimize import minimize  # here, since a service imports this module and it takes a third of a second

    n, p = Z.shape
    # transposed, so that sums and maxima over arms run along contiguous rows of the arrays (K, n)
    columns = np.ascontiguousarray(Z.T)
    observed = np.stack([columns[:, codes == k].sum(axis=1) for k in range(K)])
    pull = np.full((K, p), _PENALTY / n)
    pull[:, 0] = 1e-6 / n

    def loss(flat: Array) -> tuple[float, Array]:
        W = flat.reshape(K, p)
        chances = W @ columns
        top = chances.max(axis=0)
        np.exp(chances - top, out=chances)
        total = chances.sum(axis=0)
        chances /= total
        value = float(np.mean(top + np.log(total)) - (observed * W).sum() / n + 0.5 * (pull * W * W).sum())
        return value, ((chances @ Z - observed) / n + pull * W).ravel()

    if start is None:
        start = np.zeros((K, p))
        start[:, 0] = np.log(np.maximum(np.bincount(codes, minlength=K), 0.5) / n)
    # the matrices are narrow: a second BLAS thread gains nothing, and on a busy machine the two wait for each other
    with _loaded_libraries().limit(limits=1, user_api="blas"):
        found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return np.asarray(found.x.reshape(K, p))


@functools.cache
def _loaded_libraries() -> ThreadpoolController:
    """The BLAS libraries of this process: looking for them takes longer than fitting to a short log."""
    return ThreadpoolController()
