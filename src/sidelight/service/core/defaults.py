"""Default rewards: how long to wait for a reward, what counts afterwards, and how a late reward replaces it.

A part of the fold.  The learner is taught the default reward as any other; the events say which default a late reward
replaces, so that nothing has to be remembered about most of them.  What must be remembered are receipts: of rounds with
a wild value or gaps, of learners in which rounds fade or are dropped, and of defaults that the learner could not learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sidelight.learners.correcting import Receipt
from sidelight.linalg import Array
from sidelight.service.log.events import Action, DefaultReward, Reward

__all__ = ["NOT_TAUGHT", "Defaults"]

#: the receipt of a default reward at which the learner failed
NOT_TAUGHT = Receipt(0.0, -1)
#: receipts that are kept; where rounds fade or are dropped, older ones have no weight any more
_RECEIPTS = 100_000


@dataclass
class Defaults:
    """Settings of the wait for rewards, and the receipts of default rewards that were taught.

    Attributes:
        seconds: how long the service waits for a reward; None: for ever.
        reward: the default reward, which counts afterwards.
        waited: no decision up to this event waits any more.
        receipts: what late rewards of ``(number, position)`` need beyond their events, the oldest first.
    """

    seconds: float | None = None
    reward: float = 0.0
    waited: int = 0
    receipts: dict[tuple[int, ...], Receipt] = field(default_factory=dict)

    def configure(self, settings: Mapping[str, Any], number: int) -> None:
        """Change the settings from event ``number`` on; decisions from a time without a wait never get a default."""
        if self.seconds is None:
            self.waited = number
        self.seconds, self.reward = settings["seconds"], float(settings["reward"])

    def teach(self, learner: Any, x: Array, event: DefaultReward) -> None:
        """Teach the learner the default reward of a decision at ``x`` (d,)."""
        receipt = learner.receipt(x, event.reward, event.arm)
        learner.observe(x, event.arm, event.reward)
        if receipt is not None:
            self.receipts[event.decision[:2]] = receipt
            if len(self.receipts) > _RECEIPTS:
                del self.receipts[next(iter(self.receipts))]

    def correct(self, learner: Any, x: Array, event: Reward | Action, reward: float) -> None:
        """Teach the learner that the default reward of a decision was another one, or another arm's."""
        receipt = self.receipts.get(event.decision[:2])
        if receipt is None:
            needed = learner.receipt(x, event.replaces, event.replaces_arm)
            if needed is not None and needed.clock:
                return  # so old that it has no weight any more
        if receipt == NOT_TAUGHT:
            if isinstance(event, Reward):
                learner.observe(x, event.arm, reward)
            return
        if isinstance(event, Action):
            again = learner.receipt(x, reward, event.arm)
            learner.correct(x, event.replaces_arm, event.replaces, reward, taken=event.arm, receipt=receipt)
            self.receipts.pop(event.decision[:2], None)
            if again is not None:
                self.receipts[event.decision[:2]] = again
            return
        learner.correct(x, event.replaces_arm, event.replaces, reward, taken=event.arm, receipt=receipt)

    def to_dict(self) -> dict[str, Any]:
        """The settings and receipts as a JSON object."""
        return {
            "seconds": self.seconds,
            "reward": self.reward,
            "waited": self.waited,
            "receipts": [[*id, *receipt[:3], *receipt.filled] for id, receipt in self.receipts.items()],
        }

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Defaults:
        """The inverse of ``to_dict``."""
        receipts: dict[tuple[int, ...], Receipt] = {
            (n, i): Receipt(*receipt[:3])._replace(filled=tuple(receipt[3:]))
            for n, i, *receipt in body.get("receipts", ())
        }
        return cls(body.get("seconds"), body.get("reward", 0.0), body.get("waited", 0), receipts)
