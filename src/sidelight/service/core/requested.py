"""What is asked beside the context of one decision."""

from __future__ import annotations

from dataclasses import dataclass

from sidelight.labels import Label
from sidelight.service.log.events import Answer

__all__ = ["PLAIN", "Ask"]


@dataclass(frozen=True)
class Ask:
    """What came with a context: the arms that are allowed, what the old policy does there, whom it is about."""

    allowed: list[Label] | None = None
    answer: Answer | None = None
    subject: str | None = None


#: nothing came
PLAIN = Ask()
