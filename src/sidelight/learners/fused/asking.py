"""When to ask the old policy, where asking has a price."""

from __future__ import annotations

from sidelight.arrays import is_number
from sidelight.errors import InputError

__all__ = ["QueryBudget"]

#: an answer counts 1/probability, so a smaller floor would make single answers count for too much
FLOOR = 0.3


class QueryBudget:
    """How often the old policy may be asked, and with which probability it is asked now.

    Args:
        budget: a number of times, a share of rounds below 1, or None for no limit.

    Attributes:
        asked: answers taken in so far.
    """

    def __init__(self, budget: float | None) -> None:
        if budget is not None and not (is_number(budget) and budget >= 0):
            raise InputError(f"query_budget={budget!r} must be a number of times, a share below 1, or None.")
        self.budget = budget
        self.asked = 0

    @property
    def unlimited(self) -> bool:
        """Whether every context may be asked about, because there is no budget."""
        return self.budget is None

    def probability(self, gain: float, rounds: int) -> float:
        """With what probability to ask where an answer is worth ``gain`` times the average one.

        Answers are worth most at the start, so a number of times is spent as soon as they are useful; a share is kept
        to as the rounds go by.
        """
        if self.budget is None:
            return 1.0
        allowed = self.budget if self.budget >= 1 else self.budget * (rounds + 1)
        if self.asked + 1 > allowed and not (0 < self.budget < 1 and self.asked == 0):
            return 0.0
        return min(max(gain, FLOOR), 1.0)
