"""What must hold after a run, whatever went wrong in it.  The log is the order, so one pass over it is enough."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from sidelight.service.core.recovery import fold_at, recover
from sidelight.service.log.events import Configuration, Decisions, NewEpoch, Reward, event_from_row
from tests.simulation.world import FOLD, Ack, Plan, Step, World, draw_plan, quiet, shared_connections, template

D = 7


def failures(seed: int) -> list[str]:
    """What is wrong with the run of a seed."""
    return failures_of(draw_plan(seed))


def failures_of(plan: Plan) -> list[str]:
    """What is wrong with a run."""
    quiet()
    _, config = template()
    with tempfile.TemporaryDirectory(dir=template()[0]) as folder, shared_connections():
        world = World(plan, Path(folder), config)
        try:
            try:
                world.run()
                return [*world.complaints, *check(world)]
            except Exception as error:
                return [*world.complaints, f"the run ended with {error!r}"]
        finally:
            world.close()


def check(world: World) -> list[str]:
    """Compare what was acknowledged with the log, the servers with each other and with a replay."""
    store = world.open()
    try:
        with_fold = [s.engine for s in world.servers if s is not None]
        world.change_fold(world.version)
        rows = [row for chunk in store.follow(0) for row in chunk]
        events = [(row, event_from_row(row, D)) for row in rows]
        found = [
            *_nothing_lost_or_doubled(world, store, events),
            *_rewards_where_they_belong(world, events),
            *_rails(events),
            *_epochs(events),
        ]
        if len({row.key for row in rows if row.key}) != sum(row.key is not None for row in rows):
            found.append("a key stands for two events")
        whole = recover(store, use_snapshots=False).state
        quick = recover(store).state
        digests = {"replay": whole.snapshot(0.0).digest, "snapshots": quick.snapshot(0.0).digest}
        for i, engine in enumerate(with_fold):
            if engine.state.number != whole.number:
                found.append(f"server {i} is at event {engine.state.number}, the log at {whole.number}")
            else:
                digests[f"server {i}"] = engine.state.snapshot(0.0).digest
        if len(set(digests.values())) > 1:
            found.append(f"states differ: {digests}")
        return found
    finally:
        world.change_fold(FOLD)
        store.close()


def _lost(world: World, ack: Ack) -> bool:
    return any(ack.number > cut or ack.history > history for cut, history in world.losses[ack.history :])


def _nothing_lost_or_doubled(world: World, store: Any, events: list[Any]) -> Iterable[str]:
    by_number = {row.number: (row, event) for row, event in events}
    fold_of = cache(lambda number: fold_at(store, number))
    for ack in world.acks:
        if _lost(world, ack):
            continue
        row, event = by_number.get(ack.number, (None, None))
        if row is None:
            yield f"{ack.what} {ack.number} was acknowledged and is not in the log"
        elif ack.what == "decision":
            marker, key, arm = ack.value
            i = ack.id.position if ack.id is not None else 0
            if not isinstance(event, Decisions) or row.key != key or row.epoch != (ack.id or (0,)).epoch:  # type: ignore[union-attr]
                yield f"decision {ack.id} was acknowledged and event {ack.number} is another: {row.kind} {row.key}"
            elif ack.fold not in (None, fold_of(ack.number)):
                yield f"decision {ack.id} was made by a server with fold {ack.fold}, which had ended"
            elif event.arms[i] != arm or not _marked(event, i, marker):
                yield f"decision {ack.id} was answered otherwise than it is in the log"
        elif ack.what == "reward" and not (isinstance(event, Reward) and event.reward == ack.value):
            yield f"the reward of {ack.id} was acknowledged as event {ack.number}, which is {row.kind}"


def _marked(event: Decisions, i: int, marker: float) -> bool:
    x = event.contexts[i]
    return bool(x[0] != x[0] or x[1] == marker / 1000)


def _rewards_where_they_belong(world: World, events: list[Any]) -> Iterable[str]:
    decisions = {row.number: event for row, event in events if isinstance(event, Decisions)}
    rewarded: set[Any] = set()
    for row, event in events:
        if not isinstance(event, Reward):
            continue
        made = world.intended.get(event.reward)
        decision = decisions.get(event.decision.number)
        if made is None or decision is None:
            yield f"event {row.number} is a reward that nobody gave"
        elif not _marked(decision, event.decision.position, made.marker):
            yield f"event {row.number}: a reward meant for {made.id} stands at {event.decision}"
        if tuple(event.decision) in rewarded:
            yield f"event {row.number}: {event.decision} has two rewards"
        rewarded.add(tuple(event.decision))


def _rails(events: list[Any]) -> Iterable[str]:
    """No decision stands after a change of who acts that was decided before it."""
    killed, share = False, 1.0
    for row, event in events:
        if isinstance(event, Configuration):
            killed = killed if event.killed is None else event.killed
            share = share if event.share is None else event.share
        elif isinstance(event, Decisions):
            if event.share != share:
                yield f"event {row.number} was decided at share {event.share}, and {share} was in force"
            if any(route == "learner" for route in event.routes) and (killed or share == 0.0):
                yield f"event {row.number}: the learner decided after the kill switch"


def _epochs(events: list[Any]) -> Iterable[str]:
    epoch = 0
    for row, event in events:
        if isinstance(event, NewEpoch):
            epoch = event.epoch
        if row.epoch != epoch:
            yield f"event {row.number} has epoch {row.epoch} in epoch {epoch}"


def shrink(plan: Plan, wrong: Any = None) -> Plan:
    """The same failing run with as few steps as can be found by leaving parts out."""
    wrong = (lambda p: bool(failures_of(p))) if wrong is None else wrong
    steps, size = list(plan.steps), max(len(plan.steps) // 2, 1)
    while size:
        start = 0
        while start < len(steps):
            fewer: list[Step] = steps[:start] + steps[start + size :]
            if wrong(replace(plan, steps=tuple(fewer))):
                steps = fewer
            else:
                start += size
        size //= 2
    return replace(plan, steps=tuple(steps))
