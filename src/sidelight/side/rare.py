"""Are rounds in contexts that a log hardly has?  How much larger its error may be there than is claimed.

What is claimed of a log's error, ``s²G⁻¹ + τ²A⁻¹``, takes the variance of what recorded features leave unexplained to
be the same in all contexts.  Where an arm has few distinct contexts (flags, categories) it is not: a regression goes
through those that are frequent, and what it leaves is in the rare ones.  If all of ``τ²`` were in a context ``x_o``
that has the share ``p`` of an arm's rows, the residual there would have the variance ``τ²/p``, and by the sandwich

    Var x_o·(B − B̂)w_h = τ²(x_o·A⁻¹x_o) · x_oᵀR11(a)⁻¹x_o,

as many times what is claimed as the *leverage* ``ℓ = x_oᵀR11⁻¹x_o`` of the context.  On average over an arm's own
contexts ``ℓ`` is ``L``.  So the claim is taken at its word where rounds are in contexts like those of the log, and
where they are not, the variance of an honest log's error may be larger by what leverages exceed ``USUAL·L``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sidelight.hidden.frame import unitless_pseudo_inverse
from sidelight.linalg import Array, product

if TYPE_CHECKING:
    from sidelight.logs.summary import LogSummary

__all__ = ["RareContexts"]

#: leverages up to so many times their average are those of ordinary contexts
USUAL = 2.0


class RareContexts:
    """The leverages of contexts among an arm's rows of a log.

    Args:
        summary: the log; what is needed of it is computed once.
        directions: (L, L)  ``U``, which takes features around their means (``LogGeometry.directions``), so that digits
            do not depend on where zero is.
    """

    def __init__(self, summary: LogSummary, directions: Array) -> None:
        U = directions
        #: None where there is no intercept, and so nothing to take features around
        self._directions = None if np.array_equal(U, np.eye(len(U))) else U
        rows = np.asarray(summary.counts, dtype=np.float64)
        moments, L = np.asarray(summary.second_moments), max(summary.n_recorded, 1)
        # as many rows of all arms as there are features, so that an arm has been in every direction
        common = np.cumsum(np.asarray(summary.shares)[:, None, None] * moments, axis=0)[-1]
        known = (rows[:, None, None] * moments + L * common) / (rows + L)[:, None, None]
        #: (K, L, L)  ``(UᵀR11(a)U)⁻¹``
        self._inverse = unitless_pseudo_inverse(product(U.T, product(known, U)))

    def times(self, grams: Array, counts: Array) -> Array:
        """(K,)  How many times what is claimed the variance of a log's error may be in these contexts, at least 1.

        Args:
            grams: (K, L, L)  ``Σ x_ox_oᵀ`` of the rounds of each arm.
            counts: (K,)  their number.
        """
        L, U = max(grams.shape[1], 1), self._directions
        moved = grams if U is None else product(U.T, product(grams, U))
        leverages = (self._inverse * moved).sum(axis=(1, 2)) / np.maximum(counts, 1.0)
        return np.asarray(np.maximum(leverages - USUAL * L, 1.0))
