"""Faults planted into the service, to see whether the simulation finds them: this is how the tests are tested.

Each is a change of a few lines that somebody could make by mistake. ``FOUND_BY`` has a seed that finds it; the search
is ``python -m tests.simulation --faults``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from sidelight.errors import StoreError
from sidelight.service.core import engine as engines
from sidelight.service.core import recovery
from sidelight.service.core.engine import Engine
from sidelight.service.core.fold import State
from sidelight.service.core.folding import Folding
from sidelight.service.core.proposals import DecisionsProposal, RewardProposal
from sidelight.service.log import store as stores
from sidelight.service.log.committer import Committer, Entry, Group
from sidelight.service.log.events import Decisions, Reward
from sidelight.service.log.settling import Diverged, Draft, Written, settle_group
from sidelight.service.log.store import Store
from sidelight.service.operations import retention
from tests.simulation.world import Plan, Step, draw_plan

Patches = list[Any]
FAULTS: dict[str, Callable[[], Patches]] = {}


def fault(make: Callable[[], Patches]) -> Callable[[], Patches]:
    FAULTS[make.__name__] = make
    return make


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """The service with one of the faults."""
    with contextlib.ExitStack() as stack:
        for patch in FAULTS[name]():
            stack.enter_context(patch)
        yield


@fault
def answers_before_the_commit() -> Patches:
    """A request is answered although its transaction failed."""
    write = Committer._write

    def wrong(self: Committer, entries: list[Entry]) -> None:
        append = self._store.append

        def pretend(*arguments: Any, **named: Any) -> Any:
            try:
                return append(*arguments, **named)
            except Diverged:
                raise
            except StoreError:
                outcomes, number = [], self._seen
                for entry in entries:
                    draft = entry.settle({})
                    number += isinstance(draft, Draft)
                    outcomes.append(Written(number, draft, 0, b"") if isinstance(draft, Draft) else draft)
                return [], outcomes

        with mock.patch.object(self._store, "append", pretend):
            write(self, entries)

    return [mock.patch.object(Committer, "_write", wrong)]


@fault
def does_not_check_the_last_known_event() -> Patches:
    return [mock.patch.object(stores, "check_known", return_value=None)]


@fault
def does_not_check_the_fold() -> Patches:
    check = stores.check_known
    return [mock.patch.object(stores, "check_known", lambda h, s, k, t, fold: check(h, s, k, t, None))]


@fault
def goes_on_in_the_same_epoch_after_a_lost_tail() -> Patches:
    return [
        mock.patch.object(Store, "_note_lost_tail", return_value=None),
        mock.patch.object(Store, "_after_a_move", lambda self, connection, head, now: ([], head)),
    ]


@fault
def does_not_notice_that_the_database_moved() -> Patches:
    return [mock.patch.object(Store, "_after_a_move", lambda self, connection, head, now: ([], head))]


@fault
def the_same_epoch_at_every_restore() -> Patches:
    return [mock.patch.object(stores, "chosen_epoch", return_value=1)]


@fault
def ids_of_other_epochs_are_accepted() -> Patches:
    find = Engine.decision

    async def wrong(self: Engine, id: Any) -> Any:
        rows = self.store.rows([id.number])
        epoch = rows[id.number].epoch if id.number in rows else id.epoch
        return await find(self, type(id)(id.number, id.position, epoch))

    return [mock.patch.object(Engine, "decision", wrong)]


@fault
def decisions_are_never_outdated() -> Patches:
    def wrong(head: Any, proposals: Any, found: Any, configured: int, now: float, salts: bytes) -> Any:
        return settle_group(head, proposals, found, 0, now, salts)

    return [mock.patch.object(stores, "settle_group", wrong)]


@fault
def a_switch_thrown_at_another_server_is_not_heard() -> Patches:
    return [mock.patch.object(stores, "_WHO_ACTS", ())]


@fault
def one_proposal_fails_the_group() -> Patches:
    return [
        mock.patch.object(Entry, "settle", lambda self, found: self.proposal.settle(found)),
        mock.patch.object(
            Committer,
            "_write_alone",
            lambda self, entries, error: self._loop.call_soon_threadsafe(engines.refuse, entries, StoreError("all")),
        ),
    ]


@fault
def a_key_stands_for_any_request() -> Patches:
    settle = DecisionsProposal.settle

    def wrong(self: DecisionsProposal, found: Any) -> Any:
        row = found.get(self.draft.key)
        return settle(self, found) if row is None else engines.Known(row)

    return [mock.patch.object(DecisionsProposal, "settle", wrong)]


@fault
def retries_decide_again() -> Patches:
    """Idempotency keys are neither looked up nor kept."""
    settle = DecisionsProposal.settle

    def wrong(self: DecisionsProposal, found: Any) -> Any:
        draft = settle(self, {})
        return replace(draft, key=None) if isinstance(draft, Draft) else draft

    return [mock.patch.object(DecisionsProposal, "settle", wrong)]


@fault
def a_decision_is_rewarded_twice() -> Patches:
    settle = RewardProposal.settle

    def wrong(self: RewardProposal, found: Any) -> Any:
        draft = settle(self, {})
        return replace(draft, key=None) if isinstance(draft, Draft) else draft

    return [mock.patch.object(RewardProposal, "settle", wrong)]


@fault
def what_others_wrote_is_not_folded() -> Patches:
    deliver = Engine._deliver

    def wrong(self: Engine, group: Group) -> None:
        others = [item._replace(context=None) if isinstance(item.event, Reward) else item for item in group.others]
        deliver(self, replace(group, others=others))

    return [mock.patch.object(Engine, "_deliver", wrong)]


@fault
def a_group_is_folded_in_another_order() -> Patches:
    take = Folding.take

    def wrong(self: Folding, news: Any) -> None:
        rewards = [i for i, item in enumerate(news) if isinstance(item.event, Reward)]
        swapped = list(news)
        for i, j in zip(rewards, reversed(rewards), strict=True):
            swapped[i] = news[i]._replace(event=news[j].event, context=news[j].context)
        take(self, swapped)

    return [mock.patch.object(Folding, "take", wrong)]


@fault
def a_twin_is_published_before_it_has_caught_up() -> Patches:
    """What was folded while a twin was not there is left out of it."""
    aside = Folding._fold_aside

    def wrong(self: Folding, news: Any, unlearns: int | None) -> Any:
        for item in self._behind:
            if self._twin is not None and item.number > self._twin.number:
                self._twin.number, self._twin.chain = item.number, item.chain
        return aside(self, news, unlearns)

    return [
        mock.patch.object(Folding, "_fold_aside", wrong),
        mock.patch.object(Folding, "_catch_up", return_value=None),
    ]


@fault
def a_snapshot_lacks_the_last_event() -> Patches:
    snapshot = State.snapshot

    def wrong(self: State, at: float) -> Any:
        taken = snapshot(self, at)
        return taken if at == 0.0 else replace(taken, state=taken.state.replace('"rewards": ', '"rewards": 1'))

    return [mock.patch.object(State, "snapshot", wrong)]


@fault
def forgetting_keeps_no_base() -> Patches:
    return [mock.patch.object(retention, "put_base", return_value=None)]


@fault
def a_replay_passes_over_the_base() -> Patches:
    return [mock.patch.object(recovery, "newest_base", return_value=None)]


@fault
def a_server_that_lost_its_past_goes_on_after_a_while() -> Patches:
    end = Committer._end_with

    def wrong(self: Committer, error: Diverged, entries: list[Entry]) -> None:
        end(self, error, entries)
        self._diverged = None
        self._seen, self._chain = self._store.end()[:2]
        self._loop.call_soon_threadsafe(self._forgive)

    def forgive(self: Committer) -> None:
        engine = self._deliver.__self__
        engine._stuck = engine.error = None

    return [
        mock.patch.object(Committer, "_end_with", wrong),
        mock.patch.object(Committer, "_forgive", forgive, create=True),
    ]


@fault
def a_batch_is_acknowledged_by_its_first_decision() -> Patches:
    """Decisions of a batch beyond the first are answered and not written."""
    of = Draft.of.__func__

    def wrong(cls: type[Draft], event: Any, *arguments: Any) -> Draft:
        draft = of(cls, event, *arguments)
        if isinstance(event, Decisions) and len(event) > 1:
            short = replace(
                event, contexts=event.contexts[:1], **{
                    name: value[:1] if (value := getattr(event, name)) is not None else None
                    for name in (
                        "arms", "recommended", "estimates", "widths", "propensities", "routes", "asked",
                        "query_probabilities", "allowed", "answers", "subjects",
                    )
                },
            )  # fmt: skip
            return replace(of(cls, short, *arguments), event=event)
        return draft

    return [mock.patch.object(Draft, "of", classmethod(wrong))]


def plan_of(found_by: int | Plan) -> Plan:
    """The plan of a seed, or the plan itself."""
    return draw_plan(found_by) if isinstance(found_by, int) else found_by


def _by_hand(*steps: tuple[float, str, float]) -> Plan:
    return Plan(0, False, 1, 0.0, 0.0, tuple(Step(*step) for step in steps))


#: a decision is lost with the log, another one gets its number, and then the first one's reward comes
_LATE_REWARD = _by_hand(
    (0.0, "decide", 0.1), (0.3, "backup", 0.0), (0.4, "decide", 0.1), (0.5, "decide", 0.1), (0.8, "restore", 0.0),
    (1.1, "decide", 0.1), (1.5, "reward", 0.3), (1.6, "reward", 0.6),
)  # fmt: skip
_RESTORED_TWICE = _by_hand(
    (0.0, "decide", 0.1), (0.3, "backup", 0.0), (0.5, "restore", 0.0), (0.9, "decide", 0.1), (1.3, "restore", 0.0),
    (1.7, "decide", 0.1), (2.2, "reward", 0.5),
)  # fmt: skip
#: fault → a seed that finds it, or a plan where it takes many seeds to come by one
FOUND_BY: dict[str, int | Plan] = {
    "answers_before_the_commit": 9,
    "does_not_check_the_last_known_event": 3,
    "does_not_check_the_fold": 35,
    "goes_on_in_the_same_epoch_after_a_lost_tail": 4,
    "does_not_notice_that_the_database_moved": _LATE_REWARD,
    "the_same_epoch_at_every_restore": _RESTORED_TWICE,
    "ids_of_other_epochs_are_accepted": _LATE_REWARD,
    "decisions_are_never_outdated": 46,
    "a_switch_thrown_at_another_server_is_not_heard": 67,
    "one_proposal_fails_the_group": 8,
    "a_key_stands_for_any_request": 1,
    "retries_decide_again": 0,
    "a_decision_is_rewarded_twice": 0,
    "what_others_wrote_is_not_folded": 8,
    "a_group_is_folded_in_another_order": 3,
    "a_twin_is_published_before_it_has_caught_up": 3,
    "a_snapshot_lacks_the_last_event": 0,
    "forgetting_keeps_no_base": 58,
    "a_replay_passes_over_the_base": 36,
    "a_server_that_lost_its_past_goes_on_after_a_while": 1,
    "a_batch_is_acknowledged_by_its_first_decision": 0,
}
