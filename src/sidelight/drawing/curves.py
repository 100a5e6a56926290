"""The curves of a table of runs: for each learner, a value at every round that was kept, seed by seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import InputError
from sidelight.labels import show_labels

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["curves"]


def curves(
    table: pa.Table, column: str = "regret", by: str = "learner"
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Name → rounds ``(n,)`` and values ``(S, n)``, seeds in ascending order; names in the table's order.

    Args:
        table: with the columns ``seed`` and ``round``.
        column: the values.
        by: the column with the names.

    Raises:
        InputError: two names have different seeds, so that they cannot be compared seed by seed, or the seeds of one
            have different rounds.
    """
    listed = table[by].to_pylist()
    names = list(dict.fromkeys(listed))
    position = {name: i for i, name in enumerate(names)}
    codes = np.array([position[name] for name in listed])
    seeds, rounds, values = (table[name].to_numpy() for name in ("seed", "round", column))
    out: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    paired: NDArray[np.int64] | None = None
    for name in names:
        mine = codes == position[name]
        order = np.lexsort((rounds[mine], seeds[mine]))
        own, at = seeds[mine][order], rounds[mine][order]
        distinct = np.unique(own)
        paired = distinct if paired is None else paired
        if not np.array_equal(distinct, paired):
            raise InputError(
                f"{name!r} has the seeds {show_labels(distinct.tolist())} and {names[0]!r} "
                f"{show_labels(paired.tolist())}: not paired. Compare learners that were run on the same seeds."
            )
        n = len(at) // len(distinct)
        if n * len(distinct) != len(at) or (at.reshape(-1, n) != at[:n]).any() or (own != np.repeat(distinct, n)).any():
            raise InputError(
                f"the seeds of {name!r} do not have the same rounds, each once: give the table of one call of simulate."
            )
        out[name] = at[:n], values[mine][order].reshape(-1, n)
    return out
