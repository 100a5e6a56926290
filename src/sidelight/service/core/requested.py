"""The fields of a request for one decision beside its context."""

from __future__ import annotations

from dataclasses import dataclass

from sidelight.labels import Label
from sidelight.service.log.events import Answer

__all__ = ["PLAIN", "Ask"]


@dataclass(frozen=True)
class Ask:
    """The allowed arms, the old policy's answer and the subject of one requested decision."""

    allowed: list[Label] | None = None
    answer: Answer | None = None
    subject: str | None = None


#: a request with nothing but a context
PLAIN = Ask()
