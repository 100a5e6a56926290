"""The engine: decides, writes, folds.  It knows nothing of HTTP.

All methods but the constructor run in one event loop. Decisions are computed there (microseconds), written by the
commit thread, and answered when they are on disk. Whatever changes the learner is folded in when its transaction has
committed, in the order of the log's numbers, so the learner is always the fold of a prefix of the log.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from sidelight.errors import StoreError
from sidelight.learners.protocol import Decision
from sidelight.linalg import Array
from sidelight.logs.labels import Label, label_to_json
from sidelight.logs.schema import Schema
from sidelight.service.committer import Committer, Group
from sidelight.service.config import Config
from sidelight.service.events import Answer, Behavior, Configuration, DecisionId, Decisions, Row, event_from_row
from sidelight.service.explain import finite
from sidelight.service.fold import LEARNER_ERRORS, Numbered, State
from sidelight.service.metrics import Metrics
from sidelight.service.problems import Problem
from sidelight.service.proposals import (
    ActionProposal,
    BehaviorProposal,
    ConfigurationProposal,
    DecisionsProposal,
    Known,
    RewardProposal,
)
from sidelight.service.rails import subject_draw
from sidelight.service.recovery import recover
from sidelight.service.store import Draft, Proposal, Store, Written, database_url

__all__ = ["Ask", "Engine", "open_store"]

logger = logging.getLogger("sidelight.service")

T = TypeVar("T")

#: bytes of decisions that are kept in memory for the rewards that follow; older ones are read from the store
_RECENT_BYTES = 8_000_000
#: what Python needs for one of them beside its content
_ENTRY_BYTES = 400


@dataclass(frozen=True)
class Ask:
    """What is asked beside the context of one decision."""

    allowed: list[Label] | None = None
    answer: Answer | None = None
    subject: str | None = None


_PLAIN = Ask()


def open_store(config: Config, database: str | None = None) -> Store:
    """The store of a configuration, made and migrated where needed."""
    return Store(database_url(config.storage.database if database is None else database, config.folder))


def prepare(store: Store, config: Config) -> None:
    """Write the first event into an empty log, or check that a log belongs to this configuration.

    Raises:
        StoreError: the log was started with another schema or another learner.
    """
    from sidelight.learners.files import learner_bytes

    rails = config.rails()
    schema = config.load_schema().to_dict()
    described = {
        "learner": config.learner.kind,
        "answers": config.learner.answers,
        "settings": config.learner.settings,
        "rails": rails.to_dict(),
    }
    if store.head() == 0:
        digest = store.put_blob(learner_bytes(config.build_learner()))
        event = Configuration(
            learner=digest,
            schema=schema,
            mode=rails.mode,
            share=rails.share,
            fallback=rails.fallback,
            killed=rails.killed,
            source="file",
            file=described,
        )
        # Two servers may start on an empty database at once: whoever comes second finds the first one's event.
        store.append([_First(Draft.of(event, "first"))], 0)
    first = event_from_row(store.read(0, 1)[0], 0)
    assert isinstance(first, Configuration)
    if first.schema != schema:
        raise StoreError(
            "the event log was started with another schema (features, recorded ones or arms) than the configuration "
            "now says. A log belongs to one schema: use another database, or undo the change."
        )
    for name in ("learner", "answers", "settings"):
        if (first.file or {}).get(name) != described[name]:
            raise StoreError(
                f"the event log was started with {name} = {(first.file or {}).get(name)!r} and the configuration says "
                f"{described[name]!r}. The learner is a fold over all events of one log: use another database, or undo "
                "the change."
            )


class _First:
    """The first event, written only where there is none."""

    keys: tuple[str, ...] = ("first",)

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def settle(self, found: Any) -> Any:
        return None if "first" in found else self._draft


class Engine:
    """One server's copy of the service.

    Args:
        store: the event log.
        config: the configuration it belongs to.
        metrics: where to count.
    """

    def __init__(self, store: Store, config: Config, metrics: Metrics | None = None) -> None:
        self.store, self.config = store, config
        self.metrics = Metrics() if metrics is None else metrics
        prepare(store, config)
        started = time.perf_counter()
        recovered = recover(store, repair=True)
        self.state: State = recovered.state
        self.recovered_from = recovered.start
        self.damaged = recovered.damaged
        self.metrics.damaged_snapshots.inc(len(recovered.damaged))
        logger.info(
            "folded events %d to %d in %.2f s", recovered.start, self.state.number, time.perf_counter() - started
        )
        self.schema: Schema = config.load_schema()
        self._snapshot_at = recovered.start
        # As text and bytes, not as records: a hundred thousand small objects would slow every garbage collection.
        self._recent: OrderedDict[int, tuple[str, bytes, int]] = OrderedDict()
        self._recent_size = 0
        self._rng = np.random.default_rng()
        # A learner may decide for many contexts at once, if it takes the generator that its draws come from.
        self._many = "rng" in inspect.signature(self.state.learner.decide_many).parameters
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="sidelight-read")
        self._rebuilding = asyncio.Semaphore(1)
        self.error: StoreError | None = None
        self.committer: Committer | None = None
        self.listeners: list[Callable[[list[Numbered]], None]] = []
        self._warm()
        if recovered.damaged:
            store.put_snapshot(self.state.snapshot(time.time()))
            self._snapshot_at = self.state.number

    def _warm(self) -> None:
        """Compile what deciding and learning need, on a copy, so that the first request does not wait for it."""
        copy = State.from_snapshot(self.state.snapshot(0.0)).learner
        x = np.zeros(copy.n_features)
        x[0] = 1.0
        copy.decide(x, rng=self._rng)
        copy.observe(x, copy.arms[0], 0.0)
        copy.decide(x)

    async def start(self) -> None:
        """Begin to write; apply what changed in the configuration file since the last start."""
        s = self.config.storage
        self.committer = Committer(
            self.store,
            asyncio.get_running_loop(),
            self.state.number,
            self.state.learner.n_features,
            self._deliver,
            self._failed,
            poll=0.0 if self.store.sqlite else s.poll_seconds,
        )
        await self._apply_file()

    async def _apply_file(self) -> None:
        """Rails that were changed in the file since it was last read win; otherwise requests' changes stand."""
        wanted = self.config.rails()
        last = await self._read(self._last_file_rails)
        if last == wanted.to_dict():
            return
        event = Configuration(
            mode=wanted.mode,
            share=wanted.share,
            fallback=wanted.fallback,
            killed=wanted.killed,
            source="file",
            file={"rails": wanted.to_dict()},
        )
        await self._submit(ConfigurationProposal.of(event))

    def _last_file_rails(self) -> dict[str, Any] | None:
        rails = None
        for row in self.store.configurations():
            event = event_from_row(row, 0)
            if isinstance(event, Configuration) and event.file is not None:
                rails = event.file.get("rails", rails)
        return rails

    async def stop(self) -> None:
        """Write what was accepted, keep a snapshot, end."""
        if self.committer is not None:
            if self.state.number > self._snapshot_at and self.error is None:
                self.committer.keep(self.state.snapshot(time.time()))
            await asyncio.get_running_loop().run_in_executor(None, self.committer.stop)
        self._readers.shutdown(wait=True)

    @property
    def ready(self) -> bool:
        """Whether decisions can be written."""
        return self.committer is not None and self.error is None

    # -------------------------------------------------------------------------------- deciding

    def choose(self, X: Array, asks: Sequence[Ask] | None, fingerprint: str | None = None) -> Decisions:
        """Decide for every row of ``X`` (n, d); nothing is written yet.

        Args:
            X: encoded contexts.
            asks: what came with each; None where nothing did.
            fingerprint: of the request, where it has an idempotency key.
        """
        state = self.state
        rails, rng = state.rails, self._rng
        n = len(X)
        choices = self._choices(X, asks)
        failed = {i for i, choice in enumerate(choices) if choice is None} if None in choices else set()
        for i in failed:
            allowed = None if asks is None else asks[i].allowed
            arm = rails.fallback if allowed is None or rails.fallback in allowed else allowed[0]
            choices[i] = (arm, None, None, 1.0)
        recommended: list[Label]
        estimates: list[float | None]
        widths: list[float | None]
        chances: list[float]
        recommended, estimates, widths, chances = map(list, zip(*choices, strict=True))
        asked, query_probabilities = self._queries(X, asks)
        routed = (
            rails.mode != "shadow" and not rails.killed and not failed and (rails.mode == "assist" or rails.share >= 1)
        )
        arms: list[Label | None]
        propensities: list[float | None]
        if routed:
            arms, routes, propensities = list(recommended), ["learner"] * n, list(chances)
        else:
            arms, routes, propensities = [], [], []
            for i in range(n):
                ask = _PLAIN if asks is None else asks[i]
                old_arm, old_propensity = self._old_policy(ask.answer)
                route = rails.route(
                    recommended[i],
                    chances[i],
                    old_arm=old_arm,
                    old_propensity=old_propensity,
                    allowed=ask.allowed,
                    draw=rng.random() if ask.subject is None else subject_draw(ask.subject),
                    failed=i in failed,
                )
                arms.append(route.arm)
                routes.append(route.by)
                propensities.append(route.propensity)
        plain = asks is None
        return Decisions(
            contexts=X,
            arms=arms,
            recommended=recommended,
            estimates=estimates,
            widths=widths,
            propensities=propensities,
            routes=routes,
            asked=asked,
            query_probabilities=query_probabilities,
            version=state.version,
            mode=rails.mode,
            share=rails.share,
            allowed=None if plain or all(a.allowed is None for a in asks or ()) else [a.allowed for a in asks or ()],
            answers=None if plain or all(a.answer is None for a in asks or ()) else [a.answer for a in asks or ()],
            subjects=None if plain or all(a.subject is None for a in asks or ()) else [a.subject for a in asks or ()],
            fingerprint=fingerprint,
        )

    def _choices(self, X: Array, asks: Sequence[Ask] | None) -> list[Any]:
        """The learner's decisions, each ``(arm, estimate, width, propensity)``; None where it could not decide."""
        learner, rng = self.state.learner, self._rng
        if asks is None:
            try:
                choices: list[Any]
                if len(X) > 1 and self._many:
                    choices = learner.decide_many(X, rng=rng)
                else:
                    decide = learner.decide
                    choices = [decide(x, None, rng) for x in X]
                if math.isfinite(sum([estimate + width for _, estimate, width, _ in choices])):
                    return choices
            except LEARNER_ERRORS:
                pass
        return [self._choice(x, None if asks is None else asks[i].allowed) for i, x in enumerate(X)]

    def _choice(self, x: Array, allowed: list[Label] | None) -> Decision | None:
        try:
            choice: Decision = self.state.learner.decide(x, allowed, self._rng)
            if not math.isfinite(choice.estimate + choice.width):
                raise ArithmeticError(f"estimate {choice.estimate}, width {choice.width}")
        except LEARNER_ERRORS as error:
            logger.error("the learner could not decide, the fallback acts: %r", error)
            self.metrics.learner_failures.inc()
            return None
        return choice

    def _queries(self, X: Array, asks: Sequence[Ask] | None) -> tuple[list[bool], list[float]]:
        """Whether to ask the old policy at each context, and with what chance that came out."""
        learner, n = self.state.learner, len(X)
        if learner.needs is None:
            return [False] * n, [0.0] * n
        chance_of = getattr(learner, "query_probability", None)
        if getattr(getattr(learner, "asking", None), "unlimited", False):
            chances, asked = [1.0] * n, [True] * n
        elif chance_of is not None:
            chances = [chance_of(x) for x in X]
            asked = [q >= 1.0 or self._rng.random() < q for q in chances]
        else:
            asked = [bool(learner.wants_query(x)) for x in X]
            chances = [1.0 if wanted else 0.0 for wanted in asked]
        if asks is not None:
            # who already said what the old policy does is not asked again
            asked = [wanted and ask.answer is None for wanted, ask in zip(asked, asks, strict=True)]
        return asked, chances

    def _old_policy(self, answer: Answer | None) -> tuple[Label | None, float | None]:
        if answer is None or answer.arm is None:
            return None, None
        if answer.probabilities is None:
            return answer.arm, None
        return answer.arm, answer.probabilities[self.state.learner.arms.index(answer.arm)]

    async def decide(
        self, X: Array, asks: Sequence[Ask] | None, key: str | None = None, fingerprint: str | None = None
    ) -> tuple[int, Decisions, bool]:
        """Decide and write; returns the event's number, the decisions, and whether they are new."""
        event = self.choose(X, asks, fingerprint)
        outcome = await self._submit(DecisionsProposal(Draft.of(event, key)))
        if isinstance(outcome, Written):
            return outcome.number, event, True
        recorded = event_from_row(outcome.row, X.shape[1])
        assert isinstance(recorded, Decisions)
        return outcome.row.number, recorded, False

    # -------------------------------------------------------------------------------- what follows

    async def reward(self, id: DecisionId, reward: float, arm: Label | None, by: str | None) -> tuple[int, bool]:
        """Write a reward; returns the event's number and whether it is new."""
        return self._noted(await self._submit(RewardProposal(id, await self.decision(id), reward, arm, by)))

    async def action(self, id: DecisionId, arm: Label | None, by: str | None) -> tuple[int, bool]:
        """Write which arm was taken."""
        return self._noted(await self._submit(ActionProposal(id, await self.decision(id), arm, by)))

    async def behavior(self, id: DecisionId, answer: Answer) -> tuple[int, bool]:
        """Write what the old policy would do at a decision's context."""
        return self._noted(await self._submit(BehaviorProposal(id, await self.decision(id), answer)))

    async def behavior_at(self, x: Array, answer: Answer, key: str | None, fingerprint: str | None) -> tuple[int, bool]:
        """Write what the old policy would do at a context of its own."""
        event = Behavior(answer, None, x, fingerprint)
        return self._noted(await self._submit(DecisionsProposal(Draft.of(event, key), x)))

    async def configure(self, event: Configuration) -> int:
        """Change the rails, for every server on this store."""
        return self._noted(await self._submit(ConfigurationProposal.of(event)))[0]

    def _noted(self, outcome: Written | Known) -> tuple[int, bool]:
        return (outcome.number, True) if isinstance(outcome, Written) else (outcome.row.number, False)

    async def _submit(self, proposal: Proposal) -> Written | Known:
        if self.committer is None:
            raise Problem("starting", "the service is starting or stopping; try again.")
        try:
            outcome = await self.committer.submit(proposal)
        except StoreError as error:
            raise storage_problem(error) from error
        if isinstance(outcome, Problem):
            raise outcome
        assert isinstance(outcome, Written | Known)
        return outcome

    # ------------------------------------------------------------------------------------ delivery

    def _deliver(self, group: Group) -> None:
        """Fold a group in, in the order of the log, then answer its requests."""
        news: list[Numbered] = list(group.others)
        now = time.time()
        for entry, outcome in zip(group.entries, group.outcomes, strict=True):
            if isinstance(outcome, Written):
                if isinstance(outcome.draft.event, Decisions):
                    self._remember(outcome)
                news.append(Numbered(outcome.number, now, outcome.draft.event, entry.proposal.context))  # type: ignore[attr-defined]
        for item in news:
            self.state.apply(item)
            self.metrics.folded(item.event)
        for entry, outcome in zip(group.entries, group.outcomes, strict=True):
            if not entry.future.done():
                entry.future.set_result(outcome)
        self.metrics.committed(group, self.state)
        for listener in self.listeners:
            listener(news)
        if self.state.number - self._snapshot_at >= self.config.storage.snapshot_every and self.committer is not None:
            self._snapshot_at = self.state.number
            self.committer.keep(self.state.snapshot(now))
            self.metrics.snapshots.inc()

    def _failed(self, error: StoreError | None) -> None:
        if error is not None and self.error is None:
            logger.error("%s", error)
        if error is None and self.error is not None:
            logger.warning("the event log can be written again")
        self.error = error
        self.metrics.ready.set(0 if error is not None else 1)
        if error is not None:
            self.metrics.store_errors.inc()

    # ------------------------------------------------------------------------------------- reading

    def _remember(self, written: Written) -> None:
        draft = written.draft
        assert draft.contexts is not None
        size = len(draft.contexts) + len(draft.payload) + _ENTRY_BYTES
        self._recent[written.number] = (draft.payload, draft.contexts, size)
        self._recent_size += size
        while self._recent_size > _RECENT_BYTES and len(self._recent) > 1:
            _, (_, _, oldest) = self._recent.popitem(last=False)
            self._recent_size -= oldest

    async def decision(self, id: DecisionId) -> Decisions:
        """The event that holds a decision.

        Raises:
            Problem: there is no such decision.
        """
        recent = self._recent.get(id.number)
        row: Row | None
        if recent is not None:
            row = Row(id.number, "decisions", 0.0, None, recent[0], recent[1])
        else:
            row = (await self._read(self.store.rows, [id.number])).get(id.number)
        event = None if row is None else event_from_row(row, self.state.learner.n_features)
        if not isinstance(event, Decisions) or id.position >= len(event):
            raise unknown_decision(str(id))
        return event

    async def history(self, id: DecisionId) -> dict[str, Any]:
        """The events that refer to a decision, by kind."""
        found = await self._read(self.store.find, [f"{kind}:{id}" for kind in ("reward", "action", "behavior")])
        return {row.kind: (row, event_from_row(row, self.state.learner.n_features)) for row in found.values()}

    async def state_at(self, version: int, farthest: int = 50_000) -> State | None:
        """The state after event ``version``, rebuilt; None where that means folding more than ``farthest`` events."""
        if version == self.state.version:
            return self.state
        numbers = await self._read(self.store.snapshot_numbers)
        start = max((number for number in numbers if number <= version), default=1)
        if version - start > farthest:
            return None
        async with self._rebuilding:
            recovered = await self._read(functools.partial(recover, self.store, upto=version))
        return recovered.state

    async def _read(self, function: Callable[..., T], *arguments: Any) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, function, *arguments)
        except StoreError as error:
            raise storage_problem(error) from error

    def status(self) -> dict[str, Any]:
        """Where the service stands."""
        state = self.state
        learner = state.learner
        trust = [
            {
                k: label_to_json(v) if k in ("arm", "log") and v is not None else finite(v) if type(v) is float else v
                for k, v in entry.items()
            }
            for entry in learner.log_trust()
        ]
        return {
            "ready": self.ready,
            "error": None if self.error is None else str(self.error),
            "event": state.number,
            "version": state.version,
            "learner": type(learner).__name__,
            "needs": learner.needs,
            "rails": state.rails.to_dict(),
            "counts": dict(state.counts),
            "arms": [
                {
                    "arm": label_to_json(arm),
                    "to_take": state.arm_counts[key],
                    "rewards": state.arm_counts["rewarded:" + key],
                    "mean_reward": state.reward_sums[key] / max(state.arm_counts["rewarded:" + key], 1),
                }
                for arm in learner.arms
                for key in (arm if type(arm) is str else _json_name(arm),)
            ],
            "log_trust": trust,
            "started_from_snapshot": self.recovered_from,
            "damaged_snapshots": self.damaged,
        }


def _json_name(arm: Label) -> str:
    import json

    return json.dumps(label_to_json(arm))


def storage_problem(error: StoreError) -> Problem:
    """A store that cannot be used, as an answer."""
    return Problem(
        "storage",
        f"{error} Nothing was acknowledged. Retry with the same Idempotency-Key: if it was written after all, it will "
        "not be written twice.",
        headers={"Retry-After": "2"},
    )


def unknown_decision(text: str) -> Problem:
    """There is no decision with this id."""
    return Problem("unknown-decision", f"there is no decision {text!r}: use the id that came with the decision.")
