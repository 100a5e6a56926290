"""The rules by which the learner gets traffic, fixed in advance, and a step that follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from sidelight.errors import InputError
from sidelight.service.sections import ladder_fault

__all__ = ["GateSettings", "Step"]


@dataclass(frozen=True)
class GateSettings:
    """The rules by which the learner gets traffic, fixed in advance.

    Attributes:
        promote: ``off``; ``suggest``: a person confirms every step; ``automatic``.
        demote: the same for steps down.
        ladder: shares of traffic, increasing.
        smallest_gain: a promotion is proposed once the gain is above this, in the reward's unit.
        error_rate: the chance of ever promoting a learner that is not better by that much, and of ever demoting one
            that is not worse, over all ladders that follow each other.
        holdout: the share that stays with the old policy on the last rung.
    """

    promote: str = "off"
    demote: str = "automatic"
    ladder: tuple[float, ...] = (0.01, 0.05, 0.2, 0.5, 1.0)
    smallest_gain: float = 0.0
    error_rate: float = 0.05
    holdout: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "ladder", tuple(float(share) for share in self.ladder))
        for name in ("promote", "demote"):
            if getattr(self, name) not in ("off", "suggest", "automatic"):
                raise InputError(f'[gate] {name} = {getattr(self, name)!r}: give "off", "suggest" or "automatic".')
        if (wrong := ladder_fault(self.ladder)) is not None:
            raise InputError(f"[gate] ladder = {list(self.ladder)} {wrong}.")
        if not 0.01 <= self.holdout < 0.5:
            raise InputError(
                f"[gate] holdout = {self.holdout!r}: at least 0.01 must stay with the old policy (and less than half), "
                "or nothing could be told at the top of the ladder."
            )
        if not 0.0 < self.error_rate < 0.5:
            raise InputError(f"[gate] error_rate = {self.error_rate!r} must lie between 0 and 0.5.")
        if not 0.0 <= self.smallest_gain < float("inf"):
            raise InputError(f"[gate] smallest_gain = {self.smallest_gain!r} must be a number of at least 0.")

    @property
    def on(self) -> bool:
        """Whether there is a ladder: without one evidence is kept and no step follows from it."""
        return self.promote != "off"

    def share_of(self, rung: int) -> float:
        """The learner's share on a rung; rung −1 is below the ladder."""
        return 0.0 if rung < 0 else min(self.ladder[rung], 1.0 - self.holdout)

    def rung_of(self, share: float) -> int:
        """The rung with this share; −1 where there is none."""
        return next((i for i in range(len(self.ladder)) if self.share_of(i) == share), -1)

    def to_dict(self) -> dict[str, Any]:
        """The settings as a JSON object."""
        return {**asdict(self), "ladder": list(self.ladder)}

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> GateSettings:
        """The inverse of ``to_dict``; settings that only a newer version knows are ignored."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in body.items() if name in known})


@dataclass(frozen=True)
class Step:
    """A move on the ladder.

    Attributes:
        before, after: rungs, −1 below the ladder.
        share: the learner's share after it.
        reason: why, in words that an audit can show.
        evidence: ``Gate.evidence`` when it was proposed.
    """

    before: int
    after: int
    share: float
    reason: str
    evidence: dict[str, Any]
