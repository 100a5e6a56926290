"""How a fused learner takes in rounds: under a floor, with older rounds that fade, and corrected later."""

from __future__ import annotations

from typing import Any

from sidelight.errors import InputError
from sidelight.labels import Label
from sidelight.learners.correcting import Receipt
from sidelight.learners.fused.choosing import Choosing
from sidelight.learners.fused.trust import WEIGHED
from sidelight.learners.protocol import Context
from sidelight.linalg import Array
from sidelight.side.constraint import Reduction

__all__ = ["Observing"]


class Observing(Choosing):
    """The part of ``FusedOFUL`` that takes in rounds.

    Attributes:
        fading: how rounds fade, and which arms' sums are up to date.
    """

    def _install(self, reduction: Reduction) -> None:
        self.fading = self.fading.grown(reduction.n_arms)
        super()._install(reduction)

    def _observe(self, x: Array, index: int, reward: float, weight: float = 1.0) -> None:
        if self.fading.forgets:
            if self.binary:
                self._check_binary(reward)  # a reward that is refused must not have faded anything
            # a round fades all that came before: this arm is brought up to date now, the others at the next refresh
            self.fading.clock += 1
            self._fade(index)
            self.fading.effective[index] += 1.0
        super()._observe(x, index, reward, weight)
        if self.ledger is not None:
            self.ledger.observe(x, index, reward)

    def receipt(self, x: Context, reward: float, arm: Any = None) -> Receipt | None:
        """The weights of a round, and the clock where rounds are forgotten; None where it counts in full for ever."""
        found = super().receipt(x, reward, arm)
        if not self.fading.forgets:
            return found
        return (Receipt() if found is None else found)._replace(clock=self.fading.clock + 1)

    def _correct(self, x: Array, index: int, old: float, new: float | None, receipt: Receipt | None) -> None:
        if self.fading.forgets:
            if receipt is None:
                raise InputError(
                    f"forgetting={self.forgetting!r}: rounds fade, so correct needs to know when this one was: ask "
                    "receipt = learner.receipt(x, reward) before observing it, and pass it on."
                )
            self._fade(index)
        super()._correct(x, index, old, new, receipt)
        if new is None:
            self._compare_lines(x[None], -1.0)
            rounds = self.fading.effective
            rounds[index] = max(rounds[index] - self._standing(index, receipt)[1], 0.0)
        if self.ledger is not None:
            self.ledger.correct(x, index, old, new)

    def _standing(self, index: int, receipt: Receipt | None) -> tuple[float, float]:
        if not self.fading.forgets or receipt is None:
            return super()._standing(index, receipt)
        return receipt.weight, self.fading.left_of(receipt.clock)

    def _grow(self, label: Label) -> None:
        if self.ledger is not None:
            self.ledger = self.ledger.with_arm()
        super()._grow(label)

    def _observes_plainly(self) -> bool:
        return self.ledger is None and not self.fading.forgets and type(self)._observe is Observing._observe

    def _fade(self, index: int) -> None:
        """Discount one arm's sums by the rounds since it was last brought up to date."""
        factor = self.fading.catch_up(index)
        for sums in (self.grams, self.moments, self.squares, *(getattr(self, name) for name in WEIGHED)):
            sums[index] *= factor
        self._refresh_arm(index)

    @property
    def forgetting(self) -> float:
        """What a round still counts for after one more; 1 where nothing is forgotten."""
        return self.fading.rate

    def _arm_rounds(self) -> Array:
        return self.fading.rounds(self.counts)
