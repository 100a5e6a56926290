"""Decisions under a floor: each takes into account those that are still being written.

The learner's account (``learners.ledger``) holds the decisions that were folded in. A server knows a few more: those it
has chosen and that are being written. They are recorded in a copy of the account, which the next decision goes by. The
log is the order of all decisions, so it has the last word: one is written only where the log holds exactly those that
it counts, whichever server they are from, and is made anew otherwise (``Draft.counted``).
What counts are decisions of the learner in ``act`` mode: on the old policy's route nothing is risked, nothing earned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sidelight.learners.ledger import FloorLedger
from sidelight.linalg import Array
from sidelight.service.core.requested import Ask
from sidelight.service.log.events import Decisions, Event
from sidelight.service.problems import invalid, pointer

__all__ = ["Account", "check_defaults", "risked"]


def check_defaults(asks: Sequence[Ask] | None, n: int) -> None:
    """Check that every request names the old policy's arm, and allows it.

    Raises:
        Problem: one does not.
    """
    for i in range(n):
        ask = None if asks is None else asks[i]
        where = "" if n == 1 else pointer("", "decisions", i)
        if ask is None or ask.answer is None or ask.answer.arm is None:
            raise invalid(
                where + "/behavior",
                "does not tell the old policy's arm, and under a floor the learner may act only where it can fall back "
                "to it",
                "Say the old policy's arm",
            )
        if ask.allowed is not None and ask.answer.arm not in ask.allowed:
            raise invalid(
                where + "/allowed",
                f"leaves out {ask.answer.arm!r}, the old policy's arm, to which the floor must be able to fall back",
                "Allow it, or take it without asking",
            )


def risked(event: Decisions) -> list[tuple[int, Any, Any]]:
    """Position, arm and old policy's arm of the decisions that count for the floor: the learner's in ``act`` mode."""
    if event.mode != "act" or event.answers is None:
        return []
    return [
        (i, event.arms[i], answer.arm)
        for i, (route, answer) in enumerate(zip(event.routes, event.answers, strict=True))
        if route == "learner" and answer is not None and answer.arm is not None
    ]


class Account:
    """The floor's account of one server, including decisions that are still being written."""

    def __init__(self) -> None:
        #: decisions that are being written, by their id
        self.under_way: dict[int, Decisions] = {}
        self._ahead: FloorLedger | None = None
        self._of = -1

    def now(self, learner: Any, number: int) -> FloorLedger:
        """A copy of the account after event ``number`` and the decisions under way, to record further ones in."""
        if self._ahead is None or self._of != number:
            self._ahead, self._of = learner.ledger.ahead(), number
            for event in self.under_way.values():
                for i, arm, old in risked(event):
                    self.record(learner, event.contexts[i], arm, old)
        return self._ahead

    def record(self, learner: Any, x: Array, arm: Any, old: Any) -> None:
        """Record a decision of the learner at ``x`` (d,)."""
        assert self._ahead is not None
        self._ahead.record(x, learner.arms.index(arm), learner.arms.index(old))

    def before(self, event: Decisions) -> int | None:
        """How many events under way these decisions take into account; None where the floor does not apply."""
        return list(self.under_way).index(id(event)) if id(event) in self.under_way else None

    def begin(self, event: Decisions) -> None:
        """Mark decisions, recorded before, as under way: they are being written."""
        self.under_way[id(event)] = event

    def end(self, event: Event) -> None:
        """Remove decisions from those under way: they were folded in, or will not be written."""
        if self.under_way.pop(id(event), None) is not None:
            self._ahead = None
