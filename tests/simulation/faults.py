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
from sidelight.service.core import recovery, reviewing, waits
from sidelight.service.core.defaults import Defaults
from sidelight.service.core.doubted import ReleaseProposal
from sidelight.service.core.engine import Engine
from sidelight.service.core.fold import State
from sidelight.service.core.folding import Folding
from sidelight.service.core.gate import Gate
from sidelight.service.core.proposals import DecisionsProposal, GateProposal, Known
from sidelight.service.core.told import DefaultRewardProposal, RewardProposal
from sidelight.service.log import store as stores
from sidelight.service.log.committer import Committer
from sidelight.service.log.events import Decisions, Release, Retraction, Reward
from sidelight.service.log.queue import Entry, Group
from sidelight.service.log.settling import Diverged, Draft, Written, settle_group
from sidelight.service.log.store import Store
from sidelight.service.operations import retention

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
                    outcomes.append(Written(number, draft, 0.0) if isinstance(draft, Draft) else draft)
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
def what_was_read_and_lost_before_it_was_seen_is_told_about() -> Patches:
    return [mock.patch.object(Draft, "lost_its_event", return_value=False)]


@fault
def decisions_are_never_outdated() -> Patches:
    def wrong(head: Any, proposals: Any, found: Any, since: Any, *more: Any) -> Any:
        return settle_group(head, proposals, found, since._replace(configured=0), *more)

    return [mock.patch.object(stores, "settle_group", wrong)]


@fault
def a_switch_thrown_at_another_server_is_not_heard() -> Patches:
    return [mock.patch.object(stores, "_OUTDATING", ())]


@fault
def one_proposal_fails_the_group() -> Patches:
    return [
        mock.patch.object(Entry, "settle", lambda self, found: self.proposal.settle(found)),
        mock.patch.object(
            Committer,
            "_write_alone",
            lambda self, entries, error: self._loop.call_soon_threadsafe(self._refuse, entries, StoreError("all")),
        ),
    ]


@fault
def a_key_stands_for_any_request() -> Patches:
    settle = DecisionsProposal.settle

    def wrong(self: DecisionsProposal, found: Any) -> Any:
        row = found.get(self.draft.key)
        return settle(self, found) if row is None else Known(row)

    return [mock.patch.object(DecisionsProposal, "settle", wrong)]


@fault
def retries_decide_again() -> Patches:
    """Idempotency keys are neither looked up nor kept."""
    settle = DecisionsProposal.settle

    def wrong(self: DecisionsProposal, found: Any) -> Any:
        draft = settle(self, {})
        return draft._replace(key=None) if isinstance(draft, Draft) else draft

    return [mock.patch.object(DecisionsProposal, "settle", wrong)]


@fault
def a_decision_is_rewarded_twice() -> Patches:
    settle = RewardProposal.settle

    def wrong(self: RewardProposal, found: Any) -> Any:
        draft = settle(self, {})
        return draft._replace(key=None) if isinstance(draft, Draft) else draft

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
def decisions_without_their_subject_are_evidence() -> Patches:
    """A server that was behind when somebody was forgotten folds what is left of their decisions into the gate."""
    return [mock.patch.object(State, "_lacks", return_value=False)]


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
            return of(cls, short, *arguments)._replace(event=event)
        return draft

    return [mock.patch.object(Draft, "of", classmethod(wrong))]


@fault
def what_is_in_quarantine_is_learned() -> Patches:
    teach = State._teach
    return [mock.patch.object(State, "_teach", lambda s, event, x: teach(s, replace(event, quarantine=None), x))]


@fault
def a_release_teaches_nothing() -> Patches:
    apply = State.apply

    def wrong(self: State, item: Any) -> None:
        event = item.event
        if isinstance(event, Release) and event.quarantine is None:
            item = item._replace(event=replace(event, quarantine="not now"))
        apply(self, item)

    return [mock.patch.object(State, "apply", wrong)]


@fault
def what_was_released_is_released_again() -> Patches:
    """Neither a release nor a retraction is looked up, nor is the release kept under its name."""
    settle = ReleaseProposal.settle

    def wrong(self: ReleaseProposal, found: Any) -> Any:
        draft = settle(self, {})
        return draft._replace(key=None) if isinstance(draft, Draft) else draft

    return [mock.patch.object(ReleaseProposal, "settle", wrong)]


@fault
def a_retraction_does_not_reach_the_learner() -> Patches:
    return [
        mock.patch.object(recovery.Retracted, "without", lambda self, item: item),
        mock.patch.object(Folding, "_unlearns", return_value=False),
    ]


@fault
def servers_do_not_unlearn_what_was_retracted() -> Patches:
    return [mock.patch.object(Folding, "_unlearns", return_value=False)]


@fault
def a_retraction_that_comes_with_its_release_is_not_unlearned() -> Patches:
    """What is in quarantine is taken for not taught, although its release is among the same news."""

    def wrong(self: Folding, news: Any) -> list[int]:
        retracted = [(item.number, item.event) for item in news if isinstance(item.event, Retraction)]
        return [number for number, event in retracted if (event.event, event.position) not in self.state.quarantine]

    return [mock.patch.object(Folding, "_unlearns", wrong)]


@fault
def a_snapshot_from_before_a_retraction_is_used() -> Patches:
    return [mock.patch.object(recovery.Retracted, "holds_for", return_value=True)]


@fault
def what_a_base_holds_is_retracted() -> Patches:
    return [mock.patch.object(reviewing, "base_number", return_value=None)]


