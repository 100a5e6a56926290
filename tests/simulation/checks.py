"""What must hold after a run, whatever went wrong in it.  The log is the order, so one pass over it is enough."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sidelight.service.core.recovery import fold_at, recover
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import (
    Configuration,
    Decisions,
    DefaultReward,
    Forgotten,
    GateStep,
    NewEpoch,
    Release,
    Retraction,
    Reward,
)
from sidelight.service.log.migrations import pieces
from sidelight.service.log.rows import event_from_row
from tests.simulation.callers import Run
from tests.simulation.plans import Plan, Step, draw_plan
from tests.simulation.settings import PATIENCE, WAIT, early_gate, template
from tests.simulation.teaching import differences
from tests.simulation.world import FOLD, Ack, World, quiet, shared_connections

D = 7


def failures(seed: int) -> list[str]:
    """What is wrong with the run of a seed."""
    return failures_of(draw_plan(seed))


def failures_of(plan: Plan) -> list[str]:
    """What is wrong with a run."""
    home, config = template(plan.config)
    with tempfile.TemporaryDirectory(dir=home) as folder, quiet(), shared_connections(), early_gate():
        world = Run(plan, Path(folder), config)
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
            *_waits(world, events),
            *_doubts(events),
            *_snapshots(store, events),
        ]
        if len({row.key for row in rows if row.key}) != sum(row.key is not None for row in rows):
            found.append("a key stands for two events")
        whole = recover(store, use_snapshots=False).state
        quick = recover(store).state
        if world.version == FOLD and world.plan.config not in ("running", "fused"):
            found += differences(world, store, events, whole.learner)
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
        elif ack.what == "gate" and row.kind == "configuration" and event.share == 0.0:
            pass  # who leaves the ladder with a share that is on no rung sets the share
        elif ack.what in ("release", "retraction", "gate") and row.kind != ack.what:
            yield f"a {ack.what} was acknowledged as event {ack.number}, which is {row.kind}"
        elif ack.what in ("release", "retraction") and ack.value not in (None, (event.event, event.position)):
            yield f"a {ack.what} of {ack.value} was acknowledged as event {ack.number}, about {event.event}"


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
    """No decision stands after a change of who acts that was decided before it, nor does a step of the gate."""
    killed, share, mode = False, 1.0, "act"
    for row, event in events:
        if isinstance(event, Configuration):
            killed = killed if event.killed is None else event.killed
            share = share if event.share is None else event.share
            mode = mode if event.mode is None else event.mode
        elif isinstance(event, GateStep):
            stood = event.evidence["share"]
            if event.before >= 0 and (stood != share or mode != "act"):
                yield f"event {row.number} is a step from share {stood}, and {share} was in force in mode {mode}"
            if event.before != event.after:
                share, mode = event.share, event.mode or mode
        elif isinstance(event, Decisions):
            if (event.share, event.mode) != (share, mode):
                yield f"event {row.number} was decided at {event.share} in {event.mode}; {share}, {mode} was in force"
            barred = killed or mode == "shadow" or (mode == "act" and share == 0.0)
            if barred and any(route == "learner" for route in event.routes):
                yield f"event {row.number}: the learner decided after the kill switch"


def _waits(world: World, events: list[Any]) -> Iterable[str]:
    """A default reward comes after the wait, once, and not where a reward had come; late rewards replace it."""
    made: dict[int, float] = {}
    ended: dict[tuple[int, ...], tuple[float, Any]] = {}
    rewarded: set[tuple[int, ...]] = set()
    for row, event in events:
        if isinstance(event, Decisions):
            made[row.number] = row.at
        elif isinstance(event, DefaultReward):
            if row.at < made[event.decision.number] + WAIT:
                yield f"event {row.number} ends a wait after {row.at - made[event.decision.number]:.3f} s"
            if event.decision in ended or event.decision in rewarded:
                yield f"event {row.number} ends the wait for {event.decision}, which had ended"
            ended[event.decision] = event.reward, event.arm
        elif isinstance(event, Reward) or (isinstance(event, Release) and isinstance(event.released, Reward)):
            reward = event if isinstance(event, Reward) else event.released
            if reward.quarantine is None:
                rewarded.add(reward.decision)
                default, arm = ended.get(reward.decision, (None, None))
                if reward.replaces != (default if arm is not None else None):
                    yield f"event {row.number} replaces the default reward {reward.replaces}, and there was {default}"
    waiting = False
    for row, event in events:
        if isinstance(event, Configuration) and event.waits is not None:
            waiting = event.waits["seconds"] is not None
        if isinstance(event, Decisions) and waiting and row.at < world.peace_at - PATIENCE:
            for id in (DecisionId(row.number, i, row.epoch) for i in range(len(event))):
                if id not in ended and id not in rewarded:
                    yield f"the wait for {id} has not ended {world.peace_at - row.at:.1f} s later"


def _doubts(events: list[Any]) -> Iterable[str]:
    """Only what is in quarantine is released, as it was, once, and nothing that was retracted before."""
    doubted: dict[tuple[int, int], Any] = {}
    settled: dict[tuple[int, int], str] = {}
    for row, event in events:
        if isinstance(event, Decisions):
            for i, reason in enumerate(event.quarantine or ()):
                if reason is not None:
                    doubted[row.number, i] = event.answers[i]
        elif getattr(event, "quarantine", None) is not None and not isinstance(event, Release):
            doubted[row.number, 0] = event
        elif isinstance(event, Release):
            place = event.event, event.position
            was = doubted.get(place)
            if was is None or place in settled:
                yield f"event {row.number} releases {place}, which was {settled.get(place, 'not in quarantine')}"
            elif isinstance(was, Reward) and (was.reward, was.decision) != (
                event.released.reward,
                event.released.decision,
            ):
                yield f"event {row.number} releases another reward than event {event.event}"
            settled[place] = "released"
        elif isinstance(event, Retraction):
            settled[event.event, event.position] = "retracted"


def _snapshots(store: Any, events: list[Any]) -> Iterable[str]:
    """Every snapshot is whole, and nothing is left of those from before a deletion."""
    for number in store.snapshot_numbers():
        if store.snapshot(number) is None:
            yield f"the snapshot after event {number} is damaged"
    base = max((row.number for row, event in events if isinstance(event, Forgotten)), default=0)
    with store.reading() as connection:
        left = connection.execute(sa.select(pieces.c.number).where(pieces.c.number < base)).scalars().all()
    if left:
        yield f"{len(left)} pieces of learners from before the deletion in event {base} are left: {sorted(set(left))}"


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
