"""Forgetting: how much rounds still count for after others, and which arms' sums are up to date."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidelight.arrays import is_number
from sidelight.errors import InputError
from sidelight.linalg import Array, power

__all__ = ["Fading"]


class Fading:
    """Rounds of all arms fade with every round; an arm's sums are discounted when they are next needed.

    Attributes:
        rate: what a round still counts for after one more; 1 where nothing is forgotten.
        clock: rounds so far   faded_at: (K,)  the clock when an arm's sums were last brought up to date.
        effective: (K,)  rounds of each arm, each counted for what is left of it.
    """

    def __init__(self, rate: float) -> None:
        if not (is_number(rate) and 0 < rate <= 1):
            raise InputError(f"forgetting={rate!r} must lie in (0, 1]; 1 forgets nothing.")
        self.rate = float(rate)
        self.clock = 0
        self.effective = np.zeros(0)
        self.faded_at: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    @property
    def forgets(self) -> bool:
        """Whether rounds fade at all."""
        return self.rate < 1.0

    def grown(self, n_arms: int) -> Fading:
        """A copy for ``n_arms`` arms; new ones have had no rounds."""
        made, more = Fading(self.rate), n_arms - len(self.effective)
        made.clock = self.clock
        made.effective = np.concatenate([self.effective, np.zeros(more)])
        made.faded_at = np.concatenate([self.faded_at, np.full(more, self.clock)])
        return made

    def catch_up(self, a: int) -> float:
        """What an arm's sums are to be multiplied by to be up to date; its ``effective`` rounds already are."""
        factor = float(power(self.rate, float(self.clock - self.faded_at[a])))
        self.effective[a] *= factor
        self.faded_at[a] = self.clock
        return factor

    def left_of(self, clock: int) -> float:
        """What is left of a round after which the clock stood at ``clock``."""
        return float(power(self.rate, float(self.clock - clock)))

    def left_of_logs(self) -> float:
        """What is left of the logs, which were there before the first round."""
        return float(power(self.rate, self.clock))

    def restore(self, effective: Any, faded_at: Any, clock: int) -> None:
        """Take over what was saved."""
        self.effective = np.array(effective, dtype=np.float64)
        self.faded_at = np.array(faded_at, dtype=np.int64)
        self.clock = clock

    def rounds(self, counts: NDArray[np.int64]) -> Array:
        """(K,)  How many rounds of each arm its sums hold, of ``counts`` that were observed."""
        return self.effective if self.forgets else counts.astype(np.float64)
