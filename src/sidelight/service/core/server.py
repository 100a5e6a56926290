"""The protocol by which the parts of a server use its engine, so that none of them imports it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from sidelight.linalg import Array
from sidelight.service.core.fold import State
from sidelight.service.core.proposals import Known, ReferringProposal
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Configuration, Decisions
from sidelight.service.log.store import Outdated, Store, Written

__all__ = ["Noted", "Server"]


class Noted(NamedTuple):
    """The outcome of a write.

    Attributes:
        number: of the event.
        new: whether it was written now.
        quarantine: why it is kept from the learner, if it is.
        retracted: whether it was there before and was retracted since.
    """

    number: int
    new: bool
    quarantine: str | None
    retracted: bool = False


class Server(Protocol):
    """The members of an engine that its parts use."""

    store: Store

    @property
    def state(self) -> State:
        """The state that decides."""

    async def decision(self, id: DecisionId) -> Decisions:
        """The event that holds a decision."""

    async def configure(self, event: Configuration) -> int:
        """Change the rails; returns the event's number once they are in force."""

    async def read(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function that reads the store, run in a thread."""

    def submit(self, proposal: ReferringProposal) -> Awaitable[Written | Known | Outdated]:
        """The outcome of a proposal, once it is on disk."""

    async def submit_anew(self, propose: Callable[[], Awaitable[ReferringProposal]]) -> Written | Known:
        """The outcome of a proposal that is made again until no event has outdated it."""

    def noted(self, outcome: Written | Known | Outdated) -> Noted:
        """The outcome of a proposal as a ``Noted``."""

    async def in_force(self, noted: Noted) -> Noted:
        """``noted``, once its event is folded into the state that decides."""

    def doubt(self, x: Array, reward: float | None = None) -> str | None:
        """Why the learner must not learn from this before a person has looked; None where it may."""
