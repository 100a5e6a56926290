"""The history of evidence: gain and bounds of a confidence sequence at a bounded number of points, to draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sidelight.judging.sequences import AsymptoticSequence, BernsteinSequence

__all__ = ["Trail"]

Sequence = AsymptoticSequence | BernsteinSequence

#: most points that are kept; when there are more, every second one is dropped and the spacing doubles
_POINTS = 128


@dataclass
class Trail:
    """Points ``[units, gain, low, high]`` of a sequence, evenly spread over its past.

    Attributes:
        every: units between two points.
    """

    every: int = 50
    points: list[list[float]] = field(default_factory=list)

    def add(self, sequence: Sequence, upper: Sequence | None = None) -> None:
        """Add a point if one is due; the upper bound is that of ``upper`` where it is given."""
        if sequence.count % self.every:
            return
        high = (sequence if upper is None else upper).upper()
        self.points.append([sequence.count, sequence.mean, sequence.lower(), high])
        if len(self.points) > _POINTS:
            self.every *= 2
            self.points = [point for point in self.points if point[0] % self.every == 0]

    def to_dict(self) -> dict[str, Any]:
        """The points and their spacing as a JSON object."""
        return asdict(self)

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Trail:
        """The inverse of ``to_dict``."""
        return cls(**body)
