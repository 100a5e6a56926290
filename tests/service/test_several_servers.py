"""Several servers on one PostgreSQL: each decides on its own copy, all reach the same state.

Three processes under load; one is killed without warning and comes back, one starts late.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
import pytest

from sidelight.errors import ServiceError
from sidelight.service.client import Client, Decision
from sidelight.service.config import Config, load_config
from sidelight.service.core.recovery import recover
from sidelight.service.core.starting import open_store, prepare
from tests.service.helpers import ARMS, Server, bits, make_config, post, random_context
from tests.service.test_crash import Worker, check, free_port, further

T = TypeVar("T")


class AnyServer:
    """A client of several servers: another one for every request, and after a failure the next, with the same key."""

    def __init__(self, urls: list[str], first: int) -> None:
        self.clients = [Client(url, retries=1, patience=0.05, timeout=20.0) for url in urls]
        self.turn = itertools.count(first)

    def decide(self, context: Any, key: str) -> Decision:
        return self._anywhere(lambda client: client.decide(context, key=key))

    def decide_many(self, contexts: list[Any], key: str) -> list[Decision]:
        return self._anywhere(lambda client: client.decide_many(contexts, key=key))

    def reward(self, id: str, reward: float) -> bool:
        return self._anywhere(lambda client: client.reward(id, reward))

    def behavior(self, id: str, arm: str) -> bool:
        return self._anywhere(lambda client: client.behavior(id, arm))

    def _anywhere(self, call: Callable[[Client], T]) -> T:
        end = time.monotonic() + 60
        while True:
            try:
                return call(self.clients[next(self.turn) % len(self.clients)])
            except ServiceError as error:
                # no connection (killed, or not started yet) or 503: somebody else will answer
                if time.monotonic() > end or getattr(error, "status", 503) != 503:
                    raise


class Wanderer(Worker):
    """A caller that does not care who answers."""

    def __init__(self, urls: list[str], seed: int, stop: threading.Event) -> None:
        super().__init__(urls[0], seed, stop)
        self.client = AnyServer(urls, seed)

    def run(self) -> None:
        try:
            while not self.stop_event.is_set():
                self._one(self.client)  # type: ignore[arg-type]
        except BaseException as error:
            self.error = error


def until(condition: Callable[[], bool], seconds: float = 20.0) -> float:
    """Wait; returns how long it took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, "it never came true"
        time.sleep(0.01)
    return time.monotonic() - started


def state(url: str) -> dict[str, Any]:
    return httpx.get(url + "/v1/state", timeout=60).json()


def same(urls: list[str]) -> bool:
    """Whether all servers are at one event; if so they must be equal bit for bit."""
    states = [state(url) for url in urls]
    if len({s["event"] for s in states}) > 1:
        return False
    assert len({s["digest"] for s in states}) == 1, states
    return True


def test_three_servers_one_killed_one_late(tmp_path: Path, new_postgres: Callable[[], str]):
    make_config(tmp_path, kind="FusedOFUL", mode="act", database=new_postgres(), snapshot_every=150)
    ports = [free_port() for _ in range(3)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]

    def start(i: int) -> Server:
        server = Server(tmp_path, "--port", str(ports[i]))
        assert server.url == urls[i], server.errors
        return server

    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        servers: list[Server | None] = [*pool.map(start, (0, 1)), None]
    workers = [Wanderer(urls, seed, stop) for seed in range(5)]
    for worker in workers:
        worker.start()
    try:
        further(workers, 60)
        servers[2] = start(2)
        further(workers, 40)
        servers[0].kill()
        further(workers, 60)
        # who acts: said to one server, heard by the other while both are busy
        with Client(urls[1]) as one, Client(urls[2]) as other:
            one.kill(True)
            # acknowledged on one, it holds on the other, whether it has heard of it or not
            assert other.decide(random_context(np.random.default_rng(1)), key="at-once").by == "fallback"
            heard = until(lambda: other.status()["rails"]["killed"], 5.0)
            assert other.decide(random_context(np.random.default_rng(0)), key="after-the-switch").by == "fallback"
            other.kill(False)
            other.set_mode("act", share=0.5)
            until(lambda: one.status()["rails"] == other.status()["rails"], 5.0)
        servers[0] = start(0)
        further(workers, 40)
        stop.set()
        for worker in workers:
            worker.join(60)
            assert worker.error is None, worker.error
            assert not worker.is_alive()
        caught_up = until(lambda: same(urls))
        # every server tells the same about every decision, whoever made it
        ids = [id for worker in workers for id in worker.decisions][::40]
        for id in ids:
            records = [httpx.get(f"{url}/v1/decisions/{id}", timeout=60).json() for url in urls]
            assert records[0] == records[1] == records[2]
        print(f"kill switch heard after {heard:.2f} s, all equal {caught_up:.2f} s after the last request")
        store = open_store(load_config(tmp_path / "sidelight.toml"))
        assert {s["digest"] for s in map(state, urls)} == {bits(recover(store, use_snapshots=False).state)}
        store.close()
        assert [server.stop() for server in servers if server is not None] == [0, 0, 0]
    finally:
        stop.set()
        for server in servers:
            if server is not None and server.process.poll() is None:
                server.kill()
    assert sum(len(worker.decisions) for worker in workers) > 50
    check(tmp_path, workers)


