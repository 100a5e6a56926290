"""The engine: decides, writes events and folds them into the state.  It knows nothing of HTTP.

All methods but the constructor run in one event loop. Decisions are computed there (microseconds), written by the
commit thread, and answered when they are on disk. Whatever changes the learner is folded in when its transaction has
committed, in the order of the log's numbers, so the learner is always the fold of a prefix of the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sidelight.errors import SidelightWarning, StoreError
from sidelight.labels import Label
from sidelight.linalg import Array
from sidelight.logs.schema.schema import Schema
from sidelight.service.config import Config
from sidelight.service.core.bounds import Bounds
from sidelight.service.core.counting import count_events, count_group, show_state
from sidelight.service.core.deciding import Ask, Decider
from sidelight.service.core.file_settings import changed_settings
from sidelight.service.core.fold import FOLD, Numbered, State
from sidelight.service.core.folding import Failure, Folding
from sidelight.service.core.gatekeeper import Gatekeeper
from sidelight.service.core.old_policy import load_old_policy
from sidelight.service.core.past import Past
from sidelight.service.core.proposals import (
    ConfigurationProposal,
    DecisionsProposal,
    Known,
    ReferringProposal,
)
from sidelight.service.core.recent import RecentDecisions
from sidelight.service.core.recovery import recover
from sidelight.service.core.rehearsing import rehearse, rehearse_requests
from sidelight.service.core.reviewing import Reviews
from sidelight.service.core.selfcheck import SelfCheck, again_and_again
from sidelight.service.core.server import Noted
from sidelight.service.core.starting import check_log, prepare, take_over
from sidelight.service.core.told import ActionProposal, BehaviorProposal, RewardProposal
from sidelight.service.core.waits import Waits
from sidelight.service.log.committer import Committer, Pace, Spans, Standing
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Answer, Behavior, Configuration, Decisions, Forgotten
from sidelight.service.log.queue import Entry, Failed, Group
from sidelight.service.log.rows import event_from_row
from sidelight.service.log.snapshots import Snapshot
from sidelight.service.log.store import Diverged, Draft, Outdated, Store, Written
from sidelight.service.log.surroundings import Surroundings
from sidelight.service.metrics import Metrics
from sidelight.service.problems import Problem, storage_problem, unknown_decision

__all__ = ["Engine"]

logger = logging.getLogger("sidelight.service")

T = TypeVar("T")

#: seconds that a request may wait for its transaction before the server counts as not ready
_LONGEST_WAIT = 5.0
#: batches of at least this many contexts are decided in a thread, if the learner is large
_MANY = 16


class Engine:
    """One server's copy of the service.

    Args:
        store: the event log.
        config: the configuration it belongs to.
        metrics: where to count.
        surroundings: clock, randomness, and the threads for work outside the event loop.
    """

    def __init__(
        self,
        store: Store,
        config: Config,
        metrics: Metrics | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.store, self.config = store, config
        self.metrics = Metrics() if metrics is None else metrics
        self._around = Surroundings() if surroundings is None else surroundings
        store.serve()
        prepare(store, config)
        self.notes = check_log(store)
        for note in self.notes:
            logger.error("%s", note)
        took_over = take_over(store, config)
        started = self._around.monotonic()
        recovered = recover(store, repair=True)
        state = recovered.state
        self.recovered_from = recovered.start
        self.damaged = recovered.damaged
        self.metrics.damaged_snapshots.inc(len(recovered.damaged))
        logger.info(
            "folded events %d to %d in %.2f s",
            recovered.start,
            state.number,
            self._around.monotonic() - started,
        )
        self.schema: Schema = config.load_schema()
        self._bounds = Bounds.of(config.bounds, self.schema, config.load_summaries())
        self._snapshot_at = recovered.start
        self._recent = RecentDecisions()
        rng = self._around.generator()
        # The second one decides for large batches, in a thread.
        self._decider, self._aside = (
            Decider(
                state.learner,
                self.metrics,
                load_old_policy(config),
                rng=drawn,
                every_chance=config.mode.propensities == "all",
            )
            for drawn in (rng, *rng.spawn(1))
        )
        self._readers = self._around.readers()
        self._folders = self._around.readers()
        self.error: StoreError | None = None
        self._stuck: StoreError | None = None
        self.committer: Committer | None = None
        self.spans: Spans | None = None
        self.on_decision: Callable[[int, Decisions], None] | None = None
        self._digest: dict[str, Any] | None = None
        self._self_check = SelfCheck(store, self.metrics)
        self._checking: asyncio.Task[None] | None = None
        self.listeners: list[Callable[[list[Numbered]], None]] = []
        self._gatekeeper, self._waits = Gatekeeper(self), Waits(self, self._around)
        self._folding = Folding(state, store, self, self._around.now, self._folders)
        self.past = Past(self, self._folding)
        self.reviews = Reviews(self)
        self._watching: asyncio.Task[None] | None = None
        self._warm()
        if recovered.damaged or took_over:
            store.put_snapshot(self.state.snapshot(self._around.now()))
            self._snapshot_at = self.state.number

    @property
    def state(self) -> State:
        """The state that decides: the fold of the log up to event ``state.number``."""
        return self._folding.state

    def _warm(self) -> None:
        """Compile what deciding and learning need, on a copy, so that no request waits for it."""
        with warnings.catch_warnings():
            # its contexts are artificial and may be wild by the log: no warning about them
            warnings.simplefilter("ignore", SidelightWarning)
            rehearse(self.config)
            rehearse_requests(State.from_snapshot(self.state.snapshot(0.0)))

    async def start(self) -> None:
        """Start the commit thread; apply the changes of the configuration file since the last start."""
        self.committer = Committer(
            self.store,
            asyncio.get_running_loop(),
            Standing(self.state.number, self.state.chain, FOLD, self.state.learner.n_features),
            self._deliver,
            self._refuse,
            self._failed,
            pace=Pace(poll=self.config.storage.poll_seconds),
            spans=self.spans,
            surroundings=self._around,
        )
        self.committer.start()
        try:
            changed = await self.read(changed_settings, self.store, self.config)
            if changed is not None:
                await self.configure(changed)
        except BaseException:
            # A thread that still runs while the interpreter exits would find its modules partly unloaded.
            await self.stop(self.config.limits.seconds)
            raise
        self._watching = asyncio.create_task(self._waits.watch())
        self._checking = asyncio.create_task(again_and_again(self.check_itself))
        self._gatekeeper.consider()
        show_state(self.metrics, self.state)

    async def check_itself(self) -> bool | None:
        """Whether a replay from the newest base gives the state that decides, bit for bit; None where none is possible.

        Raises:
            Problem: the log cannot be read.
        """
        number, expected = await self._folding.look(lambda state: (state.number, state.snapshot(0.0).digest))
        return await self._self_check.compare(self.read, number, expected)

    async def stop(self, timeout: float | None = None) -> None:
        """Write and fold in the accepted requests, write a snapshot, and end.

        Args:
            timeout: seconds after which to give up, if the database does not answer; what was not written was not
                acknowledged.
        """
        loop = asyncio.get_running_loop()
        for task in (self._watching, self._checking):
            if task is not None:
                task.cancel()
        await self._gatekeeper.stop()
        committer, self.committer = self.committer, None
        self.metrics.ready.set(0)
        ended = True
        if committer is not None:
            ended = await loop.run_in_executor(None, committer.stop, timeout)
            # The worker has handed everything over; what it handed over last is folded in before this continues.
            await asyncio.sleep(0)
            await self._folding.stop(timeout)
            if ended and self.state.number > self._snapshot_at and self.error is None:
                with contextlib.suppress(StoreError):
                    snapshot = self.state.snapshot(self._around.now())
                    await loop.run_in_executor(None, self.store.put_snapshot, snapshot)
        if not ended:
            logger.error("the database does not answer: ending without waiting for it")
        self._readers.shutdown(wait=ended)
        self._folders.shutdown(wait=ended)

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

    # -------------------------------------------------------------------------------- deciding

    def choose(self, X: Array, asks: Sequence[Ask] | None, fingerprint: str | None = None) -> Decisions:
        """Decide for every row of ``X`` (n, d); nothing is written yet."""
        event = self._decider.choose(self.state, X, asks, fingerprint)
        return event if event.answers is None else self._doubt_answers(event)

    async def _choose_aside(
        self, X: Array, asks: Sequence[Ask] | None, fingerprint: str | None
    ) -> tuple[Decisions, int]:
        """Decide in a thread; returns the decisions and the last event that they take into account."""
        event, number = await self._folding.look(
            lambda state: (self._aside.choose(state, X, asks, fingerprint), state.number)
        )
        return event if event.answers is None else self._doubt_answers(event), number

    def _doubt_answers(self, event: Decisions) -> Decisions:
        """Mark the decisions' answers as quarantined where a context is out of bounds."""
        pairs = zip(event.contexts, event.answers or (), strict=True)
        reasons = [None if answer is None else self.doubt(x) for x, answer in pairs]
        event.quarantine = reasons if any(reasons) else None
        return event

    async def decide(
        self, X: Array, asks: Sequence[Ask] | None, key: str | None = None, fingerprint: str | None = None
    ) -> tuple[int, Decisions, bool]:
        """Decide and write; returns the event's number, the decisions, and whether they are new.

        A decision that was overtaken by a change of who acts, on whatever server, is made anew: in the log none stands
        after the kill switch that was decided before it. Under a floor one is made anew, too, where the log does not
        hold exactly the decisions that it counts: another server wrote some, or one before it was not written.
        """
        while True:
            if len(X) < _MANY or not self._folding.large:
                event, number = self.choose(X, asks, fingerprint), self.state.number
            else:
                event, number = await self._choose_aside(X, asks, fingerprint)
            try:
                counted = self._decider.account.before(event)
                outcome = await self.submit(DecisionsProposal(Draft.of(event, key, number, counted)))
            finally:
                self._decider.account.end(event)
            if not isinstance(outcome, Outdated):
                break
            # The event that outdated it is in the log, but may not be folded in yet.
            await self._wait_for(None)
        if isinstance(outcome, Written):
            if outcome.epoch:
                event = replace(event, epoch=outcome.epoch)
            if self.on_decision is not None:
                self.on_decision(outcome.number, event)
            return outcome.number, event, True
        recorded = event_from_row(outcome.row, X.shape[1])
        if not isinstance(recorded, Decisions):
            raise TypeError(f"the key of a decision belongs to {type(recorded).__name__}")
        return outcome.row.number, recorded, False

    # -------------------------------------------------------------------------------- what follows

    async def reward(self, id: DecisionId, reward: float, arm: Label | None, by: str | None) -> Noted:
        """Write a reward."""

        async def propose() -> RewardProposal:
            decision = await self.decision(id)
            why = self.doubt(decision.contexts[id.position], reward)
            return RewardProposal(id, decision, reward, arm, by, why)

        return self.noted(await self.submit_anew(propose))

    async def action(self, id: DecisionId, arm: Label | None, by: str | None) -> Noted:
        """Write which arm was taken."""

        async def propose() -> ActionProposal:
            decision = await self.decision(id)
            return ActionProposal(id, decision, arm, by, self.doubt(decision.contexts[id.position]))

        return self.noted(await self.submit_anew(propose))

    async def behavior(self, id: DecisionId, answer: Answer) -> Noted:
        """Write what the old policy would do at a decision's context."""

        async def propose() -> BehaviorProposal:
            decision = await self.decision(id)
            return BehaviorProposal(id, decision, answer, self.doubt(decision.contexts[id.position]))

        return self.noted(await self.submit_anew(propose))

    async def behavior_at(self, x: Array, answer: Answer, key: str | None, fingerprint: str | None) -> Noted:
        """Write what the old policy would do at a context of its own."""
        event = Behavior(answer, None, x, fingerprint, self.doubt(x))
        return self.noted(await self.submit(DecisionsProposal(Draft.of(event, key), x)))

    def doubt(self, x: Array, reward: float | None = None) -> str | None:
        """Why the learner must not learn from this before a person has looked; None where it may."""
        return self._bounds.reason(self.state.seen.ranges, x, reward)

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

    async def configure(self, event: Configuration) -> int:
        """Change the rails, for every server on this store."""
        return (await self.in_force(self.noted(await self.submit(ConfigurationProposal.of(event))))).number

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

    def submit(self, proposal: ReferringProposal) -> asyncio.Future[Written | Known | Outdated]:
        """A future of the outcome of a proposal, set once it is on disk; a ``Problem`` where it is not written."""
        if self.committer is None:
            raise Problem("starting", "the service is starting or stopping; try again.")
        if self._stuck is not None:
            raise storage_problem(self._stuck)
        return self.committer.submit(proposal, proposal.context)

    # ------------------------------------------------------------------------------------ delivery

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

    # ------------------------------------------------------------------------------------- reading

    async def decision(self, id: DecisionId) -> Decisions:
        """The event that holds a decision.

        Raises:
            Problem: there is no such decision.
        """
        row = self._recent.row(id.number)
        if row is None:
            row = (await self.read(self.store.rows, [id.number])).get(id.number)
        # An id of another epoch is that of a decision which the log has lost, whatever has its number now.
        known = row is not None and row.epoch == id.epoch
        event = event_from_row(row, self.state.learner.n_features) if row is not None and known else None
        if not isinstance(event, Decisions) or id.position >= len(event):
            raise unknown_decision(str(id))
        return event

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a function that reads the store, run in a thread."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, function, *arguments)
        except StoreError as error:
            raise storage_problem(error) from error

    async def digest(self) -> dict[str, Any]:
        """Event number, version and digest of the state: equal on all servers of one log that are at the same event."""
        if self._digest is None or self._digest["event"] != self.state.number:
            self._digest = await self._folding.look(_digest_of)
        return self._digest


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


def _digest_of(state: State) -> dict[str, Any]:
    return {"event": state.number, "version": state.version, "digest": state.snapshot(0.0).digest}
