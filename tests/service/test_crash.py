"""Power cuts under load: what was acknowledged is there, nothing is there twice, the learner is the same.

Two kills per database by default; ``SIDELIGHT_KILLS=50`` for the long run.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sidelight.learners.saving import learner_bytes
from sidelight.service.client import Client, Decision
from sidelight.service.config import load_config
from sidelight.service.core.fold import numbered
from sidelight.service.core.recovery import initial_state, recover
from sidelight.service.core.starting import open_store
from sidelight.service.log.events import Action, Behavior, Decisions, Reward
from sidelight.service.log.rows import event_from_row
from tests.service.helpers import ARMS, Server, bits, make_config, random_context

KILLS = int(os.environ.get("SIDELIGHT_KILLS", "2"))


class Worker(threading.Thread):
    """A caller that decides, rewards and answers without pause, and writes down what was acknowledged."""

    def __init__(self, url: str, seed: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.url, self.stop_event = url, stop
        self.rng = np.random.default_rng(seed)
        self.name = f"worker-{seed}"
        self.decisions: dict[str, tuple[Decision, dict[str, Any]]] = {}
        self.rewards: dict[str, float] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            # No connection while the server is down: a call is repeated until somebody answers, with the same key.
            with Client(self.url, retries=2000, patience=0.1, timeout=20.0) as client:
                while not self.stop_event.is_set():
                    self._one(client)
        except BaseException as error:
            self.error = error

    def _one(self, client: Client) -> None:
        contexts = [random_context(self.rng) for _ in range(1 + 4 * int(self.rng.random() < 0.1))]
        key = f"{self.name}-{self.rng.integers(2**60)}"
        made = [client.decide(contexts[0], key=key)] if len(contexts) == 1 else client.decide_many(contexts, key=key)
        for decision, context in zip(made, contexts, strict=True):
            assert decision.id not in self.decisions
            self.decisions[decision.id] = (decision, context)
            if self.rng.random() < 0.7:
                reward = float(self.rng.normal())
                client.reward(decision.id, reward)
                self.rewards[decision.id] = reward
            if self.rng.random() < 0.3:
                client.behavior(decision.id, ARMS[self.rng.integers(3)])


def further(workers: Sequence[Worker], decisions: int) -> None:
    """Wait until the callers have been told so many more decisions."""
    wanted = sum(len(worker.decisions) for worker in workers) + decisions
    while sum(len(worker.decisions) for worker in workers) < wanted:
        failed = [worker.error for worker in workers if worker.error is not None]
        assert not failed, failed
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_killed_at_random_moments(tmp_path: Path, database: str):
    make_config(tmp_path, kind="FusedOFUL", mode="act", database=database, snapshot_every=150)
    port = free_port()
    stop = threading.Event()
    chance = random.Random(7)
    server = Server(tmp_path, "--port", str(port))
    workers = [Worker(f"http://127.0.0.1:{port}", seed, stop) for seed in range(6)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.05, 1.2))
            server.kill()
            server = Server(tmp_path, "--port", str(port))
            assert server.url, server.errors
        further(workers, 40)
        stop.set()
        for worker in workers:
            worker.join(60)
            assert worker.error is None, worker.error
            assert not worker.is_alive()
    finally:
        stop.set()
        server.kill()
    check(tmp_path, workers)


def check(folder: Path, workers: list[Worker]) -> None:
    """Compare what callers were told with what the log says."""
    config = load_config(folder / "sidelight.toml")
    store = open_store(config)
    rows = [row for chunk in store.follow(0) for row in chunk]
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    d = config.load_schema().n_features
    events = {row.number: event_from_row(row, d) for row in rows}
    keys = [row.key for row in rows if row.key is not None]
    assert len(keys) == len(set(keys))
    told = {id: told for worker in workers for id, told in worker.decisions.items()}
    rewards = {id: reward for worker in workers for id, reward in worker.rewards.items()}
    assert len(told) == sum(len(worker.decisions) for worker in workers)
    schema = config.load_schema()
    for id, (decision, context) in told.items():
        number, _, position = id.partition(".")
        event = events[int(number)]
        assert isinstance(event, Decisions)
        i = int(position or 0)
        assert event.arms[i] == decision.arm
        assert (event.estimates[i], event.widths[i]) == (decision.estimate, decision.width)
        assert (event.contexts[i] == schema.encode(context)).all()
    written = {str(e.decision): e.reward for e in events.values() if isinstance(e, Reward)}
    assert len(written) == sum(isinstance(e, Reward) for e in events.values()), "a reward was written twice"
    for id, reward in rewards.items():
        assert written[id] == reward
    # Every decision in the log was asked for by a key, so one that was retried is there once: as many events as keys.
    assert all(row.key is not None for row in rows if row.kind == "decisions")
    check_who_acted(store)
    whole, quick = recover(store, use_snapshots=False), recover(store)
    assert quick.start > 0 or len(rows) < 150
    assert bits(whole.state) == bits(quick.state)
    assert learner_bytes(uninterrupted(config, events)) == learner_bytes(quick.state.learner)
    print(f"{len(rows)} events, {len(told)} decisions and {len(rewards)} rewards acknowledged, all there, none twice")
    store.close()


def check_who_acted(store: Any) -> None:
    """Every decision was made under the rails that were in force where it stands in the log."""
    state = initial_state(store)
    for rows in store.follow(state.number):
        for item in numbered(store, rows, state.learner.n_features):
            if isinstance(item.event, Decisions):
                assert (item.event.mode, item.event.share) == (state.rails.mode, state.rails.share)
                assert not (state.rails.killed and "learner" in item.event.routes)
            state.apply(item)


def uninterrupted(config: Any, events: dict[int, Any]) -> Any:
    """A learner that was never interrupted: fed by hand with what the log says, in its order."""
    learner = config.build_learner()
    for number in sorted(events):
        event = events[number]
        if isinstance(event, Reward | Action):
            x = events[event.decision.number].contexts[event.decision.position]
            if isinstance(event, Reward):
                learner.observe(x, event.arm, event.reward)
            if event.answer:
                learner.observe_behavior(x, event.arm, probability=event.probability)
        elif isinstance(event, Behavior):
            x = events[event.decision.number].contexts[event.decision.position]
            learner.observe_behavior(x, event.answer.arm, probability=event.answer.probability)
    return learner
