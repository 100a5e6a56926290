"""The safety rails: who acts, for how much of the traffic, and what happens when the learner must not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sidelight.labels import Label, label_from_json, label_to_json

__all__ = ["MODES", "Rails", "Route"]

Mode = Literal["shadow", "assist", "act"]
MODES: tuple[Mode, ...] = ("shadow", "assist", "act")


class Route(NamedTuple):
    """The arm to take, who chose it, and its propensity: the probability that this arm would be taken."""

    arm: Label | None
    by: str
    propensity: float | None


@dataclass(frozen=True)
class Rails:
    """Who may act, and for which share of the traffic.

    Attributes:
        mode: ``shadow``: the old policy acts, the learner only says what it would do. ``assist``: the learner
            proposes and a person confirms. ``act``: the learner decides.
        share: the share of the traffic that the learner decides in ``act``; the old policy or the fallback has the
            rest.
        fallback: the arm to take where the learner may not decide and the old policy did not say what it does.
        killed: the kill switch: whatever the mode, the learner decides nothing.
        explore: the chance with which, in ``act``, an arm drawn evenly among those allowed takes the place of the
            learner's, so that every arm has a chance that is known and not zero.
    """

    mode: str
    share: float
    fallback: Label
    killed: bool = False
    explore: float = 0.0

    def route(
        self,
        recommended: Label,
        propensity: float,
        *,
        old_arm: Label | None,
        old_propensity: float | None,
        allowed: list[Label] | None,
        draw: float,
        failed: bool = False,
        chance_of: Callable[[Label], float] | None = None,
    ) -> Route:
        """The arm to take for one decision, and who chose it.

        Args:
            recommended: the learner's arm.
            propensity: the chance with which the learner recommends it here.
            old_arm: what the old policy does here, where the caller said so.
            old_propensity: the chance with which it does, where the caller said so.
            allowed: the arms that may be taken here; None for all.
            draw: uniform in [0, 1): below ``share`` the learner decides.
            failed: the learner could not decide.
            chance_of: the chance with which the learner's route takes an arm, where it is known for others than
                ``recommended``.
        """
        if self.mode == "shadow" and not self.killed:
            return Route(old_arm, "old_policy", old_propensity)
        other = self._without_learner(old_arm, allowed)
        if self.killed or failed:
            return Route(other, self._other_name(old_arm, other), None if other == old_arm else 1.0)
        if self.mode == "assist" or self.share >= 1.0:
            return Route(recommended, "learner", propensity)
        if draw < self.share:
            chance = self.share * propensity + ((1.0 - self.share) if other == recommended else 0.0)
            return Route(recommended, "learner", chance)
        if other == recommended:
            own = propensity
        elif chance_of is not None:
            own = chance_of(other)
        elif propensity < 1.0:
            # A randomized learner might have taken this arm too, with a probability that it does not report.
            return Route(other, self._other_name(old_arm, other), None)
        else:
            own = 0.0
        return Route(other, self._other_name(old_arm, other), 1.0 - self.share + self.share * own)

    def _without_learner(self, old_arm: Label | None, allowed: list[Label] | None) -> Label:
        for arm in (old_arm, self.fallback):
            if arm is not None and (allowed is None or arm in allowed):
                return arm
        assert allowed is not None
        return allowed[0]

    @staticmethod
    def _other_name(old_arm: Label | None, arm: Label) -> str:
        return "old_policy" if old_arm is not None and arm == old_arm else "fallback"

    def to_dict(self) -> dict[str, Any]:
        """The rails as a JSON object."""
        return {
            "mode": self.mode,
            "share": self.share,
            "fallback": label_to_json(self.fallback),
            "killed": self.killed,
            "explore": self.explore,
        }

    @classmethod
    def from_dict(cls, body: dict[str, Any]) -> Rails:
        """The inverse of ``to_dict``."""
        fallback = label_from_json(body["fallback"])
        return cls(body["mode"], body["share"], fallback, body["killed"], body.get("explore", 0.0))


def subject_draw(subject: str, salt: str = "") -> float:
    """A number in [0, 1) that is always the same for one subject, so that a ramp keeps everybody on one side.

    Another ``salt`` gives independent numbers: each rung of the gate has its own.
    """
    name = f"sidelight ramp\0{salt}\0" if salt else "sidelight ramp\0"
    digest = hashlib.sha256(name.encode() + subject.encode("utf-8", "surrogatepass")).digest()
    return float(int.from_bytes(digest[:7], "big") >> 3) / float(1 << 53)
