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
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sidelight.errors import SidelightWarning, StoreError
from sidelight.labels import Label
from sidelight.linalg import Array
from sidelight.logs.schema.schema import Schema
from sidelight.service.config import Config
from sidelight.service.core.bounds import Bounds
from sidelight.service.core.counting import show_state
from sidelight.service.core.deciding import Ask, Decider
from sidelight.service.core.delivery import Delivery
from sidelight.service.core.file_settings import changed_settings
from sidelight.service.core.fold import FOLD, State
from sidelight.service.core.folding import Folding
from sidelight.service.core.gatekeeper import Gatekeeper
from sidelight.service.core.old_policy import load_old_policy
from sidelight.service.core.past import Past
from sidelight.service.core.proposals import (
    ConfigurationProposal,
    DecisionsProposal,
)
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
from sidelight.service.log.events import Answer, Behavior, Configuration, Decisions
from sidelight.service.log.rows import event_from_row
from sidelight.service.log.store import Draft, Outdated, Store, Written
from sidelight.service.log.surroundings import Surroundings
from sidelight.service.metrics import Metrics
from sidelight.service.problems import storage_problem, unknown_decision

__all__ = ["Engine"]

logger = logging.getLogger("sidelight.service")

T = TypeVar("T")

#: batches of at least this many contexts are decided in a thread, if the learner is large
_MANY = 16


class Engine(Delivery):
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
        super().__init__(Metrics() if metrics is None else metrics)
        self.store, self.config = store, config
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
        self.spans: Spans | None = None
        self.on_decision: Callable[[int, Decisions], None] | None = None
        self._digest: dict[str, Any] | None = None
        self._self_check = SelfCheck(store, self.metrics)
        self._checking: asyncio.Task[None] | None = None
        self._gatekeeper, self._waits = Gatekeeper(self), Waits(self, self._around)
        self._folding = Folding(state, store, self, self._around.now, self._folders)
        self.past = Past(self, self._folding)
        self.reviews = Reviews(self)
        self._watching: asyncio.Task[None] | None = None
        self._warm()
        if recovered.damaged or took_over:
            store.put_snapshot(self.state.snapshot(self._around.now()))
            self._snapshot_at = self.state.number

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

    async def configure(self, event: Configuration) -> int:
        """Change the rails, for every server on this store."""
        return (await self.in_force(self.noted(await self.submit(ConfigurationProposal.of(event))))).number

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
        event = self._recent.parsed(row, self.state.learner.n_features) if row is not None and known else None
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


def _digest_of(state: State) -> dict[str, Any]:
    return {"event": state.number, "version": state.version, "digest": state.snapshot(0.0).digest}