@fault
def a_late_reward_is_added_to_the_default() -> Patches:
    def wrong(self: Defaults, learner: Any, x: Any, event: Any, reward: float) -> None:
        learner.observe(x, event.arm, reward)

    return [mock.patch.object(Defaults, "correct", wrong)]


@fault
def a_wait_ends_although_the_reward_came() -> Patches:
    settle = DefaultRewardProposal.settle

    def wrong(self: DefaultRewardProposal, found: Any) -> Any:
        return settle(self, {key: row for key, row in found.items() if key.startswith("action")})

    return [
        mock.patch.object(DefaultRewardProposal, "settle", wrong),
        mock.patch.object(waits, "wait_ended_by", lambda found, id: found.get(f"default:{id}")),
    ]


@fault
def waits_are_shorter_than_they_should_be() -> Patches:
    due = waits._due

    def wrong(store: Store, start: int, upto: int, span: tuple[float, float], n_features: int) -> Any:
        until, now = span
        return due(store, start, upto, (until + 0.1, now), n_features)

    return [mock.patch.object(waits, "_due", wrong)]


class _After(int):
    """An event's number that is not before any other."""

    def __ge__(self, other: object) -> bool:
        return True


@fault
def what_was_not_folded_in_ends_a_wait() -> Patches:
    """A server passes over a decision because another one ended its wait, by an event that may still be lost."""
    due = waits._due

    def wrong(store: Store, start: int, upto: int, span: tuple[float, float], n_features: int) -> Any:
        return due(store, start, _After(upto), span, n_features)

    return [mock.patch.object(waits, "_due", wrong)]


@fault
def waits_never_end() -> Patches:
    async def wrong(self: waits.Waits) -> int:
        return 0

    return [mock.patch.object(waits.Waits, "end", wrong)]


@fault
def a_step_of_the_gate_undoes_what_somebody_set() -> Patches:
    """Steps are written although who acts was changed since they were proposed."""
    of = GateProposal.of.__func__

    def wrong(cls: type[GateProposal], event: Any, tests: int, chosen_at: int) -> GateProposal:
        proposal = of(cls, event, tests, chosen_at)
        return replace(proposal, draft=proposal.draft._replace(chosen_at=None))

    return [mock.patch.object(GateProposal, "of", classmethod(wrong))]


@fault
def a_gate_forgets_its_units_at_a_restart() -> Patches:
    """What waits for its reward is not read back from a snapshot."""
    from_dict = Gate.from_dict.__func__

    def wrong(cls: type[Gate], body: Any) -> Gate:
        return from_dict(cls, {**body, "waiting": []})

    return [mock.patch.object(Gate, "from_dict", classmethod(wrong))]


@fault
def a_snapshot_is_entered_although_pieces_of_it_are_gone() -> Patches:
    return [mock.patch.object(Store, "_has_pieces", return_value=True)]


@fault
def pieces_of_a_snapshot_from_before_a_deletion_are_written() -> Patches:
    return [mock.patch.object(Store, "_is_wanted", return_value=True)]


@fault
def forgetting_leaves_the_pieces_of_snapshots() -> Patches:
    return [mock.patch.object(Store, "sweep_pieces", return_value=())]


#: fault → a seed that finds it
FOUND_BY: dict[str, int] = {
    "answers_before_the_commit": 7,
    "does_not_check_the_last_known_event": 0,
    "does_not_check_the_fold": 68,
    "goes_on_in_the_same_epoch_after_a_lost_tail": 17,
    "does_not_notice_that_the_database_moved": 79,
    "the_same_epoch_at_every_restore": 50,
    "ids_of_other_epochs_are_accepted": 50,
    "what_was_read_and_lost_before_it_was_seen_is_told_about": 700199,
    "decisions_are_never_outdated": 60,
    "a_switch_thrown_at_another_server_is_not_heard": 60,
    "one_proposal_fails_the_group": 8,
    "a_key_stands_for_any_request": 8,
    "retries_decide_again": 0,
    "a_decision_is_rewarded_twice": 0,
    "what_others_wrote_is_not_folded": 12,
    "a_group_is_folded_in_another_order": 2,
    "a_twin_is_published_before_it_has_caught_up": 1,
    "a_snapshot_lacks_the_last_event": 0,
    "forgetting_keeps_no_base": 88,
    "a_replay_passes_over_the_base": 88,
    "decisions_without_their_subject_are_evidence": 200569,
    "a_server_that_lost_its_past_goes_on_after_a_while": 0,
    "a_batch_is_acknowledged_by_its_first_decision": 0,
    "what_is_in_quarantine_is_learned": 1,
    "a_release_teaches_nothing": 25,
    "what_was_released_is_released_again": 25,
    "a_retraction_does_not_reach_the_learner": 9,
    "servers_do_not_unlearn_what_was_retracted": 9,
    "a_retraction_that_comes_with_its_release_is_not_unlearned": 200661,
    "a_snapshot_from_before_a_retraction_is_used": 25,
    "what_a_base_holds_is_retracted": 796,
    "a_late_reward_is_added_to_the_default": 10,
    "a_wait_ends_although_the_reward_came": 10,
    "waits_are_shorter_than_they_should_be": 10,
    "waits_never_end": 5,
    "what_was_not_folded_in_ends_a_wait": 402223,
    "a_step_of_the_gate_undoes_what_somebody_set": 118,
    "a_gate_forgets_its_units_at_a_restart": 20,
    "a_snapshot_is_entered_although_pieces_of_it_are_gone": 12,
    "pieces_of_a_snapshot_from_before_a_deletion_are_written": 130,
    "forgetting_leaves_the_pieces_of_snapshots": 12,
}
