"""A reward that was learned turns out to have been another one: the algebra on the sums of one arm.

A round stands in the sums of its arm as ``z zᵀ``, ``z e`` and ``e²`` with ``e = r − x·anchor``, so a reward that
changes by ``Δ`` changes them by ``0``, ``z Δ`` and ``(e + Δ)² − e²``; a round that was another arm's is taken out of
all three.  What is derived from the sums is then computed anew, so that a learner which was corrected has the sums of
one that was told the right reward at first, up to rounding, and the caches that belong to them, to the bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import InputError
from sidelight.linalg import Array, product

__all__ = ["Receipt", "Sums", "correct_shared"]


class Receipt(NamedTuple):
    """What a round counted for when it was observed, for learners that need it to correct its reward later.

    Attributes:
        weight: what its context and reward were multiplied by; below 1 if a value was wild.
        clock: the learner's count of rounds, this one included, where older rounds fade or are dropped.
        noise: ``σ_a²`` over the variance of the round's noise, which it was weighted by; 0 if it taught nothing.
        filled: the values that the context's gaps were filled with, in order; later they would be filled otherwise.
    """

    weight: float = 1.0
    clock: int = 0
    noise: float = 1.0
    filled: tuple[float, ...] = ()

    def complete(self, x: Array) -> Array:
        """A context (d,), NaN where it has gaps, as it was taken in.

        Raises:
            InputError: the receipt is that of a context with other gaps.
        """
        gaps = np.isnan(x)
        if np.count_nonzero(gaps) != len(self.filled):
            raise InputError(
                f"The receipt is of a context with {len(self.filled)} missing values, and this one has "
                f"{np.count_nonzero(gaps)}: correct takes the context as it was observed, and its own receipt."
            )
        out = x.copy()
        out[gaps] = self.filled
        return out


class Sums(NamedTuple):
    """The sums of every arm, which are changed in place.

    Attributes:
        grams: (K, m, m)  ``Σ z zᵀ``   moments: (K, m)  ``Σ z e``   squares: (K,)  ``Σ e²``   counts: (K,)  rounds.
    """

    grams: Array
    moments: Array
    squares: Array
    counts: NDArray[np.int64]

    def change(self, a: int, z: Array, old: float, new: float | None, share: float = 1.0) -> None:
        """Exchange the reward of one round of arm ``a``, or take the round out.

        Args:
            a: the arm's position.
            z: (m,)  the round's reduced context, as it was taken in.
            old: ``e``, the reward's distance from the anchor as it was taken in.
            new: the same for the right reward; None takes the round out.
            share: what the round counts for: 1 unless older rounds fade, or rounds are weighted by their noise.

        Raises:
            InputError: no round of this arm was observed.
        """
        if self.counts[a] < 1:
            raise InputError("There is no round of this arm to correct: correct follows an observe of the same arm.")
        if new is not None:
            self.moments[a] += share * (new - old) * z
            self.squares[a] += share * (new * new - old * old)
            return
        self.grams[a] -= share * product(z[:, None], z[None, :])
        self.moments[a] -= share * old * z
        # what rounding leaves of a sum of squares that should be zero must not be negative
        self.squares[a] = max(float(self.squares[a]) - share * old * old, 0.0)
        self.counts[a] -= 1


def correct_shared(sums: Array, y: Array, old: float, new: float | None) -> None:
    """Exchange a round's reward, or take the round out, in the sums that all arms share.

    Args:
        sums: (2d + 2,)  ``Σx²``, ``Σx``, ``Σr`` and ``Σr²``; changed in place.
        y: (d,)  the round's context as it was taken in.
        old: its reward as it was taken in.
        new: the right reward; None takes the round out.
    """
    d = len(y)
    sums[2 * d] -= old
    sums[2 * d + 1] -= old * old
    if new is None:
        sums[:d] -= y * y
        sums[d : 2 * d] -= y
    else:
        sums[2 * d] += new
        sums[2 * d + 1] += new * new
