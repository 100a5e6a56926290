"""What a server writes and what becomes of it: submitted, on disk, folded into the state, answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sidelight.errors import StoreError
from sidelight.service.config import Config
from sidelight.service.core.counting import count_events, count_group, show_state
from sidelight.service.core.deciding import Decider
from sidelight.service.core.fold import Numbered, State
from sidelight.service.core.folding import Failure, Folding
from sidelight.service.core.gatekeeper import Gatekeeper
from sidelight.service.core.proposals import DecisionsProposal, Known, ReferringProposal
from sidelight.service.core.recent import RecentDecisions
from sidelight.service.core.server import Noted
from sidelight.service.log.committer import Committer
from sidelight.service.log.events import Decisions, Forgotten
from sidelight.service.log.queue import Entry, Failed, Group
from sidelight.service.log.snapshots import Snapshot
from sidelight.service.log.store import Diverged, Outdated, Written
from sidelight.service.metrics import Metrics
from sidelight.service.problems import Problem, storage_problem

__all__ = ["Delivery"]

logger = logging.getLogger("sidelight.service")

#: seconds that a request may wait for its transaction before the server counts as not ready
_LONGEST_WAIT = 5.0


class Delivery:
    """The part of an engine between its requests and the log.

    Attributes:
        committer: writes; None before the start and after the end.
        error: why nothing can be written at present, or None.
        listeners: called with the events that were folded in.
    """

    config: Config
    _decider: Decider
    _folding: Folding
    _gatekeeper: Gatekeeper

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.committer: Committer | None = None
        self.error: StoreError | None = None
        self._stuck: StoreError | None = None
        self._recent = RecentDecisions()
        self._snapshot_at = 0
        self.listeners: list[Callable[[list[Numbered]], None]] = []

    @property
    def state(self) -> State:
        """The state that decides: the fold of the log up to event ``state.number``."""
        return self._folding.state

    @property
    def ready(self) -> bool:
        """Whether decisions can be written."""
        return self.committer is not None and self.why_not_ready() is None

    def why_not_ready(self) -> StoreError | None:
        """What keeps decisions from being written, or None."""
        if self.error is not None or self.committer is None:
            return self.error
        if not self.committer.alive:
            return StoreError("the thread that writes has ended: restart the service.")
        waited = self.committer.oldest_wait()
        if waited > _LONGEST_WAIT:
            return StoreError(
                f"the database has not answered for {waited:.0f} s: check that it runs and is not overloaded."
            )
        return None

    # ---------------------------------------------------------------------------------- submitting

    def submit(self, proposal: ReferringProposal) -> asyncio.Future[Written | Known | Outdated]:
        """A future of the outcome of a proposal, set once it is on disk; a ``Problem`` where it is not written."""
        if self.committer is None:
            raise Problem("starting", "the service is starting or stopping; try again.")
        if self._stuck is not None:
            raise storage_problem(self._stuck)
        return self.committer.submit(proposal, proposal.context)

    async def submit_anew(self, propose: Callable[[], Awaitable[ReferringProposal]]) -> Written | Known:
        """Submit what ``propose`` makes of the current state, and retry until no event has outdated it."""
        while isinstance(outcome := await self.submit(await propose()), Outdated):
            # The event that outdated it is in the log, but may not be folded in yet (as in ``decide``).
            await self._wait_for(None)
        return outcome

    async def in_force(self, noted: Noted) -> Noted:
        """``noted``, once its event is folded into the state that decides."""
        await self._wait_for(noted.number)
        return noted

    async def _wait_for(self, number: int | None) -> None:
        """Wait until the state that decides has event ``number``, or all that were delivered so far."""
        try:
            await self._folding.folded(number)
        except StoreError as error:
            raise storage_problem(error) from error

    def noted(self, outcome: Written | Known | Outdated) -> Noted:
        """The outcome of a proposal as a ``Noted``."""
        if isinstance(outcome, Outdated):
            raise TypeError("a proposal that depends on no other event cannot be outdated")
        if isinstance(outcome, Written):
            return Noted(outcome.number, True, getattr(outcome.draft.event, "quarantine", None))
        row = outcome.row
        # A client that retries may have missed the first response, so it is told the reason again; not that of
        # an answer that came with a decision, whose response holds none.
        reason = None if row.kind == Decisions.kind else self.state.quarantine.reason(row.number)
        return Noted(row.number, False, reason, outcome.retracted)

    # ---------------------------------------------------------------------------------- delivering

    def _deliver(self, group: Group) -> None:
        """Fold a group in, in the order of the log, then answer its requests."""
        news: list[Numbered] = list(group.others)
        if self._decider.account.under_way:
            for entry in group.entries:
                if isinstance(entry.proposal, DecisionsProposal):
                    # folded in below, or never: in either case no longer under way
                    self._decider.account.end(entry.proposal.draft.event)
        for entry, outcome in zip(group.entries, group.outcomes, strict=True):
            if isinstance(outcome, Written):
                event = outcome.draft.event
                if isinstance(event, Decisions):
                    self._recent.add(outcome)
                news.append(Numbered(outcome.number, outcome.at, event, entry.context, outcome.chain))
        try:
            if self._stuck is None:
                self._folding.take(news)
        except Exception as error:
            self.gave_up(error)
        if self._stuck is not None:
            self._refuse(group.entries, self._stuck)
            return
        for entry, outcome in zip(group.entries, group.outcomes, strict=True):
            if entry.future.done():
                continue
            if isinstance(outcome, (Written, Known, Outdated)):
                entry.future.set_result(outcome)
            else:
                entry.future.set_exception(_refusal(outcome))
        count_group(self.metrics, group)

    def _refuse(self, entries: Sequence[Entry], error: Exception) -> None:
        """Tell every request that still waits what went wrong."""
        for entry in entries:
            if not entry.future.done():
                entry.future.set_exception(_answerable(error))

    def folded(self, news: Sequence[Numbered], failures: Sequence[Failure]) -> None:
        """Update metrics, listeners and the gate after events were folded into the state that decides."""
        count_events(self.metrics, news)
        for item in news:
            if isinstance(item.event, Forgotten):
                self._recent.drop(item.event.decisions)
        for number, error in failures:
            # The event stays in the log, and the learner learns nothing from it.
            name = type(error).__name__
            logger.error("the learner could not learn from event %d: %s", number, name, exc_info=error)
            self.metrics.learner_failures.inc()
        show_state(self.metrics, self.state)
        for listener in self.listeners:
            try:
                listener(list(news))
            except Exception:
                # A listener only observes: its failure must not stop the engine.
                logger.exception("a listener failed")
        self._gatekeeper.consider()

    def snapshot_due(self) -> bool:
        """Whether a snapshot is to be taken."""
        if self.committer is None or self.committer.keeping:
            return False
        return self.state.number - self._snapshot_at >= self.config.storage.snapshot_every

    def keep(self, snapshot: Snapshot) -> None:
        """Queue a snapshot to be written between commit groups."""
        self._snapshot_at = self.state.number
        if self.committer is not None:
            self.committer.keep(snapshot)
            self.metrics.snapshots.inc()

    def cannot_read(self, error: StoreError | None) -> None:
        """Note that the log cannot be read for folding it again (this is retried), or None once it could."""
        self._failed(error)
        if error is None:
            self._recent.drop(self.state.forgotten)

    def gave_up(self, error: Exception) -> None:
        """Refuse to write after a bug in the fold: further events are in the log, but this state cannot follow them.

        Deciding with a partly folded state, or letting requests wait in vain, would be worse than failing.
        """
        logger.error("event %d cannot be folded in", self.state.number, exc_info=error)
        self._stuck = StoreError(
            f"this server is stuck at event {self.state.number} ({type(error).__name__}); the log is as it should be. "
            "Restart the server, and report this."
        )
        self._failed(self._stuck)

    def _failed(self, error: StoreError | None) -> None:
        if isinstance(error, Diverged) and self._stuck is None:
            self._stuck = error
        error = self._stuck or error
        if error is not None and self.error is None:
            logger.error("%s", error)
        if error is None and self.error is not None:
            logger.warning("the event log can be written again")
        self.error = error
        self.metrics.ready.set(0 if error is not None else 1)
        if error is not None:
            self.metrics.store_errors.inc()


def _refusal(outcome: Any) -> Exception:
    """The exception for a request whose proposal was not written: it is its own fault, or could not be settled."""
    if isinstance(outcome, Problem):
        return outcome
    if isinstance(outcome, Failed):
        logger.error("a request cannot be settled: %s", type(outcome.error).__name__, exc_info=outcome.error)
        return _answerable(outcome.error)
    return TypeError(f"unexpected outcome: {type(outcome).__name__}")


def _answerable(error: Exception) -> Exception:
    """An error of the store as the problem that a caller is told of; another one as it is."""
    if not isinstance(error, StoreError):
        return error
    problem = storage_problem(error)
    problem.__cause__ = error
    return problem