@pytest.fixture
def pair(tmp_path: Path, new_postgres: Callable[[], str]):
    """Two servers on one database that look for each other's events only every ten seconds."""
    config = make_config(tmp_path, kind="RunningOFUL", mode="act", database=new_postgres())
    text = (tmp_path / "sidelight.toml").read_text()
    (tmp_path / "sidelight.toml").write_text(text.replace("poll_seconds = 0.25", "poll_seconds = 10.0"))
    assert load_config(tmp_path / "sidelight.toml").storage.poll_seconds == 10.0, config
    with ThreadPoolExecutor() as pool:
        servers = list(pool.map(Server, [tmp_path] * 2))
    with httpx.Client(base_url=servers[0].url) as one, httpx.Client(base_url=servers[1].url) as other:
        yield one, other
    for server in servers:
        server.kill()


def test_what_one_server_wrote_the_other_knows_without_waiting(pair):
    """Keys, rewards, answers and actions refer to the log, not to a server: following may be as slow as it likes."""
    one, other = pair
    context = random_context(np.random.default_rng(3))
    made = post(one, "/v1/decisions", {"context": context}, **{"Idempotency-Key": "k1"})
    again = post(other, "/v1/decisions", {"context": context}, **{"Idempotency-Key": "k1"})
    assert (made.status_code, again.status_code) == (201, 200)
    assert again.json() == made.json()
    different = post(other, "/v1/decisions", {"context": context, "subject": "s"}, **{"Idempotency-Key": "k1"})
    assert different.json()["type"].endswith("key-reused")
    id = made.json()["id"]
    arm = next(arm for arm in ARMS if arm != made.json()["arm"])
    assert post(other, f"/v1/decisions/{id}/action", {"arm": arm, "by": "person"}).status_code == 201
    assert post(one, f"/v1/decisions/{id}/reward", {"reward": 1.5}).status_code == 201
    assert post(other, f"/v1/decisions/{id}/reward", {"reward": 1.5}).status_code == 200
    assert post(other, f"/v1/decisions/{id}/reward", {"reward": 2.5}).status_code == 409
    assert post(other, f"/v1/decisions/{id}/behavior", {"arm": arm}).status_code == 201
    record = other.get(f"/v1/decisions/{id}").json()
    assert record == one.get(f"/v1/decisions/{id}").json()
    assert (record["reward"]["arm"], record["reward"]["by"]) == (arm, "person")
    # a switch that one has acknowledged holds on the other, which has not heard of it yet
    assert post(one, "/v1/kill", {"killed": True}).status_code == 200
    assert other.get("/v1/status").json()["rails"]["killed"] is False
    assert post(other, "/v1/decisions", {"context": context}).json()["by"] == "fallback"


def test_two_first_starts_on_one_empty_database(tmp_path: Path, new_postgres: Callable[[], str]):
    """Tables, first event and initial learner are made once, and neither server fails."""
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        config = make_config(folder, kind="OFUL", mode="act", database=new_postgres())
        together = threading.Barrier(2)

        def start(config: Config = config, together: threading.Barrier = together) -> tuple[bytes, str | None]:
            together.wait()
            store = open_store(config)
            try:
                prepare(store, config)
                first = store.first()
                return store.identity, None if first is None else first.payload
            finally:
                store.close()

        with ThreadPoolExecutor(2) as pool:
            one, other = (future.result() for future in [pool.submit(start) for _ in range(2)])
        assert one == other
        assert one[1] is not None
