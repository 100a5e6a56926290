"""The arrays of a learner that keeps one ridge regression per arm: how they are laid out, named and saved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.kernels.state import Numbers, state_of, vectors_for
from sidelight.linalg import Array, eigenvalues, product
from sidelight.side.constraint import Reduction

__all__ = ["KEPT", "RATE_AT", "Held", "Part", "arm_spreads", "hold", "sums_of_older_file"]

#: the floats and integers of a state, and the names of their parts
Held = tuple[Array, NDArray[np.int64], Any]

#: where the least rate of rewards of 0 and 1 stands among the numbers that the kernels read
RATE_AT = Numbers._fields.index("least_rate")
#: what observing changes
KEPT = (
    "grams",
    "moments",
    "squares",
    "covariances",
    "weights",
    "log_dets",
    "radii",
    "bounds",
    "updates",
    "counts",
    "context_sums",
    "spent",
)


class Part:
    """An array of the learner's state by its name; assigning writes into the state's own memory."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, learner: Any, owner: type | None = None) -> Any:
        return self if learner is None else getattr(learner._held[2], self.name)

    def __set__(self, learner: Any, value: Any) -> None:
        getattr(learner._held[2], self.name)[...] = value


def hold(reduction: Reduction) -> Held:
    """The floats and integers of a state in the coordinates of ``reduction``, and the names of their parts."""
    K, R, m = reduction.loadings.shape
    arena, sizes = vectors_for(K, reduction.n_features, m, R, reduction.shifted)
    state = state_of(arena, sizes)
    state.order[:], state.dimensions[:] = reduction.order, reduction.dimensions
    # (K, m, R) as the kernels read them, the other way round than in a reduction
    state.loadings[:] = np.swapaxes(reduction.loadings, 1, 2)
    state.centre[:], state.spreads[:] = arm_spreads(state.loadings, reduction.shifted)
    state.anchors[:] = reduction.anchors
    return arena, sizes, state


def arm_spreads(loadings: Array, shifted: bool) -> tuple[Array, Array]:
    """A centre ``B̄`` (1, m, R) of all arms' loadings, and at least ``‖B_a − B̄‖₂`` for each arm (K,).

    A basis of its own for every arm has no useful mean: then the centre is zero.
    """
    K, m, R = loadings.shape
    if R == 0 or m == 0:
        return np.zeros((1, m, R)), np.zeros(K)
    centre = loadings.mean(axis=0, keepdims=True) if shifted else np.zeros((1, m, R))
    spreads = np.empty(K)
    for a in range(K):
        apart = loadings[a] - centre[0]
        spreads[a] = math.sqrt(max(float(eigenvalues(product(apart, apart.T))[-1]), 0.0))
        # what rounding may add to a difference of nearly equal numbers
        spreads[a] += 1e-12 * float(np.sqrt(np.square(loadings[a]).sum()))
    return centre, (1.0 + 1e-9) * spreads


def sums_of_older_file(arrays: Mapping[str, Any], d: int, constant: int | None) -> Array:
    """``context_sums`` of a file that kept ``Σx²`` alone; the other sums only if there is a constant.

    constant: its position, where the sums of rounds have features as they are
    """
    sums = np.zeros(2 * d + 2)
    sums[:d] = arrays["context_squares"]
    sums[-1] = np.sum(arrays["squares"])
    rounds_alone = int(np.sum(arrays["counts"])) == int(arrays["n_contexts"])
    if constant is not None and rounds_alone:
        sums[d:-2] = np.sum(arrays["grams"], axis=0)[constant]
        sums[-2] = np.sum(arrays["moments"], axis=0)[constant]
    return sums
